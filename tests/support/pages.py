"""A measured run with its page, as tests look at both."""

import importlib.util
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.outputs.page import page
from nsys2prv.efficiency.results import EfficiencyResult
from support.browser import PageReader

AXE = "NSYS2PRV_AXE"
"""Environment variable with the path of `axe.min.js` of axe-core."""
_WITH_AXE = ("axe_playwright_python", "axe_core_python", "axe_selenium_python")
"""Packages of PyPI that carry it."""


@dataclass
class Run:
    """A measured run and its page."""

    measured: EfficiencyResult
    html: str
    read: PageReader = field(init=False)

    def __post_init__(self) -> None:
        self.read = PageReader(self.html)


def run_of(measured: EfficiencyResult) -> Run:
    return Run(measured, page(measured.head, measured.tables))


def unpacked(column: dict[str, Any]) -> list[Any]:
    """Values of a column of a table in the page."""
    if "texts" not in column:
        return list(column["values"])
    return [None if place is None else column["texts"][place] for place in column["values"]]


def axe_or_skip() -> str:
    """The script of axe-core; the test is skipped where it is not installed."""
    if given := os.environ.get(AXE):
        return Path(given).read_text(encoding="utf-8")
    for package in _WITH_AXE:
        found = importlib.util.find_spec(package)
        for folder in found.submodule_search_locations or () if found is not None else ():
            for script in sorted(Path(folder).rglob("axe*.js")):
                return script.read_text(encoding="utf-8")
    pytest.skip(f"axe-core is not installed, and of no package {', '.join(_WITH_AXE)}: make test {AXE}=/path/to/axe.min.js")


def with_a_slow_gpu(folder: Path, nodes: int, gpus_per_node: int) -> EfficiencyResult:
    """Numbers of a training run in which one GPU is slower than the others by half."""
    cluster = Cluster(nodes, gpus_per_node, iterations=4, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=1000)
    return measure(write_reports(folder, cluster), EfficiencyOptions(regions=("*",), per_iteration="iteration"))
