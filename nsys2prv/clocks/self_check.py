"""A check of the time axis by what was placed on it: ends of collectives and both ends of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.sources.communication.collectives import ALL
from nsys2prv.timeline.time_axis import ClockError

INSIDE_HOST_NS = 1_000_000
"""Ranks of one host end a collective closer together, ns."""
_LATE_SHARE = 0.05
"""Share of the collectives of a host whose ends may be further apart."""

INSIDE_HOST, MESSAGE, BETWEEN_HOSTS = "inside host", "message", "between hosts"


@dataclass(frozen=True)
class Disagreement:
    """What cannot be as it was placed, of one host or of two.

    Attributes
    ----------
    what
        INSIDE_HOST: ranks of a host end a collective more than 1 ms apart; MESSAGE: a message arrives before it was sent;
        BETWEEN_HOSTS: a rank ends a collective before one of another host has begun it, by more than both intervals allow.
    hosts
        Names of the clocks: one, or that of the sender (the rank that ended first) and that of the receiver.
    size
        The largest, ns.
    count
        How often.
    """

    what: str
    hosts: tuple[str, ...]
    size: float
    count: int


def check_axis(
    collectives: pl.DataFrame,
    messages: Iterable[pl.DataFrame],
    errors: Sequence[ClockError],
    names: Sequence[str],
) -> tuple[Disagreement, ...]:
    """What cannot be as it was placed, the largest first.

    Parameters
    ----------
    collectives
        Columns `event`, `report`, `clock`, `start`, `end` (ns of the axis), `rule`.
    messages
        Columns `report`, `to_report`, `clock`, `to_clock`, `time`, `to_time` (ns of the axis), `doubt` (ns).
    errors
        Of each report.
    names
        Of each clock.
    """
    found = [*_inside_hosts(collectives, names), *_between_hosts(collectives, errors, names), *_messages(messages, names)]
    return tuple(sorted(found, key=lambda one: -one.size))


def _inside_hosts(collectives: pl.DataFrame, names: Sequence[str]) -> Iterator[Disagreement]:
    # A rank may end one late because its thread did not run; a clock that is wrong shows in many.
    apart = (
        collectives.filter(pl.col("rule") == ALL)
        .group_by("event", "clock")
        .agg(size=pl.col("end").max() - pl.col("end").min(), ranks=pl.len())
        .filter(pl.col("ranks") > 1)
        .group_by("clock")
        .agg(pl.col("size").max(), count=(pl.col("size") > INSIDE_HOST_NS).sum(), events=pl.len())
        .filter(pl.col("count") > pl.col("events") * _LATE_SHARE)
        .sort("clock")
    )
    for clock, size, count, _ in apart.iter_rows():
        yield Disagreement(INSIDE_HOST, (names[clock],), float(size), count)


def _between_hosts(collectives: pl.DataFrame, errors: Sequence[ClockError], names: Sequence[str]) -> Iterator[Disagreement]:
    """Of each collective the rank that surely began it last, and the one that surely ended it first: if these fit, all do."""
    of_all = collectives.filter(pl.col("rule") == ALL)
    if of_all.is_empty():
        return
    report, start, end = (of_all[name].to_numpy() for name in ("report", "start", "end"))
    width = np.zeros(len(report))
    order = np.argsort(report, kind="stable")
    for own in np.split(order, np.flatnonzero(np.diff(report[order])) + 1):
        error = errors[report[own[0]]]
        width[own] = error.at(end[own]) + error.of_report
    group = np.array([error.group for error in errors])[report]
    surely = of_all.select("event", "clock").with_columns(
        group=pl.Series(group), begun=pl.Series(start - width), ended=pl.Series(end + width)
    )
    beyond = (
        surely.group_by("event", "group")
        .agg(
            pl.col("begun").max(),
            pl.col("ended").min(),
            first=pl.col("clock").get(pl.col("ended").arg_min()),
            last=pl.col("clock").get(pl.col("begun").arg_max()),
        )
        .filter((pl.col("begun") > pl.col("ended")) & (pl.col("first") != pl.col("last")))
        .group_by("first", "last")
        .agg(size=(pl.col("begun") - pl.col("ended")).max(), count=pl.len())
        .sort("first", "last")
    )
    for first, last, size, count in beyond.iter_rows():
        yield Disagreement(BETWEEN_HOSTS, (names[first], names[last]), float(size), count)


def _messages(messages: Iterable[pl.DataFrame], names: Sequence[str]) -> Iterator[Disagreement]:
    schema = {"clock": pl.Int64, "to_clock": pl.Int64, "size": pl.Int64, "count": pl.Int64}
    backward = pl.DataFrame(schema=schema)
    for piece in messages:
        early = piece.filter(pl.col("to_time") + pl.col("doubt") < pl.col("time")).select(
            "clock", "to_clock", size=pl.col("time") - pl.col("to_time"), count=pl.lit(1, pl.Int64)
        )
        backward = pl.concat([backward, early]).group_by("clock", "to_clock").agg(pl.col("size").max(), pl.col("count").sum())
    for clock, to_clock, size, count in backward.sort("clock", "to_clock").iter_rows():
        hosts = (names[clock],) if clock == to_clock else (names[clock], names[to_clock])
        yield Disagreement(MESSAGE, hosts, float(size), count)
