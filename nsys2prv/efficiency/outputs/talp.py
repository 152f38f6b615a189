"""A file as the TALP module of BSC's DLB writes it (3.6), for talp-pages to draw.

Times are sums in ns, efficiencies 0 to 1. What TALP measures and a trace does not have (hardware counters, OpenMP) is 0 or 1,
as TALP writes it for a program without them. The model is the same; only NCCL kernels may count differently: TALP counts them
as useful (`--nccl useful`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import polars as pl

from nsys2prv.efficiency.metrics import EFFICIENCIES, TREE_COLUMNS
from nsys2prv.vocabulary.version import __version__

DLB_VERSION = "3.6.0"
"""Version of the format."""
GLOBAL = "Global"
"""TALP's name for the region of the whole run."""


def as_talp(head: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """The object of a talp.json, from an `EfficiencyResult`: the whole run, and the NVTX regions of `--regions`."""
    run = tables["run"].row(0, named=True)
    nodes = tables["nodes"].height
    calls = [int(tables[name]["count"].sum()) for name in ("mpi_calls", "cuda_calls")]
    smallest_node = _smallest_mpi_of_a_node(tables["nodes"])
    regions = {GLOBAL: _region(run, nodes, 1, calls, smallest_node)}
    for row in tables["regions"].drop_nulls("device_parallel_efficiency").iter_rows(named=True):
        name = row["region"] if row["region"] not in regions else f"{row['region']} ({row['domain']})"
        measured = {column.name: row[column.name] for column in TREE_COLUMNS}
        regions[name] = _region(measured, nodes, row["count"], (0, 0), None)
    whole = regions[GLOBAL]
    return {
        "dlbVersion": DLB_VERSION,
        # Near the start, where a file of this program is recognized by it.
        "nsys2prv": {"version": __version__, "nccl": head["nccl"], "inputs": head["inputs"]},
        "timestamp": head["began"] or datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
        # talp-pages draws runs of the same resources as one series. How many threads call CUDA depends on the version of a
        # program: they are counted in its regions, and a process is one CPU here.
        "resources": {"numCpus": run["processes"], **{name: whole[name] for name in ("numNodes", "numMpiRanks", "numGpus")}},
        "Application": regions,
    }


def _region(
    row: Mapping[str, Any], nodes: int, count: int, calls: Sequence[int], smallest_node: float | None
) -> dict[str, Any]:
    has_mpi = row["mpi_parallel_efficiency"] is not None
    threads = row["threads"]
    elapsed = row["host_useful_ns"] + row["cuda_ns"] + row["mpi_ns"]
    mean_elapsed = elapsed / threads if threads else 0.0
    least = row["min_mpi_ns"] or 0.0
    of_node = smallest_node if smallest_node is not None else least
    inside = (mean_elapsed - of_node) / (mean_elapsed - least) if has_mpi and mean_elapsed > least else 1.0
    balance = row["mpi_load_balance"] if has_mpi else 1.0
    return {
        "numCpus": threads,
        "numMpiRanks": row["processes"] if has_mpi else 0,
        "numNodes": nodes,
        "avgCpus": float(threads),
        "numGpus": row["devices"],
        "cycles": 0,
        "instructions": 0,
        "numMeasurements": count,
        "numMpiCalls": calls[0],
        "numOmpParallels": 0,
        "numOmpTasks": 0,
        "numGpuRuntimeCalls": calls[1],
        "elapsedTime": row["elapsed_ns"],
        "usefulTime": row["host_useful_ns"],
        "mpiTime": row["mpi_ns"],
        "ompLoadImbalanceTime": 0,
        "ompSchedulingTime": 0,
        "ompSerializationTime": 0,
        "gpuRuntimeTime": row["cuda_ns"],
        "minMpiNormdProc": round(least),
        "minMpiNormdNode": round(of_node),
        "gpuUsefulTime": row["useful_ns"],
        "gpuCommunicationTime": row["communication_ns"],
        "gpuInactiveTime": row["elapsed_ns"] * row["devices"] - row["active_ns"],
        "maxGpuUsefulTime": row["max_useful_ns"],
        "maxGpuActiveTime": row["max_active_ns"],
        **{
            one.talp: 1.0 if one.needs_mpi and not has_mpi else _number(row[one.name])
            for one in EFFICIENCIES.values()
            if one.talp
        },
        "mpiLoadBalanceIn": _number(inside),
        "mpiLoadBalanceOut": _number(balance / inside if balance is not None and inside else 1.0),
        "ompParallelEfficiency": 1.0,
        "ompLoadBalance": 1.0,
        "ompSchedulingEfficiency": 1.0,
        "ompSerializationEfficiency": 1.0,
    }


def _number(value: float | None) -> float:
    # TALP writes 0 where the denominator is 0.
    return 0.0 if value is None else value


def _smallest_mpi_of_a_node(nodes: pl.DataFrame) -> float | None:
    """Smallest MPI time of a node, as the mean over its threads, ns; None without threads."""
    means = nodes.filter(pl.col("threads") > 0).select(pl.col("mpi_ns") / pl.col("threads")).to_series()
    return float(means.min()) if means.len() else None  # type: ignore[arg-type]
