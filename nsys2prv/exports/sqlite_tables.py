"""SQLite exports: what SQLite says of tables, and their rows by way of its Arrow driver; nothing of a report is run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import re
import sqlite3
import sys
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl
import pyarrow as pa

from nsys2prv.errors import DamagedReport, NotAReport, UnfinishedReport
from nsys2prv.execution import memory
from nsys2prv.exports.columns import in_type
from nsys2prv.exports.sqlite_pages import page_size
from nsys2prv.exports.tables import BATCH_ROWS, EXPORT_TABLES, Schema, Selection, Stretch, Tables, read_errors
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
_STEPS_PER_BYTE = 16
"""Steps of SQLite's machine that a query may take, for each byte of a file: a row of a query takes some ten, and a row some ten
bytes."""
_STEPS_BETWEEN_CHECKS = 1_000_000
_LEAST_BYTES_OF_ROW = 5
"""A row takes at least so much of a database: its place in a page, its length, its number, the length of its head."""
_DRIVER_ERRORS = (adbc_driver_manager.Error, pa.ArrowException, OSError, pl.exceptions.PolarsError)
"""What the driver raises, and what reads its batches."""
_PERMITTED = {
    sqlite3.SQLITE_SELECT: None,
    sqlite3.SQLITE_READ: None,
    sqlite3.SQLITE_FUNCTION: ("min", "max", "sum", "ifnull"),
    sqlite3.SQLITE_PRAGMA: ("table_info", "table_xinfo"),
}
"""What queries may do, and with which functions and pragmas."""


class SqliteTables(Tables):
    """An SQLite export; NotAReport or DamagedReport when the file is no database, or not all of one."""

    form = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__(path, [path])
        # immutable: nothing is created beside the export, which may lie in a folder that can't be written. It also means that
        # neither locks nor the files beside it are looked at.
        self._uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
        self._check_complete()
        self._check_head()
        self._counts: dict[str, int] = {}
        with self.database() as database:
            self._columns = {
                sys.intern(name): _frozenset(
                    tuple(column for _, column, *_ in database.execute(f"pragma table_info({quoted(name)})"))
                )
                for name in self._table_names(database)
            }

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

    def _check_head(self) -> None:
        with self.path.open("rb") as file:
            head = file.read(100)
        if not head.startswith(SQLITE_START):
            raise NotAReport(self.path, "this file is not an SQLite database")
        if int.from_bytes(head[56:60], "big") not in _UTF_8:
            raise NotAReport(self.path, "its texts are UTF-16, and nsys writes UTF-8: use the export as nsys wrote it")
        expected = page_size(head) * int.from_bytes(head[28:32], "big")
        if self.size < expected:
            raise DamagedReport(self.path, f"{self.size} of {expected} bytes are there")

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

    @property
    def size(self) -> int:
        """Size of the file when it was opened, bytes."""
        return sum(size for _, size, _ in self._stamps)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[_Connection]:
        """A connection that nobody else uses meanwhile. After an error it is not used again."""
        # No other database has the same key, nor the same one after a change.
        key = (self._uri, *self._stamps)
        with _idle_lock:
            place = next((place for place, idle in enumerate(_idle) if idle.key == key), None)
            connection = _Connection(key, self._uri) if place is None else _idle.pop(place)
        with contextlib.ExitStack() as on_error:
            on_error.callback(connection.close)
            yield connection
            on_error.pop_all()
        with _idle_lock:
            _idle.append(connection)
            while len(_idle) > _MOST_IDLE:
                _idle.pop(0).close()

    @contextlib.contextmanager
    def database(self, table: str = "") -> Iterator[sqlite3.Connection]:
        """The database for queries (over a table): nothing else of it is run, and no query goes on for longer than rows can
        take that fit into the file. Errors of SQLite become ReportErrors."""
        with read_errors(self.path, *SQLITE_ERRORS, table=table), self._connection() as connection:
            steps = itertools.count(1)
            most = 1 + _STEPS_PER_BYTE * self.size // _STEPS_BETWEEN_CHECKS
            connection.sqlite.set_progress_handler(lambda: next(steps) > most, _STEPS_BETWEEN_CHECKS)
            yield connection.sqlite

    def names(self) -> frozenset[str]:
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        return self._columns[table]

    def row_count(self, table: str) -> int:
        if table not in self._counts:
            with self.database(table) as database:
                # Not count(*), which heeds no limit.
                (rows,) = database.execute(f"select ifnull(sum(1), 0) from {quoted(table)} not indexed").fetchone()
            self._check_count(table, rows)
            self._counts[table] = rows
        return self._counts[table]

    def _check_count(self, table: str, rows: int) -> None:
        if rows * _LEAST_BYTES_OF_ROW > self.size:
            raise DamagedReport(self.path, f"table {table}: it has more rows than fit into the file")

    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        values = {}
        with self.database() as database:
            for table, column in columns.items():
                with contextlib.suppress(*SQLITE_ERRORS):
                    row = database.execute(f"select {quoted(column)} from {quoted(table)} not indexed limit 1").fetchone()
                    if row is not None and isinstance(row[0], int):
                        values[table] = row[0]
        return values

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        numbers = self.row_numbers([table]) if count > 1 else {}
        if table not in numbers:
            return [None]
        first, last = numbers[table]
        edges = [first + (last + 1 - first) * part // count for part in range(count + 1)]
        return [(begin, end - 1) for begin, end in itertools.pairwise(edges)]

    def row_numbers(self, tables: Iterable[str]) -> dict[str, Stretch]:
        """First and last row number of tables; of those that are empty, and those without row numbers, nothing."""
        numbers = {}
        with self.database() as database:
            for table in tables:
                if any(name.lower() == "rowid" for name in self._columns[table]):
                    continue
                name = quoted(table)
                query = f"select (select min(rowid) from {name}), (select max(rowid) from {name})"
                # A table without row numbers.
                with contextlib.suppress(*SQLITE_ERRORS):
                    first, last = database.execute(query).fetchone()
                    if first is not None and last is not None:
                        numbers[table] = (first, last)
        return numbers

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        # The driver has no limits: a table that never ends must not get there.
        self.row_count(table)
        yield from self.query(table, schema, only, stretch)

    def query(
        self, table: str, schema: Schema, only: Selection, stretch: Stretch | None, rows: int = BATCH_ROWS
    ) -> Iterator[pl.DataFrame]:
        """What the driver gives of a table (`batches`), about `rows` rows at a time."""
        expressions = [_sql_expression(name, dtype) for name, dtype in schema.items()] or ["1 as one"]
        query = f"select {', '.join(expressions)} from {quoted(table)} not indexed{_where(only, stretch)}"
        rows_read = 0
        with (
            read_errors(self.path, *_DRIVER_ERRORS, table=table),
            self._connection() as connection,
            adbc_driver_manager.AdbcStatement(connection.driver) as statement,
        ):
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(memory.scaled(rows))})
            statement.set_sql_query(query)
            stream, _ = statement.execute_query()
            reader = pa.RecordBatchReader._import_from_c(stream.address)
            _check_whole_numbers(reader.schema, schema)
            for batch in reader:
                rows_read += batch.num_rows
                self._check_count(table, rows_read)
                read = pl.DataFrame(pl.from_arrow(batch, rechunk=False))
                yield read.with_columns(in_type(read[name], dtype) for name, dtype in schema.items())


class _Connection:
    """A connection to a database: SQLite's own, and that of the Arrow driver, each when it is needed."""

    def __init__(self, key: Hashable, uri: str) -> None:
        self.key = key
        self._uri = uri
        self._opened = contextlib.ExitStack()
        self.close = self._opened.close

    @cached_property
    def sqlite(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        self._opened.callback(database.close)
        database.set_authorizer(_permitted)
        if sys.version_info >= (3, 11):
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
        return database

    @cached_property
    def driver(self) -> adbc_driver_manager.AdbcConnection:
        # Not by way of its DB-API module, which takes as long to load as a small report to translate.
        database = self._opened.enter_context(adbc_driver_sqlite.connect(self._uri))
        connection: adbc_driver_manager.AdbcConnection = adbc_driver_manager.AdbcConnection(database)
        self._opened.enter_context(connection)
        return connection


_MOST_IDLE = 4
"""Connections that are kept: each has files open, and reports are opened one after the other."""
_idle: list[_Connection] = []
"""Connections for the next query, in the order of use: SQLite reads the names of all tables for the first query of each."""
_idle_lock = threading.Lock()


@atexit.register
def _close_idle() -> None:
    with _idle_lock:
        while _idle:
            _idle.pop().close()


def _permitted(action: int, first: str | None, second: str | None, _database: str | None, source: str | None) -> int:
    """Whether SQLite may do what it finds in a query: nothing that a view or a trigger asks for (`source`)."""
    names = _PERMITTED.get(action, ())
    name = second if action == sqlite3.SQLITE_FUNCTION else first
    is_permitted = source is None and (names is None or (name is not None and name.lower() in names))
    return sqlite3.SQLITE_OK if is_permitted else sqlite3.SQLITE_DENY


_frozenset = functools.lru_cache(maxsize=1024)(frozenset[str])
"""The same object for equal columns: tables of a thousand reports have the same ones."""


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _where(only: Selection, stretch: Stretch | None) -> str:
    conditions = [f"{quoted(column)} in ({', '.join(map(str, values))})" for column, values in only.items()]
    if stretch is not None:
        conditions.append(f"rowid between {stretch[0]} and {stretch[1]}")
    return f" where {' and '.join(conditions)}" if conditions else ""


def _sql_expression(name: str, dtype: type[pl.DataType]) -> str:
    column = quoted(name)
    # ADBC takes the type of a column from its first batch: a NULL there would make text or floats later on an error.
    if dtype in (pl.String, pl.Binary):
        # As bytes: texts of a program can be in any encoding, and Arrow takes UTF-8 on trust.
        content = f"ifnull(cast({column} as blob), x'')"
        # A few bytes of a damaged file can be a text of a gigabyte: one that is too long is an overflow, and not read.
        length = f"octet_length({column})"
        return f"iif({length} > {LONGEST_TEXT}, abs(-9223372036854775807 - ({length} > 0)), {content}) as {column}"
    if dtype == pl.Float64:
        return f"ifnull(cast({column} as real), 9e999) as {column}"
    # The driver would cut off what is behind the point, and does not take a text among numbers.
    integer = f"cast({column} as integer)"
    return (
        f"case when typeof({column}) <> 'real' then {column} when {column} = {integer} then {integer} else '' end as {column}"
    )


def _check_whole_numbers(read: pa.Schema, requested: Schema) -> None:
    """Raise ArrowTypeError where texts or bytes are among whole numbers: the driver gives a column of texts then, which polars
    takes for UTF-8 on trust."""
    for field in read:
        if requested.get(field.name) == pl.Int64 and not (pa.types.is_primitive(field.type) or pa.types.is_null(field.type)):
            raise pa.ArrowTypeError(f"a value in column {field.name} is no whole number")
