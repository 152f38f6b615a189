"""The events of reports, on rows and on the time axis: reports and a plan come in; sorted runs on the disk leave.

Reports are independent of each other here, so groups of them are pieces of work for any process. Nothing in a result depends on
which reports were in one group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.sizes import MOST_PARTS, READER_PIECE_ROWS, ROWS_OF_PART
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports import Report
from nsys2prv.exports.forms import Stretch
from nsys2prv.exports.identity import process_of
from nsys2prv.run.open import OpenedReport, no_progress
from nsys2prv.run.session import Group
from nsys2prv.sources.communication.message_ends import MPI, kinds_of_messages, message_ends
from nsys2prv.sources.registry import SOURCES, kinds_with_messages
from nsys2prv.sources.source import LEFT_OUT, REPAIRED, RowKind, Source, StreamedSource, count_rows
from nsys2prv.timeline import coverage, states
from nsys2prv.timeline.coverage import Entry
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.placement import EventsOfSource, shape_of, types_of
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.rows import Rows
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.timeline.stream_lanes import StreamLanes
from nsys2prv.timeline.survey import Survey, complete
from nsys2prv.timeline.time_axis import Placement
from nsys2prv.trace.merge import Shape, TraceStore

STATES, LAUNCHES, MESSAGES = "states", "launch lines", "messages between ranks"
"""Names of collections that are no source's."""


@dataclass(frozen=True)
class Plan:
    """What is settled over all reports before their events are collected.

    Attributes
    ----------
    sources, skip
        What is translated, and the names of sources that are left out.
    min_duration
        Intervals shorter than this are left out, ns.
    placements
        How each report is placed on the time axis.
    windows
        What is kept of the time axis.
    rows
        The rows of the trace.
    labels
        Numbers of types and values.
    """

    sources: tuple[Source, ...]
    skip: tuple[str, ...]
    min_duration: int
    placements: tuple[Placement, ...]
    windows: TimeSelection
    rows: Rows
    labels: Labels


@dataclass
class Collected:
    """What was collected of a group.

    Attributes
    ----------
    activity
        What goes into the trace.
    messages
        Ends of messages between ranks.
    tables
        The account of the tables of each report, by its number.
    lanes
        Lanes that ranges took, for `Labels.use_lane`.
    types
        Numbers of the event types that the trace gets from it.
    broken
        Reports that broke off, by number: nothing of the group may be used then.
    """

    activity: TraceStore
    messages: Messages
    tables: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    lanes: set[tuple[int, int, int]] = field(default_factory=set)
    types: set[int] = field(default_factory=set)
    broken: dict[int, ReportError] = field(default_factory=dict)


def collections(reports: Iterable[OpenedReport]) -> dict[str, Shape]:
    """What is collected of reports, by name, in the order in which lines that are equal in time, row and kind come."""
    found = {_collection(survey.source): shape_of(survey.source) for opened in reports for survey in opened.surveys}
    return {**found, LAUNCHES: Shape.MESSAGES, MESSAGES: Shape.MESSAGES, STATES: Shape.STATES}


def collect(group: Group[Plan], tell: Callable[[int], object] = no_progress) -> Collected:
    """Collect the events of some reports; `tell` learns how many rows were read.

    Raises
    ------
    ReportError
        When a report breaks off while it is read, unless the others are to be read nevertheless.
    """
    return _Collector(group, tell).collect()


@dataclass
class _Made:
    """What the translation of one source gives."""

    events: ExternalSort
    edges: ExternalSort
    launches: Launches
    entry: Entry
    types: set[int] = field(default_factory=set)


class _Collector:
    def __init__(self, group: Group[Plan], tell: Callable[[int], object]) -> None:
        self._group = group
        self._plan = group.plan.value
        self._tell = tell
        self._folder = group.own_folder()
        self._folders = itertools.count()
        self._activity = TraceStore(self._folder / "activity")
        for name, shape in collections(opened for _, opened in group.reports).items():
            self._activity.add_collection(name, shape)
        # Threads and streams are different rows: their states are found at once.
        self._edges = {kind: ExternalSort(["time"], self._folder / f"edges-{kind.name}") for kind in RowKind}
        self._ordered = ExternalSort(["start"], self._folder / "ordered")
        self._launches: list[Launches] = []
        self._made = Collected(self._activity, Messages(self._folder / "messages"))

    def collect(self) -> Collected:
        self._made.broken = self._group.each(self._collect_report)
        if not self._made.broken:
            self._finish()
        return self._made

    def _finish(self) -> None:
        """What needs all events of a report: launch lines and states."""
        work = [(LAUNCHES, partial(self._pair_launches, one, self._activity.part(LAUNCHES))) for one in self._launches]
        work += [(STATES, partial(self._sweep_states, kind, self._activity.part(STATES))) for kind in self._edges]
        for (name, _), made in zip(work, run_all([piece for _, piece in work]), strict=True):
            self._activity.absorb(name, made)
        if self._group.on_disk:
            self._activity.spill()
            self._made.messages.spill()

    def _collect_report(self, index: int, opened: OpenedReport) -> None:
        self._collect_events(index, opened)
        self._collect_messages(index, opened)

    def _collect_events(self, index: int, opened: OpenedReport) -> None:
        plan = self._plan
        launches = Launches.in_folder(self._folder / f"launches{next(self._folders)}")
        work: list[Callable[[Stop], _Made]] = []
        of_work: list[tuple[Survey, EventsOfSource]] = []
        of_sources: list[Entry] = []
        for found in opened.surveys:
            events = EventsOfSource(
                found,
                plan.rows.keys.get((index, found.source.row)),
                plan.labels,
                plan.windows,
                placement=plan.placements[index],
                first_cpu=plan.rows.first_cpu(opened.identity.host),
                # What is not closed ends with the report.
                report_end=opened.span[1] if opened.span else 0,
                min_duration=plan.min_duration,
            )
            of_sources.append(Entry.of(found.source))
            parts = 1 if _read_at_once(found) else min(found.rows // ROWS_OF_PART, MOST_PARTS)
            for stretch in opened.report.tables.stretches(found.source.table, parts):
                made = _Made(
                    self._activity.part(_collection(found.source)),
                    self._edges[found.source.row].part(),
                    launches.part(),
                    Entry.of(found.source),
                )
                work.append(partial(self._translate_source, opened.view, found, events, stretch, made))
                of_work.append((found, events))
        entries = dict(zip(map(id, opened.surveys), of_sources, strict=True))
        results = run_all(work)
        for (found, events), made in zip(of_work, results, strict=True):
            entries[id(found)].absorb(made.entry)
            self._made.lanes |= events.lanes
        # The last that is read of the report: from here on it is whole, and what was made of it is taken over.
        self._made.tables[index] = coverage.account(opened.report, of_sources, plan.sources, SOURCES)
        for (found, _), made in zip(of_work, results, strict=True):
            self._made.types |= made.types
            self._activity.absorb(_collection(found.source), made.events)
            self._edges[found.source.row].absorb(made.edges)
            launches.absorb(made.launches)
        self._launches.append(launches)

    def _collect_messages(self, index: int, opened: OpenedReport) -> None:
        """Ends of messages of a report, on rows and on the time axis."""
        rows = self._plan.rows
        threads = rows.keys.get((index, RowKind.THREAD))
        kinds = kinds_of_messages(opened.report, kinds_with_messages(self._plan.sources, self._plan.skip))
        if threads is None or not kinds:
            return
        ranks = {process_of(tid): rows.rank(row) for tid, row in threads.select("globalTid", "row").iter_rows()}
        known = {process: rank for process, rank in ranks.items() if rank is not None}
        placement = self._plan.placements[index]
        made = self._made.messages.part()
        anchors = opened.anchors
        before: Iterator[pl.DataFrame] = iter(())
        if MPI in kinds and anchors is not None and anchors.ends is not None and anchors.ranks == known:
            # Read already, when clocks were aligned.
            before = (ends.drop("place") for ends in anchors.message_ends())
            kinds = tuple(kind for kind in kinds if kind != MPI)
        folder = self._folder / f"messages{index}"
        for ends in itertools.chain(before, message_ends(opened.report, known, folder, kinds)):
            placed = ends.join(threads, on="globalTid", how="inner", maintain_order="left")
            made.add(placed.with_columns(placement.of(pl.col("start")), placement.of(pl.col("end"))))
        self._made.messages.absorb(made)

    def _sweep_states(self, kind: RowKind, made: ExternalSort, stop: Stop) -> ExternalSort:
        plan = self._plan
        keys = [plan.rows.keys.get((index, kind)) for index, _ in self._group.reports]
        # A row of threads or streams has the events of one report.
        own = pl.concat([pl.Series("row", [], pl.Int64), *(of_report["row"] for of_report in keys if of_report is not None)])
        rows = plan.rows.table[own.unique().sort()].filter(pl.col("kind") == kind.name.lower())
        if rows.height:
            for found in states.sweep(self._edges[kind], rows, plan.windows):
                stop.check()
                made.add(found)
        return made

    def _pair_launches(self, launches: Launches, made: ExternalSort, stop: Stop) -> ExternalSort:
        for messages in launches.messages():
            stop.check()
            made.add(messages)
        return made

    def _translate_source(
        self, report: Report, found: Survey, events: EventsOfSource, stretch: Stretch | None, made: _Made, stop: Stop
    ) -> _Made:
        for piece in self._pieces(report, found, stretch, made.entry):
            stop.check()
            for placed in events.place(piece, made.entry, made.launches):
                if "state" in placed.columns:
                    made.edges.add(states.edges(placed))
                narrowed = events.narrow(placed)
                made.types |= types_of(narrowed)
                made.events.add(narrowed)
            self._tell(piece.height)
        return made

    def _pieces(self, report: Report, found: Survey, stretch: Stretch | None, entry: Entry) -> Iterator[pl.DataFrame]:
        """Events of a source in pieces; in the order of their begin when something needs that."""
        source = found.source
        folder = self._folder / f"source{next(self._folders)}"
        pieces = source.events(report, complete, READER_PIECE_ROWS, stretch, folder)
        step: Callable[[pl.DataFrame], pl.DataFrame] | None = None
        if source.in_order is not None:
            step = source.in_order()
        elif found.overlaps:
            step = StreamLanes(found.keys)
        if step is None:
            for piece in pieces:
                yield _accounted(piece, entry)
            return
        ordered = self._ordered.part()
        for piece in pieces:
            taken = _accounted(piece, entry)
            told = taken.drop_nulls("start")
            entry.leave_out(coverage.NO_TIME, count_rows(taken) - count_rows(told))
            ordered.add(told)
        for window in ordered.windows():
            kept = step(window)
            entry.leave_out(coverage.SAME_CALL, count_rows(window) - count_rows(kept))
            yield kept


def _accounted(piece: pl.DataFrame, entry: Entry) -> pl.DataFrame:
    """Events of a piece that go on, without the columns that are for the ledger."""
    entry.read += count_rows(piece)
    if LEFT_OUT in piece.columns and piece[LEFT_OUT].null_count() < piece.height:
        for (reason,), rows in piece.drop_nulls(LEFT_OUT).partition_by(LEFT_OUT, as_dict=True).items():
            entry.leave_out(str(reason), count_rows(rows))
        piece = piece.filter(pl.col(LEFT_OUT).is_null())
    if REPAIRED in piece.columns:
        entry.repaired += int(piece[REPAIRED].sum())
    return piece.drop(LEFT_OUT, REPAIRED, strict=False)


def _read_at_once(found: Survey) -> bool:
    """Whether a table must be read as a whole: events are needed in order, or come from several tables."""
    return found.source.in_order is not None or found.overlaps or isinstance(found.source, StreamedSource)


def _collection(source: Source) -> str:
    """Name of what is collected of a source: its events have the same columns in all reports."""
    return f"{source.title}, {source.table}"
