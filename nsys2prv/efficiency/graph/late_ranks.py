"""A run without late ranks: each collective starts when its typical member arrives.

What a rank does by itself is what it would do if it never waited for others: the graph is replayed without these waits. Its own
time for a collective is from its former arrival at one to this arrival. The typical member is the median one (of an even number
the earlier of the two in the middle). Of a rank that takes longer, what delayed its arrival takes less time: the edges that
determine when it arrives, all by one share, so that it takes as long as the typical member. Ranks that take less still wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.changes import Step, combined
from nsys2prv.efficiency.graph.replay import REMOVED, Replay, replay
from nsys2prv.efficiency.graph.run_graph import GraphWindow
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.nccl_stats import is_point_to_point

_MOST_PASSES = 8
"""Where a rank is late for two reasons at once, or waits for messages of a late one, that shows when the first is gone."""
_LEAST_LESS = 0.001
"""Passes end when all that is found takes less time than this part of the run."""
_NOT_OWN = (edge_kinds.TRANSFER, edge_kinds.COLLECTIVE, edge_kinds.ARRIVAL, edge_kinds.MESSAGE)
_OF_ALL = (edge_kinds.ARRIVAL, edge_kinds.COLLECTIVE)


def no_late_ranks(
    built: BuiltGraph, former: list[Step], folder: Path | None = None, tasks: Sequence[int] | None = None
) -> Step:
    """Collectives start when their typical member arrives.

    Parameters
    ----------
    former
        Changes that are made before.
    folder
        For files of the replays without waits; None: they stay in memory.
    tasks
        Only these become as fast as the typical member; None: all.
    """
    arrivals = _arrivals(built)
    less = _Less(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    if arrivals.is_empty():
        return less.step
    for _ in range(_MOST_PASSES):
        alone = replay(built.graph, combined([*former, less.step, _without_waits]), folder, keep_edges=True)
        found = _reductions(built, alone, arrivals, tasks)
        less = less.plus(found)
        if int(found["less"].sum()) <= _LEAST_LESS * built.context.events.length:
            break
    return less.step


def _without_waits(window: GraphWindow, weight: Numbers) -> Numbers:
    """No member of a collective waits for another one."""
    return np.where(np.isin(window.kind, _OF_ALL), REMOVED, weight)


class _Less:
    """Edges, in order, that take less time by some ns."""

    def __init__(self, edge: Numbers, less: Numbers) -> None:
        self._edge, self._less = edge, less

    def plus(self, found: pl.DataFrame) -> _Less:
        """With further reductions: columns `edge`, `less`."""
        both = pl.concat([pl.DataFrame({"edge": self._edge, "less": self._less}), found])
        summed = both.group_by("edge").agg(pl.col("less").sum()).sort("edge")
        return _Less(summed["edge"].to_numpy(), summed["less"].to_numpy())

    def step(self, window: GraphWindow, weight: Numbers) -> Numbers:
        """The change of a window."""
        if not len(self._edge):
            return weight
        place = np.minimum(np.searchsorted(self._edge, window.number), len(self._edge) - 1)
        less = np.where(self._edge[place] == window.number, self._less[place], 0)
        # Times of replays are whole ns.
        return np.where(weight == REMOVED, REMOVED, np.maximum(weight - less, 0))


def _arrivals(built: BuiltGraph) -> pl.DataFrame:
    """Members of collectives that wait for all others: `moment` (start of the member), `hub` (that of the last one), `task`."""
    found = [pl.DataFrame(schema={"moment": pl.Int64, "hub": pl.Int64})]
    own = [pl.DataFrame(schema={"moment": pl.Int64, "label": pl.Int64, "task": pl.Int64})]
    tasks = built.context.events.rows.task
    for window in built.graph.windows():
        arrival, transfer = (np.flatnonzero(window.kind == kind) for kind in (edge_kinds.ARRIVAL, edge_kinds.TRANSFER))
        hub = window.target[arrival] + window.first
        found.append(pl.DataFrame({"moment": window.source[arrival], "hub": hub}))
        label = window.label[window.target[transfer]]
        task = tasks[window.row[window.target[transfer]]]
        own.append(pl.DataFrame({"moment": window.source[transfer], "label": label, "task": task}))
    members = pl.concat(found)
    members = pl.concat([members, members.select("hub", moment="hub").unique().select("moment", "hub")])
    # Who receives waits for what is sent, which is no matter of being late.
    sends = np.flatnonzero(built.labels.names().to_frame("name").select(is_point_to_point(pl.col("name"))).to_series())
    labelled = pl.concat(own).unique("moment", keep="any")
    return members.join(labelled, on="moment").filter(~pl.col("label").is_in(sends.tolist())).drop("label")


def _reductions(built: BuiltGraph, alone: Replay, arrivals: pl.DataFrame, tasks: Sequence[int] | None) -> pl.DataFrame:
    """Edges that take less time: columns `edge`, `less` (ns).

    Parameters
    ----------
    alone
        The run in which no member waits.
    """
    moments = arrivals["moment"].to_numpy()
    timed = arrivals.with_columns(time=pl.Series(np.asarray(alone.time[moments], dtype=np.int64))).sort(
        "task", "time", "moment"
    )
    timed = timed.with_columns(since=pl.col("time").shift(fill_value=0).over("task"))
    own = pl.col("time") - pl.col("since")
    typical = own.quantile(0.5, interpolation="lower").over("hub").cast(pl.Int64)
    late = timed.with_columns(own=own, excess=own - typical).filter(pl.col("excess") > 0)
    if tasks is not None:
        late = late.filter(pl.col("task").is_in(list(tasks)))
    ways = _ways(built, alone, late)
    # What took the time of each way, without what belongs to others, is shorter by one share of it.
    kind = np.asarray(built.graph.edges.kind[ways["edge"].to_numpy()], dtype=np.int64)
    ways = ways.filter(pl.Series(~np.isin(kind, _NOT_OWN)))
    whole = pl.col("length").sum().over("way")
    share = pl.min_horizontal(pl.col("excess") / whole, 1.0)
    less = ways.with_columns(less=(pl.col("length") * share).floor().cast(pl.Int64))
    return less.group_by("edge").agg(pl.col("less").sum()).filter(pl.col("less") > 0)


def _ways(built: BuiltGraph, alone: Replay, late: pl.DataFrame) -> pl.DataFrame:
    """What determined when each late rank arrived, back to its former arrival: `way` (place in `late`), `edge`, `length` (ns of
    the way that the edge takes), `excess` (of the way)."""
    graph, tasks = built.graph, built.context.events.rows.task
    since, task = late["since"].to_numpy(), late["task"].to_numpy()
    way = np.arange(late.height)
    moment = late["moment"].to_numpy()
    found = [pl.DataFrame(schema={"way": pl.Int64, "edge": pl.Int64, "length": pl.Int64})]
    # A round for each edge of the longest way; all ways at once.
    while len(way):
        edge = alone.edges_of(moment)
        known = edge >= 0
        way, moment, edge = way[known], moment[known], edge[known]
        source = np.asarray(graph.edges.source[edge], dtype=np.int64)
        begin = np.asarray(alone.time[source], dtype=np.int64)
        length = np.asarray(alone.time[moment], dtype=np.int64) - np.maximum(begin, since[way])
        found.append(pl.DataFrame({"way": way, "edge": edge, "length": length}))
        goes_on = (begin > since[way]) & (tasks[np.asarray(graph.moments.row[source], dtype=np.int64)] == task[way])
        way, moment = way[goes_on], source[goes_on]
    return pl.concat(found).with_columns(excess=late["excess"].gather(pl.concat(found)["way"]))
