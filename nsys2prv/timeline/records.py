"""What a timeline consists of, whatever its format: records in the order of time, communicators, and rows of each type."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution.row_order import Merging
from nsys2prv.exports import Report
from nsys2prv.sources.communication.communicators import TABLE, communicator_names
from nsys2prv.sources.registry import type_of
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.rows import Rows
from nsys2prv.vocabulary import event_types, nccl_names
from nsys2prv.vocabulary.event_types import Role


class RecordKind(enum.Enum):
    """Kinds of records: their weight in a window of records, the column with their time, and those with their place in the
    trace, from the time on.

    Columns of each; times are ns from the origin of the selection:

    - INTERVALS: `row`, `start`, `end`, `number` (event type), `value`, attributes (numbers in columns named by their event
      type, null where an event has none), and perhaps `cpu` (counted over all hosts from 1, 0 for none)
    - POINTS, marks and samples: the same without `end`
    - STATES: `row`, `start`, `end`, `state`, and perhaps `cpu`
    - MESSAGES, also from calls to what they launch: `row`, `time` of the sender, `to_row`, `to_time` of the receiver, `size`
      (bytes), `tag`, and perhaps `to_begin`, when the receiver began to wait"""

    INTERVALS = ("intervals", 2, "start", ("start", "row", "end"))
    POINTS = ("points", 1, "start", ("start", "row"))
    STATES = ("states", 1, "start", ("start", "row"))
    MESSAGES = ("messages", 1, "time", ("time", "row"))

    def __init__(self, _: str, weight: int, time: str, place: tuple[str, ...]) -> None:
        self.weight = weight
        self.time = time
        self.place = place


@dataclass(frozen=True)
class RecordBatch:
    """Records of one collection that start in a window of the time axis, sorted by time. Of intervals, `ended` has all that end
    in the window, in any order of time, and perhaps some that end later: those that end before `behind` count (None: all).
    Points are also sorted by row. Those that are equal in time and row come as they are here."""

    kind: RecordKind
    started: pl.DataFrame
    ended: pl.DataFrame | None = None
    behind: int | None = None


@dataclass(frozen=True)
class EncodedRecords:
    """Records of a window as they are written, and their number in the trace."""

    content: bytes | memoryview
    records: int


@dataclass(frozen=True)
class TimelineHead:
    """What an output format must know before the first record: rows, length (ns), UTC of the start (ns since 1970), and
    communicators."""

    rows: Rows
    length: int
    start_utc: int | None
    communicators: tuple[Communicator, ...] = ()


_FIRST_OF_TASKS, _FIRST_OF_NCCL = 100_000, 200_000
"""Numbers of communicators: those of MPI have the value of their events, and these are above all of them."""


@dataclass(frozen=True)
class Communicator:
    """A communicator: its number in the trace, and its tasks (1, 2, ... as in the file) in the order of its ranks."""

    number: int
    tasks: tuple[int, ...]


def communicators_of(reports: Iterable[Report], labels: Labels, rows: Rows) -> tuple[Communicator, ...]:
    """Communicators of a trace in the order of their numbers.

    A communicator of MPI has the number that is its value in events (`event_types.MPI_COMMUNICATOR`); `MPI_COMM_WORLD` is 1.
    The one of each task alone has 100,000 + task, and one of NCCL 200,000 + its value (`event_types.NCCL_COMMUNICATOR`).
    Ranks that have no task in the trace are missing.

    Parameters
    ----------
    labels, rows
        Numbers of values, and rows of the trace.
    """
    tasks = {task.rank: number for number, task in reversed(list(enumerate(rows.tasks, start=1))) if task.rank is not None}
    members: dict[int, list[int]] = {}
    if labels.uses(event_types.MPI_TYPES.values()):
        members = _of_mpi(reports, labels, tasks)
    for key in sorted(labels.texts_of(event_types.NCCL_COMMUNICATOR)):
        value, rank = labels.value_of(event_types.NCCL_COMMUNICATOR, key), nccl_names.rank_of_key(key)
        if value is not None and rank is not None and rank in tasks:
            members.setdefault(_FIRST_OF_NCCL + value, []).append(tasks[rank])
    # An order of ranks that differs from that of tasks is known of MPI only.
    return tuple(
        Communicator(number, tuple(of_number if number < _FIRST_OF_TASKS else sorted(set(of_number))))
        for number, of_number in sorted(members.items())
    )


def _of_mpi(reports: Iterable[Report], labels: Labels, tasks: dict[int, int]) -> dict[int, list[int]]:
    of_reports = [communicator_names(report) for report in reports if report.has(TABLE)]
    members: dict[int, list[int]] = {}
    names: dict[str, list[int]] = {event_types.MPI_COMM_WORLD: sorted(tasks.values())}
    if of_reports:
        ordered = (
            pl.concat(of_reports)
            .drop_nulls("rank")
            .unique(["communicator", "rank"], keep="first", maintain_order=True)
            .sort("communicator", "localRank", "rank", maintain_order=True)
        )
        for name, ranks in ordered.group_by("communicator", maintain_order=True).agg("rank").iter_rows():
            # With several reports of one rank, or none of some, only ranks that have a task count.
            names[name] = [tasks[rank] for rank in ranks if rank in tasks]
    alone = {event_types.MPI_COMM_SELF.format(rank): task for rank, task in tasks.items()}
    values = {name: labels.value_of(event_types.MPI_COMMUNICATOR, name) for name in names}
    free = max([1, *(value for value in values.values() if value is not None)]) + 1
    for name in sorted(names.keys() - alone.keys()):
        number = 1 if name == event_types.MPI_COMM_WORLD else values[name]
        if number is None:
            number, free = free, free + 1
        members[number] = names[name]
    for name, task in alone.items():
        value = labels.value_of(event_types.MPI_COMMUNICATOR, name)
        members[_FIRST_OF_TASKS + task if value is None else value] = [task]
    return {number: of_number for number, of_number in members.items() if of_number}


RowRanges = tuple[tuple[int, int], ...]
"""First and last of rows without a gap, counted from 0."""
_SCHEMA = {"row": pl.Int64, "type": pl.Int64}
_MOST_PENDING = 1_000_000
_ABOVE_TYPES = 2**32
"""Above all event types."""
_MOST_KNOWN = 100_000
"""Rows with their types that are kept at hand to leave out what is known."""


class RowsOfTypes(Merging):
    """Distinct rows and event types, in frames with the columns `row` and `type`.

    A type is on a row that has an event of it. An attribute is on a row where it is not 0 throughout: an attribute of 0 looks
    like none."""

    def __init__(self) -> None:
        super().__init__(pl.DataFrame.unique, pl.DataFrame(schema=_SCHEMA), _MOST_PENDING)
        self._seen_before: set[tuple[int, int]] = set()

    def add_events(self, events: pl.DataFrame) -> None:
        """Add events with the columns `row`, `number` and `value`, and attributes in columns named by their types."""
        rows, numbers = events["row"].unique().to_list(), events["number"].unique().to_list()
        pairs: set[tuple[int, int]] = set()
        # Frames of a source mostly have the same rows and types, and to look for them takes longer than to see that.
        if not self._has(rows, numbers):
            # Some events are nothing but an attribute.
            alone = [number for number in numbers if is_attribute(number)]
            shown = events.filter(pl.col("value").ne(0) | ~pl.col("number").is_in(alone)) if alone else events
            # Both in one number: distinct pairs take five times as long.
            combined = (shown["row"] * _ABOVE_TYPES + shown["number"]).unique()
            pairs.update(divmod(pair, _ABOVE_TYPES) for pair in combined.to_list())
        for name in filter(str.isdigit, events.columns):
            if not self._has(rows, [int(name)]):
                on_rows = events["row"].filter(events[name].ne(0)).unique()
                pairs.update((row, int(name)) for row in on_rows.to_list())
        pairs -= self._seen_before
        if len(self._seen_before) < _MOST_KNOWN:
            self._seen_before |= pairs
        if pairs:
            self.add(pl.DataFrame(sorted(pairs), schema=_SCHEMA, orient="row"))

    def _has(self, rows: Sequence[int], numbers: Sequence[int]) -> bool:
        return self._seen_before.issuperset(itertools.product(rows, numbers))

    def ranges(self) -> dict[int, RowRanges]:
        """Rows of each type."""
        by_type = self.rows.sort("type", "row").group_by("type", maintain_order=True).agg("row")
        return {number: row_ranges(rows) for number, rows in by_type.iter_rows()}


def is_attribute(number: int) -> bool:
    """Whether a number is that of an attribute of ours."""
    kind = type_of(number)
    return kind is not None and kind.role is Role.ATTRIBUTE


def row_ranges(rows: Sequence[int] | npt.NDArray[np.int64]) -> RowRanges:
    """Ranges of distinct rows in their order.

    >>> row_ranges([0, 1, 2, 5, 7, 8])
    ((0, 2), (5, 5), (7, 8))
    """
    numbers = np.asarray(rows, dtype=np.int64)
    first = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    last = np.append(first[1:], len(numbers)) - 1
    return tuple(zip(numbers[first].tolist(), numbers[last].tolist(), strict=True)) if len(numbers) else ()


def ranges_of_types_as_json(ranges: Mapping[int, RowRanges]) -> list[dict[str, Any]]:
    """Rows of types for OUT.json: types that are on the same rows together, and rows counted from 1.

    >>> ranges_of_types_as_json({7: ((0, 2),), 8: ((0, 2),), 9: ((4, 4),)})
    [{'types': [7, 8], 'rows': [[1, 3]]}, {'types': [9], 'rows': [[5, 5]]}]
    """
    together: dict[RowRanges, list[int]] = {}
    for number, rows in sorted(ranges.items()):
        together.setdefault(rows, []).append(number)
    return [{"types": types, "rows": ranges_as_json(rows)} for rows, types in together.items()]


def ranges_as_json(rows: RowRanges) -> list[list[int]]:
    """Rows as OUT.json counts them, from 1."""
    return [[first + 1, last + 1] for first, last in rows]


def ranges_of_types_from_json(listed: Iterable[Mapping[str, Any]], rows: int) -> dict[int, RowRanges] | None:
    """What `ranges_of_types_as_json` made, of a trace with so many rows; None where it is of another one."""
    ranges: dict[int, RowRanges] = {}
    for together in listed:
        on_rows = ranges_from_json(together.get("rows", ()), rows)
        if not on_rows:
            return None
        ranges |= dict.fromkeys(together.get("types", ()), on_rows)
    return ranges


def ranges_from_json(listed: Iterable[Sequence[int]], rows: int) -> RowRanges | None:
    """What `ranges_as_json` made, of a trace with so many rows; None where it is of another one."""
    pairs = list(listed)
    if not all(len(pair) == 2 and 1 <= pair[0] <= pair[1] <= rows for pair in pairs):
        return None
    return tuple((first - 1, last - 1) for first, last in pairs)
