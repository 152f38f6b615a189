"""Paraver's own views of states on real traces: Useful, and each state that calls, kernels and copies have."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from support.paramedir import STATES_VIEW, Paramedir
from support.spans import union_length
from support.whole_trace import WholeTrace

from nsys2prv.vocabulary import event_types

from .conftest import Translated

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


def _states(trace: WholeTrace) -> pl.DataFrame:
    """The same from the records."""
    return trace.states().group_by("task", "thread", value="state").agg(time=(pl.col("end") - pl.col("begin")).sum())


@pytest.mark.parametrize("report", [*WITH_STREAMS, "mpi4", "openacc-mpas"])
def test_paraver_shows_each_state_as_long_as_it_lasts(
    translation: Callable[[str], Translated], paramedir: Paramedir, report: str
) -> None:
    trace = translation(report).trace
    # State 0, Idle, is also what Paraver shows where there is none.
    expected = _states(trace).filter(pl.col("value") != event_types.IDLE).sort("task", "thread", "value")

    shown = _shown(paramedir.show_one(trace.path, STATES_VIEW)).filter(pl.col("value") != event_types.IDLE)

    assert shown.sort("task", "thread", "value").equals(expected)
    assert not expected.is_empty()


@pytest.mark.parametrize("report", WITH_STREAMS)
def test_streams_run_while_kernels_do(translation: Callable[[str], Translated], report: str) -> None:
    translated = translation(report)
    trace = translated.trace
    places = [(task, thread) for task, row in enumerate(trace.header.tasks, 1) for thread in range(1, row.threads + 1)]
    # Kernels that overlap lie on rows of the same name.
    rows = pl.DataFrame(
        [(*place, name) for place, name in zip(places, trace.names["THREAD"], strict=True)],
        schema={"task": pl.Int64, "thread": pl.Int64, "name": pl.String},
        orient="row",
    ).filter(pl.col("name").str.starts_with("CUDA-D"))
    running = trace.states().filter(pl.col("state") == event_types.RUNNING).join(rows, on=["task", "thread"])
    found = [union_length(of_stream.select("begin", "end").rows()) for _, of_stream in running.group_by("task", "name")]

    assert sum(found) == sum(_kernel_time(path) for path in translated.databases)


def _kernel_time(path: Path) -> int:
    """Time in which a compute kernel runs on a stream, summed over streams, ns."""
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:
        kernels = pl.DataFrame(
            database.execute(
                """select globalPid, deviceId, streamId, start, end from CUPTI_ACTIVITY_KIND_KERNEL
                join StringIds on id = demangledName where value not like 'nccl%kernel%'"""
            ).fetchall(),
            schema=["process", "device", "stream", "begin", "end"],
            orient="row",
        )
    return sum(union_length(one.select("begin", "end").rows()) for _, one in kernels.group_by("process", "device", "stream"))
