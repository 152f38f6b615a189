"""All tables of efficiency numbers, and the keys beside them in the JSON."""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv.efficiency import clock_tables, closeups
from nsys2prv.efficiency.findings import finding_tables
from nsys2prv.efficiency.graph import path
from nsys2prv.efficiency.meters import (
    absent_tables,
    calls,
    found_iterations,
    gaps,
    kernel_stats,
    memory_in_use,
    nccl_exposure,
    nccl_stats,
    nccl_waits,
    nvtx_tree,
    overlap,
    regions,
    run_totals,
    sampled_metrics,
    time_bins,
    window_times,
)
from nsys2prv.efficiency.metrics import TREE_TABLE
from nsys2prv.efficiency.result_tables import Table

FORMAT = "nsys2prv-efficiency"
VERSION = 3
"""Counts up when a column or a table is removed or changes its meaning; a new one does not change it."""
ADDED_TABLES = frozenset({
    "absent_functions", "closeup_bars", "closeups", "memory_bins", "memory_in_use", "nccl_exposure", "nvtx_tree", "os_calls",
})  # fmt: skip
"""Tables that came after the first files of this VERSION: a file may lack them, and they have no rows then."""
ADDED_COLUMNS: Mapping[str, frozenset[str]] = {
    "absent_calls": frozenset({"off_cpu_ns"}),
    "absent_ranges": frozenset({"off_cpu_ns"}),
    "absent_time": frozenset({"off_cpu_ns"}),
    "findings": frozenset({"saved_how"}),
}
"""Likewise columns by table; they have nulls then."""

TABLES: tuple[Table, ...] = (
    run_totals.RUN,
    TREE_TABLE,
    finding_tables.FINDINGS,
    finding_tables.FINDING_DEVICES,
    finding_tables.FINDING_NUMBERS,
    finding_tables.FINDING_CHECKS,
    run_totals.NODES,
    run_totals.DEVICES,
    run_totals.TASKS,
    run_totals.USEFUL_TIME,
    run_totals.THREADS,
    window_times.WINDOWS,
    time_bins.BINS,
    time_bins.DEVICE_BINS,
    regions.REGIONS,
    nvtx_tree.NVTX_TREE,
    regions.ITERATIONS,
    found_iterations.TASK_ITERATIONS,
    closeups.CLOSEUPS,
    closeups.CLOSEUP_BARS,
    overlap.OVERLAP,
    overlap.OVERLAP_SUMMARY,
    kernel_stats.FAMILIES,
    kernel_stats.KERNELS,
    kernel_stats.KERNEL_DEVICES,
    kernel_stats.KERNEL_HISTOGRAMS,
    kernel_stats.KERNEL_MODES,
    sampled_metrics.SAMPLED_KERNELS,
    sampled_metrics.SAMPLED_SUMMARY,
    sampled_metrics.SAMPLED_BINS,
    memory_in_use.MEMORY_IN_USE,
    memory_in_use.MEMORY_BINS,
    absent_tables.ABSENT_TIME,
    absent_tables.ABSENT_REGIONS,
    absent_tables.ABSENT_ITERATIONS,
    absent_tables.ABSENT_PARTS,
    absent_tables.ABSENT_CALLS,
    absent_tables.ABSENT_RANGES,
    absent_tables.ABSENT_FUNCTIONS,
    absent_tables.ABSENT_STRETCHES,
    gaps.GAPS,
    gaps.LONGEST_GAPS,
    *path.TABLES,
    calls.MEMORY_OPERATIONS,
    calls.CUDA_CALLS,
    calls.MPI_CALLS,
    calls.OS_CALLS,
    nccl_stats.NCCL_OPERATIONS,
    nccl_exposure.NCCL_EXPOSURE,
    nccl_waits.NCCL_WAITS,
    nccl_waits.NCCL_STRAGGLERS,
    nccl_waits.NCCL_COLLECTIVES,
    clock_tables.CLOCKS,
    clock_tables.CLOCK_BINS,
)
"""All tables, in the order in which people read them."""

BY_NAME: Mapping[str, Table] = {table.name: table for table in TABLES}

HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports, or the trace"),
    ("input_kind", "text", "`reports` or `trace`"),
    ("title", "text", "name of the run, for headings"),
    ("began", "text", "when the recording started, UTC, `2026-11-21T14:00:00`; null when not known"),
    ("recorders", "list of texts", "versions of nsys that recorded it; of a trace: those in its .json"),
    ("gpus", "list of texts", "models of the GPUs; likewise"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("window", "object", "what was measured: `name` (`all`, `steady` or `chosen`); `begin_ns`, `end_ns` on the time axis of "
     "all reports, and `length_ns`, which is E; `offset_ns`, where it begins in the trace; `recorded_ns`, length of the trace. "
     "Times in tables are those of the trace"),
    ("iterations", "object", "`how` iterations were found (`nvtx NAME`, or `period of kernels`), else null, and the `reason` "
     "why there are none; `count`; `warm_up`, how many at the start are left out of the steady part"),
    ("length_interval", "object", "`least_ns`, `most_ns`: what the length can be if clocks are wrong by as much as they can "
     "be; the latter is null where that is not known"),
    ("options", "object", "options that differ from their defaults"),
    ("warnings", "list of texts", "what is odd, missing, or was assumed"),
    ("left_out", "list of objects", "`path`, `error`: reports that could not be read (`--keep-going`)"),
    ("tables", "object", "each table by its name: an object with a list per column, all of equal length. "
     "`polars.DataFrame(tables['devices'])` and `pandas.DataFrame(...)` read one"),
)  # fmt: skip
"""Keys of the JSON: key, type, meaning."""
