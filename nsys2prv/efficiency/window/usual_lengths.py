"""Which iterations take an unusual time: warm-up at the start, slow ones after it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.intervals import Numbers

UNUSUAL = 1.2
"""Length of an iteration, relative to the median, from which it can be unusual."""
_DEVIATIONS = 5 * 1.4826
"""Median deviations from the median, from which it is: five standard deviations of normal lengths."""
_WARM_UP = 0.25
"""Share of the iterations that can be warm-up."""
WARM_UP, SLOW = "warm-up", "slow"
"""Kinds of iterations."""


Lengths = npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Lengths of iterations in their order, ns."""


def unusual_lengths(lengths: Lengths) -> tuple[float, float]:
    """Lengths that are not shorter, and not longer, than usual."""
    median = float(np.median(lengths))
    deviation = _DEVIATIONS * float(np.median(np.abs(lengths - median)))
    return min(median / UNUSUAL, median - deviation), max(median * UNUSUAL, median + deviation)


def warm_up_iterations(lengths: Lengths) -> int:
    """Number of iterations that are warm-up: the first ones, as long as their lengths are unusual, but no more than a quarter.

    >>> warm_up_iterations(np.array([90, 30, 10, 11, 10, 10, 10, 50, 10, 10]))
    2
    """
    if not len(lengths):
        return 0
    least, most = unusual_lengths(lengths)
    unusual = (lengths < least) | (lengths > most)
    first = len(unusual) if unusual.all() else int(np.argmin(unusual))
    return first if first <= _WARM_UP * len(lengths) else 0


def iteration_kinds(lengths: Numbers) -> list[str | None]:
    """Kind of each iteration by its length: WARM_UP, SLOW, or None for the usual ones.

    >>> iteration_kinds(np.array([90, 10, 11, 10, 10, 50, 10, 10]))[::5]
    ['warm-up', 'slow']
    """
    first = warm_up_iterations(lengths)
    most = unusual_lengths(lengths[first:])[1] if len(lengths) > first else 0.0
    return [WARM_UP if place < first else SLOW if length > most else None for place, length in enumerate(lengths.tolist())]
