"""A rank that is late because it waits in another communicator is followed to where that began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.report_builder import ReportBuilder
from support.simulated_run.actions import (
    COMPUTE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    NCCL,
    Action,
    Collective,
    Communicator,
    Copy,
    Launch,
    Pop,
    Push,
    Record,
    StreamWait,
    SynchronizeStream,
    SystemCall,
)
from support.simulated_run.causes import SLOW_RANK, with_and_without
from support.simulated_run.cluster import Cluster
from support.simulated_run.engine import execute
from support.simulated_run.machine import Machine
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import verdict

MS, US = 1_000_000, 1_000
ITERATIONS = 14
LATE = 6 * MS
READY, REDUCED = 1, 2


def reduce(first: int) -> list[Action]:
    """A collective of a rank and the next one, after what is on the stream that computes, which then waits for it."""
    communicator = Communicator((1 << 40) + first, (first, first + 1))
    return [
        Record(READY, COMPUTE), StreamWait(READY, NCCL), Collective(communicator, "AllReduce", 4 << 20),
        Record(REDUCED, NCCL), StreamWait(REDUCED, COMPUTE),
    ]  # fmt: skip


def simulated(ranks: int, late: int) -> SimulatedRun:
    """All ranks; the first one loads each batch for so long."""
    recorded = execute([{0: program(rank, ranks, late)} for rank in range(ranks)], Machine(), 1)
    return SimulatedRun(Cluster(gpus=ranks, iterations=ITERATIONS), recorded)


def program(rank: int, ranks: int, late: int) -> list[Action]:
    """Each rank reduces with the rank before it, computes, and reduces with the rank after it. The first one loads for long."""
    actions: list[Action] = [SystemCall("read", 20 * MS)]
    for _ in range(ITERATIONS):
        actions += [Push("iteration"), SystemCall("poll", late if rank == 0 else 100 * US)]
        actions += [Copy(8 << 20, 340 * US, HOST_TO_DEVICE), Launch("gemm(int)", 800 * US)]
        if rank > 0:
            actions += [*reduce(rank - 1), Launch("reduced(int)", 400 * US)]
        if rank < ranks - 1:
            actions += reduce(rank)
        actions += [Copy(8, 2 * US, DEVICE_TO_HOST), SynchronizeStream(COMPUTE), Pop()]
    return actions


@pytest.mark.parametrize("ranks", [3, 4])
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


# -- devices whose times contradict those of their hosts: nothing that compares both is claimed ----------


SYNC_STREAM = 3


def run(folder: Path, late: int, *, waits: bool = True) -> EfficiencyResult:
    """Twenty steps of 20 ms that end with a synchronization."""
    report = ReportBuilder(rank=0).gpu(0)
    for step in range(20):
        start = (step + 1) * 20 * MS
        report.kernel("train(float*)", start + late, start + 8 * MS + late, launch=(start - 10 * US, start - 5 * US))
        waited, until = start + 1 * MS, start + 8 * MS + 10 * US
        call = report.api_call("cudaStreamSynchronize_v3020", waited, until)
        if waits:
            report.synchronization(waited, until, kind=SYNC_STREAM, correlation=call)
    return measure([report.write(folder / "report.sqlite")], EfficiencyOptions())


def results(result: EfficiencyResult) -> dict[str, str]:
    return dict(result.finding_checks.select("kind", "result").iter_rows())


@pytest.mark.parametrize(
    ("late", "how"),
    [
        (500 * MS, "nothing starts sooner than 500.010 ms after its launch, but synchronizations end before the work that they "
                   "wait for begins"),
        (-300 * MS, "most work starts before it was launched, by up to 299.990 ms"),
    ],
)  # fmt: skip
def test_what_compares_a_device_with_its_host_is_not_decidable(tmp_path: Path, late: int, how: str) -> None:
    result = run(tmp_path, late)
    assert any(f"times of node01:D0 contradict those of its host: {how}" in text for text in result.head["warnings"])
    assert result.findings.is_empty()
    found = results(result)
    assert {found[kind] for kind in ("start-up", "shut-down", "host-bound", "data-loading", "idle-devices")} == {
        "not decidable"
    }
    # What is measured on the device alone is known.
    assert found["exposed-copies"] == "not found"
    assert not result.critical_path.height
    absent, whole = (table.row(0, named=True) for table in (result.absent_time, result.run))
    assert (absent["undecided_ns"], absent["off_cpu_ns"]) == (absent["absent_ns"], None)
    assert absent["absent_ns"] == whole["elapsed_ns"] - 20 * 8 * MS
    assert sum(absent[name] for name in PART_COLUMNS) == absent["absent_ns"]
    assert result.absent_parts.select("part", "detail", "total_ns").rows() == [
        ("not decidable", "times of the device contradict those of its host", absent["absent_ns"])
    ]
    assert (result.absent_stretches["undecided_ns"] == result.absent_stretches["length_ns"]).all()
    assert result.absent_calls.is_empty()
    assert (result.gaps["unknown_ns"] == result.gaps["total_ns"]).all()
    assert whole["transfer_efficiency"] is None
    sentence = verdict(result.head, result.tables).sentence
    assert "largest loss: not decidable (times of device and host contradict each other)" in sentence


@pytest.mark.parametrize("late", [0, 500 * US])
def test_devices_in_time_are_not_doubted(tmp_path: Path, late: int) -> None:
    result = run(tmp_path, late)
    assert not any("contradict" in text for text in result.head["warnings"])
    assert results(result)["idle-devices"] != "not decidable"
    assert not result.absent_time["undecided_ns"].item()
    assert result.critical_path.height


def test_work_that_is_launched_far_ahead_contradicts_nothing(tmp_path: Path) -> None:
    # Nothing starts sooner than 12 ms after its launch, and each synchronization is done when it returns.
    report = ReportBuilder(rank=0).gpu(0)
    for step in range(40):
        start = (step + 1) * 20 * MS
        report.kernel("train(float*)", start, start + 19 * MS, launch=(start - 12 * MS, start - 11 * MS))
        call = report.api_call("cudaStreamSynchronize_v3020", start - 10 * MS, start + 19 * MS + 5 * US)
        report.synchronization(start - 10 * MS, start + 19 * MS, kind=SYNC_STREAM, correlation=call)
    result = measure([report.write(tmp_path / "report.sqlite")], EfficiencyOptions())
    assert not any("contradict" in text for text in result.head["warnings"])


def test_without_recorded_waits_late_launches_are_believed(tmp_path: Path) -> None:
    result = run(tmp_path, 500 * MS, waits=False)
    assert not any("contradict" in text for text in result.head["warnings"])


# -- findings of simulated runs with one cause of lost time, whose true cost is known --------------------


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
QUICK = {"synchronous copies", "full queue"}


def findings(folder: Path, run: SimulatedRun) -> list[dict[str, Any]]:
    return measure(write_reports(run, folder)).tables["findings"].to_dicts()


def thorough(causes: dict[str, Any]) -> list[Any]:
    return [pytest.param(cause, marks=() if cause in QUICK else pytest.mark.thorough) for cause in causes]


@pytest.mark.parametrize("cause", thorough(CAUSES))
def test_an_injected_fault_is_the_first_finding_with_its_rank_and_cost(tmp_path: Path, cause: str) -> None:
    made, without = (simulate(cluster) for cluster in with_and_without(CLUSTER, cause))
    kind, ranks = CAUSES[cause]
    found = findings(tmp_path, made)

    assert found[0]["kind"] == kind
    is_bound = found[0]["saved_how"].startswith("at most")
    # What is told as a bound is none that the run would beat; of a start-up it is one for the rank that starts first.
    least, most = (0.97 if cause == "long start-up" else 1.0, 1.5) if is_bound else (0.89, 1.1)
    assert least <= found[0]["saved_ns"] / (made.length - without.length) < most
    assert ranks is None or found[0]["ranks"] == ranks
    # What follows from it is not counted as another cause.
    assert all(one["saved_ns"] < found[0]["saved_ns"] for one in found[1:] if one["consequence_of"] is None)


def test_a_run_without_a_fault_has_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, simulate(CLUSTER)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["tensor", "pipeline"])
def test_late_ranks_follow_from_their_cause_in_other_patterns(tmp_path: Path, pattern: str) -> None:
    made, without = (simulate(cluster) for cluster in with_and_without(Cluster(pattern=pattern, iterations=20), "slow GPU"))
    found = {one["kind"]: one for one in findings(tmp_path, made)}

    assert "slow-device" in found, found
    assert found["slow-device"]["ranks"] == ONE
    assert made.length > without.length
