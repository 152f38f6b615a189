"""Small copies: they take latency, and do not reach the bandwidth."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import CopyTimes
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import size, time

KIND = "small-copies"

LARGEST_COPY = Threshold("largest copy", 65_536, "bytes", "below, a copy takes latency, not bandwidth")
LONGEST_GAP = Threshold("longest gap between two of them that counts", 100_000, "ns", "as for launches")
FEWEST_COPIES = Threshold("fewest copies on a device", 500, "", "a few per iteration are normal")
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth a change of the program")


class SmallCopies(CopyTimes):
    """Small copies between host and device."""

    matches = pl.col("size") < LARGEST_COPY.value


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such copies; the gaps between them are a part of their cost."""
    gaps_of = {stats.device: stats.cost for stats in evidence.gaps.by_device(KIND)}
    with_gaps = [
        replace(stats, cost=stats.cost + gaps_of.get(stats.device, 0))
        for stats in evidence.meter(SmallCopies).by_device(evidence)
    ]
    devices = evidence.costly(with_gaps, FEWEST_COPIES, LEAST_LOST, recurring=True)
    if not devices:
        return None
    copies, lost, moved = count(devices), cost(devices), total(devices, "bytes")
    gaps = sum(gaps_of.get(stats.device, 0) for stats in devices)
    text = (
        f"{copies:,} copies {on_devices(devices)} of {size(moved / copies)} on average take {time(lost)} in which no kernel "
        f"runs, {time(gaps)} of it in gaps between two of them"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / copies, BYTES),
        Number("time in gaps between them", gaps, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Small copies: latency instead of bandwidth",
    sees="many copies that are too small for the bandwidth, in which no kernel runs",
    needs=(needs.COPY_SIZES,),
    cost="time of the copies in which no kernel runs, and of short gaps between two of them",
    view="7-memory/copy_size",
    advice="Put small pieces into one buffer and copy that, or make them on the device.",
    thresholds=(LARGEST_COPY, LONGEST_GAP, FEWEST_COPIES, LEAST_LOST),
    judge=_judge,
    meters=(SmallCopies,),
    gap_cause=GapCause(
        pl.col("before_copy")
        & pl.col("after_copy")
        & pl.col("next_size").is_between(0, LARGEST_COPY.value, closed="left")
        & pl.col("former_size").is_between(0, LARGEST_COPY.value, closed="left")
        & (pl.col("length") <= LONGEST_GAP.value)
    ),
)
