"""Paths come in; reports that are opened, described and surveyed leave.

Reports that can't be read end the work, or are left out with `keep_going`.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.errors import DamagedReport, ExportError, Nsys2prvError, ReportError, SameReportTwice
from nsys2prv.execution.memory import REPORTS_AT_ONCE
from nsys2prv.execution.progress import Bar, no_progress
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import InThisProcess, Shared, Workers
from nsys2prv.exports import Identity, Report, describe, find_reports, open_report
from nsys2prv.exports.columns import process_of
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.exports.stored_columns import Needed, StoredTables, store_columns
from nsys2prv.sources.host.profiled import TRACED_TABLES
from nsys2prv.sources.registry import SOURCES, needed_columns, present_sources
from nsys2prv.sources.source import Source
from nsys2prv.timeline.survey import Extent, Measure, Survey, apart, joined, measures, survey, whole_survey
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS, MOST_DEVICES

E = TypeVar("E", bound=Nsys2prvError)


@dataclass(frozen=True, eq=False)
class OpenedReport:
    """A report that was opened and surveyed; spans are first and last times in ns of the report."""

    report: Report
    view: Report  # as it is read: perhaps with all streams of a device as one
    reported: Identity  # as the report has it
    identity: Identity  # with the host and ranks that it has in the run
    surveys: tuple[Survey, ...]
    other_spans: tuple[tuple[int, int], ...] = ()  # of events that are not read
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

    def check_rest(self, rest: Sequence[OpenedReport]) -> None:
        """Raises what was wrong with the first report when none is left."""
        if not rest and self.left_out:
            raise self.left_out[0].error

    def without(self, reports: Sequence[OpenedReport], error: ReportError) -> list[OpenedReport]:
        """The reports but the one that an error is about, which is left out; raises the error when it is about none."""
        broken = next((opened for opened in reports if opened.report.is_at(error.path)), None)
        if broken is None:
            raise error
        self.leave_out(broken.report.path, error)
        return [opened for opened in reports if opened is not broken]


@dataclass(frozen=True)
class _SurveyOptions:
    """How reports are surveyed: parameters of `open_reports`."""

    sources: tuple[Source, ...]
    export: NsysExport
    folder: Path
    keep_going: bool
    with_other_spans: bool
    fold_streams: bool


@dataclass(frozen=True, eq=False)
class _Unsurveyed:
    """A report before its survey."""

    report: Report
    view: Report


@dataclass(frozen=True)
class _Surveyed:
    """A report after its survey: what a copy of it would have in common (None: not known), and its number of tables."""

    opened: OpenedReport
    signature: Hashable
    tables: int


class _Progress:
    """Shows how many tables are done, of about as many as there are."""

    def __init__(self, bar: Bar, reports: int) -> None:
        self._bar = bar
        self._reports = reports
        self._opened = self._tables = 0

    def expect(self, reports: int, tables: int) -> None:
        """Reports were opened and found to have tables."""
        self._opened += reports
        self._tables += tables
        self._bar.total = round(self._tables * self._reports / self._opened)

    def update(self, tables: int) -> None:
        """Tables are done."""
        self._bar.update(tables)


def open_reports(
    arguments: Sequence[str | Path],
    sources: tuple[Source, ...],
    *,
    workers: Workers,
    export: NsysExport,
    folder: Path,
    broken: BrokenReports,
    bar: Bar,
    with_other_spans: bool = False,
    fold_streams: bool = False,
) -> list[OpenedReport]:
    """Open, describe and survey reports, some at a time.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    sources
        What is read of them.
    workers
        Who does it.
    export
        How .nsys-rep files are exported.
    folder
        For intermediate files.
    broken
        What to do with reports that can't be read.
    bar
        Shows the tables that are done.
    with_other_spans
        Look for the first and last time of events of other sources too.
    fold_streams
        Treat all streams of a device and process as one.
    """
    paths = find_reports(arguments, (lambda error: broken.leave_out(error.path, error)) if broken.keep_going else None)
    found = workers.groups([1] * len(paths), REPORTS_AT_ONCE)
    # A worker has fewer threads than this process, and has to start first.
    workers = InThisProcess() if len(found) == 1 else workers
    options = Shared(
        _SurveyOptions(sources, export, folder, broken.keep_going, with_other_spans, fold_streams),
        None if workers.is_here else folder / "survey.pickle",
    )
    groups = [(options, tuple(paths[index] for index in group)) for group in found]
    progress = _Progress(bar, len(paths))
    step = partial(_survey_group, progress=progress) if workers.is_here else _survey_group
    reports: list[OpenedReport] = []
    signatures: dict[Hashable, Path] = {}
    for (_, of_group), results in zip(groups, workers.map(step, groups), strict=True):
        for path, result in zip(of_group, results, strict=True):
            try:
                if isinstance(result, Nsys2prvError):
                    raise result
                if result.signature is not None:
                    if result.signature in signatures:
                        why = "same host, same processes, same start of the session"
                        raise SameReportTwice(signatures[result.signature], path, why)
                    signatures[result.signature] = path
            except (ReportError, ExportError) as error:
                broken.leave_out(path, error)
                continue
            reports.append(result.opened)
        if not workers.is_here:
            tables = sum(result.tables for result in results if isinstance(result, _Surveyed))
            progress.expect(len(of_group), tables)
            progress.update(tables)
    broken.check_rest(reports)
    return reports


def _survey_group(
    group: tuple[Shared[_SurveyOptions], tuple[Path, ...]], progress: _Progress | None = None
) -> list[_Surveyed | Nsys2prvError]:
    """Survey some reports; of one that can't be read, the error (with `keep_going`)."""
    options, paths = group[0].value, group[1]
    results: list[_Surveyed | Nsys2prvError | None] = [None] * len(paths)
    opened: dict[int, _Unsurveyed] = {}
    for index, path in enumerate(paths):
        try:
            report = open_report(path, options.export)
            opened[index] = _Unsurveyed(report, report.folded if options.fold_streams else report)
        except (ReportError, ExportError) as error:
            results[index] = _unless(options.keep_going, error)
    present = {one: present_sources(one.report, options.sources) for one in opened.values()}
    needed = _columns_to_store(present)
    if progress is not None:
        progress.expect(len(paths), sum(map(len, [*present.values(), *needed.values()])))
    update = progress.update if progress is not None else no_progress
    # For this attempt alone: another worker may have died over the same group.
    folder = options.folder / f"survey-{secrets.token_hex(4)}"
    store_columns(needed, folder / "columns", update)
    # With keep_going an error is a result: it must not end the work on other reports.
    surveys = _survey_all(present, folder / "overlaps", options.keep_going, update)
    for (index, one), found in zip(opened.items(), surveys, strict=True):
        try:
            if isinstance(found, ReportError):
                raise found
            spans = _other_spans(one.report, options) if options.with_other_spans else ()
            _check_limits(one.report, found)
            found = apart(one.view, found, folder / f"beside{index}")
            found = _with_existing_rows(one.view, found)
            described = describe(one.report)
        except ReportError as error:
            results[index] = _unless(options.keep_going, error)
            continue
        identity = _with_events_only(described, found)
        whole = OpenedReport(one.report, one.view, identity, identity, tuple(found), spans)
        results[index] = _Surveyed(whole, _signature(described), len(present[one]))
    return [result for result in results if result is not None]


def _columns_to_store(sources: Mapping[_Unsurveyed, list[Source]]) -> dict[StoredTables, Needed]:
    """What is needed of each table that is read once and stored."""
    return {
        one.report.tables: needed_columns(one.report, of_report)
        for one, of_report in sources.items()
        if isinstance(one.report.tables, StoredTables)
    }


def _other_spans(report: Report, options: _SurveyOptions) -> tuple[tuple[int, int], ...]:
    """First and last times of events of the sources that are not read."""
    others = tuple(source for source in SOURCES if source not in options.sources)
    spans = [whole_survey(report, source).span for source in present_sources(report, others)]
    return tuple(span for span in spans if span is not None)


def _with_existing_rows(report: Report, surveys: list[Survey]) -> list[Survey]:
    """Surveys; where all of them are of sources that make no rows, with those that other sources would make."""
    if not all(found.source.existing_rows_only for found in surveys):
        return surveys
    kinds = {found.source.row for found in surveys}
    others = tuple(source for source in SOURCES if source.row in kinds and not source.existing_rows_only)
    made = [survey(report, source) for source in present_sources(report, others)]

    def existing(one: Survey) -> pl.DataFrame:
        frames = [other.keys for other in made if other.source.row is one.source.row]
        return one.keys.join(pl.concat([one.keys.clear(), *frames]), on=one.keys.columns, how="semi", maintain_order="left")

    return [replace(one, existing=existing(one)) for one in surveys]


def _check_limits(report: Report, surveys: Sequence[Survey]) -> None:
    """Raise DamagedReport when there are more devices than can be, or events are so far apart that a time must be wrong: the
    trace would be empty for centuries."""
    devices = {number for survey in surveys for number in _column(survey, "deviceId")}
    if len(devices) > MOST_DEVICES:
        raise DamagedReport(report.path, f"its events are on {len(devices):,} devices")
    timed = [(survey.span, survey.source.table) for survey in surveys if survey.span is not None]
    if not timed:
        return
    (first, _), begins = min(timed)
    (_, last), ends = max(timed, key=lambda one: one[0][1])
    if last - first > LONGEST_SESSION_NS:
        days = (last - first) / 86_400e9
        raise DamagedReport(
            report.path, f"from {first:,} ns in {begins} to {last:,} ns in {ends} are {days:,.0f} days: a time is wrong"
        )


def _signature(identity: Identity) -> Hashable:
    if identity.utc_ns is None:
        return None
    processes = hashlib.blake2b(repr(sorted(identity.processes)).encode(), digest_size=8).hexdigest()
    return identity.host, identity.utc_ns, processes


def _survey_all(
    sources: dict[_Unsurveyed, list[Source]], folder: Path, keep_going: bool, update: Callable[[int], object]
) -> list[list[Survey] | ReportError]:
    """What the sources have in each report, or the error at which one breaks off."""
    pairs = [(one, source) for one, of_report in sources.items() for source in of_report]

    def look(one: _Unsurveyed, source: Source, number: int, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return survey(one.view, source, folder / f"{number}")
        except ReportError as error:
            return _unless(keep_going, error)
        finally:
            update(1)

    def identify(one: _Unsurveyed, stop: Stop) -> None:
        stop.check()
        try:
            # Not before tables are read: names of threads and ranks can be in a long one. Who asks again has it at once.
            describe(one.report)
        except ReportError as error:
            _unless(keep_going, error)

    def measure(one: _Unsurveyed, what: Measure, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return what.of(one.report)
        except ReportError as error:
            return _unless(keep_going, error)

    # Sources share measures: each is made once.
    needed = [[(one, what) for what in measures(source, one.report)] for one, source in pairs]
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(needed)))
    # The longest work first: then threads are busy to the end.
    work: list[Callable[[Stop], Survey | Extent | ReportError | None]] = [
        *(partial(look, one, source, number) for number, (one, source) in enumerate(pairs)),
        *(partial(measure, one, what) for one, what in distinct),
        *(partial(identify, one) for one in sources),
    ]
    results = run_all(work)
    measured = dict(zip(distinct, results[len(pairs) :], strict=False))
    of_report: dict[_Unsurveyed, list[Survey] | ReportError] = {one: [] for one in sources}
    for (one, _), surveyed, of_pair in zip(pairs, results[: len(pairs)], needed, strict=True):
        former = of_report[one]
        if isinstance(former, ReportError):
            continue
        extents = [measured[key] for key in of_pair]
        failed = next((result for result in (surveyed, *extents) if isinstance(result, ReportError)), None)
        if failed is not None:
            of_report[one] = failed
            continue
        assert isinstance(surveyed, Survey)
        whole = surveyed.within(joined([extent for extent in extents if isinstance(extent, Extent)]))
        former += [] if whole.is_empty else [whole]
    return list(of_report.values())


def _unless(keep_going: bool, error: E) -> E:
    if not keep_going:
        raise error
    return error


def _with_events_only(identity: Identity, surveys: Sequence[Survey]) -> Identity:
    """An identity without threads and processes that have no events: a machine has thousands of them with names."""
    tids = _ids(surveys, "globalTid")
    traced = [survey for survey in surveys if TRACED_TABLES.fullmatch(survey.source.table)]
    of_events = identity.of_events(_processes(surveys), tids)
    return replace(of_events, traced=frozenset(_processes(traced)))


def _processes(surveys: Sequence[Survey]) -> set[int]:
    """Processes, by globalPid, that have events."""
    return {process_of(number) for column in ("globalTid", "globalPid") for number in _ids(surveys, column)}


def _ids(surveys: Sequence[Survey], column: str) -> set[int]:
    return {number for survey in surveys for number in _column(survey, column)}


def _column(survey: Survey, column: str) -> list[int]:
    return survey.keys[column].unique().to_list() if column in survey.keys.columns else []
