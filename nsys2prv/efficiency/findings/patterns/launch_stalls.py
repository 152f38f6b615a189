"""Long launches: devices are idle while a call that launches takes long, as when it loads the code of a kernel first."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.patterns import launch_bound
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

KIND = "launch-stalls"

LAUNCH_PART = Threshold("least part of the gap in launch calls", 0.5, "0 to 1", "else something else dominates")
AHEAD = Threshold(
    "longest time from the start of the launch to the kernel, against the gap", 2, "", "else the work waited in a queue"
)
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is the start of most programs")
FIRST_LAUNCHES = Threshold(
    "least part of different kernels among what follows such gaps, for the loading of code", 0.8, "0 to 1",
    "code is loaded once for each kernel",
)  # fmt: skip


def _judge(evidence: Evidence) -> Finding | None:
    """Devices that wait for long launches."""
    devices = [stats for stats in evidence.gaps.by_device(KIND, worst="occurrence") if evidence.costs_share(stats, LEAST_LOST)]
    if not devices:
        return None
    gaps, lost, longest = count(devices), cost(devices), max(stats.longest for stats in devices)
    launching = total(devices, "launching") / lost
    different = evidence.gaps.names(KIND, [stats.device for stats in devices])
    is_loading = different >= FIRST_LAUNCHES.value * gaps
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average and {time(longest)} at most, while the launching "
        f"thread is in calls that launch ({percent(launching)} of the gaps); {different:,} different kernels follow"
        + (": each is launched for the first time, and its code is loaded then" if is_loading else "")
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in launch calls", launching, SHARE),
        Number("different kernels after them", different),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Long launches: devices wait for calls that launch",
    sees=f"gaps of more than {time(launch_bound.LONGEST_GAP.value)} before kernels in which the launching thread is mostly in "
    "calls that launch, such as those that load the code of a kernel first",
    needs=(needs.CUDA_CALLS,),
    cost="sum of the gaps, without the time in allocation calls",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Load code before the loop: CUDA_MODULE_LOADING=EAGER, a warm-up iteration. If the same kernels are slow to launch "
    "again and again: look for locks between threads, for the profiler, and for launches of another device that is full.",
    thresholds=(LAUNCH_PART, AHEAD, LEAST_LOST, FIRST_LAUNCHES),
    judge=_judge,
    without=without.of_gaps(KIND),
    gap_cause=GapCause(
        pl.col("before_kernel")
        & (pl.col("length") > launch_bound.LONGEST_GAP.value)
        & (pl.col("launch_ns") >= LAUNCH_PART.value * pl.col("length"))
        & (pl.col("start") - pl.col("launched") <= AHEAD.value * pl.col("length")),
        sums={"launching": pl.col("launch_ns")},
        counts_names=True,
    ),
)
