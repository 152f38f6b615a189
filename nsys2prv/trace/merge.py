"""What goes into a trace, as numbers, until the merge turns it into lines in the order of time.

Numbers take a fraction of the room of the lines that are made of them: only a few windows of lines are there at any time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.execution.threads import map_ahead
from nsys2prv.trace import records

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

    def collector(self, folder: Path) -> ExternalSort:
        """What rows of this shape are collected in."""
        return ExternalSort([self.time], folder, "end" if self is Shape.INTERVALS else None)


@dataclass(frozen=True)
class _Piece:
    """What one collection has in one window: rows that begin there, and of intervals those that end there."""

    shape: Shape
    begun: pl.DataFrame
    ended: pl.DataFrame | None = None


class TraceStore:
    """All that goes into a trace: collections of one shape and one set of columns each.

    Parameters
    ----------
    folder
        Where intermediate files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collections: dict[str, tuple[Shape, ExternalSort]] = {}

    def add_collection(self, name: str, shape: Shape) -> None:
        """Make room for what is collected under a name. Lines that are equal in time, row and kind come in this order."""
        if name not in self._collections:
            self._collections[name] = shape, shape.collector(self._folder / f"{len(self._collections)}")

    def part(self, name: str) -> ExternalSort:
        """A collector for a piece of work on another thread, to be absorbed under the same name when it is done."""
        return self._collections[name][1].part()

    def absorb(self, name: str, part: ExternalSort) -> None:
        """Take over what a part collected."""
        self._collections[name][1].absorb(part)

    def absorb_all(self, other: TraceStore) -> None:
        """Take over all that other work collected, under the same names."""
        for name, (_, collection) in other._collections.items():
            self.absorb(name, collection)

    def spill(self) -> None:
        """Write what is still in memory: the rest can be pickled then."""
        for _, collection in self._collections.values():
            collection.spill()

    def windows(self, *, on_disk: bool = False) -> list[Window]:
        """Windows of the time axis for `merge`; nothing can be added after it. With `on_disk`, nothing stays in memory."""
        for _, collection in self._collections.values():
            collection.finish(on_disk=on_disk)
        return plan_windows([(collection, shape.lines) for shape, collection in self._collections.values()])

    @property
    def lines(self) -> int:
        """About how many lines the trace gets."""
        return sum(collection.rows * shape.lines for shape, collection in self._collections.values())

    def delete(self) -> None:
        """Take all off the disk."""
        for _, collection in self._collections.values():
            collection.delete()

    def merge(self, rows: pl.DataFrame, windows: Sequence[Window], finish: Callable[[pl.DataFrame], T]) -> Iterator[T]:
        """Lines in the order of the file, window by window; what was collected in these is taken off the disk meanwhile.

        Parameters
        ----------
        rows
            The rows of the trace (`Rows.table`).
        windows
            Some of `windows()`, one after the other.
        finish
            Called, on several threads, with the lines of each window: columns of `records.RECORD_SCHEMA`.

        Yields
        ------
        What `finish` makes of each window.
        """
        if not windows:
            return
        carry = _Carry(list(self._collections.values()), windows[0])

        def lines(pieces: list[_Piece]) -> T:
            found = [of_piece for piece in pieces for of_piece in _lines(piece, rows)]
            return finish(pl.concat(found).sort(records.SORT_COLUMNS, maintain_order=True))

        # One thread reads, window after window: what is open goes from one to the next.
        yield from map_ahead(lines, map_ahead(carry.load, windows, workers=1))


class _Carry:
    """Reads windows in their order; intervals that are open at the end of one are carried on to the one where they end."""

    def __init__(self, collections: list[tuple[Shape, ExternalSort]], first: Window) -> None:
        self._collections = collections
        self._still_open = [self._open_before(first, *collection) for collection in collections]

    def load(self, window: Window) -> list[_Piece]:
        pieces = []
        for index, (shape, collection) in enumerate(self._collections):
            frames, before = collection.load(window), self._still_open[index]
            if not frames and before is None:
                continue
            begun = pl.concat(frames) if frames else before.clear()  # type: ignore[union-attr]
            collection.drop_before(window.end)
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

    @staticmethod
    def _open_before(first: Window, shape: Shape, collection: ExternalSort) -> pl.DataFrame | None:
        """Intervals that began before a window and end in it, or later."""
        if shape is not Shape.INTERVALS or first.begin is None:
            return None
        frames = collection.load_open(first.begin)
        return pl.concat(frames) if frames else None


def _lines(piece: _Piece, rows: pl.DataFrame) -> list[pl.DataFrame]:
    if piece.shape is Shape.STATES:
        return [records.state_records(piece.begun)]
    if piece.shape is Shape.MESSAGES:
        return [records.message_records(piece.begun, rows)]
    if piece.shape is Shape.POINTS:
        return [records.point_records(piece.begun)]
    assert piece.ended is not None
    return [records.end_records(piece.ended), records.begin_records(piece.begun)]
