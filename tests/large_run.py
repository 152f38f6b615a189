"""Efficiency tables of a run with many GPUs, made from those of a small one: as many rows, names and digits as a real one has."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from nsys2prv.analysis import schema

_NAMES = ("device", "node", "task", "tasks", "devices", "host", "last_task", "maximum_task", "slowest_device")
_NODE = "node"


def grown(tables: Mapping[str, pl.DataFrame], copies: int) -> dict[str, pl.DataFrame]:
    """The same run on `copies` times as many nodes: what is told of a node, device or process is told of each copy of it.

    Names of nodes must be `node01`, ...; their copies are `node01-0`, `node01-1`, ...
    """
    larger = {name: _copied(schema.BY_NAME[name], table, copies) for name, table in tables.items()}
    larger["run"] = tables["run"].with_columns(pl.col("devices", "processes", "threads") * copies)
    return larger


def _copied(table: schema.Table, frame: pl.DataFrame, copies: int) -> pl.DataFrame:
    names = [column.name for column in table.columns if column.name in _NAMES and column.dtype is pl.String]
    if not names or table.name in ("kernels", "mpi_calls", "longest_gaps", "nccl_collectives", "findings"):
        # These have as many rows in a large run.
        return frame
    numbers = pl.DataFrame({"copy": range(copies)})
    renamed = (
        pl.col(name).str.replace_all(rf"({_NODE}\d+)", pl.format("$1-{}", pl.col("copy")), literal=False) for name in names
    )
    # Not the same digits everywhere, but no more than there are.
    kept = ("from_ns", "to_ns", "peak_ns", "elapsed_ns")
    times = [column.name for column in table.columns if column.unit == "ns" and column.name not in kept and "bins" not in table.name]
    jitter = 1 - (pl.col("copy") * 7919 % 101).cast(pl.Float64) / 1000
    jittered = ((pl.col(name) * jitter).round().cast(table.schema[name]) for name in times)
    return frame.join(numbers, how="cross", maintain_order="right_left").with_columns(*jittered).with_columns(
        *renamed
    ).select(frame.columns)
