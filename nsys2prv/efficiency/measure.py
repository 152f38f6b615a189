"""All efficiency numbers of a run: reports come in, an `EfficiencyResult` leaves."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.clock_accuracy import LengthInterval, clock_tables, clock_warnings, length_interval
from nsys2prv.efficiency.closeups import closeup_tables
from nsys2prv.efficiency.efficiency_options import ALL, CHOSEN, STEADY, EfficiencyOptions, NcclPolicy
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.findings.engine import findings_of
from nsys2prv.efficiency.findings.rule import NO_DEVICES
from nsys2prv.efficiency.graph.path import CriticalPath
from nsys2prv.efficiency.iterations import find_iterations
from nsys2prv.efficiency.measured_run import LAUNCH, MeasuredRun, call_categories
from nsys2prv.efficiency.meter import Measurement, measure_all
from nsys2prv.efficiency.meters.absent_tables import CONTRADICTED, LOST, not_compared
from nsys2prv.efficiency.meters.recording_checks import DeviceClocks, LostWork, ranges_without_launches
from nsys2prv.efficiency.meters.run_totals import RUN
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE, TREE_TABLE, tree_rows, with_ideal_network
from nsys2prv.efficiency.result_tables import Table, TableRows, at_moments, frames_by_name
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, NCCL_CALLS, OFF_CPU_TIMES, ON_DEVICES, ON_HOSTS, RANGES, RunEvents
from nsys2prv.efficiency.window import MeasuredWindow, Span, between_phases, mpi_phases
from nsys2prv.errors import NothingToMeasure, NothingToTranslate, UsageError
from nsys2prv.execution import memory
from nsys2prv.execution.output_files import scratch_folder
from nsys2prv.execution.progress import progress_bar
from nsys2prv.run.options import TimeRange
from nsys2prv.run.session import seen_by_workers
from nsys2prv.sources.host.call_chains import SAMPLED_MODULE
from nsys2prv.vocabulary import __version__, event_types
from nsys2prv.vocabulary.wording import time

_OF_PROGRAM, _LAST_RANGES = (ON_DEVICES, NCCL_CALLS, ON_HOSTS, RANGES), 1_000
"""What the program does itself, not scheduling and what the profiler does; and how many ranges at its end are seen."""

_MODULES_OF_PROFILER = r"(?i)ToolsInjection|nsight[-_ ]?systems|libcupti"
"""In names of modules that the profiler puts into the program."""


def measure(arguments: Sequence[str | Path], options: EfficiencyOptions | None = None) -> EfficiencyResult:
    """Efficiency numbers of reports: files, folders, globs."""
    arguments, options = seen_by_workers(arguments, options or EfficiencyOptions())
    # The measurement itself is the work of this process, whoever reads.
    limit = memory.bytes_of_process(options.memory, 0)
    with memory.limited(limit), scratch_folder(options.scratch) as folder:
        events = read_events(arguments, options, folder, with_dependencies=not options.no_critical_path)
        with progress_bar("measuring", shown=options.progress):
            return measure_events(events, options)


def measure_events(events: RunEvents, options: EfficiencyOptions) -> EfficiencyResult:
    """Efficiency numbers of a run; NothingToMeasure where it has neither a GPU nor a host thread."""
    recorded = MeasuredRun(events, options)
    if not events.rows.devices and not len(recorded.callers):
        raise NothingToMeasure(events.inputs)
    window = measured_window(recorded)
    run = recorded.in_window(window)
    # Edges of other windows are times, and no events whose clocks can be wrong.
    of_recording = length_interval(events) if window.name == ALL else LengthInterval(events.length, events.length)
    measurements = measure_all(run, table_registry.METERS)
    error = run.measured(DeviceClocks).error if window.name == ALL else 0
    interval = of_recording.of_part(run.events.length, events.length, error)
    events = run.events
    tables = _tables(run, measurements)
    tables |= {table.name: table.frame(rows) for table, rows in findings_of(run, tables).items()}
    tables |= {table.name: table.frame(rows) for table, rows in closeup_tables(run, tables).items()}
    tables = {name: at_moments(table_registry.BY_NAME[name], frame, events.offset) for name, frame in tables.items()}
    warnings = [
        *events.warnings,
        *_warnings(events),
        *window.warnings,
        *clock_warnings(events, options.bins, interval),
        *(text for measurement in measurements for text in measurement.warnings),
    ]
    return EfficiencyResult(_head(events, options, warnings, window, interval), tables)


def measured_window(recorded: MeasuredRun) -> MeasuredWindow:
    """The window that the options of a whole recording choose.

    Raises UsageError where the steady part is requested and nothing repeats, NothingToTranslate where the window is outside of
    the run."""
    events, options = recorded.events, recorded.options
    program = _program(recorded, options.time)
    iterations = find_iterations(recorded, options.per_iteration)
    mpi_work = None if events.rows.devices else between_phases(mpi_phases(events, recorded.calls), program)
    times, span = options.window.times, program
    if times is not None:
        span = max(times.begin or 0, program[0]), program[1] if times.end is None else min(times.end, program[1])
        if span[0] >= span[1]:
            raise NothingToTranslate(
                f"the window lies outside of the run, which is from {time(program[0])} to {time(program[1])}"
            )
    elif options.window.name == STEADY:
        if iterations.steady is None:
            raise UsageError(f"--window steady: no iterations are found, as {iterations.reason}; give --window BEGIN:END")
        span = iterations.steady
    off_cpu = recorded.frame(OFF_CPU_TIMES).filter(pl.col("row").is_in(recorded.callers.tolist()))
    outside = (
        (pl.col("end") - pl.col("start")).sum() - pl.col("end").clip(*program).sum() + pl.col("start").clip(*program).sum()
    )
    least_off = off_cpu.group_by("row").agg(outside=outside)["outside"].min()
    running = 0 if least_off is None else events.length - (program[1] - program[0]) - int(least_off)  # type: ignore[arg-type]
    before = recorded.context_setups.filter(pl.col("end") <= program[0]).with_columns(length=pl.col("end") - pl.col("start"))
    prepared = int(before.group_by("row").agg(pl.col("length").sum())["length"].to_numpy().max(initial=0))
    loss = ranges_without_launches(recorded)
    name = CHOSEN if options.time is not None and options.window.name == ALL else options.window.name
    return MeasuredWindow(name, span, program, events.length, iterations, mpi_work, loss, running, prepared)


def _program(recorded: MeasuredRun, selected: TimeRange | None) -> Span:
    """First start and last end of the program's own events; where `--time` selects an edge, that edge."""
    length = recorded.events.length
    # Between recorded calls its calling threads are seen in samples, but in code of the profiler.
    modules = recorded.events.names(SAMPLED_MODULE).items()
    of_profiler = [module for module, name in modules if re.search(_MODULES_OF_PROFILER, name)]
    is_work = pl.col("row").is_in(recorded.callers.tolist()) & ~pl.col("module").is_in(of_profiler).fill_null(value=False)
    sampled = recorded.frame(FUNCTION_SAMPLES).filter(is_work).select("row", "start", end="start")
    device, nccl, *hosts = (recorded.frame(collection).select("row", "start", "end") for collection in _OF_PROGRAM)
    # What hosts are in when a recording begins or stops has begun before, or ends later. Clocks of devices can be wrong.
    inside = pl.col("start", "end").clip(*recorded.events.recorded)
    frames = [device, nccl, *(frame.with_columns(inside) for frame in (sampled, *hosts))]
    # Threads of nsys may be in a call long after the program has ended.
    frames = [frame.filter(pl.lit(pl.Series(recorded.is_of_program)).gather("row")) for frame in frames]
    first = max(min((int(frame["start"].to_numpy().min()) for frame in frames if frame.height), default=0), 0)
    # Ranges that nobody ended do so where the recording stops, those of a thread together.
    is_open = pl.struct("row", "end").is_duplicated() | pl.col("end").is_in(recorded.events.stops)
    ended = [*frames[:-1], frames[-1].top_k(_LAST_RANGES, by="end").filter(~is_open)]
    last = min(max((int(frame["end"].to_numpy().max()) for frame in ended if frame.height), default=length), length)
    begin = 0 if selected is not None and selected.begin is not None else first
    end = length if selected is not None and selected.end is not None else last
    return (begin, end) if end > begin else (0, length)


def _tables(run: MeasuredRun, measurements: Sequence[Measurement]) -> dict[str, pl.DataFrame]:
    """What meters measured, without what contradicts: all tables of the registry by name."""
    events = run.events
    filled: dict[Table, TableRows] = dict(clock_tables(events.clocks, events.report_clocks))
    for measurement in measurements:
        filled |= measurement.tables
    of_run = RUN.frame(filled[RUN]).row(0, named=True)
    path = run.measurements.get(CriticalPath)
    # Transfers of NCCL kernels that count as useful work are not lost.
    if isinstance(path, CriticalPath) and path.ideal_length is not None and run.options.nccl == NcclPolicy.COMMUNICATION:
        of_run = with_ideal_network(of_run, path.ideal_length)
    lost, doubted = run.measurements.get(LostWork), list(run.measured(DeviceClocks).contradictions)
    is_lost = isinstance(lost, LostWork) and lost.reason is not None
    if is_lost:
        doubted = list(range(len(events.rows.devices)))
        trees = (DEVICE_TREE, HOST_TREE) if events.pauses else (DEVICE_TREE,)
        of_run |= dict.fromkeys(efficiency.name for tree in trees for efficiency in tree.efficiencies)
    filled |= {RUN: [of_run], TREE_TABLE: tree_rows(of_run, LOST if is_lost else None)}
    return not_compared(
        frames_by_name(filled, table_registry.TABLES),
        [events.rows.devices[device].name for device in doubted],
        [events.rows.tasks[task].name for device in doubted for task in events.rows.tasks_of_device.get(device, ())],
        LOST if is_lost else CONTRADICTED,
        lost.start_up if isinstance(lost, LostWork) else 0,
    )


def _head(
    events: RunEvents, options: EfficiencyOptions, warnings: list[str], window: MeasuredWindow, interval: LengthInterval
) -> dict[str, Any]:
    """Values of `table_registry.HEAD` but `tables`."""
    return {
        "format": table_registry.FORMAT,
        "version": table_registry.VERSION,
        "nsys2prv": __version__,
        "inputs": list(events.inputs),
        "input_kind": "reports",
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
        "options": changed_options(options),
        "warnings": warnings,
        "left_out": [{"path": path, "error": error} for path, error in events.left_out],
    }


def changed_options(options: EfficiencyOptions) -> dict[str, Any]:
    """Options that differ from their defaults, as JSON takes them."""
    values, defaults = asdict(options), asdict(EfficiencyOptions())
    return {key: _plain(values[key]) for key, default in defaults.items() if values[key] != default and key != "progress"}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset | tuple):
        return sorted(value)
    return value if isinstance(value, str | int | float | bool | dict) else str(value)


def _warnings(events: RunEvents) -> list[str]:
    warnings = []
    if not events.rows.devices:
        absent = "efficiencies of devices, kernels, gaps and findings about them are absent"
        calls = pl.Series(list(events.names(event_types.CUDA_CALL).values()), dtype=pl.String)
        why = "CUDA calls were recorded: they launch nothing" if len(calls) else "nor any CUDA call: --trace=cuda records them"
        why = "calls launch work: nsys lost it" if LAUNCH in call_categories(calls) else why
        why = "calls of CUDA failed" if events.failed_calls else why
        warnings.append(f"{NO_DEVICES}: {absent} ({why})")
    if events.rows.sampled_only:
        names = ", ".join(device.name for device in events.rows.sampled_only)
        warnings.append(f"GPUs that were sampled and that no process of the run uses are not counted: {names}")
    if event_types.GRAPH_EXECUTION in events.types:
        warnings.append(
            "CUDA graphs were recorded as a whole: each execution counts as one useful kernel, whatever runs inside"
        )
    return warnings
