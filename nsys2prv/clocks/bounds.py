"""Bounds between clocks that hold whatever took how long, over the time of the run; and what follows from them.

A message arrives after it was sent. A rank ends a collective after the last rank began it, a broadcast after the root began
it; the root of a reduction ends it after the last rank began it. If the end is at `e` by its clock, and the start at `s` by
another, the clock of the end is ahead of the other by at most `e - s`. Bounds in both directions come from messages both ways,
and from collectives in which different hosts are the last.
Clocks are moved until bounds are kept (`enforce_bounds`), which also say how far each may be from the axis (`clock_intervals`):
between two stretches with bounds, and beyond them, by as much more as is unknown of the drift."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import polars as pl

from nsys2prv.clocks.agreement import LEAST_UNKNOWN_DRIFT, widths_by_ends
from nsys2prv.clocks.anchors import PRECISION, UNKNOWN_DRIFT, Anchors, Floats, Ints, extent_of
from nsys2prv.sources.communication.collectives import ALL, FROM_ROOT, TO_ROOT
from nsys2prv.timeline.time_axis import ClockCorrection

_LEAST_LATENCY = 100.0  # ns; no message is faster
_LATEST = 8  # Collectives of a stretch and communicator of which the start on a clock counts: those that it began last
_STRETCHES, _FEWEST_STRETCHES = ((64, 32), (256, 16)), 6  # (Clocks, stretches of time with up to so many), and with more
_MOST_MOVES = 5_000
_SETTLED = 0.1  # ns; smaller moves count as none


@dataclass(frozen=True)
class Bounds:
    """How far clocks may be ahead of each other, as placed; without a stretch where nothing bounds them.

    `ahead` is by how much the second clock may be ahead of the first at most, ns; infinite where nothing bounds it. Negative:
    it is behind by at least so much."""

    start: Floats  # (stretches,): first and last time of the anchors of a stretch, ns of the axis
    stop: Floats
    ahead: Floats  # (stretches, clocks, clocks)

    @property
    def over_all(self) -> Floats:
        """(clocks, clocks): the least over all stretches."""
        least: Floats = np.min(self.ahead, axis=0, initial=np.inf)
        return least


def bounds_of_run(anchors: Anchors, corrections: Sequence[ClockCorrection], widths: Floats | None = None) -> Bounds:
    """Bounds between the clocks of a run after corrections, wider by `widths`: how far each report may be off its clock, ns."""
    collectives = anchors.placed_collectives(corrections, widths).with_columns(
        start=pl.col("start") - pl.col("doubt_of_start"), end=pl.col("end") + pl.col("doubt_of_end")
    )
    times = chain([collectives["end"]], (part["time"] for part in anchors.placed_messages(corrections)))
    messages = (
        part.with_columns(to_time=pl.col("to_time") + pl.col("doubt")) for part in anchors.placed_messages(corrections, widths)
    )
    return find_bounds(collectives, messages, anchors.clocks, extent_of(times))


def find_bounds(
    collectives: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int, extent: tuple[float, float]
) -> Bounds:
    """Bounds between a number of clocks, from collectives and messages as of `Anchors`, in time of the axis; `extent` is the
    first and the last of these times, which is divided in stretches."""
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
    begun = begun.with_columns(stretch=pl.Series(_place(borders, begun["middle"].to_numpy())))
    place = (pl.col("middle") - pl.col("start")).rank("ordinal").over("stretch", "clock", "communicator")
    latest = begun.filter(place <= _LATEST).sort("stretch", "event", "clock")
    for (number,), of_stretch in latest.group_by("stretch", maintain_order=True):
        stretch = int(number)
        pairs = (
            of_stretch.join(ended, on="event", suffix="_of_end")
            .filter(pl.col("clock") != pl.col("clock_of_end"))
            .group_by("clock", "clock_of_end")
            .agg(least=(pl.col("end") - pl.col("start")).min())
        )
        clock, of_end, least = (pairs[name].to_numpy() for name in pairs.columns)
        bounds.ahead[stretch, clock, of_end] = least
        middles = of_stretch["middle"].to_numpy()
        bounds.start[stretch], bounds.stop[stretch] = middles.min(), middles.max()


def _place(borders: Floats, time: Floats) -> Ints:
    return np.clip(np.searchsorted(borders, time, side="right") - 1, 0, len(borders) - 2).astype(np.int64)


def _shortest_ways(ahead: Floats) -> Floats:
    """Bounds by way of others: b ahead of a by at most x, c of b by y, so c of a by x + y at most (Floyd and Warshall)."""
    closed: Floats = ahead.copy()
    clocks = closed.shape[-1]
    closed[..., np.arange(clocks), np.arange(clocks)] = 0
    for way in range(clocks):
        np.minimum(closed, closed[..., :, way, None] + closed[..., way, None, :], out=closed)
    return closed


def enforce_bounds(ahead: Floats, precision: Floats) -> Floats:
    """What to subtract from each clock, ns, so that bounds (as of `Bounds.over_all`) are kept.

    Clocks move by as little as bounds require, the better known ones less; `precision` is 0 where nothing is known of a clock.
    Such clocks follow the others: the others move first, and only as far as the bounds between them require, including those by
    way of unknown clocks. Where bounds contradict each other, they are violated by about the same."""
    moves, bounds, is_known = np.zeros(len(precision)), _possible(ahead), precision > 0
    if is_known.any():
        mobility = np.divide(precision.max(), precision, where=is_known, out=np.zeros(len(precision)))
        moves = _moved(moves, np.where(is_known[:, None] & is_known[None, :], bounds, np.inf), mobility)
    return _moved(moves, bounds, (~is_known).astype(np.float64))


def _possible(ahead: Floats) -> Floats:
    """Bounds with those that follow from them; where a clock drifts or jumps, both directions get the same error."""
    contradict = np.isfinite(ahead + ahead.T) & (ahead + ahead.T < 0)
    difference = np.subtract(ahead, ahead.T, where=contradict, out=np.zeros_like(ahead))
    bounds = np.where(contradict, difference / 2, ahead)
    np.fill_diagonal(bounds, 0)
    ways = _shortest_ways(bounds)
    # A contradiction by way of a third clock: only the bounds themselves are used then.
    return bounds if (np.diagonal(ways) < -_SETTLED).any() else ways


def _moved(moves: Floats, bounds: Floats, mobility: Floats) -> Floats:
    """Moves of clocks until bounds are kept, the most violated first: both clocks move, in proportion to their mobility."""
    moves, rates = moves.copy(), mobility[:, None] + mobility[None, :]
    for _ in range(_MOST_MOVES):
        violated = np.where(rates > 0, moves[None, :] - moves[:, None] - bounds, 0.0)
        first, second = np.unravel_index(np.argmax(violated), violated.shape)
        if violated[first, second] < _SETTLED:
            break
        step = violated[first, second] / rates[first, second]
        moves[first] += step * mobility[first]
        moves[second] -= step * mobility[second]
    return moves


@dataclass(frozen=True)
class ClockIntervals:
    """Intervals of clocks. Those that are tied to each other have one group, the number of the lowest."""

    times: Ints  # ns of the axis, rising
    half_widths: Floats  # (times, clocks): ns; infinite where nothing ties a clock to others
    group: Ints
    drift: Floats  # how far the drift against the others of the group may be off, without a unit
    contradiction: Floats  # by how much the most violated bound of a clock is violated, ns; NaN for a clock without bounds


def clock_intervals(
    bounds: Bounds, first: float, last: float, ends: pl.DataFrame | None = None, *, has_steps: bool = False
) -> ClockIntervals:
    """Intervals of clocks from the bounds between them, after clocks were moved so that these are kept as far as they can be.

    The run is from the first to the last time, ns of the axis. Where `ends` of collectives (as of `deviations`) agree, they
    make intervals narrower. `has_steps`: whether clocks were corrected by steps."""
    ahead, clocks = bounds.ahead, bounds.ahead.shape[1]
    centre, half = (bounds.start + bounds.stop) / 2, (bounds.stop - bounds.start) / 2
    drift = _unknown_drift(ahead, centre)
    # Where a bound is violated, the truth is on the other side of what is placed.
    violated = np.where(np.isfinite(ahead), np.maximum(-ahead, 0), 0)
    wide = np.maximum(ahead, 0) + drift * half[:, None, None]
    wide = np.maximum(wide, np.swapaxes(violated, 1, 2))
    # Between two stretches the interval is widest in the middle.
    times = np.unique(np.concatenate([[first, max(last, first + 1)], centre, (centre[1:] + centre[:-1]) / 2]))
    at_times = np.stack([np.min(wide + drift * np.abs(time - centre)[:, None, None], axis=0) for time in times])
    times = np.rint(times).astype(np.int64)
    for widths in () if ends is None else widths_by_ends(ends, times, clocks, has_steps):
        for at_time, width in zip(at_times, widths, strict=True):
            np.minimum(at_time, width[:, None] + width[None, :], out=at_time)
    closed = _shortest_ways(at_times)
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
        half_widths[:, members] = np.stack([_halves(at_time[between]) for at_time in margin]) + PRECISION + worst[members]
        of_drift[members] = _halves(_shortest_ways(drift[between]))
    return ClockIntervals(times, half_widths, group, of_drift, worst)


def _unknown_drift(ahead: Floats, centre: Floats) -> Floats:
    """(clocks, clocks): what is unknown of the drift between two clocks."""
    most, least = np.full(ahead.shape[1:], UNKNOWN_DRIFT), np.zeros(ahead.shape[1:])
    for later in range(len(centre)):
        for earlier in range(later):
            # Ahead by x at least, later by y at most: it drifts by y - x at most. If that is negative, its drift changes.
            rate = (ahead[later] + ahead[earlier].T) / (centre[later] - centre[earlier])
            most = np.where(rate >= 0, np.minimum(most, rate), most)
            least = np.maximum(least, -rate)
    # In either direction.
    wide = np.maximum(most, least)
    unknown: Floats = np.clip(np.maximum(wide, wide.T), LEAST_UNKNOWN_DRIFT, UNKNOWN_DRIFT)
    return unknown


def _halves(margin: Floats) -> Floats:
    """Half widths that add up to the margin of each two clocks at least; a badly known clock widens only its own."""
    to_others = margin[~np.eye(len(margin), dtype=bool)].reshape(len(margin), -1)
    wide = np.quantile(to_others, 0.5, axis=1, method="lower").astype(np.float64) / 2
    settled: list[int] = []
    for clock in np.argsort(wide, kind="stable").tolist():
        if settled:
            wide[clock] = max(wide[clock], float(np.max(margin[clock, settled] - wide[settled])))
        settled.append(clock)
    return wide
