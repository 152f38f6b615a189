"""The file of a trace, in parts that are made independently: windows of sorted records come in; what a format writes leaves."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.records import RecordKind, TimelineHead
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.trace.collect import MESSAGES
from nsys2prv.trace.merge import TraceStore, record_sort
from nsys2prv.trace.output_format import RecordWriter, TraceFormat

_WINDOWS_OF_PART = 4
"""Time windows in one part of a trace at most. The file of a part is deleted when it is joined: small ones take little
memory of the system, and all workers end at about the same time."""


@dataclass(frozen=True)
class TracePart:
    """A piece of work: windows, one after the other, whose records are written to a file in the folder."""

    store: Shared[TraceStore]
    head: Shared[TimelineHead]
    windows: tuple[Window, ...]
    folder: Path
    format: TraceFormat[RecordWriter]


def write_trace(
    path: Path,
    format: TraceFormat[RecordWriter],
    store: TraceStore,
    head: TimelineHead,
    workers: Workers,
    folder: Path,
    progress: Callable[[int], object],
) -> int:
    """Write the file of records, and return their number; the store is empty afterwards, and the workers get no more work."""
    windows = store.windows(on_disk=not workers.is_here)
    with format.writer(path, head, is_first=True) as writer:
        if workers.is_here:
            for encoded in store.merge(windows, writer.encode):
                writer.write(encoded)
                progress(encoded.records)
            return writer.records
    shared = Shared(store, folder / "records.pickle"), Shared(head, folder / "head.pickle")
    groups = workers.groups([1] * len(windows), _WINDOWS_OF_PART)
    work = [TracePart(*shared, tuple(windows[index] for index in group), folder, format) for group in groups]
    records = 0

    def parts(written: Iterable[tuple[Path, int]]) -> Iterator[Path]:
        nonlocal records
        for of_work, (part, of_part) in zip(work, written, strict=True):
            records += of_part
            progress(of_part)
            yield part
            # It was joined: what is written next can have the place of its records.
            if (end := of_work.windows[-1].end) is not None:
                store.drop_ended(end)

    format.join(path, parts(workers.map(write_part, work)))
    workers.close()
    store.delete()
    return records


def write_part(part: TracePart) -> tuple[Path, int]:
    """Write a part of a trace: its path, and its number of records."""
    # For this attempt alone: another worker may have died over the same part.
    path = part.folder / f"part-{secrets.token_hex(8)}"
    with part.format.writer(path, part.head.value, is_first=False) as writer:
        for encoded in part.store.value.merge(part.windows, writer.encode):
            writer.write(encoded)
    return path, writer.records


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
