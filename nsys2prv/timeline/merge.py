"""What goes into a trace, as numbers, until the merge turns it into lines in the order of time.

Numbers take a fraction of the room of the lines that are made of them: only a few windows of lines are there at any time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys2prv.execution.runs import SortedRuns, Window, plan_windows
from nsys2prv.execution.threads import map_ahead
from nsys2prv.timeline import records

T = TypeVar("T")


class Shape(enum.Enum):
    """What the rows of a collection become: how many lines each, and the column with the time of the first one."""

    INTERVALS = ("intervals", 2, "start")
    POINTS = ("points", 1, "start")
    STATES = ("states", 1, "start")
    MESSAGES = ("messages", 1, "time")

    def __init__(self, _: str, lines: int, time: str) -> None:
        self.lines = lines
        self.time = time


@dataclass(frozen=True)
class _Piece:
    """What one collection has in one window: rows that begin there, and of intervals those that end there."""

    shape: Shape
    begun: pl.DataFrame
    ended: pl.DataFrame | None = None


class Activity:
    """All that goes into a trace: collections of one shape and one set of columns each.

    Parameters
    ----------
    folder
        Where intermediate files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collections: dict[str, tuple[Shape, SortedRuns]] = {}

    def part(self, name: str, shape: Shape) -> SortedRuns:
        """A collector for a piece of work on another thread, to be absorbed under the same name when it is done."""
        if name not in self._collections:
            self._collections[name] = shape, SortedRuns([shape.time], self._folder / f"{len(self._collections)}")
        return self._collections[name][1].part()

    def absorb(self, name: str, part: SortedRuns) -> None:
        """Take over what a part collected."""
        self._collections[name][1].absorb(part)

    @property
    def lines(self) -> int:
        """About how many lines the trace gets."""
        return sum(collection.rows * shape.lines for shape, collection in self._collections.values())

    def merge(self, rows: pl.DataFrame, finish: Callable[[pl.DataFrame], T]) -> Iterator[T]:
        """All lines in the order of the file, window by window; what was collected is gone afterwards.

        Parameters
        ----------
        rows
            The rows of the trace (`Rows.table`).

        Yields
        ------
        Columns of `records.RECORD_SCHEMA`.
        """
        collections = list(self._collections.values())
        windows = plan_windows([(collection, shape.lines) for shape, collection in collections])

        carry = _Carry(collections)

        def lines(pieces: list[_Piece]) -> T:
            found = [of_piece for piece in pieces for of_piece in _lines(piece, rows)]
            return finish(pl.concat(found).sort(records.SORT_COLUMNS, maintain_order=True))

        # One thread reads, window after window: what is open goes from one to the next.
        yield from map_ahead(lines, map_ahead(carry.load, windows, workers=1))


class _Carry:
    """Reads windows in their order; intervals that are open at the end of one are carried on to the one where they end."""

    def __init__(self, collections: list[tuple[Shape, SortedRuns]]) -> None:
        self._collections = collections
        self._still_open: list[pl.DataFrame | None] = [None] * len(collections)

    def load(self, window: Window) -> list[_Piece]:
        pieces = []
        for index, (shape, collection) in enumerate(self._collections):
            frames, before = collection.load(window), self._still_open[index]
            if not frames and before is None:
                continue
            begun = pl.concat(frames) if frames else before.clear()  # type: ignore[union-attr]
            collection.forget(window.end)
            if shape is not Shape.INTERVALS:
                pieces.append(_Piece(shape, begun))
                continue
            there = begun if before is None else pl.concat([before, begun])
            is_open = there["end"] >= window.end if window.end is not None else None
            if is_open is None or not is_open.any():
                self._still_open[index] = None
            else:
                self._still_open[index], there = there.filter(is_open), there.filter(~is_open)
            pieces.append(_Piece(shape, begun, there))
        return pieces


def _lines(piece: _Piece, rows: pl.DataFrame) -> list[pl.DataFrame]:
    if piece.shape is Shape.STATES:
        return [records.state_records(piece.begun)]
    if piece.shape is Shape.MESSAGES:
        return [records.message_records(piece.begun, rows)]
    if piece.shape is Shape.POINTS:
        return [records.point_records(piece.begun)]
    assert piece.ended is not None
    return [records.end_records(piece.ended), records.begin_records(piece.begun)]
