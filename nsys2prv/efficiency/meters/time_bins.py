"""Times in bins of equal length: efficiencies over time, and the activity of each device."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.activity_times import SlotWindows, TimesInWindows, Trees
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.metrics import TREE_COLUMNS
from nsys2prv.efficiency.result_tables import DEVICE, EFFICIENCY_COLUMNS, Column, Filled, OnPage, Table
from nsys2prv.efficiency.sweep import ACTIVITIES, KERNEL, MASKS, MEMORY, NCCL, SweepContext, TimeChunk

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
    order=210,
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


class Bins(TableMeter):
    """Times in bins of equal length over the run.

    Attributes
    ----------
    edges
        Start of each bin, and the end of the last, ns.
    """

    def __init__(self, context: SweepContext, trees: Trees, bins: int) -> None:
        self._context = context
        self._trees = trees
        length = context.events.length
        # Never more bins than nanoseconds.
        count = max(min(bins, length), 1)
        self.edges: Numbers = np.array([length * place // count for place in range(count + 1)], dtype=np.int64)
        self._devices = TimesInWindows(MASKS)
        self._threads = TimesInWindows(ACTIVITIES)

    def update(self, chunk: TimeChunk) -> None:
        first = int(np.searchsorted(self.edges, chunk.begin, side="right")) - 1
        behind = int(np.searchsorted(self.edges[:-1], chunk.end, side="left"))
        bins = np.arange(max(first, 0), behind)
        begin, end = np.maximum(self.edges[bins], chunk.begin), np.minimum(self.edges[bins + 1], chunk.end)
        for groups, times, sums in (
            (len(self._context.events.rows.devices), chunk.device_times, self._devices),
            (len(self._context.callers), chunk.thread_times, self._threads),
        ):
            slot, group = np.repeat(bins, groups), np.tile(np.arange(groups), len(bins))
            sums.update(times, SlotWindows(slot, group, np.repeat(begin, groups), np.repeat(end, groups)))

    def tables(self) -> Filled:
        """The tables `bins` and `device_bins`."""
        rows = [
            {"bin": slot, "begin_ns": int(self.edges[slot]), "end_ns": int(self.edges[slot + 1]), **columns}
            for slot, columns in sorted(self._trees.of_slots(self._devices, self._threads).items())
        ]
        key = [pl.col(f"key{mask}") for mask in range(MASKS)]
        of_kernels = [key[mask] for mask in range(MASKS) if mask & (1 << KERNEL)]
        of_nccl = [key[mask] for mask in range(MASKS) if mask & 1 << NCCL and not mask & (1 << KERNEL)]
        by_device = self._devices.sums().select(
            bin="slot",
            device=self._context.device_names(pl.col("group")),
            kernels_ns=pl.sum_horizontal(of_kernels),
            nccl_ns=pl.sum_horizontal(of_nccl),
            memory_ns=key[1 << MEMORY],
            idle_ns=pl.col("window") - pl.sum_horizontal(key[1:]),
        )
        return {BINS: rows, DEVICE_BINS: by_device}
