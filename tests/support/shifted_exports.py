"""Exports as nsys makes them with --ts-normalize and --ts-shift: of a report in the making, or of an export in any form."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from nsys2prv.demo import write_report
from support.export_folders import tables_of, write_parquet_report

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
    tables = {file.stem: pl.read_parquet(file) for file in report.glob("*.parquet")} if report.is_dir() else tables_of(report)
    utc = int(tables["TARGET_INFO_SESSION_START_TIME"]["utcEpochNs"][0]) if normalize else 0
    (write_parquet_report if report.is_dir() else write_report)(out, shifted_tables(tables, utc=utc, shift=shift))
    return out


def _added(table: str, utc: int, shift: int) -> int:
    return 0 if table == _NEITHER else shift if table == _NOT_NORMALIZED else utc + shift


def _metadata(utc: int, shift: int) -> dict[str, str]:
    return {
        "EXPORT_PARAM_TIME_NORMALIZE": "true" if utc else "false",
        "EXPORT_PARAM_TIME_SHIFT": str(shift),
        "EXPORT_CONFIG_TIME_SHIFT": str(utc + shift),
    }
