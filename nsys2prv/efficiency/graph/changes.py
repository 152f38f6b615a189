"""Changes of a run for a what-if: which edges of its graph get which weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.replay import REMOVED, Change
from nsys2prv.efficiency.graph.run_graph import GraphWindow
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.kernel_stats import family_names, with_names
from nsys2prv.efficiency.sweep import LAUNCH
from nsys2prv.efficiency.what_if_options import Scaling
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS
from nsys2prv.vocabulary.name_rules import fits
from nsys2prv.vocabulary.wording import did_you_mean_any

_WORK = (edge_kinds.DEVICE_WORK, edge_kinds.TRANSFER, edge_kinds.COLLECTIVE)
_ON_HOST = (edge_kinds.HOST, edge_kinds.BLOCKED_CALL)
TRANSFERS = (edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.MESSAGE)
"""Kinds of edges that take the time of a network."""

Step = Callable[[GraphWindow, Numbers], Numbers]
"""Gives edges of a window other weights than those so far."""


def combined(steps: Sequence[Step]) -> Change:
    """Several changes, one after the other."""

    def change(window: GraphWindow) -> Numbers:
        weight = window.weight
        for step in steps:
            weight = step(window, weight)
        return weight

    return change


def ideal_network(window: GraphWindow, weight: Numbers) -> Numbers:
    """Transfers of collectives and messages take no time."""
    return np.where(np.isin(window.kind, TRANSFERS), 0, weight)


def no_launch_cost(built: BuiltGraph) -> Step:
    """Calls that launch take no time, and what they launch can start at once."""
    of_label = built.labels.causes == LAUNCH

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        in_launch = np.isin(window.kind, _ON_HOST) & of_label[window.label[window.target]]
        return np.where(in_launch | (window.kind == edge_kinds.LAUNCH), 0, weight)

    return step


def loading_times(built: BuiltGraph, times: float, tasks: Sequence[int] | None = None) -> Step:
    """Times in which hosts of some tasks (None: of all) load data take so many times as long."""
    found = built.loading.sort("row", "begin")
    if tasks is not None:
        of_task = built.context.events.rows.task[found["row"].to_numpy()]
        found = found.filter(pl.Series(np.isin(of_task, tasks), dtype=pl.Boolean))
    row, begin, end = (found[name].to_numpy().astype(np.int64) for name in ("row", "begin", "end"))
    span = built.context.events.length + 2
    keys = row * span + begin

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        if not len(keys):
            return weight
        of_row = window.row[window.target]
        place = np.searchsorted(keys, of_row * span + window.time[window.target], side="left") - 1
        known = np.maximum(place, 0)
        inside = (place >= 0) & (row[known] == of_row) & (window.time[window.target] <= end[known])
        own = inside & (window.source_row == of_row) & (window.source_time >= begin[known]) & np.isin(window.kind, _ON_HOST)
        changed = np.where(own, _longer(weight, times), weight)
        # Without loading nothing wakes who waits for it.
        return np.where(inside & (window.kind == edge_kinds.WAKE_UP) & (times < 1), REMOVED, changed)

    return step


def scaled_work(built: BuiltGraph, scalings: Sequence[Scaling]) -> Step:
    """Kernels, copies and graphs take other times.

    Raises
    ------
    UsageError
        When nothing fits a pattern.
    """
    names = names_of_work(built)
    factors = np.ones(len(built.labels) + 1)
    for one in scalings:
        # Upper and lower case are the same.
        of_pattern = [fits(pl.col(column).str.to_lowercase(), one.pattern.lower()) for column in ("name", "family")]
        scaled = names.filter(pl.any_horizontal(of_pattern))["label"].to_numpy()
        if not len(scaled):
            known = [name for column in ("family", "name") for name in names[column].drop_nulls().unique().sort()]
            near = did_you_mean_any(one.pattern, known, "efficiency REPORT... --csv DIR")
            raise UsageError(f"--scale {one.pattern}: no kernel, kernel family or copy of the run has this name{near}")
        factors[scaled] *= one.factor

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        return _times(window, weight, np.isin(window.kind, _WORK), factors[window.label[window.target]])

    return step


def median_of_ranks(built: BuiltGraph, ranks: Sequence[int]) -> Step:
    """Kernels of some ranks take, by name, the median over the mean durations on all ranks.

    Raises
    ------
    UsageError
        When the run has no such rank.
    """
    rows = built.context.events.rows
    of_rank = {task.rank: place for place, task in enumerate(rows.tasks)}
    if missing := [rank for rank in ranks if rank not in of_rank]:
        raise UsageError(f"--rank {missing[0]}=median: the run has no rank {missing[0]}")
    sums = _work_of_tasks(built)
    mean = pl.col("total") / pl.col("count")
    ratios = sums.with_columns(ratio=mean.median().over("label") / mean).filter(
        pl.col("task").is_in([of_rank[rank] for rank in ranks]), pl.col("ratio").is_finite()
    )
    size = len(built.labels) + 1
    factors = np.ones(len(rows.tasks) * size)
    factors[ratios["task"].to_numpy() * size + ratios["label"].to_numpy()] = ratios["ratio"].to_numpy()

    def step(window: GraphWindow, weight: Numbers) -> Numbers:
        label = window.label[window.target]
        place = rows.task[window.row[window.target]] * size + np.where(label < 0, size - 1, label)
        return _times(window, weight, window.kind == edge_kinds.DEVICE_WORK, factors[place])

    return step


def _times(window: GraphWindow, weight: Numbers, chosen: npt.NDArray[np.bool_], factors: npt.NDArray[np.float64]) -> Numbers:
    changed = chosen & (factors != 1) & (weight != REMOVED)
    return np.where(changed, _longer(weight, factors), weight)


def _longer(weight: Numbers, factors: float | npt.NDArray[np.float64]) -> Numbers:
    """Weights times factors, as far as a replay can be that long."""
    longer: Numbers = np.minimum(np.rint(weight * factors), LONGEST_SESSION_NS).astype(np.int64)
    return longer


def _work_of_tasks(built: BuiltGraph) -> pl.DataFrame:
    """Durations of kernels: columns `label`, `task`, `total` (ns), `count`."""
    labels, tasks = len(built.labels), len(built.context.events.rows.tasks)
    total, count = np.zeros(labels * tasks), np.zeros(labels * tasks)
    of_kernels = built.labels.is_of(event_types.KERNEL)
    for window in built.graph.windows():
        work = np.flatnonzero(window.kind == edge_kinds.DEVICE_WORK)
        label = window.label[window.target[work]]
        work, label = work[of_kernels[label]], label[of_kernels[label]]
        key = label * tasks + built.context.events.rows.task[window.row[window.target[work]]]
        total += np.bincount(key, weights=window.weight[work], minlength=labels * tasks)
        count += np.bincount(key, minlength=labels * tasks)
    there = np.flatnonzero(count)
    return pl.DataFrame({"label": there // tasks, "task": there % tasks, "total": total[there], "count": count[there]})


def names_of_work(built: BuiltGraph) -> pl.DataFrame:
    """Columns `label`, `name`, `family` of what runs on devices."""
    labels = built.labels
    numbers = (event_types.KERNEL, event_types.NCCL_KERNEL, event_types.GRAPH_EXECUTION, event_types.MEMORY_OPERATION)
    label = np.flatnonzero(labels.is_of(*numbers)) if len(labels) else np.zeros(0, dtype=np.int64)
    columns = {"number": labels.number, "value": labels.value, "family": labels.family}
    frame = pl.DataFrame({name: pl.Series(values, dtype=pl.Int64).gather(label) for name, values in columns.items()})
    named = with_names(frame, built.context.events)
    is_kernel = pl.col("number") != event_types.MEMORY_OPERATION
    return named.with_columns(family=family_names(named, built.context.events)).select(
        pl.Series("label", label), name="kernel", family=pl.when(is_kernel).then("family")
    )
