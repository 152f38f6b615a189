"""Overlap of communication and computation: how many kernels run at once while an NCCL kernel runs on a task.

The number counts the NCCL kernel too, as BSC's views do: 1 is exposed communication.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.result_tables import SPREAD, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.sweep import KERNEL, NCCL, SweepContext, TimeChunk
from nsys2prv.execution.merging import Sums

OVERLAP = Table(
    "overlap",
    "Overlap of communication and computation",
    "one task and number of kernels at once",
    (
        Column.text("task", "name of the task"),
        Column.count("kernels", "kernels that ran at once, the NCCL kernel among them: 1 is no overlap"),
        Column.ns("time_ns", "for how long, while at least one NCCL kernel ran"),
        Column.share("of_communication", "share of the time in which NCCL kernels ran"),
        Column.share("of_trace", "share of the window"),
    ),
    when="NCCL kernels",
    order=300,
    page=OnPage("communication", place=4, cells=8_000),
)
_SHARES = tuple(replace(column, unit="0 to 1") for column in SPREAD)

OVERLAP_SUMMARY = Table(
    "overlap_summary",
    "Overlap of communication and computation over tasks",
    "one number of kernels at once, and one base",
    (Column.count("kernels", "kernels that ran at once"), Column.text("base", "`communication` or `trace`"), *_SHARES),
    when="NCCL kernels",
    page=OnPage("communication", place=3),
    console=OnConsole((("kernels", "kernels at once"), ("base", "of"), "average", "maximum", "minimum", "deviation"),
        spare=("deviation", "minimum")),
)  # fmt: skip


class Overlap(TableMeter):
    """Time by number of kernels at once, per task."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._times = Sums(dict.fromkeys(("task", "kernels", "time"), pl.Int64), ["task", "kernels"])

    def update(self, chunk: TimeChunk) -> None:
        found = chunk.on_tasks
        depth: Numbers = found.counts[KERNEL] + found.counts[NCCL]
        times = pl.DataFrame({"task": found.group, "kernels": depth, "time": found.length})
        self._times.add(times.filter(pl.Series(found.counts[NCCL] > 0)))

    def tables(self) -> Filled:
        """The tables `overlap` and `overlap_summary`."""
        whole = self._times.rows
        if whole.is_empty():
            return {}
        tasks = whole.select("task").unique().sort("task")
        # Every task has every number: a task that never has it counts with 0 in the average.
        every = tasks.join(whole.select("kernels").unique().sort("kernels"), how="cross")
        by_task = (
            every.join(whole, on=["task", "kernels"], how="left", maintain_order="left")
            .with_columns(pl.col("time").fill_null(0))
            .with_columns(
                of_communication=pl.col("time") / pl.col("time").sum().over("task"),
                of_trace=pl.col("time") / self._context.events.length,
            )
        )
        table = by_task.select(
            "kernels", "of_communication", "of_trace", task=self._context.task_names(pl.col("task")), time_ns="time"
        )
        by_number = by_task.partition_by("kernels", as_dict=True).items()
        summary = [
            {"kernels": kernels, "base": base, **spread(of_number[f"of_{base}"].to_numpy())}
            for base in ("communication", "trace")
            for (kernels,), of_number in sorted(by_number)
        ]
        return {OVERLAP: table, OVERLAP_SUMMARY: summary}


def spread(values: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Values of the columns SPREAD, as the statistics of Paraver's histograms."""
    largest = float(values.max())
    return {
        "average": float(values.mean()),
        "maximum": largest,
        "minimum": float(values.min()),
        "deviation": float(values.std()),
        "avg_max": float(values.mean()) / largest if largest else None,
    }
