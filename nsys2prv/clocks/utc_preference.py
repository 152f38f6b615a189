"""Whether UTC is better than an estimate: clocks that UTC puts where collectives and messages do stay where it puts them.

UTC of the hosts of a cluster mostly agrees within 0.1 ms. Ends of one collective differ between hosts by up to 12 ms in real
runs, because of the position in a tree or the progress of the network, and often in the same way each time. So a few
collectives move a clock only if they disagree with UTC by more than that; many do if they disagree by more than their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv.clocks.shared_events import Floats
from nsys2prv.timeline.time_axis import ClockCorrection

_ENDS_APART = 15e6
"""ns; ends of a single collective are not further apart between hosts."""
_FEW = 5
"""Collectives from which nothing better than that is concluded; with more of them, with the square of their number."""


def prefer_utc(
    corrections: Sequence[ClockCorrection], uncertain: Floats, first: float, last: float
) -> tuple[list[ClockCorrection], list[int]]:
    """Corrections where clocks that UTC puts as well as the estimate does have none.

    Parameters
    ----------
    corrections
        The estimate. Those of a group are from the mean of the group.
    uncertain
        Least disagreement with UTC that counts, of each clock, ns.
    first, last
        Time for which the estimate was made, ns.

    Returns
    -------
    The corrections, and the clocks that have those of UTC.
    """
    chosen = list(corrections)
    by_utc: list[int] = []
    for group in {one.group for one in corrections if one.anchors}:
        members = [clock for clock, one in enumerate(corrections) if one.group == group and one.anchors]
        ends = np.array([[_subtracted(corrections[clock], at) for at in (first, last)] for clock in members])
        common = _common(ends, uncertain[members])
        agrees = np.all(np.abs(ends - common) <= uncertain[members][:, None], axis=1)
        if agrees.sum() < 2:
            continue
        # Relative to the clocks that stay.
        drift = float(common[1] - common[0]) / max(last - first, 1.0)
        for clock, stays in zip(members, agrees.tolist(), strict=True):
            one = corrections[clock]
            if stays:
                chosen[clock] = replace(one, offset=0.0, drift=0.0)
                by_utc.append(clock)
            else:
                at_pivot = float(common[0]) + drift * (one.pivot - first)
                chosen[clock] = replace(one, offset=one.offset - at_pivot, drift=one.drift - drift)
    return chosen, by_utc


def uncertainty(correction: ClockCorrection) -> float:
    """How far a clock may be from UTC before its collectives count more, ns; 0 without collectives."""
    if not correction.anchors:
        return 0.0
    few = _ENDS_APART * min(1.0, (_FEW / correction.anchors) ** 2)
    return max(few, 1.4826 * correction.median)


def _subtracted(correction: ClockCorrection, at: float) -> float:
    return correction.offset + correction.drift * (at - correction.pivot)


def _common(ends: Floats, uncertain: Floats) -> Floats:
    """What is subtracted, at both ends of the time, from the clock that most others agree with."""
    tolerance = np.maximum(uncertain[:, None], uncertain[None, :])
    agree = np.all(np.abs(ends[:, None, :] - ends[None, :, :]) <= tolerance[:, :, None], axis=2)
    common: Floats = np.median(ends[agree[int(np.argmax(agree.sum(axis=1)))]], axis=0)
    return common
