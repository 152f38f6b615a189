"""Times of devices and host threads by activity: what NCCL kernels count as, sums in windows, and the trees from them.

Bins, regions, iterations and parts of the run are windows of time (`SlotWindows`): all are measured here in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.intervals import Elapsed, Intervals, Numbers, segments
from nsys2prv.efficiency.measured_run import ACTIVITIES, CUDA_ACTIVITIES, KERNEL, MASKS, MPI, NCCL, MeasuredRun
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE, TREE_COLUMNS, DeviceTimes, HostTimes, ProcessTimes
from nsys2prv.efficiency.result_tables import NCCL_POLICY
from nsys2prv.efficiency.run_events import RunRows
from nsys2prv.vocabulary import event_types

ALL_MASKS: Numbers = np.arange(MASKS)


def useful_time(by_mask: Numbers, policy: NcclPolicy) -> Numbers:
    """U of each row of times by mask, ns."""
    useful = 1 << KERNEL | 1 << NCCL if policy == NcclPolicy.USEFUL else 1 << KERNEL
    return time_where(by_mask, (ALL_MASKS & useful) > 0)


def active_time(by_mask: Numbers) -> Numbers:
    """A of each row of times by mask, ns."""
    return time_where(by_mask, ALL_MASKS > 0)


def time_where(by_mask: Numbers, masks: npt.NDArray[np.bool_]) -> Numbers:
    """Sum over some masks of each row of times by mask, ns."""
    total: Numbers = by_mask[..., masks].sum(axis=-1)
    return total


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
    slot, group = windows.slot, windows.group
    is_first = np.ones(len(slot), dtype=bool)
    is_first[1:] = (slot[1:] != slot[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(is_first)

    def summed(lengths: Numbers) -> Numbers:
        return np.add.reduceat(lengths, first) if len(first) else lengths

    columns = {"slot": slot[first], "group": group[first], "window": summed(windows.end - windows.begin)}
    by_key = times.in_windows(group, windows.begin, windows.end)
    return pl.DataFrame({**columns, **{f"key{key}": summed(lengths) for key, lengths in enumerate(by_key)}})


def times_in_ranges(run: MeasuredRun, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Times of devices and of host threads in ranges of time (columns `slot`, `task`, `begin`, `end`), as `times_in_windows`.

    A device counts while a task that uses it is in a range, a host thread while its task is.
    """
    rows = run.events.rows
    of_callers = _members((int(rows.task[row]), place) for place, row in enumerate(run.callers))
    devices, threads = (
        times_in_windows(
            times, merged_windows(ranges.cast(pl.Int64).join(members, on="task").rename({"member": "group"}), groups)
        )
        for members, times, groups in (
            (members_by_device(rows), run.device_times, len(rows.devices)),
            (of_callers, run.thread_times, len(run.callers)),
        )
    )
    return devices, threads


def merged_windows(ranges: pl.DataFrame, groups: int) -> SlotWindows:
    """Ranges (columns `slot`, `group`, `begin`, `end`) as windows: where ranges of one slot and group overlap they are one."""
    key = ranges["slot"] * groups + ranges["group"]
    covered = segments(Intervals.of(key, ranges["begin"], ranges["end"]))
    merged = covered.where(covered.counts[0] > 0)
    return SlotWindows(merged.group // groups, merged.group % groups, merged.begin, merged.end)


def members_by_device(rows: RunRows) -> pl.DataFrame:
    """Columns `task` and `member`: the devices that each task uses."""
    return _members((task, device) for task, devices in rows.devices_of_task.items() for device in devices)


def _members(of_tasks: Iterable[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(list(of_tasks), schema={"task": pl.Int64, "member": pl.Int64}, orient="row")


class Trees:
    """Values of TREE_COLUMNS of a run, for its policy of NCCL kernels."""

    def __init__(self, run: MeasuredRun) -> None:
        self.policy = run.options.nccl
        self._has_mpi = any(number in run.events.types for number in event_types.MPI_TYPES.values())
        self._uses_gpus = bool(run.events.rows.devices)
        self._task_of_caller: Numbers = run.events.rows.task[run.callers]

    def of_slots(self, of_devices: pl.DataFrame, of_threads: pl.DataFrame) -> pl.DataFrame:
        """Both trees of each slot of `times_in_windows`: columns `slot` and TREE_COLUMNS, in the order of slots. E of the
        devices is the longest window of one."""
        devices, hosts = _by_slot(of_devices), _by_slot(of_threads)
        no_device = np.zeros(0, dtype=np.int64), np.zeros((0, MASKS), dtype=np.int64), np.zeros(0, dtype=np.int64)
        no_thread = np.zeros(0, dtype=np.int64), np.zeros((0, ACTIVITIES), dtype=np.int64), np.zeros(0, dtype=np.int64)
        rows = []
        for slot in devices if self._uses_gpus else hosts:
            windows, by_mask, _ = devices.get(slot, no_device)
            of_slot = hosts.get(slot, no_thread)
            elapsed = windows if self._uses_gpus else of_slot[0]
            rows.append({"slot": slot, **self.row(int(elapsed.max()), by_mask, *of_slot)})
        return pl.DataFrame(rows, schema={"slot": pl.Int64, **{column.name: column.dtype for column in TREE_COLUMNS}})

    def row(self, elapsed: int, by_mask: Numbers, windows: Numbers, by_activity: Numbers, callers: Numbers) -> dict[str, Any]:
        """Both trees of some devices and some calling threads.

        Parameters
        ----------
        elapsed
            E of the devices, ns.
        by_mask
            Times by mask of activity, a row per device.
        windows, by_activity, callers
            E and times by activity, a row per thread, and which threads these are: places in `MeasuredRun.callers`.
        """
        useful = useful_time(by_mask, self.policy)
        devices = DeviceTimes.of(elapsed, useful.tolist(), (active_time(by_mask) - useful).tolist())
        cuda, mpi = by_activity[:, list(CUDA_ACTIVITIES)].sum(axis=1), by_activity[:, MPI]
        task = self._task_of_caller[callers]
        processes = [
            ProcessTimes(int(here.sum()), int(cuda[here].sum()), int(mpi[here].sum()), int(mpi[here].max()))
            for here in (task == number for number in np.unique(task))
        ]
        hosts = HostTimes.of(int(windows.sum()), processes, has_mpi=self._has_mpi, uses_gpus=self._uses_gpus)
        return {NCCL_POLICY.name: self.policy.value, **DEVICE_TREE.row(devices), **HOST_TREE.row(hosts)}


def _by_slot(sums: pl.DataFrame) -> dict[int, tuple[Numbers, Numbers, Numbers]]:
    """Windows, times by key and groups of each slot, of rows that are in the order of their slots."""
    keys = [name for name in sums.columns if name.startswith("key")]
    windows, times, groups = sums["window"].to_numpy(), sums.select(keys).to_numpy(), sums["group"].to_numpy()
    slots, starts = np.unique(sums["slot"].to_numpy(), return_index=True)
    ends = [*starts[1:].tolist(), sums.height]
    parts = {slot: slice(start, end) for slot, start, end in zip(slots.tolist(), starts.tolist(), ends, strict=False)}
    return {slot: (windows[part], times[part], groups[part]) for slot, part in parts.items()}
