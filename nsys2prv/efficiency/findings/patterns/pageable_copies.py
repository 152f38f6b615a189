"""Copies from and to pageable memory that should be pinned."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import CopyTimes
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, size

SMALLEST_COPY = Threshold(
    "smallest copy", 65_536, "bytes", "smaller ones to the device return before they are done also from pageable memory"
)
FEWEST_COPIES = Threshold("fewest copies on a device", 10, "", "fewer are those of a start")
LEAST_LOST = Threshold("least share lost", 0.01, "0 to 1", "they are easily avoided")


class PageableCopies(CopyTimes):
    """Large copies from and to pageable memory."""

    matches = pl.col("is_pageable") & (pl.col("size") >= SMALLEST_COPY.value)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such copies again and again."""
    devices = evidence.costly(
        evidence.meter(PageableCopies).by_device(evidence), FEWEST_COPIES, LEAST_LOST, recurring=True, or_large=True
    )
    if not devices:
        return None
    copies, lost, length, moved = count(devices), cost(devices), total(devices, "length"), total(devices, "bytes")
    text = (
        f"{copies:,} copies {on_devices(devices)} between device and pageable memory, {size(moved / copies)} on average at "
        f"{moved / length:.1f} GB/s; during {percent(lost / length)} of their time no kernel runs"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / copies, BYTES),
        Number("mean duration", length / copies, NANOSECONDS),
        Number("part of their time beside no kernel", lost / length, SHARE),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind="pageable-copies",
    title="Pageable copies that should be pinned",
    sees="large copies between device and pageable memory, again and again",
    needs=(needs.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="basics/copy_source",
    advice="Pinned memory (cudaMallocHost, pin_memory=True with non_blocking=True): copies are faster, and overlap with "
    "kernels.",
    thresholds=(SMALLEST_COPY, FEWEST_COPIES, LEAST_LOST),
    judge=_judge,
    meters=(PageableCopies,),
)
