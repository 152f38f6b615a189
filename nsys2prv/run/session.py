"""A run of several reports: they are opened, the plan that all steps share is made, and events are read group by group.

A report that breaks off while it is read ends the work, or is left out with `keep_going`: then a new plan is made for the
others, and they are read again."""

import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from nsys2prv.clocks.agreement import BETWEEN_HOSTS, INSIDE_HOST, MESSAGE, Disagreement
from nsys2prv.clocks.align import Axis, align
from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.errors import (
    ClocksDisagree,
    InconsistentRun,
    NothingToTranslate,
    ReportError,
    UnrelatedReports,
    counted,
    first_of,
)
from nsys2prv.execution.memory import REPORTS_AT_ONCE, ROWS_OF_PART
from nsys2prv.execution.output_files import make_folder
from nsys2prv.execution.progress import Bar, progress_bar
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.run.collect import Collected, ReportGroup, ReportPart, collect
from nsys2prv.run.open import BrokenReports, LeftOut, OpenedReport, ReportSurvey, open_reports
from nsys2prv.run.options import NvtxRange, ReadOptions, TimeRange
from nsys2prv.run.ranks import RanksAndHosts, check_related, host_from, rank_from, resolve_ranks
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.source import Source
from nsys2prv.timeline.labels import EarlierLabels, Labels
from nsys2prv.timeline.reader import Share, TimelinePlan
from nsys2prv.timeline.rows import Rows, arrange
from nsys2prv.timeline.time_axis import TimeSelection
from nsys2prv.vocabulary.name_rules import read_rules
from nsys2prv.vocabulary.wording import did_you_mean, ranges, ranked_warnings, time


def disagreement_text(disagreement: Disagreement) -> str:
    """A sentence with the hosts and the size."""
    size, first, last = time(disagreement.size), disagreement.hosts[0], disagreement.hosts[-1]
    collectives, messages = (counted(disagreement.count, what) for what in ("collective", "message"))
    between = f"from {first} to {last}" if len(disagreement.hosts) > 1 else f"inside {first}"
    texts = {
        INSIDE_HOST: f"as placed, ranks of {first} end {collectives} before others of it have begun them, by up to {size}: the "
        f"times of their reports do not fit together",
        MESSAGE: f"as placed, {messages} {between} arrive up to {size} before they are sent: the clocks do not fit together",
        BETWEEN_HOSTS: f"as placed, ranks of {first} end {collectives} before ranks of {last} have begun them, by up to "
        f"{size} more than the intervals of their clocks allow",
    }
    return texts[disagreement.what]


@dataclass(frozen=True)
class RunPlan:
    """What is known of a run before its events are read; `timeline` is what the reader of events needs."""

    reports: tuple[OpenedReport, ...]
    run: RanksAndHosts
    axis: Axis
    timeline: TimelinePlan

    @property
    def alignment(self) -> list[dict[str, Any]]:
        """How each report was placed and how well its times are known, for OUT.json.

        `first_ns`, `last_ns` are its first and last time on the axis, null without events; `clock` is the place of its clock
        among the clocks of the axis; the others as of `Placement` and `ClockError`."""
        return [
            {
                "method": placement.method,
                "offset_ns": placement.at(0),
                "drift_ppm": round(placement.drift_ppm, 4),
                **error.as_json(),
                "first_ns": placement.at(opened.span[0]) if opened.span else None,
                "last_ns": placement.at(opened.span[1]) if opened.span else None,
            }
            for opened, placement, error in zip(self.reports, self.axis.placements, self.axis.errors, strict=True)
        ]


_RECORD_MORE = "record more: nsys profile --trace=cuda,nvtx,mpi,osrt"


def _select_time(reports: Sequence[OpenedReport], axis: Axis, time: TimeRange | None, nvtx: NvtxRange | None) -> TimeSelection:
    placed = zip(reports, axis.placements, strict=True)
    ends = [placement.at(report.span[1]) for report, placement in placed if report.span is not None]
    if not ends:
        raise NothingToTranslate(
            f"{first_of(opened.report.path for opened in reports)}: no events of the sources that are read; {_RECORD_MORE}"
        )
    selection = TimeSelection((0,), (max(*ends, 1),))
    if time is not None:
        begin, length = time.begin or 0, selection.length
        end = time.end if time.end is not None else max(length, begin + 1)
        selection = selection.intersection(TimeSelection((begin,), (end,)))
        if not selection.starts:
            raise NothingToTranslate(f"the reports end {length / 1e9:.6f} s after their first event, before the time chosen")
    if nvtx is not None:
        ranges = [pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}), *_nvtx_ranges(reports, axis, nvtx)]
        selection = selection.intersection(TimeSelection.union(pl.concat(ranges)))
        if not selection.starts:
            domain = f" of domain {nvtx.domain!r}" if nvtx.domain else ""
            names = set().union(*(nvtx_ranges.names_of_ranges(opened.report) for opened in reports))
            near = did_you_mean(nvtx.name, sorted(names), "inspect --nvtx")
            raise NothingToTranslate(f"no NVTX range{domain} is called {nvtx.name!r} in the time chosen{near}")
    return selection


def _nvtx_ranges(reports: Sequence[OpenedReport], axis: Axis, nvtx: NvtxRange) -> Iterator[pl.DataFrame]:
    """Columns `start`, `end` (ns of the axis) of the ranges that fit a name."""
    requested = nvtx.name if nvtx.domain is None else f"{nvtx.name}@{nvtx.domain}"
    for opened, placement in zip(reports, axis.placements, strict=True):
        if opened.span is not None:
            names = pl.col("label"), nvtx_ranges.name_of(pl.col("label"))
            fit = (nvtx_ranges.is_called(requested, name, pl.col("domain")) for name in names)
            ranges = nvtx_ranges.all_ranges(opened.report).filter(pl.any_horizontal(*fit))
            end = pl.col("end").fill_null(opened.span[1])
            yield opened.report.collect(ranges.select(start=placement.of(pl.col("start")), end=placement.of(end)))


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


@dataclass(eq=False)
class RunSession:
    """Reports of one run, opened and planned. Raises Nsys2prvError with one sentence for the user; here as in `read`."""

    arguments: Sequence[str | Path]  # files, folders, globs
    sources: tuple[Source, ...]
    options: ReadOptions
    folder: Path  # for intermediate files
    workers: Workers
    _: KW_ONLY
    nvtx: NvtxRange | None = None  # keep only the time inside these ranges
    fold_streams: bool = False  # treat all streams of a device and process as one
    earlier: EarlierLabels | None = None  # labels that keep their numbers
    fit: Callable[[Rows], Rows] | None = None  # makes the rows keep the limits of an output format
    plan: RunPlan = field(init=False)  # replaced when a report breaks off and is left out

    def __post_init__(self) -> None:
        options = self.options
        self._rank_in = rank_from(options.rank_pattern) if options.rank_pattern is not None else None
        self._host_in = host_from(options.host_pattern) if options.host_pattern is not None else None
        self._families = read_rules(options.kernel_families)
        self._broken = BrokenReports(options.keep_going)
        self._numbers = itertools.count()
        with self.bar("surveying", 0, "table") as bar:
            survey = ReportSurvey(
                self.sources,
                options.nsys,
                self.folder,
                options.keep_going,
                # A time that a user read in a trace of all sources must mean the same in a trace of some.
                with_other_spans=options.time is not None,
                fold_streams=self.fold_streams,
            )
            opened = open_reports(self.arguments, survey, self.workers, self._broken, bar)
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

        `start` makes what is collected of some reports, empty, with a new folder; it can be pickled. `rows` is how many are
        read of a report, and `what` the work, for the progress bar. The result is of all reports; `plan` is that of it."""
        while True:
            folder = self.folder / f"attempt{next(self._numbers)}"
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
        is_here, reports = self.workers.is_here, self.plan.reports
        shared = Shared(self.plan.timeline, None if is_here else folder / "plan.pickle")
        of_reports = [rows(opened) for opened in reports]
        shares = self.workers.shares(of_reports, ROWS_OF_PART, _ROWS_OF_GROUP)
        parts = [
            ReportPart(index, reports[index], Share(number, of)) for index, of in enumerate(shares) for number in range(of)
        ]
        sizes = [of_reports[part.index] // part.share.of for part in parts]
        places = self.workers.groups(sizes, REPORTS_AT_ONCE, _ROWS_OF_GROUP)
        groups = [
            ReportGroup(shared, tuple(parts[place] for place in of_group), folder, self.options.keep_going)
            for of_group in places
        ]
        broken: dict[int, ReportError] = {}
        with self.bar(what, sum(of_reports), "event") as bar:
            step = partial(collect, start, progress=bar.update) if is_here else partial(collect, start)
            for of_group, of_reports_read in zip(places, self.workers.map(step, groups), strict=True):
                # Each share of a report may break off.
                broken |= {index: error for index, error in of_reports_read.broken.items() if index not in broken}
                if not broken:
                    collected.absorb(of_reports_read)
                if not is_here:
                    bar.update(sum(sizes[place] for place in of_group))
            if not broken:
                broken = collected.finish(shared, reports, self.workers)
        for index, error in broken.items():
            self._broken.leave_out(reports[index].report.path, error)
        return [reports[index] for index in broken]

    def _make_plan(self, opened: Sequence[OpenedReport]) -> None:
        reports = list(opened)
        while True:
            self._broken.check_rest(reports)
            try:
                with self.bar("planning"):
                    self.plan = self._plan_of(reports, self.folder / f"clocks{next(self._numbers)}")
                return
            except UnrelatedReports:
                # Which of them to leave out is not known.
                raise
            except ReportError as error:
                reports = self._broken.without(reports, error)

    def _plan_of(self, opened: Sequence[OpenedReport], folder: Path) -> RunPlan:
        """The plan of some reports; the folder is for the events that align clocks."""
        options, spans = self.options, [report.span for report in opened]
        paths, reported = [report.report.path for report in opened], [report.reported for report in opened]
        run = resolve_ranks(paths, reported, spans, self._rank_in, self._host_in, options.ranks)
        errors = [issue.text for issue in run.issues if issue.is_error]
        if options.strict and errors:
            raise InconsistentRun(errors)
        if not options.unrelated:
            check_related(paths, run.identities, spans)
        readers = [report.report for report in opened]
        axis = align(readers, run.identities, spans, options.align, folder, workers=self.workers)
        if options.strict and axis.disagreements:
            raise ClocksDisagree(map(disagreement_text, axis.disagreements))
        # Of a report alone no sync points were looked for.
        sync_points: Sequence[SyncPoints | None] = axis.sync_points or [None] * len(opened)
        reports = tuple(
            replace(report, identity=identity, sync_points=points)
            for report, identity, points in zip(opened, run.identities, sync_points, strict=True)
        )
        selection = _select_time(reports, axis, options.time, self.nvtx)
        surveys = [report.surveys for report in reports]
        rows = arrange(run.identities, surveys, options.ranks)
        if rows.table.is_empty():
            if options.ranks:
                known = ranges({rank for identity in run.identities for rank in identity.known_ranks}) or "that are not known"
                raise NothingToTranslate(f"none of the ranks chosen has events; the reports are of ranks {known}")
            said = ranked_warnings(text for identity in run.identities for text in identity.warnings)
            raise NothingToTranslate("; ".join([f"{first_of(paths)}: no events but the profiler's own; {_RECORD_MORE}", *said]))
        labels = Labels(itertools.chain.from_iterable(surveys), self.earlier, self._families)
        timeline = TimelinePlan(axis.placements, selection, self.fit(rows) if self.fit is not None else rows, labels)
        return RunPlan(reports, run, axis, timeline)

    def bar(self, what: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Bar]:
        """A progress bar, shown as the options say; without a unit, it shows how long the work takes."""
        return progress_bar(what, unit, total, shown=self.options.progress)
