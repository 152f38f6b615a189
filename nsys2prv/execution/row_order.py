"""Orders and choices of rows that depend on what is in them, not on where they are: tables of an export can be in any order."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_PRIME = 1_000_000_007


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


def order_repeated(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Rows in any order, but those that are equal in a key (Int64) among themselves in the order of all columns."""
    mixed = pl.col(key[0])
    for name in key[1:]:
        # Where different rows get one number, more rows than necessary are ordered.
        mixed = mixed * _PRIME + pl.col(name)
    repeated = rows.select(mixed.is_duplicated()).to_series()
    if not repeated.any():
        return rows
    order = [*key, *(name for name in rows.columns if name not in key)]
    return pl.concat([rows.filter(~repeated), rows.filter(repeated).sort(order)])


def one_of_each(rows: pl.DataFrame, key: str | Sequence[str]) -> pl.DataFrame:
    """One row for each value of a key: of rows that differ only elsewhere the first in the order of their columns, where what
    is known comes before what is null.
    """
    if not rows.select(pl.struct(key).is_duplicated().any()).item():
        return rows
    return rows.sort(rows.columns, nulls_last=True).unique(key, keep="first", maintain_order=True)
