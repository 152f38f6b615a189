"""Exposed copies: nothing computes while copies run that could overlap: pinned, between devices, and inside a device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import CopyTimes
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.patterns import pageable_copies
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, size, time

EXPOSED_PART = Threshold("least part of the time of these copies beside no kernel", 0.3, "0 to 1", "the rest overlaps")
FEWEST_COPIES = Threshold("fewest copies on a device", 10, "", "fewer are those of a start")
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "one copy of a batch per iteration is normal")


class LargeCopies(CopyTimes):
    """Large copies, but those from and to pageable memory and those of unified memory."""

    matches = ~pl.col("is_pageable") & (pl.col("size") >= pageable_copies.SMALLEST_COPY.value)
    kinds = (1, 2, 3, 4, 5, 6, 7, 8, 10)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such copies again and again, or for long."""
    found = evidence.meter(LargeCopies).by_device(evidence)
    exposed = [stats for stats in found if stats.cost >= EXPOSED_PART.value * stats.sums["length"]]
    devices = evidence.costly(exposed, FEWEST_COPIES, LEAST_LOST, recurring=True, or_large=True)
    if not devices:
        return None
    copies, lost, length, moved = count(devices), cost(devices), total(devices, "length"), total(devices, "bytes")
    text = (
        f"{copies:,} copies {on_devices(devices)}, {size(moved / max(copies, 1))} on average at {moved / length:.1f} GB/s, "
        f"take {time(length)}, and during {percent(lost / length)} of that no kernel runs"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / max(copies, 1), BYTES),
        Number("their time", length, NANOSECONDS),
        Number("part of it beside no kernel", lost / length, SHARE),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind="exposed-copies",
    title="Exposed copies: nothing computes while copies run that could overlap",
    sees="large copies, but those of pageable and of unified memory, beside which no kernel runs",
    needs=(needs.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="analysis/overlap_of_copies",
    advice="Copy the next batch on a separate stream while the device computes; fuse copies inside the device into kernels; "
    "keep data on the device.",
    thresholds=(pageable_copies.SMALLEST_COPY, EXPOSED_PART, FEWEST_COPIES, LEAST_LOST),
    judge=_judge,
    meters=(LargeCopies,),
)
