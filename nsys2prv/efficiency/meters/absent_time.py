"""Compute-absent time: the time in which no compute kernel runs on a device, divided into its causes without a rest.

A stretch without computation ends with a compute kernel. Until that was launched, the device is launch-starved: what counts
is what the launching thread did. From then on the kernel waits for the operations that had to end before it could start
(`absent_walk`), or it is queued. NVIDIA's procedure for such profiles calls the three launch-starved, blocking, and
dependency-stalled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import SlotWindows, members_by_device, merged_windows
from nsys2prv.efficiency.graph.event_waits import EventEdges
from nsys2prv.efficiency.intervals import Intervals, Numbers, search, segments, time_by
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_hosts import NO_NAME, HostSteps, activity_of, packed_name_of, unpacked
from nsys2prv.efficiency.meters.absent_tables import (
    ABSENT_CALLS,
    ABSENT_FUNCTIONS,
    ABSENT_ITERATIONS,
    ABSENT_PARTS,
    ABSENT_RANGES,
    ABSENT_REGIONS,
    ABSENT_STRETCHES,
    ABSENT_TIME,
    BESIDE,
    CLOCKS,
    NO_EVENTS,
    NO_LAUNCH,
    NO_LAUNCHES,
    PARTS,
    REASONS,
    TOO_FAR,
    UNDIVIDED,
    UNMATCHED,
    WHILE,
)
from nsys2prv.efficiency.meters.absent_walk import Predecessors
from nsys2prv.efficiency.meters.absent_windows import PartsInWindows, part_sums
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.nccl_stats import Nccl, is_complete
from nsys2prv.efficiency.meters.regions import MOST_REGIONS
from nsys2prv.efficiency.meters.starved_beside_nccl import StarvedBesideNccl
from nsys2prv.efficiency.meters.stretches import UNKNOWN, last_of_each, stretches_before, with_next
from nsys2prv.efficiency.named_ranges import NamedRanges
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, OFF_CPU_TIMES, ON_DEVICES, ON_HOSTS, RANGES, RECORDS
from nsys2prv.efficiency.steps import Steps, expanded
from nsys2prv.efficiency.sweep import KERNEL, KINDS_OF_NUMBER, MEMORY, NCCL, SweepContext, TimeChunk
from nsys2prv.efficiency.window.iterations import RunIterations
from nsys2prv.execution import memory
from nsys2prv.execution.merging import Merging, Sums
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types

_COMPUTE = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind == KERNEL)
_MOST_STEPS = 1_000_000
"""Changes on host threads of former chunks that are kept at most."""
_PENDING_ROWS = 20_000

_PIECE: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("stretch", "begin", "end", "part", "number", "value", "source", "destination", "row", "start"), pl.Int64),
}
_PART_SCHEMA = dict.fromkeys(
    ("device", "part", "task", "number", "value", "source", "destination", "count", "total", "longest"), pl.Int64
)
_PART_KEY = ["device", "part", "task", "number", "value", "source", "destination"]
_HOST_SCHEMA = dict.fromkeys(("thread", "part", "call", "range", "total", "off_cpu"), pl.Int64)
_FUNCTION_SCHEMA = dict.fromkeys(("thread", "part", "function", "module", "samples"), pl.Int64)
_COLLECTIVE_SCHEMA = dict.fromkeys(("device", "since", "begin", "end", "number", "value", "row", "start", "slot"), pl.Int64)
_LONGEST_SCHEMA = dict.fromkeys(
    ("device", "begin", "start", "length", "number", "value", "launched", "thread", "task", "beside", *parts.PART_COLUMNS),
    pl.Int64,
)


@dataclass(frozen=True)
class _Era:
    """What is known of one chunk of time.

    Attributes
    ----------
    hosts
        What threads do.
    busy
        What each task has on devices: 0 nothing, 1 any work, 2 NCCL kernels too.
    moving
        What runs on each device beside computation: 1 NCCL kernels, 2 copies and memsets, 3 both.
    unified
        When unified memory moves to or from each device.
    off_cpu
        When each calling thread is off its CPU.
    samples
        CPU samples of calling threads with call chains: `thread`, `start`, `function`, `module`, in this order.
    """

    begin: int
    end: int
    hosts: HostSteps
    busy: Steps
    moving: Steps
    unified: Steps
    off_cpu: Steps
    samples: pl.DataFrame


class AbsentTime(TableMeter):
    """Compute-absent time of all devices.

    Parameters
    ----------
    nccl
        The meter of NCCL kernels of the same run: at the end it knows which of them are one collective.
    event_waits
        Of the same run; others may follow them too.
    iterations
        What repeats in the run.
    regions
        NVTX ranges in which the time is divided too, as of `NamedRanges`.
    """

    def __init__(
        self,
        context: SweepContext,
        nccl: Nccl,
        event_waits: EventEdges,
        iterations: RunIterations,
        regions: Sequence[str] | None = None,
    ) -> None:
        self._context = context
        self._nccl = nccl
        devices = len(context.events.rows.devices)
        self._since: Numbers = np.zeros(devices, dtype=np.int64)
        """Since when no compute kernel runs on each device; of one that computes, the end of the chunk."""
        self._first_work: int | None = None
        self._last_work = 0
        self._predecessors = Predecessors()
        self._events = event_waits
        self._past: list[_Era] = []
        self._unified = _values_named(context, event_types.MEMORY_OPERATION, "memcpy Unified")
        has_events = RECORDS.name in context.events.collections
        self._wait_calls = [] if has_events else _values_named(context, event_types.CUDA_CALL, "StreamWaitEvent")
        self._event_waits: set[int] = set()
        """Tasks in which streams wait for events that were not recorded."""
        self._by_part = Sums(_PART_SCHEMA, _PART_KEY, largest=["longest"])
        self._off_cpu: Numbers = np.zeros(devices, dtype=np.int64)
        """Time of PART_HOST of each device in which the launching thread was off its CPU."""
        self._is_scheduled: Numbers = np.zeros(len(context.events.rows.tasks), dtype=np.int64)
        """Whether the scheduling of each task was recorded."""
        self._by_function = Sums(_FUNCTION_SCHEMA, ["thread", "part", "function", "module"])
        self._by_host = Sums(_HOST_SCHEMA, ["thread", "part", "call", "range"])
        # NCCL kernels are few: they are divided at the end, when all ranks of their collectives are known.
        self._collectives: list[pl.DataFrame] = []
        self.starved_beside_nccl = StarvedBesideNccl(context)
        self._chosen = NamedRanges(context.events, regions) if regions else None
        self._devices_of_task = members_by_device(context.events.rows)
        self._in_regions, self._in_iterations = PartsInWindows(), PartsInWindows()
        self._in_iterations.add_windows(_iteration_windows(context, iterations))
        self._longest = Merging(_longest, pl.DataFrame(schema=_LONGEST_SCHEMA), _PENDING_ROWS)

    # -- one chunk after the other ------------------------------------------------------------------

    def update(self, chunk: TimeChunk) -> None:
        self._note_event_waits(chunk)
        started = chunk.started[ON_DEVICES.name]
        moves = self._is_unified_move(started)
        now = _Era(chunk.begin, chunk.end, HostSteps.of(chunk), _busy(chunk), _moving(chunk), self._moves(chunk),
                   self._off_times(chunk), self._samples(chunk))  # fmt: skip
        waits = self._events
        self._predecessors.add(started.filter(~moves), pl.concat([waits.on_streams, waits.inferred]))
        self._note_work(chunk)
        self._note_regions(chunk)
        found = chunk.on_devices
        computing = found.where(found.counts[KERNEL] > 0)
        if len(computing):
            stretches = stretches_before(computing, self._since)
            computes = np.isin(started["number"].to_numpy(), _COMPUTE)
            self._divide(with_next(chunk, stretches, computes), now)
            last = last_of_each(computing)
            self._since[last.group] = last.end
        self._keep(now)

    def _note_event_waits(self, chunk: TimeChunk) -> None:
        if self._wait_calls:
            calls = chunk.started[ON_HOSTS.name]
            waits = calls.filter((pl.col("number") == event_types.CUDA_CALL) & pl.col("value").is_in(self._wait_calls))
            self._event_waits |= set(self._context.events.rows.task[waits["row"].unique().to_numpy()].tolist())

    def _note_work(self, chunk: TimeChunk) -> None:
        found = chunk.on_devices
        works = found.mask > 0
        if works.any():
            if self._first_work is None:
                self._first_work = int(found.begin[works].min())
            self._last_work = max(self._last_work, int(found.end[works].max()))

    def _note_regions(self, chunk: TimeChunk) -> None:
        if self._chosen is None:
            return
        rows = self._context.events.rows
        inside = chunk.inside[RANGES.name].join(self._chosen.slots, on=["number", "value"], how="inner")
        ranges = inside.select("slot", "start", "end", task=pl.Series(rows.task[inside["row"].to_numpy()], dtype=pl.Int64))
        on_devices = ranges.join(self._devices_of_task, on="task").rename({"member": "group", "start": "begin"})
        self._in_regions.add_windows(merged_windows(on_devices, len(rows.devices)))

    def _keep(self, now: _Era) -> None:
        """Keep what stretches that go on may need."""
        self._in_regions.keep(self._since)
        self._in_iterations.keep(self._since)
        since = int(self._since.min())
        self._predecessors.keep(since)
        self._past = [era for era in (*self._past, now) if era.end > since]
        while self._past and sum(era.hosts.size for era in self._past) > memory.scaled(_MOST_STEPS):
            self._past.pop(0)

    def _is_unified_move(self, operations: pl.DataFrame) -> pl.Series:
        """Which operations are migrations of unified memory: these are on a stream's row, but not in its order."""
        if not self._unified:
            return pl.repeat(False, operations.height, dtype=pl.Boolean, eager=True)
        return (operations["number"] == event_types.MEMORY_OPERATION) & operations["value"].is_in(self._unified)

    def _moves(self, chunk: TimeChunk) -> Steps:
        """When unified memory moves to or from each device."""
        inside = chunk.inside[ON_DEVICES.name]
        moves = inside.filter(self._is_unified_move(inside))
        device = self._context.events.rows.device[moves["row"].to_numpy()]
        return _covered(Intervals.of(device, moves["start"], moves["end"]))

    def _off_times(self, chunk: TimeChunk) -> Steps:
        """When each calling thread is off its CPU."""
        inside = chunk.inside[OFF_CPU_TIMES.name]
        row = inside["row"].to_numpy()
        self._is_scheduled[self._context.events.rows.task[row]] = 1
        thread = self._context.place_of_caller[row]
        return _covered(Intervals.of(thread, inside["start"], inside["end"]).only(thread >= 0))

    def _samples(self, chunk: TimeChunk) -> pl.DataFrame:
        """CPU samples of calling threads with call chains."""
        samples = chunk.started[FUNCTION_SAMPLES.name].drop_nulls("function")
        thread = pl.Series("thread", self._context.place_of_caller[samples["row"].to_numpy()], dtype=pl.Int64)
        found = samples.select(thread, "start", "function", "module").filter(pl.col("thread") >= 0)
        return found.sort("thread", "start", "function", "module")

    def _divide(self, found: pl.DataFrame, now: _Era) -> None:
        """Divide stretches that end in a chunk: columns of `with_next`."""
        if found.is_empty():
            return
        begin, end = found["begin"].to_numpy(), found["start"].to_numpy()
        thread = found["thread"].to_numpy()
        known = found["launched"].is_not_null().to_numpy()
        launched = found["launched"].fill_null(0).to_numpy()
        first_work = 0 if self._first_work is None else self._first_work
        ready = np.clip(first_work, begin, end)
        issued = np.where(known, np.clip(launched, ready, end), ready)
        stretch = np.arange(found.height)
        by_thread, by_nobody = known & (thread != UNKNOWN), known & (thread == UNKNOWN)
        pieces = [
            _pieces(stretch, begin, ready, parts.PART_START_UP),
            _pieces(stretch[~known], ready[~known], end[~known], parts.PART_UNDECIDED, value=NO_LAUNCH),
            _pieces(stretch[by_nobody], ready[by_nobody], issued[by_nobody], parts.PART_UNKNOWN),
        ]
        device = found["device"].to_numpy()
        pieces += self._starved(stretch[by_thread], device, thread, ready, issued, now)
        pieces += self._waits(stretch[known], found, issued, now)
        self._add(found, pl.concat(pieces))

    def _starved(
        self, stretch: Numbers, device: Numbers, thread: Numbers, begin: Numbers, end: Numbers, now: _Era
    ) -> list[pl.DataFrame]:
        """Pieces of stretches until what ends them was launched, by what the launching thread did."""
        pieces = []
        for era, which, windows in self._in_eras(stretch, thread[stretch], begin[stretch], end[stretch], now):
            if era is None:
                pieces.append(_pieces(which, windows.begin, windows.end, parts.PART_UNDECIDED, value=TOO_FAR))
                continue
            in_calls = era.hosts.calls.cut(windows)
            of_thread = Intervals(windows.group[in_calls.window], in_calls.begin, in_calls.end)
            in_ranges = era.hosts.ranges.cut(of_thread)
            calls, window = in_calls.key[in_ranges.window], in_calls.window[in_ranges.window]
            part = np.array(parts.PART_OF_ACTIVITY)[activity_of(calls)]
            of_host = pl.DataFrame(
                {
                    "thread": windows.group[window],
                    "part": part,
                    "call": packed_name_of(calls),
                    "range": in_ranges.key,
                    "total": in_ranges.length,
                }
            )
            at, begins, ends = which[window], in_ranges.begin, in_ranges.end
            if len(era.unified):
                # The thread is in no call while its access to memory that is on the device makes that memory move.
                moved = era.unified.cut(Intervals(device[at], begins, ends))
                at, part, begins, ends = at[moved.window], part[moved.window], moved.begin, moved.end
                part = np.where((part == parts.PART_HOST) & (moved.key > 0), parts.PART_STARVED_UNIFIED, part)
                of_host = of_host[moved.window].with_columns(part=pl.Series(part), total=pl.Series(moved.length))
            off = era.off_cpu.cut(Intervals(of_host["thread"].to_numpy(), begins, ends))
            length = off.length * off.key
            of_piece: Numbers = np.zeros(len(at), dtype=np.int64)
            np.add.at(of_piece, off.window, length)
            np.add.at(self._off_cpu, device[at[part == parts.PART_HOST]], of_piece[part == parts.PART_HOST])
            of_host = of_host.with_columns(off_cpu=pl.Series(of_piece))
            self._by_function.add(_functions(era.samples, Intervals(of_host["thread"].to_numpy(), begins, ends), part))
            beside = era.moving.cut(Intervals(device[at], begins, ends))
            pieces.append(_pieces(at[beside.window], beside.begin, beside.end, part[beside.window], value=beside.key))
            self._by_host.add(of_host)
        return pieces

    def _waits(self, stretch: Numbers, found: pl.DataFrame, issued: Numbers, now: _Era) -> list[pl.DataFrame]:
        """Pieces of stretches from the launch of what ends them, by what that waited for."""
        end = found["start"].to_numpy()
        stretch = stretch[end[stretch] > issued[stretch]]
        if not len(stretch):
            return []
        row, length = (found[name].to_numpy().astype(np.int64)[stretch] for name in ("next_row", "next_length"))
        walked = self._predecessors.walk(row, end[stretch], end[stretch] + length, issued[stretch])
        at = stretch[walked.window]
        is_queued = walked.key < 0
        operations = self._predecessors.operations[walked.key[~is_queued]]
        kind = self._context.kind(operations["number"].to_numpy(), operations["value"].to_numpy())
        of_operations = operations.select(
            stretch=pl.Series(at[~is_queued]),
            begin=pl.Series(walked.begin[~is_queued]),
            end=pl.Series(walked.end[~is_queued]),
            part=pl.Series(np.array([parts.PART_OTHER_KERNEL, parts.PART_COMMUNICATION, parts.PART_COPY])[kind]),
            number=pl.col("number").cast(pl.Int64),
            value="value",
            source="source",
            destination="destination",
            row=pl.col("row").cast(pl.Int64),
            start="start",
        )
        device, task = found["device"].to_numpy(), self._context.events.rows.task[found["next_row"].fill_null(0).to_numpy()]
        queued = is_queued
        return [
            of_operations,
            *self._queued(at[queued], device, task, walked.begin[queued], walked.end[queued], now),
        ]

    def _queued(
        self, stretch: Numbers, device: Numbers, task: Numbers, begin: Numbers, end: Numbers, now: _Era
    ) -> list[pl.DataFrame]:
        """Pieces in which nothing is known that was waited for: unified memory moves, or not."""
        pieces = []
        # What ran before may have been forgotten.
        known_from = np.clip(self._predecessors.known_from, begin, end)
        pieces.append(_pieces(stretch, begin, known_from, parts.PART_UNDECIDED, value=TOO_FAR))
        for era, which, windows in self._in_eras(np.arange(len(stretch)), task[stretch], known_from, end, now):
            if era is None:
                pieces.append(_pieces(stretch[which], windows.begin, windows.end, parts.PART_QUEUED))
                continue
            busy = era.busy.cut(windows)
            at = stretch[which[busy.window]]
            moved = era.unified.cut(Intervals(device[at], busy.begin, busy.end))
            part = np.where(moved.key > 0, parts.PART_UNIFIED, parts.PART_QUEUED)
            # Whether other work of the process ran: then an event may have been awaited that is not recorded.
            beside = np.where(moved.key > 0, 0, busy.key[moved.window])
            pieces.append(_pieces(at[moved.window], moved.begin, moved.end, part, value=beside))
        return pieces

    def _in_eras(
        self, which: Numbers, group: Numbers, begin: Numbers, end: Numbers, now: _Era
    ) -> list[tuple[_Era | None, Numbers, Intervals]]:
        """Windows in the chunks that they are in, with their numbers `which`; None: that chunk was forgotten."""
        found: list[tuple[_Era | None, Numbers, Intervals]] = []
        eras = [*self._past, now]
        edges = [(None, -1, eras[0].begin), *((era, era.begin, era.end) for era in eras)]
        earliest = int(begin.min(initial=now.begin))
        for era, first, last in edges:
            if last <= earliest:
                continue
            cut_begin, cut_end = np.maximum(begin, first), np.minimum(end, last)
            here = cut_end > cut_begin
            if here.any():
                found.append((era, which[here], Intervals(group[here], cut_begin[here], cut_end[here])))
        return found

    def _add(self, found: pl.DataFrame, pieces: pl.DataFrame) -> None:
        """Add the pieces of some stretches."""
        tasks = self._context.events.rows.task[found["next_row"].fill_null(0).to_numpy()]
        stretches = found.select("device", since="begin", task=pl.Series(tasks, dtype=pl.Int64))
        pieces = pieces.with_columns(stretches[pieces["stretch"].to_numpy()])
        self.starved_beside_nccl.add(pieces, found["thread"].to_numpy())
        self._in_regions.add(pieces)
        self._in_iterations.add(pieces)
        waits = pieces.filter(pl.col("part") == parts.PART_COMMUNICATION).with_columns(slot=pl.lit(None, pl.Int64))
        self._collectives.append(waits.select(_COLLECTIVE_SCHEMA.keys()))
        divided = pieces.filter(pl.col("part") != parts.PART_COMMUNICATION)
        # Only of queued time it matters whose it is.
        task = pl.when(pl.col("part") == parts.PART_QUEUED).then("task")
        self._by_part.add(_by_stretch(divided.with_columns(task=task)))
        length = (found["start"] - found["begin"]).to_numpy()
        order = np.lexsort((found["device"].to_numpy(), found["begin"].to_numpy(), -length))
        longest = order[: parts.MOST_STRETCHES]
        place = np.full(found.height, -1, dtype=np.int64)
        place[longest] = np.arange(len(longest))
        at = place[pieces["stretch"].to_numpy()]
        kept = pieces.filter(pl.Series(at >= 0))
        # Whether queued time beside other work is that is known at the end only.
        is_beside = (pl.col("part") == parts.PART_QUEUED) & (pl.col("value") > 0)
        part = kept.select(pl.when(is_beside).then(len(PARTS)).otherwise("part")).to_series().to_numpy()
        lengths = (kept["end"] - kept["begin"]).to_numpy()
        sums = time_by(part, lengths, len(PARTS) + 1, at[at >= 0], len(longest))
        columns = {name: pl.Series(sums[:, place]) for place, name in enumerate((*parts.PART_COLUMNS, "beside"))}
        chosen = found[longest].with_columns(length=pl.Series(length[longest]), task=stretches["task"][longest], **columns)
        self._longest.add(_longest(chosen.select(pl.col(name).cast(dtype) for name, dtype in _LONGEST_SCHEMA.items())))

    # -- the end ------------------------------------------------------------------------------------

    def tables(self) -> Filled:
        """The tables of compute-absent time."""
        self._finish()
        by_part = self._divided(self.waits_for_nccl)
        return {
            ABSENT_TIME: self._by_device(by_part),
            **self._in_windows(self._arrivals),
            ABSENT_PARTS: self._details(by_part),
            **self._of_hosts(),
            ABSENT_STRETCHES: self._stretches(self.waits_for_nccl),
        }

    @cached_property
    def waits_for_nccl(self) -> pl.DataFrame:
        """After all chunks: pieces (`begin`, `end`, ns) of the time of a `device` without computation in which the next compute
        kernel waits for an NCCL kernel (`row`, `start`), with their `part` and the other columns of `_divided_collectives`."""
        waits = pl.concat([pl.DataFrame(schema=_COLLECTIVE_SCHEMA), *self._collectives])
        return _divided_collectives(waits, self._arrivals)

    @cached_property
    def _arrivals(self) -> pl.DataFrame | None:
        waits = [_arrivals(waits, self._context) for waits in (self._nccl.waits, self._nccl.waits_in_pairs) if waits.height]
        return pl.concat(waits).unique(["row", "start"], keep="any") if waits else None

    def _finish(self) -> None:
        """Add the stretches at the end of the run."""
        length = self._context.events.length
        first_work = length if self._first_work is None else self._first_work
        device = np.flatnonzero(self._since < length)
        begin = self._since[device]
        stretch = np.arange(len(device))
        ended = np.clip(first_work, begin, length)
        last = np.clip(self._last_work, ended, length)
        pieces = [
            _pieces(stretch, begin, ended, parts.PART_START_UP),
            _pieces(stretch, ended, last, parts.PART_ENDED),
            _pieces(stretch, last, np.full(len(device), length), parts.PART_SHUT_DOWN),
        ]
        nothing = pl.lit(None, pl.Int64)
        found = pl.DataFrame({"device": device, "begin": begin}).with_columns(
            start=pl.lit(length, pl.Int64),
            **dict.fromkeys(("number", "value", "next_row", "launched"), nothing),
            thread=pl.lit(UNKNOWN, pl.Int64),
        )
        self._add(found, pl.concat(pieces))

    def _divided(self, collectives: pl.DataFrame) -> pl.DataFrame:
        """Columns of _PART_SCHEMA, all of it: NCCL by late ranks and transfer, and queued time where events may be missing."""
        found = pl.concat([self._by_part.rows, _by_stretch(collectives)])
        waits = pl.col("task").is_in(sorted(self._event_waits))
        missing = (pl.col("part") == parts.PART_QUEUED) & (pl.col("value") > 0) & waits
        return found.with_columns(
            part=pl.when(missing).then(parts.PART_UNDECIDED).otherwise("part"),
            value=pl.when(missing).then(NO_EVENTS - 1 + pl.col("value")).otherwise("value"),
            task=pl.when(pl.col("part") == parts.PART_LATE).then("task"),
        )

    def _in_windows(self, arrivals: pl.DataFrame | None) -> Filled:
        """The tables `absent_regions` and `absent_iterations`."""

        def divide(pieces: pl.DataFrame) -> pl.DataFrame:
            return _divided_collectives(pieces.select(_COLLECTIVE_SCHEMA.keys()), arrivals)

        iterations = self._in_iterations.sums(divide, self._event_waits).head(parts.MOST_ITERATION_ROWS)
        found: Filled = {ABSENT_ITERATIONS: self._of_windows(iterations).with_columns(iteration=iterations["slot"])}
        if self._chosen is None:
            return found
        regions = self._in_regions.sums(divide, self._event_waits)
        by_slot = regions.group_by("slot").agg(pl.col("elapsed").sum())
        longest = by_slot.sort("elapsed", "slot", descending=[True, False]).head(MOST_REGIONS).with_row_index("order")
        regions = regions.join(longest.select("slot", "order"), on="slot").sort("order", "device")
        names = pl.DataFrame(self._chosen.names, schema={"region": pl.String, "domain": pl.String}, orient="row")
        of_regions = names[regions["slot"].to_numpy()]
        return {**found, ABSENT_REGIONS: self._of_windows(regions).with_columns(of_regions)}

    def _of_windows(self, sums: pl.DataFrame) -> pl.DataFrame:
        """Columns of times, and `device`, of sums in windows."""
        return _with_totals(sums["elapsed"].to_numpy(), part_sums(sums)).with_columns(
            device=self._context.device_names(pl.lit(sums["device"]))
        )

    def _by_device(self, by_part: pl.DataFrame) -> pl.DataFrame:
        """Columns of the table `absent_time`."""
        rows = self._context.events.rows
        devices, length = len(rows.devices), self._context.events.length
        sums = np.zeros((devices, len(PARTS)), dtype=np.int64)
        np.add.at(sums, (by_part["device"].to_numpy(), by_part["part"].to_numpy()), by_part["total"].to_numpy())
        users = [rows.tasks_of_device.get(device, ()) for device in range(devices)]
        scheduled = pl.Series([any(self._is_scheduled[task] for task in tasks) for tasks in users], dtype=pl.Boolean)
        return _with_totals(np.full(devices, length), sums).with_columns(
            device=self._context.device_names(pl.lit(pl.Series(np.arange(devices)))),
            off_cpu_ns=pl.when(scheduled).then(pl.Series(self._off_cpu)),
        )

    def _details(self, by_part: pl.DataFrame) -> pl.DataFrame:
        """Columns of the table `absent_parts`, those with most time first."""
        events = self._context.events
        numbers, values = by_part["number"], by_part["value"]
        named = events.named(numbers, pl.select(pl.when(numbers.is_not_null()).then(values)).to_series())
        kinds = events.types.get(event_types.SOURCE_MEMORY), events.types.get(event_types.DESTINATION_MEMORY)
        source, destination = (
            pl.col(name).replace_strict((kind.values if kind else None) or {}, default=None, return_dtype=pl.String)
            for name, kind in zip(("source", "destination"), kinds, strict=True)
        )
        part = pl.col("part")
        no_launch = NO_LAUNCHES if events.launches is None else NO_LAUNCH
        reason = pl.when(pl.col("value") == NO_LAUNCH).then(no_launch).otherwise("value")
        detail = (
            pl.when(part == parts.PART_LATE).then(self._context.task_names(pl.col("task")))
            .when(part == parts.PART_COMMUNICATION).then(_text(pl.col("source"), UNDIVIDED))
            .when(part == parts.PART_UNDECIDED).then(_text(reason, tuple(REASONS)))
            .when(part == parts.PART_QUEUED).then(_text(pl.col("value"), BESIDE))
            .when(pl.col("number").is_null()).then(_text(pl.col("value"), WHILE))
            .when(part == parts.PART_COPY).then(
                pl.concat_str("named", pl.format(" from {}", source), pl.format(" to {}", destination), ignore_nulls=True))
            .otherwise("named")
        )  # fmt: skip
        titles = pl.lit(pl.Series([part.title for part in PARTS]))
        return (
            by_part.with_columns(named=named)
            .select("count", "device", place="part", detail=detail, total_ns="total", longest_ns="longest")
            .group_by("device", "place", "detail")
            .agg(pl.col("count", "total_ns").sum(), pl.col("longest_ns").max())
            .sort("total_ns", "device", "place", "detail", descending=[True, False, False, False], nulls_last=True)
            .with_columns(device=self._context.device_names(pl.col("device")), part=titles.gather("place"))
        )

    def _of_hosts(self) -> Filled:
        """The tables `absent_calls`, `absent_ranges` and `absent_functions`."""
        by_host = self._by_host.rows
        calls = self._host_rows(by_host, "call", "part")
        titles = pl.lit(pl.Series([part.title for part in PARTS]))
        found: Filled = {ABSENT_CALLS: calls.with_columns(part=titles.gather("part"))}
        if (by_host["range"] != NO_NAME).any():
            found = {**found, ABSENT_RANGES: self._host_rows(by_host, "range")}
        return {**found, ABSENT_FUNCTIONS: self._function_rows()}

    def _function_rows(self) -> pl.DataFrame:
        """Columns of the table `absent_functions`, the functions with most samples first."""
        events = self._context.events
        sums = self._by_function.rows
        key = ["thread", "part", "function", "module"]
        found = sums.sort("samples", *key, descending=[True, *[False] * len(key)]).head(parts.MOST_HOST_ROWS)
        names = {
            name: events.named(pl.repeat(int(number), found.height, dtype=pl.Int64, eager=True), found[name])
            for name, number in (("function", call_chains.SAMPLED_FUNCTION), ("module", call_chains.SAMPLED_MODULE))
        }
        titles = pl.lit(pl.Series([part.title for part in PARTS]))
        return self._with_threads(found).with_columns(
            part=titles.gather("part"), share=pl.col("samples") / max(int(sums["samples"].sum()), 1), **names
        )

    def _with_threads(self, found: pl.DataFrame) -> pl.DataFrame:
        """A frame whose column `thread` has places of callers, with the names of their tasks and threads."""
        callers, rows = self._context.callers, self._context.events.rows
        threads = pl.Series([rows.names[row] for row in callers], dtype=pl.String)
        return found.with_columns(
            task=self._context.task_names(pl.lit(pl.Series(rows.task[callers])).gather("thread")),
            thread=pl.lit(threads).gather("thread"),
        )

    def _host_rows(self, by_host: pl.DataFrame, name: str, *further: str) -> pl.DataFrame:
        """Launch-starved time by thread and name (a packed one), most first; with its `task` and `thread`."""
        events, callers = self._context.events, self._context.callers
        sums = by_host.group_by("thread", name, *further).agg(
            total_ns=pl.col("total").sum(), off_cpu_ns=pl.col("off_cpu").sum()
        )
        sums = sums.sort("total_ns", "thread", name, *further, descending=[True, *[False] * (2 + len(further))])
        sums = sums.head(parts.MOST_HOST_ROWS).with_columns(unpacked(pl.col(name), "name"))
        named = events.named(sums["name_number"], sums["name_value"])
        scheduled = pl.lit(pl.Series(self._is_scheduled[events.rows.task[callers]] > 0, dtype=pl.Boolean)).gather("thread")
        return self._with_threads(sums.with_columns(named.alias(name), off_cpu_ns=pl.when(scheduled).then("off_cpu_ns")))

    def _stretches(self, collectives: pl.DataFrame) -> pl.DataFrame:
        """Columns of the table `absent_stretches`."""
        events, callers = self._context.events, self._context.callers
        rows = events.rows
        longest = _with_collectives(_longest(self._longest.rows), collectives)
        is_missing = pl.col("task").is_in(sorted(self._event_waits))
        undecided, queued = (parts.PART_COLUMNS[part] for part in (parts.PART_UNDECIDED, parts.PART_QUEUED))
        longest = longest.with_columns(
            pl.col(undecided) + pl.when(is_missing).then("beside").otherwise(0),
            pl.col(queued) + pl.when(is_missing).then(0).otherwise("beside"),
        )
        place = pl.when(pl.col("thread") >= 0).then("thread")
        threads = pl.Series([rows.names[row] for row in callers], dtype=pl.String)
        return longest.select(
            *parts.PART_COLUMNS,
            device=self._context.device_names(pl.col("device")),
            begin_ns="begin",
            end_ns="start",
            length_ns="length",
            next=events.named(longest["number"], longest["value"]),
            launched_ns="launched",
            task=self._context.task_names(pl.lit(pl.Series(rows.task[callers])).gather(place)),
            thread=pl.lit(threads).gather(place),
        )


def _values_named(context: SweepContext, number: int, part_of_name: str) -> list[int]:
    """Values of an event type whose names have a text in them."""
    names = context.events.types.get(number)
    return [value for value, name in ((names.values if names else None) or {}).items() if part_of_name in name]


def _iteration_windows(context: SweepContext, found: RunIterations) -> SlotWindows:
    """Iterations that lie in the window, of each device: where tasks of one device overlap they are one."""
    offset, length = context.events.offset, context.events.length
    moved = found.iterations.select("begin", "end", slot="number", group="device").with_columns(pl.col("begin", "end") - offset)
    return merged_windows(moved.filter((pl.col("begin") >= 0) & (pl.col("end") <= length)), len(context.events.rows.devices))


def _busy(chunk: TimeChunk) -> Steps:
    """When each task has any work on devices."""
    found = chunk.on_tasks
    return Steps.of(found, np.where(found.counts[NCCL] > 0, 2, found.mask > 0))


def _moving(chunk: TimeChunk) -> Steps:
    found = chunk.on_devices
    return Steps.of(found, (found.counts[NCCL] > 0) + 2 * (found.counts[MEMORY] > 0).astype(np.int64))


def _longest(stretches: pl.DataFrame) -> pl.DataFrame:
    return stretches.sort("length", "begin", "device", descending=[True, False, False]).head(parts.MOST_STRETCHES)


def _arrivals(waits: pl.DataFrame, context: SweepContext) -> pl.DataFrame:
    """Of kernels in collectives whose ranks are all in the run: `row`, `start`, `waited`, `undecided` as of
    `nccl_waits.waits_of_ranks`, and `task`, the rank that arrived last (null: not decidable)."""
    late = pl.col("task").filter(pl.col("is_last")).first().over("collective").cast(pl.Int64)
    complete = is_complete(pl.col("ranks"), context)
    return waits.with_columns(late=late).filter(complete).select(pl.col("row").cast(pl.Int64), "start", "waited", "undecided",
                                                                 task="late")  # fmt: skip


def _divided_collectives(found: pl.DataFrame, arrivals: pl.DataFrame | None) -> pl.DataFrame:
    """Pieces in which NCCL kernels were waited for, as late ranks, transfer, and what is not decidable of these.

    Parameters
    ----------
    found
        Columns of _COLLECTIVE_SCHEMA.
    arrivals
        Of `_arrivals`, one row per kernel; None: no collectives are matched.

    Returns
    -------
    With `part`, `source` (place in UNDIVIDED, null: it is divided) and `task`, the late rank.
    """
    if found.is_empty() or arrivals is None:
        nothing = dict.fromkeys(("destination", "task"), pl.lit(None, pl.Int64))
        communication = pl.lit(parts.PART_COMMUNICATION, pl.Int64)
        return found.with_columns(part=communication, source=pl.lit(UNMATCHED, pl.Int64), **nothing)
    joined = found.join(arrivals, on=["row", "start"], how="left")
    unmatched = pl.col("waited").is_null()
    whole = joined.filter(unmatched)
    matched = joined.filter(~unmatched).with_columns(
        arrived=pl.col("start") + pl.col("waited"), decided=pl.col("start") + pl.col("waited") + pl.col("undecided")
    )
    begin, end = pl.col("begin"), pl.col("end")
    nobody = pl.lit(None, pl.Int64)
    cut = [
        (whole, begin, end, parts.PART_COMMUNICATION, UNMATCHED, nobody),
        (matched, begin, pl.min_horizontal("end", "arrived"), parts.PART_LATE, None, pl.col("task")),
        (matched, pl.max_horizontal("begin", "arrived"), pl.min_horizontal("end", "decided"), parts.PART_COMMUNICATION,
         CLOCKS, nobody),
        (matched, pl.max_horizontal("begin", "decided"), end, parts.PART_TRANSFER, None, nobody),
    ]  # fmt: skip
    return pl.concat(
        frame.select(
            "device",
            "since",
            "slot",
            "number",
            "value",
            "row",
            "start",
            begin=first,
            end=last,
            part=pl.lit(part, pl.Int64),
            source=pl.lit(reason, pl.Int64),
            destination=pl.lit(None, pl.Int64),
            task=task,
        ).filter(pl.col("end") > pl.col("begin"))
        for frame, first, last, part, reason, task in cut
    )


def _with_collectives(stretches: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Stretches with their communication divided: pieces of `AbsentTime._divided_collectives`."""
    length = pl.col("end") - pl.col("begin")
    sums = collectives.group_by("device", "since").agg(
        length.filter(pl.col("part") == part).sum().alias(f"divided {part}")
        for part in (parts.PART_LATE, parts.PART_TRANSFER, parts.PART_COMMUNICATION)
    )
    joined = stretches.join(sums, left_on=["device", "begin"], right_on=["device", "since"], how="left", maintain_order="left")
    return joined.with_columns(
        pl.col(f"divided {part}").fill_null(0).alias(parts.PART_COLUMNS[part])
        for part in (parts.PART_LATE, parts.PART_TRANSFER, parts.PART_COMMUNICATION)
    )


def _functions(samples: pl.DataFrame, windows: Intervals, part: Numbers) -> pl.DataFrame:
    """Numbers of samples of _FUNCTION_SCHEMA in windows of threads, each of one part."""
    thread, time = samples["thread"].to_numpy(), samples["start"].to_numpy()
    if not len(thread):
        return pl.DataFrame(schema=_FUNCTION_SCHEMA)
    first = search(thread, time, windows.group, windows.begin - 1) + 1
    window, place = expanded(first, search(thread, time, windows.group, windows.end - 1))
    counted = samples[place].with_columns(part=pl.Series(part[window], dtype=pl.Int64))
    found = counted.group_by("thread", "part", "function", "module").agg(samples=pl.len())
    return found.select(pl.col(name).cast(dtype) for name, dtype in _FUNCTION_SCHEMA.items())


def _text(place: pl.Expr, texts: Sequence[str | None]) -> pl.Expr:
    """The text at a place; null at others."""
    return place.replace_strict(
        {number: text for number, text in enumerate(texts) if text}, default=None, return_dtype=pl.String
    )


def _covered(intervals: Intervals) -> Steps:
    """1 where any interval of a group is open, 0 elsewhere."""
    found = segments(intervals)
    return Steps.of(found, (found.counts[0] > 0).astype(np.int64))


def _pieces(
    stretch: Numbers, begin: Numbers, end: Numbers, part: int | Numbers, value: int | Numbers | None = None
) -> pl.DataFrame:
    """Pieces of some length, with the columns _PIECE; attributes of operations are null."""
    some = end > begin
    columns = {"stretch": stretch, "begin": begin, "end": end, "part": part, "value": value}
    given = {
        name: pl.Series(
            name, column[some] if isinstance(column, np.ndarray) else np.full(int(some.sum()), column), dtype=pl.Int64
        )
        for name, column in columns.items()
        if column is not None
    }
    rows = len(given["stretch"])
    unknown = pl.Series(dtype=pl.Int64).extend_constant(None, rows)
    return pl.DataFrame([given.get(name, unknown.alias(name)) for name in _PIECE])


def _by_stretch(pieces: pl.DataFrame) -> pl.DataFrame:
    """Rows of _PART_SCHEMA: sums of pieces over each stretch (`device`, `since`), then over all stretches."""
    length = pl.col("end") - pl.col("begin")
    of_stretch = pieces.group_by("since", *_PART_KEY).agg(total=length.sum())
    sums = of_stretch.group_by(_PART_KEY).agg(count=pl.len(), longest=pl.col("total").max(), total=pl.col("total").sum())
    return sums.select(pl.col(name).cast(dtype) for name, dtype in _PART_SCHEMA.items())


def _with_totals(elapsed: Numbers, sums: Numbers) -> pl.DataFrame:
    """Columns `elapsed_ns`, `compute_ns`, `absent_ns`, `absent_share` and those of PARTS, from a row of parts per row."""
    absent = sums.sum(axis=1)
    return pl.DataFrame(
        {
            "elapsed_ns": elapsed,
            "compute_ns": elapsed - absent,
            "absent_ns": absent,
            **{name: sums[:, place] for place, name in enumerate(parts.PART_COLUMNS)},
        }
    ).with_columns(absent_share=pl.when(pl.col("elapsed_ns") > 0).then(pl.col("absent_ns") / pl.col("elapsed_ns")))
