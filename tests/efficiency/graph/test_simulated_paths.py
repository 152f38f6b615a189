"""The critical path of simulated clusters runs through the rank that was made slow, and is as long as the run."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from support.simulated_run.causes import SLOW_RANK, with_and_without
from support.simulated_run.cluster import DATA, HALO, PIPELINE, TENSOR, Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult


def measured(cluster: Cluster, folder: Path) -> EfficiencyResult:
    """Results of the reports of a cluster."""
    return measure(write_reports(simulate(cluster), folder), EfficiencyOptions())


@pytest.mark.parametrize(
    ("pattern", "cause", "least"),
    [
        (DATA, "late rank", 0.9),
        pytest.param(DATA, "unequal work", 0.9, marks=pytest.mark.thorough),
        pytest.param(TENSOR, "slow GPU", 0.9, marks=pytest.mark.thorough),
        (HALO, "late for MPI_Allreduce", 0.9),
        # Each fourth batch is in time.
        (TENSOR, "slow loading of a rank", 0.6),
        # What is passed on begins and ends in the first stage.
        (PIPELINE, "slow GPU", 0.5),
    ],
)
def test_the_path_runs_through_the_slow_rank(pattern: str, cause: str, least: float, tmp_path: Path) -> None:
    slow, _ = with_and_without(Cluster(pattern=pattern, gpus=3, iterations=3, start_up=2_000_000), cause)

    result = measured(slow, tmp_path)

    assert result.critical_path["length_ns"].sum() == result.head["window"]["length_ns"]
    of_tasks = result.critical_path_totals.filter(pl.col("by") == "task").sort("share", descending=True)
    task, share = of_tasks.select("name", "share").row(0)
    assert task.startswith(f"Rank {SLOW_RANK} ")
    assert share > least
