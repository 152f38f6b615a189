"""Slack: how much later each moment may be without the run becoming longer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nsys2prv.efficiency.graph.replay import shortest
from nsys2prv.efficiency.graph.run_graph import MOMENTS_OF_WINDOW, Column, RunGraph, first_of_targets, new_column


def slacks(graph: RunGraph, folder: Path | None = None, moments_of_window: int = MOMENTS_OF_WINDOW) -> Column:
    """Slack of each moment of a settled graph with its measured times, ns.

    It is the smallest sum of slacks on any way from the moment to one that nothing depends on, and from there to the end. The
    shortest ways are found backwards, in windows from last to first; `folder` is where the column is written.
    """
    found = new_column(folder, "slack", len(graph.moments))
    if not len(found):
        return found
    end = int(graph.moments.time[-1])
    for window in graph.windows(moments_of_window, [found]):
        found[window.first : window.behind] = end - window.time
    for window in graph.windows_backwards(moments_of_window, [found]):
        slack = window.time[window.target] - window.source_time - window.weight
        inside = window.is_inside
        entry = np.asarray(found[window.first : window.behind], dtype=np.float64)
        of_window = shortest(
            window.target[inside], window.source[inside] - window.first, slack[inside].astype(np.float64), entry
        ).astype(np.int64)
        found[window.first : window.behind] = of_window
        # What moments before the window are allowed by those inside.
        source = window.source[~inside]
        allowed = of_window[window.target[~inside]] + slack[~inside]
        least = first_of_targets(source, np.lexsort((allowed, source)))
        found[source[least]] = np.minimum(found[source[least]], allowed[least])
    return found
