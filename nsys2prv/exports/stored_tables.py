"""An SQLite export of which each table is read once: its columns are kept in files, and all else is answered from these.

The driver needs more time for a value than most steps after it, and most tables are needed several times: to survey them, for
their own events, and for events that are derived from them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import adbc_driver_manager
import polars as pl
import pyarrow as pa

from nsys2prv.errors import DamagedReport, ReportError
from nsys2prv.execution import memory
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.sizes import ROWS_OF_PART
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports.column_files import ColumnFile, StoredBatch
from nsys2prv.exports.forms import Schema, Selection, Stretch, frames_scan
from nsys2prv.exports.sqlite_form import SqliteTables, converted

STORED_ROWS = 65_536
"""Rows that are read, stored and loaded at once."""
_MOST_PARTS = 16
"""Parts of one table at most: of a long report, what workers read at once."""
_LEAST_BYTES_OF_ROW = 5
"""A row takes at least so much of a database: its place in a page, its length, its number, the length of its head."""

Needed = Mapping[str, Schema]
"""Columns that are needed of each table."""


@dataclass(frozen=True)
class _Part:
    """A table, or a part of its rows, that one thread stores."""

    table: str
    schema: Schema
    stretch: Stretch | None = None
    is_last: bool = True  # of its table


@dataclass(frozen=True)
class _StoredTable:
    """Columns of a table, in the order of its rows."""

    schema: Schema
    parts: tuple[tuple[Stretch | None, tuple[StoredBatch, ...]], ...]

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches())

    def batches(self, stretch: Stretch | None = None) -> list[StoredBatch]:
        """Batches of the parts inside a stretch; None: all."""
        inside = (batches for part, batches in self.parts if stretch is None or part is None or _is_inside(part, stretch))
        return list(itertools.chain.from_iterable(inside))

    def has(self, schema: Schema, only: Selection) -> bool:
        """Whether all columns that are asked for are stored, in these types."""
        asked = {**dict.fromkeys(only, pl.Int64), **schema}
        return all(self.schema.get(name) == dtype for name, dtype in asked.items())

    def frames(self, columns: Collection[str], only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        """Columns (at least one) of the rows with the values of `only`, batch by batch, in the types in the files."""
        needed = {*columns, *only}
        places = [place for place, name in enumerate(self.schema) if name in needed]
        selected = [pl.col(name).is_in(values) for name, values in only.items()]
        for batch in self.batches(stretch):
            rows = batch.load(places)
            yield rows.filter(selected).select(list(columns)) if selected else rows


class StoredTables(SqliteTables):
    """An SQLite export: what was stored of its tables is read from files, all else from the database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._stored: dict[str, _StoredTable] = {}

    def row_counts(self, tables: Collection[str]) -> dict[str, int]:
        counted = super().row_counts([table for table in tables if table not in self._stored])
        return {table: self._stored[table].rows if table in self._stored else counted[table] for table in tables}

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        times = dict.fromkeys((begin, end), pl.Int64)
        stored = self._stored_with(table, times, only)
        if stored is None:
            return super().extent(table, begin, end, only)
        frames = [
            frame.select(pl.len(), first=pl.col(begin).min(), last=pl.max_horizontal(pl.col(list(times)).max())).cast(pl.Int64)
            for frame in stored.frames(times, only)
        ]
        schema = dict.fromkeys(("len", "first", "last"), pl.Int64)
        found = pl.concat([pl.DataFrame(schema=schema), *frames])
        rows, first, last = found.select(pl.col("len").sum(), pl.col("first").min(), pl.col("last").max()).row(0)
        self._check_first(table, begin, first)
        return rows, first, last

    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        stored = self._stored_with(table, schema, only)
        if stored is None:
            return super().scan(table, schema, only, distinct=distinct)

        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            # Without a column a frame has no rows.
            read_columns = columns or list(schema)[:1]
            for frame in stored.frames(read_columns, only):
                yield _in_types(_distinct(frame) if distinct else frame, {name: schema[name] for name in read_columns})

        return frames_scan(read, schema)

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        stored = self._stored.get(table)
        if stored is None:
            return super().stretches(table, count)
        # Of row numbers in the database, as they are for a table that is not stored: some of its columns may not be.
        parts = [stretch for stretch, _ in stored.parts if stretch is not None]
        groups = min(count, len(parts))
        if groups < 2:
            return [None]
        edges = [len(parts) * group // groups for group in range(groups + 1)]
        return [(parts[first][0], parts[behind - 1][1]) for first, behind in itertools.pairwise(edges)]

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        stored = self._stored_with(table, schema, only)
        if stored is None:
            yield from super().batches(table, schema, only, stretch)
        else:
            for frame in stored.frames(schema, only, stretch):
                yield _in_types(frame, schema)

    def _stored_with(self, table: str, schema: Schema, only: Selection) -> _StoredTable | None:
        """A table if all columns that are asked for are stored."""
        stored = self._stored.get(table)
        return stored if stored is not None and schema and stored.has(schema, only) else None

    def plan(self, needed: Needed) -> list[list[_Part]]:
        """What is stored by one thread each: a part of a long table, or all short tables together."""
        numbers = self._row_numbers(needed)
        short: list[_Part] = []
        long: list[list[_Part]] = []
        for table, schema in needed.items():
            first, last = numbers.get(table, (1, 0))
            count = min((last + 1 - first) // ROWS_OF_PART, _MOST_PARTS)
            if count > 1:
                stretches = self.stretches(table, count)
                long += [[_Part(table, schema, stretch, stretch is stretches[-1])] for stretch in stretches]
            else:
                short.append(_Part(table, schema))
        return [*long, short] if short else long

    def store(self, parts: Sequence[_Part], path: Path, stop: Stop) -> list[tuple[StoredBatch, ...] | None]:
        """Store parts of tables in a file; None in the place of one that can't be read."""
        with ColumnFile(path) as file, contextlib.ExitStack() as connections:
            connection: adbc_driver_manager.AdbcConnection | None = None
            with contextlib.suppress(ReportError), self._driver_errors(parts[0].table):
                connection = connections.enter_context(self._connection())
            return [self._store_part(connection, part, file, stop) for part in parts] if connection else [None] * len(parts)

    def keep(self, stored: Iterable[tuple[_Part, tuple[StoredBatch, ...] | None]]) -> None:
        """Read from now on what was stored; a table of which a part is not is read from the database."""
        for table, parts in itertools.groupby(stored, key=lambda one: one[0].table):
            found = list(parts)
            batches = [(part.stretch, of_part) for part, of_part in found if of_part is not None]
            if len(batches) == len(found):
                self._stored[table] = _StoredTable(found[0][0].schema, tuple(batches))
        # Who needs a table that can't be read finds out why.
        self.failure = None

    def _store_part(
        self, connection: adbc_driver_manager.AdbcConnection, part: _Part, file: ColumnFile, stop: Stop
    ) -> tuple[StoredBatch, ...] | None:
        batches: list[StoredBatch] = []
        try:
            for rows in self._whole_numbers(connection, part):
                stop.check()
                memory.check()
                if rows.height:
                    batches.append(file.append(rows))
        except ReportError:
            return None
        return tuple(batches)

    def _whole_numbers(self, connection: adbc_driver_manager.AdbcConnection, part: _Part) -> Iterator[pl.DataFrame]:
        """Rows of a part; DamagedReport when they are more than can be, or not what they should be."""
        rows = 0
        with self._driver_errors(part.table):
            for batch in self._query(connection, part.table, part.schema, stretch=part.stretch, rows=STORED_ROWS):
                rows += batch.num_rows
                if rows * _LEAST_BYTES_OF_ROW > self._size:
                    raise DamagedReport(self.path, f"table {part.table}: it has more rows than fit into the file")
                if any(part.schema[field.name] == pl.Int64 and pa.types.is_floating(field.type) for field in batch.schema):
                    raise DamagedReport(self.path, f"table {part.table}: a number is no whole number")
                yield converted(batch, part.schema)


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

    def store(tables: StoredTables, parts: Sequence[_Part], path: Path, stop: Stop) -> list[tuple[StoredBatch, ...] | None]:
        stored = tables.store(parts, path, stop)
        update(sum(part.is_last for part in parts))
        return stored

    planned = [(tables, parts) for tables, columns in needed.items() for parts in tables.plan(columns)]
    if planned:
        make_folder(folder)
    paths = (folder / f"columns{number}" for number in itertools.count())
    results = run_all(partial(store, tables, parts, path) for (tables, parts), path in zip(planned, paths, strict=False))
    for tables, of_tables in itertools.groupby(zip(planned, results, strict=True), key=lambda one: one[0][0]):
        tables.keep(itertools.chain.from_iterable(zip(parts, stored, strict=True) for (_, parts), stored in of_tables))


def _is_inside(part: Stretch, whole: Stretch) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


def _distinct(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without those that are equal to another."""
    # What is the same in all rows, as nearly all columns are, need not be compared.
    differing = [column.name for column in rows.get_columns() if not _is_constant(column)]
    return rows.unique(differing) if differing else rows.head(1)


def _is_constant(column: pl.Series) -> bool:
    nulls = column.null_count()
    return nulls == len(column) or (not nulls and column.dtype.is_numeric() and column.min() == column.max())


def _in_types(rows: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    # Column by column: a cast of the frame would wait for threads that are busy.
    return pl.DataFrame([rows[name].cast(dtype) for name, dtype in schema.items()])
