"""Bounds between clocks that hold whatever took how long, over the time of the run.

A message arrives after it was sent. A rank ends a collective after the last rank began it, a broadcast after the root began
it; the root of a reduction ends it after the last rank began it. If the end is at `e` by its clock, and the start at `s` by
another, the clock of the end is ahead of the other by at most `e - s`. Bounds in both directions come from messages both ways,
and from collectives in which different hosts are the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.clocks.shared_events import Floats, Ints
from nsys2prv.sources.communication.collectives import ALL, FROM_ROOT, TO_ROOT

LEAST_LATENCY = 100.0
"""ns; no message is faster."""

_LATEST = 8
"""Collectives of a stretch and communicator of which the start on a clock counts: those that it began last."""
_MOST_CLOCKS = ((64, 32), (256, 16))
_FEWEST_STRETCHES = 6


@dataclass(frozen=True)
class Bounds:
    """How far clocks may be ahead of each other, as placed.

    Attributes
    ----------
    start, stop
        (stretches,): first and last time of the anchors of a stretch, ns of the axis.
    ahead
        (stretches, clocks, clocks): by how much the second clock may be ahead of the first at most, ns; infinite where nothing
        bounds it. Negative: it is behind by at least so much.
    """

    start: Floats
    stop: Floats
    ahead: Floats

    def moved(self, by: Floats) -> Bounds:
        """With something subtracted from each clock."""
        return Bounds(self.start, self.stop, self.ahead - by[None, None, :] + by[None, :, None])

    @property
    def over_all(self) -> Floats:
        """(clocks, clocks): the least over all stretches."""
        least: Floats = np.min(self.ahead, axis=0, initial=np.inf)
        return least


def stretches(clocks: int, first: float, last: float) -> Floats:
    """Borders of the stretches of time that bounds are kept for, ns: fewer for many clocks."""
    count = next((count for most, count in _MOST_CLOCKS if clocks <= most), _FEWEST_STRETCHES)
    return np.linspace(first, max(last, first + 1), count + 1)


def find_bounds(collectives: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int, borders: Floats) -> Bounds:
    """Bounds from collectives and messages.

    Parameters
    ----------
    collectives
        Columns `event`, `communicator`, `clock`, `start`, `end` (ns of the axis), `rule`, `is_root`.
    messages
        Columns `clock`, `to_clock`, `time`, `to_time` (ns of the axis).
    clocks
        Number of clocks.
    borders
        As of `stretches`.
    """
    count = len(borders) - 1
    ahead = np.full((count, clocks, clocks), np.inf)
    start, stop = np.full(count, np.inf), np.full(count, -np.inf)
    begun, ended = _starts_and_ends(collectives)
    if begun.height and ended.height:
        _bound_by_collectives(begun, ended, borders, ahead, start, stop)
    for piece in messages:
        between = piece.filter(pl.col("clock") != pl.col("to_clock"))
        time = between["time"].to_numpy().astype(np.float64)
        latency = between["to_time"].to_numpy() - time - LEAST_LATENCY
        place = _place(borders, time)
        np.minimum.at(ahead, (place, between["clock"].to_numpy(), between["to_clock"].to_numpy()), latency)
        np.minimum.at(start, place, time)
        np.maximum.at(stop, place, time)
    used = np.isfinite(start)
    return Bounds(start[used], stop[used], ahead[used])


def _starts_and_ends(collectives: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The last start, and the first end, of each event on each clock, where its rule makes them count."""
    is_root = pl.col("is_root").fill_null(value=False)
    rule = pl.col("rule")
    begun = collectives.filter((rule == ALL) | (rule == TO_ROOT) | ((rule == FROM_ROOT) & is_root))
    ended = collectives.filter((rule == ALL) | (rule == FROM_ROOT) | ((rule == TO_ROOT) & is_root))
    key = ["event", "clock"]
    return (
        begun.group_by(key).agg(pl.col("start").max(), pl.col("communicator").first()).sort(key),
        ended.group_by(key).agg(pl.col("end").min()).sort(key),
    )


def _bound_by_collectives(
    begun: pl.DataFrame, ended: pl.DataFrame, borders: Floats, ahead: Floats, start: Floats, stop: Floats
) -> None:
    middle = ended.group_by("event").agg(middle=pl.col("end").median())
    slack = begun.join(middle, on="event").with_columns(slack=pl.col("middle") - pl.col("start"))
    slack = slack.with_columns(stretch=pl.Series(_place(borders, slack["middle"].to_numpy())))
    place = pl.col("slack").rank("ordinal").over("stretch", "clock", "communicator")
    latest = slack.filter(place <= _LATEST).sort("stretch", "event", "clock")
    for (stretch,), of_stretch in latest.group_by("stretch", maintain_order=True):
        index = int(stretch)
        used = of_stretch.select("event").unique().sort("event").with_row_index("row")
        ends = ended.join(used, on="event")
        table = np.full((used.height, ahead.shape[1]), np.inf)
        table[ends["row"].to_numpy(), ends["clock"].to_numpy()] = ends["end"].to_numpy()
        starts = of_stretch.join(used, on="event").sort("clock")
        clock, row, begin = (starts[name].to_numpy() for name in ("clock", "row", "start"))
        for number in np.unique(clock):
            own = slice(*np.searchsorted(clock, [number, number + 1]))
            least = (table[row[own]] - begin[own, None]).min(axis=0)
            ahead[index, number] = np.minimum(ahead[index, number], least)
        ahead[index, np.arange(len(ahead[index])), np.arange(len(ahead[index]))] = np.inf
        middles = of_stretch["middle"].to_numpy()
        start[index], stop[index] = min(start[index], middles.min()), max(stop[index], middles.max())


def _place(borders: Floats, time: Floats) -> Ints:
    return np.clip(np.searchsorted(borders, time, side="right") - 1, 0, len(borders) - 2).astype(np.int64)


def shortest_ways(ahead: Floats, by_way_of: Ints | None = None) -> Floats:
    """Bounds that follow from those of other clocks between two: (..., clocks, clocks).

    If b is ahead of a by at most x, and c of b by at most y, c is ahead of a by at most x + y (Floyd and Warshall).

    Parameters
    ----------
    ahead
        Bounds that do not contradict each other: without negative ones they do not.
    by_way_of
        The clocks that may be between two; None: all.
    """
    closed: Floats = ahead.copy()
    clocks = closed.shape[-1]
    closed[..., np.arange(clocks), np.arange(clocks)] = 0
    for way in range(clocks) if by_way_of is None else by_way_of.tolist():
        np.minimum(closed, closed[..., :, way, None] + closed[..., way, None, :], out=closed)
    return closed
