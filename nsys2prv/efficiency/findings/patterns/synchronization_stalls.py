"""Synchronization stalls: host and device wait for each other in turn."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import time

KIND = "synchronization-stalls"

LONGEST_GAP = Threshold(
    "longest gap that counts", 200_000, "ns", "a stall is the end of a wait, a look at the result, and a launch"
)
LARGEST_RESULT = Threshold("largest copy of a result", 65_536, "bytes", "flags, norms and the like; it takes mostly latency")
OS_PART = Threshold("largest part of the gap in OS calls", 0.5, "0 to 1", "else the host waits for something else")
FEWEST_STALLS = Threshold("fewest stalls on a device", 50, "", "few are the ends of phases")
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "one stall per iteration is normal: only the loss counts")

_AFTER_RESULT = pl.col("after_download") & pl.col("former_size").is_between(0, LARGEST_RESULT.value)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps."""
    devices = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_STALLS, LEAST_LOST)
    if not devices:
        return None
    stalls, lost, results = count(devices), cost(devices), total(devices, "results")
    text = (
        f"{stalls:,} times {on_devices(devices)} the launching thread waits until the device has nothing left to do, "
        f"{results:,} times for a small copy to the host, and only then launches the next work, {time(lost / stalls)} later on "
        f"average"
    )
    numbers = (
        Number("stalls", stalls),
        Number("stalls after a small copy to the host", results),
        Number("mean gap", lost / stalls, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Synchronization stalls: host and device wait for each other in turn",
    sees="short gaps that start while the launching thread waits for the device, in a synchronization or in the copy of a "
    "small result; the next work is launched only after the wait",
    needs=(needs.CUDA_CALLS,),
    cost="sum of the gaps, without the time in allocation calls",
    view="0-start-here/cuda_activities",
    advice="Keep results on the device; look at them every n-th iteration, or later through an event; batch small copies; "
    "replace loops on the host by kernels.",
    thresholds=(LONGEST_GAP, OS_PART, LARGEST_RESULT, FEWEST_STALLS, LEAST_LOST),
    judge=_judge,
    without=without.of_waits(KIND),
    gap_cause=GapCause(
        pl.col("is_late")
        & ((pl.col("synchronization_ns") > 0) | (_AFTER_RESULT & (pl.col("memory_ns") > 0)))
        & (pl.col("before_kernel") | pl.col("before_upload"))
        & (pl.col("length") <= LONGEST_GAP.value)
        & (pl.col("os_ns") <= OS_PART.value * pl.col("length")),
        sums={"results": _AFTER_RESULT.cast(pl.Int64)},
    ),
)
