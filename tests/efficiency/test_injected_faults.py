"""Findings of simulated runs with one cause of lost time, whose true cost is known: the same run is simulated without it."""

from pathlib import Path

import polars as pl
import pytest
from support import few_of, rest
from support.measured import MS, US
from support.simulated_run import actions as act
from support.simulated_run.causes import SLOW_RANK, with_and_without
from support.simulated_run.cluster import Cluster
from support.simulated_run.engine import execute
from support.simulated_run.machine import Machine
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions

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


@pytest.mark.parametrize("cause", few_of(CAUSES, ["late ranks in turn"]))
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


@pytest.mark.thorough
def test_a_run_without_a_fault_has_no_finding(tmp_path: Path) -> None:
    run = simulate(CLUSTER)
    assert measure(write_reports(run, tmp_path)).findings.is_empty()


# -- a rank that is late because it waits in another communicator is followed to where that began ---------
ITERATIONS = 14
LATE = 6 * MS
READY, REDUCED = 1, 2


def reduce(first: int) -> list[act.Action]:
    """A collective of a rank and the next one, after what is on the stream that computes, which then waits for it."""
    return reduced(first, first + 1)


def reduced(*ranks: int) -> list[act.Action]:
    """The same of some ranks."""
    communicator = act.Communicator((1 << 40) + sum(1 << rank for rank in ranks), ranks)
    return [
        act.Record(READY, act.COMPUTE), act.StreamWait(READY, act.NCCL), act.Collective(communicator, "AllReduce", 4 << 20),
        act.Record(REDUCED, act.NCCL), act.StreamWait(REDUCED, act.COMPUTE),
    ]  # fmt: skip


def simulated(ranks: int, late: int) -> SimulatedRun:
    """All ranks; the first one loads each batch for so long."""
    recorded = execute([{0: program(rank, ranks, late)} for rank in range(ranks)], Machine(), 1)
    return SimulatedRun(Cluster(gpus=ranks, iterations=ITERATIONS), recorded)


def program(rank: int, ranks: int, late: int) -> list[act.Action]:
    """Each rank reduces with the rank before it, computes, and reduces with the rank after it. The first one loads for long."""
    actions: list[act.Action] = [act.SystemCall("read", 20 * MS)]
    for _ in range(ITERATIONS):
        actions += [act.Push("iteration"), act.SystemCall("poll", late if rank == 0 else 100 * US)]
        actions += [act.Copy(8 << 20, 340 * US, act.HOST_TO_DEVICE), act.Launch("gemm(int)", 800 * US)]
        if rank > 0:
            actions += [*reduce(rank - 1), act.Launch("reduced(int)", 400 * US)]
        if rank < ranks - 1:
            actions += reduce(rank)
        actions += [act.Copy(8, 2 * US, act.DEVICE_TO_HOST), act.SynchronizeStream(act.COMPUTE), act.Pop()]
    return actions


@pytest.mark.parametrize("ranks", [3, *rest(4)])
def test_a_late_rank_is_followed_over_communicators_to_where_it_began(ranks: int, tmp_path: Path) -> None:
    """Of three ranks the second waits for the first, and of four the third for the second, which waits for the first."""
    run = simulated(ranks, LATE)

    tables = measure(write_reports(run, tmp_path)).tables

    late = tables["findings"].row(by_predicate=pl.col("kind") == "straggler", named=True)
    others = ", then ".join(f"gpu001:D{rank}" for rank in reversed(range(ranks - 2)))
    assert late["seen"].startswith(
        f"rank {ranks - 2} (gpu001:D{ranks - 2}) is last in {ITERATIONS} of {ITERATIONS} collectives"
    )
    assert f"it waits itself in another communicator for {others}; gaps of the kind data-loading on gpu001:D0" in late["seen"]
    assert late["consequence_of"] == "data-loading"
    # What the run is shorter without it, as simulated.
    assert late["saved_ns"] == pytest.approx(run.length - simulated(ranks, 100 * US).length, rel=0.03)
    assert tables["finding_devices"].filter(kind="data-loading")["device"].to_list() == ["gpu001:D0"]


@pytest.mark.thorough
def test_a_replica_that_is_late_as_a_whole_is_late_for_the_others(tmp_path: Path) -> None:
    """Ranks 2 and 3 take longer, which the collectives of these two do not show."""

    def run(late: int) -> SimulatedRun:
        programs = [
            {0: [*[act.Compute(late * (rank > 1)), act.Launch("gemm(int)", MS), *reduced(rank & 2, rank & 2 | 1)] * 2,
                 *reduced(rank & 1, rank & 1 | 2), act.Launch("update(int)", 100 * US), act.SynchronizeStream(act.COMPUTE)] * 8}
            for rank in range(4)
        ]  # fmt: skip
        return SimulatedRun(Cluster(gpus=4, iterations=8), execute(programs, Machine(), 1))

    late, usual = run(2 * MS), run(0)
    window = what_if(write_reports(late, tmp_path), WhatIfOptions(no_late_ranks=True)).what_if.row(0, named=True)
    assert late.length > 1.5 * usual.length
    assert window["replayed_ns"] == pytest.approx(usual.length, rel=0.05)
