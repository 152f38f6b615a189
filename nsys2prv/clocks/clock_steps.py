"""Steps: a clock that jumps shows as a lasting change of how far it is ahead of another, from one collective to the next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nsys2prv.clocks.corrected_times import steps_until
from nsys2prv.clocks.shared_events import Ints, SharedEvents
from nsys2prv.timeline.time_axis import ClockStep

SMALLEST_STEP = 50e3
"""ns; smaller steps cannot be distinguished from noise."""
_TIMES_NOISE = 8.0
"""A step is larger than the noise, and than changes elsewhere in the run, by this."""
_TIMES_ERROR = 3.0
"""The size of a step is known to within the noise, times this."""
_FEWEST = 16
"""Shared events that two clocks need."""
_MOST_STEPS = 8


def find_steps(events: SharedEvents, clocks: int, smallest: float = SMALLEST_STEP) -> dict[int, tuple[ClockStep, ...]]:
    """Steps of clocks, in the order of time; clocks without are left out.

    Clocks are compared with one of them. If that one jumps, all others seem to, so another is tried then.

    Parameters
    ----------
    events
        Their times are by the clocks themselves, ns.
    clocks
        Number of clocks.
    smallest
        Steps are larger than this, ns.
    """
    first_ends = _first_ends(events, clocks)
    steps: dict[int, tuple[ClockStep, ...]] = {}
    left = sorted(range(clocks), key=lambda clock: -len(first_ends[clock][0]))
    while left:
        compared = _against(left[0], left, first_ends, smallest)
        if 2 * sum(map(bool, compared.values())) > len(compared) > 1:
            again = _against(next(iter(compared)), left, first_ends, smallest)
            if sum(map(bool, again.values())) < sum(map(bool, compared.values())):
                compared = again | {left[0]: again.get(left[0], ())}
        steps |= {clock: found for clock, found in compared.items() if found}
        left = [clock for clock in left[1:] if clock not in compared]
    return steps


def _against(
    reference: int, clocks: Sequence[int], first_ends: Sequence[tuple[Ints, Ints]], smallest: float
) -> dict[int, tuple[ClockStep, ...]]:
    """Steps against a clock of the others that share enough events with it, or with one that does."""
    placed = {reference: first_ends[reference]}
    compared: dict[int, tuple[ClockStep, ...]] = {}
    waiting = [reference]
    left = [clock for clock in clocks if clock != reference]
    while waiting and left:
        events, times = placed[waiting.pop(0)]
        for clock in list(left):
            _, own, other = np.intersect1d(first_ends[clock][0], events, return_indices=True)
            if len(own) < _FEWEST:
                continue
            found = _steps(first_ends[clock][1][own], times[other], smallest)
            compared[clock] = tuple(sorted(found, key=lambda step: step.after))
            time = first_ends[clock][1]
            placed[clock] = first_ends[clock][0], time - np.rint(steps_until(time, compared[clock])).astype(np.int64)
            left.remove(clock)
            waiting.append(clock)
    return compared


def _first_ends(events: SharedEvents, clocks: int) -> list[tuple[Ints, Ints]]:
    """Of each clock, its events and when the first of its ranks ended them, in the order of the events."""
    order = np.lexsort((events.time, events.event, events.clock))
    event, clock, time = events.event[order], events.clock[order], events.time[order]
    is_first = np.ones(len(event), dtype=bool)
    is_first[1:] = (event[1:] != event[:-1]) | (clock[1:] != clock[:-1])
    event, clock, time = event[is_first], clock[is_first], time[is_first]
    borders = np.searchsorted(clock, np.arange(clocks + 1))
    return [(event[start:stop], time[start:stop]) for start, stop in pairwise(borders)]


def _steps(own: Ints, other: Ints, smallest: float) -> list[ClockStep]:
    """Steps of a clock against another, from the ends of the same events by both."""
    order = np.argsort(own)
    time, ahead = own[order], (own - other)[order].astype(np.float64)
    ahead -= ahead[0]
    width = int(np.clip(len(time) // 8, 5, 32))
    found: list[ClockStep] = []
    while len(found) < _MOST_STEPS:
        slope = float(np.median((ahead[width:] - ahead[:-width]) / np.maximum(time[width:] - time[:-width], 1)))
        level = ahead - slope * (time - time[0])
        medians = np.median(np.lib.stride_tricks.sliding_window_view(level, width), axis=1)
        change = medians[width:] - medians[:-width]
        noise = np.median(np.abs(level[width // 2 :][: len(medians)] - medians))
        middle = int(np.argmax(np.abs(change)))
        size = float(change[middle])
        if abs(size) < max(smallest, _TIMES_NOISE * float(np.median(np.abs(change))), _TIMES_NOISE * float(noise)):
            break
        start, stop = middle, middle + 2 * width
        before, after = float(medians[middle]), float(medians[middle + width])
        # The place between two events that explains the levels around it best.
        near = level[start:stop]
        cost = np.concatenate([[0.0], np.cumsum(np.abs(near - before) - np.abs(near - after))])
        place = start + int(np.argmin(cost))
        if not 0 < place < len(time):
            break
        found.append(ClockStep(int(time[place - 1]), int(time[place]), size, max(_TIMES_ERROR * float(noise), smallest / 4)))
        ahead[place:] -= size
    return found
