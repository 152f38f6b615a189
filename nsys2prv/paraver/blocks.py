"""Records of a .prv: some consecutive lines as frames of states, events and messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution.row_order import Distinct, distinct
from nsys2prv.paraver.fields import MINUS, NUMBER_SIGN, Fields, Indices
from nsys2prv.paraver.header import Header
from nsys2prv.paraver.record_text import EVENT, MESSAGE, STATE
from nsys2prv.paraver.trace_files import MOST_DIGITS, Bytes, shown
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary import event_types

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

    Columns are read from the text when they are requested; one thread at a time may do so. What is asked of every block is
    asked of arrays: frames of a block take as long to be made as what is in them takes to be read.

    Attributes
    ----------
    first_line
        Line number of the first line of the block in the file, from 1.
    kind
        Kind of each record: STATE, EVENT or MESSAGE.
    """

    def __init__(self, first_line: int, text: bytes | Bytes) -> None:
        self.first_line = first_line
        fields = Fields(text)
        self._first, self._count, self._values = fields.first, fields.count, fields.values
        self._kind, self._malformed, self._too_large = _kinds(fields)
        self._lines = np.flatnonzero(self._kind)
        self.kind = self._kind[self._lines]
        # Of each record its first field.
        self._heads = self._first[self._lines]
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

    def __len__(self) -> int:
        """Number of records."""
        return len(self.kind)

    @cached_property
    def line(self) -> Indices:
        """Line number of each record in the file."""
        return self._lines + self.first_line

    @cached_property
    def cpu(self) -> Indices:
        """CPU of each record."""
        return self._behind(self._heads, _CPU)

    @cached_property
    def task(self) -> Indices:
        """Task of each record; of a message that of its sender."""
        return self._behind(self._heads, _TASK)

    @cached_property
    def thread(self) -> Indices:
        """Thread of each record; of a message that of its sender."""
        return self._behind(self._heads, _THREAD)

    @cached_property
    def time(self) -> Indices:
        """Time of each record: start of a state, logical send of a message."""
        return self._behind(self._heads, _TIME)

    @cached_property
    def of_states(self) -> Indices:
        """Places of states among the records."""
        return np.flatnonzero(self.kind == STATE)

    @cached_property
    def of_messages(self) -> Indices:
        """Places of messages among the records."""
        return np.flatnonzero(self.kind == MESSAGE)

    @cached_property
    def of_events(self) -> Indices:
        """Places of lines of events among the records."""
        return np.flatnonzero(self.kind == EVENT)

    def state_column(self, name: str) -> Indices:
        """A column of the states that other records do not have: end, state."""
        return self._columns_of_states[name]

    def message_column(self, name: str) -> Indices:
        """A column of the messages that other records do not have: those of `messages` from physical_send on."""
        return self._columns_of_messages[name]

    def rows(self, header: Header) -> Indices:
        """Row of each record in a header; -1: it is not there."""
        return self._located("records", header, self.task, self.thread)

    def rows_of_receivers(self, header: Header) -> Indices:
        """Row of the receiver of each message; -1: it is not in the header."""
        return self._located("receivers", header, self.message_column("recv_task"), self.message_column("recv_thread"))

    def _located(self, what: str, header: Header, task: Indices, thread: Indices) -> Indices:
        if what not in self._rows:
            self._rows[what] = header.rows_at(task, thread)
        return self._rows[what]

    @cached_property
    def _rows(self) -> dict[str, Indices]:
        """Rows that were asked for: a block is of one header."""
        return {}

    @cached_property
    def _columns_of_states(self) -> dict[str, Indices]:
        return self._columns(self.of_states, _STATE_FIELDS)

    @cached_property
    def _columns_of_messages(self) -> dict[str, Indices]:
        return self._columns(self.of_messages, _MESSAGE_FIELDS)

    @cached_property
    def records(self) -> pl.DataFrame:
        """A row per line: line, kind, cpu, task, thread, time (begin of a state, logical send of a message)."""
        kind = self.kind.astype(np.int64)
        columns = {
            "line": self.line,
            "kind": kind,
            "cpu": self.cpu,
            "task": self.task,
            "thread": self.thread,
            "time": self.time,
        }
        return pl.DataFrame(columns)

    @cached_property
    def states(self) -> pl.DataFrame:
        """line, cpu, task, thread, begin, end, state."""
        heads = self._heads_of(self.of_states)
        return pl.DataFrame({**heads, "begin": self.time[self.of_states], **self._columns_of_states})

    @cached_property
    def messages(self) -> pl.DataFrame:
        """line, send_cpu, send_task, send_thread, logical_send, physical_send, recv_cpu, recv_task, recv_thread, logical_recv,
        physical_recv, size (bytes), tag.
        """
        line, *sender = self._heads_of(self.of_messages).items()
        columns = {f"send_{name}": values for name, values in sender}
        return pl.DataFrame(
            {"line": line[1], **columns, "logical_send": self.time[self.of_messages], **self._columns_of_messages}
        )

    def _heads_of(self, places: Indices) -> dict[str, Indices]:
        columns = {"line": self.line, "cpu": self.cpu, "task": self.task, "thread": self.thread}
        return {name: values[places] for name, values in columns.items()}

    @cached_property
    def pair_record(self) -> Indices:
        """Of each type:value pair of events: place of its line among the records."""
        return self._pair_fields[1]

    @cached_property
    def pair_value(self) -> Indices:
        """Value of each pair."""
        return self._behind(self._pair_fields[0], 1)

    @cached_property
    def pair_types(self) -> Distinct:
        """Event types that occur, and which of them each pair has."""
        return distinct(self._values.take(self._pair_fields[0]))

    def pairs_of(self, chosen: npt.NDArray[np.bool_]) -> Indices:
        """Places of those pairs whose types are chosen, of the numbers of `pair_types`."""
        place, kinds = self.pair_types.place, np.flatnonzero(chosen)
        if not len(kinds):
            return np.zeros(0, np.int64)
        if len(kinds) == len(chosen):
            return np.arange(len(place))
        # One number is compared in half the time of a look-up.
        return np.flatnonzero(place == kinds[0] if len(kinds) == 1 else chosen.take(place))

    @cached_property
    def edge_pairs(self) -> Indices:
        """Places of those pairs whose types start and end intervals."""
        return self.pairs_of(self.pair_types.which(is_interval))

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """A row per type:value pair of events: record (index of its line in `records`), type, value."""
        types = self.pair_types
        return pl.DataFrame({"record": self.pair_record, "type": types.numbers[types.place], "value": self.pair_value})

    @cached_property
    def events(self) -> pl.DataFrame:
        """A row per type:value pair: line, position (0, 1, ... on the line), cpu, task, thread, time, type, value."""
        before = self._pair_fields[0] - self._heads[self.pair_record] - _HEAD
        return self.located(self.pairs.with_columns(position=pl.Series(before // 2))).select(_EVENT_COLUMNS)

    def located(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Some of `pairs`, each with the columns of its line in `records`."""
        lines = self.records.drop("kind").select(pl.all().gather(pairs["record"]))
        return pairs.drop("record").with_columns(lines.get_columns())

    @cached_property
    def types(self) -> pl.DataFrame:
        """Event types that occur in it: type, pairs (how many), record (that of the first)."""
        types = self.pair_types
        first = np.empty(len(types.numbers), np.int64)
        # Of several, numpy keeps what is written last.
        first[types.place[::-1]] = self.pair_record[::-1]
        return pl.DataFrame({"type": types.numbers, "pairs": types.count, "record": first})

    @cached_property
    def _pair_fields(self) -> tuple[Indices, Indices]:
        """(index of the field of each type, place among the records of its line)."""
        record = self.of_events
        count = (self._count[self._lines[record]] - _HEAD) // 2
        # Pairs of all lines before are as many fields too few.
        first = self._heads[record] + _HEAD - 2 * (np.cumsum(count) - count)
        fields = np.repeat(first, count)
        fields += np.arange(0, 2 * len(fields), 2)
        return fields, np.repeat(record, count)

    def _columns(self, records: Indices, places: Mapping[str, int]) -> dict[str, Indices]:
        heads = self._heads[records]
        return {name: self._behind(heads, place) for name, place in places.items()}

    def _behind(self, fields: Indices, places: int) -> Indices:
        """Values of the fields that are so many places behind some fields."""
        # Of a part of all values: sums with each index take as long as to look up.
        return self._values[places:].take(fields)


def _kinds(fields: Fields) -> tuple[npt.NDArray[np.uint8], Indices, Indices]:
    """(kind of each line, 0: it is no record; lines that are malformed; fields of other lines that do not fit in 64 bits)."""
    count = fields.count
    kind = fields.single_digits(fields.first).astype(np.uint8)
    is_record = ((kind == STATE) & (count == _STATE_COUNT)) | ((kind == EVENT) & (count > _HEAD) & (count & 1 == 0))
    messages = np.flatnonzero((kind == MESSAGE) & (count == _MESSAGE_COUNT))
    is_record[messages] = fields.single_digits(fields.first[messages] + _RECEIVING_APPLICATION) == 1
    # Of lines with fewer fields those of the next ones, or the last of all: they are no records whatever is there.
    application = np.minimum(fields.first + _APPLICATION, len(fields.values) - 1)
    is_record &= fields.single_digits(application) == 1
    kind *= is_record
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


@lru_cache(1 << 18)
def is_interval(number: int) -> bool:
    """Whether events of this type start and end intervals; False for a type that is not one of nsys2prv."""
    event_type = type_of(number)
    return event_type is not None and event_type.role is event_types.Role.INTERVAL
