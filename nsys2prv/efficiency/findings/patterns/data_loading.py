"""Data loading: devices wait for new data."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.patterns.host_bound import HOST_PART
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import loading_times
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.vocabulary.wording import time

KIND = "data-loading"

SHORTEST_GAP = Threshold("shortest gap that counts", 1_000_000, "ns", "a batch that is ready is copied within some 100 µs")
SMALLEST_COPY = Threshold("smallest copy after it", 16_384, "bytes", "smaller ones are flags and parameters, and no batch")
FEWEST_GAPS = Threshold("fewest such gaps on a device", 3, "", "the first batch always comes late, and one more may")
REACH = Threshold(
    "least part of a device's active time from the first to the last of them", 0.3, "0 to 1", "else it is a phase"
)
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth more loading processes")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such gaps over much of the run."""
    costly = evidence.costly(evidence.gaps.by_device(KIND, worst="occurrence"), FEWEST_GAPS, LEAST_LOST)
    devices = [stats for stats in costly if stats.end - stats.begin >= REACH.value * evidence.active(stats.device)]
    if not devices:
        return None
    gaps, lost, longest = count(devices), cost(devices), max(stats.longest for stats in devices)
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average and {time(longest)} at most, end with the copy "
        f"of new data to the device; meanwhile the launching thread is in no CUDA call"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in OS calls", total(devices, "in_os") / lost, SHARE),
    )
    return Finding(text, devices, numbers)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """Batches are there at once, also where another thread loads them."""
    return Without(loading_times(built, 0, evidence.tasks_of(finding.devices)))


RULE = FindingRule(
    kind=KIND,
    title="Data loading: devices wait for new data",
    sees="long gaps between work and the copy of new data to the device, while the launching thread is in neither CUDA nor MPI "
    "calls (as of `host-bound`)",
    needs=(needs.CUDA_CALLS, needs.COPY_SIZES),
    cost="sum of the gaps, without the time in allocation calls",
    view="0-start-here/gaps",
    advice="More loading processes (num_workers), prefetching, faster storage or decoding on the GPU; copy the next batch "
    "while the device computes.",
    thresholds=(SHORTEST_GAP, SMALLEST_COPY, FEWEST_GAPS, REACH, LEAST_LOST),
    judge=_judge,
    without=_without,
    gap_cause=GapCause(
        pl.col("is_late")
        & pl.col("before_upload")
        & ~pl.col("after_upload")
        & (pl.col("next_size") >= SMALLEST_COPY.value)
        & (pl.col("length") >= SHORTEST_GAP.value)
        & (pl.col("host") >= HOST_PART.value * pl.col("length")),
        sums={"in_os": pl.col("os_ns")},
    ),
)
