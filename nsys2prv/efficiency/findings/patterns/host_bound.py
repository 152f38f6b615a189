"""Host-bound: devices wait while the host computes."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import DeviceStats, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, time

KIND = "host-bound"

HOST_PART = Threshold("least part of the gap outside CUDA and MPI calls", 0.5, "0 to 1", "else the calls dominate")
FEWEST_GAPS = Threshold("fewest such gaps on a device", 10, "", "few are phases of the program, such as an initialization")
LEAST_LOST = Threshold("least share lost, without the longest gap", 0.05, "0 to 1", "the longest is often a separate phase")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such gaps again and again."""

    def is_host_bound(stats: DeviceStats) -> bool:
        without_longest = stats.cost - stats.longest
        return (
            stats.count >= FEWEST_GAPS.value
            and without_longest >= LEAST_LOST.value * evidence.active(stats.device)
            and evidence.recurs(stats)
        )

    devices = [stats for stats in evidence.gaps.by_device(KIND, worst="occurrence") if is_host_bound(stats)]
    if not devices:
        return None
    gaps, lost, longest = count(devices), cost(devices), max(stats.longest for stats in devices)
    computing, in_os = total(devices, "computing") / lost, total(devices, "in_os") / lost
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average and {time(longest)} at most, while the launching "
        f"thread is in neither CUDA nor MPI calls ({percent(computing)} of the time) or in calls of the OS ({percent(in_os)})"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in no call", computing, SHARE),
        Number("part of the gaps in OS calls", in_os, SHARE),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Host-bound: devices wait while the host computes",
    sees="gaps in which the launching thread is mostly in neither CUDA nor MPI calls, and that no other rule explains",
    needs=(needs.CUDA_CALLS,),
    cost="sum of the gaps, without the time in allocation calls",
    view="0-start-here/gaps",
    advice="Move the work of the host to the device or to other threads, and launch ahead of the device.",
    thresholds=(HOST_PART, FEWEST_GAPS, LEAST_LOST),
    judge=_judge,
    without=without.of_gaps(KIND),
    gap_cause=GapCause(
        pl.col("is_late") & (pl.col("host") >= HOST_PART.value * pl.col("length")),
        sums={"computing": pl.col("host_ns"), "in_os": pl.col("os_ns")},
    ),
)
