"""Every table of efficiency numbers with its columns: JSON, CSV, documentation and tests follow from TABLES.

The version counts up when a column or a table goes away or means something else; a new one does not change it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

FORMAT = "nsys2prv-efficiency"
VERSION = 1

COMPARISON_FORMAT = "nsys2prv-comparison"
COMPARISON_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column: name, type, unit ("" for texts and plain numbers), and what stands in it. Any value may be null where the
    meaning says so."""

    name: str
    dtype: type[pl.DataType]
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes
    ----------
    name, title
        For programs and for people.
    rows
        What a row is.
    columns
        Its columns, in order.
    when
        What must be there, or asked for, that it has rows; "" for always.
    by_reading
        Whether the numbers depend on how NCCL kernels are read. Its column `nccl` tells.
    """

    name: str
    title: str
    rows: str
    columns: tuple[Column, ...]
    when: str = ""
    by_reading: bool = False

    @property
    def schema(self) -> dict[str, type[pl.DataType]]:
        """Names and types of the columns."""
        return {column.name: column.dtype for column in self.columns}

    @property
    def empty(self) -> pl.DataFrame:
        """The table without rows."""
        return pl.DataFrame(schema=self.schema)


def _text(name: str, meaning: str) -> Column:
    return Column(name, pl.String, "", meaning)


def _count(name: str, meaning: str) -> Column:
    return Column(name, pl.Int64, "", meaning)


def _ns(name: str, meaning: str) -> Column:
    return Column(name, pl.Int64, "ns", meaning)


def _mean_ns(name: str, meaning: str) -> Column:
    return Column(name, pl.Float64, "ns", meaning)


def _bytes(name: str, meaning: str) -> Column:
    return Column(name, pl.Int64, "bytes", meaning)


def _rate(name: str, meaning: str) -> Column:
    return Column(name, pl.Float64, "bytes/s", meaning)


def _share(name: str, meaning: str) -> Column:
    return Column(name, pl.Float64, "0 to 1", meaning)


def _number(name: str, meaning: str) -> Column:
    return Column(name, pl.Float64, "", meaning)


_READING = _text("nccl", "`communication` (BSC) or `useful` (TALP): what NCCL kernels count as here")
_DEVICE = _text("device", "physical GPU: its node and its number there, `node01:D0`")

DEVICE_TREE = (
    _READING,
    _count("devices", "n, physical GPUs, also those that were idle throughout"),
    _ns("elapsed_ns", "E, length of the window"),
    _ns("useful_ns", "sum over devices of U, the time in which at least one useful kernel ran"),
    _ns("communication_ns", "sum over devices of C, the time in which data moved and no useful kernel ran"),
    _ns("active_ns", "sum over devices of A = U + C"),
    _ns("max_useful_ns", "largest U of a device"),
    _ns("max_active_ns", "largest A of a device"),
    _share("device_parallel_efficiency", "sum U / (E n); the product of the next three"),
    _share("load_balance", "sum U / (n max U); null without useful time"),
    _share("communication_efficiency", "max U / max A; null without activity"),
    _share("orchestration_efficiency", "max A / E"),
)
"""The tree of the devices, in one row."""

HOST_TREE = (
    _count("processes", "processes that use a GPU"),
    _count("threads", "their threads that call CUDA or MPI"),
    _ns("host_useful_ns", "sum over these threads of the time in neither CUDA nor MPI calls"),
    _ns("cuda_ns", "sum of G, the time in CUDA API calls"),
    _ns("mpi_ns", "sum of M, the time in MPI calls, outside CUDA API calls"),
    _mean_ns("min_mpi_ns", "smallest M of a process (mean over its threads)"),
    _share("host_parallel_efficiency", "sum U / sum (U + M + G); the product of MPI parallel and device offload efficiency"),
    _share("mpi_parallel_efficiency", "(E - mean M) / E; the product of the next two; null without MPI"),
    _share("mpi_load_balance", "(E - mean M) / (E - min M); null without MPI"),
    _share("mpi_communication_efficiency", "(E - min M) / E; null without MPI"),
    _share("device_offload_efficiency", "sum U / sum (U + G)"),
)
"""The tree of the hosts, in one row."""

_SPREAD = (
    _number("average", "mean over tasks"),
    _number("maximum", "largest"),
    _number("minimum", "smallest"),
    _number("deviation", "standard deviation of the population"),
    _number("avg_max", "average / maximum; 1 is balanced"),
)

CAUSES = ("launch", "synchronization", "memory", "allocation", "other_cuda", "mpi", "os")
"""What a host thread does: the categories of its calls, the first that is open counts."""
_CAUSES = (
    _ns("launch_ns", "of that, the launching thread was in calls that launch"),
    _ns("synchronization_ns", "in calls that wait for the device"),
    _ns("memory_ns", "in copies and memsets"),
    _ns("allocation_ns", "in calls that allocate or free memory"),
    _ns("other_cuda_ns", "in other CUDA calls"),
    _ns("mpi_ns", "in MPI calls"),
    _ns("os_ns", "in calls of the OS runtime (as far as they were recorded)"),
    _ns("host_ns", "in none of these: the thread computed, or was not on a CPU"),
    _ns("unknown_ns", "the launching thread is not known"),
)

TABLES: tuple[Table, ...] = (
    Table("run", "The run", "the run (one row)", DEVICE_TREE + HOST_TREE, by_reading=True),
    Table(
        "tree",
        "The trees of the devices and of the hosts",
        "one efficiency",
        (
            _READING,
            _text("tree", "`device` or `host`"),
            _text("metric", "name of the column of `run`"),
            _text("title", "name for people"),
            _text("parent", "the metric whose factor it is; null for the root"),
            _count("level", "0 for the root"),
            _share("value", "the efficiency; null where it has no meaning"),
            _text("formula", "how it is computed"),
            _text("reads_as", "what is lost where it is low"),
        ),
        by_reading=True,
    ),
    Table(
        "findings",
        "Findings, most costly first",
        "one thing that costs time; there is none where nothing is wrong that can be told",
        (
            _count("place", "1 for the most costly"),
            _text("kind", "which rule: the names of docs/efficiency.md"),
            _text("title", "name for people"),
            _text("seen", "what was seen, with its numbers, in one or two sentences"),
            _ns("cost_ns", "device time that it costs at most, summed over devices as docs/efficiency.md tells of each rule"),
            _share("share", "the cost against E n: of the time of all devices"),
            _count("devices", "devices on which it was seen; they stand in `finding_devices`"),
            _text("device", "the one of them where it costs most: its node and its number there, `node01:D0`"),
            _text("tasks", "processes that use that device, joined by `; `"),
            _text("ranks", "ranks of all these devices, `0-3,7`; null where ranks are not known"),
            _text("rows", "names of rows of that device, or of its processes, that show it, joined by `; `"),
            _ns("begin_ns", "when it was first seen"),
            _ns("end_ns", "when it was last seen"),
            _ns("worst_begin_ns", "begin of the place to look at: where it costs most"),
            _ns("worst_end_ns", "end of that place"),
            _text(
                "view",
                "view that shows it, a file `OUT.cfgs/VIEW.cfg` (of a view of each metric: several): a name of cfgs/views.ini",
            ),
            _text("advice", "what people do about it"),
        ),
        when="something that a rule of docs/efficiency.md names",
    ),
    Table(
        "finding_devices",
        "Findings by device",
        "one device of one finding",
        (
            _count("place", "of the finding"),
            _text("kind", "of the finding"),
            _DEVICE,
            _count("count", "how often it was seen there"),
            _ns("cost_ns", "device time that it costs there at most; 0 where it costs others"),
            _ns("begin_ns", "when it was first seen there"),
            _ns("end_ns", "when it was last seen there"),
            _ns("worst_begin_ns", "begin of the place where it costs most there"),
            _ns("worst_end_ns", "end of that place"),
        ),
        when="findings",
    ),
    Table(
        "finding_numbers",
        "Numbers of findings",
        "one number that a finding rests on",
        (
            _count("place", "of the finding"),
            _text("kind", "of the finding"),
            _text("number", "what it is"),
            _number("value", "its value"),
            _text("unit", "`ns`, `bytes`, `0 to 1`, `Hz`, or empty for counts and ratios"),
        ),
        when="findings",
    ),
    Table("nodes", "Nodes", "one node", (_text("node", "host name"), *DEVICE_TREE, *HOST_TREE), by_reading=True),
    Table(
        "devices",
        "Devices",
        "one physical GPU",
        (
            _DEVICE,
            _text("node", "its node"),
            _count("number", "its number on the node"),
            _text("tasks", "processes that use it; empty for one that was idle"),
            _count("streams", "CUDA streams with rows on it"),
            _READING,
            _ns("elapsed_ns", "E, length of the window"),
            _ns("useful_ns", "U"),
            _ns("communication_ns", "C"),
            _ns("active_ns", "A = U + C"),
            _ns("idle_ns", "E - A"),
            _share("useful_share", "U / E"),
            _share("active_share", "A / E"),
            _ns("kernels_ns", "union of kernels other than NCCL's, and of graphs"),
            _ns("nccl_ns", "union of NCCL kernels"),
            _ns("memory_ns", "union of copies and memsets"),
            _ns("nccl_alone_ns", "NCCL kernels ran and no other kernel did: communication that is not covered"),
            _ns("memory_alone_ns", "copies or memsets ran and no kernel did"),
            _ns("nccl_covered_ns", "NCCL kernels and others ran at once"),
            _ns("memory_covered_ns", "copies or memsets, and kernels, ran at once"),
            _ns("first_ns", "when its first activity began; null for none"),
            _ns("last_ns", "when its last activity ended; null for none"),
        ),
        by_reading=True,
    ),
    Table(
        "tasks",
        "Tasks",
        "one process that has rows",
        (
            _text("task", "name of the task in the trace"),
            _count("number", "1, 2, ... as in the trace"),
            _count("rank", "its rank; null when it has none"),
            _text("node", "its node"),
            _text("devices", "devices that it uses"),
            _READING,
            _ns("useful_ns", "time in which at least one useful kernel of the task ran"),
            _ns("communication_ns", "time in which data moved for the task and no useful kernel of it ran"),
            _ns("active_ns", "both"),
            _count("threads", "threads that call CUDA or MPI"),
            _ns("host_useful_ns", "sum over these of the time in neither"),
            _ns("cuda_ns", "sum of G"),
            _ns("mpi_ns", "sum of M"),
            _ns("os_ns", "sum of the time in calls of the OS runtime, outside both; part of `host_useful_ns`"),
        ),
        by_reading=True,
    ),
    Table(
        "useful",
        "Useful time and load balance",
        "`devices` or `tasks`",
        (
            _text("over", "`devices` or `tasks`"),
            _READING,
            _count("count", "how many"),
            _ns("total_ns", "sum of useful time"),
            _mean_ns("average_ns", "mean"),
            _ns("maximum_ns", "largest"),
            _ns("minimum_ns", "smallest"),
            _mean_ns("deviation_ns", "standard deviation of the population"),
            _share("avg_max", "average / maximum, which is the load balance"),
        ),
        by_reading=True,
    ),
    Table(
        "threads",
        "Host threads",
        "one thread, of a process that uses a GPU, that calls CUDA or MPI",
        (
            _text("task", "name of its task"),
            _text("thread", "name of its row"),
            _ns("host_useful_ns", "time in neither CUDA nor MPI calls"),
            _ns("cuda_ns", "G"),
            _ns("mpi_ns", "M"),
            *(_ns(f"{cause}_ns", f"time in calls of the category {cause}") for cause in CAUSES if cause != "mpi"),
        ),
    ),
    Table(
        "bins",
        "Efficiency over time",
        "one of the bins of equal length that the window is cut into",
        (
            _count("bin", "0, 1, ..."),
            _ns("begin_ns", "from the begin of the trace"),
            _ns("end_ns", "from the begin of the trace"),
            *DEVICE_TREE,
            *HOST_TREE,
        ),
        by_reading=True,
    ),
    Table(
        "device_bins",
        "Device activity over time",
        "one device in one bin",
        (
            _count("bin", "as in `bins`"),
            _DEVICE,
            _ns("kernels_ns", "kernels other than NCCL's, or graphs, ran"),
            _ns("nccl_ns", "of the rest, NCCL kernels ran"),
            _ns("memory_ns", "of the rest, copies or memsets ran"),
            _ns("idle_ns", "nothing ran"),
        ),
    ),
    Table(
        "regions",
        "NVTX regions",
        "ranges of one name and domain",
        (
            _text("region", "text of the range"),
            _text("domain", "its NVTX domain"),
            _count("count", "ranges of this name"),
            _count("tasks", "tasks that have some"),
            _ns("total_ns", "sum of their lengths"),
            _mean_ns("mean_ns", "mean length"),
            _ns("max_ns", "longest"),
            *DEVICE_TREE,
            *HOST_TREE,
        ),
        when="`--regions`; a device counts while a task that uses it is in the region, E is the longest such time of a device",
        by_reading=True,
    ),
    Table(
        "iterations",
        "Iterations",
        "the n-th range of one name of each task",
        (
            _text("region", "text of the range"),
            _count("iteration", "0, 1, ..."),
            _ns("begin_ns", "first begin over tasks"),
            _ns("end_ns", "last end over tasks"),
            _count("tasks", "tasks that have it"),
            _ns("shortest_ns", "shortest over tasks"),
            _ns("longest_ns", "longest over tasks"),
            *DEVICE_TREE,
            *HOST_TREE,
        ),
        when="`--per-iteration`; as for regions",
        by_reading=True,
    ),
    Table(
        "overlap",
        "Overlap of communication and computation",
        "one task and number of kernels at once",
        (
            _text("task", "name of the task"),
            _count("kernels", "kernels that ran at once, the NCCL kernel among them: 1 is no overlap"),
            _ns("time_ns", "for how long, while at least one NCCL kernel ran"),
            _share("of_communication", "share of the time in which NCCL kernels ran"),
            _share("of_trace", "share of the window"),
        ),
        when="NCCL kernels",
    ),
    Table(
        "overlap_summary",
        "Overlap of communication and computation over tasks",
        "one number of kernels at once, and one base",
        (_count("kernels", "kernels that ran at once"), _text("base", "`communication` or `trace`"), *_SPREAD),
        when="NCCL kernels",
    ),
    Table(
        "families",
        "Kernel families",
        "one family",
        (
            _text("family", "what its kernels do"),
            _count("kernels", "names of kernels in it"),
            _count("count", "executions"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration"),
            _share("share", "of the sum of durations of all kernels"),
        ),
        when="kernels",
    ),
    Table(
        "kernels",
        "Kernel durations",
        "one kernel name",
        (
            _text("kernel", "name, as it stands in the trace"),
            _text("family", "what it does"),
            _text("kind", "`kernel`, `nccl` or `graph`"),
            _count("count", "executions"),
            _ns("total_ns", "sum of durations"),
            _share("share", "of the sum of durations of all kernels"),
            _mean_ns("mean_ns", "mean duration"),
            _ns("min_ns", "shortest"),
            _ns("median_ns", "median (the lower one of two)"),
            _ns("p95_ns", "95th percentile (nearest rank)"),
            _ns("max_ns", "longest"),
            _mean_ns("deviation_ns", "standard deviation of the population"),
            _count("modes", "peaks of the histogram that are clearly apart; see `kernel_modes`"),
            _text("slowest_device", "device with the largest mean; null on one device"),
            _share("avg_max", "mean over devices of their mean duration / the largest of these; null on one device"),
        ),
        when="kernels",
    ),
    Table(
        "kernel_devices",
        "Kernel durations by device",
        "one of the kernels that take most time, on one device",
        (
            _text("kernel", "name"),
            _DEVICE,
            _count("count", "executions"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration"),
            _ns("median_ns", "median"),
        ),
        when="kernels",
    ),
    Table(
        "kernel_histograms",
        "Histograms of kernel durations",
        "one of the kernels that take most time, and one bar",
        (
            _text("kernel", "name"),
            _ns("from_ns", "durations from here"),
            _ns("to_ns", "to below here; bars are 1/8 of a doubling wide, those without executions are left out"),
            _count("count", "executions"),
            _ns("total_ns", "sum of their durations"),
        ),
        when="kernels",
    ),
    Table(
        "kernel_modes",
        "Modes of kernel durations",
        "one peak of the histogram of one kernel",
        (
            _text("kernel", "name"),
            _count("mode", "0, 1, ... from the shortest"),
            _ns("from_ns", "durations of the peak from here"),
            _ns("to_ns", "to below here"),
            _ns("peak_ns", "where it is highest (middle of the bar)"),
            _count("count", "executions"),
            _mean_ns("mean_ns", "mean duration"),
            _share("share", "of all executions of the kernel"),
        ),
        when="a kernel with two modes or more",
    ),
    Table(
        "sampled_kernels",
        "Sampled metrics by kernel, family and task",
        "one metric, kernel or family, task and device",
        (
            _text("metric", "name of the metric"),
            _text("level", "`kernel` or `family`"),
            _text("name", "kernel or family"),
            _text("task", "name of the task"),
            _DEVICE,
            _count("samples", "samples that fall inside its executions"),
            _number("mean", "mean of these samples; of a family: of its kernels, weighted by their time"),
            _ns("time_ns", "sum of durations of its executions"),
        ),
        when="sampled GPU metrics",
    ),
    Table(
        "sampled_summary",
        "Sampled metrics by kernel and family over tasks",
        "one metric, kernel or family",
        (
            _text("metric", "name of the metric"),
            _text("level", "`kernel` or `family`"),
            _text("name", "kernel or family"),
            _count("tasks", "tasks (and devices) with samples"),
            _count("samples", "samples of all of them"),
            _number("weighted", "mean over tasks, weighted by time"),
            *_SPREAD,
        ),
        when="sampled GPU metrics",
    ),
    Table(
        "sampled_bins",
        "Sampled metrics over time",
        "one metric, device and bin",
        (
            _text("metric", "name of the metric"),
            _DEVICE,
            _count("bin", "as in `bins`"),
            _count("samples", "samples in it"),
            _number("mean", "mean"),
            _number("minimum", "smallest"),
            _number("maximum", "largest"),
        ),
        when="sampled GPU metrics",
    ),
    Table(
        "gaps",
        "Gaps by length",
        "one device and class of lengths of idle stretches",
        (
            _DEVICE,
            _ns("from_ns", "lengths from here"),
            _ns("to_ns", "to below here; null for the last class"),
            _count("count", "gaps"),
            _ns("total_ns", "sum of lengths"),
            *_CAUSES,
        ),
    ),
    Table(
        "longest_gaps",
        "Longest gaps",
        "one idle stretch of a device",
        (
            _DEVICE,
            _ns("begin_ns", "from the begin of the trace"),
            _ns("end_ns", "from the begin of the trace"),
            _ns("length_ns", "its length"),
            _text("before", "what ended last before it; null at the begin of the trace"),
            _text("after", "what begins first after it; null at the end of the trace"),
            _text("task", "task of the launching thread; null when it is not known"),
            _text("thread", "thread that launched what comes after"),
            *_CAUSES,
        ),
    ),
    Table(
        "memory_operations",
        "Memory operations by kind, memory and size",
        "one kind of operation, kinds of memory, and class of sizes",
        (
            _text("operation", "kind of copy, or memset"),
            _text("source", "kind of memory it reads; null when it is not told"),
            _text("destination", "kind of memory it writes; null when it is not told"),
            _bytes("from_bytes", "sizes from here"),
            _bytes("to_bytes", "to below here; null for the last class"),
            _count("count", "operations"),
            _bytes("bytes", "sum of sizes"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration"),
            _rate("bandwidth", "bytes / sum of durations"),
        ),
        when="copies or memsets",
    ),
    Table(
        "cuda_calls",
        "CUDA API calls",
        "one call",
        (
            _text("call", "name"),
            _text("category", f"one of {', '.join(f'`{cause}`' for cause in CAUSES[:5])}"),
            _count("count", "calls"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration"),
            _ns("min_ns", "shortest"),
            _ns("max_ns", "longest"),
        ),
        when="CUDA API calls",
    ),
    Table(
        "mpi_calls",
        "MPI calls",
        "one call",
        (
            _text("call", "name"),
            _count("count", "calls"),
            _ns("total_ns", "sum of durations"),
            _share("share", "of the time of all tasks that call MPI"),
            _mean_ns("mean_ns", "mean duration"),
            _ns("min_ns", "shortest"),
            _ns("max_ns", "longest"),
            _bytes("bytes", "sum of sizes that the calls tell; null where none does"),
            _count("tasks", "tasks that call it"),
            _mean_ns("average_task_ns", "mean over these tasks of their sum"),
            _ns("maximum_task_ns", "largest sum of a task"),
            _text("maximum_task", "that task"),
        ),
        when="MPI calls",
    ),
    Table(
        "nccl",
        "NCCL by operation, size and communicator",
        "one operation, size and communicator",
        (
            _text("operation", "AllReduce, AllGather, ..."),
            _text("communicator", "name; null when it is not told"),
            _count("ranks", "ranks of the communicator; null when it is not told"),
            _bytes("size_bytes", "message size of a call; null when it is not told"),
            _count("count", "kernels"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration, waiting for others included"),
            _ns("min_ns", "shortest duration, which waits least"),
            _ns("max_ns", "longest duration"),
            _rate("bandwidth", "size / mean duration; null without a size"),
            _rate("best_bandwidth", "size / shortest duration; null without a size"),
            _rate("bus_bandwidth", "best bandwidth x the factor of nccl-tests for the operation; null without size or ranks"),
        ),
        when="NCCL kernels",
    ),
    Table(
        "nccl_stragglers",
        "Who arrives last in NCCL collectives",
        "one task in the collectives of one communicator",
        (
            _text("communicator", "name; null when it is not told and all tasks are taken for one"),
            _text("task", "name of the task"),
            _DEVICE,
            _count("collectives", "collectives that were matched over its ranks"),
            _count("last", "of these, in which it arrived last"),
            _ns("waited_ns", "sum of the times that it waited for the last one"),
            _mean_ns("mean_wait_ns", "mean of these"),
            _ns("caused_ns", "sum, over collectives in which it was last, of the times that all others waited"),
        ),
        when="NCCL collectives of two devices or more",
    ),
    Table(
        "nccl_collectives",
        "NCCL collectives with the longest waits",
        "one collective",
        (
            _text("operation", "what it did"),
            _text("communicator", "name; null when it is not told"),
            _ns("begin_ns", "when the first task arrived"),
            _ns("last_ns", "when the last task arrived"),
            _ns("end_ns", "when the last kernel ended"),
            _ns("waited_ns", "sum over tasks of the times that they waited for the last one"),
            _text("last_task", "that task"),
            _DEVICE,
        ),
        when="NCCL collectives of two devices or more",
    ),
    Table(
        "alignment",
        "How clocks were placed",
        "one clock",
        (
            _text("host", "host, or report where clocks of a host are not tied to each other"),
            _text("method", "how it was placed"),
            _count("anchors", "collectives that it rests on; null without"),
            _ns("offset_ns", "offset against the rough placement; null without anchors"),
            _number("drift_ppm", "drift in millionths; null without anchors"),
            _ns("median_error_ns", "remaining error, median; null without anchors"),
            _ns("p95_error_ns", "95th percentile; null without anchors"),
            _ns("largest_error_ns", "largest; null without anchors"),
        ),
        when="reports (of a trace: when its .json is there)",
    ),
    Table(
        "alignment_bins",
        "Remaining error of clocks over time",
        "one clock in one of the stretches of equal length between the first collective and the last",
        (
            _text("host", "as in `alignment`"),
            _count("bin", "0, 1, ..."),
            _ns(
                "error_ns",
                "median of what remains between the host's collectives and those of the others, with its sign; "
                "null where there are none",
            ),
        ),
        when="clocks that were tied by collectives",
    ),
)
"""All tables, in the order in which people read them."""

_RUN = _text("run", "`A`, `B`, ... in the order in which they were given")

COMPARISON_TABLES: tuple[Table, ...] = (
    Table(
        "runs",
        "The runs",
        "one run",
        (
            _RUN,
            _text("title", "its name"),
            *DEVICE_TREE,
            *HOST_TREE,
            _number("speedup", "E of the first run / E"),
            _number("useful_scalability", "sum U of the first run / sum U: 1 when the same work takes the same time (strong)"),
            _number("useful_scalability_per_device", "mean U of the first run / mean U (weak scaling)"),
            _number("global_efficiency", "device parallel efficiency x useful scalability"),
            _number("global_efficiency_per_device", "device parallel efficiency x useful scalability per device"),
        ),
        by_reading=True,
    ),
    Table(
        "metrics",
        "The trees side by side",
        "one efficiency of one run",
        (
            _RUN,
            _READING,
            _text("tree", "`device` or `host`"),
            _text("metric", "name of the column of `run`"),
            _text("title", "name for people"),
            _text("parent", "the metric whose factor it is; null for the root"),
            _count("level", "0 for the root"),
            _share("value", "the efficiency"),
            _number("change", "difference to the first run"),
        ),
        by_reading=True,
    ),
    Table(
        "matched",
        "Kernels and families side by side",
        "one kernel or family of one run",
        (
            _text("level", "`kernel` or `family`"),
            _text("name", "its name"),
            _text("family", "family of a kernel"),
            _RUN,
            _count("runs", "runs that have it"),
            _count("count", "executions"),
            _ns("total_ns", "sum of durations"),
            _mean_ns("mean_ns", "mean duration"),
            _share("share", "of the sum of durations of all kernels of the run"),
            _number("mean_ratio", "mean duration / that of the first run; null where one of them has none"),
            _number("scalability", "sum of durations in the first run / sum here; null where one of them has none"),
        ),
    ),
    Table(
        "changes",
        "What changed most",
        "one thing that takes time, in one run against the first",
        (
            _RUN,
            _text("what", "`devices`, `family`, `kernel`, `gaps`, `memory`, `CUDA call` or `MPI call`"),
            _text("name", "which one; of gaps: what the launching thread did"),
            _mean_ns("before_ns", "time in the first run, per device (of calls: per host thread)"),
            _mean_ns("after_ns", "time in this run, likewise"),
            _mean_ns("difference_ns", "after - before"),
            _number("ratio", "after / before; null when it was not there before"),
        ),
    ),
)
"""Tables of `compare`."""

BY_NAME: Mapping[str, Table] = {table.name: table for table in TABLES}


@dataclass(frozen=True)
class Leaf:
    """One efficiency of a tree: its column in `run`, its name for people, whose factor it is, and what it says."""

    tree: str
    metric: str
    title: str
    parent: str | None
    level: int
    formula: str
    reads_as: str


_DEVICE_ROOT, _HOST_ROOT, _MPI = "device_parallel_efficiency", "host_parallel_efficiency", "mpi_parallel_efficiency"

TREE: tuple[Leaf, ...] = (
    Leaf("device", _DEVICE_ROOT, "Device Parallel Efficiency", None, 0, "sum U / (E n)", "time in which devices compute"),
    Leaf(
        "device",
        "load_balance",
        "Load Balance",
        _DEVICE_ROOT,
        1,
        "sum U / (n max U)",
        "devices are idle because another one has more useful work",
    ),
    Leaf(
        "device",
        "communication_efficiency",
        "Communication Efficiency",
        _DEVICE_ROOT,
        1,
        "max U / max A",
        "devices are busy with moving data",
    ),
    Leaf(
        "device",
        "orchestration_efficiency",
        "Orchestration Efficiency",
        _DEVICE_ROOT,
        1,
        "max A / E",
        "devices are idle because no work is pending",
    ),
    Leaf("host", _HOST_ROOT, "Host Parallel Efficiency", None, 0, "sum U / sum (U + M + G)", "time in which hosts compute"),
    Leaf("host", _MPI, "MPI Parallel Efficiency", _HOST_ROOT, 1, "(E - mean M) / E", "hosts are in MPI calls"),
    Leaf("host", "mpi_load_balance", "MPI Load Balance", _MPI, 2, "(E - mean M) / (E - min M)", "hosts wait for another one"),
    Leaf(
        "host",
        "mpi_communication_efficiency",
        "MPI Communication Efficiency",
        _MPI,
        2,
        "(E - min M) / E",
        "all hosts move data, or wait in turn",
    ),
    Leaf(
        "host",
        "device_offload_efficiency",
        "Device Offload Efficiency",
        _HOST_ROOT,
        1,
        "sum U / sum (U + G)",
        "hosts are in CUDA calls: they launch, copy and wait",
    ),
)
"""The trees, in the order in which they are read. An efficiency is the product of its factors."""

HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this schema: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports, or the trace"),
    ("input_kind", "text", "`reports` or `trace`"),
    ("title", "text", "name of the run, for headings"),
    ("began", "text", "when the recording began, UTC, `2026-11-21T14:00:00`; null when it is not told"),
    ("recorders", "list of texts", "versions of nsys that recorded it; of a trace: as its .json tells"),
    ("gpus", "list of texts", "models of the GPUs; likewise"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("window", "object", "`begin_ns`, `end_ns` on the time axis of all reports, `length_ns`: what was analysed. Times in "
     "tables count from its begin, as in the trace"),
    ("options", "object", "what was asked for"),
    ("warnings", "list of texts", "what is odd, missing, or was assumed"),
    ("left_out", "list of objects", "`path`, `error`: reports that could not be read (`--keep-going`)"),
    ("tables", "object", "each table by its name: an object with a list per column, all of equal length. "
     "`polars.DataFrame(tables['devices'])` and `pandas.DataFrame(...)` read one"),
)  # fmt: skip
"""What stands beside the tables in the JSON: key, type, meaning."""


COMPARISON_HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{COMPARISON_FORMAT}`"),
    ("version", "number", f"of this schema: {COMPARISON_VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("runs", "list of objects", "`run` (`A`, `B`, ...), `input`, `title`"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("warnings", "list of texts", "what is odd, of all runs"),
    ("tables", "object", "as above"),
)


def checked(
    given: Mapping[str, pl.DataFrame | Sequence[Mapping[str, Any]]], tables: Sequence[Table] = TABLES
) -> dict[str, pl.DataFrame]:
    """Tables in their order, each with its columns in order and in their types; one that is not given is empty.

    Parameters
    ----------
    given
        By name, as a frame or as rows.
    tables
        All that there are.
    """
    unknown = given.keys() - {table.name for table in tables}
    if unknown:
        raise KeyError(f"no line of the tables: {', '.join(sorted(unknown))}")
    return {table.name: _in_order(table, given.get(table.name, ())) for table in tables}


def _in_order(table: Table, given: pl.DataFrame | Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    if isinstance(given, pl.DataFrame):
        return given.select(pl.col(name).cast(dtype) for name, dtype in table.schema.items())
    return pl.DataFrame(list(given), schema=table.schema, orient="row") if given else table.empty
