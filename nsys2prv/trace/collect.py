"""The events of reports as records of a trace: reports and a plan come in; sorted runs on the disk leave.

Reports are independent of each other here, so groups of them are pieces of work for any process. Nothing in a result depends on
which reports were in one group.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import Workers
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.rank_message_ends import add_message_ends
from nsys2prv.run.session import ReportGroup, ReportPart
from nsys2prv.sources.registry import SOURCES, kinds_with_messages
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.timeline import coverage, states
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.placement import gives_intervals
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.reader import EventReader, Request, TimelinePlan
from nsys2prv.timeline.records import RecordKind
from nsys2prv.timeline.rows_of_types import RowsOfTypes
from nsys2prv.timeline.survey import CPU, Survey
from nsys2prv.trace.merge import TraceStore, record_sort
from nsys2prv.trace.translate_options import TranslateOptions

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


class _Unfinished:
    """What needs all events of some reports: launch lines, states and the account of their rows."""

    def __init__(self, folder: Path) -> None:
        # Threads and streams are different rows: their states are found at once.
        self.edges = {kind: ExternalSort(["start"], folder / f"edges-{kind.name}") for kind in RowKind}
        self.launches: dict[int, Launches] = {}
        self.coverage: dict[int, list[SourceCoverage]] = {}
        self._folder = folder

    def add(self, index: int, launches: Launches, entries: Sequence[SourceCoverage]) -> None:
        """Add a report, or a share of it, by its number; edges of its states are added by those who have them."""
        self.launches.setdefault(index, Launches.in_folder(self._folder / f"launches{index}")).absorb(launches)
        for entry, further in zip(self.coverage.setdefault(index, list(entries)), entries, strict=True):
            if entry is not further:
                entry.absorb(further)

    def absorb(self, other: _Unfinished) -> None:
        """Take over what further shares of the same reports left to do, or what other reports did."""
        for kind, edges in other.edges.items():
            self.edges[kind].absorb(edges)
        for index, launches in other.launches.items():
            self.add(index, launches, other.coverage[index])

    def spill(self) -> None:
        """Write what is still in memory: then the rest can be pickled."""
        for edges in self.edges.values():
            edges.spill()
        for launches in self.launches.values():
            launches.spill()

    def delete(self) -> None:
        """Take all off the disk, where others read it."""
        for edges in self.edges.values():
            edges.delete()
        for launches in self.launches.values():
            launches.delete()

    def work(self, timeline: Shared[TimelinePlan]) -> list[tuple[str, Callable[[], Iterator[pl.DataFrame]]]]:
        """Names of collections, each with what makes records of it: pieces of work that do not need each other."""
        reports = tuple(self.launches)
        lines = [(LAUNCHES, launches.messages) for launches in self.launches.values()]
        return [*lines, *((STATES, partial(_states, timeline, kind, edges, reports)) for kind, edges in self.edges.items())]


@dataclass
class Collected:
    """What was collected of some reports; nothing of it may be used when some of them broke off."""

    folder: Path
    sources: tuple[Source, ...]  # that were selected
    store: TraceStore
    messages: Messages
    tables: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # the account of each report, by its number
    lanes: set[tuple[int, int, int]] = field(default_factory=set)  # that overlapping ranges took, for `Labels.used_with`
    types: set[int] = field(default_factory=set)  # event types in the records
    on_rows: RowsOfTypes = field(default_factory=RowsOfTypes)
    broken: dict[int, ReportError] = field(default_factory=dict)
    unfinished: dict[int, _Unfinished] = field(default_factory=dict)  # of reports that were read in shares

    @classmethod
    def in_folder(cls, folder: Path, reports: Iterable[OpenedReport], sources: tuple[Source, ...]) -> Collected:
        """Nothing yet; intermediate files are written to the folder."""
        store = TraceStore(folder / "records")
        # Records of different collections that are equal in time, row and kind come in this order.
        for opened in reports:
            for survey in opened.surveys:
                kind = RecordKind.INTERVALS if gives_intervals(survey.source) else RecordKind.POINTS
                store.add_collection(_collection(survey.source), kind, keeps_order=survey.source.outer_first)
        for name, kind in _FURTHER.items():
            store.add_collection(name, kind)
        return cls(folder, sources, store, Messages(folder / "messages"))

    def absorb(self, group: Collected) -> None:
        """Take over what was collected of a group."""
        self.store.absorb_all(group.store)
        self.messages.absorb(group.messages)
        self.tables |= group.tables
        self.lanes |= group.lanes
        self.types |= group.types
        self.on_rows.add(group.on_rows.rows)
        for index, unfinished in group.unfinished.items():
            self.unfinished.setdefault(index, _Unfinished(self.folder / f"report{index}")).absorb(unfinished)

    def finish(
        self, timeline: Shared[TimelinePlan], reports: Sequence[OpenedReport], workers: Workers
    ) -> dict[int, ReportError]:
        """Launch lines, states and accounts of the reports that were read in shares; the result is those that broke off."""
        accounts = [
            partial(_account_or_error, reports[index], unfinished.coverage[index], self.sources)
            for index, unfinished in self.unfinished.items()
        ]
        work = list(itertools.chain.from_iterable(unfinished.work(timeline) for unfinished in self.unfinished.values()))
        pieces: list[Callable[[], Any]] = [*accounts, *(partial(_records_on_disk, self.folder, *piece) for piece in work)]
        made = workers.map(_do, pieces)
        broken: dict[int, ReportError] = {}
        for index, account in zip(self.unfinished, made, strict=False):
            if isinstance(account, ReportError):
                broken[index] = account
            else:
                self.tables[index] = account
        for (name, _), records in zip(work, made, strict=True):
            self.store.absorb(name, records)
        for unfinished in self.unfinished.values():
            unfinished.delete()
        return broken


def _do(piece: Callable[[], Any]) -> Any:
    return piece()


def _account_or_error(
    opened: OpenedReport, entries: Sequence[SourceCoverage], sources: tuple[Source, ...]
) -> list[dict[str, Any]] | ReportError:
    try:
        account = coverage.account(opened.report, entries, sources, SOURCES)
        opened.report.tables.check_unchanged()
    except ReportError as error:
        return error
    return account


def _records_on_disk(folder: Path, name: str, make: Callable[[], Iterator[pl.DataFrame]]) -> ExternalSort:
    """Records of a collection that a piece of work makes in another process."""
    # For this attempt alone: another worker may have died over the same piece.
    records = record_sort(_FURTHER[name], folder / f"further-{secrets.token_hex(4)}")
    for found in make():
        records.add(found)
    records.spill()
    return records


def _states(
    timeline: Shared[TimelinePlan], kind: RowKind, edges: ExternalSort, reports: tuple[int, ...]
) -> Iterator[pl.DataFrame]:
    """States of the rows of a kind that some reports have."""
    plan = timeline.value
    keys = [plan.rows.keys.get((index, kind)) for index in reports]
    # A row of threads or streams has the events of one report.
    own = pl.concat([pl.Series("row", [], pl.Int64), *(of_report["row"] for of_report in keys if of_report is not None)])
    rows = plan.rows.table[own.unique().sort()].filter(pl.col("kind") == kind.name.lower())
    return states.sweep(edges, rows, plan.selection) if rows.height else iter(())


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
        kept = placed.select("row", *self._times, *cpu, "number", "value", pl.col(r"^\d+$"))
        with_values = [name for name in kept.columns if name.isdigit() and kept[name].null_count() < kept.height]
        self.events.update(dict(kept["number"].value_counts().iter_rows()))
        self.types |= {*self.events, *map(int, with_values)}
        self.on_rows.add_events(kept)
        self.records.add(kept)


class _Collector:
    def __init__(
        self, options: TranslateOptions, sources: tuple[Source, ...], group: ReportGroup, progress: Callable[[int], object]
    ) -> None:
        self._options = options
        self._sources = sources
        self._group = group
        self._timeline = group.timeline.value
        self._folder = group.own_folder()
        self._reader = EventReader(self._timeline, self._folder / "reader", progress)
        self._whole = _Unfinished(self._folder)
        self._collected = Collected.in_folder(self._folder, (part.opened for part in group.reports), sources)

    def collect(self) -> Collected:
        self._collected.broken = self._group.each(self._collect_part)
        if not self._collected.broken:
            self._finish()
        return self._collected

    def _collect_part(self, part: ReportPart) -> None:
        self._collect_events(part)
        if part.share.is_last:
            kinds = kinds_with_messages(self._sources, self._options.skip)
            folder = self._folder / f"messages{part.index}"
            add_message_ends(self._collected.messages, self._timeline, part.index, part.opened, kinds, folder)

    def _collect_events(self, part: ReportPart) -> None:
        collected, shortest, index = self._collected, self._options.min_duration, part.index
        unfinished = self._whole
        if not part.share.is_whole:
            unfinished = collected.unfinished.setdefault(index, _Unfinished(self._folder / f"report{index}"))

        def new_sink(survey: Survey) -> _SourceRecords:
            records = collected.store.part(_collection(survey.source))
            return _SourceRecords(survey.source, records, unfinished.edges[survey.source.row].part())

        requests = [Request(survey, partial(new_sink, survey), min_duration=shortest) for survey in part.opened.surveys]
        read = self._reader.read(index, part.opened, requests, part.share)
        collected.lanes |= read.lanes
        entry_of = dict(zip(map(id, requests), read.coverage, strict=True))
        for request, sink in read.sinks:
            entry_of[id(request)].events.update(sink.events)
        if part.share.is_whole:
            # The last that is read of the report. From here on it can't break off, and its records are taken over.
            collected.tables[index] = coverage.account(part.opened.report, read.coverage, self._sources, SOURCES)
        for request, sink in read.sinks:
            collected.types |= sink.types
            collected.on_rows.add(sink.on_rows.rows)
            collected.store.absorb(_collection(request.survey.source), sink.records)
            unfinished.edges[request.survey.source.row].absorb(sink.edges)
        unfinished.add(index, read.launches, read.coverage)

    def _finish(self) -> None:
        """Launch lines and states of whole reports."""
        store = self._collected.store
        made = self._whole.work(self._group.timeline)
        work = [partial(_add_all, store.part(name), make) for name, make in made]
        for (name, _), records in zip(made, run_all(work), strict=True):
            store.absorb(name, records)
        if self._group.on_disk:
            store.spill()
            self._collected.messages.spill()
            for unfinished in self._collected.unfinished.values():
                unfinished.spill()


def _add_all(records: ExternalSort, make: Callable[[], Iterator[pl.DataFrame]], stop: Stop) -> ExternalSort:
    for found in make():
        stop.check()
        records.add(found)
    return records


def collect(
    options: TranslateOptions,
    sources: tuple[Source, ...],
    group: ReportGroup,
    progress: Callable[[int], object] = no_progress,
) -> Collected:
    """Collect the records of some reports; `progress` is called with the number of rows that were read.

    Raises
    ------
    ReportError
        When a report breaks off while it is read, unless the others are to be read nevertheless.
    """
    return _Collector(options, sources, group, progress).collect()


def _collection(source: Source) -> str:
    """Name of the records of a source: they have the same columns in all reports."""
    return f"{source.title}, {source.table}"
