"""An SQLite export of which each table is read once: its columns are kept in files, and all else is answered from these.

The driver needs more time for a value than most steps after it, and most tables are needed several times: to survey them, for
their own events, and for events that are derived from them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
from adbc_driver_manager import AdbcConnection

from nsys2prv.errors import DamagedReport, NoResources, ReportError
from nsys2prv.execution import memory
from nsys2prv.execution.merging import Merging
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.row_order import is_constant
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.sizes import ROWS_OF_PART
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports.column_files import ColumnFile, StoredBatch, narrowest
from nsys2prv.exports.forms import NO_SELECTION, Schema, Selection, Stretch, frames_scan
from nsys2prv.exports.lookups import LOOKUPS
from nsys2prv.exports.sqlite_form import SQLITE_ERRORS, SqliteTables, converted, quoted
from nsys2prv.exports.sqlite_pages import Leaves, Pages, RowPages, Unusual, leaves

STORED_ROWS = 32_768
"""Rows that are read, stored and loaded at once."""
_MOST_PARTS = 16
"""Parts of one table at most: of a long report, what workers read at once."""
_LEAST_ROWS_OF_PAGES = 10_000
"""Rows from which pages are read: for few rows a query takes less time."""
_MOST_VALUES = 16_384
"""Distinct rows of some columns, or values of a column, that are kept for the sources that share a table."""
_REAL_TYPE = re.compile("real|floa|doub", re.IGNORECASE)
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
    is_last: bool = False  # of its table
    pages: RowPages | None = None  # that the rows are in, where they are known


@dataclass(frozen=True)
class _Stored:
    """A part that was stored: its rows, and whether all pages with rows of it were read for that."""

    batches: tuple[StoredBatch, ...]
    is_by_pages: bool


@dataclass(frozen=True)
class StoredTable:
    """Columns of a table, in the order of its rows: of each part of the table (None: the whole) its batches."""

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
        for batch in self.batches(stretch):
            rows = batch.load(places)
            for name, values in only.items():
                rows = _with_values(rows, name, values)
            yield pl.DataFrame([rows[name] for name in columns]) if only else rows


class StoredTables(SqliteTables):
    """An SQLite export: what was stored of its tables is read from files, all else from the database."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._stored: dict[str, StoredTable] = {}

    @property
    def stored(self) -> Mapping[str, StoredTable]:
        """Tables that are read from files."""
        return self._stored

    def delete_kept(self) -> None:
        paths = {batch.path for table in self._stored.values() for batch in table.batches()}
        self._stored = {}
        for path in paths:
            path.unlink(missing_ok=True)

    def row_counts(self, tables: Collection[str]) -> dict[str, int]:
        counted = super().row_counts([table for table in tables if table not in self._stored])
        return {table: self._stored[table].rows if table in self._stored else counted[table] for table in tables}

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        times = dict.fromkeys((begin, end), pl.Int64)
        stored = self._stored_with(table, times, only)
        if stored is None:
            return super().extent(table, begin, end, only)
        found = self._extents_by_value(stored, table, begin, end, *only.items()) if len(only) == 1 else None
        if found is None:
            extents = [_extent(frame, begin, end) for frame in stored.frames(times, only)]
            found = _summed(pl.concat([pl.DataFrame(schema=_EXTENT), *extents]))
        rows, first, last = found.row(0)
        self._check_first(table, begin, first)
        return rows, first, last

    def _extents_by_value(
        self, stored: StoredTable, table: str, begin: str, end: str, only: tuple[str, Sequence[int]]
    ) -> pl.DataFrame | None:
        """Extent of the rows with some values of a column, out of those of all its values; None where these are many.

        Sources that share a table are of different values of one column: the table is read once for all of them.
        """
        column, values = only

        def find() -> pl.DataFrame | None:
            empty = pl.DataFrame(schema={column: pl.Int64, **_EXTENT})
            frames = stored.frames(dict.fromkeys((column, begin, end)), NO_SELECTION)
            return _few((_extent(frame, begin, end, column) for frame in frames), partial(_summed, by=(column,)), empty)

        of_values = LOOKUPS.get(self, ("extents", table, begin, end, column), find)
        return None if of_values is None else _summed(of_values.filter(pl.col(column).is_in(values)))

    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        stored = self._stored_with(table, schema, only)
        if stored is None:
            return super().scan(table, schema, only, distinct=distinct)

        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            # Without a column a frame has no rows.
            read_columns = columns or list(schema)[:1]
            few = self._few_values(stored, table, read_columns, only) if distinct else None
            for frame in stored.frames(read_columns, only) if few is None else [few]:
                found = _distinct(frame) if distinct and few is None else frame
                yield _in_types(found, {name: schema[name] for name in read_columns})

        return frames_scan(read, schema)

    def _few_values(self, stored: StoredTable, table: str, columns: Collection[str], only: Selection) -> pl.DataFrame | None:
        """The distinct rows of columns of a table, found once for all sources that survey it; None where they are many."""
        names = sorted(columns)

        def find() -> pl.DataFrame | None:
            schema = {name: stored.schema[name] for name in names}
            frames = (_in_types(_distinct(frame), schema) for frame in stored.frames(names, only))
            return _few(frames, _distinct, pl.DataFrame(schema=schema))

        selected = tuple((column, tuple(values)) for column, values in only.items())
        return LOOKUPS.get(self, ("values", table, tuple(names), selected), find)

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

    def _stored_with(self, table: str, schema: Schema, only: Selection) -> StoredTable | None:
        """A table if all columns that are asked for are stored."""
        stored = self._stored.get(table)
        return stored if stored is not None and schema and stored.has(schema, only) else None

    def plan(self, needed: Needed) -> list[list[_Part]]:
        """What is stored by one thread each: a part of a long table, or all short tables together."""
        numbers = self._row_numbers(needed)
        rows = {table: last + 1 - first for table, (first, last) in numbers.items()}
        pages = self._pages({table: needed[table] for table, count in rows.items() if count >= _LEAST_ROWS_OF_PAGES})
        short: list[_Part] = []
        long: list[list[_Part]] = []
        for table, schema in needed.items():
            count = max(min(rows.get(table, 0) // ROWS_OF_PART, _MOST_PARTS), 1)
            if table in pages:
                columns, of_table = pages[table]
                in_parts = of_table.parts(count, numbers[table])
                found = [_Part(table, schema, stretch, pages=RowPages(columns, part)) for stretch, part in in_parts]
            else:
                found = [_Part(table, schema, stretch) for stretch in self.stretches(table, count)]
            found[-1] = replace(found[-1], is_last=True)
            if len(found) > 1:
                long += [[part] for part in found]
            else:
                short += found
        return [*long, short] if short else long

    def _pages(self, needed: Needed) -> dict[str, tuple[tuple[str, ...], Leaves]]:
        """Columns as they are in records, and pages, of tables whose pages are as they usually are."""
        found = {}
        try:
            with self._database() as database, Pages(self.path) as pages:
                roots = dict(database.execute("select name, rootpage from sqlite_master where type = 'table'"))
                for table, schema in needed.items():
                    columns = database.execute(f"pragma table_xinfo({quoted(table)})").fetchall()
                    # A key may be the number of the row; in a column of real numbers whole ones are real. Of columns that are
                    # computed some are in the records.
                    is_real = (schema.get(name) == pl.Int64 and _REAL_TYPE.search(kind) for _, name, kind, *_ in columns)
                    if not any(is_real) and not any(key or hidden for *_, key, hidden in columns):
                        with contextlib.suppress(Unusual):
                            found[table] = tuple(column[1] for column in columns), leaves(pages, roots[table])
        except (Unusual, *SQLITE_ERRORS):
            pass
        return found

    def store(self, parts: Sequence[_Part], path: Path, stop: Stop) -> list[_Stored | None]:
        """Store parts of tables in a file; None in the place of one that can't be read."""
        with ColumnFile(path) as file, contextlib.ExitStack() as opened:
            connect = functools.cache(lambda: opened.enter_context(self._connection()))
            return [self._store_part(part, connect, file, stop) for part in parts]

    def keep(self, parts: Sequence[tuple[_Part, _Stored | None]]) -> None:
        """Read from now on what was stored of all parts of a table; of a part that is not stored, it is not."""
        table, schema = parts[0][0].table, parts[0][0].schema
        stored = [(part.stretch, one.batches) for part, one in parts if one is not None]
        whole = StoredTable(schema, tuple(stored))
        in_parts = len(parts) > 1 and not all(one.is_by_pages for _, one in parts if one is not None)
        if len(stored) == len(parts) and (not in_parts or self._has_all_rows(table, whole.rows)):
            self._stored[table] = whole
        # Who needs a table that can't be read finds out why.
        self.failure = None

    def _has_all_rows(self, table: str, rows: int) -> bool:
        """Whether a table has so many rows: where it is damaged, SQLite may find fewer by their numbers than are there."""
        with contextlib.suppress(ReportError):
            return super().row_counts([table])[table] == rows
        return False

    def _store_part(self, part: _Part, connect: Callable[[], AdbcConnection], file: ColumnFile, stop: Stop) -> _Stored | None:
        for read in (self._by_pages, partial(self._by_driver, connect)):
            stored = []
            try:
                for batch in read(part):
                    stop.check()
                    memory.check()
                    stored.append(file.append(batch))
            except (Unusual, ReportError, NoResources):
                continue
            return _Stored(tuple(stored), read == self._by_pages)
        return None

    def _by_pages(self, part: _Part) -> Iterator[pa.RecordBatch]:
        """Rows of a part out of pages; Unusual when the driver has to read them."""
        if part.pages is None:
            raise Unusual("its pages are not known")
        with Pages(self.path) as pages:
            yield from part.pages.batches(pages, part.schema, memory.scaled(STORED_ROWS))

    def _by_driver(self, connect: Callable[[], AdbcConnection], part: _Part) -> Iterator[pa.RecordBatch]:
        """Rows of a part; DamagedReport when they are more than can be, or not what they should be."""
        rows = 0
        with self._driver_errors(part.table):
            for batch in self._query(connect(), part.table, part.schema, stretch=part.stretch, rows=STORED_ROWS):
                rows += batch.num_rows
                if rows * _LEAST_BYTES_OF_ROW > self._size:
                    raise DamagedReport(self.path, f"table {part.table}: it has more rows than fit into the file")
                if any(part.schema[field.name] == pl.Int64 and pa.types.is_floating(field.type) for field in batch.schema):
                    raise DamagedReport(self.path, f"table {part.table}: a number is no whole number")
                if batch.num_rows:
                    yield narrowest(converted(batch, part.schema))


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

    def store(tables: StoredTables, parts: Sequence[_Part], path: Path, stop: Stop) -> list[_Stored | None]:
        stored = tables.store(parts, path, stop)
        update(sum(part.is_last for part in parts))
        return stored

    planned = [(tables, parts) for tables, columns in needed.items() for parts in tables.plan(columns)]
    if planned:
        make_folder(folder)
    paths = (folder / f"columns{number}" for number in itertools.count())
    results = run_all(partial(store, tables, parts, path) for (tables, parts), path in zip(planned, paths, strict=False))
    of_table: dict[tuple[StoredTables, str], list[tuple[_Part, _Stored | None]]] = {}
    for (tables, parts), stored in zip(planned, results, strict=True):
        for part, one in zip(parts, stored, strict=True):
            of_table.setdefault((tables, part.table), []).append((part, one))
    for (tables, _), pairs in of_table.items():
        tables.keep(pairs)


def _is_inside(part: Stretch, whole: Stretch) -> bool:
    return whole[0] <= part[0] and part[1] <= whole[1]


_EXTENT = dict.fromkeys(("len", "first", "last"), pl.Int64)


def _extent(rows: pl.DataFrame, begin: str, end: str, *by: str) -> pl.DataFrame:
    """Columns `len`, `first`, `last` of all rows, or of those with each value of a column."""
    times = list(dict.fromkeys((begin, end)))
    extent = [pl.len(), pl.col(begin).min().alias("first"), pl.max_horizontal(pl.col(times).max()).alias("last")]
    if by and is_constant(rows[by[0]]) and len(rows):
        return rows.select(pl.col(by[0]).first(), *extent).cast(pl.Int64)
    return (rows.group_by(by).agg(extent) if by else rows.select(extent)).cast(pl.Int64)


def _summed(extents: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """The extent of all rows from those of some each; or by the values of a column."""
    whole = [pl.col("len").sum(), pl.col("first").min(), pl.col("last").max()]
    return extents.group_by(by).agg(whole) if by else extents.select(whole)


def _few(
    frames: Iterable[pl.DataFrame], merge: Callable[[pl.DataFrame], pl.DataFrame], empty: pl.DataFrame
) -> pl.DataFrame | None:
    """Frames, each of them merged, merged with each other; None where that has many rows."""
    merging = Merging(merge, empty, _MOST_VALUES)
    added = 0
    for frame in frames:
        merging.add(frame)
        added += 1
        if merging.least > _MOST_VALUES:
            return None
    # A merge of few rows takes as long as that of thousands.
    found = frame if added == 1 else merging.rows
    return found if found.height <= _MOST_VALUES else None


def _with_values(rows: pl.DataFrame, column: str, values: Sequence[int]) -> pl.DataFrame:
    """The rows with some values of a column."""
    # In most batches all rows are of one kind.
    if rows.height and is_constant(rows[column]):
        return rows if rows[column][0] in values else rows.clear()
    return rows.filter(pl.col(column).is_in(values))


def _distinct(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without those that are equal to another."""
    # What is the same in all rows, as nearly all columns are, need not be compared.
    differing = [column.name for column in rows.get_columns() if rows.height > 1 and not is_constant(column)]
    if differing:
        return rows.unique(differing)
    # Not a slice: it would keep the whole batch, which is mapped, until those of all other batches are there.
    return rows[[0]] if rows.height else rows.clear()


def _in_types(rows: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    # Column by column: a cast of the frame would wait for threads that are busy.
    return pl.DataFrame([rows[name].cast(dtype) for name, dtype in schema.items()])
