"""All meters. A new one is its module, and a line here."""

from __future__ import annotations

from nsys2prv.efficiency.findings.communication import NcclContention, nccl_contention
from nsys2prv.efficiency.findings.engine import gaps_by_rule
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.launches import DefaultStreamWaits, default_stream_waits
from nsys2prv.efficiency.findings.memory import DeviceCopies, FaultTimes, device_copies, fault_times
from nsys2prv.efficiency.graph import path
from nsys2prv.efficiency.graph.event_waits import EventEdges, event_edges
from nsys2prv.efficiency.graph.launch_queue import BlockedCalls, blocked_calls
from nsys2prv.efficiency.graph.path import CriticalPath, critical_path
from nsys2prv.efficiency.meter import Meter
from nsys2prv.efficiency.meters import (
    absent_tables,
    calls,
    gaps,
    kernel_stats,
    memory_in_use,
    nccl_exposure,
    nccl_stats,
    regions,
    run_totals,
    sampled_metrics,
)
from nsys2prv.efficiency.meters.absent_time import AbsentTime, measure_absent_time
from nsys2prv.efficiency.meters.calls import Calls, MemoryOperations, host_calls, memory_operations
from nsys2prv.efficiency.meters.kernel_stats import Kernels, kernel_durations
from nsys2prv.efficiency.meters.late_processes import LateProcesses, late_processes
from nsys2prv.efficiency.meters.memory_in_use import MemoryInUse
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure, measure_nccl_exposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl, measure_nccl
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks, LostWork, device_clocks, lost_work
from nsys2prv.efficiency.meters.regions import (
    FoundIterations,
    Iterations,
    NvtxTree,
    Regions,
    nvtx_regions,
    nvtx_tree,
    range_iterations,
    run_iterations,
)
from nsys2prv.efficiency.meters.run_totals import Bins, Overlap, Totals, WindowTimes, kernel_overlap, time_bins, window_times
from nsys2prv.efficiency.meters.sampled_metrics import Sampled

METERS: tuple[Meter, ...] = (
    Meter(EventEdges, event_edges),
    Meter(BlockedCalls, blocked_calls),
    Meter(DeviceClocks, device_clocks),
    Meter(LostWork, lost_work, of_devices=True),
    Meter(Totals, run_totals.run_totals, (), run_totals.TABLES),
    Meter(GapCauses, gaps_by_rule, (), (gaps.GAPS, gaps.LONGEST_GAPS), of_devices=True),
    Meter(Nccl, measure_nccl, (), nccl_stats.TABLES),
    Meter(AbsentTime, measure_absent_time, (Nccl, EventEdges), absent_tables.TABLES, of_devices=True),
    Meter(Kernels, kernel_durations, (), kernel_stats.TABLES, of_devices=True),
    Meter(Bins, time_bins, (), (run_totals.BINS, run_totals.DEVICE_BINS)),
    Meter(Regions, nvtx_regions, (), (regions.REGIONS,), when=lambda run: bool(run.options.regions)),
    Meter(Iterations, range_iterations, (), (regions.ITERATIONS,), when=lambda run: run.options.per_iteration is not None),
    Meter(FoundIterations, run_iterations, (), (regions.TASK_ITERATIONS,)),
    Meter(WindowTimes, window_times, (), (run_totals.WINDOWS,)),
    Meter(Calls, host_calls, (), (calls.CUDA_CALLS, calls.MPI_CALLS, calls.OS_CALLS)),
    Meter(NcclExposure, measure_nccl_exposure, (Nccl, AbsentTime, EventEdges), (nccl_exposure.NCCL_EXPOSURE,), of_devices=True),
    Meter(Overlap, kernel_overlap, (), (run_totals.OVERLAP, run_totals.OVERLAP_SUMMARY), of_devices=True),
    Meter(NvtxTree, nvtx_tree, (), (regions.NVTX_TREE,)),
    Meter(MemoryOperations, memory_operations, (), (calls.MEMORY_OPERATIONS,), of_devices=True),
    Meter(MemoryInUse, memory_in_use.memory_in_use, (Bins,), memory_in_use.TABLES, of_devices=True),
    Meter(Sampled, sampled_metrics.sampled_metrics, (Bins, Kernels), sampled_metrics.TABLES, of_devices=True),
    Meter(
        CriticalPath,
        critical_path,
        (Nccl, EventEdges, BlockedCalls, DeviceClocks),
        path.TABLES,
        when=lambda run: not run.options.no_critical_path,
        is_large=True,
    ),
    Meter(LateProcesses, late_processes, when=lambda run: not run.events.rows.devices),
    Meter(DeviceCopies, device_copies, of_devices=True),
    Meter(FaultTimes, fault_times, of_devices=True),
    Meter(NcclContention, nccl_contention, of_devices=True),
    Meter(DefaultStreamWaits, default_stream_waits, of_devices=True),
)
"""All meters, in no order: that follows from their needs."""
