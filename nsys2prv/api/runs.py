"""Runs as Python objects: `open_run` and `compare`."""

import contextlib
import inspect
import re
import textwrap
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from nsys2prv.efficiency.comparison import compare as compare_results
from nsys2prv.efficiency.efficiency_options import COMPARE_OPTIONS, CompareOptions, EfficiencyOptions
from nsys2prv.efficiency.event_input import check_size, events_of_session
from nsys2prv.efficiency.measure import measure_events
from nsys2prv.efficiency.results import ComparisonResult, EfficiencyResult
from nsys2prv.efficiency.run_events import COLLECTIONS, RunEvents
from nsys2prv.efficiency.what_if import WhatIfResult, replayed_events
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.errors import Nsys2prvError, UsageError, counted
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import disk_errors, scratch_folder
from nsys2prv.execution.workers import workers
from nsys2prv.exports.paths import check_are_reports
from nsys2prv.run.frames import clocks_frame, devices_frame, events_frame, ranks_frame
from nsys2prv.run.options import OptionSet, ReadOptions, declared_options
from nsys2prv.run.session import RunSession, seen_by_workers
from nsys2prv.sources.registry import SOURCES
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import wording

F = TypeVar("F", bound=Callable[..., Any])
_PRIVATE_TYPE = re.compile(r"\b(?!Path\b|None\b)[A-Z]\w+")
"""Types that options are read into: all of them are given as texts."""


def keywords(options: type[OptionSet], names: Collection[str] = ()) -> Callable[[F], F]:
    """Give a function with `**options` the signature of options, and its docstring their texts, in the place of `{options}`."""
    declared_fields = declared_options(options, names)

    def decorate(function: F) -> F:
        signature, texts = inspect.signature(function), []
        parameters = [entry for entry in signature.parameters.values() if entry.kind is not inspect.Parameter.VAR_KEYWORD]
        for option, text in declared_fields:
            default = option.default if isinstance(option.default, int | float | tuple | None) else str(option.default)
            hint = _PRIVATE_TYPE.sub("str", str(option.type))
            parameters.append(inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
            texts.append(f"{option.name}\n{textwrap.indent(textwrap.fill(_in_notebooks(text.help), 100), '    ')}")
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("{options}", "\n".join(texts))
        return function

    return decorate


def _in_notebooks(text: str) -> str:
    """The text of an option without words of the command line."""
    text = re.sub(r" \(exit code [0-9]+\)|; the exit code is [0-9]+ then", "", text)
    text = text.replace(" May be repeated.", " Several as a list.")
    return re.sub("--([a-z][a-z-]*)", lambda flag: flag[1].replace("-", "_"), text)


class NsysRun(contextlib.AbstractContextManager["NsysRun"]):
    """A run of one or several reports; `open_run` makes it.

    Nothing is read before it is needed: `reports`, `ranks`, `devices`, `clocks` and `span` look through the reports once,
    `events` reads the events of one source; `efficiency` and `whatif` read the run once, however often they are called.
    Intermediate files are removed by `close`, at the end of a `with` block, or with the object.

    Attributes
    ----------
    inputs
        Reports as they were given.
    options
        How they are read.
    """

    def __init__(self, inputs: Sequence[str | Path], options: ReadOptions) -> None:
        self.inputs, self.options = seen_by_workers(inputs, options)
        self._events: dict[str, pl.LazyFrame] = {}
        self._resources = contextlib.ExitStack()
        # Also when the run is garbage, and when Python ends.
        self._finalizer = weakref.finalize(self, self._resources.close)

    def close(self) -> None:
        """Remove intermediate files and end workers. Frames of events can't be collected afterwards."""
        self._finalizer()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = ", ".join(map(str, self.inputs[:3])) + (f" and {len(self.inputs) - 3} more" if len(self.inputs) > 3 else "")
        if not self._finalizer.alive:
            return f"<NsysRun {name}: closed>"
        try:
            parts = [counted(len(self.reports), "report")]
            ranks = sorted(self.ranks["rank"].drop_nulls().to_list())
            parts += [f"{'rank' if len(ranks) == 1 else 'ranks'} {wording.ranges(ranks)}"] if ranks else []
            parts += [f"{counted(self.devices.height, 'device')} on {counted(self.ranks['host'].n_unique(), 'host')}"]
            parts += [wording.time(self.span[1] - self.span[0])]
        except Nsys2prvError as error:
            parts = [str(error)]
        return f"<NsysRun {name}: {', '.join(parts)}>"

    @cached_property
    def _session(self) -> RunSession:
        check_are_reports(self.inputs)
        self._check_open()
        folder = self._folder = self._resources.enter_context(scratch_folder(self.options.scratch))
        options = self.options
        pool = self._resources.enter_context(workers(options.workers, options.scheduler, options.memory, [folder]))
        with disk_errors(folder.parent):
            return RunSession(self.inputs, SOURCES, options, folder, pool)

    @cached_property
    def _run_events(self) -> RunEvents:
        """Events of the run for measurements: they are read once."""
        session = self._session
        check_size(session.plan, COLLECTIONS, memory.left(self.options.memory, self.options.workers))
        with disk_errors(self._folder.parent):
            return events_of_session(session, self.inputs, COLLECTIONS)

    @property
    def reports(self) -> list[Path]:
        """Paths of the reports that can be read."""
        return [opened.report.path for opened in self._session.plan.reports]

    @property
    def ranks(self) -> pl.DataFrame:
        """One row per process with events.

        Returns
        -------
        Columns `rank` (null without one), `host`, `process` (pid), `name`, `threads` and `streams` (how many have events),
        `report` (path), `nsys` (version).
        """
        return ranks_frame(self._session.plan)

    @property
    def devices(self) -> pl.DataFrame:
        """One row per GPU that a process of the run uses.

        Returns
        -------
        Columns `host`, `device` (number on the host), `name` (model), `bus`, `uuid`, `ranks` (list).
        """
        return devices_frame(self._session.plan)

    @property
    def clocks(self) -> pl.DataFrame:
        """One row per clock: how it is synchronized with the others.

        Returns
        -------
        Columns `host`, `method`, `anchors` (number of collectives and messages used), `offset` (ns), `drift` (ppm),
        `error_median`, `error_95`, `error_largest` (what remains at them, ns), `interval` (half width of the interval that
        holds the clock, where it is widest, ns; null: not known), `contradiction` (the largest, ns). Empty when there is one
        clock only.
        """
        return clocks_frame(self._session.plan)

    @property
    def span(self) -> tuple[int, int]:
        """First and last time of the run, ns on the time axis of its events; the first is 0."""
        return 0, self._session.plan.timeline.selection.length

    @property
    def sources(self) -> list[str]:
        """Names of the sources that have events in this run, for `events`."""
        return list(dict.fromkeys(survey.source.name for opened in self._session.plan.reports for survey in opened.surveys))

    @property
    def warnings(self) -> list[str]:
        """What is unusual about reports, ranks and clocks, one sentence each."""
        return self._session.warnings

    def events(self, source: str) -> pl.LazyFrame:
        """Events of a source, such as "kernels", "nvtx", "mpi", "gpu-metrics".

        Parameters
        ----------
        source
            One of `sources`.

        Returns
        -------
        A lazy frame, one row per event, in no particular order; docs/api.md describes the columns. Times are in ns on the
        common time axis, whose 0 is the first event of the run.

        Raises
        ------
        UsageError
            When there is no such source.
        DiskFull
            When there is no space for the files.
        """
        self._check_open()
        if source not in self._events:
            session = self._session
            with disk_errors(self._folder.parent):
                self._events[source] = events_frame(session, source)
        return self._events[source]

    @keywords(EfficiencyOptions, EfficiencyOptions.__annotations__)
    def efficiency(self, **options: Any) -> EfficiencyResult:
        """Efficiency numbers of the run.

        Parameters
        ----------
        {options}

        Returns
        -------
        A result whose tables are frames: `result.tree`, `result.devices`, `result.findings`, ...; `to_html`, `to_json`,
        `to_csv` and `to_talp` write files. docs/reference/efficiency-tables.md describes all tables.

        Raises
        ------
        NoDevices
            When no process uses a GPU.
        """
        requested = EfficiencyOptions(**self._with_read_options(options))
        with memory.limited(memory.bytes_of_process(self.options.memory, 0)):
            return measure_events(self._run_events, requested)

    @keywords(WhatIfOptions, WhatIfOptions.__annotations__)
    def whatif(self, **options: Any) -> WhatIfResult:
        """The run with other durations.

        Parameters
        ----------
        {options}

        Returns
        -------
        A result whose tables are frames: without changes `result.what_if_scenarios`, standard ones one by one; else
        `result.what_if`, `result.what_if_iterations`, `result.what_if_path_totals`, `result.critical_path`.

        Raises
        ------
        UsageError
            When a change fits nothing of the run.
        NoDevices
            When no process uses a GPU.
        """
        requested = WhatIfOptions(**self._with_read_options(options))
        with memory.limited(memory.bytes_of_process(self.options.memory, 0)):
            return replayed_events(self._run_events, requested)

    @keywords(TranslateOptions, TranslateOptions.__annotations__)
    def translate(self, out: str | Path, **options: Any) -> Summary:
        """Write a Paraver trace.

        Parameters
        ----------
        out
            Path of the output without suffix: OUT.prv, OUT.pcf, OUT.row, OUT.json and OUT.cfgs are written.
        {options}

        Returns
        -------
        The path of the trace, `prv`, and `content`, which is the content of OUT.json; `as_text()` sums it up.

        Raises
        ------
        OutputError
            When it can't be written; a former output stays as it was.
        """
        return translate(self.inputs, Path(out), TranslateOptions(**self._with_read_options(options)))

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("the run is closed; open it again with open_run")

    def _with_read_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of one call, with those with which the run was opened."""
        read = {option.name: getattr(self.options, option.name) for option in fields(ReadOptions)}
        for name in read.keys() & options.keys():
            instead = "; to measure a part of the run: efficiency(window='BEGIN:END')" if name == "time" else ""
            raise UsageError(
                f"{name}: this is an option of open_run, which reads the reports: open_run(..., {name}=...){instead}"
            )
        return {**read, **options}


@keywords(ReadOptions)
def open_run(reports: str | Path | Iterable[str | Path], *, progress: bool | None = None, **options: Any) -> NsysRun:
    """Open the reports of a run.

    Parameters
    ----------
    reports
        A report (.nsys-rep, .sqlite, a folder of Parquet or Arrow tables), a folder that contains reports, a glob, or several
        of them.
    progress
        Show progress on stderr; None: when it is a terminal.
    {options}

    Raises
    ------
    UsageError
        When an option makes no sense. Errors of reports are raised when they are read.
    """
    inputs = [reports] if isinstance(reports, str | Path) else list(reports)
    return NsysRun(inputs, ReadOptions(progress=progress, **options))


@keywords(CompareOptions, COMPARE_OPTIONS)
def compare(runs: Sequence[str | Path | NsysRun | EfficiencyResult], **options: Any) -> ComparisonResult:
    """Compare runs with the first of them.

    Parameters
    ----------
    runs
        For each run a path (of a report, a folder or a glob of reports, or what `to_json` of an efficiency result
        wrote), an opened run, or an efficiency result.
    {options}

    Returns
    -------
    A result whose tables are frames: `result.runs`, `result.metrics`, `result.matched`, `result.changes`; `result.gate` has
    the result of each condition of `fail_if`, and nothing is raised for it. `as_markdown` is for a merge request.

    Raises
    ------
    UsageError
        When there are fewer than two runs, or they were measured with different policies for NCCL kernels.
    """
    compare_options = CompareOptions(**options)
    measuring = {"nccl": compare_options.nccl, "window": compare_options.window}
    results = [run.efficiency(**measuring) if isinstance(run, NsysRun) else run for run in runs]
    return compare_results(results, compare_options)
