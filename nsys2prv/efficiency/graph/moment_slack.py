"""Slack: how much later each moment may be without the run becoming longer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nsys2prv.efficiency.graph.replay import shortest
from nsys2prv.efficiency.graph.run_graph import GraphWindow, RunGraph
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.threads import map_ahead


def slacks(graph: RunGraph, moments_of_window: int | None = None) -> Iterator[tuple[GraphWindow, Numbers]]:
    """Windows of a settled graph with its measured times, from last to first, with the slack of each moment, ns.

    It is the smallest sum of slacks on any way from the moment to one that nothing depends on, and from there to the end.
    """
    end = int(graph.moments.time[-1]) if len(graph.moments) else 0
    # Moments that are depended on in later windows, and how much later these allow them to be.
    awaited: Numbers = np.zeros(0, dtype=np.int64)
    allowed: Numbers = awaited

    def of_edges(window: GraphWindow) -> tuple[GraphWindow, Numbers]:
        return window, window.time[window.target] - window.source_time - window.weight

    for window, slack in map_ahead(of_edges, graph.windows_backwards(moments_of_window), most=1):
        inside, outside = window.is_inside, ~window.is_inside
        source = window.source[inside] - window.first
        # Others have no more slack than what depends on them.
        is_last = np.bincount(source, minlength=len(window)) == 0
        entry = np.where(is_last, end - window.time, np.inf)
        here = awaited >= window.first
        np.minimum.at(entry, awaited[here] - window.first, allowed[here])
        found = shortest(source, window.target[inside], slack[inside].astype(np.float64), entry, backwards=True).astype(
            np.int64
        )
        yield window, found
        awaited = np.concatenate([awaited[~here], window.source[outside]])
        allowed = np.concatenate([allowed[~here], (found[window.target] + slack)[outside]])
