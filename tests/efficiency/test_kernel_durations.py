"""Quantiles of many different durations, and the same kernel alone and beside NCCL."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.measure import measure

US = 1_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def many_durations() -> ReportBuilder:
    """101 executions of one kernel, 50 of them longer beside an NCCL kernel, and 99 of another, of as many lengths."""
    report, time = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0), 0
    for index in range(200):
        is_first, is_beside = index < 101, 51 <= index < 101
        length = (150 if is_beside else 100 if is_first else 30 + 37 * index % 101) * US + index
        report.kernel("k(int)" if is_first else "other(int)", time, time + length)
        time += length
    report.kernel(NCCL, 51 * 100 * US, 51 * 100 * US + 50 * 150 * US, stream=8)
    return report


def test_quantiles_are_those_of_all_durations(tmp_path: Path) -> None:
    tables = measure([many_durations().write(tmp_path / "rank0.sqlite")]).tables

    kernel = tables["kernels"].filter(pl.col("kernel") == "other(int)").row(0, named=True)
    lengths = sorted((30 + 37 * index % 101) * US + index for index in range(101, 200))
    assert (kernel["median_ns"], kernel["p95_ns"]) == (lengths[49], lengths[94])
    assert "contention-slowdown" in tables["findings"]["kind"].to_list()
