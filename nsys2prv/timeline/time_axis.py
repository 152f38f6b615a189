"""The common time axis: how times of one report become nanoseconds from the first event of the run."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Clock:
    """What is to be subtracted from the time of a host: `offset + drift (t - pivot)`, ns.

    Attributes
    ----------
    offset, drift, pivot
        As above; the drift has no unit.
    anchors
        Meetings that it was found from, without outliers; 0: none, and nothing is to be subtracted.
    group
        Hosts of one group met each other, directly or by way of others.
    median, percentile_95, largest
        Remaining error: how far the host's meetings are from those of the others, ns; without outliers.
    bins
        Median of the error with its sign in equal stretches of the time of all meetings, ns; NaN where there are none.
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
        "utc": by the start of the session; "monotonic": by the monotonic clock of the host; "collectives": by what ranks did
        together; "messages": by messages both ways, or moved so that none arrives before it was sent; "none": not placed.
    offset
        Added to times of the report, ns.
    clock
        What is wrong with the host's clock then, and is taken off; None when it is not known.
    shift
        Added in the end, so that the first event of all is at 0, ns.
    """

    method: str
    offset: int
    clock: Clock | None = None
    shift: int = 0

    def at(self, time: int) -> int:
        """A time of the report on the axis, ns."""
        return int(pl.select(self.of(pl.lit(time, pl.Int64))).item())

    def of(self, time: pl.Expr) -> pl.Expr:
        """Times of the report on the axis, ns."""
        if self.clock is None:
            return time + (self.offset + self.shift)
        rough = time + self.offset
        wrong = self.clock.offset + (rough - self.clock.pivot).cast(pl.Float64) * self.clock.drift
        return rough - wrong.round().cast(pl.Int64) + self.shift

    @property
    def drift_ppm(self) -> float:
        """How much the host's clock goes too fast, in millionths."""
        return self.clock.drift * 1e6 if self.clock is not None else 0.0
