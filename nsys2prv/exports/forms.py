"""The forms an export can have, behind one interface: SQLite, a folder of Parquet files, a folder of Arrow files.

All of them scan lazily and in bounded batches, read only the columns asked for, and give ids as signed 64-bit numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from nsys2prv.errors import DamagedReport, NoResources, ReportError, UnfinishedReport
from nsys2prv.execution import memory
from nsys2prv.execution.lacks import lack_in
from nsys2prv.vocabulary.limits import EARLIEST_NS

EXPORT_TABLES = ("StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA")
"""An export has at least one of these; any other database does not."""
BATCH_ROWS = 16_384
"""Rows of a table that are held at once while it is scanned."""

Schema = Mapping[str, type[pl.DataType]]
Selection = Mapping[str, Sequence[int]]
NO_SELECTION: Selection = {}
Stretch = tuple[int, int]
"""First and last row of a part of a table; what counts as a row number is up to the form of the export."""
Stamp = tuple[int, int, int]
"""Inode, size and time of change (ns) of a file."""


class Tables(ABC):
    """Tables of one export.

    `failure` holds the error of a scan that broke off: polars reports errors of a scan as its own, without their class.
    """

    form: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: ReportError | NoResources | None = None
        self._seen: list[Stamp] = []

    @abstractmethod
    def _files_of_export(self) -> list[Path]:
        """The files that are read."""

    def _check_complete(self) -> None:  # noqa: B027  # most forms have no files beside them
        """Raise UnfinishedReport when rows are in other files than those that are read."""

    def _stamps(self) -> list[Stamp]:
        statuses = (path.stat() for path in self._files_of_export())
        return [(status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]

    def check_unchanged(self) -> None:
        """Check that the export is still what it was when it was opened; UnfinishedReport when it is not."""
        try:
            now = self._stamps()
            self._check_complete()
        except OSError as error:
            raise UnfinishedReport(self.path, f"it vanished while it was read ({error.strerror or error})") from error
        if now != self._seen:
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
    def row_counts(self, tables: Collection[str]) -> dict[str, int]:
        """Number of rows of tables that are there."""

    def row_count(self, table: str) -> int:
        """Number of rows of a table."""
        return self.row_counts([table])[table]

    @abstractmethod
    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        """Number of rows with the values of `only`, the first `begin` and the last `begin` or `end` (None without any)."""

    def _check_first(self, table: str, column: str, time: int | None) -> None:
        """Raise DamagedReport when the first time of a table can't be one."""
        if time is not None and time < EARLIEST_NS:
            raise DamagedReport(self.path, f"table {table}: {time} in {column} is no time of a session")

    @abstractmethod
    def some_values(self, columns: Mapping[str, str]) -> dict[str, int]:
        """A number out of a column of each table, where its first row has one. A table that can't be read has none."""

    @abstractmethod
    def scan(self, table: str, schema: Schema, only: Selection, *, distinct: bool = False) -> pl.LazyFrame:
        """Columns of a table, all of which must be there, in the types given; only rows with the values of `only`.

        `distinct` allows to leave out rows that are equal, in all columns that the pipeline needs, to one that is there.
        """

    def read(self, table: str, schema: Schema) -> pl.DataFrame:
        """What `scan` gives of all rows of a table that is short."""
        return self.scan(table, schema, NO_SELECTION).collect(engine="streaming")

    def stretches(self, table: str, count: int) -> list[Stretch | None]:
        """Parts of a table, about `count` of equal length, that can be read at once; one, None, where it is read as a whole."""
        return [None]

    def batches(self, table: str, schema: Schema, only: Selection, stretch: Stretch | None = None) -> Iterator[pl.DataFrame]:
        """What `scan` gives, or the part of it in one of `stretches`, a bounded batch at a time."""
        scanned = self.scan(table, schema, only)
        yield from scanned.collect_batches(chunk_size=memory.scaled(BATCH_ROWS), maintain_order=True, engine="streaming")


def read_error(path: Path, error: BaseException, table: str = "") -> ReportError | NoResources:
    """The error for what a library raised while it read a file: it is damaged, unless the system refused something."""
    return lack_in(error) or DamagedReport(path, f"table {table}: {error}" if table else str(error))


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
