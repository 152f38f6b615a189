"""Records of a trace as numbers, until the merge gives them back in the order of time.

Numbers take a fraction of the memory of the text that they become: only a few windows of text exist at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.execution.row_order import in_content_order
from nsys2prv.execution.threads import map_ahead, max_threads
from nsys2prv.timeline.records import RecordBatch, RecordKind

T = TypeVar("T")

_LONGER, _LONGER_ON_THREADS = 2, 3
"""How much longer windows of a trace are than others: what is done once for each window takes as long as for 10,000 records.
Where threads share the interpreter, they hand it over some hundred times for each window: it is still longer where memory is
ample."""


def record_sort(kind: RecordKind, folder: Path) -> ExternalSort:
    """What sorts records of a kind."""
    return ExternalSort([kind.time], folder, "end" if kind is RecordKind.INTERVALS else None, kind.wide)


@dataclass(frozen=True)
class _Collection:
    """Records of one kind and one set of columns.

    Those that are equal in row and time come in the order of what is in them, or, with `keeps_order`, as they were added.
    """

    kind: RecordKind
    records: ExternalSort
    keeps_order: bool

    def load(self, window: Window) -> pl.DataFrame | None:
        """Records that start in a window; None when there are none."""
        return self._joined(self.records.load(window))

    def load_open(self, begin: int) -> pl.DataFrame | None:
        """Intervals that started before a time and end then, or later; None when there are none."""
        return self._joined(self.records.load_open(begin))

    def _joined(self, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
        if not frames:
            return None
        rows = pl.concat(frames)
        return rows if self.keeps_order else in_content_order(rows, self.kind.place)


class TraceStore:
    """All records of a trace, in collections."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collections: dict[str, _Collection] = {}

    def add_collection(self, name: str, kind: RecordKind, *, keeps_order: bool = False) -> None:
        """Add an empty collection, unless it exists. Records that are equal in row and time come in the order of these calls;
        those of one collection in the order of what is in them, or, with `keeps_order`, as they were added.
        """
        if name not in self._collections:
            records = record_sort(kind, self._folder / f"{len(self._collections)}")
            self._collections[name] = _Collection(kind, records, keeps_order)

    @property
    def sorts(self) -> dict[str, ExternalSort]:
        """What sorts the records of each collection."""
        return {name: collection.records for name, collection in self._collections.items()}

    def windows(self, *, on_disk: bool = False) -> list[Window]:
        """Windows of the time axis for `merge`; nothing can be added after it. With `on_disk`, nothing stays in memory: other
        processes merge."""
        for collection in self._collections.values():
            collection.records.finish(on_disk=on_disk)
        weighted = [(collection.records, collection.kind.weight) for collection in self._collections.values()]
        on_threads = max_threads() > 1 and not on_disk
        return plan_windows(weighted, memory.ample(_LONGER, _LONGER_ON_THREADS) if on_threads else _LONGER)

    @property
    def weight(self) -> int:
        """About how many lines or events the trace gets, for progress."""
        return sum(collection.records.rows * collection.kind.weight for collection in self._collections.values())

    def drop_ended(self, time: int) -> None:
        """Take what is over before a time (ns of the trace) off the disk; others may still merge later windows."""
        for collection in self._collections.values():
            collection.records.drop_ended(time)

    def delete(self) -> None:
        """Take all off the disk."""
        for collection in self._collections.values():
            collection.records.delete()

    def merge(self, windows: Sequence[Window], encode: Callable[[Sequence[RecordBatch]], T]) -> Iterator[T]:
        """Records in the order of time, window by window; they are taken off the disk meanwhile.

        Parameters
        ----------
        windows
            Some of `windows()`, one after the other.
        encode
            Called, on several threads, with the records of each window: a batch of each collection that has some.

        Yields
        ------
        What `encode` makes of each window.
        """
        if windows:
            # One thread reads, window after window: what is open goes from one to the next.
            carry = _Carry(list(self._collections.values()), windows[0])
            yield from map_ahead(encode, map_ahead(carry.load, windows, most=1))


class _Carry:
    """Reads windows in their order; intervals that are open at the end of one are carried on to the one where they end."""

    def __init__(self, collections: list[_Collection], first: Window) -> None:
        self._collections = collections
        self._still_open = [self._open_before(first, collection) for collection in collections]

    def load(self, window: Window) -> list[RecordBatch]:
        batches = []
        for index, collection in enumerate(self._collections):
            started, before = collection.load(window), self._still_open[index]
            if started is None:
                if before is None:
                    continue
                started = before.clear()
            collection.records.drop_before(window.end)
            if collection.kind is not RecordKind.INTERVALS:
                batches.append(RecordBatch(collection.kind, started))
                continue
            ended = started if before is None else pl.concat([before, started])
            self._still_open[index] = None
            if window.end is not None and (is_open := ended["end"].to_numpy() >= window.end).any():
                self._still_open[index] = ended[np.flatnonzero(is_open)]
            batches.append(RecordBatch(collection.kind, started, ended, window.end))
        return batches

    @staticmethod
    def _open_before(first: Window, collection: _Collection) -> pl.DataFrame | None:
        """Intervals that started before a window and end in it, or later."""
        if collection.kind is not RecordKind.INTERVALS or first.begin is None:
            return None
        return collection.load_open(first.begin)
