"""What meters keep of a chunk of time is small: memory does not grow with the length of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.measure import measure
from nsys2prv.execution import merging
from nsys2prv.execution.merging import MergingOnDisk

US = 1_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def many_durations() -> ReportBuilder:
    """101 executions of one kernel, 50 of them longer beside an NCCL kernel, and 99 of another, of as many lengths."""
    made, time = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0), 0
    for index in range(200):
        is_first, is_beside = index < 101, 51 <= index < 101
        length = (150 if is_beside else 100 if is_first else 30 + 37 * index % 101) * US + index
        made.kernel("k(int)" if is_first else "other(int)", time, time + length)
        time += length
    made.kernel(NCCL, 51 * 100 * US, 51 * 100 * US + 50 * 150 * US, stream=8)
    return made


def test_durations_of_kernels_are_the_same_in_windows_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many_durations().write(tmp_path / "rank0.sqlite")
    expected = measure([path]).tables
    spilled: list[int] = []
    windows = MergingOnDisk.windows

    def shorter(self: MergingOnDisk) -> Iterator[pl.DataFrame]:
        for window in windows(self):
            spilled.append(self._on_disk.rows if self._on_disk is not None else 0)
            place = pl.col(self._by).rle_id()
            yield from (window.filter(place * 4 // (place.max() + 1) == part) for part in range(4))

    monkeypatch.setattr(merging, "MOST_MERGED", 2)
    monkeypatch.setattr(MergingOnDisk, "windows", shorter)
    found = measure([path]).tables

    assert "contention-slowdown" in expected["findings"]["kind"].to_list()
    assert min(spilled) > 0
    for name in expected:
        assert_frame_equal(found[name], expected[name])
    other = expected["kernels"].filter(pl.col("kernel") == "other(int)").row(0, named=True)
    lengths = sorted((30 + 37 * index % 101) * US + index for index in range(101, 200))
    assert (other["median_ns"], other["p95_ns"]) == (lengths[49], lengths[94])
