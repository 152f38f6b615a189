"""Records of a .prv: some consecutive lines as frames of states, events and messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from nsys2prv.paraver.record_text import EVENT, MESSAGE, STATE
from nsys2prv.paraver.trace_files import MOST_DIGITS, OnMalformed, shown

_STATE_COLUMNS = ("kind", "cpu", "application", "task", "thread", "begin", "end", "state")
_MESSAGE_COLUMNS = (
    *("kind", "send_cpu", "send_application", "send_task", "send_thread", "logical_send", "physical_send"),
    *("recv_cpu", "recv_application", "recv_task", "recv_thread", "logical_recv", "physical_recv", "size", "tag"),
)
_ALWAYS_THE_SAME = ("kind", "application", "send_application", "recv_application")
_EVENT_COLUMNS = ("line", "position", "cpu", "task", "thread", "time", "type", "value")

_RECORD_FORM = (
    r"^(?:1:[0-9]+:1(?::[0-9]+){5}"
    r"|2:[0-9]+:1(?::[0-9]+){3}(?::[0-9]+:-?[0-9]+)+"
    r"|3:[0-9]+:1(?::[0-9]+){5}:1(?::[0-9]+){5}:-?[0-9]+)$"
)
_NUMBER = f"[0-9]{{1,{MOST_DIGITS}}}"
# Application, number, number of tasks, tasks; between two groups: application, number, and communicator and leader of each.
_COMMUNICATOR_FORM = re.compile(rf"[cC]:1:{_NUMBER}:(?P<size>{_NUMBER})(?P<tasks>(?::{_NUMBER})*)|[iI]:1(?::{_NUMBER}){{5}}")
_FIELDS = {"1": "8", "2": "6 and one or more type:value pairs", "3": "15"}


@dataclass(frozen=True)
class Block:
    """Some consecutive lines of a .prv. All columns are Int64; task and thread count from 1, times are ns.

    Attributes
    ----------
    first_line
        Line number of the first line of the block in the file, from 1.
    records
        A row per line: line, kind, cpu, task, thread, time (begin of a state, logical send of a message).
    states
        line, cpu, task, thread, begin, end, state.
    events
        A row per type:value pair: line, position (0, 1, ... on the line), cpu, task, thread, time, type, value.
    messages
        line, send_cpu, send_task, send_thread, logical_send, physical_send, recv_cpu, recv_task, recv_thread,
        logical_recv, physical_recv, size (bytes), tag.
    """

    first_line: int
    records: pl.DataFrame
    states: pl.DataFrame
    events: pl.DataFrame
    messages: pl.DataFrame

    @cached_property
    def types(self) -> list[int]:
        """Event types that occur in it."""
        return self.events["type"].unique().to_list()


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


def parse_block(first_line: int, text: str, announced: AnnouncedCommunicators, on_malformed: OnMalformed) -> Block:
    """Parse whole lines, given as text without the last line end.

    `on_malformed` is called for each malformed line, which is then skipped.
    """
    lines = pl.DataFrame({"text": [text]}).select(pl.col("text").str.split("\n").explode()).with_row_index("line", first_line)
    lines = lines.with_columns(pl.col("line").cast(pl.Int64))
    is_record = pl.col("text").str.contains(_RECORD_FORM)
    other = lines.filter(~is_record & ~pl.col("text").str.starts_with("#"))
    for line, bad in other.iter_rows():
        problem = _problem(bad) if line > announced.last_line else announced.problem(bad)
        if problem is not None:
            on_malformed(line, problem)
    lines = lines.filter(is_record)
    numbers = _numbers(lines)
    if numbers.null_count():
        fields = lines.select("line", pl.col("text").str.split(":")).explode("text")
        too_large = fields.filter(pl.col("text").cast(pl.Int64, strict=False).is_null())
        for line, bad in too_large.iter_rows():
            on_malformed(line, f"{shown(bad)} does not fit in 64 bits")
        lines = lines.join(too_large, on="line", how="anti")
    kind = pl.col("text").str.slice(0, 1)
    states = _fixed_width(lines.filter(kind == "1"), _STATE_COLUMNS)
    messages = _fixed_width(lines.filter(kind == "3"), _MESSAGE_COLUMNS)
    event_lines, pairs = _events(lines.filter(kind == "2"))
    sender = {"cpu": "send_cpu", "task": "send_task", "thread": "send_thread", "time": "logical_send"}
    records = pl.concat(
        frame.select("line", pl.lit(number, pl.Int64).alias("kind"), **places)
        for number, frame, places in (
            (STATE, states, {"cpu": "cpu", "task": "task", "thread": "thread", "time": "begin"}),
            (EVENT, event_lines, {"cpu": "cpu", "task": "task", "thread": "thread", "time": "time"}),
            (MESSAGE, messages, sender),
        )
    ).sort("line")
    return Block(first_line, records, states, pairs, messages)


def _numbers(lines: pl.DataFrame) -> pl.Series:
    """All numbers of some lines, one after the other; null where one does not fit in 64 bits."""
    numbers: pl.Series = lines["text"].str.split(":").explode().cast(pl.Int64, strict=False)
    return numbers


def _fixed_width(lines: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    numbers = _numbers(lines)
    each = {name: numbers.gather_every(len(columns), at) for at, name in enumerate(columns) if name not in _ALWAYS_THE_SAME}
    return pl.DataFrame({"line": lines["line"], **each})


def _events(lines: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(a row per event line, a row per type:value pair)."""
    numbers = _numbers(lines)
    # All fields of a line form pairs: 2:cpu, application:task, thread:time, type:value, ...
    first, second = numbers.gather_every(2), numbers.gather_every(2, 1)
    count = lines["text"].str.count_matches(":", literal=True).cast(pl.Int64) // 2 + 1
    head = count.cum_sum() - count  # index of the first pair of each line
    event_lines = pl.DataFrame(
        {
            "line": lines["line"],
            "cpu": second.gather(head),
            "task": second.gather(head + 1),
            "thread": first.gather(head + 2),
            "time": second.gather(head + 2),
            "pairs": count - 3,
        }
    )
    pairs = event_lines.with_columns(position=pl.int_ranges(-3, "pairs")).drop("pairs").explode("position")
    pairs = pairs.with_columns(type=first, value=second).filter(pl.col("position") >= 0)
    return event_lines.drop("pairs"), pairs.select(_EVENT_COLUMNS)


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
