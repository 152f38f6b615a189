"""The graph of every real report: it replays exactly, and its critical path is as long as the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.real_reports import RUNS

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.path import path_end, path_segments
from nsys2prv.efficiency.graph.replay import replay
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.measured_run import MeasuredRun

pytestmark = pytest.mark.real


TYPICAL = {"cuda-graphs", "mpi-openacc-4gpu", "mpi4", "nccl-2nodes-5of6-utc", "one-process-4gpu", "pytorch-nccl-2gpu"}
"""Between them: all kinds of edges."""


@pytest.mark.parametrize("run", [pytest.param(run, marks=[] if run in TYPICAL else [pytest.mark.thorough]) for run in RUNS])
def test_a_replay_without_a_change_is_the_run(run: str, tmp_path: Path) -> None:
    built = graph_of_run(MeasuredRun(read_events(RUNS[run], EfficiencyOptions(), tmp_path, with_dependencies=True)))
    replayed, measured = replay(built.graph), replay(built.graph)
    assert np.array_equal(replayed.time, built.graph.moments.time)
    assert np.array_equal(replayed.edge, measured.edge)
    window = built.context.events.length
    assert path_end(built, measured)[1] == window
    segments = path_segments(built, measured)
    begin, end = segments["begin"].to_list(), segments["end"].to_list()
    assert all(start < until for start, until in zip(begin, end, strict=True))
    # Without a hole.
    assert [*begin, window] == [0, *end] if begin else path_end(built, measured)[0] < 0
