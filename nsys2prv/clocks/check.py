"""Checks by collectives and messages: whether reports of a host agree, and what cannot be as it was placed on the axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.clocks.anchors import Floats
from nsys2prv.clocks.sync_points import ReportClock
from nsys2prv.sources.communication.collectives import ALL
from nsys2prv.timeline.time_axis import ClockError

_OFF = 1e6
"""A report that is off by more, ns, has a separate clock: no session reads the time of its start so late."""
_FEW = 5
"""Of fewer collectives the largest distance counts, and what is usual."""
_MOST_TYPICAL = 95.0
_LEAST = 20e3
"""ns: ends of one collective on the GPUs of a host are not closer."""

_OUTLIER = 6.0
"""An anchor that is off by more than this many times the usual is an outlier."""
_USUAL = 10e3
"""ns; ends of a collective are usually not closer."""

INSIDE_HOST_NS = 1_000_000
"""Ranks of one host end a collective closer together, ns."""
_LATE_SHARE = 0.05
"""Share of the collectives of a host whose ends may be further apart."""
INSIDE_HOST, MESSAGE, BETWEEN_HOSTS = "inside host", "message", "between hosts"


def report_agreement(collectives: pl.DataFrame, clocks: Sequence[ReportClock]) -> tuple[Floats, list[int]]:
    """How far each report may be from the others of its clock, ns; and the reports that contradict the others: one of their
    ranks would have ended a collective long before another began it.

    Of hosts whose sessions tell only UTC, by collectives of ranks of the host: columns `event`, `clock`, `report`, `start`,
    `end` (ns of the rough placement), `rule`.
    """
    widths = np.array([clock.of_report for clock in clocks])
    event = ["event", "clock"]
    compared = (
        collectives.filter((pl.col("rule") == ALL) & pl.col("report").is_in(np.flatnonzero(widths).tolist()))
        .group_by(*event, "report")
        .agg(pl.col("end").min(), pl.col("start").max())
        .filter(pl.len().over(event) > 1)
        .select(
            "report",
            distance=(pl.col("end") - pl.col("end").median().over(event)).abs(),
            impossible=pl.max_horizontal(
                pl.col("start").max().over(event) - pl.col("end"), pl.col("start") - pl.col("end").min().over(event)
            ),
        )
    )
    off: list[int] = []
    for (report,), of_report in compared.group_by("report"):
        index = int(report)
        distance = of_report["distance"].to_numpy().astype(np.float64)
        # Half of it: of two reports, both are as far from the middle.
        if np.median(of_report["impossible"].to_numpy()) > _OFF and np.median(distance) > _OFF / 2:
            off.append(index)
        elif len(distance) < _FEW:
            widths[index] = max(widths[index], float(distance.max()))
        else:
            widths[index] = max(float(np.percentile(distance, _MOST_TYPICAL)), _LEAST)
    return widths, sorted(off)


def count_anchors(collectives: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int) -> list[dict[str, dict[str, int]]]:
    """How many collectives and messages tie each of the clocks, and how many are unusually far from it: `used`, `outliers` by
    kind. A collective that ties ranks in one direction only does not count, and a message that arrives before it was sent is an
    outlier. Both are as of `Anchors`, in time of the axis."""
    off = (
        collectives.filter(pl.col("rule") == ALL)
        .filter(pl.col("clock").n_unique().over("event") > 1)
        .group_by("event", "clock", "kind")
        .agg(pl.col("end").min())
        .with_columns(off=(pl.col("end") - pl.col("end").median().over("event")).abs())
    )
    is_outlier = pl.col("off") > _OUTLIER * pl.col("off").median().over("kind").clip(lower_bound=_USUAL)
    counts = [_counted(off.select("clock", "kind", is_outlier=is_outlier))]
    for part in messages:
        ends = part.filter(pl.col("clock") != pl.col("to_clock")).select(
            clock=pl.concat_list("clock", "to_clock"), kind=pl.lit("messages"), is_outlier=_arrives_early()
        )
        counts.append(_counted(ends.explode("clock")))
    anchors: list[dict[str, dict[str, int]]] = [{} for _ in range(clocks)]
    of_all = pl.concat(counts).group_by("clock", "kind").sum().sort("clock", "kind")
    for clock, kind, used, outliers in of_all.iter_rows():
        anchors[clock][kind] = {"used": used, "outliers": outliers}
    return anchors


def _counted(ends: pl.DataFrame) -> pl.DataFrame:
    is_outlier = pl.col("is_outlier")
    return ends.group_by("clock", "kind").agg(used=(~is_outlier).sum().cast(pl.Int64), outliers=is_outlier.sum().cast(pl.Int64))


def _arrives_early() -> pl.Expr:
    """Whether a message arrives before it was sent."""
    return pl.col("to_time") + pl.col("doubt") < pl.col("time")


@dataclass(frozen=True)
class Disagreement:
    """What cannot be as it was placed, of one host or of two: how often, and the largest, ns.

    INSIDE_HOST: ranks of a host end a collective more than 1 ms apart; MESSAGE: a message arrives before it was sent;
    BETWEEN_HOSTS: a rank ends a collective before one of another host has begun it, by more than both intervals allow. Hosts
    are names of clocks: one, or that of the sender (the rank that ended first) and that of the receiver.
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

    Collectives and messages are as of `Anchors`, in time of the axis; `errors` are of the reports, `names` of the clocks.
    """
    of_all = collectives.filter(pl.col("rule") == ALL)
    disagreements = [*_inside_hosts(of_all, names), *_between_hosts(of_all, errors, names), *_early_messages(messages, names)]
    return tuple(sorted(disagreements, key=lambda disagreement: -disagreement.size))


def _inside_hosts(collectives: pl.DataFrame, names: Sequence[str]) -> Iterator[Disagreement]:
    # A rank may end one late because its thread did not run; a clock that is wrong shows in many.
    late = (
        collectives.group_by("event", "clock")
        .agg(size=pl.col("end").max() - pl.col("end").min(), ranks=pl.len())
        .filter(pl.col("ranks") > 1)
        .group_by("clock")
        .agg(pl.col("size").max(), count=(pl.col("size") > INSIDE_HOST_NS).sum(), events=pl.len())
        .filter(pl.col("count") > pl.col("events") * _LATE_SHARE)
        .sort("clock")
    )
    for clock, size, count, _ in late.iter_rows():
        yield Disagreement(INSIDE_HOST, (names[clock],), float(size), count)


def _between_hosts(collectives: pl.DataFrame, errors: Sequence[ClockError], names: Sequence[str]) -> Iterator[Disagreement]:
    """Of each collective the rank that surely began it last, and the one that surely ended it first: if these fit, all do."""
    report, start, end = (collectives[name].to_numpy() for name in ("report", "start", "end"))
    width = np.zeros(len(report))
    order = np.argsort(report, kind="stable")
    for number, entries in enumerate(np.split(order, np.searchsorted(report[order], np.arange(1, len(errors))))):
        width[entries] = errors[number].at(end[entries]) + errors[number].of_report
    group = np.array([error.group for error in errors])[report]
    beyond = (
        collectives.select(
            "event", "clock", group=pl.Series(group), begun=pl.Series(start - width), ended=pl.Series(end + width)
        )
        .group_by("event", "group")
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


def _early_messages(messages: Iterable[pl.DataFrame], names: Sequence[str]) -> Iterator[Disagreement]:
    early = pl.DataFrame(schema=dict.fromkeys(("clock", "to_clock", "size", "count"), pl.Int64))
    for part in messages:
        of_part = part.filter(_arrives_early()).select(
            "clock", "to_clock", size=pl.col("time") - pl.col("to_time"), count=pl.lit(1, pl.Int64)
        )
        early = pl.concat([early, of_part]).group_by("clock", "to_clock").agg(pl.col("size").max(), pl.col("count").sum())
    for clock, to_clock, size, count in early.sort("clock", "to_clock").iter_rows():
        yield Disagreement(MESSAGE, tuple(dict.fromkeys((names[clock], names[to_clock]))), float(size), count)
