"""A run of several reports: reports are opened, the plan that all steps share is made, and events are read group by group.

A report that breaks off while it is read ends the work, or is left out with `keep_going`: then a new plan is made for the
others, and they are read again.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from nsys2prv.errors import ReportError, UnrelatedReports
from nsys2prv.execution.memory import REPORTS_AT_ONCE, ROWS_OF_PART
from nsys2prv.execution.output_files import make_folder
from nsys2prv.execution.progress import Bar, progress_bar
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.run.clock_check import disagreement_text
from nsys2prv.run.collect import Collected, ReportGroup, ReportPart, collect
from nsys2prv.run.open import BrokenReports, LeftOut, OpenedReport, open_reports
from nsys2prv.run.option_values import NvtxRange
from nsys2prv.run.plan import RunPlan, make_plan
from nsys2prv.run.ranks import host_from, rank_from
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.sources.source import Source
from nsys2prv.timeline.labels import EarlierLabels
from nsys2prv.timeline.reader import Share
from nsys2prv.timeline.rows import Rows
from nsys2prv.vocabulary.kernel_families import read_rules

R = TypeVar("R", bound=ReadOptions)
C = TypeVar("C", bound=Collected[Any])

_ROWS_OF_GROUP = 400_000
"""Rows of tables above which a group gets no more reports: launch lines of all of them wait for the last."""


def seen_by_workers(arguments: Sequence[str | Path], options: R) -> tuple[list[str | Path], R]:
    """Arguments and options whose paths mean the same to the workers of a cluster, which have other working folders."""
    if not options.scheduler:
        return list(arguments), options
    scratch = options.scratch.absolute() if options.scratch is not None else None
    return [Path(argument).absolute() for argument in arguments], replace(options, scratch=scratch)


class RunSession:
    """Reports of one run, opened and planned.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    sources
        What is read of them.
    options
        How they are read.
    folder
        For intermediate files.
    workers
        Who does the work.
    nvtx
        Keep only the time inside these ranges.
    fold_streams
        Treat all streams of a device and process as one.
    earlier
        Labels that keep their numbers.
    fit
        Makes the rows keep the limits of an output format.

    Attributes
    ----------
    plan
        What is known of the run. It is replaced when a report breaks off and is left out.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user; here as in `read`.
    """

    plan: RunPlan

    def __init__(
        self,
        arguments: Sequence[str | Path],
        sources: tuple[Source, ...],
        options: ReadOptions,
        folder: Path,
        workers: Workers,
        *,
        nvtx: NvtxRange | None = None,
        fold_streams: bool = False,
        earlier: EarlierLabels | None = None,
        fit: Callable[[Rows], Rows] | None = None,
    ) -> None:
        self._plan_of = partial(
            make_plan,
            workers=workers,
            options=options,
            rank_in=rank_from(options.rank_pattern) if options.rank_pattern is not None else None,
            host_in=host_from(options.host_pattern) if options.host_pattern is not None else None,
            families=read_rules(options.kernel_families),
            nvtx=nvtx,
            earlier=earlier,
            fit=fit,
        )
        self._progress = options.progress
        self._keep_going = options.keep_going
        self._folder = folder
        self._workers = workers
        self._broken = BrokenReports(options.keep_going)
        self._numbers = itertools.count()
        workers.prepare(open_reports)
        with self.bar("surveying", 0, "table") as bar:
            opened = open_reports(
                arguments,
                sources,
                workers=workers,
                export=NsysExport(options.nsys),
                folder=folder,
                broken=self._broken,
                bar=bar,
                # A time that a user read in a trace of all sources must mean the same in a trace of some.
                with_other_spans=options.time is not None,
                fold_streams=fold_streams,
            )
        self._make_plan(opened)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Reports that could not be read, and why."""
        return tuple(self._broken.left_out)

    @property
    def warnings(self) -> list[str]:
        """What is unusual about reports, ranks and clocks, one sentence each."""
        plan = self.plan
        return [
            *(f"left out: {left_out.error}" for left_out in self.left_out),
            *dict.fromkeys(warning for opened in plan.reports for warning in opened.identity.warnings),
            *(issue.text for issue in plan.run.issues),
            *plan.axis.warnings,
            *map(disagreement_text, plan.axis.disagreements),
        ]

    def read(self, start: Callable[[Path, Sequence[OpenedReport]], C], rows: Callable[[OpenedReport], int], what: str) -> C:
        """Read the events of all reports, group by group. When one breaks off, the others are planned and read again.

        Parameters
        ----------
        start
            Makes what is collected of some reports, empty, with a new folder; it can be pickled.
        rows
            How many rows are read of a report.
        what
            The work, for the progress bar.

        Returns
        -------
        What was collected of all reports; `plan` is the one that it belongs to.
        """
        while True:
            folder = self._folder / f"attempt{next(self._numbers)}"
            make_folder(folder)
            collected = start(folder / "all", self.plan.reports)
            broken = self._read_groups(start, folder, rows, what, collected)
            if not broken:
                return collected
            # What was read has the rows of reports that are left out now.
            shutil.rmtree(folder, ignore_errors=True)
            self._make_plan([opened for opened in self.plan.reports if opened not in broken])

    def _read_groups(
        self,
        start: Callable[[Path, Sequence[OpenedReport]], C],
        folder: Path,
        rows: Callable[[OpenedReport], int],
        what: str,
        collected: C,
    ) -> list[OpenedReport]:
        """Read all groups; the result is the reports that broke off."""
        is_here, reports = self._workers.is_here, self.plan.reports
        shared = Shared(self.plan.timeline, None if is_here else folder / "plan.pickle")
        of_reports = [rows(opened) for opened in reports]
        shares = self._workers.shares(of_reports, ROWS_OF_PART, _ROWS_OF_GROUP)
        parts = [
            ReportPart(index, reports[index], Share(number, of)) for index, of in enumerate(shares) for number in range(of)
        ]
        sizes = [of_reports[part.index] // part.share.of for part in parts]
        places = self._workers.groups(sizes, REPORTS_AT_ONCE, _ROWS_OF_GROUP)
        groups = [
            ReportGroup(shared, tuple(parts[place] for place in of_group), folder, not is_here, self._keep_going)
            for of_group in places
        ]
        broken: dict[int, OpenedReport] = {}

        def leave_out(errors: Mapping[int, ReportError]) -> None:
            for index, error in errors.items():
                # Each share of a report may break off.
                if index not in broken:
                    self._broken.leave_out(reports[index].report.path, error)
                    broken[index] = reports[index]

        with self.bar(what, sum(of_reports), "event") as bar:
            step = partial(collect, start, progress=bar.update) if is_here else partial(collect, start)
            for of_group, of_reports_read in zip(places, self._workers.map(step, groups), strict=True):
                leave_out(of_reports_read.broken)
                if not broken:
                    collected.absorb(of_reports_read)
                if not is_here:
                    bar.update(sum(sizes[place] for place in of_group))
            if not broken:
                leave_out(collected.finish(shared, reports, self._workers))
        return list(broken.values())

    def _make_plan(self, opened: Sequence[OpenedReport]) -> None:
        """Plan the run, again without a report that breaks off."""
        rest = list(opened)
        while True:
            self._broken.check_rest(rest)
            try:
                folder = self._folder / f"clocks{next(self._numbers)}"
                with self.bar("planning"):
                    self.plan = self._plan_of(rest, folder)
                return
            except UnrelatedReports:
                # Which of them to leave out is not known.
                raise
            except ReportError as error:
                rest = self._broken.without(rest, error)

    def bar(self, what: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Bar]:
        """A progress bar, shown as the options say; without a unit, it shows how long the work takes."""
        return progress_bar(what, unit, total, shown=self._progress)
