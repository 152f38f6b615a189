"""Events of reports for the measurement: they are opened, planned and placed as for a translation."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.efficiency.clock_accuracy import clock_errors
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import (
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    MPI_COLLECTIVES,
    ON_HOSTS,
    Collection,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    calling_rows,
    distinct_names,
    narrow,
    new_collections,
    on_first_rows,
)
from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.shared import Shared
from nsys2prv.execution.workers import Workers
from nsys2prv.run.open import OpenedReport
from nsys2prv.run.rank_message_ends import add_message_ends
from nsys2prv.run.read_options import ReadOptions
from nsys2prv.run.session import ReportGroup, ReportPart, RunSession
from nsys2prv.sources.communication.message_ends import MPI
from nsys2prv.sources.registry import SOURCES
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.reader import EventReader, Request, TimelinePlan
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.timeline.survey import Survey, text_attributes


@dataclass
class _ReadGroup:
    """What was read of some reports."""

    folder: Path
    collections: dict[str, ExternalSort]
    launches: ExternalSort
    messages: Messages
    callers: set[int] = field(default_factory=set)
    broken: dict[int, ReportError] = field(default_factory=dict)
    unpaired: dict[int, Launches] = field(default_factory=dict)  # of reports that were read in shares, by number

    @classmethod
    def in_folder(cls, folder: Path, collections: Sequence[Collection]) -> _ReadGroup:
        """Nothing yet; intermediate files are written to the folder."""
        messages = Messages(folder / "messages")
        return cls(folder, new_collections(folder, collections), _launch_lines(folder / "launches"), messages)

    def absorb(self, other: _ReadGroup) -> None:
        """Take over what was read of another group."""
        for name, collection in other.collections.items():
            self.collections[name].absorb(collection)
        self.launches.absorb(other.launches)
        self.messages.absorb(other.messages)
        self.callers |= other.callers
        for index, launches in other.unpaired.items():
            self.add_unpaired(index, launches)

    def add_unpaired(self, index: int, launches: Launches) -> None:
        """Take over the launches of a share of a report."""
        self.unpaired.setdefault(index, Launches.in_folder(self.folder / f"unpaired{index}")).absorb(launches)

    def finish(
        self, timeline: Shared[TimelinePlan], _reports: Sequence[OpenedReport], workers: Workers
    ) -> dict[int, ReportError]:
        """Pair the launches of reports that were read in shares; none of these breaks off here."""
        for lines in workers.map(partial(_paired, self.folder, timeline.value.rows.first_of_stream), self.unpaired.values()):
            self.launches.absorb(lines)
        for launches in self.unpaired.values():
            launches.delete()
        return {}

    def spill(self) -> None:
        """Write what is still in memory: then the rest can be pickled."""
        for collection in (*self.collections.values(), self.launches):
            collection.spill()
        self.messages.spill()
        for launches in self.unpaired.values():
            launches.spill()


def _launch_lines(folder: Path) -> ExternalSort:
    return ExternalSort(["to_time"], folder)


def _add_lines(launches: Launches, lines: ExternalSort, first_rows: Numbers) -> None:
    for messages in launches.messages():
        found = on_first_rows(messages, first_rows, "to_row")
        lines.add(found.select(pl.col(name).cast(dtype) for name, dtype in LAUNCH_SCHEMA.items()))


def _messages(read: _ReadGroup, selection: TimeSelection) -> ExternalSort | None:
    """Messages between ranks whose ends were read."""
    messages = ExternalSort(["to_time"], read.folder / "paired-messages")
    for found in read.messages.messages(selection):
        messages.add(found.select(pl.col(name).cast(dtype) for name, dtype in MESSAGE_SCHEMA.items()))
    return messages if messages.rows else None


def _paired(folder: Path, first_rows: Numbers, launches: Launches) -> ExternalSort:
    """Launch lines of a report, as a piece of work for another process."""
    # For this attempt alone: another worker may have died over the same piece.
    lines = _launch_lines(folder / f"launches-{secrets.token_hex(4)}")
    _add_lines(launches, lines, first_rows)
    lines.spill()
    return lines


class _CollectionPart:
    """What one collection keeps of the events of a source: a sink of the reader."""

    def __init__(self, collection: Collection, kept: ExternalSort, first_rows: Numbers) -> None:
        self.collection = collection
        self.kept = kept
        self.first_rows = first_rows
        self.callers: set[int] = set()

    def add(self, placed: pl.DataFrame) -> None:
        kept = on_first_rows(narrow(placed, self.collection), self.first_rows)
        self.kept.add(kept)
        if self.collection == ON_HOSTS:
            self.callers |= calling_rows(kept)


def events_of_reports(
    arguments: Sequence[str | Path],
    options: ReadOptions,
    folder: Path,
    workers: Workers,
    collections: tuple[Collection, ...],
) -> RunEvents:
    """Read collections of reports; parameters and errors are those of `event_input.read_events`."""
    # Rows, axis and numbers are those of the trace: all sources are surveyed.
    return events_of_session(RunSession(arguments, SOURCES, options, folder, workers), arguments, collections)


def events_of_session(session: RunSession, arguments: Sequence[str | Path], collections: tuple[Collection, ...]) -> RunEvents:
    """Read collections of the reports of a session, which were named as the arguments."""
    read = session.read(
        partial(_read_group, collections),
        lambda folder: _ReadGroup.in_folder(folder / "all", collections),
        lambda opened: sum(survey.rows for survey, _ in _surveys_of(opened, collections)),
        "reading",
    )
    plan, selection = session.plan, session.plan.timeline.selection
    nodes = plan.timeline.rows.nodes
    clocks = [clock.as_json() for clock in plan.axis.clocks]
    report_clocks = plan.alignment
    errors = clock_errors(clocks, report_clocks, selection.origin)
    tasks = [
        TaskRows(
            task.name,
            nodes[task.node].name,
            tuple(thread.name for thread in task.threads),
            task.report,
            errors[task.report] if task.report is not None else None,
        )
        for task in plan.timeline.rows.tasks
    ]
    rows = RunRows(tasks)
    identities = [opened.identity for opened in plan.reports]
    starts = [identity.utc_ns for identity in identities if identity.utc_ns is not None]
    return RunEvents(
        inputs=tuple(str(argument) for argument in arguments),
        is_trace=False,
        title=_title(plan.reports),
        rows=rows,
        begin=selection.origin,
        length=selection.length,
        types={used.number: TypeNames(used.label, used.values) for used in plan.timeline.labels.used_with()},
        collections={name: collection for name, collection in read.collections.items() if collection.rows},
        launches=read.launches if read.launches.rows else None,
        callers=rows.using_gpus(read.callers),
        messages=_messages(read, selection),
        ranks_of_run=plan.run.size,
        began=_utc(min(starts)) if starts else None,
        clocks=clocks,
        report_clocks=report_clocks,
        recorders=distinct_names(identity.tool for identity in identities),
        gpus=distinct_names(gpu.name for identity in identities for gpu in identity.gpus),
        warnings=session.warnings,
        left_out=[(str(one.path), str(one.error)) for one in session.left_out],
    )


def _surveys_of(opened: OpenedReport, collections: Sequence[Collection]) -> list[tuple[Survey, Collection]]:
    """What each collection takes from a report."""
    return [
        (survey, collection)
        for survey in opened.surveys
        for collection in collections
        if set(collection.types).intersection(survey.source.types)
    ]


def _read_group(
    collections: tuple[Collection, ...], group: ReportGroup, progress: Callable[[int], object] = no_progress
) -> _ReadGroup:
    """Read some reports; `progress` is called with the number of rows that were read."""
    folder = group.own_folder()
    reader = EventReader(group.timeline.value, folder / "reader", progress)
    result = _ReadGroup.in_folder(folder, collections)
    first_rows = group.timeline.value.rows.first_of_stream

    def new_part(collection: Collection) -> _CollectionPart:
        return _CollectionPart(collection, result.collections[collection.name].part(), first_rows)

    def read_part(part: ReportPart) -> None:
        requests = [
            Request(
                _without_other_texts(survey, collection),
                partial(new_part, collection),
                columns=collection.columns,
                # Here intervals may overlap on a row.
                by_lane=False,
            )
            for survey, collection in _surveys_of(part.opened, collections)
        ]
        read = reader.read(part.index, part.opened, requests, part.share)
        for _, sink in read.sinks:
            result.collections[sink.collection.name].absorb(sink.kept)
            result.callers |= sink.callers
        if part.share.is_whole:
            _add_lines(read.launches, result.launches, first_rows)
        else:
            result.add_unpaired(part.index, read.launches)
        if MPI_COLLECTIVES in collections and part.share.is_last:
            add_message_ends(
                result.messages, group.timeline.value, part.index, part.opened, (MPI,), folder / f"messages{part.index}"
            )

    result.broken = group.each(read_part)
    if group.on_disk:
        result.spill()
    return result


def _without_other_texts(survey: Survey, collection: Collection) -> Survey:
    """A survey without the texts of attributes that a collection does not have."""
    others = [name for name in text_attributes(survey.groups.schema) if name not in collection.columns]
    return replace(survey, groups=survey.groups.drop(others))


def _utc(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def _title(reports: Sequence[OpenedReport]) -> str:
    first = reports[0].report.path
    return first.name if len(reports) == 1 else f"{first.parent.name or first.name} ({len(reports)} reports)"
