"""One opened report: lazy tables with declared columns."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import polars as pl

from nsys2prv.errors import DamagedReport, EmptyReport, MissingColumn, NotAReport, ReportNotFound
from nsys2prv.execution import memory
from nsys2prv.execution.memory import resource_error_in
from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.exports.columns import NOT_APPLICABLE, TIME_COLUMNS, Text, dtype_of, pid_of
from nsys2prv.exports.folder_tables import form_of_folder
from nsys2prv.exports.nsys import RAW_SUFFIXES, export_report
from nsys2prv.exports.session_time import AS_RECORDED, SessionTime, read_session_time
from nsys2prv.exports.stored_columns import StoredTables
from nsys2prv.exports.tables import EXPORT_TABLES, LOOKUPS, Schema, Selection, Stretch, Tables, frames_scan, read_error
from nsys2prv.vocabulary.limits import check_ordinary

# A table with all of these holds what happened on streams; the last two identify a stream of a device.
_STREAM = ("globalPid", "deviceId", "contextId", "streamId")

_OF_CONTEXTS = frozenset(("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"))
"""Tables in which nsys writes device 0, whatever the device of a context is."""
_CONTEXT_BITS = 32

_NEVER_NORMALIZED = frozenset(("MPI_COMMUNICATORS", "DIAGNOSTIC_EVENT"))
"""Tables with times from the start of the session in exports in UTC, too."""

P = ParamSpec("P")
T = TypeVar("T")


def once(read: Callable[Concatenate[Report, P], T]) -> Callable[Concatenate[Report, P], T]:
    """A function that reads something small of a report, and reads it once for the same arguments, whatever view asks."""

    @functools.wraps(read)
    def held(report: Report, /, *arguments: P.args, **named: P.kwargs) -> T:
        name = (read, arguments, tuple(sorted(named.items())))
        return LOOKUPS.get(report.tables, name, lambda: read(report.all_rows, *arguments, **named))

    return held


@dataclass(eq=False, repr=False)
class Report:
    """An opened report. All times that it gives are of the session, also where those of its tables are in UTC or shifted.

    Attributes
    ----------
    path
        What the user named.
    tables
        Its tables, whatever the form of the export.
    session_time
        What was added to the times in its tables.
    is_folded
        Whether all streams of a process on a device are one (`folded`).
    is_distinct
        Whether events that are alike in what a pipeline needs may be one (`distinct`).
    """

    path: Path
    tables: Tables
    session_time: SessionTime = AS_RECORDED
    is_folded: bool = False
    is_distinct: bool = False

    def __repr__(self) -> str:
        return f"Report({str(self.path)!r})"

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table, and all the columns named, are there."""
        return table in self.tables.names() and self.tables.columns(table).issuperset(columns)

    def has_rows(self, table: str) -> bool:
        """Whether a table is there and has rows; ReportError when it can't be read."""
        return self.has(table) and self.tables.row_count(table) > 0

    def scan(
        self, table: str, required: Sequence[str] = (), optional: Sequence[str] = (), *, only: Selection | None = None
    ) -> pl.LazyFrame:
        """Columns of a table in their declared types.

        Parameters
        ----------
        table
            Name of a table; when it is not present the result has no rows.
        required, optional
            Columns: names of whole numbers, else `columns.Text` and the like. An optional one that is not there is null.
        only
            Values of columns that rows must have; other rows are not even read out of a database.

        Raises
        ------
        MissingColumn
            When the table is present without a required column.
        """
        requested, present = self._columns(table, required, optional)
        if table not in self.tables.names():
            return pl.LazyFrame(schema=requested)
        scanned = self.tables.scan(table, present, only or {}, is_distinct=self.is_distinct)
        return scanned.with_columns(self._replaced(table, requested, present)).select(list(requested))

    def read(self, table: str, required: Sequence[str] = (), optional: Sequence[str] = ()) -> pl.DataFrame:
        """All rows of a table that is short, such as one of names: what a `scan` of it gives.

        Raises
        ------
        ReportError
            When the table is present without a required column, or can't be read.
        """
        requested, present = self._columns(table, required, optional)
        if table not in self.tables.names():
            return pl.DataFrame(schema=requested)
        with self._read_errors():
            rows = self.tables.read(table, present)
        return rows.with_columns(self._replaced(table, requested, present)).select(list(requested))

    def scan_events(self, table: str, required: Sequence[str], optional: Sequence[str], only: Selection | None) -> pl.LazyFrame:
        """`scan` of the table whose rows are the events of a source: what `pieces` goes through piece by piece."""
        return self.scan(table, required, optional, only=only)

    def pieces(
        self, pipeline: Callable[[Report], pl.LazyFrame], rows: int, stretch: Stretch | None = None
    ) -> Iterator[pl.DataFrame]:
        """Result of a pipeline over one table of events (`scan_events`) in pieces of about `rows` rows of the table.

        The pipeline must make each row of its result of one row of the table. It is built once and run on each piece, so that
        no more than a piece is in memory. With a `stretch` of the table (`Tables.stretches`), only that part of it.

        Raises
        ------
        ReportError
            When the report breaks off while it is read.
        """
        piecewise = _PiecewiseReport(self, stretch)
        frame = pipeline(piecewise)
        with self._read_errors():
            yield from piecewise.run(frame, rows)

    def _columns(self, table: str, required: Sequence[str], optional: Sequence[str]) -> tuple[Schema, Schema]:
        """Types of the requested columns, and of those that the table has."""
        requested = {str(name): dtype_of(name) for name in (*required, *optional)}
        if table not in self.tables.names():
            return requested, {}
        present = self.tables.columns(table)
        missing = [name for name in required if name not in present]
        if missing:
            raise MissingColumn(self.path, table, missing, present)
        return requested, {name: dtype for name, dtype in requested.items() if name in present}

    def _replaced(self, table: str, requested: Schema, present: Schema) -> list[pl.Expr]:
        """Columns that are not as the table has them: all of these expressions see the table as it is."""
        replaced = [pl.lit(None, dtype).alias(name) for name, dtype in requested.items() if name not in present]
        if self.session_time:
            replaced += [self.session_time.of(pl.col(name)).alias(name) for name in present if name in TIME_COLUMNS]
        if self.is_folded and self.has(table, *_STREAM):
            replaced += [
                pl.when(pl.col(name) != NOT_APPLICABLE).then(pl.lit(0, pl.Int64)).otherwise(name).alias(name)
                for name in _STREAM[2:]
                if name in present
            ]
        if table in _OF_CONTEXTS and {"globalPid", "contextId", "deviceId"}.issubset(present):
            contexts = _devices_of_contexts(self)
            # In a folded report this is the context before it is folded.
            context = pid_of(pl.col("globalPid")) * 2**_CONTEXT_BITS + pl.col("contextId")
            # As it is where a context is not known.
            device = context.replace_strict(
                contexts["context"], contexts["device"], default=pl.col("deviceId"), return_dtype=pl.Int64
            )
            replaced += [device.alias("deviceId")] if contexts.height else []
        return replaced

    def extent(self, table: str, begin: str, end: str, only: Selection) -> tuple[int, int | None, int | None]:
        """`Tables.extent` in time of the session: number of rows, the first `begin` and the last `begin` or `end`, ns."""
        rows, first, last = self.tables.extent(table, begin, end, only)
        of_session = self.session_time.at
        return rows, None if first is None else of_session(first), None if last is None else of_session(last)

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """Result of a pipeline over this report's tables, in bounded memory as far as the result is small; ReportError when
        the report breaks off."""
        with self._read_errors():
            return frame.collect(engine="streaming")

    def count(self, frame: pl.LazyFrame) -> int:
        """Number of rows that a pipeline gives, without holding them."""
        return int(self.collect(frame.select(pl.len())).item())

    def batches(self, frame: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
        """Result of a pipeline over this report's tables in pieces of about `rows` rows, in the order of the table;
        ReportError when the report breaks off."""
        with self._read_errors():
            yield from frame.collect_batches(chunk_size=memory.scaled(rows), maintain_order=True, engine="streaming")

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise self.tables.failure or read_error(self.path, error) from error

    @property
    def all_rows(self) -> Report:
        """The same report with all rows of its tables, unchanged."""
        return Report(self.path, self.tables, self.session_time)

    @cached_property
    def folded(self) -> Report:
        """The same report, where all streams of a process on a device are one, of context 0 and number 0."""
        return Report(self.path, self.tables, self.session_time, is_folded=True)

    @cached_property
    def distinct(self) -> Report:
        """The same report, for pipelines that ask which events there are, not how many: long tables have few that differ."""
        return replace(self, is_distinct=True)

    @property
    def export_metadata(self) -> dict[str, str | None]:
        """What nsys says about the export: versions, and what was added to times."""
        tables = (table for table in ("META_DATA_EXPORT", "EXPORT_META_DATA") if self.has(table))
        metadata = (dict(self.read(table, optional=(Text("name"), Text("value"))).iter_rows()) for table in tables)
        return next(filter(None, metadata), {})

    @property
    def session_start(self) -> tuple[int | None, int | None]:
        """UTC and the host's monotonic clock at time 0 of the session, ns; None when not known."""
        start = self.read("TARGET_INFO_SESSION_START_TIME", optional=("utcEpochNs", "systemClockNs"))
        utc, monotonic = start.row(0) if start.height else (None, None)
        # Times in UTC contain the start of the session.
        return (self.session_time.utc or None) if utc is None else utc, monotonic

    @property
    @once
    def strings(self) -> pl.DataFrame:
        """Columns `id`, `value`: all texts that other tables refer to."""
        return drop_duplicates(self.read("StringIds", ("id", Text("value"))), "id")

    def is_at(self, path: Path) -> bool:
        """Whether a path is that of this report, or of a file of it."""
        return any(path == report or report in path.parents for report in (self.path, self.tables.path))


class _PiecewiseReport(Report):
    """A report whose events are, at any time, those of one piece."""

    def __init__(self, report: Report, stretch: Stretch | None) -> None:
        super().__init__(report.path, report.tables, report.session_time, is_folded=report.is_folded)
        self._stretch = stretch
        self._piece = pl.DataFrame()
        self._batches: Iterator[pl.DataFrame] = iter(())

    def scan_events(self, table: str, required: Sequence[str], optional: Sequence[str], only: Selection | None) -> pl.LazyFrame:
        requested, present = self._columns(table, required, optional)
        if table in self.tables.names():
            self._batches = self.tables.batches(table, present, only or {}, self._stretch)
        replaced = self._replaced(table, requested, present)

        return frames_scan(lambda columns: iter([self._piece.with_columns(replaced).select(columns)]), requested)

    def run(self, frame: pl.LazyFrame, rows: int) -> Iterator[pl.DataFrame]:
        """Results of a pipeline for pieces of about `rows` rows of the table of events."""
        waiting: list[pl.DataFrame] = []
        for batch in itertools.chain(self._batches, [None]):
            waiting += [] if batch is None else [batch]
            if waiting and (batch is None or sum(map(len, waiting)) >= memory.scaled(rows)):
                self._piece = pl.concat(waiting)
                waiting = []
                # Quicker to begin than the streaming engine. No scan in it waits for a lock, which could be held by a thread
                # that waits for this engine's threads.
                yield frame.collect(engine="in-memory")


@once
def _devices_of_contexts(report: Report) -> pl.DataFrame:
    """Columns `context` (process and context in one number), `device`: of contexts that are on one device."""
    columns, tables = ("processId", "contextId", "deviceId"), ("CONTEXT_INFO", "NULL_STREAM")
    contexts = pl.concat(report.read(f"TARGET_INFO_CUDA_{name}", optional=columns).drop_nulls() for name in tables)
    by_context = contexts.group_by(context=pl.col("processId") * 2**_CONTEXT_BITS + pl.col("contextId")).agg("deviceId")
    devices = pl.col("deviceId").list
    return by_context.filter(devices.n_unique() == 1).select("context", device=devices.first())


@once
def _labels(report: Report, table: str) -> dict[int, str]:
    entries = report.read(table, optional=("id", Text("name"), Text("label")))
    return dict(drop_duplicates(entries.select("id", label=pl.coalesce("label", "name")).drop_nulls(), "id").iter_rows())


def enum_labels(report: Report, table: str, fixed: Mapping[int, str] | None = None) -> dict[int, str]:
    """Label of each number of an ENUM_* table, which differ between versions of nsys; the table need not be there.

    `fixed` are labels that traces have for numbers, whatever the report calls them."""
    return {**_labels(report, table), **(fixed or {})}


def open_report(path: Path, nsys: Path | None = None) -> Report:
    """Open a report in whatever form it has.

    Parameters
    ----------
    path
        A file or a folder of tables.
    nsys
        The program that exports a `.nsys-rep`, into a file beside it; by default the one on PATH (`nsys_program`).

    Raises
    ------
    ReportError
        When there is nothing that can be read.
    ExportError
        When nsys is needed and is not found, or fails.
    """
    try:
        tables = _open_tables(path, nsys)
    except OSError as error:
        raise resource_error_in(error) or ReportNotFound(path, f"it can't be read ({error.strerror or error})") from error
    names = tables.names()
    if not names:
        raise EmptyReport(path, "there is no table in it")
    if not names.intersection(EXPORT_TABLES):
        raise NotAReport(path, "these tables are not those of an nsys export")
    return Report(path, tables, _session_time(Report(path, tables)))


def _open_tables(path: Path, nsys: Path | None) -> Tables:
    if not path.exists():
        raise ReportNotFound(path, "there is no such file or folder")
    if path.is_dir() and path.suffix not in RAW_SUFFIXES:
        form = form_of_folder(path)
        if form is None:
            raise NotAReport(path, "this folder holds neither reports nor tables of one")
        return form(path)
    if not path.is_dir():
        check_ordinary(path)
    if path.suffix in RAW_SUFFIXES:
        return StoredTables(export_report(path, nsys))
    if path.stat().st_size == 0:
        raise EmptyReport(path, "the file is empty")
    return StoredTables(path)


def _session_time(report: Report) -> SessionTime:
    tables = report.tables
    events = sorted(tables.names() - _NEVER_NORMALIZED)
    # Tables of samples count where a report has nothing else: their first times can be wrong.
    by_column = ({table: name for table in events if _has(tables, table, name)} for name in ("start", "timestamp"))
    columns = next(filter(None, by_column), {})

    def firsts() -> dict[str, int]:
        extents = {table: tables.extent(table, name, name, {}) for table, name in columns.items()}
        return {table: first for table, (_, first, _) in extents.items() if first is not None}

    return read_session_time(report.export_metadata, report.session_start[0], lambda: tables.some_values(columns), firsts)


def _has(tables: Tables, table: str, column: str) -> bool:
    """Whether a table has a column. Whether it can be read matters where it is read."""
    with contextlib.suppress(DamagedReport):
        return column in tables.columns(table)
    return False
