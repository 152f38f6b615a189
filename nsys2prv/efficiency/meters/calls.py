"""Calls of hosts and memory operations: how many, how long, how large."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.result_tables import CAUSES
from nsys2prv.efficiency.run_events import ON_DEVICES, ON_HOSTS
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk, call_categories
from nsys2prv.vocabulary import event_types

SIZE_CLASSES = (0, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 30)
"""Where classes of sizes of memory operations begin, bytes."""


class Calls:
    """CUDA API calls and MPI calls of all tasks."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        self._found: list[pl.DataFrame] = []

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        begun = part.begun[ON_HOSTS.name]
        task = self._ground.recording.rows.task[begun["row"].to_numpy()]
        length = pl.col("end") - pl.col("start")
        self._found.append(
            begun.with_columns(task=pl.Series(task, dtype=pl.Int64))
            .filter(pl.col("number").is_in([event_types.CUDA_CALL, *event_types.MPI_TYPES.values()]))
            .group_by("number", "value", "task")
            .agg(
                count=pl.len().cast(pl.Int64),
                total=length.sum(),
                shortest=length.min(),
                longest=length.max(),
                size=pl.when(pl.col("size").count() > 0).then(pl.col("size").sum()),
            )
        )
        if len(self._found) > 50:
            self._found = [self._whole()]

    def _whole(self) -> pl.DataFrame:
        return (
            pl.concat(self._found)
            .group_by("number", "value", "task")
            .agg(
                pl.col("count", "total").sum(),
                pl.col("shortest").min(),
                pl.col("longest").max(),
                pl.when(pl.col("size").count() > 0).then(pl.col("size").sum()).alias("size"),
            )
        )

    def tables(self) -> dict[str, Any]:
        """The tables `cuda_calls` and `mpi_calls`."""
        if not self._found:
            return {}
        recording = self._ground.recording
        whole = self._whole()
        by_call = (
            whole.sort("total", "task", descending=[True, False])
            .group_by("number", "value", maintain_order=True)
            .agg(
                pl.col("count").sum(),
                pl.col("shortest").min(),
                pl.col("longest").max(),
                pl.when(pl.col("size").count() > 0).then(pl.col("size").sum()).alias("size"),
                tasks=pl.len(),
                average=pl.col("total").mean(),
                most=pl.col("total").max(),
                most_task=pl.col("task").first(),
                total=pl.col("total").sum(),
            )
        )
        by_call = by_call.with_columns(recording.named(by_call["number"], by_call["value"]).alias("call"))
        by_call = by_call.sort("total", "call", descending=[True, False]).with_columns(
            total_ns="total", mean_ns=pl.col("total") / pl.col("count"), min_ns="shortest", max_ns="longest"
        )
        is_cuda = pl.col("number") == event_types.CUDA_CALL
        of_cuda, of_mpi = by_call.filter(is_cuda), by_call.filter(~is_cuda)
        categories = pl.Series([CAUSES[place] for place in call_categories(of_cuda["call"])], dtype=pl.String)
        tasks_with_mpi = whole.filter(~is_cuda)["task"].n_unique()
        names = pl.Series([task.name for task in recording.rows.tasks], dtype=pl.String)
        return {
            "cuda_calls": of_cuda.with_columns(category=categories),
            "mpi_calls": of_mpi.with_columns(
                share=pl.col("total") / (recording.length * max(tasks_with_mpi, 1)),
                bytes="size",
                average_task_ns="average",
                maximum_task_ns="most",
                maximum_task=pl.lit(names).gather("most_task"),
            ),
        }


class MemoryOperations:
    """Copies and memsets by kind, by kinds of memory and by size."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        self._found: list[pl.DataFrame] = []
        self._key = ["value", "source", "destination", "of_class"]

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        begun = part.begun[ON_DEVICES.name].filter(pl.col("number") == event_types.MEMORY_OPERATION)
        if begun.is_empty():
            return
        of_class = np.searchsorted(SIZE_CLASSES, begun["size"].fill_null(0).to_numpy(), side="right") - 1
        self._found.append(
            begun.with_columns(of_class=pl.Series(of_class, dtype=pl.Int64))
            .group_by(self._key)
            .agg(
                count=pl.len().cast(pl.Int64),
                bytes=pl.col("size").sum(),
                total_ns=(pl.col("end") - pl.col("start")).sum(),
            )
        )

    def tables(self) -> dict[str, Any]:
        """The table `memory_operations`."""
        if not self._found:
            return {}
        recording = self._ground.recording
        whole = pl.concat(self._found).group_by(self._key).sum()
        edges = pl.Series([*SIZE_CLASSES, None], dtype=pl.Int64)
        numbers = {
            "value": event_types.MEMORY_OPERATION,
            "source": event_types.SOURCE_MEMORY,
            "destination": event_types.DESTINATION_MEMORY,
        }
        names = {
            name: recording.named(pl.Series([number] * whole.height, dtype=pl.Int64), whole[name].fill_null(0))
            for name, number in numbers.items()
        }
        told = whole.select(
            "count",
            "bytes",
            "total_ns",
            operation=pl.lit(names["value"]),
            source=pl.when(pl.col("source").is_not_null()).then(pl.lit(names["source"])),
            destination=pl.when(pl.col("destination").is_not_null()).then(pl.lit(names["destination"])),
            from_bytes=pl.lit(edges).gather("of_class"),
            to_bytes=pl.lit(edges).gather(pl.col("of_class") + 1),
            mean_ns=pl.col("total_ns") / pl.col("count"),
            bandwidth=pl.when(pl.col("total_ns") > 0).then(pl.col("bytes") * 1e9 / pl.col("total_ns")),
        )
        order = ["total_ns", "operation", "source", "destination", "from_bytes"]
        return {"memory_operations": told.sort(order, descending=[True, *[False] * 4], nulls_last=True)}
