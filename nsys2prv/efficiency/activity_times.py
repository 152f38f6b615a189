"""Times of devices and host threads by activity: what NCCL kernels count as, sums in windows, and the trees from them.

Bins, regions, iterations and parts of the run are windows of time (`SlotWindows`): all are measured here in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.intervals import Elapsed, Intervals, Numbers, segments
from nsys2prv.efficiency.measured_run import (
    CUDA_ACTIVITIES,
    KERNEL,
    MASKS,
    MEMORY,
    MPI,
    NCCL,
    WAITING_ACTIVITIES,
    MeasuredRun,
)
from nsys2prv.efficiency.metrics import efficiencies
from nsys2prv.efficiency.result_tables import NCCL_POLICY
from nsys2prv.efficiency.run_events import RunRows
from nsys2prv.vocabulary import event_types

DEVICE_KINDS = (KERNEL, NCCL, MEMORY)


def running(kinds: Iterable[int], without: Iterable[int] = ()) -> pl.Expr:
    """Time in which activity of any of these kinds runs and none of the kinds `without`, ns: a sum of columns `key0`, `key1`,
    ... of times by mask."""
    counted, excluded = (sum(1 << kind for kind in bits) for bits in (kinds, without))
    return pl.sum_horizontal(f"key{mask}" for mask in range(MASKS) if mask & counted and not mask & excluded)


def useful_time(policy: NcclPolicy) -> pl.Expr:
    """U of each row of times by mask, ns."""
    return running((KERNEL, NCCL) if policy == NcclPolicy.USEFUL else (KERNEL,))


@dataclass(frozen=True)
class SlotWindows:
    """Windows of time that belong to a slot (a bin, a region, an iteration) and a group (a device, a thread), in the order of
    slots and groups."""

    slot: Numbers
    group: Numbers
    begin: Numbers
    end: Numbers


def times_in_windows(times: Elapsed, windows: SlotWindows) -> pl.DataFrame:
    """Times by key in windows, summed by slot and group.

    Returns
    -------
    Columns `slot`, `group`, `window` (ns in all windows), and `key0`, `key1`, ... (ns), sorted by slot and group.
    """
    by_key = enumerate(times.in_windows(windows.group, windows.begin, windows.end))
    lengths = {"window": windows.end - windows.begin, **{f"key{key}": length for key, length in by_key}}
    columns = pl.DataFrame({"slot": windows.slot, "group": windows.group, **lengths})
    return columns.group_by("slot", "group").sum().sort("slot", "group")


def times_in_parts(run: MeasuredRun, begin: Numbers, end: Numbers) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of all devices, and of all calling threads, in parts of the run, as `times_in_windows`: a slot for each part."""

    def in_parts(times: Elapsed, groups: int) -> pl.DataFrame:
        slot, group = np.repeat(np.arange(len(begin)), groups), np.tile(np.arange(groups), len(begin))
        return times_in_windows(times, SlotWindows(slot, group, np.repeat(begin, groups), np.repeat(end, groups)))

    return in_parts(run.device_times, len(run.events.rows.devices)), in_parts(run.thread_times, len(run.callers))


def times_in_ranges(run: MeasuredRun, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of devices and of host threads in ranges of time (columns `slot`, `task`, `begin`, `end`), as `times_in_windows`.

    A device counts while a task that uses it is in a range, a host thread while its task is.
    """

    def in_ranges(times: Elapsed, members: pl.DataFrame, groups: int) -> pl.DataFrame:
        of_groups = ranges.cast(pl.Int64).join(members, on="task").rename({"member": "group"})
        return times_in_windows(times, merged_windows(of_groups, groups))

    rows, callers = run.events.rows, run.callers
    threads = pl.DataFrame({"task": rows.task[callers], "member": np.arange(len(callers))})
    return (
        in_ranges(run.device_times, members_by_device(rows), len(rows.devices)),
        in_ranges(run.thread_times, threads, len(callers)),
    )


def merged_windows(ranges: pl.DataFrame, groups: int) -> SlotWindows:
    """Ranges (columns `slot`, `group`, `begin`, `end`) as windows: where ranges of one slot and group overlap they are one."""
    key = ranges["slot"] * groups + ranges["group"]
    covered = segments(Intervals.of(key, ranges["begin"], ranges["end"]))
    merged = covered.where(covered.counts[0] > 0)
    return SlotWindows(merged.group // groups, merged.group % groups, merged.begin, merged.end)


def members_by_device(rows: RunRows) -> pl.DataFrame:
    """Columns `task` and `member`: the devices that each task uses."""
    pairs = [(task, device) for task, devices in rows.devices_of_task.items() for device in devices]
    return pl.DataFrame(pairs, schema={"task": pl.Int64, "member": pl.Int64}, orient="row")


def trees(run: MeasuredRun, of_devices: pl.DataFrame, of_threads: pl.DataFrame) -> pl.DataFrame:
    """Both trees of each slot of `times_in_windows`.

    Returns
    -------
    Columns `slot`, those of TREE_COLUMNS_OF_RUN, and `ideal_network_ns` without values, in the order of slots. E of the devices
    is the longest window of one.
    """
    window, useful = pl.col("window"), useful_time(run.options.nccl)
    active = running(DEVICE_KINDS)
    devices = of_devices.group_by("slot").agg(
        devices=pl.len(),
        elapsed_ns=window.max(),
        useful_ns=useful.sum(),
        communication_ns=(active - useful).sum(),
        active_ns=active.sum(),
        max_useful_ns=useful.max(),
        max_active_ns=active.max(),
    )
    cuda, waiting = (pl.sum_horizontal(f"key{key}" for key in keys) for keys in (CUDA_ACTIVITIES, WAITING_ACTIVITIES))
    mpi = pl.col(f"key{MPI}")
    task = pl.Series("task", run.events.rows.task[run.callers[of_threads["group"].to_numpy()]])
    of_tasks = of_threads.group_by("slot", task).agg(
        window.max(),
        threads=pl.len(),
        host_useful_ns=(window - cuda - mpi).sum(),
        host_waiting_ns=waiting.sum(),
        cuda_ns=cuda.sum(),
        mpi_ns=mpi.sum(),
        longest_mpi=mpi.max(),
    )
    # Of a process the thread counts that is in MPI longest: helper threads don't lower it.
    hosts = of_tasks.group_by("slot").agg(
        window.max(),
        pl.col("threads", "host_useful_ns", "host_waiting_ns", "cuda_ns", "mpi_ns").sum(),
        processes=pl.len(),
        mean_mpi_ns=pl.col("longest_mpi").sum() / pl.len(),
        min_mpi_ns=pl.col("longest_mpi").min(),
    )
    times = devices.join(hosts, on="slot", how="full", coalesce=True).sort("slot")
    times = times.with_columns(
        pl.lit(run.options.nccl.value).alias(NCCL_POLICY.name),
        pl.coalesce("elapsed_ns", "window"),
        ideal_network_ns=pl.lit(None, pl.Int64),
    )
    times = times.with_columns(pl.exclude("ideal_network_ns").fill_null(0))
    if not run.is_scheduled.all():
        times = times.with_columns(host_waiting_ns=pl.lit(None, pl.Int64))
    has_mpi = any(number in run.events.types for number in event_types.MPI_TYPES.values())
    return pl.concat([times, efficiencies(times, mpi=has_mpi)], how="horizontal")
