"""A training run on a cluster: its settings enter; a report per rank leaves, and the truth about clocks and problems."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.demo.iteration import Iteration
from nsys2prv.demo.nsys_tables import write_report
from nsys2prv.demo.rank_report import RankReport
from nsys2prv.demo.scenario import UTC_ZERO, Cluster, gpu_uuid
from nsys2prv.demo.schedule import Schedule, rank_alone, schedule
from nsys2prv.errors import OutputError

__all__ = ["Cluster", "generate", "report_name", "truth", "write_reports"]

TRUTH = "truth.json"
"""File beside the reports with what a translation must find in them."""


def generate(cluster: Cluster) -> Iterator[tuple[str, dict[str, pl.DataFrame]]]:
    """The reports of a run, one at a time, so that memory holds one rank.

    Yields
    ------
    Name (``rank0000``) and tables, by rank. Times are ns of each rank's session on its host's clock.
    """
    iteration = Iteration(cluster)
    times = schedule(cluster, iteration)
    for rank in range(cluster.ranks):
        yield report_name(rank), RankReport(cluster, iteration, times, rank).tables()


def write_reports(directory: str | Path, cluster: Cluster) -> list[Path]:
    """Write a run: ``rankNNNN.sqlite`` per rank, and ``truth.json``.

    Parameters
    ----------
    directory
        Where; it is made if it does not exist. Reports of an earlier run with the same names are replaced.

    Returns
    -------
    Paths of the reports, by rank.

    Raises
    ------
    OutputError
        When the files cannot be written.
    """
    directory = Path(directory)
    paths = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, tables in generate(cluster):
            paths.append(directory / f"{name}.sqlite")
            write_report(paths[-1], tables)
        (directory / TRUTH).write_text(json.dumps(truth(cluster), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError.not_writable(directory, str(error)) from error
    return paths


def truth(cluster: Cluster) -> dict[str, Any]:
    """What a translation of the reports must find; all times are true times in ns.

    Returns
    -------
    ``cluster``: its settings. ``utc_zero_ns``: UTC at true time 0. ``hosts``: ``name``, ``offset_ns`` and ``drift_ppm`` of the
    clock, which shows ``utc_zero_ns + offset_ns + t * (1 + drift_ppm / 1e6)`` at true time t. ``ranks``: ``rank``, ``host``,
    ``pid``, ``gpu``, ``uuid``, ``session_start_ns``. ``iterations``: start on the first rank, end on the last. ``problems``:
    ``kind``, ``start_ns``, ``end_ns``, and further details.
    """
    iteration = Iteration(cluster)
    times = schedule(cluster, iteration)
    begin, end = times.begin[:, :-1].min(axis=0), times.begin[:, 1:].max(axis=0)
    return {
        "cluster": asdict(cluster),
        "utc_zero_ns": UTC_ZERO,
        "hosts": [
            {"name": cluster.host(node * cluster.gpus_per_node), "offset_ns": clock.offset, "drift_ppm": clock.drift_ppm}
            for node, clock in enumerate(cluster.clocks)
        ],
        "ranks": [
            {
                "rank": rank,
                "host": cluster.host(rank),
                "pid": cluster.pid(rank),
                "gpu": cluster.local_rank(rank),
                "uuid": gpu_uuid(cluster.host(rank), cluster.local_rank(rank)),
                "session_start_ns": int(times.session[rank]),
            }
            for rank in range(cluster.ranks)
        ],
        "iterations": [{"start_ns": int(first), "end_ns": int(last)} for first, last in zip(begin, end, strict=True)],
        "problems": _problems(cluster, iteration, times),
    }


def report_name(rank: int) -> str:
    """Name of the report of a rank, without suffix."""
    return f"rank{rank:04d}"


def _problems(cluster: Cluster, iteration: Iteration, times: Schedule) -> list[dict[str, Any]]:
    all_iterations = {"start_ns": int(times.begin[:, 0].min()), "end_ns": int(times.begin[:, -1].max())}
    problems: list[dict[str, Any]] = []
    if cluster.slow_rank is not None:
        problems.append({"kind": "slow GPU", "rank": cluster.slow_rank, "factor": cluster.slow_factor, **all_iterations})
    if cluster.exposed_communication and cluster.with_nccl:
        problems.append({"kind": "exposed communication", **all_iterations})
    if cluster.pageable_copies:
        problems.append({"kind": "pageable copies", **all_iterations})
    if cluster.allocations_in_loop:
        problems.append({"kind": "allocations in the loop", **all_iterations})
    if cluster.has_data_gap.any():
        ready = np.stack([rank_alone(cluster, iteration, rank).batch_ready for rank in range(cluster.ranks)])
        for step in np.flatnonzero(cluster.has_data_gap):
            begin = times.begin[:, step]
            latest = int((begin + ready[:, step]).max())
            problems.append(
                {"kind": "data loading gap", "iteration": int(step), "start_ns": int(begin.min()), "end_ns": latest}
            )
    return problems
