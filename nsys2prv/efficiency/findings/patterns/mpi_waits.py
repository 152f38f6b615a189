"""Waits in MPI: devices are idle while the host that launches their work is in MPI calls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import DeviceStats, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import AT_START, GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary.wording import percent, short, time

KIND = "mpi-waits"

MPI_PART = Threshold("least part of the gap in MPI calls", 0.5, "0 to 1", "else something else dominates")
LATE_PART = Threshold(
    "least part of the longest wait that gaps of a device that does not wait explain", 0.5, "0 to 1", "else it is not known"
)
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "less is the normal price of communication")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices that are idle in MPI for long."""
    devices = [stats for stats in evidence.gaps.by_device(KIND, worst="occurrence") if evidence.costs_share(stats, LEAST_LOST)]
    if not devices:
        return None
    gaps, lost, longest = count(devices), cost(devices), max(stats.longest for stats in devices)
    in_mpi = total(devices, "in_mpi") / lost
    calls = evidence.tables["mpi_calls"]
    most = short(calls["call"][0]) if calls.height else "MPI"
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average and {time(longest)} at most, while the launching "
        f"thread is in MPI calls ({percent(in_mpi)} of the gaps); most time of all MPI calls is in {most}"
    )
    late = _late(evidence, devices)
    if late is not None:
        device, kind, longer = late
        text += (
            f". {evidence.device_name(device)} does not wait: its gaps"
            + (f" of the kind {kind}" if kind is not None else " of unknown cause")
            + f" take {time(longer)} longer than those of the others"
        )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("longest gap", longest, NANOSECONDS),
        Number("part of the gaps in MPI calls", in_mpi, SHARE),
    )
    return Finding(text, devices, numbers, follows=late[1] if late is not None else None)


def _late(evidence: Evidence, waiting: Sequence[DeviceStats]) -> tuple[int, str | None, int] | None:
    """The device for which the others wait: it has the largest excess of gaps of another cause. Its index, the rule of these
    gaps, and their excess over the median of those that wait, ns; None: no gaps explain half of the waits."""
    gaps = evidence.gaps.all_gaps().filter(
        (pl.col("cause") != AT_START) & (pl.col("cause") != evidence.gaps.kinds.index(KIND))
    ).group_by("cause", "device").agg(pl.col("cost").sum())  # fmt: skip
    named = [stats.device for stats in waiting]
    found: list[tuple[int, int, int]] = []
    for (cause,), rows in gaps.partition_by("cause", as_dict=True, maintain_order=True).items():
        spent = dict(rows.select("device", "cost").iter_rows())
        usual = round(statistics.median(spent.get(device, 0) for device in named))
        found += [(lost - usual, device, int(str(cause))) for device, lost in spent.items() if device not in named]
    longer, device, cause = max(found, default=(0, 0, 0))
    if longer < LATE_PART.value * max(stats.cost for stats in waiting):
        return None
    return device, evidence.gaps.kinds[cause] if cause >= 0 else None, longer


RULE = FindingRule(
    kind=KIND,
    title="Waits in MPI: devices are idle while their host is in MPI calls",
    sees="gaps in which the launching thread is mostly in MPI calls, and launches the next work after them",
    needs=(needs.CUDA_CALLS, needs.MPI_CALLS),
    cost="sum of the gaps, without the time in allocation calls",
    view="0-start-here/host_activity",
    advice="See which rank arrives last (MPI load balance); overlap communication with computation (MPI_Iallreduce, work that "
    "does not need the result); communicate from the device (CUDA-aware MPI, NCCL).",
    thresholds=(MPI_PART, LATE_PART, LEAST_LOST),
    judge=_judge,
    without=without.of_gaps(KIND),
    gap_cause=GapCause(
        pl.col("is_late") & (pl.col("mpi_ns") >= MPI_PART.value * pl.col("length")), sums={"in_mpi": pl.col("mpi_ns")}
    ),
)
