"""Graphs of simulated clusters: a replay without a change gives the measured times."""

from pathlib import Path

import pytest
from support.simulated_run.causes import CAUSES, with_and_without
from support.simulated_run.cluster import DATA, HALO, PATTERNS, Cluster
from support.simulated_run.records import Operation
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.efficiency.graph.run_graph import BuiltGraph, graph_of_run
from nsys2prv.efficiency.measured_run import MeasuredRun
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
QUICK = 4


def graph_of(run: SimulatedRun, folder: Path) -> BuiltGraph:
    """The graph of the reports of a run."""
    reports = write_reports(run, folder / "reports")
    return graph_of_run(MeasuredRun(read_events(reports, ReadOptions(), folder, with_dependencies=True)))


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(cluster, marks=[] if number < QUICK else [pytest.mark.thorough], id=f"{number}-{cluster.pattern}")
        for number, cluster in enumerate(CLUSTERS)
    ],
)
def test_a_replay_without_a_change_is_exact(cluster: Cluster, tmp_path: Path) -> None:
    run = simulate(cluster)

    built = graph_of(run, tmp_path)

    graph = built.graph
    assert (replay(graph).time == graph.moments.time).all()
    assert graph.moments.time[-1] - graph.moments.time[0] <= run.length
    # Each operation has a start and an end.
    assert len(graph.moments) >= 2 * len(run.recorded.operations)


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


@pytest.mark.parametrize(
    ("pattern", "with_ids"),
    [
        pytest.param(pattern, with_ids, marks=() if with_ids and pattern in (DATA, HALO) else pytest.mark.thorough)
        for pattern in PATTERNS
        for with_ids in (True, False)
    ],
)
def test_waits_for_events_are_followed(pattern: str, with_ids: bool, tmp_path: Path) -> None:
    run = simulate(Cluster(pattern=pattern, gpus=2, iterations=2, event_ids=with_ids))
    events = read_events(write_reports(run, tmp_path / "reports"), ReadOptions(), tmp_path, with_dependencies=True)
    edges, names = event_edges(MeasuredRun(events)).on_streams, events.rows.names
    rows = edges.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
    followed = {(names[row], start, names[awaited], *times) for row, start, awaited, *times in rows}

    assert followed == expected(run)
    assert (pattern == HALO) == (not followed)
