"""Copies of exports with the rows of every table in a random order."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow.parquet


def shuffled(report: Path, folder: Path, seed: int) -> Path:
    """A copy of an export in a folder, under its own name, with the rows of every table in a random order.

    Parameters
    ----------
    report
        An SQLite file or a folder of Parquet files.
    folder
        Where to write it; other than that of the report.
    seed
        Of the random order.
    """
    copy = folder / report.name
    (_shuffle_parquet if report.is_dir() else _shuffle_sqlite)(report, copy, random.Random(seed))
    return copy


def _shuffle_sqlite(report: Path, copy: Path, chance: random.Random) -> None:
    with contextlib.closing(sqlite3.connect(f"file:{copy}", uri=True)) as database:
        database.create_function("chance", 0, chance.random)
        database.execute("attach ? as original", (f"file:{report}?immutable=1",))
        database.execute("pragma synchronous = off")
        for (table,) in database.execute("select name from original.sqlite_master where type = 'table'").fetchall():
            # Without keys: a primary key of whole numbers would put the rows back in its order.
            columns = database.execute("select name, type from pragma_table_info(?, 'original')", (table,)).fetchall()
            declared = ", ".join(f'"{name}" {kind}' for name, kind in columns)
            database.execute(f'create table main."{table}" ({declared})')
            database.execute(f'insert into main."{table}" select * from original."{table}" order by chance()')
        database.commit()


def _shuffle_parquet(report: Path, copy: Path, chance: random.Random) -> None:
    copy.mkdir()
    for file in sorted(report.iterdir()):
        rows = pyarrow.parquet.read_table(file)
        order = np.random.default_rng(chance.getrandbits(64)).permutation(len(rows))
        # Several groups of rows, each with times of the whole run.
        pyarrow.parquet.write_table(rows.take(order), copy / file.name, row_group_size=max(1, len(rows) // 3))
