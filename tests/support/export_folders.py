"""Exports in other forms than SQLite: a folder of Parquet files or of Arrow files, as nsys writes them."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet

from nsys2prv.demo.nsys_tables import Tables, as_sqlite_types

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


def write_parquet_report(directory: str | Path, tables: Tables) -> None:
    """Write one ``TABLE.parquet`` per table into a new folder, ids of threads and processes unsigned, as nsys does it."""
    _write_folder(Path(directory), tables, ".parquet")


def write_arrow_report(directory: str | Path, tables: Tables) -> None:
    """Write one ``TABLE.arrow`` (Arrow IPC file format) per table; nsys' own names of such folders end in ``_arwdir``."""
    _write_folder(Path(directory), tables, ".arrow")


def _write_folder(directory: Path, tables: Tables, suffix: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, frame in tables.items():
        if frame.width:
            table, file = _bytes_as_text(_unsigned(name, frame)), str(directory / f"{name}{suffix}")
            if suffix == ".parquet":
                pyarrow.parquet.write_table(table, file)
            else:
                with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)


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


def _unsigned(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in the types that nsys gives to Parquet and Arrow."""
    signed = as_sqlite_types(table, frame)
    return signed.with_columns(
        # The same bits: ids of hardware above 127 are negative when signed.
        pl.col(name).reinterpret(signed=False) if name in _UNSIGNED else pl.col(name).cast(pl.Int32)
        for name in signed.columns
        if name in _UNSIGNED or name in _NARROW
    )


_COLUMNS = "select name, type from pragma_table_info(?)"


def tables_of(report: Path) -> dict[str, pl.DataFrame]:
    """All tables of an SQLite export, as `write_parquet_report` and `write_arrow_report` take them."""
    types = {"INTEGER": pl.Int64, "REAL": pl.Float64, "TEXT": pl.String, "BLOB": pl.Binary}
    with contextlib.closing(sqlite3.connect(f"file:{report}?immutable=1", uri=True)) as database:
        # Parquet and Arrow have no other texts.
        database.text_factory = lambda text: text.decode("utf-8", "replace")
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {
            name: pl.DataFrame(
                database.execute(f'select * from "{name}"').fetchall(),
                schema={column: types[kind] for column, kind in database.execute(_COLUMNS, (name,))},
                orient="row",
                infer_schema_length=None,
            )
            for name in names
        }
