"""The critical path: from the last moment back over what determined each, to the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph.replay import ANCHOR, Replay
from nsys2prv.efficiency.graph.run_graph import GraphWindow, release, windows_of
from nsys2prv.efficiency.intervals import Numbers

OUTSIDE = -1
"""What is before the places of a chain."""
_DOUBLINGS = 9
"""A chain is gone along in strides of 2^9 places, each found by doubling shorter ones."""


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
    for inside in reversed(windows_of(behind)):
        times = np.asarray(replay.time[inside])
        if rows is not None:
            times = np.where(rows[np.asarray(moments.row[inside])], times, -1)
        # Of several, the one that comes last.
        place = len(times) - 1 - int(np.argmax(times[::-1]))
        if times[place] > latest:
            latest, found = int(times[place]), inside.start + place
        release(replay.time, moments.row)
        if found >= 0 and replay.time is moments.time:
            # Measured times are in order.
            break
    return found


def path_backwards(replay: Replay, last: int, moments_of_window: int | None = None) -> Iterator[PathSteps]:
    """Steps of the path to a moment, in pieces, from the last to the first.

    Steps follow each other without a hole: they end with the moment, and begin where nothing determines a moment.
    """
    for window, taken in edges_backwards(replay, last, moments_of_window):
        source, target = window.source[taken], window.target[taken] + window.first
        begin, end = (np.asarray(replay.time[moments], dtype=np.int64) for moments in (source, target))
        yield PathSteps(begin, end, window.kind[taken], source, target)


def edges_backwards(replay: Replay, last: int, moments_of_window: int | None = None) -> Iterator[tuple[GraphWindow, Numbers]]:
    """Edges of the path to a moment, from the last to the first: windows, and the places of the edges among theirs."""
    moment = last
    beside = [column for column in (replay.time, replay.edges) if column is not None]
    for window in replay.graph.windows_backwards(moments_of_window, beside):
        if moment < window.first:
            continue
        edge = replay.determining(window)
        before = np.full(len(window), OUTSIDE, dtype=np.int32)
        known = np.flatnonzero(edge != ANCHOR)
        before[known] = np.maximum(window.source[edge[known]] - window.first, OUTSIDE)
        visited = chain(before, moment - window.first)
        steps = visited[edge[visited] != ANCHOR]
        taken = edge[steps]
        yield window, taken
        if len(steps) < len(visited):
            return
        moment = int(window.source[taken[-1]])


def chain(before: npt.NDArray[np.int32], last: int) -> Numbers:
    """Places from the last one back, each `before` the one that follows it, up to one that has none before it.

    Parameters
    ----------
    before
        Of each place a lower one; OUTSIDE: none.

    >>> chain(np.array([-1, 0, 0, 2, 1], dtype=np.int32), 3).tolist()
    [3, 2, 0]
    """
    # One more place, behind the others, which is before itself: where those end that have none before them.
    end = len(before)
    steps = np.append(np.where(before == OUTSIDE, end, before), end).astype(np.int32)
    # Each array goes twice as far as the one before it.
    jumps = [steps]
    while len(jumps) <= _DOUBLINGS:
        jumps.append(jumps[-1][jumps[-1]])
    longest = jumps.pop()
    visited = [last]
    while (following := longest.item(visited[-1])) != end:
        visited.append(following)
    # From each place of this coarse way the ones in between, the farthest first.
    found = np.array(visited, dtype=np.int32)
    for jump in reversed(jumps):
        found = np.stack([found, jump[found]], axis=-1).reshape(-1)
    places: Numbers = found[found != end].astype(np.int64)
    return places
