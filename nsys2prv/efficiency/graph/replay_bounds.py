"""How well the times of a replay are known: between which bounds they are, and why.

Two things are not known of some runs. Times of different clocks can be wrong against each other, and so is what an edge between
them takes. And kernels of a collective whose other members are not in the run, or can't be matched (as sends and receives of
more than two ranks), end when somebody else lets them.

The run is replayed twice more. In the shorter replay edges between clocks take as much less as these can be wrong, and such
kernels take no time; in the longer one edges take as much more, and such kernels end as if nothing had become faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.replay import REMOVED, Change, Replay, replay
from nsys2prv.efficiency.graph.run_graph import GraphWindow
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.task_clocks import margin_of_group
from nsys2prv.errors import UsageError, counted
from nsys2prv.execution.scratch import make_folder
from nsys2prv.vocabulary import event_types

CLOCKS = "times of different clocks can be wrong against each other"
NOT_TIED = "clocks of ranks that wait for each other are not known against each other, or by more than can be counted"

Margins = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReplayBounds:
    """What bounds a replay.

    Attributes
    ----------
    least, most
        The shorter and the longer replay; None: the replay itself is exact, or nothing is known.
    reasons
        Why it is not exact; empty: it is.
    is_known
        Whether anything is known: else there are no bounds.
    """

    least: Replay | None
    most: Replay | None
    reasons: tuple[str, ...]
    is_known: bool = True


def replay_bounds(built: BuiltGraph, change: Change, folder: Path) -> ReplayBounds:
    """The bounds of a replay with a change; files are written to a folder."""
    margin, unmatched = _uncertain(built)
    reasons = []
    if margin:
        reasons.append(CLOCKS)
    if unmatched:
        kernels = counted(unmatched, "NCCL kernel")
        reasons.append(f"the other members of {kernels} are not in the run, or can't be matched: they may take any time")
    if not np.isfinite(margin):
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    if not reasons:
        return ReplayBounds(None, None, ())

    def shorter(window: GraphWindow) -> Numbers:
        weight = change(window)
        less = np.where(_of_unmatched(built, window), 0, np.maximum(weight - _margins(built, window), 0))
        return np.where(weight == REMOVED, REMOVED, less).astype(np.int64)

    def longer(window: GraphWindow) -> Numbers:
        weight = change(window)
        return np.where(weight == REMOVED, REMOVED, weight + _margins(built, window)).astype(np.int64)

    def held(window: GraphWindow) -> Numbers:
        return window.target[_of_unmatched(built, window)]

    folders = [folder / name for name in ("shorter", "longer")]
    for one in folders:
        make_folder(one)
    try:
        most = replay(built.graph, longer, folders[1], held=held)
    except UsageError:
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    return ReplayBounds(replay(built.graph, shorter, folders[0]), most, tuple(reasons))


def _uncertain(built: BuiltGraph) -> tuple[float, int]:
    """By how much edges between clocks can be wrong at most, ns, and the number of kernels whose collectives are not known."""
    margin, unmatched = 0.0, 0
    for window in built.graph.windows():
        margin = max(margin, float(_margins(built, window).max(initial=0.0)))
        unmatched += int(_of_unmatched(built, window).sum())
    return margin, unmatched


def _of_unmatched(built: BuiltGraph, window: GraphWindow) -> npt.NDArray[np.bool_]:
    """Which edges are NCCL kernels whose other members are not known."""
    of_nccl = np.append(built.labels.is_of(event_types.NCCL_KERNEL), [False])
    found: npt.NDArray[np.bool_] = (window.kind == edge_kinds.DEVICE_WORK) & of_nccl[window.label[window.target]]
    return found


def _margins(built: BuiltGraph, window: GraphWindow) -> Margins:
    """By how much each edge of a window can be wrong because its ends are of different clocks, ns; infinite: not known."""
    context = built.context
    tasks = context.events.rows.task
    source, target = tasks[window.source_row], tasks[window.row[window.target]]
    found = np.zeros(len(source))
    between = np.flatnonzero(source != target)
    if not len(between):
        return found
    ends = pl.DataFrame(
        {
            "task": np.concatenate([source[between], target[between]]),
            "time": np.concatenate([window.source_time[between], window.time[window.target[between]]]),
            "edge": np.concatenate([between, between]),
        }
    )
    margins = context.clocks.with_margins(ends, "time").select(margin_of_group(["edge"])).to_series()
    found[between] = margins.head(len(between)).to_numpy()
    return found
