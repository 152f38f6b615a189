"""Numbers of a report as texts: the ENUM_* tables, which differ between versions of nsys."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports.columns import Text
from nsys2prv.exports.lookups import once
from nsys2prv.exports.report import Report


def enum_labels(report: Report, table: str, known: Mapping[int, str] | None = None) -> dict[int, str]:
    """Label of each number of an ENUM_* table.

    Parameters
    ----------
    report
        The report.
    table
        Name of the table; need not be there.
    known
        Labels that traces have for numbers, whatever the report calls them.
    """
    return {**_read(report, table), **(known or {})}


def labelled(column: str, labels: Mapping[int, str], what: str) -> pl.Expr:
    """The label of each number in a column; ``what`` and the number where there is none, null for no number."""
    number = pl.col(column)
    label = number.replace_strict(dict(labels), default=None, return_dtype=pl.String)
    return pl.coalesce(label, pl.format(f"{what} {{}}", number))


@once
def _read(report: Report, table: str) -> dict[int, str]:
    entries = report.read(table, optional=("id", Text("name"), Text("label")))
    return dict(drop_duplicates(entries.select("id", label=pl.coalesce("label", "name")).drop_nulls(), "id").iter_rows())
