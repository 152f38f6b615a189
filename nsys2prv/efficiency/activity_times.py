"""Times of devices and host threads by activity: what NCCL kernels count as, sums in windows, and the trees from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.intervals import Elapsed, Intervals, Numbers, segments
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE, DeviceTimes, HostTimes, uses
from nsys2prv.efficiency.result_tables import NCCL_POLICY
from nsys2prv.efficiency.run_events import RunRows
from nsys2prv.efficiency.sweep import ACTIVITIES, CUDA_ACTIVITIES, KERNEL, MASKS, MPI, NCCL, SweepContext, TimeChunk
from nsys2prv.execution.merging import Merging

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
    """Windows of time that belong to a slot (a bin, a region, an iteration) and a group (a device, a thread)."""

    slot: Numbers
    group: Numbers
    begin: Numbers
    end: Numbers


class TimesInWindows:
    """Times by key in windows, summed by slot and group. Only slots and groups that occur take memory.

    Parameters
    ----------
    keys
        Number of keys of the times.
    """

    _PENDING_ROWS = 400_000

    def __init__(self, keys: int) -> None:
        self._names = [f"key{key}" for key in range(keys)]
        empty = pl.DataFrame(schema=dict.fromkeys(("slot", "group", "window", *self._names), pl.Int64))
        self._sums = Merging(_added, empty, self._PENDING_ROWS)

    def update(self, times: Elapsed, windows: SlotWindows) -> None:
        """Add the windows of a chunk, cut at its edges."""
        if not len(windows.slot):
            return
        measured = times.until(windows.group, windows.end) - times.until(windows.group, windows.begin)
        columns = {name: measured[:, key] for key, name in enumerate(self._names)}
        window = windows.end - windows.begin
        self._sums.add(_added(pl.DataFrame({"slot": windows.slot, "group": windows.group, "window": window, **columns})))

    def sums(self) -> pl.DataFrame:
        """Columns `slot`, `group`, `window` (ns in all windows), and `key0`, `key1`, ... (ns)."""
        return self._sums.rows.sort("slot", "group")


def _added(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.group_by("slot", "group").sum()


class RegionTimes:
    """Times in NVTX ranges: a slot per region, or per iteration of one.

    A device counts while a task that uses it is in a range, a host thread while its task is.
    """

    def __init__(self, context: SweepContext) -> None:
        rows = context.events.rows
        self._context = context
        self.devices = TimesInWindows(MASKS)
        self.threads = TimesInWindows(ACTIVITIES)
        self._devices_of_task = members_by_device(rows)
        self._callers_of_task = _members((int(rows.task[row]), place) for place, row in enumerate(context.callers))

    def update(self, chunk: TimeChunk, slot: Numbers, task: Numbers, begin: Numbers, end: Numbers) -> None:
        """Add ranges of a chunk, cut at its edges: the slot and the task of each."""
        ranges = pl.DataFrame({"slot": slot, "task": task, "begin": begin, "end": end}).cast(pl.Int64)
        for members, times, sums, groups in (
            (self._devices_of_task, chunk.device_times, self.devices, len(self._context.events.rows.devices)),
            (self._callers_of_task, chunk.thread_times, self.threads, len(self._context.callers)),
        ):
            found = ranges.join(members, on="task").rename({"member": "group"})
            sums.update(times, merged_windows(found, groups))


def merged_windows(ranges: pl.DataFrame, groups: int) -> SlotWindows:
    """Ranges (columns `slot`, `group`, `begin`, `end`) as windows: where ranges of one slot and group overlap they are one."""
    key = ranges["slot"] * groups + ranges["group"]
    covered = segments(Intervals.of(key, ranges["begin"], ranges["end"]))
    merged = covered.where(covered.counts[0] > 0)
    return SlotWindows(merged.group // groups, merged.group % groups, merged.begin, merged.end)


def members_by_device(rows: RunRows) -> pl.DataFrame:
    """Columns `task` and `member`: the devices that each task uses."""
    return _members((task, one) for task, devices in rows.devices_of_task.items() for one in devices)


def _members(of_tasks: Iterable[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(list(of_tasks), schema={"task": pl.Int64, "member": pl.Int64}, orient="row")


class Trees:
    """Values of TREE_COLUMNS for one policy of NCCL kernels.

    Parameters
    ----------
    policy
        What NCCL kernels count as.
    has_mpi
        Whether the run has MPI calls.
    """

    def __init__(self, context: SweepContext, policy: NcclPolicy, *, has_mpi: bool) -> None:
        self.policy = policy
        self._uses_gpus = bool(context.events.rows.devices)
        self._used = uses(mpi=has_mpi, gpus=self._uses_gpus)
        self._task_of_caller: Numbers = context.events.rows.task[context.callers]

    def of_slots(self, devices: TimesInWindows, threads: TimesInWindows, slots: Sequence[int] | None = None) -> Slots:
        """Both trees of each slot, or of some; E of the devices is the longest window of one."""
        of_devices, of_threads = (
            sums if slots is None else sums.filter(pl.col("slot").is_in(slots)) for sums in (devices.sums(), threads.sums())
        )
        nothing = np.zeros(0, dtype=np.int64), np.zeros((0, ACTIVITIES), dtype=np.int64), np.zeros(0, dtype=np.int64)
        hosts = _by_slot(of_threads)
        if not self._uses_gpus:
            no_device = np.zeros((0, MASKS), dtype=np.int64)
            return {slot: self.row(int(found[0].max()), no_device, *found) for slot, found in hosts.items()}
        return {
            slot: self.row(int(windows.max()), by_mask, *hosts.get(slot, nothing))
            for slot, (windows, by_mask, _) in _by_slot(of_devices).items()
        }

    def row(self, elapsed: int, by_mask: Numbers, windows: Numbers, by_activity: Numbers, callers: Numbers) -> dict[str, Any]:
        """Both trees of some devices and some calling threads.

        Parameters
        ----------
        elapsed
            E of the devices, ns.
        by_mask
            Times by mask of activity, a row per device.
        windows, by_activity, callers
            E and times by activity, a row per thread, and which threads these are: places in `SweepContext.callers`.
        """
        useful = useful_time(by_mask, self.policy)
        devices = DeviceTimes(elapsed, useful, active_time(by_mask) - useful, by_mask)
        cuda, mpi = by_activity[:, list(CUDA_ACTIVITIES)].sum(axis=1), by_activity[:, MPI]
        hosts = HostTimes(windows, cuda, mpi, by_activity, self._task_of_caller[callers], self._used)
        return {NCCL_POLICY.name: self.policy.value, **DEVICE_TREE.row(devices), **HOST_TREE.row(hosts)}


Slots = Mapping[int, Mapping[str, Any]]
"""Values of TREE_COLUMNS by slot."""


def _by_slot(sums: pl.DataFrame) -> dict[int, tuple[Numbers, Numbers, Numbers]]:
    """Windows, times by key and groups of each slot, of rows that are in the order of their slots."""
    keys = [name for name in sums.columns if name.startswith("key")]
    windows, times, groups = sums["window"].to_numpy(), sums.select(keys).to_numpy(), sums["group"].to_numpy()
    slots, starts = np.unique(sums["slot"].to_numpy(), return_index=True)
    ends = [*starts[1:].tolist(), sums.height]
    parts = {slot: slice(start, end) for slot, start, end in zip(slots.tolist(), starts.tolist(), ends, strict=False)}
    return {slot: (windows[part], times[part], groups[part]) for slot, part in parts.items()}
