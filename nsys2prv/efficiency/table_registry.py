"""All meters, all tables, and the keys beside them in the JSON. A new meter is its module, and a line here."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nsys2prv.efficiency.clock_accuracy import CLOCK_BINS, CLOCKS
from nsys2prv.efficiency.closeups import CLOSEUP_BARS, CLOSEUPS
from nsys2prv.efficiency.findings.communication import nccl_contention
from nsys2prv.efficiency.findings.engine import FINDING_CHECKS, FINDING_DEVICES, FINDING_NUMBERS, FINDINGS, gaps_by_rule
from nsys2prv.efficiency.findings.hosts import missing_mpi
from nsys2prv.efficiency.findings.memory import device_copies
from nsys2prv.efficiency.graph import path
from nsys2prv.efficiency.graph.cuda_waits import blocked_calls, event_edges
from nsys2prv.efficiency.meter import Meter
from nsys2prv.efficiency.meters import calls, kernel_stats, memory_in_use, nccl_stats, regions, run_totals, sampled_metrics
from nsys2prv.efficiency.meters.absent_tables import TABLES as ABSENT_TABLES
from nsys2prv.efficiency.meters.absent_time import measure_absent_time
from nsys2prv.efficiency.meters.gaps import GAPS, LONGEST_GAPS
from nsys2prv.efficiency.meters.late_processes import late_processes
from nsys2prv.efficiency.meters.nccl_exposure import NCCL_EXPOSURE, measure_nccl_exposure
from nsys2prv.efficiency.meters.recording_checks import device_clocks, lost_work
from nsys2prv.efficiency.metrics import TREE_TABLE
from nsys2prv.efficiency.result_tables import Table

METERS: tuple[Meter, ...] = (
    Meter(event_edges),
    Meter(blocked_calls),
    Meter(device_clocks),
    Meter(lost_work, of_devices=True),
    Meter(run_totals.run_totals, (), run_totals.TABLES),
    Meter(regions.range_iterations, (), (regions.ITERATIONS,), when=lambda run: run.options.per_iteration is not None),
    Meter(run_totals.window_times, (), (run_totals.WINDOWS,)),
    Meter(regions.run_iterations, (), (regions.TASK_ITERATIONS,)),
    Meter(regions.nvtx_tree, (), (regions.NVTX_TREE,)),
    Meter(regions.nvtx_regions, (), (regions.REGIONS,), when=lambda run: bool(run.options.regions)),
    Meter(run_totals.time_bins, (), (run_totals.BINS, run_totals.DEVICE_BINS)),
    Meter(kernel_stats.kernel_durations, (), kernel_stats.TABLES, of_devices=True),
    Meter(
        measure_nccl_exposure, (nccl_stats.measure_nccl, measure_absent_time, event_edges), (NCCL_EXPOSURE,), of_devices=True
    ),
    Meter(nccl_stats.measure_nccl, (), nccl_stats.TABLES),
    Meter(run_totals.kernel_overlap, (), (run_totals.OVERLAP_SUMMARY, run_totals.OVERLAP), of_devices=True),
    Meter(
        measure_absent_time,
        (nccl_stats.measure_nccl, event_edges, device_clocks, lost_work),
        ABSENT_TABLES,
        of_devices=True,
        takes_long=True,
    ),
    Meter(
        path.critical_path,
        (nccl_stats.measure_nccl, event_edges, blocked_calls, device_clocks),
        path.TABLES,
        when=lambda run: not run.options.no_critical_path,
        takes_long=True,
        is_large=True,
    ),
    Meter(gaps_by_rule, (), (GAPS, LONGEST_GAPS), of_devices=True),
    Meter(calls.host_calls, (), (calls.CUDA_CALLS, calls.MPI_CALLS, calls.OS_CALLS)),
    Meter(calls.memory_operations, (), (calls.MEMORY_OPERATIONS,), of_devices=True),
    Meter(memory_in_use.memory_in_use, (), memory_in_use.TABLES, of_devices=True),
    Meter(sampled_metrics.sampled_metrics, (kernel_stats.kernel_durations,), sampled_metrics.TABLES, of_devices=True),
    Meter(late_processes, when=lambda run: not run.events.rows.devices),
    Meter(missing_mpi),
    Meter(device_copies, of_devices=True),
    Meter(nccl_contention, of_devices=True),
)
"""All meters: tables are in their order, and they run in that of their needs."""

FORMAT = "nsys2prv-efficiency"
VERSION = 4
"""Counts up when a column or a table is removed or changes its meaning; a new one does not change it."""
FIRST_TABLES: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name(f"first_tables_of_version_{VERSION}.json").read_text(encoding="utf-8")
)
"""Columns by table of the first files of this VERSION: files have them all, and may lack others, which came later."""

TABLES: tuple[Table, ...] = tuple(
    dict.fromkeys(
        (run_totals.RUN, TREE_TABLE, FINDINGS, FINDING_CHECKS, FINDING_DEVICES, FINDING_NUMBERS,
         *(table for meter in METERS for table in meter.tables), CLOSEUPS, CLOSEUP_BARS, CLOCKS, CLOCK_BINS)
    )
)  # fmt: skip
"""All tables, in the order in which people read them: JSON, page, console and documentation have it."""

BY_NAME: Mapping[str, Table] = {table.name: table for table in TABLES}

HEAD: tuple[tuple[str, str, str], ...] = (
    ("format", "text", f"`{FORMAT}`"),
    ("version", "number", f"of this format: {VERSION}"),
    ("nsys2prv", "text", "version of the program"),
    ("inputs", "list of texts", "reports"),
    ("input_kind", "text", "`reports`"),
    ("title", "text", "name of the run, for headings"),
    ("began", "text", "when the recording started, UTC, `2026-11-21T14:00:00`; null when not known"),
    ("recorders", "list of texts", "versions of nsys that recorded it"),
    ("gpus", "list of texts", "models of the GPUs; likewise"),
    ("nccl", "text", "`communication` or `useful`: what NCCL kernels count as"),
    ("window", "object", "what was measured: `name` (`all`, `steady` or `chosen`); `begin_ns`, `end_ns` on the time axis of "
     "all reports, and `length_ns`, which is E; `offset_ns`, where it begins in the trace; `recorded_ns`, length of the trace. "
     "Times in tables are those of the trace"),
    ("iterations", "object", "`how` iterations were found (`nvtx NAME`, `period of kernels` or `period of copies`), else null, "
     "and the `reason` why there are none; `count`; `warm_up`, how many at the start are left out of the steady part"),
    ("length_interval", "object", "`least_ns`, `most_ns`: what the length can be if clocks are wrong by as much as they can "
     "be; the latter is null where that is not known"),
    ("options", "object", "options that differ from their defaults"),
    ("warnings", "list of texts", "what is odd, missing, or was assumed"),
    ("left_out", "list of objects", "`path`, `error`: reports that could not be read (`--keep-going`)"),
    ("tables", "object", "each table by its name: an object with a list per column, all of equal length. "
     "`polars.DataFrame(tables['devices'])` and `pandas.DataFrame(...)` read one"),
)  # fmt: skip
"""Keys of the JSON: key, type, meaning."""
