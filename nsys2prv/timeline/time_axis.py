"""The common time axis: how times of one report become nanoseconds from the first event of the run, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

_SMALLEST_JUMP, _STEEP = 20e3, 5e-5
"""Smaller changes, ns, are the noise of anchors, and slower ones a drift."""


@dataclass(frozen=True)
class ClockStep:
    """A change of a clock by `size` ns between two times that it shows, those of anchors, besides its drift.

    What is subtracted grows evenly between them. Where the clock jumped, that is wrong by as much as `error`, ns."""

    after: int
    before: int
    size: float
    error: float = 0.0


@dataclass(frozen=True)
class ClockCorrection:
    """What is subtracted from times of a clock: `offset + drift (t - pivot)`, ns, and its steps."""

    # offset, drift, pivot: as above; the drift has no unit
    offset: float
    drift: float
    pivot: int
    anchors: int  # shared events that it was estimated from, without outliers; 0: none, and nothing is subtracted
    group: int  # clocks of one group have shared events, directly or by way of others
    # median, percentile_95, largest: remaining error: how far the times of shared events are from those of the other clocks,
    # ns; without outliers
    median: float
    percentile_95: float
    largest: float
    # Median of the error with its sign in stretches of equal length of the time of all shared events, ns; NaN where there are
    # none.
    bins: tuple[float, ...]
    steps: tuple[ClockStep, ...] = ()

    @property
    def jumps(self) -> tuple[ClockStep, ...]:
        """Those of the steps that are no mere changes of the drift."""
        return tuple(step for step in self.steps if abs(step.size) > max(_SMALLEST_JUMP, _STEEP * (step.before - step.after)))


@dataclass(frozen=True)
class Placement:
    """How the clock of one report is placed on the common axis."""

    # "utc": by the start of the session; "monotonic": by the monotonic clock of the host; "collectives": by common collectives
    # of ranks; "messages": by messages both ways, or moved so that none arrives before it was sent; "none": not placed.
    method: str
    offset: int  # added to times of the report, ns
    clock: ClockCorrection | None = None  # correction of the host's clock; None when it is not known
    shift: int = 0  # added in the end, so that the first event of all is at 0, ns

    def at(self, time: int) -> int:
        """A time of the report on the axis, ns."""
        return int(pl.select(self.of(pl.lit(time, pl.Int64))).item())

    def of(self, time: pl.Expr) -> pl.Expr:
        """Times of the report on the axis, ns."""
        if self.clock is None:
            return time + (self.offset + self.shift)
        rough = time + self.offset
        correction = self.clock.offset + (rough - self.clock.pivot).cast(pl.Float64) * self.clock.drift
        for step in self.clock.steps:
            progress = (rough - step.after).cast(pl.Float64) / max(step.before - step.after, 1)
            correction = correction + progress.clip(0, 1) * step.size
        return rough - correction.round().cast(pl.Int64) + self.shift

    @property
    def drift_ppm(self) -> float:
        """By how much the host's clock is too fast, in millionths."""
        return self.clock.drift * 1e6 if self.clock is not None else 0.0


@dataclass(frozen=True)
class ClockError:
    """How well times of one report are known on the axis: half widths of intervals that hold the true time, ns."""

    clock: int  # number of the clock; reports of one clock are not affected by what is unknown of it when they are compared
    # times, half_widths: at these times of the axis, in rising order, how far the clock may be from the axis; between them it
    # is interpolated. Infinite where nothing is known.
    times: tuple[int, ...] = (0,)
    half_widths: tuple[float, ...] = (0.0,)
    # How far the report may be from others of the same clock; 0 where the monotonic clock of the host ties them.
    of_report: float = 0.0
    group: int = 0  # clocks of one group are tied to each other; of those of two groups nothing is known

    def as_json(self) -> dict[str, int | None]:
        """What is of the report: number and group of its clock, and `of_report`; the rest is that of the clock."""
        return {
            "clock": self.clock,
            "group": self.group,
            "of_report_ns": round(self.of_report) if np.isfinite(self.of_report) else None,
        }

    def at(self, times: NDArray[np.int64]) -> NDArray[np.float64]:
        """The half width at times of the axis, without that of the report, ns."""
        return np.interp(times, self.times, self.half_widths)


@dataclass(frozen=True)
class TimeSelection:
    """Windows of the time axis that are kept, sorted, without overlap, in ns of the common axis.

    The trace starts with the first window; the time between two windows stays empty."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def union(cls, ranges: pl.DataFrame) -> TimeSelection:
        """The time inside any of some ranges: columns `start`, `end`, ns."""
        ordered = ranges.filter(pl.col("end") > pl.col("start")).sort("start", "end")
        if ordered.is_empty():
            return cls((), ())
        starts, ends = ordered["start"].to_numpy(), np.maximum.accumulate(ordered["end"].to_numpy())
        is_new = np.concatenate([[True], starts[1:] > ends[:-1]])
        is_last = np.concatenate([is_new[1:], [True]])
        return cls(tuple(map(int, starts[is_new])), tuple(map(int, ends[is_last])))

    def intersection(self, selection: TimeSelection) -> TimeSelection:
        """The time that both keep."""
        windows = pl.DataFrame({"start": self.starts, "end": self.ends}, schema={"start": pl.Int64, "end": pl.Int64})
        return TimeSelection.union(selection.clip(windows, shift=False))

    @property
    def origin(self) -> int:
        """Start of the first window: time 0 of the trace."""
        return self.starts[0]

    @property
    def length(self) -> int:
        """End of the trace, ns after `origin`."""
        return self.ends[-1] - self.starts[0]

    def clip(self, intervals: pl.DataFrame, *, shift: bool = True) -> pl.DataFrame:
        """The parts of intervals (columns `start`, `end`) inside the windows, in time of the trace when `shift`.

        An interval over several windows becomes one per window. An interval without length is kept inside a window and at
        its edges."""
        clipped = intervals if self.covers(intervals) else self._parts(intervals)
        return clipped.with_columns(pl.col("start", "end") - self.origin) if shift and self.origin else clipped

    def covers(self, intervals: pl.DataFrame) -> bool:
        """Whether the time is one window that all of some intervals are inside of."""
        if len(self.starts) != 1:
            return False
        first, last = intervals["start"].min(), intervals["end"].max()
        return first is None or bool(self.starts[0] <= first and last <= self.ends[0])  # type: ignore[operator]

    def _parts(self, intervals: pl.DataFrame) -> pl.DataFrame:
        starts, ends = np.array(self.starts, dtype=np.int64), np.array(self.ends, dtype=np.int64)
        start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
        first = np.searchsorted(ends, start, side="right")
        behind = np.searchsorted(starts, end, side="left")
        is_point = start == end
        first = np.where(is_point, np.searchsorted(ends, start, side="left"), first)
        behind = np.where(is_point, np.searchsorted(starts, end, side="right"), behind)
        counts = np.maximum(behind - first, 0)
        counts = np.where(is_point, np.minimum(counts, 1), counts)
        source = np.repeat(np.arange(len(counts)), counts)
        offset = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
        window = first[source] + offset
        return intervals[source].with_columns(
            start=pl.Series(np.maximum(start[source], starts[window]), dtype=pl.Int64),
            end=pl.Series(np.minimum(end[source], ends[window]), dtype=pl.Int64),
        )

    def hold(self, times: pl.Series) -> pl.Series:
        """Whether each time of the common axis lies inside a window, edges included."""
        starts, ends = np.array(self.starts, dtype=np.int64), np.array(self.ends, dtype=np.int64)
        values = times.to_numpy()
        window = np.searchsorted(starts, values, side="right") - 1
        return pl.Series((window >= 0) & (values <= ends[np.maximum(window, 0)]), dtype=pl.Boolean)
