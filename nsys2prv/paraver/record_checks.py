"""Checks of the records of a trace, block after block: only what is open (depths, last ends) is kept between two blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.header import Header
from nsys2prv.paraver.keys import one_number
from nsys2prv.paraver.pcf import PcfLabels
from nsys2prv.paraver.record_text import EVENT
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
            ("an event", block.records.filter(pl.col("kind") == EVENT), pl.col("time")),
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
        self.counts["events"] += block.pairs.height
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
        places = places.with_columns(key=one_number(places, ("cpu", "task", "thread")))
        distinct = places.unique("key").join(self._tasks, on="task", how="left")
        off_rows = pl.col("threads").is_null() | ~pl.col("thread").is_between(1, "threads")
        off_cpus = (pl.col("cpu") != 0) & ~pl.col("cpu").is_between("cpus_before", "last_cpu", closed="right").fill_null(False)
        for off, problem in (
            (off_rows, "task {task} thread {thread} is not in the header"),
            (off_cpus & ~off_rows, "CPU {cpu} is not one of the node of task {task}"),
        ):
            bad = distinct.filter(off)
            if not bad.is_empty():
                self.violations(TraceRule.PLACES, places.filter(pl.col("key").is_in(bad["key"].to_list())), problem)


class StateOrder(RecordCheck):
    """States of a row have a length, and each starts at or after the end of the previous."""

    def __post_init__(self) -> None:
        # Of each row of the header: end of its last state so far, ns.
        self._last = pl.Series([None], dtype=pl.Int64).new_from_index(0, self.trace.header.rows)

    def update(self, block: Block) -> None:
        empty = block.states.filter(pl.col("end") <= pl.col("begin"))
        self.violations(TraceRule.STATES, empty, "a state starts at {begin} ns and ends at {end} ns")
        # Rows that the header does not have are violations of another rule: what is kept of rows has the size of the header.
        header = self.trace.header
        states = block.states.filter(header.has_row("task", "thread"))
        states = states.with_columns(row=header.row_of(pl.col("task"), pl.col("thread"))).sort("row", maintain_order=True)
        row, last = pl.col("row"), pl.lit(self._last)
        previous = pl.when(row == row.shift(1)).then(pl.col("end").shift(1)).otherwise(last.gather(row))
        states = states.with_columns(previous=previous)
        self.follow(block, states.sort("line"))
        ends = states.group_by("row").agg(pl.col("end").last())
        self._last = self._last.scatter(ends["row"], ends["end"])

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
        # Intervals that are open after the blocks so far: how many nest, and the line of the outermost start.
        self._open = pl.DataFrame(schema={**dict.fromkeys(self.KEY, pl.Int64), "depth": pl.Int64, "line": pl.Int64})

    def update(self, block: Block) -> None:
        edges = block.located(block.edges).select("line", *self.KEY, is_start=pl.col("value") != 0)
        if edges.is_empty():
            return
        edges = edges.with_columns(key=one_number(edges, self.KEY)).with_row_index("order").sort("key", maintain_order=True)
        # Edges of one key follow each other now, in their order.
        is_start = edges["is_start"].to_numpy()
        first = np.flatnonzero((edges["key"] != edges["key"].shift(1)).fill_null(True).to_numpy())
        group = np.repeat(np.arange(len(first)), np.diff(first, append=len(is_start)))
        of_groups = edges[first].join(self._open.rename({"line": "since"}), on=self.KEY, how="left", maintain_order="left")
        step = np.where(is_start, 1, -1)
        depth = np.cumsum(step)
        depth += (of_groups["depth"].fill_null(0).to_numpy() - depth[first] + step[first])[group]
        # An end without a start takes the depth below all previous ones; it is then left out of the depth.
        beyond = np.int64(2) * (len(depth) + np.abs(depth).max())
        lowest = np.minimum.accumulate(np.minimum(depth, 0) - group * beyond) + group * beyond
        before = np.roll(lowest, 1)
        before[first] = 0
        is_orphan = lowest < before
        depth -= lowest
        problem = "type {type} of task {task} thread {thread} ends (value 0) and none is open"
        self.violations(TraceRule.CLOSED, edges.filter(is_orphan).sort("order"), problem)
        self.counts["intervals"] += int((~is_start & ~is_orphan).sum())
        outermost = np.maximum.reduceat(np.where(is_start & (depth == 1), edges["line"].to_numpy(), 0), first)
        since = pl.when(pl.Series(outermost) > 0).then(pl.Series(outermost)).otherwise("since")
        of_groups = of_groups.with_columns(depth=pl.Series(depth[[*first[1:] - 1, -1]]), line=since).sort("order")
        now = of_groups.filter(pl.col("depth") > 0).select(self._open.columns)
        self._open = pl.concat([self._open.join(of_groups, on=self.KEY, how="anti", maintain_order="left"), now])
        if self._open.height > MOST_OPEN:
            raise TraceError(self.trace.path, f"intervals of more than {MOST_OPEN:,} types and rows are open at once")

    def finish(self) -> None:
        problem = "type {type} of task {task} thread {thread} starts here, and {depth} interval(s) of it never end"
        self.violations(TraceRule.CLOSED, self._open.sort("line", maintain_order=True), problem)


def within(number: pl.Expr) -> pl.Expr:
    """Whether a number keeps all digits in views."""
    return number.is_between(-LARGEST_EXACT, LARGEST_EXACT)


class _Numbers(RecordCheck):
    """Types fit in 32 bits, values in the digits of a double."""

    def update(self, block: Block) -> None:
        wraps = block.of_types(number for number in block.types["type"] if number > LARGEST_TYPE)
        problem = f"type {{type}} is above {LARGEST_TYPE}, and Paraver takes another"
        self.violations(TraceRule.NUMBERS, block.located(wraps), problem)
        inexact = block.pairs.filter(~within(pl.col("value")))
        problem = f"value {{value}} of type {{type}} is beyond {LARGEST_EXACT}, and views lose its last digits"
        self.violations(TraceRule.NUMBERS, block.located(inexact), problem)
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
        valued = block.of_types(self._with_values)
        values = valued.filter(one_number(valued, ("type", "value")).is_first_distinct())
        self._check(("state",), block.states.unique("state", keep="first", maintain_order=True), "state {state}")
        self._check(("type",), block.located(block.types.sort("record", "type")), "type {type}")
        self._check(("type", "value"), block.located(values), "value {value} of type {type}")

    def _check(self, key: tuple[str, ...], first: pl.DataFrame, name: str) -> None:
        """Check what a block has, of each only the first."""
        unlabelled = first.join(self._known[key], on=key, how="anti", maintain_order="left")
        self.violations(TraceRule.LABELLED, unlabelled, f"{name} has no label in the .pcf")
        # What is reported counts as known from now on. Beyond the limit it is counted once per block, which bounds memory.
        self._known[key] = pl.concat([self._known[key], unlabelled.head(self.log.limit).select(key)])


RECORD_CHECKS: tuple[type[RecordCheck], ...] = (_Order, _Places, _Intervals, _Numbers)
LABEL_CHECKS: tuple[type[RecordCheck], ...] = (_Labelled,)
"""Checks of each trace, besides `StateOrder`, and those of a trace with a .pcf."""
