"""SQLite exports, read through ADBC, in bounded batches; nothing of a report is run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sqlite3
import sys
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl
import pyarrow as pa

from nsys2prv.errors import DamagedReport, NotAReport, UnfinishedReport
from nsys2prv.execution import memory
from nsys2prv.exports.columns import decoded
from nsys2prv.exports.forms import (
    BATCH_ROWS,
    EXPORT_TABLES,
    NO_SELECTION,
    Schema,
    Selection,
    Stretch,
    Tables,
    frames_scan,
    read_error,
)
from nsys2prv.exports.idle_connections import IdleConnections
from nsys2prv.vocabulary.limits import LONGEST_NAME, LONGEST_TEXT, MOST_TABLES

_NAME_OF_NSYS = re.compile("[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
"""Names of tables with events, such as NVTX_EVENTS."""
SQLITE_START = b"SQLite format 3\x00"
"""First bytes of a database."""
_UTF_8 = (0, 1)
"""What a database says of its texts; 0 where it has no table yet."""
_UNFINISHED = {"-wal": (32, (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")), "-journal": (512, (b"\xd9\xd5\x05\xf9",))}
"""Files beside a database with rows that it lacks, or with what was there before a change that is not complete: bytes of their
headers, and their first bytes. SQLite overwrites these when all is in the database."""


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What queries raise: also names in messages of SQLite can be no UTF-8."""
STEPS_PER_BYTE = 16
"""Steps of SQLite's machine that a query may take, for each byte of a file: a row of a query takes some ten, and a row some ten
bytes."""
_STEPS_BETWEEN_CHECKS = 1_000_000
_DRIVER_ERRORS = {
    "integer overflow": f"a text of more than {LONGEST_TEXT:,} bytes",
    "Type mismatch": "a value in a column of whole numbers is no whole number",
}
"""What is reported for errors of the driver, by what they say."""
_PERMITTED = {
    sqlite3.SQLITE_SELECT: None,
    sqlite3.SQLITE_READ: None,
    sqlite3.SQLITE_FUNCTION: ("count", "min", "max", "sum", "ifnull"),
    sqlite3.SQLITE_PRAGMA: ("table_info", "table_xinfo"),
}
"""What queries may do, and with which functions and pragmas."""
_DATABASES: IdleConnections[sqlite3.Connection] = IdleConnections()
_CONNECTIONS: IdleConnections[adbc_driver_manager.AdbcConnection] = IdleConnections()


class SqliteTables(Tables):
    """An SQLite export, read through ADBC; NotAReport or DamagedReport when the file is no database, or not all of one."""

    form = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # immutable: nothing is created beside the export, which may lie in a folder that can't be written. It also means that
        # neither locks nor the files beside it are looked at.
        self._uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
        self._seen = self._stamps()
        self._check_complete()
        self._check_size()
        self._counts: dict[str, int] = {}
        _ = self._columns

    def _files_of_export(self) -> list[Path]:
        return [self.path]

    def _check_complete(self) -> None:
        """Raise UnfinishedReport when rows are in the files that SQLite has beside a database while it is written."""
        real = self.path.resolve()
        for suffix, (head, starts) in _UNFINISHED.items():
            beside = real.with_name(f"{real.name}{suffix}")
            try:
                with beside.open("rb") as file:
                    content = file.read(head + 1)
            except FileNotFoundError:
                continue
            if len(content) > head and content.startswith(starts):
                raise UnfinishedReport(
                    self.path,
                    f"some of its rows are in {beside.name} only, by a program that still writes or was interrupted",
                    f"wait for that program, or have SQLite complete the file: sqlite3 {self.path.name} vacuum",
                )

    def _check_size(self) -> None:
        with self.path.open("rb") as file:
            head = file.read(100)
        if not head.startswith(SQLITE_START):
            raise NotAReport(self.path, "this file is not an SQLite database")
        if int.from_bytes(head[56:60], "big") not in _UTF_8:
            raise NotAReport(self.path, "its texts are UTF-16, and nsys writes UTF-8: use the export as nsys wrote it")
        page_size = int.from_bytes(head[16:18], "big")
        expected = (65_536 if page_size == 1 else page_size) * int.from_bytes(head[28:32], "big")
        actual = self.path.stat().st_size
        if actual < expected:
            raise DamagedReport(self.path, f"{actual} of {expected} bytes are there")

    @cached_property
    def _columns(self) -> dict[str, frozenset[str]]:
        try:
            with self._database() as database:
                names = self._table_names(database)
                return {
                    sys.intern(name): _one_of_equal(
                        frozenset(column for _, column, *_ in database.execute(f"pragma table_info({quoted(name)})"))
                    )
                    for name in names
                }
        except SQLITE_ERRORS as error:
            raise read_error(self.path, error) from error

    def _table_names(self, database: sqlite3.Connection) -> list[str]:
        """Tables with rows: what a view or a virtual table does is up to whoever wrote the file, and may take for ever."""
        names = []
        for name, sql in database.execute("select name, sql from sqlite_master where type in ('table', 'view') order by rowid"):
            if not isinstance(name, str) or not name.isprintable() or len(name) > LONGEST_NAME:
                raise DamagedReport(self.path, f"{name!r:.50} is no name of a table")
            if isinstance(sql, str) and sql.startswith("CREATE TABLE"):
                names.append(name)
            elif _NAME_OF_NSYS.fullmatch(name) or name in EXPORT_TABLES:
                raise NotAReport(self.path, f"{name} is a view or a virtual table, and nsys writes tables")
            if len(names) > MOST_TABLES:
                raise NotAReport(self.path, f"it has more than {MOST_TABLES:,} tables")
        return names

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """The database for queries over tables: nothing else of it is run, and no query goes on for longer than rows can
        take that fit into the file."""
        with _DATABASES.borrowed(self._key, self._opened) as database:
            steps = itertools.count(1)
            most = 1 + STEPS_PER_BYTE * self._size // _STEPS_BETWEEN_CHECKS
            database.set_progress_handler(lambda: next(steps) > most, _STEPS_BETWEEN_CHECKS)
            yield database

    def _opened(self) -> AbstractContextManager[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise read_error(self.path, error) from error
        database.set_authorizer(_permitted)
        if sys.version_info >= (3, 11):
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
        return contextlib.closing(database)

    @property
    def _key(self) -> Hashable:
        """What no other database has, nor the same one after a change."""
        return self._uri, *self._seen

    @property
    def _size(self) -> int:
        """Size of the file when it was opened, bytes."""
        return sum(size for _, size, _ in self._seen)

    def _row(self, query: str) -> tuple[Any, ...]:
        with self._database() as database:
            found: tuple[Any, ...] = database.execute(query).fetchone()
            return found

    def names(self) -> frozenset[str]:
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        return self._columns[table]

    def row_counts(self, tables: Collection[str]) -> dict[str, int]:
        # Not count(*), which heeds no limit.
        with self._database() as database:
            for table in tables:
                if table not in self._counts:
                    try:
                        (rows,) = database.execute(f"select ifnull(sum(1), 0) from {quoted(table)} not indexed").fetchone()
                    except SQLITE_ERRORS as error:
                        raise read_error(self.path, error, table) from error
                    if rows > self._size:
                        raise DamagedReport(self.path, f"table {table}: it has more rows than the file has bytes")
                    self._counts[table] = rows
        return {table: self._counts[table] for table in tables}

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        # The greater of two maxima: one of two columns in each row would take five times as long.
        # With the name of the table, or SQLite would take the name of a column that is not there for a text.
        first, *last = (f"{quoted(table)}.{quoted(column)}" for column in dict.fromkeys((begin, end)))
        times = ", ".join(f"max({column})" for column in (first, *last))
        try:
            self.row_counts([table])
            query = f"select count(*), min({first}), {times} from {quoted(table)} not indexed{_where(only)}"
            rows, earliest, *lasts = self._row(query)
            if not all(isinstance(time, int | None) for time in (earliest, *lasts)):
                raise DamagedReport(self.path, f"table {table}: a time in {begin} or {end} is no whole number")
            self._check_first(table, begin, earliest)
            return int(rows), earliest, max((last for last in lasts if last is not None), default=None)
        except SQLITE_ERRORS as error:
            raise read_error(self.path, error, table) from error

    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        found = {}
        with self._database() as database:
            for table, column in columns.items():
                with contextlib.suppress(*SQLITE_ERRORS):
                    row = database.execute(f"select {quoted(column)} from {quoted(table)} not indexed limit 1").fetchone()
                    if row is not None and isinstance(row[0], int):
                        found[table] = row[0]
        return found

    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return self._read(table, {name: schema[name] for name in columns}, only, distinct)

        return frames_scan(read, schema)

    def read(self, table: str, schema: Schema) -> pl.DataFrame:
        if not schema:
            return super().read(table, schema)
        # A pipeline of polars takes longer to start than a short table to be read.
        return pl.concat([pl.DataFrame(schema=dict(schema)), *self.batches(table, schema, NO_SELECTION)])

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        numbers = self._row_numbers([table]) if count > 1 else {}
        if table not in numbers:
            return [None]
        first, last = numbers[table]
        edges = [first + (last + 1 - first) * part // count for part in range(count + 1)]
        return [(begin, end - 1) for begin, end in itertools.pairwise(edges)]

    def _row_numbers(self, tables: Iterable[str]) -> dict[str, Stretch]:
        """First and last row number of tables; of those that are empty, and those without row numbers, nothing."""
        found = {}
        with self._database() as database:
            for table in tables:
                if any(name.lower() == "rowid" for name in self._columns[table]):
                    continue
                name = quoted(table)
                query = f"select (select min(rowid) from {name}), (select max(rowid) from {name})"
                # A view, or a table without row numbers.
                with contextlib.suppress(*SQLITE_ERRORS):
                    first, last = database.execute(query).fetchone()
                    if first is not None and last is not None:
                        found[table] = (first, last)
        return found

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        # Not by way of polars, which reads dozens of batches ahead.
        return self._read(table, schema, only, distinct=False, stretch=stretch)

    def _read(
        self, table: str, schema: Schema, only: Selection, distinct: bool, stretch: Stretch | None = None
    ) -> Iterator[pl.DataFrame]:
        # The driver has no limits: a table that never ends must not get there.
        self.row_counts([table])
        with self._driver_errors(table), self._connection() as connection:
            for batch in self._query(connection, table, schema, only, distinct, stretch):
                yield converted(batch, schema)

    def _connection(self) -> AbstractContextManager[adbc_driver_manager.AdbcConnection]:
        # What is kept must not hold this object.
        return _CONNECTIONS.borrowed(self._key, partial(_connected, self._uri))

    @contextlib.contextmanager
    def _driver_errors(self, table: str) -> Iterator[None]:
        """Errors of the driver, and of what reads its batches, as ReportError."""
        try:
            yield
        except (adbc_driver_manager.Error, pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
            why = next((text for sign, text in _DRIVER_ERRORS.items() if sign in str(error)), None)
            self.failure = DamagedReport(self.path, f"table {table}: {why}") if why else read_error(self.path, error, table)
            raise self.failure from error

    def _query(
        self,
        connection: adbc_driver_manager.AdbcConnection,
        table: str,
        schema: Schema,
        only: Selection = NO_SELECTION,
        distinct: bool = False,
        stretch: Stretch | None = None,
        rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """What the driver gives of a table, in batches of about `rows` rows; errors are those of the driver and of Arrow."""
        expressions = [_sql_expression(name, dtype) for name, dtype in schema.items()] or ["1 as one"]
        select = "select distinct" if distinct else "select"
        query = f"{select} {', '.join(expressions)} from {quoted(table)} not indexed{_where(only, stretch)}"
        with adbc_driver_manager.AdbcStatement(connection) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(memory.scaled(rows))})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            reader = pa.RecordBatchReader._import_from_c(stream.address)
            _check_whole_numbers(reader.schema, schema)
            yield from reader


def converted(batch: pa.RecordBatch, schema: Schema) -> pl.DataFrame:
    """A batch of the driver as columns of the types requested."""
    frame = pl.DataFrame(pl.from_arrow(batch, rechunk=False))
    further = [_from_sql(name, dtype) for name, dtype in schema.items() if dtype != pl.Int64]
    converted_frame = frame.with_columns(further) if further else frame
    return converted_frame.cast(pl.Schema(schema)) if dict(frame.schema) != dict(schema) else converted_frame


@contextlib.contextmanager
def _connected(uri: str) -> Iterator[adbc_driver_manager.AdbcConnection]:
    # Not by way of its DB-API module, which takes as long to load as a small report to translate.
    with adbc_driver_sqlite.connect(uri) as database, adbc_driver_manager.AdbcConnection(database) as connection:
        yield connection


def _permitted(action: int, first: str | None, second: str | None, _database: str | None, source: str | None) -> int:
    """Whether SQLite may do what it finds in a query: nothing that a view or a trigger asks for (`source`)."""
    names = _PERMITTED.get(action, ())
    name = second if action == sqlite3.SQLITE_FUNCTION else first
    is_permitted = source is None and (names is None or (name is not None and name.lower() in names))
    return sqlite3.SQLITE_OK if is_permitted else sqlite3.SQLITE_DENY


@functools.lru_cache(maxsize=1024)
def _one_of_equal(columns: frozenset[str]) -> frozenset[str]:
    """The same object for equal sets: tables of a thousand reports have the same columns."""
    return columns


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _where(only: Selection, stretch: Stretch | None = None) -> str:
    conditions = [f"{quoted(column)} in ({', '.join(map(str, values))})" for column, values in only.items()]
    if stretch is not None:
        conditions.append(f"rowid between {stretch[0]} and {stretch[1]}")
    return f" where {' and '.join(conditions)}" if conditions else ""


def _sql_expression(name: str, dtype: type[pl.DataType]) -> str:
    column = quoted(name)
    # ADBC takes the type of a column from its first batch: a NULL there would make text or floats later on an error.
    if dtype in (pl.String, pl.Binary):
        # As bytes: texts of a program can be in any encoding, and Arrow takes UTF-8 on trust.
        read = f"ifnull(cast({column} as blob), x'')"
        if _can_tell_lengths():
            # A few bytes of a damaged file can be a text of a gigabyte: one that is too long is an overflow, and not read.
            length = f"octet_length({column})"
            read = f"iif({length} > {LONGEST_TEXT}, abs(-9223372036854775807 - ({length} > 0)), {read})"
        return f"{read} as {column}"
    if dtype == pl.Float64:
        return f"ifnull(cast({column} as real), 9e999) as {column}"
    # The driver would cut off what is behind the point, and does not take a text among numbers.
    whole = f"cast({column} as integer)"
    return f"case when typeof({column}) <> 'real' then {column} when {column} = {whole} then {whole} else '' end as {column}"


@functools.cache
def _can_tell_lengths() -> bool:
    """Whether the SQLite of the driver knows how long a text is without reading it (from 3.43 on)."""
    try:
        with (
            adbc_driver_sqlite.connect(":memory:") as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            statement.set_sql_query("select octet_length('')")
            statement.execute_query()
    except adbc_driver_manager.Error:
        return False
    return True


def _check_whole_numbers(found: pa.Schema, requested: Schema) -> None:
    """Raise ArrowTypeError where texts or bytes are among whole numbers: the driver gives a column of texts then, which polars
    takes for UTF-8 on trust."""
    for field in found:
        if requested.get(field.name) == pl.Int64 and not (pa.types.is_primitive(field.type) or pa.types.is_null(field.type)):
            raise pa.ArrowTypeError(f"a value in column {field.name} is no whole number")


def _from_sql(name: str, dtype: type[pl.DataType]) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.String:
        return column.map_batches(_decoded, return_dtype=pl.String)
    if dtype == pl.Binary:
        held = column.cast(pl.Binary)
        return pl.when(held.bin.size() > 0).then(held).alias(name)
    if dtype == pl.Float64:
        number = column.cast(pl.Float64)
        return pl.when(number.is_finite()).then(number).alias(name)
    return column.cast(dtype)


def _decoded(texts: pl.Series) -> pl.Series:
    """Bytes as text, nothing as null."""
    found = decoded(texts.cast(pl.Binary))
    return found.set(found == "", None).rename(texts.name)
