"""Sort of any number of rows in bounded memory: sorted runs on disk, read back in windows of the first sort column."""

from __future__ import annotations

import bisect
import itertools
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from nsys2prv.execution import memory
from nsys2prv.execution.output_files import make_folder, remove_file
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


Rows = TypeVar("Rows", pl.DataFrame, pa.RecordBatch)


def in_types(rows: pl.DataFrame, schema: Mapping[str, Any]) -> pl.DataFrame:
    """Columns of rows in some types."""
    # Column by column: a cast of the frame would wait for threads that are busy.
    return pl.DataFrame([rows[name].cast(dtype) for name, dtype in schema.items()])


def narrowest(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the narrowest types that hold their whole numbers, and without space for columns of nulls: that takes less time
    than compression, and hardly more space."""
    columns = (column.cast(pl.Null) if column.null_count() == len(column) else column for column in rows.get_columns())
    return pl.DataFrame([column.shrink_dtype() if column.dtype.is_integer() else column for column in columns])


class Window(NamedTuple):
    """Rows with `begin` <= first sort column < `end`; None is open."""

    begin: int | None
    end: int | None

    def cut(self, rows: Rows, column: np.ndarray) -> Rows:
        """Those of some rows, which are sorted by a column, that are in the window."""
        first = 0 if self.begin is None else int(np.searchsorted(column, self.begin))
        behind = len(column) if self.end is None else int(np.searchsorted(column, self.end))
        return rows.slice(first, behind - first)


class _Batch(NamedTuple):
    """Number of rows, first and last value of the first sort column, and largest value of the `until` column."""

    length: int
    first: int
    last: int
    until: int


class _Run(NamedTuple):
    """Rows in the order of the first sort column, in memory or in a file; there they are in batches, and have narrow types."""

    rows: pl.DataFrame | Path
    types: pl.Schema
    batches: list[_Batch]

    def places_of(self, window: Window) -> range:
        """Places of batches with rows that may be in a window."""
        start = 0 if window.begin is None else bisect.bisect_left(self.batches, window.begin, key=attrgetter("last"))
        stop = None if window.end is None else bisect.bisect_left(self.batches, window.end, key=attrgetter("first"))
        return range(start, len(self.batches) if stop is None else stop)

    def read(self, places: Sequence[int], window: Window, column: str, schema: pl.Schema) -> pl.DataFrame:
        """Rows of some batches that are in a window."""
        if isinstance(self.rows, pl.DataFrame):
            in_window: pl.DataFrame = window.cut(self.rows, self.rows[column].to_numpy())
            return in_window
        with pa.memory_map(str(self.rows)) as file, pa.ipc.open_file(file) as reader:
            batches = [reader.get_batch(place) for place in places]
            for place in {0, len(batches) - 1}:
                batches[place] = window.cut(batches[place], batches[place].column(column).to_numpy())
            narrow = pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches), rechunk=False))
            return in_types(narrow, schema)


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

    Pickled, it has its rows on the disk: the unpickled object reads them and removes none.
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
        self.finish()
        self._runs = [run if isinstance(run.rows, Path) else self._stored(run.rows) for run in self._runs]
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
            self._runs.append(self._stored(pl.concat(self._pending)))
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
        if self._runs or sum(frame.height for frame in self._pending) > memory.scaled(_KEPT_ROWS):
            self.spill()
        if self._pending:
            rows = rows_in_order(pl.concat(self._pending), self.column)
            self._runs.append(_Run(rows, rows.schema, self._batches(rows, rows.height)))
            self._pending = []
        while len(self._runs) > _MOST_RUNS:
            # Neighbours, so that equal rows keep their order.
            groups = [self._runs[first : first + _JOINED_RUNS] for first in range(0, len(self._runs), _JOINED_RUNS)]
            self._runs = [self._joined(group) if len(group) > 1 else group[0] for group in groups]

    def most_rows(self, window: Window) -> int:
        """How many rows of a window `load` reads at most, after `finish`."""
        return sum(run.batches[place].length for run in self._runs for place in run.places_of(window))

    def load(self, window: Window, until: float = -math.inf) -> list[pl.DataFrame]:
        """Rows of a window, as frames that are each sorted by the first sort column; of rows that are equal in it, those that
        were added first come first. Those that do not last `until` a value may be missing. May be called from several threads.
        """
        frames = []
        for run in self._runs:
            places = [place for place in run.places_of(window) if run.batches[place].until >= until]
            if places and (rows := run.read(places, window, self.column, self._schema)).height:
                frames.append(rows)
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
        Copies of this object in other processes may be used on for what comes then; they delete nothing."""
        runs, self._runs = self._runs, []
        for run in runs:
            if self._is_borrowed or (value is not None and any(batch.until >= value for batch in run.batches)):
                self._runs.append(run)
            elif isinstance(run.rows, Path):
                remove_file(run.rows)

    def _joined(self, runs: list[_Run]) -> _Run:
        """Several runs as one; they are deleted."""
        several = self.part()
        several._runs, several._schema, several._is_borrowed = runs, self._schema, self._is_borrowed
        frames = (rows_in_order(pl.concat(several.load(window)), self.column) for window in plan_windows([(several, 1)]))
        # In types that hold the columns of all of them.
        types = pl.concat([pl.DataFrame(schema=run.types) for run in runs], how="vertical_relaxed").schema
        joined = self._written(frames, types)
        several.delete()
        return joined

    def _stored(self, rows: pl.DataFrame) -> _Run:
        """Rows as a run in a file."""
        # Windows are sorted by all columns; a run need only be in the order of the first.
        narrow = rows_in_order(narrowest(rows), self.column)
        return self._written([narrow], narrow.schema)

    def _written(self, frames: Iterable[pl.DataFrame], types: pl.Schema) -> _Run:
        """Consecutive frames as a run in a file, in types that hold their numbers."""
        make_folder(self._folder)
        size = memory.scaled(_BATCH_ROWS)
        path, batches = self._folder / f"{secrets.token_hex(8)}.arrow", list[_Batch]()
        schema = pl.DataFrame(schema=types).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        options = pa.ipc.IpcWriteOptions(compression="lz4" if pl.String in types.dtypes() else None)
        with (
            path.open("wb", buffering=_WRITE_BYTES) as file,
            pa.ipc.new_file(file, schema, options=options) as writer,
        ):
            for frame in frames:
                # In one chunk: otherwise batches would end where the pending frames did.
                table = in_types(frame, types).to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
                writer.write_table(table, max_chunksize=size)
                batches += self._batches(frame, size)
        return _Run(path, types, batches)

    def _batches(self, rows: pl.DataFrame, size: int) -> list[_Batch]:
        values, untils = (rows[name].to_numpy() for name in (self.column, self._until or self.column))
        slices = [slice(start, start + size) for start in range(0, len(values), size)]
        return [
            _Batch(len(values[part]), int(values[part][0]), int(values[part][-1]), int(untils[part].max())) for part in slices
        ]


def plan_windows(collections: Sequence[tuple[ExternalSort, int]], times: int = 1) -> list[Window]:
    """Windows over several collections (each with the weight of its rows), in order, each of about so many times `WINDOW_ROWS`.
    Afterwards the collections can't be added to."""
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
