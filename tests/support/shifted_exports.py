"""Exports as nsys makes them with --ts-normalize and --ts-shift: of a report in the making, or of an export in any form."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import polars as pl

TIMES = ("start", "end", "timestamp", "rawTimestamp", "startedAt", "endedAt", "openedAt", "closedAt")

# What nsys 2023.4 and 2024.2 do: seen in exports that they made of one recording with different options.
_NOT_NORMALIZED = "MPI_COMMUNICATORS"
_NEITHER = "DIAGNOSTIC_EVENT"


def shifted_tables(tables: Mapping[str, pl.DataFrame], *, utc: int = 0, shift: int = 0) -> dict[str, pl.DataFrame]:
    """Tables of an export with --ts-normalize=true, where `utc` is the start of the session (0: without), and --ts-shift."""
    frames = {
        name: frame.with_columns(pl.col(column) + _added(name, utc, shift) for column in TIMES if column in frame.columns)
        for name, frame in tables.items()
    }
    metadata = frames["META_DATA_EXPORT"].filter(~pl.col("name").is_in(list(_metadata(utc, shift))))
    rows = pl.DataFrame(list(_metadata(utc, shift).items()), schema=metadata.schema, orient="row")
    return frames | {"META_DATA_EXPORT": pl.concat([metadata, rows])}


def shift_export(report: Path, out: Path, *, shift: int = 0, normalize: bool = False) -> Path:
    """Write a copy of an SQLite or Parquet export as nsys would have made it with other options."""
    if report.is_dir():
        frames = {file.stem: pl.read_parquet(file) for file in report.glob("*.parquet")}
        utc = int(frames["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"][0]) if normalize else 0
        out.mkdir(parents=True)
        for name, frame in shifted_tables(frames, utc=utc, shift=shift).items():
            frame.write_parquet(out / f"{name}.parquet")
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(report, out)
    with contextlib.closing(sqlite3.connect(out)) as database, database:
        utc = database.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME").fetchone()[0] if normalize else 0
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            columns = [column for (column,) in database.execute("select name from pragma_table_info(?)", (table,))]
            changed = [f'"{column}" = "{column}" + {_added(table, utc, shift)}' for column in TIMES if column in columns]
            if changed:
                database.execute(f'update "{table}" set {", ".join(changed)}')
        database.executemany("delete from META_DATA_EXPORT where name = ?", [(name,) for name in _metadata(utc, shift)])
        database.executemany("insert into META_DATA_EXPORT values (?, ?)", list(_metadata(utc, shift).items()))
    return out


def _added(table: str, utc: int, shift: int) -> int:
    return 0 if table == _NEITHER else shift if table == _NOT_NORMALIZED else utc + shift


def _metadata(utc: int, shift: int) -> dict[str, str]:
    return {
        "EXPORT_PARAM_TIME_NORMALIZE": "true" if utc else "false",
        "EXPORT_PARAM_TIME_SHIFT": str(shift),
        "EXPORT_CONFIG_TIME_SHIFT": str(utc + shift),
    }
