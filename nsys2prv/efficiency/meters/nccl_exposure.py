"""NCCL kernels by communicator and operation: whether the device computes meanwhile, and whether computing waits for them.

These are two questions: docs/efficiency.md ("Exposed and blocking")."""

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import EventEdges, launches_of
from nsys2prv.efficiency.intervals import NONE, time_where
from nsys2prv.efficiency.measured_run import KERNEL, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.absent_time import COMPUTE_TYPES, AbsentTime
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.result_tables import Column, OnConsole, OnPage, Table
from nsys2prv.vocabulary import event_types

INSIDE_A_NODE, OVER_NODES = "inside a node", "over nodes"

NCCL_EXPOSURE = Table(
    "nccl_exposure",
    "NCCL: exposed and blocking",
    "one operation of one communicator",
    (
        Column.text("communicator", "name; null when not known: then kernels of several ones can be together"),
        Column.text("operation", "AllReduce, AllGather, ..."),
        Column.text("placement", f"`{INSIDE_A_NODE}` or `{OVER_NODES}`: where its members are; null when not all are known"),
        Column.count("members", "devices of the run with such kernels"),
        Column.count("nodes", "their nodes"),
        Column.count("ranks", "ranks of the communicator; null when not known"),
        Column.count("count", "kernels"),
        Column.bytes("bytes", "sum of message sizes; null when one is not known"),
        Column.ns("total_ns", "sum of durations, including waits for others"),
        Column.ns("exposed_ns", "of it, no compute kernel runs on the device"),
        Column.ns("overlapped_ns", "of it, compute kernels run on the device: the rest"),
        Column.ns("blocking_ns", "no compute kernel runs, and the next one was launched and waits for such a kernel"),
        Column.ns("late_rank_ns", "of it, another rank had surely not arrived yet"),
        Column.ns("not_blocking_ns", "of `exposed_ns`: no launched compute kernel of the device waits for it"),
        Column.ns("overlapped_blocking_ns", "of `overlapped_ns`: another compute kernel was launched and waits for it"),
    ),
    when="NCCL kernels",
    page=OnPage("communication", worst_first="exposed_ns"),
    console=OnConsole((("operation", "NCCL"), "communicator", ("placement", "members"), "total_ns", "exposed_ns", "blocking_ns",
        ("not_blocking_ns", "exposed, not blocking"), ("overlapped_blocking_ns", "blocking, not exposed")),
        spare=("overlapped_blocking_ns", "placement", "blocking_ns")),
)  # fmt: skip

_KERNEL = ["row", "start"]
_BLOCKING = ["hidden_wait", "blocking", "late_rank", "own_blocking"]


@dataclass(frozen=True)
class NcclExposure(Measurement):
    """Which NCCL kernels are exposed, and which of them block. `kernels` are all of them: `row`, `start`, `end`, `task`,
    `device`, `communicator` and its name, `operation`, `ranks`, `size`, `placement`, and of their time (ns) what is `exposed`,
    `blocking` (of it before a late rank arrived: `late_rank`, and on its own device: `own_blocking`), and hidden and waited for
    (`hidden_wait`)."""

    kernels: pl.DataFrame


def measure_nccl_exposure(run: MeasuredRun) -> NcclExposure:
    """Which NCCL kernels are exposed, and which of them block."""
    kernels, absent = run.measured(Nccl).kernels, run.measured(AbsentTime)
    if kernels.is_empty():
        return NcclExposure(kernels)
    rows, length = run.events.rows, pl.col("end") - pl.col("begin")
    device_of_kernel = pl.lit(pl.Series(rows.device)).gather(pl.col("row"))
    waits = absent.waits_for_nccl.with_columns(is_own=pl.col("device") == device_of_kernel)
    blocking = waits.group_by(_KERNEL).agg(
        blocking=length.sum(),
        late_rank=length.filter(pl.col("part") == "late_rank").sum(),
        own_blocking=length.filter("is_own").sum(),
    )
    exposed = (kernels["end"] - kernels["start"]) - _computing(run, kernels)
    for columns in (_hidden_waits(run), blocking):
        kernels = kernels.join(columns, on=_KERNEL, how="left", maintain_order="left")
    # Of several kernels that a row starts at once, one has what waits for all of them.
    of_first = pl.when(pl.struct(_KERNEL).is_first_distinct()).then(pl.col(_BLOCKING)).fill_null(0)
    nodes = pl.lit(pl.Series([task.node for task in rows.tasks], dtype=pl.String))
    kernels = kernels.with_columns(of_first, exposed=exposed, node=nodes.gather("task"))
    members, ranks = pl.struct("task", "device").n_unique(), pl.col("ranks").max()
    is_named, several = pl.col("communicator").is_not_null(), pl.col("node").n_unique() > 1
    where = pl.when(several).then(pl.lit(OVER_NODES)).when(members >= ranks).then(pl.lit(INSIDE_A_NODE))
    kernels = kernels.with_columns(placement=pl.when(is_named).then(where.over("communicator", "operation")))
    of_exposed, total = pl.col("exposed").sum(), (pl.col("end") - pl.col("start")).sum()
    by_operation = kernels.group_by("communicator", "communicator_name", "operation").agg(
        pl.col("placement").first(),
        members=members,
        nodes=pl.col("node").n_unique(),
        ranks=ranks,
        count=pl.len(),
        bytes=pl.when(pl.col("size").is_not_null().all()).then(pl.col("size").sum()),
        total_ns=total,
        exposed_ns=of_exposed,
        overlapped_ns=total - of_exposed,
        blocking_ns=pl.col("blocking").sum(),
        late_rank_ns=pl.col("late_rank").sum(),
        not_blocking_ns=of_exposed - pl.col("own_blocking").sum(),
        overlapped_blocking_ns=pl.col("hidden_wait").sum(),
    )
    by_operation = by_operation.sort("total_ns", "communicator", "operation", descending=[True, False, False], nulls_last=True)
    return NcclExposure(kernels, tables={NCCL_EXPOSURE: by_operation.with_columns(communicator="communicator_name")})


def _computing(run: MeasuredRun, times: pl.DataFrame) -> pl.Series:
    """Time in which the device of each row computes from `start` to `end`, ns."""
    device = run.events.rows.device[times["row"].to_numpy()]
    is_computing = run.on_devices.counts[KERNEL] > 0
    return pl.Series(time_where(run.on_devices, is_computing, (device, times["start"], times["end"])))


def _hidden_waits(run: MeasuredRun) -> pl.DataFrame:
    """For NCCL kernels (`row`, `start`) that compute kernels waited for: `hidden_wait`, the time of these waits in which the
    device of the NCCL kernel computes, ns."""
    former = pl.col("number", "start", "end").shift(1).over("row").name.prefix("former_")
    operations = run.operations.select("row", "start", "end", "number", former, launches_of(run)["launched"])
    launched = operations.filter(pl.col("number").is_in(COMPUTE_TYPES), pl.col("launched") != NONE)
    in_stream = launched.filter(pl.col("former_number") == event_types.NCCL_KERNEL).select(
        "row", start="former_start", end="former_end", since=pl.max_horizontal("launched", "former_start")
    )
    nccl = operations.filter(pl.col("number") == event_types.NCCL_KERNEL)
    nccl = nccl.select(awaited_row="row", awaited_start="start", awaited_end="end")
    awaited = run.measured(EventEdges).on_streams.select(pl.col("row", "awaited_row").cast(pl.Int32), "start", "awaited_start")
    by_event = awaited.join(nccl, on=["awaited_row", "awaited_start"]).join(launched, on=_KERNEL)
    by_event = by_event.select(
        row="awaited_row",
        start="awaited_start",
        end="awaited_end",
        # Before that it waited for what was before it in its own stream.
        since=pl.max_horizontal("launched", "awaited_start", "former_end"),
    )
    # All waits for a kernel end with it: the one that began first has the others in it.
    waits = pl.concat([in_stream, by_event]).filter(pl.col("since") < pl.col("end"))
    first = waits.group_by(_KERNEL).agg(pl.col("end").first(), pl.col("since").min())
    return first.select(*_KERNEL, hidden_wait=_computing(run, first.select("row", "end", start="since")))
