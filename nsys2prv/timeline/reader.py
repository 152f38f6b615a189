"""The reader of events: reports and a plan come in; their events, on rows and on the time axis, go to whoever reads them.

The trace, the efficiency numbers and the public API read reports through it. What each of them keeps is a `Sink`; tables are
read in parts, on several threads, and each part fills a separate sink."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import ROWS_OF_PART
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.row_order import in_turns
from nsys2prv.exports import Report
from nsys2prv.exports.tables import Stretch
from nsys2prv.sources.lanes import LANE_OF_TYPE
from nsys2prv.sources.registry import TYPES
from nsys2prv.sources.source import CONTINUATION, LEFT_OUT, REPAIRED, Source, count_rows
from nsys2prv.timeline import coverage
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.messages import Launches
from nsys2prv.timeline.rows import LANE, Rows, key_columns
from nsys2prv.timeline.survey import CPU, TYPE_COLUMNS, StreamLanes, Survey, complete, text_attributes
from nsys2prv.timeline.time_axis import Placement, TimeSelection
from nsys2prv.vocabulary.event_types import Role
from nsys2prv.vocabulary.limits import LARGEST_EXACT

_PIECE_ROWS = 50_000
"""Events that one thread places on the timeline at once."""
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


def gives_intervals(source: Source) -> bool:
    """Whether events of a source have a length; those of the others are marks or samples."""
    # Attributes of no interval of the same source last as long as the interval that they belong to.
    return {event_type.role for event_type in source.types} <= {Role.INTERVAL, Role.ATTRIBUTE}


class EventsOfSource:
    """Places events of one source of one report; `lanes` is complete when all events were placed."""

    def __init__(self, plan: TimelinePlan, index: int, report: ReadableReport, request: Request[Any]) -> None:
        survey = request.survey
        source = self._source = survey.source
        self._placement = plan.placements[index]
        self._selection = plan.selection
        self.lanes: set[tuple[int, int, int]] = set()
        self._min_duration = request.min_duration if gives_intervals(source) else 0
        # What has no end ends with the report.
        self._report_end = report.span[1] if report.span else 0
        self._key = list(key_columns(source.row))
        # Counted over all hosts from 1; None: events get no CPU.
        self._first_cpu = plan.rows.first_cpu(report.host)
        rows = plan.rows.keys.get((index, source.row))
        if rows is None:
            # None of its rows was selected.
            rows = pl.DataFrame(schema={**key_columns(source.row), "row": pl.Int64})
        self._row_of_key = rows if request.by_lane or LANE not in rows.columns else rows.filter(pl.col(LANE) == 0)
        self._numbers = plan.labels.of_survey(survey)
        self._attributes = {name: plan.labels.of_attribute(survey, name) for name in text_attributes(survey.groups.schema)}

    def place(self, events: pl.DataFrame, entry: SourceCoverage, launches: Launches) -> Iterator[pl.DataFrame]:
        """Place events; count in `entry` those that are left out.

        Yields
        ------
        The columns of `Source.frame`, with `row`, `start` and `end` in ns of the selection's origin, cut at its edges,
        `number` (event type) and `value`, and attributes as numbers.
        """
        if LANE in self._key and LANE not in events.columns:
            events = events.with_columns(pl.lit(0, pl.Int64).alias(LANE))
        timed = entry.keep(events, _without_nulls(events, ["start"]), coverage.NO_TIME)
        valued = entry.keep(timed, _with_values(timed), coverage.NO_VALUE)
        is_exact = "value" not in valued.columns or _is_exact(valued["value"])
        exact = entry.keep(valued, valued if is_exact else valued.filter(_exact("value")), coverage.INEXACT)
        exact = _with_exact_attributes(exact, entry)
        named = entry.keep(exact, _without_nulls(exact, self._key), coverage.NO_ROW_NAMED)
        absent = coverage.NO_OTHER_EVENTS if self._source.existing_rows_only else coverage.ROW_NOT_CHOSEN
        on_rows = named.with_columns(look_up(named, self._row_of_key, self._key))
        placed = entry.keep(named, _without_nulls(on_rows, ["row"]), absent)
        on_axis = placed.with_columns(
            start=self._placement.of(pl.col("start")),
            end=self._placement.of(pl.max_horizontal(pl.col("end").fill_null(self._report_end), "start")),
        )
        long_enough = on_axis
        if self._min_duration:
            is_long = pl.col("end") - pl.col("start") >= self._min_duration
            long_enough = entry.keep(on_axis, on_axis.filter(is_long), coverage.TOO_SHORT)
        if self._source.launch is not None:
            held = self._selection.hold(long_enough["start"])
            launches.add(self._source, long_enough.with_columns(pl.col("start") - self._selection.origin), held)
        if self._selection.covers(long_enough):
            entry.written += count_rows(long_enough)
            inside = long_enough.with_columns(pl.col("start", "end") - self._selection.origin)
        else:
            inside = self._inside(long_enough, entry)
        if inside.height:
            yield self._numbered(inside)

    def _inside(self, events: pl.DataFrame, entry: SourceCoverage) -> pl.DataFrame:
        """The parts of events inside the selected time, in time of the trace."""
        clipped = self._selection.clip(events.with_row_index("event"))
        # In one window an event has one part at most.
        inside = clipped if len(self._selection.starts) == 1 else clipped.unique("event")
        entry.written += count_rows(entry.keep(events, inside, coverage.OUTSIDE))
        first, last = self._selection.starts[0], self._selection.ends[-1]
        is_cut = ((events["start"] < first) | (events["end"] > last)).any()
        if inside.height < events.height or clipped.height > inside.height or is_cut:
            original = (events["end"] - events["start"]).gather(clipped["event"])
            cut = clipped.filter(original != clipped["end"] - clipped["start"])
            entry.clipped += cut["event"].n_unique()
        return clipped.drop("event")

    def _numbered(self, events: pl.DataFrame) -> pl.DataFrame:
        numbered = events.with_columns(look_up(events, self._numbers, list(TYPE_COLUMNS)))
        value = pl.col("number_value") if "value" not in events.columns else pl.coalesce("number_value", "value")
        numbered = numbered.with_columns(value=value)
        if CPU in events.columns:
            numbered = numbered.with_columns((pl.col(CPU) + pl.lit(self._first_cpu, pl.Int64)).fill_null(0))
        for name, values in self._attributes.items():
            texts = numbered.select(name).join(values, on=name, how="left", maintain_order="left")
            numbered = numbered.with_columns(texts["value"].alias(name))
        lane = LANE_OF_TYPE if LANE_OF_TYPE in events.columns else LANE
        return self._in_lanes(numbered, lane) if lane in events.columns and lane not in self._key else numbered

    def _in_lanes(self, numbered: pl.DataFrame, lane: str) -> pl.DataFrame:
        """Ranges that would cut others off get the types beside theirs."""
        what = ["type", "number", lane]
        distinct = numbered.select(what).unique().sort(what)
        beside = [TYPES[kind].beside(number, of_lane) for kind, number, of_lane in distinct.iter_rows()]
        self.lanes.update(zip(distinct["number"], distinct[lane], beside, strict=True))
        places = distinct.with_columns(beside=pl.Series(beside, dtype=pl.Int64))
        return numbered.with_columns(
            number=numbered.select(what).join(places, on=what, how="left", maintain_order="left")["beside"]
        )


def look_up(events: pl.DataFrame, table: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """What a small table has for each event, by the columns of a key (nulls are equal); null where it has nothing.

    Columns in which all events are equal, as most are in most tables, are not joined."""
    varying = []
    for name in key:
        column = events[name]
        if column.null_count() == len(column):
            table = table.filter(pl.col(name).is_null())
        elif column.dtype.is_integer() and not column.null_count() and (least := column.min()) == column.max():
            table = table.filter(pl.col(name) == least)
        else:
            varying.append(name)
    table = table.drop(name for name in key if name not in varying)
    if varying:
        # Events can be wide: only their keys go through the join.
        joined = events.select(varying).join(table, on=varying, how="left", nulls_equal=True, maintain_order="left")
        return joined.drop(varying)
    return table[np.zeros(events.height, dtype=np.uint32)] if table.height else table.clear(events.height)


def _without_nulls(events: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Events that have all of the columns; the same frame, not a copy, when that is all of them."""
    return events.drop_nulls(columns) if any(events[name].null_count() for name in columns) else events


def _with_values(events: pl.DataFrame) -> pl.DataFrame:
    """Events with a value or a label; the same frame when that is all of them."""
    named = [name for name in ("label", "value") if name in events.columns]
    if any(not events[name].null_count() for name in named):
        return events
    return events.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in named))


def _with_exact_attributes(events: pl.DataFrame, entry: SourceCoverage) -> pl.DataFrame:
    """Events without attributes that are too large for a trace; those that lose one count as repaired."""
    inexact = [name for name in events.columns if name.isdecimal() and not _is_exact(events[name])]
    if not inexact:
        return events
    entry.repaired += int(events.select(pl.any_horizontal(~_exact(name) for name in inexact).sum()).item())
    return events.with_columns(pl.when(_exact(name)).then(name).alias(name) for name in inexact)


def _exact(name: str) -> pl.Expr:
    return pl.col(name).is_between(-LARGEST_EXACT, LARGEST_EXACT).fill_null(True)


def _is_exact(numbers: pl.Series) -> bool:
    """Whether all of some numbers are; texts get other numbers later."""
    if numbers.dtype != pl.Int64:
        return True
    least, greatest = numbers.min(), numbers.max()
    return least is None or bool(least >= -LARGEST_EXACT and greatest <= LARGEST_EXACT)  # type: ignore[operator]


class EventReader:
    """Reads reports of a run; `folder` is for intermediate files, `progress` is called with numbers of rows."""

    def __init__(self, plan: TimelinePlan, folder: Path, progress: Callable[[int], object]) -> None:
        self._plan = plan
        self._progress = progress
        self._folder = folder
        self._numbers = itertools.count()
        self._ordered = ExternalSort(["start"], folder / "ordered")

    def read(self, index: int, report: ReadableReport, requests: Sequence[Request[S]], share: Share = WHOLE) -> ReadEvents[S]:
        """Read what is requested of the events of a report, or a share of it; `index` is the report's number in the plan.

        What was read of all shares, one after the other, is what would have been read of the whole.

        Raises
        ------
        ReportError
            When it breaks off while it is read.
        """
        launches = Launches.in_folder(self._new_folder("launches"))
        entries = [SourceCoverage(request.survey.source) for request in requests]
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
                events_of[id(request)] = EventsOfSource(self._plan, index, report, request)
            coverage_of_part = SourceCoverage(request.survey.source)
            part = _Part(request, events_of[id(request)], request.sink(), coverage_of_part, launches.part())
            work.append(partial(self._read_part, report.view, part, stretch))
        parts_read = run_all(work)
        for part in parts_read:
            entry_of[id(part.request)].absorb(part.coverage)
            launches.absorb(part.launches)
        lanes = frozenset(lane for part in parts_read for lane in part.events.lanes)
        sinks = tuple((part.request, part.sink, entry_of[id(part.request)]) for part in parts_read)
        return ReadEvents(sinks, tuple(entries), launches, lanes)

    def _read_part(self, report: Report, part: _Part[S], stretch: Stretch | None, stop: Stop) -> _Part[S]:
        for piece in self._pieces(report, part.request, stretch, part.coverage):
            stop.check()
            for placed in part.events.place(piece, part.coverage, part.launches):
                part.sink.add(placed)
            self._progress(piece.height)
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
            for piece in source.events(report, partial(_needed, request), _PIECE_ROWS, stretch, folder):
                yield _counted(piece, entry)
            return
        for window in self._in_order(report, source, stretch, folder, entry):
            yield entry.keep(window, step(window), coverage.SAME_CALL)

    def _in_order(
        self, report: Report, source: Source, stretch: Stretch | None, folder: Path, entry: SourceCoverage
    ) -> Iterator[pl.DataFrame]:
        """Events of a source in the order of their start; those that start together in one piece, in the order of what is in
        them."""

        def timed() -> Iterator[pl.DataFrame]:
            for piece in source.events(report, complete, _PIECE_ROWS, stretch, folder):
                events = _counted(piece, entry)
                yield entry.keep(events, events.drop_nulls("start"), coverage.NO_TIME)

        if source.stream is None and stretch is None:
            starts = source.frame(report).select("start").drop_nulls()
            if _is_in_order(report.batches(starts, _PIECE_ROWS)):
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
    return in_order or survey.source.stream is not None


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
