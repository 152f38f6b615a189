"""A rank that is late because it waits in another communicator is followed to where that began."""

from pathlib import Path

import polars as pl
import pytest
from support.simulated_run import actions as act
from support.simulated_run.cluster import Cluster
from support.simulated_run.engine import execute
from support.simulated_run.machine import Machine
from support.simulated_run.truth import SimulatedRun
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.measure import measure

MS, US = 1_000_000, 1_000
ITERATIONS = 14
LATE = 6 * MS
READY, REDUCED = 1, 2


def reduce(first: int) -> list[act.Action]:
    """A collective of a rank and the next one, after what is on the stream that computes, which then waits for it."""
    communicator = act.Communicator((1 << 40) + first, (first, first + 1))
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


@pytest.mark.parametrize("ranks", [pytest.param(3, marks=pytest.mark.thorough), 4])
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
    assert late["saved_how"] == "by replay"
    assert late["saved_ns"] == pytest.approx(run.length - simulated(ranks, 100 * US).length, rel=0.03)
    loading = tables["finding_devices"].filter(kind="data-loading")
    assert loading["device"].to_list() == ["gpu001:D0"]
