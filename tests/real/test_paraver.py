"""Traces of real reports are valid, load in Paraver, and show there what the reports contain."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from support.paramedir import VIEW, Paramedir, Step, joined_steps
from support.real_reports import REPORTS

from nsys2prv.paraver.check import check_trace

from .conftest import Translated


@pytest.mark.every_report
def test_the_trace_is_valid(translated: Translated) -> None:
    assert check_trace(translated.trace.path).violations == ()


@pytest.mark.parametrize("suffix", [".prv", ".pcf", ".row"])
def test_sqlite_and_parquet_give_the_same_files(translation: Callable[[str], Translated], suffix: str) -> None:
    sqlite, parquet = translation("mpi4").trace.path, translation("mpi4_parquet").trace.path

    assert sqlite.with_suffix(suffix).read_bytes() == parquet.with_suffix(suffix).read_bytes()


def test_one_process_with_four_gpus_is_one_task_with_streams_of_four_devices(
    translation: Callable[[str], Translated],
) -> None:
    trace = translation("one-process-4gpu").trace

    assert len(trace.header.tasks) == 1
    assert {device for _, device in _streams(trace.names["THREAD"])} == {0, 1, 2, 3}


def test_eight_ranks_are_eight_tasks_in_the_order_of_slurm_each_with_its_own_device(
    translation: Callable[[str], Translated],
) -> None:
    translated = translation("v100x8")
    header = translated.trace.header
    pid_of_rank = dict(sorted(_rank_and_pid(path) for path in translated.databases))
    names = translated.trace.names["TASK"]
    devices = [
        {device for row, device in _streams(translated.trace.names["THREAD"]) if 0 <= row - task.first_row < task.threads}
        for task in header.tasks
    ]

    assert list(pid_of_rank) == list(range(8))
    assert [re.findall(r"\d+", name)[0] for name in names] == [str(rank) for rank in range(8)]
    assert all(str(pid) in name.split() for pid, name in zip(pid_of_rank.values(), names, strict=True))
    assert [len(of_task) for of_task in devices] == [1] * 8
    assert set().union(*devices) == set(range(8))


def _streams(thread_names: tuple[str, ...]) -> list[tuple[int, int]]:
    """(row, device) of each row that is a CUDA stream."""
    streams = [(row, re.fullmatch(r"CUDA-D(\d+)\.S(\d+)(?:-\S+)?", name)) for row, name in enumerate(thread_names)]
    return [(row, int(match[1])) for row, match in streams if match]


def _rank_and_pid(path: Path) -> tuple[int, int]:
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
        (variable,) = database.execute("select value from META_DATA_CAPTURE where value like 'SLURM_PROCID=%'").fetchone()
        (pid,) = database.execute("select distinct (globalPid >> 24) & 0xFFFFFF from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    return int(variable.partition("=")[2].strip('"')), pid


NVTX_REPORTS = [name for name in REPORTS if name.startswith("nvtx-")]


@pytest.mark.parametrize("nvtx_report", NVTX_REPORTS)
@pytest.mark.parametrize("domain", ["default", "app.compute"])
def test_when_an_inner_range_ends_the_outer_one_is_shown_again(
    translation: Callable[[str], Translated], paramedir: Paramedir, nvtx_report: str, domain: str
) -> None:
    translated = translation(nvtx_report)
    trace = translated.trace
    number, labels = next(
        (number, label.values)
        for number, label in trace.labels.types.items()
        if label.label == f"NVTX pushpop ranges {domain} domain"
    )
    view = VIEW.format(function="Last Evt Val", types="=", composition="Stacked Val").replace(
        "window_selected", f"window_filter_module evt_type 1 {number}\nwindow_selected"
    )
    shown: dict[int, list[Step]] = {}
    for line in paramedir.show_one(trace.path, view).read_text().splitlines():
        row, begin, duration, value = line.split("\t")
        thread = int(row.split(".")[2])
        label = (labels or {})[round(float(value))] if float(value) else ""
        shown.setdefault(thread, []).append((float(begin), float(begin) + float(duration), label))

    ranges = _ranges(translated, domain)
    offset = min(trace.intervals([number])["begin"].to_list()) - min(
        one[0] for of_thread in ranges.values() for one in of_thread
    )
    expected = sorted(
        _innermost([(begin + offset, end + offset, label) for begin, end, label in of_thread], trace.header.end)
        for of_thread in ranges.values()
    )
    assert any(_nested(of_thread) for of_thread in ranges.values())
    found = sorted(steps for of_thread in shown.values() if len(steps := joined_steps(of_thread)) > 1)
    assert found == expected


def _ranges(translated: Translated, domain: str) -> dict[int, list[tuple[int, int, str]]]:
    """Push/pop ranges of a domain, by thread."""
    rows = translated.query(
        f"""select event.globalTid, event.start, event.end, coalesce(event.text, name.value) from NVTX_EVENTS event
        left join StringIds name on name.id = event.textId
        left join NVTX_EVENTS created on created.eventType = 75 and created.domainId = event.domainId
        left join StringIds domain on domain.id = created.textId
        where event.eventType = 59 and coalesce(created.text, domain.value, 'default') = '{domain}'
        order by event.start, event.end desc"""
    )
    ranges: dict[int, list[tuple[int, int, str]]] = {}
    for thread, begin, end, label in rows:
        ranges.setdefault(thread, []).append((begin, end, " ".join(label.translate(str.maketrans("[]", "()")).split())))
    return ranges


def _nested(ranges: list[tuple[int, int, str]]) -> bool:
    return any(outer[0] < inner[0] and inner[1] < outer[1] for outer in ranges for inner in ranges)


def _innermost(ranges: list[tuple[int, int, str]], end: int) -> list[Step]:
    """Expected steps of a thread: at each time the label of the open range that started last."""
    times = sorted({0, end, *(time for begin, until, _ in ranges for time in (begin, until))})
    steps: list[Step] = []
    for begin, until in pairwise(times):
        open_ranges = [
            (one[0], -one[1], place, one[2]) for place, one in enumerate(ranges) if one[0] <= begin and one[1] >= until
        ]
        steps.append((float(begin), float(until), max(open_ranges)[3] if open_ranges else ""))
    return joined_steps(steps)


@pytest.mark.parametrize("nvtx_report", NVTX_REPORTS)
def test_ranges_that_overlap_freely_are_all_whole(translation: Callable[[str], Translated], nvtx_report: str) -> None:
    translated = translation(nvtx_report)
    types = [number for number in translated.trace.labels.types if number == 9004 or 90040001 <= number < 90140000]
    intervals = translated.trace.intervals(types).sort("begin", "end")
    expected = translated.query("select start, end from NVTX_EVENTS where eventType = 60 order by start, end")
    offset = intervals["begin"][0] - expected[0][0]

    assert any(one[0] < other[0] < one[1] < other[1] for one in expected for other in expected)
    assert intervals.select("begin", "end").rows() == [(begin + offset, end + offset) for begin, end in expected]
    # On one event type they would cut each other off.
    on_one_type = intervals.sort("task", "thread", "type", "begin").with_columns(
        former=pl.col("end").shift(1).over("task", "thread", "type")
    )
    assert on_one_type.filter(pl.col("begin") < pl.col("former")).is_empty()
