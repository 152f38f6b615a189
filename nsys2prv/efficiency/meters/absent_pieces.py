"""What time without computation is for: gaps of a device between compute kernels, cut into pieces of one part each.

What runs on the device in such a gap comes first: NCCL kernels, copies, memsets. In the rest the device is idle. The gap ends
with a compute kernel: until that was launched, the device is launch-starved, and what counts is what the launching thread did.
From then on the kernel waits for the operations that had to end before it could start, or it is queued. NVIDIA's procedure for
such profiles calls the three launch-starved, blocking, and dependency-stalled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import EventEdges
from nsys2prv.efficiency.host_states import COMPUTING, FIRST_CALL, OFF_CPU, UNSCHEDULED
from nsys2prv.efficiency.intervals import (
    NONE,
    Integers,
    Intervals,
    Mask,
    Moments,
    Nested,
    Numbers,
    Segments,
    expanded,
    segments,
)
from nsys2prv.efficiency.measured_run import ACTIVITIES, KERNEL, MEMORY, NCCL, MeasuredRun
from nsys2prv.efficiency.meters.absent_tables import (
    BESIDE_NCCL,
    BESIDE_WORK,
    CLOCKS,
    DETAIL,
    NO_EVENTS,
    NO_EVENTS_OF_NCCL,
    NO_LAUNCH,
    NO_LAUNCHES,
    OF_STATES,
    PART,
    UNMATCHED,
)
from nsys2prv.efficiency.meters.gaps import UNKNOWN, gaps_between, threads_that_launched
from nsys2prv.efficiency.meters.nccl_stats import Nccl, is_complete
from nsys2prv.efficiency.run_events import RANGES, RECORDS
from nsys2prv.vocabulary import event_types

BLOCK_EVENTS = 500_000
"""Events that are looked at together: it bounds the memory for what is only needed on the way."""
PIECE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "gap": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "part": PART, "detail": DETAIL, "operation": pl.Int32,
    "task": pl.Int32, "is_waited": pl.Boolean,
}  # fmt: skip
_ARRIVAL_SCHEMA: dict[str, type[pl.DataType]] = {
    "row": pl.Int32, "start": pl.Int64, "waited": pl.Int64, "undecided": pl.Int64, "task": pl.Int32,
}  # fmt: skip
_PART_OF_KIND = pl.Series(["other_kernel", "communication", "copy"], dtype=PART)


# -- what holds when ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timeline:
    """What holds in groups (devices, tasks, threads) over time.

    Attributes
    ----------
    segments
        Of the groups, of which every time between two edges is in one.
    columns
        By name, the value of each segment. Where a group has no segment, that of one in which nothing is open holds.
    """

    segments: Segments
    columns: Mapping[str, npt.NDArray[np.integer]]

    @classmethod
    def covered(cls, name: str, group: Numbers, events: pl.DataFrame) -> Timeline:
        """1 while any event (columns `start`, `end`) of a group is open, else 0; those of a negative group are left out."""
        intervals = Intervals.of(group, events["start"], events["end"])
        edges = segments(intervals.only(group >= 0))
        return cls(edges, {name: (edges.counts[0] > 0).astype(np.int8)})

    def cut(self, pieces: pl.DataFrame, by: str) -> pl.DataFrame:
        """Pieces, cut where segments of their groups begin or end, with the columns of the segments.

        Parameters
        ----------
        pieces
            Columns `begin`, `end` (ns, each of some length), and the group.
        by
            Name of the column with the group.
        """
        piece, segment, begin, end = self.segments.cut(Intervals.of(pieces[by], pieces["begin"], pieces["end"]))
        values = {name: column[segment] for name, column in self.columns.items()}
        return pieces[piece].with_columns(begin=begin, end=end, **values)


def states_of_threads(run: MeasuredRun) -> Timeline:
    """What calling threads do: `state`, a place in `host_states.STATES` (COMPUTING: none is open); `call`, the place in
    `run.calls` of the innermost call of the first kind that is open; NONE: none; and `off_cpu`, whether the thread is off its
    CPU, whatever else."""
    on_threads, activity = run.on_threads, run.activity_of_threads
    depth: npt.NDArray[np.int32] = np.zeros(len(activity), dtype=np.int32)
    for kind, counts in enumerate(on_threads.counts[FIRST_CALL:OFF_CPU]):
        np.copyto(depth, counts, where=activity == kind, casting="same_kind")

    def groups(calls: pl.DataFrame) -> Numbers:
        # Calls of one kind are nested in each other.
        thread = run.place_of_caller[calls["row"].to_numpy()]
        kind = run.states_of_calls(calls["number"].to_numpy(), calls["value"].to_numpy()) - FIRST_CALL
        return np.where(thread >= 0, thread * ACTIVITIES + kind, NONE)

    call = _innermost(on_threads, ACTIVITIES, activity, depth, run.calls, groups)
    off_cpu = (on_threads.counts[OFF_CPU] > 0).astype(np.int8)
    return Timeline(on_threads, {"state": on_threads.first_kind, "call": call, "off_cpu": off_cpu})


def ranges_of_threads(run: MeasuredRun) -> Timeline:
    """`range` of calling threads: the place in `run.frame(RANGES)` of the innermost NVTX range (push/pop); NONE: none."""
    ranges = run.frame(RANGES)

    def groups(block: pl.DataFrame) -> Numbers:
        is_nested = (block["number"] != event_types.NVTX_RANGE).to_numpy()
        return np.where(is_nested, run.place_of_caller[block["row"].to_numpy()], NONE)

    thread = groups(ranges)
    edges = segments(Intervals.of(thread, ranges["start"], ranges["end"]).only(thread >= 0))
    nothing: npt.NDArray[np.uint8] = np.zeros(len(edges), dtype=np.uint8)
    depth = edges.counts[0].astype(np.int32)
    return Timeline(edges, {"range": _innermost(edges, 1, nothing, depth, ranges, groups)})


def _innermost(
    edges: Segments,
    kinds: int,
    kind: Integers,
    depth: npt.NDArray[np.int32],
    events: pl.DataFrame,
    groups: Callable[[pl.DataFrame], Numbers],
) -> npt.NDArray[np.int32]:
    """For each segment the place of the innermost open event; NONE: there is none.

    Parameters
    ----------
    kinds, kind, depth
        Number of kinds of events; of each segment the kind that counts, and how many of it are open.
    events
        Sorted by `start`.
    groups
        Of events the group of the segments times `kinds` plus the kind; NONE: they do not count.
    """
    innermost: npt.NDArray[np.int32] = np.full(len(edges), NONE, dtype=np.int32)
    begin, of_edges = edges.begin, edges.group.astype(np.int32)
    start, end = (events[name].to_numpy() for name in ("start", "end"))
    bounds = [0, *start[BLOCK_EVENTS::BLOCK_EVENTS].tolist(), np.iinfo(np.int64).max]
    for low, high in pairwise(bounds):
        opened = np.flatnonzero((start < high) & (end > low) & (end > start))
        group = groups(events[opened])
        opened, group = opened[group >= 0], group[group >= 0]
        segment = np.flatnonzero((begin >= low) & (begin < high) & (depth > 0))
        of_segment, time = of_edges[segment].astype(np.int64) * kinds + kind[segment], begin[segment]
        place = Nested(group, start[opened], end[opened]).innermost(of_segment, time, depth[segment].astype(np.int64))
        innermost[segment] = np.append(opened, NONE)[place]
    return innermost


# -- what an operation waited for --------------------------------------------------------------------


class Pieces(NamedTuple):
    """Pieces of windows: the window of each, its start and end (ns), and the key of what holds in it."""

    window: Numbers
    begin: Numbers
    end: Numbers
    key: Numbers


class Predecessors:
    """Operations of devices by the rows of their streams, and for each the one that it waited for.

    Work in a stream runs in order: an operation waits for the one of its row that ended last before it started, or, where an
    event is awaited whose operation ended later, for that one. Of operations without length nothing can be seen to wait.

    Parameters
    ----------
    is_in_order
        Which of `run.operations` run in the order of their stream.
    events
        What was awaited by events.
    """

    def __init__(self, run: MeasuredRun, is_in_order: Mask, events: EventEdges) -> None:
        row, start, end = (run.operations[name].to_numpy() for name in ("row", "start", "end"))
        place = np.flatnonzero(is_in_order & (end > start))
        place = place[np.lexsort((start[place], end[place], row[place]))]
        self.operation = place.astype(np.int32)
        """Place of each in `run.operations`."""
        self._row, self._start = row[place], start[place]
        self._ends = Moments.of(self._row, end[place])
        awaited_row, awaited_end = self._awaited(events)
        self._predecessor: npt.NDArray[np.int32] = np.empty(len(place), dtype=np.int32)
        for first in range(0, len(place), BLOCK_EVENTS):
            block = slice(first, first + BLOCK_EVENTS)
            self._predecessor[block] = self._waited_for(
                self._row[block], self._start[block], awaited_row[block], awaited_end[block]
            )
        # Where the predecessor is the row before, a run of operations is one step of the walk.
        order = np.arange(len(place), dtype=np.int32)
        is_jump = self._predecessor != order - 1
        self._former_jump = np.maximum.accumulate(np.where(is_jump, order, 0)) if len(place) else order

    def _awaited(self, events: EventEdges) -> tuple[Numbers, Numbers]:
        """Row and end of the operation whose event each operation awaited, the last one of several; NONE: none."""
        awaited = pl.concat([events.on_streams, events.inferred]).sort("awaited_end", "awaited_row")
        if awaited.is_empty():
            nothing = np.broadcast_to(np.int64(NONE), len(self._row))
            return nothing, nothing
        last = awaited.unique(["row", "start"], keep="last").select("row", "start", "awaited_row", "awaited_end")
        operations = pl.DataFrame({"row": self._row.astype(np.int64), "start": self._start})
        joined = operations.join(last, on=["row", "start"], how="left", maintain_order="left")
        awaited_row, awaited_end = (joined[name].fill_null(NONE).to_numpy() for name in ("awaited_row", "awaited_end"))
        return awaited_row, awaited_end

    def _waited_for(self, row: Numbers, start: Numbers, awaited_row: Numbers, awaited_end: Numbers) -> Numbers:
        """Place of what operations waited for; NONE: nothing."""
        in_stream, awaited = self._ends.place(row, start), self._ends.place(awaited_row, awaited_end)
        is_later = (awaited_row != NONE) & (awaited != NONE) & (self._end(awaited) == awaited_end) & (awaited_end <= start)
        is_later &= awaited_end > np.where(in_stream == NONE, NONE, self._end(in_stream))
        return np.where(is_later, awaited, in_stream)

    def _end(self, place: Numbers) -> Numbers:
        return self._ends.code.time(self._ends.keys[place])

    def walk(self, row: Numbers, start: Numbers, end: Numbers, until: Numbers) -> Pieces:
        """Pieces from `until` to the start of each operation (`row`, `start`, `end`), by the operations that it waited for.

        `until` is the time before each start at which the walk ends, ns. The pieces are in no order. `key` is the place of an
        operation in `operation`: the piece is a part of it; NONE: between two of them, or before all that are waited for.
        """
        if not len(self._row):
            return Pieces(np.arange(len(row)), until, start, np.full(len(row), NONE))
        itself = self._ends.place(row, end)
        is_itself = (itself != NONE) & (self._start[itself] == start)
        place = np.where(is_itself, self._predecessor[itself], self._ends.place(row, start))
        window, at = np.arange(len(row)), start
        walked = [Pieces(window[:0], at[:0], at[:0], place[:0])]
        while len(window):
            lower = until[window]
            awaited_until = np.where(place == NONE, lower, np.maximum(self._end(place), lower))
            walked.append(Pieces(window, awaited_until, at, np.full(len(window), NONE)))
            goes_on = awaited_until > lower
            window, at, place, lower = window[goes_on], at[goes_on], place[goes_on], lower[goes_on]
            # A run of operations, each of which waited for the one before; the first ends after the lower bound.
            first_of_row = np.searchsorted(self._row, self._row[place], side="left")
            first = np.maximum(self._ends.find(self._row[place], lower) + 1, first_of_row)
            first = np.maximum(first, self._former_jump[place])
            which, operation = expanded(first, place)
            of_window = window[which]
            walked.append(
                Pieces(of_window, np.maximum(self._start[operation], until[of_window]), self._end(operation), operation)
            )
            follows = operation < place[which]
            between = operation[follows]
            nothing = np.full(len(between), NONE)
            walked.append(Pieces(of_window[follows], self._end(between), self._start[between + 1], nothing))
            at = self._start[first]
            goes_on = at > lower
            window, at, place = window[goes_on], at[goes_on], self._predecessor[first[goes_on]].astype(np.int64)
        pieces = Pieces(*(np.concatenate(column) for column in zip(*walked, strict=True)))
        has_length = pieces.end > pieces.begin
        return Pieces(*(column[has_length] for column in pieces))


class Running:
    """Which of some operations runs on a device at a time: of several, that which ends last.

    Parameters
    ----------
    is_such
        Which of `run.operations`.
    """

    def __init__(self, run: MeasuredRun, is_such: Mask) -> None:
        device = run.events.rows.device[run.operations["row"].to_numpy()]
        place = np.flatnonzero(is_such & (device >= 0))
        # Operations are in the order of their start.
        place = place[np.argsort(device[place], kind="stable")]
        self._moments = Moments.of(device[place], run.operations["start"].gather(place).to_numpy())
        started = pl.DataFrame({"device": device[place], "end": run.operations["end"].gather(place), "place": place})
        last = pl.col("end").cum_max().over("device")
        open_ = started.select(last, pl.when(last == pl.col("end")).then("place").forward_fill().over("device").alias("place"))
        self._end, self._place = open_["end"].to_numpy(), open_["place"].to_numpy()

    def at(self, pieces: pl.DataFrame) -> Numbers:
        """Place in `run.operations` of what runs when pieces (`device`, `begin`) begin; NONE: nothing."""
        if not len(self._end):
            return np.full(pieces.height, NONE, dtype=np.int64)
        begin = pieces["begin"].to_numpy()
        latest = self._moments.place(pieces["device"].to_numpy(), begin)
        return np.where((latest != NONE) & (self._end[latest] > begin), self._place[latest], NONE)


# -- pieces of gaps ----------------------------------------------------------------------------------


class PiecesOfGaps:
    """Cuts gaps without computation into pieces of one part each.

    Parameters
    ----------
    nccl, events
        Of the run: which NCCL kernels are one collective, and what awaited which operation by an event.
    """

    def __init__(self, run: MeasuredRun, nccl: Nccl, events: EventEdges) -> None:
        self._run = run
        on_devices = run.on_devices
        work = _work(on_devices)
        self._first_work = int(on_devices.begin.min(where=work > 0, initial=run.events.length))
        self._last_work = int(on_devices.end.max(where=work > 0, initial=0))
        self._first_threads = _first_threads(run)
        self._threads, self._ranges = states_of_threads(run), ranges_of_threads(run)
        self._on_devices = Timeline(on_devices, {"work": work})
        self._idle = gaps_between(run, _after_computing(run)).select("device", "begin", "end", "thread", "launched")
        # Where devices and tasks are pairs, one search serves both.
        is_paired = run.only_task is not None
        self._on_tasks = self._on_devices if is_paired else Timeline(run.on_tasks, {"work": _work(run.on_tasks)})
        is_unified = _is_named(run, run.operations, event_types.MEMORY_OPERATION, "memcpy Unified")
        moves = run.operations.filter(is_unified)
        self._unified = Timeline.covered("unified", run.events.rows.device[moves["row"].to_numpy()], moves)
        kind = run.kind(run.operations["number"].to_numpy())
        self._nccl, self._copies = Running(run, kind == NCCL), Running(run, (kind == MEMORY) & ~is_unified.to_numpy())
        # Migrations of unified memory are on the row of a stream, but not in its order.
        self._predecessors = Predecessors(run, ~is_unified.to_numpy(), events)
        self._arrivals = _arrivals(run, nccl)
        waits = run.calls.filter(_is_named(run, run.calls, event_types.CUDA_CALL, "StreamWaitEvent"))
        tasks = run.events.rows.task[waits["row"].unique().to_numpy()]
        self._unrecorded: Numbers = tasks if RECORDS.name not in run.events.collections else tasks[:0]
        """Tasks in which streams wait for events that were not recorded."""

    def of_gaps(self, gaps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Pieces of gaps that end with compute kernels, or with the window: rows of `gaps_between`.

        Returns
        -------
        All pieces, with the columns of PIECE_SCHEMA: `gap` is a place in `gaps`; `operation`, a place in `run.operations`, what
        runs or was waited for; `task` the late rank; `is_waited` whether it was waited for.

        Of those before the launch by a known thread also what that did: `gap`, `device`, `thread`, `begin`, `end`, `part`,
        `call`, `range` (places in `run.calls`, `run.frame(RANGES)`; NONE), `off_cpu` (1: the thread was off its CPU), and
        `nccl`, `copy`: what runs on the device (NONE: nothing; without both it is launch-starved).
        """
        begin, end, thread = (gaps[name].to_numpy() for name in ("begin", "end", "thread"))
        is_last, is_launched = (gaps["next"] == NONE).to_numpy(), gaps["launched"].is_not_null().to_numpy()
        ready = np.clip(self._first_work, begin, end)
        issued = np.where(is_launched, np.clip(gaps["launched"].fill_null(0).to_numpy(), ready, end), ready)
        last = np.clip(self._last_work, ready, end)
        first_thread = self._first_threads[gaps["device"].to_numpy()]
        no_launch = NO_LAUNCHES if self._run.events.launches is None else NO_LAUNCH
        located = gaps.select("device", "thread", first_thread=pl.Series(first_thread, dtype=pl.Int32))
        by_thread = _pieces(is_launched & (thread != UNKNOWN), ready, issued, "starved_host")
        by_thread = by_thread.hstack(located.select("device", "thread")[by_thread["gap"]])
        starting = _pieces(first_thread != UNKNOWN, begin, ready, "start_up")
        starting = starting.hstack(located.select("device", thread="first_thread")[starting["gap"]])
        ended, of_others = self._before_others(gaps.filter(is_last), np.flatnonzero(is_last), ready[is_last], last[is_last])
        starved = self._starved(pl.concat([by_thread, starting, of_others], how="diagonal"))
        of_no_thread = pl.concat(
            [
                _pieces(is_last, ready, last, "starved_ended"),
                _pieces(~is_launched & ~is_last, ready, end, "undecided", no_launch),
                _pieces(is_launched & (thread == UNKNOWN), ready, issued, "starved_unknown"),
            ]
        )
        of_no_thread = of_no_thread.with_columns(gaps["device"].gather(of_no_thread["gap"]))
        of_running = self._running_first(self._with_running(self._on_devices.cut(of_no_thread, "device")))
        pieces = [
            _pieces(first_thread == UNKNOWN, begin, ready, "start_up"),
            _pieces(is_last, last, end, "shut_down"),
            *of_running[:-1],
            of_running[-1].filter(pl.col("part") != "starved_ended"),
            ended,
            *self._running_first(starved),
            *self._waits(gaps, issued, is_launched),
        ]
        return pl.concat([pl.DataFrame(schema=PIECE_SCHEMA), *pieces], how="diagonal"), starved

    def _before_others(
        self, gaps: pl.DataFrame, gap: Numbers, ready: Numbers, last: Numbers
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Idle pieces of gaps that no compute kernel ends, from `ready` to `last`: other work may follow each of them.

        Returns
        -------
        Those of which no thread is known that launches what follows, with what is after its launch; and windows of threads
        until the launch, with `device` and `thread`.
        """
        of_device = gaps.select("device", gap=pl.Series(gap, dtype=pl.Int32), ready=pl.Series(ready), last=pl.Series(last))
        idle = self._idle.join(of_device, on="device", how="inner", maintain_order="left")
        begin, end = (
            np.clip(idle[edge].to_numpy(), idle["ready"].to_numpy(), idle["last"].to_numpy()) for edge in ("begin", "end")
        )
        is_launched, has_thread = idle["launched"].is_not_null().to_numpy(), (idle["thread"] != UNKNOWN).to_numpy()
        issued = np.where(is_launched, np.clip(idle["launched"].fill_null(0).to_numpy(), begin, end), end)
        pieces = pl.concat(
            [
                _pieces(~is_launched, begin, issued, "starved_ended"),
                _pieces(is_launched & ~has_thread, begin, issued, "starved_unknown"),
                _pieces(is_launched, issued, end, "queued"),
            ]
        )
        windows = _pieces(is_launched & has_thread, begin, issued, "starved_host")
        windows = windows.hstack(idle.select("device", "thread")[windows["gap"]])
        # Of the gaps, not of these rows.
        of_gaps, windows = (frame.with_columns(idle["gap"].gather(frame["gap"])) for frame in (pieces, windows))
        return of_gaps, windows

    def _with_running(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces that are cut where anything begins or ends on their device, with `nccl` and `copy`."""
        return pieces.with_columns(nccl=self._nccl.at(pieces), copy=self._copies.at(pieces))

    def _running_first(self, pieces: pl.DataFrame) -> list[pl.DataFrame]:
        """Pieces of `_with_running`: those in which something runs on the device are of its part."""
        in_nccl, in_copy = pl.col("nccl") != NONE, (pl.col("nccl") == NONE) & (pl.col("copy") != NONE)
        edges = ("gap", "begin", "end")
        copies = pieces.filter(in_copy).select(*edges, _part("copy"), operation=pl.col("copy").cast(pl.Int32))
        return [
            *self._communication(pieces.filter(in_nccl).select(*edges, operation=pl.col("nccl").cast(pl.Int32))),
            copies,
            pieces.filter(~in_nccl & ~in_copy).select(*edges, "part", "detail"),
        ]

    def _starved(self, windows: pl.DataFrame) -> pl.DataFrame:
        """Windows of threads (`gap`, `device`, `thread`, `begin`, `end`, `part`), cut by what these did and what ran on the
        device. Before the first work (`start_up`) it only counts what they create."""
        cut = self._unified.cut(self._ranges.cut(self._threads.cut(windows, "thread"), "thread"), "device")
        is_scheduled = pl.lit(pl.Series(self._run.is_scheduled)).gather("thread")
        state = pl.when((pl.col("state") == COMPUTING) & ~is_scheduled).then(UNSCHEDULED).otherwise("state")
        # The thread is in no call while its access to memory that is on the device makes that memory move.
        moves = (state >= OFF_CPU) & (pl.col("unified") > 0)
        of_state = pl.lit(pl.Series(OF_STATES, dtype=PART)).gather(state)
        part = (
            pl.when((pl.col("part") == "start_up") & (state >= FIRST_CALL)).then("part")
            .when(moves).then(pl.lit("starved_unified_memory", PART))
            .otherwise(of_state)
        )  # fmt: skip
        cut = cut.with_columns(part=part).drop("state", "unified")
        return self._with_running(self._on_devices.cut(cut, "device"))

    def _waits(self, gaps: pl.DataFrame, issued: Numbers, is_launched: Mask) -> list[pl.DataFrame]:
        """Pieces from the launch of what ends gaps, by what that waited for."""
        gap = np.flatnonzero(is_launched & (gaps["end"].to_numpy() > issued))
        following = self._run.operations[gaps["next"].gather(gap)]
        row, start, end = (following[name].to_numpy().astype(np.int64) for name in ("row", "start", "end"))
        walked = self._predecessors.walk(row, start, end, issued[gap])
        waits = pl.DataFrame({"gap": gap[walked.window].astype(np.int32), "begin": walked.begin, "end": walked.end})
        is_queued = walked.key == NONE
        place = self._predecessors.operation[walked.key[~is_queued]]
        kind = self._run.kind(self._run.operations["number"].gather(place).to_numpy())
        awaited = waits.filter(~is_queued).with_columns(part=_PART_OF_KIND.gather(kind), operation=pl.Series(place))
        is_communication = pl.col("part") == "communication"
        task = self._run.events.rows.task[row[walked.window[is_queued]]]
        queued = waits.filter(is_queued).with_columns(task=pl.Series(task, dtype=pl.Int32))
        of_nccl = self._communication(awaited.filter(is_communication))
        return [
            awaited.filter(~is_communication),
            *(pieces.with_columns(is_waited=True) for pieces in of_nccl),
            self._queued(queued.with_columns(gaps["device"].gather(queued["gap"]))),
        ]

    def _queued(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces in which nothing is known that was waited for: unified memory moves, or not."""
        by = "device" if self._on_tasks is self._on_devices else "task"
        cut = self._unified.cut(self._on_tasks.cut(pieces, by), "device")
        moves, work = pl.col("unified") > 0, pl.col("work")
        # An event may have been awaited that was not recorded.
        is_open = ~moves & (work > 0) & pl.col("task").is_in(self._unrecorded.tolist())
        part = pl.when(moves).then(pl.lit("unified_memory")).when(is_open).then(pl.lit("undecided")).otherwise(pl.lit("queued"))
        details = pl.Series([None, BESIDE_WORK, BESIDE_NCCL, None, NO_EVENTS, NO_EVENTS_OF_NCCL], dtype=DETAIL)
        detail = pl.when(~moves).then(pl.lit(details).gather(work.cast(pl.Int32) + 3 * is_open))
        return cut.select("gap", "begin", "end", part=part.cast(PART), detail=detail)

    def _communication(self, pieces: pl.DataFrame) -> list[pl.DataFrame]:
        """Pieces in which NCCL kernels were waited for, as late ranks, transfer, and what is not decidable of these."""
        kernels = self._run.operations.select(pl.col("row", "start").gather(pieces["operation"]))
        joined = pieces.with_columns(kernels).join(self._arrivals, on=["row", "start"], how="left")
        is_matched = pl.col("waited").is_not_null()
        arrived = pl.col("start") + pl.col("waited")
        decided = arrived + pl.col("undecided")
        begin, end = pl.col("begin"), pl.col("end")
        late = pl.min_horizontal(end, arrived)
        open_ = pl.max_horizontal(begin, arrived), pl.min_horizontal(end, decided)
        cuts: tuple[tuple[pl.Expr, pl.Expr, pl.Expr, str, str | None], ...] = (
            (~is_matched, begin, end, "communication", UNMATCHED),
            (is_matched, begin, late, "late_rank", None),
            (is_matched, *open_, "communication", CLOCKS),
            (is_matched, pl.max_horizontal(begin, decided), end, "transfer", None),
        )
        return [
            joined.filter(is_such)
            .select(
                "gap",
                "operation",
                _part(part),
                begin=first,
                end=last,
                detail=pl.lit(reason, DETAIL),
                task="task" if part == "late_rank" else pl.lit(None, pl.Int32),
            )
            .filter(pl.col("end") > pl.col("begin"))
            for is_such, first, last, part, reason in cuts
        ]


def _first_threads(run: MeasuredRun) -> Numbers:
    """Of each device the place of the caller that launched its first work; UNKNOWN: not known."""
    device = run.events.rows.device[run.operations["row"].to_numpy()]
    first: Numbers = np.full(len(run.events.rows.devices), NONE, dtype=np.int64)
    # Operations are in the order of their start, and the last assignment counts.
    first[device[::-1]] = np.arange(len(device))[::-1]
    return threads_that_launched(run, first)


def _after_computing(run: MeasuredRun) -> Intervals:
    """When devices are busy from the end of their last compute kernel on: only gaps after it are asked for."""
    on_devices = run.on_devices
    busy, computing = on_devices.where(on_devices.mask > 0), on_devices.where(on_devices.counts[KERNEL] > 0)
    last: Numbers = np.zeros(len(run.events.rows.devices), dtype=np.int64)
    # The last assignment counts.
    last[computing.group] = computing.end
    return busy.only(busy.end >= last[busy.group])


def _work(edges: Segments) -> npt.NDArray[np.int8]:
    """What runs in each segment: 0 nothing, 1 any work, 2 NCCL kernels too."""
    runs = [(count > 0).astype(np.int8) for count in edges.counts]
    work: npt.NDArray[np.int8] = np.bitwise_or.reduce(runs) + runs[NCCL]
    return work


def _part(name: str) -> pl.Expr:
    return pl.lit(name, PART).alias("part")


def _pieces(is_such: Mask, begin: Numbers, end: Numbers, part: str, detail: str | None = None) -> pl.DataFrame:
    """Pieces of those gaps where they have some length."""
    gap = np.flatnonzero(is_such & (end > begin))
    columns = pl.DataFrame({"gap": gap.astype(np.int32), "begin": begin[gap], "end": end[gap]})
    return columns.with_columns(_part(part), detail=pl.lit(detail, DETAIL))


def _is_named(run: MeasuredRun, events: pl.DataFrame, number: int, part_of_name: str) -> pl.Series:
    """Which events are of a type, with a name that has a text in it."""
    names = run.events.types.get(number)
    values = [value for value, name in ((names.values if names else None) or {}).items() if part_of_name in name]
    if not values:
        return pl.repeat(False, events.height, dtype=pl.Boolean, eager=True)
    return (events["number"] == number) & events["value"].is_in(values)


def _arrivals(run: MeasuredRun, nccl: Nccl) -> pl.DataFrame:
    """Of kernels in collectives whose ranks are all in the run: `row`, `start`, `waited`, `undecided` as of
    `waits_of_ranks`, and `task`, the rank that arrived last (null: not decidable). One row for each kernel."""
    late = pl.col("task").filter(pl.col("is_last")).first().over("collective")
    arrivals = [
        waits.with_columns(task=late).filter(is_complete(pl.col("ranks"), run))
        for waits in (nccl.waits, nccl.waits_in_pairs)
        if waits.height
    ]
    columns = [pl.col(name).cast(dtype) for name, dtype in _ARRIVAL_SCHEMA.items()]
    kernels = pl.concat([pl.DataFrame(schema=_ARRIVAL_SCHEMA), *(waits.select(columns) for waits in arrivals)])
    return kernels.unique(["row", "start"], keep="first", maintain_order=True)
