"""Sort of any number of rows in bounded memory: sorted runs on disk, read back in windows of the first sort column."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from nsys2prv.execution import memory
from nsys2prv.execution.output_files import make_folder, remove_file
from nsys2prv.execution.row_order import is_constant, order_ties, rows_in_order

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
"""Bytes of a run that are written at once: a file system takes a few large pieces in half the time of many small ones."""
_MOST_RUNS, _JOINED_RUNS = 96, 32
"""Runs that windows are read from; of more runs, so many are joined into one first. A read costs the same for few rows as for
many, and windows over the runs of a thousand reports would get few rows of each."""


@dataclass(frozen=True)
class _Run:
    """Rows in a file, sorted by the first sort column. For each batch: first and last value of that column, largest value of
    the `until` column, and number of rows. Numbers that are equal in all rows are `constants`, and not in the file. The rows
    were added in the types of `schema`; `narrowest` are types that hold them."""

    path: Path
    schema: pl.Schema
    narrowest: pl.Schema
    constants: Mapping[str, int | None]
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    untils: tuple[int, ...]
    rows: tuple[int, ...]

    def read(self, window: Window, column: str, types: pl.Schema, until: str | None = None) -> list[pl.DataFrame]:
        """Rows inside a window, in some types: no frame or one. With `until`, only rows that last until its end or longer."""
        indices = self.batches_of(window)
        if until is not None:
            assert window.end is not None
            indices = [index for index in indices if self.untils[index] >= window.end]
        if not indices:
            return []
        with pa.memory_map(str(self.path)) as file, pa.ipc.open_file(file) as reader:
            batches = [reader.get_batch(index) for index in indices]
            for index in {0, len(batches) - 1}:
                batches[index] = window.cut_batch(batches[index], column)
            rows = self._in_types(batches, types)
        return [rows if until is None else rows.filter(pl.col(until) >= window.end)]

    def batches_of(self, window: Window) -> Sequence[int]:
        """Batches with rows that may be inside a window."""
        start = 0 if window.begin is None else bisect.bisect_left(self.lasts, window.begin)
        stop = len(self.firsts) if window.end is None else bisect.bisect_left(self.firsts, window.end)
        return range(start, max(start, stop))

    def _in_types(self, batches: list[pa.RecordBatch], types: pl.Schema) -> pl.DataFrame:
        narrow = pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches), rechunk=False))
        # Column by column: a cast of the frame would wait for threads that are busy.
        return pl.DataFrame(
            [
                pl.Series(name, [self.constants[name]], dtype=dtype).new_from_index(0, narrow.height)
                if name in self.constants
                else narrow[name].cast(dtype)
                for name, dtype in types.items()
            ]
        )


@dataclass(frozen=True)
class Window:
    """Rows with `begin` <= first sort column < `end`; None is open."""

    begin: int | None
    end: int | None

    def cut(self, frame: pl.DataFrame, column: str) -> pl.DataFrame:
        """The rows of a frame, sorted by a column, that are in the window."""
        first, behind = self._bounds(frame[column].to_numpy())
        return frame.slice(first, behind - first)

    def cut_batch(self, batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """The same for an Arrow batch."""
        first, behind = self._bounds(batch.column(column).to_numpy())
        return batch.slice(first, behind - first)

    def _bounds(self, values: np.ndarray) -> tuple[int, int]:
        first = 0 if self.begin is None else int(np.searchsorted(values, self.begin))
        behind = len(values) if self.end is None else int(np.searchsorted(values, self.end))
        return first, behind


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
    wide
        Columns that have the types in which they were added whenever they are loaded; whole numbers in others have the
        narrowest types that hold them all, which takes a part of the time. None: all keep their types.

    After `spill` it can be pickled: the rows stay on the disk. The unpickled object reads them and removes none.
    """

    def __init__(self, by: Sequence[str], folder: Path, until: str | None = None, wide: Collection[str] | None = None) -> None:
        self._by = list(by)
        self._folder = folder
        self._until = until
        self._wide = wide
        # Of what is loaded; known when adding has ended.
        self._types = pl.Schema()
        self._pending: list[pl.DataFrame] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._parts = itertools.count()
        self._files = itertools.count()
        self._in_memory: pl.DataFrame | None = None
        self._is_borrowed = False
        self.rows = 0

    def __getstate__(self) -> dict[str, object]:
        assert self._in_memory is None and not self._pending, "rows in memory can't be pickled: call spill first"  # noqa: PT018
        state = {**self.__dict__, "_is_borrowed": True}
        del state["_parts"], state["_files"]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__ |= {**state, "_parts": itertools.count(), "_files": itertools.count()}

    @property
    def column(self) -> str:
        """The first sort column."""
        return self._by[0]

    def part(self, name: str | None = None) -> ExternalSort:
        """An ExternalSort for a piece of work on another thread; `absorb` it when it is done. Where parts are made in several
        processes, they need different names."""
        return ExternalSort(self._by, self._folder / (name or f"part{next(self._parts)}"), self._until, self._wide)

    def spill(self) -> None:
        """Write what is still in memory."""
        if self._pending:
            self._write_run()

    def absorb(self, part: ExternalSort) -> None:
        """Take over the rows of a part. Rows are in the order of these calls, not in that of the work."""
        self._runs += part._runs
        self.rows += part.rows - part._pending_rows
        for frame in part._pending:
            self.add(frame)
        part._runs, part._pending = [], []

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows; all frames must have the same columns."""
        if frame.is_empty():
            return
        self._pending.append(frame)
        self._pending_rows += frame.height
        self.rows += frame.height
        if self._pending_rows >= memory.scaled(RUN_ROWS):
            self._write_run()
        elif len(self._pending) >= _MOST_PENDING:
            # A frame with few rows needs more memory than its rows, and each collection has as many frames as reports.
            self._pending = [pl.concat(self._pending, rechunk=True)]

    def windows(self, *, keep: bool = False, any_ties: bool = False) -> Iterator[pl.DataFrame]:
        """All rows in order, in frames of about `WINDOW_ROWS` rows; with `keep`, they can be read again.

        Rows that are equal in all sort columns come in the order of their other columns, however they were added. With
        `any_ties`, for results that do not depend on it, they come in any order, which is faster.
        """
        for window in plan_windows([(self, 1)]):
            ordered = _sorted(self.load(window), self._by)
            if not keep and window.end is not None:
                # What is written next can have their place.
                self.drop_before(window.end)
            yield ordered if any_ties else order_ties(ordered, self._by)
        if not keep:
            self.delete()

    def finish(self, *, on_disk: bool = False) -> None:
        """End adding. With `on_disk`, no rows stay in memory."""
        if on_disk:
            self.spill()
        if self._pending and (self._runs or self._pending_rows > memory.scaled(_KEPT_ROWS)):
            self._write_run()
        if self._pending:
            self._in_memory = _sorted(self._pending, self._by[:1])
            self._pending = []
        while len(self._runs) > _MOST_RUNS:
            # Neighbours, so that equal rows keep their order.
            groups = [self._runs[first : first + _JOINED_RUNS] for first in range(0, len(self._runs), _JOINED_RUNS)]
            self._runs = [self._join(group) for group in groups]
        if self._runs:
            self._types = _types_of(self._runs, self._wide)

    def batches(self) -> Iterator[tuple[int, int]]:
        """First value of the first sort column, and number of rows, of each batch of sorted rows; after `finish`."""
        for run in self._runs:
            yield from zip(run.firsts, run.rows, strict=True)
        if self._in_memory is not None:
            values, batch = self._in_memory[self._by[0]], memory.scaled(_BATCH_ROWS)
            for start in range(0, len(values), batch):
                yield int(values[start]), min(batch, len(values) - start)

    def most_rows(self, window: Window) -> int:
        """How many rows of a window `load` reads at most, after `finish`."""
        if self._in_memory is not None:
            return window.cut(self._in_memory, self._by[0]).height
        return sum(run.rows[index] for run in self._runs for index in run.batches_of(window))

    def load(self, window: Window) -> list[pl.DataFrame]:
        """Rows of a window, as frames that are each sorted by the first sort column; of rows that are equal in it, those that
        were added first come first. May be called from several threads.
        """
        column = self._by[0]
        if self._in_memory is not None:
            inside = window.cut(self._in_memory, column)
            return [inside] if inside.height else []
        return [rows for run in self._runs for rows in run.read(window, column, self._types)]

    def load_open(self, cut: int) -> list[pl.DataFrame]:
        """Rows that start before a value of the first sort column and last until it or longer, in the order of `load`."""
        assert self._until is not None, "needs the until column"
        before = Window(None, cut)
        if self._in_memory is not None:
            rows = before.cut(self._in_memory, self._by[0]).filter(pl.col(self._until) >= cut)
            return [rows] if rows.height else []
        of_runs = (rows for run in self._runs for rows in run.read(before, self._by[0], self._types, self._until))
        return [rows for rows in of_runs if rows.height]

    def drop_before(self, value: int | None) -> None:
        """Delete runs whose rows are all before a value of the first sort column; None: all runs."""
        self._drop([run for run in self._runs if value is None or run.lasts[-1] < value])

    def drop_ended(self, value: int) -> None:
        """Delete runs that neither a window from a value of the first sort column on nor `load_open` of it needs. Copies of
        this object in other processes may be used on for what comes then; they delete nothing.
        """
        self._drop([run for run in self._runs if run.lasts[-1] < value and max(run.untils) < value])

    def _drop(self, runs: Sequence[_Run]) -> None:
        if self._is_borrowed:
            return
        for run in runs:
            remove_file(run.path)
        dropped = {run.path for run in runs}
        self._runs = [run for run in self._runs if run.path not in dropped]

    def delete(self) -> None:
        """Delete all rows, on disk and in memory."""
        self.drop_before(None)
        self._in_memory = None

    def _write_run(self) -> None:
        frame = pl.concat(self._pending)
        self._pending, self._pending_rows = [], 0
        # The narrowest integers take less time than compression, and hardly more space.
        narrow = [column.shrink_dtype() if column.dtype.is_integer() else column for column in frame]
        to_find_rows = (self._by[0], self._until)
        constants = {column.name: column[0] for column in narrow if column.name not in to_find_rows and is_constant(column)}
        narrowest = pl.Schema({column.name: column.dtype for column in narrow})
        # Windows are sorted by all columns; a run need only be in the order of the first.
        ordered = rows_in_order(pl.DataFrame([column for column in narrow if column.name not in constants]), self._by[0])
        self._runs.append(self._write(iter([ordered]), frame.schema, narrowest, constants))

    def _join(self, runs: list[_Run]) -> _Run:
        """Join several runs into one, and delete them."""
        if len(runs) == 1:
            return runs[0]
        several = ExternalSort(self._by, self._folder)
        several._runs = runs
        several._is_borrowed = self._is_borrowed
        frames = (_sorted(several.load(window), self._by[:1]) for window in plan_windows([(several, 1)]))
        joined = self._write(frames, runs[0].schema, _types_of(runs, ()), {})
        several.delete()
        return joined

    def _write(
        self, frames: Iterator[pl.DataFrame], schema: pl.Schema, narrowest: pl.Schema, constants: Mapping[str, int | None]
    ) -> _Run:
        """Write consecutive frames as a run: all columns but constants, in types that hold them."""
        make_folder(self._folder)
        batch = memory.scaled(_BATCH_ROWS)
        path = self._folder / f"run{next(self._files)}.arrow"
        stored = pl.Schema({name: dtype for name, dtype in narrowest.items() if name not in constants})
        empty = pl.DataFrame(schema=stored).to_arrow(compat_level=pl.CompatLevel.oldest())
        options = pa.ipc.IpcWriteOptions(compression="lz4" if pl.String in stored.dtypes() else None)
        firsts: list[int] = []
        lasts: list[int] = []
        untils: list[int] = []
        rows: list[int] = []
        with (
            path.open("wb", buffering=_WRITE_BYTES) as file,
            pa.ipc.new_file(file, empty.schema, options=options) as writer,
        ):
            for frame in frames:
                narrow = pl.DataFrame([frame[name].cast(dtype) for name, dtype in stored.items()])
                table = narrow.to_arrow(compat_level=pl.CompatLevel.oldest())
                # In one chunk: otherwise batches would end where the pending frames did.
                writer.write_table(table.combine_chunks(), max_chunksize=batch)
                values, starts = frame[self._by[0]].to_numpy(), np.arange(0, frame.height, batch)
                behind = np.append(starts[1:], frame.height)
                firsts += values[starts].tolist()
                lasts += values[behind - 1].tolist()
                rows += (behind - starts).tolist()
                if self._until is not None:
                    untils += np.maximum.reduceat(frame[self._until].to_numpy(), starts).tolist()
        return _Run(path, schema, narrowest, constants, tuple(firsts), tuple(lasts), tuple(untils or lasts), tuple(rows))


def _types_of(runs: Sequence[_Run], wide: Collection[str] | None) -> pl.Schema:
    """Types that can hold the columns of several runs; those of `wide` (None: all) as the rows were added."""
    order = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
    types: dict[str, pl.DataType] = {}
    for name, dtype in runs[0].schema.items():
        narrowest = {run.narrowest[name] for run in runs}
        is_narrow = wide is not None and name not in wide and narrowest.issubset(order)
        types[name] = max(narrowest, key=order.index) if is_narrow else dtype
    return pl.Schema(types)


def _sorted(frames: list[pl.DataFrame], by: list[str]) -> pl.DataFrame:
    """Rows of several frames in the order of some columns; of rows that are equal in these, the earlier ones first."""
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(by, pl.Int64))
    if len(by) == 1:
        return rows_in_order(pl.concat(frames), by[0])
    return pl.concat(frames).sort(by, maintain_order=True)


def plan_windows(collections: Sequence[tuple[ExternalSort, int]], times: int = 1) -> list[Window]:
    """Windows over several collections (each with the weight of its rows), in order, each of about so many times `WINDOW_ROWS`.
    Afterwards the collections can't be added to.
    """
    for collection, _ in collections:
        collection.finish()
    batches = sorted((first, rows * weight) for collection, weight in collections for first, rows in collection.batches())
    edges: list[int] = []
    most = memory.scaled(WINDOW_ROWS * times)
    rows = 0
    for first, count in batches:
        if rows >= most and (not edges or first > edges[-1]) and first > batches[0][0]:
            edges.append(first)
            rows = 0
        rows += count
    return [Window(begin, end) for begin, end in itertools.pairwise([None, *edges, None])] if batches else []
