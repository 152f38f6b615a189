"""All meters. A new one is its module, and a line here."""

from __future__ import annotations

from nsys2prv.efficiency.findings.communication import nccl_contention
from nsys2prv.efficiency.findings.engine import gaps_by_rule
from nsys2prv.efficiency.findings.hosts import unrecorded_mpi
from nsys2prv.efficiency.findings.memory import device_copies
from nsys2prv.efficiency.graph import path
from nsys2prv.efficiency.graph.cuda_waits import blocked_calls, event_edges
from nsys2prv.efficiency.meter import Meter
from nsys2prv.efficiency.meters import (
    absent_tables,
    calls,
    gaps,
    kernel_stats,
    memory_in_use,
    nccl_stats,
    regions,
    run_totals,
    sampled_metrics,
)
from nsys2prv.efficiency.meters.absent_time import measure_absent_time
from nsys2prv.efficiency.meters.kernel_stats import kernel_durations
from nsys2prv.efficiency.meters.late_processes import late_processes
from nsys2prv.efficiency.meters.nccl_exposure import NCCL_EXPOSURE, measure_nccl_exposure
from nsys2prv.efficiency.meters.nccl_stats import measure_nccl
from nsys2prv.efficiency.meters.recording_checks import device_clocks, lost_work
from nsys2prv.efficiency.meters.run_totals import time_bins

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
    Meter(time_bins, (), (run_totals.BINS, run_totals.DEVICE_BINS)),
    Meter(kernel_durations, (), kernel_stats.TABLES, of_devices=True),
    Meter(measure_nccl_exposure, (measure_nccl, measure_absent_time, event_edges), (NCCL_EXPOSURE,), of_devices=True),
    Meter(measure_nccl, (), nccl_stats.TABLES),
    Meter(run_totals.kernel_overlap, (), (run_totals.OVERLAP_SUMMARY, run_totals.OVERLAP), of_devices=True),
    Meter(measure_absent_time, (measure_nccl, event_edges), absent_tables.TABLES, of_devices=True),
    Meter(
        path.critical_path,
        (measure_nccl, event_edges, blocked_calls, device_clocks),
        path.TABLES,
        when=lambda run: not run.options.no_critical_path,
        is_large=True,
    ),
    Meter(gaps_by_rule, (), (gaps.GAPS, gaps.LONGEST_GAPS), of_devices=True),
    Meter(calls.host_calls, (), (calls.CUDA_CALLS, calls.MPI_CALLS, calls.OS_CALLS)),
    Meter(calls.memory_operations, (), (calls.MEMORY_OPERATIONS,), of_devices=True),
    Meter(memory_in_use.memory_in_use, (time_bins,), memory_in_use.TABLES, of_devices=True),
    Meter(sampled_metrics.sampled_metrics, (time_bins, kernel_durations), sampled_metrics.TABLES, of_devices=True),
    Meter(late_processes, when=lambda run: not run.events.rows.devices),
    Meter(unrecorded_mpi),
    Meter(device_copies, of_devices=True),
    Meter(nccl_contention, of_devices=True),
)
"""All meters: tables are in their order, and they run in that of their needs."""
