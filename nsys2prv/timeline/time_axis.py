"""The common time axis: how times of one report become nanoseconds from the first event of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl


@dataclass(frozen=True)
class ClockCorrection:
    """What is subtracted from times of a clock: `offset + drift (t - pivot)`, ns.

    Attributes
    ----------
    offset, drift, pivot
        As above; the drift has no unit.
    anchors
        Shared events that it was estimated from, without outliers; 0: none, and nothing is subtracted.
    group
        Clocks of one group have shared events, directly or by way of others.
    median, percentile_95, largest
        Remaining error: how far the times of shared events are from those of the other clocks, ns; without outliers.
    bins
        Median of the error with its sign in stretches of equal length of the time of all shared events, ns; NaN where there
        are none.
    """

    offset: float
    drift: float
    pivot: int
    anchors: int
    group: int
    median: float
    percentile_95: float
    largest: float
    bins: tuple[float, ...]


@dataclass(frozen=True)
class Placement:
    """How the clock of one report is placed on the common axis.

    Attributes
    ----------
    method
        "utc": by the start of the session; "monotonic": by the monotonic clock of the host; "collectives": by common
        collectives of ranks; "messages": by messages both ways, or moved so that none arrives before it was sent; "none": not
        placed.
    offset
        Added to times of the report, ns.
    clock
        Correction of the host's clock; None when it is not known.
    shift
        Added in the end, so that the first event of all is at 0, ns.
    """

    method: str
    offset: int
    clock: ClockCorrection | None = None
    shift: int = 0

    def corrected(self, correction: ClockCorrection, method: str | None = None) -> Placement:
        """With the correction of its clock, if that is known."""
        return replace(self, clock=correction, method=method or self.method) if correction.anchors else self

    def at(self, time: int) -> int:
        """A time of the report on the axis, ns."""
        return int(pl.select(self.of(pl.lit(time, pl.Int64))).item())

    def of(self, time: pl.Expr) -> pl.Expr:
        """Times of the report on the axis, ns."""
        if self.clock is None:
            return time + (self.offset + self.shift)
        rough = time + self.offset
        correction = self.clock.offset + (rough - self.clock.pivot).cast(pl.Float64) * self.clock.drift
        return rough - correction.round().cast(pl.Int64) + self.shift

    @property
    def drift_ppm(self) -> float:
        """By how much the host's clock is too fast, in millionths."""
        return self.clock.drift * 1e6 if self.clock is not None else 0.0
