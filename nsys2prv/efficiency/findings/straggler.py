"""Stragglers: in most collectives the same rank arrives last, and what makes it late.

The rank that is in a collective for the shortest time waits for none. Durations are of one clock each, so that errors of clocks
don't matter.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, Threshold, least_share, losses_of_events
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without
from nsys2prv.efficiency.graph.changes import no_late_ranks
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.vocabulary.wording import short, time

KIND = "straggler"

FEWEST_LAST = Threshold("fewest collectives in which it is last", 10, "", "fewer are chance")
LAST_PART = Threshold(
    "least part of the collectives of its communicator in which it is last", 0.5, "0 to 1", "else it is another"
)
LEAST_LOST = least_share(0.02, "less is the normal spread of ranks", ", of the active time of all")
CAUSE_PART = Threshold(
    "least part of the loss that its cause must reach, against the median of the other ranks", 0.3, "0 to 1",
    "else nothing explains it alone",
)  # fmt: skip

_COLLECTIVE = ["communicator", "operation", "turn"]
_MOST_MOMENTS = 2_500_000
"""Moments of a graph in which a rank is made faster: that takes several replays."""
_MOST_STEPS = 8
"""Longest chain of ranks that wait for another one."""
_KERNELS, _COPIES = "kernels", "copies"
_FINDINGS_OF = {
    _KERNELS: ("slow-device", "unequal-work", "imbalance", "clock-throttling"),
    _COPIES: ("pageable-copies", "exposed-copies"),
}
"""Findings that may be the cause of longer kernels or copies."""


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
class _Chain:
    """The waits of ranks (`_waits`), the late rank with those that make it late, the last of them first, and the cause of that
    one; None: nothing explains it."""

    waits: pl.DataFrame
    ranks: list[_Late]
    cause: _Cause | None


def _judge(evidence: Evidence) -> Finding | None:
    """The rank that costs most."""
    chain = _chain(evidence)
    return _described(chain, evidence) if chain is not None else None


def _chain(evidence: Evidence) -> _Chain | None:
    """The rank that costs most, and where that began."""
    waits = _waits(evidence.measured(Nccl).waits.filter("complete"))
    late = _late(waits)
    stragglers = [
        rank
        for rank in late
        if rank.last >= FEWEST_LAST.value
        and rank.last >= LAST_PART.value * rank.collectives
        and rank.lost >= LEAST_LOST.value * evidence.active_time
    ]
    if not stragglers:
        return None
    worst = max(stragglers, key=lambda rank: (rank.lost, -rank.device))
    return _Chain(waits, *_followed(worst, late, waits, evidence))


def _described(chain: _Chain, evidence: Evidence) -> Finding:
    waits, ranks, cause = chain.waits, chain.ranks, chain.cause
    worst, first = ranks[0], ranks[-1]
    awaited = ", then ".join(evidence.name(rank.device) for rank in ranks[1:])
    waiting = Number.time("waits of the others, together", worst.waiting)
    text = (
        f"{_rank(evidence, worst.device)} is last in {worst.last:,} of {worst.collectives:,} collectives"
        + (f" of {short(worst.name)}" if worst.name else "")
        + f", and the others wait {waiting} together; "
        + (f"it waits itself in another communicator for {awaited}; " if awaited else "")
        + (cause.text if cause is not None else f"nothing that was measured explains why {evidence.name(first.device)} is late")
    )
    numbers = [
        Number("collectives", worst.collectives),
        Number.share("of these, it is last", worst.last / worst.collectives),
        waiting,
        Number.time("what the last but one waits", worst.lost),
    ]
    if cause is not None:
        numbers.append(Number.time("its cause takes longer by", cause.longer))
    # What makes a rank late can be seen in several collectives.
    wall = worst.lost if cause is None else min(worst.lost, cause.longer)
    return Finding(text, Losses([_loss(waits, worst, evidence)]), numbers, wall=wall, follows=_follows(cause, first, evidence))


def _as_typical(evidence: Evidence, _finding: Finding, built: BuiltGraph) -> Without | None:
    """The late rank, and those that make it late, take as long as the typical member of their collectives."""
    chain = _chain(evidence)
    if chain is None or len(built.graph.moments) > _MOST_MOMENTS:
        return None
    of_device = evidence.run.events.rows.tasks_of_device
    tasks = sorted({task for rank in chain.ranks for task in of_device.get(rank.device, ())})
    return Without(no_late_ranks(built, [], tasks=tasks))


def _in_communicator(communicator: int | None) -> pl.Expr:
    return pl.col("communicator").eq_missing(pl.lit(communicator))


def _waits(collectives: pl.DataFrame) -> pl.DataFrame:
    """Kernels of collectives with `residence`, `waiting` (longer than the shortest of the collective), `is_last` (it is the
    shortest) and `lost` (of the last: what the next one is in it longer), ns."""
    residence = pl.col("end") - pl.col("start")
    ordered = collectives.with_columns(residence=residence).sort(*_COLLECTIVE, "residence", "device", nulls_last=True)
    place = pl.int_range(pl.len()).over(_COLLECTIVE)
    following = pl.col("residence").shift(-1).over(_COLLECTIVE) - pl.col("residence")
    return ordered.with_columns(
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
        elsewhere = waits.filter((pl.col("device") == here.device) & ~_in_communicator(here.communicator))
        waited = elsewhere.group_by("communicator").agg(pl.col("waiting").sum())
        longest = waited.sort("waiting", descending=True)["communicator"][0]
        followed = {rank.device for rank in chain}
        awaited = [rank for rank in late if rank.communicator == longest and rank.device not in followed]
        following = max(awaited, key=lambda rank: (rank.lost, -rank.device), default=None)
        if following is None or not following.last:
            return chain, cause
        chain.append(following)
    return chain, None


def _cause(late: _Late, waits: pl.DataFrame, evidence: Evidence) -> _Cause | None:
    """What a late device spends more time on than the median of the others of its communicator; the most counts."""
    members = waits.filter(_in_communicator(late.communicator))["device"].unique().sort().to_list()
    peers = [device for device in members if device != late.device]

    def longer(of_devices: Mapping[int, int]) -> int:
        usual = statistics.median(of_devices.get(device, 0) for device in peers) if peers else 0
        return of_devices.get(late.device, 0) - round(usual)

    name = evidence.name(late.device)
    causes = [
        _Cause(text.format(device=name, longer=time(longer(times))), kind, longer(times))
        for text, kind, times in _spent(waits, late.communicator, evidence)
    ]
    most = max(causes, key=lambda cause: cause.longer, default=None)
    return most if most is not None and most.longer >= CAUSE_PART.value * late.lost else None


def _spent(waits: pl.DataFrame, communicator: int | None, evidence: Evidence) -> list[tuple[str, str | None, dict[int, int]]]:
    """Texts, kinds of rules, and times by device, of all that can make a device late."""
    devices = evidence.tables["devices"]
    of_kernels, of_copies = (dict(enumerate(devices[name])) for name in ("kernels_ns", "memory_alone_ns"))
    spent: list[tuple[str, str | None, dict[int, int]]] = [
        ("kernels of {device} take {longer} longer than those of the others", _KERNELS, of_kernels),
        ("copies of {device} take {longer} longer beside no kernel", _COPIES, of_copies),
    ]
    for kind, of_devices in evidence.gaps.lost_by_cause():
        what = f"gaps of the kind {kind}" if kind is not None else "gaps of unknown cause"
        spent.append((f"{what} on {{device}} take {{longer}} longer than on the others", kind, of_devices))
    elsewhere = waits.filter(~_in_communicator(communicator))
    if elsewhere.height:
        by_device = dict(elsewhere.group_by("device").agg(pl.col("waiting").sum()).iter_rows())
        spent.append(("{device} waits {longer} longer in collectives of other communicators", KIND, by_device))
    return spent


def _follows(cause: _Cause | None, late: _Late, evidence: Evidence) -> str | None:
    """The finding of the late device that is its cause."""
    if cause is None or cause.kind is None or cause.kind == KIND:
        return None
    for kind in _FINDINGS_OF.get(cause.kind, (cause.kind,)):
        finding = evidence.finding(kind)
        if finding is not None and late.device in finding.losses.indices:
            return kind
    return None


def _loss(waits: pl.DataFrame, late: _Late, evidence: Evidence) -> Loss:
    of_device = waits.filter(_in_communicator(late.communicator) & (pl.col("device") == late.device) & pl.col("is_last"))
    (loss,) = losses_of_events(evidence.run, of_device.with_columns(cost="lost"))
    return replace(loss, count=late.last, cost=late.waiting, costs={})


def _rank(evidence: Evidence, device: int) -> str:
    tasks = evidence.run.events.rows.tasks
    ranks = [tasks[task].rank for task in evidence.run.events.rows.tasks_of_device.get(device, ())]
    texts = [str(rank) for rank in ranks if rank is not None]
    name = evidence.name(device)
    return f"rank {', '.join(texts)} ({name})" if texts else name


STRAGGLER = FindingRule(
    kind=KIND,
    title="Straggler: the others wait for one rank",
    sees="a rank that is in most collectives of a communicator for the shortest time: it arrives last. Its cause is what "
    "it spends more time on than the median of the other ranks: kernels, copies, gaps by their cause, or waits in "
    "collectives of another communicator, which are followed to the rank that is last there",
    needs=(rule.SEVERAL_DEVICES, rule.ALL_RANKS),
    cost="of each collective in which it is last what all others are in it longer; saved is what a replay gains in which "
    "it, and the ranks for which it waits itself, take as long as the typical member of their collectives",
    view="3-communication/nccl_time",
    advice="Look at the rank for which the others wait, not at the collective: its cause is in the text.",
    thresholds=(FEWEST_LAST, LAST_PART, LEAST_LOST, CAUSE_PART),
    judge=_judge,
    without=_as_typical,
)
