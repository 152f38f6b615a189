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
        there = frame.filter(pl.col("end") > pl.col("begin"))
        group = there["group"].to_numpy().astype(np.int64) * self._stride
        # Groups follow each other: one number per group keeps them apart.
        keys, ends = group + there["begin"].to_numpy(), group + there["end"].to_numpy()
        order = np.argsort(keys, kind="stable")
        keys, ends = keys[order], np.maximum.accumulate(ends[order])
        is_first = np.ones(len(keys), dtype=bool)
        is_first[1:] = keys[1:] > ends[:-1]
        self._keys: Numbers = keys[is_first]
        self._ends: Numbers = ends[np.append(is_first[1:], True)] if len(ends) else ends
        self._before: Numbers = np.concatenate([[0], np.cumsum(self._ends - self._keys)]).astype(np.int64)

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
