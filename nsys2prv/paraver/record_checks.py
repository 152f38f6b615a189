"""Checks of the records of a trace, block after block: only what is open (depths, last ends) is kept between two blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.header import Header
from nsys2prv.paraver.interval_pairs import is_interval
from nsys2prv.paraver.pcf import PcfLabels
from nsys2prv.paraver.rules import TraceRule, ViolationLog
from nsys2prv.vocabulary.limits import LARGEST_EXACT

ROW = ("task", "thread")
LARGEST_TYPE = 2**32 - 1
"""Paraver keeps types in 32 bits; larger ones wrap without a message."""


MOST_OPEN = 2_000_000
"""Intervals that may be open at once: more are not kept."""


@dataclass(frozen=True)
class CheckedTrace:
    """What is known of a trace before its records are read.

    Attributes
    ----------
    path, header
        The .prv, and its header.
    labels
        The content of its .pcf; None: there is none.
    names
        Names of its .row by level.
    summary
        The content of its .json; None: there is none, or it is damaged.
    """

    path: Path
    header: Header
    labels: PcfLabels | None
    names: Mapping[str, tuple[str, ...]]
    summary: Mapping[str, Any] | None

    @property
    def is_own(self) -> bool:
        """Whether nsys2prv wrote it: other tools do not guarantee as much."""
        return self.summary is not None or (self.labels is not None and self.labels.is_own)


@dataclass
class RecordCheck:
    """Checks a rule about records.

    Attributes
    ----------
    trace
        What is known of the trace.
    log
        Where violations are added.
    counts
        Where records are counted.
    """

    trace: CheckedTrace
    log: ViolationLog
    counts: Counter[str]

    def __post_init__(self) -> None:
        """Prepare what a check keeps between two blocks."""

    def update(self, block: Block) -> None:
        """Check the next block of the trace."""
        raise NotImplementedError

    def finish(self) -> None:
        """Check what is known only after the last block."""

    def violations(self, rule: TraceRule, offenders: pl.DataFrame, problem: str) -> None:
        self.log.add_rows(rule, self.trace.path, offenders, problem)


class _Order(RecordCheck):
    """Records are sorted, start at 0 and stay within the end of the header."""

    _last: int | None = None  # time of the last record so far, ns

    def update(self, block: Block) -> None:
        records = block.records.select("line", "time").with_columns(previous=pl.col("time").shift(1, fill_value=self._last))
        if records.is_empty():
            return
        if self._last is None and (first := records.row(0, named=True))["time"] != 0:
            self.log.add(
                TraceRule.START, self.trace.path, first["line"], f"the first record is at {first['time']} ns and not at 0"
            )
        late = records.filter(pl.col("time") < pl.col("previous"))
        self.violations(TraceRule.SORTED, late, "a record at {time} ns follows one at {previous} ns")
        self._last = records["time"][-1]
        for kind, frame, last in (
            ("an event", block.events.filter(pl.col("position") == 0), pl.col("time")),
            ("a state", block.states, pl.col("end")),
            ("a message", block.messages, pl.max_horizontal("logical_send", "physical_send", "logical_recv", "physical_recv")),
        ):
            beyond = frame.select("line", last=last).filter(pl.col("last") > self.trace.header.end)
            problem = f"{kind} at {{last}} ns is after the end of the trace, {self.trace.header.end} ns"
            self.violations(TraceRule.END, beyond, problem)

    def finish(self) -> None:
        if self._last is None:
            self.log.add(TraceRule.START, self.trace.path, None, "it has no record")


class _Places(RecordCheck):
    """Task, thread and CPU of each record, and of the receiver of each message, are in the header; counts records."""

    def __post_init__(self) -> None:
        # CPUs are numbered over all nodes.
        last_cpus = list(accumulate(self.trace.header.cpus_per_node))
        nodes = dict(enumerate(zip([0, *last_cpus], last_cpus, strict=False), start=1))
        self._tasks = pl.DataFrame(
            [
                (task, each.threads, *nodes.get(each.node, (None, None)))
                for task, each in enumerate(self.trace.header.tasks, start=1)
            ],
            schema=dict.fromkeys(("task", "threads", "cpus_before", "last_cpu"), pl.Int64),
            orient="row",
        )

    def update(self, block: Block) -> None:
        messages = block.messages
        self.counts["states"] += block.states.height
        self.counts["event_lines"] += block.records.height - block.states.height - messages.height
        self.counts["events"] += block.events.height
        self.counts["messages"] += messages.height
        # Paraver draws the line of a message to the later of the two times of its receiver: a receiver that waits before the
        # send does not make it backward.
        arrival = pl.max_horizontal("logical_recv", "physical_recv")
        backward = (arrival < pl.col("logical_send")) | (pl.col("physical_recv") < pl.col("physical_send"))
        self.counts["backward_messages"] += messages.filter(backward).height
        self._check(block.records.select("line", "cpu", "task", "thread"))
        self._check(messages.select("line", cpu="recv_cpu", task="recv_task", thread="recv_thread"))

    def _check(self, places: pl.DataFrame) -> None:
        # Few places are distinct, so those are checked.
        distinct = places.select("cpu", "task", "thread").unique().join(self._tasks, on="task", how="left")
        off_rows = pl.col("threads").is_null() | ~pl.col("thread").is_between(1, "threads")
        off_cpus = (pl.col("cpu") != 0) & ~pl.col("cpu").is_between("cpus_before", "last_cpu", closed="right").fill_null(False)
        for off, problem in (
            (off_rows, "task {task} thread {thread} is not in the header"),
            (off_cpus & ~off_rows, "CPU {cpu} is not one of the node of task {task}"),
        ):
            bad = distinct.filter(off)
            if not bad.is_empty():
                offenders = places.join(bad, on=["cpu", "task", "thread"], how="semi").sort("line")
                self.violations(TraceRule.PLACES, offenders, problem)


class StateOrder(RecordCheck):
    """States of a row have a length, and each starts at or after the end of the previous."""

    def __post_init__(self) -> None:
        self._ends = pl.DataFrame(schema={"task": pl.Int64, "thread": pl.Int64, "last": pl.Int64})

    def update(self, block: Block) -> None:
        empty = block.states.filter(pl.col("end") <= pl.col("begin"))
        self.violations(TraceRule.STATES, empty, "a state starts at {begin} ns and ends at {end} ns")
        # Rows that the header does not have are violations of another rule: what is kept of rows has the size of the header.
        states = block.states.filter(self.trace.header.has_row("task", "thread"))
        states = states.join(self._ends, on=ROW, how="left", maintain_order="left").with_columns(
            previous=pl.coalesce(pl.col("end").shift(1).over(ROW), "last")
        )
        self.follow(block, states)
        ends = states.group_by(ROW).agg(last=pl.col("end").last())
        self._ends = pl.concat([self._ends.join(ends, on=ROW, how="anti"), ends])

    def follow(self, _block: Block, states: pl.DataFrame) -> None:
        """Check the states of a block, which have the end of the `previous` state of their row, null for the first."""
        overlapping = states.filter(pl.col("begin") < pl.col("previous"))
        problem = "a state of task {task} thread {thread} starts at {begin} ns, before the previous one ends at {previous} ns"
        self.violations(TraceRule.STATES, overlapping, problem)


class _Intervals(RecordCheck):
    """Each start of an interval has its end on the same row, and each end its start.

    Depths are counted rather than intervals paired (`interval_pairs`), so memory does not grow with what never ends.
    """

    KEY = ("task", "thread", "type")

    def __post_init__(self) -> None:
        self._is_interval: dict[int, bool] = {}
        # Intervals that are open after the blocks so far: how many nest, and the line of the outermost start.
        self._open = pl.DataFrame(schema={**dict.fromkeys(self.KEY, pl.Int64), "depth": pl.Int64, "line": pl.Int64})

    def update(self, block: Block) -> None:
        edges = self._edges(block.events.select("line", *self.KEY, "value"), block.types)
        is_start = pl.col("value") != 0
        edges = (
            edges.join(self._open.rename({"line": "since"}), on=self.KEY, how="left", maintain_order="left")
            .with_columns(pl.col("depth").fill_null(0) + pl.when(is_start).then(1).otherwise(-1).cum_sum().over(self.KEY))
            # An end without a start takes the depth below all previous ones; it is then left out of the depth.
            .with_columns(lowest=pl.min_horizontal(pl.lit(0), pl.col("depth").cum_min().over(self.KEY)))
            .with_columns(orphan=pl.col("lowest") < pl.col("lowest").shift(1).over(self.KEY).fill_null(0))
            .with_columns(pl.col("depth") - pl.col("lowest"))
        )
        problem = "type {type} of task {task} thread {thread} ends (value 0) and none is open"
        self.violations(TraceRule.CLOSED, edges.filter("orphan"), problem)
        self.counts["intervals"] += edges.filter(~is_start & ~pl.col("orphan")).height
        outermost = pl.col("line").filter(is_start & (pl.col("depth") == 1)).last()
        now = edges.group_by(self.KEY, maintain_order=True).agg(
            pl.col("depth").last(), line=pl.coalesce(outermost, pl.col("since").first())
        )
        self._open = pl.concat([self._open.join(now, on=self.KEY, how="anti"), now.filter(pl.col("depth") > 0)])
        if self._open.height > MOST_OPEN:
            raise TraceError(self.trace.path, f"intervals of more than {MOST_OPEN:,} types and rows are open at once")

    def _edges(self, pairs: pl.DataFrame, types: list[int]) -> pl.DataFrame:
        for number in types:
            if number not in self._is_interval:
                self._is_interval[number] = is_interval(number)
        return pairs.filter(pl.col("type").is_in([number for number in types if self._is_interval[number]]))

    def finish(self) -> None:
        problem = "type {type} of task {task} thread {thread} starts here, and {depth} interval(s) of it never end"
        self.violations(TraceRule.CLOSED, self._open.sort("line"), problem)


def within(number: pl.Expr) -> pl.Expr:
    """Whether a number keeps all digits in views."""
    return number.is_between(-LARGEST_EXACT, LARGEST_EXACT)


class _Numbers(RecordCheck):
    """Types fit in 32 bits, values in the digits of a double."""

    def update(self, block: Block) -> None:
        wraps = block.events.filter(pl.col("type") > LARGEST_TYPE)
        problem = f"type {{type}} is above {LARGEST_TYPE}, and Paraver takes another"
        self.violations(TraceRule.NUMBERS, wraps, problem)
        inexact = block.events.filter(~within(pl.col("value")))
        problem = f"value {{value}} of type {{type}} is beyond {LARGEST_EXACT}, and views lose its last digits"
        self.violations(TraceRule.NUMBERS, inexact, problem)
        of_message = block.messages.filter((pl.col("size") > LARGEST_EXACT) | ~within(pl.col("tag")))
        problem = f"a message has size {{size}} and tag {{tag}}, of which one is beyond {LARGEST_EXACT}"
        self.violations(TraceRule.NUMBERS, of_message, problem)


class _Labelled(RecordCheck):
    """Each state, each type, and each value of a type whose values have labels, is in the .pcf; each is reported once."""

    def __post_init__(self) -> None:
        assert self.trace.labels is not None
        types = self.trace.labels.types
        valued = [(number, value) for number, label in types.items() for value in label.values or ()]
        self._known = {
            ("state",): pl.DataFrame({"state": list(self.trace.labels.states)}, schema={"state": pl.Int64}),
            ("type",): pl.DataFrame({"type": list(types)}, schema={"type": pl.Int64}),
            ("type", "value"): pl.DataFrame(valued, schema={"type": pl.Int64, "value": pl.Int64}, orient="row"),
        }
        self._with_values = [number for number, label in types.items() if label.values is not None]

    def update(self, block: Block) -> None:
        valued = block.events.filter(pl.col("type").is_in(self._with_values))
        self._check(("state",), block.states, "state {state}")
        self._check(("type",), block.events, "type {type}")
        self._check(("type", "value"), valued, "value {value} of type {type}")

    def _check(self, key: tuple[str, ...], frame: pl.DataFrame, name: str) -> None:
        unlabelled = frame.group_by(key).agg(pl.col("line").first()).join(self._known[key], on=key, how="anti").sort("line")
        self.violations(TraceRule.LABELLED, unlabelled, f"{name} has no label in the .pcf")
        # What is reported counts as known from now on. Beyond the limit it is counted once per block, which bounds memory.
        self._known[key] = pl.concat([self._known[key], unlabelled.head(self.log.limit).select(key)])


RECORD_CHECKS: tuple[type[RecordCheck], ...] = (_Order, _Places, _Intervals, _Numbers)
LABEL_CHECKS: tuple[type[RecordCheck], ...] = (_Labelled,)
"""Checks of each trace, besides `StateOrder`, and those of a trace with a .pcf."""
