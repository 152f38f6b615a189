"""Orders and choices of rows that depend on what is in them, not on where they are: tables of an export can be in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import polars as pl


def order_ties(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows that are sorted by some columns, with those that are equal in them in the order of all other columns."""
    if rows.height < 2:
        return rows
    like_before = rows.select(pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in by)).to_series()
    # Before the first row there is none, which equals a row of nulls.
    like_before[0] = False
    if not like_before.any():
        return rows
    places = (like_before | like_before.shift(-1, fill_value=False)).arg_true()
    turn = (~like_before).cast(pl.UInt32).cum_sum().gather(places)
    tied = rows[places].select(pl.arg_sort_by([turn, *(name for name in rows.columns if name not in by)])).to_series()
    every = pl.int_range(rows.height, dtype=pl.UInt32, eager=True)
    return rows[every.scatter(places, places.gather(tied))]


def rows_in_order(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Rows in the order of a column without nulls: the same frame where they are in it, as rows of most tables are. Those that
    are equal in it stay as they come.
    """
    values = rows[column].to_numpy()
    return rows if (values[1:] >= values[:-1]).all() else rows.sort(column, maintain_order=True)


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


def in_content_order(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Rows of whole numbers in the order of some columns, which have no nulls, and of all others, where null comes first.

    It takes little time where rows are almost sorted by the first column and few are equal in it.
    """
    first, *others = (*by, *(name for name in rows.columns if name not in by))
    values = rows[first].to_numpy()
    if (values[1:] < values[:-1]).any():
        by_first = np.argsort(values, kind="stable")
        rows, values = rows[by_first], values[by_first]
    like_before = values[1:] == values[:-1]
    if not like_before.any():
        return rows
    places = np.flatnonzero(np.append(like_before, False) | np.append(False, like_before))
    tied, like_before = rows[places], np.append(False, like_before)[places]
    order = _order_of_tied(tied, like_before, others)
    if order is None:
        return rows
    every = np.arange(rows.height)
    every[places] = places[order]
    return rows[every]


def _order_of_tied(rows: pl.DataFrame, like_before: np.ndarray, by: Sequence[str]) -> np.ndarray | None:
    """Order of rows by some columns, in groups of rows that are equal otherwise; None where they are in order."""
    order: np.ndarray | None = None
    for name in by:
        for values in _sort_values(rows[name]):
            found = values if order is None else values[order]
            if (like_before[1:] & (found[1:] < found[:-1])).any():
                turn = np.lexsort((found, np.cumsum(~like_before)))
                order, found = turn if order is None else order[turn], found[turn]
            like_before[1:] &= found[1:] == found[:-1]
            if not like_before.any():
                return order
    return order


def _sort_values(column: pl.Series) -> Iterator[np.ndarray]:
    if column.null_count():
        yield column.is_not_null().to_numpy()
        column = column.fill_null(0)
    yield column.to_numpy()


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


def one_of_each(rows: pl.DataFrame, key: str | Sequence[str]) -> pl.DataFrame:
    """One row for each value of a key: of rows that differ only elsewhere the first in the order of their columns, where what
    is known comes before what is null.
    """
    if not rows.select(pl.struct(key).is_duplicated().any()).item():
        return rows
    return rows.sort(rows.columns, nulls_last=True).unique(key, keep="first", maintain_order=True)
