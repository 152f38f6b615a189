"""The events of reports as records of a trace: reports and a plan come in; sorted runs on the disk leave.

Reports are independent of each other here, so groups of them are pieces of work for any process. Nothing in a result depends on
which reports were in one group.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports.identity import process_of
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.session import ReportGroup
from nsys2prv.sources.communication.message_ends import BOUNDING, kinds_of_messages, read_message_ends
from nsys2prv.sources.registry import SOURCES, kinds_with_messages
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.timeline import coverage, states
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.placement import gives_intervals
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.reader import EventReader, Request
from nsys2prv.timeline.records import RecordKind
from nsys2prv.timeline.survey import CPU, Survey
from nsys2prv.trace.merge import TraceStore
from nsys2prv.trace.translate_options import TranslateOptions

STATES, LAUNCHES, MESSAGES = "states", "launch lines", "messages between ranks"
"""Names of collections that belong to no source."""


@dataclass
class Collected:
    """What was collected of some reports; nothing of it may be used when some of them broke off."""

    folder: Path
    store: TraceStore
    messages: Messages
    tables: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # the account of each report, by its number
    lanes: set[tuple[int, int, int]] = field(default_factory=set)  # that overlapping ranges took, for `Labels.used_with`
    types: set[int] = field(default_factory=set)  # event types in the records
    broken: dict[int, ReportError] = field(default_factory=dict)

    @classmethod
    def in_folder(cls, folder: Path, reports: Iterable[OpenedReport]) -> Collected:
        """Nothing yet; intermediate files are written to the folder."""
        store = TraceStore(folder / "records")
        # Records of different collections that are equal in time, row and kind come in this order.
        for opened in reports:
            for survey in opened.surveys:
                kind = RecordKind.INTERVALS if gives_intervals(survey.source) else RecordKind.POINTS
                store.add_collection(_collection(survey.source), kind, keeps_order=survey.source.outer_first)
        store.add_collection(LAUNCHES, RecordKind.MESSAGES)
        store.add_collection(MESSAGES, RecordKind.MESSAGES)
        store.add_collection(STATES, RecordKind.STATES)
        return cls(folder, store, Messages(folder / "messages"))

    def absorb(self, group: Collected) -> None:
        """Take over what was collected of a group."""
        self.store.absorb_all(group.store)
        self.messages.absorb(group.messages)
        self.tables |= group.tables
        self.lanes |= group.lanes
        self.types |= group.types


class _SourceRecords:
    """What the trace keeps of the events of one source: a sink of the reader."""

    def __init__(self, source: Source, records: ExternalSort, edges: ExternalSort) -> None:
        self._times = ("start", "end") if gives_intervals(source) else ("start",)
        self.records = records
        self.edges = edges
        self.types: set[int] = set()
        self.events: Counter[int] = Counter()  # by type, without attributes

    def add(self, placed: pl.DataFrame) -> None:
        if "state" in placed.columns:
            self.edges.add(states.edges(placed))
        cpu = (CPU,) if CPU in placed.columns else ()
        kept = placed.select("row", *self._times, *cpu, "number", "value", pl.col(r"^\d+$"))
        with_values = [name for name in kept.columns if name.isdigit() and kept[name].null_count() < kept.height]
        self.events.update(dict(kept["number"].value_counts().iter_rows()))
        self.types |= {*self.events, *map(int, with_values)}
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
        # Threads and streams are different rows: their states are found at once.
        self._edges = {kind: ExternalSort(["time"], self._folder / f"edges-{kind.name}") for kind in RowKind}
        self._launches: list[Launches] = []
        self._collected = Collected.in_folder(self._folder, (opened for _, opened in group.reports))

    def collect(self) -> Collected:
        self._collected.broken = self._group.each(self._collect_report)
        if not self._collected.broken:
            self._finish()
        return self._collected

    def _collect_report(self, index: int, opened: OpenedReport) -> None:
        self._collect_events(index, opened)
        self._collect_messages(index, opened)

    def _collect_events(self, index: int, opened: OpenedReport) -> None:
        collected, shortest = self._collected, self._options.min_duration
        requests = [Request(survey, partial(self._new_sink, survey), min_duration=shortest) for survey in opened.surveys]
        read = self._reader.read(index, opened, requests)
        collected.lanes |= read.lanes
        entry_of = dict(zip(map(id, requests), read.coverage, strict=True))
        for request, sink in read.sinks:
            entry_of[id(request)].events.update(sink.events)
        # The last that is read of the report. From here on it can't break off, and its records are taken over.
        collected.tables[index] = coverage.account(opened.report, read.coverage, self._sources, SOURCES)
        for request, sink in read.sinks:
            collected.types |= sink.types
            collected.store.absorb(_collection(request.survey.source), sink.records)
            self._edges[request.survey.source.row].absorb(sink.edges)
        self._launches.append(read.launches)

    def _new_sink(self, survey: Survey) -> _SourceRecords:
        source = survey.source
        return _SourceRecords(source, self._collected.store.part(_collection(source)), self._edges[source.row].part())

    def _collect_messages(self, index: int, opened: OpenedReport) -> None:
        """Ends of messages of a report, on rows and on the time axis."""
        timeline = self._timeline
        threads = timeline.rows.keys.get((index, RowKind.THREAD))
        kinds = kinds_of_messages(opened.report, kinds_with_messages(self._sources, self._options.skip))
        if threads is None or not kinds:
            return
        ranks = {process_of(tid): timeline.rows.rank(row) for tid, row in threads.select("globalTid", "row").iter_rows()}
        known = {process: rank for process, rank in ranks.items() if rank is not None}
        placement = timeline.placements[index]
        messages = self._collected.messages.part()
        sync_points = opened.sync_points
        already_read: Iterator[pl.DataFrame] = iter(())
        if sync_points is not None and sync_points.ends is not None and sync_points.ranks == known:
            bounding = kinds_of_messages(opened.report, BOUNDING)
            if set(bounding).issubset(kinds):
                # They were read when clocks were aligned.
                already_read = (ends.drop("place") for ends in sync_points.message_ends())
                kinds = tuple(kind for kind in kinds if kind not in bounding)
        folder = self._folder / f"messages{index}"
        for ends in itertools.chain(already_read, read_message_ends(opened.report, known, folder, kinds)):
            placed = ends.join(threads, on="globalTid", how="inner", maintain_order="left")
            messages.add(placed.with_columns(placement.of(pl.col("start")), placement.of(pl.col("end"))))
        self._collected.messages.absorb(messages)

    def _finish(self) -> None:
        """Launch lines and states: they need all events of a report."""
        store = self._collected.store
        work = [(LAUNCHES, partial(self._pair_launches, one, store.part(LAUNCHES))) for one in self._launches]
        work += [(STATES, partial(self._sweep_states, kind, store.part(STATES))) for kind in self._edges]
        for (name, _), records in zip(work, run_all([piece for _, piece in work]), strict=True):
            store.absorb(name, records)
        if self._group.on_disk:
            store.spill()
            self._collected.messages.spill()

    def _sweep_states(self, kind: RowKind, records: ExternalSort, stop: Stop) -> ExternalSort:
        timeline = self._timeline
        keys = [timeline.rows.keys.get((index, kind)) for index, _ in self._group.reports]
        # A row of threads or streams has the events of one report.
        own = pl.concat([pl.Series("row", [], pl.Int64), *(of_report["row"] for of_report in keys if of_report is not None)])
        rows = timeline.rows.table[own.unique().sort()].filter(pl.col("kind") == kind.name.lower())
        if rows.height:
            for found in states.sweep(self._edges[kind], rows, timeline.selection):
                stop.check()
                records.add(found)
        return records

    def _pair_launches(self, launches: Launches, records: ExternalSort, stop: Stop) -> ExternalSort:
        for lines in launches.messages():
            stop.check()
            records.add(lines)
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
