"""Tables of the page: packed into it as JSON, from which `page.js` makes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.efficiency.metrics import DEVICE_TREE, EFFICIENCIES, HOST_TREE
from nsys2prv.efficiency.outputs.page.template import json_in_html
from nsys2prv.efficiency.result_tables import Column, Table
from nsys2prv.vocabulary.metric_units import unit_of_metric

_OF_METRIC = frozenset({"mean", "weighted", "average", "maximum", "minimum", "deviation"})
"""Columns in the unit of the metric."""
_DIGITS = 9
"""Digits of numbers that are not whole."""
_TREE = (*(one.name for one in DEVICE_TREE.of_parts), HOST_TREE.efficiencies[0].name)
"""Efficiencies that wide tables show at first."""
_OF_HOSTS = tuple(one.name for one in HOST_TREE.of_parts if not one.needs_gpus)
"""The same of a run without GPUs."""

_MAIN: Mapping[str, Sequence[str]] = {
    "nodes": ("node", "devices", *_TREE),
    "devices": ("device", "tasks", "useful_ns", "communication_ns", "idle_ns", "useful_share", "active_share", "nccl_alone_ns",
                "memory_alone_ns"),
    "tasks": ("task", "devices", "useful_ns", "communication_ns", "host_useful_ns", "cuda_ns", "mpi_ns"),
    "bins": ("bin", "begin_ns", "end_ns", *_TREE),
    "windows": ("window", "begin_ns", "length_ns", "share", *_TREE),
    "regions": ("region", "domain", "count", "tasks", "total_ns", "mean_ns", *_TREE),
    "iterations": ("iteration", "begin_ns", "shortest_ns", "longest_ns", *_TREE),
    "kernels": ("kernel", "family", "count", "total_ns", "share", "mean_ns", "median_ns", "p95_ns", "max_ns", "modes",
                "avg_max"),
    "absent_time": ("device", "elapsed_ns", "compute_ns", "absent_ns", "absent_share", "start_up_ns", "starved_launch_ns",
                    "starved_synchronization_ns", "starved_host_ns", "late_rank_ns", "transfer_ns", "communication_ns",
                    "copy_ns", "queued_ns", "undecided_ns", "shut_down_ns"),
    "absent_stretches": ("device", "begin_ns", "length_ns", "next", "launched_ns", "thread"),
    "longest_gaps": ("device", "begin_ns", "length_ns", "before", "after", "host_ns", "synchronization_ns", "mpi_ns", "os_ns"),
    "gaps": ("device", "from_ns", "to_ns", "count", "total_ns", "host_ns", "launch_ns", "synchronization_ns", "mpi_ns", "os_ns",
             "unknown_ns"),
    "mpi_calls": ("call", "count", "total_ns", "share", "mean_ns", "max_ns", "bytes", "maximum_task_ns", "maximum_task"),
    "clocks": ("host", "method", "reports", "interval_ns", "offset_ns", "drift_ppm", "anchors", "contradiction_ns",
               "median_error_ns", "largest_error_ns"),
    "sampled_summary": ("metric", "level", "name", "samples", "weighted", "maximum", "minimum", "avg_max"),
}  # fmt: skip
"""Columns of wide tables that are shown at first; all can be."""

_HEADINGS = {"avg_max": "average / largest", "peak_at_ns": "peak at"}
"""Headings that names of columns do not give."""
_WORST_FIRST: Mapping[str, tuple[str, bool]] = {
    "nodes": (_TREE[0], False),
    "devices": ("useful_ns", False),
    "tasks": ("useful_ns", False),
    "iterations": ("longest_ns", True),
    "task_iterations": ("length_ns", True),
    "nccl": ("total_ns", True),
    "nccl_exposure": ("exposed_ns", True),
    "nccl_stragglers": ("caused_ns", True),
    "memory_operations": ("total_ns", True),
    "absent_time": ("absent_ns", True),
    "absent_iterations": ("absent_ns", True),
    "absent_stretches": ("length_ns", True),
    "gaps": ("total_ns", True),
    "memory_in_use": ("peak_bytes", True),
    "clocks": ("interval_ns", True),
}
"""Column by which a table is sorted at first, and whether downwards; others have the order of the JSON."""


@dataclass(frozen=True)
class PageTable:
    """One table of the page.

    Attributes
    ----------
    table
        Its declaration.
    rows, all_rows
        Rows in the page, and all rows.
    packed
        What `page.js` reads: `columns`, each with `name`, `heading`, `meaning`, whether it is `main`, whether it `is_moment`,
        its `form` ("text", "count", "ns", "bytes", "bytes/s", "0 to 1" or "number") and its `values`; of texts, `values` are
        places in `texts`. `sorted`: the column by which it is sorted and whether downwards, or null.
    """

    table: Table
    rows: int
    all_rows: int
    packed: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Bytes that it takes in the page, without its heading."""
        return len(json_in_html(self.packed).encode())


def pack(table: Table, frame: pl.DataFrame, cells: int, without: Sequence[str] = ()) -> PageTable:
    """A table of the page, of at most so many cells.

    Parameters
    ----------
    table, frame
        Its declaration and its rows.
    cells
        Largest number of cells; the last rows are left out.
    without
        Columns that are not shown.
    """
    columns = [column for column in table.columns if column.name not in without]
    by = _WORST_FIRST.get(table.name)
    if by is not None:
        frame = frame.sort(by[0], descending=by[1], nulls_last=True, maintain_order=True)
    shown = in_units(table, frame.head(max(cells // len(columns), 1)))
    main = _main(table.name, shown)
    packed = [
        {
            "name": column.name,
            "heading": heading(column),
            "meaning": column.meaning.replace("`", ""),
            "main": column.name in main,
            "is_moment": column.is_moment,
            "form": form(column),
            **_values(shown[column.name]),
        }
        for column in columns
    ]
    return PageTable(table, shown.height, frame.height, {"columns": packed, "sorted": by})


def _main(name: str, shown: pl.DataFrame) -> list[str]:
    """Columns that are shown at first: without GPUs efficiencies of hosts, and nothing that is not known in any row."""
    columns = list(_MAIN.get(name, shown.columns))
    if _TREE[0] in columns and _TREE[0] in shown.columns and not shown[_TREE[0]].count():
        columns += [one for one in _OF_HOSTS if one in shown.columns and one not in columns]
    return [one for one in columns if one in shown.columns and (shown.is_empty() or shown[one].count())]


def in_units(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of tables of sampled metrics with the unit of each metric behind its name, and clocks in GHz."""
    if "metric" not in table.schema or rows.is_empty() or table.name == "tree":
        return rows
    units = {name: unit_of_metric(name) for name in rows["metric"].unique()}
    factors = {name: {"Hz": 1e-9, "MHz": 1e-3}.get(unit, 1.0) for name, unit in units.items()}
    shown = {"Hz": "GHz", "MHz": "GHz"}
    names = {
        name: f"{name.partition(' [')[0] if unit == 'MHz' else name} [{shown.get(unit, unit)}]"
        for name, unit in units.items()
        if unit and (not name.endswith("]") or unit in shown)
    }
    factor = pl.col("metric").replace_strict(factors, return_dtype=pl.Float64)
    numbers = [column.name for column in table.columns if column.name in _OF_METRIC]
    return rows.with_columns(pl.col(numbers) * factor, metric=pl.col("metric").replace(names)).select(rows.columns)


def heading(column: Column) -> str:
    """The heading of a column.

    >>> heading(Column("mean_wait_ns", pl.Float64, "ns", ""))
    'mean wait'
    """
    if column.name in _HEADINGS:
        return _HEADINGS[column.name]
    efficiency = EFFICIENCIES.get(column.name)
    return efficiency.heading if efficiency else column.name.removesuffix(f"_{column.unit}").replace("_", " ")


def form(column: Column) -> str:
    """How values of a column are written."""
    if column.unit:
        return column.unit
    if column.dtype is pl.String:
        return "text"
    return "count" if column.dtype is pl.Int64 else "number"


def _values(column: pl.Series) -> dict[str, Any]:
    if column.dtype == pl.String:
        texts = column.drop_nulls().unique(maintain_order=True)
        places = {text: place for place, text in enumerate(texts)}
        return {"texts": texts.to_list(), "values": [None if text is None else places[text] for text in column]}
    if column.dtype.is_float():
        # NaN and infinite numbers are not JSON; and 1.0 is longer than 1.
        column = pl.select(pl.when(column.is_finite()).then(column.round_sig_figs(_DIGITS))).to_series()
        return {"values": [int(value) if value is not None and value.is_integer() else value for value in column]}
    return {"values": column.to_list()}
