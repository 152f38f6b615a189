"""Sort of any number of rows in bounded memory: sorted runs on disk, read back in windows of the first sort column."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
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
_BATCH_ROWS = 16_384
"""Rows of a run that are read at once. A window may read up to so many rows too much of each run."""
_WRITE_BYTES = 1_000_000
"""Bytes that are written at once: a file system takes a few large pieces in half the time of many small ones."""
_MOST_RUNS, _JOINED_RUNS = 96, 32
"""Runs that windows are read from; of more runs, so many are joined into one first. A read costs the same for few rows as for
many, and windows over the runs of a thousand reports would get few rows of each."""


class StoredRows(NamedTuple):
    """Rows in a file, as an Arrow stream with the narrowest types that hold their numbers: where it is (bytes), how many."""

    path: Path
    offset: int
    length: int
    height: int

    def load(self, columns: Sequence[int] | None = None) -> pl.DataFrame:
        """Columns, by their places (at least one; None: all), in their order and in the types in which they are stored."""
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        # What is mapped counts as memory of the process: no longer than these rows are read.
        with disk_errors(self.path), pa.memory_map(str(self.path)) as file:
            file.seek(self.offset)
            with pa.ipc.open_stream(file.read_buffer(self.length), options=options) as stream:
                return pl.DataFrame(pl.from_arrow(stream.read_all(), rechunk=False))


def store_rows(rows: pl.DataFrame, file: BinaryIO | pa.NativeFile, path: Path) -> StoredRows:
    """Append rows to an open file, which has a path. Columns of nulls take no space.

    Narrow numbers would take more time compressed, and hardly less space."""
    columns = (column.cast(pl.Null) if column.null_count() == len(column) else column for column in rows.get_columns())
    narrow = pl.DataFrame([column.shrink_dtype() if column.dtype.is_integer() else column for column in columns])
    table = narrow.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    is_text = not all(pa.types.is_primitive(field.type) or pa.types.is_null(field.type) for field in table.schema)
    options = pa.ipc.IpcWriteOptions(compression="lz4" if is_text else None, use_threads=False)
    offset = file.tell()
    with pa.ipc.new_stream(file, table.schema, options=options) as stream:
        stream.write_table(table)
    return StoredRows(path, offset, file.tell() - offset, rows.height)


def in_types(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Columns of rows in some types."""
    # Column by column: a cast of the frame would wait for threads that are busy.
    return pl.DataFrame([rows[name].cast(dtype) for name, dtype in schema.items()])


class _Batch(NamedTuple):
    """Rows in the order of the first sort column, in memory or in a file: first and last value of that column, and the largest
    of the `until` column."""

    rows: pl.DataFrame | StoredRows
    first: int
    last: int
    until: int


_Run = list[_Batch]
"""Batches in the order of the first sort column, all in one file, or one in memory."""


class Window(NamedTuple):
    """Rows with `begin` <= first sort column < `end`; None is open."""

    begin: int | None
    end: int | None

    def meets(self, batch: _Batch) -> bool:
        """Whether rows of a batch may be in the window."""
        return (self.begin is None or batch.last >= self.begin) and (self.end is None or batch.first < self.end)

    def rows(self, batch: _Batch, column: str) -> pl.DataFrame:
        """Rows of a batch, which are sorted by a column, that are in the window."""
        rows = batch.rows.load() if isinstance(batch.rows, StoredRows) else batch.rows
        values = rows[column].to_numpy()
        first = 0 if self.begin is None else int(np.searchsorted(values, self.begin))
        behind = len(values) if self.end is None else int(np.searchsorted(values, self.end))
        return rows[first:behind]


class ExternalSort:
    """Collects frames and returns them sorted, in the same order whatever the order of the rows was (but see `load`).

    Parameters
    ----------
    by
        Sort columns (Int64, no nulls). All rows that are equal in the first of them are in one window.
    folder
        Folder of the runs, made when it is needed. Nothing is written for fewer than `RUN_ROWS` rows.
    until
        Column (Int64, no nulls) with the value of the first sort column until which a row lasts; None: its own value.

    Attributes
    ----------
    rows
        Number of rows that were added.

    Pickled, it has its rows on the disk: the unpickled object reads them and removes none.
    """

    def __init__(self, by: Sequence[str], folder: Path, until: str | None = None) -> None:
        self._by = list(by)
        self.column = self._by[0]
        self._folder = folder
        self._until = until or self.column
        self._schema = pl.Schema()
        self._pending: list[pl.DataFrame] = []
        self._runs: list[_Run] = []
        self._is_borrowed = False
        self.rows = 0

    def __getstate__(self) -> dict[str, object]:
        self.finish()
        self._runs = [run if isinstance(run[0].rows, StoredRows) else self._stored([run[0].rows]) for run in self._runs]
        return {**self.__dict__, "_is_borrowed": True}

    def part(self) -> ExternalSort:
        """An ExternalSort for a piece of work on another thread, or in another process; `absorb` it when it is done."""
        return ExternalSort(self._by, self._folder, self._until)

    def spill(self, *, to_disk: bool = True) -> None:
        """Make a run of the rows that were added since the last one."""
        if self._pending:
            # Windows are sorted by all columns; a run need only be in the order of the first.
            rows = rows_in_order(pl.concat(self._pending), self.column)
            self._runs.append(self._stored([rows]) if to_disk else [self._batch(rows, rows)])
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

        Rows that are equal in all sort columns come in the order of their other columns, however they were added."""
        for window in plan_windows([(self, 1)]):
            rows = pl.concat(self.load(window))
            # What is written next can have their place.
            self.drop_before(window.end)
            yield in_content_order(rows, self._by)

    def finish(self) -> None:
        """End adding: hardly any rows stay in memory."""
        pending = sum(frame.height for frame in self._pending)
        self.spill(to_disk=bool(self._runs) or pending > memory.scaled(_KEPT_ROWS))
        while len(self._runs) > _MOST_RUNS:
            # Neighbours, so that equal rows keep their order.
            groups = [self._runs[first : first + _JOINED_RUNS] for first in range(0, len(self._runs), _JOINED_RUNS)]
            self._runs = [self._joined(group) if len(group) > 1 else group[0] for group in groups]

    def most_rows(self, window: Window) -> int:
        """How many rows of a window `load` reads at most, after `finish`."""
        return sum(batch.rows.height for batch in itertools.chain.from_iterable(self._runs) if window.meets(batch))

    def load(self, window: Window, until: int | None = None) -> list[pl.DataFrame]:
        """Rows of a window, as frames that are each sorted by the first sort column; of rows that are equal in it, those that
        were added first come first. With `until`, only those that last until a value of it or longer. May be called from
        several threads."""
        batches = (batch for run in self._runs for batch in run if window.meets(batch))
        loaded = (window.rows(batch, self.column) for batch in batches if until is None or batch.until >= until)
        frames = (in_types(rows, self._schema) for rows in loaded)
        if until is not None:
            frames = (rows.filter(pl.col(self._until) >= until) for rows in frames)
        return [rows for rows in frames if rows.height]

    def drop_before(self, value: int | None) -> None:
        """Delete runs that neither a window from a value of the first sort column on nor rows that last until it need; None:
        all. Copies of this object in other processes may be used on for what comes then; they delete nothing."""
        runs, self._runs = self._runs, []
        for run in runs:
            if self._is_borrowed or (value is not None and any(batch.until >= value for batch in run)):
                self._runs.append(run)
            elif isinstance(run[0].rows, StoredRows):
                remove_file(run[0].rows.path)

    def _joined(self, runs: list[_Run]) -> _Run:
        """Several runs as one; they are deleted."""
        several = self.part()
        several._runs, several._schema, several._is_borrowed = runs, self._schema, self._is_borrowed
        windows = plan_windows([(several, 1)])
        joined = self._stored(rows_in_order(pl.concat(several.load(window)), self.column) for window in windows)
        several.drop_before(None)
        return joined

    def _stored(self, frames: Iterable[pl.DataFrame]) -> _Run:
        """Consecutive frames as a run in a file."""
        make_folder(self._folder)
        path, size = self._folder / f"{secrets.token_hex(8)}.arrow", memory.scaled(_BATCH_ROWS)
        with path.open("wb", buffering=_WRITE_BYTES) as file:
            batches = (rows for frame in frames for rows in frame.iter_slices(size))
            return [self._batch(rows, store_rows(rows, file, path)) for rows in batches]

    def _batch(self, rows: pl.DataFrame, place: pl.DataFrame | StoredRows) -> _Batch:
        values, untils = (rows[name].to_numpy() for name in (self.column, self._until))
        return _Batch(place, int(values[0]), int(values[-1]), int(untils.max()))


def plan_windows(collections: Sequence[tuple[ExternalSort, int]], times: int = 1) -> list[Window]:
    """Windows over several collections (each with the weight of its rows), in order, each of about so many times `WINDOW_ROWS`.
    Afterwards the collections can't be added to."""
    for collection, _ in collections:
        collection.finish()
    batches = sorted(
        (batch.first, batch.rows.height * weight) for stored, weight in collections for run in stored._runs for batch in run
    )
    edges = [first for first, _ in batches[:1]]
    rows, most = 0, memory.scaled(WINDOW_ROWS * times)
    for first, count in batches:
        if rows >= most and first > edges[-1]:
            edges.append(first)
            rows = 0
        rows += count
    return [Window(begin, end) for begin, end in itertools.pairwise([None, *edges[1:], None])] if batches else []
