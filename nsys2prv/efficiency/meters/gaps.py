"""Gaps: times in which nothing runs on a device, by length and by what the thread did that launched what runs next."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.stretches import UNKNOWN, first_at_each_time, last_of_each, stretches_before, with_next
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import ACTIVITIES, CAUSES, SweepContext, TimeChunk
from nsys2prv.execution.merging import Merging, Sums

CLASSES_NS = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
"""Shortest length of each class."""
MOST_GAPS = 200
"""Gaps that have a row each: the longest."""

_PENDING_ROWS = 20_000
_FORMER = ("number", "value", "size", "length")

_CAUSES = (
    Column.ns("launch_ns", "of this time, the launching thread was in calls that launch"),
    Column.ns("synchronization_ns", "in calls that wait for the device"),
    Column.ns("memory_ns", "in copies and memsets"),
    Column.ns("allocation_ns", "in calls that allocate or free memory"),
    Column.ns("other_cuda_ns", "in other CUDA calls"),
    Column.ns("mpi_ns", "in MPI calls"),
    Column.ns("os_ns", "in calls of the OS runtime (as far as they were recorded)"),
    Column.ns("host_ns", "in none of these: the thread computed, or was not on a CPU"),
    Column.ns("unknown_ns", "the launching thread is not known"),
)
CAUSE_TITLES = {
    "host_ns": "computing or off the CPU",
    "launch_ns": "launching",
    "synchronization_ns": "waiting for the device",
    "memory_ns": "copying",
    "allocation_ns": "allocating",
    "other_cuda_ns": "other CUDA calls",
    "mpi_ns": "MPI",
    "os_ns": "OS",
    "unknown_ns": "not known",
}
"""Names of these columns for people, in the order in which they are shown."""
CAUSE_COLUMNS = [column.name for column in _CAUSES]
"""Columns with the idle time by what the launching thread does: those of CAUSES, then `host_ns` and `unknown_ns`."""
UNKNOWN_COLUMN = CAUSE_COLUMNS[-1]

_CLASS_SCHEMA = dict.fromkeys(("device", "of_class", "count", "length", *CAUSE_COLUMNS), pl.Int64)
_LONGEST_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("device", "begin", "start", "value", "thread", "length", "former_value", *CAUSE_COLUMNS), pl.Int64),
    "number": pl.Int32,
    "former_number": pl.Int64,
}

GAPS = Table(
    "gaps",
    "Gaps by length",
    "one device and class of lengths of idle times",
    (
        DEVICE,
        Column.ns("from_ns", "lengths from here"),
        Column.ns("to_ns", "to below here; null for the last class"),
        Column.count("count", "gaps"),
        Column.ns("total_ns", "sum of lengths"),
        *_CAUSES,
    ),
    order=550,
    page=OnPage("gaps", columns=("device", "from_ns", "to_ns", "count", "total_ns", "host_ns", "launch_ns",
        "synchronization_ns", "mpi_ns", "os_ns", "unknown_ns"), worst_first="total_ns", cells=8_000),
)  # fmt: skip
LONGEST_GAPS = Table(
    "longest_gaps",
    "Longest gaps",
    "one idle time of a device",
    (
        DEVICE,
        Column.moment("begin_ns", "from the start of the trace"),
        Column.moment("end_ns", "from the start of the trace"),
        Column.ns("length_ns", "its length"),
        Column.text("before", "what ended last before it; null at the start of the trace"),
        Column.text("after", "what starts first after it; null at the end of the trace"),
        Column.text("task", "task of the launching thread; null when not known"),
        Column.text("thread", "thread that launched what comes after"),
        *_CAUSES,
    ),
    page=OnPage("gaps", columns=("device", "begin_ns", "length_ns", "before", "after", "host_ns", "synchronization_ns",
        "mpi_ns", "os_ns")),
    console=OnConsole((("device", "gap on"), ("begin_ns", "at"), "length_ns", ("after", "until")), place=90),
)  # fmt: skip


class Gaps(TableMeter):
    """Idle times of all devices, from the start of the trace to its end.

    Attributes
    ----------
    each
        Each gap that has ended, as a row: `device`, `begin`, and `start` of the activity that follows; of
        that activity `number`, `value`, `next_row`, `next_length`, `next_size` (-1: not known), `thread`, the place of the
        caller that launched it (-1: not known), and `launched`, the time of the launch; of the activity before the gap
        `former_number` (0: none), `former_value`, `former_size` (-1: not known), `former_length`; and CAUSE_COLUMNS.
    """

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self.each: list[pl.DataFrame] = []
        rows = context.events.rows
        devices = len(rows.devices)
        self._idle_since: Numbers = np.zeros(devices, dtype=np.int64)
        # The activity that ended last on each device: its _FORMER; 0: none yet.
        self._last: Numbers = np.zeros((devices, len(_FORMER)), dtype=np.int64)
        # Host threads that may launch on a device: callers of the tasks that use it.
        pairs = [
            (device, place)
            for place, row in enumerate(context.callers.tolist())
            for device in rows.devices_of_task.get(int(rows.task[row]), ())
        ]
        self._pairs: Numbers = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        # Time of each activity of these threads until the device became idle, and until the start of the chunk.
        self._when_idle: Numbers = np.zeros((len(pairs), ACTIVITIES), dtype=np.int64)
        self._so_far: Numbers = np.zeros((len(context.callers), ACTIVITIES), dtype=np.int64)
        self._by_class = Sums(_CLASS_SCHEMA, ["device", "of_class"])
        self._longest = Merging(_longest, pl.DataFrame(schema=_LONGEST_SCHEMA), _PENDING_ROWS)

    def update(self, chunk: TimeChunk) -> None:
        found = chunk.on_devices
        busy = found.where(found.mask > 0)
        if len(busy):
            # A device becomes idle when its last activity ends, and a gap ends where the next one starts.
            gaps = stretches_before(busy, self._idle_since)
            ends = self._ends(chunk)
            self._add(chunk, with_next(chunk, gaps), ends)
            last = last_of_each(busy)
            self._remember(chunk, last.group, last.end, ends)
        self._so_far += chunk.thread_times.until(
            np.arange(len(self._so_far)), np.full(len(self._so_far), chunk.end, dtype=np.int64)
        )

    def _add(self, chunk: TimeChunk, gaps: pl.DataFrame, ends: pl.DataFrame) -> None:
        device, begin, end = (gaps[name].to_numpy() for name in ("device", "begin", "start"))
        thread = gaps["thread"].fill_null(UNKNOWN).to_numpy()
        pair = self._pair(device, thread)
        known = pair >= 0
        times = np.zeros((len(device), ACTIVITIES), dtype=np.int64)
        if known.any():
            elapsed = chunk.thread_times
            until_end = elapsed.until(thread[known], end[known]) + self._so_far[thread[known]]
            early = begin[known] < chunk.begin
            until_begin = np.where(
                (early | (begin[known] == self._idle_since[device[known]]))[:, None],
                self._when_idle[pair[known]],
                elapsed.until(thread[known], np.maximum(begin[known], chunk.begin)) + self._so_far[thread[known]],
            )
            times[known] = until_end - until_begin
        length = end - begin
        in_calls = times[:, : len(CAUSES)]
        host = np.where(known, length - in_calls.sum(axis=1), 0)
        by_cause = [*in_calls.T, host, np.where(known, 0, length)]
        causes = dict(zip(CAUSE_COLUMNS, by_cause, strict=True))
        self._keep(gaps.with_columns(pl.Series(name, values, dtype=pl.Int64) for name, values in causes.items()), ends)

    def _pair(self, device: Numbers, thread: Numbers) -> Numbers:
        """Place in the table of pairs of each device and thread; -1 where the thread is not known."""
        if not len(self._pairs):
            return np.full(len(device), UNKNOWN, dtype=np.int64)
        threads = len(self._context.callers)
        keys = self._pairs[:, 0] * threads + self._pairs[:, 1]
        requested = device * threads + thread
        place = np.minimum(np.searchsorted(keys, requested), len(keys) - 1)
        return np.where((thread >= 0) & (keys[place] == requested), place, UNKNOWN)

    def _keep(self, gaps: pl.DataFrame, ends: pl.DataFrame | None = None) -> None:
        """Add gaps (columns `device`, `begin`, `start`, `number`, `value`, `thread`, causes); `ends` as of `_ends`, None at
        the end of the trace."""
        if gaps.is_empty():
            return
        length = (gaps["start"] - gaps["begin"]).to_numpy()
        of_class = np.searchsorted(CLASSES_NS, length, side="right") - 1
        counted = gaps.with_columns(length=pl.Series(length), of_class=pl.Series(of_class), count=pl.lit(1))
        self._by_class.add(counted)
        if ends is not None:
            counted = self._with_former(counted, ends)
            self.each.append(counted)
        longest = _longest(counted)
        if "former_number" not in longest.columns:
            longest = self._with_former(longest, ends)
        self._longest.add(longest.select(*_LONGEST_SCHEMA))

    def _with_former(self, gaps: pl.DataFrame, ends: pl.DataFrame | None) -> pl.DataFrame:
        """With the activity that ended last before each gap: `former_` and each of _FORMER; 0 at the start of the trace."""
        device, begin = gaps["device"].to_numpy(), gaps["begin"].to_numpy()
        carried = begin == self._idle_since[device]
        former = np.where(carried[:, None], self._last[device], 0)
        if ends is not None and not carried.all():
            joined = _ended(ends, gaps.select("device", until="begin"))
            former = np.where(carried[:, None], former, joined.select(pl.col(_FORMER).fill_null(0)).to_numpy())
        return gaps.with_columns(
            pl.Series(f"former_{name}", former[:, place], dtype=pl.Int64) for place, name in enumerate(_FORMER)
        )

    def _ends(self, chunk: TimeChunk) -> pl.DataFrame:
        """Activities of devices that end in a chunk: columns `device`, `until`, _FORMER."""
        inside = self._context.events.rows.located(chunk.inside[ON_DEVICES.name])
        return inside.select(
            "device",
            "until",
            "number",
            "value",
            pl.col("size").fill_null(UNKNOWN),
            length=pl.col("until") - pl.col("begin"),
        ).filter(pl.col("until") <= chunk.end)

    def _remember(self, chunk: TimeChunk, device: Numbers, until: Numbers, ends: pl.DataFrame) -> None:
        """Keep when devices became idle, which activity ended there, and what their threads had done until then."""
        of_devices = _ended(ends.filter(pl.col("until").is_in(until)), pl.DataFrame({"device": device, "until": until}))
        known = of_devices["number"].is_not_null().to_numpy()
        self._last[device[known]] = of_devices.filter(pl.col("number").is_not_null()).select(*_FORMER).to_numpy()
        self._idle_since[device] = until
        changed = np.isin(self._pairs[:, 0], device)
        if changed.any():
            of_device, thread = self._pairs[changed, 0], self._pairs[changed, 1]
            elapsed = chunk.thread_times.until(thread, self._idle_since[of_device])
            self._when_idle[changed] = elapsed + self._so_far[thread]

    def tables(self) -> Filled:
        """The tables `gaps` and `longest_gaps`."""
        self._finish()
        rows = self._context.events.rows
        by_class = self._by_class.rows.sort("device", "of_class")
        if by_class.is_empty():
            return {}
        edges = pl.Series([*CLASSES_NS, None], dtype=pl.Int64)
        gaps = by_class.select(
            "count",
            *CAUSE_COLUMNS,
            device=self._context.device_names(pl.col("device")),
            from_ns=pl.lit(edges).gather("of_class"),
            to_ns=pl.lit(edges).gather(pl.col("of_class") + 1),
            total_ns="length",
        )
        longest = _longest(self._longest.rows)
        callers = self._context.callers
        thread_names = pl.Series([rows.names[row] for row in callers], dtype=pl.String)
        place = pl.when(pl.col("thread") >= 0).then("thread")
        events = self._context.events
        after, before = (
            events.named(longest[number], longest[value])
            for number, value in (("number", "value"), ("former_number", "former_value"))
        )
        longest = longest.select(
            *CAUSE_COLUMNS,
            device=self._context.device_names(pl.col("device")),
            begin_ns="begin",
            end_ns="start",
            length_ns="length",
            before=before,
            after=after,
            task=self._context.task_names(pl.lit(pl.Series(rows.task[callers])).gather(place)),
            thread=pl.lit(thread_names).gather(place),
        )
        return {GAPS: gaps, LONGEST_GAPS: longest}

    def _finish(self) -> None:
        """Add the gaps at the end of the trace."""
        length = self._context.events.length
        device = np.flatnonzero(self._idle_since < length)
        begin = self._idle_since[device]
        nothing = pl.lit(0, pl.Int64)
        gaps = pl.DataFrame({"device": device, "begin": begin, "unknown_ns": length - begin}).with_columns(
            start=pl.lit(length, pl.Int64),
            number=pl.lit(None, pl.Int32),
            value=nothing,
            thread=pl.lit(UNKNOWN, pl.Int64),
            **dict.fromkeys(CAUSE_COLUMNS[:-1], nothing),
        )
        self._keep(gaps)


def _longest(gaps: pl.DataFrame) -> pl.DataFrame:
    order = gaps.select(pl.arg_sort_by("length", "begin", "device", descending=[True, False, False]).head(MOST_GAPS))
    # Gathered: the head of a sorted frame would keep all of it in memory.
    return gaps[order.to_series()]


def _ended(ends: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Activities (columns of `Gaps._ends`) that ended at each `device` and `until` of `times`, in that order; null: none."""
    found = times.join(ends, on=["device", "until"], how="left", maintain_order="left")
    return first_at_each_time(found, "until", list(_FORMER), [False] * len(_FORMER))
