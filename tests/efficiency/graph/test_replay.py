"""The replay of small random graphs, against a plain program that goes through moments one after the other."""

from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.efficiency.graph import replay as passes
from nsys2prv.efficiency.graph.moments import EdgeCollector
from nsys2prv.efficiency.graph.replay import (
    FOLLOWS,
    FREE,
    HELD,
    REMOVED,
    WHOLE,
    EdgeKind,
    Edges,
    RunGraph,
    Step,
    as_changed,
    replay,
    replays,
)
from nsys2prv.efficiency.intervals import Integers, Numbers
from nsys2prv.errors import UsageError


def graph_of(time: list[int], edges: list[tuple[int, int, int, int]]) -> RunGraph:
    """A graph of moments on two rows in turn, and edges: source, target, least weight, kind."""
    row = np.arange(len(time), dtype=np.int32) % 2
    collector = EdgeCollector(np.array(time, dtype=np.int64), row, row)
    for source, target, weight, kind in edges:
        collector.add(EdgeKind(kind), np.array([source]), np.array([target]), weight)
    return collector.graph()


@st.composite
def graphs(draw: st.DrawFn) -> RunGraph:
    """Moments in the order of time, several at one time, and edges between them, also parallel ones."""
    time = np.cumsum(draw(st.lists(st.integers(0, 5), min_size=1, max_size=25))).tolist()
    moment, least = st.integers(0, len(time) - 1), st.one_of(st.integers(0, 12), st.just(WHOLE))
    kind = st.integers(0, len(EdgeKind) - 1)
    edges = draw(st.lists(st.tuples(moment, moment, least, kind), max_size=60))
    return graph_of(time, [(min(u, v), max(u, v), *rest) for u, v, *rest in edges if u != v])


def _plain(graph: RunGraph, weight: Numbers, limits: Sequence[int]) -> list[int]:
    """When each moment is, one after the other."""
    times: list[int] = []
    growth, earlier, target = 0, 0, graph.target
    for moment, measured in enumerate(graph.time.tolist()):
        places = [place for place in np.flatnonzero(target == moment).tolist() if weight[place] != REMOVED]
        growth += sum(max(int(weight[place] - graph.weight[place]), 0) for place in places)
        allowed = [times[graph.source[place]] + int(weight[place]) for place in places]
        earliest = {FREE: -1, HELD: measured + growth, FOLLOWS: measured - earlier}[limits[moment]]
        times.append(max([*allowed, earliest]) if allowed else max(earliest, measured if limits[moment] == FREE else -1))
        earlier = max(earlier, measured - times[-1])
    return times


def _limited(limits: Sequence[int], edges: Edges, weight: Numbers, limit: Integers) -> Numbers:
    limit[:] = limits
    return weight


def _to(weight: Numbers) -> list[Step]:
    return [lambda edges, _: weight[edges.number]]


@given(graphs(), st.integers(1, 30))
def test_a_replay_without_a_change_gives_the_measured_times(graph: RunGraph, size: int) -> None:
    with patch.object(passes, "BLOCK", size):
        replayed = replay(graph)
    assert replayed.time.tolist() == graph.time.tolist()
    assert replayed.edge.tolist() == replay(graph).edge.tolist()


@given(graphs(), st.data(), st.integers(1, 30))
def test_a_replay_with_other_weights_gives_the_longest_ways(graph: RunGraph, data: st.DataObject, size: int) -> None:
    count = len(graph.weight)
    changed = data.draw(st.lists(st.one_of(st.integers(0, 20), st.just(REMOVED)), min_size=count, max_size=count))
    is_changed = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    weight = np.where(np.array(is_changed, dtype=bool), np.array(changed, dtype=np.int64), graph.weight)
    target = graph.target
    moments = len(graph.time)
    limits = data.draw(st.lists(st.sampled_from([FREE, HELD, FOLLOWS]), min_size=moments, max_size=moments))
    with patch.object(passes, "BLOCK", size):
        replayed, limited = replays(graph, _to(weight), [as_changed, partial(_limited, limits)])
        (alone,) = replays(graph, _to(weight), [partial(_limited, limits)], with_edges=False)
    assert replayed.time.tolist() == _plain(graph, weight, [FREE] * moments)
    assert limited.time.tolist() == alone.time.tolist() == _plain(graph, weight, limits)
    for moment, edge in enumerate(replayed.edge.tolist()):
        latest = [place for place in np.flatnonzero((target == moment) & (weight != REMOVED)).tolist()
                  if replayed.time[moment] == replayed.time[graph.source[place]] + weight[place]]  # fmt: skip
        # Of several the last one counts.
        assert edge == max(latest, default=-1)


@given(graphs())
def test_the_path_has_no_hole_and_ends_at_the_last_moment(graph: RunGraph) -> None:
    last = len(graph.time) - 1
    path = replay(graph).path(last)
    moments = [*path.source.tolist(), last]
    assert path.target.tolist() == moments[1:]
    assert (path.end - path.begin).tolist() == path.weight.tolist()
    # It begins where nothing determines a moment.
    assert moments[0] not in graph.target.tolist()


@given(graphs())
def test_slack_is_how_much_later_a_moment_may_be(graph: RunGraph) -> None:
    latest = [int(graph.time[-1])] * len(graph.time)
    target = graph.target.tolist()
    for moment in reversed(range(len(latest))):
        for edge in np.flatnonzero(graph.source == moment):
            latest[moment] = min(latest[moment], latest[target[edge]] - int(graph.weight[edge]))
    assert (graph.slacks() + graph.time).tolist() == latest


def test_edges_that_go_back_are_left_out_and_classes_take_what_was_seen() -> None:
    row = np.zeros(4, dtype=np.int32)
    edges = EdgeCollector(np.array([0, 10, 100, 200]), row, row)
    seen, unseen = -100, -200
    edges.add(EdgeKind.LAUNCH, np.array([0, 2, 1]), np.array([2, 1, 3]), np.array([seen, seen, unseen]))
    edges.takes(np.full(12, seen), np.array([0, 3, *[15] * 10]))
    edges.add(EdgeKind.HOST, np.array([1]), np.array([2]), WHOLE)
    graph = edges.graph()
    assert +edges.left_out == {EdgeKind.LAUNCH: 1}
    # The host thread, and what nothing else explains, take the measured time.
    assert [*zip(graph.source.tolist(), graph.weight.tolist(), strict=True)] == [(1, 90), (0, 3), (1, 190)]


def test_changes_are_made_once_for_all_variants_and_only_times_are_kept() -> None:
    graph = graph_of([0, 50, 90], [(0, 1, WHOLE, 0), (1, 2, WHOLE, 0)])
    calls: list[int] = []

    def halved(edges: Edges, weight: Numbers) -> Numbers:
        calls.append(len(edges))
        return weight // 2

    free, held = replays(graph, [halved], [as_changed, partial(_limited, [FREE, HELD, FREE])], with_edges=False)
    assert calls == [2]
    assert (free.time.tolist(), held.time.tolist()) == ([0, 25, 45], [0, 50, 70])
    assert len(free.edge) == len(held.edge) == 0


def test_what_takes_longer_than_can_be_counted_is_refused() -> None:
    graph = graph_of([0, 50], [(0, 1, WHOLE, 0)])
    with pytest.raises(UsageError, match="104 days"):
        replay(graph, _to(np.array([1 << 62])))


def test_compiled_loops_give_the_same_with_and_without_a_folder_for_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    pairs = np.sort(random.integers(0, 200, (600, 2)), axis=1)
    edges = [(int(u), int(v), int(random.integers(0, 40)), int(u) % 13) for u, v in pairs if u != v]
    graph = graph_of(np.cumsum(random.integers(0, 9, 200)).tolist(), edges)
    results = []
    for fewest, folder in ((10_000, None), (0, None), (0, "/proc/none")):
        passes._compiled.cache_clear()
        monkeypatch.setattr(passes, "FEWEST_COMPILED", fewest)
        if folder is not None:
            monkeypatch.setenv("NUMBA_CACHE_DIR", folder)
        halved = replay(graph, [lambda _, weight: weight // 2])
        path = halved.path(len(graph.time) - 1)
        results.append((halved.time.tolist(), halved.edge.tolist(), path.number.tolist(), graph.slacks().tolist()))
    passes._compiled.cache_clear()
    assert results[0] == results[1] == results[2]
