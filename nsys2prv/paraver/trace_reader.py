"""A strict reader of Paraver traces: OUT.prv (or .prv.gz) in blocks of bounded size, OUT.pcf, OUT.row; and OUT.json.

Strict: each line is understood, or reported by its number where Paraver may drop it without a message. Whether the records make
sense together is for `check`."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from nsys2prv.errors import TraceError
from nsys2prv.execution import memory
from nsys2prv.execution.process import map_ahead
from nsys2prv.paraver.blocks import LINE_END, Block
from nsys2prv.paraver.label_files import PcfLabels, read_pcf, read_row
from nsys2prv.paraver.trace_files import (
    NO_LINE_END,
    Bytes,
    Header,
    OnMalformed,
    companion,
    is_there,
    open_prv,
    raising,
    read_errors,
    read_header,
    read_line,
    shown,
)
from nsys2prv.vocabulary.limits import read_ordinary

T = TypeVar("T")

LONGEST_LINE = 16 << 20
"""Bytes of a line of a .prv. Of the lines of real traces the header is the longest, with 1 MiB for all objects that Paraver
takes."""
BLOCK_BYTES = 4 << 20
"""Bytes of text of a block. Some are read ahead, and each takes some ten times that in memory."""
MOST_TYPES = 200_000
"""Event types of a trace: what is known of each is looked up one by one."""
MOST_MALFORMED = 100_000
MOST_SUMMARY_BYTES = 128 << 20
_LARGEST = 2**63 - 1


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

        for block, result in map_ahead(parsed, _texts(self.path, at_end)):
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
    off."""
    block_bytes = memory.scaled(BLOCK_BYTES)
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
    has_labels = is_there(labels_path)
    return Trace(
        path,
        header,
        read_pcf(labels_path, on_malformed) if has_labels else PcfLabels(),
        read_row(names_path, on_malformed) if is_there(names_path) else {},
        has_labels,
    )


# What may be read: a key may be missing, as versions differ, but what is there has this form. A tuple is a choice.
_COUNTS = {"": int}
_SOURCE = {"source": str, "title": str, "rows": int, "written": int, "left_out": _COUNTS, "events": _COUNTS, "derived": bool}
_TABLE = {"table": str, "rows": int, "sources": [_SOURCE], "derived": [_SOURCE], "left_out": _COUNTS}
_FORM: Mapping[str, Any] = {
    "nsys2prv": str,
    "options": {"": object},
    "trace": {
        **dict.fromkeys(("bytes", "records", "length_ns", "origin_ns", "nodes", "tasks", "rows"), int),
        "windows_ns": [[int]],
        "types": [int],
        "rows_of_types": [{"types": [int], "rows": [[int]]}],
        "rows_of_messages": [[int]],
    },
    "messages": {"written": int},
    "run": {"size": (int, NoneType)},
    "nodes": [{"name": str, "cpus": int}],
    "tasks": [{"name": str, "threads": [str], "report": (str, NoneType)}],
    "event_types": [{"number": int, "label": str}],
    "reports": [
        {
            "path": str,
            "nsys": (str, NoneType),
            "gpus": [{"name": (str, NoneType)}],
            "alignment": {"": object},
            "tables": [_TABLE],
        }
    ],
    "critical_path": {"segments": int, "lines": int, "total_ns": _COUNTS},
    "clocks": [{"": object}],
    "clock_check": [{"text": str}],
}


def read_summary(prv: Path) -> Mapping[str, Any] | None:
    """Content of the OUT.json beside a trace; None where there is none, or it is of another program.

    Raises
    ------
    TraceError
        When it is damaged, or can't be read.
    """
    path = companion(prv, ".json")
    if not is_there(path):
        return None
    try:
        with read_errors(path):
            content = json.loads(read_ordinary(path, MOST_SUMMARY_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise TraceError(path, "it is no JSON") from error
    if not isinstance(content, dict) or not {"nsys2prv", "trace"} <= content.keys():
        return None
    if problem := _problem(content, _FORM, ""):
        raise TraceError(path, problem)
    return content


def _problem(value: object, form: Any, place: str) -> str | None:
    """What is not of its form, or None."""
    if isinstance(form, list):
        if not isinstance(value, list):
            return _sentence(place, value, "a list")
        return next(filter(None, (_problem(entry, form[0], f"{place}[{at}]") for at, entry in enumerate(value))), None)
    if isinstance(form, Mapping):
        if not isinstance(value, dict):
            return _sentence(place, value, "an object")
        # The form of all values where "" is a key.
        of_key = [(key, form.get(key, form.get(""))) for key in value]
        problems = (_problem(value[key], expected, f"{place}.{key}") for key, expected in of_key if expected is not None)
        return next(filter(None, problems), None)
    kinds = form if isinstance(form, tuple) else (form,)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if int in kinds and is_number:
        return None if -_LARGEST <= value <= _LARGEST else _sentence(place, value, "a number of 64 bits")  # type: ignore[operator]
    if (int in kinds and isinstance(value, bool)) or not isinstance(value, kinds):
        names = {int: "a whole number", str: "a text", bool: "true or false", NoneType: "null"}
        return _sentence(place, value, " or ".join(names.get(kind, "anything") for kind in kinds))
    return None


def _sentence(place: str, value: object, expected: str) -> str:
    return f"{place.lstrip('.')} is {shown(json.dumps(value, ensure_ascii=True))} and not {expected}"
