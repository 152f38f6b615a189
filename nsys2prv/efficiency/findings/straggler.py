"""Stragglers: in most collectives the same rank arrives last, and what makes it late.

The rank that is in a collective for the shortest time waits for none. Durations are of one clock each, so that errors of clocks
don't matter.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Threshold, least_share
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule
from nsys2prv.efficiency.graph.changes import no_late_ranks
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.vocabulary.wording import short, time

_COLLECTIVE = ["communicator", "operation", "turn"]
_MOST_MOMENTS = 2_500_000
"""Moments of a graph in which a rank is made faster: that takes several replays."""
_MOST_STEPS = 8
"""Longest chain of ranks that wait for another one."""
_ELSEWHERE = ("straggler",)
_OF_KERNELS = ("slow-device", "unequal-work", "imbalance", "clock-throttling")
_OF_COPIES = ("pageable-copies", "exposed-copies")

Late = Mapping[str, Any]
"""A row of `_late`."""


class _Cause(NamedTuple):
    """What makes a device late: how much longer it takes, ns, a text, and the kinds of rules that may know more about it."""

    longer: int
    text: str
    kinds: tuple[str, ...]


def _in_communicator(late: Late) -> pl.Expr:
    return pl.col("communicator").eq_missing(pl.lit(late["communicator"]))


def _waits(collectives: pl.DataFrame) -> pl.DataFrame:
    """Kernels of collectives with `residence`, `waiting` (longer than the shortest of the collective), `is_last` (it is the
    shortest) and `lost` (of the last: what the next one is in it longer), ns."""
    residence = pl.col("residence")
    ordered = collectives.with_columns(residence=pl.col("end") - pl.col("start"))
    ordered = ordered.sort(*_COLLECTIVE, "residence", "device", nulls_last=True)
    is_first = pl.int_range(pl.len()).over(_COLLECTIVE) == 0
    lost = pl.when(is_first).then((residence.shift(-1).over(_COLLECTIVE) - residence).fill_null(0)).otherwise(0)
    return ordered.with_columns(waiting=residence - residence.min().over(_COLLECTIVE), lost=lost, is_last=lost > 0)


def _late(waits: pl.DataFrame) -> list[Late]:
    """Devices by communicator (`communicator`, `communicator_name`, `device`): in how many of its `collectives` a device is
    `last`, what the last but one waits then (`lost`), and all of them (`waiting`), ns."""
    of_devices = (
        waits.with_columns(waited=pl.col("waiting").sum().over(_COLLECTIVE))
        .group_by("communicator", "communicator_name", "device")
        .agg(
            last=pl.col("is_last").sum(),
            collectives=pl.len(),
            lost=pl.col("lost").sum(),
            waiting=pl.col("waited").filter("is_last").sum(),
        )
    )
    return list(of_devices.sort("communicator", "device", nulls_last=True).iter_rows(named=True))


def _awaited(late: Late, waits: pl.DataFrame, ranks: list[Late], followed: list[Late]) -> Late | None:
    """The one for which a rank waits in another communicator: that is last there most of the time."""
    elsewhere = waits.filter((pl.col("device") == late["device"]) & ~_in_communicator(late))
    waited = elsewhere.group_by("communicator").agg(pl.col("waiting").sum())
    longest = waited.sort("waiting", descending=True)["communicator"][0]
    devices = [rank["device"] for rank in followed]
    awaited = [rank for rank in ranks if rank["communicator"] == longest and rank["device"] not in devices and rank["last"]]
    return max(awaited, key=lambda rank: (rank["lost"], -rank["device"]), default=None)


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
    least = least_share(0.02, "less is the normal spread of ranks", ", of the active time of all")
    cause_part = Threshold(
        "least part of the loss that its cause must reach, against the median of the other ranks", 0.3,
        "else nothing explains it alone",
    )  # fmt: skip

    def chain(self, evidence: Evidence) -> tuple[list[Late], _Cause | None, pl.DataFrame]:
        """The late rank that costs most with those that make it late, the last of them first, and the cause of that one (None:
        nothing explains it); no ranks: there is none. And rows of `_waits`."""
        waits = _waits(evidence.run.measured(Nccl).waits.filter("complete"))
        ranks = _late(waits)
        stragglers = [
            rank
            for rank in ranks
            if rank["last"] >= max(self.fewest.value, self.last_part.value * rank["collectives"])
            and rank["lost"] >= self.least.value * evidence.active_time
        ]
        chain = sorted(stragglers, key=lambda rank: (-rank["lost"], rank["device"]))[:1]
        while chain and len(chain) < _MOST_STEPS:
            late = chain[-1]
            cause = max(_causes(late, waits, evidence), key=lambda cause: cause.longer)
            if cause.longer < self.cause_part.value * late["lost"]:
                return chain, None, waits
            awaited = _awaited(late, waits, ranks, chain) if cause.kinds == _ELSEWHERE else None
            if awaited is None:
                return chain, cause, waits
            chain.append(awaited)
        return chain, None, waits

    def judge(self, evidence: Evidence) -> Finding | None:
        chain, cause, waits = self.chain(evidence)
        if not chain:
            return None
        worst, first = chain[0], chain[-1]
        cost, name, ranks = worst["lost"], evidence.name(worst["device"]), evidence.ranks_of([worst["device"]])
        awaited = ", then ".join(evidence.name(rank["device"]) for rank in chain[1:])
        unknown = f"nothing that was measured explains why {evidence.name(first['device'])} is late"
        wall, kinds = (cost, ()) if cause is None else (min(cost, cause.longer), cause.kinds)
        is_worst = _in_communicator(worst) & (pl.col("device") == worst["device"]) & pl.col("is_last")
        losses = Losses.of_events(evidence.run, waits.filter(is_worst).with_columns(cost="lost"))
        losses = Losses(losses.devices.with_columns(count=pl.lit(worst["last"]), cost=pl.lit(worst["waiting"])))
        finding = self.finding(
            losses,
            # What makes a rank late can be seen in several collectives.
            wall=wall,
            who=f"rank {', '.join(map(str, ranks))} ({name})" if ranks else name,
            last=f"{worst['last']:,}",
            collectives=worst["collectives"],
            last_part=worst["last"] / worst["collectives"],
            communicator=f" of {short(worst['communicator_name'])}" if worst["communicator_name"] else "",
            waiting=worst["waiting"],
            lost=cost,
            longer=cause.longer if cause else None,
            awaited=f"it waits itself in another communicator for {awaited}; " if awaited else "",
            cause=cause.text if cause else unknown,
        )
        findings = {kind: evidence.finding(kind) for kind in kinds if kinds != _ELSEWHERE}
        follows = (kind for kind, of in findings.items() if of and first["device"] in of.losses.indices)
        return replace(finding, follows=next(follows, None))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """The late rank, and those that make it late, take as long as the typical member of their collectives."""
        if len(built.graph.moments) > _MOST_MOMENTS:
            return None
        tasks = evidence.tasks_of([rank["device"] for rank in self.chain(evidence)[0]])
        return no_late_ranks(built, [], tasks=tasks)
