"""Allocations: devices wait while memory is allocated or freed."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import without_calls
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.sweep import ALLOCATION
from nsys2prv.vocabulary.wording import time

KIND = "allocations"

FEWEST_GAPS = Threshold("fewest gaps with such calls", 10, "", "fewer belong to the start of phases")
LEAST_LOST = Threshold("least share lost", 0.01, "0 to 1", "they are easily avoided")
WHOLE_GAP = Threshold(
    "least part of a gap in such calls for the whole gap to count", 0.5, "0 to 1",
    "without the calls the thread is ahead of the device, and the launch after them leaves no gap",
)  # fmt: skip

_DOMINATES = pl.col("allocation_ns") >= WHOLE_GAP.value * pl.col("length")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such gaps again and again."""
    devices = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_GAPS, LEAST_LOST, recurring=True, or_large=True)
    if not devices:
        return None
    gaps, lost, longest = count(devices), cost(devices), max(stats.longest for stats in devices)
    text = (
        f"in {gaps:,} gaps {on_devices(devices)} the launching thread allocates or frees memory, which costs "
        f"{time(lost / gaps)} on average and {time(longest)} at most"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean time lost in a gap", lost / gaps, NANOSECONDS),
        Number("longest time", longest, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """From the first of these gaps on nothing is allocated or freed, and no call that does so waits for the device."""
    begin, end = min(one.begin for one in finding.devices), max(one.end for one in finding.devices)
    return Without(without_calls(built, ALLOCATION, evidence.tasks_of(finding.devices), begin, end))


RULE = FindingRule(
    kind=KIND,
    title="Allocations: devices wait while memory is allocated or freed",
    sees="gaps after work in which the launching thread allocates or frees memory, again and again",
    needs=(needs.CUDA_CALLS,),
    cost="time of these calls in the gaps; of the whole gap where they are most of it",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Allocate before the loop, use a memory pool (cudaMallocAsync) or the caching allocator of the framework.",
    thresholds=(FEWEST_GAPS, LEAST_LOST, WHOLE_GAP),
    judge=_judge,
    without=_without,
    gap_cause=GapCause(
        pl.col("is_late")
        & (pl.col("allocation_ns") > 0)
        & (pl.col("after_kernel") | (pl.col("after_copy") & ~pl.col("after_upload") & (pl.col("former_size") >= 0))),
        cost=pl.when(_DOMINATES).then("length").otherwise("allocation_ns"),
        is_exclusive=False,
        dominates=_DOMINATES,
    ),
)
