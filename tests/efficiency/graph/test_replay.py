"""The replay of small random graphs, against a plain program that goes through moments one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.critical_path import OUTSIDE, chain, edges_backwards, last_moment, path_backwards
from nsys2prv.efficiency.graph.moment_slack import slacks
from nsys2prv.efficiency.graph.replay import REMOVED, as_measured, replay
from nsys2prv.efficiency.graph.run_graph import WHOLE, GraphWindow, RunGraph, in_memory

Weights = np.ndarray[Any, np.dtype[np.int64]]


@st.composite
def graphs(draw: st.DrawFn) -> RunGraph:
    """Moments in the order of time, several at one time, and edges between them, also parallel ones."""
    steps = draw(st.lists(st.integers(0, 5), min_size=1, max_size=25))
    time = np.cumsum(steps)
    size = len(time)
    pairs = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=60))
    forward = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]
    least = draw(st.lists(st.one_of(st.integers(0, 12), st.just(WHOLE)), min_size=len(forward), max_size=len(forward)))
    kinds = len(edge_kinds.NAMES)
    kind = draw(st.lists(st.integers(0, kinds - 1), min_size=len(forward), max_size=len(forward)))
    return in_memory(
        {"time": time, "row": np.zeros(size), "label": np.zeros(size)},
        {"source": [u for u, _ in forward], "target": [v for _, v in forward], "weight": least, "kind": kind},
    )


def _longest_ways(graph: RunGraph, weight: Weights) -> list[int]:
    """When each moment is, one after the other."""
    found: list[int] = []
    for moment, measured in enumerate(graph.moments.time.tolist()):
        allowed = [
            found[source] + one
            for source, target, one in zip(
                graph.edges.source.tolist(), graph.edges.target.tolist(), weight.tolist(), strict=True
            )
            if target == moment and one != REMOVED
        ]
        found.append(max(allowed) if allowed else measured)
    return found


def _to(weight: Weights) -> Callable[[GraphWindow], Weights]:
    return lambda window: weight[window.first_edge : window.behind_edge]


@settings(deadline=None)
@given(graphs(), st.integers(1, 30))
def test_a_replay_without_a_change_gives_the_measured_times(graph: RunGraph, size: int) -> None:
    assert replay(graph, moments_of_window=size).time.tolist() == graph.moments.time.tolist()


@settings(deadline=None)
@given(graphs(), st.integers(1, 30))
def test_each_moment_with_an_edge_is_determined_by_one(graph: RunGraph, size: int) -> None:
    determining = as_measured(graph).with_edges(moments_of_window=size).edges.tolist()
    assert determining == replay(graph, moments_of_window=size).with_edges().edges.tolist()
    for moment, edge in enumerate(determining):
        assert (edge < 0) == (moment not in graph.edges.target)
        if edge >= 0:
            source = graph.edges.source[edge]
            assert graph.moments.time[moment] == graph.moments.time[source] + graph.edges.weight[edge]


@settings(max_examples=300, deadline=None)
@given(graphs(), st.data(), st.integers(1, 30))
def test_a_replay_with_other_weights_gives_the_longest_ways(graph: RunGraph, data: st.DataObject, size: int) -> None:
    count = len(graph.edges)
    changed = data.draw(st.lists(st.one_of(st.integers(0, 20), st.just(REMOVED)), min_size=count, max_size=count))
    is_changed = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    weight = np.where(np.array(is_changed, dtype=bool), np.array(changed, dtype=np.int64), graph.edges.weight)
    found = replay(graph, _to(weight), moments_of_window=size)
    assert found.time.tolist() == _longest_ways(graph, weight)
    edges = found.with_edges().edges_of(np.arange(len(graph.moments))).tolist()
    assert replay(graph, _to(weight), moments_of_window=size, keep_edges=True).edges.tolist() == edges
    for moment, edge in enumerate(edges):
        if edge >= 0:
            assert found.time[moment] == found.time[graph.edges.source[edge]] + weight[edge]


@settings(deadline=None)
@given(graphs(), st.integers(1, 30))
def test_the_path_has_no_hole_and_ends_at_the_last_moment(graph: RunGraph, size: int) -> None:
    measured = as_measured(graph)
    last = last_moment(measured)
    assert last == len(graph.moments) - 1
    moment, end = last, int(graph.moments.time[last])
    for piece in path_backwards(measured, last, moments_of_window=size):
        for place in range(len(piece)):
            assert (piece.target[place], piece.end[place]) == (moment, end)
            moment, end = int(piece.source[place]), int(piece.begin[place])
    # It begins where nothing determines a moment: the steps add up to the time from there.
    assert moment not in graph.edges.target
    assert end == graph.moments.time[moment]


@settings(deadline=None)
@given(graphs(), st.integers(1, 30))
def test_a_window_with_the_edges_of_the_path_alone_has_their_columns(graph: RunGraph, size: int) -> None:
    measured = as_measured(graph)
    for window, taken in edges_backwards(measured, last_moment(measured), moments_of_window=size):
        path = window.only(taken)
        for name in ("source", "target", "weight", "kind", "source_time", "source_row"):
            assert getattr(path, name).tolist() == getattr(window, name)[taken].tolist()
        assert path.time.tolist() == window.time.tolist()


@pytest.mark.parametrize("steps", [(1,), (1, 2, 3), (700, 1)], ids=["each", "few", "far"])
def test_a_chain_is_followed_to_its_end(steps: tuple[int, ...]) -> None:
    # Longer than several strides, with places beside it.
    before = np.arange(3_000) - np.resize(steps, 3_000)
    expected = [2_998]
    while before[expected[-1]] >= 0:
        expected.append(int(before[expected[-1]]))
    assert chain(np.maximum(before, OUTSIDE).astype(np.int32), 2_998).tolist() == expected


@settings(deadline=None)
@given(graphs(), st.integers(1, 30))
def test_slack_is_how_much_later_a_moment_may_be(graph: RunGraph, size: int) -> None:
    latest = [int(graph.moments.time[-1])] * len(graph.moments)
    for moment in reversed(range(len(latest))):
        for edge in np.flatnonzero(graph.edges.source == moment):
            latest[moment] = min(latest[moment], latest[int(graph.edges.target[edge])] - int(graph.edges.weight[edge]))
    for window, slack in slacks(graph, moments_of_window=size):
        assert (slack + window.time).tolist() == latest[window.first : window.behind]


def test_the_last_moment_is_that_of_the_replay() -> None:
    graph = in_memory(
        {"time": [0, 0, 50, 60], "row": [0, 1, 0, 1], "label": [0, 1, 0, 1]},
        {"source": [0, 1], "target": [2, 3], "weight": [WHOLE, WHOLE], "kind": [0, 0]},
    )
    shorter = replay(graph, _to(np.array([50, 10])))
    assert last_moment(as_measured(graph)) == 3
    assert last_moment(as_measured(graph), rows=np.array([True, False])) == 2
    assert last_moment(as_measured(graph), until=40) == 1
    assert last_moment(shorter) == 2
