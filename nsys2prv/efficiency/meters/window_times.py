"""Efficiencies of the whole run, its start-up, its steady part and its shut-down, beside those of the window."""

from __future__ import annotations

import numpy as np

from nsys2prv.efficiency.activity_times import SlotWindows, TimesInWindows, Trees
from nsys2prv.efficiency.intervals import Elapsed
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.metrics import TREE_COLUMNS
from nsys2prv.efficiency.result_tables import EFFICIENCY_COLUMNS, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.sweep import ACTIVITIES, MASKS, SweepContext, TimeChunk
from nsys2prv.efficiency.window.measured_window import MeasuredWindow

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
    order=200,
    page=OnPage("regions", place=2, columns=("window", "begin_ns", "length_ns", "share", EFFICIENCY_COLUMNS)),
    console=OnConsole((("window", "part of the run"), ("begin_ns", "start"), "length_ns", ("share", "of the run"),
        EFFICIENCY_COLUMNS), place=31, spare=("share",)),
)  # fmt: skip


class WindowTimes(TableMeter):
    """Times of devices and threads in each part of a run; it needs the chunks outside of the window, too."""

    def __init__(self, context: SweepContext, trees: Trees, window: MeasuredWindow) -> None:
        self._trees = trees
        self._offset = context.events.offset
        self._window = window
        self._sums = TimesInWindows(MASKS), TimesInWindows(ACTIVITIES)
        self._members = len(context.events.rows.devices), len(context.callers)

    def update(self, chunk: TimeChunk) -> None:
        for slot, (first, last) in enumerate(self._window.parts.values()):
            begin, end = max(first - self._offset, chunk.begin), min(last - self._offset, chunk.end)
            if begin < end:
                times: tuple[Elapsed, Elapsed] = (chunk.device_times, chunk.thread_times)
                for sums, of_chunk, members in zip(self._sums, times, self._members, strict=True):
                    slots, begins, ends = (np.full(members, value, dtype=np.int64) for value in (slot, begin, end))
                    sums.update(of_chunk, SlotWindows(slots, np.arange(members), begins, ends))

    def tables(self) -> Filled:
        """The table `windows`."""
        found = self._trees.of_slots(*self._sums)
        begin, end = self._window.program
        rows = [
            {
                "window": name,
                "begin_ns": first - self._offset,
                "end_ns": last - self._offset,
                "length_ns": last - first,
                "share": (last - first) / (end - begin),
                **found.get(slot, {}),
            }
            for slot, (name, (first, last)) in enumerate(self._window.parts.items())
        ]
        return {WINDOWS: rows}
