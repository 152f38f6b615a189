"""Traces of real reports are valid, load in Paraver, and show there what the reports contain."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
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
