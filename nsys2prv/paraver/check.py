"""Checks a trace against the rules that nsys2prv guarantees and Paraver needs: Paraver drops or misdraws without a message.

The records are read in blocks, so memory does not grow with the trace.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nsys2prv.errors import TraceError
from nsys2prv.execution import memory
from nsys2prv.execution.progress import progress_bar
from nsys2prv.paraver.blocks import Block
from nsys2prv.paraver.label_files import PcfLabels, read_pcf, read_row
from nsys2prv.paraver.own_checks import own_checks
from nsys2prv.paraver.record_checks import LABEL_CHECKS, RECORD_CHECKS, CheckedTrace, RecordCheck, StateOrder
from nsys2prv.paraver.rules import CheckResult, TraceRule, ViolationLog
from nsys2prv.paraver.trace_files import Header, companion, parse_header, raw_lines, read_first_line, shown
from nsys2prv.paraver.trace_reader import read_summary

_SINGLE = {"WORKLOAD": 1, "APPL": 1, "SYSTEM": 1}
"""Levels with one object."""
_NEEDED = ("NODE", "TASK", "THREAD")


def check_trace(path: str | Path, limit: int = 20) -> CheckResult:
    """Check a trace: its .prv or .prv.gz, and the .pcf and .row beside it.

    Parameters
    ----------
    path
        The .prv or .prv.gz.
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
    trace = CheckedTrace(path, header, labels or PcfLabels(), names, labels is not None, _read_summary(path, log))
    counts = Counter(dict.fromkeys(("states", "event_lines", "events", "messages", "intervals", "backward_messages"), 0))
    checks = [kind(trace, log, counts) for kind in _kinds_of_checks(trace)]
    try:
        with memory.limited(memory.bytes_of_process(None, 0)), progress_bar("checking", "record") as bar:
            for block in trace.read(_with_edges, partial(log.add, TraceRule.RECORDS, path)):
                for check in checks:
                    check.update(block)
                bar.update(len(block))
    except TraceError as error:
        log.add(TraceRule.RECORDS, path, None, _why(path, error))
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


def _why(path: Path, error: TraceError, missing: str = "") -> str:
    """What is wrong with a file, without its name and what to do; of a file that does not exist, what that means."""
    if missing and not os.path.exists(path):
        return f"there is no such file, so {missing}"
    return str(error).removeprefix(f"{path}: ").partition("; give the .prv")[0]


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
    try:
        _check_tabs(TraceRule.PCF, pcf, log)
        return read_pcf(pcf, partial(log.add, TraceRule.PCF, pcf))
    except TraceError as error:
        log.add(TraceRule.PCF, pcf, None, _why(pcf, error, "nothing in the trace has a label"))
        return None


def _read_names(row: Path, header: Header, log: ViolationLog) -> dict[str, tuple[str, ...]]:
    violation = partial(log.add, TraceRule.ROW, row)
    try:
        _check_tabs(TraceRule.ROW, row, log)
        names = read_row(row, violation)
    except TraceError as error:
        violation(None, _why(row, error, "the rows have no names"))
        return {}
    for level, size in {**header.sizes, **_SINGLE}.items():
        if level in names and len(names[level]) != size:
            violation(None, f"level {level} has {len(names[level])} names, and the header has {size}")
        elif level not in names and level in _NEEDED:
            violation(None, f"level {level} has no names")
    return names


def _read_summary(path: Path, log: ViolationLog) -> Mapping[str, Any] | None:
    try:
        return read_summary(path)
    except TraceError as error:
        summary = companion(path, ".json")
        log.add(TraceRule.ACCOUNT, summary, None, _why(summary, error))
        return None


def _check_tabs(rule: TraceRule, path: Path, log: ViolationLog) -> None:
    for line, raw in raw_lines(path):
        if b"\t" in raw:
            log.add(rule, path, line, "it has a tab, which Paraver turns into a blank")
