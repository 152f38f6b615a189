"""Reports on their way through a translation: paths come in; reports that are opened, described and surveyed leave.

Reports that can't be read end the translation, or are left out when the user wants to go on without them.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.errors import ExportError, Nsys2prvError, ReportError, SameReportTwice
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.sizes import REPORTS_AT_ONCE
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Identity, Report, describe, find_reports, open_report
from nsys2prv.exports.identity import process_of
from nsys2prv.exports.nsys import NsysExport
from nsys2prv.sources.registry import SOURCES, present_sources
from nsys2prv.sources.source import Source
from nsys2prv.timeline.survey import Extent, Measure, Survey, joined, measures, survey, whole_survey

E = TypeVar("E", bound=Nsys2prvError)


class Bar(Protocol):
    """Shows progress."""

    total: float | None

    def update(self, n: float | None = 1) -> object: ...


@dataclass(eq=False)
class OpenedReport:
    """A report on its way through the translation.

    Attributes
    ----------
    report
        The report.
    view
        The same as it is to be translated: perhaps with all streams of a device as one.
    told
        Who it says it is.
    identity
        Who it is among the others: settled host and ranks.
    surveys
        What each source found in it.
    tables
        The account of its tables.
    other_spans
        First and last times of events that are not translated.
    anchors
        What ties its clock to others, when that was looked for.
    """

    report: Report
    view: Report
    told: Identity
    identity: Identity
    surveys: list[Survey] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    other_spans: list[tuple[int, int]] = field(default_factory=list)
    anchors: SyncPoints | None = None

    @property
    def rows(self) -> int:
        """Rows of its tables that the sources look through, for progress."""
        return sum(found.rows for found in self.surveys)

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last time in its own time, ns; None without events."""
        spans = [found.span for found in self.surveys if found.span is not None] + self.other_spans
        return (min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None


@dataclass(frozen=True)
class LeftOut:
    """A report that could not be read, and what was wrong with it."""

    path: Path
    error: Nsys2prvError


class BrokenReports:
    """What to do with reports that can't be read.

    Parameters
    ----------
    keep_going
        Leave them out instead of raising what is wrong with them.
    """

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

    def without(self, reports: list[OpenedReport], step: Callable[[], None]) -> None:
        """Do a step over all reports; again without the one at which it breaks off."""
        while True:
            try:
                step()
                return
            except ReportError as error:
                broken = next((opened for opened in reports if opened.report.is_at(error.path)), None)
                if broken is None:
                    raise
                self.leave_out(broken.report.path, error)
                reports.remove(broken)
                self.check_rest(reports)


@dataclass(frozen=True)
class _Look:
    """How reports are looked over; the attributes are those of `open_reports`."""

    sources: tuple[Source, ...]
    export: NsysExport
    folder: Path
    keep_going: bool
    with_other_spans: bool
    fold_streams: bool


@dataclass(frozen=True)
class _Seen:
    """A report that was looked over, and what it has in common with a copy of it; None where that is not told."""

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
        What is to be translated.
    workers
        Who does it.
    export
        How .nsys-rep files are exported.
    folder
        For intermediate files.
    broken
        What to do with reports that can't be read.
    bar
        Told of each table that is done.
    with_other_spans
        Look for the first and last time of what is not translated too.
    fold_streams
        Take all streams of a device and process for one.
    """
    paths = find_reports(arguments, (lambda error: broken.leave_out(error.path, error)) if broken.keep_going else None)
    look = Shared(
        _Look(sources, export, folder, broken.keep_going, with_other_spans, fold_streams),
        None if workers.is_here else folder / "look.pickle",
    )
    pieces = [(look, tuple(paths[index] for index in group)) for group in workers.groups([1] * len(paths), REPORTS_AT_ONCE)]
    progress = _Progress(bar, len(paths))
    step = partial(_look_over, progress=progress) if workers.is_here else _look_over
    reports: list[OpenedReport] = []
    signatures: dict[Hashable, Path] = {}
    for (_, of_piece), results in zip(pieces, workers.map(step, pieces), strict=True):
        for path, result in zip(of_piece, results, strict=True):
            try:
                if isinstance(result, Nsys2prvError):
                    raise result
                if result.signature is not None:
                    if result.signature in signatures:
                        why = "same host, same processes, same begin of the session"
                        raise SameReportTwice(signatures[result.signature], path, why)
                    signatures[result.signature] = path
            except (ReportError, ExportError) as error:
                broken.leave_out(path, error)
                continue
            reports.append(result.opened)
        if not workers.is_here:
            tables = sum(result.tables for result in results if isinstance(result, _Seen))
            progress.expect(len(of_piece), tables)
            progress.update(tables)
    broken.check_rest(reports)
    return reports


def _look_over(piece: tuple[Shared[_Look], tuple[Path, ...]], progress: _Progress | None = None) -> list[_Seen | Nsys2prvError]:
    """Look reports over that lie next to each other; of one that can't be read, the error (with `keep_going`)."""
    look, paths = piece[0].value, piece[1]
    results: list[_Seen | Nsys2prvError | None] = [None] * len(paths)
    there: dict[int, OpenedReport] = {}
    for index, path in enumerate(paths):
        try:
            report = open_report(path, look.export)
            identity = describe(report)
        except (ReportError, ExportError) as error:
            results[index] = _unless(look.keep_going, error)
        else:
            there[index] = OpenedReport(report, report.folded if look.fold_streams else report, identity, identity)
    found = {opened: present_sources(opened.report, look.sources) for opened in there.values()}
    if progress is not None:
        progress.expect(len(paths), sum(map(len, found.values())))
    tell = progress.update if progress is not None else no_progress
    # Of this attempt alone: another worker may have died over the same piece.
    folder = look.folder / f"overlaps-{secrets.token_hex(4)}"
    # With keep_going an error is a result: it must not end the work on other reports.
    for (index, opened), result in zip(there.items(), _survey(found, folder, look.keep_going, tell), strict=True):
        try:
            if isinstance(result, ReportError):
                raise result
            opened.surveys = result
            if look.with_other_spans:
                others = tuple(source for source in SOURCES if source not in look.sources)
                spans = [whole_survey(opened.report, source).span for source in present_sources(opened.report, others)]
                opened.other_spans = [span for span in spans if span is not None]
        except ReportError as error:
            results[index] = _unless(look.keep_going, error)
            continue
        signature = _signature(opened.told)
        _forget_what_has_no_events(opened)
        results[index] = _Seen(opened, signature, len(found[opened]))
    return [result for result in results if result is not None]


def no_progress(_done: int) -> None:
    """What learns how much is done, where nobody looks."""


def _signature(identity: Identity) -> Hashable:
    if identity.utc_ns is None:
        return None
    processes = hashlib.blake2b(repr(sorted(identity.processes)).encode(), digest_size=8).hexdigest()
    return identity.host, identity.utc_ns, processes


def _survey(
    sources: dict[OpenedReport, list[Source]], folder: Path, keep_going: bool, tell: Callable[[int], object]
) -> list[list[Survey] | ReportError]:
    """What the sources find in each report, or the error at which one breaks off."""
    found = [(opened, source) for opened, of_report in sources.items() for source in of_report]

    def look(opened: OpenedReport, source: Source, number: int, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return survey(opened.view, source, folder / f"{number}")
        except ReportError as error:
            return _unless(keep_going, error)
        finally:
            tell(1)

    def measure(opened: OpenedReport, what: Measure, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return what.of(opened.report)
        except ReportError as error:
            return _unless(keep_going, error)

    # Each once, also where several sources want it.
    wanted = [[(opened, what) for what in measures(source, opened.report)] for opened, source in found]
    distinct = list(dict.fromkeys(itertools.chain.from_iterable(wanted)))
    # The longest work first: threads are busy to the end.
    work = [partial(look, opened, source, number) for number, (opened, source) in enumerate(found)]
    results = run_all([*work, *(partial(measure, opened, what) for opened, what in distinct)])
    measured = dict(zip(distinct, results[len(found) :], strict=True))
    of_report: dict[OpenedReport, list[Survey] | ReportError] = {opened: [] for opened in sources}
    for (opened, _), looked, asked in zip(found, results[: len(found)], wanted, strict=True):
        former = of_report[opened]
        if isinstance(former, ReportError):
            continue
        extents = [measured[one] for one in asked]
        failed = next((one for one in (looked, *extents) if isinstance(one, ReportError)), None)
        if failed is not None:
            of_report[opened] = failed
            continue
        assert isinstance(looked, Survey)
        surveyed = looked.within(joined([one for one in extents if isinstance(one, Extent)]))
        former += [] if surveyed.is_empty else [surveyed]
    return list(of_report.values())


def _unless(keep_going: bool, error: E) -> E:
    if not keep_going:
        raise error
    return error


def _forget_what_has_no_events(opened: OpenedReport) -> None:
    """A machine has thousands of threads and processes with names: only those with events get rows."""
    keys = [found.keys for found in opened.surveys]
    tids = {tid for key in keys if "globalTid" in key.columns for tid in key["globalTid"].to_list()}
    pids = {process_of(pid) for key in keys if "globalPid" in key.columns for pid in key["globalPid"].to_list()}
    opened.told = opened.identity = opened.told.of_events(pids | {process_of(tid) for tid in tids}, tids)
