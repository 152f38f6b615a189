"""A run that several pages are drawn of."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult


@pytest.fixture(scope="session")
def slow_gpu_reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two nodes with two GPUs each, one of them slow."""
    cluster = Cluster(nodes=2, gpus_per_node=2, iterations=4, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=5000)
    return write_reports(tmp_path_factory.mktemp("slow_gpu"), cluster)


@pytest.fixture(scope="session")
def slow_gpu(slow_gpu_reports: list[Path]) -> EfficiencyResult:
    """Its numbers."""
    return measure(slow_gpu_reports, EfficiencyOptions(regions=("*",), per_iteration="iteration"))
