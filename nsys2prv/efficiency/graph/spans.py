"""Times that belong together, by group: stretches that a change of the graph takes away."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers

SCHEMA = {"group": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
"""Columns: any number, and times in ns."""


class Spans:
    """Stretches of time by group; those of a group that overlap are one.

    Parameters
    ----------
    frame
        Columns of SCHEMA, in any order.
    length
        Larger than all times.
    """

    def __init__(self, frame: pl.DataFrame, length: int) -> None:
        self._stride = length + 2
        ordered = frame.filter(pl.col("end") > pl.col("begin")).cast(SCHEMA).sort("group", "begin")  # type: ignore[arg-type]
        # The end of all so far in the group; groups follow each other, so one larger number per group keeps them apart.
        key = pl.col("group") * self._stride
        merged = (
            ordered.with_columns(until=(key + pl.col("end")).cum_max() - key)
            .with_columns(is_new=(key + pl.col("begin") > (key + pl.col("until")).shift(1)).fill_null(True))
            .group_by(run=pl.col("is_new").cum_sum(), maintain_order=True)
            .agg(pl.col("group", "begin").first(), pl.col("until").max())
        )
        group, begin, end = (merged[name].to_numpy().astype(np.int64) for name in ("group", "begin", "until"))
        self._keys: Numbers = group * self._stride + begin
        self._ends: Numbers = group * self._stride + end
        self._before: Numbers = np.concatenate([[0], np.cumsum(end - begin)]).astype(np.int64)

    def inside(self, group: Numbers, begin: Numbers, end: Numbers) -> Numbers:
        """Time of the spans of a group from a begin to an end, ns: columns of equal length."""
        if not len(self._keys):
            return np.zeros(len(group), dtype=np.int64)
        return self._until(group, end) - self._until(group, begin)

    def _until(self, group: Numbers, time: Numbers) -> Numbers:
        """Time of the spans of all groups before, and of this one until a time."""
        # Rows and devices may be numbers of 32 bits.
        at = group.astype(np.int64) * self._stride + time
        place = np.searchsorted(self._keys, at, side="right") - 1
        known = np.maximum(place, 0)
        rest = np.clip(self._ends[known] - at, 0, None)
        return np.where(place >= 0, self._before[known + 1] - rest, 0)
