"""Columns that were read of exports, kept for the next command: with `--cache`, an unchanged report is not read again.

In the cache are files of columns as `store_columns` writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.cache_folder import MOST_BYTES, CacheFolder, Described, Origin
from nsys2prv.execution.progress import no_progress
from nsys2prv.exports.column_files import StoredBatch
from nsys2prv.exports.forms import NO_SELECTION
from nsys2prv.exports.stored_tables import Needed, StoredTable, StoredTables, store_columns

_TYPES: Mapping[str, type[pl.DataType]] = {str(dtype()): dtype for dtype in (pl.Int64, pl.Float64, pl.String, pl.Binary)}


def store_or_take(
    needed: Mapping[StoredTables, Needed],
    folder: Path,
    cache: Path | None,
    update: Callable[[int], object] = no_progress,
) -> dict[StoredTables, str]:
    """`store_columns`, for what is not in a cache, which gets it; the result is why exports could not be kept.

    Parameters
    ----------
    needed, folder, update
        As of `store_columns`. What is taken from the cache is in the folder too: the cache may change meanwhile.
    cache
        The folder of `--cache`; None: there is no cache.

    Raises
    ------
    OutputError
        When others than the user can write in the cache.
    OSError
        When files can't be written in the folder.
    """
    if cache is None:
        store_columns(needed, folder, update)
        return {}
    kept = ColumnCache(cache)
    rest = {
        tables: kept.take(tables, columns, folder / f"kept{number}") for number, (tables, columns) in enumerate(needed.items())
    }
    update(sum(map(len, needed.values())) - sum(map(len, rest.values())))
    rest = {tables: columns for tables, columns in rest.items() if columns}
    store_columns(rest, folder, update)
    problems = {tables: kept.keep(tables, columns) for tables, columns in rest.items()}
    return {tables: problem for tables, problem in problems.items() if problem is not None}


class ColumnCache:
    """Columns of exports in the folder of `--cache`; parameters and errors are those of `CacheFolder`."""

    def __init__(self, cache: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = CacheFolder(cache, most_bytes)

    def take(self, tables: StoredTables, needed: Needed, folder: Path) -> dict[str, Any]:
        """Have an export use what is kept of it; the result are columns that have to be read, with all that were kept of their
        tables. Raises OSError when files can't be placed in the folder."""
        origin = _origin(tables)
        kept = _tables(self._folder.kept(origin), folder)
        missing = {
            table: schema for table, schema in needed.items() if table not in kept or not kept[table].has(schema, NO_SELECTION)
        }
        found = {table: kept[table] for table in needed.keys() - missing.keys()}
        names = {batch.path.name for table in found.values() for batch in table.batches()}
        lost = self._folder.place(origin, names, folder)
        whole = {table: one for table, one in found.items() if not any(batch.path.name in lost for batch in one.batches())}
        tables.adopt(whole)
        more = {table: {**(kept[table].schema if table in kept else {}), **schema} for table, schema in missing.items()}
        return {**more, **{table: kept[table].schema for table in found.keys() - whole.keys()}}

    def keep(self, tables: StoredTables, read: Needed) -> str | None:
        """Keep what was read of an export; the result is a sentence for the user when it can't be kept."""
        stored = {table: tables.stored[table] for table in read if table in tables.stored}
        paths = {batch.path for table in stored.values() for batch in table.batches()}
        return self._folder.keep(
            _origin(tables), paths, lambda names: {table: _as_json(one, names) for table, one in stored.items()}
        )


def _origin(tables: StoredTables) -> Origin:
    return Origin(tables.path, tables.stamps)


def _tables(kept: Described, folder: Path) -> dict[str, StoredTable]:
    """Tables that are kept, as they are when their files are in a folder."""
    return {
        table: StoredTable(
            {name: _TYPES[dtype] for name, dtype in one["schema"].items()},
            tuple(
                (
                    None if stretch is None else (stretch[0], stretch[1]),
                    tuple(StoredBatch(folder / name, *rest) for name, *rest in batches),
                )
                for stretch, batches in one["parts"]
            ),
        )
        for table, one in kept.items()
    }


def _as_json(table: StoredTable, names: Mapping[Path, str]) -> dict[str, Any]:
    parts = [[stretch, [[names[batch.path], *batch[1:]] for batch in batches]] for stretch, batches in table.parts]
    return {
        "files": sorted({names[batch.path] for batch in table.batches()}),
        "schema": {name: str(dtype()) for name, dtype in table.schema.items()},
        "parts": parts,
    }
