"""Which part of the time axis is kept. An interval that reaches over an edge is clipped, not lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl


@dataclass(frozen=True)
class TimeSelection:
    """Windows of the time axis that are kept, sorted, without overlap, in ns of the common axis.

    The trace starts with the first window; the time between two windows stays empty.
    """

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

    def intersection(self, other: TimeSelection) -> TimeSelection:
        """The time that both keep."""
        mine = pl.DataFrame({"start": self.starts, "end": self.ends}, schema={"start": pl.Int64, "end": pl.Int64})
        both = other.clip(mine, shift=False)
        return TimeSelection.union(both.select("start", "end"))

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
        its edges.
        """
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
