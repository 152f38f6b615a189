"""The reader of events: reports and a plan come in; their events, on rows and on the time axis, go to whoever reads them.

The trace, the efficiency numbers and the public API read reports through it. What each of them keeps is a `Sink`; tables are
read in parts, on several threads, and each part fills a separate sink.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import polars as pl

from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import ROWS_OF_PART
from nsys2prv.execution.row_order import in_turns
from nsys2prv.execution.threads import Stop, prefetch, run_all
from nsys2prv.exports import Report
from nsys2prv.exports.tables import Stretch
from nsys2prv.sources.source import CONTINUATION, LEFT_OUT, REPAIRED, Source, StreamedSource, TableSource, count_rows
from nsys2prv.timeline import coverage
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.messages import Launches
from nsys2prv.timeline.placement import EventsOfSource
from nsys2prv.timeline.rows import LANE, Rows
from nsys2prv.timeline.survey import TYPE_COLUMNS, StreamLanes, Survey, complete
from nsys2prv.timeline.time_axis import Placement, TimeSelection

_PIECE_ROWS, _LARGE_PIECE_ROWS = 50_000, 75_000
"""Events that one thread places on the timeline at once; more where memory is ample, as threads hand over the interpreter for
each step of a piece."""
_MOST_PARTS = 4
"""Threads that read one table at most."""


@dataclass(frozen=True)
class TimelinePlan:
    """Where events of all reports are placed: on the part of the time axis that is kept, on rows, with numbers."""

    placements: tuple[Placement, ...]
    selection: TimeSelection
    rows: Rows
    labels: Labels


class ReadableReport(Protocol):
    """What the reader must know of a report: it as it is read, its host, first and last time (ns of the report)."""

    @property
    def view(self) -> Report: ...
    @property
    def host(self) -> str: ...
    @property
    def span(self) -> tuple[int, int] | None: ...


class Sink(Protocol):
    """Takes the placed events of one part of a table."""

    def add(self, placed: pl.DataFrame) -> None:
        """Take in events, as `EventsOfSource.place` gives them."""


S = TypeVar("S", bound=Sink)


@dataclass(frozen=True)
class Request(Generic[S]):
    """What is read of the events that one survey found."""

    survey: Survey
    sink: Callable[[], S]  # makes what takes the events of one part
    columns: frozenset[str] | None = None  # needed besides those that place events; None: all
    by_lane: bool = True  # events that overlap on a stream go to separate rows; else all are on its first row
    min_duration: int = 0  # shorter intervals are left out, ns


@dataclass
class _Part(Generic[S]):
    """What was read of one part of a table."""

    request: Request[S]
    events: EventsOfSource
    sink: S
    coverage: SourceCoverage
    launches: Launches


@dataclass(frozen=True)
class Share:
    """What is read of a report at once: neighbouring parts of its tables, the `number`th (from 0) of `of` shares."""

    number: int = 0
    of: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether all of the report is read at once."""
        return self.of == 1

    @property
    def is_last(self) -> bool:
        """Whether no other share has what comes later."""
        return self.number + 1 == self.of

    def of_parts(self, rows: Sequence[int]) -> range:
        """The parts that are in the share, by the rows of all parts. Each part is in one share.

        >>> [Share(number, 3).of_parts([10, 10, 40, 10]) for number in range(3)]
        [range(0, 2), range(2, 3), range(3, 4)]
        """
        # A part belongs where its middle is.
        middles = [2 * before + of_part for before, of_part in zip(itertools.accumulate(rows, initial=0), rows, strict=False)]
        shares = [middle * self.of // (2 * sum(rows) + 1) for middle in middles]
        return range(bisect.bisect_left(shares, self.number), bisect.bisect_right(shares, self.number))


WHOLE = Share()


@dataclass(frozen=True)
class ReadEvents(Generic[S]):
    """What was read of a report: sinks, each with its request and the account of that, are in the order of requests and of the
    rows of a table."""

    sinks: tuple[tuple[Request[S], S, SourceCoverage], ...]
    coverage: tuple[SourceCoverage, ...]  # of each request
    launches: Launches
    lanes: frozenset[tuple[int, int, int]] = frozenset()  # that overlapping ranges took, for `Labels.used_with`


class EventReader:
    """Reads reports of a run; `folder` is for intermediate files, `progress` is called with numbers of rows."""

    def __init__(self, plan: TimelinePlan, folder: Path, progress: Callable[[int], object]) -> None:
        self._plan = plan
        self._progress = progress
        self._folder = folder
        self._numbers = itertools.count()
        self._ordered = ExternalSort(["start"], folder / "ordered")
        self._rows_of_piece = memory.ample(_PIECE_ROWS, _LARGE_PIECE_ROWS)

    def read(self, index: int, report: ReadableReport, requests: Sequence[Request[S]], share: Share = WHOLE) -> ReadEvents[S]:
        """Read what is requested of the events of a report, or a share of it; `index` is the report's number in the plan.

        What was read of all shares, one after the other, is what would have been read of the whole.

        Raises
        ------
        ReportError
            When it breaks off while it is read.
        """
        launches = Launches.in_folder(self._new_folder("launches"))
        entries = [SourceCoverage.of(request.survey.source) for request in requests]
        entry_of = dict(zip(map(id, requests), entries, strict=True))
        parts: list[tuple[Request[S], Stretch | None, int]] = []
        for request in requests:
            survey = request.survey
            most = 1 if _is_whole(request) else min(survey.rows // ROWS_OF_PART, max(_MOST_PARTS, share.of))
            stretches = report.view.tables.stretches(survey.source.table, most)
            parts += [(request, stretch, survey.rows // len(stretches)) for stretch in stretches]
        work: list[Callable[[Stop], _Part[S]]] = []
        events_of: dict[int, EventsOfSource] = {}
        for place in share.of_parts([rows for *_, rows in parts]):
            request, stretch, _ = parts[place]
            if id(request) not in events_of:
                events_of[id(request)] = self._events(index, report, request)
            coverage_of_part = SourceCoverage.of(request.survey.source)
            part = _Part(request, events_of[id(request)], request.sink(), coverage_of_part, launches.part())
            work.append(partial(self._read_part, report.view, part, stretch))
        parts_read = run_all(work)
        for part in parts_read:
            entry_of[id(part.request)].absorb(part.coverage)
            launches.absorb(part.launches)
        lanes = frozenset(lane for part in parts_read for lane in part.events.lanes)
        sinks = tuple((part.request, part.sink, entry_of[id(part.request)]) for part in parts_read)
        return ReadEvents(sinks, tuple(entries), launches, lanes)

    def _events(self, index: int, report: ReadableReport, request: Request[S]) -> EventsOfSource:
        plan, source = self._plan, request.survey.source
        rows = plan.rows.keys.get((index, source.row))
        if rows is not None and LANE in rows.columns and not request.by_lane:
            rows = rows.filter(pl.col(LANE) == 0)
        return EventsOfSource(
            request.survey,
            rows,
            plan.labels,
            plan.selection,
            placement=plan.placements[index],
            first_cpu=plan.rows.first_cpu(report.host),
            # What has no end ends with the report.
            report_end=report.span[1] if report.span else 0,
            min_duration=request.min_duration,
        )

    def _read_part(self, report: Report, part: _Part[S], stretch: Stretch | None, stop: Stop) -> _Part[S]:
        # Two threads do not count together.
        of_pieces = SourceCoverage.of(part.request.survey.source)
        pieces = self._pieces(report, part.request, stretch, of_pieces)
        # A long table that one thread has to read in its order: another thread places its events meanwhile.
        for piece in prefetch(pieces) if _is_whole(part.request) and part.request.survey.rows >= ROWS_OF_PART else pieces:
            stop.check()
            for placed in part.events.place(piece, part.coverage, part.launches):
                part.sink.add(placed)
            self._progress(piece.height)
        part.coverage.absorb(of_pieces)
        return part

    def _pieces(
        self, report: Report, request: Request[S], stretch: Stretch | None, entry: SourceCoverage
    ) -> Iterator[pl.DataFrame]:
        """Events of a source in pieces, whose rows are counted; in the order of their start where a step needs that."""
        source = request.survey.source
        folder = self._new_folder("source")
        step: Callable[[pl.DataFrame], pl.DataFrame] | None = None
        if source.in_order is not None:
            step = source.in_order()
        elif request.by_lane and request.survey.lanes is not None and request.survey.overlaps:
            step = StreamLanes(request.survey.lanes.drop("lanes"))
        if step is None:
            for piece in source.events(report, partial(_needed, request), self._rows_of_piece, stretch, folder):
                yield _counted(piece, entry)
            return
        for window in self._in_order(report, source, stretch, folder, entry):
            yield entry.keep(window, step(window), coverage.SAME_CALL)

    def _in_order(
        self, report: Report, source: Source, stretch: Stretch | None, folder: Path, entry: SourceCoverage
    ) -> Iterator[pl.DataFrame]:
        """Events of a source in the order of their start; those that start together in one piece, in the order of what is in
        them.
        """

        def timed() -> Iterator[pl.DataFrame]:
            for piece in source.events(report, complete, self._rows_of_piece, stretch, folder):
                events = _counted(piece, entry)
                yield entry.keep(events, events.drop_nulls("start"), coverage.NO_TIME)

        if isinstance(source, TableSource) and stretch is None:
            starts = source.surveyed(report).select("start").drop_nulls()
            if _is_in_order(report.batches(starts, self._rows_of_piece)):
                # As rows of most tables are.
                yield from in_turns(timed(), "start")
                return
        ordered = self._ordered.part()
        for piece in timed():
            ordered.add(piece)
        yield from ordered.windows()

    def _new_folder(self, what: str) -> Path:
        return self._folder / f"{what}{next(self._numbers)}"


def _is_whole(request: Request[S]) -> bool:
    """Whether a table is read as a whole: events are needed in order, or come from several tables."""
    survey = request.survey
    in_order = survey.source.in_order is not None or (request.by_lane and survey.overlaps)
    return in_order or isinstance(survey.source, StreamedSource)


def _needed(request: Request[S], frame: pl.LazyFrame) -> pl.LazyFrame:
    """Events with the columns that a request needs."""
    events = complete(frame)
    if request.columns is None:
        return events
    source = request.survey.source
    launch = ("correlationId", "size") if source.launch is not None else ()
    placing = (*source.row.key, "start", "end", *TYPE_COLUMNS, "value", CONTINUATION, LEFT_OUT, REPAIRED, *launch)
    return events.select(name for name in events.collect_schema().names() if name in placing or name in request.columns)


def _is_in_order(pieces: Iterable[pl.DataFrame]) -> bool:
    """Whether events come in the order of their start."""
    last: int | None = None
    for piece in pieces:
        start = piece["start"].to_numpy()
        if len(start):
            if (last is not None and start[0] < last) or (start[1:] < start[:-1]).any():
                return False
            last = int(start[-1])
    return True


def _counted(piece: pl.DataFrame, entry: SourceCoverage) -> pl.DataFrame:
    """Events of a piece that become events, without the columns that are for the account of rows."""
    entry.read += count_rows(piece)
    if LEFT_OUT in piece.columns and piece[LEFT_OUT].null_count() < piece.height:
        for (reason,), rows in piece.drop_nulls(LEFT_OUT).partition_by(LEFT_OUT, as_dict=True).items():
            entry.leave_out(str(reason), count_rows(rows))
        piece = piece.filter(pl.col(LEFT_OUT).is_null())
    if REPAIRED in piece.columns:
        entry.repaired += int(piece[REPAIRED].sum())
    return piece.drop(LEFT_OUT, REPAIRED, strict=False)
