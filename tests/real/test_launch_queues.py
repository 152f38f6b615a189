"""Launch queues of the real reports: calls with so many operations before them, against loops of their own over SQL."""

from __future__ import annotations

import bisect
import re
import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from support.real_reports import RUNS

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph import cuda_waits
from nsys2prv.efficiency.graph.cuda_waits import FEWEST_PENDING, LONGER, LONGEST_RELEASE, blocked_calls
from nsys2prv.efficiency.measured_run import MeasuredRun

from .conftest import in_make_test

_LATE_CLOCK = "4gpu_baseline"
"""Its GPU is 325 ms late, so that far more seems to be pending than is: the rule does not decide there."""
WITH_LAUNCHES = (
    "4gpu_baseline", "8workers", "baseline", "callchains", "cloverleaf-3.13", "cuda-graphs", "dali", "dali_amp",
    "gpu-metrics-a100", "mpi-as-nvtx-2.9", "mpi-openacc-4gpu", "nccl-2nodes-5of6-utc", "nccl-2nodes-6gpus-utc",
    "nccl-3nodes-9gpus", "nccl-3nodes-9gpus-utc", "no-metadata-2020", "one-process-4gpu", "openacc-mpas", "pytorch-h100",
    "pytorch-nccl-2gpu", "pytorch-uvm", "tensorrt-3.1", "v100x8",
)  # fmt: skip
_LAUNCH = re.compile("LaunchKernel|GraphLaunch|LaunchCooperative|LaunchHostFunc")


@dataclass(frozen=True)
class Call:
    """A call that launches: its length, the operations of its stream that have not started when it ends, its own among them,
    and how long before its end another one of them started, if that was during the call; ns."""

    length: int
    pending: int
    released: int | None


def calls_of(path: Path) -> list[Call]:
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as database:

        def rows(sql: str) -> list[tuple[int, ...]]:
            return database.execute(sql).fetchall()

        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        launching = {number for number, name in database.execute("SELECT id, value FROM StringIds") if _LAUNCH.search(name)}
        by_correlation: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        ends: dict[tuple[int, int], int] = defaultdict(int)
        calls = "SELECT globalTid, start, end, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC"
        for thread, start, end, correlation, name in rows(calls):
            if name in launching:
                ends[thread, start] = max(ends[thread, start], end)
            # The first is the outermost. Old tables have no process of what runs: it is 0.
            for process in (thread >> 24 << 24, 0):
                by_correlation[process, correlation] = (thread, start, end, name)
        streams: dict[tuple[int, ...], list[tuple[int, tuple[int, int, int, int] | None]]] = defaultdict(list)
        for table in tables & {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")}:
            columns = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            process = "globalPid" if "globalPid" in columns else "0"
            sql = f"SELECT {process}, deviceId, streamId, start, correlationId FROM {table}"
            for pid, device, stream, start, correlation in rows(sql):
                streams[pid, device, stream].append((start, by_correlation.get((pid, correlation))))
    found: dict[tuple[int, int], Call] = {}
    for operations in streams.values():
        starts = sorted(start for start, _ in operations)
        for start, call in sorted(operations, key=lambda operation: operation[0]):
            if call is None or call[3] not in launching:
                continue
            thread, begin, end, _ = call
            # Some calls begin at the same time, of which the longest counts, and a graph has many operations.
            end = max(end, ends[thread, begin])
            started = bisect.bisect_right(starts, end)
            before = starts[started - 1] if started else -1
            pending = bisect.bisect_left(starts, start) + 1 - started
            found.setdefault((thread, begin), Call(end - begin, pending, end - before if before > begin else None))
    return list(found.values())


def found_in(name: str, folder: Path) -> pl.DataFrame:
    """Blocked calls as the graph of the run and the rule of findings have them."""
    events = read_events(RUNS[name], EfficiencyOptions(align="utc"), folder)  # type: ignore[arg-type]
    return blocked_calls(MeasuredRun(events)).calls


@pytest.mark.parametrize("report", [pytest.param(name, marks=in_make_test(name)) for name in WITH_LAUNCHES])
def test_launch_queues_are_as_long_as_sql_says(report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if report not in RUNS:
        pytest.skip(f"no report {report}")
    calls = [call for path in RUNS[report] for call in calls_of(path)]
    usual = sorted(call.length for call in calls)[len(calls) // 10]
    released = [call for call in calls if call.released is not None]
    blocked = [
        call
        for call in released
        if call.pending >= FEWEST_PENDING
        and call.length >= LONGER * usual
        and call.released is not None
        and call.released <= LONGEST_RELEASE
    ]
    assert (len(blocked) > 0) == (not found_in(report, tmp_path / "as it is").is_empty()) == (report == _LATE_CLOCK)
    # No other queue of a real report is full; with lower limits shorter ones count.
    fewest = max((call.pending for call in released), default=0) // 2 + 1
    monkeypatch.setattr(cuda_waits, "FEWEST_PENDING", fewest)
    monkeypatch.setattr(cuda_waits, "LONGER", 0.0)
    monkeypatch.setattr(cuda_waits, "LONGEST_RELEASE", 1 << 62)

    found = found_in(report, tmp_path / "lower")

    expected = sorted((call.length, call.pending) for call in released if call.pending >= fewest)
    assert sorted(found.select(pl.col("until") - pl.col("begin"), "pending").rows()) == expected
