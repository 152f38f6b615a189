"""Columns of a graph that are files take memory for one window at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nsys2prv.efficiency.graph.run_graph import Edges, Moments, RunGraph, new_column, release
from nsys2prv.execution.memory import _resident

ROWS = 4_000_000


def test_a_column_that_is_released_keeps_what_was_written(tmp_path: Path) -> None:
    column = new_column(tmp_path, "column", ROWS)
    # Made before memory is looked at: the allocator may keep what an array of this size took.
    values = np.arange(ROWS)
    before = _resident()
    column[:] = values
    written = _resident()

    release(column, np.zeros(3))

    assert written - before > 20_000_000
    assert _resident() - before < 10_000_000
    assert np.array_equal(column, values)


def test_windows_of_a_graph_hold_one_window_in_memory(tmp_path: Path) -> None:
    moments = Moments(*(new_column(tmp_path, name, ROWS) for name in ("time", "row", "label")))
    edges = Edges(*(new_column(tmp_path, name, ROWS - 1) for name in ("source", "target", "weight", "kind")))
    beside = new_column(tmp_path, "beside", ROWS)
    moments.time[:] = np.arange(ROWS) * 2
    edges.source[:] = np.arange(ROWS - 1)
    edges.target[:] = np.arange(1, ROWS)
    graph = RunGraph(moments, edges)
    release(moments.time, edges.source, edges.target)
    before = _resident()

    most = 0
    for window in graph.windows(100_000, [beside]):
        beside[window.first : window.behind] = window.time + window.row
        most = max(most, _resident() - before)
    for window in graph.windows_backwards(100_000, [beside]):
        assert int(window.time.max()) == int(beside[window.behind - 1])
        most = max(most, _resident() - before)

    # All columns that are used here are 128 MB.
    assert most < 60_000_000
