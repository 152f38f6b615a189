"""Frames come in; an export as nsys would have written it leaves: SQLite, or a folder of Parquet or Arrow files."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import polars as pl
import pyarrow as pa

from nsys2prv.demo.nsys_columns import COLUMNS
from nsys2prv.errors import OutputError

Tables = Mapping[str, pl.DataFrame]

# nsys writes these unsigned into Parquet and Arrow files, and signed into SQLite, which has no unsigned numbers.
_UNSIGNED = frozenset(
    {
        *("globalTid", "globalPid", "endGlobalTid", "globalVid", "pid", "utcEpochNs"),
        *("domainId", "rangeId", "category", "uint64Value"),
        *("commHandle", "parentHandle", "requestHandle"),
    }
)
# Likewise narrow there; most other numbers are 64 bits wide.
_NARROW = frozenset(
    {
        *("rank", "localRank", "groupRoot", "groupRootUid", "tag", "remoteRank", "rootRank"),
        *("timestampType", "source", "severity", "nameEnum", "int32Value"),
    }
)

_SQLITE_TYPES: dict[type[pl.DataType], str] = {pl.Int64: "INTEGER", pl.Float64: "REAL", pl.String: "TEXT", pl.Binary: "BLOB"}


def write_report(path: str | Path, tables: Tables) -> None:
    """Write an SQLite export; a file that is there already is replaced when the new one is complete.

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
        When the file can't be written.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with adbc_driver_sqlite.dbapi.connect(str(part), autocommit=True) as database, database.cursor() as cursor:
            # Nobody reads the file before it is complete, so SQLite need not be able to take anything back.
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.execute("PRAGMA synchronous = OFF")
            for name, frame in tables.items():
                if frame.width == 0:
                    continue
                typed = _signed(name, frame)
                columns = ", ".join(f"{_quoted(column)} {_sqlite_type(dtype)}" for column, dtype in typed.schema.items())
                cursor.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
                if typed.height:
                    cursor.adbc_ingest(name, typed.to_arrow(), mode="append")
        part.replace(path)
    except (OSError, adbc_driver_manager.Error, sqlite3.Error) as error:
        part.unlink(missing_ok=True)
        raise OutputError.not_writable(path, str(error)) from error


def write_parquet_report(directory: str | Path, tables: Tables) -> None:
    """Write one ``TABLE.parquet`` per table, ids of threads and processes unsigned, as nsys does it.

    Parameters
    ----------
    directory
        Where; nsys' own names end in ``_pqtdir``. A folder that is there already is replaced.
    tables
        As in `write_report`.

    Raises
    ------
    OutputError
        When the files can't be written.
    """
    _write_folder(Path(directory), tables, ".parquet", _write_parquet)


def write_arrow_report(directory: str | Path, tables: Tables) -> None:
    """Write one ``TABLE.arrow`` (Arrow IPC file format) per table; else as `write_parquet_report`.

    nsys' own names of such folders end in ``_arwdir``.
    """
    _write_folder(Path(directory), tables, ".arrow", _write_arrow)


def _write_parquet(frame: pl.DataFrame, file: Path) -> None:
    if pl.Binary in frame.dtypes:
        import pyarrow.parquet

        pyarrow.parquet.write_table(_bytes_as_text(frame), file)
    else:
        frame.write_parquet(file)


def _write_arrow(frame: pl.DataFrame, file: Path) -> None:
    if pl.Binary in frame.dtypes:
        table = _bytes_as_text(frame)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        frame.write_ipc(file)


def _bytes_as_text(frame: pl.DataFrame) -> pa.Table:
    """A frame whose bytes are declared to be text, as nsys does it."""
    columns = {}
    for column in frame.rechunk().get_columns():
        array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
        if column.dtype == pl.Binary:
            valid, offsets, data = array.buffers()
            array = pa.LargeStringArray.from_buffers(len(array), offsets, data, valid, array.null_count, array.offset)
        columns[column.name] = array
    return pa.table(columns)


def _write_folder(directory: Path, tables: Tables, suffix: str, write: Callable[[pl.DataFrame, Path], None]) -> None:
    part = directory.with_name(f"{directory.name}.part")
    try:
        for folder in (part, directory):
            if folder.exists():
                shutil.rmtree(folder)
        part.mkdir(parents=True)
        for name, frame in tables.items():
            if frame.width:
                write(_unsigned(name, frame), part / f"{name}{suffix}")
        part.rename(directory)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise OutputError.not_writable(directory, str(error)) from error


def _signed(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in the types that SQLite has."""
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


def _unsigned(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in the types that nsys gives to Parquet and Arrow."""
    signed = _signed(table, frame)
    return signed.with_columns(
        # The same bits: ids of hardware above 127 are negative when signed.
        pl.col(name).reinterpret(signed=False) if name in _UNSIGNED else pl.col(name).cast(pl.Int32)
        for name in signed.columns
        if name in _UNSIGNED or name in _NARROW
    )


def _sqlite_type(dtype: pl.DataType) -> str:
    return _SQLITE_TYPES[dtype.base_type()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
