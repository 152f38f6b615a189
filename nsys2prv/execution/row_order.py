"""Orders, keys and choices of rows that depend on what is in them, not where: tables of an export can be in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution import memory

_LARGEST_KEY = 2**62
_MULTIPLIER, _SLOT_BITS = np.uint64(0x9E3779B97F4A7C15), 16
"""What spreads numbers over the slots of a table, and how many bits the number of a slot has."""
_FEW_KEYS = 1 << 16
"""Smaller numbers are sorted by their digits, which takes a tenth of the time."""
Numbers = npt.NDArray[np.int64]


# -- orders -------------------------------------------------------------------------------------------------------------


def rows_in_order(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Rows in the order of a column without nulls: the same frame where they are in it, as rows of most tables are. Those that
    are equal in it stay as they come.
    """
    values = rows[column].to_numpy()
    return rows if (values[1:] >= values[:-1]).all() else rows.sort(column, maintain_order=True)


def order_ties(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows that are sorted by some columns, with those that are equal in them in the order of all other columns."""
    like_before = rows.select(pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in by)).to_series()
    return _in_order_within(rows, like_before.to_numpy()[1:], [name for name in rows.columns if name not in by])


def in_content_order(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows in the order of some columns, the first without nulls, and of all others, where null comes first.

    It takes little time where rows are almost sorted by the first column and few are equal in it.
    """
    values = rows[by[0]].to_numpy()
    if (values[1:] < values[:-1]).any():
        order = np.argsort(values, kind="stable")
        rows, values = rows[order], values[order]
    return _in_order_within(rows, values[1:] == values[:-1], [*by[1:], *(name for name in rows.columns if name not in by)])


def in_turns(pieces: Iterable[pl.DataFrame], by: str) -> Iterator[pl.DataFrame]:
    """The same rows, which are sorted by a column without nulls: those that are equal in it in one piece, and in the order of
    all other columns.
    """
    waiting: pl.DataFrame | None = None
    for piece in pieces:
        rows = piece if waiting is None else pl.concat([waiting, piece])
        if rows.is_empty():
            continue
        waits = int(rows[by].search_sorted(rows[by][-1], "left"))
        if waits:
            yield order_ties(rows[:waits], [by])
        waiting = rows[waits:]
    if waiting is not None:
        yield order_ties(waiting, [by])


def _in_order_within(rows: pl.DataFrame, like_before: npt.NDArray[np.bool_], by: Sequence[str]) -> pl.DataFrame:
    """Rows in the order of some columns within groups: `like_before` says which rows, from the second on, are of the group of
    the one before.
    """
    if not like_before.any():
        return rows
    places = np.flatnonzero(np.append(like_before, False) | np.append(False, like_before))
    group = pl.Series(np.cumsum(np.append(True, ~like_before))[places])
    all_places = np.arange(rows.height)
    all_places[places] = places[rows[places].select(pl.arg_sort_by(group, *by)).to_series().to_numpy()]
    return rows[all_places]


# -- choices ------------------------------------------------------------------------------------------------------------


def differ_from_before(*columns: np.ndarray) -> np.ndarray:
    """Whether rows differ in some of their columns from the row before; the first does."""
    differ = np.zeros(len(columns[0]), dtype=bool)
    differ[:1] = True
    for values in columns:
        differ[1:] |= values[1:] != values[:-1]
    return differ


def is_constant(column: pl.Series) -> bool:
    """Whether a column is null in all rows, or the same whole number."""
    nulls = column.null_count()
    return nulls == len(column) or (column.dtype.is_integer() and not nulls and column.min() == column.max())


def drop_duplicates(rows: pl.DataFrame, key: str | Sequence[str]) -> pl.DataFrame:
    """One row for each value of a key: of rows that differ only elsewhere the first in the order of their columns, where what
    is known comes before what is null.
    """
    if not rows.select(pl.struct(key).is_duplicated().any()).item():
        return rows
    return rows.sort(rows.columns, nulls_last=True).unique(key, keep="first", maintain_order=True)


class Merging:
    """Merges frames whose rows become fewer, such as distinct rows or sums, from time to time while they are added.

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
    def rows(self) -> pl.DataFrame:
        """All rows, merged."""
        if len(self._frames) > 1:
            self._frames = [self._merge(pl.concat(self._frames))]
            self._pending = 0
        return self._frames[0]


# -- keys ---------------------------------------------------------------------------------------------------------------


def one_key(columns: Sequence[Numbers]) -> Numbers:
    """One number for each row, equal where some columns are; it is sorted and compared faster."""
    key = columns[0]
    if not len(key):
        return key
    size = 1
    for place, column in enumerate(columns):
        lowest = int(column.min())
        span = int(column.max()) - lowest + 1
        size *= span
        if size > _LARGEST_KEY:
            frame = pl.DataFrame({str(number): values for number, values in enumerate(columns)})
            return frame.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64)).to_series().to_numpy()
        key = key * span + (column - lowest) if place else column - lowest
    return key


class Distinct(NamedTuple):
    """The different numbers of a column, in their order; the place among them of each row; and how many `rows` have each."""

    numbers: Numbers
    place: Numbers
    rows: Numbers

    def which(self, has: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
        """For each of the different numbers whether a condition holds for it."""
        return np.array([has(number) for number in self.numbers.tolist()], dtype=bool)


def distinct(column: Numbers) -> Distinct:
    """The different numbers of a column, without sorting it where there are few of them."""
    if not len(column):
        return Distinct(column, column, column)
    slot = (column.view(np.uint64) * _MULTIPLIER >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
    in_slot = np.empty(1 << _SLOT_BITS, np.int64)
    in_slot[slot] = column
    if np.array_equal(in_slot.take(slot), column):
        rows = np.bincount(slot, minlength=1 << _SLOT_BITS)
        used = np.flatnonzero(rows)
        used = used[np.argsort(in_slot[used])]
        place_of_slot = np.empty(1 << _SLOT_BITS, np.int64)
        place_of_slot[used] = np.arange(len(used))
        return Distinct(in_slot[used], place_of_slot.take(slot), rows[used])
    return Distinct(*np.unique(column, return_inverse=True, return_counts=True))


def order_of_keys(key: Numbers) -> Numbers:
    """A stable order of rows by a key that counts from 0."""
    return np.argsort(key.astype(np.uint16) if key.max(initial=0) < _FEW_KEYS else key, kind="stable")
