"""Estimate of clocks from shared events: how far each clock is ahead, and how much too fast it is.

All ranks leave a barrier, and a collective of NCCL ends on all devices, at nearly the same time. For such an event each rank
has a time by its clock, `t = m + offset + drift (t - pivot) + noise`, with m the unknown time of the event and one offset and
one drift per clock. m is the same for all ranks, so it is eliminated. What remains is a linear least squares problem, solved
several times with weights that remove outliers: Huber's, which bring any start near to the solution, then Tukey's biweight.
Kinds of events whose ends are further apart count less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nsys2prv.clocks.residuals import corrections_with_errors, residuals
from nsys2prv.clocks.shared_events import Floats, Ints, SharedEvents
from nsys2prv.timeline.time_axis import ClockCorrection

FASTEST_CLOCK = 2e-4
"""A clock is not faster or slower than the others by more: what says so is wrong."""

_ROUNDS, _HUBER_ROUNDS = 36, 10
_BIWEIGHT = 6.0
"""Residuals above this many scales get no weight."""
_SMALLEST_SCALE = 500.0
"""ns; clocks and events are not more precise than this."""
_DRIFT_KNOWN = 2e-5
"""A drift is estimated when its standard error is less: clocks without one differ by some 50 ppm."""
_FEWEST_FOR_DRIFT = 6
_USUAL_DRIFT = 1e-4
_NO_WEIGHT = 1e-9
_LARGEST_TABLE = 4_000_000
"""Numbers in the table of one piece of events."""
_MOST_ENTRIES = 2_000_000
"""Events times clocks; of more, some events are left out."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """One correction per clock, and the clocks whose events say what cannot be: they have no correction."""

    corrections: list[ClockCorrection]
    refused: tuple[int, ...] = ()


def fit(events: SharedEvents, clocks: int, kind: Ints | None = None) -> Estimate:
    """Corrections of clocks against each other.

    Inside a group of clocks with shared events, offsets and drifts have the mean 0: which clock is right is not known. A clock
    whose events all disagree with those of the others is in no group with them.

    Parameters
    ----------
    events
        Events of all clocks.
    clocks
        Number of clocks.
    kind
        Number of the kind of each entry; events of one kind tie clocks equally well. None: all do.
    """
    kind = np.zeros(len(events.event), dtype=np.int64) if kind is None else kind
    refused: list[int] = []
    while True:
        chosen = ~np.isin(events.clock, refused)
        corrections = _fit(SharedEvents(events.event[chosen], events.clock[chosen], events.time[chosen]), clocks, kind[chosen])
        wrong = _too_fast(corrections)
        if not wrong:
            return Estimate(corrections, tuple(sorted(refused)))
        refused += wrong


def _too_fast(corrections: list[ClockCorrection]) -> list[int]:
    """Clocks whose drift differs from that of most of their group by more than a clock's can, or is no number."""
    drift, group = np.array([one.drift for one in corrections]), np.array([one.group for one in corrections])
    is_known = np.array([one.anchors > 0 for one in corrections])
    wrong: list[int] = []
    for number in np.unique(group[is_known]):
        members = np.flatnonzero(is_known & (group == number))
        apart = np.abs(drift[members] - np.median(drift[members]))
        wrong += members[~(apart <= FASTEST_CLOCK)].tolist()
        # The median of two is between them.
        if len(members) == 2 and not np.ptp(drift[members]) <= FASTEST_CLOCK:
            wrong += members.tolist()
    return sorted(set(wrong))


def _fit(events: SharedEvents, clocks: int, kind: Ints) -> list[ClockCorrection]:
    events, kind = _of_several_clocks(events, kind, clocks)
    pivot = int(np.median(events.time)) if len(events.time) else 0
    time = (events.time - pivot).astype(np.float64)
    weight = np.ones(len(time))
    if not len(time):
        return corrections_with_errors(events, time, weight, np.zeros(clocks), np.zeros(clocks), np.arange(clocks), pivot)
    _, kind = np.unique(kind, return_inverse=True)
    with_drift = np.bincount(events.clock, minlength=clocks) >= _FEWEST_FOR_DRIFT
    while True:
        offset, drift, weight, group, scale = _solve_robustly(events, time, kind, with_drift, clocks)
        unknown = with_drift & ~_knows_drift(events, time, weight, scale[kind], clocks)
        if not unknown.any():
            break
        with_drift = with_drift & ~unknown
    return corrections_with_errors(events, time, np.where(weight > _NO_WEIGHT, weight, 0.0), offset, drift, group, pivot)


def _solve_robustly(
    events: SharedEvents, time: Floats, kind: Ints, with_drift: Flags, clocks: int
) -> tuple[Floats, Floats, Floats, Ints, Floats]:
    """Offset and drift of each clock, weight of each entry, group of each clock, scale of each kind."""
    weight = np.ones(len(time))
    for number in range(_ROUNDS):
        group = _groups(events, weight > _NO_WEIGHT, clocks)
        offset, drift = _solve(events, time, weight, group, with_drift, clocks)
        residual = np.abs(residuals(events, time - offset[events.clock] - drift[events.clock] * time, weight))
        scale = np.array(
            [max(1.4826 * float(np.median(residual[kind == one])), _SMALLEST_SCALE) for one in range(kind.max() + 1)]
        )
        scale[~np.isfinite(scale)] = _SMALLEST_SCALE
        by_scale = residual / scale[kind]
        precision = np.square(scale.min() / scale[kind])
        if number < _HUBER_ROUNDS:
            next_weight: Floats = precision / np.maximum(by_scale, 1)
        else:
            next_weight = precision * np.square(1 - np.square(np.minimum(by_scale / _BIWEIGHT, 1)))
        settled = number > _HUBER_ROUNDS and np.max(np.abs(next_weight - weight)) < 1e-3
        weight = next_weight
        if settled:
            break
    # An event that only one clock still has ties nothing.
    alone = _clocks_of(events, weight > _NO_WEIGHT, clocks)[events.event] < 2
    weight = np.where(alone, 0.0, weight)
    return offset, drift, weight, _groups(events, weight > _NO_WEIGHT, clocks), scale


def _clocks_of(events: SharedEvents, chosen: Flags, clocks: int) -> Ints:
    """Number of different clocks of each event, among the entries chosen."""
    entries = np.unique(events.event[chosen] * clocks + events.clock[chosen])
    return np.bincount(entries // clocks, minlength=int(events.event.max()) + 1)


def _of_several_clocks(events: SharedEvents, kind: Ints, clocks: int) -> tuple[SharedEvents, Ints]:
    """Events of at least two clocks, numbered from 0; of very many some, evenly spread."""
    if not len(events.event):
        return events, kind
    _, number = np.unique(events.event, return_inverse=True)
    numbered = SharedEvents(number.astype(np.int64), events.clock, events.time)
    chosen = _clocks_of(numbered, np.ones(len(number), dtype=bool), clocks) > 1
    places = np.flatnonzero(chosen)
    most = max(_MOST_ENTRIES // clocks, 1000)
    if len(places) > most:
        chosen[:] = False
        chosen[places[np.linspace(0, len(places) - 1, most).astype(np.int64)]] = True
    kept = chosen[number]
    _, number = np.unique(number[kept], return_inverse=True)
    return SharedEvents(number.astype(np.int64), events.clock[kept], events.time[kept]), kind[kept]


def _groups(events: SharedEvents, chosen: Flags, clocks: int) -> Ints:
    """Number of the group of each clock, by the entries chosen: the lowest clock in it."""
    group = np.arange(clocks)
    event, clock = events.event[chosen], events.clock[chosen]
    while len(event):
        lowest = np.full(int(event.max()) + 1, clocks)
        np.minimum.at(lowest, event, group[clock])
        joined = group.copy()
        np.minimum.at(joined, clock, lowest[event])
        joined = joined[joined]
        if np.array_equal(joined, group):
            break
        group = joined
    return group


def _knows_drift(events: SharedEvents, time: Floats, weight: Floats, scale: Floats, clocks: int) -> Flags:
    """Whether the events of a clock are so many, so precise and so far apart in time that its drift is known."""
    used = weight > _NO_WEIGHT
    clock = events.clock[used]
    count = np.bincount(clock, minlength=clocks)
    at_least_one = np.maximum(count, 1)
    mean = np.bincount(clock, time[used], minlength=clocks) / at_least_one
    spread = np.sqrt(np.bincount(clock, np.square(time[used] - mean[clock]), minlength=clocks))
    error = np.bincount(clock, scale[used], minlength=clocks) / at_least_one
    known: Flags = (count >= _FEWEST_FOR_DRIFT) & (error < _DRIFT_KNOWN * spread)
    return known


def _solve(
    events: SharedEvents, time: Floats, weight: Floats, group: Ints, with_drift: Flags, clocks: int
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
    # Clocks do not drift much: where events hardly show a drift, it stays small.
    normal[np.arange(clocks) * 2 + 1, np.arange(clocks) * 2 + 1] += np.square(_SMALLEST_SCALE / (_USUAL_DRIFT * scale))
    found = np.linalg.solve(normal, right)
    return found[0::2].astype(np.float64), (found[1::2] / scale).astype(np.float64)
