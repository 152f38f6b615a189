"""The critical path: from the last moment back over what determined each, to the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph.replay import ANCHOR, Replay
from nsys2prv.efficiency.graph.run_graph import MOMENTS_OF_WINDOW, Column, GraphWindow
from nsys2prv.efficiency.intervals import Numbers


@dataclass(frozen=True)
class PathSteps:
    """Steps of the critical path, from the last to the first: columns of equal length.

    Attributes
    ----------
    begin, end
        Time of the step in the replay, ns.
    kind
        Of the edge: one of `edge_kinds`.
    source, target
        Moments.
    """

    begin: Numbers
    end: Numbers
    kind: Numbers
    source: Numbers
    target: Numbers

    def __len__(self) -> int:
        return len(self.begin)


def last_moment(replay: Replay, rows: npt.NDArray[np.bool_] | None = None, until: int | None = None) -> int:
    """The moment that is last in a replay, of some rows (None: all) and of those measured until a time; -1: there is none."""
    moments = replay.graph.moments
    behind = len(moments) if until is None else int(np.searchsorted(moments.time, until, side="right"))
    latest, found = -1, -1
    for first in range(0, behind, MOMENTS_OF_WINDOW):
        inside = slice(first, min(first + MOMENTS_OF_WINDOW, behind))
        times = np.asarray(replay.time[inside])
        if rows is not None:
            times = np.where(rows[np.asarray(moments.row[inside])], times, -1)
        # Of several, the one that comes last.
        place = len(times) - 1 - int(np.argmax(times[::-1]))
        if times[place] >= max(latest, 0):
            latest, found = int(times[place]), first + place
    return found


def path_backwards(replay: Replay, last: int, moments_of_window: int = MOMENTS_OF_WINDOW) -> Iterator[PathSteps]:
    """Steps of the path to a moment, in pieces, from the last to the first.

    Steps follow each other without a hole: they end with the moment, and begin where nothing determines a moment.
    """
    moment = last
    for window in replay.graph.windows_backwards(moments_of_window, [replay.time, replay.edge]):
        if moment < window.first:
            continue
        visited = _chain(window, replay.edge, moment)
        edges = replay.edge[visited]
        steps = visited[edges != ANCHOR]
        taken = edges[edges != ANCHOR]
        source = np.asarray(replay.graph.edges.source[taken], dtype=np.int64)
        kind = np.asarray(replay.graph.edges.kind[taken], dtype=np.int64)
        begin, end = (np.asarray(replay.time[moments], dtype=np.int64) for moments in (source, steps))
        yield PathSteps(begin, end, kind, source, steps)
        if len(steps) < len(visited):
            return
        moment = int(source[-1])


def _chain(window: GraphWindow, determined_by: Column, last: int) -> Numbers:
    """The moments of a window on the path to one of them, from it backwards."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    edge = np.asarray(determined_by[window.first : window.behind])
    known = np.flatnonzero((edge != ANCHOR) & (np.arange(len(window)) <= last - window.first))
    source = window.source[edge[known] - window.first_edge] - window.first
    inside = source >= 0
    size = len(window)
    matrix = csr_matrix((np.ones(int(inside.sum())), (known[inside], source[inside])), shape=(size, size))
    order = breadth_first_order(matrix, last - window.first, return_predecessors=False)
    return np.asarray(order, dtype=np.int64) + window.first
