"""Tables of efficiency numbers for a terminal: which are shown, and with which columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.metrics import DEVICE_TREE, HOST_TREE
from nsys2prv.efficiency.result_tables import Column
from nsys2prv.vocabulary.text_grid import grid, is_too_wide
from nsys2prv.vocabulary.wording import quantity, short

_OF_DEVICES = {one.name: one.abbreviation for one in DEVICE_TREE.of_parts}
_OF_HOSTS = {one.name: one.abbreviation for one in HOST_TREE.of_parts if not one.needs_gpus}
_HOST_ROOT = HOST_TREE.efficiencies[0]
SHOWN: Mapping[str, Mapping[str, str]] = {
    "tasks": {"task": "process", "threads": "threads", "host_useful_ns": "outside of MPI", "mpi_ns": "MPI",
               "os_ns": "OS calls"},
    "threads": {"task": "process", "thread": "thread", "host_useful_ns": "outside of MPI", "mpi_ns": "MPI",
                 "os_ns": "OS calls"},
    "nodes": {"node": "node", "devices": "GPUs", **_OF_DEVICES, _HOST_ROOT.name: _HOST_ROOT.abbreviation},
    "devices": {"device": "device", "useful_ns": "useful", "communication_ns": "communication", "idle_ns": "idle",
                 "useful_share": "useful share", "active_share": "active share"},
    "regions": {"region": "region", "count": "count", "total_ns": "total", **_OF_DEVICES},
    "windows": {"window": "part of the run", "begin_ns": "start", "length_ns": "length", "share": "of the run",
                 **_OF_DEVICES},
    "iterations": {"iteration": "iteration", "begin_ns": "start", "longest_ns": "length", "kind": "kind", **_OF_DEVICES},
    "overlap_summary": {"kernels": "kernels at once", "base": "of", "average": "average", "maximum": "maximum",
                         "minimum": "minimum", "deviation": "deviation"},
    "families": {"family": "kernels", "count": "count", "total_ns": "total", "mean_ns": "mean", "share": "share"},
    "kernels": {"kernel": "kernel", "count": "count", "total_ns": "total", "median_ns": "median", "p95_ns": "p95",
                 "modes": "modes", "share": "share"},
    "memory_operations": {"operation": "operation", "source": "from", "destination": "to", "from_bytes": "sizes from",
                           "count": "count", "bytes": "sum", "total_ns": "total", "bandwidth": "bandwidth"},
    "nccl": {"operation": "NCCL", "communicator": "communicator", "size_bytes": "size", "count": "count",
              "mean_ns": "mean", "bandwidth": "bandwidth", "bus_bandwidth": "bus bandwidth"},
    "nccl_exposure": {"operation": "NCCL", "communicator": "communicator", "placement": "members", "total_ns": "total",
                       "exposed_ns": "exposed", "blocking_ns": "blocking", "not_blocking_ns": "exposed, not blocking",
                       "overlapped_blocking_ns": "blocking, not exposed"},
    "nccl_waits": {"communicator": "communicator", "collectives": "collectives", "residence_ns": "time in them",
                    "transfer_ns": "transfer", "waiting_ns": "rest", "waited_ns": "waited", "undecided_ns": "not decidable"},
    "nccl_stragglers": {"task": "task", "collectives": "collectives", "decided": "decided", "last": "last",
                         "waited_ns": "waited", "caused_ns": "others waited", "undecided_ns": "not decidable"},
    "cuda_calls": {"call": "CUDA call", "count": "count", "total_ns": "total", "mean_ns": "mean", "max_ns": "longest"},
    "mpi_calls": {"call": "MPI call", "count": "count", "total_ns": "total", "mean_ns": "mean", "max_ns": "longest"},
    "os_calls": {"call": "OS call", "kind": "kind", "count": "count", "total_ns": "total", "mean_ns": "mean",
                  "max_ns": "longest"},
    "critical_path_totals": {"by": "by", "name": "critical path", "total_ns": "total", "share": "share"},
    "longest_gaps": {"device": "gap on", "begin_ns": "at", "length_ns": "length", "after": "until"},
    "clocks": {"host": "clock of", "method": "method", "interval_ns": "known to within", "offset_ns": "offset",
                "drift_ppm": "drift [ppm]", "anchors": "anchors", "contradiction_ns": "contradiction"},
}  # fmt: skip
"""Tables that a terminal shows, in their order: their columns with headings."""
_SPARE: Mapping[str, tuple[str, ...]] = {
    "regions": ("count",),
    "windows": ("share",),
    "iterations": ("begin_ns",),
    "overlap_summary": ("deviation", "minimum"),
    "families": ("count",),
    "kernels": ("modes", "median_ns"),
    "memory_operations": ("destination", "count", "bytes"),
    "nccl": ("bandwidth", "count"),
    "nccl_exposure": ("overlapped_blocking_ns", "placement", "blocking_ns"),
    "nccl_waits": ("waiting_ns", "collectives"),
    "nccl_stragglers": ("decided", "waited_ns"),
    "clocks": ("anchors", "drift_ppm", "contradiction_ns"),
}
"""Columns that narrow terminals leave out, those first that are missed least."""
_HOST_TABLES = ("tasks", "threads", "os_calls")
"""Tables that are shown where there are no devices."""
_OF_TREES = ("nodes", "regions", "windows", "iterations")
_CLOCKS, _SEVERAL = "clocks", 2
_LEFT = frozenset({"of", "from", "to", "until", "communicator"})


def _without_devices(columns: Mapping[str, str]) -> dict[str, str]:
    """Columns with efficiencies of hosts in the place of those of devices."""
    kept = {name: title for name, title in columns.items() if name not in _OF_DEVICES and name != "devices"}
    return {**kept, **_OF_HOSTS} if len(kept) < len(columns) else kept


def is_shown(name: str, tables: Mapping[str, pl.DataFrame]) -> bool:
    """Whether a table says something that no other does: of hosts alone where there is no GPU, of clocks of several hosts."""
    run = tables["run"].row(0, named=True)
    if name == _CLOCKS:
        return tables[name].height >= _SEVERAL
    if run["devices"]:
        return name not in _HOST_TABLES
    if name == "threads":
        return tables[name].height > tables["tasks"].height
    return run["mpi_parallel_efficiency"] is not None or name not in _OF_TREES


def section(name: str, tables: Mapping[str, pl.DataFrame], most: int, width: int | None) -> list[str]:
    """The title of a table and its first rows, with an empty line before; nothing of an empty one.

    Where a terminal of this width (None: any) is too narrow even for shortened texts, the columns in `_SPARE` are left out, one
    by one.
    """
    table = tables[name]
    if table.is_empty():
        return []
    columns = SHOWN[name] if tables["run"]["devices"][0] else _without_devices(SHOWN[name])
    known = table_registry.BY_NAME[name]
    units = {column.name: column for column in known.columns}
    more = f" ({table.height - most} more)" if table.height > most else ""
    for left_out in range(len(_SPARE.get(name, ())) + 1):
        kept = {column: title for column, title in columns.items() if column not in _SPARE.get(name, ())[:left_out]}
        cells = [
            [_cell(units[column], value) for column, value in zip(kept, row, strict=True)]
            for row in table.head(most).select(list(kept)).iter_rows()
        ]
        left = frozenset(
            place for place, (column, title) in enumerate(kept.items()) if units[column].dtype is pl.String or title in _LEFT
        )
        if not is_too_wide(list(kept.values()), cells, left, width):
            break
    return ["", f"{known.title}{more}", *grid(list(kept.values()), cells, left, width)]


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return "-"
    if with_unit := quantity(value, column.unit):
        return with_unit
    if column.dtype is pl.Int64:
        return f"{value:,}"
    return short(str(value)) if column.dtype is pl.String else f"{value:.3g}"
