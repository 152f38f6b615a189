"""Events of a Paraver trace for the measurement: of nsys2prv's traces, and of others as far as they have such events.

Kinds of rows are known by their names. In a trace without events of kernels (Extrae has kernels as states of its stream rows)
the states of streams are read: Running is a kernel, Group Communication one of NCCL, Memory transfer a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nsys2prv.efficiency.clock_accuracy import clock_errors
from nsys2prv.efficiency.kept_trace import KeptTrace, LinesRead
from nsys2prv.efficiency.run_events import (
    Collection,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    distinct_names,
)
from nsys2prv.efficiency.trace_lines import LineReader, RowsOfTrace
from nsys2prv.efficiency.trace_types import TraceTypes
from nsys2prv.errors import NothingToTranslate, TraceError
from nsys2prv.paraver.summary_file import read_summary
from nsys2prv.paraver.trace_files import companion
from nsys2prv.paraver.trace_reader import Trace, open_trace
from nsys2prv.run.option_values import TimeRange
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.timeline.selection import TimeSelection

_SUFFIXES = (".prv", ".prv.gz")
_FOREVER = 1 << 60
"""A time behind every trace, ns."""


def is_trace(argument: str | Path) -> bool:
    """Whether a name is that of a trace.

    >>> is_trace("run/OUT.prv.gz"), is_trace("run/report1.sqlite")
    (True, False)
    """
    return str(argument).endswith(_SUFFIXES)


def files_read(arguments: Iterable[str | Path]) -> list[Path]:
    """The arguments, and of traces also the files that are read beside them."""
    suffixes = (".pcf", ".row", ".json")
    paths = list(map(Path, arguments))
    return [*paths, *(companion(path, suffix) for path in paths if is_trace(path) for suffix in suffixes)]


def events_of_trace(path: Path, options: ReadOptions, folder: Path, collections: Sequence[Collection]) -> RunEvents:
    """Read collections of a trace; parameters and errors are those of `event_input.read_events`."""
    # Before the trace is opened: what is kept is of this state of it.
    whole = options.time is None and options.ranks is None
    kept = KeptTrace(options.cache, files_read([path])) if options.cache is not None and whole else None
    return _TraceReading(open_trace(path), options, folder, collections, kept).run_events()


class _TraceReading:
    """One run of `events_of_trace`."""

    def __init__(
        self, trace: Trace, options: ReadOptions, folder: Path, collections: Sequence[Collection], kept: KeptTrace | None
    ) -> None:
        self._trace = trace
        self._options = options
        self._folder = folder
        self._kept = kept
        self._collections = collections
        self._warnings: list[str] = []
        try:
            self._account: Mapping[str, Any] = read_summary(trace.path) or {}
        except TraceError as error:
            self._account = {}
            self._warnings.append(f"{error}; what it has is not used")
        # Time 0 of the trace on the axis of the reports; and the start of the time chosen.
        self._origin = self._account.get("trace", {}).get("origin_ns", 0)
        start = (options.time or TimeRange()).begin or 0
        self._clocks: list[dict[str, Any]] = []
        self._report_clocks: list[dict[str, Any]] = []
        tasks = self._with_clocks(_tasks(trace), self._origin + start)
        chosen = [options.ranks is None or task.rank in options.ranks for task in tasks]
        self._rows = RunRows([task for task, is_chosen in zip(tasks, chosen, strict=True) if is_chosen])
        if not self._rows.names:
            raise NothingToTranslate("none of the ranks chosen has rows")
        # Folded rows of one name are many streams: these are not known, and a row is nearest to one of them.
        is_folded = self._account_options().get("fold_streams") is True
        first_row = np.arange(len(self._rows.names)) if is_folded else self._rows.first_of_stream
        in_file = [is_chosen for task, is_chosen in zip(tasks, chosen, strict=True) for _ in task.rows]
        row_of = np.where(in_file, np.cumsum(in_file) - 1, -1)
        # Open at the end: records may lie after the end in the header.
        chosen_time = options.time or TimeRange()
        begin, end = chosen_time.begin or 0, _FOREVER if chosen_time.end is None else chosen_time.end
        self._window = TimeSelection((begin,), (max(end, begin + 1),))
        names = {number: TypeNames(found.label, found.values) for number, found in trace.labels.types.items()}
        self._types = TraceTypes(names, collections)
        self._read = LinesRead.in_folder(folder, collections, max(trace.header.end, 1))
        rows = RowsOfTrace(self._rows, row_of, first_row)
        self._lines = LineReader(trace, rows, self._types, collections, self._window, self._read)

    def run_events(self) -> RunEvents:
        size = self._trace.path.stat().st_size
        self._read_or_take()
        read = self._read
        warnings = self._warnings
        if not self._trace.has_names:
            warnings.append(f"{self._trace.path}: there is no .row beside it, so it is not known which rows are CUDA streams")
        if self._types.by_state and size:
            warnings.append(
                f"{self._trace.path}: no event type is that of CUDA kernels; what streams do is taken from their states, and "
                f"kernels have no names"
            )
        account = self._account
        reports = account.get("reports", ())
        return RunEvents(
            inputs=(str(self._trace.path),),
            is_trace=True,
            title=self._trace.path.name,
            rows=self._rows,
            begin=self._origin + self._window.origin,
            length=self._window.length,
            types=self._types.named(read.numbers),
            collections={name: found for name, found in read.collections.items() if found.rows},
            launches=read.launches if read.launches.rows else None,
            callers=self._rows.using_gpus(read.callers),
            messages=read.messages if read.messages.rows else None,
            ranks_of_run=account.get("run", {}).get("size", 0),
            began=moment.isoformat() if (moment := self._trace.header.moment) else None,
            clocks=self._clocks,
            report_clocks=self._report_clocks,
            recorders=distinct_names(report.get("nsys") for report in reports),
            gpus=distinct_names(gpu.get("name") for report in reports for gpu in report.get("gpus", ())),
            warnings=warnings,
        )

    def _read_or_take(self) -> None:
        """Have what is in the lines: from the cache, or from their text, and then keep it."""
        kept = self._kept.take(self._collections, self._folder / "kept") if self._kept is not None else None
        if kept is not None:
            self._read = kept
            self._window = self._up_to_the_end()
            return
        self._lines.read(progress=self._options.progress)
        self._window = self._up_to_the_end()
        self._lines.close(self._window)
        if self._kept is not None and (problem := self._kept.keep(self._read)) is not None:
            self._warnings.append(f"{self._trace.path}: {problem}")

    def _account_options(self) -> Mapping[str, Any]:
        """Options of the translation as OUT.json has them; empty where it has none."""
        options = self._account.get("options")
        return options if isinstance(options, dict) else {}

    def _with_clocks(self, tasks: Sequence[TaskRows], origin: int) -> list[TaskRows]:
        """Tasks with what OUT.json has of their clocks: it may be absent, or of a version that had nothing of them."""
        try:
            reports = self._account.get("reports", ())
            clocks, of_reports = self._account.get("clocks", []), [report["alignment"] for report in reports]
            errors = clock_errors(clocks, of_reports, origin)
            number = {report["path"]: place for place, report in enumerate(reports)}
            of_task = {task["name"]: number[task["report"]] for task in self._account.get("tasks", ()) if task["report"]}
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            account = companion(self._trace.path, ".json")
            self._warnings.append(f"{account}: what it has of clocks is damaged ({error!r}) and is not used; translate again")
            return list(tasks)
        self._clocks, self._report_clocks = clocks, of_reports
        self._warnings += [one["text"] for one in self._account.get("clock_check", ())]
        return [
            replace(task, report=of_task[task.name], clock=errors[of_task[task.name]]) if task.name in of_task else task
            for task in tasks
        ]

    def _up_to_the_end(self) -> TimeSelection:
        found = TimeSelection((0,), (self._read.end,)).intersection(self._window)
        if not found.starts:
            raise NothingToTranslate(f"the trace ends at {self._read.end / 1e9:.6f} s, before the time chosen")
        return found


def _tasks(trace: Trace) -> list[TaskRows]:
    """Tasks with the names of their rows; without a name in the .row they have the one that Paraver gives them."""
    header, names = trace.header, trace.names
    nodes, tasks, threads = (names.get(level, ()) for level in ("NODE", "TASK", "THREAD"))
    found = []
    for index, task in enumerate(header.tasks):
        node = nodes[task.node - 1] if 1 <= task.node <= len(nodes) else f"node {task.node}"
        name = tasks[index] if index < len(tasks) else f"TASK 1.{index + 1}"
        rows = tuple(
            threads[row] if row < len(threads) else f"THREAD 1.{index + 1}.{row - task.first_row + 1}"
            for row in range(task.first_row, task.first_row + task.threads)
        )
        found.append(TaskRows(name, node, rows))
    return found
