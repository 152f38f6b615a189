"""Launch-bound: kernels are shorter than their launches take."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

KIND = "launch-bound"

LONGEST_GAP = Threshold("longest gap that counts", 100_000, "ns", "a launch takes 2 to 20 µs, with Python around it up to 100")
LAUNCHED_AHEAD = Threshold(
    "longest time from the start of the launch to the gap", 5_000, "ns", "a launch takes as long; else the device is late"
)
LATENCY = Threshold(
    "or longest time from the start of the launch to the kernel", 30_000, "ns",
    "a call of 12 µs and the latency of the device: the kernel starts as soon as it can",
)  # fmt: skip
LAUNCHING = Threshold("least part of the gap in launches or between calls", 0.9, "0 to 1", "else it waits, copies or allocates")
FEWEST_GAPS = Threshold("fewest such gaps on a device", 100, "", "the first launch after any wait leaves such a gap too")
LONGEST_KERNEL = Threshold(
    "longest kernel after such a gap against the gap (means)", 4, "", "beyond, the gaps are less than a fifth of the time"
)
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "less is the normal price of launches")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps."""
    costly = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_GAPS, LEAST_LOST)
    devices = [stats for stats in costly if stats.sums["next_length"] <= LONGEST_KERNEL.value * stats.cost]
    if not devices:
        return None
    gaps, lost = count(devices), cost(devices)
    kernel, launching = total(devices, "next_length") / gaps, total(devices, "launching") / lost
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average, before kernels of {time(kernel)}: meanwhile the "
        f"launching thread is in launch calls ({percent(launching)} of the gaps) or on the way to the next one"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("mean duration of the kernels behind them", kernel, NANOSECONDS),
        Number("part of the gaps in launch calls", launching, SHARE),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Launch-bound: kernels are shorter than their launches take",
    sees="short gaps before kernels while the launching thread does nothing but launch: it is in a launch, or "
    "between two calls",
    needs=(needs.CUDA_CALLS,),
    cost="sum of the gaps, without the time in allocation calls",
    view="0-start-here/gaps",
    advice="Launch less: CUDA graphs, fused kernels (torch.compile), larger batches. Launch earlier: no synchronization in the "
    "loop, less Python between launches.",
    thresholds=(LONGEST_GAP, LAUNCHED_AHEAD, LATENCY, LAUNCHING, FEWEST_GAPS, LONGEST_KERNEL, LEAST_LOST),
    judge=_judge,
    without=without.of_launches(KIND),
    gap_cause=GapCause(
        (
            (pl.col("launched") >= pl.col("begin") - LAUNCHED_AHEAD.value)
            | (pl.col("start") - pl.col("launched") <= LATENCY.value)
        )
        & pl.col("before_kernel")
        & (pl.col("launch_ns") > 0)
        & (pl.col("length") <= LONGEST_GAP.value)
        & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= LAUNCHING.value * pl.col("length")),
        sums={"launching": pl.col("launch_ns"), "next_length": pl.col("next_length")},
    ),
)
