"""Times of many clocks at once, after their corrections: the same as `Placement.of` makes of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv.clocks.shared_events import Floats, Ints
from nsys2prv.timeline.time_axis import ClockCorrection, ClockStep


def corrected_times(time: Ints, clock: Ints, corrections: Sequence[ClockCorrection]) -> Ints:
    """Times after the corrections of their clocks, ns.

    Parameters
    ----------
    time
        By clocks that are roughly right, ns.
    clock
        Number of the clock of each.
    corrections
        Of each clock.
    """
    offset, drift, pivot = (
        np.array([getattr(one, name) for one in corrections], dtype=dtype)
        for name, dtype in (("offset", np.float64), ("drift", np.float64), ("pivot", np.int64))
    )
    subtracted = offset[clock] + (time - pivot[clock]).astype(np.float64) * drift[clock]
    for number, one in enumerate(corrections):
        if one.steps:
            own = clock == number
            subtracted[own] += steps_until(time[own], one.steps)
    return time - np.rint(subtracted).astype(np.int64)


def steps_until(time: Ints, steps: Iterable[ClockStep]) -> Floats:
    """What the steps of a clock subtract at times, ns."""
    subtracted = np.zeros(len(time))
    for step in steps:
        done = (time - step.after).astype(np.float64) / max(step.before - step.after, 1)
        subtracted += np.clip(done, 0, 1) * step.size
    return subtracted


def step_doubt(time: Ints, clock: Ints, corrections: Sequence[ClockCorrection]) -> Ints:
    """By how much corrected times may be wrong because they are where their clock jumped, between two anchors; ns."""
    doubt = np.zeros(len(time))
    for number, one in enumerate(corrections):
        for step in one.steps:
            inside = (clock == number) & (time > step.after) & (time < step.before)
            doubt[inside] = abs(step.size)
    return np.rint(doubt).astype(np.int64)
