"""Rules about idle devices: gaps that nothing explains, a late start, an early end, and hardly any work at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, Threshold, least_share, rows_of_top
from nsys2prv.efficiency.findings.gap_causes import AT_START
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without
from nsys2prv.efficiency.graph.changes import without_gaps
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, CAUSE_TITLES
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import percent, time

_MOST_ACTIVITIES = 3
_BLOCKED_PART = 0.5
"""Time in blocked launches against that of the gaps, from which on these follow from it."""
_ALIKE = 0.9
"""Lengths of gaps that are alike, against the longest one."""
_UNKNOWN_PART = 0.1
"""Time in gaps whose launching thread is not known, against all, from which on a replay without the gaps says too little."""


def _activities(times: Mapping[str, int], of_time: int) -> tuple[dict[str, int], str]:
    """What launching threads did (columns of gaps, ns), the longest first, and as a text with shares of a time."""
    titled = {CAUSE_TITLES[name]: spent for name, spent in times.items() if spent}
    longest = dict(sorted(titled.items(), key=lambda pair: -pair[1]))
    return longest, ", ".join(f"{what} {percent(spent / of_time)}" for what, spent in list(longest.items())[:_MOST_ACTIVITIES])


def _callers(evidence: Evidence, end: int) -> pl.DataFrame:
    """Host threads that call CUDA or MPI, from the start to a time."""
    return pl.DataFrame({"row": evidence.run.callers}).with_columns(begin=0, end=end)


class IdleDevices(FindingRule, kind="idle-devices", needs=(rule.ALL_WORK,)):
    least = least_share(0.1, "less is spread over many small causes")

    def unexplained(self, evidence: Evidence) -> pl.DataFrame:
        """Gaps that no other finding explains: columns of `GapCauses.all_gaps`."""
        explained: list[tuple[int, int]] = []
        for place, kind in enumerate(evidence.gaps.kinds):
            if finding := evidence.finding(kind):
                explained += [(place, device) for device in finding.losses.indices]
        keys = pl.DataFrame(explained, schema={"cause": pl.Int64, "device": pl.Int64}, orient="row")
        return evidence.gaps.after_start.join(keys, on=["cause", "device"], how="anti")

    def losses(self, evidence: Evidence) -> Losses:
        return Losses.of(evidence.run, self.unexplained(evidence), CAUSE_COLUMNS, worst="occurrence")

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        worst = max(losses, key=lambda loss: loss.longest)
        activities, doing = _activities({name: losses.total(name) for name in CAUSE_COLUMNS}, losses.cost)
        # Of the trace, as all moments in texts, not of the window.
        begin, end = (at + evidence.run.events.offset for at in worst.worst)
        alike = sum(loss.longest >= _ALIKE * worst.longest for loss in losses)
        finding = self.finding(
            losses,
            [Number(what, spent, "ns") for what, spent in activities.items()],
            gaps=losses.occurrences,
            spent=time(losses.cost),
            longest=worst.longest,
            begin=f"{begin / 1e9:.3f}",
            end=f"{end / 1e9:.3f}",
            name=evidence.name(worst.index),
            alike=f" (on {alike} GPUs there is one of that length)" if alike > 1 else "",
            doing=doing,
        )
        # A host that is blocked in launches is late for what it does afterwards: then these gaps follow from it.
        queue = evidence.finding("full-launch-queue")
        blocked = {loss.index: loss.cost for loss in queue.losses} if queue else {}
        is_late = all(blocked.get(loss.index, 0) >= _BLOCKED_PART * loss.cost for loss in losses)
        return replace(finding, follows="full-launch-queue" if is_late else None)

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        unexplained = self.unexplained(evidence).filter(pl.col("device").is_in(finding.losses.indices))
        return evidence.gaps.each(dict(unexplained.group_by("cause").agg(pl.col("device").unique()).iter_rows()))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without | None:
        """Launching threads take no time in these gaps; None where they are not known, as before pages that a host fetches."""
        gaps = self.host_times(finding, evidence)
        length = pl.col("end") - pl.col("begin")
        idle, unknown = gaps.select(length.sum().alias("idle"), length.filter(pl.col("row") < 0).sum().alias("unknown")).row(0)
        return None if unknown > _UNKNOWN_PART * idle else Without(without_gaps(built, gaps))


class StartUp(FindingRule, kind="start-up", needs=(rule.FIRST_WORK,)):
    shortest = Threshold(
        "shortest time before the first activity", 250_000_000, "MPI_Init and a CUDA context take some 200 ms", "ns"
    )
    least = Threshold("least part of E", 0.1, "every run has a start")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever do something: the run begins when the first of them does."""
        first = min((begin for begin in evidence.first if begin >= 0), default=-1)
        if first < self.shortest.value or first < self.least.value * evidence.length:
            return None
        gaps = evidence.gaps.all_gaps.filter(pl.col("cause") == AT_START).sort("part")
        devices = gaps.unique("device", keep="first", maintain_order=True).sort("device").iter_rows(named=True)
        losses = Losses(Loss(row["device"], 1, first, 0, first, (0, first), rows_of_top(evidence.run, row)) for row in devices)
        times = {name: int(gaps[name].sum()) for name in CAUSE_COLUMNS}
        activities, doing = _activities(times, sum(times.values()))
        also = [Number(f"of the time of the devices: {what}", spent, "ns") for what, spent in activities.items()]
        return self.finding(losses, also, first, before=first, share=percent(first / evidence.length), doing=doing)

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        return _callers(evidence, finding.losses[0].end)


class ShutDown(FindingRule, kind="shut-down", needs=(rule.LAST_WORK,)):
    shortest = Threshold("shortest time after the last activity", 100_000_000, "the end of a process takes as long", "ns")
    least = Threshold("least part of E", 0.1, "every run has an end")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever did something."""
        last = max(evidence.last, default=-1)
        lost, place = evidence.length - last, (last, evidence.length)
        if last < 0 or lost < self.shortest.value or lost < self.least.value * evidence.length:
            return None
        active = [device for device, first in enumerate(evidence.first) if first >= 0]
        losses = Losses(Loss(device, 1, lost, *place, place) for device in active)
        return self.finding(losses, wall=lost, after=lost, share=percent(lost / evidence.length))


class LittleGpuWork(FindingRule, kind="little-gpu-work", needs=(rule.ANY_WORK,)):
    largest = Threshold(
        "largest part of E in which anything runs on the busiest device", 0.05,
        "then the run is one of hosts, and other findings are about its details",
    )  # fmt: skip

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices, where none does much."""
        table, length = evidence.tables["devices"], evidence.length
        running = table["active_ns"].to_list()
        busiest, part = max(running), max(running) / max(length, 1)
        if not busiest or part > self.largest.value:
            return None
        places = [
            (first, last) if first >= 0 else (0, length) for first, last in zip(evidence.first, evidence.last, strict=True)
        ]
        losses = Losses(
            Loss(device, 1, length - busy, 0, length, place)
            for device, (busy, place) in enumerate(zip(running, places, strict=True))
        )
        return self.finding(
            losses,
            wall=length - busiest,
            part=part,
            busiest=busiest,
            length=time(length),
            which=counted(evidence.devices, "GPU"),
            computing=int(table["kernels_ns"].to_numpy().max()),
            active=evidence.active_time,
        )

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        return _callers(evidence, evidence.length)
