"""Files of a trace as the strict readers open them: a problem is reported with its line, or raised as a TraceError."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nsys2prv.errors import TraceError

OnMalformed = Callable[[int | None, str], None]
"""Receives the line number (None: the file as a whole) and what is wrong with a malformed line, which is then skipped."""

NO_LINE_END = "the last line has no line end: the file is cut off"


def raising(path: Path) -> OnMalformed:
    """A report that raises a TraceError at the first malformed line."""

    def report(line: int | None, problem: str) -> None:
        raise TraceError(path, problem if line is None else f"line {line}: {problem}")

    return report


def companion(path: Path, suffix: str) -> Path:
    """The .pcf or .row that belongs to a .prv or .prv.gz.

    >>> companion(Path("run/OUT.prv.gz"), ".pcf").name
    'OUT.pcf'
    """
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return stem.with_suffix(suffix)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turns what can go wrong while a file is read into a TraceError."""
    try:
        yield
    except FileNotFoundError as error:
        raise TraceError(path, "there is no such file") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"its gzip data is cut off or damaged ({error})") from error
    except OSError as error:
        raise TraceError(path, f"it can't be read ({error.strerror or error})") from error


def open_prv(path: Path) -> IO[bytes]:
    """A .prv or .prv.gz as plain bytes."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def text_lines(path: Path, on_malformed: OnMalformed) -> Iterator[tuple[int, str]]:
    """Lines of a .pcf or .row, numbered from 1; reports what makes Paraver lose labels without a message."""
    with read_errors(path):
        content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        on_malformed(content.count(b"\n") + 1, NO_LINE_END)
    for line, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            on_malformed(line, "it is not UTF-8")
            text = raw.decode("utf-8", "replace")
        if text.endswith("\r"):
            on_malformed(line, "it ends in CR LF, and Paraver loses all labels")
            text = text.removesuffix("\r")
        elif text and not text.strip(" \t"):
            on_malformed(line, "it has only blanks")
        yield line, text


def text_blocks(path: Path, on_malformed: OnMalformed, block_bytes: int) -> Iterator[tuple[int, str]]:
    """Whole lines of a .prv from line 2 on, in blocks: number of the first line, and text without the last line end."""
    first_line, rest = 2, b""
    with read_errors(path), open_prv(path) as file:
        file.readline()
        while chunk := file.read(block_bytes):
            whole, line_end, left = chunk.rpartition(b"\n")
            if not line_end:
                rest += chunk
                continue
            text, rest = rest + whole, left
            yield first_line, text.decode("utf-8", "replace")
            first_line += text.count(b"\n") + 1
    if rest:
        on_malformed(first_line, NO_LINE_END)
