"""What work on a device waited for on devices: back over the operations that had to end before it could start."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers, search
from nsys2prv.efficiency.steps import NONE, Pieces, expanded
from nsys2prv.execution import memory

_MOST_KEPT = 100_000
"""Operations of former chunks that are kept at most."""
_SCHEMA = {"row": pl.Int32, "start": pl.Int64, "end": pl.Int64, "number": pl.Int32, "value": pl.Int64, "source": pl.Int64,
           "destination": pl.Int64, "awaited_row": pl.Int64, "awaited_end": pl.Int64}  # fmt: skip


class Predecessors:
    """Operations of all devices, from some time on, and for each the one that it waited for.

    Work in a stream runs in order: an operation waits for the one of its row that ended last before it started, or, where an
    event is awaited whose operation ended later, for that one.
    """

    def __init__(self) -> None:
        self.operations = pl.DataFrame(schema=_SCHEMA)
        self.known_from = 0
        """Operations that ended before may be missing, ns."""

    def add(self, started: pl.DataFrame, awaited: pl.DataFrame) -> None:
        """Add the operations that start in a chunk.

        Parameters
        ----------
        started
            Rows of the collection ON_DEVICES. Of those without length nothing can be seen to wait.
        awaited
            What of these waited for which operation by an event: columns `row`, `start`, `awaited_row`, `awaited_end`.
        """
        last = awaited.sort("awaited_end").unique(["row", "start"], keep="last")
        found = started.filter(pl.col("end") > pl.col("start")).join(
            last.select(pl.col("row").cast(pl.Int32), "start", "awaited_row", "awaited_end"), on=["row", "start"], how="left"
        )
        self.operations = pl.concat([self.operations, found.select(_SCHEMA.keys())]).sort("row", "end", "start")
        self._row, self._start, self._end, awaited_row, awaited_end = (
            self.operations[name].fill_null(NONE).to_numpy().astype(np.int64)
            for name in ("row", "start", "end", "awaited_row", "awaited_end")
        )
        place = np.arange(len(self._row))
        self._predecessor = self._later(self.last_before(self._row, self._start), awaited_row, awaited_end)
        # Where the predecessor is the row before, a whole run of rows is one step of the walk.
        is_jump = self._predecessor != place - 1
        self._former_jump = np.maximum.accumulate(np.where(is_jump, place, 0)) if len(place) else place

    def keep(self, since: int) -> None:
        """Forget operations that ended until a time, ns; and more where they are too many."""
        kept = self.operations.filter(pl.col("end") > since)
        most = memory.scaled(_MOST_KEPT)
        if kept.height > most:
            self.known_from = max(self.known_from, int(kept["end"].sort(descending=True)[most]))
            kept = kept.filter(pl.col("end") > self.known_from)
        self.operations = kept

    def last_before(self, row: Numbers, time: Numbers) -> Numbers:
        """Place of the operation of each row that ended last until a time; NONE: there is none."""
        if not len(self._row):
            return np.full(len(row), NONE, dtype=np.int64)
        place = search(self._row, self._end, row, time)
        return np.where((place >= 0) & (self._row[np.maximum(place, 0)] == row), place, NONE)

    def _later(self, predecessor: Numbers, row: Numbers, end: Numbers) -> Numbers:
        """The predecessor of each operation, or the operation of a row that ended at `end`, where that is later."""
        place = self.last_before(row, end)
        known = (row != NONE) & (place != NONE) & (self._of(self._end, place) == end) & (end <= self._start)
        own = np.where(predecessor != NONE, self._of(self._end, predecessor), NONE)
        return np.where(known & (end > own), place, predecessor)

    def walk(self, row: Numbers, start: Numbers, end: Numbers, until: Numbers) -> Pieces:
        """Pieces from `until` to the start of each operation, by the operations that it waited for.

        Parameters
        ----------
        row, start, end
            Of operations of the last chunk.
        until
            Time before each start, at which the walk ends, ns.

        Returns
        -------
        In no order. `key` is the place of an operation in `operations`: the piece is a part of it; NONE: between two of them,
        or before all that are waited for.
        """
        own = self.last_before(row, end)
        is_own = (own >= 0) & (self._of(self._start, own) == start)
        place = np.where(is_own, self._of(self._predecessor, own), self.last_before(row, start))
        window, at = np.arange(len(row)), start
        found = [Pieces(*(np.zeros(0, dtype=np.int64) for _ in range(4)))]
        while len(window):
            lower = until[window]
            awaited_until = np.where(place >= 0, np.maximum(self._of(self._end, place), lower), lower)
            found.append(Pieces(window, awaited_until, at, np.full(len(window), NONE)))
            goes_on = awaited_until > lower
            window, at, place, lower = window[goes_on], at[goes_on], place[goes_on], lower[goes_on]
            if not len(window):
                break
            # A run of operations, each of which waited for the one before; the first ends after the lower bound.
            first_of_row = np.searchsorted(self._row, self._row[place], side="left")
            first = np.maximum(search(self._row, self._end, self._row[place], lower) + 1, first_of_row)
            first = np.maximum(first, self._former_jump[place])
            which, operation = expanded(first, place)
            of_window = window[which]
            begin = np.maximum(self._start[operation], until[of_window])
            found.append(Pieces(of_window, begin, self._end[operation], operation))
            follows = operation < place[which]
            between = operation[follows]
            found.append(Pieces(of_window[follows], self._end[between], self._start[between + 1], np.full(len(between), NONE)))
            at = self._start[first]
            goes_on = at > lower
            window, at, place = window[goes_on], at[goes_on], self._predecessor[first[goes_on]]
        return _joined(found)

    def _of(self, column: Numbers, place: Numbers) -> Numbers:
        """Values at some places; of NONE any."""
        return column[np.maximum(place, 0)] if len(column) else np.zeros(len(place), dtype=np.int64)


def _joined(found: list[Pieces]) -> Pieces:
    """All pieces that have some length."""
    window, begin, end, key = (
        np.concatenate([getattr(pieces, name) for pieces in found]) for name in ("window", "begin", "end", "key")
    )
    some = end > begin
    return Pieces(window[some], begin[some], end[some], key[some])
