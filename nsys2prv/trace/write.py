"""The file of a trace, in parts that are made independently: windows of sorted records come in; what a format writes leaves."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.sizes import WINDOWS_IN_MEMORY, WINDOWS_OF_PART
from nsys2prv.execution.workers import Workers
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.records import RecordKind, TimelineHead
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.trace.collect import MESSAGES
from nsys2prv.trace.merge import TraceStore, record_sort
from nsys2prv.trace.output_format import RecordWriter, TraceFormat

_SECONDS_BETWEEN_LOOKS = 0.001


@dataclass(frozen=True)
class TracePart:
    """A piece of work: windows, one after the other, and how their records are written."""

    store: Shared[TraceStore]
    head: Shared[TimelineHead]
    windows: tuple[Window, ...]
    format: TraceFormat[RecordWriter]


@dataclass(frozen=True)
class PartSizes:
    """Bytes of parts that processes of one machine write into one file at once: a part begins where those before it end.

    Attributes
    ----------
    path
        File of the sizes; those that are not known yet are negative.
    """

    path: Path

    @classmethod
    def of(cls, parts: int, path: Path) -> PartSizes:
        """Sizes of so many parts, of which none is known."""
        np.full(parts, -1, np.int64).tofile(path)
        return cls(path)

    def place(self, part: int, size: int) -> int:
        """Announce the size of a part; the result is how many bytes are before it, as soon as that is known."""
        sizes = np.memmap(self.path, np.int64, "r+")
        sizes[part] = size
        while sizes[:part].min(initial=0) < 0:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return int(sizes[:part].sum())


def write_trace(
    path: Path,
    format: TraceFormat[RecordWriter],
    store: TraceStore,
    head: TimelineHead,
    workers: Workers,
    folder: Path,
    progress: Callable[[int], object],
) -> int:
    """Write the file of records, and return their number; the store is empty afterwards."""
    windows = store.windows(on_disk=not workers.is_here)
    with format.writer(path, head, is_first=True) as writer:
        if workers.is_here:
            for encoded in store.merge(windows, writer.encode):
                writer.write(encoded)
                progress(encoded.records)
            return writer.records
    shared = Shared(store, folder / "records.pickle"), Shared(head, folder / "head.pickle")
    in_place = workers.in_order and format.is_plain
    groups = workers.groups([1] * len(windows), WINDOWS_IN_MEMORY if in_place else WINDOWS_OF_PART)
    work = [TracePart(*shared, tuple(windows[index] for index in group), format) for group in groups]
    records = 0

    def count(of_part: int) -> None:
        nonlocal records
        records += of_part
        progress(of_part)

    def parts(written: Iterable[tuple[Path, int]]) -> Iterator[Path]:
        for part, of_part in written:
            count(of_part)
            yield part

    if in_place:
        sizes = PartSizes.of(len(work), folder / "sizes")
        write = partial(write_in_place, path=path, begin=path.stat().st_size, sizes=sizes)
        for of_part in workers.map(write, enumerate(work)):
            count(of_part)
    else:
        format.join(path, parts(workers.map(partial(write_part, folder=folder), work)))
    store.delete()
    return records


def write_part(part: TracePart, folder: Path) -> tuple[Path, int]:
    """Write a part of a trace to a file in a folder: its path, and its number of records."""
    # For this attempt alone: another worker may have died over the same part.
    path = folder / f"part-{secrets.token_hex(8)}"
    with part.format.writer(path, part.head.value, is_first=False) as writer:
        for encoded in part.store.value.merge(part.windows, writer.encode):
            writer.write(encoded)
    return path, writer.records


def write_in_place(numbered: tuple[int, TracePart], path: Path, begin: int, sizes: PartSizes) -> int:
    """Write a part of a trace to its place in the file, whose records begin at a byte; the result is its number of records."""
    number, part = numbered
    made = list(part.store.value.merge(part.windows, part.format.encoder(part.head.value)))
    before = sizes.place(number, sum(len(encoded.content) for encoded in made))
    with path.open("r+b") as file:
        file.seek(begin + before)
        for encoded in made:
            file.write(encoded.content)
    return sum(encoded.records for encoded in made)


def pair_messages(
    messages: Messages, selection: TimeSelection, workers: Workers, folder: Path
) -> tuple[Messages, ExternalSort]:
    """Pair the ends of messages between ranks: the pairing with its counts, and the messages inside the selected time."""
    if not workers.is_here:
        messages.spill()
    pair = partial(_pair, selection=selection, folder=folder, on_disk=not workers.is_here)
    (result,) = workers.map(pair, [messages])
    return result


def _pair(messages: Messages, selection: TimeSelection, folder: Path, on_disk: bool) -> tuple[Messages, ExternalSort]:
    attempt = folder / f"pairs-{secrets.token_hex(4)}"
    paired = messages.in_folder(attempt)
    inside = record_sort(RecordKind.MESSAGES, attempt / MESSAGES)
    for lines in paired.messages(selection):
        inside.add(lines)
    if on_disk:
        inside.spill()
    return paired, inside
