"""Intervals of clocks: how far each may be from the axis, over the time of the run, from the bounds between clocks.

Bounds hold whatever took how long (`bounds`). Between two stretches with bounds, and beyond them, the interval grows by what is
unknown of the drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nsys2prv.clocks.bounds import Bounds, shortest_ways
from nsys2prv.clocks.shared_events import Floats, Ints

UNKNOWN_DRIFT = 1e-4
"""Quartz clocks of two hosts drift apart by less, if nothing else is known."""
_LEAST_UNKNOWN = 5e-7
"""However well the drift over the whole run is known, clocks wander with their temperature."""
_LEAST_WIDTH = 500.0
"""ns; time stamps of events are not more precise."""
_MANY, _WAYS = 256, 64
"""Tables of more clocks have numbers of half the size; if they suffice, only the best known clocks are ways between two."""


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


def clock_intervals(bounds: Bounds, first: float, last: float) -> ClockIntervals:
    """Intervals of clocks from the bounds between them, as placed.

    Parameters
    ----------
    bounds
        After clocks were moved so that the bounds are kept as far as they can be.
    first, last
        The run, ns of the axis.
    """
    clocks = bounds.ahead.shape[1]
    # Any, because mypy knows one size of numbers only.
    ahead: Any = bounds.ahead.astype(np.float32 if clocks > _MANY else np.float64)
    centre, half = (bounds.start + bounds.stop) / 2, (bounds.stop - bounds.start) / 2
    drift = _unknown_drift(ahead, centre)
    wide = np.maximum(ahead, 0) + drift * half[:, None, None].astype(ahead.dtype)
    # Where a bound is violated, the truth is on the other side of what is placed.
    violated = np.where(np.isfinite(ahead), np.maximum(-ahead, 0), 0)
    wide = np.maximum(wide, np.swapaxes(violated, 1, 2))
    times = _times(centre, first, last)
    at_times = np.stack([_at(time, wide, drift, centre) for time in times]) if len(centre) else np.empty((0, clocks, clocks))
    if not len(at_times):
        at_times = np.full((len(times), clocks, clocks), np.inf)
    closed = _closed(at_times)
    margin = np.maximum(closed, np.swapaxes(closed, 1, 2))
    group = np.array([int(np.flatnonzero(np.isfinite(row))[0]) for row in margin[0]])
    half_widths = np.full((len(times), clocks), np.inf)
    worst = np.full(clocks, np.nan)
    of_drift = np.full(clocks, np.inf)
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        if len(members) == 1 and clocks > 1:
            continue
        between = np.ix_(members, members)
        half_widths[:, members] = np.stack([_shared(one[between]) for one in margin]) + _LEAST_WIDTH
        of_drift[members] = _shared(shortest_ways(drift[between]))
        worst[members] = np.maximum(violated[:, members].max(axis=(0, 2)), violated[:, :, members].max(axis=(0, 1)))
        # Bounds that contradict each other are wrong by as much, and so may be what they give together with others.
        half_widths[:, members] += worst[members]
    return ClockIntervals(np.rint(times).astype(np.int64), half_widths, group, of_drift, worst)


def _closed(ahead: Floats) -> Floats:
    if ahead.shape[1] > _MANY:
        best = np.argsort(np.median(ahead[0] + ahead[0].T, axis=1), kind="stable")[:_WAYS]
        closed = shortest_ways(ahead, best)
        if np.isfinite(closed).all():
            return closed
    return shortest_ways(ahead)


def _times(centre: Floats, first: float, last: float) -> Floats:
    """Stretches, the middles between them (between two, the interval is widest there), and the ends of the run."""
    between = (centre[1:] + centre[:-1]) / 2
    return np.unique(np.concatenate([[first, max(last, first + 1)], centre, between]))


def _unknown_drift(ahead: Floats, centre: Floats) -> Floats:
    """(clocks, clocks): what is unknown of the drift between two clocks.

    If a clock is ahead by at least x at one time, and by at most y later, its drift is at most (y - x) over the time between.
    """
    clocks = ahead.shape[1]
    most = np.full((clocks, clocks), UNKNOWN_DRIFT, dtype=ahead.dtype)
    for later in range(len(centre)):
        for earlier in range(later):
            change = ahead[later] + ahead[earlier].T
            np.minimum(most, np.abs(change) / np.float32(centre[later] - centre[earlier]), out=most)
    # In either direction.
    unknown: Floats = np.clip(np.maximum(most, most.T), _LEAST_UNKNOWN, UNKNOWN_DRIFT)
    return unknown


def _at(time: float, wide: Floats, drift: Floats, centre: Floats) -> Floats:
    away = np.abs(time - centre).astype(wide.dtype)
    least: Floats = np.min([one + drift * by for one, by in zip(wide, away, strict=True)], axis=0)
    return least


def _shared(margin: Floats) -> Floats:
    """Half widths of single clocks such that those of each two add up to the margin between them at least.

    A clock that is badly known has a wide interval, and does not widen those of the others.
    """
    others = margin[~np.eye(len(margin), dtype=bool)].reshape(len(margin), -1)
    wide = np.median(others, axis=1).astype(np.float64) / 2
    settled: list[int] = []
    for clock in np.argsort(wide, kind="stable"):
        if settled:
            wide[clock] = max(wide[clock], float(np.max(margin[clock, settled] - wide[settled])))
        settled.append(int(clock))
    return wide
