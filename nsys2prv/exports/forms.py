"""The forms an export can have, behind one interface: SQLite, a folder of Parquet files, a folder of Arrow files.

All of them scan lazily and in bounded batches, read only the columns asked for, and give ids as signed 64-bit numbers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from nsys2prv.errors import DamagedReport, NoResources, NotAReport, ReportError, UnfinishedReport
from nsys2prv.execution import memory
from nsys2prv.execution.lacks import lack_in
from nsys2prv.execution.private_folders import is_utf8
from nsys2prv.exports.columns import decoded
from nsys2prv.vocabulary.limits import EARLIEST_NS

EXPORT_TABLES = ("StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA")
"""An export has at least one of these; any other database does not."""
_NAME_OF_NSYS = re.compile("[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
"""Names of tables with events, such as NVTX_EVENTS."""
SQLITE_START = b"SQLite format 3\x00"
"""First bytes of a database."""
_READ_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError, ValueError, KeyError)
"""What polars and Arrow raise for a damaged file; names that are no text are ValueErrors, unknown ones KeyErrors."""
_UNFINISHED = {"-wal": (32, (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")), "-journal": (512, (b"\xd9\xd5\x05\xf9",))}
"""Files beside a database with rows that it lacks, or with what was there before a change that is not complete: bytes of their
headers, and their first bytes. SQLite overwrites these when all is in the database."""
BATCH_ROWS = 16_384
"""Rows of a table that are held at once while it is scanned."""

Schema = Mapping[str, type[pl.DataType]]
Selection = Mapping[str, Sequence[int]]
Stretch = tuple[int, int]
"""First and last row of a part of a table; what counts as a row number is up to the form of the export."""


class Tables(ABC):
    """Tables of one export.

    `failure` holds the error of a scan that broke off: polars reports errors of a scan as its own, without their class.
    """

    form: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: ReportError | NoResources | None = None
        self._seen: list[tuple[int, int, int]] = []

    @abstractmethod
    def _files_of_export(self) -> list[Path]:
        """The files that are read."""

    def _check_complete(self) -> None:  # noqa: B027  # most forms have no files beside them
        """Raise UnfinishedReport when rows are in other files than those that are read."""

    def _stamps(self) -> list[tuple[int, int, int]]:
        stats = [file.stat() for file in self._files_of_export()]
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in stats]

    def check_unchanged(self) -> None:
        """Check that the export is still what it was when it was opened; UnfinishedReport when it is not."""
        try:
            now = self._stamps()
            self._check_complete()
        except OSError as error:
            raise UnfinishedReport(self.path, f"it vanished while it was read ({error.strerror or error})") from error
        if now != self._seen:
            raise UnfinishedReport(self.path, "it was changed while it was read")

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Names of the tables that are there."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Names of the columns of a table that is there."""

    @abstractmethod
    def row_count(self, table: str) -> int:
        """Number of rows of a table."""

    @abstractmethod
    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        """Number of rows with the values of `only`, the first `begin` and the last `begin` or `end` (None without any)."""

    @abstractmethod
    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        """A number out of a column of each table, where its first row has one. A table that can't be read has none."""

    @abstractmethod
    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        """Columns of a table, all of which must be there, in the types given; only rows with the values of `only`.

        `distinct` allows to leave out rows that are equal, in all columns that the pipeline needs, to one that is there.
        """

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        """Parts of a table, about `count` of equal length, that can be read at once; one, None, where it is read as a whole."""
        return [None]

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        """What `scan` gives, or the part of it in one of `stretches`, a bounded batch at a time."""
        scanned = self.scan(table, schema, only)
        yield from scanned.collect_batches(chunk_size=memory.scaled(BATCH_ROWS), maintain_order=True, engine="streaming")


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
        page_size = int.from_bytes(head[16:18], "big")
        expected = (65_536 if page_size == 1 else page_size) * int.from_bytes(head[28:32], "big")
        actual = self.path.stat().st_size
        if actual < expected:
            raise DamagedReport(self.path, f"{actual} of {expected} bytes are there")

    @cached_property
    def _columns(self) -> dict[str, frozenset[str]]:
        try:
            with contextlib.closing(sqlite3.connect(self._uri, uri=True)) as database:
                names = []
                for name, sql in database.execute("select name, sql from sqlite_master where type in ('table', 'view')"):
                    if (sql or "").startswith(("CREATE TABLE", "CREATE VIRTUAL TABLE")):
                        names.append(name)
                    elif _NAME_OF_NSYS.fullmatch(name) or name in EXPORT_TABLES:
                        # What a view does may take for ever. Views that users added are left alone.
                        raise NotAReport(self.path, f"{name} is a view, and nsys writes tables")
                return {
                    sys.intern(name): _one_of_equal(
                        frozenset(column for (column,) in database.execute("select name from pragma_table_info(?)", (name,)))
                    )
                    for name in names
                }
        except sqlite3.Error as error:
            raise read_error(self.path, error) from error

    def _row(self, query: str) -> tuple[Any, ...]:
        with contextlib.closing(sqlite3.connect(self._uri, uri=True)) as database:
            found: tuple[Any, ...] = database.execute(query).fetchone()
            return found

    def names(self) -> frozenset[str]:
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        return self._columns[table]

    def row_count(self, table: str) -> int:
        try:
            return int(self._row(f"select count(*) from {_quoted(table)}")[0])
        except sqlite3.Error as error:
            raise read_error(self.path, error, table) from error

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        # The greater of two maxima: one of two columns in each row would take five times as long.
        # With the name of the table, or SQLite would take the name of a column that is not there for a text.
        first, *last = (f"{_quoted(table)}.{_quoted(column)}" for column in dict.fromkeys((begin, end)))
        times = ", ".join(f"max({column})" for column in (first, *last))
        try:
            rows, earliest, *lasts = self._row(f"select count(*), min({first}), {times} from {_quoted(table)}{_where(only)}")
            if not all(isinstance(time, int | None) for time in (earliest, *lasts)):
                raise DamagedReport(self.path, f"table {table}: a time in {begin} or {end} is no whole number")
            if earliest is not None and earliest < EARLIEST_NS:
                raise DamagedReport(self.path, f"table {table}: {earliest} in {begin} is no time of a session")
            return int(rows), earliest, max((last for last in lasts if last is not None), default=None)
        except sqlite3.Error as error:
            raise read_error(self.path, error, table) from error

    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        found = {}
        with contextlib.closing(sqlite3.connect(self._uri, uri=True)) as database:
            for table, column in columns.items():
                with contextlib.suppress(sqlite3.Error):
                    row = database.execute(f"select {_quoted(column)} from {_quoted(table)} limit 1").fetchone()
                    if row is not None and isinstance(row[0], int):
                        found[table] = row[0]
        return found

    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return self._read(table, {name: schema[name] for name in columns}, only, distinct)

        return frames_scan(read, schema)

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        if count < 2 or "rowid" in self._columns[table]:
            return [None]
        try:
            name = _quoted(table)
            first, last = self._row(f"select (select min(rowid) from {name}), (select max(rowid) from {name})")
        except sqlite3.OperationalError:
            # A view, or a table without row numbers.
            return [None]
        if first is None or last is None:
            return [None]
        edges = [first + (last + 1 - first) * part // count for part in range(count + 1)]
        return [(begin, end - 1) for begin, end in itertools.pairwise(edges)]

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        # Not by way of polars, which reads dozens of batches ahead.
        return self._read(table, schema, only, distinct=False, stretch=stretch)

    def _read(
        self, table: str, schema: Schema, only: Selection, distinct: bool, stretch: Stretch | None = None
    ) -> Iterator[pl.DataFrame]:
        expressions = [_sql_expression(name, dtype) for name, dtype in schema.items()] or ["1 as one"]
        select = "select distinct" if distinct else "select"
        query = f"{select} {', '.join(expressions)} from {_quoted(table)}{_where(only, stretch)}"
        converted = [_from_sql(name, dtype) for name, dtype in schema.items() if dtype != pl.Int64]
        try:
            # Not by way of its DB-API module, which takes as long to load as a small report to translate.
            with (
                adbc_driver_sqlite.connect(self._uri) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(memory.scaled(BATCH_ROWS))})
                statement.set_sql_query(query)
                stream, _ = statement.execute_query()
                reader = pa.RecordBatchReader._import_from_c(stream.address)
                _check_whole_numbers(reader.schema, schema)
                for batch in reader:
                    frame = pl.DataFrame(pl.from_arrow(batch, rechunk=False))
                    converted_frame = frame.with_columns(converted) if converted else frame
                    yield converted_frame.cast(pl.Schema(schema)) if dict(frame.schema) != dict(schema) else converted_frame
        except (adbc_driver_manager.Error, pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
            self.failure = read_error(self.path, error, table)
            raise self.failure from error


class FolderTables(Tables):
    """An export with one file per table in a folder."""

    suffixes: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if not is_utf8(path.absolute()):
            raise NotAReport(path, "its path is not UTF-8, which only databases may have")
        # Absolute: polars would take a name that starts with ~ for that of a user's home.
        self._files = {file.stem: file for file in sorted(path.absolute().iterdir()) if file.suffix in self.suffixes}
        self._schemas: dict[str, dict[str, pl.DataType]] = {}
        self._seen = self._stamps()

    def _files_of_export(self) -> list[Path]:
        return list(self._files.values())

    @abstractmethod
    def _scan_file(self, file: Path) -> pl.LazyFrame: ...

    @abstractmethod
    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]: ...

    def _scan_batches(
        self, file: Path, schema: Mapping[str, pl.DataType], as_bytes: frozenset[str] = frozenset()
    ) -> pl.LazyFrame:
        """A file by way of its Arrow batches; some of its columns of text are taken as bytes."""

        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            try:
                # Without a column a batch has no rows.
                for batch in self._record_batches(file, columns or list(schema)[:1]):
                    yield pl.DataFrame(pl.from_arrow(_validated(batch, as_bytes)))
            except _READ_ERRORS as error:
                self.failure = read_error(file, error)
                raise self.failure from error

        return frames_scan(read, {name: pl.Binary() if name in as_bytes else dtype for name, dtype in schema.items()})

    def names(self) -> frozenset[str]:
        return frozenset(self._files)

    def columns(self, table: str) -> frozenset[str]:
        return frozenset(self._schema(table))

    def _schema(self, table: str) -> dict[str, pl.DataType]:
        if table not in self._schemas:
            with self._read_errors(table):
                self._schemas[table] = dict(self._scan_file(self._files[table]).collect_schema())
        return self._schemas[table]

    def row_count(self, table: str) -> int:
        with self._read_errors(table):
            return int(self._scan_file(self._files[table]).select(pl.len()).collect().item())

    @contextlib.contextmanager
    def _read_errors(self, table: str) -> Iterator[None]:
        try:
            yield
        except _READ_ERRORS as error:
            raise self.failure or read_error(self._files[table], error) from error

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        times = self.scan(table, dict.fromkeys((begin, end), pl.Int64), only)
        found = times.select(pl.len(), first=pl.col(begin).min(), last=pl.max_horizontal(begin, end).max())
        with self._read_errors(table):
            rows, first, last = found.collect(engine="streaming").row(0)
        return int(rows), first, last

    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        found = {}
        for table, column in columns.items():
            with contextlib.suppress(DamagedReport), self._read_errors(table):
                value = self.scan(table, {column: pl.Int64}, {}).head(1).collect()
                if value.height and value.item() is not None:
                    found[table] = value.item()
        return found

    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        stored = self._schema(table)
        missing = [name for name in schema if name not in stored]
        if missing:
            raise DamagedReport(self._files[table], f"it has no column {missing[0]}")
        selected = [pl.col(column).is_in(values) for column, values in only.items()]
        file = self._files[table]
        # nsys declares bytes to be text: polars refuses to read what is not UTF-8.
        as_bytes = frozenset(name for name, dtype in schema.items() if dtype == pl.Binary and stored[name] == pl.String)
        with self._read_errors(table):
            scanned = self._scan_batches(file, stored, as_bytes) if as_bytes else self._scan_file(file)
        return (scanned.filter(*selected) if selected else scanned).select(
            _signed(pl.col(name), stored[name], dtype).alias(name) for name, dtype in schema.items()
        )


class ParquetTables(FolderTables):
    """A folder of ``TABLE.parquet``."""

    form = "parquet"
    suffixes = (".parquet",)

    def _scan_file(self, file: Path) -> pl.LazyFrame:
        return pl.scan_parquet(file, glob=False, hive_partitioning=False)

    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        # Only this form, and only few reports, need it.
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(batch_size=memory.scaled(BATCH_ROWS), columns=columns)


class ArrowTables(FolderTables):
    """A folder of ``TABLE.arrow``, in Arrow's file or stream format."""

    form = "arrow"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")

    def _scan_file(self, file: Path) -> pl.LazyFrame:
        # Not by way of polars, which trusts what is in a file: damaged offsets of texts end the process.
        with _open_arrow(file) as reader:
            schema = dict(pl.DataFrame(pl.from_arrow(reader.schema.empty_table())).schema)
        return self._scan_batches(file, schema)

    def _record_batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _open_arrow(file) as reader:
            if isinstance(reader, pa.RecordBatchFileReader):
                yield from (reader.get_batch(index).select(columns) for index in range(reader.num_record_batches))
            else:
                yield from (batch.select(columns) for batch in reader)


def read_error(path: Path, error: BaseException, table: str = "") -> ReportError | NoResources:
    """The error for what a library raised while it read a file: it is damaged, unless the system refused something."""
    return lack_in(error) or DamagedReport(path, f"table {table}: {error}" if table else str(error))


def form_of_folder(folder: Path) -> type[FolderTables] | None:
    """The form of the tables in a folder; None when it holds none."""
    suffixes = {file.suffix for file in folder.iterdir()}
    return next((form for form in (ParquetTables, ArrowTables) if suffixes.intersection(form.suffixes)), None)


@contextlib.contextmanager
def _open_arrow(file: Path) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader]:
    """A file in Arrow's file format or its stream format."""
    with pa.OSFile(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        with pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source) as reader:
            yield reader


def _validated(batch: pa.RecordBatch, as_bytes: frozenset[str]) -> pa.Table:
    """A batch as a table, some of its columns of text as bytes; ArrowException when it is damaged."""
    # First the sizes of its buffers, which a cast trusts; then offsets, and texts that stay texts.
    batch.validate()
    arrays = [
        array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()) if name in as_bytes else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    for array in arrays:
        array.validate(full=True)
    return pa.Table.from_arrays(arrays, names=batch.schema.names)


def frames_scan(read: Callable[[list[str]], Iterator[pl.DataFrame]], schema: Mapping[str, Any]) -> pl.LazyFrame:
    """A scan of frames that a function reads: it gets the names of the columns that the pipeline needs."""

    def frames(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        for frame in read(list(schema) if columns is None else columns):
            selected = frame if predicate is None else frame.filter(predicate)
            if rows is not None:
                selected = selected.head(rows)
                rows -= selected.height
            yield selected
            if rows == 0:
                return

    return register_io_source(frames, schema=dict(schema))


@functools.lru_cache(maxsize=1024)
def _one_of_equal(columns: frozenset[str]) -> frozenset[str]:
    """The same object for equal sets: tables of a thousand reports have the same columns."""
    return columns


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _where(only: Selection, stretch: Stretch | None = None) -> str:
    conditions = [f"{_quoted(column)} in ({', '.join(map(str, values))})" for column, values in only.items()]
    if stretch is not None:
        conditions.append(f"rowid between {stretch[0]} and {stretch[1]}")
    return f" where {' and '.join(conditions)}" if conditions else ""


def _sql_expression(name: str, dtype: type[pl.DataType]) -> str:
    column = _quoted(name)
    # ADBC takes the type of a column from its first batch: a NULL there would make text or floats later on an error.
    if dtype in (pl.String, pl.Binary):
        # As bytes: texts of a program can be in any encoding, and Arrow takes UTF-8 on trust.
        return f"ifnull(cast({column} as blob), x'') as {column}"
    if dtype == pl.Float64:
        return f"ifnull(cast({column} as real), 9e999) as {column}"
    return column


def _check_whole_numbers(found: pa.Schema, requested: Schema) -> None:
    """Raise ArrowTypeError where texts or bytes are among whole numbers: the driver gives a column of texts then, which polars
    takes for UTF-8 on trust."""
    for field in found:
        if requested.get(field.name) == pl.Int64 and not (pa.types.is_primitive(field.type) or pa.types.is_null(field.type)):
            raise pa.ArrowTypeError(f"texts or bytes in the place of numbers in column {field.name}")


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


def _signed(column: pl.Expr, stored: pl.DataType, requested: type[pl.DataType]) -> pl.Expr:
    # Ids are unsigned in Parquet and Arrow exports and signed in SQLite: the same bits must give the same id.
    if requested == pl.Int64 and stored == pl.UInt64:
        return column.reinterpret(signed=True)
    if requested == pl.String:
        text = column.cast(pl.String)
        return pl.when(text != "").then(text)
    if requested == pl.Binary:
        held = column.cast(pl.Binary)
        return pl.when(held.bin.size() > 0).then(held)
    return column.cast(requested)
