"""Where the measured events come from: reports are opened, planned and placed as for a translation, and become `RunEvents`."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency import run_events
from nsys2prv.efficiency.clock_accuracy import clock_errors
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import LAUNCH, call_categories
from nsys2prv.efficiency.run_events import Collection, GpuSize, RunEvents, RunRows, TaskRows, base_types
from nsys2prv.errors import RunTooLarge
from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.row_order import distinct
from nsys2prv.execution.workers import Shared, workers
from nsys2prv.exports.identity import SLICE_OF_GPU, Gpu
from nsys2prv.exports.paths import check_are_reports
from nsys2prv.run.collect import Collected, MakeRows, ReportPart, Unfinished
from nsys2prv.run.open import OpenedReport, processes_with_kernels
from nsys2prv.run.options import ReadOptions
from nsys2prv.run.session import RunPlan, RunSession
from nsys2prv.sources.communication.message_ends import MPI
from nsys2prv.sources.cuda.api_calls import FAILED_SCHEMA, failed_calls, named_failures
from nsys2prv.sources.registry import SOURCES, TYPES
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.messages import Launches
from nsys2prv.timeline.reader import ReadEvents, Request, TimelinePlan
from nsys2prv.timeline.survey import Survey, text_attributes
from nsys2prv.timeline.time_axis import TimeSelection
from nsys2prv.vocabulary import wording
from nsys2prv.vocabulary.event_types import LANES_OF_A_MEMBER

_LAUNCHES = "launches"
_BYTES_OF_INTERVAL, _BYTES_OF_SAMPLE = 380, 40
"""What measuring takes at most for each interval and each sample, with its columns."""
_MARGIN = 0.8
"""How much of the memory the part takes that is proposed."""


def read_events(
    arguments: Sequence[str | Path], options: ReadOptions, folder: Path, *, with_dependencies: bool = False
) -> RunEvents:
    """Read the events of a run from reports: files, folders, globs; intermediate files go into `folder`. `with_dependencies`:
    also what says which events wait for which (collections that are `optional`).

    Raises a Nsys2prvError with one sentence for the user."""
    check_are_reports(arguments)
    room = memory.left(options.memory)
    collections = tuple(collection for collection in run_events.COLLECTIONS if with_dependencies or not collection.optional)
    with workers(options.workers, options.scheduler, options.memory, [folder]) as pool:
        # Rows, axis and numbers are those of the trace: all sources are surveyed.
        session = RunSession(arguments, SOURCES, options, folder, pool)
        check_size(session.plan, collections, room)
        return events_of_session(session, arguments, collections)


def check_size(plan: RunPlan, collections: Sequence[Collection], room: int) -> None:
    """Check before events are read that their columns and what is measured of them fit into `room` bytes. Of a part of the
    time, or of some ranks, it is assumed that events are as dense there as elsewhere.

    Raises RunTooLarge."""
    intervals, needed = 0, 0.0
    for index, opened in enumerate(plan.reports):
        # Sources of one table look through the same rows.
        rows = {
            (collection.samples, survey.source.table, str(survey.source.only)): survey.rows
            for survey, collection in _surveys_of(opened, collections)
        }
        part = _part_that_is_read(plan, index)
        intervals += round(sum(of_table for (is_sample, *_), of_table in rows.items() if not is_sample) * part)
        needed += part * sum(of_table * (_BYTES_OF_SAMPLE if key[0] else _BYTES_OF_INTERVAL) for key, of_table in rows.items())
    if needed <= room:
        return
    selection, fits = plan.timeline.selection, _MARGIN * room / needed
    begin = selection.origin + round(selection.length * (1 - fits) / 2)
    parts = [f"--time {begin / 1e9:.3f}s:{(begin + selection.length * fits) / 1e9:.3f}s"]
    ranks = sorted({task.rank for task in plan.timeline.rows.tasks if task.rank is not None})
    if (count := int(len(ranks) * fits)) > 0:
        parts.append(f"--ranks {wording.ranges(ranks[:count])}")
    raise RunTooLarge(intervals, round(needed), room, parts)


def _part_that_is_read(plan: RunPlan, index: int) -> float:
    """Which part of the events of a report is in the selected time and of selected ranks, about."""
    opened, timeline = plan.reports[index], plan.timeline
    selected = {task.rank for task in timeline.rows.tasks if task.report == index}
    if opened.span is None or not selected:
        return 0.0
    recorded = set(opened.identity.ranks.values())
    of_ranks = len(selected & recorded) / len(recorded) if recorded else 1.0
    first, last = (plan.axis.placements[index].at(time) for time in opened.span)
    selection = timeline.selection
    pieces = zip(selection.starts, selection.ends, strict=True)
    inside = sum(max(min(last, end) - max(first, start), 0) for start, end in pieces)
    return of_ranks * inside / max(last - first, 1)


def events_of_session(session: RunSession, arguments: Sequence[str | Path], collections: tuple[Collection, ...]) -> RunEvents:
    """Read collections of the reports of a session, which were named as the arguments."""

    def rows_to_read(opened: OpenedReport) -> int:
        return sum(survey.rows for survey, _ in _surveys_of(opened, collections))

    read = session.read(partial(EventColumns, collections), rows_to_read, "reading")
    plan, selection = session.plan, session.plan.timeline.selection
    clocks = [clock.as_json() for clock in plan.axis.clocks]
    errors = clock_errors(clocks, plan.alignment, selection.origin)
    tasks = [
        TaskRows(
            task.name,
            plan.timeline.rows.nodes[task.node].name,
            tuple(thread.name for thread in task.threads),
            task.report,
            errors[task.report] if task.report is not None else None,
            tuple(thread.flag for thread in task.threads),
        )
        for task in plan.timeline.rows.tasks
    ]
    rows = RunRows(tasks)
    first, count, placed = plan.reports[0].report.path, len(plan.reports), [clock.at for clock in plan.axis.placements]
    identities = [opened.identity for opened in plan.reports]
    utc = [identity.utc_ns for identity in identities if identity.utc_ns is not None]
    stopped = [identity.stopped_ns for identity in identities]
    stops = [at(time) - selection.origin for at, time in zip(placed, stopped, strict=True) if time is not None]
    begun = min(at(0) for at in placed) - selection.origin
    recordings = zip(placed, (opened.span for opened in plan.reports), stopped, strict=True)
    spans = sorted((at(span[0]), at(max(span[1], stop or 0))) for at, span, stop in recordings if span is not None)
    until = itertools.accumulate((end for _, end in spans), max)
    pauses = ((end - selection.origin, begin - selection.origin) for end, (begin, _) in zip(until, spans[1:], strict=False))
    messages, launches = _messages(read, selection), read.sorts[_LAUNCHES]
    # Where kernels ran few calls fail, and many would be looked through.
    failures = [failed_calls(opened.report) for opened in plan.reports if not processes_with_kernels(opened.surveys)]
    failed = pl.concat([pl.DataFrame(schema=FAILED_SCHEMA), *failures])
    causes = named_failures(failed)
    is_new = causes and not any(causes in text for text in session.warnings)
    return RunEvents(
        inputs=tuple(str(argument) for argument in arguments),
        title=first.name if count == 1 else f"{first.parent.name or first.name} ({count} reports)",
        rows=rows,
        begin=selection.origin,
        length=selection.length,
        types={used.number: used for used in plan.timeline.labels.used_with()},
        collections={name: events for name, events in read.sorts.items() if events.rows and name != _LAUNCHES},
        launches=launches if launches.rows else None,
        messages=messages if messages.rows else None,
        ranks_of_run=plan.run.size or 0,
        began=datetime.fromtimestamp(min(utc) // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") if utc else None,
        clocks=clocks,
        report_clocks=plan.alignment,
        recorders=tuple(sorted({identity.tool for identity in identities if identity.tool})),
        gpus=tuple(sorted({gpu.name for identity in identities for gpu in identity.gpus if gpu.name})),
        # Of slices of a GPU (MIG) it is not known how large they are.
        gpu_sizes=frozenset(
            GpuSize() if gpu.uuid.startswith(SLICE_OF_GPU) else GpuSize(*gpu.sizes)
            for opened in plan.reports
            for gpu in _used_gpus(opened)
        ),
        recorded=(begun, max(stops) if len(stops) == count else selection.length),
        stops=frozenset(stops),
        pauses=tuple((begin, end) for begin, end in pauses if begin < end),
        failed_calls=int(failed.filter("ends_work")["count"].sum()),
        failed_launches=int(failed["count"].to_numpy()[call_categories(failed["label"]) == LAUNCH].sum()),
        warnings=[
            *session.warnings,
            *([f"calls of CUDA failed, and did not do what they are for: {causes}"] if is_new else []),
        ],
        left_out=[(str(left_out.path), str(left_out.error)) for left_out in session.left_out],
    )


def _used_gpus(opened: OpenedReport) -> Sequence[Gpu]:
    """GPUs with streams; all of the host, where it is not known which these are."""
    identity = opened.identity
    keys = [survey.keys.select("globalPid", "deviceId") for survey in opened.surveys if survey.source.row is RowKind.STREAM]
    pairs = pl.concat(keys).unique().iter_rows() if keys and identity.devices else ()
    used = {identity.gpu_key(*pair) for pair in pairs}
    return [gpu for gpu in identity.gpus if gpu.key in used] or identity.gpus


class _CollectionRows:
    """What one collection has of the events of a source: a sink of the reader."""

    def __init__(self, collection: Collection, rows: ExternalSort, first_rows: Numbers) -> None:
        self.collection, self.rows, self.first_rows = collection, rows.part(), first_rows

    def add(self, placed: pl.DataFrame) -> None:
        # Column by column, here as below: each query over a frame takes longer than these few rows.
        numbers = distinct(placed["number"].cast(pl.Int64).to_numpy())
        base_of = base_types(numbers.numbers.tolist(), self.collection)
        if len(base_of) < len(numbers.numbers):
            placed = placed[np.flatnonzero(numbers.which(base_of.__contains__)[numbers.place])]
        from_types = {*self.collection.attributes, *self.collection.computed}
        columns = {name: placed[name] for name in self.collection.schema if name not in from_types}
        for name, types in self.collection.attributes.items():
            of_types = [placed[str(number)] for number in types if str(number) in placed.columns]
            columns[name] = of_types[0] if of_types else pl.repeat(None, placed.height, dtype=pl.Int64, eager=True)
            for of_type in of_types[1:]:
                columns[name] = columns[name].zip_with(columns[name].is_not_null(), of_type)
        if self.collection.computed:
            missing = self.collection.columns.difference(placed.columns)
            with_all = placed.with_columns(pl.lit(None, pl.Float32).alias(name) for name in missing)
            columns |= with_all.select(**self.collection.computed).to_dict()
        columns["row"] = pl.Series(self.first_rows[columns["row"].to_numpy()])
        if not self.collection.samples:
            # A member of a series keeps its number, which is that of its name; a lane is the same events on another row.
            lanes = {number: beside for number, base in base_of.items() if (beside := _without_lane(number, base)) != number}
            if lanes:
                columns["number"] = columns["number"].replace(lanes)
        self.rows.add(pl.DataFrame([columns[name].alias(name).cast(dtype) for name, dtype in self.collection.schema.items()]))


def _without_lane(number: int, base: int) -> int:
    """The type that a lane is beside; the number itself when it is no lane."""
    event_type = TYPES[base]
    lane = number - event_type.lanes
    members = event_type.members + 1 if event_type.is_series else 1
    if event_type.lanes and 0 <= lane < members * LANES_OF_A_MEMBER:
        return event_type.member(lane // LANES_OF_A_MEMBER) if event_type.is_series else base
    return number


class EventColumns(Collected[_CollectionRows]):
    """Rows of collections, and lines of launches."""

    has_launches = True

    def __init__(self, collections: tuple[Collection, ...], folder: Path, _reports: Sequence[OpenedReport]) -> None:
        sorts = {_LAUNCHES: ExternalSort(["to_time"], folder / _LAUNCHES)}
        for collection in collections:
            until = None if collection.samples else "end"
            sorts[collection.name] = ExternalSort(["start"], folder / collection.name, until=until)
        super().__init__(folder, sorts)
        self.kinds_of_messages = (MPI,) if run_events.MPI_COLLECTIVES in collections else ()
        self._collections = collections

    def requests(self, opened: OpenedReport, timeline: TimelinePlan, _unfinished: Unfinished) -> list[Request[_CollectionRows]]:
        return [
            Request(
                # Without texts of other attributes. Here intervals may overlap on a row.
                replace(survey, groups=survey.groups.drop(set(text_attributes(survey.groups.schema)) - collection.columns)),
                partial(_CollectionRows, collection, self.sorts[collection.name], timeline.rows.first_of_stream),
                columns=collection.columns,
                by_lane=False,
            )
            for survey, collection in _surveys_of(opened, self._collections)
        ]

    def take(self, _part: ReportPart, read: ReadEvents[_CollectionRows], _unfinished: Unfinished) -> None:
        for _, sink, _ in read.sinks:
            self.sorts[sink.collection.name].absorb(sink.rows)

    def further(self, timeline: Shared[TimelinePlan], unfinished: Unfinished) -> list[tuple[str, MakeRows]]:
        return [(_LAUNCHES, partial(_launch_lines, launches, timeline)) for launches in unfinished.launches.values()]


def _launch_lines(launches: Launches, timeline: Shared[TimelinePlan]) -> Iterator[pl.DataFrame]:
    first_rows = timeline.value.rows.first_of_stream
    for lines in launches.messages():
        on_first_rows = lines.with_columns(to_row=pl.Series(first_rows[lines["to_row"].to_numpy()]))
        yield on_first_rows.select(pl.col(name).cast(dtype) for name, dtype in run_events.LAUNCH_SCHEMA.items())


def _messages(read: EventColumns, selection: TimeSelection) -> ExternalSort:
    """Messages between ranks whose ends were read."""
    messages = ExternalSort(["to_time"], read.folder / "paired-messages")
    for pairs in read.messages.messages(selection):
        messages.add(pairs.select(pl.col(name).cast(dtype) for name, dtype in run_events.MESSAGE_SCHEMA.items()))
    return messages


def _surveys_of(opened: OpenedReport, collections: Sequence[Collection]) -> list[tuple[Survey, Collection]]:
    """What each collection takes from a report."""
    return [
        (survey, collection)
        for survey in opened.surveys
        for collection in collections
        if set(collection.types).intersection(survey.source.types)
    ]
