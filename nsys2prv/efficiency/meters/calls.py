"""Calls of hosts and memory operations: how many, how long, how large."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import ON_DEVICES, ON_HOSTS
from nsys2prv.efficiency.sweep import CAUSES, SweepContext, TimeChunk, call_categories
from nsys2prv.execution.merging import Sums
from nsys2prv.vocabulary import event_types

SIZE_CLASSES = (0, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 30)
"""Smallest size of each class of memory operations, bytes."""

_OS_KINDS = {event_types.IO_CALL: "io", event_types.PTHREAD_CALL: "threads", event_types.OS_CALL: "other"}
_CALL_TYPES = [event_types.CUDA_CALL, *event_types.MPI_TYPES.values(), *_OS_KINDS]
_CALL = ["number", "value", "task"]
_CALL_SCHEMA: dict[str, type[pl.DataType]] = {
    **{name: ON_HOSTS.schema[name] for name in ("number", "value")},
    **dict.fromkeys(("task", "count", "total", "shortest", "longest", "size"), pl.Int64),
}
_OPERATION = ["value", "source", "destination", "of_class"]
_OPERATION_SCHEMA: dict[str, type[pl.DataType]] = {
    **{name: ON_DEVICES.schema[name] for name in ("value", "source", "destination")},
    **dict.fromkeys(("of_class", "count", "bytes", "total_ns"), pl.Int64),
}

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
    order=650,
    page=OnPage("memory", worst_first="total_ns"),
    console=OnConsole(("operation", ("source", "from"), ("destination", "to"), ("from_bytes", "sizes from"), "count",
        ("bytes", "sum"), "total_ns", "bandwidth"), spare=("destination", "count", "bytes")),
)  # fmt: skip
CUDA_CALLS = Table(
    "cuda_calls",
    "CUDA API calls",
    "one call",
    (
        Column.text("call", "name"),
        Column.text("category", f"one of {', '.join(f'`{cause}`' for cause in CAUSES[:5])}"),
        Column.count("count", "calls"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("min_ns", "shortest"),
        Column.ns("max_ns", "longest"),
    ),
    when="CUDA API calls",
    order=660,
    page=OnPage("gaps"),
    console=OnConsole((("call", "CUDA call"), "count", "total_ns", "mean_ns", ("max_ns", "longest")), place=70),
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
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("min_ns", "shortest"),
        Column.ns("max_ns", "longest"),
        Column.bytes("bytes", "sum of sizes that the calls report; null where none does"),
        Column.count("tasks", "tasks that call it"),
        Column.mean_ns("average_task_ns", "mean over these tasks of their sum"),
        Column.ns("maximum_task_ns", "largest sum of a task"),
        Column.text("maximum_task", "that task"),
    ),
    when="MPI calls",
    page=OnPage("communication", columns=("call", "count", "total_ns", "share", "mean_ns", "max_ns", "bytes", "maximum_task_ns",
        "maximum_task")),
    console=OnConsole((("call", "MPI call"), "count", "total_ns", "mean_ns", ("max_ns", "longest")), place=70),
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
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("min_ns", "shortest"),
        Column.ns("max_ns", "longest"),
        Column.count("tasks", "tasks that call it"),
        Column.ns("maximum_task_ns", "largest sum of a task"),
        Column.text("maximum_task", "that task"),
    ),
    when="calls of the OS runtime (`nsys profile --trace=osrt`)",
    page=OnPage("gaps"),
    console=OnConsole((("call", "OS call"), "kind", "count", "total_ns", "mean_ns", ("max_ns", "longest")), place=70,
        of_hosts=True),
    is_later=True,
)  # fmt: skip


class Calls(TableMeter):
    """CUDA API calls, MPI calls and calls of the OS runtime, of all tasks."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        # The size is null where no call reports one.
        self._calls = Sums(_CALL_SCHEMA, _CALL, smallest=["shortest"], largest=["longest"])

    def update(self, chunk: TimeChunk) -> None:
        calls = chunk.started[ON_HOSTS.name].filter(pl.col("number").is_in(_CALL_TYPES))
        length = pl.col("end") - pl.col("start")
        each = self._context.events.rows.located(calls)
        self._calls.add(each.with_columns(count=pl.lit(1), total=length, shortest=length, longest=length))

    def tables(self) -> Filled:
        """The tables `cuda_calls`, `mpi_calls` and `os_calls`."""
        whole = self._calls.rows
        if whole.is_empty():
            return {}
        events = self._context.events
        by_task = whole.group_by("number", "value").agg(
            tasks=pl.len(),
            average_task_ns=pl.col("total").mean(),
            maximum_task_ns=pl.col("total").max(),
            maximum_task=pl.col("task").sort_by("total", "task", descending=[True, False]).first(),
        )
        by_call = self._calls.by(["number", "value"]).join(by_task, on=["number", "value"])
        by_call = by_call.with_columns(events.named(by_call["number"], by_call["value"]).alias("call"))
        by_call = by_call.sort("total", "call", descending=[True, False]).with_columns(
            total_ns="total", mean_ns=pl.col("total") / pl.col("count"), min_ns="shortest", max_ns="longest"
        )
        is_cuda, is_mpi = pl.col("number") == event_types.CUDA_CALL, pl.col("number").is_in(event_types.MPI_TYPES.values())
        of_cuda, of_mpi = by_call.filter(is_cuda), by_call.filter(is_mpi)
        of_os = by_call.filter(pl.col("number").is_in(list(_OS_KINDS)))
        categories = pl.Series([CAUSES[place] for place in call_categories(of_cuda["call"])], dtype=pl.String)
        tasks_with_mpi = whole.filter(is_mpi)["task"].n_unique()
        largest = self._context.task_names(pl.col("maximum_task"))
        return {
            CUDA_CALLS: of_cuda.with_columns(category=categories),
            MPI_CALLS: of_mpi.with_columns(
                share=pl.col("total") / (events.length * max(tasks_with_mpi, 1)),
                bytes="size",
                maximum_task=largest,
            ),
            OS_CALLS: of_os.with_columns(
                kind=pl.col("number").replace_strict(_OS_KINDS, return_dtype=pl.String), maximum_task=largest
            ),
        }


class MemoryOperations(TableMeter):
    """Copies and memsets by kind, by kinds of memory and by size."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._operations = Sums(_OPERATION_SCHEMA, _OPERATION)

    def update(self, chunk: TimeChunk) -> None:
        started = chunk.started[ON_DEVICES.name].filter(pl.col("number") == event_types.MEMORY_OPERATION)
        if started.is_empty():
            return
        size = started["size"].fill_null(0)
        of_class = pl.Series(np.searchsorted(SIZE_CLASSES, size.to_numpy(), side="right") - 1)
        total = pl.col("end") - pl.col("start")
        self._operations.add(started.with_columns(of_class=of_class, count=pl.lit(1), bytes=size, total_ns=total))

    def tables(self) -> Filled:
        """The table `memory_operations`."""
        whole = self._operations.rows
        if whole.is_empty():
            return {}
        events = self._context.events
        edges = pl.Series([*SIZE_CLASSES, None], dtype=pl.Int64)
        numbers = {
            "value": event_types.MEMORY_OPERATION,
            "source": event_types.SOURCE_MEMORY,
            "destination": event_types.DESTINATION_MEMORY,
        }
        names = {
            name: events.named(pl.repeat(number, whole.height, eager=True), whole[name]) for name, number in numbers.items()
        }
        operations = whole.select(
            "count",
            "bytes",
            "total_ns",
            operation=names["value"],
            source=names["source"],
            destination=names["destination"],
            from_bytes=pl.lit(edges).gather("of_class"),
            to_bytes=pl.lit(edges).gather(pl.col("of_class") + 1),
            mean_ns=pl.col("total_ns") / pl.col("count"),
            bandwidth=pl.when(pl.col("total_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("total_ns")),
        )
        order = ["total_ns", "operation", "source", "destination", "from_bytes"]
        return {MEMORY_OPERATIONS: operations.sort(order, descending=[True, *[False] * 4], nulls_last=True)}
