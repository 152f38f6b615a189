"""Reports as a recording: opened, told apart, aligned, arranged and placed as for a translation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.efficiency.run_events import (
    COLLECTIONS,
    LAUNCH_SCHEMA,
    ON_HOSTS,
    RANGES,
    Callers,
    Collection,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    base_types,
    new_collections,
)
from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Report
from nsys2prv.exports.forms import Stretch
from nsys2prv.run.open import OpenedReport, no_progress
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.run.session import Group, RunSession
from nsys2prv.sources.registry import SOURCES, TYPES
from nsys2prv.sources.source import CONTINUATION, LEFT_OUT, Source, StreamedSource
from nsys2prv.timeline.coverage import Entry
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.placement import EventsOfSource
from nsys2prv.timeline.rows import LANE, Rows
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.timeline.survey import TYPE_COLUMNS, Survey, complete, text_attributes
from nsys2prv.timeline.time_axis import Placement
from nsys2prv.vocabulary import event_types as vocabulary

_PIECE_ROWS = 60_000
_ROWS_AT_ONCE = 75_000
_MOST_PARTS = 4


@dataclass(frozen=True)
class _Plan:
    """What is settled before events are read: what is wanted of them, where they lie, and their numbers."""

    wanted: tuple[Collection, ...]
    placements: tuple[Placement, ...]
    windows: TimeSelection
    rows: Rows
    labels: Labels


@dataclass
class _Collected:
    """What was read of a group."""

    collections: dict[str, ExternalSort]
    launches: ExternalSort
    callers: Callers = field(default_factory=Callers)
    broken: dict[int, ReportError] = field(default_factory=dict)

    @classmethod
    def in_folder(cls, folder: Path, wanted: Sequence[Collection]) -> _Collected:
        """Nothing yet; intermediate files are written to the folder."""
        return cls(new_collections(folder, wanted), ExternalSort(["to_time"], folder / "launches"))

    def absorb(self, other: _Collected) -> None:
        """Take over what was read of another group."""
        for name, collection in other.collections.items():
            self.collections[name].absorb(collection)
        self.launches.absorb(other.launches)
        self.callers.update(other.callers)

    def spill(self) -> None:
        """Write what is still in memory: the rest can be pickled then."""
        for collection in (*self.collections.values(), self.launches):
            collection.spill()


def record_reports(
    arguments: Sequence[str | Path], how: ReadOptions, folder: Path, workers: Workers, *, with_ranges: bool = False
) -> RunEvents:
    """Read reports.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    how
        What to keep, and how clocks and names are tied together.
    folder
        For intermediate files.
    workers
        Who does the work.
    with_ranges
        Read NVTX ranges too.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user.
    """
    wanted = tuple(one for one in COLLECTIONS if with_ranges or one is not RANGES)
    # The rows, the axis and the numbers must be those of the trace: all sources are looked over.
    reports = RunSession(arguments, SOURCES, how, folder, workers)
    made = reports.read(_collect, partial(_begin, reports, wanted), partial(_rows_to_read, wanted), "reading")
    rows = _run_rows(reports.rows)
    opened = reports.opened
    return RunEvents(
        inputs=tuple(str(argument) for argument in arguments),
        is_trace=False,
        title=_title(opened),
        rows=rows,
        begin=reports.windows.origin,
        length=reports.windows.length,
        types={used.number: TypeNames(used.label, used.values) for used in reports.labels.used},
        collections={name: collection for name, collection in made.collections.items() if collection.rows},
        launches=made.launches if made.launches.rows else None,
        callers=made.callers.with_gpus(rows),
        began=_began(one.identity.utc_ns for one in opened),
        clocks=[clock.as_json() for clock in reports.axis.clocks],
        recorders=distinct(one.identity.tool for one in opened),
        gpus=distinct(gpu.name for one in opened for gpu in one.identity.gpus),
        warnings=[
            *(f"left out: {one.error}" for one in reports.left_out),
            *dict.fromkeys(warning for one in opened for warning in one.identity.warnings),
            *(finding.text for finding in reports.run.findings),
            *reports.axis.warnings,
        ],
        left_out=[(str(one.path), str(one.error)) for one in reports.left_out],
    )


def _begin(reports: RunSession, wanted: tuple[Collection, ...], folder: Path) -> tuple[_Plan, _Collected]:
    plan = _Plan(wanted, reports.axis.placements, reports.windows, reports.rows, reports.labels)
    return plan, _Collected.in_folder(folder / "all", wanted)


def _wanted_of(opened: OpenedReport, wanted: Sequence[Collection]) -> list[tuple[Survey, Collection]]:
    """What each collection takes from a report."""
    return [
        (found, collection)
        for found in opened.surveys
        for collection in wanted
        if set(collection.types).intersection(found.source.types)
    ]


def _rows_to_read(wanted: Sequence[Collection], opened: OpenedReport) -> int:
    return sum(found.rows for found, _ in _wanted_of(opened, wanted))


def _collect(group: Group[_Plan], tell: Callable[[int], object] = no_progress) -> _Collected:
    """Read what is wanted of some reports; `tell` learns how many rows were read."""
    return _Collector(group, tell).collect()


class _Collector:
    """Reads a group."""

    def __init__(self, group: Group[_Plan], tell: Callable[[int], object]) -> None:
        self._group = group
        self._plan = group.plan.value
        self._tell = tell
        self._folder = group.own_folder()
        self._folders = itertools.count()
        self._made = _Collected.in_folder(self._folder, self._plan.wanted)

    def collect(self) -> _Collected:
        self._made.broken = self._group.each(self._collect_report)
        if self._group.on_disk:
            self._made.spill()
        return self._made

    def _collect_report(self, index: int, opened: OpenedReport) -> None:
        plan = self._plan
        ends = Launches.in_folder(self._folder / f"launches{next(self._folders)}")
        work: list[Callable[[Stop], tuple[str, ExternalSort, Launches]]] = []
        for found, collection in _wanted_of(opened, plan.wanted):
            events = EventsOfSource(
                _reduced(found, collection),
                self._first_lanes(index, found.source),
                plan.labels,
                plan.windows,
                placement=plan.placements[index],
                first_cpu=None,
                report_end=opened.span[1] if opened.span else 0,
                min_duration=0,
            )
            whole = isinstance(found.source, StreamedSource) or found.source.in_order is not None
            parts = 1 if whole else min(found.rows // _ROWS_AT_ONCE, _MOST_PARTS)
            for stretch in opened.report.tables.stretches(found.source.table, parts):
                made = self._made.collections[collection.name].part()
                part = ends.part()
                work.append(partial(self._collect_source, opened.view, found, collection, events, stretch, made, part))
        for name, made, part in run_all(work):
            self._made.collections[name].absorb(made)
            ends.absorb(part)
        for messages in ends.messages():
            self._made.launches.add(messages.select(pl.col(name).cast(dtype) for name, dtype in LAUNCH_SCHEMA.items()))

    def _first_lanes(self, index: int, source: Source) -> pl.DataFrame | None:
        """Rows of the source's keys; of streams with several rows the first: here intervals may overlap on a row."""
        rows = self._plan.rows.keys.get((index, source.row))
        return rows.filter(pl.col(LANE) == 0) if rows is not None and LANE in rows.columns else rows

    def _collect_source(
        self,
        report: Report,
        found: Survey,
        collection: Collection,
        events: EventsOfSource,
        stretch: Stretch | None,
        made: ExternalSort,
        launches: Launches,
        stop: Stop,
    ) -> tuple[str, ExternalSort, Launches]:
        unused = Entry.of(found.source)
        for piece in self._pieces(report, found.source, collection, stretch):
            stop.check()
            for placed in events.place(piece, unused, launches):
                kept = narrow(placed, collection)
                made.add(kept)
                if collection == ON_HOSTS:
                    self._made.callers.add(kept)
            self._tell(piece.height)
        return collection.name, made, launches

    def _pieces(
        self, report: Report, source: Source, collection: Collection, stretch: Stretch | None
    ) -> Iterator[pl.DataFrame]:
        """Events of a source in pieces, with the columns that the collection needs."""
        folder = self._folder / f"source{next(self._folders)}"
        if isinstance(source, StreamedSource) or source.in_order is None:
            yield from source.events(
                report, lambda frame: _needed(complete(frame), source, collection), _PIECE_ROWS, stretch, folder
            )
            return
        ordered = ExternalSort(["start"], self._folder / f"ordered{next(self._folders)}")
        for piece in source.events(report, complete, _PIECE_ROWS, stretch, folder):
            ordered.add(piece.drop_nulls("start"))
        step = source.in_order()
        for window in ordered.windows():
            yield _needed(step(window).lazy(), source, collection).collect()


def narrow(placed: pl.DataFrame, collection: Collection) -> pl.DataFrame:
    """Placed events (columns `row`, `start`, `end`, `number`, `value`, attributes by number) as rows of a collection."""
    numbers = placed["number"].unique().to_list()
    bases = base_types(numbers, collection)
    attributes = {
        name: [pl.col(str(number)) for number in numbers_of if str(number) in placed.columns]
        for name, numbers_of in collection.attributes.items()
    }
    columns: dict[str, pl.Expr] = {name: pl.col(name) for name in collection.schema}
    columns |= {name: pl.coalesce(found) if found else pl.lit(None, pl.Int64) for name, found in attributes.items()}
    if any(number != base and not collection.samples for number, base in bases.items()):
        # A type of a series keeps its number, which tells its name; one beside it is for the same events on another row.
        lanes = {number: _without_lane(number, base) for number, base in bases.items()}
        columns["number"] = pl.col("number").replace(lanes)
    chosen = placed if len(bases) == len(numbers) else placed.filter(pl.col("number").is_in(list(bases)))
    return chosen.select(columns[name].cast(dtype).alias(name) for name, dtype in collection.schema.items())


def _without_lane(number: int, base: int) -> int:
    """The type that a lane stands beside; the number itself when it is none."""
    kind = TYPES[base]
    lane = number - kind.lanes
    members = kind.members + 1 if kind.is_series else 1
    if kind.lanes and 0 <= lane < members * vocabulary.LANES_OF_A_MEMBER:
        return kind.member(lane // vocabulary.LANES_OF_A_MEMBER) if kind.is_series else base
    return number


def _needed(frame: pl.LazyFrame, source: Source, collection: Collection) -> pl.LazyFrame:
    present = frame.collect_schema().names()
    attributes = [str(number) for numbers in collection.attributes.values() for number in numbers]
    further = ["value", CONTINUATION, *attributes, *(["correlationId", "size"] if source.launch is not None else [])]
    if LEFT_OUT in present:
        frame = frame.filter(pl.col(LEFT_OUT).is_null())
    columns = [*source.row.key, "start", "end", *TYPE_COLUMNS, *further]
    return frame.select(name for name in dict.fromkeys(columns) if name in present)


def _reduced(found: Survey, collection: Collection) -> Survey:
    """A survey without the texts of attributes that are not wanted."""
    wanted = {str(number) for numbers in collection.attributes.values() for number in numbers}
    unwanted = [name for name in text_attributes(found.groups.schema) if name not in wanted]
    return replace(found, groups=found.groups.drop(unwanted))


def _run_rows(rows: Rows) -> RunRows:
    return RunRows(
        [TaskRows(task.name, rows.nodes[task.node].name, tuple(thread.name for thread in task.threads)) for task in rows.tasks]
    )


def distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    """Different names, in order; those that are not told are left out."""
    return tuple(sorted({name for name in names if name}))


def _began(starts: Iterable[int | None]) -> str | None:
    told = [start for start in starts if start is not None]
    if not told:
        return None
    return datetime.fromtimestamp(min(told) // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _title(opened: Sequence[OpenedReport]) -> str:
    first = opened[0].report.path
    return first.name if len(opened) == 1 else f"{first.parent.name or first.name} ({len(opened)} reports)"
