"""Sort of any number of rows in bounded memory: sorted runs on disk, read back in windows of the first sort column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

RUN_ROWS = 120_000
"""Rows that are sorted at once and then written as one run."""
WINDOW_ROWS = 80_000
"""About how many rows are given back at once."""
_BATCH_ROWS = 4_096
"""Rows of a run that are read at once: what a window may hold too much of each run."""


@dataclass(frozen=True)
class _Batch:
    """Where a stretch of a run is, and the first and last value of the first sort column in it."""

    run: int
    index: int
    first: int
    last: int
    rows: int


class SortedRuns:
    """Collects frames and gives them back sorted; rows that are equal in all sort columns keep the order of their arrival.

    Parameters
    ----------
    by
        Sort columns (Int64, no nulls). All rows that are equal in the first of them are given back in one window.
    folder
        Where runs are written; made when it is needed. Nothing is written for less than `RUN_ROWS` rows.
    """

    def __init__(self, by: Sequence[str], folder: Path) -> None:
        self._by = list(by)
        self._folder = folder
        self._pending: list[pl.DataFrame] = []
        self._pending_rows = 0
        self._runs: list[Path] = []
        self._batches: list[_Batch] = []
        self.rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        """Take rows in; all frames must have the same columns."""
        if frame.is_empty():
            return
        self._pending.append(frame)
        self._pending_rows += frame.height
        self.rows += frame.height
        if self._pending_rows >= RUN_ROWS:
            self._write_run()

    def windows(self) -> Iterator[pl.DataFrame]:
        """All rows in order, in frames of about `WINDOW_ROWS` rows; runs are deleted when they are read."""
        if not self._runs:
            yield from _cut(self._sorted_pending(), self._by[0])
            return
        self._write_run()
        ahead = sorted(self._batches, key=lambda batch: batch.first)
        held: dict[int, pl.DataFrame] = {}
        while ahead or held:
            end, rows = 0, sum(frame.height for frame in held.values())
            while end < len(ahead) and (rows < WINDOW_ROWS or end == 0):
                rows += ahead[end].rows
                end += 1
            # Rows before the first one that stays unread are complete.
            limit = ahead[end].first if end < len(ahead) else None
            pieces: dict[int, list[pl.DataFrame]] = {run: [frame] for run, frame in held.items()}
            for batch in sorted(ahead[:end], key=lambda batch: (batch.run, batch.index)):
                pieces.setdefault(batch.run, []).append(self._read(batch))
            del ahead[:end]
            whole = {run: pl.concat(frames) for run, frames in sorted(pieces.items())}
            if limit is None:
                held = {}
                complete = list(whole.values())
            else:
                splits = {run: int(frame[self._by[0]].search_sorted(limit, side="left")) for run, frame in whole.items()}
                complete = [frame.head(splits[run]) for run, frame in whole.items() if splits[run]]
                held = {run: frame.slice(splits[run]) for run, frame in whole.items() if splits[run] < frame.height}
            if complete:
                yield self._sort(complete)
        self._delete_runs()

    def _sort(self, frames: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(frames).sort(self._by, maintain_order=True)

    def _sorted_pending(self) -> pl.DataFrame:
        frames, self._pending, self._pending_rows = self._pending, [], 0
        return self._sort(frames) if frames else pl.DataFrame(schema=dict.fromkeys(self._by, pl.Int64))

    def _write_run(self) -> None:
        frame = self._sorted_pending()
        if frame.is_empty():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        number = len(self._runs)
        path = self._folder / f"run{number}.arrow"
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=_BATCH_ROWS)
        self._runs.append(path)
        first = frame[self._by[0]]
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_file(file) as reader:
            start = 0
            for index in range(reader.num_record_batches):
                rows = reader.get_batch(index).num_rows
                self._batches.append(_Batch(number, index, first[start], first[start + rows - 1], rows))
                start += rows

    def _read(self, batch: _Batch) -> pl.DataFrame:
        with pa.OSFile(str(self._runs[batch.run]), "rb") as file, pa.ipc.open_file(file) as reader:
            return pl.DataFrame(pl.from_arrow(reader.get_batch(batch.index)))

    def _delete_runs(self) -> None:
        for path in self._runs:
            path.unlink(missing_ok=True)
        self._runs, self._batches = [], []


def _cut(frame: pl.DataFrame, column: str) -> Iterator[pl.DataFrame]:
    start = 0
    while start < frame.height:
        end = min(start + WINDOW_ROWS, frame.height)
        if end < frame.height:
            # Equal values stay together.
            end = int(frame[column].search_sorted(frame[column][end - 1], side="right"))
        yield frame.slice(start, end - start)
        start = end
