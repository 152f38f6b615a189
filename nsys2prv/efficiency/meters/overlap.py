"""Overlap of communication and computation: how many kernels run at once while an NCCL kernel runs on a task.

The number counts the NCCL kernel too, as BSC's views do: 1 is communication that nothing covers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.sweep import KERNEL, NCCL, SweepContext, TimeChunk


class Overlap:
    """Time by number of kernels at once, per task."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        self._found: list[pl.DataFrame] = []

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        found = part.on_tasks
        communicates = found.counts[NCCL] > 0
        if not communicates.any():
            return
        depth: Numbers = found.counts[KERNEL] + found.counts[NCCL]
        frame = pl.DataFrame(
            {"task": found.group[communicates], "kernels": depth[communicates], "time": found.length[communicates]}
        )
        self._found.append(frame.group_by("task", "kernels").sum())

    def tables(self) -> dict[str, Any]:
        """The tables `overlap` and `overlap_summary`."""
        if not self._found:
            return {}
        recording = self._ground.recording
        whole = pl.concat(self._found).group_by("task", "kernels").sum()
        tasks = whole.select("task").unique().sort("task")
        # Every task has every number: a task that never has it counts with 0 in the average.
        every = tasks.join(whole.select("kernels").unique().sort("kernels"), how="cross")
        by_task = (
            every.join(whole, on=["task", "kernels"], how="left", maintain_order="left")
            .with_columns(pl.col("time").fill_null(0))
            .with_columns(
                of_communication=pl.col("time") / pl.col("time").sum().over("task"),
                of_trace=pl.col("time") / recording.length,
            )
        )
        names = pl.Series([task.name for task in recording.rows.tasks], dtype=pl.String)
        table = by_task.select(
            pl.lit(names).gather("task").alias("task"), "kernels", "of_communication", "of_trace", time_ns="time"
        )
        summary = []
        for (kernels,), of_number in by_task.partition_by("kernels", as_dict=True, maintain_order=True).items():
            for base in ("communication", "trace"):
                summary.append({"kernels": kernels, "base": base, **spread(of_number[f"of_{base}"].to_numpy())})
        return {"overlap": table, "overlap_summary": sorted(summary, key=lambda row: (row["base"], row["kernels"]))}


def spread(values: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Average, maximum, minimum, deviation and Avg/Max of some values, as Paraver's histograms tell them."""
    largest = float(values.max())
    return {
        "average": float(values.mean()),
        "maximum": largest,
        "minimum": float(values.min()),
        "deviation": float(values.std()),
        "avg_max": float(values.mean()) / largest if largest else None,
    }
