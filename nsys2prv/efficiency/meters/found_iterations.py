"""Times in the iterations that were found, and their lengths on each task."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.activity_times import RegionTimes, Trees
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.regions import ITERATIONS
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnPage, Table
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.efficiency.window.iterations import RunIterations
from nsys2prv.efficiency.window.usual_lengths import SLOW, WARM_UP

MOST_ROWS, MOST_TREES = 100_000, 10_000
"""Rows of each table, and iterations with efficiencies: the first ones."""

TASK_ITERATIONS = Table(
    "task_iterations",
    "Iterations of each task",
    "one iteration of one task on one device",
    (
        Column.count("iteration", "0, 1, ..., the same number on all tasks"),
        Column.text("task", "name of the task"),
        DEVICE,
        Column.moment("begin_ns", "start of its first work there"),
        Column.moment("end_ns", "where the next one begins; of the last one: end of its last work"),
        Column.ns("length_ns", "its length"),
        Column.number("ratio", "length / median over tasks"),
    ),
    when="Iterations that were found; with `--per-iteration` those of the ranges named",
    order=250,
    page=OnPage("regions", place=3, worst_first="length_ns", cells=4_000),
)


class FoundIterations(TableMeter):
    """Times of devices and host threads in each iteration that lies in the window."""

    def __init__(self, context: SweepContext, trees: Trees, found: RunIterations, *, with_trees: bool) -> None:
        self._context = context
        self._trees = trees
        self._found = found
        self._with_trees = with_trees
        self._times = RegionTimes(context)
        offset, length = context.events.offset, context.events.length
        moved = found.iterations.with_columns(pl.col("begin", "end") - offset)
        self._inside = moved.filter((pl.col("begin") >= 0) & (pl.col("end") <= length))
        numbers = self._inside["number"].unique().sort()
        self._numbers = numbers.head(MOST_ROWS)
        self._behind_trees = int(numbers[MOST_TREES]) if len(numbers) > MOST_TREES else None

    def update(self, chunk: TimeChunk) -> None:
        if not self._with_trees:
            return
        part = self._inside.filter((pl.col("begin") < chunk.end) & (pl.col("end") > chunk.begin))
        if self._behind_trees is not None:
            part = part.filter(pl.col("number") < self._behind_trees)
        begin, end = part["begin"].clip(lower_bound=chunk.begin), part["end"].clip(upper_bound=chunk.end)
        slot, task = part["number"].to_numpy(), part["task"].to_numpy()
        self._times.update(chunk, slot, task, begin.to_numpy(), end.to_numpy())

    def tables(self) -> Filled:
        """The tables `task_iterations` and, unless ranges were named, `iterations`."""
        length = pl.col("end") - pl.col("begin")
        of_tasks = self._inside.head(MOST_ROWS).select(
            self._context.task_names(pl.col("task")).alias("task"),
            self._context.device_names(pl.col("device")).alias("device"),
            iteration="number",
            begin_ns="begin",
            end_ns="end",
            length_ns=length,
            ratio=length / length.median().over("number"),
        )
        if not self._with_trees:
            return {TASK_ITERATIONS: of_tasks}
        trees = self._trees.of_slots(self._times.devices, self._times.threads)
        lengths = self._found.lengths.filter(pl.col("number").is_in(self._numbers.implode()))
        offset = self._context.events.offset
        rows = [
            {
                "region": self._found.how,
                "iteration": row["number"],
                "begin_ns": row["begin"] - offset,
                "end_ns": row["end"] - offset,
                "tasks": row["tasks"],
                "shortest_ns": row["shortest"],
                "longest_ns": row["longest"],
                "kind": WARM_UP if row["is_warm_up"] else SLOW if row["is_slow"] else None,
                **trees.get(row["number"], {}),
            }
            for row in lengths.iter_rows(named=True)
        ]
        return {TASK_ITERATIONS: of_tasks, ITERATIONS: rows}
