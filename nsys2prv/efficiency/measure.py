"""All efficiency numbers of a run: reports or a trace come in, the tables of `schema` leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

import nsys2prv
from nsys2prv.efficiency import result_tables
from nsys2prv.efficiency.activity_times import (
    Bins,
    Totals,
    Trees,
    bin_tables,
    device_table,
    task_table,
    thread_table,
    useful_table,
)
from nsys2prv.efficiency.clock_tables import clock_tables
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.findings import Findings
from nsys2prv.efficiency.from_reports import record_reports
from nsys2prv.efficiency.from_trace import is_trace, record_trace
from nsys2prv.efficiency.meters.calls import Calls, MemoryOperations
from nsys2prv.efficiency.meters.gaps import Gaps
from nsys2prv.efficiency.meters.kernel_stats import Kernels
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.meters.overlap import Overlap
from nsys2prv.efficiency.meters.regions import Iterations, Regions
from nsys2prv.efficiency.meters.sampled_metrics import Sampled
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk, slices
from nsys2prv.errors import NoDevices, UsageError
from nsys2prv.execution.output_files import scratch_alone
from nsys2prv.execution.threads import WORKERS, ahead
from nsys2prv.execution.workers import workers
from nsys2prv.run.session import seen_by_workers
from nsys2prv.vocabulary import event_types


@dataclass(frozen=True)
class Efficiency:
    """The efficiency numbers of a run.

    Attributes
    ----------
    head
        What stands beside the tables: the keys of `schema.HEAD` but `tables`.
    tables
        All tables of `schema.TABLES`, by name.
    """

    head: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame]

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` writes."""
        return {**self.head, "tables": {name: table.to_dict(as_series=False) for name, table in self.tables.items()}}

    @property
    def left_out(self) -> int:
        """Number of reports that could not be read."""
        return len(self.head["left_out"])


def measure(arguments: Sequence[str | Path], options: EfficiencyOptions | None = None) -> Efficiency:
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
    with scratch_alone(options.scratch) as folder:
        recording = _record(arguments, options, folder)
        return measure_events(recording, options)


def measure_events(recording: RunEvents, options: EfficiencyOptions) -> Efficiency:
    """Efficiency numbers of a recording; its collections are used up.

    Raises
    ------
    NoDevices
        When no process in it uses a GPU.
    """
    rows = recording.rows
    if not rows.devices:
        raise NoDevices(recording.inputs)
    ground = SweepContext(recording)
    totals, bins = Totals(ground), Bins(ground, options.bins)
    regions = Regions(ground, options.regions) if options.regions else None
    iterations = Iterations(ground, options.per_iteration) if options.per_iteration is not None else None
    findings = Findings(ground)
    overlap, kernels, gaps, nccl = Overlap(ground), Kernels(ground), Gaps(ground, findings.update_gaps), Nccl(ground)
    calls, memory, sampled = Calls(ground), MemoryOperations(ground), Sampled(ground, bins)
    _sweep(
        ground,
        # What takes longest comes first: nothing waits for it alone.
        [
            meter
            for meter in (gaps, findings, kernels, bins, regions, iterations, calls, nccl, totals, overlap, memory, sampled)
            if meter is not None
        ],
    )
    reading = options.nccl.value
    trees = Trees(ground, reading, has_mpi=any(number in recording.types for number in event_types.MPI_TYPES.values()))
    run = trees.of_run(totals)
    over_time, by_device = bin_tables(ground, bins, trees)
    tables: dict[str, Any] = {
        "run": [run],
        "tree": tree_table(run, reading),
        "nodes": _nodes(ground, totals, trees),
        "devices": device_table(recording, totals, reading),
        "tasks": task_table(ground, totals, reading),
        "useful": useful_table(totals, sorted(rows.gpu_tasks), reading),
        "threads": thread_table(ground, totals),
        "bins": over_time,
        "device_bins": by_device,
        "regions": regions.table(trees) if regions is not None else [],
        "iterations": iterations.table(trees) if iterations is not None else [],
        **clock_tables(recording.clocks),
        **kernels.tables(),
    }
    for measured in (overlap, gaps, calls, memory, nccl):
        tables |= measured.tables()
    tables |= sampled.tables(tables.get("kernels", result_tables.BY_NAME["kernels"].empty))
    checked = result_tables.checked(tables)
    activity = totals.first.tolist(), totals.last.tolist()
    of_findings = findings.tables(checked, activity, kernels_by_device=kernels.by_device, arrivals=nccl.arrivals)
    head = {
        "format": result_tables.FORMAT,
        "version": result_tables.VERSION,
        "nsys2prv": nsys2prv.__version__,
        "inputs": list(recording.inputs),
        "input_kind": "trace" if recording.is_trace else "reports",
        "title": recording.title,
        "began": recording.began,
        "recorders": list(recording.recorders),
        "gpus": list(recording.gpus),
        "nccl": reading,
        "window": {"begin_ns": recording.begin, "end_ns": recording.begin + recording.length, "length_ns": recording.length},
        "options": _told(options),
        "warnings": [
            *recording.warnings,
            *_warnings(recording),
            *(warning for meter in (kernels, regions, iterations) if meter is not None for warning in meter.warnings),
        ],
        "left_out": [{"path": path, "error": error} for path, error in recording.left_out],
    }
    return Efficiency(head, checked | result_tables.checked(of_findings, [result_tables.BY_NAME[name] for name in of_findings]))


class Meter(Protocol):
    """Measures something of a run, stretch by stretch."""

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""


def _sweep(ground: SweepContext, meters: Sequence[Meter]) -> None:
    """Go through a recording once; several meters work at the same time, each on one stretch after the other."""

    def prepared() -> Iterator[TimeChunk]:
        for part in slices(ground):
            # What several meters need is made before they share it.
            _ = part.device_times, part.thread_times, part.on_tasks
            yield part

    with ThreadPoolExecutor(WORKERS) as pool:
        for part in ahead(prepared()):
            list(pool.map(lambda meter, part=part: meter.take(part), meters))


def tree_table(run: Mapping[str, Any], reading: str) -> list[dict[str, Any]]:
    """Rows of the table `tree`, from the row of the table `run`; MPI's are absent where there is none."""
    return [
        {
            "nccl": reading,
            "tree": leaf.tree,
            "metric": leaf.metric,
            "title": leaf.title,
            "parent": leaf.parent,
            "level": leaf.level,
            "value": run[leaf.metric],
            "formula": leaf.formula,
            "reads_as": leaf.reads_as,
        }
        for leaf in result_tables.TREE
        if not (leaf.metric.startswith("mpi_") and run[leaf.metric] is None)
    ]


def _nodes(ground: SweepContext, totals: Totals, trees: Trees) -> list[dict[str, Any]]:
    rows = ground.recording.rows
    of_callers = np.array([rows.tasks[int(rows.task[row])].node for row in ground.callers], dtype=object)
    of_devices = np.array([device.node for device in rows.devices], dtype=object)
    return [
        {"node": node, **trees.of_some(totals, np.flatnonzero(of_devices == node), np.flatnonzero(of_callers == node))}
        for node in dict.fromkeys(of_devices.tolist())
    ]


def _record(arguments: Sequence[str | Path], options: EfficiencyOptions, folder: Path) -> RunEvents:
    with_ranges = bool(options.regions) or options.per_iteration is not None
    traces = [argument for argument in arguments if is_trace(argument)]
    if not traces:
        with workers(options.workers, options.scheduler) as some:
            some.share(folder)
            return record_reports(arguments, options, folder, some, with_ranges=with_ranges)
    if len(arguments) > 1:
        raise UsageError(
            f"{traces[0]}: a trace is measured alone; give one trace, or reports, or lay runs side by side with `compare`"
        )
    return record_trace(Path(traces[0]), options, folder, with_ranges=with_ranges)


def _told(options: EfficiencyOptions) -> dict[str, Any]:
    """Options that differ from their defaults, as JSON takes them."""
    given, defaults = asdict(options), asdict(EfficiencyOptions())
    told = {key: value for key, value in given.items() if value != defaults[key] and key != "progress"}
    return {key: _plain(value) for key, value in told.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset | tuple):
        return sorted(value)
    return value if isinstance(value, str | int | float | bool | dict) else str(value)


def _warnings(recording: RunEvents) -> list[str]:
    found = []
    if recording.rows.sampled_only:
        names = ", ".join(device.name for device in recording.rows.sampled_only)
        found.append(f"GPUs that were sampled and that no process of the run uses are not counted: {names}")
    if event_types.GRAPH_EXECUTION in recording.types:
        found.append("CUDA graphs were recorded as a whole: each execution counts as one useful kernel, whatever runs inside")
    return found
