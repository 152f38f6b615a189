"""A strict reader of Paraver traces: OUT.prv (or .prv.gz) in blocks of bounded size, OUT.pcf, OUT.row.

Strict: each line is understood, or reported by its number where Paraver may drop it without a message. Whether the records make
sense together is for `check`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from nsys2prv.errors import TraceError
from nsys2prv.execution import memory
from nsys2prv.execution.threads import map_ahead
from nsys2prv.paraver.blocks import LINE_END, Block
from nsys2prv.paraver.label_files import PcfLabels, read_pcf, read_row
from nsys2prv.paraver.trace_files import (
    NO_LINE_END,
    Bytes,
    Header,
    OnMalformed,
    companion,
    open_prv,
    raising,
    read_errors,
    read_header,
    read_line,
)

T = TypeVar("T")

LONGEST_LINE = 16 << 20
"""Bytes of a line of a .prv. Of the lines of real traces the header is the longest, with 1 MiB for all objects that Paraver
takes."""
BLOCK_BYTES = 4 << 20, 8 << 20
"""Bytes of text of a block; more where memory is ample, as threads hand over the interpreter for each step of a block. Some
blocks are read ahead, and each takes some ten times that in memory."""
MOST_TYPES = 200_000
"""Event types of a trace: what is known of each is looked up one by one."""
MOST_MALFORMED = 100_000


@dataclass(frozen=True)
class Trace:
    """An open trace: header and labels are read, the records are read when they are requested.

    Attributes
    ----------
    path
        The .prv or .prv.gz.
    header
        Its first line.
    labels, has_labels
        PcfLabels of the .pcf beside it, and whether there is one.
    names
        Names of the .row beside it (level -> names in order); empty where there is none.
    """

    path: Path
    header: Header
    labels: PcfLabels
    names: Mapping[str, tuple[str, ...]]
    has_labels: bool

    def read(self, work: Callable[[Block], T], on_malformed: OnMalformed | None = None) -> Iterator[T]:
        """What `work` makes of each block of records, in the order of the file; blocks are some megabytes.

        Parameters
        ----------
        work
            Called on other threads, for some blocks ahead; it depends on no other block, and raises no error.
        on_malformed
            Called for each malformed line, which is then skipped; without it the first one raises.

        Raises
        ------
        TraceError
            A line is not a record (and `on_malformed` is None), or the file can't be read to its end.
        """
        on_malformed = _limited(self.path, on_malformed or raising(self.path))
        types: set[int] = set()
        at_end: list[int | TraceError] = []

        def parsed(numbered: tuple[int, Bytes]) -> tuple[Block, T]:
            block = Block(*numbered, self.header)
            return block, work(block)

        for block, result in map_ahead(parsed, _texts(self.path, at_end), beyond=2):
            for line, problem in block.malformed():
                on_malformed(line, problem)
            types.update(block.pair_types.numbers.tolist())
            if len(types) > MOST_TYPES:
                raise TraceError(self.path, f"it has more than {MOST_TYPES:,} event types")
            yield result
        for cut_line in at_end:
            if isinstance(cut_line, TraceError):
                raise cut_line
            on_malformed(cut_line, NO_LINE_END)


def _texts(path: Path, at_end: list[int | TraceError]) -> Iterator[tuple[int, Bytes]]:
    """Lines of a .prv from line 2 on, in blocks: number of the first line, and text.

    What ends the reading is put into `at_end`, to be handled after all blocks: the error, or the number of a line that is cut
    off.
    """
    block_bytes = memory.scaled(memory.ample(*BLOCK_BYTES))
    first_line = 2
    begun: Bytes = np.zeros(0, np.uint8)  # of a line whose end is not read yet
    try:
        with read_errors(path), open_prv(path) as file:
            read_line(path, file, 1, LONGEST_LINE)
            while True:
                # Behind what was begun: nothing is copied twice.
                text = np.empty(len(begun) + block_bytes, np.uint8)
                text[: len(begun)] = begun
                size = file.readinto(text[len(begun) :].data)  # type: ignore[attr-defined]
                if not size:
                    break
                text = text[: len(begun) + size]
                ends = np.flatnonzero(text == LINE_END)
                behind = int(ends[-1]) + 1 if len(ends) else 0
                begun = text[behind:].copy()
                if behind:
                    yield first_line, text[:behind]
                    first_line += len(ends)
                elif len(begun) > LONGEST_LINE:
                    raise TraceError(path, f"line {first_line}: it has more than {LONGEST_LINE:,} bytes")
        if len(begun):
            at_end.append(first_line)
    except TraceError as error:
        at_end.append(error)


def _limited(path: Path, on_malformed: OnMalformed) -> OnMalformed:
    """The same report of malformed lines, with a TraceError when there are very many: they are handled one by one."""
    numbers = itertools.count(1)

    def report(line: int | None, problem: str) -> None:
        if next(numbers) > MOST_MALFORMED:
            raise TraceError(path, f"more than {MOST_MALFORMED:,} lines are malformed")
        on_malformed(line, problem)

    return report


def open_trace(path: str | Path, on_malformed: OnMalformed | None = None) -> Trace:
    """Open a trace: read the header, and the .pcf and .row beside it.

    Parameters
    ----------
    path
        A .prv or .prv.gz.
    on_malformed
        Called for each malformed line of the .pcf and .row, which is then skipped; without it the first one raises.

    Raises
    ------
    TraceError
        The file does not exist, or the header, or the .pcf or the .row (and `on_malformed` is None), is malformed.
    """
    path = Path(path)
    header = read_header(path)
    labels_path, names_path = companion(path, ".pcf"), companion(path, ".row")
    has_labels = os.path.isfile(labels_path)
    return Trace(
        path,
        header,
        read_pcf(labels_path, on_malformed) if has_labels else PcfLabels(),
        read_row(names_path, on_malformed) if os.path.isfile(names_path) else {},
        has_labels,
    )
