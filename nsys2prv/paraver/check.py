"""Checks a written trace against what nsys2prv promises and Paraver needs, as far as the trace itself can tell.

Paraver drops or misdraws in silence; this says it aloud. The records are read in blocks and only what is open (depths,
last ends, labels not found) is carried from one to the next, so memory does not grow with the trace.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.paraver import trace_reader
from nsys2prv.paraver.trace_reader import Block, Header, Labels, Trace

MOST_OBJECTS = 65_535
"""Objects of a kind (nodes, CPUs, tasks, rows) that Paraver takes."""
LARGEST_TYPE = 2**32 - 1
"""Paraver keeps types in 32 bits; larger ones wrap in silence."""
LARGEST_VALUE = 2**53
"""Views compute in doubles; digits are lost above."""


class Promise(enum.Enum):
    """What a trace has to keep, as far as the trace itself can tell."""

    HEADER = "the header is well formed and within Paraver's limits"
    RECORDS = "every line of the .prv is a record"
    START = "the first record is at 0"
    SORTED = "records are sorted by time"
    END = "no record lies after the end in the header"
    PLACES = "every record is on a row and a CPU of the header"
    STATES = "states of a row have a length and do not overlap"
    CLOSED = "each begin has its end"
    NUMBERS = "types and values are within Paraver's range"
    LABELLED = "every state, type and value has its label"
    PCF = "the .pcf is well formed"
    ROW = "the .row is well formed and agrees with the header"


@dataclass(frozen=True)
class Finding:
    """A promise that is not kept: which, on what line of what file (None: the file as a whole), in one sentence."""

    promise: Promise
    line: int | None
    text: str


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes
    ----------
    findings
        At most `limit` of each promise, in the order they were found.
    found
        How many there are of each promise that is not kept, the ones beyond the limit included.
    counts
        rows; records of each kind (states, event_lines, messages) and in all (records); type:value pairs (events);
        closed intervals; messages that arrive before they are sent (backward_messages), which Paraver draws.
    """

    findings: tuple[Finding, ...]
    found: Mapping[Promise, int]
    counts: Mapping[str, int]

    @property
    def ok(self) -> bool:
        return not self.findings


def check_trace(path: str | Path, limit: int = 20, *, block_bytes: int = trace_reader.BLOCK_BYTES) -> CheckResult:
    """Check a trace: its .prv or .prv.gz, and the .pcf and .row beside it.

    Parameters
    ----------
    path
        The .prv or .prv.gz.
    limit
        Findings to tell of each promise; the others are counted.
    block_bytes
        Bytes of text that are held at a time.

    Raises
    ------
    TraceError
        There is no such file, or it can't be read.
    """
    path = Path(path)
    ledger = _Ledger(limit)
    try:
        header = trace_reader.parse_header(trace_reader.read_first_line(path))
    except ValueError as error:
        ledger.add(Promise.HEADER, path, 1, str(error))
        return ledger.result({})
    _check_header(path, header, ledger)
    labels = _check_pcf(path, ledger)
    names = _check_row(path, header, ledger)
    trace = Trace(path, header, labels or Labels(), names, labels is not None, bool(names))
    counts = Counter(dict.fromkeys(("states", "event_lines", "events", "messages", "intervals", "backward_messages"), 0))
    checks = [_Order(path, header), _Places(path, header), _States(path), _Intervals(path), _Numbers(path)]
    if labels is not None:
        checks.append(_Labelled(path, labels))
    try:
        for block in trace.blocks(lambda line, why: ledger.add(Promise.RECORDS, path, line, why), block_bytes):
            for check in checks:
                check.take(block, ledger, counts)
    except TraceError as error:
        ledger.add(Promise.RECORDS, path, None, str(error).removeprefix(f"{path}: "))
    for check in checks:
        check.finish(ledger, counts)
    counts["records"] = counts["states"] + counts["event_lines"] + counts["messages"]
    return ledger.result({"rows": header.rows, **counts})


class _Ledger:
    """Findings so far: the first `limit` of each promise with their text, all of them as a number."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.findings: list[Finding] = []
        self.found: Counter[Promise] = Counter()

    def add(self, promise: Promise, path: Path, line: int | None, why: str) -> None:
        self.found[promise] += 1
        if self.found[promise] <= self.limit:
            where = path.name if line is None else f"{path.name} line {line}"
            self.findings.append(Finding(promise, line, f"{where}: {why}"))

    def add_lines(self, promise: Promise, path: Path, offenders: pl.DataFrame, sentence: str) -> None:
        """A finding per row; `sentence` is a format string over its columns, one of which is `line`."""
        told = offenders.head(max(self.limit - self.found[promise], 0))
        for row in told.iter_rows(named=True):
            self.add(promise, path, row["line"], sentence.format(**row))
        if told.height < offenders.height:
            self.found[promise] += offenders.height - told.height

    def result(self, counts: Mapping[str, int]) -> CheckResult:
        return CheckResult(tuple(self.findings), dict(self.found), dict(counts))


def _check_header(path: Path, header: Header, ledger: _Ledger) -> None:
    def broken(why: str) -> None:
        ledger.add(Promise.HEADER, path, 1, why)

    if not re.fullmatch(r"\d\d/\d\d/\d{4} at \d\d:\d\d", header.date):
        broken(f"the date {header.date!r} is not of the form DD/MM/YYYY at HH:MM")
    if not header.cpus_per_node:
        broken("the header has no nodes, so views of nodes and CPUs don't load")
    sizes = {
        "nodes": len(header.cpus_per_node),
        "CPUs": sum(header.cpus_per_node),
        "tasks": len(header.tasks),
        "rows": header.rows,
    }
    for what, number in sizes.items():
        if number > MOST_OBJECTS:
            broken(f"the header has {number} {what}, and Paraver takes {MOST_OBJECTS}")
    for node, cpus in enumerate(header.cpus_per_node, start=1):
        if cpus < 1:
            broken(f"node {node} has no CPU, and Paraver crashes")
    for number, task in enumerate(header.tasks, start=1):
        if task.threads < 1:
            broken(f"task {number} has no thread")
        if header.cpus_per_node and not 1 <= task.node <= len(header.cpus_per_node):
            broken(f"task {number} is on node {task.node}, and the nodes are 1 to {len(header.cpus_per_node)}")


def _check_pcf(path: Path, ledger: _Ledger) -> Labels | None:
    pcf = trace_reader.companion(path, ".pcf")
    if not pcf.is_file():
        ledger.add(Promise.PCF, pcf, None, "there is no such file, so nothing in the trace has a label")
        return None
    _check_tabs(Promise.PCF, pcf, ledger)
    return trace_reader.read_pcf(pcf, lambda line, why: ledger.add(Promise.PCF, pcf, line, why))


def _check_row(path: Path, header: Header, ledger: _Ledger) -> dict[str, tuple[str, ...]]:
    row = trace_reader.companion(path, ".row")
    if not row.is_file():
        ledger.add(Promise.ROW, row, None, "there is no such file, so the rows have no names")
        return {}
    _check_tabs(Promise.ROW, row, ledger)
    names = trace_reader.read_row(row, lambda line, why: ledger.add(Promise.ROW, row, line, why))
    sizes = {
        "TASK": len(header.tasks),
        "THREAD": header.rows,
        "NODE": len(header.cpus_per_node),
        "CPU": sum(header.cpus_per_node),
    }
    for level, size in sizes.items():
        if level not in names and level != "CPU":
            ledger.add(Promise.ROW, row, None, f"level {level} has no names")
        elif level in names and len(names[level]) != size:
            why = f"level {level} has {len(names[level])} names, and the header has {size}"
            ledger.add(Promise.ROW, row, None, why)
    return names


def _check_tabs(promise: Promise, path: Path, ledger: _Ledger) -> None:
    for line, raw in enumerate(path.read_bytes().split(b"\n"), start=1):
        if b"\t" in raw:
            ledger.add(promise, path, line, "it holds a tab, which Paraver turns into a blank")


class _Check:
    """A promise about records: takes the blocks in order, then is told that there are no more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        raise NotImplementedError

    def finish(self, ledger: _Ledger, counts: Counter[str]) -> None:
        """Nothing is left to say by most checks."""


class _Order(_Check):
    """Sorted, from 0, up to the end in the header."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__(path)
        self.end = header.end
        self.last: int | None = None  # time of the last record of the former block, ns

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        records = block.records.select("line", "time").with_columns(former=pl.col("time").shift(1, fill_value=self.last))
        if records.is_empty():
            return
        if self.last is None and (first := records.row(0, named=True))["time"] != 0:
            ledger.add(Promise.START, self.path, first["line"], f"the first record is at {first['time']} ns and not at 0")
        late = records.filter(pl.col("time") < pl.col("former"))
        ledger.add_lines(Promise.SORTED, self.path, late, "a record at {time} ns stands after one at {former} ns")
        self.last = records["time"][-1]
        for what, frame, last in (
            ("an event", block.events.filter(pl.col("position") == 0), pl.col("time")),
            ("a state", block.states, pl.col("end")),
            ("a message", block.messages, pl.max_horizontal("logical_send", "physical_send", "logical_recv", "physical_recv")),
        ):
            beyond = frame.select("line", last=last).filter(pl.col("last") > self.end)
            sentence = f"{what} at {{last}} ns lies after the end of the trace, {self.end} ns"
            ledger.add_lines(Promise.END, self.path, beyond, sentence)

    def finish(self, ledger: _Ledger, counts: Counter[str]) -> None:
        if self.last is None:
            ledger.add(Promise.START, self.path, None, "there is no record in it")


class _Places(_Check):
    """Task, thread and CPU of each record, and of the receiver of each message, are in the header; counts records."""

    def __init__(self, path: Path, header: Header) -> None:
        super().__init__(path)
        # CPUs are numbered over all nodes.
        last_cpus = list(accumulate(header.cpus_per_node))
        nodes = dict(enumerate(zip([0, *last_cpus], last_cpus, strict=False), start=1))
        self.tasks = pl.DataFrame(
            [(number, task.threads, *nodes.get(task.node, (None, None))) for number, task in enumerate(header.tasks, start=1)],
            schema={"task": pl.Int64, "threads": pl.Int64, "cpus_before": pl.Int64, "last_cpu": pl.Int64},
            orient="row",
        )

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        messages = block.messages
        counts["states"] += block.states.height
        counts["event_lines"] += block.records.height - block.states.height - messages.height
        counts["events"] += block.events.height
        counts["messages"] += messages.height
        # Paraver draws a line to the later of the receiver's two times: who waits before the send is only early.
        arrival = pl.max_horizontal("logical_recv", "physical_recv")
        backward = (arrival < pl.col("logical_send")) | (pl.col("physical_recv") < pl.col("physical_send"))
        counts["backward_messages"] += messages.filter(backward).height
        receivers = messages.select("line", cpu="recv_cpu", task="recv_task", thread="recv_thread")
        self._judge(block.records.select("line", "cpu", "task", "thread"), ledger)
        self._judge(receivers, ledger)

    def _judge(self, places: pl.DataFrame, ledger: _Ledger) -> None:
        # Most records share their place with many others.
        bad = places.select("cpu", "task", "thread").unique().join(self.tasks, on="task", how="left")
        off_rows = pl.col("threads").is_null() | ~pl.col("thread").is_between(1, "threads")
        off_cpus = (pl.col("cpu") != 0) & ~pl.col("cpu").is_between("cpus_before", "last_cpu", closed="right").fill_null(False)
        for off, sentence in (
            (off_rows, "task {task} thread {thread} is not in the header"),
            (off_cpus & ~off_rows, "CPU {cpu} is not one of the node of task {task}"),
        ):
            where = bad.filter(off)
            if not where.is_empty():
                offenders = places.join(where, on=["cpu", "task", "thread"], how="semi").sort("line")
                ledger.add_lines(Promise.PLACES, self.path, offenders, sentence)


class _States(_Check):
    """States of a row have a length, and each begins where the former ended or later."""

    ROW = ("task", "thread")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ends = pl.DataFrame(schema={"task": pl.Int64, "thread": pl.Int64, "last": pl.Int64})

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        states = block.states
        empty = states.filter(pl.col("end") <= pl.col("begin"))
        ledger.add_lines(Promise.STATES, self.path, empty, "a state begins at {begin} ns and ends at {end} ns")
        states = states.join(self.ends, on=self.ROW, how="left", maintain_order="left").with_columns(
            former=pl.coalesce(pl.col("end").shift(1).over(self.ROW), "last")
        )
        overlapping = states.filter(pl.col("begin") < pl.col("former"))
        sentence = "a state of task {task} thread {thread} begins at {begin} ns, before the former one ends at {former} ns"
        ledger.add_lines(Promise.STATES, self.path, overlapping, sentence)
        ends = states.group_by(self.ROW).agg(last=pl.col("end").last())
        self.ends = pl.concat([self.ends.join(ends, on=self.ROW, how="anti"), ends])


class _Intervals(_Check):
    """Each begin of an interval type has its end on the same row, and nothing ends that did not begin."""

    KEY = ("task", "thread", "type")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_interval: dict[int, bool] = {}
        # What is open after the blocks so far: how many on top of each other, and the line of the outermost begin.
        self.open = pl.DataFrame(schema={**dict.fromkeys(self.KEY, pl.Int64), "depth": pl.Int64, "line": pl.Int64})

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        pairs = self._of_interval_types(block.events.select("line", *self.KEY, "value"))
        begins = pl.col("value") != 0
        pairs = (
            pairs.join(self.open.rename({"line": "since"}), on=self.KEY, how="left", maintain_order="left")
            .with_columns(pl.col("depth").fill_null(0) + pl.when(begins).then(1).otherwise(-1).cum_sum().over(self.KEY))
            # An end without a begin takes the depth below all before; from there the count goes on as if it were not.
            .with_columns(lowest=pl.min_horizontal(pl.lit(0), pl.col("depth").cum_min().over(self.KEY)))
            .with_columns(orphan=pl.col("lowest") < pl.col("lowest").shift(1).over(self.KEY).fill_null(0))
            .with_columns(pl.col("depth") - pl.col("lowest"))
        )
        sentence = "type {type} of task {task} thread {thread} ends (value 0) and no begin is open"
        ledger.add_lines(Promise.CLOSED, self.path, pairs.filter("orphan"), sentence)
        counts["intervals"] += pairs.filter(~begins & ~pl.col("orphan")).height
        outermost = pl.col("line").filter(begins & (pl.col("depth") == 1)).last()
        now = pairs.group_by(self.KEY, maintain_order=True).agg(
            pl.col("depth").last(), line=pl.coalesce(outermost, pl.col("since").first())
        )
        self.open = pl.concat([self.open.join(now, on=self.KEY, how="anti"), now.filter(pl.col("depth") > 0)])

    def _of_interval_types(self, pairs: pl.DataFrame) -> pl.DataFrame:
        for number in pairs["type"].unique():
            if number not in self.is_interval:
                self.is_interval[number] = trace_reader.is_interval(number)
        return pairs.filter(pl.col("type").is_in([number for number, yes in self.is_interval.items() if yes]))

    def finish(self, ledger: _Ledger, counts: Counter[str]) -> None:
        sentence = "type {type} of task {task} thread {thread} begins here and {depth} interval(s) of it never end"
        ledger.add_lines(Promise.CLOSED, self.path, self.open.sort("line"), sentence)


class _Numbers(_Check):
    """Types fit in 32 bits, values in the digits of a double."""

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        wraps = block.events.filter(pl.col("type") > LARGEST_TYPE)
        ledger.add_lines(Promise.NUMBERS, self.path, wraps, f"type {{type}} is above {LARGEST_TYPE}, and Paraver takes another")
        inexact = block.events.filter(~pl.col("value").is_between(-LARGEST_VALUE, LARGEST_VALUE))
        sentence = f"value {{value}} of type {{type}} is beyond {LARGEST_VALUE}, and views lose its last digits"
        ledger.add_lines(Promise.NUMBERS, self.path, inexact, sentence)


class _Labelled(_Check):
    """Each state, each type, and each value of a type whose values have labels, is in the .pcf; each is told once."""

    def __init__(self, path: Path, labels: Labels) -> None:
        super().__init__(path)
        self.known = {
            "state": pl.DataFrame({"state": list(labels.states)}, schema={"state": pl.Int64}),
            "type": pl.DataFrame({"type": list(labels.types)}, schema={"type": pl.Int64}),
            "value": pl.DataFrame(
                [(number, value) for number, label in labels.types.items() for value in label.values or ()],
                schema={"type": pl.Int64, "value": pl.Int64},
                orient="row",
            ),
        }
        self.with_values = [number for number, label in labels.types.items() if label.values is not None]

    def take(self, block: Block, ledger: _Ledger, counts: Counter[str]) -> None:
        self._judge("state", block.states, ("state",), "state {state} has no label in the .pcf", ledger)
        self._judge("type", block.events, ("type",), "type {type} has no label in the .pcf", ledger)
        valued = block.events.filter(pl.col("type").is_in(self.with_values))
        self._judge("value", valued, ("type", "value"), "value {value} of type {type} has no label in the .pcf", ledger)

    def _judge(self, what: str, frame: pl.DataFrame, key: tuple[str, ...], sentence: str, ledger: _Ledger) -> None:
        unlabelled = frame.group_by(key).agg(pl.col("line").first()).join(self.known[what], on=key, how="anti").sort("line")
        ledger.add_lines(Promise.LABELLED, self.path, unlabelled, sentence)
        # Told, so known from now on; what is beyond the limit is counted once per block, so that this does not grow.
        self.known[what] = pl.concat([self.known[what], unlabelled.head(ledger.limit).select(key)])
