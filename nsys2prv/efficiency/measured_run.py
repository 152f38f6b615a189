"""The columns of a run that is measured: what happened in its window, each event whole, with what several meters need of it.

Everything is made once, when it is first asked for. Times count from the start of the window. Of an event that reaches over an
edge of the window, the part inside counts as the whole. Operations of devices and calls of host threads are sorted by start."""

import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from nsys2prv.efficiency import host_states, run_events
from nsys2prv.efficiency.clock_accuracy import TaskClocks
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.host_states import COMMUNICATOR, CONTEXT, FIRST_CALL, PROFILER
from nsys2prv.efficiency.intervals import NONE, Elapsed, Integers, Intervals, Mask, Numbers, Segments, Spans, segments
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, OFF_CPU_TIMES, OS_TYPES, RANGES, Collection, RunEvents
from nsys2prv.efficiency.window import MeasuredWindow
from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.execution.row_order import in_content_order, rows_in_order
from nsys2prv.sources.cuda.api_calls import STATES_BY_NAME
from nsys2prv.sources.cuda.memory_operations import MIGRATION_CAUSE, MIGRATION_CAUSES
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.name_rules import first_match

KERNEL, NCCL, MEMORY = range(3)
"""Kinds of activity of a device: kernels (and graphs), NCCL kernels, copies and memsets."""
KINDS_OF_NUMBER = {
    event_types.KERNEL: KERNEL,
    event_types.GRAPH_EXECUTION: KERNEL,
    event_types.NCCL_KERNEL: NCCL,
    event_types.MEMORY_OPERATION: MEMORY,
}
MASKS = 8
"""What runs on a device, as bits: 1 kernels, 2 NCCL kernels, 4 copies and memsets."""

CAUSES = ("launch", "synchronization", "memory", "allocation", "other_cuda", "mpi", "os")
"""Categories of calls of a host thread; where calls overlap, the first category counts."""
LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION, OTHER_CUDA, MPI, OS, NO_CALL = range(8)
"""What a host thread does, in the order of CAUSES; NO_CALL: none of these."""
CUDA_ACTIVITIES = (LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION, OTHER_CUDA)
ACTIVITIES = host_states.COMPUTING - FIRST_CALL + 1
"""Keys of `thread_times`: CUDA_ACTIVITIES, MPI, and behind them those of OS_ACTIVITIES, off the CPU, and none of these."""
PROFILER_ACTIVITY = ACTIVITIES
"""Key of `thread_times` behind these: the set-up of the profiler, outside of CUDA and MPI calls."""
OFF_CPU_ACTIVITY = host_states.OFF_CPU - FIRST_CALL
OS_ACTIVITIES = tuple(range(OS, OFF_CPU_ACTIVITY))
WAITING_ACTIVITIES = (*(state - FIRST_CALL for state in host_states.WAITING), PROFILER_ACTIVITY)
"""Those in which a thread is in calls of the OS runtime; and in which it sleeps or waits, or the profiler holds it."""
PAGE_MOVES = 0.05
"""Part of a kernel in which pages of unified memory move, from which on it waits for them: faults take longer."""
LATE_START = 50_000
"""Longest time from the end of a launch to the start of what it launched, ns, that an idle device takes by itself."""
_LEAST_IN_CALLS = 0.001
"""Part of a run without GPUs in calls of CUDA or MPI, from which on these say which threads work."""
_LATE = 0.5
"""Part of the time to its first launch without which a thread is no more than a helper that launches."""
_SOON = 1_000_000
"""ns from the last event of a thread to the end of the call that joins it."""
_LEAST_ON_CPU = 0.01
"""Time on a CPU against that of the busiest thread, of threads of which nothing but their scheduling is known."""

_CATEGORY_OF_STATE = {
    event_types.STATE_CONFIGURING: LAUNCH,
    event_types.STATE_SYNCHRONIZATION: SYNCHRONIZATION,
    event_types.STATE_MEMORY_TRANSFER: MEMORY_CALL,
    event_types.STATE_ALLOCATING: ALLOCATION,
    event_types.STATE_FREEING: ALLOCATION,
}

AnyMeasurement = TypeVar("AnyMeasurement")


def call_categories(names: pl.Series) -> Numbers:
    """Category of CUDA API calls by their names: LAUNCH, SYNCHRONIZATION, MEMORY_CALL, ALLOCATION or OTHER_CUDA."""
    rules = ((pattern, _CATEGORY_OF_STATE[state]) for pattern, state in STATES_BY_NAME)
    return names.to_frame("name").select(first_match(pl.col("name"), rules, OTHER_CUDA)).to_series().to_numpy()


class MeasuredRun:
    """A run in a window of time, and what was measured of it so far.

    `events` are those of the run, with the window as selected time; its collections are not used up. `clocks` say how far times
    of different tasks can be wrong against each other; `measurements` are what meters measured, by its type, where `measured`
    looks; and `window` is, of a part of a recording (`in_window`), which one, and what is around it."""

    window: MeasuredWindow

    def __init__(self, events: RunEvents, options: EfficiencyOptions | None = None) -> None:
        self.events = events
        self.options = options or EfficiencyOptions()
        self._span = events.offset, events.offset + events.length
        self.clocks = TaskClocks(events.rows.tasks, events.offset)
        self.measurements: dict[type, object] = {}
        self._recorded: MeasuredRun | None = None
        self._frames: dict[str, pl.DataFrame] = {}
        self._lock = threading.Lock()

    def measured(self, kind: type[AnyMeasurement]) -> AnyMeasurement:
        """What a meter measured, by its type. The meter that asks names it in its needs."""
        measurement = self.measurements[kind]
        assert isinstance(measurement, kind)
        return measurement

    @property
    def recorded(self) -> "MeasuredRun":
        """The whole recording, of which this is a window: times count from its own start."""
        return self._recorded or self

    @property
    def is_part(self) -> bool:
        """Whether more of the program was read than what is measured."""
        return self._recorded is not None and self._span != self.window.program

    def in_window(self, window: MeasuredWindow) -> "MeasuredRun":
        """This recording in a window."""
        (begin, end), events = window.span, self.events
        events = replace(events, begin=events.begin + begin, length=end - begin, offset=begin)
        run = MeasuredRun(events, self.options)
        run._recorded, run.window, run.callers = self, window, self.callers
        run.lives = self.lives.with_columns(pl.all() - begin)
        return run

    # -- events -------------------------------------------------------------------------------------

    def frame(self, collection: Collection) -> pl.DataFrame:
        """Events of a collection, without those outside of the window and cut at its edges: columns of its schema, sorted by
        `start`, and those that are no samples in the order of their content."""
        with self._lock:
            if collection.name not in self._frames:
                if self._recorded is None:
                    rows = self.events.collections.get(collection.name)
                    events = _loaded(rows, collection.schema)
                    # Of what a stream starts at one time, the same is first in whatever order a table has it.
                    self._frames[collection.name] = events if collection.samples else in_content_order(events, ["start"])
                else:
                    self._frames[collection.name] = self.inside(self._recorded.frame(collection), collection)
                    # Hardly anything asks for events outside of the window: they are read again then.
                    self._recorded._frames.pop(collection.name)
            return self._frames[collection.name]

    def inside(self, events: pl.DataFrame, collection: Collection) -> pl.DataFrame:
        """Events of a collection of the recording that are in the window, cut at its edges, in its time."""
        low, high = self._span
        if (low, high) == (0, self.recorded.events.length):
            return events
        start, end = pl.col("start"), pl.col("start" if collection.samples else "end")
        is_inside = events.select((start <= high) & ((start >= low) | (end > low))).to_series()
        # Nearly always the window has all: then only times are new.
        inside = events if is_inside.all() else events.filter(is_inside)
        return inside.with_columns((start if collection.samples else pl.col("start", "end").clip(low, high)) - low)

    @property
    def operations(self) -> pl.DataFrame:
        """What runs on devices: kernels, NCCL kernels, graphs, copies and memsets."""
        return self.frame(run_events.ON_DEVICES)

    @property
    def calls(self) -> pl.DataFrame:
        """Calls of host threads: CUDA, MPI, operating system."""
        return self.frame(run_events.ON_HOSTS)

    @cached_property
    def launches(self) -> pl.DataFrame:
        """LAUNCH_SCHEMA: lines from calls to what they launch that ends in the window, by `to_time`, `to_row`, `time`."""
        if self._recorded is not None:
            lines = self._lines(self._recorded.launches, ("time", "to_time"))
            # Several meters may ask at the same time.
            vars(self._recorded).pop("launches", None)
            return lines
        return in_content_order(_loaded(self.events.launches, run_events.LAUNCH_SCHEMA), ["to_time", "to_row"])

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Messages between ranks that are received in the window, sorted by `to_time`: columns of MESSAGE_SCHEMA."""
        if self._recorded is not None:
            return self._lines(self._recorded.messages, ("time", "to_begin", "to_time"))
        return _loaded(self.events.messages, run_events.MESSAGE_SCHEMA)

    def _lines(self, lines: pl.DataFrame, times: tuple[str, ...]) -> pl.DataFrame:
        inside = lines.filter(pl.col("to_time").is_between(*self._span))
        return inside.with_columns(pl.col(times) - self.events.offset) if self.events.offset else inside

    @cached_property
    def launch_of(self) -> Integers:
        """For each operation the place of its launch in `launches`, of several the earliest; NONE: there is none."""
        launches, operations, rows = self.launches, self.operations, len(self.events.rows.names) + 1
        if launches.is_empty():
            return np.full(operations.height, NONE, dtype=np.int32)
        to_key = launches["to_time"].to_numpy() * rows + launches["to_row"].to_numpy()
        key = operations["start"].to_numpy() * rows + operations["row"].to_numpy()
        place: Integers = np.searchsorted(to_key, key).astype(np.int32)
        is_launched = to_key[np.minimum(place, len(to_key) - 1)] == key
        place[~is_launched] = NONE
        return place

    @cached_property
    def launcher_of(self) -> Integers:
        """For each operation the place in `callers` of the thread that launched it; -1: it is not known."""
        # NONE is the last place.
        return np.append(self.place_of_caller[self.launches["row"].to_numpy()], -1)[self.launch_of].astype(np.int32)

    @cached_property
    def first_launchers(self) -> Integers:
        """The same of the first launch on each device (pages that migrate have none), in the whole recording where it does
        nothing in the window; of a thread that appears late before it, as helpers do, the first thread of its process."""
        launched = np.flatnonzero(self.launcher_of >= 0)[::-1]
        first, start = np.full((2, len(self.events.rows.devices)), NONE)
        device = self.events.rows.device[self.operations["row"].to_numpy()[launched]]
        # The last assignment counts.
        first[device], start[device] = self.launcher_of[launched], self.operations["start"].to_numpy()[launched]
        task, since = self.events.rows.task[self.callers], self.seen_since
        by_task = np.lexsort((since, task))
        earliest = np.append(by_task[np.searchsorted(task, task, sorter=by_task)], NONE)
        is_late = np.append(since, NONE)[first] > _LATE * start
        launchers = np.where(is_late, earliest[first], first).astype(np.int32)
        is_idle = np.isin(np.arange(len(launchers)), self.events.rows.device[self.operations["row"].unique()], invert=True)
        if self._recorded is None or not is_idle.any():
            return launchers
        return np.where(is_idle, self.recorded.first_launchers, launchers)

    # -- what runs when -----------------------------------------------------------------------------

    def is_named(self, events: pl.DataFrame, number: int, pattern: str) -> pl.Series:
        """Which events are of a type, with a name in which a regular expression matches something."""
        values = [value for value, name in self.events.names(number).items() if re.search(pattern, name)]
        return (events["number"] == number) & events["value"].is_in(values)

    @cached_property
    def tasks_with_event_waits(self) -> Numbers:
        """Tasks in which streams wait for events."""
        waits = self.calls.filter(self.is_named(self.calls, event_types.CUDA_CALL, "StreamWaitEvent"))
        tasks: Numbers = self.events.rows.task[waits["row"].unique().to_numpy()]
        return tasks

    @cached_property
    def moves_pages(self) -> Mask:
        """Which operations move unified memory: they are on the row of a stream, but not in its order."""
        return self.is_named(self.operations, event_types.MEMORY_OPERATION, "memcpy Unified").to_numpy()

    @property
    def is_prefetch(self) -> pl.Expr:
        """Which operations are prefetches of unified memory that the program asked for."""
        prefetches = [value for value, cause in self.events.names(MIGRATION_CAUSE).items() if cause == MIGRATION_CAUSES[1]]
        return pl.col("migration").is_in(prefetches).fill_null(value=False)

    @cached_property
    def page_moves(self) -> Spans:
        """When pages of unified memory of each device move that no prefetch asked for, or their faults are handled."""
        moves = self.operations.filter(pl.Series(self.moves_pages), ~self.is_prefetch), self.frame(run_events.PAGE_FAULTS)
        located = self.events.rows.located(pl.concat(rows.select("row", "start", "end") for rows in moves))
        return Spans(located.select("device", "start", "end"))

    @cached_property
    def page_waits(self) -> Spans:
        """When kernels of each device may wait for pages of unified memory: while these move or, where faults were not
        recorded, as long as a kernel takes in which they do: between two moves it waits for faults, too."""
        merged = self.page_moves.merged
        if not len(merged) or self.frame(run_events.PAGE_FAULTS).height:
            return self.page_moves
        kernels = self.operations.filter(pl.Series(self.kind_of_operations == KERNEL))
        times = Intervals.of(self.events.rows.device[kernels["row"].to_numpy()], kernels["start"], kernels["end"])
        moved = self.page_moves.inside(times.group, times.begin, times.end)
        waiting = times.only(moved > PAGE_MOVES * (times.end - times.begin))
        columns = zip(*((of.group, of.begin, of.end) for of in (merged, waiting)), strict=True)
        return Spans(np.concatenate(column) for column in columns)

    @cached_property
    def on_devices(self) -> Segments:
        """Activity of each device: one count per kind."""
        return self._segments_of_operations(self.events.rows.device)

    @cached_property
    def on_tasks(self) -> Segments:
        """The same for each task."""
        rows = self.events.rows
        is_same = (rows.device < 0) | (rows.device == rows.task)
        return self.on_devices if is_same.all() else self._segments_of_operations(rows.task)

    @cached_property
    def on_threads(self) -> Segments:
        """What each of `callers` (by its place) does: one count for each of `host_states.STATES` but those in no call."""
        edges, state = pl.col("row", "start", "end"), pl.Series(self.states_of_calls.view(np.uint8))
        off_cpu = self.frame(OFF_CPU_TIMES).select(edges, state=pl.lit(host_states.OFF_CPU, pl.UInt8))
        events = pl.concat([self.calls.select(edges, state=state), off_cpu, self.creations])
        return _segments(events, self.place_of_caller, events["state"].to_numpy(), host_states.COMPUTING)

    @cached_property
    def callers(self) -> Numbers:
        """Rows of host threads, of tasks that use a GPU, that call CUDA or MPI at any time of the recording, in order. Of a run
        in which no task does: of all tasks, and where none calls, all host threads of the program that do something."""
        rows, row = self.events.rows, pl.col("row").filter(pl.col("number").is_in(run_events.HOST_CALLS))
        calling: Numbers = self.calls.select(row.unique().sort().cast(pl.Int64)).to_series().to_numpy()
        if rows.devices:
            return calling[np.isin(rows.task[calling], list(rows.devices_of_task))]
        if self._has_host_calls:
            return calling
        # nsys writes marks for a thread 0 that is none: what does nothing of some length, and has no samples, runs nowhere.
        length = pl.col("end") - pl.col("start")
        busy = (frame.filter(length > 0)["row"] for frame in (self.calls, self.frame(RANGES)))
        # Without a name, helpers of nsys and of the driver are known by hardly ever being on a CPU.
        on_cpu = self.frame(OFF_CPU_TIMES).group_by("row").agg(time=self.events.length - length.sum())
        on_cpu = on_cpu.filter(pl.col("time") >= _LEAST_ON_CPU * pl.col("time").max())
        active = pl.concat([*busy, self.frame(FUNCTION_SAMPLES)["row"], on_cpu["row"]]).unique().to_numpy()
        return np.intersect1d(np.flatnonzero((rows.kind == run_events.HOST) & self.is_of_program), active)

    @cached_property
    def _has_host_calls(self) -> bool:
        """Whether threads call CUDA or MPI for so long that these are the threads that work."""
        calls = self.calls.filter(pl.col("number").is_in(run_events.HOST_CALLS))
        return bool((calls["end"] - calls["start"]).sum() > _LEAST_IN_CALLS * self.events.length)

    @cached_property
    def lives(self) -> pl.DataFrame:
        """From when to when (`since`, `until`, ns) each of `callers` is there: where none calls CUDA or MPI, from its first to
        its last time on a CPU (if recorded), else from its first event to the end of the recording, or to its last event if it
        was joined then; the first thread of a process as long as any other. Else always."""
        has_calls, length = bool(self.events.rows.devices) or self._has_host_calls, self.events.length
        off_cpu = self.frame(OFF_CPU_TIMES).filter(not has_calls)
        since, until = pl.col("end").filter(pl.col("start") <= 0).max(), pl.col("start").filter(pl.col("end") >= length).min()
        edges = off_cpu.group_by(pl.col("row").cast(pl.Int64)).agg(since=since, until=until)
        threads = self.events.rows.located(pl.DataFrame({"row": self.callers}))
        threads = threads.join(edges, on="row", how="left", maintain_order="left")
        threads = threads if has_calls or edges.height else self._lives_by_events(threads)
        since, until = pl.col("since").fill_null(0), pl.col("until").fill_null(length)
        is_first = since == since.min().over("task")
        return threads.select(since, pl.when(is_first).then(until.max().over("task")).otherwise(until).alias("until"))

    def _lives_by_events(self, threads: pl.DataFrame) -> pl.DataFrame:
        """Threads (`row`, `task`) with `since` and `until` by their events; null: not known."""
        samples = self.frame(FUNCTION_SAMPLES).with_columns(end="start")
        events = pl.concat(frame.select("row", "start", "end") for frame in (self.calls, self.frame(RANGES), samples))
        seen = events.group_by(pl.col("row").cast(pl.Int64)).agg(since=pl.col("start").min(), last=pl.col("end").max())
        times = threads.select("row", "task").join(seen, on="row", how="left", maintain_order="left").with_row_index()
        joins = self.calls.filter(self.is_named(self.calls, event_types.PTHREAD_CALL, "_join"))
        joined = self.events.rows.located(joins).select("task", joined="end").sort("joined")
        ended = times.sort("last").join_asof(
            joined, left_on="last", right_on="joined", by="task", strategy="forward", check_sortedness=False
        )
        until = pl.when(pl.col("joined") - pl.col("last") <= _SOON).then("last")
        return ended.sort("index").select("row", "task", "since", until=until)

    @cached_property
    def seen_since(self) -> Numbers:
        """When each of `callers` does something first, ns; 0 of the first thread of a process, which is there from its start,
        and where the window begins later than the program."""
        since: Numbers = np.zeros(len(self.events.rows.names), dtype=np.int64)
        if self.is_from_start:
            # Off its CPU from the start on, a thread need not be there before it gets one.
            first_seen = pl.when(pl.col("start") > 0).then("start").otherwise("end")
            events = pl.concat([self.calls.select("row", "start"), self.frame(OFF_CPU_TIMES).select("row", start=first_seen)])
            first = events.group_by("row").agg(pl.col("start").min())
            since[first["row"].to_numpy()] = first["start"].to_numpy()
        return np.where(self._is_first_thread, 0, since)[self.callers]

    @cached_property
    def _is_first_thread(self) -> Mask:
        """Which rows are the first threads of their processes, by their names."""
        rows, names = self.events.rows, zip(self.events.rows.names, self.events.rows.task, strict=True)
        is_first = [f" pid {name.rpartition('tid ')[2]} " in f" {rows.tasks[task].name} " for name, task in names]
        return np.array(is_first, dtype=bool)

    @cached_property
    def is_of_program(self) -> Mask:
        """Which rows are not of threads of the profiler, by their names."""
        is_of_program = np.array([row_names.OF_PROFILER.match(name) is None for name in self.events.rows.names], dtype=bool)
        # nsys has been seen to call the first thread of a process as it calls those of CUPTI.
        return is_of_program | self._is_first_thread

    @property
    def is_from_start(self) -> bool:
        """Whether the window begins no later than the program."""
        return self._recorded is None or self.events.offset <= self.window.program[0]

    @property
    def is_cut(self) -> tuple[bool, bool]:
        """Whether `--time` cuts the start, and the end, of what was recorded: nothing is known of what is beyond."""
        begin, end = (self.options.time.begin or 0, self.options.time.end) if self.options.time else (0, None)
        return begin > 0, end is not None and end - begin <= self.recorded.events.length

    @cached_property
    def place_of_caller(self) -> Numbers:
        """For each row its place in `callers`; -1: none."""
        places: Numbers = np.full(len(self.events.rows.names) + 1, -1, dtype=np.int64)
        places[self.callers] = np.arange(len(self.callers))
        return places

    @cached_property
    def activity_of_threads(self) -> Integers:
        """Of each of the segments `on_threads` the call, or whether it is off its CPU: a key of `thread_times`."""
        return replace(self.on_threads, counts=self.on_threads.counts[FIRST_CALL:]).first_kind

    @cached_property
    def is_scheduled(self) -> Mask:
        """Of which callers the scheduling was recorded: that of their tasks."""
        rows = self.events.rows
        tasks = rows.task[self.frame(OFF_CPU_TIMES)["row"].to_numpy()]
        return np.isin(rows.task[self.callers], tasks)

    @cached_property
    def creations(self) -> pl.DataFrame:
        """When threads create communicators and contexts, and set up the profiler: `row`, `start`, `end`, `state`."""
        regions = self.frame(run_events.NCCL_REGIONS)
        named = regions.with_columns(self.events.named(regions["number"], regions["value"]).alias("name"))
        rows, since, edges = self.events.rows, pl.col("since"), ("row", "start", "end")
        creating = rows.located(host_states.creates_communicators(named))
        # Threads that NCCL starts meanwhile work and wait for it.
        begun = pl.DataFrame({"row": self.callers, "task": rows.task[self.callers], "since": self.seen_since})
        helpers = creating.drop("row").join(begun, on="task").filter(since.is_between("start", "end") & (since > 0))
        creating = pl.concat([creating.select(edges), helpers.cast({"row": pl.Int32}).select(edges)])
        created = {COMMUNICATOR: creating, CONTEXT: self.context_creations}
        setup = self.frame(run_events.PROFILER_SETUP)
        # Of other names, such as dlopen(...), some is the program's.
        is_profiling = self.events.named(setup["number"], setup["value"]).str.contains("profiling|CUPTI").fill_null(value=False)
        setup = rows.located(setup.filter(is_profiling))
        # What is on no thread of the program holds the one in whose call it is.
        calls = rows.located(self._long_cuda_calls).select("task", "start", caller="row", until="end")
        setup, in_call = setup.join_asof(calls, on="start", by="task", check_sortedness=False), pl.col("end") <= pl.col("until")
        is_apart = pl.Series(self.place_of_caller[setup["row"].to_numpy()] < 0)
        created[PROFILER] = setup.with_columns(row=pl.when(pl.lit(is_apart) & in_call).then("caller").otherwise("row"))
        return pl.concat(events.select(edges, state=pl.lit(state, pl.UInt8)) for state, events in created.items())

    @cached_property
    def _long_cuda_calls(self) -> pl.DataFrame:
        """Calls of CUDA that take as long as the creation of a context: columns of `calls`."""
        is_long = pl.col("end") - pl.col("start") >= host_states.LONG_CREATION
        return self.calls.filter(is_long, pl.col("number") == event_types.CUDA_CALL)

    @property
    def context_setups(self) -> pl.DataFrame:
        """When CUPTI prepares contexts, in the calls that create them: `row`, `start`, `end`, and other columns."""
        setup = self.frame(run_events.PROFILER_SETUP)
        names = self.events.named(setup["number"], setup["value"])
        return setup.filter(names.str.contains("Resource Management").fill_null(False))

    @cached_property
    def context_creations(self) -> pl.DataFrame:
        """Calls in which contexts are created, with columns of `calls`, and pauses in which calls do that were not recorded."""
        if self._long_cuda_calls.is_empty() and self.frame(run_events.PROFILER_SETUP).is_empty():
            return self._long_cuda_calls
        if not self.is_from_start:
            # Contexts that are there already are known by the calls before the window.
            return self.inside(self.recorded.context_creations, run_events.ON_HOSTS)
        rows, of_cuda = self.events.rows, self.calls.filter(pl.col("number") == event_types.CUDA_CALL)
        first = rows.located(self.operations.select("row", "start")).group_by("task", "device").agg(pl.col("start").min())
        devices = first.group_by("task").agg(devices=pl.len(), until=pl.col("start").max())
        set_up = rows.located(self.context_setups).select("task", "row", "start", since="start").sort("start")
        creating = host_states.creates_context(rows.located(of_cuda), devices, self.events.names(event_types.CUDA_CALL), set_up)
        return pl.concat([creating, host_states.unrecorded_creations(of_cuda, set_up)], how="diagonal")

    @cached_property
    def device_times(self) -> Elapsed:
        """Time by mask of activity on devices."""
        return Elapsed(self.on_devices, self.on_devices.mask, MASKS)

    @cached_property
    def thread_times(self) -> Elapsed:
        """Time by activity of calling host threads."""
        activity = self.activity_of_threads.copy()
        activity[(self.on_threads.counts[PROFILER] > 0) & (activity >= OS)] = PROFILER_ACTIVITY
        return Elapsed(self.on_threads, activity, ACTIVITIES + 1)

    def drop_activity(self) -> None:
        """Take what runs when out of memory; it is made again where it is asked for."""
        for name in ("on_devices", "on_tasks", "on_threads", "activity_of_threads", "device_times", "thread_times"):
            vars(self).pop(name, None)

    def _segments_of_operations(self, group_of_row: Numbers) -> Segments:
        return _segments(self.operations, group_of_row, self.kind_of_operations, 3)

    # -- names and kinds ----------------------------------------------------------------------------

    def device_names(self, index: pl.Expr) -> pl.Expr:
        """Names of devices by their index."""
        return pl.lit(pl.Series([device.name for device in self.events.rows.devices], dtype=pl.String)).gather(index)

    def task_names(self, index: pl.Expr) -> pl.Expr:
        """Names of tasks by their index."""
        return pl.lit(pl.Series([task.name for task in self.events.rows.tasks], dtype=pl.String)).gather(index)

    def names_of_threads(self, place: pl.Expr) -> dict[str, pl.Expr]:
        """Names of the `task` and the `thread` of places in `callers`; null where these are below 0."""
        rows, place = self.events.rows, pl.when(place >= 0).then(place)
        threads = pl.Series([rows.names[row] for row in self.callers], dtype=pl.String)
        task = self.task_names(pl.lit(pl.Series(rows.task[self.callers], dtype=pl.Int64)).gather(place))
        return {"task": task, "thread": pl.lit(threads).gather(place)}

    @cached_property
    def kind_of_operations(self) -> Integers:
        """Kind of activity of each operation (UInt8)."""
        numbers = self.operations["number"].to_numpy()
        kinds = np.full(len(numbers), KERNEL, dtype=np.uint8)
        for number, kind in KINDS_OF_NUMBER.items():
            kinds[numbers == number] = kind
        return kinds

    @cached_property
    def states_of_calls(self) -> Integers:
        """State of the thread in each of `calls`: a place in `host_states.STATES` (Int8)."""
        numbers, values = (self.calls[name].to_numpy() for name in ("number", "value"))
        states = np.full(len(numbers), FIRST_CALL + MPI, dtype=np.int8)
        for number in (event_types.CUDA_CALL, *OS_TYPES):
            names = self.events.names(number)
            # The last one is that of values without a name.
            texts, is_cuda = pl.Series([*names.values(), ""]), number == event_types.CUDA_CALL
            of_texts = call_categories(texts) + FIRST_CALL if is_cuda else host_states.os_states(texts, number).to_numpy()
            of_values = np.full(max(names, default=0) + 2, of_texts[-1], dtype=np.int8)
            of_values[list(names)] = of_texts[:-1]
            is_such = numbers == number
            value = values[is_such]
            states[is_such] = of_values[np.where((value >= 0) & (value < len(of_values)), value, -1)]
        return states

    @property
    def launches_work(self) -> Mask:
        """Which of `calls` launch."""
        launches: Mask = self.states_of_calls == FIRST_CALL + LAUNCH
        return launches


def _segments(events: pl.DataFrame, group_of_row: Numbers, kind: Integers, kinds: int) -> Segments:
    return segments(Intervals.of(group_of_row[events["row"].to_numpy()], events["start"], events["end"]), kind, kinds)


def _loaded(rows: ExternalSort | None, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    if rows is None:
        return pl.DataFrame(schema=schema)
    rows.finish()
    # Of one piece, or each column that is asked for would be copied.
    frame = pl.concat([pl.DataFrame(schema=schema), *rows.load(Window(None, None))], rechunk=True)
    return rows_in_order(frame, rows.column)
