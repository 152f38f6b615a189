"""All meters. A new one is its module, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsys2prv.efficiency.activity_times import Trees
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.graph import path
from nsys2prv.efficiency.graph.event_waits import EventEdges, event_edges
from nsys2prv.efficiency.graph.launch_queue import BlockedCalls, blocked_calls
from nsys2prv.efficiency.graph.path import CriticalPath, critical_path
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
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.calls import Calls, MemoryOperations
from nsys2prv.efficiency.meters.device_clocks import DeviceClocks
from nsys2prv.efficiency.meters.found_iterations import FoundIterations
from nsys2prv.efficiency.meters.gaps import Gaps
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.memory_in_use import MemoryInUse
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl
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


def _gap_causes(run: MeasuredRun) -> GapCauses:
    causes = {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None}
    folder = None if run.options.no_critical_path or run.folder is None else run.folder / "gaps"
    gaps = GapCauses(run, causes, folder)
    for frame in run.measured(Gaps).each:
        gaps.update(frame)
    return gaps


def _late_processes(run: MeasuredRun) -> LateProcesses:
    assert run.folder is not None
    late = LateProcesses(run, run.folder / "late")
    late.update(run)
    return late


def _of_rules() -> tuple[Meter, ...]:
    kinds = dict.fromkeys(kind for rule in RULES for kind in rule.meters)
    return tuple(Meter(kind, _updated(kind), (BlockedCalls,), of_devices=True) for kind in kinds)


METERS: tuple[Meter, ...] = (
    Meter(Trees, _trees),
    Meter(EventEdges, event_edges),
    Meter(BlockedCalls, blocked_calls),
    Meter(DeviceClocks, _updated(DeviceClocks)),
    Meter(LostWork, _updated(LostWork), of_devices=True),
    Meter(Totals, _updated(lambda run: Totals(run, run.measured(Trees))), (Trees,), run_totals.TABLES),
    Meter(Gaps, _updated(Gaps), (), (gaps.GAPS, gaps.LONGEST_GAPS), of_devices=True),
    Meter(GapCauses, _gap_causes, (Gaps,), of_devices=True),
    Meter(Nccl, _updated(Nccl), (), nccl_stats.TABLES),
    Meter(
        AbsentTime,
        _updated(
            lambda run: AbsentTime(
                run, run.measured(Nccl), run.measured(EventEdges), run.window.iterations, run.options.regions
            )
        ),
        (Nccl, EventEdges),
        absent_tables.TABLES,
        of_devices=True,
    ),
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
        _updated(lambda run: NcclExposure(run, run.measured(Nccl), run.measured(AbsentTime), run.measured(EventEdges))),
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
        critical_path,
        (Nccl, EventEdges, BlockedCalls, DeviceClocks),
        path.TABLES,
        when=lambda run: not run.options.no_critical_path,
    ),
    Meter(LateProcesses, _late_processes, when=lambda run: not run.events.rows.devices),
    *_of_rules(),
)
"""All meters, in no order: that follows from their needs."""
