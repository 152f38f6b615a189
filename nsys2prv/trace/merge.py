"""Records of a trace as numbers, until the merge gives them back in the order of time.

Numbers take a fraction of the memory of the text that they become: only a few windows of text exist at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.execution.threads import map_ahead
from nsys2prv.timeline.records import RecordBatch, RecordKind

T = TypeVar("T")


def record_sort(kind: RecordKind, folder: Path) -> ExternalSort:
    """What sorts records of a kind."""
    return ExternalSort([kind.time], folder, "end" if kind is RecordKind.INTERVALS else None)


class TraceStore:
    """All records of a trace: collections of one kind and one set of columns each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collections: dict[str, tuple[RecordKind, ExternalSort]] = {}

    def add_collection(self, name: str, kind: RecordKind) -> None:
        """Add an empty collection, unless it exists. Records that are equal in time come in the order of these calls."""
        if name not in self._collections:
            self._collections[name] = kind, record_sort(kind, self._folder / f"{len(self._collections)}")

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
        """Write what is still in memory: then the store can be pickled."""
        for _, collection in self._collections.values():
            collection.spill()

    def windows(self, *, on_disk: bool = False) -> list[Window]:
        """Windows of the time axis for `merge`; nothing can be added after it. With `on_disk`, nothing stays in memory."""
        for _, collection in self._collections.values():
            collection.finish(on_disk=on_disk)
        return plan_windows([(collection, kind.weight) for kind, collection in self._collections.values()])

    @property
    def weight(self) -> int:
        """About how many lines or events the trace gets, for progress."""
        return sum(collection.rows * kind.weight for kind, collection in self._collections.values())

    def delete(self) -> None:
        """Take all off the disk."""
        for _, collection in self._collections.values():
            collection.delete()

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
            yield from map_ahead(encode, map_ahead(carry.load, windows, workers=1))


class _Carry:
    """Reads windows in their order; intervals that are open at the end of one are carried on to the one where they end."""

    def __init__(self, collections: list[tuple[RecordKind, ExternalSort]], first: Window) -> None:
        self._collections = collections
        self._still_open = [self._open_before(first, *collection) for collection in collections]

    def load(self, window: Window) -> list[RecordBatch]:
        batches = []
        for index, (kind, collection) in enumerate(self._collections):
            frames, before = collection.load(window), self._still_open[index]
            if not frames and before is None:
                continue
            started = pl.concat(frames) if frames else before.clear()  # type: ignore[union-attr]
            collection.drop_before(window.end)
            if kind is not RecordKind.INTERVALS:
                batches.append(RecordBatch(kind, started))
                continue
            ended = started if before is None else pl.concat([before, started])
            is_open = ended["end"] >= window.end if window.end is not None else None
            if is_open is None or not is_open.any():
                self._still_open[index] = None
            else:
                self._still_open[index], ended = ended.filter(is_open), ended.filter(~is_open)
            batches.append(RecordBatch(kind, started, ended))
        return batches

    @staticmethod
    def _open_before(first: Window, kind: RecordKind, collection: ExternalSort) -> pl.DataFrame | None:
        """Intervals that started before a window and end in it, or later."""
        if kind is not RecordKind.INTERVALS or first.begin is None:
            return None
        frames = collection.load_open(first.begin)
        return pl.concat(frames) if frames else None
