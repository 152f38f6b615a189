"""The tables of one export, whatever its form: SQLite, a folder of Parquet files, a folder of Arrow files.

A form says which tables there are, and gives columns of one in bounded batches, with ids as signed 64-bit numbers. Scans,
extents and distinct values follow from that. What is small in a report and needed often is held here, too."""

import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from polars.io.plugins import register_io_source

from nsys2prv.errors import DamagedReport, NoResources, OutputError, ReportError, UnfinishedReport
from nsys2prv.execution.memory import resource_error_in
from nsys2prv.execution.row_order import Merging
from nsys2prv.vocabulary.limits import EARLIEST_NS, LONGEST_TEXT

EXPORT_TABLES = ("StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA")
"""An export has at least one of these; any other database does not."""
BATCH_ROWS = 16_384
"""Rows of a table that are held at once while it is scanned."""
_SENTENCES = {
    "integer overflow": f"a text of more than {LONGEST_TEXT:,} bytes",
    "Type mismatch": "a value in a column of whole numbers is no whole number",
}
"""What is reported for errors of the driver of SQLite, by what they say."""
_MOST_VALUES = 16_384
"""Distinct rows of some columns, or values of a column, that are held for the sources that share a table."""

Schema = Mapping[str, type[pl.DataType]]
Selection = Mapping[str, Sequence[int]]
"""Values of columns of which rows must have one."""
Stretch = tuple[int, int]
"""First and last row of a part of a table; what counts as a row number is up to the form of the export."""
T = TypeVar("T")


class Tables(ABC):
    """Tables of one export.

    `failure` holds the error of a scan that broke off: polars reports errors of a scan as its own, without their class."""

    form: str

    def __init__(self, path: Path, files: Collection[Path]) -> None:
        self.path = path
        self.failure: ReportError | NoResources | OutputError | None = None
        self._paths = tuple(files)
        self._stamps = self._stamps_now()

    def _stamps_now(self) -> list[tuple[int, int, int]]:
        """Inode, size and time of change (ns) of each file."""
        statuses = (path.stat() for path in self._paths)
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]

    def _check_complete(self) -> None:  # noqa: B027  # most forms have no files beside them
        """Raise UnfinishedReport when rows are in other files than those that are read."""

    def check_unchanged(self) -> None:
        """Check that the export is still what it was when it was opened; UnfinishedReport when it is not."""
        try:
            stamps = self._stamps_now()
            self._check_complete()
        except OSError as error:
            raise UnfinishedReport(self.path, f"it vanished while it was read ({error.strerror or error})") from error
        if stamps != self._stamps:
            raise UnfinishedReport(self.path, "it was changed while it was read")

    def delete_kept(self) -> None:  # noqa: B027  # most forms keep nothing
        """Delete what was kept of rows on the disk: from now on they are read of the export, which takes longer."""

    @abstractmethod
    def names(self) -> frozenset[str]:
        """Names of the tables that are there."""

    @abstractmethod
    def columns(self, table: str) -> frozenset[str]:
        """Names of the columns of a table that is there."""

    @abstractmethod
    def row_count(self, table: str) -> int:
        """Number of rows of a table that is there."""

    @abstractmethod
    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        """Columns of a table, all of which must be there, in the types given, a bounded batch at a time: of the rows with the
        values of `only`, in one of `stretches` (None: all). Where none is asked for, batches have another column.

        Raises
        ------
        ReportError
            When the table can't be read.
        """

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        """Parts of a table, about `count` of equal length, that can be read at once; one, None, where it is read as a whole."""
        return [None]

    def read(self, table: str, schema: Schema) -> pl.DataFrame:
        """Columns of all rows of a table that is short."""
        # A pipeline of polars takes longer to start than a short table to be read.
        return pl.concat([*self.batches(table, schema, {})] or [pl.DataFrame(schema=dict(schema))])

    def scan(self, table: str, schema: Schema, only: Selection, *, is_distinct: bool = False) -> pl.LazyFrame:
        """Columns of a table, all of which must be there, in the types given; only rows with the values of `only`, or of those
        of a batch that are alike in all columns that the pipeline needs one (`is_distinct`)."""

        def read(names: list[str]) -> Iterator[pl.DataFrame]:
            # Without a column a frame has no rows.
            columns = {name: schema[name] for name in names or list(schema)[:1]}
            try:
                rows = self.batches(table, columns, only)
                yield from (batch.unique() for batch in rows) if is_distinct else rows
            except (ReportError, NoResources, OutputError) as error:
                self.failure = error
                raise

        return frames_scan(read, schema)

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        """Number of rows with the values of `only`, the first `begin` and the last `begin` or `end` (None without any)."""
        by = [*only]
        columns = dict.fromkeys((*by, begin, end), pl.Int64)
        of_row = [pl.lit(1, pl.Int64).alias("rows"), pl.col(begin).alias("first"), pl.max_horizontal(begin, end).alias("last")]
        empty = pl.DataFrame(schema=dict.fromkeys((*by, "rows", "first", "last"), pl.Int64))

        def read(selection: Selection) -> Iterator[pl.DataFrame]:
            return (_extents(rows.select(*by, *of_row), by) for rows in self.batches(table, columns, selection))

        def of_each_value() -> pl.DataFrame | None:
            merging = Merging(partial(_extents, by=by), empty, _MOST_VALUES)
            for extents in read({}):
                merging.add(extents)
                if merging.rows.height > _MOST_VALUES:
                    return None
            return merging.rows

        # Sources that share a table are of different values of one column: it is read once for all of them.
        extents = LOOKUPS.get(self, ("extents", table, begin, end, *by), of_each_value)
        if extents is None:
            extents = pl.concat([empty, *read(only)])
        rows, first, last = _extents(selected_rows(extents, only)).row(0)
        if first is not None and first < EARLIEST_NS:
            raise DamagedReport(self.path, f"table {table}: {first} in {begin} is no time of a session")
        return rows, first, last

    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        """A number out of a column of each table, where its first row has one. A table that can't be read has none."""
        values = {}
        for table, column in columns.items():
            with contextlib.suppress(DamagedReport):
                rows = next(self.batches(table, {column: pl.Int64}, {}), pl.DataFrame())
                if rows.height and rows[column][0] is not None:
                    values[table] = int(rows[column][0])
        return values


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


@contextlib.contextmanager
def read_errors(path: Path, *errors: type[BaseException], table: str = "") -> Iterator[None]:
    """Raise errors of some classes as `read_error` has them."""
    try:
        yield
    except errors as error:
        raise read_error(path, error, table) from error


def read_error(path: Path, error: BaseException, table: str = "") -> ReportError | NoResources:
    """The error for what a library raised while it read a file: it is damaged, unless the system refused something."""
    why = next((sentence for sign, sentence in _SENTENCES.items() if sign in str(error)), str(error))
    return resource_error_in(error) or DamagedReport(path, f"table {table}: {why}" if table else why)


def selected_rows(rows: pl.DataFrame, only: Selection) -> pl.DataFrame:
    """The rows with values of a selection."""
    for column, values in only.items():
        # In most batches all rows are of one kind.
        least, most = rows[column].min(), rows[column].max()
        if least != most or least not in values or rows[column].null_count():
            rows = rows.filter(pl.col(column).is_in(values))
    return rows


def _extents(rows: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Columns `rows`, `first`, `last` of all rows together, or of those with each value of some columns."""
    together = [pl.col("rows").sum(), pl.col("first").min(), pl.col("last").max()]
    return rows.group_by(by).agg(together) if by else rows.select(together)


@dataclass
class _Lookup:
    """Something read of an export; the first thread that needs it reads it, under the lock. `bytes` is None before."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    bytes: int | None = None
    value: Any = None


class Lookups:
    """What is small in exports and needed often (texts, names, labels): that of a thousand exports would need too much memory,
    so what was used last is held, as much as fits in `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order of use.
        self._held: weakref.WeakKeyDictionary[Tables, dict[Hashable, _Lookup]] = weakref.WeakKeyDictionary()
        self._bytes: weakref.WeakKeyDictionary[Tables, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, tables: Tables, name: Hashable, read: Callable[[], T]) -> T:
        """What has this name in an export; `read` reads it when it is not held."""
        with self._lock:
            lookups = self._held.pop(tables, {})
            self._held[tables] = lookups
            lookup = lookups.setdefault(name, _Lookup())
        # Not under the lock of all: others go on meanwhile, and what is read may need something else.
        with lookup.lock:
            if lookup.bytes is None:
                lookup.value = read()
                # Other results are names of processes, of ranks, of GPUs.
                is_frame = isinstance(lookup.value, pl.DataFrame)
                lookup.bytes = int(lookup.value.estimated_size()) if is_frame else 50_000
                self._make_room(tables, lookup.bytes)
        value: T = lookup.value
        return value

    def _make_room(self, used: Tables, more: int) -> None:
        """Drop what was not used for longest, but nothing of the export that is in use and has so many bytes more."""
        with self._lock:
            self._bytes[used] = self._bytes.get(used, 0) + more
            surplus = sum(self._bytes.values()) - self._most
            for tables in list(self._held) if surplus > 0 else ():
                if surplus > 0 and tables is not used:
                    del self._held[tables]
                    surplus -= self._bytes.pop(tables, 0)


LOOKUPS = Lookups(most=100_000_000)
