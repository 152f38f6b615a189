"""Residuals: the error of clocks that remains after their correction."""

from __future__ import annotations

import numpy as np

from nsys2prv.clocks.shared_events import Floats, Ints, SharedEvents
from nsys2prv.timeline.time_axis import ClockCorrection

_BINS = 12
"""Stretches of time for which the remaining error is kept."""


def residuals(events: SharedEvents, corrected: Floats, weight: Floats) -> Floats:
    """How far the corrected times, ns, of each event are from their weighted mean; infinite where all weights are 0."""
    total = np.bincount(events.event, weight)
    mean = np.bincount(events.event, weight * corrected) / np.where(total > 0, total, 1)
    return np.where(total[events.event] > 0, corrected - mean[events.event], np.inf)


def corrections_with_errors(
    events: SharedEvents, time: Floats, weight: Floats, offset: Floats, drift: Floats, group: Ints, pivot: int
) -> list[ClockCorrection]:
    """Corrections of clocks with their remaining errors, as of `ClockCorrection`, from offset, drift and group of each clock.

    Times of events are from the pivot, ns; outliers have the weight 0.
    """
    corrected = time - offset[events.clock] - drift[events.clock] * time
    residual = residuals(events, corrected, weight) if len(time) else corrected
    edges = np.linspace(time.min(), time.max(), _BINS + 1) if len(time) else np.zeros(_BINS + 1)
    corrections = []
    order = np.argsort(events.clock, kind="stable")
    order = order[weight[order] > 0]
    borders = np.searchsorted(events.clock[order], np.arange(len(offset) + 1))
    for clock in range(len(offset)):
        own = order[borders[clock] : borders[clock + 1]]
        errors = np.abs(residual[own])
        place = np.clip(np.searchsorted(edges, time[own], side="right") - 1, 0, _BINS - 1)
        bins = tuple(
            float(np.median(residual[own][place == index])) if (place == index).any() else float("nan")
            for index in range(_BINS)
        )
        is_known = len(errors) > 0
        corrections.append(
            ClockCorrection(
                offset=float(offset[clock]) if is_known else 0.0,
                drift=float(drift[clock]) if is_known else 0.0,
                pivot=pivot,
                anchors=len(own),
                group=int(group[clock]),
                median=float(np.median(errors)) if is_known else float("nan"),
                percentile_95=float(np.percentile(errors, 95)) if is_known else float("nan"),
                largest=float(errors.max()) if is_known else float("nan"),
                bins=bins,
            )
        )
    return corrections
