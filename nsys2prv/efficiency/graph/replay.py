"""When everything happens if durations change: the graph replayed.

A moment is as early as the edges that end at it allow: the longest way to it. With t the measured time of a moment and w the
weight of an edge from u to v, the slack t_v - t_u - w is not negative, and the gain of a moment (how much earlier it is than
measured) is the smallest sum of slacks on any way to it: a shortest way with lengths that are not negative, which Dijkstra's
algorithm finds in compiled code. Where edges become longer, the times are first moved later by the sum of what all edges up to
there grow by: then no slack is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.run_graph import MOMENTS_OF_WINDOW, Column, GraphWindow, RunGraph, first_of_targets, new_column
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.errors import UsageError
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS

Floats = npt.NDArray[np.float64]

REMOVED = -1
"""Weight of an edge that no longer is."""
ANCHOR = -1
"""Edge that determines a moment which no edge ends at: it happens when it was measured."""

Change = Callable[[GraphWindow], Numbers]
"""New weights of the edges of a window, ns, 0 or more; REMOVED where an edge no longer is."""

_PREFERENCE = np.array(edge_kinds.PREFERENCE, dtype=np.int64)


@dataclass(frozen=True)
class Replay:
    """A graph with other times.

    Attributes
    ----------
    time
        Of each moment, ns.
    edge
        The edge that determines it: a number of all edges; ANCHOR: none.
    """

    graph: RunGraph
    time: Column
    edge: Column


def as_measured_times(graph: RunGraph) -> Replay:
    """The graph with its measured times alone: what determines them is not looked up."""
    return Replay(graph, graph.moments.time, np.zeros(0, dtype=np.int64))


def as_measured(graph: RunGraph, folder: Path | None = None, moments_of_window: int = MOMENTS_OF_WINDOW) -> Replay:
    """The graph with its measured times, and the edges that determine them; `folder` as of `replay`."""
    edge = new_column(folder, "measured_edge", len(graph.moments))
    for window in graph.windows(moments_of_window, [edge]):
        is_tight = window.source_time + window.weight == window.time[window.target]
        edge[window.first : window.behind] = _determining(window, is_tight)
    return Replay(graph, graph.moments.time, edge)


def replay(
    graph: RunGraph,
    change: Change | None = None,
    folder: Path | None = None,
    moments_of_window: int = MOMENTS_OF_WINDOW,
    held: Callable[[GraphWindow], Numbers] | None = None,
) -> Replay:
    """Replay a graph.

    Parameters
    ----------
    graph
        Settled: `run_graph.settle`.
    change
        New weights; None: all stay as they are.
    folder
        Where times and edges are written; None: they stay in memory.
    moments_of_window
        Moments that are worked on at once; the result does not depend on it.
    held
        Moments of a window (counted from its first one) that become no earlier than measured, whatever becomes shorter, and
        later by what becomes longer before them.

    Raises
    ------
    UsageError
        When all times that become longer add up to more than 104 days.
    """
    time = new_column(folder, "replayed_time", len(graph.moments))
    edge = new_column(folder, "replayed_edge", len(graph.moments))
    growth = 0
    for window in graph.windows(moments_of_window, [time, edge]):
        weight = window.weight if change is None else change(window)
        is_there = weight != REMOVED
        grown = np.where(is_there, np.maximum(weight - window.weight, 0), 0)
        if growth + grown.sum(dtype=np.float64) > LONGEST_SESSION_NS:
            raise UsageError("with these changes the run would be longer than can be counted (104 days); take smaller factors")
        moved = growth + np.cumsum(_sums(window.target, grown, len(window)))
        growth = int(moved[-1])
        later = window.time + moved
        kept = held(window) if held is not None else np.zeros(0, dtype=np.int64)
        new = later - _gains(window, time, later, moved, weight, is_there, kept)
        time[window.first : window.behind] = new
        is_tight = is_there & (window.of_sources(time, new) + weight == new[window.target])
        edge[window.first : window.behind] = _determining(window, is_tight)
    return Replay(graph, time, edge)


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


def shortest(source: Numbers, target: Numbers, length: Floats, entry: Floats) -> Floats:
    """Length of the shortest way to each node.

    Parameters
    ----------
    source, target, length
        Edges; lengths are not negative.
    entry
        Of each node: length of the way to it from outside; infinite: none.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    size = len(entry)
    enters = np.flatnonzero(np.isfinite(entry))
    source = np.concatenate([source, np.full(len(enters), size, dtype=np.int64)])
    target = np.concatenate([target, enters])
    length = np.concatenate([length, entry[enters]])
    order = np.lexsort((length, target, source))
    source, target, length = source[order], target[order], length[order]
    # Of parallel edges only the shortest counts.
    is_first = differ_from_before(source, target)
    source, target, length = source[is_first], target[is_first], length[is_first]
    starts = np.searchsorted(source, np.arange(size + 2)).astype(np.int32)
    matrix = csr_matrix((length, target.astype(np.int32), starts), shape=(size + 1, size + 1))
    found: Floats = dijkstra(matrix, indices=size)[:size]
    return found


def _sums(target: Numbers, values: Numbers, size: int) -> Numbers:
    """Sum of values by target."""
    # Doubles are exact up to 2^53 ns.
    return np.bincount(target, weights=values, minlength=size).astype(np.int64)


def _determining(window: GraphWindow, is_tight: npt.NDArray[np.bool_]) -> Numbers:
    """Of the edges that allow each moment of a window just then, the one that counts; ANCHOR where there is none."""
    tight = np.flatnonzero(is_tight)
    target = window.target[tight]
    order = np.lexsort((-window.source[tight], _PREFERENCE[window.kind[tight]], target))
    chosen = first_of_targets(target, order)
    edge = np.full(len(window), ANCHOR, dtype=np.int64)
    edge[target[chosen]] = window.first_edge + tight[chosen]
    return edge
