"""Records of a .prv: some consecutive lines as columns of states, events and messages."""

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution.row_order import distinct
from nsys2prv.paraver.record_text import EVENT, MESSAGE, STATE
from nsys2prv.paraver.trace_files import MOST_DIGITS, Bytes, Header, shown
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary import event_types

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COLON, LINE_END, MINUS, NUMBER_SIGN, ZERO = (ord(character) for character in ":\n-#0")

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

_NUMBER = f"[0-9]{{1,{MOST_DIGITS}}}"
# Application, number, number of tasks, tasks; between two groups: application, number, and communicator and leader of each.
_COMMUNICATOR_FORM = re.compile(rf"[cC]:1:{_NUMBER}:(?P<size>{_NUMBER})(?P<tasks>(?::{_NUMBER})*)|[iI]:1(?::{_NUMBER}){{5}}")
_FIELDS = {"1": "8", "2": "6 and one or more type:value pairs", "3": "15"}

_FIELDS_AT_ONCE = 1 << 15
"""As many stay in the processor's cache, with what is made of them."""
_LAST_BYTES = np.array([(1 << 64) - (1 << 8 * (8 - length)) for length in range(9)], np.uint64)
"""For each number of bytes: the mask of so many last ones of eight."""
_BEFORE = 24
"""Bytes before a text in which numbers of 18 digits would begin that end at its start, in eights."""


class Fields:
    """The fields of some whole lines.

    Parameters
    ----------
    text
        The lines, each with its line end.

    Attributes
    ----------
    first, count
        Of each line: index of its first field, and number of its fields.
    ends, length
        Of each field: position of the separator behind it, and its bytes.
    values
        Of each field that is a number: its value. What else there is has some value.
    too_large
        Fields of many digits that have no value of 64 bits.
    irregular
        Positions in the text of all bytes that are neither digits, colons nor line ends.
    """

    def __init__(self, text: bytes | Bytes) -> None:
        self._bytes = np.frombuffer(text, np.uint8)
        digits = self._bytes - np.uint8(ZERO)
        is_digit = digits < 10
        is_separator = (self._bytes == COLON) | (self._bytes == LINE_END)
        self.ends = np.flatnonzero(is_separator)
        self.length = np.diff(self.ends, prepend=-1) - 1
        self.irregular = np.flatnonzero(~(is_separator | is_digit))
        last = np.flatnonzero(self.byte(self.ends) == LINE_END)
        self.first = np.append(0, last[:-1] + 1)
        self.count = last - self.first + 1
        self.values = _values(digits * is_digit, self.ends, self.length)
        minuses = self.irregular[self.byte(self.irregular) == MINUS]
        fields = self.field_at(minuses)
        self.values[fields[self.start(fields) == minuses]] *= -1
        long = np.flatnonzero(self.length > MOST_DIGITS)
        values = pl.Series(map(self.text, long.tolist()), dtype=pl.String).cast(pl.Int64, strict=False)
        self.values[long] = values.fill_null(0).to_numpy()
        self.too_large: Indices = long[values.is_null().to_numpy()]

    def line_of(self, fields: Indices) -> Indices:
        """Index of the line of each field."""
        return np.searchsorted(self.first, fields, side="right") - 1

    def field_at(self, positions: Indices) -> Indices:
        """Index of the field at each position in the text."""
        return np.searchsorted(self.ends, positions)

    def start(self, fields: Indices) -> Indices:
        """Position of the first byte of each field."""
        starts: Indices = self.ends[fields] - self.length[fields]
        return starts

    def behind(self, fields: Indices, places: int) -> Indices:
        """Values of the fields that are so many places behind some fields."""
        # Of a part of all values: sums with each index take as long as to look up.
        return self.values[places:].take(fields)

    def single_digits(self, fields: Indices) -> Indices:
        """Values of fields of one byte; of longer fields -1."""
        return np.where(self.length.take(fields) == 1, self.values.take(fields), -1)

    def byte(self, positions: Indices) -> Bytes:
        """The byte at each position."""
        return self._bytes.take(positions)

    def text(self, first: int, count: int = 1) -> str:
        """The text of fields that follow each other."""
        return (
            self._bytes[self.ends[first] - self.length[first] : self.ends[first + count - 1]]
            .tobytes()
            .decode("utf-8", "replace")
        )


def _values(text: Bytes, ends: Indices, length: Indices) -> Indices:
    """The numbers of at most 18 digits that end somewhere; `text` has digits as 0 to 9, and 0 elsewhere."""
    eights = np.ndarray(len(text) + _BEFORE - 7, "<u8", np.append(np.zeros(_BEFORE, np.uint8), text), 0, (1,))
    values = np.empty(len(ends), np.uint64)
    for start in range(0, len(ends), _FIELDS_AT_ONCE):
        part = slice(start, start + _FIELDS_AT_ONCE)
        behind, digits = ends[part] + _BEFORE, length[part]
        values[part] = _last_eight(eights, behind, digits)
        for power in (8, 16):
            longer = np.flatnonzero(digits > power)
            if len(longer):
                values[start + longer] += _last_eight(eights, behind[longer] - power, digits[longer] - power) * np.uint64(
                    10**power
                )
    return values.view(np.int64)


def _last_eight(eights: npt.NDArray[np.uint64], ends: Indices, length: Indices) -> npt.NDArray[np.uint64]:
    """Numbers of the last eight digits: neighbours are joined to numbers of two digits, these to four, and these to eight."""
    joined = eights[ends - 8] & _LAST_BYTES.take(length, mode="clip")
    for bits, mask, base in ((8, 0x00FF00FF00FF00FF, 10), (16, 0x0000FFFF0000FFFF, 100), (32, 0xFFFFFFFF, 10_000)):
        joined = (joined & np.uint64(mask)) * np.uint64(base) + ((joined >> np.uint64(bits)) & np.uint64(mask))
    return joined


class Block:
    """Some consecutive whole lines of a .prv. All columns are Int64; task and thread count from 1, times are ns.

    What is asked of every block is asked of arrays: frames of a block take as long to be made as what is in them takes to be
    read.

    Parameters
    ----------
    first_line
        Line number of the first line of the block in the file, from 1.

    Attributes
    ----------
    kind, line, cpu, task, thread, time
        Of each record: STATE, EVENT or MESSAGE; its line number in the file; its place (of a message: that of its sender); its
        time (begin of a state, logical send of a message).
    row
        Row of each record in the header; -1: it is not there.
    of_states, of_events, of_messages
        Places of states, lines of events and messages among the records.
    state_columns, message_columns
        Columns of the states and of the messages that other records do not have: end, state; those of `messages` from
        physical_send on.
    receiver_row
        Row of the receiver of each message; -1: it is not in the header.
    pair_record, pair_value, pair_types
        Of each type:value pair of events: place of its line among the records, and its value; and the types that occur, with
        the one of each pair.
    """

    def __init__(self, first_line: int, text: bytes | Bytes, header: Header) -> None:
        fields = Fields(text)
        kind, self._malformed, self._too_large = _kinds(fields)
        lines = np.flatnonzero(kind)
        heads = fields.first[lines]
        self.first_line, self.kind, self.line = first_line, kind[lines], lines + first_line
        self.cpu, self.task, self.thread, self.time = (fields.behind(heads, place) for place in (_CPU, _TASK, _THREAD, _TIME))
        self.row = header.rows_at(self.task, self.thread)
        self.of_states, self.of_events, self.of_messages = (
            np.flatnonzero(self.kind == number) for number in (STATE, EVENT, MESSAGE)
        )
        self.state_columns, self.message_columns = (
            {name: fields.behind(heads[places], place) for name, place in columns.items()}
            for places, columns in ((self.of_states, _STATE_FIELDS), (self.of_messages, _MESSAGE_FIELDS))
        )
        self.receiver_row = header.rows_at(self.message_columns["recv_task"], self.message_columns["recv_thread"])
        count = (fields.count[lines[self.of_events]] - _HEAD) // 2
        self.pair_record = np.repeat(self.of_events, count)
        # Pairs of all lines before are as many fields too few.
        type_fields = np.repeat(heads[self.of_events] + _HEAD - 2 * (np.cumsum(count) - count), count)
        type_fields += np.arange(0, 2 * len(type_fields), 2)
        self.pair_types, self.pair_value = distinct(fields.behind(type_fields, 0)), fields.behind(type_fields, 1)
        self._header = header
        # The text and where its fields are take much memory, and are needed only to say what is wrong.
        self._source = fields if len(self._malformed) or len(self._too_large) else None

    def malformed(self) -> Iterator[tuple[int, str]]:
        """Line number of each malformed line, which is in no column, and what is wrong with it."""
        fields = self._source
        if fields is None:
            return
        for index in self._malformed.tolist():
            line, text = self.first_line + index, fields.text(int(fields.first[index]), int(fields.count[index]))
            is_announced = line <= 1 + self._header.communicators
            problem = _problem_of_communicator(text, len(self._header.tasks)) if is_announced else _problem(text)
            if problem is not None:
                yield line, problem
        for field, index in zip(self._too_large.tolist(), fields.line_of(self._too_large).tolist(), strict=True):
            yield self.first_line + index, f"{shown(fields.text(field))} does not fit in 64 bits"

    def __len__(self) -> int:
        """Number of records."""
        return len(self.kind)

    @cached_property
    def records(self) -> pl.DataFrame:
        """A row for each record: line, kind, cpu, task, thread, time."""
        names = ("line", "kind", "cpu", "task", "thread", "time")
        return pl.DataFrame({name: getattr(self, name) for name in names})

    @property
    def states(self) -> pl.DataFrame:
        """line, cpu, task, thread, begin, end, state."""
        heads = self.records.drop("kind")[self.of_states].rename({"time": "begin"})
        return heads.with_columns(**{name: pl.Series(values) for name, values in self.state_columns.items()})

    @property
    def messages(self) -> pl.DataFrame:
        """line, send_cpu, send_task, send_thread, logical_send, physical_send, recv_cpu, recv_task, recv_thread, logical_recv,
        physical_recv, size (bytes), tag."""
        sender = {"cpu": "send_cpu", "task": "send_task", "thread": "send_thread", "time": "logical_send"}
        heads = self.records.drop("kind")[self.of_messages].rename(sender)
        return heads.with_columns(**{name: pl.Series(values) for name, values in self.message_columns.items()})

    def pairs_of(self, types: Flags) -> Indices:
        """Places of those pairs that have some of the types, which are flags of the numbers of `pair_types`."""
        place, numbers = self.pair_types.place, np.flatnonzero(types)
        if not len(numbers):
            return np.zeros(0, np.int64)
        # One number is compared in half the time of a look-up.
        return np.flatnonzero(place == numbers[0] if len(numbers) == 1 else types.take(place))

    @cached_property
    def edge_pairs(self) -> Indices:
        """Places of those pairs whose types start and end intervals."""
        return self.pairs_of(self.pair_types.which(is_interval))

    @cached_property
    def pairs(self) -> pl.DataFrame:
        """A row for each type:value pair of events: record (index of its line in `records`), type, value."""
        types = self.pair_types
        return pl.DataFrame({"record": self.pair_record, "type": types.numbers[types.place], "value": self.pair_value})

    def located(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Some of `pairs`, each with the columns of its line in `records`."""
        return pairs.drop("record").hstack(self.records.drop("kind")[pairs["record"]])


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
    malformed = malformed[fields.byte(fields.start(fields.first[malformed])) != NUMBER_SIGN]
    too_large = fields.too_large[kind[fields.line_of(fields.too_large)] != 0]
    kind[fields.line_of(too_large)] = 0
    return kind, malformed, too_large


def _with_other_bytes(fields: Fields, kind: npt.NDArray[np.uint8]) -> Indices:
    """Lines with bytes that are neither digits nor separators, but for the minus of a value and of a tag."""
    field = fields.field_at(fields.irregular)
    line = fields.line_of(field)
    place = field - fields.first[line]
    may_be_negative = ((kind[line] == EVENT) & (place > _HEAD) & (place % 2 == 1)) | ((kind[line] == MESSAGE) & (place == _TAG))
    is_minus = (fields.byte(fields.irregular) == MINUS) & (fields.irregular == fields.start(field)) & (fields.length[field] > 1)
    lines: Indices = line[~(may_be_negative & is_minus)]
    return lines


def _problem_of_communicator(text: str, tasks: int) -> str | None:
    """What is wrong with a communicator of a trace with so many tasks; None: nothing."""
    form = _COMMUNICATOR_FORM.fullmatch(text)
    if form is None:
        return f"{shown(text)} is not a communicator, and the header announces one on this line"
    if form["size"] is None:
        return None
    members = list(map(int, form["tasks"].split(":")[1:]))
    if len(members) != int(form["size"]):
        return f"{shown(text)} announces {form['size']} tasks and lists {len(members)}"
    unknown = [task for task in members if not 1 <= task <= tasks]
    return f"{shown(text)} has task {unknown[0]}, and the header {tasks} tasks" if unknown else None


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
