"""Records of a .prv: some consecutive lines as frames of states, events and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.paraver.fields import MINUS, NUMBER_SIGN, Fields, Indices
from nsys2prv.paraver.interval_pairs import is_interval
from nsys2prv.paraver.record_text import EVENT, MESSAGE, STATE
from nsys2prv.paraver.trace_files import MOST_DIGITS, shown

# Fields of a record, by their place on the line; the first six are those of each kind.
_CPU, _APPLICATION, _TASK, _THREAD, _TIME, _HEAD = 1, 2, 3, 4, 5, 6
_STATE_FIELDS = {"end": 6, "state": 7}
_MESSAGE_FIELDS = {
    "physical_send": 6,
    "recv_cpu": 7,
    "recv_task": 9,
    "recv_thread": 10,
    "logical_recv": 11,
    "physical_recv": 12,
    "size": 13,
    "tag": 14,
}
_RECEIVING_APPLICATION, _TAG = 8, 14
_STATE_COUNT, _MESSAGE_COUNT = 8, 15
_EVENT_COLUMNS = ("line", "position", "cpu", "task", "thread", "time", "type", "value")

_NUMBER = f"[0-9]{{1,{MOST_DIGITS}}}"
# Application, number, number of tasks, tasks; between two groups: application, number, and communicator and leader of each.
_COMMUNICATOR_FORM = re.compile(rf"[cC]:1:{_NUMBER}:(?P<size>{_NUMBER})(?P<tasks>(?::{_NUMBER})*)|[iI]:1(?::{_NUMBER}){{5}}")
_FIELDS = {"1": "8", "2": "6 and one or more type:value pairs", "3": "15"}


class Block:
    """Some consecutive whole lines of a .prv. All columns are Int64; task and thread count from 1, times are ns.

    Columns are read from the text when they are requested; one thread at a time may do so.

    Attributes
    ----------
    first_line
        Line number of the first line of the block in the file, from 1.
    """

    def __init__(self, first_line: int, text: bytes) -> None:
        self.first_line = first_line
        fields = Fields(text)
        self._first, self._count, self._values = fields.first, fields.count, fields.values
        self._kind, self._malformed, self._too_large = _kinds(fields)
        self._lines = np.flatnonzero(self._kind)
        # The text and where its fields are take much memory, and are needed only to say what is wrong.
        self._source = fields if len(self._malformed) or len(self._too_large) else None

    def malformed(self, announced: AnnouncedCommunicators) -> Iterator[tuple[int, str]]:
        """Line number of each malformed line, which is in no frame, and what is wrong with it."""
        if self._source is None:
            return
        for index in self._malformed.tolist():
            line, text = self.first_line + index, self._source.line(index)
            problem = _problem(text) if line > announced.last_line else announced.problem(text)
            if problem is not None:
                yield line, problem
        for field, index in zip(self._too_large.tolist(), self._source.line_of(self._too_large).tolist(), strict=True):
            yield self.first_line + index, f"{shown(self._source.field(field))} does not fit in 64 bits"

    @cached_property
    def records(self) -> pl.DataFrame:
        """A row per line: line, kind, cpu, task, thread, time (begin of a state, logical send of a message)."""
        fields = {"cpu": _CPU, "task": _TASK, "thread": _THREAD, "time": _TIME}
        kind = self._kind[self._lines].astype(np.int64)
        return pl.DataFrame({"line": self._lines + self.first_line, "kind": kind, **self._columns(self._lines, fields)})

    @cached_property
    def states(self) -> pl.DataFrame:
        """line, cpu, task, thread, begin, end, state."""
        heads = self.records.filter(pl.col("kind") == STATE).drop("kind").rename({"time": "begin"})
        return heads.with_columns(**self._columns(self._of_kind(STATE), _STATE_FIELDS))

    @cached_property
    def messages(self) -> pl.DataFrame:
        """line, send_cpu, send_task, send_thread, logical_send, physical_send, recv_cpu, recv_task, recv_thread, logical_recv,
        physical_recv, size (bytes), tag.
        """
        sender = {"cpu": "send_cpu", "task": "send_task", "thread": "send_thread", "time": "logical_send"}
        heads = self.records.filter(pl.col("kind") == MESSAGE).drop("kind").rename(sender)
        return heads.with_columns(**self._columns(self._of_kind(MESSAGE), _MESSAGE_FIELDS))

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """A row per type:value pair of events: record (index of its line in `records`), type, value."""
        fields, record = self._pair_fields
        return pl.DataFrame({"record": record, "type": self._pair_types, "value": self._values.take(fields + 1)})

    @cached_property
    def events(self) -> pl.DataFrame:
        """A row per type:value pair: line, position (0, 1, ... on the line), cpu, task, thread, time, type, value."""
        fields, record = self._pair_fields
        before = fields - self._first[self._lines[record]] - _HEAD
        return self.located(self.pairs.with_columns(position=pl.Series(before // 2))).select(_EVENT_COLUMNS)

    def located(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Some of `pairs`, each with the columns of its line in `records`."""
        lines = self.records.drop("kind").select(pl.all().gather(pairs["record"]))
        return pairs.drop("record").with_columns(lines.get_columns())

    @cached_property
    def types(self) -> pl.DataFrame:
        """Event types that occur in it: type, pairs (how many), record (that of the first)."""
        pairs = pl.DataFrame({"type": self._pair_types, "record": self._pair_fields[1]})
        return pairs.group_by("type").agg(pl.len().alias("pairs"), pl.col("record").first())

    @cached_property
    def edges(self) -> pl.DataFrame:
        """Those of `pairs` whose types start and end intervals."""
        return self.of_types(filter(is_interval, self.types["type"]))

    def of_types(self, types: Iterable[int]) -> pl.DataFrame:
        """Those of `pairs` that are of some event types."""
        found = self.types["type"].filter(self.types["type"].is_in(list(types))).to_list()
        if len(found) in (0, self.types.height):
            return self.pairs if found else self.pairs.clear()
        return self.pairs.filter(pl.col("type").is_in(found))

    @cached_property
    def _pair_types(self) -> pl.Series:
        return pl.Series(self._values.take(self._pair_fields[0]))

    @cached_property
    def _pair_fields(self) -> tuple[Indices, Indices]:
        """(index of the field of each type, index in `records` of its line)."""
        record = np.flatnonzero(self._kind[self._lines] == EVENT)
        lines = self._lines[record]
        count = (self._count[lines] - _HEAD) // 2
        # Pairs of all lines before are as many fields too few.
        first = self._first[lines] + _HEAD - 2 * (np.cumsum(count) - count)
        fields = np.repeat(first, count)
        fields += np.arange(0, 2 * len(fields), 2)
        return fields, np.repeat(record, count)

    def _of_kind(self, kind: int) -> Indices:
        return np.flatnonzero(self._kind == kind)

    def _columns(self, lines: Indices, places: Mapping[str, int]) -> dict[str, pl.Series]:
        first = self._first[lines]
        return {name: pl.Series(name, self._values.take(first + place)) for name, place in places.items()}


def _kinds(fields: Fields) -> tuple[npt.NDArray[np.uint8], Indices, Indices]:
    """(kind of each line, 0: it is no record; lines that are malformed; fields of other lines that do not fit in 64 bits)."""
    count = fields.count
    kind = fields.single_digits(fields.first).astype(np.uint8)
    is_record = ((kind == STATE) & (count == _STATE_COUNT)) | ((kind == EVENT) & (count > _HEAD) & (count % 2 == 0))
    messages = np.flatnonzero((kind == MESSAGE) & (count == _MESSAGE_COUNT))
    is_record[messages] = fields.single_digits(fields.first[messages] + _RECEIVING_APPLICATION) == 1
    is_record[is_record] = fields.single_digits(fields.first[is_record] + _APPLICATION) == 1
    kind[~is_record] = 0
    kind[fields.line_of(np.flatnonzero(fields.length == 0))] = 0
    kind[_with_other_bytes(fields, kind)] = 0
    malformed = np.flatnonzero(kind == 0)
    starts = fields.start(fields.first[malformed])
    malformed = malformed[fields.byte(starts) != NUMBER_SIGN]
    too_large = fields.too_large[kind[fields.line_of(fields.too_large)] != 0]
    kind[fields.line_of(too_large)] = 0
    return kind, malformed, too_large


def _with_other_bytes(fields: Fields, kind: npt.NDArray[np.uint8]) -> Indices:
    """Lines with bytes that are neither digits nor separators, but for the minus of a value and of a tag."""
    field = fields.field_at(fields.other)
    line = fields.line_of(field)
    place = field - fields.first[line]
    may_be_negative = ((kind[line] == EVENT) & (place > _HEAD) & (place % 2 == 1)) | ((kind[line] == MESSAGE) & (place == _TAG))
    is_minus = (fields.byte(fields.other) == MINUS) & (fields.other == fields.start(field)) & (fields.length[field] > 1)
    lines: Indices = line[~(may_be_negative & is_minus)]
    return lines


@dataclass(frozen=True)
class AnnouncedCommunicators:
    """What a header announces: the last line that may be a communicator, and the number of tasks."""

    last_line: int
    tasks: int

    def problem(self, text: str) -> str | None:
        """What is wrong with a communicator; None: nothing."""
        form = _COMMUNICATOR_FORM.fullmatch(text)
        if form is None:
            return f"{shown(text)} is not a communicator, and the header announces one on this line"
        if form["size"] is None:
            return None
        tasks = list(map(int, form["tasks"].split(":")[1:]))
        if len(tasks) != int(form["size"]):
            return f"{shown(text)} announces {form['size']} tasks and lists {len(tasks)}"
        unknown = [task for task in tasks if not 1 <= task <= self.tasks]
        return f"{shown(text)} has task {unknown[0]}, and the header {self.tasks} tasks" if unknown else None


def _problem(text: str) -> str:
    """One sentence about a line that is not a record."""
    if text.endswith("\r"):
        return "it ends in CR LF; lines of a trace end in LF"
    if not text:
        return "it is empty"
    if not text.strip():
        return "it has only blanks"
    fields = text.split(":")
    if fields[0] not in _FIELDS:
        return f"{shown(text)} is not a record: its kind is none of 1 (state), 2 (event), 3 (message)"
    for position, number in enumerate(fields, start=1):
        if not re.fullmatch(r"-?[0-9]+", number):
            return f"{shown(text)} is not a record: field {position}, {shown(number)}, is not a whole number"
    if not re.fullmatch({"1": "8", "3": "15"}.get(fields[0], r"\d*[02468]"), str(len(fields))) or len(fields) < 8:
        expected = _FIELDS[fields[0]]
        return f"{shown(text)} is not a record: it has {len(fields)} fields, a record of kind {fields[0]} has {expected}"
    if fields[2] != "1" or (fields[0] == "3" and fields[8] != "1"):
        return f"{shown(text)} is not a record: it names an application that is not in the header"
    return f"{shown(text)} is not a record: a number is negative"
