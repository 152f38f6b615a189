"""How well the times of a replay are known: between which bounds they are, and why.

Two things are not known of some runs. Times of different clocks can be wrong against each other, and so is what an edge between
them takes. And what waits for ranks that are not in the run, or that can't be matched (as sends and receives of more than two
ranks), ends when somebody else lets it: `BuiltGraph.open_ends`.

The run is replayed twice more. In the shorter replay edges between clocks take as much less as these can be wrong, and such
kernels and calls take no time; in the longer one edges take as much more, and such kernels and calls end as if nothing had
become faster. How much longer the ranks take that are not in the run is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph.replay import REMOVED, EdgeKind, Edges, Replay, Step, changed, replay
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Mask, Numbers
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


def replay_bounds(built: BuiltGraph, steps: Sequence[Step]) -> ReplayBounds:
    """The bounds of a replay with changes."""
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

    less: Step = partial(_shifted, built, -1)
    more: Step = partial(_shifted, built, 1)
    if len(built.open_ends) and not built.context.events.has_all_ranks and _is_longer(built, steps):
        return ReplayBounds(replay(built.graph, [*steps, less]), None, (*reasons, _LONGER))
    try:
        most = replay(built.graph, [*steps, more], partial(_of_open_ends, built))
    except UsageError:
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    return ReplayBounds(replay(built.graph, [*steps, less]), most, tuple(reasons))


def _shifted(built: BuiltGraph, sign: int, edges: Edges, weight: Numbers) -> Numbers:
    """Weights, less or more what clocks can be wrong; at least what is open takes no time."""
    is_open = _of_open_ends(built, edges) & (sign < 0)
    wrong = np.where(is_open, 0, np.maximum(weight + sign * _margins(built, edges), 0))
    return np.where(weight == REMOVED, REMOVED, wrong).astype(np.int64)


def _is_longer(built: BuiltGraph, steps: Sequence[Step]) -> bool:
    """Whether anything takes longer with changes."""
    return any((changed(edges, steps) > edges.weight).any() for edges in built.graph.blocks())


def _of_open_ends(built: BuiltGraph, edges: Edges) -> Mask:
    """Which edges are what may have waited for ranks that are not known."""
    return np.isin(edges.target, built.open_ends) & np.isin(edges.kind, _TIME_OF_CALLS)


def _margins(built: BuiltGraph, edges: Edges) -> npt.NDArray[np.float64]:
    """By how much each edge can be wrong because its ends are of different clocks, ns; infinite: not known."""
    context, margins = built.context, np.zeros(len(edges))
    tasks = context.events.rows.task
    task, time = np.stack([tasks[edges.source_row], tasks[edges.row]]), np.stack([edges.begin, edges.end])
    between = np.flatnonzero(task[0] != task[1])
    if len(between):
        ends = {"task": task[:, between].ravel(), "time": time[:, between].ravel(), "edge": np.tile(between, 2)}
        of_ends = context.clocks.with_margins(pl.DataFrame(ends), "time").select(margin_of_group(["edge"])).to_series()
        margins[between] = of_ends.head(len(between)).to_numpy()
    return margins
