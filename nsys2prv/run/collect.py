"""What groups of reports give: events are read part by part, launches are paired, and the rows of all groups are put together.

Reports are independent of each other here, so groups of them are pieces of work for any process. Nothing in a result depends on
which reports were in one group. The trace, the efficiency numbers and the Python API differ in a subclass of `Collected`."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import polars as pl

from nsys2prv.errors import ReportError
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.workers import Shared, Workers
from nsys2prv.exports.columns import process_of
from nsys2prv.run.open import OpenedReport
from nsys2prv.sources.communication.message_ends import BOUNDING, kinds_of_messages, read_message_ends
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.messages import Launches, Messages
from nsys2prv.timeline.reader import WHOLE, EventReader, ReadEvents, Request, Share, Sink, TimelinePlan

if TYPE_CHECKING:
    from typing_extensions import Self


S = TypeVar("S", bound=Sink)
C = TypeVar("C", bound="Collected[Any]")
R = TypeVar("R")

MakeRows = Callable[[], Iterator[pl.DataFrame]]
"""Makes rows of a collection; it can be pickled."""


@dataclass(frozen=True)
class ReportPart:
    """A report, with its number in the plan, and what is read of it at once."""

    index: int
    opened: OpenedReport
    share: Share = WHOLE


@dataclass(frozen=True)
class ReportGroup:
    """A piece of work: some reports, or shares of them."""

    timeline: Shared[TimelinePlan]
    reports: tuple[ReportPart, ...]
    folder: Path  # for what is collected
    keep_going: bool  # whether the rest is read after a report that breaks off


class Unfinished:
    """What needs all events of some reports: ends of launches, edges of states, and the account of rows."""

    def __init__(self, folder: Path) -> None:
        # Threads and streams are different rows: their states are derived at once.
        self.edges = {kind: ExternalSort(["start"], folder / f"edges-{kind.name}") for kind in RowKind}
        self.launches: dict[int, Launches] = {}
        self.coverage: dict[int, list[SourceCoverage]] = {}
        self._folder = folder

    def add(self, index: int, launches: Launches, entries: Sequence[SourceCoverage]) -> None:
        """Add a report, or a share of it, by its number; edges of its states are added by those who have them."""
        self.launches.setdefault(index, Launches.in_folder(self._folder / f"launches{index}")).absorb(launches)
        for entry, of_share in zip(self.coverage.setdefault(index, list(entries)), entries, strict=True):
            if entry is not of_share:
                entry.absorb(of_share)

    def absorb(self, shares: Unfinished) -> None:
        """Take over what further shares of the same reports left to do."""
        for kind, edges in shares.edges.items():
            self.edges[kind].absorb(edges)
        for index, launches in shares.launches.items():
            self.add(index, launches, shares.coverage[index])

    def delete(self) -> None:
        """Take all off the disk."""
        for rows in itertools.chain(self.edges.values(), *self.launches.values()):
            rows.drop_before(None)


class Collected(Generic[S]):
    """What was collected of some reports; nothing of it may be used when some of them broke off.

    `sorts` are all collections of rows, empty at first, by their names; `messages` are the ends of messages between ranks.
    `unfinished` is what is left to do for reports that are read in shares, and `broken` are those that broke off, by number."""

    kinds_of_messages: Sequence[str] = ()
    """Kinds of messages between ranks that are read, of `message_ends.SOURCE_OF_KIND`."""
    has_launches: ClassVar[bool] = False
    """Whether ends of launches are used, by `further`."""

    def __init__(self, folder: Path, sorts: Mapping[str, ExternalSort]) -> None:
        self.folder = folder
        self.sorts = sorts
        self.messages = Messages(folder / "messages")
        self.broken: dict[int, ReportError] = {}
        self.unfinished: dict[int, Unfinished] = {}

    def requests(self, opened: OpenedReport, timeline: TimelinePlan, unfinished: Unfinished) -> list[Request[S]]:
        """What is read of a report; edges of states go to `unfinished`."""
        raise NotImplementedError

    def take(self, part: ReportPart, read: ReadEvents[S], unfinished: Unfinished) -> None:
        """Take over what the sinks have of a report."""
        raise NotImplementedError

    def further(self, timeline: Shared[TimelinePlan], unfinished: Unfinished) -> list[tuple[str, MakeRows]]:
        """Names of collections, each with what makes rows of it when all events of some reports have been read: pieces of work
        that do not need each other."""
        return []

    def absorb(self, group: Self) -> None:
        """Take over what was collected of a group, in the order of reports and of their shares."""
        for name, rows in group.sorts.items():
            self.sorts[name].absorb(rows)
        self.messages.absorb(group.messages)
        for index, unfinished in group.unfinished.items():
            self.unfinished_of(index).absorb(unfinished)

    def unfinished_of(self, index: int) -> Unfinished:
        """What is left to do for a report that is read in shares, by its number."""
        return self.unfinished.setdefault(index, Unfinished(self.folder / f"report{index}"))

    def finish(
        self, timeline: Shared[TimelinePlan], _reports: Sequence[OpenedReport], workers: Workers
    ) -> dict[int, ReportError]:
        """Do what needs all shares of a report, for those that were read in several; the result is those that broke off, by
        number."""
        work = [piece for unfinished in self.unfinished.values() for piece in self.further(timeline, unfinished)]
        pieces = [partial(_added, self.sorts[name].part(), rows) for name, rows in work]
        for (name, _), rows in zip(work, workers.map(call, pieces), strict=True):
            self.sorts[name].absorb(rows)
        for unfinished in self.unfinished.values():
            unfinished.delete()
        return {}


def collect(
    start: Callable[[Path, Sequence[OpenedReport]], C], group: ReportGroup, progress: Callable[[int], object] = no_progress
) -> C:
    """Collect what a group of reports gives.

    `start` makes the empty `Collected` of some reports, with a folder for intermediate files; `progress` is called with the
    number of rows read. Raises ReportError when a report breaks off, unless the others are to be read nevertheless."""
    # For this attempt alone: another worker may have died over the same group.
    folder = group.folder / f"group{group.reports[0].index}-{secrets.token_hex(4)}"
    timeline = group.timeline.value
    reader = EventReader(timeline, folder / "reader", progress)
    collected = start(folder, [part.opened for part in group.reports])
    at_once = Unfinished(folder)

    def read_part(part: ReportPart) -> None:
        unfinished = at_once if part.share.is_whole else collected.unfinished_of(part.index)
        requests = collected.requests(part.opened, timeline, unfinished)
        read = reader.read(part.index, part.opened, requests, part.share)
        collected.take(part, read, unfinished)
        if collected.has_launches:
            unfinished.add(part.index, read.launches, read.coverage)
        if part.share.is_last:
            ends = folder / f"messages{part.index}"
            _add_message_ends(collected.messages, timeline, part, collected.kinds_of_messages, ends)

    for part in group.reports:
        try:
            read_part(part)
            part.opened.report.tables.check_unchanged()
        except ReportError as error:
            if not group.keep_going:
                raise
            collected.broken[part.index] = error
    if not collected.broken:
        pieces = collected.further(group.timeline, at_once)
        work = [partial(_added, collected.sorts[name].part(), rows) for name, rows in pieces]
        for (name, _), rows in zip(pieces, run_all(work), strict=True):
            collected.sorts[name].absorb(rows)
    return collected


def _add_message_ends(messages: Messages, timeline: TimelinePlan, part: ReportPart, kinds: Sequence[str], folder: Path) -> None:
    """Add the ends of messages between ranks that a report has to those of the run, on rows and on the common time axis."""
    opened = part.opened
    threads = timeline.rows.keys.get((part.index, RowKind.THREAD))
    present = kinds_of_messages(opened.report, kinds)
    if threads is None or not present:
        return
    rows = threads.select("globalTid", "row").iter_rows()
    ranks = {process_of(tid): rank for tid, row in rows if (rank := timeline.rows.rank(row)) is not None}
    placement, sync_points = timeline.placements[part.index], opened.sync_points
    bounding = kinds_of_messages(opened.report, BOUNDING)
    already_read: Sequence[Path] = ()
    if sync_points is not None and sync_points.ends and sync_points.ranks == ranks and set(bounding).issubset(present):
        # When clocks were aligned.
        already_read = sync_points.ends
        present = tuple(kind for kind in present if kind not in bounding)
    added = messages.part()
    for ends in itertools.chain(map(pl.read_ipc, already_read), read_message_ends(opened.report, ranks, folder, present)):
        placed = ends.join(threads, on="globalTid", how="inner", maintain_order="left")
        added.add(placed.with_columns(placement.of(pl.col("start")), placement.of(pl.col("end"))))
    messages.absorb(added)


def call(piece: Callable[[], R]) -> R:
    """What a piece of work gives, for `Workers.map`."""
    return piece()


def _added(rows: ExternalSort, make: MakeRows, stop: Stop | None = None) -> ExternalSort:
    for frame in make():
        if stop is not None:
            stop.check()
        rows.add(frame)
    return rows
