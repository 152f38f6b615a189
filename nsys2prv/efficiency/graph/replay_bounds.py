"""How well the times of a replay are known: between which bounds they are, and why.

Two things are not known of some runs. Times of different clocks can be wrong against each other, and so is what an edge between
them takes. And what waits for ranks that are not in the run, or that can't be matched (as sends and receives of more than two
ranks), ends when somebody else lets it: `open_ends`.

The run is replayed twice more. In the shorter replay edges between clocks take as much less as these can be wrong, and such
kernels and calls take no time; in the longer one edges take as much more, and such kernels and calls end as if nothing had
become faster. How much longer the ranks take that are not in the run is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.replay import REMOVED, Change, Replay, replay
from nsys2prv.efficiency.graph.run_graph import GraphWindow
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.errors import UsageError, counted
from nsys2prv.execution.scratch import make_folder

CLOCKS = "times of different clocks can be wrong against each other"
NOT_TYPICAL = "ranks of the run are missing: how long the typical rank takes is not known"
NOT_TIED = "clocks of ranks that wait for each other are not known against each other, or by more than can be counted"

_LONGER = "ranks that are not in the run may take longer, too"
_OWN_TIME = (
    edge_kinds.DEVICE_WORK, edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.HOST, edge_kinds.BLOCKED_CALL
)  # fmt: skip
"""What takes the time of kernels and calls that wait."""

Margins = npt.NDArray[np.float64]


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


def replay_bounds(built: BuiltGraph, change: Change, folder: Path) -> ReplayBounds:
    """The bounds of a replay with a change; files are written to a folder."""
    margin = _largest_margin(built)
    reasons = []
    if margin:
        reasons.append(CLOCKS)
    if len(built.open_ends):
        reasons.append(unknown_members(built))
    if not np.isfinite(margin):
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    if not reasons:
        return ReplayBounds(None, None, ())

    def shorter(window: GraphWindow) -> Numbers:
        weight = change(window)
        less = np.where(_of_open_ends(built, window), 0, np.maximum(weight - _margins(built, window), 0))
        return np.where(weight == REMOVED, REMOVED, less).astype(np.int64)

    def longer(window: GraphWindow) -> Numbers:
        weight = change(window)
        return np.where(weight == REMOVED, REMOVED, weight + _margins(built, window)).astype(np.int64)

    def held(window: GraphWindow) -> Numbers:
        return window.target[_of_open_ends(built, window)]

    folders = [folder / name for name in ("shorter", "longer")]
    for one in folders:
        make_folder(one)
    if len(built.open_ends) and not built.context.events.has_all_ranks and _is_longer(built, change):
        return ReplayBounds(replay(built.graph, shorter, folders[0]), None, (*reasons, _LONGER))
    try:
        most = replay(built.graph, longer, folders[1], held=held)
    except UsageError:
        return ReplayBounds(None, None, (NOT_TIED, *reasons[1:]), is_known=False)
    return ReplayBounds(replay(built.graph, shorter, folders[0]), most, tuple(reasons))


def unknown_members(built: BuiltGraph) -> str:
    """That other members of collectives and messages are not known."""
    unknown = counted(len(built.open_ends), "operation")
    return f"other members of {unknown} of NCCL or MPI are not in the run, or can't be matched: they may take any time"


def _largest_margin(built: BuiltGraph) -> float:
    """By how much edges between clocks can be wrong at most, ns."""
    return max((float(_margins(built, window).max(initial=0.0)) for window in built.graph.windows()), default=0.0)


def _is_longer(built: BuiltGraph, change: Change) -> bool:
    """Whether anything takes longer with a change."""
    return any((change(window) > window.weight).any() for window in built.graph.windows())


def _of_open_ends(built: BuiltGraph, window: GraphWindow) -> npt.NDArray[np.bool_]:
    """Which edges are what may have waited for ranks that are not known."""
    low, high = np.searchsorted(built.open_ends, [window.first, window.behind])
    is_open = np.zeros(len(window), dtype=bool)
    is_open[built.open_ends[low:high] - window.first] = True
    found: npt.NDArray[np.bool_] = is_open[window.target] & np.isin(window.kind, _OWN_TIME)
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
