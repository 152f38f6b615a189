"""Checks by collectives and messages: whether reports of a host agree, and what cannot be as it was placed on the axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.clocks.agreement import FEW, arrives_early, usual_variation
from nsys2prv.clocks.anchors import Floats
from nsys2prv.clocks.sync_points import ReportClock
from nsys2prv.sources.communication.collectives import ALL
from nsys2prv.timeline.time_axis import ClockError

_OFF = 1e6
"""A report that is off by more, ns, has a separate clock: no session reads the time of its start so late."""
_LEAST, _LEAST_OF_FEW = 20e3, 40e3
"""ns: ends of collectives on the GPUs of a host are not closer, and a few of them not surely."""

_INSIDE_HOST_NS = 100e3
"""Time stamps of GPUs of one host agree better, ns."""
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
            distance=pl.col("end") - pl.col("end").median().over(event),
            impossible=pl.max_horizontal(
                pl.col("start").max().over(event) - pl.col("end"), pl.col("start") - pl.col("end").min().over(event)
            ),
        )
    )
    off: list[int] = []
    for (report,), of_report in compared.group_by("report"):
        index = int(report)
        distance, impossible = (of_report[name].to_numpy().astype(np.float64) for name in ("distance", "impossible"))
        # Half of it: of two reports, both are as far from the middle.
        if np.median(impossible) > _OFF and np.median(np.abs(distance)) > _OFF / 2:
            off.append(index)
        widths[index] = max(_width(distance, widths[index]), float(impossible.max()))
    return widths, sorted(off)


def _width(distance: Floats, by_utc: float) -> float:
    """How far a report may be off its host, ns, by the distances of its ends, and as the starts of sessions in UTC say it.

    A rank may end any collective late: that is no error of a clock. Distances that are alike are.
    """
    middle = float(np.median(distance))
    is_few = len(distance) < FEW
    varies = float(np.ptp(distance)) if is_few else usual_variation(distance - middle)
    if varies > by_utc or len(distance) == 1:
        return min(by_utc, float(np.abs(distance).min()) + _LEAST_OF_FEW) if is_few else by_utc
    return abs(middle) + max(varies, _LEAST_OF_FEW if is_few else _LEAST)


@dataclass(frozen=True)
class Disagreement:
    """What cannot be as it was placed, of one host or of two: how often, and the largest, ns.

    INSIDE_HOST, BETWEEN_HOSTS: a rank ends a collective before another one of its host, or of another host, has begun it, by
    more than what is unknown of their clocks; MESSAGE: a message arrives before it was sent. Hosts are names of clocks: one, or
    that of the sender (the rank that ended first) and that of the receiver.
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
    disagreements = [*_impossible(collectives, errors, names), *_early_messages(messages, names)]
    return tuple(sorted(disagreements, key=lambda disagreement: -disagreement.size))


def _impossible(collectives: pl.DataFrame, errors: Sequence[ClockError], names: Sequence[str]) -> Iterator[Disagreement]:
    """Of each collective the rank that surely began it last, and the one that surely ended it first: if these fit, all do."""
    of_all = collectives.filter(pl.col("rule") == ALL)
    report, end = (of_all[name].to_numpy() for name in ("report", "end"))
    of_report = np.array([error.of_report for error in errors])[report]
    of_clock = np.zeros(len(report))
    order = np.argsort(report, kind="stable")
    for number, entries in enumerate(np.split(order, np.searchsorted(report[order], np.arange(1, len(errors))))):
        of_clock[entries] = errors[number].at(end[entries])
    group = pl.Series("group", np.array([error.group for error in errors])[report])
    for what, key, width in (
        (INSIDE_HOST, "clock", of_report + _INSIDE_HOST_NS / 2),
        (BETWEEN_HOSTS, group, of_report + of_clock),
    ):
        beyond = (
            of_all.with_columns(begun=pl.col("start") - pl.Series(width), ended=pl.col("end") + pl.Series(width))
            .group_by("event", key)
            .agg(
                pl.col("begun").max(),
                pl.col("ended").min(),
                first=pl.col("clock").get(pl.col("ended").arg_min()),
                last=pl.col("clock").get(pl.col("begun").arg_max()),
            )
            .filter(pl.col("begun") > pl.col("ended"), (pl.col("first") == pl.col("last")) == (what == INSIDE_HOST))
            .group_by("first", "last")
            .agg(size=(pl.col("begun") - pl.col("ended")).max(), count=pl.len())
            .sort("first", "last")
        )
        for first, last, size, count in beyond.iter_rows():
            yield Disagreement(what, tuple(dict.fromkeys((names[first], names[last]))), float(size), count)


def _early_messages(messages: Iterable[pl.DataFrame], names: Sequence[str]) -> Iterator[Disagreement]:
    early = pl.DataFrame(schema=dict.fromkeys(("clock", "to_clock", "size", "count"), pl.Int64))
    for part in messages:
        of_part = part.filter(arrives_early()).select(
            "clock", "to_clock", size=pl.col("time") - pl.col("to_time"), count=pl.lit(1, pl.Int64)
        )
        early = pl.concat([early, of_part]).group_by("clock", "to_clock").agg(pl.col("size").max(), pl.col("count").sum())
    for clock, to_clock, size, count in early.sort("clock", "to_clock").iter_rows():
        yield Disagreement(MESSAGE, tuple(dict.fromkeys((names[clock], names[to_clock]))), float(size), count)
