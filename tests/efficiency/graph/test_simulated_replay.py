"""Graphs of simulated clusters: a replay without a change gives the measured times."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support import few_of, rest
from support.simulated_run.causes import CAUSES, SLOW_RANK, with_and_without, with_machine
from support.simulated_run.cluster import DATA, HALO, PATTERNS, PIPELINE, TENSOR, Cluster
from support.simulated_run.records import Operation
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.efficiency.graph.run_graph import BuiltGraph, graph_of_run
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings
from nsys2prv.run.options import ReadOptions

SIZES = ((1, 2), (1, 3), (2, 2), (3, 1))
CLUSTERS = [
    with_and_without(
        Cluster(
            pattern=PATTERNS[number % 4], nodes=SIZES[number % 3][0], gpus=SIZES[number % 3][1], iterations=2, seed=number,
            jitter=0.02 * (number % 4), event_ids=number % 2 == 0,
        ),
        cause,
    )[0]
    for number, cause in enumerate([*CAUSES, "late ranks in turn", "allocations", "slow network"])
    if cause != "full queue"
]  # fmt: skip
"""One with each cause, of all programs and of several sizes."""
QUICK = {1}


def graph_of(run: SimulatedRun, folder: Path) -> BuiltGraph:
    """The graph of the reports of a run."""
    reports = write_reports(run, folder / "reports")
    return graph_of_run(MeasuredRun(read_events(reports, ReadOptions(), folder, with_dependencies=True)))


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(cluster, marks=[] if number in QUICK else [pytest.mark.thorough], id=f"{number}-{cluster.pattern}")
        for number, cluster in enumerate(CLUSTERS)
    ],
)
def test_a_replay_without_a_change_is_exact(cluster: Cluster, tmp_path: Path) -> None:
    run = simulate(cluster)
    built = graph_of(run, tmp_path)
    graph = built.graph
    assert (replay(graph).time == graph.time).all()
    assert graph.time[-1] - graph.time[0] <= run.length
    # Each operation has a start and an end.
    assert len(graph.time) >= 2 * len(run.recorded.operations)


# -- what operations and calls wait for by events is what the simulator made them wait for ---------------
Edge = tuple[str, int, str, int, int]
"""Row and start of what waits; row, start and end of what it waits for."""


def expected(run: SimulatedRun) -> set[Edge]:
    """All waits of operations for events that the simulator knows."""
    begin = run.window[0]

    def row(operation: Operation) -> str:
        return f"CUDA-D{operation.rank}.S{operation.stream}-gpu001"

    return {
        (row(operation), operation.start.time - begin, row(awaited), awaited.start.time - begin, awaited.end.time - begin)
        for operation in run.recorded.operations
        for awaited in operation.before
        if awaited.stream != operation.stream
    }


@pytest.mark.parametrize(("pattern", "with_ids"), few_of(product(PATTERNS, (True, False)), {(DATA, True)}))
def test_waits_for_events_are_followed(pattern: str, with_ids: bool, tmp_path: Path) -> None:
    run = simulate(Cluster(pattern=pattern, gpus=2, iterations=2, event_ids=with_ids))
    events = read_events(write_reports(run, tmp_path / "reports"), ReadOptions(), tmp_path, with_dependencies=True)
    edges, names = event_edges(MeasuredRun(events)).on_streams, events.rows.names
    rows = edges.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
    followed = {(names[row], start, names[awaited], *times) for row, start, awaited, *times in rows}
    assert followed == expected(run)
    assert (pattern == HALO) == (not followed)


# -- what-if predicts the run that is simulated with the change ----------------------------------------
# The same cluster and seed, so that all that is not changed is drawn alike.


def is_predicted(
    slow: Cluster, changed: Cluster, folder: Path, *, in_step: bool = True, near: float = 0.03, **changes: Any
) -> None:
    """Assert that changes of a run predict another one: its length, and that of each iteration, nearly, or to an interval.
    `in_step`: ranks begin each iteration at about the same time, also with the changes: else iterations over all of them
    overlap."""
    measured, expected = simulate(slow), simulate(changed)
    options = WhatIfOptions(per_iteration="iteration", **changes)

    result = what_if(write_reports(measured, folder), options)

    window = result.what_if.row(0, named=True)
    assert window["measured_ns"] == measured.length
    told = [(window, expected.length)]
    assert result.what_if_iterations["measured_ns"].to_list() == measured.lengths_on_devices
    if in_step:
        told += zip(result.what_if_iterations.iter_rows(named=True), expected.lengths_on_devices, strict=True)
    for row, length in told:
        assert 0.97 * row["least_ns"] <= length <= 1.03 * row["most_ns"]
        assert row["replayed_ns"] is None or row["replayed_ns"] == pytest.approx(length, rel=near)


def small(pattern: str, gpus: int = 3, **settings: Any) -> Cluster:
    return Cluster(pattern=pattern, gpus=gpus, iterations=3, layers=2, start_up=1_000_000, **settings)


@pytest.mark.parametrize("pattern", [TENSOR, *rest(DATA, HALO, PIPELINE)])
def test_an_ideal_network(pattern: str, tmp_path: Path) -> None:
    slow, _ = with_and_without(small(pattern, gpus=2), "slow network")
    is_predicted(slow, with_machine(slow, transfer_factor=0.0), tmp_path, ideal_network=True)


def without_a_cause(pattern: str, cause: str, *, quick: bool = False, **changes: Any) -> Any:
    marks = () if quick else pytest.mark.thorough
    return pytest.param(pattern, cause, changes, marks=marks, id=f"{pattern} {cause} {next(iter(changes))}")


@pytest.mark.parametrize(
    ("pattern", "cause", "changes"),
    [
        without_a_cause(DATA, "late rank", no_late_ranks=True, quick=True),
        without_a_cause(HALO, "late for MPI_Allreduce", no_late_ranks=True),
        without_a_cause(DATA, "late ranks in turn", no_late_ranks=True),
        without_a_cause(TENSOR, "late rank", no_late_ranks=True),
        without_a_cause(DATA, "slow GPU", no_late_ranks=True),
        without_a_cause(DATA, "slow loading of a rank", no_late_ranks=True),
        without_a_cause(DATA, "unequal work", no_late_ranks=True),
        without_a_cause(DATA, "slow kernels", scale=["Flash attention forward=0.5"]),
        without_a_cause(PIPELINE, "slow kernels", scale=["Flash attention forward=0.5"]),
        without_a_cause(DATA, "slow network", scale=["NCCL*=0.333333333"]),
        without_a_cause(TENSOR, "slow network", scale=["NCCL*=0.333333333"]),
        without_a_cause(DATA, "unequal work", rank=[f"{SLOW_RANK}=median"]),
        without_a_cause(TENSOR, "unequal work", rank=[f"{SLOW_RANK}=median"]),
    ],
)
def test_the_run_without_a_cause(pattern: str, cause: str, changes: dict[str, Any], tmp_path: Path) -> None:
    slow, good = with_and_without(small(pattern), cause)
    # Iterations over all ranks begin where the late rank does not.
    is_predicted(slow, good, tmp_path, in_step="no_late_ranks" not in changes, **changes)


@pytest.mark.parametrize("pattern", [DATA, *rest(PIPELINE)])
def test_no_waits_for_batches(pattern: str, tmp_path: Path) -> None:
    slow, _ = with_and_without(small(pattern, gpus=2, loading=3_000_000), "slow loading")
    changed = replace(slow, loading=0, slow_loading=None)
    # The first batches may be start-up: there ranks remain as far apart as they were.
    is_predicted(slow, changed, tmp_path, in_step=pattern != PIPELINE, near=0.06, data_loading=0.0)


@pytest.mark.parametrize("pattern", rest(TENSOR, DATA))
def test_launches_that_cost_nothing(pattern: str, tmp_path: Path) -> None:
    slow, _ = with_and_without(small(pattern, gpus=2), "launch-bound")
    is_predicted(slow, with_machine(slow, launch_call=0, launch_latency=0), tmp_path, no_launch_cost=True)


@pytest.mark.parametrize(
    ("pattern", "changes"),
    [
        pytest.param(DATA, {"scale": scalings("Flash attention forward=0.5")}, marks=pytest.mark.thorough),
        pytest.param(DATA, {"ideal_network": True}, marks=pytest.mark.thorough),
        pytest.param(TENSOR, {"no_launch_cost": True}, marks=pytest.mark.thorough),
        pytest.param(PIPELINE, {"scale": scalings("Flash attention forward=0.5")}, marks=pytest.mark.thorough),
        pytest.param(HALO, {"ideal_network": True}, marks=pytest.mark.thorough),
        pytest.param(HALO, {"scale": scalings("*interior*=0.5")}, marks=pytest.mark.thorough),
    ],
)
def test_without_one_of_several_ranks_the_interval_has_what_all_ranks_say(
    pattern: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    """Also where the collectives of the others match: the missing rank may be the one that they waited for."""
    cluster = Cluster(pattern=pattern, gpus=3, iterations=2, layers=2, start_up=1_000_000, late_rank=(SLOW_RANK, 2_000_000))
    reports = write_reports(simulate(cluster), tmp_path)
    options = WhatIfOptions(per_iteration="iteration", **changes)

    of_all = what_if(reports, options)
    without = what_if([report for rank, report in enumerate(reports) if rank != SLOW_RANK], options)

    whole, true = (result.what_if.row(0, named=True) for result in (without, of_all))
    # The rank that is missing may be the first or the last.
    longer = whole["measured_ns"] - true["measured_ns"]
    assert_bounds(whole, true["most_ns"] + longer)
    assert whole["least_ns"] < whole["most_ns"]
    assert "not in the run" in whole["reason"]


def few_events(folder: Path) -> list[Path]:
    """Reports of three ranks."""
    return write_reports(simulate(Cluster(pattern=DATA, gpus=3, iterations=1, layers=1, start_up=1_000_000)), folder)


@pytest.mark.thorough
def test_selected_ranks_are_not_all_ranks(tmp_path: Path) -> None:
    reports = few_events(tmp_path)
    row = what_if(reports, replace(_HALF, ranks=frozenset({0, 1}))).what_if.row(0, named=True)
    assert row["least_ns"] < row["most_ns"]
    assert "not in the run" in row["reason"]


def test_transfer_efficiency_is_not_decidable_without_all_ranks(tmp_path: Path) -> None:
    result = measure(few_events(tmp_path)[:2], EfficiencyOptions())
    tree = {row["metric"]: row for row in result.tree.iter_rows(named=True)}
    for metric in ("transfer_efficiency", "serialization_efficiency"):
        assert tree[metric]["value"] is None
        assert "all ranks of them" in tree[metric]["reason"]
    (warning,) = [text for text in result.head["warnings"] if text.startswith("transfer and serialization")]
    assert "not in the run" in warning
    assert "With an ideal network the window takes" in warning


@pytest.mark.thorough
def test_where_clocks_are_known_to_an_interval_so_is_the_new_length(tmp_path: Path) -> None:
    cluster = Cluster(pattern=TENSOR, nodes=2, gpus=2, iterations=4, start_up=1_000_000, clock_offsets=(0, 40_000))
    slow, good = with_and_without(cluster, "slow kernels")
    row = what_if(write_reports(simulate(slow), tmp_path), _HALF).what_if.row(0, named=True)
    assert_bounds(row, simulate(good).length)
    assert "different clocks" in row["reason"]


_HALF = WhatIfOptions(per_iteration="iteration", scale=scalings("Flash attention forward=0.5"))


def assert_bounds(row: Mapping[str, int], true: int) -> None:
    # Half of a duration is a whole number of ns in the replay, and another one in the simulation.
    assert 0.999 * row["least_ns"] <= true <= 1.001 * row["most_ns"]
    assert row["replayed_ns"] is None or row["least_ns"] <= row["replayed_ns"] <= row["most_ns"]
