"""Frames whose rows become fewer when they are merged: distinct rows, sums."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from nsys2prv.execution import memory

MOST_MERGED = 100_000
"""Merged rows that `MergingOnDisk` holds in memory."""


class Merging:
    """Merges frames from time to time while they are added.

    The merged rows are merged again when as many new rows are waiting, so each row is merged only a few times.

    Parameters
    ----------
    merge
        Merges the rows of a frame; the result may be merged again with further rows.
    empty
        A frame without rows, with the columns of all frames.
    pending
        Largest number of rows that wait to be merged.
    """

    def __init__(self, merge: Callable[[pl.DataFrame], pl.DataFrame], empty: pl.DataFrame, pending: int) -> None:
        self._merge = merge
        self._frames = [empty]
        self._most_pending = memory.scaled(pending)
        self._pending = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        self._frames.append(frame)
        self._pending += frame.height
        if self._pending > max(self._most_pending, self._frames[0].height):
            _ = self.rows

    @property
    def least(self) -> int:
        """Rows that were merged at last: there may be more by now."""
        return self._frames[0].height

    @property
    def rows(self) -> pl.DataFrame:
        """All rows, merged."""
        if len(self._frames) > 1:
            self._frames = [self._merge(pl.concat(self._frames))]
            self._pending = 0
        return self._frames[0]

    def take(self) -> pl.DataFrame:
        """All rows, merged; there are none afterwards."""
        rows = self.rows
        self._frames = [rows.clear()]
        return rows
