"""Orders, keys and choices of rows that depend on what is in them, not where: tables of an export can be in any order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution import memory

Numbers = npt.NDArray[np.int64]


def rows_in_order(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Rows in the order of a column without nulls: the same frame where they are in it, as rows of most tables are. Those that
    are equal in it stay as they come."""
    values = rows[column].to_numpy()
    return rows if (values[1:] >= values[:-1]).all() else rows.sort(column, maintain_order=True)


def in_content_order(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows in the order of some columns, the first without nulls, and of all others, where null comes first.

    It takes little time where rows are almost sorted by the first column and few are equal in it."""
    rows = rows_in_order(rows, by[0])
    values = rows[by[0]].to_numpy()
    like_before = values[1:] == values[:-1]
    if not like_before.any():
        return rows
    # Only rows that are equal to a neighbour have to be sorted, within their group.
    places = np.flatnonzero(np.append(like_before, False) | np.append(False, like_before))
    others = [*by[1:], *(name for name in rows.columns if name not in by)]
    order = np.arange(rows.height)
    order[places] = places[rows[places].select(pl.arg_sort_by(by[0], *others)).to_series().to_numpy()]
    return rows[order]


def in_turns(pieces: Iterable[pl.DataFrame], by: str) -> Iterator[pl.DataFrame]:
    """The same rows, which are sorted by a column without nulls: those that are equal in it in one piece, and in the order of
    all other columns."""
    waiting: list[pl.DataFrame] = []
    for piece in pieces:
        if piece.height:
            rows = pl.concat([*waiting, piece])
            first_waiting = int(rows[by].search_sorted(rows[by][-1], "left"))
            if first_waiting:
                yield in_content_order(rows[:first_waiting], [by])
            waiting = [rows[first_waiting:]]
    yield from (in_content_order(rows, [by]) for rows in waiting)


def differ_from_before(*columns: np.ndarray) -> np.ndarray:
    """Whether rows differ in some of their columns from the row before; the first does."""
    differ = np.zeros(len(columns[0]), dtype=bool)
    differ[:1] = True
    for values in columns:
        differ[1:] |= values[1:] != values[:-1]
    return differ


def drop_duplicates(rows: pl.DataFrame, key: str | Sequence[str]) -> pl.DataFrame:
    """One row for each value of a key: of rows that differ only elsewhere the first in the order of their columns, where what
    is known comes before what is null."""
    if not rows.select(pl.struct(key).is_duplicated().any()).item():
        return rows
    return rows.sort(rows.columns, nulls_last=True).unique(key, keep="first", maintain_order=True)


class Merging:
    """Merges frames whose rows become fewer, such as distinct rows or sums, whenever as many rows wait as were merged before:
    each row is merged only a few times.

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


class Distinct(NamedTuple):
    """The different numbers of a column, in their order; the place among them of each row; and how many `rows` have each."""

    numbers: Numbers
    place: Numbers
    rows: Numbers

    def which(self, has: Callable[[int], bool]) -> npt.NDArray[np.bool_]:
        """For each of the different numbers whether a condition holds for it."""
        return np.array([has(number) for number in self.numbers.tolist()], dtype=bool)


def distinct(column: Numbers) -> Distinct:
    """The different numbers of a column."""
    return Distinct(*np.unique(column, return_inverse=True, return_counts=True))
