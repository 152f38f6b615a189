"""The critical path over two ranks, three streams, events, a collective and a message, as it was worked out by hand."""

from pathlib import Path

import polars as pl
import pytest
from support import rest
from support.measured import NCCL, US
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.graph import replay
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult

COMPUTE, COPY, COMMUNICATION = 7, 13, 21
SYNC_EVENT, SYNC_WAIT_EVENT, SYNC_STREAM = 1, 2, 3

NUMBERED, BY_EVENT, NOT_RECORDED = "numbers of records", "order of calls", "not recorded"


class Rank:
    """A rank whose host issues work on three streams that wait for each other by events. Times are us."""

    def __init__(self, number: int, events: str) -> None:
        self.report = ReportBuilder(rank=number, with_mpi=True, ranks=2, pid=1000 + number).gpu(number)
        self._events = events

    def follow(self, stream: int, awaited: int, number: int, call: int) -> None:
        """Record an event on one stream, and have another one wait for it: two calls of 1 us, the second 2 us later."""
        # One event for all where the order of calls decides: the latest record before a wait counts.
        event = number if self._events == NUMBERED else 1
        sync = 100 + number if self._events == NUMBERED else None
        if self._events != NOT_RECORDED:
            recorded = self.report.api_call("cudaEventRecord_v3020", call * US, (call + 1) * US)
            self.report.event_record(event, correlation=recorded, stream=awaited, sync=sync)
        else:
            self.report.api_call("cudaEventRecord_v3020", call * US, (call + 1) * US)
        waiting = self.report.api_call("cudaStreamWaitEvent_v3020", (call + 2) * US, (call + 3) * US)
        self.report.synchronization(
            (call + 2) * US, (call + 3) * US, kind=SYNC_WAIT_EVENT, correlation=waiting, stream=stream, event=event, sync=sync
        )

    def kernel(self, name: str, stream: int, call: int, start: int, end: int) -> None:
        """Launch a kernel by a call of 2 us."""
        self.report.kernel(name, start * US, end * US, launch=(call * US, (call + 2) * US), stream=stream)

    def wait(self, stream: int, start: int, end: int) -> None:
        """Synchronize with a stream."""
        call = self.report.api_call("cudaStreamSynchronize_v3020", start * US, end * US)
        self.report.synchronization(start * US, end * US, kind=SYNC_STREAM, correlation=call, stream=stream)


def ranks(folder: Path, slow: int, events: str) -> list[Path]:
    """Two ranks copy, compute, reduce and update. Then rank 0 sends a message, for which rank 1 waits before it evaluates."""
    reports = []
    for number in range(2):
        rank = Rank(number, events)
        compute = 100 if number == slow else 60
        rank.report.copy(14 * US, 64 * US, 1 << 20, launch=(10 * US, 12 * US), stream=COPY)
        rank.follow(COMPUTE, COPY, 1, call=13)
        rank.kernel("gemm", COMPUTE, 16, 66, 46 + compute)
        rank.kernel("bias", COMPUTE, 18, 48 + compute, 66 + compute)
        rank.follow(COMMUNICATION, COMPUTE, 2, call=20)
        rank.kernel(NCCL, COMMUNICATION, 24, 69 + compute, 250)
        rank.follow(COMPUTE, COMMUNICATION, 3, call=27)
        rank.kernel("adam", COMPUTE, 31, 253, 293)
        rank.wait(COMPUTE, 34, 300)
        if number == 0:
            rank.report.mpi_p2p("MPI_Send", 310 * US, 320 * US, partner=1, size=4096)
        else:
            rank.report.mpi_p2p("MPI_Recv", 302 * US, 345 * US, partner=0, size=4096)
            rank.kernel("evaluate", COMPUTE, 350, 357, 407)
            rank.wait(COMPUTE, 353, 415)
        reports.append(rank.report.write(folder / f"rank{number}.sqlite"))
    return reports


def segments(result: EfficiencyResult) -> list[tuple[int, int, str, str, str | None]]:
    """Begin and end of each segment, us from the first call, its kind, rank and row, and name."""
    return [
        (row["begin_ns"] // US, row["end_ns"] // US, row["kind"], f"{row['task'][:6]} {row['row']}", row["name"])
        for row in result.critical_path.sort("begin_ns").iter_rows(named=True)
    ]


def known_path(slow: int) -> list[tuple[int, int, str, str, str | None]]:
    """Segments of the path: of the slow rank until the reduction, of rank 0, which sends, then of rank 1, which receives."""
    row = f"Rank {slow} CUDA-D{slow}"
    return [
        (0, 4, "launch latency", f"{row}.S13-node01", "CUDA memcpy Host-to-Device"),
        (4, 54, "copy", f"{row}.S13-node01", "CUDA memcpy Host-to-Device"),
        (54, 56, "event wait", f"{row}.S7-node01", "gemm"),
        (56, 136, "kernel", f"{row}.S7-node01", "gemm"),
        (136, 138, "stream order", f"{row}.S7-node01", "bias"),
        (138, 156, "kernel", f"{row}.S7-node01", "bias"),
        (156, 159, "event wait", f"{row}.S21-node01", NCCL),
        (159, 240, "transfer", "Rank 0 CUDA-D0.S21-node01", NCCL),
        (240, 243, "event wait", "Rank 0 CUDA-D0.S7-node01", "adam"),
        (243, 283, "kernel", "Rank 0 CUDA-D0.S7-node01", "adam"),
        (283, 290, "synchronization latency", "Rank 0 python3 tid 1000", "cudaStreamSynchronize"),
        (290, 300, "host", "Rank 0 python3 tid 1000", None),
        (300, 335, "message", "Rank 1 python3 tid 1001", "MPI_Recv"),
        (335, 340, "host", "Rank 1 python3 tid 1001", None),
        (340, 347, "launch latency", "Rank 1 CUDA-D1.S7-node01", "evaluate"),
        (347, 397, "kernel", "Rank 1 CUDA-D1.S7-node01", "evaluate"),
        (397, 405, "synchronization latency", "Rank 1 python3 tid 1001", "cudaStreamSynchronize"),
    ]


@pytest.mark.parametrize("events", [NOT_RECORDED, *rest(NUMBERED, BY_EVENT)])
@pytest.mark.parametrize("slow", [0, *rest(1)])
def test_the_path_over_events_a_collective_and_a_message(tmp_path: Path, slow: int, events: str) -> None:
    reports = ranks(tmp_path, slow, events)
    result = measure(reports, EfficiencyOptions())
    assert segments(result) == known_path(slow)
    totals = {(by, name): total for by, name, total, *_ in result.critical_path_totals.iter_rows()}
    for division in ("kind", "task"):
        part = result.critical_path_totals.filter(by=division)
        assert part["total_ns"].sum() == result.head["window"]["length_ns"] == 405 * US
        assert part["share"].sum() == pytest.approx(1)
    assert (totals["kernel", "gemm"], totals["kernel", NCCL], totals["host cause", "host"]) == (80 * US, 81 * US, 15 * US)
    # The other rank is there 40 us before the slow one, and its copy has as much time.
    beside = result.critical_path_rows.filter(pl.col("row") == f"CUDA-D{1 - slow}.S13-node01")
    assert beside.select("on_path_ns", "least_slack_ns").rows() == [(0, 40 * US)]


def test_the_path_is_the_same_when_a_run_is_replayed_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "BLOCK", 1)
    assert segments(measure(ranks(tmp_path, 0, NUMBERED), EfficiencyOptions())) == known_path(0)
