"""Checks a trace against the rules that nsys2prv guarantees and Paraver needs: Paraver drops or misdraws without a message.

The records are read in blocks, so memory does not grow with the trace.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from nsys2prv.errors import TraceError
from nsys2prv.paraver.header import Header, parse_header, read_first_line
from nsys2prv.paraver.object_limits import MOST_OBJECTS
from nsys2prv.paraver.pcf import PcfLabels, read_pcf
from nsys2prv.paraver.record_checks import LABEL_CHECKS, RECORD_CHECKS
from nsys2prv.paraver.row import read_row
from nsys2prv.paraver.rules import CheckResult, TraceRule, ViolationLog
from nsys2prv.paraver.trace_files import companion
from nsys2prv.paraver.trace_reader import BLOCK_BYTES, Trace


def check_trace(path: str | Path, limit: int = 20, *, block_bytes: int = BLOCK_BYTES) -> CheckResult:
    """Check a trace: its .prv or .prv.gz, and the .pcf and .row beside it.

    Parameters
    ----------
    path
        The .prv or .prv.gz.
    limit
        Violations to report of each rule; the others are counted.
    block_bytes
        Bytes of text that are held at a time.

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
    _check_header(path, header, log)
    labels = _check_pcf(companion(path, ".pcf"), log)
    names = _check_row(companion(path, ".row"), header, log)
    trace = Trace(path, header, labels or PcfLabels(), names, labels is not None, bool(names))
    counts = Counter(dict.fromkeys(("states", "event_lines", "events", "messages", "intervals", "backward_messages"), 0))
    kinds = RECORD_CHECKS if labels is None else (*RECORD_CHECKS, *LABEL_CHECKS)
    checks = [check(path, header, labels, log, counts) for check in kinds]
    try:
        for block in trace.blocks(lambda line, problem: log.add(TraceRule.RECORDS, path, line, problem), block_bytes):
            for check in checks:
                check.update(block)
    except TraceError as error:
        log.add(TraceRule.RECORDS, path, None, str(error).removeprefix(f"{path}: "))
    for check in checks:
        check.finish()
    counts["records"] = counts["states"] + counts["event_lines"] + counts["messages"]
    return log.result({"rows": header.rows, **counts})


def _sizes(header: Header) -> dict[str, int]:
    """Number of objects of each level that a .row names."""
    return {
        "NODE": len(header.cpus_per_node),
        "CPU": sum(header.cpus_per_node),
        "TASK": len(header.tasks),
        "THREAD": header.rows,
    }


def _check_header(path: Path, header: Header, log: ViolationLog) -> None:
    def violation(problem: str) -> None:
        log.add(TraceRule.HEADER, path, 1, problem)

    if not re.fullmatch(r"\d\d/\d\d/\d{4} at \d\d:\d\d", header.date):
        violation(f"the date {header.date!r} is not of the form DD/MM/YYYY at HH:MM")
    if not header.cpus_per_node:
        violation("the header has no nodes, so views of nodes and CPUs don't load")
    for kind, number in zip(("nodes", "CPUs", "tasks", "rows"), _sizes(header).values(), strict=True):
        if number > MOST_OBJECTS:
            violation(f"the header has {number} {kind}, and Paraver takes {MOST_OBJECTS}")
    for node, cpus in enumerate(header.cpus_per_node, start=1):
        if cpus < 1:
            violation(f"node {node} has no CPU, and Paraver crashes")
    for number, task in enumerate(header.tasks, start=1):
        if task.threads < 1:
            violation(f"task {number} has no thread")
        if header.cpus_per_node and not 1 <= task.node <= len(header.cpus_per_node):
            violation(f"task {number} is on node {task.node}, and the nodes are 1 to {len(header.cpus_per_node)}")


def _check_pcf(pcf: Path, log: ViolationLog) -> PcfLabels | None:
    if not pcf.is_file():
        log.add(TraceRule.PCF, pcf, None, "there is no such file, so nothing in the trace has a label")
        return None
    _check_tabs(TraceRule.PCF, pcf, log)
    return read_pcf(pcf, lambda line, problem: log.add(TraceRule.PCF, pcf, line, problem))


def _check_row(row: Path, header: Header, log: ViolationLog) -> dict[str, tuple[str, ...]]:
    if not row.is_file():
        log.add(TraceRule.ROW, row, None, "there is no such file, so the rows have no names")
        return {}
    _check_tabs(TraceRule.ROW, row, log)
    names = read_row(row, lambda line, problem: log.add(TraceRule.ROW, row, line, problem))
    for level, size in _sizes(header).items():
        if level not in names and level != "CPU":
            log.add(TraceRule.ROW, row, None, f"level {level} has no names")
        elif level in names and len(names[level]) != size:
            log.add(TraceRule.ROW, row, None, f"level {level} has {len(names[level])} names, and the header has {size}")
    return names


def _check_tabs(rule: TraceRule, path: Path, log: ViolationLog) -> None:
    for line, raw in enumerate(path.read_bytes().split(b"\n"), start=1):
        if b"\t" in raw:
            log.add(rule, path, line, "it has a tab, which Paraver turns into a blank")
