"""Memory that processes have allocated on devices, over time, from the allocations and frees that were recorded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import MeasuredTables
from nsys2prv.efficiency.meters.run_totals import Bins
from nsys2prv.efficiency.result_tables import DEVICE, Column, Table
from nsys2prv.efficiency.run_events import MEMORY_CHANGES

GROUPS: Mapping[str, frozenset[str]] = {
    "device": frozenset({"Device", "Array", "Device static", "Unknown"}),
    "managed": frozenset({"Managed", "Managed static"}),
    "host": frozenset({"Pinned", "Pageable"}),
}
"""Where memory is, by the kind of nsys: on the device; managed, which moves between host and device; on the host."""
_NAMES = tuple(GROUPS)
_MEMORY = Column.text(
    "memory", "`device`; `managed`, which may be on the host; or `host`: pinned memory of processes that use it"
)

MEMORY_IN_USE = Table(
    "memory_in_use",
    "GPU memory in use",
    "one kind of memory of one device",
    (
        DEVICE,
        _MEMORY,
        Column.bytes("peak_bytes", "most that was allocated at once; what a pool or a framework keeps for later counts"),
        Column.moment("peak_at_ns", "when that was reached first"),
        Column.bytes("begin_bytes", "allocated at the start of the window"),
        Column.bytes("end_bytes", "allocated at its end"),
        Column.bytes("before_bytes", "of these, allocated before the recording, as far as it is known: what was freed without "
                     "an allocation that was recorded. All numbers of bytes are at least so large"),
        Column.count("allocations", "in the window"),
        Column.bytes("allocated_bytes", "sum of their sizes"),
        Column.count("frees", "in the window"),
        Column.bytes("freed_bytes", "sum of their sizes"),
    ),
    when="`nsys profile --cuda-memory-usage=true`",
)  # fmt: skip
MEMORY_BINS = Table(
    "memory_bins",
    "GPU memory in use over time",
    "one kind of memory of one device in one bin",
    (
        DEVICE,
        _MEMORY,
        Column.count("bin", "as in `bins`"),
        Column.bytes("peak_bytes", "most that was allocated at once in it"),
        Column.bytes("end_bytes", "allocated at its end"),
    ),
    when="`nsys profile --cuda-memory-usage=true`",
)

TABLES = (MEMORY_IN_USE, MEMORY_BINS)

_SERIES = ["row", "number"]


class MemoryInUse(MeasuredTables):
    """Sums of allocations less frees."""


def memory_in_use(run: MeasuredRun) -> MemoryInUse:
    """The tables `memory_in_use` and `memory_bins`, from the changes of the recording until the end of the window."""
    changes = _changes(run)
    if changes.is_empty():
        return MemoryInUse({})
    before = _before_recording(changes)
    rows, bins = [], []
    for (device, group), of_group in changes.sort("device", "group", maintain_order=True).group_by(
        "device", "group", maintain_order=True
    ):
        key = {"device": run.events.rows.devices[int(device)].name, "memory": _NAMES[int(group)]}
        in_use = np.cumsum(of_group["change"].to_numpy()) + before[device, group]
        time = of_group["start"].to_numpy()
        first = int(np.searchsorted(time, 0))
        begin = int(in_use[first - 1]) if first else before[device, group]
        # The first peak counts, and where nothing is higher, the begin of the window.
        course = np.concatenate([[begin], in_use[first:]])
        peak = int(course.argmax())
        sizes = of_group[first:].select("allocated", "freed")
        rows.append(
            {
                **key,
                "peak_bytes": int(course[peak]),
                "peak_at_ns": int(time[first + peak - 1]) if peak else 0,
                "begin_bytes": begin,
                "end_bytes": int(course[-1]),
                "before_bytes": before[device, group],
                "allocations": sizes["allocated"].count(),
                "allocated_bytes": int(sizes["allocated"].sum()),
                "frees": sizes["freed"].count(),
                "freed_bytes": int(sizes["freed"].sum()),
            }
        )
        highest, last = _over_time(course, time[first:], run.measured(Bins).edges)
        of_bins = pl.DataFrame({"bin": np.arange(len(last)), "peak_bytes": highest, "end_bytes": last})
        bins.append(of_bins.with_columns(**{name: pl.lit(text) for name, text in key.items()}))
    return MemoryInUse({MEMORY_IN_USE: rows, MEMORY_BINS: pl.concat(bins)})


def _changes(run: MeasuredRun) -> pl.DataFrame:
    """Columns `row`, `number`, `device`, `group`, `start` (from the start of the window), `allocated`, `freed`, `change`, and
    `value`: what is in use of the kind after it."""
    labels = {number: names.label.rpartition(": ")[2] for number, names in run.events.types.items()}
    # The place in GROUPS of each event type.
    groups = {
        number: next((place for place, kinds in enumerate(GROUPS.values()) if label in kinds), 0)
        for number, label in labels.items()
    }
    start = pl.col("start") - run.events.offset
    recorded = run.recorded.frame(MEMORY_CHANGES).filter(start <= run.events.length)
    has_size = pl.any_horizontal(pl.col("allocated", "freed").is_not_null())
    return (
        run.events.rows.located(recorded)
        .filter(has_size & (pl.col("device") >= 0))
        .select(
            pl.col(*_SERIES, "device", "value", "allocated", "freed").cast(pl.Int64),
            start=start,
            group=pl.col("number").replace_strict(groups, default=0, return_dtype=pl.Int64),
            change=pl.col("allocated").fill_null(0) - pl.col("freed").fill_null(0),
        )
    )


def _before_recording(changes: pl.DataFrame) -> dict[tuple[int, int], int]:
    """Bytes that were in use before the recording, by device and group.

    It is known where the first event of a kind on a row says how much is in use (of a selected part of a recording); otherwise
    it is at least what was freed later without an allocation.
    """
    by_row = changes.group_by(*_SERIES, "device", "group", maintain_order=True).agg(
        by_value=pl.col("value").first() - pl.col("change").first(), least=pl.col("change").cum_sum().min()
    )
    at_least = by_row.select("device", "group", before=pl.max_horizontal("by_value", -pl.col("least"), 0))
    return {(device, group): before for device, group, before in at_least.group_by("device", "group").sum().iter_rows()}


def _over_time(course: Numbers, time: Numbers, edges: Numbers) -> tuple[Numbers, Numbers]:
    """The most that is in use in each bin, and what is in use at its end.

    Parameters
    ----------
    course
        Bytes at the start of the window, and after each change.
    time
        When the changes were, ns.
    edges
        Start of each bin, and the end of the last, ns.
    """
    # What changes at the end of the window is in the last bin.
    behind = np.append(np.searchsorted(time, edges[1:-1], side="left"), len(time))
    end = course[behind]
    return np.maximum(np.maximum.reduceat(course, np.append(0, behind[:-1])), end), end
