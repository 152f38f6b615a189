"""The file of a trace: records as numbers come in, until they leave in the order of time as what a format makes of them.

Numbers take a fraction of the memory of the text that they become: only a few windows of text exist at any time. Windows are
independent, so that other processes can write parts of the file."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.execution.process import map_ahead
from nsys2prv.execution.row_order import in_content_order
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.messages import Messages
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RecordKind, RowRanges, TimelineHead
from nsys2prv.timeline.rows import Rows
from nsys2prv.timeline.time_axis import TimeSelection

T = TypeVar("T")

_LONGER = 2
"""How much longer windows of a trace are than others: what is done once for each window takes as long as for 10,000 records."""
_WINDOWS_OF_PART = 4
"""Time windows in one part of a trace at most. The file of a part is deleted when it is joined: small ones take little
memory of the system, and all workers end at about the same time."""


class RecordWriter(Protocol):
    """Writes records to one file.

    Attributes
    ----------
    records
        How many it has written.
    """

    records: int

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """The records of one window of time as they are written. Called on several threads."""

    def write(self, encoded: EncodedRecords) -> None:
        """Append what `encode` made of a window; called in the order of time."""


class TraceFormat(Protocol):
    """An output format of traces, as `paraver.trace_format.ParaverFormat`. It can be pickled: records may be encoded in other
    processes, in parts that are joined."""

    @property
    def companions(self) -> tuple[str, ...]:
        """Suffixes of what lies beside the file of records, in the order in which it gets its name."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Those of them that are folders."""

    @property
    def suffix(self) -> str:
        """Suffix of the file of records, which gets its name last."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes that it can have, as the options say."""

    def fit(self, rows: Rows) -> Rows:
        """Rows within the limits of the format; raises TooManyRows when there are more than it takes."""

    def writer(self, path: Path, head: TimelineHead, *, is_first: bool) -> AbstractContextManager[RecordWriter]:
        """What writes a file: that of the trace, or a part of it that is not the first."""

    def join(self, first: Path, parts: Iterable[Path]) -> None:
        """Append parts to the first file, in their order, and remove them."""

    def finish(
        self,
        staged: Path,
        final: Path,
        head: TimelineHead,
        used: Sequence[UsedType],
        on_rows: Mapping[int, RowRanges],
        senders: RowRanges,
    ) -> dict[str, Any]:
        """Write what belongs to the records: names of rows, event types and values, and more.

        Parameters
        ----------
        staged, final
            The complete file of records, and the path that it gets.
        used
            Event types, in the order of their numbers.
        on_rows, senders
            Rows that show each of the event types that occur, and rows that send messages to other ranks.

        Returns
        -------
        dict[str, Any]
            What OUT.json has of it.
        """

    def warnings(self, size: int) -> list[str]:
        """What a trace of a size (bytes) does not go well with."""


def record_sort(kind: RecordKind, folder: Path) -> ExternalSort:
    """What sorts records of a kind."""
    return ExternalSort([kind.time], folder, "end" if kind is RecordKind.INTERVALS else None)


@dataclass(frozen=True)
class _Collection:
    """Records of one kind and one set of columns.

    Those that are equal in row and time come in the order of what is in them, or, with `keeps_order`, as they were added."""

    kind: RecordKind
    records: ExternalSort
    keeps_order: bool

    def joined(self, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
        """Records of several frames in their order; None when there are none."""
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
        those of one collection in the order of what is in them, or, with `keeps_order`, as they were added."""
        if name not in self._collections:
            records = record_sort(kind, self._folder / f"{len(self._collections)}")
            self._collections[name] = _Collection(kind, records, keeps_order)

    @property
    def sorts(self) -> dict[str, ExternalSort]:
        """What sorts the records of each collection."""
        return {name: collection.records for name, collection in self._collections.items()}

    def windows(self) -> list[Window]:
        """Windows of the time axis for `merge`; nothing can be added after it."""
        weighted = [(collection.records, collection.kind.weight) for collection in self._collections.values()]
        return plan_windows(weighted, _LONGER)

    @property
    def weight(self) -> int:
        """About how many lines or events the trace gets, for progress."""
        return sum(collection.records.rows * collection.kind.weight for collection in self._collections.values())

    def drop_before(self, time: int | None) -> None:
        """Take what is over before a time (ns of the trace; None: all) off the disk; others may still merge later windows."""
        for records in self.sorts.values():
            records.drop_before(time)

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
            reader = _WindowReader(list(self._collections.values()), windows[0])
            yield from map_ahead(encode, map(reader.load, windows))


class _WindowReader:
    """Reads windows in their order; intervals that are open at the end of one are carried on to the one where they end."""

    def __init__(self, collections: list[_Collection], first: Window) -> None:
        self._collections = collections
        self._still_open = [
            collection.joined(collection.records.load(Window(None, first.begin), first.begin))
            if collection.kind is RecordKind.INTERVALS and first.begin is not None
            else None
            for collection in collections
        ]

    def load(self, window: Window) -> list[RecordBatch]:
        batches = []
        for index, collection in enumerate(self._collections):
            started, before = collection.joined(collection.records.load(window)), self._still_open[index]
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


def write_trace(
    path: Path,
    format: TraceFormat,
    store: TraceStore,
    head: TimelineHead,
    workers: Workers,
    folder: Path,
    progress: Callable[[int], object],
) -> int:
    """Write the file of records, and return their number; the store is empty afterwards, and the workers get no more work."""
    windows = store.windows()
    with format.writer(path, head, is_first=True) as writer:
        if workers.is_here:
            for encoded in store.merge(windows, writer.encode):
                writer.write(encoded)
                progress(encoded.records)
            return writer.records
    shared = Shared(store, folder / "records.pickle"), Shared(head, folder / "head.pickle")
    groups = workers.groups([1] * len(windows), _WINDOWS_OF_PART)
    windows_of_parts = [[windows[index] for index in group] for group in groups]
    records = 0

    def parts(written: Iterable[tuple[Path, int]]) -> Iterator[Path]:
        nonlocal records
        for of_windows, (part, of_part) in zip(windows_of_parts, written, strict=True):
            records += of_part
            progress(of_part)
            yield part
            # It was joined: what is written next can have the place of its records.
            store.drop_before(of_windows[-1].end)

    format.join(path, parts(workers.map(partial(write_part, *shared, folder, format), windows_of_parts)))
    workers.close()
    return records


def write_part(
    store: Shared[TraceStore], head: Shared[TimelineHead], folder: Path, format: TraceFormat, windows: Sequence[Window]
) -> tuple[Path, int]:
    """Write a part of a trace, windows one after the other, to a file in a folder: its path, and its number of records."""
    # For this attempt alone: another worker may have died over the same part.
    path = folder / f"part-{secrets.token_hex(8)}"
    with format.writer(path, head.value, is_first=False) as writer:
        for encoded in store.value.merge(windows, writer.encode):
            writer.write(encoded)
    return path, writer.records


def pair_messages(
    messages: Messages, selection: TimeSelection, workers: Workers, folder: Path
) -> tuple[Messages, ExternalSort]:
    """Pair the ends of messages between ranks: the pairing with its counts, and the messages inside the selected time."""
    (result,) = workers.map(partial(_pair, selection=selection, folder=folder), [messages])
    return result


def _pair(messages: Messages, selection: TimeSelection, folder: Path) -> tuple[Messages, ExternalSort]:
    attempt = folder / f"pairs-{secrets.token_hex(4)}"
    paired = messages.in_folder(attempt)
    inside = record_sort(RecordKind.MESSAGES, attempt / "inside")
    for lines in paired.messages(selection):
        inside.add(lines)
    return paired, inside
