"""What time without computation is for: gaps of a device between compute kernels, cut into pieces of one part each.

What runs on the device in such a gap comes first: NCCL kernels, copies, memsets. In the rest the device is idle. The gap ends
with a compute kernel: until that was launched, the device is launch-starved, and what counts is what the launching thread did.
From then on the kernel waits for the operations that had to end before it could start, or it is queued. NVIDIA's procedure for
such profiles calls the three launch-starved, blocking, and dependency-stalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    Numbers,
    Segments,
    innermost,
    segments,
)
from nsys2prv.efficiency.measured_run import ACTIVITIES, KERNEL, MEMORY, NCCL, MeasuredRun
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.gaps import UNKNOWN, gaps_between, threads_that_launched
from nsys2prv.efficiency.meters.nccl_stats import Nccl, is_complete
from nsys2prv.efficiency.run_events import RANGES, RECORDS
from nsys2prv.vocabulary import event_types

PIECE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "gap": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "part": parts.PART, "detail": parts.DETAIL, "operation": pl.Int32,
    "task": pl.Int32, "is_waited": pl.Boolean,
}  # fmt: skip
_ARRIVAL_SCHEMA: dict[str, type[pl.DataType]] = {
    "row": pl.Int32, "start": pl.Int64, "waited": pl.Int64, "undecided": pl.Int64, "task": pl.Int32,
}  # fmt: skip
IS_IDLE = (pl.col("nccl") == NONE) & (pl.col("copy") == NONE)
"""Nothing runs on the device."""
_PART_OF_KIND = pl.Series(["other_kernel", "communication", "copy"], dtype=parts.PART)


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
    on_threads, activity, calls = run.on_threads, run.activity_of_threads, run.calls
    depth: npt.NDArray[np.int32] = np.zeros(len(activity), dtype=np.int32)
    for kind, counts in enumerate(on_threads.counts[FIRST_CALL:OFF_CPU]):
        np.copyto(depth, counts, where=activity == kind, casting="same_kind")
    thread = run.place_of_caller[calls["row"].to_numpy()]
    # Calls of one kind are nested in each other.
    kind_of_call = run.states_of_calls(calls["number"].to_numpy(), calls["value"].to_numpy()) - FIRST_CALL
    group = np.where(thread >= 0, thread * ACTIVITIES + kind_of_call, NONE)
    call = _innermost(on_threads, on_threads.group * ACTIVITIES + activity, depth, calls, group)
    off_cpu = (on_threads.counts[OFF_CPU] > 0).astype(np.int8)
    return Timeline(on_threads, {"state": on_threads.first_kind, "call": call, "off_cpu": off_cpu})


def ranges_of_threads(run: MeasuredRun) -> Timeline:
    """`range` of calling threads: the place in `run.frame(RANGES)` of the innermost NVTX range (push/pop); NONE: none."""
    ranges = run.frame(RANGES)
    is_nested = (ranges["number"] != event_types.NVTX_RANGE).to_numpy()
    thread = np.where(is_nested, run.place_of_caller[ranges["row"].to_numpy()], NONE)
    edges = segments(Intervals.of(thread, ranges["start"], ranges["end"]).only(thread >= 0))
    return Timeline(edges, {"range": _innermost(edges, edges.group, edges.counts[0], ranges, thread)})


def _innermost(
    edges: Segments, of_edges: Numbers, depth: Integers, events: pl.DataFrame, group: Numbers
) -> npt.NDArray[np.int32]:
    """For each segment the place of the innermost open event (NONE: there is none), of the group `of_edges` of events, of which
    `depth` are open; `group` is that of each event, NONE: it does not count."""
    innermost_events: npt.NDArray[np.int32] = np.full(len(edges), NONE, dtype=np.int32)
    intervals = Intervals.of(group, events["start"], events["end"])
    event, segment = np.flatnonzero((intervals.end > intervals.begin) & (group >= 0)), np.flatnonzero(depth > 0)
    place = innermost(intervals.only(event), of_edges[segment], edges.begin[segment], depth[segment])
    innermost_events[segment] = np.append(event, NONE)[place]
    return innermost_events


# -- what an operation waited for --------------------------------------------------------------------


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
        # Of several operations whose events an operation awaited, the last one counts.
        last = events.on_streams.sort("awaited_end", "awaited_row").unique(["row", "start"], keep="last")
        operations = pl.DataFrame({"row": self._row.astype(np.int64), "start": self._start})
        joined = operations.join(last, on=["row", "start"], how="left", maintain_order="left")
        awaited_row, awaited_end = (joined[name].fill_null(NONE).to_numpy() for name in ("awaited_row", "awaited_end"))
        in_stream, awaited = self._ends.place(self._row, self._start), self._ends.place(awaited_row, awaited_end)
        is_later = (awaited != NONE) & (self._end(awaited) == awaited_end) & (awaited_end <= self._start)
        is_later &= awaited_end > np.where(in_stream == NONE, NONE, self._end(in_stream))
        self._predecessor = np.where(is_later, awaited, in_stream).astype(np.int32)

    def _end(self, place: Numbers) -> Numbers:
        return self._ends.code.time(self._ends.keys[place])

    def walk(self, row: Numbers, start: Numbers, end: Numbers, until: Numbers) -> pl.DataFrame:
        """Pieces from `until` to the start of each operation (`row`, `start`, `end`), by the operations that it waited for.

        `until` is the time before each start at which the walk ends, ns.

        Returns
        -------
        In no order: `window`, the place of the operation in the columns; `begin`, `end`, ns; and `operation`, the place in
        `run.operations` of what was waited for then; NONE: between two of them, or before all that are waited for.
        """
        itself = self._ends.place(row, end)
        is_itself = (itself != NONE) & (self._start[itself] == start) if len(self._row) else itself != NONE
        place = np.where(is_itself, np.append(self._predecessor, NONE)[itself], self._ends.place(row, start))
        operation = np.append(self.operation, NONE)
        window, at = np.arange(len(row)), start
        walked = []
        while len(window):
            lower = until[window]
            ended = np.where(place == NONE, lower, np.maximum(self._end(place), lower)) if len(self._row) else lower
            walked.append((window, ended, at, np.full(len(window), NONE)))
            goes_on = ended > lower
            window, at, place, lower = window[goes_on], ended[goes_on], place[goes_on], lower[goes_on]
            began = np.maximum(self._start[place], lower)
            walked.append((window, began, at, operation[place]))
            goes_on = began > lower
            window, at, place = window[goes_on], began[goes_on], self._predecessor[place[goes_on]].astype(np.int64)
        schema = {"window": pl.Int64, "begin": pl.Int64, "end": pl.Int64, "operation": pl.Int32}
        pieces = pl.concat([pl.DataFrame(schema=schema), *(pl.DataFrame(piece, schema=schema) for piece in walked)])
        return pieces.filter(pl.col("end") > pl.col("begin"))


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
        edges = segments(Intervals.of(run.events.rows.device[moves["row"].to_numpy()], moves["start"], moves["end"]))
        self._unified = Timeline(edges, {"unified": (edges.counts[0] > 0).astype(np.int8)})
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
        places = pl.DataFrame({"gap": pl.Series(np.arange(gaps.height), dtype=pl.Int32)})
        located = gaps.select("device", "begin", "end", "thread", "launched", "next").hstack(places)
        located = located.with_columns(
            ready=pl.lit(self._first_work, pl.Int64).clip("begin", "end"),
            is_last=pl.col("next") == NONE,
            first_thread=pl.lit(pl.Series(self._first_threads, dtype=pl.Int32)).gather("device"),
        ).with_columns(last=pl.lit(self._last_work, pl.Int64).clip("ready", "end"))
        ended = located.filter("is_last")
        idle = self._idle.join(ended.select("device", "gap", "ready", "last", "is_last"), on="device", maintain_order="left")
        idle = idle.with_columns(pl.col("begin", "end").clip("ready", "last"))
        before = pl.concat([located.filter(~pl.col("is_last")).with_columns(begin="ready"), idle], how="diagonal")
        # Without a launch nothing is known of a kernel; of other work, that it follows.
        issued = pl.coalesce(pl.col("launched").clip("begin", "end"), pl.when("is_last").then("end").otherwise("begin"))
        before = before.with_columns(issued=issued)
        is_launched, has_thread, is_last = pl.col("launched").is_not_null(), pl.col("thread") != UNKNOWN, pl.col("is_last")
        has_first, of_first = pl.col("first_thread") != UNKNOWN, located.with_columns(thread="first_thread")
        no_launch = parts.NO_LAUNCHES if self._run.events.launches is None else parts.NO_LAUNCH
        starved = self._starved(
            pl.concat(
                [
                    _pieces(before.filter(is_launched & has_thread), "begin", "issued", "starved_host"),
                    _pieces(of_first.filter(has_first), "begin", "ready", "start_up"),
                ]
            )
        )
        of_no_thread = [
            _pieces(before.filter(is_launched & ~has_thread), "begin", "issued", "starved_unknown"),
            _pieces(before.filter(~is_launched & is_last), "begin", "issued", "starved_ended"),
            _pieces(before.filter(~is_launched & ~is_last), "begin", "end", "undecided", no_launch),
            # Of this only what runs counts: what is idle is in `before`.
            _pieces(ended, "ready", "last", "shut_down"),
        ]
        cut = self._with_running(self._on_devices.cut(pl.concat(of_no_thread), "device"))
        pieces = [
            pl.DataFrame(schema=PIECE_SCHEMA),
            _pieces(located.filter(~has_first), "begin", "ready", "start_up"),
            _pieces(ended, "last", "end", "shut_down"),
            *self._running(cut),
            cut.filter(IS_IDLE & (pl.col("part") != "shut_down")),
            _pieces(before.filter(is_launched & is_last), "issued", "end", "queued"),
            *self._running(starved),
            starved.filter(IS_IDLE),
            *self._waits(before.filter(is_launched & ~is_last)),
        ]
        return pl.concat(pieces, how="diagonal").select(*PIECE_SCHEMA), starved

    def _with_running(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces that are cut where anything begins or ends on their device, with `nccl` and `copy`."""
        columns = {"nccl": self._nccl.at(pieces), "copy": self._copies.at(pieces)}
        return pieces.with_columns(pl.Series(name, place, dtype=pl.Int32) for name, place in columns.items())

    def _running(self, pieces: pl.DataFrame) -> list[pl.DataFrame]:
        """Those pieces of `_with_running` in which something runs on the device, as its parts."""
        in_nccl = pl.col("nccl") != NONE
        copies = pieces.filter(~in_nccl & (pl.col("copy") != NONE)).select(
            "gap", "begin", "end", _part("copy"), operation="copy"
        )
        of_nccl = self._communication(pieces.filter(in_nccl).select("gap", "begin", "end", operation="nccl"))
        return [copies, *of_nccl]

    def _starved(self, windows: pl.DataFrame) -> pl.DataFrame:
        """Windows of threads (`gap`, `device`, `thread`, `begin`, `end`, `part`), cut by what these did and what ran on the
        device. Before the first work (`start_up`) it only counts what they create."""
        cut = self._unified.cut(self._ranges.cut(self._threads.cut(windows, "thread"), "thread"), "device")
        is_scheduled = pl.lit(pl.Series(self._run.is_scheduled)).gather("thread")
        state = pl.when((pl.col("state") == COMPUTING) & ~is_scheduled).then(UNSCHEDULED).otherwise("state")
        # The thread is in no call while its access to memory that is on the device makes that memory move.
        moves = (state >= OFF_CPU) & (pl.col("unified") > 0)
        of_state = pl.lit(pl.Series(parts.OF_STATES, dtype=parts.PART)).gather(state)
        part = (
            pl.when((pl.col("part") == "start_up") & (state >= FIRST_CALL)).then("part")
            .when(moves).then(pl.lit("starved_unified_memory", parts.PART))
            .otherwise(of_state)
        )  # fmt: skip
        cut = cut.with_columns(part=part).drop("state", "unified")
        return self._with_running(self._on_devices.cut(cut, "device"))

    def _waits(self, gaps: pl.DataFrame) -> list[pl.DataFrame]:
        """Pieces of gaps from the launch of the kernels that end them, by what these waited for."""
        gaps = gaps.filter(pl.col("end") > pl.col("issued"))
        following = self._run.operations[gaps["next"]]
        row, start, end = (following[name].to_numpy().astype(np.int64) for name in ("row", "start", "end"))
        walked = self._predecessors.walk(row, start, end, gaps["issued"].to_numpy())
        task = pl.Series("task", self._run.events.rows.task[row], dtype=pl.Int32)
        waits = walked.hstack(gaps.select("gap", "device", task)[walked["window"]]).drop("window")
        is_queued = pl.col("operation") == NONE
        awaited = waits.filter(~is_queued).drop("task")
        kind = self._run.kind(self._run.operations["number"].gather(awaited["operation"]).to_numpy())
        awaited = awaited.with_columns(part=_PART_OF_KIND.gather(kind))
        is_communication = pl.col("part") == "communication"
        of_nccl = self._communication(awaited.filter(is_communication))
        return [
            awaited.filter(~is_communication),
            *(pieces.with_columns(is_waited=True) for pieces in of_nccl),
            self._queued(waits.filter(is_queued)),
        ]

    def _queued(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces in which nothing is known that was waited for: unified memory moves, or not."""
        by = "device" if self._on_tasks is self._on_devices else "task"
        cut = self._unified.cut(self._on_tasks.cut(pieces, by), "device")
        moves, work = pl.col("unified") > 0, pl.col("work")
        # An event may have been awaited that was not recorded.
        is_open = ~moves & (work > 0) & pl.col("task").is_in(self._unrecorded.tolist())
        part = pl.when(moves).then(pl.lit("unified_memory")).when(is_open).then(pl.lit("undecided")).otherwise(pl.lit("queued"))
        details = pl.Series(
            [None, parts.BESIDE_WORK, parts.BESIDE_NCCL, None, parts.NO_EVENTS, parts.NO_EVENTS_OF_NCCL], dtype=parts.DETAIL
        )
        detail = pl.when(~moves).then(pl.lit(details).gather(work.cast(pl.Int32) + 3 * is_open))
        return cut.select("gap", "begin", "end", part=part.cast(parts.PART), detail=detail)

    def _communication(self, pieces: pl.DataFrame) -> list[pl.DataFrame]:
        """Pieces in which NCCL kernels were waited for, as late ranks, transfer, and what is not decidable of these."""
        kernels = self._run.operations.select(pl.col("row", "start").gather(pieces["operation"]))
        joined = pieces.with_columns(kernels).join(self._arrivals, on=["row", "start"], how="left")
        is_matched = pl.col("waited").is_not_null()
        arrived = pl.when(is_matched).then(pl.col("start") + pl.col("waited")).otherwise("begin").clip("begin", "end")
        decided = pl.when(is_matched).then(pl.col("start") + pl.col("waited") + pl.col("undecided")).otherwise("end")
        reason = pl.when(is_matched).then(pl.lit(parts.CLOCKS, parts.DETAIL)).otherwise(pl.lit(parts.UNMATCHED, parts.DETAIL))
        joined = joined.with_columns(arrived=arrived, reason=reason).with_columns(decided=decided.clip("arrived", "end"))
        cuts = (("begin", "arrived", "late_rank"), ("arrived", "decided", "communication"), ("decided", "end", "transfer"))
        return [
            joined.filter(pl.col(last) > pl.col(first)).select(
                "gap",
                "operation",
                _part(part),
                begin=first,
                end=last,
                detail="reason" if part == "communication" else pl.lit(None, parts.DETAIL),
                task="task" if part == "late_rank" else pl.lit(None, pl.Int32),
            )
            for first, last, part in cuts
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
    return pl.lit(name, parts.PART).alias("part")


def _pieces(rows: pl.DataFrame, begin: str, end: str, part: str, detail: str | None = None) -> pl.DataFrame:
    """Pieces of a part of those gaps where they have some length: columns `gap`, `device`, `thread`, `begin`, `end`, `part` and
    `detail`."""
    long = rows.filter(pl.col(end) > pl.col(begin))
    return long.select("gap", "device", "thread", _part(part), begin=begin, end=end, detail=pl.lit(detail, parts.DETAIL))


def _is_named(run: MeasuredRun, events: pl.DataFrame, number: int, part_of_name: str) -> pl.Series:
    """Which events are of a type, with a name that has a text in it."""
    values = [value for value, name in run.events.names(number).items() if part_of_name in name]
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
