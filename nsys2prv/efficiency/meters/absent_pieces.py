"""What time without computation is for: gaps of a device between compute kernels, cut into pieces of one part each.

docs/efficiency.md ("Compute-absent time") says which."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import EventEdges
from nsys2prv.efficiency.graph.replay import run_loop
from nsys2prv.efficiency.host_states import ASLEEP, COMPUTING, FIRST_CALL, OFF_CPU, UNSCHEDULED
from nsys2prv.efficiency.intervals import NONE, Integers, Intervals, Moments, Numbers, Segments, segments
from nsys2prv.efficiency.measured_run import ACTIVITIES, KERNEL, MEMORY, NCCL, MeasuredRun
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.gaps import gaps_between
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.run_events import RANGES, RECORDS
from nsys2prv.execution.row_order import in_content_order
from nsys2prv.vocabulary import event_types

PIECE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "gap": pl.UInt32, "device": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "part": parts.PART, "detail": parts.DETAIL,
    "operation": pl.Int32, "task": pl.Int32, "is_waited": pl.Boolean,
}  # fmt: skip
IS_IDLE = (pl.col("nccl") == NONE) & (pl.col("copy") == NONE)
"""Nothing runs on the device."""
_PART_OF_KIND = pl.Series(["other_kernel", "communication", "copy"], dtype=parts.PART)


# -- what holds when ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timeline:
    """What holds in groups (devices, tasks, threads) over time: segments, and `columns` by name with a value for each.

    Where a group has no segment, the value of one in which nothing is open holds."""

    segments: Segments
    columns: Mapping[str, Integers]

    def cut(self, pieces: pl.DataFrame, by: str) -> pl.DataFrame:
        """Pieces (`begin`, `end`, ns, each of some length), cut where segments of their group, the column `by`, begin or end,
        with the columns of the segments."""
        piece, segment, begin, end = self.segments.cut(Intervals.of(pieces[by], pieces["begin"], pieces["end"]))
        values = {name: column[segment] for name, column in self.columns.items()}
        return pieces[piece].with_columns(begin=begin, end=end, **values)


def states_of_threads(run: MeasuredRun) -> Timeline:
    """What calling threads do: `state`, a place in `host_states.STATES` (COMPUTING: none is open); `call`, the place in
    `run.calls` of the innermost call of the first kind that is open; NONE: none; and `off_cpu`, whether the thread is off its
    CPU, whatever else."""
    on_threads, calls = run.on_threads, run.calls
    thread = run.place_of_caller[calls["row"].to_numpy()]
    group = np.where(thread >= 0, thread * ACTIVITIES + run.states_of_calls - FIRST_CALL, NONE)
    of_kinds = Intervals.of(group, calls["start"], calls["end"])
    call = innermost(of_kinds, on_threads.group * ACTIVITIES + run.activity_of_threads, on_threads.begin)
    off_cpu = (on_threads.counts[OFF_CPU] > 0).astype(np.int8)
    return Timeline(on_threads, {"state": on_threads.first_kind, "call": call, "off_cpu": off_cpu})


def ranges_of_threads(run: MeasuredRun) -> Timeline:
    """`range` of calling threads: the place in `run.frame(RANGES)` of the innermost NVTX range (push/pop); NONE: none."""
    ranges = run.frame(RANGES)
    is_nested = (ranges["number"] != event_types.NVTX_RANGE).to_numpy()
    thread = np.where(is_nested, run.place_of_caller[ranges["row"].to_numpy()], NONE)
    nested = Intervals.of(thread, ranges["start"], ranges["end"])
    edges = segments(nested)
    return Timeline(edges, {"range": innermost(nested, edges.group, edges.begin)})


def innermost(events: Intervals, group: Integers, time: Numbers) -> Integers:
    """Which of events in any order is open at times of their groups: the place in `events` of that which began last; NONE: no
    event is. Those of the group NONE do not count."""
    # Of those that begin together the shortest is the innermost.
    columns = {"begin": events.begin, "until": -events.end, "group": events.group, "event": np.arange(len(events))}
    begin, until, of_event, event = (column.to_numpy() for column in in_content_order(pl.DataFrame(columns), ["begin"]))
    order, groups = np.argsort(time, kind="stable"), max(group.max(initial=0), of_event.max(initial=0)) + 1
    # The last place is for the group NONE.
    outputs = [np.full(count, NONE, dtype=np.int32) for count in (groups + 1, len(event), len(time))]
    run_loop(_look_for_innermost, (begin, until, of_event, group[order], time[order]), tuple(outputs))
    place = np.empty(len(time), dtype=np.int32)
    place[order] = np.append(event, NONE)[outputs[-1]]
    return place


def _look_for_innermost(begin: Any, until: Any, of_event: Any, group: Any, time: Any, top: Any, below: Any, last: Any) -> None:
    """Of events in the order of time (`until`: their ends, negative) those of a group are a stack."""
    event = 0
    for query in range(len(time)):
        while event < len(begin) and begin[event] <= time[query]:
            below[event] = top[of_event[event]]
            top[of_event[event]] = event
            event += 1
        open_event = top[group[query]]
        while open_event >= 0 and -until[open_event] <= time[query]:
            open_event = below[open_event]
        top[group[query]] = last[query] = open_event


def activity_of_devices(run: MeasuredRun) -> Timeline:
    """What runs on devices: `nccl`, `copy` and `unified`, places in `run.operations` of an NCCL kernel, of a copy or memset,
    and of what moves unified memory; NONE: none runs. Of several it is the one that ends last."""
    kind, edges, last = run.kind_of_operations, run.on_devices, pl.col("end").cum_max().over("device")
    operations = run.events.rows.located(run.operations.select("row", "start", "end")).with_row_index("place")
    ends_last = pl.when(last == pl.col("end")).then("place").forward_fill().over("device")
    columns, is_copy = {}, (kind == MEMORY) & ~run.moves_pages
    for name, of_kind, which in (("nccl", NCCL, kind == NCCL), ("copy", MEMORY, is_copy), ("unified", MEMORY, run.moves_pages)):
        # Operations are in the order of their start.
        started = operations.filter(pl.Series(which)).select("device", "start", end=last, place=ends_last)
        segment = np.flatnonzero(edges.counts[of_kind] > 0)
        times = pl.DataFrame({"device": edges.group[segment], "begin": edges.begin[segment]})
        latest = times.join_asof(started, left_on="begin", right_on="start", by="device", check_sortedness=False)
        place = latest.select(pl.when(pl.col("end") > pl.col("begin")).then("place")).to_series()
        columns[name] = np.full(len(edges), NONE, dtype=np.int32)
        columns[name][segment] = place.cast(pl.Int32).fill_null(NONE)
    return Timeline(edges, columns)


# -- what an operation waited for --------------------------------------------------------------------


def awaited_operations(run: MeasuredRun, events: EventEdges) -> Integers:
    """For each of `run.operations` the place there of the one that it waited for; NONE: of none is that known.

    Work in a stream runs in order: an operation waits for the one of its row that ended last before it started, or, where an
    event is awaited whose operation ended later, for that one. Of operations without length nothing can be seen to wait, nor of
    pages that move: these are not in the order of a stream."""
    row, start, end = (run.operations[name].to_numpy() for name in ("row", "start", "end"))
    place = np.flatnonzero(~run.moves_pages & (end > start))
    place = place[np.lexsort((start[place], end[place], row[place]))]
    ends = Moments.of(row[place], end[place])
    # Of several operations whose events an operation awaited, the last one counts.
    last = events.on_streams.sort("awaited_end", "awaited_row").unique(["row", "start"], keep="last")
    operations = run.operations.select(pl.col("row").cast(pl.Int64), "start")
    joined = operations.join(last, on=["row", "start"], how="left", maintain_order="left")
    awaited_row, awaited_end = (joined[name].fill_null(NONE).to_numpy() for name in ("awaited_row", "awaited_end"))
    in_stream, awaited = ends.place(row, start), np.full(len(row), NONE)
    waits = np.flatnonzero(awaited_row != NONE)
    awaited[waits] = ends.place(awaited_row[waits], awaited_end[waits])
    # The place NONE is the last one.
    place, ended = np.append(place, NONE).astype(np.int32), np.append(end[place], NONE)
    is_later = (ended[awaited] == awaited_end) & (awaited_end <= start) & (awaited_end > ended[in_stream])
    return np.where(is_later & (end > start), place[awaited], place[in_stream])


def walk(run: MeasuredRun, awaited_by: Integers, operation: Numbers, until: Numbers) -> pl.DataFrame:
    """Pieces from a time, `until` (ns), to the start of each operation, by what it waited for, and what that waited for.

    They have, in no order: `window`, the place of the operation in the columns; `begin`, `end`, ns; and `operation`, the place
    in `run.operations` of what was waited for then; NONE: between two of them, or before all that are waited for."""
    start, end = (run.operations[name].to_numpy() for name in ("start", "end"))
    schema = {"window": pl.Int64, "begin": pl.Int64, "end": pl.Int64, "operation": pl.Int32}
    walked = [pl.DataFrame(schema=schema)]
    window, time, awaited = np.arange(len(operation)), start[operation], awaited_by[operation]
    while len(window):
        lower = until[window]
        ended = np.where(awaited == NONE, lower, np.maximum(end[awaited], lower))
        began = np.maximum(start[awaited], lower)
        for piece in ((window, ended, time, np.full(len(window), NONE)), (window, began, ended, awaited)):
            walked.append(pl.DataFrame(piece, schema=schema).filter(pl.col("end") > pl.col("begin")))
        goes_on = (lower < began) & (began < ended)
        window, time, awaited = window[goes_on], began[goes_on], awaited_by[awaited[goes_on]]
    return pl.concat(walked)


# -- pieces of gaps ----------------------------------------------------------------------------------


class PiecesOfGaps:
    """Cuts gaps without computation into pieces of one part each. `nccl` says which NCCL kernels are one collective, `events`
    what awaited which operation by an event."""

    def __init__(self, run: MeasuredRun, nccl: Nccl, events: EventEdges) -> None:
        self._run = run
        on_devices = run.on_devices
        busy, computing = on_devices.where(on_devices.mask > 0), on_devices.where(on_devices.counts[KERNEL] > 0)
        (begin, end), length = run.window.span, run.events.length
        of_recording = run.window.iterations.work or (begin, end)
        # What an edge of the window, or of the time that was read, cuts neither starts nor ends the work.
        is_first, is_last = begin <= of_recording[0] and not run.is_cut[0], end >= of_recording[1] and not run.is_cut[1]
        self._first_work = int(busy.begin.min(initial=length)) if is_first else 0
        self._last_work = int(busy.end.max(initial=0)) if is_last else length
        self._threads, self._ranges = states_of_threads(run), ranges_of_threads(run)
        self._on_devices, self._awaited = activity_of_devices(run), awaited_operations(run, events)
        # 0: nothing runs, 1: any work does, 2: NCCL kernels too.
        work = (run.on_tasks.mask > 0).astype(np.int8) + (run.on_tasks.counts[NCCL] > 0)
        self._on_tasks = Timeline(run.on_tasks, {"work": work})
        last: Numbers = np.zeros(len(run.events.rows.devices), dtype=np.int64)
        last[computing.group] = computing.end  # the last assignment counts
        # Only gaps after the last compute kernel are asked for.
        idle = gaps_between(run, busy.only(busy.end >= last[busy.group]))
        self._idle = idle.select("device", "begin", "end", "thread", "launched")
        launching = run.calls.filter(run.launches_work).select("row", "start", "end").sort("row", "start", maintain_order=True)
        self._launching = Moments.of(*launching.select("row", "start").to_numpy().T), np.append(launching["end"].to_numpy(), 0)
        self._arrivals = _arrivals(nccl)
        tasks = run.tasks_with_event_waits
        self._unrecorded: Numbers = tasks if RECORDS.name not in run.events.collections else tasks[:0]
        """Tasks in which streams wait for events that were not recorded."""

    def of_gaps(self, gaps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Pieces of gaps that end with compute kernels, or with the window: rows of `gaps_between` with their number, `gap`.

        First all pieces, with the columns of PIECE_SCHEMA: `operation`, a place in `run.operations`, is what runs or was waited
        for; `task` the late rank; `is_waited` whether it was waited for. Then, of those before the launch by a known thread,
        also what that did: `gap`, `device`, `thread`, `begin`, `end`, `part`, `call`, `range` (places in `run.calls`,
        `run.frame(RANGES)`; NONE), `off_cpu` (1: the thread was off its CPU), and `nccl`, `copy`: what runs on the device
        (NONE: nothing; without both it is launch-starved)."""
        gaps = gaps.with_columns(ready=_inside(self._first_work, "begin", "end"), is_last=pl.col("next") == NONE).with_columns(
            last=_inside(self._last_work, "ready", "end")
        )
        ended = gaps.filter("is_last")
        idle = self._idle.join(ended.select("device", "gap", "ready", "last", "is_last"), on="device", maintain_order="left")
        idle = idle.with_columns(pl.col("begin", "end").clip("ready", "last"))
        before = pl.concat([gaps.filter(~pl.col("is_last")).with_columns(begin="ready"), idle], how="diagonal")
        # Without a launch nothing is known of a kernel; of other work, that it follows.
        before = before.with_columns(issued=pl.coalesce(pl.lit(self._issued(before)).clip("begin", "end"), "end"))
        is_launched, is_last = pl.col("launched").is_not_null(), pl.col("is_last")
        part = (
            pl.when(pl.col("thread") != NONE).then(_part("starved_host"))
            .when(is_launched).then(_part("starved_unknown"))
            .when(is_last).then(_part("starved_ended"))
            .otherwise(_part("undecided"))
        )  # fmt: skip
        no_launch = pl.lit(parts.NO_LAUNCHES if self._run.events.launches is None else parts.NO_LAUNCH, parts.DETAIL)
        first_thread = pl.lit(pl.Series(self._run.first_launchers)).gather("device")
        windows = (
            _pieces(gaps, "begin", "ready", _part("start_up"), thread=first_thread),
            _pieces(before, "begin", "issued", part, "thread", detail=pl.when(~is_launched & ~is_last).then(no_launch)),
            # Of this only what runs counts: what is idle is in `before`.
            _pieces(ended, "ready", "last", _part("shut_down"), "thread"),
        )
        cut = self._cut(pl.concat(windows, how="diagonal"))
        in_nccl, in_copy = pl.col("nccl") != NONE, pl.col("copy") != NONE
        pieces = [
            pl.DataFrame(schema=PIECE_SCHEMA),
            cut.filter(IS_IDLE & (pl.col("part") != "shut_down")),
            _pieces(cut.filter(~in_nccl & in_copy), "begin", "end", _part("copy"), operation="copy"),
            self._communication(cut.filter(in_nccl).with_columns(operation="nccl", is_waited=pl.lit(value=False))),
            _pieces(before.filter("is_last"), "issued", "end", _part("queued")),
            *self._waits(before.filter(~is_last)),
            _pieces(ended, "last", "end", _part("shut_down")),
        ]
        return pl.concat(pieces, how="diagonal").select(*PIECE_SCHEMA), cut.filter(pl.col("thread") != NONE)

    def _issued(self, gaps: pl.DataFrame) -> pl.Series:
        """When the calls end that launched what ends gaps, ns: only then a device that waits for nothing else is late. Where no
        such call is known, the time of the launch; null: it is not known, either."""
        moments, ends = self._launching
        launched, thread = gaps["launched"].fill_null(0).to_numpy(), gaps["thread"].to_numpy()
        place = moments.place(np.append(self._run.callers, NONE)[thread], launched)
        is_call = (place != NONE) & (np.append(moments.begin, NONE)[place] == launched)
        return pl.Series(np.where(is_call, ends[place], launched)).set(gaps["launched"].is_null(), None)

    def _cut(self, windows: pl.DataFrame) -> pl.DataFrame:
        """Windows (`gap`, `device`, `thread`, `begin`, `end`, `part`), cut by what their threads did and what ran on devices.
        Of `starved_host` all of the former is a part, of `start_up` only what is created."""
        cut = self._on_devices.cut(self._ranges.cut(self._threads.cut(windows, "thread"), "thread"), "device")
        is_scheduled = pl.Series(np.append(self._run.is_scheduled, True)[cut["thread"].to_numpy()])
        state = pl.when((pl.col("state") == COMPUTING) & ~is_scheduled).then(UNSCHEDULED).otherwise("state")
        # The thread is in no call while its access to memory on the device makes that memory move. Prefetches run beside calls.
        moves, is_in_call = pl.col("unified") != NONE, state.is_between(FIRST_CALL, ASLEEP, closed="left")
        part = (
            # After the last kernel nothing is starved; what moves then is all that the device does.
            pl.when((pl.col("part") == "shut_down") & moves).then(_part("unified_memory"))
            .when((pl.col("part") == "shut_down") | ((pl.col("part") != "starved_host") & (state >= FIRST_CALL))).then("part")
            .when(moves & is_in_call).then(_part("unified_memory"))
            .when(moves & (state >= OFF_CPU)).then(_part("starved_unified_memory"))
            .otherwise(pl.lit(pl.Series(parts.OF_STATES, dtype=parts.PART)).gather(state))
        )  # fmt: skip
        return cut.with_columns(part=part).drop("state", "unified")

    def _waits(self, gaps: pl.DataFrame) -> list[pl.DataFrame]:
        """Pieces of gaps from the launch of the kernels that end them, by what these waited for."""
        gaps = gaps.filter(pl.col("end") > pl.col("issued"))
        following = gaps["next"].to_numpy()
        task = pl.Series("task", self._run.events.rows.task[self._run.operations["row"].gather(following)], dtype=pl.Int32)
        walked = walk(self._run, self._awaited, following, gaps["issued"].to_numpy())
        waits = walked.hstack(gaps.select("gap", "device", task)[walked["window"]])
        is_queued = pl.col("operation") == NONE
        awaited = waits.filter(~is_queued).select("gap", "device", "begin", "end", "operation", is_waited=pl.lit(value=True))
        kind = self._run.kind_of_operations[awaited["operation"].to_numpy()]
        awaited = awaited.with_columns(part=_PART_OF_KIND.gather(kind))
        is_communication = pl.col("part") == "communication"
        communication = self._communication(awaited.filter(is_communication))
        return [awaited.filter(~is_communication), communication, self._queued(waits.filter(is_queued))]

    def _queued(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces in which nothing is known that was waited for: unified memory moves, or not."""
        cut = self._on_devices.cut(self._on_tasks.cut(pieces, "task"), "device")
        moves, work = pl.col("unified") != NONE, pl.col("work")
        # An event may have been awaited that was not recorded.
        is_open = ~moves & (work > 0) & pl.col("task").is_in(self._unrecorded.tolist())
        part = pl.when(moves).then(_part("unified_memory")).when(is_open).then(_part("undecided")).otherwise(_part("queued"))
        details = pl.Series(
            [None, parts.BESIDE_WORK, parts.BESIDE_NCCL, None, parts.NO_EVENTS, parts.NO_EVENTS_OF_NCCL], dtype=parts.DETAIL
        )
        detail = pl.when(~moves).then(pl.lit(details).gather(work.cast(pl.Int32) + 3 * is_open))
        return cut.select("gap", "device", "begin", "end", part=part, detail=detail)

    def _communication(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """Pieces in which NCCL kernels (`operation`) run, or are waited for (`is_waited`), as late ranks, transfer, and what is
        not decidable of these."""
        kernels = self._run.operations.select(pl.col("row", "start").gather(pieces["operation"]))
        joined = pieces.with_columns(kernels).join(self._arrivals, on=["row", "start"], how="left")
        arrived, is_matched = pl.col("start") + pl.col("waited"), pl.col("waited").is_not_null()
        joined = joined.with_columns(
            arrived=arrived.fill_null(pl.col("begin")).clip("begin", "end"),
            decided=(arrived + pl.col("undecided")).fill_null(pl.col("end")),
            detail=pl.when(is_matched).then(pl.lit(parts.CLOCKS)).otherwise(pl.lit(parts.UNMATCHED)).cast(parts.DETAIL),
        ).with_columns(pl.col("decided").clip("arrived", "end"))
        divided = (
            _pieces(joined, "begin", "arrived", _part("late_rank"), "operation", "is_waited", "task"),
            _pieces(joined, "arrived", "decided", _part("communication"), "operation", "is_waited", "detail"),
            _pieces(joined, "decided", "end", _part("transfer"), "operation", "is_waited"),
        )
        return pl.concat(divided, how="diagonal")


def _inside(time: int, begin: str, end: str) -> pl.Expr:
    """A time, or the edge of times (columns) that it is outside of."""
    return pl.max_horizontal(begin, pl.min_horizontal(pl.lit(time, pl.Int64), end))


def _part(name: str) -> pl.Expr:
    return pl.lit(name, parts.PART)


def _pieces(rows: pl.DataFrame, begin: str, end: str, part: pl.Expr, *columns: str, **named: pl.Expr | str) -> pl.DataFrame:
    """Pieces of gaps from `begin` to `end` where they have some length, with further columns."""
    long = rows.filter(pl.col(end) > pl.col(begin))
    return long.select("gap", "device", *columns, part=part, begin=begin, end=end, **named)


def _arrivals(nccl: Nccl) -> pl.DataFrame:
    """Of kernels in collectives whose ranks are all in the run: `row`, `start`, `waited`, `undecided` as of
    `waits_of_ranks`, and `task`, the rank that arrived last (null: not decidable). One row for each kernel."""
    late = pl.col("task").filter("is_last").first().over("collective")
    arrivals = nccl.members.with_columns(late).filter("complete").select("row", "start", "waited", "undecided", "task")
    return arrivals.unique(["row", "start"], keep="first", maintain_order=True)
