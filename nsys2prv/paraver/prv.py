"""Writer of the trace itself, .prv or .prv.gz, as a whole or in parts that are joined."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from nsys2prv.paraver.record_text import RecordText
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, TimelineHead

_GZIP_LEVEL = 4
"""Half the time of the default for a few percent more bytes."""

_COPIED_BYTES = 1 << 20
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
        File to write; compressed when its name ends in .gz.
    head
        Rows and length of the whole trace.
    is_first
        Whether the file starts with the header.
    """

    def __init__(self, path: Path, head: TimelineHead, *, is_first: bool) -> None:
        self._path = path
        self._first_line = header_line(head) if is_first else None
        self._text = RecordText(head.rows.table)
        self._file: BinaryIO | None = None
        self.records = 0

    def __enter__(self) -> PrvWriter:
        self._file = (
            # Without name and time in the gzip header the same trace gives the same file.
            gzip.GzipFile("", "wb", _GZIP_LEVEL, self._path.open("wb"), mtime=0)  # type: ignore[assignment]
            if self._path.suffix == ".gz"
            else self._path.open("wb")
        )
        assert self._file is not None
        if self._first_line is not None:
            self._file.write(f"{self._first_line}\n".encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            raw = getattr(self._file, "fileobj", None)
            self._file.close()
            if raw is not None:
                raw.close()

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window. May be called on several threads."""
        return self._text.encode(batches)

    def write(self, encoded: EncodedRecords) -> None:
        """Append the lines of a window, as `encode` returns them."""
        assert self._file is not None, "the writer is a context manager"
        self._file.write(encoded.content)
        self.records += encoded.records


def join_parts(path: Path, parts: Iterable[Path]) -> None:
    """Append parts to the file of a `PrvWriter`, in their order; each part is removed when it is appended.

    Compressed parts become members of one gzip file, which readers decompress as one stream.
    """
    with path.open("ab") as whole:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, whole, _COPIED_BYTES)
            part.unlink()
