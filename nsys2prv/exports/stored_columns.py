"""An SQLite export of which each table is read once: its columns are kept in files, and all else is answered from these.

The driver needs more time for a value than most steps after it, and most tables are needed several times: to survey them, for
their own events, and for events that are derived from them.

A file has batches of rows, each a separate Arrow stream with the narrowest types that hold its numbers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa

from nsys2prv.errors import NoResources, ReportError
from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import StoredRows, in_types, store_rows
from nsys2prv.execution.memory import ROWS_OF_PART
from nsys2prv.execution.output_files import make_folder, remove_file
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.progress import no_progress
from nsys2prv.exports.sqlite_pages import Leaves, Pages, UnsupportedPage, find_leaves, read_rows
from nsys2prv.exports.sqlite_tables import SqliteTables, quoted
from nsys2prv.exports.tables import Schema, Selection, Stretch, selected_rows

STORED_ROWS = 32_768
"""Rows that are read, stored and loaded at once."""
_MOST_PARTS = 16
"""Parts of one table at most: of a long report, what workers read at once."""
_LEAST_ROWS_OF_PAGES = 10_000
"""Rows from which pages are read: for few rows a query takes less time."""

Needed = Mapping[str, Schema]
"""Columns that are needed of each table."""


@dataclass
class _Part:
    """A table, or a part of its rows (None: all), that one thread stores, and its batches when it is stored."""

    table: str
    schema: Schema
    stretch: Stretch | None
    leaves: Leaves | None = None  # with the rows, where they can be read
    is_last: bool = False  # of its table
    batches: list[StoredRows] | None = None

    def frames(self, schema: Schema, only: Selection) -> Iterator[pl.DataFrame]:
        """Columns (at least one) of the rows with the values of `only`, batch by batch."""
        places = [place for place, name in enumerate(self.schema) if name in schema or name in only]
        for batch in self.batches or ():
            yield in_types(selected_rows(batch.load(places), only), schema)


class StoredTables(SqliteTables):
    """An SQLite export: what was stored of its tables is read from files, all else from the database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stored: dict[str, list[_Part]] = {}
        self._read_by_number: set[str] = set()

    def row_count(self, table: str) -> int:
        return _rows_of(self.stored[table]) if table in self.stored else super().row_count(table)

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        if table not in self.stored:
            return super().stretches(table, count)
        # Of row numbers in the database: some columns may not be stored.
        stretches = [part.stretch for part in self.stored[table] if part.stretch is not None]
        groups = min(count, len(stretches))
        if groups < 2:
            return [None]
        edges = [len(stretches) * group // groups for group in range(groups + 1)]
        return [(stretches[first][0], stretches[behind - 1][1]) for first, behind in itertools.pairwise(edges)]

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        columns = {**dict.fromkeys(only, pl.Int64), **schema}
        parts = self.stored.get(table, [])
        if not schema or not parts or not columns.items() <= parts[0].schema.items():
            return super().batches(table, schema, only, stretch)
        inside = [part for part in parts if _is_inside(part.stretch, stretch)]
        return itertools.chain.from_iterable(part.frames(schema, only) for part in inside)

    def delete_kept(self) -> None:
        paths = {batch.path for parts in self.stored.values() for part in parts for batch in part.batches or ()}
        self.stored = {}
        for path in paths:
            remove_file(path)

    def plan(self, needed: Needed) -> list[list[_Part]]:
        """What is stored by one thread each: a part of a long table, or all short tables together."""
        numbers = self.row_numbers(needed)
        leaves = self._leaves(numbers)
        short: list[_Part] = []
        long: list[list[_Part]] = []
        for table, schema in needed.items():
            first, last = numbers.get(table, (1, 0))
            count = max(min((last + 1 - first) // ROWS_OF_PART, _MOST_PARTS), 1)
            if table in leaves:
                split = leaves[table].split(count)
                parts = [_Part(table, schema, part.stretch if len(split) > 1 else None, part) for part in split]
            else:
                parts = [_Part(table, schema, stretch) for stretch in self.stretches(table, count)]
            parts[-1].is_last = True
            if len(parts) > 1:
                long += [[part] for part in parts]
            else:
                short += parts
        return [*long, short] if short else long

    def _leaves(self, numbers: Mapping[str, Stretch]) -> dict[str, Leaves]:
        """Pages with the rows of long tables whose records are as they usually are."""
        leaves = {}
        with suppress(UnsupportedPage, ReportError, OSError), self.database() as database, Pages(self.path) as pages:
            roots = dict(database.execute("select name, rootpage from sqlite_master where type = 'table'"))
            for table, (first, last) in numbers.items():
                if last + 1 - first < _LEAST_ROWS_OF_PAGES:
                    continue
                columns = database.execute(f"pragma table_xinfo({quoted(table)})").fetchall()
                # A key may be the number of the row. Of columns that are computed some are in the records.
                if not any(key or hidden for *_, key, hidden in columns):
                    with suppress(UnsupportedPage):
                        names = tuple(name for _, name, *_ in columns)
                        leaves[table] = find_leaves(pages, roots[table], names, (first, last))
        return leaves

    def store(self, parts: Sequence[_Part], path: Path, stop: Stop) -> None:
        """Store parts of tables in a file; one that can't be read gets no batches."""
        with pa.OSFile(str(path), "wb") as file:
            for part in parts:
                # Who needs a table that can't be read finds out why.
                with suppress(ReportError, NoResources):
                    batches = []
                    for rows in self._rows(part):
                        stop.check()
                        batches.append(store_rows(rows, file, path))
                    part.batches = batches

    def _rows(self, part: _Part) -> Iterator[pl.DataFrame]:
        """Rows of a part: out of pages as far as these are as usual, then by the driver."""
        stretch = part.stretch
        if part.leaves is not None:
            with suppress(UnsupportedPage, OSError), Pages(self.path) as pages:
                for leaves in part.leaves.batches(pages, memory.scaled(STORED_ROWS)):
                    yield read_rows(pages, leaves, part.schema)
                    stretch = leaves.stretch[1] + 1, part.leaves.stretch[1]
        if stretch is None or stretch[0] <= stretch[1]:
            if stretch is not None:
                self._read_by_number.add(part.table)
            batches = self.query(part.table, part.schema, {}, stretch, STORED_ROWS)
            yield from (rows for rows in batches if rows.height)

    def use(self, parts: Sequence[_Part]) -> None:
        """Read tables from their stored parts from now on, where these are all of a table."""
        for table in {part.table: None for part in parts}:
            stored = [part for part in parts if part.table == table]
            # Where it is damaged, SQLite may find fewer rows by their numbers than are there.
            with suppress(ReportError):
                if all(part.batches is not None for part in stored) and (
                    table not in self._read_by_number or _rows_of(stored) == super().row_count(table)
                ):
                    self.stored[table] = stored


def store_columns(needed: Mapping[StoredTables, Needed], folder: Path, update: Callable[[int], object] = no_progress) -> None:
    """Read columns of exports, each table once, and store them: from then on they are read from the folder.

    A table that can't be read is left to who needs it, with the error that it gets.

    Parameters
    ----------
    needed
        Columns that are needed of each export.
    folder
        For the files, made when it is needed. It must stay as long as the exports are in use.
    update
        Called with numbers of tables that are done.

    Raises
    ------
    OSError
        When files can't be written.
    """

    def store(tables: StoredTables, parts: Sequence[_Part], path: Path, stop: Stop) -> None:
        tables.store(parts, path, stop)
        update(sum(part.is_last for part in parts))

    work = [(tables, parts) for tables, columns in needed.items() for parts in tables.plan(columns)]
    if work:
        make_folder(folder)
    run_all(partial(store, tables, parts, folder / f"columns{number}") for number, (tables, parts) in enumerate(work))
    for tables in needed:
        tables.use([part for of_tables, parts in work if of_tables is tables for part in parts])


def _rows_of(parts: Sequence[_Part]) -> int:
    return sum(batch.height for part in parts for batch in part.batches or ())


def _is_inside(part: Stretch | None, stretch: Stretch | None) -> bool:
    return part is None or stretch is None or (stretch[0] <= part[0] and part[1] <= stretch[1])
