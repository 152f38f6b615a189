"""Frames enter; an SQLite export as nsys would write it leaves."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import polars as pl

from nsys2prv.demo.nsys_columns import COLUMNS
from nsys2prv.errors import OutputError

Tables = Mapping[str, pl.DataFrame]

_SQLITE_TYPES: dict[type[pl.DataType], str] = {pl.Int64: "INTEGER", pl.Float64: "REAL", pl.String: "TEXT", pl.Binary: "BLOB"}


def write_report(path: str | Path, tables: Tables) -> None:
    """Write an SQLite export; an existing file is replaced when the new one is complete.

    Parameters
    ----------
    path
        Where; usually ends in ``.sqlite``.
    tables
        A frame per table. Columns that `nsys2prv.demo.nsys_columns.COLUMNS` knows get the types declared there, others keep
        theirs; a column that a frame lacks is not in the table. Unsigned 64-bit numbers become the signed ones with the
        same bits, as nsys does it. A frame without columns leaves no table.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with adbc_driver_sqlite.dbapi.connect(str(part), autocommit=True) as database, database.cursor() as cursor:
            # Nobody reads the file before it is complete, so SQLite needs no journal.
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.execute("PRAGMA synchronous = OFF")
            for name, frame in tables.items():
                if frame.width == 0:
                    continue
                typed = as_sqlite_types(name, frame)
                columns = ", ".join(f"{_quoted(column)} {_sqlite_type(dtype)}" for column, dtype in typed.schema.items())
                cursor.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
                if typed.height:
                    cursor.adbc_ingest(name, typed.to_arrow(), mode="append")
        part.replace(path)
    except (OSError, adbc_driver_manager.Error, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise OutputError.not_writable(path, str(error)) from error


def as_sqlite_types(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with the types that SQLite has."""
    declared = COLUMNS.get(table, {})
    return frame.select(_signed_column(name, dtype, declared.get(name)) for name, dtype in frame.schema.items())


def _signed_column(name: str, dtype: pl.DataType, declared: type[pl.DataType] | None) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    if declared is not None:
        return column.cast(declared)
    if dtype in (pl.String, pl.Binary):
        return column
    return column.cast(pl.Float64 if dtype.is_float() else pl.Int64)


def _sqlite_type(dtype: pl.DataType) -> str:
    return _SQLITE_TYPES[dtype.base_type()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
