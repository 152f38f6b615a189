"""Events find the API calls that caused them, in whatever order tables are and however much is held at once."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest
from support.report_builder import ReportBuilder

from nsys2prv.exports import Report, open_report
from nsys2prv.sources import correlate
from nsys2prv.sources.correlate import with_calls

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COUNT = 300


def kernels(report: Report) -> pl.LazyFrame:
    return report.scan_events(KERNELS, ("globalPid", "start"), ("correlationId",), None)


def made(tmp_path: Path, processes: int, *, in_order: bool) -> tuple[Report, dict[tuple[int, int], tuple[int, int] | None]]:
    """A report, and of each kernel (its process and start) the thread and start of its call."""
    chance = random.Random(processes)
    report = ReportBuilder()
    calls: dict[tuple[int, int], tuple[int, int] | None] = {}
    wanted = [(1000 + process, number) for number in range(1, COUNT + 1) for process in range(processes)]
    if not in_order:
        chance.shuffle(wanted)
    for place, (pid, number) in enumerate(wanted):
        begin, kernel = 100 * number + pid, 1_000_000 + 10 * place
        has_call = number % 7 != 0
        if number % 5 == 0 and has_call:
            # The call of the driver is inside that of the runtime, and may come first in the table.
            report.api_call("cuLaunchKernel", begin + 1, begin + 9, pid=pid, correlation=number, driver=True)
        if has_call:
            report.api_call("cudaLaunchKernel", begin, begin + 10, pid=pid, correlation=number)
        report.kernel("k", kernel, kernel + 5, pid=pid, correlation=number if number % 11 else None)
        calls[report.global_pid(pid), kernel] = (report.global_tid(pid=pid), begin) if has_call and number % 11 else None
    return open_report(report.write(tmp_path / "report.sqlite")), calls


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("held", [0, 10_000])
@pytest.mark.parametrize("most_calls", [0, 60, 10_000])
def test_each_event_gets_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, in_order: bool, held: int, most_calls: int
) -> None:
    report, calls = made(tmp_path, processes, in_order=in_order)
    monkeypatch.setattr(correlate, "PIECE_ROWS", 20)
    monkeypatch.setattr(correlate, "_HELD_ROWS", held)
    monkeypatch.setattr(correlate, "_MOST_CALLS", most_calls)

    found = pl.concat(with_calls(report, kernels, tmp_path / "scratch", ("globalTid", "start")))

    assert found.columns == ["globalPid", "start", "correlationId", "callTid", "callStart"]
    assert {
        (pid, start): None if call is None else (call, at)
        for pid, start, _, call, at in found.iter_rows()
    } == calls  # fmt: skip
    assert found.height == len(calls)


def test_events_without_any_call_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlate, "_HELD_ROWS", 0)
    report = ReportBuilder()
    for number in range(10):
        report.kernel("k", 10 * number, 10 * number + 5, correlation=number if number % 2 else None)
    report.api_call("cudaFree", 0, 5, correlation=1000)

    found = pl.concat(
        with_calls(open_report(report.write(tmp_path / "report.sqlite")), kernels, tmp_path / "scratch", ("start", "end"))
    )

    assert found["start"].sort().to_list() == [10 * number for number in range(10)]
    assert found["callStart"].null_count() == found["callEnd"].null_count() == 10


def test_no_events_need_no_calls(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.api_call("cudaFree", 0, 5)

    assert not list(with_calls(open_report(report.write(tmp_path / "report.sqlite")), kernels, tmp_path / "scratch"))
