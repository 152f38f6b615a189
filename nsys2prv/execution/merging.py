"""Rows of any number of frames that become fewer when they are merged: distinct rows, sums."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl


class Merging:
    """Merges frames as they come, now and then.

    What is merged already is merged again when as much has come: each row some few times in all, however many frames there are.

    Parameters
    ----------
    merge
        Makes one frame of the rows of several; those of a result may be merged with further ones.
    empty
        A frame without rows, as all of them are.
    pending
        Rows that may wait to be merged.
    """

    def __init__(self, merge: Callable[[pl.DataFrame], pl.DataFrame], empty: pl.DataFrame, pending: int) -> None:
        self._merge = merge
        self._frames = [empty]
        self._most_pending = pending
        self._pending = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in."""
        self._frames.append(frame)
        self._pending += frame.height
        if self._pending > max(self._most_pending, self._frames[0].height):
            _ = self.rows

    @property
    def rows(self) -> pl.DataFrame:
        """All rows, merged."""
        if len(self._frames) > 1:
            self._frames = [self._merge(pl.concat(self._frames))]
            self._pending = 0
        return self._frames[0]
