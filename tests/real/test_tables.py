"""Every table with events of every real report is translated, or left out under a reason; plugins and adapters against SQL."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import few_of
from support.paramedir import STATES_VIEW, VIEW, Paramedir, read_tables, read_timeline
from support.report_builder import ReportBuilder
from support.trace_properties import assert_account_balances
from support.view_parser import parse_views
from support.whole_trace import WholeTrace

from nsys2prv.paraver.check import check_trace
from nsys2prv.paraver.views.of_trace import content_of
from nsys2prv.timeline import coverage
from nsys2prv.trace.translate import translate
from nsys2prv.vocabulary import event_types

from .conftest import Translated

# Tables of the real reports whose rows are no events, found by looking at them.
NO_EVENTS = {
    "ANALYSIS_DETAILS",
    "ANALYSIS_FILE",
    "DIAGNOSTIC_EVENT",
    "EXPORT_META_DATA",
    "GENERIC_EVENT_SOURCES",
    "GENERIC_EVENT_TYPES",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "MPI_COMMUNICATORS",
    "MPI_RANKS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "OSRT_CALLCHAINS",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "PROCESSES",
    "ProcessStreams",
    "SAMPLING_CALLCHAINS",
    "StringIds",
    "ThreadNames",
    "UnwindMethodType",
}
PARTLY_LEFT_OUT = {"GENERIC_EVENTS": {coverage.GPU_METRICS_ROWS}, "NVTX_EVENTS": {coverage.NAMES_OF_NVTX}}


def rows_of_tables(database: Path) -> dict[str, int]:
    with sqlite3.connect(f"file:{database}?immutable=1", uri=True) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type in ('table', 'view')")]
        return {name: connection.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names}


def account(translated: Translated) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(translated.trace.path.with_suffix(".json").read_text())["reports"]
    return found


def test_every_table_with_events_is_translated_or_left_out_under_a_reason(translated: Translated) -> None:
    assert_account_balances({"reports": account(translated)})
    for database, report in zip(translated.databases, account(translated), strict=True):
        listed = {one["table"]: one for one in report["tables"]}
        with_events = {
            name: rows
            for name, rows in rows_of_tables(database).items()
            if rows and name not in NO_EVENTS and not name.startswith(("ENUM_", "TARGET_INFO_"))
        }

        assert {name: one["rows"] for name, one in listed.items()} == with_events
        for name, one in listed.items():
            assert set(one["left_out"]) <= PARTLY_LEFT_OUT.get(name, set()), name


def test_the_trace_is_valid(translated: Translated) -> None:
    assert check_trace(translated.trace.path).violations == ()


@pytest.mark.thorough
def test_generic_events_of_gpus_are_the_samples_of_gpu_metrics(translation: Callable[[str], Translated]) -> None:
    translated = translation("gpu-metrics-a100")
    by_field = (
        """select field.key, count(*), sum(field.value) from GENERIC_EVENTS, json_each(data) field group by 1 order by 1"""
    )
    # In GPU_METRICS a first sample can be wrapped to 32 bits with a sign.
    by_metric = """select metricName, count(*), sum(value & 0xffffffff)
                   from GPU_METRICS join TARGET_INFO_GPU_METRICS using (typeId, metricId) group by 1 order by 1"""

    assert translated.query(by_field) == translated.query(by_metric)
    (entry,) = (one for one in account(translated)[0]["tables"] if one["table"] == "GENERIC_EVENTS")
    assert entry["left_out"] == {coverage.GPU_METRICS_ROWS: translated.query("select count(*) from GENERIC_EVENTS")[0][0]}


def test_paraver_shows_the_decimals_of_a_sampled_number(tmp_path: Path, paramedir: Paramedir) -> None:
    report = ReportBuilder(pid=1000)
    for start, value in ((0, 1.5), (1000, 0.25)):
        report.row("PERF_EVENT_CPU_METRIC_EVENT", start=start, end=start + 1000, componentId=3, metricId=2, value=value)
    summary = translate([report.write(tmp_path / "report.sqlite")], tmp_path / "out")
    shown = paramedir.show_one(summary.prv, VIEW.format(function="Last Evt Val", types="All", composition="As Is")).read_text()
    assert [line.split("\t")[1:] for line in shown.splitlines() if line] == [
        ["0.00", "1000.00", "1.50"],
        ["1000.00", "1000.00", "0.25"],
    ]


# -- paraver's own views of states on real traces: Useful, and each state that calls, kernels and copies have ----
WITH_STREAMS = ("cloverleaf-3.13", "pytorch-nccl-2gpu", "mpi-openacc-4gpu", "gpu-metrics-a100")


def _shown(csv: Path) -> pl.DataFrame:
    """Columns `task`, `thread`, `value`, and `time` in ns: how long each value is shown on each row."""
    lines = [line.split("\t") for line in csv.read_text().splitlines()]
    frame = pl.DataFrame(
        [(*map(int, row.split(".")[1:]), round(float(value)), round(float(length))) for row, _, length, value in lines],
        schema={"task": pl.Int64, "thread": pl.Int64, "value": pl.Int64, "time": pl.Int64},
        orient="row",
    )
    return frame.group_by("task", "thread", "value").agg(pl.col("time").sum())


@pytest.mark.parametrize("report", few_of((*WITH_STREAMS, "mpi4", "openacc-mpas"), {"mpi4"}))
def test_paraver_shows_each_state_as_long_as_it_lasts(
    translation: Callable[[str], Translated], paramedir: Paramedir, report: str
) -> None:
    trace = translation(report).trace
    # State 0, Idle, is also what Paraver shows where there is none.
    expected = trace.states().group_by("task", "thread", value="state").agg(time=(pl.col("end") - pl.col("begin")).sum())
    expected = expected.filter(pl.col("value") != event_types.IDLE).sort("task", "thread", "value")
    shown = _shown(paramedir.show_one(trace.path, STATES_VIEW)).filter(pl.col("value") != event_types.IDLE)
    assert shown.sort("task", "thread", "value").equals(expected)
    assert not expected.is_empty()


# -- every view of every real report loads in Paraver ----------------------------------------------------
ROWS: dict[str, Callable[[WholeTrace], int]] = {
    "thread": lambda trace: trace.header.rows,
    "task": lambda trace: len(trace.header.tasks),
    "appl": lambda trace: 1,
}


def views_of(trace: WholeTrace) -> Path:
    return trace.path.with_suffix(".cfgs")


def test_every_view_is_well_made_and_binds_only_to_what_the_trace_has(translated: Translated) -> None:
    trace = translated.trace
    occurring = content_of(trace.path).types
    views = parse_views(views_of(trace))
    assert views
    for cfg in views.values():
        for window in cfg.windows:
            assert {int(number) for number in window.filters.get("evt_type", ())} <= set(occurring)


def test_every_view_loads_in_paraver_is_of_its_kind_and_shows_all_rows(
    name: str, translated: Translated, shown_views: Callable[[str], dict[str, Path]]
) -> None:
    trace = translated.trace
    views = parse_views(views_of(trace))
    assert "0-start-here/states.cfg" in views
    for view, output in shown_views(name).items():
        cfg = views[f"{view}.cfg"]
        window = cfg.windows[-1] if cfg.kind == "timeline" else cfg.windows[int(cfg.histogram["Analyzer2D.ControlWindow:"]) - 1]
        rows = ROWS[window.level](trace)
        chosen = [shown for (level, _), shown in window.rows.items() if level == window.level != "appl"]
        rows -= sum(shown.count(False) for shown in chosen)
        if cfg.kind == "timeline":
            shown = len(read_timeline(output))
            # paramedir prints all threads of a timeline, also those that it does not show.
            assert (shown == rows) if not chosen else (shown >= rows), view
        else:
            tables = read_tables(output)
            assert cfg.kind == "tables" or len(tables) <= 1, view
            for table in tables.values():
                assert len(table.rows) == rows, view
