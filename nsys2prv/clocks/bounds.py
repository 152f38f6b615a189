"""Bounds between clocks that hold whatever took how long, over the time of the run; and what follows from them.

A message arrives after it was sent. A rank ends a collective after the last rank began it, a broadcast after the root began
it; the root of a reduction ends it after the last rank began it. If the end is at `e` by its clock, and the start at `s` by
another, the clock of the end is ahead of the other by at most `e - s`. Bounds in both directions come from messages both ways,
and from collectives in which different hosts are the last.

Clocks are moved by as little as possible until bounds are kept, as no message arrives before it was sent (`enforce_bounds`).
The same bounds say how far each clock may be from the axis (`clock_intervals`): between two stretches with bounds, and beyond
them, the interval grows by what is unknown of the drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.agreement import LEAST_UNKNOWN_DRIFT, UNKNOWN_DRIFT, widths_by_ends
from nsys2prv.clocks.anchors import Anchors, Floats, Ints, extent_of
from nsys2prv.sources.communication.collectives import ALL, FROM_ROOT, TO_ROOT
from nsys2prv.timeline.time_axis import ClockCorrection

_LEAST_LATENCY = 100.0
"""ns; no message is faster."""
_LATEST = 8
"""Collectives of a stretch and communicator of which the start on a clock counts: those that it began last."""
_STRETCHES, _FEWEST_STRETCHES = ((64, 32), (256, 16)), 6
"""Stretches of time that bounds are kept for, with up to so many clocks, and with more."""

_ROUNDS = 300
_SETTLED = 0.1
"""ns; smaller moves count as none."""
_MOST_ADDED = 50
"""How often bounds that moves violated are added."""

_LEAST_WIDTH = 500.0
"""ns; time stamps of events are not more precise."""
_MANY, _WAYS = 256, 64
"""Tables of more clocks have numbers of half the size; if they suffice, only the best known clocks are ways between two."""


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


def bounds_of_run(anchors: Anchors, corrections: Sequence[ClockCorrection], widths: Floats | None = None) -> Bounds | None:
    """Bounds between the clocks of a run after corrections; None where there is nothing that bounds them. They are wider by
    `widths`: how far each report may be off its clock, ns."""
    if anchors.clocks < 2 or (anchors.collectives.is_empty() and not anchors.messages):
        return None
    collectives = anchors.placed_collectives(corrections, widths).with_columns(
        start=pl.col("start") - pl.col("doubt_of_start"), end=pl.col("end") + pl.col("doubt_of_end")
    )
    sent = (messages["time"] for messages in anchors.placed_messages(corrections))
    messages = (
        part.with_columns(to_time=pl.col("to_time") + pl.col("doubt")) for part in anchors.placed_messages(corrections, widths)
    )
    return find_bounds(collectives, messages, anchors.clocks, extent_of(chain([collectives["end"]], sent)))


def find_bounds(
    collectives: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int, extent: tuple[float, float]
) -> Bounds:
    """Bounds between a number of clocks, from collectives and messages as of `Anchors`, in time of the axis.

    `extent` is the first and the last of these times, which is divided in stretches.
    """
    count = next((count for most, count in _STRETCHES if clocks <= most), _FEWEST_STRETCHES)
    borders = np.linspace(extent[0], max(extent[1], extent[0] + 1), count + 1)
    bounds = Bounds(np.full(count, np.inf), np.full(count, -np.inf), np.full((count, clocks, clocks), np.inf))
    _bound_by_collectives(collectives, borders, bounds)
    for part in messages:
        between = part.filter(pl.col("clock") != pl.col("to_clock"))
        time = between["time"].to_numpy().astype(np.float64)
        latency = between["to_time"].to_numpy() - time - _LEAST_LATENCY
        place = _place(borders, time)
        np.minimum.at(bounds.ahead, (place, between["clock"].to_numpy(), between["to_clock"].to_numpy()), latency)
        np.minimum.at(bounds.start, place, time)
        np.maximum.at(bounds.stop, place, time)
    used = np.isfinite(bounds.start)
    return Bounds(bounds.start[used], bounds.stop[used], bounds.ahead[used])


def _bound_by_collectives(collectives: pl.DataFrame, borders: Floats, bounds: Bounds) -> None:
    is_root, rule = pl.col("is_root").fill_null(value=False), pl.col("rule")
    begins = (rule == ALL) | (rule == TO_ROOT) | ((rule == FROM_ROOT) & is_root)
    ends = (rule == ALL) | (rule == FROM_ROOT) | ((rule == TO_ROOT) & is_root)
    # The last start, and the first end, of each event on each clock, where its rule makes them count.
    begun = collectives.filter(begins).group_by("event", "clock").agg(pl.col("start").max(), pl.col("communicator").first())
    ended = collectives.filter(ends).group_by("event", "clock").agg(pl.col("end").min())
    begun = begun.join(ended.group_by("event").agg(middle=pl.col("end").median()), on="event").sort("event", "clock")
    begun = begun.with_columns(
        slack=pl.col("middle") - pl.col("start"), stretch=pl.Series(_place(borders, begun["middle"].to_numpy()))
    )
    place = pl.col("slack").rank("ordinal").over("stretch", "clock", "communicator")
    latest = begun.filter(place <= _LATEST).sort("stretch", "event", "clock")
    for (stretch,), of_stretch in latest.group_by("stretch", maintain_order=True):
        _bound_stretch(of_stretch, ended, bounds, int(stretch))


def _bound_stretch(begun: pl.DataFrame, ended: pl.DataFrame, bounds: Bounds, stretch: int) -> None:
    ahead = bounds.ahead[stretch]
    events = begun.select("event").unique().sort("event").with_row_index("row")
    ends = ended.join(events, on="event")
    table = np.full((events.height, len(ahead)), np.inf)
    table[ends["row"].to_numpy(), ends["clock"].to_numpy()] = ends["end"].to_numpy()
    starts = begun.join(events, on="event").sort("clock")
    clock, row, begin = (starts[name].to_numpy() for name in ("clock", "row", "start"))
    for number in np.unique(clock):
        of_clock = slice(*np.searchsorted(clock, [number, number + 1]))
        least = (table[row[of_clock]] - begin[of_clock, None]).min(axis=0)
        np.minimum(ahead[number], least, out=ahead[number])
    np.fill_diagonal(ahead, np.inf)
    middles = begun["middle"].to_numpy()
    bounds.start[stretch], bounds.stop[stretch] = middles.min(), middles.max()


def _place(borders: Floats, time: Floats) -> Ints:
    return np.clip(np.searchsorted(borders, time, side="right") - 1, 0, len(borders) - 2).astype(np.int64)


def _shortest_ways(ahead: Floats, by_way_of: Ints | None = None) -> Floats:
    """Bounds that follow from those of other clocks (all, or these) between two, if they do not contradict each other.

    If b is ahead of a by at most x, and c of b by at most y, c is ahead of a by at most x + y (Floyd and Warshall).
    """
    closed: Floats = ahead.copy()
    clocks = closed.shape[-1]
    closed[..., np.arange(clocks), np.arange(clocks)] = 0
    for way in range(clocks) if by_way_of is None else by_way_of.tolist():
        np.minimum(closed, closed[..., :, way, None] + closed[..., way, None, :], out=closed)
    return closed


# -- moves: no message arrives before it was sent ----------------------------------------------------------------------


def enforce_bounds(ahead: Floats, precision: Floats) -> Floats:
    """What to subtract from each clock, ns, so that bounds (as of `Bounds.over_all`) are kept.

    These are the smallest moves, weighted by the precision of each clock, which is 0 where nothing is known of it. Such clocks
    follow the others: the others move first, and only as far as the bounds between them require, including those by way of
    unknown clocks. Where bounds contradict each other, they are violated by about the same.
    """
    moves = np.zeros(len(precision))
    if not len(ahead) or ahead.min() >= 0:
        return moves
    bounds = _possible(ahead)
    is_known = precision > 0
    if is_known.any():
        mobility = np.divide(precision.max(), precision, where=is_known, out=np.zeros(len(precision)))
        moves = _moved(moves, np.where(is_known[:, None] & is_known[None, :], bounds, np.inf), mobility)
    return _settled(_moved(moves, bounds, (~is_known).astype(np.float64)), bounds)


def _possible(ahead: Floats) -> Floats:
    """Bounds that do not contradict each other, with those that follow from them.

    Where both directions cannot be right, because a clock drifts or jumps, both get the same error.
    """
    contradict = np.isfinite(ahead + ahead.T) & (ahead + ahead.T < 0)
    difference = np.subtract(ahead, ahead.T, where=contradict, out=np.zeros_like(ahead))
    bounds = np.where(contradict, difference / 2, ahead)
    np.fill_diagonal(bounds, 0)
    ways = _shortest_ways(bounds)
    # A contradiction by way of a third clock: only the bounds themselves are used then.
    return bounds if (np.diagonal(ways) < -_SETTLED).any() else ways


def _moved(start: Floats, bounds: Floats, mobility: Floats) -> Floats:
    """Moves clocks, each in proportion to its mobility, until the bounds are kept.

    Bounds between clocks without mobility are skipped, and so are those that are never violated.
    """
    moves, is_active = start, np.zeros(bounds.shape, dtype=bool)
    can_move = (mobility[:, None] + mobility[None, :]) > 0
    for _ in range(_MOST_ADDED):
        violated = can_move & (moves[None, :] - moves[:, None] - bounds > _SETTLED)
        if not (violated & ~is_active).any():
            break
        is_active |= violated
        moves = _keeping(start, bounds, mobility, is_active)
    return moves


def _keeping(start: Floats, bounds: Floats, mobility: Floats, is_active: NDArray[np.bool_]) -> Floats:
    """Moves that keep the active bounds, by Hildreth's method for a quadratic problem: one bound after the other, and what a
    bound did is undone when the others no longer need it."""
    moves, rates = start.tolist(), mobility.tolist()
    pairs = [
        (source, destination, float(bounds[source, destination])) for source, destination in np.argwhere(is_active).tolist()
    ]
    held = [0.0] * len(pairs)
    for _ in range(_ROUNDS):
        largest = 0.0
        for place, (source, destination, bound) in enumerate(pairs):
            rate = rates[source] + rates[destination]
            step = max((moves[destination] - moves[source] - bound) / rate, -held[place])
            held[place] += step
            moves[destination] -= step * rates[destination]
            moves[source] += step * rates[source]
            largest = max(largest, abs(step) * rate)
        if largest < _SETTLED:
            break
    return np.array(moves)


def _settled(moves: Floats, bounds: Floats) -> Floats:
    """Removes what `_moved` left: where precisions differ much, it comes near to the bounds only slowly."""
    settled: Floats = moves
    # A chain of bounds has as many links as there are clocks, unless the bounds contradict each other.
    for _ in range(len(moves) + 1):
        before = settled
        settled = np.minimum(before, (before[:, None] + bounds).min(axis=0))
        if (before - settled).max() < _SETTLED:
            return settled
    return moves


# -- intervals: how far clocks may be from the axis --------------------------------------------------------------------


@dataclass(frozen=True)
class ClockIntervals:
    """Intervals of clocks.

    Attributes
    ----------
    times
        ns of the axis, rising.
    half_widths
        (times, clocks): ns; infinite where nothing ties a clock to others.
    group
        (clocks,): clocks that are tied to each other have one number, that of the lowest.
    drift
        (clocks,): how far the drift against the others of the group may be off, without a unit.
    contradiction
        (clocks,): by how much the most violated bound of a clock is violated, ns; NaN for a clock without bounds.
    """

    times: Ints
    half_widths: Floats
    group: Ints
    drift: Floats
    contradiction: Floats


def clock_intervals(bounds: Bounds, first: float, last: float, ends: pl.DataFrame | None = None) -> ClockIntervals:
    """Intervals of clocks from the bounds between them, after clocks were moved so that these are kept as far as they can be.

    The run is from the first to the last time, ns of the axis. Where `ends` of collectives (as of `deviations`) agree, they
    make intervals narrower.
    """
    clocks = bounds.ahead.shape[1]
    # Any, because mypy knows one size of numbers only.
    ahead: Any = bounds.ahead.astype(np.float32 if clocks > _MANY else np.float64)
    centre, half = (bounds.start + bounds.stop) / 2, (bounds.stop - bounds.start) / 2
    drift = _unknown_drift(ahead, centre)
    # Where a bound is violated, the truth is on the other side of what is placed.
    violated = np.where(np.isfinite(ahead), np.maximum(-ahead, 0), 0)
    wide = np.maximum(ahead, 0) + drift * half[:, None, None].astype(ahead.dtype)
    wide = np.maximum(wide, np.swapaxes(violated, 1, 2))
    # Between two stretches the interval is widest in the middle.
    times = np.unique(np.concatenate([[first, max(last, first + 1)], centre, (centre[1:] + centre[:-1]) / 2]))
    at_times = np.full((len(times), clocks, clocks), np.inf, dtype=ahead.dtype)
    for place, time in enumerate(times):
        away = np.abs(time - centre).astype(ahead.dtype)
        for of_stretch, by in zip(wide, away, strict=True):
            np.minimum(at_times[place], of_stretch + drift * by, out=at_times[place])
    times = np.rint(times).astype(np.int64)
    for widths in () if ends is None else widths_by_ends(ends, times, clocks):
        for at_time, width in zip(at_times, widths.astype(ahead.dtype), strict=True):
            np.minimum(at_time, width[:, None] + width[None, :], out=at_time)
    closed = _closed(at_times)
    margin = np.maximum(closed, np.swapaxes(closed, 1, 2))
    group = np.argmax(np.isfinite(margin[0]), axis=1)
    half_widths = np.full((len(times), clocks), np.inf)
    worst = np.full(clocks, np.nan)
    of_drift = np.full(clocks, np.inf)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        if len(members) == 1 and clocks > 1:
            continue
        between = np.ix_(members, members)
        worst[members] = np.maximum(violated[:, members].max(axis=(0, 2)), violated[:, :, members].max(axis=(0, 1)))
        # Bounds that contradict each other are wrong by as much, and so may be what they give together with others.
        half_widths[:, members] = np.stack([_halves(at_time[between]) for at_time in margin]) + _LEAST_WIDTH + worst[members]
        of_drift[members] = _halves(_shortest_ways(drift[between]))
    return ClockIntervals(times, half_widths, group, of_drift, worst)


def _unknown_drift(ahead: Floats, centre: Floats) -> Floats:
    """(clocks, clocks): what is unknown of the drift between two clocks.

    If a clock is ahead by at least x at one time, and by at most y later, its drift is at most (y - x) over the time between.
    """
    most = np.full(ahead.shape[1:], UNKNOWN_DRIFT, dtype=ahead.dtype)
    for later in range(len(centre)):
        for earlier in range(later):
            change = ahead[later] + ahead[earlier].T
            np.minimum(most, np.abs(change) / np.float32(centre[later] - centre[earlier]), out=most)
    # In either direction.
    unknown: Floats = np.clip(np.maximum(most, most.T), LEAST_UNKNOWN_DRIFT, UNKNOWN_DRIFT)
    return unknown


def _closed(ahead: Floats) -> Floats:
    if ahead.shape[1] > _MANY:
        best = np.argsort(np.median(ahead[0] + ahead[0].T, axis=1), kind="stable")[:_WAYS]
        closed = _shortest_ways(ahead, best)
        if np.isfinite(closed).all():
            return closed
    return _shortest_ways(ahead)


def _halves(margin: Floats) -> Floats:
    """Half widths of single clocks such that those of each two add up to the margin between them at least.

    A clock that is badly known has a wide interval, and does not widen those of the others.
    """
    to_others = margin[~np.eye(len(margin), dtype=bool)].reshape(len(margin), -1)
    wide = np.quantile(to_others, 0.5, axis=1, method="lower").astype(np.float64) / 2
    settled: list[int] = []
    for clock in np.argsort(wide, kind="stable").tolist():
        if settled:
            wide[clock] = max(wide[clock], float(np.max(margin[clock, settled] - wide[settled])))
        settled.append(clock)
    return wide
