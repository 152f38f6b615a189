"""Small reports and their numbers, as tests of the measurement look at them."""

from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from support.report_builder import ReportBuilder

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
"""Name of a kernel."""


def measured(folder: Path, *reports: ReportBuilder, **options: Any) -> EfficiencyResult:
    """The numbers of reports, which are written to the folder, with clocks as UTC tells."""
    folder.mkdir(exist_ok=True)
    paths = [report.write(folder / f"rank{rank}.sqlite") for rank, report in enumerate(reports)]
    return measure(paths, EfficiencyOptions(**{"align": "utc", **options}))


def row(table: pl.DataFrame, **key: Any) -> dict[str, Any]:
    """The one row with these values."""
    return table.row(by_predicate=pl.all_horizontal(pl.col(name) == value for name, value in key.items()), named=True)


def picked(table: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of some columns."""
    return table.select(columns).rows()


def finding(result: EfficiencyResult, kind: str) -> dict[str, Any]:
    """The one finding of a kind."""
    return row(result.findings, kind=kind)


def check(result: EfficiencyResult, kind: str) -> tuple[str, str | None]:
    """What came of looking for a kind of finding, and why."""
    found = row(result.finding_checks, kind=kind)
    return found["result"], found["reason"]
