"""How much shorter a run is with each of some changes of its graph.

No run gets shorter by more than its critical path does: this bound needs no replay. Where it is not negligible, the graph is
replayed with the change. A graph does not know everything: what the path spends in waits of unknown cause may vanish, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.changes import Step, combined
from nsys2prv.efficiency.graph.critical_path import edges_backwards
from nsys2prv.efficiency.graph.path_segments import PathReader
from nsys2prv.efficiency.graph.path_totals import PathTotals
from nsys2prv.efficiency.graph.replay import REMOVED, Replay, replay
from nsys2prv.execution.threads import Stop, run_all

MOST_MOMENTS = 20_000_000
"""Moments that are replayed, of all changes together: some 20 s."""
_BETWEEN_TASKS = (edge_kinds.ARRIVAL, edge_kinds.COLLECTIVE, edge_kinds.MESSAGE)
UNBOUNDED = 1 << 62
"""Bound of a change that removes an edge of the critical path: then another path counts, of which nothing is known."""


@dataclass(frozen=True)
class Gain:
    """By how much a run is shorter with a change.

    Attributes
    ----------
    saved
        In a replay, or the bound of the critical path, ns.
    unexplained
        Time of the path that stays which is a wait of unknown cause, ns: it may be saved as well.
    is_replayed
        Whether it was replayed.
    """

    saved: int
    unexplained: int
    is_replayed: bool


@dataclass(frozen=True)
class MeasuredGraph:
    """The graph of a run with its measured critical path.

    Attributes
    ----------
    measured
        The replay without a change.
    totals
        Of its critical path.
    folder
        For files of replays.
    """

    built: BuiltGraph
    measured: Replay
    totals: PathTotals
    folder: Path

    @property
    def joins_tasks(self) -> bool:
        """Whether anything that a task does waits for another one: collectives and messages."""
        return not self.built.kinds.isdisjoint(_BETWEEN_TASKS)

    def gains(self, steps: Sequence[Step], least: int) -> list[Gain]:
        """What each change alone gains; what gains less than `least`, or is too much to replay, has its bound.

        Those with the largest bounds are replayed.
        """
        if not steps:
            return []
        unexplained = self.totals.unexplained(self.built.counted_rows)
        bounds = [max(min(bound, self.built.context.events.length), 0) for bound in self._bounds(steps)]
        found = [Gain(bound, unexplained, False) for bound in bounds]
        order = sorted(range(len(steps)), key=lambda place: -bounds[place])
        few = order[: MOST_MOMENTS // max(len(self.built.graph.moments), 1)]
        chosen = [place for place in few if bounds[place] + unexplained >= least]
        for place, gain in zip(chosen, run_all(partial(self._replayed, steps[place]) for place in chosen), strict=True):
            found[place] = gain
        return found

    def _bounds(self, steps: Sequence[Step]) -> list[int]:
        """By how much the critical path is shorter with each change."""
        bounds = [0] * len(steps)
        last = PathReader(self.built, self.measured).last
        for window, taken in edges_backwards(self.measured, last) if last >= 0 else ():
            path = window.only(taken)
            for place, step in enumerate(steps):
                changed = step(path, path.weight)
                shorter = int((path.weight - changed).sum())
                bounds[place] += UNBOUNDED if (changed == REMOVED).any() else shorter
        return bounds

    def _replayed(self, step: Step, stop: Stop) -> Gain:
        stop.check()
        # Several are replayed at once.
        with tempfile.TemporaryDirectory(prefix="replay-", dir=self.folder) as folder:
            reader = PathReader(self.built, replay(self.built.graph, combined([step]), Path(folder), keep_edges=True))
            totals = PathTotals()
            for piece in reader.segments():
                totals.add(piece)
        saved = self.built.context.events.length - reader.length
        return Gain(max(saved, 0), totals.unexplained(self.built.counted_rows), True)
