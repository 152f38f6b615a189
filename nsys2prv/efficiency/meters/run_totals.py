"""Times over the whole run, in its parts and in bins: trees, times of devices, tasks and host threads, and how much
communication overlaps with computation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import (
    ALL_MASKS,
    SlotWindows,
    Trees,
    active_time,
    time_where,
    times_in_windows,
    useful_time,
)
from nsys2prv.efficiency.intervals import Numbers, Segments, time_by
from nsys2prv.efficiency.measured_run import ACTIVITIES, CAUSES, CUDA_ACTIVITIES, KERNEL, MASKS, MEMORY, NCCL, MeasuredRun
from nsys2prv.efficiency.meter import MeasuredTables, Measurement
from nsys2prv.efficiency.metrics import TREE_COLUMNS, TREE_COLUMNS_OF_RUN
from nsys2prv.efficiency.result_tables import DEVICE, NCCL_POLICY, SPREAD, Column, Filled, Table
from nsys2prv.efficiency.run_events import STREAM

RUN = Table("run", "The run", "the run (one row)", TREE_COLUMNS_OF_RUN, by_nccl_policy=True)

NODES = Table("nodes", "Nodes", "one node", (Column.text("node", "host name"), *TREE_COLUMNS), by_nccl_policy=True)

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
)

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
)

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
)

OVERLAP = Table(
    "overlap",
    "Overlap of communication and computation",
    "one task and number of kernels at once",
    (
        Column.text("task", "name of the task"),
        Column.count("kernels", "kernels that ran at once, the NCCL kernel among them: 1 is no overlap"),
        Column.ns("time_ns", "for how long, while at least one NCCL kernel ran"),
        Column.share("of_communication", "share of the time in which NCCL kernels ran"),
        Column.share("of_trace", "share of the window"),
    ),
    when="NCCL kernels",
)
_SHARES = tuple(replace(column, unit="0 to 1") for column in SPREAD)

OVERLAP_SUMMARY = Table(
    "overlap_summary",
    "Overlap of communication and computation over tasks",
    "one number of kernels at once, and one base",
    (Column.count("kernels", "kernels that ran at once"), Column.text("base", "`communication` or `trace`"), *_SHARES),
    when="NCCL kernels",
)


BINS = Table(
    "bins",
    "Efficiency over time",
    "one of the bins of equal length of the window",
    (
        Column.count("bin", "0, 1, ..."),
        Column.moment("begin_ns", "from the start of the trace"),
        Column.moment("end_ns", "from the start of the trace"),
        *TREE_COLUMNS,
    ),
    by_nccl_policy=True,
)

DEVICE_BINS = Table(
    "device_bins",
    "Device activity over time",
    "one device in one bin",
    (
        Column.count("bin", "as in `bins`"),
        DEVICE,
        Column.ns("kernels_ns", "kernels other than NCCL's, or graphs, ran"),
        Column.ns("nccl_ns", "of the rest, NCCL kernels ran"),
        Column.ns("memory_ns", "of the rest, copies or memsets ran"),
        Column.ns("idle_ns", "nothing ran"),
    ),
)


WINDOWS = Table(
    "windows",
    "Parts of the run",
    "one part of the run",
    (
        Column.text(
            "window",
            "`whole run` (from the first to the last event of the program), `start-up` (before the first work of any device), "
            "`work of devices`, `shut-down` (after the last), `steady part` (iterations without warm-up), or `chosen window`; "
            "without GPUs, `start-up` is until all processes are out of MPI_Init, `shut-down` from the first MPI_Finalize on, "
            "and `work of processes` between them",
        ),
        Column.moment("begin_ns", "where it begins"),
        Column.moment("end_ns", "where it ends"),
        Column.ns("length_ns", "its length"),
        Column.share("share", "of the whole run"),
        *TREE_COLUMNS,
    ),
    by_nccl_policy=True,
)


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


@dataclass(frozen=True)
class Totals(Measurement):
    """Times over the whole run, by activity.

    Attributes
    ----------
    devices, tasks
        A row per device, and task, with the time for each mask of activity, ns.
    threads
        A row per calling host thread, with the time for each activity; the rest of the run is in no call.
    first, last
        First start and last end of activity of each device, ns; -1: none.
    """

    run: MeasuredRun
    trees: Trees
    devices: Numbers
    tasks: Numbers
    threads: Numbers
    first: Numbers
    last: Numbers

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
        length = self.run.events.length
        windows = np.full(len(callers), length, dtype=np.int64)
        return self.trees.row(length, self.devices[devices], windows, self.threads[callers], callers)

    def _node_rows(self) -> list[dict[str, Any]]:
        rows = self.run.events.rows
        of_callers = np.array([rows.tasks[int(rows.task[row])].node for row in self.run.callers], dtype=object)
        of_devices = np.array([device.node for device in rows.devices], dtype=object)
        return [
            {"node": node, **self._tree(np.flatnonzero(of_devices == node), np.flatnonzero(of_callers == node))}
            for node in dict.fromkeys([*of_devices.tolist(), *of_callers.tolist()])
        ]

    def _device_rows(self) -> pl.DataFrame:
        rows, length = self.run.events.rows, self.run.events.length
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
        useful, active = useful_time(by_mask, self.trees.policy), active_time(by_mask)
        policy = [self.trees.policy.value] * len(by_mask)
        return {NCCL_POLICY.name: policy, "useful_ns": useful, "communication_ns": active - useful, "active_ns": active}

    def _task_rows(self) -> pl.DataFrame:
        rows = self.run.events.rows
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
        rows, callers = self.run.events.rows, self.run.callers
        times = {f"{cause}_ns": self.threads[:, place] for place, cause in enumerate(CAUSES)}
        frame = pl.DataFrame(
            {
                "number": rows.task[callers] + 1,
                "thread": pl.Series([rows.names[row] for row in callers], dtype=pl.String),
                **times,
                "cuda_ns": self.threads[:, list(CUDA_ACTIVITIES)].sum(axis=1),
            }
        )
        useful = self.run.events.length - pl.col("cuda_ns") - pl.col("mpi_ns")
        return frame.with_columns(task=self.run.task_names(pl.col("number") - 1), host_useful_ns=useful)

    def _useful_rows(self) -> pl.DataFrame:
        """Over devices, and over the tasks that use a GPU."""
        gpu_tasks = self.tasks[sorted(self.run.events.rows.devices_of_task)]
        rows: list[dict[str, Any]] = [
            {
                "over": over,
                "nccl": self.trees.policy.value,
                "count": len(values),
                "total_ns": int(values.sum()),
                **{name if name == "avg_max" else f"{name}_ns": value for name, value in spread(values).items()},
            }
            for over, by_mask in (("devices", self.devices), ("tasks", gpu_tasks))
            if len(values := useful_time(by_mask, self.trees.policy))
        ]
        return pl.DataFrame(rows) if rows else USEFUL_TIME.empty


def run_totals(run: MeasuredRun) -> Totals:
    """Times of all devices, tasks and calling threads over the whole window."""
    rows, activity, calls = run.events.rows, run.on_devices, run.on_threads
    first, last = np.full((2, len(rows.devices)), -1, dtype=np.int64)
    busy = activity.where(activity.mask > 0)
    # The last assignment counts.
    first[busy.group[::-1]] = busy.begin[::-1]
    last[busy.group] = busy.end
    return Totals(
        run,
        Trees(run),
        _by_mask(activity, len(rows.devices)),
        _by_mask(run.on_tasks, len(rows.tasks)),
        time_by(calls.first_kind, calls.length, ACTIVITIES, calls.group, len(run.callers)),
        first,
        last,
    )


def _by_mask(activity: Segments, groups: int) -> Numbers:
    return time_by(activity.mask, activity.length, MASKS, activity.group, groups)


class Overlap(MeasuredTables):
    """Time by the number of kernels that run at once while an NCCL kernel runs, per task.

    The number counts the NCCL kernel too, as BSC's views do: 1 is exposed communication.
    """


def kernel_overlap(run: MeasuredRun) -> Overlap:
    """The tables `overlap` and `overlap_summary`."""
    activity = run.on_tasks
    communicates = activity.counts[NCCL] > 0
    if not communicates.any():
        return Overlap({})
    times = pl.DataFrame(
        {
            "task": activity.group[communicates].astype(np.int64),
            "kernels": (activity.counts[KERNEL] + activity.counts[NCCL])[communicates].astype(np.int64),
            "time": activity.length[communicates],
        }
    )
    # Every task has every number: a task that never has it counts with 0 in the average.
    tasks, numbers = (times.select(pl.col(name).unique().sort()) for name in ("task", "kernels"))
    by_task = (
        tasks.join(numbers, how="cross")
        .join(times.group_by("task", "kernels").sum(), on=["task", "kernels"], how="left", maintain_order="left")
        .with_columns(pl.col("time").fill_null(0))
        .with_columns(
            of_communication=pl.col("time") / pl.col("time").sum().over("task"), of_trace=pl.col("time") / run.events.length
        )
    )
    by_number = by_task.partition_by("kernels", as_dict=True).items()
    summary = [
        {"kernels": kernels, "base": base, **spread(of_number[f"of_{base}"].to_numpy())}
        for base in ("communication", "trace")
        for (kernels,), of_number in sorted(by_number)
    ]
    return Overlap(
        {OVERLAP: by_task.with_columns(task=run.task_names(pl.col("task")), time_ns="time"), OVERLAP_SUMMARY: summary}
    )


def spread(values: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Values of the columns SPREAD, as the statistics of Paraver's histograms."""
    largest = float(values.max())
    return {
        "average": float(values.mean()),
        "maximum": largest,
        "minimum": float(values.min()),
        "deviation": float(values.std()),
        "avg_max": float(values.mean()) / largest if largest else None,
    }


@dataclass(frozen=True)
class Bins(MeasuredTables):
    """Times in bins of equal length.

    Attributes
    ----------
    edges
        Start of each bin, and the end of the last, ns.
    """

    edges: Numbers


def time_bins(run: MeasuredRun) -> Bins:
    """The tables `bins` and `device_bins`."""
    length = run.events.length
    # Never more bins than nanoseconds.
    count = max(min(run.options.bins, length), 1)
    edges: Numbers = np.array([length * place // count for place in range(count + 1)], dtype=np.int64)
    of_devices, of_threads = _in_parts(run, edges[:-1], edges[1:])
    trees = Trees(run).of_slots(of_devices, of_threads)
    slots = trees["slot"].to_numpy()
    bins = trees.with_columns(begin_ns=edges[slots], end_ns=edges[slots + 1], bin="slot")
    key = [pl.col(f"key{mask}") for mask in range(MASKS)]
    by_device = of_devices.select(
        bin="slot",
        device=run.device_names(pl.col("group")),
        kernels_ns=pl.sum_horizontal(key[mask] for mask in range(MASKS) if mask & 1 << KERNEL),
        nccl_ns=pl.sum_horizontal(key[mask] for mask in range(MASKS) if mask & 1 << NCCL and not mask & 1 << KERNEL),
        memory_ns=key[1 << MEMORY],
        idle_ns=pl.col("window") - pl.sum_horizontal(key[1:]),
    )
    return Bins({BINS: bins, DEVICE_BINS: by_device}, edges)


class WindowTimes(MeasuredTables):
    """Efficiencies of the whole run, its start-up, its steady part and its shut-down, beside those of the window."""


def window_times(run: MeasuredRun) -> WindowTimes:
    """The table `windows`; parts of the run may be outside of the window."""
    window, offset = run.window, run.events.offset
    (begin, end), parts = window.program, window.parts
    # Times of the recording are not made where those of the window are enough: by default it is the whole program.
    is_inside = all(offset <= first and last <= offset + run.events.length for first, last in parts.values())
    source, start = (run, offset) if is_inside else (run.recorded, 0)
    first, last = np.array(list(parts.values()), dtype=np.int64).T
    trees = Trees(run).of_slots(*_in_parts(source, first - start, last - start))
    table = pl.DataFrame(
        {
            "slot": np.arange(len(parts)),
            "window": list(parts),
            "begin_ns": first - offset,
            "end_ns": last - offset,
            "length_ns": last - first,
            "share": (last - first) / (end - begin),
        }
    )
    return WindowTimes({WINDOWS: table.join(trees, on="slot", how="left", maintain_order="left")})


def _in_parts(run: MeasuredRun, begin: Numbers, end: Numbers) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of all devices, and of all calling threads, in parts of the run: a slot for each."""
    devices, threads = (
        times_in_windows(
            times,
            SlotWindows(
                np.repeat(np.arange(len(begin)), groups),
                np.tile(np.arange(groups), len(begin)),
                np.repeat(begin, groups),
                np.repeat(end, groups),
            ),
        )
        for times, groups in (
            (run.device_times, len(run.events.rows.devices)),
            (run.thread_times, len(run.callers)),
        )
    )
    return devices, threads
