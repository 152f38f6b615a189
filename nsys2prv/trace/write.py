"""The trace file, in parts that are made independently: windows of what was collected come in; lines leave."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.sizes import WINDOWS_OF_PART
from nsys2prv.execution.workers import Workers
from nsys2prv.paraver.prv import TraceWriter, join_parts
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.trace.collect import MESSAGES
from nsys2prv.trace.merge import Shape, TraceStore


@dataclass(frozen=True)
class Part:
    """A piece of work: windows, one after the other, whose lines are wanted.

    Attributes
    ----------
    activity, rows
        What was collected, and the rows of the trace (`Rows.table`).
    windows
        The windows.
    folder, suffix
        Where the part is written, and how its name ends.
    """

    activity: Shared[TraceStore]
    rows: Shared[pl.DataFrame]
    windows: tuple[Window, ...]
    folder: Path
    suffix: str


def write_trace(
    prv: Path,
    first_line: str,
    activity: TraceStore,
    rows: pl.DataFrame,
    workers: Workers,
    folder: Path,
    tell: Callable[[int], object],
) -> int:
    """Write the trace file; what was collected is gone afterwards.

    Parameters
    ----------
    prv
        File to write; compressed when its name ends in .gz.
    first_line
        The header.
    activity, rows
        What goes into the trace, and its rows (`Rows.table`).
    workers
        Who makes the lines.
    folder
        For intermediate files.
    tell
        Learns how many lines were written.

    Returns
    -------
    Lines of the trace without the header.
    """
    windows = activity.windows(on_disk=not workers.is_here)
    with TraceWriter(prv, first_line, rows) as writer:
        if workers.is_here:
            for of_window in activity.merge(rows, windows, writer.text):
                writer.write(of_window)
                tell(of_window.height)
            return writer.records
    shared = Shared(activity, folder / "activity.pickle"), Shared(rows, folder / "rows.pickle")
    groups = workers.groups([1] * len(windows), WINDOWS_OF_PART)
    pieces = [Part(*shared, tuple(windows[index] for index in group), folder, prv.suffix) for group in groups]
    records = 0

    def parts(written: Iterable[tuple[Path, int]]) -> Iterator[Path]:
        nonlocal records
        for path, lines in written:
            records += lines
            tell(lines)
            yield path

    join_parts(prv, parts(workers.map(write_part, pieces)))
    activity.delete()
    return records


def write_part(part: Part) -> tuple[Path, int]:
    """Write a part of a trace: its path, and how many lines it has."""
    # Of this attempt alone: another worker may have died over the same part.
    path = part.folder / f"part-{secrets.token_hex(8)}{part.suffix}"
    with TraceWriter(path, None, part.rows.value) as writer:
        for records in part.activity.value.merge(part.rows.value, part.windows, writer.text):
            writer.write(records)
    return path, writer.records


def pair_messages(messages: Messages, windows: TimeSelection, workers: Workers, folder: Path) -> tuple[Messages, ExternalSort]:
    """Pair the ends of messages between ranks: what became of them, and the messages inside windows of the time axis."""
    if not workers.is_here:
        messages.spill()
    pair = partial(_pair, windows=windows, folder=folder, on_disk=not workers.is_here)
    (made,) = workers.map(pair, [messages])
    return made


def _pair(messages: Messages, windows: TimeSelection, folder: Path, on_disk: bool) -> tuple[Messages, ExternalSort]:
    attempt = folder / f"pairs-{secrets.token_hex(4)}"
    paired = messages.in_folder(attempt)
    found = Shape.MESSAGES.collector(attempt / MESSAGES)
    for drawn in paired.messages(windows):
        found.add(drawn)
    if on_disk:
        found.spill()
    return paired, found
