"""NCCL kernels by communicator and operation: whether the device computes meanwhile, and whether computing waits for them.

These are two questions. A collective is *exposed* while no compute kernel runs on its device; it is *blocking* while a compute
kernel that was launched waits for it. An exposed one may block nothing, because nothing was launched that could run meanwhile;
one that is hidden behind some kernels may block others.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.event_waits import EventEdges
from nsys2prv.efficiency.intervals import Intervals, Numbers
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.steps import Steps
from nsys2prv.efficiency.sweep import KERNEL, KINDS_OF_NUMBER, SweepContext, TimeChunk
from nsys2prv.execution import memory
from nsys2prv.execution.merging import Sums
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.vocabulary import event_types

INSIDE_A_NODE, OVER_NODES = "inside a node", "over nodes"

NCCL_EXPOSURE = Table(
    "nccl_exposure",
    "NCCL: exposed and blocking",
    "one operation of one communicator",
    (
        Column.text("communicator", "name; null when not known: then kernels of several ones can be together"),
        Column.text("operation", "AllReduce, AllGather, ..."),
        Column.text(
            "placement",
            f"`{INSIDE_A_NODE}` or `{OVER_NODES}`: where the members of the communicator are; null when that is not known, "
            "because members are not in the run, or it is not known which they are",
        ),
        Column.count("members", "devices of the run with such kernels"),
        Column.count("nodes", "their nodes"),
        Column.count("ranks", "ranks of the communicator; null when not known"),
        Column.count("count", "kernels"),
        Column.bytes("bytes", "sum of message sizes; null when one is not known"),
        Column.ns("total_ns", "sum of durations, including waits for others"),
        Column.ns("exposed_ns", "of it, no compute kernel runs on the device"),
        Column.ns("overlapped_ns", "of it, compute kernels run on the device: the rest"),
        Column.ns(
            "blocking_ns",
            "time in which no compute kernel runs on a device, and the next one was launched and waits for such a kernel: what "
            "`absent_time` has for waits of communication",
        ),
        Column.ns("late_rank_ns", "of it, another rank had surely not arrived yet"),
        Column.ns("not_blocking_ns", "of `exposed_ns`: no launched compute kernel of the device waits for it"),
        Column.ns(
            "overlapped_blocking_ns",
            "of `overlapped_ns`: another compute kernel was launched and waits for it, next in its stream or by an event",
        ),
    ),
    when="NCCL kernels",
    order=710,
    page=OnPage("communication", place=1, worst_first="exposed_ns"),
    console=OnConsole((("operation", "NCCL"), "communicator", ("placement", "members"), "total_ns", "exposed_ns", "blocking_ns",
        ("not_blocking_ns", "exposed, not blocking"), ("overlapped_blocking_ns", "blocking, not exposed")), place=60,
        spare=("overlapped_blocking_ns", "placement", "blocking_ns")),
    is_later=True,
)  # fmt: skip

_COMPUTE = tuple(number for number, kind in KINDS_OF_NUMBER.items() if kind == KERNEL)
_MOST_STEPS = 1_000_000
"""Changes between computing and not computing, of former chunks, that are kept at most."""
_KERNEL = ["row", "start"]
_TIME_SCHEMA = {"row": pl.Int64, "start": pl.Int64, "exposed": pl.Int64, "hidden_wait": pl.Int64}
_OPERATION_SCHEMA = {"row": pl.Int64, "start": pl.Int64, "end": pl.Int64, "number": pl.Int64}


class NcclExposure(TableMeter):
    """Which NCCL kernels are exposed, and which of them block.

    Parameters
    ----------
    nccl, absent
        Meters of the same run, updated with the same chunks.
    event_waits
        Of the run; others may follow them too.
    """

    def __init__(self, context: SweepContext, nccl: Nccl, absent: AbsentTime, event_waits: EventEdges) -> None:
        self._context = context
        self._nccl = nccl
        self._absent = absent
        self._events = event_waits
        self._times = Sums(_TIME_SCHEMA, _KERNEL, largest=["hidden_wait"])
        self._last = pl.DataFrame(schema=_OPERATION_SCHEMA)
        self._recent = pl.DataFrame(schema=_OPERATION_SCHEMA)
        """NCCL kernels that something may still wait for."""
        self._past: list[tuple[int, int, Steps]] = []

    def update(self, chunk: TimeChunk) -> None:
        if event_types.NCCL_KERNEL not in self._context.events.types:
            return
        found = chunk.on_devices
        self._past.append((chunk.begin, chunk.end, Steps.of(found, (found.counts[KERNEL] > 0).astype(np.int64))))
        self._add_exposed(chunk)
        operations = chunk.started[ON_DEVICES.name].select(
            pl.col(name).cast(dtype) for name, dtype in _OPERATION_SCHEMA.items()
        )
        self._recent = pl.concat([self._recent, operations.filter(pl.col("number") == event_types.NCCL_KERNEL)])
        self._add_hidden_waits(self._waits(chunk, operations))
        self._forget(chunk)

    def _add_exposed(self, chunk: TimeChunk) -> None:
        inside = chunk.inside[ON_DEVICES.name].filter(pl.col("number") == event_types.NCCL_KERNEL)
        if inside.is_empty():
            return
        device = self._context.events.rows.device[inside["row"].to_numpy()]
        begin, end = (inside[name].to_numpy() for name in ("start", "end"))
        by_mask = chunk.device_times.until(device, end) - chunk.device_times.until(device, begin)
        computing = by_mask[:, 1 << KERNEL :: 2].sum(axis=1)
        exposed = pl.Series(end - begin - computing)
        of_kernels = inside.select("row", start="begin", exposed=exposed, hidden_wait=pl.lit(0))
        self._times.add(of_kernels.select(pl.col(name).cast(dtype) for name, dtype in _TIME_SCHEMA.items()))

    def _waits(self, chunk: TimeChunk, operations: pl.DataFrame) -> pl.DataFrame:
        """Compute kernels that start in a chunk and waited for an NCCL kernel (`row`, `start`, `end`), `since` when."""
        with_former = pl.concat([self._last, operations]).sort("row", "start", maintain_order=True)
        former = [pl.col(name).shift().over("row").alias(f"former_{name}") for name in ("start", "end", "number")]
        with_former = with_former.with_columns(former)
        self._last = with_former.group_by("row", maintain_order=True).last().select(_OPERATION_SCHEMA.keys())
        edges = self._events
        launches = chunk.launches.select("time", row=pl.col("to_row").cast(pl.Int64), start="to_time")
        launched = one_of_each(launches, _KERNEL)
        kernels = with_former.filter(pl.col("number").is_in(_COMPUTE)).join(launched, on=_KERNEL, how="inner")
        in_stream = kernels.filter(pl.col("former_number") == event_types.NCCL_KERNEL).select(
            "row", start="former_start", end="former_end", since=pl.max_horizontal("time", "former_start")
        )
        awaited = pl.concat([edges.on_streams, edges.inferred]).drop("end")
        by_event = awaited.join(kernels, on=_KERNEL, how="inner").join(
            self._recent, left_on=["awaited_row", "awaited_start"], right_on=_KERNEL, how="inner", suffix="_nccl"
        )
        of_events = by_event.select(
            row="awaited_row",
            start="awaited_start",
            end="awaited_end",
            # Before that it waited for what was before it in its own stream.
            since=pl.max_horizontal("time", "awaited_start", pl.col("former_end").fill_null(0)),
        )
        return pl.concat([in_stream, of_events]).filter(pl.col("since") < pl.col("end"))

    def _add_hidden_waits(self, waits: pl.DataFrame) -> None:
        """Add the times of waits in which the device of the NCCL kernel computes."""
        if waits.is_empty():
            return
        # All waits for a kernel end with it: the one that began first has the others in it.
        first = waits.group_by(_KERNEL).agg(pl.col("end").first(), pl.col("since").min())
        device = self._context.events.rows.device[first["row"].to_numpy()]
        since, end = (first[name].to_numpy() for name in ("since", "end"))
        hidden: Numbers = np.zeros(len(since), dtype=np.int64)
        for begin, until, steps in self._past:
            hidden += _time_in_steps(Intervals(device, since.clip(begin, until), end.clip(begin, until)), steps)
        found = first.select("row", "start", exposed=pl.lit(0, pl.Int64), hidden_wait=pl.Series(hidden, dtype=pl.Int64))
        self._times.add(found)

    def _forget(self, chunk: TimeChunk) -> None:
        """Forget NCCL kernels that ended before this chunk, and what ran before those that are kept."""
        self._recent = self._recent.filter(pl.col("end") > chunk.begin)
        since = int(self._recent["start"].to_numpy().min(initial=chunk.end))
        self._past = [era for era in self._past if era[1] > since]
        while len(self._past) > 1 and sum(len(steps) for *_, steps in self._past) > memory.scaled(_MOST_STEPS):
            self._past.pop(0)

    @property
    def starved(self) -> pl.DataFrame | None:
        """When devices are launch-starved while NCCL kernels run: `StarvedBesideNccl.stretches`."""
        return self._absent.starved_beside_nccl.stretches

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """After all chunks, all NCCL kernels: `row`, `start`, `end`, `task`, `device`, `communicator` and its name,
        `operation`, `ranks`, `size`, `placement`, and of their time (ns) what is `exposed`, `blocking` (of it before a late
        rank arrived: `late_rank`, and on its own device: `own_blocking`), and hidden and waited for (`hidden_wait`). Empty:
        there are none."""
        kernels = self._nccl.kernels
        if kernels.is_empty():
            return kernels
        length, part = pl.col("end") - pl.col("begin"), pl.col("part")
        rows = self._context.events.rows
        waits = self._absent.waits_for_nccl
        waits = waits.with_columns(own=waits["device"] == pl.Series(rows.device[waits["row"].to_numpy()]))
        blocking = waits.group_by(_KERNEL).agg(
            blocking=length.sum(),
            late_rank=length.filter(part == parts.PART_LATE).sum(),
            own_blocking=length.filter("own").sum(),
        )
        times = self._times.rows.join(blocking, on=_KERNEL, how="left")
        found = kernels.with_columns(pl.col("row").cast(pl.Int64)).join(times, on=_KERNEL, how="left")
        # Of several kernels that a row starts at once, one has the times of all.
        measured = ["exposed", "hidden_wait", "blocking", "late_rank", "own_blocking"]
        is_first = pl.struct(_KERNEL).is_first_distinct()
        nodes = pl.Series([task.node for task in rows.tasks], dtype=pl.String)
        located = found.with_columns(pl.when(is_first).then(pl.col(measured)).fill_null(0), node=pl.lit(nodes).gather("task"))
        members, several = pl.struct("task", "device").n_unique(), pl.col("node").n_unique() > 1
        complete = members >= pl.col("ranks").max()
        placement = pl.when(several).then(pl.lit(OVER_NODES)).when(complete).then(pl.lit(INSIDE_A_NODE))
        return located.with_columns(
            placement=pl.when(pl.col("communicator").is_not_null()).then(placement.over("communicator", "operation"))
        )

    def tables(self) -> Filled:
        """The table of NCCL kernels that are exposed, or block."""
        if self.kernels.is_empty():
            return {}
        measured = ("exposed", "hidden_wait", "blocking", "late_rank", "own_blocking")
        summed = (
            self.kernels.with_columns(total=pl.col("end") - pl.col("start"))
            .group_by("communicator", "communicator_name", "operation")
            .agg(
                pl.len().alias("count"),
                pl.col("total", *measured).sum(),
                pl.col("placement").first(),
                members=pl.struct("task", "device").n_unique(),
                nodes=pl.col("node").n_unique(),
                ranks=pl.col("ranks").max(),
                bytes=pl.when(pl.col("size").is_not_null().all()).then(pl.col("size").sum()),
            )
            .sort("total", "communicator", "operation", descending=[True, False, False], nulls_last=True)
        )
        return {
            NCCL_EXPOSURE: summed.select(
                "operation", "placement", "members", "nodes", "ranks", "count", "bytes",
                communicator="communicator_name",
                total_ns="total",
                exposed_ns="exposed",
                overlapped_ns=pl.col("total") - pl.col("exposed"),
                blocking_ns="blocking",
                late_rank_ns="late_rank",
                not_blocking_ns=pl.col("exposed") - pl.col("own_blocking"),
                overlapped_blocking_ns="hidden_wait",
            )
        }  # fmt: skip


def _time_in_steps(windows: Intervals, steps: Steps) -> Numbers:
    """Time in each window in which the key is not 0."""
    some = np.flatnonzero(windows.end > windows.begin)
    pieces = steps.cut(windows.only(some))
    found: Numbers = np.zeros(len(windows), dtype=np.int64)
    np.add.at(found, some[pieces.window], pieces.length * pieces.key)
    return found
