"""Efficiency tables of a run with many GPUs, made from those of a small one: as many rows and digits as a real one has."""

from collections.abc import Mapping

import polars as pl

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.result_tables import Table

_NAMES = frozenset({"device", "node", "task", "tasks", "devices", "host"})
_AS_LONG = frozenset({"kernels", "longest_gaps", "nccl_collectives", "findings", "closeups", "closeup_bars"})
"""Tables that have as many rows in a large run."""
_AS_THEY_ARE = frozenset({"from_ns", "to_ns", "elapsed_ns"})


def grown(tables: Mapping[str, pl.DataFrame], copies: int, node: str = "gpu") -> dict[str, pl.DataFrame]:
    """The same run on `copies` times as many nodes: what is told of a node, device or process is told of each copy of it."""
    larger = {name: _copied(table_registry.BY_NAME[name], table, copies, node) for name, table in tables.items()}
    larger["run"] = tables["run"].with_columns(pl.col("devices", "processes", "threads") * copies)
    return larger


def _copied(table: Table, frame: pl.DataFrame, copies: int, node: str) -> pl.DataFrame:
    names = [column.name for column in table.columns if column.name in _NAMES and column.dtype is pl.String]
    if not names or table.name in _AS_LONG:
        return frame
    renamed = (pl.col(name).str.replace_all(rf"({node}\d+)", pl.format("$1-{}", pl.col("copy"))) for name in names)
    is_time = [column.name for column in table.columns if column.unit == "ns" and column.name not in _AS_THEY_ARE]
    times = [] if table.name == "device_bins" else is_time
    factor = 1 - (pl.col("copy") * 7919 % 101).cast(pl.Float64) / 1000
    other = ((pl.col(name) * factor).round().cast(table.schema[name]) for name in times)
    numbers = pl.DataFrame({"copy": range(copies)})
    copied = numbers.join(frame, how="cross", maintain_order="left_right")
    return copied.with_columns(*other).with_columns(*renamed).select(frame.columns)
