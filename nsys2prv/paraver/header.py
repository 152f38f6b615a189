"""The first line of a .prv, read strictly: end of the trace, nodes with their CPUs, tasks with their threads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.paraver.trace_files import open_prv, read_errors

# nsys2prv 0.5.8 has a colon before the list of threads, which Paraver skips.
_FORM = re.compile(
    r"#Paraver \((?P<date>[^()]+)\):(?P<end>[0-9]+)(?P<unit>_[a-z]+)?"
    r":(?P<nodes>[0-9]+)(?:\((?P<cpus>[0-9]+(?:,[0-9]+)*)\))?"
    r":(?P<applications>[0-9]+):(?P<tasks>[0-9]+):?\((?P<threads>[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*)\)"
    r"(?:,(?P<communicators>[0-9]+))?"
)


@dataclass(frozen=True)
class HeaderTask:
    """A task of the header: its number of threads, its node (1, 2, ...), the row index of its first thread (0, 1, ...)."""

    threads: int
    node: int
    first_row: int


@dataclass(frozen=True)
class Header:
    """First line of a .prv: date (text between the parentheses), end of the trace (ns), CPUs of each node (empty where the
    header has 0 nodes), tasks of the one application in order, and the number of communicator lines that follow.
    """

    date: str
    end: int
    cpus_per_node: tuple[int, ...]
    tasks: tuple[HeaderTask, ...]
    communicators: int = 0

    @property
    def rows(self) -> int:
        """Number of threads of all tasks."""
        return sum(task.threads for task in self.tasks)

    def row_of(self, task: pl.Expr, thread: pl.Expr) -> pl.Expr:
        """Row index (0, 1, ..., as in LEVEL THREAD of the .row) of task and thread numbers that the header has."""
        first_rows = pl.Series([each.first_row for each in self.tasks], dtype=pl.Int64)
        return pl.lit(first_rows).gather(task - 1) + thread - 1


def read_header(path: Path) -> Header:
    """First line of a .prv; TraceError where it is malformed or the file can't be read."""
    try:
        return parse_header(read_first_line(path))
    except ValueError as error:
        raise TraceError(path, f"line 1: {error}") from error


def read_first_line(path: Path) -> str:
    """Text of the first line of a .prv, with its line end; TraceError where the file does not exist or is empty."""
    if not re.search(r"\.prv(\.gz)?$", path.name):
        raise TraceError(path, "its name does not end in .prv or .prv.gz, so Paraver would not load it")
    with read_errors(path), open_prv(path) as file:
        line = file.readline()
    if not line:
        raise TraceError(path, "it is empty")
    return line.decode("utf-8", "replace")


def parse_header(line: str) -> Header:
    """The header in a first line, which ends in LF; ValueError says what is wrong with it."""
    if not line.endswith("\n") or line.endswith("\r\n"):
        raise ValueError("it does not end in LF")
    form = _FORM.fullmatch(line.removesuffix("\n"))
    if form is None:
        raise ValueError("the header is not `#Paraver (DD/MM/YYYY at HH:MM):END_ns:N(cpus,...):1:TASKS(threads:node,...)`")
    if form["unit"] != "_ns":
        raise ValueError(f"the end of the trace, {form['end']}{form['unit'] or ''}, is not in ns: it has to end in _ns")
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
