"""Paths come in; reports that are opened, described and surveyed leave.

Reports that can't be read end the work, or are left out with `keep_going`."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.errors import DamagedReport, ExportError, Nsys2prvError, ReportError, SameReportTwice
from nsys2prv.execution.memory import REPORTS_AT_ONCE
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.progress import Bar, no_progress
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Identity, Report, describe, find_reports, open_report
from nsys2prv.exports.columns import pid_of, process_of
from nsys2prv.exports.stored_columns import StoredTables, store_columns
from nsys2prv.sources.cuda.api_calls import CALLS, failed_calls, named_failures
from nsys2prv.sources.cuda.kernels import KERNELS
from nsys2prv.sources.host.profiled import TRACED_TABLES
from nsys2prv.sources.registry import SOURCES, needed_columns, present_sources
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.timeline.survey import Extent, Survey, apart, measures, survey, whole_survey
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS, MOST_DEVICES
from nsys2prv.vocabulary.wording import ranges

T = TypeVar("T")

_LAUNCH = r"^cu(da)?(Graph)?Launch($|Kernel|Cooperative|Grid|_)"
"""Names of calls that launch kernels or graphs, not functions of the host."""


@dataclass(frozen=True, eq=False)
class OpenedReport:
    """A report that was opened and surveyed; spans are first and last times in ns of the report."""

    report: Report
    view: Report  # as it is read: perhaps with all streams of a device as one
    reported: Identity  # as the report has it
    identity: Identity  # with the host and ranks that it has in the run
    surveys: tuple[Survey, ...]
    other_spans: tuple[tuple[int, int], ...] = ()  # of events that are not read
    signature: Hashable = None  # what a copy of it would have in common; None: not known
    sync_points: SyncPoints | None = None  # what ties its clock to others, once it was read

    @property
    def host(self) -> str:
        """Its host in the run."""
        return self.identity.host

    @property
    def rows(self) -> int:
        """Rows of its tables that the sources read, for progress."""
        return sum(survey.rows for survey in self.surveys)

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last time, ns of the report; None without events."""
        spans = [*(survey.span for survey in self.surveys if survey.span is not None), *self.other_spans]
        return (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None


@dataclass(frozen=True)
class LeftOut:
    """A report that could not be read."""

    path: Path
    error: Nsys2prvError


class BrokenReports:
    """What to do with reports that can't be read: with `keep_going` they are left out, else the error is raised."""

    def __init__(self, keep_going: bool) -> None:
        self.keep_going = keep_going
        self.left_out: list[LeftOut] = []

    def leave_out(self, path: Path, error: Nsys2prvError) -> None:
        """Note that a report is left out, or raise why it would have to be."""
        if not self.keep_going:
            raise error
        self.left_out.append(LeftOut(path, error))

    def check_rest(self, reports: Sequence[OpenedReport]) -> None:
        """Raises what was wrong with the first report when none is left."""
        if not reports and self.left_out:
            raise self.left_out[0].error

    def without(self, reports: Sequence[OpenedReport], error: ReportError) -> list[OpenedReport]:
        """The reports but the one that an error is about, which is left out; raises the error when it is about none."""
        broken = next((opened for opened in reports if opened.report.is_at(error.path)), None)
        if broken is None:
            raise error
        self.leave_out(broken.report.path, error)
        return [opened for opened in reports if opened is not broken]


_Results = list[tuple[Survey | Nsys2prvError, list[Extent | Nsys2prvError]]]
"""What the survey of each source and the measures of its extent gave."""


@dataclass
class _Progress:
    """Shows how many tables are done, of about as many as there are."""

    bar: Bar
    reports: int
    opened: int = 0
    tables: int = 0

    def expect(self, reports: int, tables: int) -> None:
        """Reports were opened and have tables."""
        self.opened += reports
        self.tables += tables
        self.bar.total = round(self.tables * self.reports / self.opened)


def open_reports(
    arguments: Sequence[str | Path], survey_group: ReportSurvey, workers: Workers, broken: BrokenReports, bar: Bar
) -> list[OpenedReport]:
    """Open, describe and survey reports, some at a time: files, folders and globs; `bar` shows the tables that are done."""
    paths = find_reports(arguments, (lambda error: broken.leave_out(error.path, error)) if broken.keep_going else None)
    groups = [[paths[index] for index in group] for group in workers.groups([1] * len(paths), REPORTS_AT_ONCE)]
    # A worker has fewer threads than this process, and has to start first.
    workers = Workers() if len(groups) == 1 else workers
    progress = _Progress(bar, len(paths))
    step = partial(survey_group, progress=progress) if workers.is_here else survey_group
    reports: list[OpenedReport] = []
    signatures: dict[Hashable, Path] = {}
    for of_group, results in zip(groups, workers.map(step, groups), strict=True):
        for path, result in zip(of_group, results, strict=True):
            try:
                opened = _without_error(result)
                first = signatures.setdefault(opened.signature, path)
                if opened.signature is not None and first is not path:
                    raise SameReportTwice(first, path, "same host, same processes, same start of the session")
                reports.append(opened)
            except (ReportError, ExportError) as error:
                broken.leave_out(path, error)
        if not workers.is_here:
            tables = sum(len(result.surveys) for result in results if isinstance(result, OpenedReport))
            progress.expect(len(of_group), tables)
            bar.update(tables)
    broken.check_rest(reports)
    return reports


@dataclass(frozen=True)
class ReportSurvey:
    """Opens, describes and surveys groups of reports, in any process."""

    sources: tuple[Source, ...]  # what is read
    nsys: Path | None  # as of `open_report`
    folder: Path  # for intermediate files
    keep_going: bool  # whether other reports are read after one that can't be
    with_other_spans: bool  # whether the first and last time of events of other sources are looked for
    fold_streams: bool  # whether all streams of a device and process are one

    def __call__(self, paths: Sequence[Path], progress: _Progress | None = None) -> list[OpenedReport | Nsys2prvError]:
        """Survey some reports; of one that can't be read, the error (with `keep_going`)."""
        opened = [self._guarded(partial(open_report, path, self.nsys)) for path in paths]
        reports = [report for report in opened if isinstance(report, Report)]
        present = {report: present_sources(report, self.sources) for report in reports}
        stored = {
            report.tables: needed_columns(report, sources)
            for report, sources in present.items()
            if isinstance(report.tables, StoredTables)
        }
        if progress is not None:
            progress.expect(len(paths), sum(map(len, [*present.values(), *stored.values()])))
        update = progress.bar.update if progress is not None else no_progress
        # For this attempt alone: another worker may have died over the same group.
        folder = self.folder / f"survey-{secrets.token_hex(4)}"
        store_columns(stored, folder / "columns", update)
        surveys = self._survey_all(present, folder, update)
        return [
            self._guarded(partial(self._described, report, surveys[report], folder / f"beside{index}"))
            if isinstance(report, Report)
            else report
            for index, report in enumerate(opened)
        ]

    def _guarded(self, step: Callable[[], T]) -> T | ReportError | ExportError:
        """What a step gives; with `keep_going` an error is a result: it must not end the work on other reports."""
        try:
            return step()
        except (ReportError, ExportError) as error:
            if not self.keep_going:
                raise
            return error

    def _view(self, report: Report) -> Report:
        return report.folded if self.fold_streams else report

    def _survey_all(
        self, present: Mapping[Report, Sequence[Source]], folder: Path, update: Callable[[int], object]
    ) -> dict[Report, _Results]:
        """What each source has in each report, and its extents, or the error at which one breaks off."""
        pairs = [(report, source) for report, sources in present.items() for source in sources]
        # Sources share measures: each is taken once.
        needed = [[(report, measure) for measure in measures(source, report)] for report, source in pairs]
        distinct = list(dict.fromkeys(itertools.chain.from_iterable(needed)))

        def run(step: Callable[[], Any], tables: int, stop: Stop) -> Any:
            stop.check()
            try:
                return self._guarded(step)
            finally:
                update(tables)

        steps: list[tuple[Callable[[], Any], int]] = [
            # The longest work first: then threads are busy to the end.
            *(
                (partial(survey, self._view(report), source, folder / f"overlaps/{number}"), 1)
                for number, (report, source) in enumerate(pairs)
            ),
            *((partial(measure.of, report), 0) for report, measure in distinct),
            # Not before tables are read: names of threads and ranks can be in a long one. Asked again, it is there at once.
            *((partial(describe, report), 0) for report in present),
        ]
        results = run_all([partial(run, step, tables) for step, tables in steps])
        extents = dict(zip(distinct, results[len(pairs) :], strict=False))
        of_report: dict[Report, _Results] = {report: [] for report in present}
        for (report, _), surveyed, of_pair in zip(pairs, results, needed, strict=False):
            of_report[report].append((surveyed, [extents[key] for key in of_pair]))
        return of_report

    def _described(self, report: Report, results: _Results, folder: Path) -> OpenedReport:
        surveys = [
            _without_error(surveyed).within([_without_error(extent) for extent in extents]) for surveyed, extents in results
        ]
        surveys = [survey for survey in surveys if not survey.is_empty]
        view = self._view(report)
        spans = self._other_spans(report) if self.with_other_spans else ()
        _check_limits(report, surveys)
        surveys = _with_existing_rows(view, apart(view, surveys, folder))
        described = describe(report)
        identity = with_events_only(described, surveys)
        if lost := _lost_processes(surveys) if KERNELS in self.sources else set():
            failures = named_failures(failed_calls(report).filter("ends_work"))
            why = f"calls failed: {failures}" if failures else "nsys lost them"
            text = f"no kernel is recorded of processes that launch some (pid {ranges(map(pid_of, lost))}): {why}"
            identity = replace(identity, warnings=(*identity.warnings, text))
        processes = hashlib.blake2b(repr(sorted(described.processes)).encode(), digest_size=8).hexdigest()
        signature = None if described.utc_ns is None else (described.host, described.utc_ns, processes)
        return OpenedReport(report, view, identity, identity, tuple(surveys), spans, signature)

    def _other_spans(self, report: Report) -> tuple[tuple[int, int], ...]:
        """First and last times of events of the sources that are not read."""
        unread = tuple(source for source in SOURCES if source not in self.sources)
        spans = [whole_survey(report, source).span for source in present_sources(report, unread)]
        return tuple(span for span in spans if span is not None)


def _without_error(result: T | Nsys2prvError) -> T:
    if isinstance(result, Nsys2prvError):
        raise result
    return result


def _with_existing_rows(report: Report, surveys: list[Survey]) -> list[Survey]:
    """Surveys; where all of them are of sources that make no rows, with those that other sources would make."""
    if not all(survey.source.existing_rows_only for survey in surveys):
        return surveys
    kinds = {survey.source.row for survey in surveys}
    makers = tuple(source for source in SOURCES if source.row in kinds and not source.existing_rows_only)
    unread = [survey(report, source) for source in present_sources(report, makers)]

    def existing(keys: pl.DataFrame, kind: RowKind) -> pl.DataFrame:
        frames = [survey.keys for survey in unread if survey.source.row is kind]
        return keys.join(pl.concat([keys.clear(), *frames]), on=keys.columns, how="semi", maintain_order="left")

    return [replace(empty, existing=existing(empty.keys, empty.source.row)) for empty in surveys]


def _check_limits(report: Report, surveys: Sequence[Survey]) -> None:
    """Raise DamagedReport when there are more devices than can be, or events are so far apart that a time must be wrong: the
    trace would be empty for centuries."""
    devices = _ids(surveys, "deviceId")
    if len(devices) > MOST_DEVICES:
        raise DamagedReport(report.path, f"its events are on {len(devices):,} devices")
    timed = [(survey.span, survey.source.table) for survey in surveys if survey.span is not None]
    if not timed:
        return
    (first, _), begins = min(timed)
    (_, last), ends = max(timed, key=lambda survey: survey[0][1])
    if last - first > LONGEST_SESSION_NS:
        days = (last - first) / 86_400e9
        raise DamagedReport(
            report.path, f"from {first:,} ns in {begins} to {last:,} ns in {ends} are {days:,.0f} days: a time is wrong"
        )


def with_events_only(identity: Identity, surveys: Sequence[Survey]) -> Identity:
    """An identity without threads and processes that have no events: a machine has thousands of them with names."""
    traced = [survey for survey in surveys if TRACED_TABLES.fullmatch(survey.source.table)]
    of_events = identity.of_events(_processes(surveys), _ids(surveys, "globalTid"))
    return replace(of_events, traced=frozenset(_processes(traced)))


def _lost_processes(surveys: Sequence[Survey]) -> set[int]:
    """Processes, by globalPid, that launch kernels or graphs, of which none is recorded."""
    calls = (survey.groups for survey in surveys if survey.source is CALLS)
    launching = (groups.filter(pl.col("label").str.contains(_LAUNCH))["globalTid"] for groups in calls)
    return set(map(process_of, itertools.chain.from_iterable(launching))) - processes_with_kernels(surveys)


def processes_with_kernels(surveys: Sequence[Survey]) -> set[int]:
    """Processes, by globalPid, with kernels or graphs."""
    return _processes([survey for survey in surveys if not set(event_types.KERNEL_TYPES).isdisjoint(survey.source.types)])


def _processes(surveys: Sequence[Survey]) -> set[int]:
    """Processes, by globalPid, that have events."""
    return set(map(process_of, _ids(surveys, "globalTid") | _ids(surveys, "globalPid")))


def _ids(surveys: Sequence[Survey], column: str) -> set[int]:
    return {number for survey in surveys if column in survey.keys.columns for number in survey.keys[column].unique()}
