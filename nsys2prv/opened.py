"""Reports on their way through a translation: paths come in; reports that are opened, described and surveyed leave.

Reports that can't be read end the translation, or are left out when the user wants to go on without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from nsys2prv.errors import ExportError, Nsys2prvError, ReportError, SameReportTwice
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.reports import Identity, Report, describe, find_reports, open_report
from nsys2prv.reports.identity import PID_MASK
from nsys2prv.reports.nsys import NsysExport
from nsys2prv.sources import SOURCES, Source, present_sources
from nsys2prv.timeline.survey import Extent, Survey, extent, survey, what_extends

REPORTS_AT_ONCE = 32
"""Reports that are looked over together: of these all names of processes and threads are in memory."""


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
    """

    report: Report
    view: Report
    told: Identity
    identity: Identity
    surveys: list[Survey] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    other_spans: list[tuple[int, int]] = field(default_factory=list)

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


def open_reports(
    arguments: Sequence[str | Path],
    sources: tuple[Source, ...],
    *,
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
    reports: list[OpenedReport] = []
    seen: dict[tuple[object, ...], Path] = {}
    tables = 0
    for first in range(0, len(paths), REPORTS_AT_ONCE):
        opened = list(_open(paths[first : first + REPORTS_AT_ONCE], export, broken, seen, fold_streams))
        found = {one: present_sources(one.report, sources) for one in opened}
        tables += sum(map(len, found.values()))
        bar.total = round(tables * len(paths) / min(first + REPORTS_AT_ONCE, len(paths)))
        # With keep_going an error is a result: it must not end the work on other reports.
        for one, result in zip(opened, _survey(found, folder / f"overlaps{first}", broken.keep_going, bar), strict=True):
            try:
                if isinstance(result, ReportError):
                    raise result
                one.surveys = result
                if with_other_spans:
                    others = tuple(source for source in SOURCES if source not in sources)
                    spans = [survey(one.report, source).span for source in present_sources(one.report, others)]
                    one.other_spans = [span for span in spans if span is not None]
            except ReportError as error:
                broken.leave_out(one.report.path, error)
                continue
            _forget_what_has_no_events(one)
            reports.append(one)
    broken.check_rest(reports)
    return reports


def _open(
    paths: Sequence[Path],
    export: NsysExport,
    broken: BrokenReports,
    seen: dict[tuple[object, ...], Path],
    fold_streams: bool,
) -> Iterator[OpenedReport]:
    for path in paths:
        try:
            report = open_report(path, export)
            identity = describe(report)
            if identity.utc_ns is not None:
                who = (identity.host, identity.utc_ns, hash(frozenset(identity.processes)))
                if who in seen:
                    raise SameReportTwice(seen[who], path, "same host, same processes, same begin of the session")
                seen[who] = path
        except (ReportError, ExportError) as error:
            broken.leave_out(path, error)
        else:
            yield OpenedReport(report, report.folded if fold_streams else report, identity, identity)


def _survey(
    sources: dict[OpenedReport, list[Source]], folder: Path, keep_going: bool, bar: Bar
) -> list[list[Survey] | ReportError]:
    """What the sources find in each report, or the error at which one breaks off."""
    found = [(opened, source) for opened, of_report in sources.items() for source in of_report]

    def look(opened: OpenedReport, source: Source, number: int, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return survey(opened.view, source, folder / f"{number}", known=Extent(0, None, None))
        except ReportError as error:
            return _unless(keep_going, error)
        finally:
            bar.update()

    def measure(opened: OpenedReport, source: Source, stop: Stop) -> Survey | Extent | ReportError:
        stop.check()
        try:
            return extent(opened.report, source)
        except ReportError as error:
            return _unless(keep_going, error)

    # Sources of one table have one extent.
    measures = {(opened, what_extends(source)): partial(measure, opened, source) for opened, source in found}
    # The longest work first: threads are busy to the end.
    work = [partial(look, opened, source, number) for number, (opened, source) in enumerate(found)]
    results = run_all([*work, *measures.values()])
    extents = dict(zip(measures, results[len(found) :], strict=True))
    of_report: dict[OpenedReport, list[Survey] | ReportError] = {opened: [] for opened in sources}
    for (opened, source), looked in zip(found, results, strict=False):
        former, measured = of_report[opened], extents[opened, what_extends(source)]
        if isinstance(former, ReportError):
            continue
        if isinstance(looked, Survey) and isinstance(measured, Extent):
            surveyed = looked.within(measured)
            former += [] if surveyed.is_empty else [surveyed]
        else:
            of_report[opened] = next(one for one in (looked, measured) if isinstance(one, ReportError))
    return list(of_report.values())


def _unless(keep_going: bool, error: ReportError) -> ReportError:
    if not keep_going:
        raise error
    return error


def _forget_what_has_no_events(opened: OpenedReport) -> None:
    """A machine has thousands of threads and processes with names: only those with events get rows."""
    keys = [found.keys for found in opened.surveys]
    tids = {tid for key in keys if "globalTid" in key.columns for tid in key["globalTid"].to_list()}
    pids = {pid & PID_MASK for key in keys if "globalPid" in key.columns for pid in key["globalPid"].to_list()}
    opened.told = opened.identity = opened.told.of_events(pids | {tid & PID_MASK for tid in tids}, tids)
