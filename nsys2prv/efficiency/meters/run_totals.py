"""Times over the whole run: trees of the run and of nodes, times of devices, tasks and host threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import ALL_MASKS, Trees, active_time, time_where, useful_time
from nsys2prv.efficiency.intervals import Numbers, Segments, time_by
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.overlap import spread
from nsys2prv.efficiency.metrics import TREE_COLUMNS, TREE_COLUMNS_OF_RUN
from nsys2prv.efficiency.result_tables import DEVICE, EFFICIENCY_COLUMNS, NCCL_POLICY, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.efficiency.sweep import (
    ACTIVITIES,
    CAUSES,
    CUDA_ACTIVITIES,
    KERNEL,
    MASKS,
    MEMORY,
    NCCL,
    SweepContext,
    TimeChunk,
    first_open,
)

RUN = Table("run", "The run", "the run (one row)", TREE_COLUMNS_OF_RUN, by_nccl_policy=True, order=10)

NODES = Table(
    "nodes", "Nodes", "one node", (Column.text("node", "host name"), *TREE_COLUMNS), by_nccl_policy=True,
    order=100,
    page=OnPage("devices-and-hosts", place=1, columns=("node", "devices", EFFICIENCY_COLUMNS),
        worst_first="device_parallel_efficiency", lowest_first=True),
    console=OnConsole(("node", ("devices", "GPUs"), EFFICIENCY_COLUMNS, "host_parallel_efficiency"), place=20),
)  # fmt: skip

DEVICES = Table(
    "devices",
    "Devices",
    "one physical GPU",
    (
        DEVICE,
        Column.text("node", "its node"),
        Column.count("number", "its number on the node"),
        Column.text("tasks", "processes that use it; empty for one that was idle"),
        Column.count(
            "streams", "CUDA streams with rows on it; those with one id of several contexts of a process count as one"
        ),
        NCCL_POLICY,
        Column.ns("elapsed_ns", "E, length of the window"),
        Column.ns("useful_ns", "U"),
        Column.ns("communication_ns", "C"),
        Column.ns("active_ns", "A = U + C"),
        Column.ns("idle_ns", "E - A"),
        Column.share("useful_share", "U / E"),
        Column.share("active_share", "A / E"),
        Column.ns("kernels_ns", "union of kernels other than NCCL's, and of graphs"),
        Column.ns("nccl_ns", "union of NCCL kernels"),
        Column.ns("memory_ns", "union of copies and memsets"),
        Column.ns("nccl_alone_ns", "NCCL kernels ran and no other kernel did: exposed communication"),
        Column.ns("memory_alone_ns", "copies or memsets ran and no kernel did"),
        Column.ns("nccl_covered_ns", "NCCL kernels and others ran at once"),
        Column.ns("memory_covered_ns", "copies or memsets, and kernels, ran at once"),
        Column.moment("first_ns", "when its first activity began; null for none"),
        Column.moment("last_ns", "when its last activity ended; null for none"),
    ),
    by_nccl_policy=True,
    page=OnPage("devices-and-hosts", place=2, columns=("device", "tasks", "useful_ns", "communication_ns", "idle_ns",
        "useful_share", "active_share", "nccl_alone_ns", "memory_alone_ns"), worst_first="useful_ns", lowest_first=True),
    console=OnConsole(("device", "useful_ns", "communication_ns", "idle_ns", "useful_share", "active_share"), place=20),
)  # fmt: skip

TASKS = Table(
    "tasks",
    "Tasks",
    "one process that has rows",
    (
        Column.text("task", "name of the task in the trace"),
        Column.count("number", "1, 2, ... as in the trace"),
        Column.count("rank", "its rank; null when it has none"),
        Column.text("node", "its node"),
        Column.text("devices", "devices that it uses"),
        NCCL_POLICY,
        Column.ns("useful_ns", "time in which at least one useful kernel of the task ran"),
        Column.ns("communication_ns", "time in which data moved for the task and no useful kernel of it ran"),
        Column.ns("active_ns", "both"),
        Column.count("threads", "threads that call CUDA or MPI"),
        Column.ns("host_useful_ns", "sum over these of the time in neither"),
        Column.ns("cuda_ns", "sum of G"),
        Column.ns("mpi_ns", "sum of M"),
        Column.ns("os_ns", "sum of the time in calls of the OS runtime, outside both; part of `host_useful_ns`"),
    ),
    by_nccl_policy=True,
    page=OnPage("devices-and-hosts", columns=("task", "devices", "useful_ns", "communication_ns", "host_useful_ns", "cuda_ns",
        "mpi_ns"), worst_first="useful_ns", lowest_first=True),
    console=OnConsole((("task", "process"), "threads", ("host_useful_ns", "outside of MPI"), ("mpi_ns", "MPI"),
        ("os_ns", "OS calls")), place=10, of_hosts=True),
)  # fmt: skip

USEFUL_TIME = Table(
    "useful",
    "Useful time and load balance",
    "`devices` or `tasks`",
    (
        Column.text("over", "`devices` or `tasks`"),
        NCCL_POLICY,
        Column.count("count", "how many"),
        Column.ns("total_ns", "sum of useful time"),
        Column.mean_ns("average_ns", "mean"),
        Column.ns("maximum_ns", "largest"),
        Column.ns("minimum_ns", "smallest"),
        Column.mean_ns("deviation_ns", "standard deviation of the population"),
        Column.share("avg_max", "average / maximum, which is the load balance"),
    ),
    by_nccl_policy=True,
    page=OnPage("devices-and-hosts", place=3),
)

THREADS = Table(
    "threads",
    "Host threads",
    "one thread, of a process that uses a GPU, that calls CUDA or MPI",
    (
        Column.text("task", "name of its task"),
        Column.text("thread", "name of its row"),
        Column.ns("host_useful_ns", "time in neither CUDA nor MPI calls"),
        Column.ns("cuda_ns", "G"),
        Column.ns("mpi_ns", "M"),
        *(Column.ns(f"{cause}_ns", f"time in calls of the category {cause}") for cause in CAUSES if cause != "mpi"),
    ),
    page=OnPage("devices-and-hosts", cells=8_000),
    console=OnConsole((("task", "process"), "thread", ("host_useful_ns", "outside of MPI"), ("mpi_ns", "MPI"),
        ("os_ns", "OS calls")), place=10, of_hosts=True, longer_than="tasks"),
)  # fmt: skip

TABLES = (RUN, NODES, DEVICES, TASKS, USEFUL_TIME, THREADS)

_HOST_TIMES = ("host_useful_ns", "cuda_ns", "mpi_ns", "os_ns")
_KERNELS, _NCCL, _MEMORY = ((ALL_MASKS & (1 << kind)) > 0 for kind in (KERNEL, NCCL, MEMORY))
_MASKS_OF_COLUMN = {
    "kernels_ns": _KERNELS,
    "nccl_ns": _NCCL,
    "memory_ns": _MEMORY,
    "nccl_alone_ns": _NCCL & ~_KERNELS,
    "memory_alone_ns": _MEMORY & ~_NCCL & ~_KERNELS,
    "nccl_covered_ns": _NCCL & _KERNELS,
    "memory_covered_ns": _MEMORY & (_KERNELS | _NCCL),
}
"""Columns of `devices` that are times in which some kinds of activity run, as masks."""


class Totals(TableMeter):
    """Times over the whole run, by activity.

    Attributes
    ----------
    devices, tasks
        A row per device, and task, with the time for each mask of activity.
    threads
        A row per calling host thread, with the time for each activity; the rest of the run is in no call.
    first, last
        First start and last end of activity of each device; -1: none.
    """

    def __init__(self, context: SweepContext, trees: Trees) -> None:
        self._context = context
        self._trees = trees
        rows = context.events.rows
        self.devices: Numbers = np.zeros((len(rows.devices), MASKS), dtype=np.int64)
        self.tasks: Numbers = np.zeros((len(rows.tasks), MASKS), dtype=np.int64)
        self.threads: Numbers = np.zeros((len(context.callers), ACTIVITIES), dtype=np.int64)
        self.first: Numbers = np.full(len(rows.devices), -1, dtype=np.int64)
        self.last: Numbers = np.full(len(rows.devices), -1, dtype=np.int64)

    def update(self, chunk: TimeChunk) -> None:
        self.devices += _by_mask(chunk.on_devices, len(self.devices))
        self.tasks += _by_mask(chunk.on_tasks, len(self.tasks))
        threads = chunk.on_threads
        self.threads += time_by(first_open(threads), threads.length, ACTIVITIES, threads.group, len(self.threads))
        found = chunk.on_devices
        busy = found.mask > 0
        group = found.group[busy]
        if len(group):
            is_first = np.concatenate([[True], group[1:] != group[:-1]])
            is_last = np.concatenate([is_first[1:], [True]])
            started = group[is_first]
            self.first[started] = np.where(self.first[started] < 0, found.begin[busy][is_first], self.first[started])
            self.last[group[is_last]] = found.end[busy][is_last]

    def tables(self) -> Filled:
        """The tables of the run as a whole."""
        return {
            RUN: [self._tree(np.arange(len(self.devices)), np.arange(len(self.threads)))],
            NODES: self._node_rows(),
            DEVICES: self._device_rows(),
            TASKS: self._task_rows(),
            USEFUL_TIME: self._useful_rows(),
            THREADS: self._thread_rows(),
        }

    def _tree(self, devices: Numbers, callers: Numbers) -> dict[str, Any]:
        length = self._context.events.length
        windows = np.full(len(callers), length, dtype=np.int64)
        return self._trees.row(length, self.devices[devices], windows, self.threads[callers], callers)

    def _node_rows(self) -> list[dict[str, Any]]:
        rows = self._context.events.rows
        of_callers = np.array([rows.tasks[int(rows.task[row])].node for row in self._context.callers], dtype=object)
        of_devices = np.array([device.node for device in rows.devices], dtype=object)
        return [
            {"node": node, **self._tree(np.flatnonzero(of_devices == node), np.flatnonzero(of_callers == node))}
            for node in dict.fromkeys([*of_devices.tolist(), *of_callers.tolist()])
        ]

    def _device_rows(self) -> pl.DataFrame:
        rows, length = self._context.events.rows, self._context.events.length
        users = [rows.tasks_of_device.get(index, ()) for index in range(len(rows.devices))]
        # Lanes are further rows of a stream.
        is_stream = rows.of_kind(STREAM) & (rows.first_of_stream == np.arange(len(rows.names)))
        frame = pl.DataFrame(
            {
                "device": [device.name for device in rows.devices],
                "node": [device.node for device in rows.devices],
                "number": [device.number for device in rows.devices],
                "tasks": ["; ".join(rows.tasks[task].name for task in tasks) for tasks in users],
                "streams": np.bincount(rows.device[is_stream], minlength=len(rows.devices)),
                **self._activity(self.devices),
                **{name: time_where(self.devices, masks) for name, masks in _MASKS_OF_COLUMN.items()},
                "first_ns": self.first,
                "last_ns": self.last,
            }
        )
        return frame.with_columns(
            pl.col("first_ns", "last_ns").replace(-1, None),
            elapsed_ns=pl.lit(length),
            idle_ns=length - pl.col("active_ns"),
            useful_share=pl.col("useful_ns") / length,
            active_share=pl.col("active_ns") / length,
        )

    def _activity(self, by_mask: Numbers) -> dict[str, Any]:
        """Columns of times by mask, for the policy of NCCL kernels."""
        useful, active = useful_time(by_mask, self._trees.policy), active_time(by_mask)
        policy = [self._trees.policy.value] * len(by_mask)
        return {NCCL_POLICY.name: policy, "useful_ns": useful, "communication_ns": active - useful, "active_ns": active}

    def _task_rows(self) -> pl.DataFrame:
        rows = self._context.events.rows
        used = [rows.devices_of_task.get(index, ()) for index in range(len(rows.tasks))]
        of_tasks = pl.DataFrame(
            {
                "task": [task.name for task in rows.tasks],
                "number": range(1, len(rows.tasks) + 1),
                "rank": pl.Series([task.rank for task in rows.tasks], dtype=pl.Int64),
                "node": [task.node for task in rows.tasks],
                "devices": ["; ".join(rows.devices[device].name for device in devices) for devices in used],
                **self._activity(self.tasks),
            }
        )
        is_process = pl.Series([not task.is_node for task in rows.tasks], dtype=pl.Boolean)
        sums = self._thread_rows().group_by("number").agg(pl.col(pl.Int64).sum(), threads=pl.len())
        joined = of_tasks.filter(is_process).join(sums, on="number", how="left", maintain_order="left")
        return joined.with_columns(pl.col("threads", *_HOST_TIMES).fill_null(0))

    def _thread_rows(self) -> pl.DataFrame:
        """Columns of the table `threads`, and `number` of the task."""
        rows, callers = self._context.events.rows, self._context.callers
        times = {f"{cause}_ns": self.threads[:, place] for place, cause in enumerate(CAUSES)}
        frame = pl.DataFrame(
            {
                "number": rows.task[callers] + 1,
                "thread": pl.Series([rows.names[row] for row in callers], dtype=pl.String),
                **times,
                "cuda_ns": self.threads[:, list(CUDA_ACTIVITIES)].sum(axis=1),
            }
        )
        useful = self._context.events.length - pl.col("cuda_ns") - pl.col("mpi_ns")
        return frame.with_columns(task=self._context.task_names(pl.col("number") - 1), host_useful_ns=useful)

    def _useful_rows(self) -> pl.DataFrame:
        """Over devices, and over the tasks that use a GPU."""
        gpu_tasks = self.tasks[sorted(self._context.events.rows.devices_of_task)]
        rows: list[dict[str, Any]] = [
            {
                "over": over,
                "nccl": self._trees.policy.value,
                "count": len(values),
                "total_ns": int(values.sum()),
                **{name if name == "avg_max" else f"{name}_ns": value for name, value in spread(values).items()},
            }
            for over, by_mask in (("devices", self.devices), ("tasks", gpu_tasks))
            if len(values := useful_time(by_mask, self._trees.policy))
        ]
        return pl.DataFrame(rows) if rows else USEFUL_TIME.empty


def _by_mask(found: Segments, groups: int) -> Numbers:
    return time_by(found.mask, found.length, MASKS, found.group, groups)
