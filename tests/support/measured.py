"""Small reports and their numbers, as tests of the measurement look at them."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.measure import _tables, measure, measured_window
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import measure_all
from nsys2prv.efficiency.meters.recording_checks import device_clocks
from nsys2prv.efficiency.meters.run_totals import run_totals
from nsys2prv.efficiency.result_tables import at_moments
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.table_registry import BY_NAME, METERS
from nsys2prv.run.options import ReadOptions
from support import QUICK
from support.report_builder import ReportBuilder

US, MS = 1_000, 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
"""Name of a kernel."""


def measured(folder: Path, *reports: ReportBuilder, **options: Any) -> EfficiencyResult:
    """The numbers of reports, which are written to the folder, with clocks as UTC tells."""
    return measure(written(folder, *reports), EfficiencyOptions(**{"align": "utc", **QUICK, **options}))


def written(folder: Path, *reports: ReportBuilder) -> list[Path]:
    """Reports of ranks 0, 1, ... in a folder."""
    folder.mkdir(exist_ok=True)
    return [report.write(folder / f"rank{rank}.sqlite") for rank, report in enumerate(reports)]


def events_of(folder: Path, *reports: ReportBuilder, options: ReadOptions | None = None) -> RunEvents:
    """The events of reports with what waits for what."""
    return read_events(written(folder, *reports), options or ReadOptions(), folder / "read", with_dependencies=True)


def measured_tables(paths: Sequence[Path], names: Collection[str], **options: Any) -> dict[str, pl.DataFrame]:
    """Some tables of reports, in half the time of `measured`: only the meters that fill them, and no findings."""
    chosen = EfficiencyOptions(**{"align": "utc", **options})
    recorded = MeasuredRun(read_events(paths, chosen, paths[0].parent / "columns", with_dependencies=True), chosen)
    run = recorded.in_window(measured_window(recorded))
    meters = {meter.measure: meter for meter in METERS}
    of_tables = [meter.measure for meter in METERS if not {BY_NAME[name] for name in names}.isdisjoint(meter.tables)]
    pending, needed = [run_totals, device_clocks, *of_tables], {}
    while pending:
        meter = meters[pending.pop()]
        needed[meter.measure] = meter
        pending += meter.needs
    tables = _tables(run, measure_all(run, needed.values()))
    return {name: at_moments(BY_NAME[name], frame, run.events.offset) for name, frame in tables.items()}


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


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """Time that at least one of some intervals (start, end) covers."""
    found = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 2)
    if not len(found):
        return 0
    start, end = found[:, 0], found[:, 1]
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(reached - np.maximum(start, before), 0).sum())
