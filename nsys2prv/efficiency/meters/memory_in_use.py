"""Memory that processes have allocated on devices, over time, from the allocations and frees that were recorded."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.run_totals import bin_edges
from nsys2prv.efficiency.result_tables import DEVICE, Column, OnPage, Table
from nsys2prv.efficiency.run_events import MEMORY_CHANGES

GROUPS: Mapping[str, frozenset[str]] = {
    "device": frozenset({"Device", "Array", "Device static", "Unknown"}),
    "managed": frozenset({"Managed", "Managed static"}),
    "host": frozenset({"Pinned", "Pageable"}),
}
"""Where memory is, by the kind of nsys: on the device; managed, which moves between host and device; on the host."""
_MEMORY = Column.text("memory", "`device`; `managed`, which may be on the host; or `host`: pinned memory of its processes")

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
    page=OnPage("memory", worst_first="peak_bytes"),
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

_KEY = ["device", "memory"]


def memory_in_use(run: MeasuredRun) -> Measurement:
    """The tables `memory_in_use` and `memory_bins`, from the changes of the recording until the end of the window."""
    changes = _changes(run)
    before = _before_recording(changes)
    start, change, in_use = pl.col("start"), pl.col("change"), pl.col("in_use")
    former = changes.filter(start < 0).group_by(_KEY).agg(former=change.sum())
    begin = before.join(former, on=_KEY, how="left").with_columns(in_use=pl.col("before") + pl.col("former").fill_null(0))
    # What is in use at the start of the window, and after each change in it.
    inside = changes.filter(start >= 0).select(*_KEY, "start", "allocated", "freed", in_use="change")
    course = pl.concat([begin.with_columns(start=pl.lit(0, pl.Int64)), inside], how="diagonal")
    course = course.with_columns(in_use.cum_sum().over(_KEY))
    rows = course.group_by(_KEY).agg(
        peak_bytes=in_use.max(),
        # The first peak counts, and where nothing is higher, the start of the window.
        peak_at_ns=start.get(in_use.arg_max()),
        begin_bytes=in_use.first(),
        end_bytes=in_use.last(),
        before_bytes=pl.col("before").first(),
        allocations=pl.col("allocated").count(),
        allocated_bytes=pl.col("allocated").sum(),
        frees=pl.col("freed").count(),
        freed_bytes=pl.col("freed").sum(),
    )
    bins = _over_time(course, bin_edges(run))
    tables, device = {MEMORY_IN_USE: rows.sort(_KEY), MEMORY_BINS: bins}, run.device_names(pl.col("device"))
    return Measurement(tables={table: frame.with_columns(device=device) for table, frame in tables.items()})


def _changes(run: MeasuredRun) -> pl.DataFrame:
    """Columns `row`, `number`, `device`, `memory` (of GROUPS), `start` (from the start of the window), `allocated`,
    `freed`, `change`, and `value`: what is in use of the kind after it."""
    labels = {number: names.label.rpartition(": ")[2] for number, names in run.events.types.items()}
    groups = {number: group for number, label in labels.items() for group, kinds in GROUPS.items() if label in kinds}
    start = pl.col("start") - run.events.offset
    recorded = run.recorded.frame(MEMORY_CHANGES).filter(start <= run.events.length)
    has_size = pl.any_horizontal(pl.col("allocated", "freed").is_not_null())
    return run.events.rows.located(recorded).filter(has_size & (pl.col("device") >= 0)).select(
        pl.col("row", "number", "device", "value", "allocated", "freed").cast(pl.Int64),
        start=start,
        memory=pl.col("number").replace_strict(groups, default="device", return_dtype=pl.Enum(list(GROUPS))),
        change=pl.col("allocated").fill_null(0) - pl.col("freed").fill_null(0),
    )  # fmt: skip


def _before_recording(changes: pl.DataFrame) -> pl.DataFrame:
    """Bytes that were in use before the recording, `before`, by device and kind of memory.

    It is known where the first event of a kind on a row says how much is in use (of a selected part of a recording); otherwise
    it is at least what was freed later without an allocation."""
    by_value, least = pl.col("value").first() - pl.col("change").first(), pl.col("change").cum_sum().min()
    by_row = changes.group_by("row", "number", *_KEY, maintain_order=True).agg(by_value=by_value, least=least)
    return by_row.group_by(_KEY).agg(before=pl.max_horizontal("by_value", -pl.col("least"), 0).sum())


def _over_time(course: pl.DataFrame, edges: Numbers) -> pl.DataFrame:
    """Columns of the table `memory_bins`, with numbers of devices and kinds; `edges`: starts of bins and the last end, ns."""
    # What changes at the end of the window is in the last bin.
    place = np.searchsorted(edges[1:-1], course["start"].to_numpy(), side="right")
    in_use = pl.col("in_use")
    changed = course.group_by(*_KEY, pl.Series("bin", place)).agg(peak_bytes=in_use.max(), end_bytes=in_use.last())
    bins = course.select(_KEY).unique().join(pl.DataFrame({"bin": np.arange(len(edges) - 1)}), how="cross")
    filled = bins.join(changed, on=[*_KEY, "bin"], how="left").sort(*_KEY, "bin")
    filled = filled.with_columns(pl.col("end_bytes").forward_fill().over(_KEY))
    return filled.with_columns(peak_bytes=pl.max_horizontal("peak_bytes", pl.col("end_bytes").shift(1).over(_KEY)))
