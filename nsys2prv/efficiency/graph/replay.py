"""When everything happens if durations change: the graph replayed.

A moment is as early as the edges that end at it allow: the longest way to it. With t the measured time of a moment and w the
weight of an edge from u to v, the slack t_v - t_u - w is not negative, and the gain of a moment (how much earlier it is than
measured) is the smallest sum of slacks on any way to it: a shortest way with lengths that are not negative, which Dijkstra's
algorithm finds in compiled code. Where edges become longer, the times are first moved later by the sum of what all edges up to
there grow by: then no slack is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph.run_graph import Column, GraphWindow, RunGraph, new_column
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.errors import UsageError
from nsys2prv.execution.threads import map_ahead
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS

Floats = npt.NDArray[np.float64]

REMOVED = -1
"""Weight of an edge that no longer is."""
ANCHOR = -1
"""Edge that determines a moment which no edge ends at: it happens when it was measured."""

_EDGES = "measured_edge"

Change = Callable[[GraphWindow], Numbers]
"""New weights of the edges of a window, ns, 0 or more; REMOVED where an edge no longer is."""


@dataclass(frozen=True)
class Replay:
    """A graph with other times.

    Attributes
    ----------
    time
        Of each moment, ns.
    change
        Of its weights; None: there is none.
    edges
        The edge that determines each moment, if it is kept: a number of all edges; ANCHOR: none.
    """

    graph: RunGraph
    time: Column
    change: Change | None = None
    edges: Column | None = None

    def weights(self, window: GraphWindow) -> Numbers:
        """Weights of the edges of a window."""
        return window.weight if self.change is None else self.change(window)

    def determining(self, window: GraphWindow) -> Numbers:
        """The edge that determines each moment of a window: its place among those of the window; ANCHOR: none."""
        if self.edges is None:
            return _determining(window, self.time, self.weights(window))
        edge = np.asarray(self.edges[window.first : window.behind], dtype=np.int64)
        return np.where(edge == ANCHOR, ANCHOR, edge - window.first_edge)

    def edges_of(self, moments: Numbers) -> Numbers:
        """The kept edges that determine some moments; ANCHOR: none."""
        if self.edges is None:
            raise ValueError("the edges of this replay are not kept")
        return np.asarray(self.edges[moments], dtype=np.int64)

    def with_edges(self, folder: Path | None = None, moments_of_window: int | None = None) -> Replay:
        """The same, in which the edge that determines each moment is kept: in a file of the folder; None: in memory."""
        if self.edges is not None:
            return self
        edges = new_column(folder, _EDGES, len(self.graph.moments))

        def determined(window: GraphWindow) -> tuple[GraphWindow, Numbers]:
            return window, self.determining(window)

        for window, edge in map_ahead(determined, self.graph.windows(moments_of_window, [self.time, edges])):
            _keep_edges(edges, window, edge)
        return replace(self, edges=edges)


def _determining(window: GraphWindow, time: Column, weight: Numbers) -> Numbers:
    """The edges of `Replay.determining`, from the times of all moments and the weights of the edges of the window."""
    inside = time[window.first : window.behind]
    # No edge allows a moment later than it is; of those that allow it just then the last one counts.
    is_latest = window.of_sources(time, inside) + weight == inside[window.target]
    latest = np.flatnonzero(is_latest & (weight != REMOVED))
    edge = np.full(len(window), ANCHOR, dtype=np.int64)
    # Of several values for one place, numpy keeps the last one.
    edge[window.target[latest]] = latest
    return edge


def _keep_edges(edges: Column, window: GraphWindow, edge: Numbers) -> None:
    edges[window.first : window.behind] = np.where(edge == ANCHOR, ANCHOR, edge + window.first_edge)


def as_measured(graph: RunGraph) -> Replay:
    """The graph with its measured times."""
    return Replay(graph, graph.moments.time)


def replay(
    graph: RunGraph,
    change: Change | None = None,
    folder: Path | None = None,
    moments_of_window: int | None = None,
    held: Callable[[GraphWindow], Numbers] | None = None,
    *,
    keep_edges: bool = False,
) -> Replay:
    """Replay a graph.

    Parameters
    ----------
    graph
        Settled: `run_graph.settle`.
    change
        New weights; None: all stay as they are.
    folder
        Where times are written; None: they stay in memory.
    moments_of_window
        Moments that are worked on at once (None: as many as the memory allows); the result does not depend on it.
    held
        Moments of a window (counted from its first one) that become no earlier than measured, whatever becomes shorter, and
        later by what becomes longer before them.
    keep_edges
        Keep the edge that determines each moment (`Replay.edges`): then the path is read without the change.

    Raises
    ------
    UsageError
        When all times that become longer add up to more than 104 days.
    """
    time = new_column(folder, "replayed_time", len(graph.moments))
    edges = new_column(folder, "replayed_edge", len(graph.moments)) if keep_edges else None
    found = Replay(graph, time, change, edges)
    growth = 0

    def weighed(window: GraphWindow) -> tuple[GraphWindow, Numbers]:
        return window, found.weights(window)

    windows = graph.windows(moments_of_window, [time] if edges is None else [time, edges])
    # New weights need no new times: those of the next window are found meanwhile.
    for window, weight in map_ahead(weighed, windows, most=1):
        inside = slice(window.first, window.behind)
        if change is not None and not growth and _is_as_measured(window, time, weight):
            time[inside] = window.time
            if edges is not None:
                _keep_edges(edges, window, _determining(window, time, weight))
            continue
        is_there = weight != REMOVED
        grown = np.where(is_there, np.maximum(weight - window.weight, 0), 0)
        if growth + grown.sum(dtype=np.float64) > LONGEST_SESSION_NS:
            raise UsageError("with these changes the run would be longer than can be counted (104 days); take smaller factors")
        moved = growth + np.cumsum(_sums(window.target, grown, len(window)))
        growth = int(moved[-1])
        later = window.time + moved
        kept = held(window) if held is not None else np.zeros(0, dtype=np.int64)
        time[inside] = later - _gains(window, time, later, moved, weight, is_there, kept)
        if edges is not None:
            _keep_edges(edges, window, _determining(window, time, weight))
    return found


def _is_as_measured(window: GraphWindow, time: Column, weight: Numbers) -> bool:
    """Whether nothing changes in a window, nor before it where something in it depends on it: then its times are measured."""
    outside = ~window.is_inside
    return bool((weight == window.weight).all() and (time[window.source[outside]] == window.source_time[outside]).all())


def _gains(
    window: GraphWindow,
    time: Column,
    later: Numbers,
    moved: Numbers,
    weight: Numbers,
    is_there: npt.NDArray[np.bool_],
    held: Numbers,
) -> Numbers:
    """How much earlier each moment of a window is than `later`: its measured time, moved by `moved`.

    `time` has the new times of all moments before the window; those that are `held` are not earlier.
    """
    size = len(window)
    inside, outside = is_there & window.is_inside, is_there & ~window.is_inside
    # Ways into the window start from what is known: moments before it, and moments that nothing determines.
    entry = np.full(size, np.inf)
    of_outside = window.target[outside]
    np.minimum.at(entry, of_outside, later[of_outside] - time[window.source[outside]] - weight[outside])
    has_edge = np.zeros(size, dtype=bool)
    has_edge[window.target[is_there]] = True
    entry[~has_edge] = moved[~has_edge]
    entry[held] = 0
    source = window.source[inside] - window.first
    target = window.target[inside]
    slack = later[target] - later[source] - weight[inside]
    gain = shortest(source, target, slack.astype(np.float64), entry)
    return gain.astype(np.int64)


def shortest(source: Numbers, target: Numbers, length: Floats, entry: Floats, *, backwards: bool = False) -> Floats:
    """Length of the shortest way to each node.

    Parameters
    ----------
    source, target, length
        Edges in the order of their targets; lengths are not negative.
    entry
        Of each node: length of the way to it from outside; infinite: none.
    backwards
        Edges are gone from target to source.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    size = len(entry)
    by_target = csr_matrix((length, source, np.searchsorted(target, np.arange(size + 1))), shape=(size, size))
    edges = by_target if backwards else by_target.T.tocsr()
    # One more node, from which all ways start.
    enters = np.flatnonzero(np.isfinite(entry))
    length = np.concatenate([edges.data, entry[enters]])
    matrix = csr_matrix(
        (length, np.concatenate([edges.indices, enters]), np.append(edges.indptr, len(length))), shape=(size + 1, size + 1)
    )
    found: Floats = dijkstra(matrix, indices=size)[:size]
    return found


def _sums(target: Numbers, values: Numbers, size: int) -> Numbers:
    """Sum of values by target."""
    # Doubles are exact up to 2^53 ns.
    return np.bincount(target, weights=values, minlength=size).astype(np.int64)
