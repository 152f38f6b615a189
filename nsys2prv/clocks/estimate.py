"""Estimate of clocks from shared events: how far each clock is ahead, and how much too fast it is.

All ranks leave a barrier, and a collective of NCCL ends on all devices, at nearly the same time. For such an event each rank
has a time by its clock, `t = m + offset + drift (t - pivot) + noise`, with m the unknown time of the event and one offset and
one drift per clock. m is the same for all ranks, so it is eliminated. What remains is a linear least squares problem, solved
several times with weights that remove outliers (Tukey's biweight).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nsys2prv.clocks.residuals import corrections_with_errors, residuals
from nsys2prv.clocks.shared_events import Floats, Ints, SharedEvents
from nsys2prv.timeline.time_axis import ClockCorrection

_ROUNDS = 30
_BIWEIGHT = 6.0
"""Residuals above this many scales get no weight."""
_SMALLEST_SCALE = 500.0
"""ns; clocks and events are not more precise than this."""
_SPAN_FOR_DRIFT = 1e9
"""Least time from the first to the last event, ns, from which a drift differs from noise."""
_LARGEST_TABLE = 4_000_000
"""Numbers in the table of one piece of events."""


def fit(events: SharedEvents, clocks: int) -> list[ClockCorrection]:
    """Corrections of clocks against each other.

    Inside a group of clocks with shared events, offsets and drifts have the mean 0: which clock is right is not known.

    Parameters
    ----------
    events
        Events of all clocks.
    clocks
        Number of clocks.

    Returns
    -------
    One correction per clock.
    """
    events = _of_several_clocks(events)
    group = _groups(events, clocks)
    pivot = int(np.median(events.time)) if len(events.time) else 0
    time = (events.time - pivot).astype(np.float64)
    offset, drift = np.zeros(clocks), np.zeros(clocks)
    weight = np.ones(len(time))
    with_drift = _with_drift(events, time, clocks)
    for _ in range(_ROUNDS if len(time) else 0):
        offset, drift = _solve(events, time, weight, group, with_drift, clocks)
        residual = residuals(events, time - offset[events.clock] - drift[events.clock] * time, weight)
        scale = max(1.4826 * float(np.median(np.abs(residual))), _SMALLEST_SCALE)
        next_weight: Floats = np.square(1 - np.square(np.minimum(np.abs(residual) / (_BIWEIGHT * scale), 1)))
        settled = np.max(np.abs(next_weight - weight)) < 1e-3
        weight = next_weight
        if settled:
            break
    return corrections_with_errors(events, time, weight, offset, drift, group, pivot)


def _of_several_clocks(events: SharedEvents) -> SharedEvents:
    """Events of at least two clocks, numbered from 0."""
    _, number = np.unique(events.event, return_inverse=True)
    pairs = np.unique(np.stack([number, events.clock]), axis=1)[0] if len(number) else number
    kept = np.bincount(pairs, minlength=1)[number] > 1 if len(number) else np.zeros(0, dtype=bool)
    _, number = np.unique(events.event[kept], return_inverse=True)
    return SharedEvents(number.astype(np.int64), events.clock[kept], events.time[kept])


def _groups(events: SharedEvents, clocks: int) -> Ints:
    """Number of the group of each clock: the lowest clock in it."""
    group = np.arange(clocks)
    while len(events.event):
        lowest = np.full(int(events.event.max()) + 1, clocks)
        np.minimum.at(lowest, events.event, group[events.clock])
        joined = group.copy()
        np.minimum.at(joined, events.clock, lowest[events.event])
        joined = joined[joined]
        if np.array_equal(joined, group):
            break
        group = joined
    return group


def _with_drift(events: SharedEvents, time: Floats, clocks: int) -> NDArray[np.bool_]:
    first, last = np.full(clocks, np.inf), np.full(clocks, -np.inf)
    np.minimum.at(first, events.clock, time)
    np.maximum.at(last, events.clock, time)
    long_enough: NDArray[np.bool_] = last - first >= _SPAN_FOR_DRIFT
    return long_enough


def _solve(
    events: SharedEvents, time: Floats, weight: Floats, group: Ints, with_drift: NDArray[np.bool_], clocks: int
) -> tuple[Floats, Floats]:
    """Offsets and drifts by weighted least squares, with the times of the events eliminated."""
    scale = max(float(np.abs(time).max()), 1.0)
    columns = np.stack([np.ones(len(time)), time / scale])
    # By event and unknown, the weighted sum: what the mean over the event subtracts.
    unknowns = 2 * clocks
    normal, right = np.zeros((unknowns, unknowns)), np.zeros(unknowns)
    order = np.argsort(events.event, kind="stable")
    number, clock = events.event[order], events.clock[order]
    count = int(number[-1]) + 1
    # Events piece by piece, so that tables stay small.
    step = max(_LARGEST_TABLE // unknowns, 1)
    for start in range(0, count, step):
        rows = min(step, count - start)
        inside = slice(*np.searchsorted(number, [start, start + rows]))
        of_piece, own_weight = number[inside] - start, weight[order[inside]]
        sums = np.zeros((rows, unknowns))
        for index, column in enumerate(columns):
            np.add.at(sums, (of_piece, 2 * clock[inside] + index), own_weight * column[order[inside]])
        total = np.bincount(of_piece, own_weight, minlength=rows)
        share = np.divide(1.0, total, where=total > 0, out=np.zeros(rows))
        target = np.bincount(of_piece, own_weight * time[order[inside]], minlength=rows)
        normal -= sums.T @ (sums * share[:, None])
        right -= sums.T @ (target * share)
    for first in range(2):
        right[first::2] += np.bincount(events.clock, weight * columns[first] * time, minlength=clocks)
        for second in range(2):
            product = np.bincount(events.clock, weight * columns[first] * columns[second], minlength=clocks)
            normal[np.arange(clocks) * 2 + first, np.arange(clocks) * 2 + second] += product
    size = max(float(np.abs(np.diag(normal)).max()), 1.0)
    # Which clock of a group is right is not known: the sums of its offsets and drifts are 0. An unknown drift is 0.
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        for first in range(2):
            places = 2 * members + first
            normal[np.ix_(places, places)] += size / len(members)
    still = 2 * np.flatnonzero(~with_drift) + 1
    normal[still, still] += size * 1e6
    found = np.linalg.lstsq(normal, right, rcond=1e-13)[0]
    return found[0::2].astype(np.float64), (found[1::2] / scale).astype(np.float64)
