"""NCCL kernels by communicator and operation: whether the device computes meanwhile, and whether computing waits for them.

These are two questions. A collective is *exposed* while no compute kernel runs on its device; it is *blocking* while a compute
kernel that was launched waits for it. An exposed one may block nothing, because nothing was launched that could run meanwhile;
one that is hidden behind some kernels may block others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.event_waits import EventEdges
from nsys2prv.efficiency.intervals import NONE, Numbers
from nsys2prv.efficiency.measured_run import KERNEL, NO_LAUNCH, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.absent_time import COMPUTE_TYPES, AbsentTime
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
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
    is_later=True,
    order=710,
    page=OnPage("communication", place=1, worst_first="exposed_ns"),
    console=OnConsole((("operation", "NCCL"), "communicator", ("placement", "members"), "total_ns", "exposed_ns", "blocking_ns",
        ("not_blocking_ns", "exposed, not blocking"), ("overlapped_blocking_ns", "blocking, not exposed")), place=60,
        spare=("overlapped_blocking_ns", "placement", "blocking_ns")),
)  # fmt: skip

_KERNEL = ["row", "start"]
_BLOCKING = ["hidden_wait", "blocking", "late_rank", "own_blocking"]


@dataclass(frozen=True)
class NcclExposure(Measurement):
    """Which NCCL kernels are exposed, and which of them block.

    Attributes
    ----------
    kernels
        All NCCL kernels: `row`, `start`, `end`, `task`, `device`, `communicator` and its name, `operation`, `ranks`, `size`,
        `placement`, and of their time (ns) what is `exposed`, `blocking` (of it before a late rank arrived: `late_rank`, and on
        its own device: `own_blocking`), and hidden and waited for (`hidden_wait`). Empty: there are none.
    starved
        When devices are launch-starved while NCCL kernels run: see `AbsentTime.starved_beside_nccl`.
    """

    kernels: pl.DataFrame
    starved: pl.DataFrame | None

    def tables(self) -> Filled:
        """The table of NCCL kernels that are exposed, or block."""
        if self.kernels.is_empty():
            return {}
        summed = (
            self.kernels.with_columns(total=pl.col("end") - pl.col("start"))
            .group_by("communicator", "communicator_name", "operation")
            .agg(
                pl.len().alias("count"),
                pl.col("total", "exposed", *_BLOCKING).sum(),
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


def measure_nccl_exposure(run: MeasuredRun) -> NcclExposure:
    """Which NCCL kernels are exposed, and which of them block."""
    kernels, absent = run.measured(Nccl).kernels, run.measured(AbsentTime)
    if kernels.is_empty():
        return NcclExposure(kernels, absent.starved_beside_nccl)
    rows = run.events.rows
    begin, end = pl.col("begin"), pl.col("end")
    device_of_kernel = pl.Series("device_of_kernel", rows.device[absent.waits_for_nccl["row"].to_numpy()])
    waits = absent.waits_for_nccl.with_columns(device_of_kernel)
    blocking = waits.group_by(_KERNEL).agg(
        blocking=(end - begin).sum(),
        late_rank=(end - begin).filter(pl.col("part") == parts.PART_LATE).sum(),
        own_blocking=(end - begin).filter(pl.col("device") == pl.col("device_of_kernel")).sum(),
    )
    exposed = (kernels["end"] - kernels["start"]) - _computing(run, kernels)
    measured = kernels.with_columns(exposed=exposed).join(_hidden_waits(run), on=_KERNEL, how="left", maintain_order="left")
    measured = measured.join(blocking, on=_KERNEL, how="left", maintain_order="left")
    # Of several kernels that a row starts at once, one has what waits for all of them.
    is_first = pl.struct(_KERNEL).is_first_distinct()
    nodes = pl.Series([task.node for task in rows.tasks], dtype=pl.String)
    located = measured.with_columns(pl.when(is_first).then(pl.col(_BLOCKING)).fill_null(0), node=pl.lit(nodes).gather("task"))
    members, several = pl.struct("task", "device").n_unique(), pl.col("node").n_unique() > 1
    complete = members >= pl.col("ranks").max()
    placement = pl.when(several).then(pl.lit(OVER_NODES)).when(complete).then(pl.lit(INSIDE_A_NODE))
    is_named = pl.col("communicator").is_not_null()
    located = located.with_columns(placement=pl.when(is_named).then(placement.over("communicator", "operation")))
    return NcclExposure(located, absent.starved_beside_nccl)


def _computing(run: MeasuredRun, times: pl.DataFrame) -> pl.Series:
    """Time in which the device of each row computes from `start` to `end`, ns."""
    device = run.events.rows.device[times["row"].to_numpy()]
    by_mask = run.device_times.between(device, times["start"].to_numpy(), times["end"].to_numpy())
    return pl.Series(by_mask[:, 1 << KERNEL :: 2].sum(axis=1))


def _hidden_waits(run: MeasuredRun) -> pl.DataFrame:
    """For NCCL kernels (`row`, `start`) that compute kernels waited for: `hidden_wait`, the time of these waits in which the
    device of the NCCL kernel computes, ns."""
    operations, edges = run.operations.select("row", "start", "end", "number"), run.measured(EventEdges)
    row = operations["row"].to_numpy()
    order = np.argsort(row, kind="stable")
    former: Numbers = np.full(len(row), NONE, dtype=np.int64)
    follows = row[order[1:]] == row[order[:-1]]
    former[order[1:][follows]] = order[:-1][follows]
    is_nccl = (operations["number"] == event_types.NCCL_KERNEL).to_numpy()
    is_launched = operations["number"].is_in(COMPUTE_TYPES).to_numpy() & (run.launch_of != NO_LAUNCH)
    awaited = pl.concat([edges.on_streams, edges.inferred]).select(
        pl.col("row", "awaited_row").cast(pl.Int32), "start", "awaited_start"
    )
    nccl = operations.filter(is_nccl).select(awaited_row="row", awaited_start="start", until="end")
    awaited = awaited.join(nccl, on=["awaited_row", "awaited_start"], how="inner")

    def launched(places: Numbers) -> pl.DataFrame:
        return operations[places].select("row", "start", time=run.launches["time"].gather(run.launch_of[places]))

    in_stream = np.flatnonzero(is_launched & np.append(is_nccl, False)[former])
    nccl_before = operations[former[in_stream]]
    since = pl.max_horizontal(launched(in_stream)["time"], nccl_before["start"])
    of_streams = nccl_before.select("row", "start", "end", since=since)
    by_event = np.flatnonzero(is_launched & operations["row"].is_in(awaited["row"].unique().implode()).to_numpy())
    kernels = launched(by_event).with_columns(former_end=np.append(operations["end"].to_numpy(), 0)[former[by_event]])
    of_events = awaited.join(kernels, on=_KERNEL, how="inner").select(
        row="awaited_row",
        start="awaited_start",
        end="until",
        # Before that it waited for what was before it in its own stream.
        since=pl.max_horizontal("time", "awaited_start", "former_end"),
    )
    # All waits for a kernel end with it: the one that began first has the others in it.
    waits = pl.concat([of_streams, of_events]).filter(pl.col("since") < pl.col("end"))
    first = waits.group_by(_KERNEL).agg(pl.col("end").first(), pl.col("since").min())
    hidden = _computing(run, first.select("row", "end", start="since"))
    return first.select(*_KERNEL, hidden_wait=hidden)
