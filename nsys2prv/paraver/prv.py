"""Writer of the trace itself, .prv or .prv.gz, as a whole or in parts that are joined."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from io import BufferedRandom, FileIO
from pathlib import Path
from types import TracebackType
from typing import Literal

from nsys2prv.execution.threads import GzipBlocks
from nsys2prv.paraver.record_text import RecordText
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, TimelineHead

_PIECE_BYTES = 1 << 20
"""Bytes that are written at once: for 20 MB a system can take five times as long, as it looks for memory in large blocks."""
_APPLICATION = 1
"""A trace has one application."""


def header_line(head: TimelineHead) -> str:
    """First line of a trace, and those of communicators, which it announces.

    Its date is that of the run, not of the translation: the same reports give the same file.
    """
    moment = datetime.fromtimestamp((head.start_utc or 0) // 10**9, tz=timezone.utc)
    nodes, tasks = head.rows.nodes, head.rows.tasks
    cpus = ",".join(str(node.cpus) for node in nodes)
    threads = ",".join(f"{len(task.threads)}:{task.node + 1}" for task in tasks)
    line = f"#Paraver ({moment:%d/%m/%Y at %H:%M}):{head.length}_ns:{len(nodes)}({cpus}):1:{len(tasks)}({threads})"
    if head.communicators:
        line += f",{len(head.communicators)}"
    communicators = (
        ":".join(map(str, ("c", _APPLICATION, one.number, len(one.tasks), *one.tasks))) for one in head.communicators
    )
    return "\n".join([line, *communicators])


class PrvWriter:
    """Writes records to a .prv, or to a part of one (`join_parts`).

    Parameters
    ----------
    path
        File to write.
    head
        Rows and length of the whole trace.
    is_first
        Whether the file starts with the header; then it is compressed when its name ends in .gz. Other parts are compressed
        when they are joined: the file does not depend on them.
    """

    def __init__(self, path: Path, head: TimelineHead, *, is_first: bool) -> None:
        self._path = path
        self._first_line = header_line(head) if is_first else None
        self._text = RecordText(head.rows.table)
        self._open = contextlib.ExitStack()
        self._write: Callable[[bytes | memoryview], object] | None = None
        self.records = 0

    def __enter__(self) -> PrvWriter:
        if self._first_line is None:
            self._write = self._open.enter_context(self._path.open("wb")).write
        else:
            # In a separate block, as where parts are joined behind it.
            with _whole(self._path, "wb") as write:
                write(f"{self._first_line}\n".encode())
            self._write = self._open.enter_context(_whole(self._path, "ab"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window. May be called on several threads."""
        return self._text.encode(batches)

    def write(self, encoded: EncodedRecords) -> None:
        """Append the lines of a window, as `encode` returns them."""
        assert self._write is not None, "the writer is a context manager"
        for start in range(0, len(encoded.content), _PIECE_BYTES):
            self._write(encoded.content[start : start + _PIECE_BYTES])
        self.records += encoded.records


def join_parts(path: Path, parts: Iterable[Path]) -> None:
    """Append parts to the file of a `PrvWriter`, in their order; each part is removed when it is appended."""
    with contextlib.ExitStack() as files:
        plain = files.enter_context(path.open("r+b")) if path.suffix != ".gz" else None
        write = plain.write if plain is not None else files.enter_context(_whole(path, "ab"))
        for part in parts:
            with part.open("rb", buffering=0) as piece:
                if plain is not None:
                    _append(piece, plain)
                while content := piece.read(_PIECE_BYTES):
                    write(content)
            part.unlink()


def _append(piece: FileIO, plain: BufferedRandom) -> None:
    """Append what is in a file to another one, as far as the system does it by itself: in a quarter of the time."""
    plain.seek(0, os.SEEK_END)
    # Where it does not, the rest is read and written, and an error is raised there.
    with contextlib.suppress(OSError, AttributeError):
        while os.copy_file_range(piece.fileno(), plain.fileno(), _PIECE_BYTES):
            pass
    plain.seek(0, os.SEEK_END)


@contextlib.contextmanager
def _whole(path: Path, mode: Literal["wb", "ab"]) -> Iterator[Callable[[bytes | memoryview], object]]:
    """What writes to the file of a trace, compressed or not."""
    with path.open(mode) as file:
        if path.suffix != ".gz":
            yield file.write
            return
        with GzipBlocks(file) as blocks:
            yield blocks.write
