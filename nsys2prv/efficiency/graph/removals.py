"""Changes that take away what a finding speaks of: idle times with what hosts did in them, waits, calls, copies, transfers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.changes import Step
from nsys2prv.efficiency.graph.replay import REMOVED
from nsys2prv.efficiency.graph.run_graph import GraphWindow
from nsys2prv.efficiency.graph.spans import Spans
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import RunRows
from nsys2prv.efficiency.sweep import LAUNCH, MEMORY_CALL, SYNCHRONIZATION
from nsys2prv.vocabulary import event_types

GAPS = {"device": pl.Int64, "row": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
"""Columns of gaps: device, row of the thread that launched what comes after (-1: not known), times in ns."""

_CALLS = (edge_kinds.HOST, edge_kinds.BLOCKED_CALL)
_ON_THREADS = (
    *_CALLS, edge_kinds.SYNCHRONIZATION, edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.MESSAGE, edge_kinds.WAKE_UP
)  # fmt: skip
_USED_OFTEN = 0.1
"""Part of the waits in gaps that are of a function that copies: fewer are others."""


def _of_gaps(built: BuiltGraph, gaps: pl.DataFrame) -> Spans:
    """Gaps by the row of the thread, and by device: groups as of `_groups`."""
    rows = built.context.events.rows
    threads = gaps.filter(pl.col("row") >= 0).select("begin", "end", group="row")
    devices = gaps.select("begin", "end", group=pl.col("device") + len(rows.names))
    return Spans(pl.concat([threads, devices]), built.context.events.length)


def _groups(rows: RunRows) -> Numbers:
    """Group of each row: rows of a device have that of the device."""
    device = rows.device
    return np.where(device >= 0, device + len(rows.names), np.arange(len(device)))


def _shortened(window: GraphWindow, weight: Numbers, chosen: npt.NDArray[np.bool_], taken: Numbers) -> Numbers:
    """Weights without times that are taken away: an edge needs no more than the rest of what was measured."""
    rest = window.time[window.target] - window.source_time - taken
    return np.where(chosen & (taken > 0) & (weight != REMOVED), np.minimum(weight, rest), weight)


def without_gaps(built: BuiltGraph, gaps: pl.DataFrame) -> Step:
    """In gaps (GAPS) the threads that launch what comes after take no time, and devices wait for nothing else."""
    spans, groups = _of_gaps(built, gaps), _groups(built.context.events.rows)

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        # A launch is a matter of the thread, and the order in a stream of the device.
        of_source = window.kind == edge_kinds.LAUNCH
        row = np.where(of_source, window.source_row, window.row[window.target])
        chosen = of_source | np.isin(window.kind, (*_ON_THREADS, edge_kinds.STREAM_ORDER))
        taken = spans.inside(groups[row], window.source_time, window.time[window.target])
        return _shortened(window, weight, chosen, taken)

    return step


def without_launches(built: BuiltGraph, gaps: pl.DataFrame) -> Step:
    """Calls that launch take no time in gaps (GAPS) of their thread."""
    spans, of_label = _of_gaps(built, gaps), built.labels.causes == LAUNCH

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        in_call = np.isin(window.kind, _CALLS) & of_label[window.label[window.target]]
        taken = spans.inside(window.row[window.target], window.source_time, window.time[window.target])
        return _shortened(window, weight, in_call, taken)

    return step


def without_waits(built: BuiltGraph, gaps: pl.DataFrame) -> Step:
    """Calls that end in gaps (GAPS) of their thread don't wait for devices: results are read later. Functions that copy, and
    wait in gaps, wait nowhere in these threads: their copies are asynchronous."""
    spans = _of_gaps(built, gaps)
    causes = built.labels.causes
    waits = np.isin(causes, (MEMORY_CALL, SYNCHRONIZATION))
    threads = np.isin(np.arange(len(built.context.events.rows.names) + 1), gaps["row"].unique().to_numpy())

    def ending_inside(window: GraphWindow) -> npt.NDArray[np.bool_]:
        end = window.time[window.target]
        ends: npt.NDArray[np.bool_] = spans.inside(window.row[window.target], end - 1, end) > 0
        ends &= window.kind == edge_kinds.SYNCHRONIZATION
        return ends

    counts: Numbers = np.zeros(len(causes), dtype=np.int64)
    for window in built.graph.windows():
        counts += np.bincount(window.label[window.target][ending_inside(window)], minlength=len(causes))
    copying = (causes == MEMORY_CALL) & (counts >= _USED_OFTEN * counts.sum())

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        row, label = window.row[window.target], window.label[window.target]
        in_call = np.isin(window.kind, _CALLS) & waits[label]
        taken = spans.inside(row, window.source_time, window.time[window.target])
        shorter = _shortened(window, weight, in_call, taken)
        copies = (window.kind == edge_kinds.SYNCHRONIZATION) & copying[label] & threads[row]
        return np.where(ending_inside(window) | copies, REMOVED, shorter)

    return step


def without_calls(built: BuiltGraph, cause: int, tasks: Sequence[int], begin: int, end: int) -> Step:
    """Calls of a category (`sweep.CAUSES`) from a begin to an end, ns, take no time and wait for nothing, in some tasks."""
    of_label = built.labels.causes == cause
    of_row = np.isin(built.context.events.rows.task, tasks)

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        own = of_row[window.row[window.target]] & of_label[window.label[window.target]]
        own &= (window.source_time >= begin) & (window.time[window.target] <= end)
        shorter = np.where(own & np.isin(window.kind, _CALLS), 0, weight)
        return np.where(own & (window.kind == edge_kinds.SYNCHRONIZATION), REMOVED, shorter)

    return step


def without_launch_queue(window: GraphWindow, weight: Numbers) -> Numbers:
    """Launches never wait for a place in the queue."""
    return np.where(window.kind == edge_kinds.LAUNCH_QUEUE, REMOVED, weight)


def without_transfers(built: BuiltGraph, devices: Sequence[int]) -> Step:
    """NCCL kernels of some devices take no time, once all members are there."""
    rows = built.context.events.rows
    on_devices = np.isin(rows.device, devices)
    is_nccl = np.append(built.labels.is_of(event_types.NCCL_KERNEL), False)

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        own = on_devices[window.row[window.target]] & is_nccl[window.label[window.target]]
        moves = np.isin(window.kind, (edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.DEVICE_WORK))
        return np.where(own & moves, 0, weight)

    return step


def without_collectives(built: BuiltGraph, kernels: pl.DataFrame) -> Step:
    """Some NCCL kernels (columns `group`: row of the stream, `begin`, `end`) take no time, once all members are there."""
    spans = Spans(kernels, built.context.events.length)
    is_nccl = np.append(built.labels.is_of(event_types.NCCL_KERNEL), False)

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        row, end = window.row[window.target], window.time[window.target]
        own = is_nccl[window.label[window.target]] & (spans.inside(row, end - 1, end) > 0)
        moves = np.isin(window.kind, (edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.DEVICE_WORK))
        return np.where(own & moves, 0, weight)

    return step


def faster_copies(built: BuiltGraph, copies: pl.DataFrame, factor: float) -> Step:
    """Copies (columns `group`: row of the stream, `begin`, `end`) take so many times as long, and calls that copy don't take
    the time of the copies: they don't wait for them, nor move their data themselves."""
    length, rows = built.context.events.length, built.context.events.rows
    spans = Spans(copies, length)
    of_tasks = Spans(copies.with_columns(group=pl.Series(rows.task[copies["group"].to_numpy()], dtype=pl.Int64)), length)
    copying = built.labels.causes == MEMORY_CALL

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        row, begin, end = window.row[window.target], window.source_time, window.time[window.target]
        is_copy = (window.kind == edge_kinds.DEVICE_WORK) & (spans.inside(row, begin, end) > 0)
        shorter = np.where(is_copy, np.rint(weight * factor), weight).astype(np.int64)
        in_call = np.isin(window.kind, _CALLS) & copying[window.label[window.target]]
        shorter = _shortened(window, shorter, in_call, of_tasks.inside(rows.task[row], begin, end))
        awaited = spans.inside(window.source_row, begin - 1, begin) > 0
        return np.where((window.kind == edge_kinds.SYNCHRONIZATION) & awaited, REMOVED, shorter)

    return step


def scaled_kernels(built: BuiltGraph, kernels: pl.DataFrame) -> Step:
    """Kernels (columns `device`, `number`, `value`) take a `factor` of their time."""
    labels, rows = built.labels, built.context.events.rows
    size = len(labels) + 1
    of_labels = pl.DataFrame({"number": labels.number, "value": labels.value}).with_row_index("label")
    found = kernels.cast({"number": pl.Int64, "value": pl.Int64}).join(
        of_labels.cast(pl.Int64), on=["number", "value"], how="inner"
    )
    factors = np.ones((len(rows.devices) + 1) * size)
    factors[found["device"].to_numpy() * size + found["label"].to_numpy()] = found["factor"].to_numpy()

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        label, device = window.label[window.target], rows.device[window.row[window.target]]
        # Rows of no device are behind the last one.
        place = np.where(device < 0, len(rows.devices), device) * size + np.where(label < 0, size - 1, label)
        chosen = (window.kind == edge_kinds.DEVICE_WORK) & (weight != REMOVED)
        return np.where(chosen, np.rint(weight * factors[place]), weight).astype(np.int64)

    return step
