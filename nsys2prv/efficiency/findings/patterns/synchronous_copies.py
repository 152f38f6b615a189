"""Synchronous copies: the launching thread waits for copies and memsets, and devices are idle until it launches again."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

KIND = "synchronous-copies"

COPY_PART = Threshold("least part of the gap in calls that copy or set memory", 0.5, "0 to 1", "else something else dominates")
SHORTEST_BEFORE_COPY = Threshold(
    "shortest gap that counts before another copy", 100_000, "ns", "a shorter one is the call that launches it"
)
FEWEST_GAPS = Threshold("fewest such gaps on a device", 20, "", "fewer are the start of phases")
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth a change of the program")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps, or long ones."""
    devices = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_GAPS, LEAST_LOST, recurring=True, or_large=True)
    if not devices:
        return None
    gaps, lost = count(devices), cost(devices)
    copying = total(devices, "copying") / lost
    calls = evidence.tables["cuda_calls"]
    waiting = calls.filter((pl.col("category") == "memory") & ~pl.col("call").str.contains("Async"))
    calls_of_them = int(waiting["count"].sum())
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average, while the launching thread is in calls that "
        f"copy or set memory ({percent(copying)} of the gaps); {calls_of_them:,} calls are of synchronous functions"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("part of the gaps in these calls", copying, SHARE),
        Number("calls of synchronous functions", calls_of_them),
        Number("time in them", int(waiting["total_ns"].sum()), NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Synchronous copies: devices wait while their host waits for copies",
    sees="gaps in which the launching thread is mostly in calls that copy or set memory, and that no rule before explains",
    needs=(needs.CUDA_CALLS,),
    cost="sum of the gaps, without the time in allocation calls",
    view="5-host-and-cuda-api/cuda_calls",
    advice="cudaMemcpyAsync and cudaMemsetAsync with pinned memory; launch work before the copy whose result is not needed "
    "yet.",
    thresholds=(COPY_PART, SHORTEST_BEFORE_COPY, FEWEST_GAPS, LEAST_LOST),
    judge=_judge,
    without=without.of_waits(KIND),
    gap_cause=GapCause(
        # The call that launches a copy is in the gap before it, too.
        pl.col("is_late")
        & (pl.col("before_kernel") | (pl.col("length") >= SHORTEST_BEFORE_COPY.value))
        & (pl.col("memory_ns") >= COPY_PART.value * pl.col("length")),
        sums={"copying": pl.col("memory_ns")},
    ),
)
