"""Idle devices: gaps that no other finding explains, with what the launching threads did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import AT_START
from nsys2prv.efficiency.findings.patterns import full_queue
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import without_gaps
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, CAUSE_TITLES
from nsys2prv.vocabulary.wording import percent, time

KIND = "idle-devices"

LEAST_LOST = Threshold("least share lost", 0.1, "0 to 1", "less is spread over many small causes")

_BLOCKED_PART = 0.5
"""Time in blocked launches against that of the gaps, from which on these follow from it."""
_ALIKE = 0.9
"""Lengths of gaps that are alike, against the longest one."""
_UNKNOWN_PART = 0.1
"""Time in gaps whose launching thread is not known, against all, from which on a replay without the gaps says too little."""


def idle_rule(rules: Iterable[FindingRule]) -> FindingRule:
    """The rule that names what some other rules leave."""
    by_kind = {rule.kind: rule for rule in rules}

    def judge(evidence: Evidence) -> Finding | None:
        return _judge(evidence, by_kind)

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        return _without(evidence, finding, built, by_kind)

    return FindingRule(
        kind=KIND,
        title="Idle devices: no other finding explains these gaps",
        sees="time between the first and the last activity of a device in which nothing runs, in gaps of no other finding",
        needs=(needs.ALL_WORK,),
        cost="sum of these gaps",
        view="0-start-here/gaps",
        advice="Look at the longest of these gaps: the views of host activity and of CUDA and OS calls show what the launching "
        "thread does; NVTX ranges, call chains and samples show where in the program.",
        thresholds=(LEAST_LOST,),
        judge=judge,
        without=without,
    )


def _judge(evidence: Evidence, rules: Mapping[str, FindingRule]) -> Finding | None:
    """Devices with much idle time left."""
    rest = _left(evidence, rules)
    if rest.is_empty():
        return None
    top = ["top_cost", "top_begin", "top_end", "top_row", "top_thread"]
    is_top = pl.col("top_cost") == pl.col("top_cost").max()
    first = pl.col("top_begin").filter(is_top).arg_min()
    merged = rest.group_by("device", "part", maintain_order=True).agg(
        pl.col("count", "cost", *CAUSE_COLUMNS).sum(),
        pl.col("begin").min(),
        pl.col("end").max(),
        *(pl.col(name).filter(is_top).get(first) for name in top),
    )
    found = by_device(evidence.context, merged.sort("device", "part"), CAUSE_COLUMNS, worst="occurrence")
    devices = [stats for stats in found if evidence.costs_share(stats, LEAST_LOST)]
    if not devices:
        return None
    lost, longest = cost(devices), max(devices, key=lambda stats: stats.longest)
    spent = {CAUSE_TITLES[name]: total(devices, name) for name in CAUSE_COLUMNS}
    known_causes = sorted(((what, one) for what, one in spent.items() if one), key=lambda pair: -pair[1])
    doing = ", ".join(f"{what} {percent(one / lost)}" for what, one in known_causes[:3])
    begin, end = longest.worst
    text = (
        f"{count(devices):,} gaps {on_devices(devices)} that no other finding explains, {time(lost)} together; the longest "
        f"lasts {time(longest.longest)}, from {begin / 1e9:.3f} to {end / 1e9:.3f} s on {evidence.device_name(longest.device)}"
        f"{_together(devices, longest.longest)}. The launching threads meanwhile: {doing}"
    )
    numbers = [
        Number("gaps", count(devices)),
        Number("longest gap", longest.longest, NANOSECONDS),
        *(Number(what, one, NANOSECONDS) for what, one in known_causes),
    ]
    return Finding(text, devices, numbers, follows=_follows(devices, evidence, rules))


def _follows(devices: Sequence[DeviceStats], evidence: Evidence, rules: Mapping[str, FindingRule]) -> str | None:
    """A host that is blocked in launches is late for what it does afterwards: then these gaps follow from it."""
    kind = full_queue.KIND
    finding = evidence.finding(rules[kind])
    if finding is None:
        return None
    blocked = {one.device: one.cost for one in finding.devices}
    return kind if all(blocked.get(one.device, 0) >= _BLOCKED_PART * one.cost for one in devices) else None


def _left(evidence: Evidence, rules: Mapping[str, FindingRule]) -> pl.DataFrame:
    """Gaps that no other finding explains: columns of `GapCauses.all_gaps`."""
    gaps = evidence.gaps.all_gaps().filter(pl.col("cause") != AT_START)
    explained: list[tuple[int, int]] = []
    for place, kind in enumerate(evidence.gaps.kinds):
        finding = evidence.finding(rules[kind])
        explained += [(place, stats.device) for stats in finding.devices] if finding is not None else []
    known = pl.DataFrame(explained, schema={"cause": pl.Int64, "device": pl.Int64}, orient="row")
    return gaps.join(known, on=["cause", "device"], how="anti")


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph, rules: Mapping[str, FindingRule]) -> Without | None:
    """Launching threads take no time in these gaps; None where they are not known, as before pages that a host fetches."""
    named = {stats.device for stats in finding.devices}
    left = _left(evidence, rules).filter(pl.col("device").is_in(named)).group_by("cause").agg(pl.col("device").unique())
    gaps = evidence.gaps.each(dict(left.iter_rows()))
    if gaps is None:
        return None
    length = pl.col("end") - pl.col("begin")
    every, unknown = gaps.select(length.sum().alias("every"), length.filter(pl.col("row") < 0).sum().alias("unknown")).row(0)
    return None if unknown > _UNKNOWN_PART * every else Without(without_gaps(built, gaps))


def _together(devices: Sequence[DeviceStats], longest: int) -> str:
    """How many devices have a gap like the longest."""
    alike = sum(stats.longest >= _ALIKE * longest for stats in devices)
    return f" (on {alike} GPUs there is one of that length)" if alike > 1 else ""
