"""The events of reports as records of a trace: reports and a plan come in; sorted runs on the disk leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.run.collect import Collected, MakeRows, ReportPart, Unfinished, call
from nsys2prv.run.open import OpenedReport
from nsys2prv.sources.registry import SOURCES, kinds_with_messages
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.timeline import coverage, states
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.reader import ReadEvents, Request, TimelinePlan, gives_intervals
from nsys2prv.timeline.records import RecordKind, RowsOfTypes
from nsys2prv.timeline.survey import CPU, Survey
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.trace.write import TraceStore

STATES, LAUNCHES, MESSAGES = "states", "launch lines", "messages between ranks"
PATH, PATH_LINES = "critical path", "lines of the critical path"
"""Names of collections that belong to no source."""
_FURTHER = {
    LAUNCHES: RecordKind.MESSAGES,
    MESSAGES: RecordKind.MESSAGES,
    STATES: RecordKind.STATES,
    PATH: RecordKind.INTERVALS,
    PATH_LINES: RecordKind.MESSAGES,
}


class _SourceRecords:
    """What the trace keeps of the events of one source: a sink of the reader."""

    def __init__(self, source: Source, records: ExternalSort, edges: ExternalSort) -> None:
        self._times = ("start", "end") if gives_intervals(source) else ("start",)
        self.records = records
        self.edges = edges
        self.types: set[int] = set()
        self.on_rows = RowsOfTypes()
        self.events: Counter[int] = Counter()  # by type, without attributes

    def add(self, placed: pl.DataFrame) -> None:
        if "state" in placed.columns:
            self.edges.add(states.edges(placed))
        cpu = (CPU,) if CPU in placed.columns else ()
        records = placed.select("row", *self._times, *cpu, "number", "value", pl.col(r"^\d+$"))
        with_values = [name for name in records.columns if name.isdigit() and records[name].null_count() < records.height]
        self.events.update(dict(records["number"].value_counts().iter_rows()))
        self.types |= {*self.events, *map(int, with_values)}
        self.on_rows.add_events(records)
        self.records.add(records)


class TraceRecords(Collected[_SourceRecords]):
    """Records of a trace.

    Attributes
    ----------
    store
        All records.
    accounts
        The account of the rows of each report, by its number.
    lanes
        That overlapping ranges took, for `Labels.used_with`.
    types, on_rows
        Event types in the records, and on which rows they are.
    """

    has_launches = True

    def __init__(
        self, options: TranslateOptions, sources: tuple[Source, ...], folder: Path, reports: Sequence[OpenedReport]
    ) -> None:
        self.store = TraceStore(folder / "records")
        # Records of different collections that are equal in time, row and kind come in this order.
        for opened in reports:
            for survey in opened.surveys:
                kind = RecordKind.INTERVALS if gives_intervals(survey.source) else RecordKind.POINTS
                self.store.add_collection(_collection(survey.source), kind, keeps_order=survey.source.outer_first)
        for name, kind in _FURTHER.items():
            self.store.add_collection(name, kind)
        super().__init__(folder, self.store.sorts)
        self.kinds_of_messages = kinds_with_messages(sources, options.skip)
        self.accounts: dict[int, list[dict[str, Any]]] = {}
        self.lanes: set[tuple[int, int, int]] = set()
        self.types: set[int] = set()
        self.on_rows = RowsOfTypes()
        self._sources = sources
        self._shortest = options.min_duration

    def requests(self, opened: OpenedReport, _timeline: TimelinePlan, unfinished: Unfinished) -> list[Request[_SourceRecords]]:
        def new_sink(survey: Survey) -> _SourceRecords:
            records = self.sorts[_collection(survey.source)].part()
            return _SourceRecords(survey.source, records, unfinished.edges[survey.source.row].part())

        return [Request(survey, partial(new_sink, survey), min_duration=self._shortest) for survey in opened.surveys]

    def take(self, part: ReportPart, read: ReadEvents[_SourceRecords], unfinished: Unfinished) -> None:
        self.lanes |= read.lanes
        for _, sink, entry in read.sinks:
            entry.events.update(sink.events)
        if part.share.is_whole:
            # The last that is read of the report. From here on it can't break off, and its records are taken over.
            self.accounts[part.index] = coverage.account(part.opened.report, read.coverage, self._sources, SOURCES)
        for request, sink, _ in read.sinks:
            self.types |= sink.types
            self.on_rows.add(sink.on_rows.rows)
            self.sorts[_collection(request.survey.source)].absorb(sink.records)
            unfinished.edges[request.survey.source.row].absorb(sink.edges)

    def further(self, timeline: Shared[TimelinePlan], unfinished: Unfinished) -> list[tuple[str, MakeRows]]:
        reports = tuple(unfinished.launches)
        lines: list[tuple[str, MakeRows]] = [(LAUNCHES, launches.messages) for launches in unfinished.launches.values()]
        return [
            *lines,
            *((STATES, partial(_states, timeline, kind, edges, reports)) for kind, edges in unfinished.edges.items()),
        ]

    def absorb(self, group: TraceRecords) -> None:
        super().absorb(group)
        self.accounts |= group.accounts
        self.lanes |= group.lanes
        self.types |= group.types
        self.on_rows.add(group.on_rows.rows)

    def finish(
        self, timeline: Shared[TimelinePlan], reports: Sequence[OpenedReport], workers: Workers
    ) -> dict[int, ReportError]:
        broken: dict[int, ReportError] = {}
        pieces = [
            partial(_account_or_error, self._sources, reports[index], unfinished.coverage[index])
            for index, unfinished in self.unfinished.items()
        ]
        for index, account in zip(self.unfinished, workers.map(call, pieces), strict=True):
            if isinstance(account, ReportError):
                broken[index] = account
            else:
                self.accounts[index] = account
        return broken or super().finish(timeline, reports, workers)


def _account_or_error(
    sources: tuple[Source, ...], opened: OpenedReport, entries: Sequence[SourceCoverage]
) -> list[dict[str, Any]] | ReportError:
    try:
        account = coverage.account(opened.report, entries, sources, SOURCES)
        opened.report.tables.check_unchanged()
    except ReportError as error:
        return error
    return account


def _states(
    timeline: Shared[TimelinePlan], kind: RowKind, edges: ExternalSort, reports: tuple[int, ...]
) -> Iterator[pl.DataFrame]:
    """States of the rows of a kind that some reports have."""
    plan = timeline.value
    keys = [plan.rows.keys.get((index, kind)) for index in reports]
    # A row of threads or streams has the events of one report.
    of_reports = pl.concat([pl.Series("row", [], pl.Int64), *(of_report["row"] for of_report in keys if of_report is not None)])
    rows = plan.rows.table[of_reports.unique().sort()].filter(pl.col("kind") == kind.name.lower())
    return states.sweep(edges, rows, plan.selection) if rows.height else iter(())


def _collection(source: Source) -> str:
    """Name of the records of a source: they have the same columns in all reports."""
    return f"{source.title}, {source.table}"
