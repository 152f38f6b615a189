"""Which processes a report profiles: a recording of the whole system also holds threads of everything else on the node."""

import re
from pathlib import PurePath

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text, pid_of, process_of
from nsys2prv.exports.report import once

FOREIGN = "threads of processes that the report does not profile"
"""Reason for rows of other programs and of the kernel in the account of rows."""

SCHEDULING, SAMPLES = "SCHED_EVENTS", "COMPOSITE_EVENTS"

_WHOLE_SYSTEM = {SCHEDULING: "TRACE_ALL_TASKS", SAMPLES: "SAMPLE_ALL_TASKS"}
"""Settings of a capture that are "true" when a table has threads of all processes."""
_COLLECTION_MODE = "LINUX_PERF_OPTIONS:COLLECTION_MODE"
_COMMAND = "PROCESS_0:COMMAND"
TRACED_TABLES = re.compile(
    r"(MPI|CUPTI_ACTIVITY_KIND|CUDA|OPENMP_EVENT_KIND|UCP)_\w+|(NVTX|CUBLAS|CUDNN|GENERIC|GPU_CONTEXT_SWITCH|FECS)_EVENTS"
    r"|OSRT_API|PROFILER_OVERHEAD"
)
"""Tables whose rows are of profiled processes only. Others may list any process of the system."""


def of_profiled(report: Report, table: str) -> pl.Expr:
    """Condition on `globalTid`: its process is one that the report profiles. A row without a thread passes.

    Everything passes unless the settings of the capture, or idle threads in the table, say that the whole system was
    recorded. Then a process is profiled when another table has events of it, or when it has the name of the program that
    was launched; with no such process everything passes but idle threads."""
    process = process_of(pl.col("globalTid"))
    is_idle = pid_of(pl.col("globalTid")) == 0
    if not _is_whole_system(report, table):
        return pl.lit(True)
    profiled = _with_other_events(report) | _launched(report)
    keep = process.is_in(sorted(profiled)) if profiled else ~is_idle
    return keep | pl.col("globalTid").is_null()


@once
def _is_whole_system(report: Report, table: str) -> bool:
    settings = dict(report.read("META_DATA_CAPTURE", optional=(Text("name"), Text("value"))).iter_rows())
    if settings.get(_WHOLE_SYSTEM[table]) == "true" or "system" in (settings.get(_COLLECTION_MODE) or "").lower():
        return True
    threads = report.scan(table, optional=("globalTid",)).select("globalTid").unique()
    return report.count(threads.filter(pid_of(pl.col("globalTid")) == 0)) > 0


@once
def _with_other_events(report: Report) -> set[int]:
    with_events: set[int] = set()
    for table in report.tables.names():
        for column in ("globalTid", "globalPid"):
            if TRACED_TABLES.fullmatch(table) and report.has(table, column):
                processes = report.scan(table, (column,)).select(process_of(pl.col(column))).unique()
                with_events |= set(report.collect(processes)[column].drop_nulls())
    return with_events


@once
def _launched(report: Report) -> set[int]:
    settings = report.read("META_DATA_CAPTURE", optional=(Text("name"), Text("value")))
    commands = settings.filter(pl.col("name") == _COMMAND)["value"].drop_nulls()
    programs = {PurePath(command).name for command in commands}
    processes = report.read("PROCESSES", optional=("globalPid", Text("name"))).drop_nulls()
    return {pid for pid, name in processes.iter_rows() if PurePath(name).name in programs}
