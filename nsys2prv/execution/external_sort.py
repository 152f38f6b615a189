"""More rows than fit into memory: batches of them in files, and a sort, whose rows are read back in windows of a column."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from nsys2prv.execution import memory
from nsys2prv.execution.output_files import disk_errors, make_folder, remove_file
from nsys2prv.execution.row_order import in_content_order, rows_in_order

RUN_ROWS = 40_000
"""Rows that are sorted at once and then written as one run."""
WINDOW_ROWS = 90_000
"""Approximate number of rows of a window."""
_KEPT_ROWS = 8_000
"""Rows that may stay in memory after the last `add`: there are many collections, most of them small."""
_MOST_PENDING = 32
"""Frames that wait to be written; more are concatenated."""
_BATCH_ROWS = 8_192
"""Rows of a run that are read at once. A window may read up to so many rows too much of each run."""
_WRITE_BYTES = 1_000_000
"""Bytes that are written at once: a file system takes a few large pieces in half the time of many small ones."""
_MOST_RUNS, _JOINED_RUNS = 96, 32
"""Runs that windows are read from; of more runs, so many are joined into one first. A read costs the same for few rows as for
many, and windows over the runs of a thousand reports would get few rows of each."""


class StoredBatch(NamedTuple):
    """Rows in a file: where they are (bytes), and how many."""

    path: Path
    offset: int
    length: int
    rows: int

    def load(self, columns: Sequence[int] | None = None) -> pl.DataFrame:
        """Columns by their places (at least one; None: all), in their order, in the types in which they are stored."""
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        # What is mapped counts as memory of the process: no longer than this batch is read.
        with disk_errors(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            with pa.ipc.open_stream(file.read_buffer(self.length), options=options) as stream:
                return pl.DataFrame(pl.from_arrow(stream.read_all(), rechunk=False))


@contextlib.contextmanager
def batch_file(path: Path) -> Iterator[Callable[[pl.DataFrame], StoredBatch]]:
    """What appends rows to a new file, as a stream of Arrow with the narrowest types that hold their whole numbers."""
    with path.open("wb", buffering=_WRITE_BYTES) as file:

        def append(rows: pl.DataFrame) -> StoredBatch:
            narrow = pl.DataFrame([_narrowest(column) for column in rows.get_columns()])
            table = narrow.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
            # Narrow numbers would take more time compressed, and hardly less space.
            is_text = not all(pa.types.is_primitive(field.type) or pa.types.is_null(field.type) for field in table.schema)
            options = pa.ipc.IpcWriteOptions(compression="lz4" if is_text else None, use_threads=False)
            offset = file.tell()
            with pa.ipc.new_stream(file, table.schema, options=options) as stream:
                stream.write_table(table)
            return StoredBatch(path, offset, file.tell() - offset, rows.height)

        yield append


def _narrowest(column: pl.Series) -> pl.Series:
    narrow: pl.Series = column.shrink_dtype() if column.dtype.is_integer() else column
    return column.cast(pl.Null) if column.null_count() == len(column) else narrow


def in_types(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Columns of rows in some types."""
    # Column by column: a cast of the frame would wait for threads that are busy.
    return pl.DataFrame([rows[name].cast(dtype) for name, dtype in schema.items()])


class Window(NamedTuple):
    """Rows with `begin` <= first sort column < `end`; None is open."""

    begin: int | None
    end: int | None

    def cut(self, rows: pl.DataFrame, column: str) -> pl.DataFrame:
        """Those of some rows, which are sorted by a column, that are in the window."""
        first = 0 if self.begin is None else int(rows[column].search_sorted(self.begin))
        behind = rows.height if self.end is None else int(rows[column].search_sorted(self.end))
        return rows[first:behind]


class _Batch(NamedTuple):
    """Rows in the order of the first sort column: its first and last value, and the largest of the `until` column."""

    rows: pl.DataFrame | StoredBatch
    length: int
    first: int
    last: int
    until: int


class _Run(NamedTuple):
    """Batches one after the other in the order of the first sort column; `path` is their file, None in memory."""

    batches: Sequence[_Batch]
    path: Path | None = None

    def batches_in(self, window: Window) -> Sequence[_Batch]:
        """Batches with rows that may be in a window."""
        start = 0 if window.begin is None else bisect.bisect_left(self.batches, window.begin, key=attrgetter("last"))
        stop = None if window.end is None else bisect.bisect_left(self.batches, window.end, key=attrgetter("first"))
        return self.batches[start:stop]


class ExternalSort:
    """Collects frames and returns them sorted, in the same order whatever the order of the rows was (but see `load`).

    Parameters
    ----------
    by
        Sort columns (Int64, no nulls). All rows that are equal in the first of them are in one window.
    folder
        Folder of the runs, made when it is needed. Nothing is written for fewer than `RUN_ROWS` rows.
    until
        Column (Int64, no nulls) with the value of the first sort column until which a row lasts: only for `load_open`.

    After `spill` it can be pickled: the rows stay on the disk. The unpickled object reads them and removes none.
    """

    def __init__(self, by: Sequence[str], folder: Path, until: str | None = None) -> None:
        self._by = list(by)
        self._folder = folder
        self._until = until
        self._schema = pl.Schema()
        self._pending: list[pl.DataFrame] = []
        self._runs: list[_Run] = []
        self._is_borrowed = False
        self.rows = 0

    def __getstate__(self) -> dict[str, object]:
        in_memory = [run for run in self._runs if run.path is None]
        assert not [*in_memory, *self._pending], "rows in memory can't be pickled: call spill first"
        return {**self.__dict__, "_is_borrowed": True}

    @property
    def column(self) -> str:
        """The first sort column."""
        return self._by[0]

    def part(self) -> ExternalSort:
        """An ExternalSort for a piece of work on another thread, or in another process; `absorb` it when it is done."""
        return ExternalSort(self._by, self._folder, self._until)

    def spill(self) -> None:
        """Write what is still in memory."""
        if self._pending:
            # Windows are sorted by all columns; a run need only be in the order of the first.
            self._runs.append(self._written([rows_in_order(pl.concat(self._pending), self.column)]))
            self._pending = []

    def absorb(self, part: ExternalSort) -> None:
        """Take over the rows of a part. Rows are in the order of these calls, not in that of the work."""
        self._runs += part._runs
        self._schema = part._schema or self._schema
        self._add(part._pending, part.rows)
        part._runs, part._pending = [], []

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows; all frames must have the same columns."""
        if frame.height:
            self._schema = frame.schema
            self._add([frame], frame.height)

    def _add(self, frames: list[pl.DataFrame], rows: int) -> None:
        self._pending += frames
        self.rows += rows
        if sum(frame.height for frame in self._pending) >= memory.scaled(RUN_ROWS):
            self.spill()
        elif len(self._pending) >= _MOST_PENDING:
            # A frame with few rows needs more memory than its rows, and each collection has as many frames as reports.
            self._pending = [pl.concat(self._pending, rechunk=True)]

    def windows(self) -> Iterator[pl.DataFrame]:
        """All rows in order, in frames of about `WINDOW_ROWS` rows; they can be read once.

        Rows that are equal in all sort columns come in the order of their other columns, however they were added.
        """
        for window in plan_windows([(self, 1)]):
            rows = pl.concat(self.load(window))
            # What is written next can have their place.
            self.drop_before(window.end)
            yield in_content_order(rows, self._by)

    def finish(self, *, on_disk: bool = False) -> None:
        """End adding. With `on_disk`, no rows stay in memory."""
        if on_disk or self._runs or sum(frame.height for frame in self._pending) > memory.scaled(_KEPT_ROWS):
            self.spill()
        if self._pending:
            rows = rows_in_order(pl.concat(self._pending), self.column)
            self._runs.append(_Run([self._batch(rows, rows)]))
            self._pending = []
        while len(self._runs) > _MOST_RUNS:
            # Neighbours, so that equal rows keep their order.
            groups = [self._runs[first : first + _JOINED_RUNS] for first in range(0, len(self._runs), _JOINED_RUNS)]
            self._runs = [self._joined(group) if len(group) > 1 else group[0] for group in groups]

    def most_rows(self, window: Window) -> int:
        """How many rows of a window `load` reads at most, after `finish`."""
        return sum(batch.length for run in self._runs for batch in run.batches_in(window))

    def load(self, window: Window, until: float = -math.inf) -> list[pl.DataFrame]:
        """Rows of a window, as frames that are each sorted by the first sort column; of rows that are equal in it, those that
        were added first come first. Those that do not last `until` a value may be missing. May be called from several threads.
        """
        frames = []
        for batch in (batch for run in self._runs for batch in run.batches_in(window) if batch.until >= until):
            rows = batch.rows.load() if isinstance(batch.rows, StoredBatch) else batch.rows
            if (inside := window.cut(rows, self.column)).height:
                frames.append(in_types(inside, self._schema))
        return frames

    def load_open(self, cut: int) -> list[pl.DataFrame]:
        """Rows that start before a value of the first sort column and last until it or longer, in the order of `load`."""
        assert self._until is not None, "needs the until column"
        frames = self.load(Window(None, cut), cut)
        return [rows for frame in frames if (rows := frame.filter(pl.col(self._until) >= cut)).height]

    def delete(self) -> None:
        """Delete all rows, on disk and in memory."""
        self.drop_before(None)

    def drop_before(self, value: int | None) -> None:
        """Delete runs that neither a window from a value of the first sort column on nor `load_open` of it needs; None: all.
        Copies of this object in other processes may be used on for what comes then; they delete nothing.
        """
        runs, self._runs = self._runs, []
        for run in runs:
            if self._is_borrowed or (value is not None and any(batch.until >= value for batch in run.batches)):
                self._runs.append(run)
            elif run.path is not None:
                remove_file(run.path)

    def _joined(self, runs: list[_Run]) -> _Run:
        """Several runs as one; they are deleted."""
        several = self.part()
        several._runs, several._schema, several._is_borrowed = runs, self._schema, self._is_borrowed
        frames = (rows_in_order(pl.concat(several.load(window)), self.column) for window in plan_windows([(several, 1)]))
        joined = self._written(frames)
        several.delete()
        return joined

    def _written(self, frames: Iterable[pl.DataFrame]) -> _Run:
        """Consecutive frames as a run in a file."""
        make_folder(self._folder)
        size, path = memory.scaled(_BATCH_ROWS), self._folder / f"{secrets.token_hex(8)}.arrow"
        with batch_file(path) as append:
            return _Run([self._batch(rows, append(rows)) for frame in frames for rows in frame.iter_slices(size)], path)

    def _batch(self, rows: pl.DataFrame, stored: pl.DataFrame | StoredBatch) -> _Batch:
        column, until = rows[self.column], rows[self._until or self.column]
        return _Batch(stored, rows.height, column[0], column[-1], until.max())  # type: ignore[arg-type]


def plan_windows(collections: Sequence[tuple[ExternalSort, int]], times: int = 1) -> list[Window]:
    """Windows over several collections (each with the weight of its rows), in order, each of about so many times `WINDOW_ROWS`.
    Afterwards the collections can't be added to.
    """
    for collection, _ in collections:
        collection.finish()
    batches = sorted(
        (batch.first, batch.length * weight)
        for collection, weight in collections
        for run in collection._runs
        for batch in run.batches
    )
    edges: list[int] = []
    most = memory.scaled(WINDOW_ROWS * times)
    rows = 0
    for first, count in batches:
        if rows >= most and (not edges or first > edges[-1]) and first > batches[0][0]:
            edges.append(first)
            rows = 0
        rows += count
    return [Window(begin, end) for begin, end in itertools.pairwise([None, *edges, None])] if batches else []
