"""Writer of the trace itself, .prv or .prv.gz."""

from __future__ import annotations

import gzip
import io
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import polars as pl

from nsys2prv.timeline.rows import Rows

_GZIP_LEVEL = 4
"""Half the time of the default for a few percent more bytes."""


def header(rows: Rows, end: int, began: int | None) -> str:
    """First line of a trace.

    Parameters
    ----------
    rows
        Its rows.
    end
        Length, ns.
    began
        UTC of time 0, ns since 1970; None when it is not known. The date is that of the run, not of the translation:
        the same reports give the same file.
    """
    moment = datetime.fromtimestamp((began or 0) // 10**9, tz=timezone.utc)
    nodes = ",".join(str(node.cpus) for node in rows.nodes)
    tasks = ",".join(f"{len(task.threads)}:{task.node + 1}" for task in rows.tasks)
    return f"#Paraver ({moment:%d/%m/%Y at %H:%M}):{end}_ns:{len(rows.nodes)}({nodes}):1:{len(rows.tasks)}({tasks})"


class TraceWriter:
    """Writes records, sorted by time, to a file.

    Parameters
    ----------
    path
        File to write; compressed when its name ends in .gz.
    first_line
        The header.
    rows
        The rows of the trace (`Rows.table`).
    """

    def __init__(self, path: Path, first_line: str, rows: pl.DataFrame) -> None:
        self._path = path
        self._first_line = first_line
        self._rows = rows
        self._file: BinaryIO | None = None
        self.records = 0

    def __enter__(self) -> TraceWriter:
        self._file = (
            # No name and no time in the gzip header: the same trace is the same file.
            gzip.GzipFile("", "wb", _GZIP_LEVEL, self._path.open("wb"), mtime=0)  # type: ignore[assignment]
            if self._path.suffix == ".gz"
            else self._path.open("wb")
        )
        self._write(f"{self._first_line}\n".encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            raw = getattr(self._file, "fileobj", None)
            self._file.close()
            if raw is not None:
                raw.close()

    def write(self, records: pl.DataFrame) -> None:
        """Append records (columns of `timeline.records.RECORD_SCHEMA`)."""
        lines = records.select(
            "kind",
            cpu=pl.lit(0),
            appl=pl.lit(1),
            task=self._rows["task"].gather(records["row"]),
            thread=self._rows["thread"].gather(records["row"]),
            time="time",
            body="body",
        )
        text = io.BytesIO()
        lines.write_csv(text, include_header=False, separator=":", quote_style="never")
        self._write(text.getbuffer())
        self.records += records.height

    def _write(self, text: bytes | memoryview) -> None:
        assert self._file is not None, "the writer is a context manager"
        self._file.write(text)
