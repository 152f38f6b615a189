"""The events of a run in chunks of time, cut at their edges. Sums over chunks are sums over the run.

Only one chunk, and what reaches over its end, is in memory at a time. A meter is updated with each `TimeChunk` and keeps sums.
Times are additive over chunks; what is not (a gap, a matched collective) carries its open end to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.intervals import Elapsed, Intervals, Numbers, Segments, segments
from nsys2prv.efficiency.run_events import (
    COLLECTIONS,
    LAUNCH_SCHEMA,
    MESSAGE_SCHEMA,
    NCCL_CALLS,
    ON_DEVICES,
    ON_HOSTS,
    RunEvents,
)
from nsys2prv.efficiency.task_clocks import TaskClocks
from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows
from nsys2prv.sources.cuda.api_calls import STATES_BY_NAME
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

KERNEL, NCCL, MEMORY = range(3)
"""Kinds of activity of a device: kernels (and graphs), NCCL kernels, copies and memsets."""
KINDS_OF_NUMBER = {
    event_types.KERNEL: KERNEL,
    event_types.GRAPH_EXECUTION: KERNEL,
    event_types.NCCL_KERNEL: NCCL,
    event_types.MEMORY_OPERATION: MEMORY,
}
KERNEL_TYPES = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind != MEMORY)
"""Event types of kernels, NCCL kernels and graphs."""
NO_LAUNCH = -1
"""Place of the launch of an operation whose launch is not known."""
MASKS = 8
"""What runs on a device, as bits: 1 kernels, 2 NCCL kernels, 4 copies and memsets."""

CAUSES = ("launch", "synchronization", "memory", "allocation", "other_cuda", "mpi", "os")
"""Categories of calls of a host thread; where calls overlap, the first category counts."""
LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION, OTHER_CUDA, MPI, OS, NO_CALL = range(8)
"""What a host thread does, in the order of CAUSES; NO_CALL: none of these."""
ACTIVITIES = len(CAUSES) + 1
CUDA_ACTIVITIES = (LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION, OTHER_CUDA)

_CATEGORY_OF_STATE = {
    event_types.STATE_CONFIGURING: LAUNCH,
    event_types.STATE_SYNCHRONIZATION: SYNCHRONIZATION,
    event_types.STATE_MEMORY_TRANSFER: MEMORY_CALL,
    event_types.STATE_ALLOCATING: ALLOCATION,
    event_types.STATE_FREEING: ALLOCATION,
}

_AMPLE_TIMES = 2
"""Usual sizes of a chunk where memory is ample: a seventh less processor time, and 100 MB more."""

Followed = TypeVar("Followed")

KindOf = Callable[[npt.NDArray[np.generic], Numbers], Numbers]
"""Kinds of events by their types and values."""


def call_categories(names: pl.Series) -> Numbers:
    """Category of CUDA API calls by their names: LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION or OTHER_CUDA."""
    states = names.to_frame("name").select(first_match(pl.col("name"), STATES_BY_NAME, event_types.STATE_OTHERS)).to_series()
    categories: Numbers = states.replace_strict(_CATEGORY_OF_STATE, default=OTHER_CUDA, return_dtype=pl.Int64).to_numpy()
    return categories


@dataclass(frozen=True)
class TimeChunk:
    """One chunk of time.

    Attributes
    ----------
    begin, end
        ns from the start of the window; the last one in it ends with it.
    started
        Of each collection: rows that start in the chunk, whole.
    inside
        Of collections of intervals that are not optional: all rows in the chunk, cut at its edges (`start`, `end`); `begin` and
        `until` are uncut.
    launches
        Launch lines that end in the chunk.
    messages
        Messages between ranks that are received (`to_time`) in the chunk.
    is_measured
        Whether it is in the window. Of what reaches over an edge of the window, the part inside counts as the whole.
    """

    begin: int
    end: int
    started: Mapping[str, pl.DataFrame]
    inside: Mapping[str, pl.DataFrame]
    launches: pl.DataFrame
    messages: pl.DataFrame
    context: SweepContext
    is_measured: bool = True

    @cached_property
    def on_devices(self) -> Segments:
        """Activity of each device: one count per kind."""
        return self._segments(ON_DEVICES.name, self.context.events.rows.device, self.context.kind, 3)

    @cached_property
    def on_tasks(self) -> Segments:
        """The same for each task."""
        only_task = self.context.only_task
        if only_task is None:
            return self._segments(ON_DEVICES.name, self.context.events.rows.task, self.context.kind, 3)
        found = self.on_devices
        return Segments(only_task[found.group], found.begin, found.end, found.counts)

    @cached_property
    def on_threads(self) -> Segments:
        """Calls of each calling host thread (by its place in `SweepContext.callers`): one count per category of CAUSES."""
        return self._segments(ON_HOSTS.name, self.context.place_of_caller, self.context.category, len(CAUSES))

    @cached_property
    def launch_of(self) -> Numbers:
        """For each operation that starts in the chunk (rows of `started`) the place of its launch in `launches`, of several the
        earliest; NO_LAUNCH: there is none."""
        started = self.started[ON_DEVICES.name]
        found: Numbers = np.full(started.height, NO_LAUNCH, dtype=np.int64)
        if self.launches.is_empty():
            return found
        row, start, to_row, to_time = (
            column.to_numpy().astype(np.int64)
            for column in (started["row"], started["start"], self.launches["to_row"], self.launches["to_time"])
        )
        rows = len(self.context.events.rows.names) + 1
        keys = (to_time - self.begin) * rows + to_row
        order = np.lexsort((self.launches["row"].to_numpy(), self.launches["time"].to_numpy(), keys))
        asked = (start - self.begin) * rows + row
        place = order[np.minimum(np.searchsorted(keys[order], asked), len(order) - 1)]
        return np.where(keys[place] == asked, place, found)

    @cached_property
    def copies(self) -> pl.DataFrame:
        """Copies and memsets on devices: rows of `inside`."""
        return self.inside[ON_DEVICES.name].filter(pl.col("number") == event_types.MEMORY_OPERATION)

    @cached_property
    def device_times(self) -> Elapsed:
        """Time by mask of activity on devices, within this chunk."""
        return Elapsed(self.on_devices, self.on_devices.mask, MASKS)

    @cached_property
    def thread_times(self) -> Elapsed:
        """Time by activity of calling host threads, within this chunk."""
        return Elapsed(self.on_threads, first_open(self.on_threads), ACTIVITIES)

    def _segments(self, collection: str, group_of_row: Numbers, kind_of: KindOf, kinds: int) -> Segments:
        found = self.inside[collection]
        group = group_of_row[found["row"].to_numpy()]
        known = group >= 0
        kind = kind_of(found["number"].to_numpy(), found["value"].to_numpy())
        intervals = Intervals.of(group, found["start"].to_numpy(), found["end"].to_numpy())
        return segments(intervals.only(known), kind[known], kinds)


def first_open(found: Segments) -> Numbers:
    """The first kind that is open in each segment; the number of kinds where none is."""
    is_open = [*(count > 0 for count in found.counts), np.ones(len(found.group), dtype=bool)]
    first: Numbers = np.argmax(is_open, axis=0)
    return first


class SweepContext:
    """What all chunks of a run share.

    Attributes
    ----------
    events
        The events of the run.
    folder
        For files of meters; None: all that they keep stays in memory.
    callers
        Rows of calling host threads, in order.
    place_of_caller
        For each row its place in `callers`; -1: none.
    only_task
        For each device its task, where each device has one task and each task one device, in the same order; else None.
    clocks
        How far times of different tasks can be wrong against each other.
    """

    def __init__(self, events: RunEvents, folder: Path | None = None) -> None:
        self.events = events
        self.folder = folder
        self.clocks = TaskClocks(events.rows.tasks, events.offset)
        self.callers: Numbers = np.array(sorted(events.callers), dtype=np.int64)
        self.place_of_caller: Numbers = np.full(len(events.rows.names) + 1, -1, dtype=np.int64)
        self.place_of_caller[self.callers] = np.arange(len(self.callers))
        rows = events.rows
        tasks = [rows.tasks_of_device.get(device, ()) for device in range(len(rows.devices))]
        pairs = all(len(of_device) == 1 for of_device in tasks) and all(
            len(devices) == 1 for devices in rows.devices_of_task.values()
        )
        in_order = pairs and tasks == sorted(tasks)
        self.only_task: Numbers | None = np.array(tasks, dtype=np.int64).reshape(-1) if in_order else None
        self._followed: dict[Callable[[SweepContext], Any], Any] = {}
        names = events.types.get(event_types.CUDA_CALL)
        values = dict(names.values or {}) if names else {}
        self._categories: Numbers = np.full(max(values, default=0) + 1, OTHER_CUDA, dtype=np.int64)
        if values:
            self._categories[list(values)] = call_categories(pl.Series(list(values.values()), dtype=pl.String))

    def followed_once(self, kind: Callable[[SweepContext], Followed]) -> Followed:
        """What several meters follow together: the one that is made of this context when it is first asked for."""
        if kind not in self._followed:
            self._followed[kind] = kind(self)
        found: Followed = self._followed[kind]
        return found

    def device_names(self, index: pl.Expr) -> pl.Expr:
        """Names of devices by their index."""
        return pl.lit(pl.Series([device.name for device in self.events.rows.devices], dtype=pl.String)).gather(index)

    def task_names(self, index: pl.Expr) -> pl.Expr:
        """Names of tasks by their index."""
        return pl.lit(pl.Series([task.name for task in self.events.rows.tasks], dtype=pl.String)).gather(index)

    def kind(self, numbers: npt.NDArray[np.generic], _values: Numbers) -> Numbers:
        """Kind of activity of event types of devices."""
        found: Numbers = np.full(len(numbers), KERNEL, dtype=np.int64)
        for number, kind in KINDS_OF_NUMBER.items():
            found[numbers == number] = kind
        return found

    def category(self, numbers: npt.NDArray[np.generic], values: Numbers) -> Numbers:
        """Category of host calls by event type and value: a place in CAUSES."""
        found: Numbers = np.full(len(numbers), OS, dtype=np.int64)
        for number in event_types.MPI_TYPES.values():
            found[numbers == number] = MPI
        of_cuda = numbers == event_types.CUDA_CALL
        known = np.clip(values[of_cuda], 0, len(self._categories) - 1)
        found[of_cuda] = np.where(known == values[of_cuda], self._categories[known], OTHER_CUDA)
        return found


def time_chunks(context: SweepContext) -> Iterator[TimeChunk]:
    """The events of the window in chunks, from start to end; all collections are used up but ON_DEVICES."""
    return (chunk for chunk in chunks_of_run(context) if chunk.is_measured)


def chunks_of_run(context: SweepContext) -> Iterator[TimeChunk]:
    """The events of the whole recording in chunks; those that are not measured are before and after the window. All collections
    are used up but ON_DEVICES."""
    events = context.events
    recorded = events.length if events.recorded is None else events.recorded
    low, high = events.offset, events.offset + events.length
    collections = {one.name: events.collections.get(one.name) for one in COLLECTIONS}
    sorted_rows = [rows for rows in (*collections.values(), events.launches, events.messages) if rows is not None]
    carried: dict[str, pl.DataFrame] = {}
    # What starts at the end of the window is in it.
    edges = [edge for edge, is_inside in ((low, low > 0), (high + 1, high < recorded)) if is_inside]
    # What meters do for each chunk takes as long as what they do for its rows.
    windows = _cut(plan_windows([(rows, 1) for rows in sorted_rows], memory.ample(1, _AMPLE_TIMES)), edges)
    nothing = {one.name: pl.DataFrame(schema={**one.schema, "begin": pl.Int64, "until": pl.Int64}) for one in COLLECTIONS}
    for index, window in enumerate(windows):
        begin = 0 if index == 0 or window.begin is None else window.begin
        end = recorded if window.end is None else window.end
        is_measured = (not edges) or (low <= begin <= high)
        # No time is left out between the window and what is after it.
        begin, end = (begin, min(end, high)) if is_measured else (high if begin == high + 1 else begin, end)
        started: dict[str, pl.DataFrame] = {}
        inside: dict[str, pl.DataFrame] = {}
        for one in COLLECTIONS:
            found = _loaded(collections[one.name], window, one.schema)
            if one.samples:
                started[one.name] = found.with_columns(pl.col("start") - low) if low else found
                continue
            # These are looked at whole, where they start.
            is_whole = one.optional or one is NCCL_CALLS
            entered = carried.pop(one.name, None)
            if entered is None and found.is_empty():
                started[one.name] = found
                if not is_whole:
                    inside[one.name] = nothing[one.name]
                continue
            rows = found.with_columns(begin="start", until="end")
            if is_measured and begin == low and entered is not None:
                # It begins where the window does.
                rows, entered = (
                    pl.concat([entered.with_columns(start=pl.lit(low, pl.Int64), begin=pl.lit(low, pl.Int64)), rows]),
                    None,
                )
            starting = rows
            if entered is not None:
                rows = pl.concat([entered, rows])
            if index < len(windows) - 1 and (edges or not is_whole):
                beyond = rows.filter(pl.col("until") > end)
                if beyond.height:
                    carried[one.name] = beyond
            if edges and is_measured:
                starting, rows = (part.with_columns(pl.col("end", "until").clip(upper_bound=high)) for part in (starting, rows))
            if low:
                starting, rows = (
                    part.with_columns(pl.col("start", "end", "begin", "until") - low) for part in (starting, rows)
                )
            started[one.name] = starting.drop("begin", "until")
            if not is_whole:
                inside[one.name] = rows.with_columns(
                    pl.col("start").clip(lower_bound=begin - low), pl.col("end").clip(upper_bound=end - low)
                )
        launches = _loaded(events.launches, window, LAUNCH_SCHEMA)
        if low:
            launches = launches.with_columns(pl.col("time", "to_time") - low)
        memory.check()
        messages = _loaded(events.messages, window, MESSAGE_SCHEMA)
        if low:
            messages = messages.with_columns(pl.col("time", "to_begin", "to_time") - low)
        yield TimeChunk(begin - low, end - low, started, inside, launches, messages, context, is_measured)
        for each in sorted_rows:
            # Close-ups are chosen at the end, and read what devices did there again.
            if each is not collections[ON_DEVICES.name]:
                each.drop_before(window.end)


def _cut(windows: Sequence[Window], edges: Sequence[int]) -> list[Window]:
    """Windows that are cut at some edges, which are in order."""
    for edge in edges:
        windows = [
            part
            for window in windows
            for part in (
                (Window(window.begin, edge), Window(edge, window.end))
                if (window.begin is None or window.begin < edge) and (window.end is None or edge < window.end)
                else (window,)
            )
        ]
    return list(windows)


def _loaded(rows: ExternalSort | None, window: Window, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    pieces = rows.load(window) if rows is not None else []
    return pl.concat(pieces) if pieces else pl.DataFrame(schema=schema)
