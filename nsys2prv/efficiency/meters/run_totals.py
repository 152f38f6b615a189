"""Times over the whole run, in its parts and in bins: trees, times of devices, tasks and host threads, and how much
communication overlaps with computation."""

from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency import activity_times as times_of
from nsys2prv.efficiency import measured_run as kinds
from nsys2prv.efficiency.activity_times import times_in_parts, times_in_windows, trees
from nsys2prv.efficiency.intervals import Elapsed, Numbers
from nsys2prv.efficiency.measured_run import CAUSES, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.metrics import TREE_COLUMNS, TREE_COLUMNS_OF_RUN
from nsys2prv.efficiency.result_tables import DEVICE, EFFICIENCY_COLUMNS, NCCL_POLICY, SPREAD, Column, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import STREAM

RUN = Table("run", "The run", "the run (one row)", TREE_COLUMNS_OF_RUN)

NODES = Table(
    "nodes", "Nodes", "one node", (Column.text("node", "host name"), *TREE_COLUMNS),
    page=OnPage("devices-and-hosts", columns=("node", "devices", EFFICIENCY_COLUMNS),
        worst_first="device_parallel_efficiency", lowest_first=True),
    console=OnConsole(("node", ("devices", "GPUs"), EFFICIENCY_COLUMNS, "host_parallel_efficiency")),
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
        Column.count("streams", "CUDA streams with rows on it; of several contexts of a process, those with one id are one"),
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
    page=OnPage("devices-and-hosts", columns=("device", "tasks", "useful_ns", "communication_ns", "idle_ns",
        "useful_share", "active_share", "nccl_alone_ns", "memory_alone_ns"), worst_first="useful_ns", lowest_first=True),
    console=OnConsole(("device", "useful_ns", "communication_ns", "idle_ns", "useful_share", "active_share")),
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
    page=OnPage("devices-and-hosts", columns=("task", "devices", "useful_ns", "communication_ns", "host_useful_ns", "cuda_ns",
        "mpi_ns"), worst_first="useful_ns", lowest_first=True),
    console=OnConsole((("task", "process"), "threads", ("host_useful_ns", "outside of MPI"), ("mpi_ns", "MPI"),
        ("os_ns", "OS calls")), of_hosts=True),
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
    page=OnPage("devices-and-hosts"),
)

THREADS = Table(
    "threads",
    "Host threads",
    "one thread, of a process that uses a GPU, that calls CUDA or MPI",
    (
        Column.text("task", "name of its task"),
        Column.text("thread", "name of its row"),
        Column.ns("host_useful_ns", "time in neither CUDA nor MPI calls; as far as it is there, where no thread calls these"),
        Column.ns("cuda_ns", "G"),
        Column.ns("mpi_ns", "M"),
        *(Column.ns(f"{cause}_ns", f"time in calls of the category {cause}") for cause in CAUSES if cause != "mpi"),
        Column.ns("off_cpu_ns", "in none of these calls, and off its CPU; null where its scheduling was not recorded"),
        Column.ns("profiler_ns", "in the set-up of the profiler, outside of CUDA and MPI calls: in no other of these columns"),
    ),
    page=OnPage("devices-and-hosts", cells=8_000),
    console=OnConsole((("task", "process"), "thread", ("host_useful_ns", "outside of MPI"), ("mpi_ns", "MPI"),
        ("os_ns", "OS calls")), of_hosts=True, longer_than="tasks"),
)  # fmt: skip

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
    page=OnPage("communication", cells=8_000),
)
OVERLAP_SUMMARY = Table(
    "overlap_summary",
    "Overlap of communication and computation over tasks",
    "one number of kernels at once, and one base",
    (Column.count("kernels", "kernels that ran at once"), Column.text("base", "`communication` or `trace`"),
        *(replace(column, unit="0 to 1") for column in SPREAD)),
    when="NCCL kernels",
    page=OnPage("communication"),
    console=OnConsole((("kernels", "kernels at once"), ("base", "of"), "average", "maximum", "minimum", "deviation"),
        spare=("deviation", "minimum")),
)  # fmt: skip

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
    page=OnPage("regions", columns=("bin", "begin_ns", "end_ns", EFFICIENCY_COLUMNS)),
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
    page=OnPage("regions", columns=("window", "begin_ns", "length_ns", "share", EFFICIENCY_COLUMNS)),
    console=OnConsole((("window", "part of the run"), ("begin_ns", "start"), "length_ns", ("share", "of the run"),
        EFFICIENCY_COLUMNS), spare=("share",)),
)  # fmt: skip

TABLES = (RUN, NODES, DEVICES, TASKS, USEFUL_TIME, THREADS)


def run_totals(run: MeasuredRun) -> Measurement:
    """Times of all devices, tasks and calling threads over the whole window."""
    rows, activity, window = run.events.rows, run.on_devices, ([0], [run.events.length])
    by_device, by_thread = times_in_parts(run, *window)
    tasks = pl.DataFrame({"slot": 0, "group": np.arange(len(rows.tasks)), "begin": 0, "end": run.events.length}).cast(pl.Int64)
    by_task = times_in_windows(Elapsed(run.on_tasks, run.on_tasks.mask, kinds.MASKS), tasks)
    useful, policy = times_of.useful_time(run.options.nccl), pl.lit(run.options.nccl.value).alias(NCCL_POLICY.name)
    times = {"useful_ns": useful, "communication_ns": times_of.ACTIVE - useful, "active_ns": times_of.ACTIVE}
    of_devices, of_tasks = (by_group.with_columns(policy, **times) for by_group in (by_device, by_task))
    threads = _thread_rows(run, by_thread)
    busy = activity.where(activity.mask > 0)
    spans = pl.DataFrame(vars(busy)).group_by("group").agg(first_ns=pl.col("begin").min(), last_ns=pl.col("end").max())
    # Slots of the trees of nodes: the places of their names.
    callers = rows.task[run.callers]
    on_nodes = (by_device, [device.node for device in rows.devices]), (by_thread, [rows.tasks[task].node for task in callers])
    nodes = {node: slot for slot, node in enumerate(dict.fromkeys(node for _, of_groups in on_nodes for node in of_groups))}
    by_node = (times.with_columns(slot=pl.Series(map(nodes.get, of_groups), dtype=pl.Int64)) for times, of_groups in on_nodes)
    tables = {
        RUN: trees(run, by_device, by_thread),
        NODES: trees(run, *by_node).with_columns(node=pl.Series(list(nodes), dtype=pl.String)),
        DEVICES: _device_rows(run, of_devices.join(spans, on="group", how="left", maintain_order="left")),
        TASKS: _task_rows(run, of_tasks, threads),
        USEFUL_TIME: _useful_rows(run, of_devices, of_tasks),
        THREADS: threads,
    }
    return Measurement(tables=tables)


def _device_rows(run: MeasuredRun, by_device: pl.DataFrame) -> pl.DataFrame:
    rows, length = run.events.rows, run.events.length
    users = [rows.tasks_of_device.get(index, ()) for index in range(len(rows.devices))]
    # Lanes are further rows of a stream.
    is_stream = (rows.kind == STREAM) & (rows.first_of_stream == np.arange(len(rows.names)))
    return by_device.with_columns(
        device=pl.Series([device.name for device in rows.devices]),
        node=pl.Series([device.node for device in rows.devices]),
        number=pl.Series([device.number for device in rows.devices]),
        tasks=pl.Series(["; ".join(rows.tasks[task].name for task in tasks) for tasks in users]),
        streams=pl.Series(np.bincount(rows.device[is_stream], minlength=len(rows.devices))),
        elapsed_ns=pl.lit(length),
        idle_ns=length - times_of.ACTIVE,
        useful_share=pl.col("useful_ns") / length,
        active_share=pl.col("active_ns") / length,
        kernels_ns=times_of.IN_KERNELS,
        nccl_ns=times_of.IN_NCCL,
        memory_ns=times_of.IN_COPIES,
        nccl_alone_ns=times_of.NCCL_ALONE,
        memory_alone_ns=times_of.COPIES_ALONE,
        nccl_covered_ns=times_of.IN_NCCL - times_of.NCCL_ALONE,
        memory_covered_ns=times_of.IN_COPIES - times_of.COPIES_ALONE,
    )


def _task_rows(run: MeasuredRun, by_task: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    rows = run.events.rows
    used = [rows.devices_of_task.get(index, ()) for index in range(len(rows.tasks))]
    of_tasks = by_task.with_columns(
        task=pl.Series([task.name for task in rows.tasks]),
        number=pl.Series(range(1, len(rows.tasks) + 1)),
        rank=pl.Series([task.rank for task in rows.tasks], dtype=pl.Int64),
        node=pl.Series([task.node for task in rows.tasks]),
        devices=pl.Series(["; ".join(rows.devices[device].name for device in devices) for devices in used]),
    ).filter(pl.Series([not task.is_node for task in rows.tasks]))
    times = ("host_useful_ns", "cuda_ns", "mpi_ns", "os_ns")
    sums = threads.group_by("number").agg(pl.col(times).sum(), threads=pl.len())
    joined = of_tasks.join(sums, on="number", how="left", maintain_order="left")
    return joined.with_columns(pl.col("threads", *times).fill_null(0))


def _thread_rows(run: MeasuredRun, by_thread: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `threads`, and `number` of the task."""
    return by_thread.with_columns(
        number=pl.Series(run.events.rows.task[run.callers] + 1),
        **run.names_of_threads(pl.col("group")),
        host_useful_ns=pl.col("window") - times_of.IN_CUDA - times_of.IN_MPI,
        cuda_ns=times_of.IN_CUDA,
        **{f"{cause}_ns": pl.col(f"key{place}") for place, cause in enumerate(CAUSES[: kinds.OS])},
        os_ns=pl.sum_horizontal(f"key{place}" for place in kinds.OS_ACTIVITIES),
        off_cpu_ns=pl.when(pl.Series(run.is_scheduled)).then(f"key{kinds.OFF_CPU_ACTIVITY}"),
        profiler_ns=pl.col(f"key{kinds.PROFILER_ACTIVITY}"),
    )


def _useful_rows(run: MeasuredRun, by_device: pl.DataFrame, by_task: pl.DataFrame) -> pl.DataFrame:
    """Over devices, and over the tasks that use a GPU."""
    of_gpus = by_task.filter(pl.col("group").is_in(list(run.events.rows.devices_of_task)))
    times = pl.concat(times.with_columns(over=pl.lit(over)) for over, times in (("devices", by_device), ("tasks", of_gpus)))
    useful = pl.col("useful_ns")
    spreads = {name if name == "avg_max" else f"{name}_ns": value for name, value in spread(useful).items()}
    return times.group_by("over", NCCL_POLICY.name, maintain_order=True).agg(count=pl.len(), total_ns=useful.sum(), **spreads)


def kernel_overlap(run: MeasuredRun) -> Measurement:
    """The tables `overlap` and `overlap_summary`: the NCCL kernel counts too, as in BSC's views."""
    activity, in_nccl = run.on_tasks, run.on_tasks.counts[kinds.NCCL]
    at_once = activity.counts[kinds.KERNEL] + in_nccl
    times = pl.DataFrame({"task": activity.group, "kernels": at_once.astype(np.int64), "time": activity.lengths()})
    times = times.filter(in_nccl > 0)
    # Every task has every number: a task that never has it counts with 0 in the average.
    tasks, numbers = (times.select(pl.col(name).unique().sort()) for name in ("task", "kernels"))
    sums = times.group_by("task", "kernels").agg(time_ns=pl.col("time").sum())
    by_task = tasks.join(numbers, how="cross").join(sums, on=["task", "kernels"], how="left", maintain_order="left")
    time = pl.col("time_ns")
    by_task = by_task.with_columns(time.fill_null(0)).with_columns(
        of_communication=time / time.sum().over("task"), of_trace=time / run.events.length
    )
    summary = pl.concat(
        by_task.group_by("kernels").agg(**spread(pl.col(f"of_{base}"))).sort("kernels").with_columns(base=pl.lit(base))
        for base in ("communication", "trace")
    )
    return Measurement(tables={OVERLAP: by_task.with_columns(task=run.task_names(pl.col("task"))), OVERLAP_SUMMARY: summary})


def spread(values: pl.Expr) -> dict[str, pl.Expr]:
    """Values of the columns SPREAD, as the statistics of Paraver's histograms."""
    return {
        "average": values.mean(),
        "maximum": values.max(),
        "minimum": values.min(),
        "deviation": values.std(ddof=0),
        "avg_max": pl.when(values.max() != 0).then(values.mean() / values.max()),
    }


def bin_edges(run: MeasuredRun) -> Numbers:
    """Start of each bin of the tables over time, and the end of the last, ns: bins are of equal length."""
    length = run.events.length
    # Never more bins than nanoseconds.
    count = max(min(run.options.bins, length), 1)
    return np.array([length * place // count for place in range(count + 1)], dtype=np.int64)


def time_bins(run: MeasuredRun) -> Measurement:
    """The tables `bins` and `device_bins`."""
    edges = bin_edges(run)
    of_devices, of_threads = times_in_parts(run, edges[:-1], edges[1:])
    bins = trees(run, of_devices, of_threads)
    slots = bins["slot"].to_numpy()
    by_device = of_devices.select(
        bin="slot",
        device=run.device_names(pl.col("group")),
        kernels_ns=times_of.IN_KERNELS,
        nccl_ns=times_of.NCCL_ALONE,
        memory_ns=times_of.COPIES_ALONE,
        idle_ns=pl.col("window") - times_of.ACTIVE,
    )
    bins = bins.with_columns(begin_ns=edges[slots], end_ns=edges[slots + 1], bin="slot")
    return Measurement(tables={BINS: bins, DEVICE_BINS: by_device})


def window_times(run: MeasuredRun) -> Measurement:
    """The table `windows`; parts of the run may be outside of the window."""
    window, offset = run.window, run.events.offset
    (begin, end), parts = window.program, window.parts
    # Times of the recording are not made where those of the window are enough: by default it is the whole program.
    is_inside = all(offset <= first and last <= offset + run.events.length for first, last in parts.values())
    source, start = (run, offset) if is_inside else (run.recorded, 0)
    first, last = np.array(list(parts.values()), dtype=np.int64).T
    table = trees(run, *times_in_parts(source, first - start, last - start)).with_columns(
        window=pl.Series(list(parts)),
        begin_ns=first - offset,
        end_ns=last - offset,
        length_ns=last - first,
        share=(last - first) / (end - begin),
    )
    return Measurement(tables={WINDOWS: table})
