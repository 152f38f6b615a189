"""Rules about idle devices: gaps that nothing explains, a late start, an early end, and hardly any work at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, least_share, over_parts, rows_of_top
from nsys2prv.efficiency.findings.gap_causes import AT_START, GapCause, sum_of_states
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Values
from nsys2prv.efficiency.graph.changes import without_gaps
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.host_states import COMMUNICATOR, CONTEXT, OFF_CPU, STATES, WAITING
from nsys2prv.efficiency.meters.absent_tables import OF_STATES, STARVED, TITLES
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS, CAUSE_TITLES
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import percent, time

_MOST_ACTIVITIES = 3
_BLOCKED_PART = 0.5
"""Time in blocked launches against that of the gaps, from which on these follow from it."""
_ALIKE = 0.9
"""Lengths of gaps that are alike, against the longest one."""
_DOMINANT = 0.5
"""Part of a gap, or of all time, from which on something dominates it."""
_UNKNOWN_PART = 0.1
"""Time in gaps whose launching thread is not known, against all, from which on a replay without the gaps says too little."""


def _activities(times: Mapping[str, int], of_time: int) -> tuple[dict[str, int], str]:
    """What launching threads did (columns of gaps, ns), the longest first, and as a text with shares of a time."""
    titled = {CAUSE_TITLES[name]: spent for name, spent in times.items() if spent}
    longest = dict(sorted(titled.items(), key=lambda pair: -pair[1]))
    return longest, ", ".join(f"{what} {percent(spent / of_time)}" for what, spent in list(longest.items())[:_MOST_ACTIVITIES])


class IdleDevices(FindingRule, kind="idle-devices", needs=(rule.ALL_WORK,)):
    least = least_share(0.1, "less is spread over many small causes")

    def unexplained(self, evidence: Evidence) -> pl.DataFrame:
        """Gaps that no other finding explains: columns of `GapCauses.all_gaps`."""
        findings = ((place, evidence.finding(kind)) for place, kind in enumerate(evidence.gaps.causes))
        explained = [(place, device) for place, finding in findings if finding for device in finding.losses.indices]
        keys = pl.DataFrame(explained, schema={"cause": pl.Int64, "device": pl.Int64}, orient="row")
        return evidence.gaps.after_start.join(keys, on=["cause", "device"], how="anti")

    def losses(self, evidence: Evidence) -> Losses:
        return Losses.of(evidence.run, self.unexplained(evidence), CAUSE_COLUMNS, worst="occurrence")

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        worst = losses.longest
        activities, doing = _activities({name: losses.total(name) for name in CAUSE_COLUMNS}, losses.cost)
        # Of the trace, as all moments in texts, not of the window.
        begin, end = (worst[f"worst_{edge}"] + evidence.run.events.offset for edge in ("begin", "end"))
        alike = int((losses.devices["longest"] >= _ALIKE * worst["longest"]).sum())
        finding = self.finding(
            losses,
            [Number(what, spent, "ns") for what, spent in activities.items()],
            begin=f"{begin / 1e9:.3f}",
            end=f"{end / 1e9:.3f}",
            name=evidence.name(worst["device"]),
            alike=f" (on {alike} GPUs there is one of that length)" if alike > 1 else "",
            doing=doing,
        )
        # A host that is blocked in launches is late for what it does afterwards: then these gaps follow from it.
        queue = evidence.finding("full-launch-queue")
        blocked = dict(queue.losses.devices.select("device", "cost").iter_rows()) if queue else {}
        lost = losses.devices.select("device", "cost").iter_rows()
        is_late = all(blocked.get(device, 0) >= _BLOCKED_PART * cost for device, cost in lost)
        return replace(finding, follows="full-launch-queue" if is_late else None)

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        return evidence.gaps.of(finding.losses.indices).join(self.unexplained(evidence), on=["cause", "device"], how="semi")

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """Launching threads take no time in these gaps; None where they are not known, as before pages that a host fetches."""
        gaps = self.host_times(finding, evidence)
        length = pl.col("end") - pl.col("begin")
        idle, unknown = gaps.select(length.sum().alias("idle"), length.filter(pl.col("row") < 0).sum().alias("unknown")).row(0)
        return None if unknown > _UNKNOWN_PART * idle else without_gaps(built, gaps)


class _OfAllHosts(FindingRule):
    """A rule about a time from the start in which devices do little, whatever hosts do."""

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        return pl.DataFrame({"row": evidence.run.callers}).with_columns(begin=0, end=finding.losses.devices["end"][0])


class StartUp(_OfAllHosts, kind="start-up", needs=(rule.FIRST_WORK,)):
    shortest = Threshold(
        "shortest time before the first activity", 250_000_000, "MPI_Init and a CUDA context take some 200 ms", "ns"
    )
    least = Threshold("least part of E", 0.1, "every run has a start")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever do something: the run begins when the first of them does. What is created meanwhile is
        counted by other rules."""
        first = min((begin for begin in evidence.first if begin >= 0), default=-1)
        costs = evidence.tables["absent_time"]["start_up_ns"]
        longest = max(costs, default=0)
        if longest < self.shortest.value or longest < self.least.value * evidence.length:
            return None
        gaps = evidence.gaps.all_gaps.filter(pl.col("cause") == AT_START).sort("part")
        devices = gaps.unique("device", keep="first", maintain_order=True).sort("device").select(
            "device", begin=0, end=first, count=1, cost=pl.lit(costs).gather("device"), rows=rows_of_top(evidence.run)
        )  # fmt: skip
        times = {name: int(gaps[name].sum()) for name in CAUSE_COLUMNS}
        activities, doing = _activities(times, sum(times.values()))
        also = [Number(f"of the time of the devices: {what}", spent, "ns") for what, spent in activities.items()]
        return self.finding(
            Losses.placed(devices), also, longest, before=first, share=percent(first / evidence.length), doing=doing
        )


_SHORTEST_CREATION = Threshold("shortest time of a device", 50_000_000, "less is the start of any program", "ns")
_OF_CREATION = Threshold("least part of the time of all devices", 0.05, "every run has a start")


class StateRule(FindingRule, texts="state-rule"):
    """A rule about launch-starved time in which launching threads are in some states, as the wall time by cause has it."""

    states: Sequence[int]
    """Places in `host_states.STATES`."""
    shortest: Threshold | None = None

    def pieces(self, evidence: Evidence) -> pl.DataFrame:
        """Times of devices in which their launching threads do this: columns of `AbsentTime.of_hosts`."""
        parts = [OF_STATES[state] for state in self.states]
        return evidence.run.measured(AbsentTime).of_hosts.filter(pl.col("part").is_in(parts))

    def losses(self, evidence: Evidence) -> Losses:
        pieces = self.pieces(evidence).with_columns(cost=pl.col("end") - pl.col("begin"), count=pl.lit(1))
        return Losses.of(evidence.run, over_parts(pieces.drop("part"), ("count",), evidence.length), worst="occurrence")

    def costly(self, losses: Losses, evidence: Evidence) -> Losses:
        """All devices or none: the cost is that of the wall time by cause."""
        is_long = losses and (self.shortest is None or losses.worst["cost"] >= self.shortest.value)
        return losses if is_long and losses.cost >= self.least.value * evidence.length * evidence.devices else Losses()

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        return {
            "each": losses.cost / len(losses),
            "share": percent(losses.cost / (evidence.length * evidence.devices)),
            "name": evidence.name(losses.longest["device"]),
        }

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        pieces = finding.losses.of_devices(self.pieces(evidence))
        return pieces.select("begin", "end", row=pl.lit(pl.Series(evidence.run.callers)).gather("thread"))


class CreatingCommunicators(StateRule, kind="creating-communicators", needs=(rule.CUDA_CALLS, rule.NCCL_RANGES)):
    least, shortest = _OF_CREATION, _SHORTEST_CREATION
    states = (COMMUNICATOR,)
    gap_cause = GapCause(pl.col("communicator_ns") >= _DOMINANT * pl.col("length"))


class CreatingContext(StateRule, kind="creating-context", needs=(rule.CUDA_CALLS,)):
    least, shortest = _OF_CREATION, _SHORTEST_CREATION
    states = (CONTEXT,)
    gap_cause = GapCause(pl.col("context_ns") >= _DOMINANT * pl.col("length"))


class WaitingHosts(StateRule, kind="host-waits", needs=(rule.CUDA_CALLS, rule.HOST_STATES)):
    least = Threshold("least part of the time of all devices", 0.02, "less is not worth a look")
    states = WAITING
    gap_cause = GapCause(pl.col("is_late") & (pl.col("waiting") >= _DOMINANT * pl.col("length")))

    def costly(self, losses: Losses, evidence: Evidence) -> Losses:
        """None where another finding has most of these waits in its gaps: they are known by what they wait for."""
        waits = sum_of_states(WAITING).sum().alias("waits")
        for cause, waited in evidence.gaps.after_start.group_by("cause").agg(waits).iter_rows():
            kind = list(evidence.gaps.causes)[cause] if cause >= 0 else self.kind
            if kind != self.kind and waited >= _DOMINANT * losses.cost and evidence.finding(kind):
                return Losses()
        return super().costly(losses, evidence)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        pieces = self.pieces(evidence).with_columns(length=pl.col("end") - pl.col("begin")).sort("length", descending=True)
        length = pl.col("length")
        half = length.filter(2 * length.cum_sum() >= length.sum()).first()
        by_part = pieces.group_by("part").agg(length.sum().alias("total"), half.alias("half")).sort("total", descending=True)
        kinds = [(TITLES[part].removeprefix(f"{STARVED}: "), total, half) for part, total, half in by_part.iter_rows()]
        listed = ", ".join(
            f"{title} {percent(total / losses.cost)} (half of it {time(half)} or more at a time)"
            for title, total, half in kinds
        )
        is_unnamed = kinds[0][0] == STATES[OFF_CPU][1]
        also = [Number(title, total, "ns") for title, total, _ in kinds]
        finding = self.finding(losses, also, **self.values(losses, evidence))
        text = f"{finding.text}: {listed}" + ("; what it waits for was not recorded" if is_unnamed else "")
        return replace(finding, text=text)


class ShutDown(FindingRule, kind="shut-down", needs=(rule.LAST_WORK,)):
    shortest = Threshold("shortest time after the last activity", 100_000_000, "the end of a process takes as long", "ns")
    least = Threshold("least part of E", 0.1, "every run has an end")

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever did something."""
        last = max(evidence.last, default=-1)
        lost = evidence.length - last
        if last < 0 or lost < self.shortest.value or lost < self.least.value * evidence.length:
            return None
        active = pl.DataFrame({"device": evidence.first >= 0}).select(pl.col("device").arg_true().cast(pl.Int64))
        losses = active.with_columns(count=1, cost=lost, begin=last, end=evidence.length)
        return self.finding(Losses.placed(losses), wall=lost, after=lost, share=percent(lost / evidence.length))


class LittleGpuWork(_OfAllHosts, kind="little-gpu-work", needs=(rule.ANY_WORK,)):
    largest = Threshold(
        "largest part of E in which anything runs on the busiest device", 0.05,
        "then the run is one of hosts, and other findings are about its details",
    )  # fmt: skip

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices, where none does much."""
        table, length = evidence.tables["devices"], evidence.length
        busiest = max(table["active_ns"])
        part = busiest / max(length, 1)
        if not busiest or part > self.largest.value:
            return None
        devices = table.select(
            pl.int_range(pl.len()).alias("device"), count=1, cost=length - pl.col("active_ns"), begin=0, end=length,
            worst_begin=pl.col("first_ns").fill_null(0), worst_end=pl.col("last_ns").fill_null(length),
        )  # fmt: skip
        return self.finding(
            Losses.placed(devices),
            wall=length - busiest,
            part=part,
            busiest=busiest,
            length=time(length),
            which=counted(evidence.devices, "GPU"),
            computing=int(table["kernels_ns"].to_numpy().max()),
            active=evidence.active_time,
        )
