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
_BATCH_ROWS = 16_384
"""Rows of a run that are read at once: what a window may hold too much of each run."""
_COMPRESS_FROM_BYTES = 512_000_000
"""Runs stay in the page cache below this; above, their size on disk counts for more than the time to pack them."""


@dataclass(frozen=True)
class _Batch:
    """A stretch of a run, and the first value of the first sort column in it."""

    run: int
    index: int
    first: int
    rows: int


@dataclass(frozen=True)
class _Run:
    """Rows in a file, sorted by the first sort column, and that column's first value and the rows of each batch."""

    path: Path
    batches: tuple[tuple[int, int], ...]

    def read(self, index: int) -> pl.DataFrame:
        with pa.OSFile(str(self.path), "rb") as file, pa.ipc.open_file(file) as reader:
            return pl.DataFrame(pl.from_arrow(reader.get_batch(index)))


class SortedRuns:
    """Collects frames and gives them back sorted; rows that are equal in all sort columns keep a fixed order.

    Parameters
    ----------
    by
        Sort columns (Int64, no nulls). All rows that are equal in the first of them are given back in one window.
    folder
        Where runs are written; made when it is needed. Nothing is written for fewer than `RUN_ROWS` rows.
    """

    def __init__(self, by: Sequence[str], folder: Path) -> None:
        self._by = list(by)
        self._folder = folder
        self._pending: list[pl.DataFrame] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._bytes = 0
        self._parts = 0
        self.rows = 0

    def part(self) -> SortedRuns:
        """A collector for a piece of work on another thread, to be absorbed when it is done."""
        part = SortedRuns(self._by, self._folder / f"part{self._parts}")
        self._parts += 1
        return part

    def absorb(self, part: SortedRuns) -> None:
        """Take over the rows of a part. The order of rows follows the order of these calls, not that of the work."""
        self._runs += part._runs
        self._bytes += part._bytes
        self.rows += part.rows - part._pending_rows
        for frame in part._pending:
            self.add(frame)
        part._runs, part._pending = [], []

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
            yield from _cut(_sorted(self._pending, self._by), self._by[0])
            return
        if self._pending:
            self._write_run()
        ahead = sorted(
            (
                _Batch(number, index, first, rows)
                for number, run in enumerate(self._runs)
                for index, (first, rows) in enumerate(run.batches)
            ),
            key=lambda batch: batch.first,
        )
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
                pieces.setdefault(batch.run, []).append(self._runs[batch.run].read(batch.index))
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
                yield _sorted(complete, self._by)
        for run in self._runs:
            run.path.unlink(missing_ok=True)
        self._runs = []

    def _write_run(self) -> None:
        # Windows are sorted by all columns; a run need only be in the order of the first.
        frame = pl.concat(self._pending).sort(self._by[0], maintain_order=True)
        self._pending, self._pending_rows = [], 0
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"run{len(self._runs)}.arrow"
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        options = pa.ipc.IpcWriteOptions(compression="lz4" if self._bytes > _COMPRESS_FROM_BYTES else None)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            # In one piece, or batches would end where the pending frames did.
            writer.write_table(table.combine_chunks(), max_chunksize=_BATCH_ROWS)
        self._bytes += path.stat().st_size
        first = frame[self._by[0]]
        batches = tuple((first[start], min(_BATCH_ROWS, len(first) - start)) for start in range(0, len(first), _BATCH_ROWS))
        self._runs.append(_Run(path, batches))


def _sorted(frames: list[pl.DataFrame], by: list[str]) -> pl.DataFrame:
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(by, pl.Int64))
    return pl.concat(frames).sort(by, maintain_order=True)


def _cut(frame: pl.DataFrame, column: str) -> Iterator[pl.DataFrame]:
    start = 0
    while start < frame.height:
        end = min(start + WINDOW_ROWS, frame.height)
        if end < frame.height:
            # Equal values stay together.
            end = int(frame[column].search_sorted(frame[column][end - 1], side="right"))
        yield frame.slice(start, end - start)
        start = end
