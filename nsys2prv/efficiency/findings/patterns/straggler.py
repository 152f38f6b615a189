"""Stragglers: in most collectives the same rank arrives last, and what makes it late.

The rank that is in a collective for the shortest time waits for none. Durations are of one clock each, so that errors of clocks
don't matter.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import AT_START
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import no_late_ranks
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.vocabulary.wording import short, time

KIND = "straggler"

FEWEST_LAST = Threshold("fewest collectives in which it is last", 10, "", "fewer are chance")
LAST_PART = Threshold(
    "least part of the collectives of its communicator in which it is last", 0.5, "0 to 1", "else it is another"
)
LEAST_LOST = Threshold("least share lost, of the active time of all", 0.02, "0 to 1", "less is the normal spread of ranks")
CAUSE_PART = Threshold(
    "least part of the loss that its cause must reach, against the median of the other ranks", 0.3, "0 to 1",
    "else nothing explains it alone",
)  # fmt: skip

_COLLECTIVE = ["communicator", "operation", "turn"]
_MOST_MOMENTS = 2_500_000
"""Moments of a graph in which a rank is made faster: that takes several replays."""
_MOST_STEPS = 8
"""Longest chain of ranks that wait for another one."""


@dataclass(frozen=True)
class _Late:
    """A device that is last in collectives of a communicator: how often, of how many, and what that costs, ns."""

    communicator: int | None
    name: str | None
    device: int
    last: int
    collectives: int
    lost: int
    waiting: int


@dataclass(frozen=True)
class _Cause:
    """What makes a device late: a text, the kind of the rule that knows more about it, and how much longer it takes, ns."""

    text: str
    kind: str | None
    longer: int


@dataclass(frozen=True)
class _Found:
    """The waits of ranks (`_waits`), the late rank with those that make it late, the last of them first, and the cause of that
    one; None: nothing explains it."""

    waits: pl.DataFrame
    chain: list[_Late]
    cause: _Cause | None


def straggler_rule(rules: Iterable[FindingRule]) -> FindingRule:
    """The rule that explains late ranks by what other rules find."""
    by_kind = {rule.kind: rule for rule in rules}

    def judge(evidence: Evidence) -> Finding | None:
        return _judge(evidence, by_kind)

    return FindingRule(
        kind=KIND,
        title="Straggler: the others wait for one rank",
        sees="a rank that is in most collectives of a communicator for the shortest time: it arrives last. Its cause is what "
        "it spends more time on than the median of the other ranks: kernels, copies, gaps by their cause, or waits in "
        "collectives of another communicator, which are followed to the rank that is last there",
        needs=(needs.SEVERAL_DEVICES, needs.ALL_RANKS),
        cost="of each collective in which it is last what all others are in it longer; saved is what a replay gains in which "
        "it, and the ranks for which it waits itself, take as long as the typical member of their collectives",
        view="3-communication/nccl_time",
        advice="Look at the rank for which the others wait, not at the collective: its cause is in the text.",
        thresholds=(FEWEST_LAST, LAST_PART, LEAST_LOST, CAUSE_PART),
        judge=judge,
        without=_without,
    )


def _judge(evidence: Evidence, rules: Mapping[str, FindingRule]) -> Finding | None:
    """The rank that costs most."""
    found = _found(evidence)
    return _described(found, evidence, rules) if found is not None else None


def _found(evidence: Evidence) -> _Found | None:
    """The rank that costs most, and where that began."""
    waits = _waits(evidence.collectives.filter("complete"))
    late = _late(waits)
    found = [
        one
        for one in late
        if one.last >= FEWEST_LAST.value
        and one.last >= LAST_PART.value * one.collectives
        and one.lost >= LEAST_LOST.value * evidence.active_time
    ]
    if not found:
        return None
    worst = max(found, key=lambda one: (one.lost, -one.device))
    chain, cause = _followed(worst, late, waits, evidence)
    return _Found(waits, chain, cause)


def _described(found: _Found, evidence: Evidence, rules: Mapping[str, FindingRule]) -> Finding:
    waits, chain, cause = found.waits, found.chain, found.cause
    worst, first = chain[0], chain[-1]
    ranks = ", then ".join(evidence.device_name(one.device) for one in chain[1:])
    text = (
        f"{_rank(evidence, worst.device)} is last in {worst.last:,} of {worst.collectives:,} collectives"
        + (f" of {short(worst.name)}" if worst.name else "")
        + f", and the others wait {time(worst.waiting)} together; "
        + (f"it waits itself in another communicator for {ranks}; " if ranks else "")
        + (
            cause.text
            if cause is not None
            else f"nothing that was measured explains why {evidence.device_name(first.device)} is late"
        )
    )
    numbers = [
        Number("collectives", worst.collectives),
        Number("of these, it is last", worst.last / worst.collectives, SHARE),
        Number("waits of the others, together", worst.waiting, NANOSECONDS),
        Number("what the last but one waits", worst.lost, NANOSECONDS),
    ]
    if cause is not None:
        numbers.append(Number("its cause takes longer by", cause.longer, NANOSECONDS))
    stats = _stats(waits, worst, evidence)
    # What makes a rank late can be seen in several collectives.
    wall = worst.lost if cause is None else min(worst.lost, cause.longer)
    return Finding(text, [stats], numbers, wall=wall, follows=_follows(cause, first, evidence, rules))


def _without(evidence: Evidence, _finding: Finding, built: BuiltGraph) -> Without | None:
    """The late rank, and those that make it late, take as long as the typical member of their collectives."""
    found = _found(evidence)
    if found is None or len(built.graph.moments) > _MOST_MOMENTS:
        return None
    of_device = evidence.context.events.rows.tasks_of_device
    tasks = sorted({task for one in found.chain for task in of_device.get(one.device, ())})
    return Without(no_late_ranks(built, [], tasks=tasks))


def _waits(collectives: pl.DataFrame) -> pl.DataFrame:
    """Kernels of collectives with `residence`, `waiting` (longer than the shortest of the collective), `is_last` (it is the
    shortest) and `lost` (of the last: what the next one is in it longer), ns."""
    residence = pl.col("end") - pl.col("start")
    frame = collectives.with_columns(residence=residence).sort(*_COLLECTIVE, "residence", "device", nulls_last=True)
    place = pl.int_range(pl.len()).over(_COLLECTIVE)
    following = pl.col("residence").shift(-1).over(_COLLECTIVE) - pl.col("residence")
    return frame.with_columns(
        waiting=pl.col("residence") - pl.col("residence").min().over(_COLLECTIVE),
        lost=pl.when(place == 0).then(following.fill_null(0)).otherwise(0),
    ).with_columns(is_last=(place == 0) & (pl.col("lost") > 0))


def _late(waits: pl.DataFrame) -> list[_Late]:
    """Devices that are last, by communicator."""
    waited = pl.col("waiting").sum().over(_COLLECTIVE)
    of_devices = (
        waits.with_columns(waited=waited)
        .group_by("communicator", "communicator_name", "device")
        .agg(
            last=pl.col("is_last").sum(),
            collectives=pl.len(),
            lost=pl.col("lost").filter("is_last").sum(),
            waiting=pl.col("waited").filter("is_last").sum(),
        )
        .sort("communicator", "device", nulls_last=True)
    )
    columns = ("communicator", "communicator_name", "device", "last", "collectives", "lost", "waiting")
    return [_Late(*row) for row in of_devices.select(columns).iter_rows()]


def _followed(
    worst: _Late, late: Sequence[_Late], waits: pl.DataFrame, evidence: Evidence
) -> tuple[list[_Late], _Cause | None]:
    """From a late device to the one where it began, and the cause there."""
    chain = [worst]
    while len(chain) < _MOST_STEPS:
        here = chain[-1]
        cause = _cause(here, waits, evidence)
        if cause is None or cause.kind != KIND:
            return chain, cause
        # It waits in another communicator: for the one that is last there most of the time.
        own = waits.filter((pl.col("device") == here.device) & ~pl.col("communicator").eq_missing(pl.lit(here.communicator)))
        longest = own.group_by("communicator").agg(pl.col("waiting").sum()).sort("waiting", descending=True)["communicator"][0]
        others = [one for one in late if one.communicator == longest and one.device not in {each.device for each in chain}]
        following = max(others, key=lambda one: (one.lost, -one.device), default=None)
        if following is None or not following.last:
            return chain, cause
        chain.append(following)
    return chain, None


def _cause(late: _Late, waits: pl.DataFrame, evidence: Evidence) -> _Cause | None:
    """What a late device spends more time on than the median of the others of its communicator; the most counts."""
    members = waits.filter(pl.col("communicator").eq_missing(pl.lit(late.communicator)))["device"].unique().sort().to_list()
    others = [device for device in members if device != late.device]
    spent = _spent(waits, late.communicator, evidence)

    def longer(of_devices: Mapping[int, int]) -> int:
        usual = statistics.median(of_devices.get(device, 0) for device in others) if others else 0
        return of_devices.get(late.device, 0) - round(usual)

    name = evidence.device_name(late.device)
    found = [_Cause(text.format(device=name, longer=time(longer(one))), kind, longer(one)) for text, kind, one in spent]
    most = max(found, key=lambda one: one.longer, default=None)
    return most if most is not None and most.longer >= CAUSE_PART.value * late.lost else None


def _spent(waits: pl.DataFrame, communicator: int | None, evidence: Evidence) -> list[tuple[str, str | None, dict[int, int]]]:
    """Texts, kinds of rules, and times by device, of all that can make a device late."""
    devices = evidence.tables["devices"]
    index = {name: place for place, name in enumerate(devices["device"])}

    def of_column(name: str) -> dict[int, int]:
        return {index[device]: spent for device, spent in devices.select("device", name).iter_rows()}

    spent: list[tuple[str, str | None, dict[int, int]]] = [
        ("kernels of {device} take {longer} longer than those of the others", "kernels", of_column("kernels_ns")),
        ("copies of {device} take {longer} longer beside no kernel", "copies", of_column("memory_alone_ns")),
    ]
    gaps = evidence.gaps.all_gaps().filter(pl.col("cause") != AT_START).group_by("cause", "device").agg(pl.col("cost").sum())
    for (cause,), rows in gaps.partition_by("cause", as_dict=True, maintain_order=True).items():
        kind = evidence.gaps.kinds[int(cause)] if int(cause) >= 0 else None
        what = f"gaps of the kind {kind}" if kind is not None else "gaps of unknown cause"
        of_devices = dict(rows.select("device", "cost").iter_rows())
        spent.append((f"{what} on {{device}} take {{longer}} longer than on the others", kind, of_devices))
    elsewhere = waits.filter(~pl.col("communicator").eq_missing(pl.lit(communicator)))
    if elsewhere.height:
        by_device = dict(elsewhere.group_by("device").agg(pl.col("waiting").sum()).iter_rows())
        spent.append(("{device} waits {longer} longer in collectives of other communicators", KIND, by_device))
    return spent


def _follows(cause: _Cause | None, late: _Late, evidence: Evidence, rules: Mapping[str, FindingRule]) -> str | None:
    """The finding of the late device that is its cause."""
    if cause is None or cause.kind is None:
        return None
    of_kind = {
        "kernels": ("slow-device", "unequal-work", "imbalance", "clock-throttling"),
        "copies": ("pageable-copies", "exposed-copies"),
    }
    for kind in of_kind.get(cause.kind, (cause.kind,)):
        finding = evidence.finding(rules[kind]) if kind in rules else None
        if finding is not None and any(stats.device == late.device for stats in finding.devices):
            return kind
    return None


def _stats(waits: pl.DataFrame, late: _Late, evidence: Evidence) -> DeviceStats:
    own = waits.filter(
        pl.col("communicator").eq_missing(pl.lit(late.communicator)) & (pl.col("device") == late.device) & pl.col("is_last")
    ).with_columns(part=part_of(pl.col("start"), evidence.length))
    by_part = own.group_by("part").agg(pl.col("lost").sum(), pl.col("start").min(), pl.col("end").max())
    top = by_part.sort("lost", "part", descending=[True, False]).row(0, named=True)
    return DeviceStats(
        device=late.device,
        count=late.last,
        cost=late.waiting,
        begin=int(own["start"].min()),  # type: ignore[arg-type]
        end=int(own["end"].max()),  # type: ignore[arg-type]
        worst=(top["start"], top["end"]),
        rows=tuple(sorted(own["row"].unique().to_list())),
    )


def _rank(evidence: Evidence, device: int) -> str:
    rows = evidence.context.events.rows
    ranks = [rows.tasks[task].rank for task in rows.tasks_of_device.get(device, ())]
    known = [str(rank) for rank in ranks if rank is not None]
    name = evidence.device_name(device)
    return f"rank {', '.join(known)} ({name})" if known else name
