"""Checks a trace against the rules that nsys2prv guarantees and Paraver needs: Paraver drops or misdraws without a message.

The records are read in blocks, so memory does not grow with the trace."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from nsys2prv.errors import TraceError, TraceNotReadable
from nsys2prv.execution import memory
from nsys2prv.execution.progress import progress_bar
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.label_files import PcfLabels, read_pcf, read_row
from nsys2prv.paraver.own_checks import own_checks
from nsys2prv.paraver.record_checks import (
    LABEL_CHECKS,
    RECORD_CHECKS,
    CheckedTrace,
    CheckResult,
    RecordCheck,
    StateOrder,
    TraceRule,
    ViolationLog,
)
from nsys2prv.paraver.trace_files import Header, companion, is_there, parse_header, raw_lines, read_first_line, shown
from nsys2prv.paraver.trace_reader import read_summary

T = TypeVar("T")

_SINGLE = {"WORKLOAD": 1, "APPL": 1, "SYSTEM": 1}
"""Levels with one object."""
_NEEDED = ("NODE", "TASK", "THREAD")


def check_trace(path: str | Path, limit: int = 20) -> CheckResult:
    """Check a trace: its .prv or .prv.gz, and the .pcf and .row beside it.

    Parameters
    ----------
    limit
        Violations to report of each rule; the others are counted.

    Raises
    ------
    TraceError
        There is no such file, or it can't be read.
    """
    path = Path(path)
    log = ViolationLog(limit)
    try:
        header = parse_header(read_first_line(path))
    except ValueError as error:
        log.add(TraceRule.HEADER, path, 1, str(error))
        return log.result({})
    for problem in _problems_of_header(header):
        log.add(TraceRule.HEADER, path, 1, problem)
    if header.beyond_limits:
        return log.result({})
    labels = _read_labels(companion(path, ".pcf"), log)
    names = _read_names(companion(path, ".row"), header, log)
    summary = _unless_damaged(log, TraceRule.ACCOUNT, companion(path, ".json"), lambda: read_summary(path))
    trace = CheckedTrace(path, header, labels or PcfLabels(), names, labels is not None, summary)
    counts = Counter(dict.fromkeys(("states", "event_lines", "events", "messages", "intervals", "backward_messages"), 0))
    checks = [kind(trace, log, counts) for kind in _kinds_of_checks(trace)]

    def check_records() -> None:
        with memory.limited(memory.bytes_of_process(None, 0)), progress_bar("checking", "record") as bar:
            for block in trace.read(_with_edges, partial(log.add, TraceRule.RECORDS, path)):
                for check in checks:
                    check.update(block)
                bar.update(len(block))

    _unless_damaged(log, TraceRule.RECORDS, path, check_records)
    for check in checks:
        check.finish()
    counts["records"] = counts["states"] + counts["event_lines"] + counts["messages"]
    return log.result({"rows": header.rows, **counts})


def _with_edges(block: Block) -> Block:
    """The block, with what is made of it on other threads."""
    _ = block.edge_pairs
    return block


def _kinds_of_checks(trace: CheckedTrace) -> list[type[RecordCheck]]:
    of_tool = own_checks(trace) if trace.is_own else [StateOrder]
    return [*RECORD_CHECKS, *of_tool, *(LABEL_CHECKS if trace.has_labels else [])]


def _unless_damaged(log: ViolationLog, rule: TraceRule, path: Path, read: Callable[[], T]) -> T | None:
    """What is read of a file; None where it is damaged, which is noted without its name and what to do."""
    try:
        return read()
    except TraceNotReadable:
        raise
    except TraceError as error:
        log.add(rule, path, None, str(error).removeprefix(f"{path}: ").partition("; give the .prv")[0])
        return None


def _problems_of_header(header: Header) -> Iterator[str]:
    if header.moment is None:
        yield f"the date {shown(header.date)} is not a date of the form DD/MM/YYYY at HH:MM"
    if not header.cpus_per_node:
        yield "the header has no nodes, so views of nodes and CPUs don't load"
    yield from header.beyond_limits
    for node, cpus in enumerate(header.cpus_per_node, start=1):
        if cpus < 1:
            yield f"node {node} has no CPU, and Paraver crashes"
    for number, task in enumerate(header.tasks, start=1):
        if task.threads < 1:
            yield f"task {number} has no thread"
        if header.cpus_per_node and not 1 <= task.node <= len(header.cpus_per_node):
            yield f"task {number} is on node {task.node}, and the nodes are 1 to {len(header.cpus_per_node)}"


def _read_labels(pcf: Path, log: ViolationLog) -> PcfLabels | None:
    if not is_there(pcf):
        log.add(TraceRule.PCF, pcf, None, "there is no such file, so nothing in the trace has a label")
        return None

    def read() -> PcfLabels:
        _check_tabs(TraceRule.PCF, pcf, log)
        return read_pcf(pcf, partial(log.add, TraceRule.PCF, pcf))

    return _unless_damaged(log, TraceRule.PCF, pcf, read)


def _read_names(row: Path, header: Header, log: ViolationLog) -> dict[str, tuple[str, ...]]:
    violation = partial(log.add, TraceRule.ROW, row)
    if not is_there(row):
        violation(None, "there is no such file, so the rows have no names")
        return {}

    def read() -> dict[str, tuple[str, ...]]:
        _check_tabs(TraceRule.ROW, row, log)
        names = read_row(row, violation)
        for level, size in {**header.sizes, **_SINGLE}.items():
            if level in names and len(names[level]) != size:
                violation(None, f"level {level} has {len(names[level])} names, and the header has {size}")
            elif level not in names and level in _NEEDED:
                violation(None, f"level {level} has no names")
        return names

    return _unless_damaged(log, TraceRule.ROW, row, read) or {}


def _check_tabs(rule: TraceRule, path: Path, log: ViolationLog) -> None:
    for line, raw in raw_lines(path):
        if b"\t" in raw:
            log.add(rule, path, line, "it has a tab, which Paraver turns into a blank")
