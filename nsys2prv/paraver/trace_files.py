"""Files of a trace as the strict readers open them, and the first line of a .prv: what is wrong is reported with its line, or
raised as a TraceError."""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from nsys2prv.errors import TraceError, TraceNotReadable
from nsys2prv.vocabulary.limits import check_ordinary

Bytes = npt.NDArray[np.uint8]
OnMalformed = Callable[[int | None, str], None]
"""Receives the line number (None: the file as a whole) and what is wrong with a malformed line, which is then skipped."""

VIEWS = ".cfgs"
"""Suffix of the folder of views."""
MOST_OBJECTS = 65_535
"""Objects of a kind (nodes, CPUs, tasks, rows) that Paraver takes."""
MOST_COMMUNICATORS = 1_000_000
LONGEST_HEADER = 4 << 20
"""Bytes of the first line: a header with as many objects as Paraver takes has less than 2 MiB."""
LONGEST_NAME = 1 << 20
"""Bytes of a line of a .pcf or .row."""
MOST_NAME_BYTES, MOST_NAME_LINES = 256 << 20, 5_000_000
"""Size of a .pcf or .row, and lines in it."""
MOST_DIGITS = 18
"""Digits of a number of a header, .pcf or .row: more may not fit in 64 bits."""
NO_LINE_END = "the last line has no line end: the file is cut off"


def raising(path: Path) -> OnMalformed:
    """A report that raises a TraceError at the first malformed line."""

    def report(line: int | None, problem: str) -> None:
        raise TraceError(path, problem if line is None else f"line {line}: {problem}")

    return report


def companion(path: Path, suffix: str) -> Path:
    """The file with another suffix that belongs to a .prv or .prv.gz.

    >>> companion(Path("run/OUT.prv.gz"), ".pcf").name
    'OUT.pcf'
    """
    base = without_suffix(path)
    return base.with_name(base.name + suffix)


def without_suffix(path: Path) -> Path:
    """The path of a trace without .prv or .prv.gz, which a user may give or leave out.

    >>> without_suffix(Path("run/OUT.prv.gz")).name, without_suffix(Path("OUT.1")).name
    ('OUT', 'OUT.1')
    """
    suffix = next((suffix for suffix in (".prv.gz", ".prv") if path.name.endswith(suffix) and path.name != suffix), "")
    return path.with_name(path.name.removesuffix(suffix)) if suffix else path


def is_there(path: Path) -> bool:
    """Whether there is a file beside a trace; TraceNotReadable where the system does not tell."""
    with read_errors(path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turns what can go wrong while a file is read into a TraceError; TraceNotReadable where the file is not wrong."""
    try:
        yield
    except FileNotFoundError as error:
        raise TraceError(path, "there is no such file") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"its gzip data is cut off or damaged ({error})") from error
    except OSError as error:
        raise TraceNotReadable(path, error) from error


def open_prv(path: Path) -> IO[bytes]:
    """A .prv or .prv.gz as plain bytes; raises OSError where it is no ordinary file."""
    check_ordinary(path)
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def read_line(path: Path, file: IO[bytes], number: int, most: int) -> bytes:
    """The next line of a file, with its line end; TraceError where it is longer than `most` bytes."""
    line = file.readline(most + 1)
    if len(line) > most:
        raise TraceError(path, f"line {number}: it has more than {most:,} bytes")
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


def shown(text: str) -> str:
    """A text of a file in a sentence about it: in quotes, not too long."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


# nsys2prv 0.5.8 has a colon before the list of threads, which Paraver skips.
_FORM = re.compile(
    r"#Paraver \((?P<date>[^()]+)\):(?P<end>[0-9]+)(?P<unit>_[a-z]+)?"
    r":(?P<nodes>[0-9]+)(?:\((?P<cpus>[0-9]+(?:,[0-9]+)*)\))?"
    r":(?P<applications>[0-9]+):(?P<tasks>[0-9]+):?\((?P<threads>[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*)\)"
    r"(?:,(?P<communicators>[0-9]+))?"
)
# As long as the largest number of 64 bits.
_LONG_NUMBER = re.compile("[0-9]{20,}")
_LAST_TIME = 2**63 - 1
_DATE = "%d/%m/%Y at %H:%M"
_DATE_FORM = re.compile("[0-9]{2}/[0-9]{2}/[0-9]{4} at [0-9]{2}:[0-9]{2}")


@dataclass(frozen=True)
class HeaderTask:
    """A task of the header: its number of threads, its node (1, 2, ...), the row index of its first thread (0, 1, ...)."""

    threads: int
    node: int
    first_row: int


@dataclass(frozen=True)
class Header:
    """First line of a .prv: date (text between the parentheses), end of the trace (ns), CPUs of each node (empty where the
    header has 0 nodes), tasks of the one application in order, and the number of communicator lines that follow."""

    date: str
    end: int
    cpus_per_node: tuple[int, ...]
    tasks: tuple[HeaderTask, ...]
    communicators: int = 0

    @cached_property
    def rows(self) -> int:
        """Number of threads of all tasks."""
        return sum(task.threads for task in self.tasks)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of objects of each level that a .row names."""
        return {"NODE": len(self.cpus_per_node), "CPU": sum(self.cpus_per_node), "TASK": len(self.tasks), "THREAD": self.rows}

    @property
    def beyond_limits(self) -> list[str]:
        """A sentence for each kind of object of which there are more than Paraver takes."""
        kinds = {"NODE": "nodes", "CPU": "CPUs", "TASK": "tasks", "THREAD": "rows"}
        return [
            f"the header has {size} {kinds[level]}, and Paraver takes {MOST_OBJECTS}"
            for level, size in self.sizes.items()
            if size > MOST_OBJECTS
        ]

    @property
    def moment(self) -> datetime | None:
        """The date and time; None where it is not a date of the form DD/MM/YYYY at HH:MM."""
        try:
            return datetime.strptime(self.date, _DATE) if _DATE_FORM.fullmatch(self.date) else None
        except ValueError:
            return None

    def rows_at(self, task: npt.NDArray[np.int64], thread: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row index of task and thread numbers; -1: the header does not have the row."""
        threads, first_rows = self._of_tasks
        if len(task) and (task.min() < 0 or task.max() >= len(threads)):
            task = np.where((task >= 0) & (task < len(threads)), task, 0)
        row = first_rows.take(task)
        row += thread
        row -= 1
        off = (thread < 1) | (thread > threads.take(task))
        if off.any():
            row[off] = -1
        return row

    @cached_property
    def _of_tasks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Number of threads and first row of each task number; of 0, which is none, no threads."""
        of_tasks = np.array([(0, 0), *((task.threads, task.first_row) for task in self.tasks)], dtype=np.int64)
        return of_tasks[:, 0], of_tasks[:, 1]


def read_header(path: Path) -> Header:
    """First line of a .prv; TraceError where it is malformed or beyond Paraver's limits, or the file can't be read."""
    try:
        header = parse_header(read_first_line(path))
    except ValueError as error:
        raise TraceError(path, f"line 1: {error}") from error
    for problem in header.beyond_limits:
        raise TraceError(path, f"line 1: {problem}")
    return header


def read_first_line(path: Path) -> str:
    """Text of the first line of a .prv, with its line end; TraceError where the file does not exist or is empty."""
    if not re.search(r"\.prv(\.gz)?$", path.name):
        raise TraceError(path, "its name does not end in .prv or .prv.gz, so Paraver would not load it")
    with read_errors(path), open_prv(path) as file:
        line = read_line(path, file, 1, LONGEST_HEADER)
    if not line:
        raise TraceError(path, "it is empty")
    return line.decode("utf-8", "replace")


def parse_header(line: str) -> Header:
    """The header in a first line, which ends in LF; ValueError says what is wrong with it."""
    if not line.endswith("\n") or line.endswith("\r\n"):
        raise ValueError("it does not end in LF")
    if too_long := _LONG_NUMBER.search(line):
        raise ValueError(f"the number {shown(too_long[0])} in the header has too many digits")
    form = _FORM.fullmatch(line.removesuffix("\n"))
    if form is None:
        raise ValueError("the header is not `#Paraver (DD/MM/YYYY at HH:MM):END_ns:N(cpus,...):1:TASKS(threads:node,...)`")
    if form["unit"] != "_ns":
        raise ValueError(f"the end of the trace, {form['end']}{form['unit'] or ''}, is not in ns: it has to end in _ns")
    if int(form["end"]) > _LAST_TIME:
        raise ValueError(f"the end of the trace, {form['end']} ns, does not fit in 64 bits")
    if int(form["communicators"] or 0) > MOST_COMMUNICATORS:
        raise ValueError(f"the header announces {form['communicators']} communicators, and {MOST_COMMUNICATORS:,} are read")
    cpus = tuple(int(number) for number in (form["cpus"] or "").split(",") if number)
    if len(cpus) != int(form["nodes"]):
        raise ValueError(f"the header announces {form['nodes']} nodes and lists {len(cpus)}")
    if form["applications"] != "1":
        raise ValueError(f"the header has {form['applications']} applications, and only traces of one are supported")
    tasks: list[HeaderTask] = []
    first_row = 0
    for pair in form["threads"].split(","):
        threads, node = (int(number) for number in pair.split(":"))
        tasks.append(HeaderTask(threads, node, first_row))
        first_row += threads
    if len(tasks) != int(form["tasks"]):
        raise ValueError(f"the header announces {form['tasks']} tasks and lists {len(tasks)}")
    return Header(form["date"], int(form["end"]), cpus, tuple(tasks), int(form["communicators"] or 0))
