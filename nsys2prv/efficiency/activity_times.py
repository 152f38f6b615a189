"""Times of devices, tasks and host threads: over the run, in bins, in NVTX regions and in iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.intervals import Elapsed, Intervals, Numbers, Segments, segments, time_by
from nsys2prv.efficiency.metrics import DeviceTree, HostTree, ProcessTimes
from nsys2prv.efficiency.result_tables import CAUSES
from nsys2prv.efficiency.run_events import STREAM, RunEvents
from nsys2prv.efficiency.sweep import (
    ACTIVITIES,
    CUDA_ACTIVITIES,
    KERNEL,
    MASKS,
    MEMORY,
    MPI,
    NCCL,
    NO_CALL,
    OS,
    SweepContext,
    TimeChunk,
    first_open,
)

_KERNELS, _NCCL, _MEMORY = 1 << KERNEL, 1 << NCCL, 1 << MEMORY
_ALL_MASKS = np.arange(MASKS)


def useful(by_mask: Numbers, reading: str) -> Numbers:
    """U of each row of times by mask, ns."""
    return _sum_where(by_mask, _is_useful(reading))


def active(by_mask: Numbers) -> Numbers:
    """A of each row of times by mask, ns."""
    return _sum_where(by_mask, _ALL_MASKS > 0)


def _is_useful(reading: str) -> npt.NDArray[np.bool_]:
    return (_ALL_MASKS & (_KERNELS | _NCCL if reading == NcclPolicy.USEFUL else _KERNELS)) > 0


def _sum_where(by_mask: Numbers, masks: npt.NDArray[np.bool_]) -> Numbers:
    total: Numbers = by_mask[..., masks].sum(axis=-1)
    return total


class Totals:
    """Times over the whole run, by what runs or is done.

    Attributes
    ----------
    devices, tasks
        A row per device, and task, with the time for each mask of activity.
    threads
        A row per calling host thread, with the time for each activity; the rest of the run is in no call.
    first, last
        First begin and last end of activity of each device; -1: none.
    """

    def __init__(self, ground: SweepContext) -> None:
        rows = ground.recording.rows
        self.devices: Numbers = np.zeros((len(rows.devices), MASKS), dtype=np.int64)
        self.tasks: Numbers = np.zeros((len(rows.tasks), MASKS), dtype=np.int64)
        self.threads: Numbers = np.zeros((len(ground.callers), ACTIVITIES), dtype=np.int64)
        self.first: Numbers = np.full(len(rows.devices), -1, dtype=np.int64)
        self.last: Numbers = np.full(len(rows.devices), -1, dtype=np.int64)

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        self.devices += _by_mask(part.on_devices, len(self.devices))
        self.tasks += _by_mask(part.on_tasks, len(self.tasks))
        threads = part.on_threads
        self.threads += time_by(first_open(threads), threads.length, ACTIVITIES, threads.group, len(self.threads))
        found = part.on_devices
        busy = found.mask > 0
        group = found.group[busy]
        if len(group):
            is_first = np.concatenate([[True], group[1:] != group[:-1]])
            is_last = np.concatenate([is_first[1:], [True]])
            begun = group[is_first]
            self.first[begun] = np.where(self.first[begun] < 0, found.begin[busy][is_first], self.first[begun])
            self.last[group[is_last]] = found.end[busy][is_last]


def _by_mask(found: Segments, groups: int) -> Numbers:
    return time_by(found.mask, found.length, MASKS, found.group, groups)


@dataclass(frozen=True)
class TimeSelection:
    """Windows of time that belong to a slot (a bin, a region, an iteration) and a group (a device, a thread)."""

    slot: Numbers
    group: Numbers
    begin: Numbers
    end: Numbers


class TimesInWindows:
    """Times by key in windows, summed by slot and group. Only slots and groups that occur take room.

    Parameters
    ----------
    keys
        Number of keys of the times.
    """

    _COMPACT_ROWS = 400_000

    def __init__(self, keys: int) -> None:
        self._names = [f"key{key}" for key in range(keys)]
        self._pending: list[pl.DataFrame] = []
        self._rows = 0

    def take(self, times: Elapsed, windows: TimeSelection) -> None:
        """Take in the windows of a stretch, cut at its edges."""
        if not len(windows.slot):
            return
        measured = times.until(windows.group, windows.end) - times.until(windows.group, windows.begin)
        columns = {name: measured[:, key] for key, name in enumerate(self._names)}
        found = pl.DataFrame({"slot": windows.slot, "group": windows.group, "window": windows.end - windows.begin, **columns})
        self._pending.append(found.group_by("slot", "group").sum())
        self._rows += self._pending[-1].height
        if self._rows > self._COMPACT_ROWS:
            compact = pl.concat(self._pending).group_by("slot", "group").sum()
            self._pending, self._rows = [compact], compact.height // 2

    def sums(self) -> pl.DataFrame:
        """Columns `slot`, `group`, `window` (ns in all windows), and one per key."""
        schema = dict.fromkeys(("slot", "group", "window", *self._names), pl.Int64)
        found = pl.concat(self._pending) if self._pending else pl.DataFrame(schema=schema)
        return found.group_by("slot", "group").sum().sort("slot", "group")


class Bins:
    """Times in bins of equal length over the run.

    Attributes
    ----------
    edges
        Begin of each bin, and the end of the last.
    devices, threads
        Times by mask of activity, and by activity of the thread.
    """

    def __init__(self, ground: SweepContext, bins: int) -> None:
        length = ground.recording.length
        # Never more bins than nanoseconds.
        count = max(min(bins, length), 1)
        self.edges: Numbers = np.array([length * place // count for place in range(count + 1)], dtype=np.int64)
        self._devices_of_run = np.arange(len(ground.recording.rows.devices))
        self._callers = np.arange(len(ground.callers))
        self.devices = TimesInWindows(MASKS)
        self.threads = TimesInWindows(ACTIVITIES)

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        first = int(np.searchsorted(self.edges, part.begin, side="right")) - 1
        behind = int(np.searchsorted(self.edges[:-1], part.end, side="left"))
        bins = np.arange(max(first, 0), behind)
        begin, end = np.maximum(self.edges[bins], part.begin), np.minimum(self.edges[bins + 1], part.end)
        for groups, times, found in (
            (self._devices_of_run, part.device_times, self.devices),
            (self._callers, part.thread_times, self.threads),
        ):
            slot, group = np.repeat(bins, len(groups)), np.tile(groups, len(bins))
            windows = TimeSelection(slot, group, np.repeat(begin, len(groups)), np.repeat(end, len(groups)))
            found.take(times, windows)


class RegionTimes:
    """Times in NVTX ranges: a slot per region, or per iteration of one.

    A device counts while a task that uses it is in a range, a host thread while its task is.
    """

    def __init__(self, ground: SweepContext) -> None:
        rows = ground.recording.rows
        self._ground = ground
        self.devices = TimesInWindows(MASKS)
        self.threads = TimesInWindows(ACTIVITIES)
        self._devices_of_task = _table_of(rows.devices_of_task, len(rows.tasks))
        callers: dict[int, list[int]] = {}
        for place, row in enumerate(ground.callers):
            callers.setdefault(int(rows.task[row]), []).append(place)
        self._callers_of_task = _table_of(callers, len(rows.tasks))

    def take(self, part: TimeChunk, slot: Numbers, task: Numbers, begin: Numbers, end: Numbers) -> None:
        """Take in ranges of a stretch, cut at its edges: the slot and the task of each."""
        for table, times, found, groups in (
            (self._devices_of_task, part.device_times, self.devices, len(self._ground.recording.rows.devices)),
            (self._callers_of_task, part.thread_times, self.threads, len(self._ground.callers)),
        ):
            count = table.counts[task]
            source = np.repeat(np.arange(len(task)), count)
            within = np.arange(len(source)) - np.repeat(np.cumsum(count) - count, count)
            group = table.members[table.first[task[source]] + within]
            if not len(group):
                continue
            key = slot[source] * groups + group
            covered = segments(Intervals(key, begin[source], end[source]))
            merged = covered.where(covered.counts[0] > 0)
            found.take(times, TimeSelection(merged.group // groups, merged.group % groups, merged.begin, merged.end))


@dataclass(frozen=True)
class _Members:
    first: Numbers
    counts: Numbers
    members: Numbers


def _table_of(members: Mapping[int, Sequence[int]], groups: int) -> _Members:
    counts = np.array([len(members.get(group, ())) for group in range(groups)], dtype=np.int64)
    flat = [member for group in range(groups) for member in members.get(group, ())]
    return _Members(np.cumsum(counts) - counts, counts, np.array(flat, dtype=np.int64))


class Trees:
    """Rows of the trees, in columns of the tables, for one reading of NCCL kernels."""

    def __init__(self, ground: SweepContext, reading: str, *, has_mpi: bool) -> None:
        self._recording = ground.recording
        self._reading = reading
        self._has_mpi = has_mpi
        self._task_of_caller: Numbers = ground.recording.rows.task[ground.callers]

    def devices(self, elapsed: int, by_mask: Numbers) -> dict[str, Any]:
        """Columns DEVICE_TREE from times by mask, a row per device."""
        used = useful(by_mask, self._reading)
        tree = DeviceTree.of(elapsed, used.tolist(), (active(by_mask) - used).tolist())
        return {
            "nccl": self._reading,
            "devices": tree.devices,
            "elapsed_ns": tree.elapsed,
            "useful_ns": tree.useful,
            "communication_ns": tree.communication,
            "active_ns": tree.active,
            "max_useful_ns": tree.max_useful,
            "max_active_ns": tree.max_active,
            "device_parallel_efficiency": tree.parallel_efficiency,
            "load_balance": tree.load_balance,
            "communication_efficiency": tree.communication_efficiency,
            "orchestration_efficiency": tree.orchestration_efficiency,
        }

    def hosts(self, windows: Numbers, by_activity: Numbers, callers: Numbers) -> dict[str, Any]:
        """Columns HOST_TREE.

        Parameters
        ----------
        windows
            Length of the window of each thread, ns; E is their mean.
        by_activity
            Times in calls by activity, a row per thread.
        callers
            Which threads these are: places in `SweepContext.callers`.
        """
        runtime, mpi = by_activity[:, list(CUDA_ACTIVITIES)].sum(axis=1), by_activity[:, MPI]
        processes = [
            ProcessTimes(int(of_task.sum()), int(runtime[of_task].sum()), int(mpi[of_task].sum()))
            for task in np.unique(self._task_of_caller[callers])
            if (of_task := self._task_of_caller[callers] == task).any()
        ]
        tree = HostTree.of(int(windows.sum()), processes, has_mpi=self._has_mpi)
        return {
            "processes": tree.processes,
            "threads": tree.threads,
            "host_useful_ns": tree.useful,
            "cuda_ns": tree.gpu_runtime,
            "mpi_ns": tree.mpi,
            "min_mpi_ns": tree.min_mpi,
            "host_parallel_efficiency": tree.parallel_efficiency,
            "mpi_parallel_efficiency": tree.mpi_parallel_efficiency,
            "mpi_load_balance": tree.mpi_load_balance,
            "mpi_communication_efficiency": tree.mpi_communication_efficiency,
            "device_offload_efficiency": tree.device_offload_efficiency,
        }

    def of_run(self, totals: Totals) -> dict[str, Any]:
        """Both trees of the run."""
        return self.of_some(totals, np.arange(len(totals.devices)), np.arange(len(totals.threads)))

    def of_some(self, totals: Totals, devices: Numbers, callers: Numbers) -> dict[str, Any]:
        """Both trees of some devices and some calling threads over the whole run."""
        length = self._recording.length
        windows = np.full(len(callers), length, dtype=np.int64)
        return self.devices(length, totals.devices[devices]) | self.hosts(windows, totals.threads[callers], callers)

    def of_slots(self, devices: pl.DataFrame, threads: pl.DataFrame) -> dict[int, dict[str, Any]]:
        """Both trees of each slot, from sums in windows; E of the devices is the longest window of one."""
        found: dict[int, dict[str, Any]] = {}
        nothing = np.zeros(0, dtype=np.int64), np.zeros((0, ACTIVITIES), dtype=np.int64), np.zeros(0, dtype=np.int64)
        of_threads = {slot: _columns(part) for (slot,), part in threads.partition_by("slot", as_dict=True).items()}
        for (slot,), part in devices.partition_by("slot", as_dict=True).items():
            windows, by_mask, _ = _columns(part)
            hosts = of_threads.get(slot, nothing)
            found[int(slot)] = self.devices(int(windows.max()), by_mask) | self.hosts(*hosts)
        return found


def _columns(part: pl.DataFrame) -> tuple[Numbers, Numbers, Numbers]:
    """Windows, times by key, groups."""
    keys = [name for name in part.columns if name.startswith("key")]
    return part["window"].to_numpy(), part.select(keys).to_numpy(), part["group"].to_numpy()


def device_table(recording: RunEvents, totals: Totals, reading: str) -> list[dict[str, Any]]:
    """Rows of the table `devices`."""
    rows = recording.rows
    used, busy = useful(totals.devices, reading), active(totals.devices)
    streams = np.bincount(rows.device[rows.of_kind(STREAM)], minlength=len(rows.devices))
    masks = {
        "kernels_ns": (_ALL_MASKS & _KERNELS) > 0,
        "nccl_ns": (_ALL_MASKS & _NCCL) > 0,
        "memory_ns": (_ALL_MASKS & _MEMORY) > 0,
        "nccl_alone_ns": ((_ALL_MASKS & _NCCL) > 0) & ((_ALL_MASKS & _KERNELS) == 0),
        "memory_alone_ns": _ALL_MASKS == _MEMORY,
        "nccl_covered_ns": ((_ALL_MASKS & _NCCL) > 0) & ((_ALL_MASKS & _KERNELS) > 0),
        "memory_covered_ns": ((_ALL_MASKS & _MEMORY) > 0) & ((_ALL_MASKS & (_KERNELS | _NCCL)) > 0),
    }
    sums = {name: _sum_where(totals.devices, masks_of) for name, masks_of in masks.items()}
    length = recording.length
    return [
        {
            "device": device.name,
            "node": device.node,
            "number": device.number,
            "tasks": "; ".join(rows.tasks[task].name for task in rows.tasks_of_device.get(index, ())),
            "streams": int(streams[index]),
            "nccl": reading,
            "elapsed_ns": length,
            "useful_ns": int(used[index]),
            "communication_ns": int(busy[index] - used[index]),
            "active_ns": int(busy[index]),
            "idle_ns": int(length - busy[index]),
            "useful_share": used[index] / length,
            "active_share": busy[index] / length,
            **{name: int(values[index]) for name, values in sums.items()},
            "first_ns": int(totals.first[index]) if totals.first[index] >= 0 else None,
            "last_ns": int(totals.last[index]) if totals.last[index] >= 0 else None,
        }
        for index, device in enumerate(rows.devices)
    ]


def task_table(ground: SweepContext, totals: Totals, reading: str) -> list[dict[str, Any]]:
    """Rows of the table `tasks`."""
    rows, length = ground.recording.rows, ground.recording.length
    used, busy = useful(totals.tasks, reading), active(totals.tasks)
    of_callers = rows.task[ground.callers]
    found = []
    for index, task in enumerate(rows.tasks):
        if task.is_node:
            continue
        threads = totals.threads[of_callers == index]
        runtime, mpi = int(threads[:, list(CUDA_ACTIVITIES)].sum()), int(threads[:, MPI].sum())
        found.append(
            {
                "task": task.name,
                "number": index + 1,
                "rank": task.rank,
                "node": task.node,
                "devices": "; ".join(rows.devices[device].name for device in rows.devices_of_task.get(index, ())),
                "nccl": reading,
                "useful_ns": int(used[index]),
                "communication_ns": int(busy[index] - used[index]),
                "active_ns": int(busy[index]),
                "threads": len(threads),
                "host_useful_ns": length * len(threads) - runtime - mpi,
                "cuda_ns": runtime,
                "mpi_ns": mpi,
                "os_ns": int(threads[:, OS].sum()),
            }
        )
    return found


def thread_table(ground: SweepContext, totals: Totals) -> list[dict[str, Any]]:
    """Rows of the table `threads`."""
    rows, length = ground.recording.rows, ground.recording.length
    found = []
    for row, times in zip(ground.callers.tolist(), totals.threads.tolist(), strict=True):
        runtime = sum(times[activity] for activity in CUDA_ACTIVITIES)
        found.append(
            {
                "task": rows.tasks[int(rows.task[row])].name,
                "thread": rows.names[row],
                "host_useful_ns": length - runtime - times[MPI],
                "cuda_ns": runtime,
                "mpi_ns": times[MPI],
                **{f"{cause}_ns": times[index] for index, cause in enumerate(CAUSES) if index != MPI},
            }
        )
    return found


def useful_table(totals: Totals, rows_of_tasks: Sequence[int], reading: str) -> list[dict[str, Any]]:
    """Rows of the table `useful`: over devices, and over the tasks that use a GPU."""
    found = []
    for over, values in (
        ("devices", useful(totals.devices, reading)),
        ("tasks", useful(totals.tasks[list(rows_of_tasks)], reading)),
    ):
        if len(values):
            found.append(
                {
                    "over": over,
                    "nccl": reading,
                    "count": len(values),
                    "total_ns": int(values.sum()),
                    "average_ns": float(values.mean()),
                    "maximum_ns": int(values.max()),
                    "minimum_ns": int(values.min()),
                    "deviation_ns": float(values.std()),
                    "avg_max": float(values.mean() / values.max()) if values.max() else None,
                }
            )
    return found


def bin_tables(ground: SweepContext, bins: Bins, trees: Trees) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `bins` and `device_bins`."""
    devices, threads = bins.devices.sums(), bins.threads.sums()
    slots = trees.of_slots(devices, threads)
    rows = [
        {"bin": slot, "begin_ns": int(bins.edges[slot]), "end_ns": int(bins.edges[slot + 1]), **columns}
        for slot, columns in sorted(slots.items())
    ]
    names = pl.Series([device.name for device in ground.recording.rows.devices], dtype=pl.String)
    key = [pl.col(f"key{mask}") for mask in range(MASKS)]
    of_kernels = [key[mask] for mask in range(MASKS) if mask & _KERNELS]
    of_nccl = [key[mask] for mask in range(MASKS) if mask & _NCCL and not mask & _KERNELS]
    by_device = devices.select(
        bin="slot",
        device=pl.lit(names).gather(pl.col("group")),
        kernels_ns=pl.sum_horizontal(of_kernels),
        nccl_ns=pl.sum_horizontal(of_nccl),
        memory_ns=key[_MEMORY],
        idle_ns=pl.col("window") - pl.sum_horizontal(key[1:]),
    )
    return pl.DataFrame(rows, infer_schema_length=None), by_device


__all__ = ["NO_CALL", "Bins", "RegionTimes", "TimesInWindows", "Totals", "Trees"]
