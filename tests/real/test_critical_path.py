"""The graph of every real report: it replays exactly, and its critical path is as long as the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.real_reports import RUNS

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.build import BuiltGraph, GraphBuilder
from nsys2prv.efficiency.graph.event_waits import EventWaits
from nsys2prv.efficiency.graph.path_segments import PathReader
from nsys2prv.efficiency.graph.replay import as_measured, replay
from nsys2prv.efficiency.meters.nccl_stats import Nccl
from nsys2prv.efficiency.sweep import SweepContext, time_chunks

pytestmark = pytest.mark.real


def build(inputs: tuple[Path, ...], folder: Path) -> BuiltGraph:
    """The graph of some reports."""
    context = SweepContext(read_events(inputs, EfficiencyOptions(), folder, with_dependencies=True))
    nccl = Nccl(context)
    builder = GraphBuilder(context, folder / "graph", nccl, EventWaits(context.events))
    for chunk in time_chunks(context):
        nccl.update(chunk)
        builder.update(chunk)
    return builder.finish()


REPEATED = {"nccl-3nodes-9gpus", "nccl-2nodes-6gpus-utc"}
"""Runs like others of the list."""


@pytest.mark.every_report
@pytest.mark.parametrize("run", [pytest.param(run, marks=[pytest.mark.thorough] if run in REPEATED else []) for run in RUNS])
def test_a_replay_without_a_change_is_the_run(run: str, tmp_path: Path) -> None:
    built = build(RUNS[run], tmp_path)
    replayed, measured = replay(built.graph), as_measured(built.graph)
    assert np.array_equal(replayed.time, built.graph.moments.time)
    assert np.array_equal(replayed.with_edges().edges, measured.with_edges().edges)
    window = built.context.events.length
    reader = PathReader(built, measured)
    assert reader.length == window
    # Pieces, and the segments in them, are from the last to the first.
    end = window
    for piece in reader.segments():
        for begin, until in piece.select("begin", "end").iter_rows():
            assert until == end
            assert begin < until
            end = begin
    assert end == (0 if reader.last >= 0 else window)
