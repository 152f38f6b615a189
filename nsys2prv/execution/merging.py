"""Frames whose rows become fewer when they are merged: distinct rows, sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort

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


class Sums(Merging):
    """Adds up rows with the same key.

    Parameters
    ----------
    schema
        Columns of the sums; a frame that is added may have more.
    key
        Columns of the key.
    smallest, largest
        Columns of which the smallest or largest value is kept. All others are summed; the sum of nulls alone is null.
    pending
        As of `Merging`.
    """

    def __init__(
        self,
        schema: Mapping[str, type[pl.DataType]],
        key: Sequence[str],
        smallest: Sequence[str] = (),
        largest: Sequence[str] = (),
        pending: int = 100_000,
    ) -> None:
        summed = pl.col(name for name in schema if name not in {*key, *smallest, *largest})
        sums = pl.when(summed.count() > 0).then(summed.sum())
        self._aggregates = [sums, pl.col(smallest).min(), pl.col(largest).max()]
        self._columns = [pl.col(name).cast(dtype) for name, dtype in schema.items()]
        self._key = list(key)
        super().__init__(self._summed, pl.DataFrame(schema=schema), pending)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows."""
        if frame.height:
            super().add(self._summed(frame))

    def _summed(self, frame: pl.DataFrame) -> pl.DataFrame:
        # One query: frames are many, and small. In memory, sums of doubles are the same each time.
        summed = frame.lazy().select(self._columns).group_by(self._key).agg(self._aggregates).select(self._columns)
        return summed.collect(engine="in-memory")

    def by(self, key: Sequence[str], frame: pl.DataFrame | None = None) -> pl.DataFrame:
        """Sums by a shorter key, of all rows or of those of a frame."""
        return (self.rows if frame is None else frame).group_by(key).agg(self._aggregates)


class MergingOnDisk:
    """As `Merging`, in bounded memory however many merged rows there are: of many, sorted runs are on disk.

    Parameters
    ----------
    merge, empty
        As of `Merging`.
    by
        Column (Int64, no nulls) in which rows that are merged are equal. Rows that are equal in it are in memory together.
    folder
        Of the runs, made when it is needed; None: all rows stay in memory.
    """

    def __init__(
        self,
        merge: Callable[[pl.DataFrame], pl.DataFrame],
        empty: pl.DataFrame,
        by: str,
        folder: Path | None,
    ) -> None:
        self._merge = merge
        self._by = by
        self._in_memory = Merging(merge, empty, MOST_MERGED // 2)
        self._on_disk = ExternalSort([by], folder) if folder is not None else None
        self._is_complete = False

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows; none after `windows`."""
        assert not self._is_complete, "windows were read before"
        self._in_memory.add(frame)
        if self._on_disk is not None and self._in_memory.least > memory.scaled(MOST_MERGED):
            self._on_disk.add(self._in_memory.take())

    def windows(self) -> Iterator[pl.DataFrame]:
        """All rows, merged, in frames in the order of `by`; those that are equal in it are in one frame. May be read again."""
        self._is_complete = True
        if self._on_disk is None or not self._on_disk.rows:
            yield self._in_memory.rows.sort(self._by)
            return
        if (rest := self._in_memory.take()).height:
            self._on_disk.add(rest)
        for rows in self._on_disk.windows(keep=True, any_ties=True):
            yield self._merge(rows).sort(self._by)
