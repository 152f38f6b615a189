"""Rules about NCCL: communication that is exposed, starved or blocks, kernels that are slower beside it, and stragglers.

docs/efficiency.md ("NCCL") says what of the time in a collective is transfer, and what is waiting."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, part_of
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Values
from nsys2prv.efficiency.graph import changes
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Intervals, segments, time_where
from nsys2prv.efficiency.measured_run import KERNEL, NCCL, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import short, time

_MOST_NAMED = 3
_KIND_OF_COLLECTIVE = ["communicator", "communicator_name", "operation", "placement"]


class ExposedCommunication(FindingRule, kind="exposed-communication", needs=(rule.NCCL_KERNELS,)):
    exposed_part = Threshold(
        "least part of the time of NCCL kernels, without waits, that is exposed", 0.3, "the last bucket of a step always is"
    )
    fewest = Threshold("fewest NCCL kernels on a device", 10, "few are a start: broadcasts of parameters", "")
    occurrences = "events"
    least = Threshold.least_share(0.05, "less is the normal end of a step")
    condition = pl.col("cost") >= exposed_part.value * pl.col("length")
    or_large = at_most = is_idle = True

    def losses(self, evidence: Evidence) -> Losses:
        """Of NCCL kernels without their `waits` for the last rank; with the sums `length`, their duration, `of_last`, what of
        the cost is exposed on the rank that arrives last, and `alone`, how many there are whose other ranks are not known."""
        kernels = evidence.run.measured(NcclExposure).kernels
        if kernels.is_empty():
            return Losses()
        kernel, residence = ["row", "start"], pl.col("end") - pl.col("start")
        kernels = kernels.group_by(*kernel, "end", "device").agg(pl.col("exposed").sum()).filter(pl.col("device") >= 0)
        transfers = evidence.run.measured(Nccl).members.select(*kernel, "transfer", "collective")
        length = pl.min_horizontal(residence, "transfer")
        # The last rank waits for none: what it can't cover, nobody can.
        of_last = pl.col("exposed").sort_by(residence, "row").first().over("collective")
        cost = pl.min_horizontal("exposed", length)
        kernels = kernels.join(drop_duplicates(transfers, kernel), on=kernel, how="left").with_columns(
            length=length,
            cost=cost,
            of_last=pl.when(pl.col("collective").is_null()).then(cost).otherwise(pl.min_horizontal(cost, of_last)),
            waits=residence - length,
            alone=pl.col("transfer").is_null(),
        )
        # NCCL kernels that run at the same time are alone at the same time.
        losses = Losses.of_events(evidence.run, kernels, ("length", "of_last", "waits", "alone"))
        return losses.at_most(evidence.column("nccl_alone_ns"))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        moving = losses.total("length")
        of_last, active = losses.total("of_last"), losses.devices.select(evidence.active.sum()).item()
        # Ranks that wait have nothing left to compute: with the late rank this exposure vanishes.
        is_cause = of_last >= max(self.exposed_part.value * moving, self.least.value * active)
        finding = self.finding(
            losses,
            exposed=losses.cost / moving,
            alone="; where not all ranks of a collective are known, waits are in these times" if losses.total("alone") else "",
        )
        return replace(finding, follows=None if is_cause else "straggler")

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Collectives take no time once all ranks are there."""
        return changes.without_transfers(built, finding.losses.indices)


class _OfCollectives(FindingRule):
    """A rule about NCCL kernels whose loss is known by communicator and operation."""

    lost: str
    """What the numbers of communicators and operations say."""
    needs = (rule.CUDA_CALLS, rule.NCCL_KERNELS)
    fewest: Threshold | None = Threshold("fewest such NCCL kernels on a device", 10, "few are a start: broadcasts", "")
    recurring = True
    sums = ("exposed",)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """Those inside a node and over nodes are apart."""
        events = losses.of_devices(self.events(evidence))
        costs = events.group_by(_KIND_OF_COLLECTIVE).agg(pl.col("cost").sum()).filter(pl.col("cost") > 0)
        top = costs.sort("cost", *_KIND_OF_COLLECTIVE, descending=[True, *[False] * 4], nulls_last=True)
        named = [
            (" ".join(filter(None, (operation, f"of {short(name)}" if name else None, placement))), lost)
            for _, name, operation, placement, lost in top.head(_MOST_NAMED).select(*_KIND_OF_COLLECTIVE, "cost").iter_rows()
        ]
        more = f", and {top.height - len(named):,} more" if top.height > len(named) else ""
        return self.finding(
            losses,
            [Number(f"{name}: {self.lost}", lost, "ns") for name, lost in named],
            part=losses.cost / max(losses.total("exposed"), 1),
            collectives=", ".join(f"{name} {time(lost)}" for name, lost in named) + more,
        )


class StarvedBesideCommunication(_OfCollectives, kind="starved-beside-communication"):
    starved_part = Threshold("least part of the time of NCCL kernels beside no other", 0.3, "else kernels wait for them")
    least = Threshold.least_share(0.02, "less is not worth a change of the program")
    condition = pl.col("cost") >= starved_part.value * pl.col("exposed")
    lost = "nothing is launched beside it"

    def events(self, evidence: Evidence) -> pl.DataFrame:
        """NCCL kernels with their `cost`: the time beside them in which the device is launch-starved."""
        starved, kernels = evidence.run.measured(AbsentTime).starved_beside_nccl, evidence.run.measured(NcclExposure).kernels
        if starved.is_empty():
            return pl.DataFrame()
        times = segments(Intervals.of(*starved.select("device", "begin", "end")))
        cost = time_where(times, times.counts[0] > 0, kernels.select("device", "start", "end"))
        return kernels.with_columns(cost=pl.Series(cost))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Launching threads take no time while devices are starved."""
        return changes.without_gaps(built, finding.losses.of_devices(evidence.run.measured(AbsentTime).starved_beside_nccl))


class HiddenCommunication(_OfCollectives, kind="hidden-communication"):
    least = Threshold("least share of such time", 0.02, "less is not worth a change of the program")
    lost = "hidden, and waited for"
    at_most = True

    def events(self, evidence: Evidence) -> pl.DataFrame:
        """NCCL kernels that are waited for while others hide them; the `cost` is how long."""
        kernels = evidence.run.measured(NcclExposure).kernels
        return kernels.with_columns(cost="hidden_wait").filter(pl.col("cost") > 0) if kernels.height else kernels

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """These collectives take no time once all ranks are there."""
        kernels = finding.losses.of_devices(self.events(evidence)).select("row", "start", "end")
        return changes.without_collectives(built, kernels)


# -- kernels that are slower beside NCCL kernels --------------------------------------------------
_WORK = ["value", "former", "following", "blocks", "threads"]
_LENGTH, _IS_BESIDE = pl.col("length"), pl.col("is_beside")


@dataclass(frozen=True)
class NcclContention(Measurement):
    """Kernels whose durations beside NCCL kernels are clearly above those alone.

    A kernel with the same blocks and threads between the same kernels of its stream most likely does the same work, so that its
    durations, alone and beside NCCL kernels, can be compared.

    Such `executions`: columns of `_executions`, and the means of all that do the same work, `beside_mean` and `alone_mean`, ns.
    """

    executions: pl.DataFrame


def nccl_contention(run: MeasuredRun) -> NcclContention:
    """Durations of kernels, alone and beside NCCL kernels. A run without NCCL kernels is not measured."""
    sides, separate, limits = {"beside": _IS_BESIDE, "alone": ~_IS_BESIDE}, pl.col("separate"), ContentionSlowdown
    beside, alone = pl.col("beside_mean"), pl.col("alone_mean")
    means = (_LENGTH.filter(which).mean().over(_WORK).alias(f"{side}_mean") for side, which in sides.items())
    is_slower = pl.when(_IS_BESIDE).then((beside * alone).sqrt() <= _LENGTH).otherwise((beside * alone).sqrt() >= _LENGTH)
    executions = _executions(run).with_columns(means).with_columns(separate=is_slower).filter(
        beside >= limits.slowdown.value * alone,
        *(which.sum().over(_WORK) >= limits.fewest_executions.value for which in sides.values()),
        *(separate.filter(which).mean().over(_WORK) >= limits.separation.value for which in sides.values()),
    )  # fmt: skip
    return NcclContention(executions)


def _executions(run: MeasuredRun) -> pl.DataFrame:
    """Kernels beside which no other compute kernel runs: `device`, `start`, `length`, _WORK (of the kernels before and after it
    on its row the values; 0: none), and whether it starts beside an NCCL kernel (`is_beside`)."""
    has_nccl = event_types.NCCL_KERNEL in run.events.types
    # Operations are in the order of time: so are those of a row.
    kernels = run.operations.filter(pl.col("number").is_in(event_types.KERNEL_TYPES if has_nccl else ())).with_columns(
        device=pl.lit(pl.Series(run.events.rows.device, dtype=pl.Int32)).gather("row"),
        former=pl.col("value").shift(1, fill_value=0).over("row"),
        following=pl.col("value").shift(-1, fill_value=0).over("row"),
    )
    kernels = kernels.filter((pl.col("number") == event_types.KERNEL) & (pl.col("device") >= 0))
    place = run.on_devices.place(kernels["device"].to_numpy().astype(np.int64), kernels["start"].to_numpy())
    counts = run.on_devices.counts
    # Several compute kernels at once are left out: together they may well be faster.
    is_alone = pl.Series((place >= 0) & (counts[KERNEL][place] == 1))
    length, is_beside = pl.col("end") - pl.col("start"), pl.Series(counts[NCCL][place] > 0)
    return kernels.select("device", "start", *_WORK, length=length, is_beside=is_beside).filter(is_alone)


class ContentionSlowdown(FindingRule, kind="contention-slowdown", needs=(rule.NCCL_KERNELS,)):
    slowdown = Threshold("least ratio of the mean durations beside and alone", 1.2, "sharing the GPU costs some percent", "")
    fewest_executions = Threshold("fewest executions alone, and beside NCCL kernels", 20, "means of fewer are chance", "")
    separation = Threshold(
        "least part of the executions, alone and beside, on their side of the middle (geometric mean of the means)", 0.9,
        "only then NCCL kernels explain the durations, and not the work",
    )  # fmt: skip
    least = Threshold.least_share(0.01, "less is not worth a look")

    def losses(self, evidence: Evidence) -> Losses:
        """What executions beside NCCL kernels take longer than the mean alone."""
        start, alone = pl.col("start"), pl.col("alone_mean")
        extra = (_LENGTH.sum() - alone.first() * pl.len()).round().cast(pl.Int64).clip(lower_bound=0)
        beside = evidence.run.measured(NcclContention).executions.filter(_IS_BESIDE)
        by_work = beside.group_by(*_WORK, "device", part=part_of(start, evidence.length))
        costs = by_work.agg(count=pl.len(), cost=extra, begin=start.min(), end=(start + _LENGTH).max())
        return Losses.of(evidence.run, costs)

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """Of the work that loses most."""
        slowed, alone = evidence.run.measured(NcclContention).executions, pl.col("alone_mean")
        of_work = {"executions": pl.len(), "beside": _IS_BESIDE.sum(), "lost": (_LENGTH - alone).filter(_IS_BESIDE).sum()}
        by_work = slowed.group_by(_WORK).agg(pl.col("beside_mean").first(), alone.first(), **of_work)
        first = by_work.sort("lost", *_WORK, descending=[True, *[False] * len(_WORK)]).row(0, named=True)
        return self.finding(
            losses,
            kernels=slowed["value"].n_unique(),
            name=short(evidence.kernel_name(event_types.KERNEL, first["value"])),
            beside=first["beside_mean"],
            alone=first["alone_mean"],
            part=first["beside"] / first["executions"],
            executions=f"{first['executions']:,}",
        )

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """The slowed kernels take less by what they lose: each device's loss is shared out by their time."""
        slowed = evidence.run.measured(NcclContention).executions.select(pl.col("value").cast(pl.Int64)).unique()
        kernels = evidence.run.measured(Kernels).by_device.filter(pl.col("number") == event_types.KERNEL)
        kernels = kernels.with_columns(pl.col("value", "device").cast(pl.Int64)).join(slowed, on="value", how="semi")
        kernels = kernels.join(finding.losses.devices.select("device", lost="cost"), on="device", how="inner")
        factor = 1 - pl.col("lost") / pl.col("total").sum().over("device")
        return changes.scaled_kernels(built, kernels.with_columns(factor=factor))


# -- stragglers: in most collectives the same rank arrives last, and what makes it late -------------
_MOST_MOMENTS = 2_500_000
"""Moments of a graph in which a rank is made faster: that takes several replays."""
_MOST_STEPS = 8
"""Longest chain of ranks that wait for another one."""
_ELSEWHERE = ("straggler",)
_OF_KERNELS = ("slow-device", "unequal-work", "imbalance", "clock-throttling")
_OF_COPIES = ("pageable-copies", "exposed-copies", "bound-by-copies")

Late = dict[str, Any]
"""A row of `_late`."""


class _Cause(NamedTuple):
    """What makes a device late: how much longer it takes, ns, a text, and the kinds of rules that may know more about it."""

    longer: int
    text: str
    kinds: tuple[str, ...]


def _in_communicator(late: Late) -> pl.Expr:
    return pl.col("communicator").eq_missing(pl.lit(late["communicator"]))


def _waits(evidence: Evidence) -> pl.DataFrame:
    """Kernels of collectives whose ranks are all in the run, with `is_last` (it is in the collective for the shortest time) and
    `lost` (of the last: what the next one is in it longer, ns)."""
    residence, waits = pl.col("residence"), evidence.run.measured(Nccl).waits.filter("complete")
    is_first = pl.int_range(pl.len()).over("collective") == 0
    lost = pl.when(is_first).then((residence.shift(-1).over("collective") - residence).fill_null(0)).otherwise(0)
    return waits.sort("collective", "residence", "device").with_columns(lost=lost, is_last=lost > 0)


def _late(waits: pl.DataFrame) -> pl.DataFrame:
    """Devices by communicator: in how many of its `collectives` a device is `last`, what the last but one waits then (`lost`),
    and all of them (`waiting`), ns; those first that cost most."""
    waits = waits.with_columns(waited=pl.col("waiting").sum().over("collective"))
    ranks = waits.group_by("communicator", "communicator_name", "device").agg(
        last=pl.col("is_last").sum(),
        collectives=pl.len(),
        lost=pl.col("lost").sum(),
        waiting=pl.col("waited").filter("is_last").sum(),
    )
    return ranks.sort("lost", "device", "communicator", descending=[True, False, False], nulls_last=True)


def _awaited(late: Late, waits: pl.DataFrame, ranks: pl.DataFrame, followed: list[Late]) -> list[Late]:
    """The one, if there is one, for which a rank waits in another communicator: it is late there most of the time."""
    elsewhere = waits.filter((pl.col("device") == late["device"]) & ~_in_communicator(late))
    waited = elsewhere.group_by("communicator").agg(pl.col("waiting").sum())
    longest = waited.sort("waiting", descending=True).row(0, named=True)
    is_new = ~pl.col("device").is_in([rank["device"] for rank in followed]) & (pl.col("last") > 0)
    return ranks.filter(_in_communicator(longest), is_new).head(1).rows(named=True)


def _causes(late: Late, waits: pl.DataFrame, evidence: Evidence) -> Iterator[_Cause]:
    """All that a late device may spend more time on than the median of the others of its communicator."""
    device, name = late["device"], evidence.name(late["device"])
    peers = sorted(set(waits.filter(_in_communicator(late))["device"].to_list()) - {device})

    def cause(text: str, kinds: tuple[str, ...], times: Mapping[int, int]) -> _Cause:
        usual = statistics.median(times.get(peer, 0) for peer in peers) if peers else 0
        longer = times.get(device, 0) - round(usual)
        return _Cause(longer, text.format(device=name, longer=time(longer)), kinds)

    devices = evidence.tables["devices"]
    of_kernels, of_copies = (dict(enumerate(devices[column])) for column in ("kernels_ns", "memory_alone_ns"))
    yield cause("kernels of {device} take {longer} longer than those of the others", _OF_KERNELS, of_kernels)
    yield cause("copies of {device} take {longer} longer beside no kernel", _OF_COPIES, of_copies)
    for kind, lost in evidence.gaps.lost_by_cause():
        what, kinds = ("gaps of unknown cause", ()) if kind is None else (f"gaps of the kind {kind}", (kind,))
        yield cause(f"{what} on {{device}} take {{longer}} longer than on the others", kinds, lost)
    elsewhere = waits.filter(~_in_communicator(late)).group_by("device").agg(pl.col("waiting").sum())
    if elsewhere.height:
        text = "{device} waits {longer} longer in collectives of other communicators"
        yield cause(text, _ELSEWHERE, dict(elsewhere.iter_rows()))


class Straggler(FindingRule, kind="straggler", needs=(rule.SEVERAL_DEVICES, rule.ALL_RANKS)):
    fewest = Threshold("fewest collectives in which it is last", 10, "fewer are chance", "")
    last_part = Threshold("least part of the collectives of its communicator in which it is last", 0.5, "else it is another")
    least = Threshold.least_share(0.02, "less is the normal spread of ranks", ", of the active time of all")
    cause_part = Threshold("least part of the loss that its cause has more than other ranks", 0.3, "else it is not the cause")

    def chain(self, evidence: Evidence) -> tuple[list[Late], _Cause | None, pl.DataFrame]:
        """The late rank that costs most with those that make it late, the last of them first, and the cause of that one (None:
        nothing explains it); no ranks: there is none. And rows of `_waits`."""
        waits = _waits(evidence)
        ranks = _late(waits)
        is_straggler = (
            pl.col("last") >= pl.max_horizontal(self.fewest.value, self.last_part.value * pl.col("collectives")),
            pl.col("lost") >= self.least.value * evidence.active_time,
        )
        chain: list[Late] = ranks.filter(is_straggler).head(1).rows(named=True)
        while chain and len(chain) < _MOST_STEPS:
            late = chain[-1]
            cause = max(_causes(late, waits, evidence), key=lambda cause: cause.longer)
            if cause.longer < self.cause_part.value * late["lost"]:
                return chain, None, waits
            awaited = _awaited(late, waits, ranks, chain) if cause.kinds == _ELSEWHERE else []
            if not awaited:
                return chain, cause, waits
            chain += awaited
        return chain, None, waits

    def judge(self, evidence: Evidence) -> Finding | None:
        chain, cause, waits = self.chain(evidence)
        if not chain:
            return None
        worst, first = chain[0], chain[-1]
        cost, name, ranks = worst["lost"], evidence.name(worst["device"]), evidence.ranks_of([worst["device"]])
        awaited = ", then ".join(evidence.name(rank["device"]) for rank in chain[1:])
        wall, kinds = (cost, ()) if cause is None else (min(cost, cause.longer), cause.kinds)
        is_worst = _in_communicator(worst) & (pl.col("device") == worst["device"]) & pl.col("is_last")
        losses = Losses.of_events(evidence.run, waits.filter(is_worst).with_columns(cost="lost"))
        losses = Losses(losses.devices.with_columns(count=pl.lit(worst["last"]), cost=pl.lit(worst["waiting"])))
        finding = self.finding(
            losses,
            # What makes a rank late can be seen in several collectives.
            wall=wall,
            who=f"rank {', '.join(map(str, ranks))} ({name})" if ranks else name,
            collectives=worst["collectives"],
            last_part=worst["last"] / worst["collectives"],
            communicator=f" of {short(worst['communicator_name'])}" if worst["communicator_name"] else "",
            lost=cost,
            longer=cause.longer if cause else None,
            awaited=f"it waits itself in another communicator for {awaited}; " if awaited else "",
            cause=cause.text if cause else f"nothing that was measured explains why {evidence.name(first['device'])} is late",
        )
        findings = {kind: evidence.finding(kind) for kind in kinds if kinds != _ELSEWHERE}
        follows = (kind for kind, of in findings.items() if of and first["device"] in of.losses.indices)
        return replace(finding, follows=next(follows, None))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """The late rank, and those that make it late, take as long as the typical member of their collectives."""
        if len(built.graph.time) > _MOST_MOMENTS:
            return None
        return changes.no_late_ranks(built, [], evidence.tasks_of([rank["device"] for rank in self.chain(evidence)[0]]))


def _late_by_gaps(waits: pl.DataFrame, evidence: Evidence) -> dict[str, int]:
    """Of each kind of gaps, how long the last of collectives are late by them, ns: by how much longer these gaps are since the
    collective before than those of the other ranks on average, and at most by what the next one waits."""
    of_rules = evidence.gaps.gaps.filter(pl.col("cause") >= 0)
    gaps = of_rules.select("cause", "device", "end", length=pl.col("end") - pl.col("begin"))
    members = waits.select("collective", "lost", "device", "start", others=pl.len().over("collective") - 1)
    members = members.cast({"device": pl.Int32, "start": pl.Int64})
    placed = gaps.sort("end").join_asof(
        members.sort("start"), left_on="end", right_on="start", by="device", strategy="forward", check_sortedness=False
    )
    spent = placed.group_by("cause", "collective", "others", "lost", "device").agg(pl.col("length").sum())
    of_others = pl.col("length").sum().over("cause", "collective") - pl.col("length")
    late = pl.min_horizontal("lost", (pl.col("length") - of_others / pl.col("others")).clip(lower_bound=0))
    by_cause = spent.with_columns(late=late).group_by("cause").agg(pl.col("late").sum()).sort("cause")
    kinds = tuple(evidence.gaps.causes)
    return {kinds[cause]: round(total) for cause, total in by_cause.iter_rows()}


class LateInTurn(FindingRule, kind="late-in-turn", needs=(rule.SEVERAL_DEVICES, rule.ALL_RANKS)):
    fewest = Threshold("fewest collectives on a device", 10, "fewer are chance", "")
    least = Threshold.least_share(0.05, "less is the normal spread of ranks")
    explained = Threshold(
        "least part of these waits that follows from one device, or from gaps of one kind", 0.5, "else others do, too"
    )
    recurring = True

    def losses(self, evidence: Evidence) -> Losses:
        """Waits in collectives, where no rank is last in most of them; of each device as the wall time by cause has them."""
        if evidence.finding(Straggler.kind):
            return Losses()
        waits = evidence.run.measured(Nccl).waits.filter("complete").with_columns(cost="waiting")
        late = pl.lit(evidence.tables["absent_time"]["late_rank_ns"]).gather("device")
        return Losses.of_events(evidence.run, waits).at_most(late)

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        ranks = _late(_waits(evidence))
        last = ranks.group_by("device").agg(pl.col("last").sum()).sort("last", "device", descending=[True, False])
        named = [f"{evidence.name(device)} in {count:,}" for device, count in last.head(_MOST_NAMED).iter_rows()]
        return {"collectives": int(last["last"].sum()), "last": ", ".join(named)}

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        """Where one device, or gaps of one kind, explain most of it, it follows from that."""
        least = self.explained.value * losses.cost / evidence.devices
        of_one = {kind: finding.wall or 0 for kind in _OF_KERNELS if (finding := evidence.finding(kind))}
        causes = {kind: wall for kind, wall in of_one.items() if wall >= least}
        if not causes:
            waits = _waits(evidence)
            least = self.explained.value * int(waits["lost"].sum())
            by_gaps = _late_by_gaps(waits, evidence)
            causes = {kind: late for kind, late in by_gaps.items() if late >= least and evidence.finding(kind)}
        return replace(super().describe(losses, evidence), follows=max(causes, key=lambda kind: causes[kind], default=None))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """All ranks take as long as the typical member of their collectives."""
        return None if len(built.graph.time) > _MOST_MOMENTS else changes.no_late_ranks(built, [])
