"""Traces of real reports are valid, load in Paraver, and show there what the reports contain."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from nsys2prv.paraver.check import check_trace

from .conftest import Translated


@pytest.mark.every_report
def test_the_trace_is_valid(translated: Translated) -> None:
    assert check_trace(translated.trace.path).violations == ()


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
