"""Times of devices and host threads by activity: what NCCL kernels count as, sums in windows, and the trees from them.

Bins, regions, iterations and parts of the run are windows of time: all are measured here in the same way."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.intervals import Elapsed, Spans
from nsys2prv.efficiency.measured_run import CUDA_ACTIVITIES, KERNEL, MASKS, MEMORY, MPI, NCCL, WAITING_ACTIVITIES, MeasuredRun
from nsys2prv.efficiency.metrics import efficiencies
from nsys2prv.efficiency.result_tables import NCCL_POLICY
from nsys2prv.efficiency.run_events import RunRows
from nsys2prv.vocabulary import event_types


def running(kinds: Iterable[int], without: Iterable[int] = ()) -> pl.Expr:
    """Time in which activity of any of these kinds runs and none of the kinds `without`, ns: a sum of columns `key0`, `key1`,
    ... of times by mask."""
    counted, excluded = (sum(1 << kind for kind in bits) for bits in (kinds, without))
    return pl.sum_horizontal(f"key{mask}" for mask in range(MASKS) if mask & counted and not mask & excluded)


ACTIVE, IN_KERNELS, IN_NCCL, IN_COPIES = map(running, ((KERNEL, NCCL, MEMORY), (KERNEL,), (NCCL,), (MEMORY,)))
NCCL_ALONE, COPIES_ALONE = running((NCCL,), without=(KERNEL,)), running((MEMORY,), without=(KERNEL, NCCL))
"""Times of devices: of each row of times by mask, ns."""
IN_CUDA, IN_MPI = pl.sum_horizontal(f"key{activity}" for activity in CUDA_ACTIVITIES), pl.col(f"key{MPI}")
"""Times of host threads: of each row of times by activity, ns."""


def useful_time(policy: NcclPolicy) -> pl.Expr:
    """U of each row of times by mask, ns."""
    return running((KERNEL, NCCL)) if policy == NcclPolicy.USEFUL else IN_KERNELS


def times_in_windows(times: Elapsed, windows: pl.DataFrame, lives: pl.DataFrame | None = None) -> pl.DataFrame:
    """Times by key in windows, summed by slot and group.

    `windows` have the columns `slot` (a bin, a region, an iteration), `group` (a device, a thread), `begin` and `end` (ns),
    Int64. `lives`: from when to when each group is there (`since`, `until`, ns): only that counts; None: always.

    The columns are `slot`, `group`, `elapsed` (ns in all windows), `window` (of that the group is there), and `key0`, `key1`,
    ... (ns), sorted by slot and group."""
    length = pl.col("end") - pl.col("begin")
    windows = windows.with_columns(elapsed=length)
    if lives is not None:
        windows = windows.with_columns(pl.col("begin", "end").clip(*(pl.lit(edge).gather("group") for edge in lives)))
    by_key = times.in_windows(*(windows[name].to_numpy() for name in ("group", "begin", "end")))
    columns = {f"key{key}": pl.Series(of_key) for key, of_key in enumerate(by_key)}
    lengths = windows.select("slot", "group", "elapsed", window=length, **columns)
    return lengths.group_by("slot", "group").sum().sort("slot", "group")


def times_in_parts(run: MeasuredRun, begin: npt.ArrayLike, end: npt.ArrayLike) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of all devices, and of all calling threads, in parts of the run, as `times_in_windows`: a slot for each part."""
    slots = pl.DataFrame({"begin": begin, "end": end}).with_row_index("slot").cast(pl.Int64)
    groups = len(run.events.rows.devices), len(run.callers)
    on_devices, on_threads = (slots.join(pl.DataFrame({"group": np.arange(count)}), how="cross") for count in groups)
    return times_in_windows(run.device_times, on_devices), times_in_windows(run.thread_times, on_threads, run.lives)


def times_in_ranges(run: MeasuredRun, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of devices and of host threads in ranges of time (columns `slot`, `task`, `begin`, `end`), as `times_in_windows`.

    A device counts while a task that uses it is in a range, a host thread while its task is."""
    rows, callers = run.events.rows, run.callers
    threads = pl.DataFrame({"task": rows.task[callers], "group": np.arange(len(callers))})
    of_tasks = ranges.select("slot", "task", "begin", "end").cast(pl.Int64)
    on_devices, on_threads = (of_tasks.join(groups, on="task") for groups in (devices_of_tasks(rows), threads))
    return (
        times_in_windows(run.device_times, merged_windows(on_devices, len(rows.devices))),
        times_in_windows(run.thread_times, merged_windows(on_threads, len(callers)), run.lives),
    )


def merged_windows(ranges: pl.DataFrame, groups: int) -> pl.DataFrame:
    """Ranges as windows, both with the columns `slot`, `group`, `begin`, `end`: where ranges of one slot and group overlap they
    are one window."""
    key = ranges["slot"] * groups + ranges["group"]
    merged = Spans((key, ranges["begin"], ranges["end"])).merged
    key = pl.Series(merged.group)
    return pl.DataFrame({"slot": key // groups, "group": key % groups, "begin": merged.begin, "end": merged.end})


def devices_of_tasks(rows: RunRows) -> pl.DataFrame:
    """Columns `task` and `group`: the devices that each task uses."""
    pairs = [(task, device) for task, devices in rows.devices_of_task.items() for device in devices]
    return pl.DataFrame(pairs, schema={"task": pl.Int64, "group": pl.Int64}, orient="row")


def trees(run: MeasuredRun, of_devices: pl.DataFrame, of_threads: pl.DataFrame) -> pl.DataFrame:
    """Both trees of each slot of `times_in_windows`: columns `slot`, those of TREE_COLUMNS_OF_RUN, and `ideal_network_ns`
    without values, in the order of slots. E of the devices is the longest window of one."""
    window, useful = pl.col("window"), useful_time(run.options.nccl)
    devices = of_devices.group_by("slot").agg(
        devices=pl.len(),
        elapsed_ns=window.max(),
        useful_ns=useful.sum(),
        communication_ns=(ACTIVE - useful).sum(),
        active_ns=ACTIVE.sum(),
        max_useful_ns=useful.max(),
        max_active_ns=ACTIVE.max(),
    )
    task = pl.Series("task", run.events.rows.task[run.callers[of_threads["group"].to_numpy()]])
    of_tasks = of_threads.group_by("slot", task).agg(
        pl.col("elapsed").max(),
        threads=pl.len(),
        host_useful_ns=(window - IN_CUDA - IN_MPI).sum(),
        host_waiting_ns=pl.sum_horizontal(f"key{activity}" for activity in WAITING_ACTIVITIES).sum(),
        cuda_ns=IN_CUDA.sum(),
        mpi_ns=IN_MPI.sum(),
        longest_mpi=IN_MPI.max(),
    )
    # Of a process the thread counts that is in MPI longest: helper threads don't lower it.
    hosts = of_tasks.group_by("slot").agg(
        pl.col("elapsed").max(),
        pl.col("threads", "host_useful_ns", "host_waiting_ns", "cuda_ns", "mpi_ns").sum(),
        processes=pl.len(),
        mean_mpi_ns=pl.col("longest_mpi").sum() / pl.len(),
        min_mpi_ns=pl.col("longest_mpi").min(),
    )
    times = devices.join(hosts, on="slot", how="full", coalesce=True).sort("slot")
    times = times.with_columns(pl.coalesce("elapsed_ns", "elapsed")).fill_null(0).with_columns(
        pl.lit(run.options.nccl.value).alias(NCCL_POLICY.name),
        host_waiting_ns=pl.col("host_waiting_ns") if run.is_scheduled.all() else pl.lit(None, pl.Int64),
        ideal_network_ns=pl.lit(None, pl.Int64),
    )  # fmt: skip
    has_mpi = any(number in run.events.types for number in event_types.MPI_TYPES.values())
    return pl.concat([times, efficiencies(times, mpi=has_mpi)], how="horizontal")
