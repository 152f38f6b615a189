"""Tables of the page: packed into the page as JSON, from which `page.js` makes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.analysis.schema import Column, Table

_DIGITS = 7
_SHARES = frozenset({"average", "maximum", "minimum", "deviation", "change"})
"""Columns of shares that stand beside values of other tables' units."""


@dataclass(frozen=True)
class PageTable:
    """One table of the page.

    Attributes
    ----------
    table
        What the schema says of it.
    columns
        Columns that are shown: heading, meaning, and how `page.js` writes a value: "text", "count", "ns", "bytes", "bytes/s",
        "0 to 1" or "number".
    rows, all_rows
        Rows in the page, and rows that there are.
    packed
        What `page.js` reads: per column a list of values; of texts {"texts": distinct ones, "places": which of them}.
    """

    table: Table
    columns: tuple[Mapping[str, str], ...]
    rows: int
    all_rows: int
    packed: Mapping[str, Any]


def pack(table: Table, frame: pl.DataFrame, cells: int, without: Sequence[str] = ()) -> PageTable:
    """A table of the page, of at most so many cells.

    Parameters
    ----------
    table, frame
        What the schema says of it, and its rows.
    cells
        Cells that there is room for; the last rows are left out.
    without
        Columns that are not shown.
    """
    columns = [column for column in table.columns if column.name not in without]
    rows = min(frame.height, max(cells // len(columns), 1))
    shown = frame.head(rows)
    told = tuple(
        {"name": column.name, "heading": heading(column), "meaning": column.meaning, "form": _form(column)} for column in columns
    )
    values = [_values(shown[column.name]) for column in columns]
    return PageTable(table, told, rows, frame.height, {"forms": [one["form"] for one in told], "columns": values})


def heading(column: Column) -> str:
    """What stands above a column.

    >>> heading(Column("mean_wait_ns", pl.Float64, "ns", ""))
    'mean wait'
    """
    return column.name.removesuffix(f"_{column.unit}").replace("_", " ")


def _form(column: Column) -> str:
    if column.unit:
        return column.unit
    if column.dtype is pl.String:
        return "text"
    if column.name in _SHARES:
        return "0 to 1" if column.name != "change" else "number"
    return "count" if column.dtype is pl.Int64 else "number"


def _values(column: pl.Series) -> Any:
    if column.dtype == pl.String:
        texts = column.drop_nulls().unique(maintain_order=True)
        places = pl.DataFrame({"text": column}).join(
            pl.DataFrame({"text": texts, "place": range(len(texts))}, schema={"text": pl.String, "place": pl.Int64}),
            on="text", how="left", maintain_order="left",
        )["place"]  # fmt: skip
        return {"texts": texts.to_list(), "places": places.to_list()}
    if column.dtype.is_float():
        # NaN and infinite numbers are not JSON.
        column = pl.select(pl.when(column.is_finite()).then(column.round_sig_figs(_DIGITS))).to_series()
        return [int(value) if value is not None and value.is_integer() else value for value in column.to_list()]
    return column.to_list()
