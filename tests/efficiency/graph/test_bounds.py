"""Replays of small runs in which threads wait for what nothing says, copies share an engine, and calls hand over data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings

US, MS = 1_000, 1_000_000
LOADER = 2000
"""Thread that loads batches."""


def replayed(report: ReportBuilder, folder: Path, **changes: Any) -> dict[str, Any]:
    """The row of the whole window with changes."""
    if "scale" in changes:
        changes["scale"] = scalings(changes["scale"])
    return what_if([report.write(folder / "run.sqlite")], WhatIfOptions(**changes)).what_if.row(0, named=True)


def steps_and_their_loader(*, scheduled: bool) -> ReportBuilder:
    """Ten kernels of 10 ms in turn, each of which the main thread awaits; the loader copies a batch in each, 1 ms of work after
    it was let on, and is else off its CPU."""
    report = ReportBuilder()
    for step in range(10):
        begin = step * 10 * MS + step * 200 * US
        report.kernel("train_step", begin + 20 * US, begin + 10 * MS, launch=(begin, begin + 10 * US))
        report.api_call("cudaStreamSynchronize_v3020", begin + 15 * US, begin + 10 * MS + 10 * US)
        let_on, copied = begin + 30 * US, begin + 1030 * US
        call = report.api_call("cudaMemcpyAsync_v3020", copied, copied + 5 * US, tid=LOADER)
        report.copy(copied + 10 * US, copied + 500 * US, 8 << 20, correlation=call, stream=14)
        if scheduled:
            report.on_cpu(let_on, copied + 10 * US, 3, tid=LOADER)
    return report


def test_the_loader_of_a_run_may_follow_its_consumer(tmp_path: Path) -> None:
    row = replayed(steps_and_their_loader(scheduled=True), tmp_path, scale="train_step=0.5")
    half = row["measured_ns"] - 10 * (10 * MS - 20 * US) // 2
    assert row["least_ns"] <= half + MS <= row["most_ns"] <= row["measured_ns"]
    assert "while off their CPU" in row["reason"]


def pauses(*, off_cpu: bool | None) -> ReportBuilder:
    """A thread that pauses for 1 ms between kernels of 1 ms: on its CPU, off it, or nobody knows."""
    report = ReportBuilder()
    for step in range(10):
        begin = step * 2 * MS
        report.kernel("work", begin + 10 * US, begin + MS, launch=(begin, begin + 5 * US))
        if off_cpu:
            report.on_cpu(begin, begin + 100 * US)
    if off_cpu is False:
        report.on_cpu(0, 20 * MS)
    # Somebody else is off the CPU.
    return report.on_cpu(0, 10, 1, tid=LOADER).on_cpu(20 * MS, 20 * MS + 10, 1, tid=LOADER) if off_cpu is False else report


@pytest.mark.parametrize("off_cpu", [True, None])
def test_a_pause_that_may_be_a_wait_is_work_or_a_wait_for_the_device(off_cpu: bool | None, tmp_path: Path) -> None:
    row = replayed(pauses(off_cpu=off_cpu), tmp_path, scale="work=0.5")
    assert (row["replayed_ns"], row["speedup"]) == (None, None)
    # The end of each kernel lets the thread go on, if anything does.
    assert (row["least_ns"], row["most_ns"]) == (row["measured_ns"] - 10 * 495 * US, row["measured_ns"] - 495 * US)


def test_a_thread_that_is_seen_to_run_works(tmp_path: Path) -> None:
    row = replayed(pauses(off_cpu=False), tmp_path, scale="work=0.5")
    assert row["least_ns"] == row["most_ns"] == row["replayed_ns"] == row["measured_ns"] - 495 * US
    assert row["reason"] is None


def test_copies_of_one_direction_wait_for_each_other_also_in_other_streams(tmp_path: Path) -> None:
    report = ReportBuilder()
    for copy in range(20):
        begin = (copy + 1) * MS
        report.copy(begin, begin + MS, 1 << 20, launch=(copy * 10 * US, (copy * 10 + 5) * US), stream=10 + copy % 4)
    report.api_call("cudaDeviceSynchronize_v3020", 200 * US, 21 * MS + 10 * US)
    row = replayed(report, tmp_path, scale="CUDA memcpy*=0")
    # The first one starts 1 ms after its launch for what is not known.
    assert row["most_ns"] < 2 * MS


def test_a_call_that_hands_over_its_data_takes_the_time_of_its_copy(tmp_path: Path) -> None:
    report = ReportBuilder()
    for copy in range(5):
        begin = copy * 10 * MS
        report.copy(begin + 100 * US, begin + 9 * MS, 1 << 28, pageable=True, launch=(begin, begin + 8900 * US))
        report.kernel("work", begin + 9500 * US, begin + 9900 * US, launch=(begin + 9450 * US, begin + 9460 * US))
    row = replayed(report, tmp_path, scale="CUDA memcpy Host-to-Device=0")
    assert row["least_ns"] <= row["measured_ns"] - 5 * 8800 * US <= row["most_ns"] * 1.01


def test_what_makes_nothing_longer_makes_no_run_longer(tmp_path: Path) -> None:
    row = replayed(steps_and_their_loader(scheduled=True), tmp_path, scale="train_step=0.99")
    assert row["least_ns"] <= row["most_ns"] < row["measured_ns"]
