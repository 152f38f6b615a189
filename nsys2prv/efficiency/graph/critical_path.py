"""The critical path: from the last moment back over what determined each, to the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph.replay import ANCHOR, Replay
from nsys2prv.efficiency.graph.run_graph import MOMENTS_OF_WINDOW, release
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
        release(replay.time, moments.row)
    return found


def path_backwards(replay: Replay, last: int, moments_of_window: int = MOMENTS_OF_WINDOW) -> Iterator[PathSteps]:
    """Steps of the path to a moment, in pieces, from the last to the first.

    Steps follow each other without a hole: they end with the moment, and begin where nothing determines a moment.
    """
    moment = last
    for window in replay.graph.windows_backwards(moments_of_window, [replay.time]):
        if moment < window.first:
            continue
        edge = replay.determining(window)
        visited = _chain(window.source, edge, window.first, moment)
        steps = visited[edge[visited] != ANCHOR]
        taken = edge[steps]
        source = window.source[taken]
        begin, end = (np.asarray(replay.time[moments], dtype=np.int64) for moments in (source, steps + window.first))
        yield PathSteps(begin, end, window.kind[taken], source, steps + window.first)
        if len(steps) < len(visited):
            return
        moment = int(source[-1])


def _chain(source: Numbers, edge: Numbers, first: int, last: int) -> Numbers:
    """The moments of a window, whose first one is `first`, on the path to the moment `last`, from it backwards; their places in
    the window. `edge` determines each moment, `source` has the sources of edges.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import breadth_first_order

    known = np.flatnonzero(edge != ANCHOR)
    before = np.full(len(edge), -1, dtype=np.int64)
    before[known] = source[edge[known]] - first
    is_inside = before >= 0
    starts = np.concatenate([[0], np.cumsum(is_inside)])
    matrix = csr_matrix((np.ones(starts[-1]), before[is_inside], starts), shape=(len(edge), len(edge)))
    order = breadth_first_order(matrix, last - first, return_predecessors=False)
    return np.asarray(order, dtype=np.int64)
