"""How well the times of a replay are known: between which bounds they are, and why.

Two things are not known of some runs. Times of different clocks can be wrong against each other, and so is what an edge between
them takes. And what waits for ranks that are not in the run, or that can't be matched (as sends and receives of more than two
ranks), ends when somebody else lets it: `BuiltGraph.open_ends`.

The run is replayed twice more. In the shorter replay edges between clocks take as much less as these can be wrong, and such
kernels and calls take no time; in the longer one edges take as much more, and such kernels and calls end as if nothing had
become faster. How much longer the ranks take that are not in the run is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph.replay import REMOVED, Change, EdgeKind, Edges, Mask, Replay, replay
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.errors import UsageError, counted

CLOCKS = "times of different clocks can be wrong against each other"
NOT_TYPICAL = "ranks of the run are missing: how long the typical rank takes is not known"
NOT_TIED = "clocks of ranks that wait for each other are not known against each other, or by more than can be counted"

_LONGER = "ranks that are not in the run may take longer, too"
_TIME_OF_CALLS = (
    EdgeKind.DEVICE_WORK, EdgeKind.TRANSFER, EdgeKind.COLLECTIVE, EdgeKind.HOST, EdgeKind.BLOCKED_CALL
)  # fmt: skip
"""What takes the time of kernels and calls that wait."""


@dataclass(frozen=True)
class ReplayBounds:
    """What bounds a replay.

    Attributes
    ----------
    least, most
        The shorter and the longer replay; None: the replay itself is exact, or it is not known.
    reasons
        Why it is not exact; empty: it is.
    is_known
        Whether anything is known: else there are no bounds.
    """

    least: Replay | None
    most: Replay | None
    reasons: tuple[str, ...]
    is_known: bool = True

    @property
    def is_open(self) -> bool:
        """Whether nothing is known of how long it takes at most."""
        return bool(self.reasons) and self.most is None


def replay_bounds(built: BuiltGraph, change: Change) -> ReplayBounds:
    """The bounds of a replay with a change."""
    margin = max((float(_margins(built, edges).max(initial=0.0)) for edges in built.graph.blocks()), default=0.0)
    reasons = [CLOCKS] if margin else []
    if len(built.open_ends):
        unknown = counted(len(built.open_ends), "operation")
        reasons.append(
            f"other members of {unknown} of NCCL or MPI are not in the run, or can't be matched: they may take any time"
        )
    if not np.isfinite(margin):
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    if not reasons:
        return ReplayBounds(None, None, ())

    def shorter(edges: Edges) -> Numbers:
        weight = change(edges)
        less = np.where(_of_open_ends(built, edges), 0, np.maximum(weight - _margins(built, edges), 0))
        return np.where(weight == REMOVED, REMOVED, less).astype(np.int64)

    def longer(edges: Edges) -> Numbers:
        weight = change(edges)
        return np.where(weight == REMOVED, REMOVED, weight + _margins(built, edges)).astype(np.int64)

    if len(built.open_ends) and not built.context.events.has_all_ranks and _is_longer(built, change):
        return ReplayBounds(replay(built.graph, shorter), None, (*reasons, _LONGER))
    try:
        most = replay(built.graph, longer, lambda edges: _of_open_ends(built, edges))
    except UsageError:
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    return ReplayBounds(replay(built.graph, shorter), most, tuple(reasons))


def _is_longer(built: BuiltGraph, change: Change) -> bool:
    """Whether anything takes longer with a change."""
    return any((change(edges) > edges.weight).any() for edges in built.graph.blocks())


def _of_open_ends(built: BuiltGraph, edges: Edges) -> Mask:
    """Which edges are what may have waited for ranks that are not known."""
    if not len(built.open_ends):
        return np.zeros(len(edges), dtype=bool)
    place = np.minimum(np.searchsorted(built.open_ends, edges.target), len(built.open_ends) - 1)
    is_open: Mask = built.open_ends[place] == edges.target
    return is_open & np.isin(edges.kind, _TIME_OF_CALLS)


def _margins(built: BuiltGraph, edges: Edges) -> npt.NDArray[np.float64]:
    """By how much each edge can be wrong because its ends are of different clocks, ns; infinite: not known."""
    context, margins = built.context, np.zeros(len(edges))
    tasks = context.events.rows.task
    source, target = tasks[edges.source_row], tasks[edges.row]
    between = np.flatnonzero(source != target)
    if len(between):
        ends = pl.DataFrame(
            {
                "task": np.concatenate([source[between], target[between]]),
                "time": np.concatenate([edges.begin[between], edges.end[between]]),
                "edge": np.concatenate([between, between]),
            }
        )
        of_ends = context.clocks.with_margins(ends, "time").select(margin_of_group(["edge"])).to_series()
        margins[between] = of_ends.head(len(between)).to_numpy()
    return margins
