"""Reports as a recording: opened, told apart, aligned, arranged and placed as for a translation."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from tqdm import tqdm

from nsys2prv import events as vocabulary
from nsys2prv.analysis.recording import (
    COLLECTIONS,
    LAUNCH_SCHEMA,
    ON_HOSTS,
    RANGES,
    Callers,
    Collection,
    Recording,
    RunRows,
    TaskRows,
    TypeNames,
    base_types,
    new_collections,
)
from nsys2prv.errors import InconsistentRun, NothingToTranslate, ReportError
from nsys2prv.execution.runs import SortedRuns
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import InThisProcess
from nsys2prv.kernel_families import read_rules
from nsys2prv.ledger import Entry
from nsys2prv.opened import BrokenReports, OpenedReport, open_reports
from nsys2prv.reports import Report
from nsys2prv.reports.nsys import NsysExport
from nsys2prv.reports.run import Naming, who_is_who
from nsys2prv.reports.tables import Stretch
from nsys2prv.sources import SOURCES, Source
from nsys2prv.sources.source import LEFT_OUT
from nsys2prv.timeline.axis import Axis, align
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.place import EventsOfSource
from nsys2prv.timeline.rows import LANE, Rows, arrange
from nsys2prv.timeline.selection import Windows
from nsys2prv.timeline.survey import TYPE_COLUMNS, Survey, complete, text_attributes
from nsys2prv.translate import TimeRange

_PIECE_ROWS = 60_000
_ROWS_AT_ONCE = 75_000
_MOST_PARTS = 4


@dataclass(frozen=True)
class ReadReports:
    """How reports are read; the fields mean what they mean for a translation."""

    time: TimeRange | None = None
    ranks: frozenset[int] | None = None
    align: str = "auto"
    rank_pattern: str | None = None
    host_pattern: str | None = None
    strict: bool = False
    keep_going: bool = False
    kernel_families: Path | None = None
    nsys: Path | None = None
    cache: Path | None = None
    progress: bool | None = None


def record_reports(arguments: Sequence[str | Path], how: ReadReports, folder: Path, *, with_ranges: bool = False) -> Recording:
    """Read reports.

    Parameters
    ----------
    arguments
        Reports: files, folders, globs.
    how
        What to keep, and how clocks and names are tied together.
    folder
        For intermediate files.
    with_ranges
        Read NVTX ranges too.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user.
    """
    return _Reading(arguments, how, folder, with_ranges).recording()


class _Reading:
    """One run of `record_reports`."""

    def __init__(self, arguments: Sequence[str | Path], how: ReadReports, folder: Path, with_ranges: bool) -> None:
        self._arguments = arguments
        self._how = how
        self._folder = folder
        self._wanted = tuple(one for one in COLLECTIONS if with_ranges or one is not RANGES)
        self._hide_progress: bool | None = None if how.progress is None else not how.progress
        self._families = read_rules(how.kernel_families)
        self._folders = itertools.count()
        self._broken = BrokenReports(how.keep_going)
        # The rows, the axis and the numbers must be those of the trace: all sources are looked over.
        with self._bar("surveying", 0, "table") as bar:
            self._opened = open_reports(
                arguments,
                SOURCES,
                workers=InThisProcess(),
                export=NsysExport(how.nsys, how.cache),
                folder=folder,
                broken=self._broken,
                bar=bar,
            )

    def recording(self) -> Recording:
        naming = Naming.of(self._how.rank_pattern, self._how.host_pattern)
        while True:
            self._broken.without(self._opened, partial(self._arrange, naming))
            attempt = self._folder / f"attempt{next(self._folders)}"
            try:
                return self._collect(attempt)
            except ReportError as error:
                broken = next((opened for opened in self._opened if opened.report.is_at(error.path)), None)
                if broken is None:
                    raise
                self._broken.leave_out(broken.report.path, error)
                self._opened.remove(broken)
                self._broken.check_rest(self._opened)
                shutil.rmtree(attempt, ignore_errors=True)

    def _arrange(self, naming: Naming) -> None:
        spans = [opened.span for opened in self._opened]
        self._run = who_is_who(
            [opened.report.path for opened in self._opened],
            [opened.told for opened in self._opened],
            spans,
            naming,
            self._how.ranks,
        )
        errors = [finding.text for finding in self._run.findings if finding.kind.is_error]
        if self._how.strict and errors:
            raise InconsistentRun(errors)
        for opened, identity in zip(self._opened, self._run.identities, strict=True):
            opened.identity = identity
        identities = list(self._run.identities)
        self._axis: Axis = align(
            [opened.report for opened in self._opened],
            identities,
            spans,
            self._how.align,
            self._folder / f"clocks{next(self._folders)}",
        )
        self._windows = self._choose_windows()
        surveys = [opened.surveys for opened in self._opened]
        self._rows: Rows = arrange(identities, surveys, self._how.ranks)
        if self._rows.table.is_empty():
            raise NothingToTranslate("none of the ranks chosen has events" if self._how.ranks else "the reports hold no events")
        self._labels = Labels((found for of_report in surveys for found in of_report), None, self._families)

    def _choose_windows(self) -> Windows:
        ends = [
            placement.at(opened.span[1])
            for opened, placement in zip(self._opened, self._axis.placements, strict=True)
            if opened.span is not None
        ]
        if not ends:
            raise NothingToTranslate("the reports hold no events")
        whole = max(*ends, 1)
        chosen = self._how.time or TimeRange()
        begin, end = chosen.begin or 0, chosen.end if chosen.end is not None else whole
        windows = Windows((0,), (whole,)).intersection(Windows((begin,), (max(end, begin + 1),)))
        if not windows.begins:
            raise NothingToTranslate(f"the reports end {whole / 1e9:.6f} s after their first event, before the time chosen")
        return windows

    def _collect(self, folder: Path) -> Recording:
        collections = new_collections(folder, self._wanted)
        rows = _run_rows(self._rows)
        self._callers = Callers(rows)
        launches = SortedRuns(["to_time"], folder / "launches")
        work = [
            (index, opened, found, collection)
            for index, opened in enumerate(self._opened)
            for found in opened.surveys
            for collection in self._wanted
            if set(collection.types).intersection(found.source.types)
        ]
        with self._bar("reading", sum(found.rows for _, _, found, _ in work), "event") as bar:
            for index, opened in enumerate(self._opened):
                of_report = [(found, collection) for at, _, found, collection in work if at == index]
                self._collect_report(index, opened, of_report, collections, launches, bar)
        return Recording(
            inputs=tuple(str(argument) for argument in self._arguments),
            is_trace=False,
            title=_title(self._opened),
            rows=rows,
            begin=self._windows.origin,
            length=self._windows.length,
            types={used.number: TypeNames(used.label, used.values) for used in self._labels.used},
            collections={name: collection for name, collection in collections.items() if collection.rows},
            launches=launches if launches.rows else None,
            callers=self._callers.found,
            began=_began(opened.identity.utc_ns for opened in self._opened),
            alignment=[alignment_row(clock.as_json()) for clock in self._axis.clocks],
            warnings=[
                *(f"left out: {one.error}" for one in self._broken.left_out),
                *dict.fromkeys(warning for opened in self._opened for warning in opened.identity.warnings),
                *(finding.text for finding in self._run.findings),
                *self._axis.warnings,
            ],
            left_out=[(str(one.path), str(one.error)) for one in self._broken.left_out],
        )

    def _collect_report(
        self,
        index: int,
        opened: OpenedReport,
        of_report: list[tuple[Survey, Collection]],
        collections: dict[str, SortedRuns],
        launches: SortedRuns,
        bar: tqdm[Any],
    ) -> None:
        ends = Launches.in_folder(self._folder / f"launches{next(self._folders)}")
        work: list[Callable[[Stop], tuple[str, SortedRuns, Launches]]] = []
        for found, collection in of_report:
            reduced = _reduced(found, collection)
            events = EventsOfSource(
                reduced,
                self._first_lanes(index, found.source),
                self._labels,
                self._windows,
                placement=self._axis.placements[index],
                first_cpu=None,
                report_end=opened.span[1] if opened.span else 0,
                min_duration=0,
            )
            whole = found.source.gather is not None or found.source.in_order is not None
            parts = 1 if whole else min(found.rows // _ROWS_AT_ONCE, _MOST_PARTS)
            for stretch in opened.report.tables.stretches(found.source.table, parts):
                made = collections[collection.name].part()
                part = ends.part()
                work.append(partial(self._collect_source, opened.view, found, collection, events, stretch, made, part, bar))
        for name, made, part in run_all(work):
            collections[name].absorb(made)
            ends.absorb(part)
        for messages in ends.messages():
            launches.add(messages.select(pl.col(name).cast(dtype) for name, dtype in LAUNCH_SCHEMA.items()))

    def _first_lanes(self, index: int, source: Source) -> pl.DataFrame | None:
        """Rows of the source's keys; of streams with several rows the first: here intervals may overlap on a row."""
        rows = self._rows.keys.get((index, source.row))
        return rows.filter(pl.col(LANE) == 0) if rows is not None and LANE in rows.columns else rows

    def _collect_source(
        self,
        report: Report,
        found: Survey,
        collection: Collection,
        events: EventsOfSource,
        stretch: Stretch | None,
        made: SortedRuns,
        launches: Launches,
        bar: tqdm[Any],
        stop: Stop,
    ) -> tuple[str, SortedRuns, Launches]:
        unused = Entry.of(found.source)
        for piece in self._pieces(report, found.source, collection, stretch):
            stop.check()
            for placed in events.place(piece, unused, launches):
                kept = narrow(placed, collection)
                made.add(kept)
                if collection is ON_HOSTS:
                    self._callers.add(kept)
            bar.update(piece.height)
        return collection.name, made, launches

    def _pieces(
        self, report: Report, source: Source, collection: Collection, stretch: Stretch | None
    ) -> Iterator[pl.DataFrame]:
        """Events of a source in pieces, with the columns that the collection needs."""
        if source.gather is not None:
            folder = self._folder / f"gather{next(self._folders)}"
            for piece in source.gather(report, folder):
                yield _needed(complete(piece.lazy()), source, collection).collect()
            return
        if source.in_order is None:
            yield from report.pieces(lambda piecewise: _needed(complete(source.frame(piecewise)), source, collection),
                                     _PIECE_ROWS, stretch)  # fmt: skip
            return
        ordered = SortedRuns(["start"], self._folder / f"ordered{next(self._folders)}")
        for piece in report.pieces(lambda piecewise: complete(source.frame(piecewise)), _PIECE_ROWS, stretch):
            ordered.add(piece.drop_nulls("start"))
        step = source.in_order()
        for window in ordered.windows():
            yield _needed(step(window).lazy(), source, collection).collect()

    def _bar(self, what: str, total: int, unit: str) -> tqdm[Any]:
        return tqdm(
            total=total,
            desc=what,
            unit=unit,
            unit_scale=True,
            disable=self._hide_progress,
            file=sys.stderr,
            leave=False,
            delay=0.5,
        )


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
    kind = vocabulary.TYPES[base]
    lane = number - kind.lanes
    members = kind.members + 1 if kind.is_series else 1
    if kind.lanes and 0 <= lane < members * vocabulary.LANES_OF_A_MEMBER:
        return kind.member(lane // vocabulary.LANES_OF_A_MEMBER) if kind.is_series else base
    return number


def _needed(frame: pl.LazyFrame, source: Source, collection: Collection) -> pl.LazyFrame:
    present = frame.collect_schema().names()
    attributes = [str(number) for numbers in collection.attributes.values() for number in numbers]
    further = ["value", "again", *attributes, *(["correlationId", "size"] if source.launch is not None else [])]
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


def alignment_row(clock: dict[str, Any]) -> dict[str, Any]:
    """A row of the table `alignment` from what OUT.json tells of a clock."""
    errors = clock.get("error_ns", {})
    return {
        "host": clock["host"],
        "method": clock["method"],
        "anchors": clock.get("anchors"),
        "offset_ns": clock.get("offset_ns"),
        "drift_ppm": clock.get("drift_ppm"),
        "median_error_ns": errors.get("median"),
        "p95_error_ns": errors.get("percentile_95"),
        "largest_error_ns": errors.get("largest"),
    }


def _began(starts: Iterable[int | None]) -> str | None:
    told = [start for start in starts if start is not None]
    if not told:
        return None
    return datetime.fromtimestamp(min(told) // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _title(opened: Sequence[OpenedReport]) -> str:
    first = opened[0].report.path
    return first.name if len(opened) == 1 else f"{first.parent.name or first.name} ({len(opened)} reports)"
