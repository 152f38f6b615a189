"""Findings of simulated runs with one cause of lost time, whose true cost is known: the same run is simulated without it."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.simulated_run.causes import SLOW_RANK, with_and_without
from support.simulated_run.cluster import Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.measure import measure

CLUSTER = Cluster(iterations=20)
ALL, ONE = None, str(SLOW_RANK)
CAUSES: dict[str, tuple[str, str | None]] = {
    # Its host computes before it copies the next batch.
    "late rank": ("data-loading", ONE),
    "late ranks in turn": ("data-loading", ALL),
    "slow GPU": ("slow-device", ONE),
    "slow loading": ("data-loading", ALL),
    "slow loading of a rank": ("data-loading", ONE),
    "launch-bound": ("launch-bound", ALL),
    "unequal work": ("unequal-work", ONE),
    "allocations": ("allocations", ALL),
    "lazy loading": ("launch-stalls", ALL),
    "unified memory": ("unified-memory", ALL),
    "late for MPI_Allreduce": ("host-bound", ONE),
    "long start-up": ("start-up", ALL),
    # What the network takes at all: a run does not show how fast it could be.
    "network": ("exposed-communication", ALL),
    "synchronous copies": ("synchronization-stalls", ALL),
    "pageable copies": ("pageable-copies", ALL),
    "small graphs": ("small-graphs", ALL),
    "full queue": ("full-launch-queue", ALL),
}
"""Of each cause: the finding that it must be, and the rank that it must name."""
QUICK = {"full queue"}


@pytest.mark.parametrize(
    "cause", [pytest.param(cause, marks=() if cause in QUICK else pytest.mark.thorough) for cause in CAUSES]
)
def test_an_injected_fault_is_the_first_finding_with_its_rank_and_cost(tmp_path: Path, cause: str) -> None:
    made, without = (simulate(cluster) for cluster in with_and_without(CLUSTER, cause))
    kind, ranks = CAUSES[cause]
    found = measure(write_reports(made, tmp_path)).findings.to_dicts()

    assert found[0]["kind"] == kind
    is_bound = found[0]["saved_how"].startswith("at most")
    # What is told as a bound is none that the run would beat; of a start-up it is one for the rank that starts first.
    least, most = (0.97 if cause == "long start-up" else 1.0, 1.5) if is_bound else (0.89, 1.1)
    assert least <= found[0]["saved_ns"] / (made.length - without.length) < most
    assert ranks is None or found[0]["ranks"] == ranks
    # What follows from it is not counted as another cause.
    assert all(one["saved_ns"] < found[0]["saved_ns"] for one in found[1:] if one["consequence_of"] is None)


@pytest.mark.parametrize("iterations", [6, pytest.param(CLUSTER.iterations, marks=pytest.mark.thorough)])
def test_a_run_without_a_fault_has_no_finding(tmp_path: Path, iterations: int) -> None:
    run = simulate(replace(CLUSTER, iterations=iterations))
    assert measure(write_reports(run, tmp_path)).findings.is_empty()
