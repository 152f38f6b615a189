"""A run that several pages are drawn of."""

import pytest
from support.pages import Run, run_of, with_a_slow_gpu

from nsys2prv.efficiency.results import EfficiencyResult


@pytest.fixture(scope="session")
def slow_gpu(tmp_path_factory: pytest.TempPathFactory) -> EfficiencyResult:
    """Numbers of three nodes with a GPU each, one of them slow."""
    return with_a_slow_gpu(tmp_path_factory.mktemp("slow_gpu"), 3, 1)


@pytest.fixture(scope="session")
def run(slow_gpu: EfficiencyResult) -> Run:
    """The same with its page."""
    return run_of(slow_gpu)
