"""Rules about idle devices: gaps that nothing explains, a late start, an early end, hardly any work; and launches that are long
against kernels or graphs, stall, fill queues, or wait for the default stream."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, over_parts, part_of, rows_of_top
from nsys2prv.efficiency.findings.gap_causes import AT_END, AT_START, GapCause, activities_of, few_gaps, sum_of_states
from nsys2prv.efficiency.findings.rule import CallTime, Evidence, FindingRule, GapRule, Values, longest_call
from nsys2prv.efficiency.graph.changes import without_gaps, without_launch_queue, without_launches
from nsys2prv.efficiency.graph.cuda_waits import FEWEST_PENDING, LONGER, LONGEST_RELEASE, BlockedCalls
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.host_states import COMMUNICATOR, CONTEXT, OFF_CPU, PROFILER, STATES, WAITING
from nsys2prv.efficiency.intervals import NONE
from nsys2prv.efficiency.meters.absent_tables import OF_STATES, STARVED, TITLES
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.gaps import CAUSE_COLUMNS
from nsys2prv.errors import counted
from nsys2prv.exports.identity import IS_DEFAULT, NEVER_WAITS
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, time

_LEAST_IN_MS = 10_000_000
"""ns between two moments from which on a ms is enough to tell them apart."""
_BLOCKED_PART = 0.5
"""Time in blocked launches against that of the gaps, from which on these follow from it."""
_DOMINANT = 0.5
"""Part of a gap, or of all time, from which on something dominates it."""
_MOSTLY = 0.8
"""Part of idle time in which launching threads do one thing, from which on the title says it."""
_IN_PAUSES = "; {} of it is in pauses between calls in which CUPTI prepared a context: the call that made it was not recorded"
_OF_GAPS = ["cause", "device"]
_UNKNOWN_PART = 0.1
"""Time in gaps whose launching thread is not known, against all, from which on a replay without the gaps says too little."""


def _at_edge(gaps: pl.DataFrame) -> tuple[list[Number], str]:
    """What launching threads did in gaps at the start, or at the end, of the run (rows of `GapCauses.all_gaps`)."""
    times = {name: int(gaps[name].sum()) for name in CAUSE_COLUMNS}
    activities, doing = activities_of(times, sum(times.values()))
    return [Number(f"of the time of the devices: {what}", spent, "ns") for what, spent in activities.items()], doing


def _mostly(call: CallTime, spent: int) -> str:
    """End of a text about a time, ns, that is mostly in calls of one name; else nothing."""
    return f"; most of it is in {call}" if call.spent >= max(_DOMINANT * spent, 1) else ""


def _explained(evidence: Evidence, *but: str) -> pl.DataFrame:
    """Cause and device of gaps that findings have, but those of some kinds."""
    findings = ((place, evidence.finding(kind)) for place, kind in enumerate(evidence.gaps.causes) if kind not in but)
    explained = [(place, device) for place, finding in findings if finding for device in finding.losses.indices]
    return pl.DataFrame(explained, schema=dict.fromkeys(_OF_GAPS, pl.Int64), orient="row")


class IdleDevices(FindingRule, kind="idle-devices", needs=(rule.ALL_WORK,)):
    least = Threshold.least_share(0.1, "less is spread over many small causes")
    queued = of_queued = ""
    """Text and advice where what follows was launched before most of this time, and is not known to wait for anything."""

    def unexplained(self, evidence: Evidence) -> pl.DataFrame:
        """Gaps that no other finding explains: columns of `GapCauses.all_gaps`."""
        return evidence.gaps.after_start.join(_explained(evidence), on=_OF_GAPS, how="anti")

    def losses(self, evidence: Evidence) -> Losses:
        """Without what is created or set up meanwhile, where that has a finding."""
        rules = (rule for rule in (ProfilerSetUp, CreatingCommunicators, CreatingContext) if evidence.finding(rule.kind))
        found = [CAUSE_COLUMNS[state] for rule in rules for state in rule.states]
        gaps = self.unexplained(evidence).with_columns(pl.col("cost") - pl.sum_horizontal(0, *found))
        gaps = gaps.with_columns(pl.lit(0).alias(name) for name in found)
        return Losses.of(evidence.run, gaps, CAUSE_COLUMNS, worst="occurrence")

    def costly(self, losses: Losses, evidence: Evidence) -> Losses:
        """Waits of hosts do not count where they have a finding."""
        idle, waits = super().costly(losses, evidence), evidence.finding(WaitingHosts.kind)
        is_more = pl.col("cost") - sum_of_states(WAITING) >= self.least.value * pl.col("active")
        return idle.where(is_more) if idle and waits else idle

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        worst, gaps = losses.longest, self._gaps(losses, evidence)
        activities, doing = activities_of({name: losses.total(name) for name in CAUSE_COLUMNS}, losses.cost)
        # Of the trace, as all moments in texts, not of the window.
        begin, end = (worst[f"worst_{edge}"] + evidence.run.events.offset for edge in ("begin", "end"))
        digits = 3 if end - begin >= _LEAST_IN_MS else 6
        queued = self._queued(gaps, losses, evidence)
        activities = {"queued": queued} if queued else activities
        finding = self.finding(
            losses,
            [Number(what, spent, "ns") for what, spent in activities.items()],
            begin=f"{begin / 1e9:.{digits}f}",
            end=f"{end / 1e9:.{digits}f}",
            name=evidence.name(worst["device"]),
            besides=", without what other findings count" if losses.cost < (gaps["end"] - gaps["begin"]).sum() else "",
            few=few_gaps(gaps, losses, evidence.run.events.offset),
            meanwhile=self.queued.format(time(queued)) if queued else f"The launching threads meanwhile: {doing}",
        )
        # A host that is blocked in launches is late for what it does afterwards: then these gaps follow from it.
        queue = evidence.finding("full-launch-queue")
        blocked = dict(queue.losses.devices.select("device", "cost").iter_rows()) if queue else {}
        lost = losses.devices.select("device", "cost").iter_rows()
        is_late = all(blocked.get(device, 0) >= _BLOCKED_PART * cost for device, cost in lost)
        call = longest_call(evidence.run, gaps.filter(pl.col("row") >= 0))
        text = finding.text + _mostly(call, losses.cost) * (not queued)
        what, spent = next(iter(activities.items()), ("", 0))
        title = self.title.replace(":", f" ({what}):", 1) if spent >= _MOSTLY * losses.cost else None
        follows, advice = "full-launch-queue" if is_late else None, self.of_queued if queued else None
        return replace(finding, text=text, title=title, advice=advice, follows=follows)

    def _queued(self, gaps: pl.DataFrame, losses: Losses, evidence: Evidence) -> int:
        """Time in which launched work waits, ns; 0 where that is not most of it: what hosts do meanwhile is no reason then."""
        waiting = gaps.filter(pl.col("launched") < pl.col("begin"))
        queued = evidence.tables["absent_time"]["queued_ns"].gather(losses.indices).sum()
        queued = min(int((waiting["end"] - waiting["begin"]).sum()), int(queued))
        return queued if queued >= _DOMINANT * losses.cost else 0

    def _gaps(self, losses: Losses, evidence: Evidence) -> pl.DataFrame:
        return evidence.gaps.of(losses.indices).join(self.unexplained(evidence), on=["cause", "device"], how="semi")

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        return self._gaps(finding.losses, evidence)

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """Launching threads take no time in these gaps; None where they are not known, as before pages that a host fetches, or
        where the device leaves launched work waiting, whatever they do."""
        gaps = self.host_times(finding, evidence)
        if self._queued(gaps, finding.losses, evidence):
            return None
        gaps = gaps.with_columns(row=pl.when(pl.col("launched").is_not_null()).then("row").otherwise(NONE))
        length = pl.col("end") - pl.col("begin")
        idle, unknown = gaps.select(length.sum().alias("idle"), length.filter(pl.col("row") < 0).sum().alias("unknown")).row(0)
        return None if unknown > _UNKNOWN_PART * idle else without_gaps(built, gaps, keeps_order=True)


class _OfAllHosts(FindingRule):
    """A rule about one time in which all devices do little, whatever hosts do."""

    of_cuda = ""
    """The advice where most of the time is in one call of CUDA."""

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        edges = finding.losses.devices.select("begin", "end").head(1)
        return pl.DataFrame({"row": evidence.run.callers}).join(edges, how="cross")

    def with_call(self, finding: Finding, evidence: Evidence, begin: int, end: int) -> Finding:
        """The same with the call in which launching threads are for most of this time, if there is one. Calls that create a
        context are counted by another rule."""
        launchers, created = evidence.run.first_launchers, evidence.run.context_creations
        times = pl.DataFrame({"row": evidence.run.callers[np.unique(launchers[launchers >= 0])]})
        is_created = pl.all_horizontal(pl.col(name).is_in(created[name].implode()) for name in ("row", "start"))
        which = evidence.run.calls.select(~is_created).to_series().to_numpy()
        call = longest_call(evidence.run, times.with_columns(begin=begin, end=end), which)
        mostly = _mostly(call, (end - begin) * times.height)
        is_of_cuda = mostly and self.of_cuda and call.number == event_types.CUDA_CALL
        advice = self.of_cuda.format(call=call.name) if is_of_cuda else None
        return replace(finding, text=finding.text + mostly, advice=advice)


class StartUp(_OfAllHosts, kind="start-up", needs=(rule.FIRST_WORK,)):
    shortest = Threshold("shortest time before the first activity", 200_000_000, "loading of libraries takes as long", "ns")
    least = Threshold("least part of E", 0.1, "every run has a start")
    parts = ("start_up_ns",)

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever do something: the run begins when the first of them does. What is created meanwhile is
        counted by other rules."""
        first = min((begin for begin in evidence.first if begin >= 0), default=evidence.length)
        costs = evidence.tables["absent_time"]["start_up_ns"]
        longest = max(costs, default=0)
        if longest < self.shortest.value or longest < self.least.value * evidence.length:
            return None
        # A window that ends before the first work has one gap on each device, which nothing ends.
        cause = AT_START if first < evidence.length else AT_END
        gaps = evidence.gaps.all_gaps.filter(pl.col("cause") == cause).sort("part")
        devices = gaps.unique("device", keep="first", maintain_order=True).sort("device").select(
            "device", begin=0, end=first, count=1, cost=pl.lit(costs).gather("device"), rows=rows_of_top(evidence.run)
        )  # fmt: skip
        (also, doing), share = _at_edge(gaps), percent(first / evidence.length)
        finding = self.finding(Losses.placed(devices), also, longest, before=first, share=share, doing=doing)
        return self.with_call(finding, evidence, 0, first)


class StateRule(FindingRule, texts="state-rule"):
    """A rule about launch-starved time in which launching threads are in some states, as the wall time by cause has it."""

    states: Sequence[int]
    """Places in `host_states.STATES`."""
    shortest: Threshold | None = Threshold("shortest time of a device", 20_000_000, "less is the start of any program", "ns")
    least = Threshold("least part of the time of all devices", 0.05, "every run has a start")

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__(**attributes)
        cls.parts = [f"{OF_STATES[state]}_ns" for state in cls.states]

    def pieces(self, evidence: Evidence) -> pl.DataFrame:
        """Times of devices in which their launching threads do this: columns of `AbsentTime.of_hosts`."""
        return evidence.run.measured(AbsentTime).of_hosts.filter(pl.format("{}_ns", "part").is_in(self.parts))

    def losses(self, evidence: Evidence) -> Losses:
        pieces = self.pieces(evidence).drop("part").with_columns(cost=pl.col("end") - pl.col("begin"))
        return Losses.of(evidence.run, over_parts(pieces, (), evidence.length), worst="occurrence")

    def costly(self, losses: Losses, evidence: Evidence) -> Losses:
        """All devices or none: the cost is that of the wall time by cause."""
        is_long = losses and (self.shortest is None or losses.worst["cost"] >= self.shortest.value)
        return losses if is_long and losses.cost >= self.least.value * evidence.length * evidence.devices else Losses()

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        share = percent(losses.cost / (evidence.length * evidence.devices))
        each, name = losses.cost / len(losses), evidence.name(losses.longest["device"])
        return {"each": each, "on_each": time(each) + " on average" * (len(losses) > 1), "share": share, "name": name}

    def host_times(self, finding: Finding, evidence: Evidence) -> pl.DataFrame:
        pieces = finding.losses.of_devices(self.pieces(evidence))
        return pieces.select("begin", "end", row=pl.lit(pl.Series(evidence.run.callers)).gather("thread"))


class ProfilerSetUp(StateRule, kind="profiler-set-up", needs=(rule.CUDA_CALLS,)):
    states = (PROFILER,)
    gap_cause = GapCause(pl.col("profiler_ns") >= _DOMINANT * pl.col("length"))


class CreatingCommunicators(StateRule, kind="creating-communicators", needs=(rule.CUDA_CALLS, rule.NCCL_RANGES)):
    states = (COMMUNICATOR,)
    gap_cause = GapCause(pl.col("communicator_ns") >= _DOMINANT * pl.col("length"))


class CreatingContext(StateRule, kind="creating-context", needs=(rule.CUDA_CALLS, rule.CONTEXT_CALLS)):
    states = (CONTEXT,)
    gap_cause = GapCause(pl.col("context_ns") >= _DOMINANT * pl.col("length"))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        finding, created = super().describe(losses, evidence), evidence.run.context_creations.sort("start")
        times = self.host_times(finding, evidence).sort("begin").cast({"row": created.schema["row"]})
        times = times.join_asof(created, left_on="begin", right_on="start", by="row", check_sortedness=False)
        paused = times.filter(pl.col("number").is_null()).select((pl.col("end") - pl.col("begin")).sum()).item()
        return replace(finding, text=finding.text + _IN_PAUSES.format(percent(paused / losses.cost)) * (paused > 0))


class WaitingHosts(StateRule, kind="host-waits", needs=(rule.CUDA_CALLS, rule.HOST_STATES)):
    least, shortest = Threshold("least part of the time of all devices", 0.02, "less is not worth a look"), None
    states = WAITING
    advice_unnamed: str
    advice_of_processes: str
    gap_cause = GapCause(pl.col("is_late") & (pl.col("waiting") >= _DOMINANT * pl.col("length")))

    def pieces(self, evidence: Evidence) -> pl.DataFrame:
        """Without the gaps of other findings that are mostly such waits: they are known by what they wait for."""
        is_mostly = (sum_of_states(WAITING).sum() >= _DOMINANT * pl.col("cost").sum()).over(_OF_GAPS)
        waiting = evidence.gaps.after_start.filter(is_mostly).join(_explained(evidence, self.kind), on=_OF_GAPS, how="semi")
        gaps = evidence.gaps.of(waiting["device"].to_list()).join(waiting, on=_OF_GAPS, how="semi").sort("begin")
        pieces = super().pieces(evidence).sort("begin")
        until = pieces.join_asof(gaps, on="begin", by="device", suffix="_of_gap", check_sortedness=False)["end_of_gap"]
        return pieces.filter(until.fill_null(0) <= pieces["begin"])

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        pieces = self.pieces(evidence).with_columns(length=pl.col("end") - pl.col("begin")).sort("length", descending=True)
        length = pl.col("length")
        half = length.filter(2 * length.cum_sum() >= length.sum()).first()
        by_part = pieces.group_by("part").agg(length.sum().alias("total"), half.alias("half")).sort("total", descending=True)
        kinds = [(TITLES[part].removeprefix(f"{STARVED}: "), total, half) for part, total, half in by_part.iter_rows()]
        shares = ((title, percent(total / losses.cost), time(half)) for title, total, half in kinds)
        listed = [
            f"{what} {share} (half of it {half} or more at a time)" for what, share, half in shares if share != percent(0)
        ]
        longest = kinds[0][0]
        also = [Number(title, total, "ns") for title, total, _ in kinds]
        finding = self.finding(losses, also, **self.values(losses, evidence))
        text = f"{finding.text}: {', '.join(listed)}"
        if longest == STATES[OFF_CPU][1]:
            text, finding = f"{text}; what it waits for was not recorded", replace(finding, advice=self.advice_unnamed)
        elif longest == STATES[host_states.PROCESSES][1]:
            finding = replace(finding, advice=self.advice_of_processes)
        call = longest_call(evidence.run, self.host_times(finding, evidence))
        gaps = losses.of_devices(evidence.gaps.after_start.filter(cause=list(evidence.gaps.causes).index(self.kind)))
        at_work = host_states.IN_OS, host_states.COMPUTING, host_states.UNSCHEDULED
        working = gaps.select(sum_of_states(at_work).sum()).item()
        is_much = working >= rule.LEAST_SHARE.value * evidence.length * evidence.devices
        also_works = f"; in the same gaps it works for {time(working)} more" if is_much else ""
        return replace(finding, text=text + _mostly(call, losses.cost) + also_works)


class ShutDown(_OfAllHosts, kind="shut-down", needs=(rule.LAST_WORK,)):
    shortest = Threshold("shortest time after the last activity", 100_000_000, "the end of a process takes as long", "ns")
    least = Threshold("least part of E", 0.1, "every run has an end")
    parts = ("shut_down_ns",)

    def judge(self, evidence: Evidence) -> Finding | None:
        """Of all devices that ever did something."""
        last = max(evidence.last, default=-1)
        lost = evidence.length - last
        spent = max(evidence.tables["absent_time"]["shut_down_ns"], default=0)
        if last < 0 or lost < self.shortest.value or lost < self.least.value * evidence.length or not spent:
            return None
        active = pl.DataFrame({"device": evidence.first >= 0}).select(pl.col("device").arg_true().cast(pl.Int64))
        losses = active.with_columns(count=1, cost=lost, begin=last, end=evidence.length)
        also, doing = _at_edge(evidence.gaps.all_gaps.filter(pl.col("cause") == AT_END))
        share = percent(lost / evidence.length)
        finding = self.finding(Losses.placed(losses), also, lost, after=lost, share=share, doing=doing)
        return self.with_call(finding, evidence, last, evidence.length)


class LittleGpuWork(_OfAllHosts, kind="little-gpu-work", needs=(rule.ANY_WORK,), is_summary=True):
    largest = Threshold("largest part of E in which anything runs on the busiest device", 0.05, "the run is one of hosts then")

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
        finding = self.finding(
            Losses.placed(devices),
            wall=length - busiest,
            part=part,
            busiest=busiest,
            length=time(length),
            which=counted(evidence.devices, "GPU"),
            computing=int(table["kernels_ns"].to_numpy().max()),
            active=evidence.active_time,
        )
        # What explains most of the idle time says more.
        causes = {kind: evidence.finding(kind) for kind in (*evidence.gaps.causes, "start-up", "shut-down")}
        explained = {kind: cause.losses.cost for kind, cause in causes.items() if cause}
        most = max(explained, key=lambda kind: explained[kind], default=None)
        is_explained = most is not None and explained[most] >= _DOMINANT * finding.losses.cost
        return replace(finding, follows=most if is_explained else None)


# -- gaps before kernels --------------------------------------------------------------------------


class _ShortWork(GapRule):
    """A rule about gaps that are long against the work behind them."""

    ahead = Threshold("longest time from the start of the launch to the gap", 5_000, "else the device is late", "ns")
    latency = Threshold("or longest time from the start of the launch to the kernel", 30_000, "it starts at once then", "ns")
    launching = Threshold("least part of the gap in launches or between calls", 0.9, "else it waits, copies or allocates")
    longest_kernel = Threshold("longest kernel after such a gap against the gap (means)", 4, "else gaps are a fifth of it", "")
    condition = pl.col("next_length") <= longest_kernel.value * pl.col("cost")
    is_launching = (
        (pl.col("launched") >= pl.col("begin") - ahead.value) | (pl.col("start") - pl.col("launched") <= latency.value)
    ) & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= launching.value * pl.col("length"))
    """The launching thread does nothing but launch in the gap, and what follows starts as soon as it can."""

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        return {"work": losses.total("next_length") / losses.total("count")}


class LaunchBound(_ShortWork, kind="launch-bound"):
    longest = Threshold("longest gap that counts", 100_000, "a launch takes 2 to 20 µs, with Python around it up to 100", "ns")
    fewest = Threshold("fewest such gaps on a device", 100, "the first launch after any wait leaves such a gap too", "")
    least = Threshold.least_share(0.05, "less is the normal price of launches")
    gap_cause = GapCause(
        _ShortWork.is_launching & pl.col("before_kernel") & (pl.col("launch_ns") > 0) & (pl.col("length") <= longest.value),
        sums={"launching": pl.col("launch_ns"), "next_length": pl.col("next_length")},
    )

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """Without these gaps, and without launch calls in all other gaps of the same devices."""
        in_gaps = without_gaps(built, evidence.gaps.of(finding.losses.indices, self.kind), keeps_order=True)
        in_launches = without_launches(built, evidence.gaps.of(finding.losses.indices))
        return lambda window, weight: in_launches(window, in_gaps(window, weight))


class SmallGraphs(_ShortWork, kind="small-graphs", needs=(rule.CUDA_CALLS, rule.WHOLE_GRAPHS)):
    longest = Threshold("longest gap that counts", 200_000, "the launch of a graph takes 5 to 100 µs", "ns")
    between = Threshold("longest gap between two graphs launched in time", 20_000, "a device takes as long", "ns")
    fewest = Threshold("fewest such gaps on a device", 50, "fewer are the start of phases", "")
    least = Threshold.least_share(0.02, "less is the normal price of launches")
    is_late = _ShortWork.is_launching & (pl.col("length") <= longest.value)
    is_between = (pl.col("former_number") == event_types.GRAPH_EXECUTION) & (pl.col("length") <= between.value)
    gap_cause = GapCause(
        (pl.col("number") == event_types.GRAPH_EXECUTION) & (is_late | is_between),
        sums={"next_length": pl.col("next_length"), "late": is_late.cast(pl.Int64)},
    )


class LaunchStalls(GapRule, kind="launch-stalls"):
    launch_part = Threshold("least part of the gap in launch and other CUDA calls", 0.5, "else something else dominates")
    ahead = Threshold("longest time from launch to kernel, against the gap", 2, "else the work waited in a queue", "")
    least = Threshold.least_share(0.02, "less is the start of most programs")
    first_launches = Threshold("least part of different kernels behind such gaps", 0.8, "code is loaded once for each kernel")
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("before_kernel")
        & (pl.col("length") > LaunchBound.longest.value)
        & (pl.col("launch_ns") > 0)
        # Other calls load code, too: cuLibraryLoadData, cuModuleLoad.
        & (pl.col("launch_ns") + pl.col("other_cuda_ns") >= launch_part.value * pl.col("length"))
        & (pl.col("start") - pl.col("launched") <= ahead.value * pl.col("length")),
        sums={"launching": pl.col("launch_ns"), "loading": pl.col("other_cuda_ns")},
    )

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        gaps = evidence.gaps.of(losses.indices, self.kind)
        following = evidence.rows.located(evidence.run.operations.select("row", "number", "value", end="start"))
        different = following.join(gaps, on=["device", "end"], how="semi").unique(["device", "number", "value"]).height
        is_first = different >= self.first_launches.value * losses.total("count")
        first = ": code is loaded, or compiled, at the first launch of each" if is_first else ""
        kernels = f"{different:,} different kernels" if different > 1 else "one kernel"
        return {"different": different, "kernels": kernels, "first": first}


class FullLaunchQueue(FindingRule, kind="full-launch-queue", needs=(rule.CUDA_CALLS,)):
    pending = Threshold(
        "fewest operations of the stream that are launched and have not started when the call ends", FEWEST_PENDING,
        "the queue of a stream has some 1,024 places, of which records of events can take most", "",
    )  # fmt: skip
    longer = Threshold("shortest call, against the usual one", LONGER, "a call that is not blocked takes as long as others", "")
    release = Threshold(
        "longest time from the start that makes place to the end of the call", LONGEST_RELEASE, "else it did not wait", "ns"
    )
    fewest = Threshold("fewest blocked calls on a device", 20, "fewer are chance", "")
    least = Threshold.least_share(0.02, "a host that is far ahead loses nothing")

    def losses(self, evidence: Evidence) -> Losses:
        """Of launch calls that wait for a place in the queue of their stream the time that they are blocked, but a device that
        has always work loses nothing; with the sums `pending`, and `spent`, that time."""
        run, calls = evidence.run, evidence.run.measured(BlockedCalls).calls
        blocked = calls.with_columns(
            device=pl.Series(evidence.rows.device[calls["next_row"].to_numpy()], dtype=pl.Int64),
            cost=pl.col("free_start") - pl.col("begin"),
            end="until",
            row="next_row",
            thread=pl.Series(run.place_of_caller[calls["row"].to_numpy()], dtype=pl.Int64),
        )
        losses = Losses.of(run, blocked, ("pending",))
        spent = losses.with_sums(losses.devices, pl.col("cost").sum().alias("spent"))
        # What was idle before the first blocked call does not follow from it, nor what waits after its launch.
        idle = evidence.gaps.of(spent.indices).filter(pl.col("end") > pl.lit(blocked["begin"].min()))
        idle = idle.with_columns(end=pl.col("launched").clip("begin", "end").fill_null(pl.col("begin")))
        return spent.at_most(evidence.active - evidence.column("active_ns")).within(idle)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        pending = losses.total("pending") / losses.total("count")
        also = [Number("operations that are launched and have not started, on average", pending)]
        return self.finding(losses, also, pending=f"{pending:,.0f}")

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Queues have places enough."""
        return without_launch_queue


# -- streams that wait for the default stream -----------------------------------------------------


class DefaultStream(FindingRule, kind="default-stream", needs=(rule.CUDA_CALLS, rule.NO_EVENT_WAITS)):
    # The default stream waits for the others, too.
    is_bound = False
    near = Threshold("longest time from the end on the default stream to the start", 10_000, "else it did not wait", "ns")
    waiting = Threshold("least time from the launch, its stream free, to that end", 10_000, "else the host was late", "ns")
    fewest = Threshold("fewest waits on a device", 20, "fewer are chance", "")
    waiting_part = Threshold("least part of the work on other streams that waits", 0.5, "else it is not the rule")
    beside = Threshold("largest part of that work that starts beside the default stream", 0.02, "who waits never does")
    least = Threshold.least_share(0.02, "less is not worth a change of the program")
    condition = (pl.col("count") >= waiting_part.value * pl.col("work")) & (pl.col("beside") <= beside.value * pl.col("work"))

    def losses(self, evidence: Evidence) -> Losses:
        """Of work on other streams what was launched in time, and starts when the default stream ends; with the sums `work`,
        operations on other streams, and `beside`, how many of them start beside the default stream."""
        run, rows = evidence.run, evidence.rows
        # NONE is the last one.
        launched = np.append(run.launches["time"].to_numpy(), np.iinfo(np.int64).max)[run.launch_of]
        operations = rows.located(run.operations.select("row", "start", "end", launched=pl.Series(launched)))
        of_one_task = [device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1]
        operations = operations.filter(pl.col("device").is_in(of_one_task))
        flag = pl.lit(pl.Series(run.events.rows.flag)).gather("row")
        operations = operations.with_columns(is_default=flag == IS_DEFAULT).filter(flag != NEVER_WAITS)
        operations = operations.filter(pl.col("is_default").any().over("device"))
        on_default = pl.when("is_default").then("end").otherwise(0)
        former_end = pl.col("end").cum_max().shift(1, fill_value=0).over("row")
        operations = operations.sort("device", "start", "end", "row", maintain_order=True).with_columns(
            default_end=on_default.cum_max().shift(1, fill_value=0).over("device"),
            begin=pl.max_horizontal("launched", former_end),
        )
        work = operations.filter(~pl.col("is_default"))
        start, default_end, ready = (pl.col(name) for name in ("start", "default_end", "begin"))
        follows = (start - default_end).is_between(0, self.near.value)
        waits = work.filter(follows, ready <= default_end - self.waiting.value).with_columns(
            part=part_of(start, run.events.length), cost=pl.min_horizontal(start - ready, pl.col("end") - start)
        )
        # Streams that wait at the same time could have run at the same time.
        losses = Losses.of(run, waits).within(waits.with_columns(end="start"))
        return losses.with_sums(work, pl.len().alias("work"), (start < default_end).sum().alias("beside"))

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        work, beside = losses.total("work"), losses.total("beside")
        return {"waiting": losses.total("count") / work, "beside": f"{beside:,}", "part": beside / work}
