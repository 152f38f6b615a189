"""Rules of traces, and checks of records, block after block: only what is open (depths, last ends) is kept between blocks."""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.execution.row_order import Numbers, differ_from_before, distinct
from nsys2prv.paraver.blocks import Block, Indices
from nsys2prv.paraver.trace_reader import Trace
from nsys2prv.vocabulary.limits import LARGEST_EXACT
from nsys2prv.vocabulary.printable import printable_lines

ROW = ("task", "thread")
LARGEST_TYPE = 2**32 - 1
"""Paraver keeps types in 32 bits; larger ones wrap without a message."""


NO_STATE = -1
"""End of the state before the first one of a row, ns."""
_NOT_OPEN = (0, 0)
_LARGEST_KEY = 2**62
_FEW_KEYS = 1 << 16
"""Smaller numbers are sorted by their digits, which takes a tenth of the time."""
MOST_OPEN = 2_000_000
"""Intervals that may be open at once: more are not kept."""


class TraceRule(enum.Enum):
    """What nsys2prv guarantees and Paraver needs, as far as it can be checked in the trace alone."""

    HEADER = "the header is well formed and within Paraver's limits"
    RECORDS = "every line of the .prv is a record"
    START = "the first record is at 0"
    SORTED = "records are sorted by time"
    END = "no record is after the end of the trace in the header"
    PLACES = "every record is on a row and a CPU of the header"
    STATES = "states of a row have a length and do not overlap"
    CLOSED = "each start of an interval has its end"
    COMPLETE = "each thread and each stream has a state at all times"
    MESSAGES = "a message is sent at one time, and arrives when its receiver waits"
    NUMBERS = "types and values are within Paraver's range"
    LABELLED = "every state, type and value has a label"
    PCF = "the .pcf is well formed"
    ROW = "the .row is well formed and agrees with the header"
    ACCOUNT = "OUT.json agrees with the trace: rows read are written or left out, and what was written is there"


@dataclass(frozen=True)
class Violation:
    """A place where a trace breaks a rule: its line number (None: the file as a whole), and a sentence that names the file."""

    rule: TraceRule
    line: int | None
    text: str


@dataclass(frozen=True)
class CheckResult:
    """The result of a check.

    Attributes
    ----------
    violations
        At most `limit` of each rule, in the order in which they were found.
    violations_per_rule
        How many there are of each rule, those above the limit included; only rules that are broken.
    counts
        Numbers of rows; of records of each kind (states, event_lines, messages) and of all kinds (records); of type:value pairs
        (events); of closed intervals (intervals); of messages that arrive before they are sent (backward_messages), which
        Paraver draws.
    """

    violations: tuple[Violation, ...]
    violations_per_rule: Mapping[TraceRule, int]
    counts: Mapping[str, int]

    @property
    def valid(self) -> bool:
        """Whether the trace breaks no rule."""
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        """The result by the names that scripts know."""
        violations = [
            {"promise": violation.rule.name.lower(), "line": violation.line, "text": violation.text}
            for violation in self.violations
        ]
        per_rule = {rule.name.lower(): count for rule, count in self.violations_per_rule.items()}
        return {"ok": self.valid, "findings": violations, "found": per_rule, "counts": dict(self.counts)}

    def as_text(self, trace: Path) -> str:
        """The result for a terminal: a line for each violation, and one for the trace."""
        lines = [violation.text for violation in self.violations]
        for rule, count in self.violations_per_rule.items():
            if more := count - sum(violation.rule is rule for violation in self.violations):
                lines.append(f"... and {more} more places that violate: {rule.value}")
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.counts.items() if count)
        lines.append(f"{trace}: {'valid' if self.valid else 'not valid'} ({counts or 'nothing was read'})")
        return printable_lines(lines)


@dataclass
class ViolationLog:
    """Violations so far: the first `limit` of each rule, and the number of all."""

    limit: int
    violations: list[Violation] = field(default_factory=list)
    per_rule: Counter[TraceRule] = field(default_factory=Counter)

    def add(self, rule: TraceRule, path: Path, line: int | None, problem: str) -> None:
        """Add one violation; `problem` is a sentence."""
        self.per_rule[rule] += 1
        if self.per_rule[rule] <= self.limit:
            place = path.name if line is None else f"{path.name} line {line}"
            self.violations.append(Violation(rule, line, f"{place}: {problem}"))

    def add_rows(self, rule: TraceRule, path: Path, offenders: pl.DataFrame, problem: str) -> None:
        """Add a violation for each row of a frame; `problem` is a format string over its columns, one of which is `line`."""
        shown = offenders.head(max(self.limit - self.per_rule[rule], 0))
        for row in shown.iter_rows(named=True):
            self.add(rule, path, row["line"], problem.format(**row))
        if offenders.height > shown.height:
            self.per_rule[rule] += offenders.height - shown.height

    def result(self, counts: Mapping[str, int]) -> CheckResult:
        """The result of the check, with its counts."""
        return CheckResult(tuple(self.violations), dict(self.per_rule), dict(counts))


@dataclass(frozen=True)
class CheckedTrace(Trace):
    """A trace with the content of its .json; None: there is none, or it is damaged."""

    summary: Mapping[str, Any] | None

    @property
    def is_own(self) -> bool:
        """Whether nsys2prv wrote it: other tools do not guarantee as much."""
        return self.summary is not None or self.labels.is_own


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

    def violations_at(self, rule: TraceRule, block: Block, places: Indices, problem: str, **columns: Indices) -> None:
        """Add a violation for each of some records of a block, which have further columns."""
        if len(places):
            self.violations(
                rule, block.records[places].with_columns(**{name: pl.Series(columns[name]) for name in columns}), problem
            )


class _Order(RecordCheck):
    """Records are sorted, start at 0 and stay within the end of the header."""

    _last: int | None = None  # time of the last record so far, ns

    def update(self, block: Block) -> None:
        time, line = block.time, block.line
        if not len(time):
            return
        if self._last is None and time[0] != 0:
            problem = f"the first record is at {time[0]} ns and not at 0"
            self.log.add(TraceRule.START, self.trace.path, int(line[0]), problem)
        previous = np.concatenate([time[:1] if self._last is None else [self._last], time[:-1]])
        unsorted = np.flatnonzero(time < previous)
        problem = "a record at {time} ns follows one at {previous} ns"
        self.violations_at(TraceRule.SORTED, block, unsorted, problem, previous=previous[unsorted])
        self._last = int(time[-1])
        arrivals = [block.message_columns[name] for name in ("physical_send", "logical_recv", "physical_recv")]
        for kind, places, last in (
            ("an event", block.of_events, time[block.of_events]),
            ("a state", block.of_states, block.state_columns["end"]),
            ("a message", block.of_messages, np.maximum.reduce([time[block.of_messages], *arrivals])),
        ):
            late = np.flatnonzero(last > self.trace.header.end)
            problem = f"{kind} at {{last}} ns is after the end of the trace, {self.trace.header.end} ns"
            self.violations_at(TraceRule.END, block, places[late], problem, last=last[late])

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
                (number, task.threads, *nodes.get(task.node, (None, None)))
                for number, task in enumerate(self.trace.header.tasks, start=1)
            ],
            schema=dict.fromkeys(("task", "threads", "cpus_before", "last_cpu"), pl.Int64),
            orient="row",
        )

    def update(self, block: Block) -> None:
        self.counts["states"] += len(block.of_states)
        self.counts["event_lines"] += len(block.of_events)
        self.counts["events"] += len(block.pair_record)
        self.counts["messages"] += len(block.of_messages)
        # Paraver draws the line of a message to the later of the two times of its receiver: a receiver that waits before the
        # send does not make it backward.
        arrived = block.message_columns["physical_recv"]
        is_backward = np.maximum(block.message_columns["logical_recv"], arrived) < block.time[block.of_messages]
        is_backward |= arrived < block.message_columns["physical_send"]
        self.counts["backward_messages"] += int(is_backward.sum())
        if self._any_off(block.row, block.cpu, block.task):
            self._check(block.records.select("line", "cpu", "task", "thread"))
        if self._any_off(block.receiver_row, block.message_columns["recv_cpu"], block.message_columns["recv_task"]):
            self._check(block.messages.select("line", cpu="recv_cpu", task="recv_task", thread="recv_thread"))

    def _any_off(self, row: Indices, cpu: Indices, task: Indices) -> bool:
        """Whether a record is on no row of the header, or on a CPU that is not one of the node of its task."""
        if (row < 0).any() or not cpu.any():
            return bool((row < 0).any())
        before, last = (np.array([0, *self._tasks[name].fill_null(0)])[task] for name in ("cpus_before", "last_cpu"))
        return bool(((cpu != 0) & ((cpu <= before) | (cpu > last))).any())

    def _check(self, places: pl.DataFrame) -> None:
        # Few places are distinct, so those are checked.
        places = places.with_columns(key=pl.Series(one_key([places[name].to_numpy() for name in ("cpu", "task", "thread")])))
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
        # Of each row of the header: end of its last state so far, ns; NO_STATE: none.
        self._last: Indices = np.full(self.trace.header.rows, NO_STATE)

    def update(self, block: Block) -> None:
        places, end = block.of_states, block.state_columns["end"]
        empty = np.flatnonzero(end <= block.time[places])
        problem = "a state starts at {time} ns and ends at {end} ns"
        self.violations_at(TraceRule.STATES, block, places[empty], problem, end=end[empty])
        # Rows that the header does not have are violations of another rule: what is kept of rows has the size of the header.
        is_there = block.row[places] >= 0
        places, end = places[is_there], end[is_there]
        order = order_of_keys(block.row[places])
        row, ordered_end = block.row[places[order]], end[order]
        is_first = differ_from_before(row)
        previous = np.empty_like(row)
        previous[order] = np.where(is_first, self._last[row], np.roll(ordered_end, 1))
        self.follow(block, places, previous)
        is_last = np.roll(is_first, -1)
        self._last[row[is_last]] = ordered_end[is_last]

    def follow(self, block: Block, places: Indices, previous: Indices) -> None:
        """Check some states of a block; `previous` has the end of the state before on the row, NO_STATE for the first."""
        early = np.flatnonzero(block.time[places] < previous)
        problem = "a state of task {task} thread {thread} starts at {time} ns, before the previous one ends at {previous} ns"
        self.violations_at(TraceRule.STATES, block, places[early], problem, previous=previous[early])


class _Intervals(RecordCheck):
    """Each start of an interval has its end on the same row, and each end its start.

    Depths are counted rather than intervals paired, so memory does not grow with what never ends."""

    KEY = ("task", "thread", "type")

    def __post_init__(self) -> None:
        # Intervals that are open after the blocks so far, by task, thread and type: how many nest, and the line of the
        # outermost start.
        self._open: dict[tuple[int, int, int], tuple[int, int]] = {}

    def update(self, block: Block) -> None:
        pairs = block.edge_pairs
        if not len(pairs):
            return
        record, types = block.pair_record[pairs], block.pair_types
        task, thread, type_place = block.task[record], block.thread[record], types.place[pairs]
        keys = distinct(one_key([task, thread, type_place]))
        order = order_of_keys(keys.place)

        def key_columns(edges: Indices) -> dict[str, Indices]:
            return {"task": task[edges], "thread": thread[edges], "type": types.numbers[type_place[edges]]}

        # Edges of one key follow each other now, in their order.
        is_start = (block.pair_value[pairs] != 0)[order]
        first = np.cumsum(keys.rows) - keys.rows
        group = np.repeat(np.arange(len(first)), keys.rows)
        of_groups = list(zip(*(values.tolist() for values in key_columns(order[first]).values()), strict=True))
        before_block = [self._open.pop(key, _NOT_OPEN) for key in of_groups]
        step = np.where(is_start, 1, -1)
        depth = np.cumsum(step)
        depth += (np.array([nested for nested, _ in before_block]) - depth[first] + step[first])[group]
        # An end without a start takes the depth below all previous ones; it is then left out of the depth.
        beyond = np.int64(2) * (len(depth) + np.abs(depth).max())
        lowest = np.minimum.accumulate(np.minimum(depth, 0) - group * beyond) + group * beyond
        before = np.roll(lowest, 1)
        before[first] = 0
        is_orphan = lowest < before
        depth -= lowest
        if is_orphan.any():
            problem = "type {type} of task {task} thread {thread} ends (value 0) and none is open"
            orphans = np.sort(order[is_orphan])
            columns = {"line": block.line[record[orphans]], **key_columns(orphans)}
            self.violations(TraceRule.CLOSED, pl.DataFrame(columns), problem)
        self.counts["intervals"] += int((~is_start & ~is_orphan).sum())
        outermost = np.maximum.reduceat(np.where(is_start & (depth == 1), order, -1), first).tolist()
        nested = depth[[*first[1:] - 1, -1]].tolist()
        for place in np.argsort(order[first]).tolist():
            if nested[place] > 0:
                edge, line = outermost[place], before_block[place][1]
                self._open[of_groups[place]] = nested[place], line if edge < 0 else int(block.line[record[edge]])
        if len(self._open) > MOST_OPEN:
            raise TraceError(self.trace.path, f"intervals of more than {MOST_OPEN:,} types and rows are open at once")

    def finish(self) -> None:
        problem = "type {type} of task {task} thread {thread} starts here, and {depth} interval(s) of it never end"
        rows = [(*key, *depth_and_line) for key, depth_and_line in self._open.items()]
        schema = dict.fromkeys((*self.KEY, "depth", "line"), pl.Int64)
        still_open = pl.DataFrame(rows, schema=schema, orient="row").sort("line", maintain_order=True)
        self.violations(TraceRule.CLOSED, still_open, problem)


def within(number: pl.Expr) -> pl.Expr:
    """Whether a number keeps all digits in views."""
    return number.is_between(-LARGEST_EXACT, LARGEST_EXACT)


class _Numbers(RecordCheck):
    """Types fit in 32 bits, values in the digits of a double."""

    def update(self, block: Block) -> None:
        if block.pair_types.numbers.max(initial=0) > LARGEST_TYPE:
            wraps = block.pairs.filter(pl.col("type") > LARGEST_TYPE)
            problem = f"type {{type}} is above {LARGEST_TYPE}, and Paraver takes another"
            self.violations(TraceRule.NUMBERS, block.located(wraps), problem)
        if not _all_within(block.pair_value):
            inexact = block.pairs.filter(~within(pl.col("value")))
            problem = f"value {{value}} of type {{type}} is beyond {LARGEST_EXACT}, and views lose its last digits"
            self.violations(TraceRule.NUMBERS, block.located(inexact), problem)
        if not _all_within(block.message_columns["size"]) or not _all_within(block.message_columns["tag"]):
            of_message = block.messages.filter((pl.col("size") > LARGEST_EXACT) | ~within(pl.col("tag")))
            problem = f"a message has size {{size}} and tag {{tag}}, of which one is beyond {LARGEST_EXACT}"
            self.violations(TraceRule.NUMBERS, of_message, problem)


def _all_within(numbers: Indices) -> bool:
    """Whether all numbers keep all digits in views."""
    return int(numbers.min(initial=0)) >= -LARGEST_EXACT and int(numbers.max(initial=0)) <= LARGEST_EXACT


class _Labelled(RecordCheck):
    """Each state, each type, and each value of a type whose values have labels, is in the .pcf; each is reported once."""

    def __post_init__(self) -> None:
        types = self.trace.labels.types
        valued = [(number, value) for number, label in types.items() for value in label.values or ()]
        self._labelled = {
            ("state",): pl.DataFrame({"state": list(self.trace.labels.states)}, schema={"state": pl.Int64}),
            ("type",): pl.DataFrame({"type": list(types)}, schema={"type": pl.Int64}),
            ("type", "value"): pl.DataFrame(valued, schema={"type": pl.Int64, "value": pl.Int64}, orient="row"),
        }
        self._with_values = [number for number, label in types.items() if label.values is not None]

    def update(self, block: Block) -> None:
        if not self._has_all("state", distinct(block.state_columns["state"]).numbers):
            self._check(("state",), block.states.unique("state", keep="first", maintain_order=True), "state {state}")
        types = block.pair_types
        if not self._has_all("type", types.numbers):
            self._check(
                ("type",), block.located(block.pairs.unique("type", keep="first").sort("record", "type")), "type {type}"
            )
        pairs = block.pairs_of(np.isin(types.numbers, self._with_values))
        if len(pairs):
            values = distinct(one_key([types.place[pairs], block.pair_value[pairs]]))
            first = np.empty(len(values.numbers), np.int64)
            # Of several, numpy keeps what is written last.
            first[values.place[::-1]] = pairs[::-1]
            of_block = block.pairs[np.sort(first)]
            self._check(("type", "value"), block.located(of_block), "value {value} of type {type}")

    def _has_all(self, name: str, numbers: Indices) -> bool:
        """Whether there are labels of all of some states or types."""
        return bool(np.isin(numbers, self._labelled[name,][name].to_numpy()).all())

    def _check(self, key: tuple[str, ...], first: pl.DataFrame, name: str) -> None:
        """Check what a block has, of each only the first."""
        unlabelled = first.join(self._labelled[key], on=key, how="anti", maintain_order="left")
        self.violations(TraceRule.LABELLED, unlabelled, f"{name} has no label in the .pcf")
        # What is reported counts as known from now on. Beyond the limit it is counted once per block, which bounds memory.
        self._labelled[key] = pl.concat([self._labelled[key], unlabelled.head(self.log.limit).select(key)])


RECORD_CHECKS: tuple[type[RecordCheck], ...] = (_Order, _Places, _Intervals, _Numbers)
LABEL_CHECKS: tuple[type[RecordCheck], ...] = (_Labelled,)
"""Checks of each trace, besides `StateOrder`, and those of a trace with a .pcf."""


def one_key(columns: Sequence[Numbers]) -> Numbers:
    """One number for each row, equal where some columns are; it is sorted and compared faster."""
    key = columns[0]
    if not len(key):
        return key
    size = 1
    for place, column in enumerate(columns):
        lowest = int(column.min())
        span = int(column.max()) - lowest + 1
        size *= span
        if size > _LARGEST_KEY:
            frame = pl.DataFrame({str(number): values for number, values in enumerate(columns)})
            return frame.select(pl.struct(pl.all()).rank("dense").cast(pl.Int64)).to_series().to_numpy()
        key = key * span + (column - lowest) if place else column - lowest
    return key


def order_of_keys(key: Numbers) -> Numbers:
    """A stable order of rows by a key that counts from 0."""
    return np.argsort(key.astype(np.uint16) if key.max(initial=0) < _FEW_KEYS else key, kind="stable")
