"""All meters. A new one is its module, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsys2prv.efficiency.activity_times import Trees
from nsys2prv.efficiency.findings.communication import NcclContention, nccl_contention
from nsys2prv.efficiency.findings.copies import DeviceCopies, device_copies
from nsys2prv.efficiency.findings.engine import gaps_by_rule
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.launches import DefaultStreamWaits, default_stream_waits
from nsys2prv.efficiency.findings.memory import FaultTimes, fault_times
from nsys2prv.efficiency.graph import path_tables
from nsys2prv.efficiency.graph.event_waits import EventEdges, EventWaits
from nsys2prv.efficiency.graph.launch_queue import BlockedCalls, blocked_calls
from nsys2prv.efficiency.graph.path_tables import CriticalPath
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Meter
from nsys2prv.efficiency.meters import (
    absent_tables,
    calls,
    found_iterations,
    gaps,
    kernel_stats,
    memory_in_use,
    nccl_exposure,
    nccl_stats,
    nvtx_tree,
    overlap,
    regions,
    run_totals,
    sampled_metrics,
    time_bins,
    window_times,
)
from nsys2prv.efficiency.meters.absent_time import AbsentTime, measure_absent_time
from nsys2prv.efficiency.meters.calls import Calls, MemoryOperations
from nsys2prv.efficiency.meters.device_clocks import DeviceClocks
from nsys2prv.efficiency.meters.found_iterations import FoundIterations
from nsys2prv.efficiency.meters.gaps import Gaps, measure_gaps
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.memory_in_use import MemoryInUse
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure, measure_nccl_exposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl, measure_nccl
from nsys2prv.efficiency.meters.nvtx_tree import NvtxTree
from nsys2prv.efficiency.meters.overlap import Overlap
from nsys2prv.efficiency.meters.regions import Iterations, Regions
from nsys2prv.efficiency.meters.run_totals import Totals
from nsys2prv.efficiency.meters.sampled_metrics import Sampled
from nsys2prv.efficiency.meters.time_bins import Bins
from nsys2prv.efficiency.meters.window_times import WindowTimes
from nsys2prv.vocabulary import event_types


def _updated(make: Callable[[MeasuredRun], Any]) -> Callable[[MeasuredRun], Any]:
    def measure(run: MeasuredRun) -> Any:
        meter = make(run)
        meter.update(run)
        return meter

    return measure


def _with_surroundings(make: Callable[[MeasuredRun], Any]) -> Callable[[MeasuredRun], Any]:
    """Of what needs the time before and after the window, too."""

    def measure(run: MeasuredRun) -> Any:
        meter, events = make(run), run.events
        recorded, end = events.length if events.recorded is None else events.recorded, events.offset + events.length
        for part in ((0, events.offset), None, (end, recorded)):
            if part is None:
                meter.update(run)
            elif part[1] > part[0]:
                meter.update(MeasuredRun(events, run.options, run.folder, recorded=run.recorded, part=part))
        return meter

    return measure


def _trees(run: MeasuredRun) -> Trees:
    has_mpi = any(number in run.events.types for number in event_types.MPI_TYPES.values())
    return Trees(run, run.options.nccl, has_mpi=has_mpi)


def _critical_path(run: MeasuredRun) -> CriticalPath:
    assert run.folder is not None
    path = CriticalPath(run, run.measured(Nccl), run.measured(EventEdges), run.measured(BlockedCalls), run.folder / "graph")
    # Edges of the graph compare devices with their hosts.
    if not run.measured(DeviceClocks).contradictions:
        path.update(run)
    return path


def _late_processes(run: MeasuredRun) -> LateProcesses:
    assert run.folder is not None
    late = LateProcesses(run, run.folder / "late")
    late.update(run)
    return late


METERS: tuple[Meter, ...] = (
    Meter(Trees, _trees),
    Meter(EventEdges, lambda run: EventWaits(run.events).update(run)),
    Meter(BlockedCalls, blocked_calls),
    Meter(DeviceClocks, _updated(DeviceClocks)),
    Meter(LostWork, _updated(LostWork), of_devices=True),
    Meter(Totals, _updated(lambda run: Totals(run, run.measured(Trees))), (Trees,), run_totals.TABLES),
    Meter(Gaps, measure_gaps, (), (gaps.GAPS, gaps.LONGEST_GAPS), of_devices=True),
    Meter(GapCauses, gaps_by_rule, (Gaps,), of_devices=True),
    Meter(Nccl, measure_nccl, (), nccl_stats.TABLES),
    Meter(AbsentTime, measure_absent_time, (Nccl, EventEdges), absent_tables.TABLES, of_devices=True),
    Meter(Kernels, _updated(Kernels), (), kernel_stats.TABLES, of_devices=True),
    Meter(
        Bins,
        _updated(lambda run: Bins(run, run.measured(Trees), run.options.bins)),
        (Trees,),
        (time_bins.BINS, time_bins.DEVICE_BINS),
    ),
    Meter(
        Regions,
        _updated(lambda run: Regions(run, run.measured(Trees), run.options.regions)),
        (Trees,),
        (regions.REGIONS,),
        when=lambda run: bool(run.options.regions),
    ),
    Meter(
        Iterations,
        _updated(lambda run: Iterations(run, run.measured(Trees), run.options.per_iteration or "")),
        (Trees,),
        (regions.ITERATIONS,),
        when=lambda run: run.options.per_iteration is not None,
    ),
    Meter(
        FoundIterations,
        _updated(
            lambda run: FoundIterations(
                run, run.measured(Trees), run.window.iterations, with_trees=run.options.per_iteration is None
            )
        ),
        (Trees,),
        (found_iterations.TASK_ITERATIONS,),
    ),
    Meter(
        WindowTimes,
        _with_surroundings(lambda run: WindowTimes(run, run.measured(Trees), run.window)),
        (Trees,),
        (window_times.WINDOWS,),
    ),
    Meter(Calls, _updated(Calls), (), (calls.CUDA_CALLS, calls.MPI_CALLS, calls.OS_CALLS)),
    Meter(
        NcclExposure,
        measure_nccl_exposure,
        (Nccl, AbsentTime, EventEdges),
        (nccl_exposure.NCCL_EXPOSURE,),
        of_devices=True,
    ),
    Meter(Overlap, _updated(Overlap), (), (overlap.OVERLAP, overlap.OVERLAP_SUMMARY), of_devices=True),
    Meter(NvtxTree, _updated(NvtxTree), (), (nvtx_tree.NVTX_TREE,)),
    Meter(MemoryOperations, _updated(MemoryOperations), (), (calls.MEMORY_OPERATIONS,), of_devices=True),
    Meter(
        MemoryInUse,
        _with_surroundings(lambda run: MemoryInUse(run, run.measured(Bins))),
        (Bins,),
        (memory_in_use.MEMORY_IN_USE, memory_in_use.MEMORY_BINS),
        of_devices=True,
    ),
    Meter(
        Sampled,
        _updated(lambda run: Sampled(run, run.measured(Bins), run.measured(Kernels))),
        (Bins, Kernels),
        sampled_metrics.TABLES,
        of_devices=True,
    ),
    Meter(
        CriticalPath,
        _critical_path,
        (Nccl, EventEdges, BlockedCalls, DeviceClocks),
        path_tables.TABLES,
        when=lambda run: not run.options.no_critical_path,
    ),
    Meter(LateProcesses, _late_processes, when=lambda run: not run.events.rows.devices),
    Meter(DeviceCopies, device_copies, of_devices=True),
    Meter(FaultTimes, fault_times, of_devices=True),
    Meter(NcclContention, nccl_contention, of_devices=True),
    Meter(DefaultStreamWaits, default_stream_waits, of_devices=True),
)
"""All meters, in no order: that follows from their needs."""
