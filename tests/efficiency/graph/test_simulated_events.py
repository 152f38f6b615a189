"""What operations and calls wait for by events is what the simulator made them wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.simulated_run.cluster import HALO, PATTERNS, Cluster
from support.simulated_run.records import Operation
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.cuda_waits import event_edges
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.run.options import ReadOptions

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


@pytest.mark.parametrize("with_ids", [True, pytest.param(False, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_waits_for_events_are_followed(pattern: str, with_ids: bool, tmp_path: Path) -> None:
    run = simulate(Cluster(pattern=pattern, gpus=2, iterations=2, event_ids=with_ids))
    events = read_events(write_reports(run, tmp_path / "reports"), ReadOptions(), tmp_path, with_dependencies=True)
    edges, names = event_edges(MeasuredRun(events)).on_streams, events.rows.names
    rows = edges.select("row", "start", "awaited_row", "awaited_start", "awaited_end").rows()
    followed = {(names[row], start, names[awaited], *times) for row, start, awaited, *times in rows}

    assert followed == expected(run)
    assert (pattern == HALO) == (not followed)
