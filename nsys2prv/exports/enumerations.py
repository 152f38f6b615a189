"""Numbers of a report as texts: the ENUM_* tables, which differ between versions of nsys."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text


def labels_of(report: Report, table: str, known: Mapping[int, str] | None = None) -> dict[int, str]:
    """Label of each number of an ENUM_* table.

    Parameters
    ----------
    report
        The report.
    table
        Name of the table; it need not be there.
    known
        Labels for numbers that the table does not have.
    """
    entries = report.collect(report.scan(table, optional=("id", Text("name"), Text("label"))))
    told = entries.select("id", label=pl.coalesce("label", "name")).drop_nulls()
    return {**(known or {}), **dict(told.iter_rows())}


def labelled(column: str, labels: Mapping[int, str], what: str) -> pl.Expr:
    """The label of each number in a column; ``what`` and the number where there is none, null for no number."""
    number = pl.col(column)
    told = number.replace_strict(dict(labels), default=None, return_dtype=pl.String)
    return pl.coalesce(told, pl.format(f"{what} {{}}", number))
