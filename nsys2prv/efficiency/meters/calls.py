"""Calls of hosts and memory operations: how many, how long, how large."""

import numpy as np
import polars as pl

from nsys2prv.efficiency.measured_run import CAUSES, MeasuredRun, call_categories
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.result_tables import Column, OnConsole, OnPage, Table
from nsys2prv.vocabulary import event_types

SIZE_CLASSES = (0, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 30)
"""Smallest size of each class of memory operations, bytes."""

_OS_KINDS = {event_types.IO_CALL: "io", event_types.PTHREAD_CALL: "threads", event_types.OS_CALL: "other"}
_CALL = ["number", "value"]

MEMORY_OPERATIONS = Table(
    "memory_operations",
    "Memory operations by kind, memory and size",
    "one kind of operation, kinds of memory, and class of sizes",
    (
        Column.text("operation", "kind of copy, or memset"),
        Column.text("source", "kind of memory it reads; null when not known"),
        Column.text("destination", "kind of memory it writes; null when not known"),
        Column.bytes("from_bytes", "sizes from here"),
        Column.bytes("to_bytes", "to below here; null for the last class"),
        Column.count("count", "operations"),
        Column.bytes("bytes", "sum of sizes"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.rate("bandwidth", "bytes / sum of durations"),
    ),
    when="copies or memsets",
    page=OnPage("memory", worst_first="total_ns"),
    console=OnConsole(("operation", ("source", "from"), ("destination", "to"), ("from_bytes", "sizes from"), "count",
        ("bytes", "sum"), "total_ns", "bandwidth"), spare=("destination", "count", "bytes")),
)  # fmt: skip
_DURATIONS = (Column.mean_ns("mean_ns", "mean duration"), Column.ns("min_ns", "shortest"), Column.ns("max_ns", "longest"))
_LARGEST = (Column.ns("maximum_task_ns", "largest sum of a task"), Column.text("maximum_task", "that task"))
CUDA_CALLS = Table(
    "cuda_calls",
    "CUDA API calls",
    "one call",
    (
        Column.text("call", "name"),
        Column.text("category", f"one of {', '.join(f'`{cause}`' for cause in CAUSES[:5])}"),
        Column.count("count", "calls"),
        Column.ns("total_ns", "sum of durations"),
        *_DURATIONS,
    ),
    when="CUDA API calls",
    page=OnPage("gaps"),
    console=OnConsole((("call", "CUDA call"), "count", "total_ns", "mean_ns", ("max_ns", "longest"))),
)
MPI_CALLS = Table(
    "mpi_calls",
    "MPI calls",
    "one call",
    (
        Column.text("call", "name"),
        Column.count("count", "calls"),
        Column.ns("total_ns", "sum of durations"),
        Column.share("share", "of the time of all tasks that call MPI"),
        *_DURATIONS,
        Column.bytes("bytes", "sum of sizes that the calls report; null where none does"),
        Column.count("tasks", "tasks that call it"),
        Column.mean_ns("average_task_ns", "mean over these tasks of their sum"),
        *_LARGEST,
    ),
    when="MPI calls",
    page=OnPage("communication", columns=("call", "count", "total_ns", "share", "mean_ns", "max_ns", "bytes", "maximum_task_ns",
        "maximum_task")),
    console=OnConsole((("call", "MPI call"), "count", "total_ns", "mean_ns", ("max_ns", "longest"))),
)  # fmt: skip
OS_CALLS = Table(
    "os_calls",
    "OS runtime calls",
    "one call",
    (
        Column.text("call", "name"),
        Column.text("kind", "`io` (files and sockets), `threads` (pthreads) or `other`"),
        Column.count("count", "calls"),
        Column.ns("total_ns", "sum of durations; calls of several threads may run at once"),
        *_DURATIONS,
        Column.count("tasks", "tasks that call it"),
        *_LARGEST,
    ),
    when="calls of the OS runtime (`nsys profile --trace=osrt`)",
    page=OnPage("gaps"),
    console=OnConsole((("call", "OS call"), "kind", "count", "total_ns", "mean_ns", ("max_ns", "longest")),
        of_hosts=True),
)  # fmt: skip


def host_calls(run: MeasuredRun) -> Measurement:
    """The tables `cuda_calls`, `mpi_calls` and `os_calls`."""
    length, sizes = pl.col("end") - pl.col("start"), pl.col("bytes")
    # Null where no call reports one.
    total_size = pl.when(sizes.count() > 0).then(sizes.sum())
    of_rows = run.calls.rename({"size": "bytes"}).group_by(*_CALL, "row").agg(
        total_size, count=pl.len(), total_ns=length.sum(), min_ns=length.min(), max_ns=length.max()
    )  # fmt: skip
    sums = (pl.col("count", "total_ns").sum(), pl.col("min_ns").min(), pl.col("max_ns").max(), total_size)
    by_task = run.events.rows.located(of_rows).group_by(*_CALL, "task").agg(sums)
    total = pl.col("total_ns")
    by_call = by_task.group_by(_CALL).agg(
        *sums,
        tasks=pl.len(),
        average_task_ns=total.mean(),
        maximum_task_ns=total.max(),
        maximum_task=pl.col("task").sort_by(total, "task", descending=[True, False]).first(),
    )
    by_call = by_call.with_columns(
        call=run.events.named(by_call["number"], by_call["value"]),
        mean_ns=total / pl.col("count"),
        maximum_task=run.task_names(pl.col("maximum_task")),
    ).sort("total_ns", "call", descending=[True, False])
    is_mpi = pl.col("number").is_in(event_types.MPI_TYPES.values())
    of_cuda = by_call.filter(pl.col("number") == event_types.CUDA_CALL)
    categories = pl.Series([CAUSES[place] for place in call_categories(of_cuda["call"])], dtype=pl.String)
    time_of_tasks = run.events.length * max(by_task.filter(is_mpi)["task"].n_unique(), 1)
    kind = pl.col("number").replace_strict(_OS_KINDS, default=None, return_dtype=pl.String)
    tables = {
        CUDA_CALLS: of_cuda.with_columns(category=categories),
        MPI_CALLS: by_call.filter(is_mpi).with_columns(share=total / time_of_tasks),
        OS_CALLS: by_call.with_columns(kind=kind).drop_nulls("kind"),
    }
    return Measurement(tables=tables)


def memory_operations(run: MeasuredRun) -> Measurement:
    """The table `memory_operations`."""
    operations = run.operations.filter(pl.col("number") == event_types.MEMORY_OPERATION)
    size, total = pl.col("size").fill_null(0), pl.col("total_ns")
    of_class = pl.Series(np.searchsorted(SIZE_CLASSES, operations.select(size).to_series().to_numpy(), side="right") - 1)
    by_class = operations.group_by("source", "destination", operation="value", of_class=of_class)
    sums = by_class.agg(count=pl.len(), bytes=size.sum(), total_ns=(pl.col("end") - pl.col("start")).sum())
    names = run.events.names_of(
        sums,
        operation=event_types.MEMORY_OPERATION,
        source=event_types.SOURCE_MEMORY,
        destination=event_types.DESTINATION_MEMORY,
    )
    edges = pl.lit(pl.Series([*SIZE_CLASSES, None], dtype=pl.Int64))
    table = sums.with_columns(
        *names,
        from_bytes=edges.gather("of_class"),
        to_bytes=edges.gather(pl.col("of_class") + 1),
        mean_ns=total / pl.col("count"),
        bandwidth=pl.when(total > 0).then(pl.col("bytes") * 1e9 / total),
    )
    order = ["total_ns", "operation", "source", "destination", "from_bytes"]
    return Measurement(tables={MEMORY_OPERATIONS: table.sort(order, descending=[True, *[False] * 4], nulls_last=True)})
