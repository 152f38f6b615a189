"""A run that several pages are drawn of."""

import pytest
from support.pages import Run, run_of

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult


@pytest.fixture(scope="session")
def slow_gpu(tmp_path_factory: pytest.TempPathFactory) -> EfficiencyResult:
    """Numbers of three nodes with a GPU each, one of them slow."""
    cluster = Cluster(nodes=3, gpus_per_node=1, iterations=4, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=1000)
    reports = write_reports(tmp_path_factory.mktemp("slow_gpu"), cluster)
    return measure(reports, EfficiencyOptions(regions=("*",), per_iteration="iteration"))


@pytest.fixture(scope="session")
def run(slow_gpu: EfficiencyResult) -> Run:
    """The same with its page."""
    return run_of(slow_gpu)
