"""All efficiency numbers of a run: reports or a trace come in, an `EfficiencyResult` leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.activity_times import Trees
from nsys2prv.efficiency.clock_tables import clock_tables
from nsys2prv.efficiency.closeups import closeup_tables
from nsys2prv.efficiency.efficiency_options import ALL, EfficiencyOptions, NcclPolicy
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.findings import Findings, HostEvidence, host_findings
from nsys2prv.efficiency.graph.event_waits import EventWaits
from nsys2prv.efficiency.graph.path_tables import CriticalPath
from nsys2prv.efficiency.length_interval import LengthInterval, clock_warnings, length_interval
from nsys2prv.efficiency.meters.absent_time import AbsentTime
from nsys2prv.efficiency.meters.calls import Calls, MemoryOperations
from nsys2prv.efficiency.meters.contradicted_devices import not_compared
from nsys2prv.efficiency.meters.device_clocks import DeviceClocks
from nsys2prv.efficiency.meters.found_iterations import FoundIterations
from nsys2prv.efficiency.meters.gaps import Gaps
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.meters.memory_in_use import MemoryInUse
from nsys2prv.efficiency.meters.meter import Meter, TableMeter
from nsys2prv.efficiency.meters.nccl_exposure import NcclExposure
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.nvtx_tree import NvtxTree
from nsys2prv.efficiency.meters.overlap import Overlap
from nsys2prv.efficiency.meters.regions import Iterations, Regions
from nsys2prv.efficiency.meters.run_totals import RUN, Totals
from nsys2prv.efficiency.meters.sampled_metrics import Sampled
from nsys2prv.efficiency.meters.time_bins import Bins
from nsys2prv.efficiency.meters.window_times import WindowTimes
from nsys2prv.efficiency.metrics import TREE_TABLE, tree_rows, with_ideal_network
from nsys2prv.efficiency.result_tables import Table, TableRows, at_moments, frames_by_name
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk, chunks_of_run
from nsys2prv.efficiency.window.measured_window import MeasuredWindow, measured_window
from nsys2prv.efficiency.window.mpi_phases import phases_in_window
from nsys2prv.errors import NothingToMeasure
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import scratch_alone
from nsys2prv.execution.progress import progress_bar
from nsys2prv.execution.threads import ahead, at_once
from nsys2prv.run.session import seen_by_workers
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.version import __version__

_OF_DEVICES = (Gaps, AbsentTime, Kernels, Nccl, NcclExposure, Overlap, MemoryOperations, MemoryInUse, Sampled)
"""Meters that measure nothing in a run without GPUs."""
NO_DEVICES = "no process uses a GPU"


def measure(arguments: Sequence[str | Path], options: EfficiencyOptions | None = None) -> EfficiencyResult:
    """Efficiency numbers of reports, or of a trace.

    Parameters
    ----------
    arguments
        Reports (files, folders, globs), or one .prv or .prv.gz.

    Raises
    ------
    Nsys2prvError
        With one sentence for the user.
    """
    arguments, options = seen_by_workers(arguments, options or EfficiencyOptions())
    # The measurement itself is the work of this process, whoever reads.
    own, _ = memory.allotments(options.memory, 0)
    with memory.limited(own), scratch_alone(options.scratch) as folder:
        events = read_events(arguments, options, folder, with_dependencies=not options.no_critical_path)
        with progress_bar("measuring", shown=options.progress):
            return measure_events(events, options, folder)


def measure_events(events: RunEvents, options: EfficiencyOptions, folder: Path) -> EfficiencyResult:
    """Efficiency numbers of a run; its collections are used up, and intermediate files are written to a folder.

    Raises
    ------
    NothingToMeasure
        When it has neither a GPU nor a host thread.
    """
    has_devices = bool(events.rows.devices)
    if not has_devices and not events.callers:
        raise NothingToMeasure(events.inputs)
    window = measured_window(events, options)
    recorded, events = events, window.cut(events)
    # Edges of other windows are times, and no events whose clocks can be wrong.
    whole = length_interval(recorded) if window.name == ALL else LengthInterval(recorded.length, recorded.length)
    interval = whole.of_part(events.length, recorded.length)
    context = SweepContext(events, folder / "meters")
    trees = Trees(context, options.nccl, has_mpi=any(number in events.types for number in event_types.MPI_TYPES.values()))
    findings = Findings(context, None if options.no_critical_path else folder / "gaps")
    totals, bins, kernels, nccl = Totals(context, trees), Bins(context, trees, options.bins), Kernels(context), Nccl(context)
    windows, device_clocks, lost_work = WindowTimes(context, trees, window), DeviceClocks(context), LostWork(context)
    iterations = FoundIterations(context, trees, window.iterations, with_trees=options.per_iteration is None)
    memory_in_use = MemoryInUse(context, bins)
    event_waits = EventWaits(events)
    path = None if options.no_critical_path else CriticalPath(context, nccl, event_waits, folder / "graph")
    absent = AbsentTime(context, nccl, event_waits, window.iterations, options.regions)
    gaps = Gaps(context, findings.update_gaps)
    exposure = NcclExposure(context, nccl, absent, event_waits)
    meters: list[TableMeter] = [
        gaps,
        absent,
        kernels,
        bins,
        *([Regions(context, trees, options.regions)] if options.regions else []),
        *([Iterations(context, trees, options.per_iteration)] if options.per_iteration is not None else []),
        iterations,
        windows,
        Calls(context),
        nccl,
        exposure,
        totals,
        Overlap(context),
        NvtxTree(context),
        MemoryOperations(context),
        memory_in_use,
        Sampled(context, bins, kernels),
        *([path] if path is not None else []),
    ]
    if has_devices:
        # The slowest come first, so that none is left to run alone at the end of a chunk.
        slowest: list[Meter] = [gaps, absent, *([path] if path is not None else []), findings]
        rest = [meter for meter in meters if meter not in slowest]
        _sweep(context, [*slowest, *rest, device_clocks, lost_work], [windows, memory_in_use])
    else:
        meters = [meter for meter in meters if not isinstance(meter, _OF_DEVICES)]
        late, phases = LateProcesses(context, folder / "late"), phases_in_window(events)
        _sweep(context, [*meters, late], [windows])
    doubted = list(device_clocks.contradictions)
    if doubted and path is not None:
        # Edges of its graph compare devices with their hosts.
        meters.remove(path)
        path = None
    filled: dict[Table, TableRows] = dict(clock_tables(events.clocks, events.report_clocks))
    for meter in meters:
        filled |= meter.tables()
    run = RUN.frame(filled[RUN]).row(0, named=True)
    # Transfers of NCCL kernels that count as useful work are not lost.
    if path is not None and path.ideal_length is not None and options.nccl == NcclPolicy.COMMUNICATION:
        run = with_ideal_network(run, path.ideal_length)
    filled |= {RUN: [run], TREE_TABLE: tree_rows(run)}
    tables = not_compared(
        frames_by_name(filled, table_registry.TABLES),
        [events.rows.devices[device].name for device in doubted],
        [events.rows.tasks[task].name for device in doubted for task in events.rows.tasks_of_device.get(device, ())],
    )
    activity = totals.first.tolist(), totals.last.tolist()
    found = (
        findings.tables(
            tables,
            activity,
            kernels_by_device=kernels.by_device,
            transfers=nccl.transfers,
            collectives=nccl.collectives,
            contradictions=device_clocks.contradictions,
            lost_work=lost_work,
            exposure=exposure,
            graph=path.graph if path is not None else None,
        )
        if has_devices
        else host_findings(HostEvidence(context, tables, phases, late), NO_DEVICES)
    )
    tables |= {table.name: table.frame(rows) for table, rows in found.items()}
    tables |= {table.name: table.frame(rows) for table, rows in closeup_tables(events, tables).items()}
    tables = {name: at_moments(table_registry.BY_NAME[name], frame, events.offset) for name, frame in tables.items()}
    warnings = [
        *events.warnings,
        *_warnings(events),
        *window.warnings,
        *clock_warnings(events, options.bins, interval),
        *device_clocks.warnings,
        *lost_work.warnings,
        *(text for meter in meters for text in meter.warnings),
    ]
    return EfficiencyResult(_head(events, options, warnings, window, interval), tables)


def _head(
    events: RunEvents, options: EfficiencyOptions, warnings: list[str], window: MeasuredWindow, interval: LengthInterval
) -> dict[str, Any]:
    """Values of `table_registry.HEAD` but `tables`."""
    return {
        "format": table_registry.FORMAT,
        "version": table_registry.VERSION,
        "nsys2prv": __version__,
        "inputs": list(events.inputs),
        "input_kind": "trace" if events.is_trace else "reports",
        "title": events.title,
        "began": events.began,
        "recorders": list(events.recorders),
        "gpus": list(events.gpus),
        "nccl": options.nccl.value,
        "window": {
            "name": window.name,
            "begin_ns": events.begin,
            "end_ns": events.begin + events.length,
            "length_ns": events.length,
            "offset_ns": events.offset,
            "recorded_ns": window.recorded,
        },
        "iterations": window.iterations.as_json(),
        "length_interval": {"least_ns": interval.least, "most_ns": interval.most},
        "options": _changed_options(options),
        "warnings": warnings,
        "left_out": [{"path": path, "error": error} for path, error in events.left_out],
    }


def _sweep(context: SweepContext, meters: Sequence[Meter], of_run: Sequence[Meter]) -> None:
    """Go through the events once; several meters work at the same time, each on one chunk after the other. What is not in the
    window is for `of_run` alone."""

    def prepared() -> Iterator[TimeChunk]:
        for chunk in chunks_of_run(context):
            # What several meters need is made before they share it.
            _ = chunk.device_times, chunk.thread_times, chunk.is_measured and (chunk.on_tasks, chunk.launch_of, chunk.copies)
            yield chunk

    with ThreadPoolExecutor(at_once()) as pool:
        for chunk in ahead(prepared()):
            chosen = meters if chunk.is_measured else of_run
            list(pool.map(lambda meter, chunk=chunk: meter.update(chunk), chosen))


def _changed_options(options: EfficiencyOptions) -> dict[str, Any]:
    """Options that differ from their defaults, as JSON takes them."""
    values, defaults = asdict(options), asdict(EfficiencyOptions())
    return {key: _plain(values[key]) for key, default in defaults.items() if values[key] != default and key != "progress"}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset | tuple):
        return sorted(value)
    return value if isinstance(value, str | int | float | bool | dict) else str(value)


def _warnings(events: RunEvents) -> list[str]:
    found = []
    if not events.rows.devices:
        absent = "efficiencies of devices, kernels, gaps and findings about them are absent"
        found.append(f"{NO_DEVICES} that was recorded: {absent} (to record GPUs: nsys profile --trace=cuda)")
    if events.rows.sampled_only:
        names = ", ".join(device.name for device in events.rows.sampled_only)
        found.append(f"GPUs that were sampled and that no process of the run uses are not counted: {names}")
    if event_types.GRAPH_EXECUTION in events.types:
        found.append("CUDA graphs were recorded as a whole: each execution counts as one useful kernel, whatever runs inside")
    return found
