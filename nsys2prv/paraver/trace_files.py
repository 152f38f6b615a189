"""Files of a trace as the strict readers open them: a problem is reported with its line, or raised as a TraceError."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.paraver.fields import LINE_END
from nsys2prv.vocabulary.input_files import check_ordinary

Bytes = npt.NDArray[np.uint8]
OnMalformed = Callable[[int | None, str], None]
"""Receives the line number (None: the file as a whole) and what is wrong with a malformed line, which is then skipped."""

LONGEST_LINE = 16 << 20
"""Bytes of a line of a .prv. Of the lines of real traces the header is the longest, with 1 MiB for all objects that Paraver
takes."""
LONGEST_NAME = 1 << 20
"""Bytes of a line of a .pcf or .row."""
MOST_NAME_BYTES, MOST_NAME_LINES = 256 << 20, 5_000_000
"""Size of a .pcf or .row, and lines in it."""
MOST_DIGITS = 18
"""Digits of a number of a header, .pcf or .row: more may not fit in 64 bits."""
_USUAL_LINE = 4096
"""Bytes of most lines."""
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
    """A .prv or .prv.gz as plain bytes; raises OSError where it is no ordinary file."""
    check_ordinary(path)
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def read_line(path: Path, file: IO[bytes], number: int, most: int) -> bytes:
    """The next line of a file, with its line end; TraceError where it is longer than `most` bytes."""
    line = file.readline(most + 1)
    if len(line) > most:
        raise _too_long(path, number, most)
    return line


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines of a .pcf or .row with their line ends, numbered from 1; TraceError where it can't be read, or is no such file."""
    with read_errors(path):
        check_ordinary(path, MOST_NAME_BYTES)
        with path.open("rb") as file:
            for number in range(1, MOST_NAME_LINES + 1):
                line = read_line(path, file, number, LONGEST_NAME)
                if not line:
                    return
                yield number, line
            if file.read(1):
                raise TraceError(path, f"it has more than {MOST_NAME_LINES:,} lines")


def text_lines(path: Path, on_malformed: OnMalformed) -> Iterator[tuple[int, str]]:
    """Lines of a .pcf or .row, numbered from 1; reports what makes Paraver lose labels without a message."""
    for line, raw in raw_lines(path):
        if not raw.endswith(b"\n"):
            on_malformed(line, NO_LINE_END)
        try:
            text = raw.removesuffix(b"\n").decode()
        except UnicodeDecodeError:
            on_malformed(line, "it is not UTF-8")
            text = raw.removesuffix(b"\n").decode("utf-8", "replace")
        if text.endswith("\r"):
            on_malformed(line, "it ends in CR LF, and Paraver loses all labels")
            text = text.removesuffix("\r")
        elif text and not text.strip(" \t"):
            on_malformed(line, "it has only blanks")
        yield line, text


def text_blocks(path: Path, block_bytes: int) -> Iterator[tuple[int, Bytes]]:
    """Whole lines of a .prv from line 2 on, in blocks: number of the first line, and text. The last line of a file that is cut
    off comes alone, without its line end.
    """
    first_line = 2
    begun: Bytes = np.zeros(0, np.uint8)  # of a line whose end is not read yet
    with read_errors(path), open_prv(path) as file:
        read_line(path, file, 1, LONGEST_LINE)
        while True:
            # Behind what was begun: nothing is copied twice.
            text = np.empty(len(begun) + block_bytes, np.uint8)
            text[: len(begun)] = begun
            read = file.readinto(text[len(begun) :].data)  # type: ignore[attr-defined]
            if not read:
                break
            text = text[: len(begun) + read]
            whole = _behind_last_line_end(text)
            begun = text[whole:].copy()
            if whole:
                yield first_line, text[:whole]
                # Bytes are counted one by one, and numpy makes an array of what is equal.
                first_line += int((pl.Series(text[:whole]) == LINE_END).sum())
            elif len(begun) > LONGEST_LINE:
                raise _too_long(path, first_line, LONGEST_LINE)
    if len(begun):
        yield first_line, begun


def _behind_last_line_end(text: Bytes) -> int:
    """Where whole lines end; 0: there is none."""
    for last in (_USUAL_LINE, len(text)):
        before = max(len(text) - last, 0)
        found = text[before:].tobytes().rfind(b"\n")
        if found >= 0:
            return before + found + 1
    return 0


def _too_long(path: Path, line: int, most: int) -> TraceError:
    return TraceError(path, f"line {line}: it has more than {most:,} bytes")


def shown(text: str) -> str:
    """A text of a file in a sentence about it: in quotes, not too long."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
