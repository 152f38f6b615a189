"""What is known of the clock of a host after reports were placed, for others to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nsys2prv.timeline.time_axis import ClockCorrection, ClockError


@dataclass(frozen=True)
class AnchorCount:
    """Anchors of one kind: how many the clock was estimated with, and how many of them it does not agree with."""

    used: int = 0
    outliers: int = 0


@dataclass(frozen=True)
class HostClock:
    """What is known of the clock of a host (or of one report, where nothing ties those of a host).

    Attributes
    ----------
    name
        Host, with the report where there are several clocks of it.
    method
        As of `Placement`.
    error
        How well it is known, over the time of the axis.
    correction
        Offset, drift and what remains at the anchors; None where nothing is subtracted.
    by_messages
        Part of the offset that comes from bounds: no message arrives before it was sent, no rank leaves a collective before the
        last one entered it; ns.
    drift_error
        How far the drift may be off, without a unit; infinite where nothing is known.
    anchors
        By kind: "nccl" and "mpi" for collectives, "messages".
    contradiction
        By how much the most violated bound is violated as placed, ns; 0 where all are kept, None without bounds.
    """

    name: str
    method: str
    error: ClockError
    correction: ClockCorrection | None = None
    by_messages: float = 0.0
    drift_error: float = float("inf")
    anchors: Mapping[str, AnchorCount] = field(default_factory=dict)
    contradiction: float | None = None

    @property
    def half_width(self) -> tuple[float, float]:
        """Half width of the interval where the clock is known best, and where it is known worst, ns."""
        return min(self.error.half_widths), max(self.error.half_widths)

    def as_json(self) -> dict[str, Any]:
        best, worst = (_known(width) for width in self.half_width)
        content: dict[str, Any] = {
            "host": self.name,
            "method": self.method,
            "by_messages_ns": round(self.by_messages),
            "interval_ns": {
                "best": best,
                "worst": worst,
                "times": list(self.error.times),
                "half_widths": [_known(width) for width in self.error.half_widths],
            },
            "anchors_by_kind": {
                kind: {"used": count.used, "outliers": count.outliers} for kind, count in sorted(self.anchors.items())
            },
            "contradiction_ns": None if self.contradiction is None else round(self.contradiction),
        }
        if self.correction is not None:
            known = self.correction
            content |= {
                "anchors": known.anchors,
                "offset_ns": round(known.offset),
                "drift_ppm": round(known.drift * 1e6, 4),
                "drift_error_ppm": round(self.drift_error * 1e6, 4) if np.isfinite(self.drift_error) else None,
                "steps": [
                    {"after_ns": step.after, "before_ns": step.before, "size_ns": round(step.size)} for step in known.steps
                ],
                "error_ns": {
                    **{name: _known(getattr(known, name)) for name in ("median", "percentile_95", "largest")},
                    "over_time": [_known(value) for value in known.bins],
                },
            }
        return content


def _known(value: float) -> int | None:
    """A number of ns for JSON; None where it is not known."""
    return round(value) if np.isfinite(value) else None
