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

from nsys2prv.errors import TraceError
from nsys2prv.execution import memory
from nsys2prv.execution.threads import map_ahead
from nsys2prv.paraver.blocks import AnnouncedCommunicators, Block
from nsys2prv.paraver.fields import LINE_END
from nsys2prv.paraver.header import Header, read_header
from nsys2prv.paraver.pcf import PcfLabels, read_pcf
from nsys2prv.paraver.row import read_row
from nsys2prv.paraver.trace_files import NO_LINE_END, Bytes, OnMalformed, companion, raising, text_blocks

T = TypeVar("T")

BLOCK_BYTES, LARGE_BLOCK_BYTES = 4 << 20, 8 << 20
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

    def blocks(self, on_malformed: OnMalformed | None = None, block_bytes: int | None = None) -> Iterator[Block]:
        """Read the records, in the order of the file, some megabytes at a time; parameters and errors are those of `read`."""
        return self.read(_unchanged, on_malformed, block_bytes)

    def read(
        self, work: Callable[[Block], T], on_malformed: OnMalformed | None = None, block_bytes: int | None = None
    ) -> Iterator[T]:
        """What `work` makes of each block, in the order of the file.

        Parameters
        ----------
        work
            Called on other threads, for some blocks ahead; it depends on no other block, and raises no error.
        on_malformed
            Called for each malformed line, which is then skipped; without it the first one raises.
        block_bytes
            Bytes of text of a block; None: as many as memory allows, at most `LARGE_BLOCK_BYTES`.

        Raises
        ------
        TraceError
            A line is not a record (and `on_malformed` is None), or the file can't be read to its end.
        """
        on_malformed = _limited(self.path, on_malformed or raising(self.path))
        types: set[int] = set()
        announced = AnnouncedCommunicators(1 + self.header.communicators, len(self.header.tasks))
        texts = _Texts(self.path, memory.scaled(block_bytes or memory.ample(BLOCK_BYTES, LARGE_BLOCK_BYTES)))

        def parsed(numbered: tuple[int, Bytes]) -> tuple[Block, list[int], T]:
            block = Block(*numbered)
            return block, block.pair_types.numbers.tolist(), work(block)

        for block, numbers, result in map_ahead(parsed, texts, beyond=2):
            for line, problem in block.malformed(announced):
                on_malformed(line, problem)
            types.update(numbers)
            if len(types) > MOST_TYPES:
                raise TraceError(self.path, f"it has more than {MOST_TYPES:,} event types")
            yield result
        texts.report_end(on_malformed)


class _Texts:
    """The lines of a .prv in blocks, each with the number of its first line.

    What is wrong with the end of the file is reported when all blocks are read.
    """

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._path = path
        self._block_bytes = block_bytes
        self._cut_line: int | None = None
        self._error: TraceError | None = None

    def __iter__(self) -> Iterator[tuple[int, Bytes]]:
        try:
            for first_line, text in text_blocks(self._path, self._block_bytes):
                if text[-1] == LINE_END:
                    yield first_line, text
                else:
                    self._cut_line = first_line
        except TraceError as error:
            self._error = error

    def report_end(self, on_malformed: OnMalformed) -> None:
        """Report a line that is cut off, or raise the error that ended the reading."""
        if self._error is not None:
            raise self._error
        if self._cut_line is not None:
            on_malformed(self._cut_line, NO_LINE_END)


def _unchanged(block: Block) -> Block:
    return block


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
