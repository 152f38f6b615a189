"""The graph of a run, and passes over it: a replay with other durations, the critical path, and slack.

A graph has moments in the order of time, and edges from lower to higher numbers of moments: nothing depends on what is later.
So a moment is as early as the longest way to it allows, and one loop over all moments gives the times of a replay; one loop
back gives the slack. These loops are compiled by numba where a graph is large. Small graphs take less time than that: for
them the same functions go over lists as they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.intervals import Integers, Mask, Numbers
from nsys2prv.errors import UsageError
from nsys2prv.execution.process import map_ahead
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS

Places = npt.NDArray[np.int32]
"""Numbers of moments, rows, labels or edges."""

REMOVED = -1
"""Weight of an edge that no longer is: it is the only one below 0."""
ANCHOR = -1
"""Edge that determines a moment which no edge ends at: it happens when it was measured."""
FREE, HELD, FOLLOWS = range(3)
"""How early a moment can be, beside what its edges say: at any time; not before it was measured, and later by all that becomes
longer before; earlier than measured by no more than any moment before it is."""
WHOLE = 1 << 62
"""Least weight of an edge that takes as long as was measured, whatever else changes."""
BLOCK = 500_000
"""Edges, or moments, for which temporary columns are made at a time."""
FEWEST_COMPILED = 200_000
"""Rows from which on a loop is compiled: numba takes 1 s to load, and 0.5 s for each loop that is compiled the first time."""


class EdgeKind(IntEnum):
    """What takes the time by which a moment must be before another one, or what it is that the second one waits for. Where
    several edges determine a moment equally, the kind counts that is last here: an order in a stream explains nothing.

    ARRIVAL: from the start of each member of a collective to that of the last one, as none ends before all have arrived; in a
    replay another one may be the last. BLOCKED_CALL: from start to end of a call of a host thread that waits for something
    else, what it takes without the wait. HOST: between two moments of a host thread. STREAM_ORDER: from the end of an operation
    to the start of the next one of its stream, or copy engine. LAUNCH: from the start of a call to that of what it launched.
    STAGING: from the start of a copy to the end of the call that hands its data over, which takes the time of the copy.
    SYNCHRONIZATION: from the end of an operation to that of the call that waited for it. LAUNCH_QUEUE: from the start of an
    operation to the end of a launch that waited for a place in the queue. COLLECTIVE: from the start of the last member of a
    collective to the end of each, what it takes once all are there. EVENT_WAIT: from the end of an operation before a recorded
    event to the start of one on a stream that waits for the event. MESSAGE: from the start of a send to the end of what
    receives it, or the other way round. WAKE_UP: from what a thread does to the end of the wait of another one that it wakes.
    TRANSFER: from start to end of a member of a collective, what it takes once all are there. DEVICE_WORK: from start to end of
    an interval on a device, its duration."""

    ARRIVAL, BLOCKED_CALL, HOST, STREAM_ORDER, LAUNCH, STAGING, SYNCHRONIZATION = range(7)
    LAUNCH_QUEUE, COLLECTIVE, EVENT_WAIT, MESSAGE, WAKE_UP, TRANSFER, DEVICE_WORK = range(7, 14)

    @property
    def text(self) -> str:
        """Its name for people."""
        return {"BLOCKED_CALL": "call", "WAKE_UP": "wake-up"}.get(self.name, self.name.lower().replace("_", " "))


@cache
def _compiled(function: Callable[..., None], with_cache: bool) -> Callable[..., None]:
    import numba

    compiled: Callable[..., None] = numba.njit(cache=with_cache, nogil=True)(function)
    return compiled


def run_loop(function: Callable[..., None], inputs: tuple[Any, ...], outputs: tuple[npt.NDArray[Any], ...]) -> None:
    """Call a function that loops over arrays: compiled where they are long, else on lists. It may use numbers and items of its
    arguments (`inputs`, `outputs`: numbers and arrays) and nothing else, and changes `outputs` alone, whose arrays have the
    results."""
    arrays = [value for value in (*inputs, *outputs) if isinstance(value, np.ndarray)]
    if max(map(len, arrays)) >= FEWEST_COMPILED:
        try:
            _compiled(function, True)(*inputs, *outputs)
        except (RuntimeError, OSError):
            # There is no folder in which compiled code can be kept, or it is full: nothing has run then.
            _compiled(function, False)(*inputs, *outputs)
        return
    results = [values.tolist() for values in outputs]
    function(*(value.tolist() if isinstance(value, np.ndarray) else value for value in inputs), *results)
    for output, values in zip(outputs, results, strict=True):
        output[:] = values


def _replay(
    low: int, high: int, first: Any, source: Any, measured: Any, weight: Any, limit: Any, grown: Any, sums: Any, time: Any,
    edge: Any,
) -> None:  # fmt: skip
    before = first[low]
    for moment in range(low, high):
        latest, last = -1, ANCHOR
        for place in range(first[moment], first[moment + 1]):
            sums[0] += grown[place - before]
            if weight[place - before] != REMOVED:
                allowed = time[source[place]] + weight[place - before]
                # Of several the last one counts.
                if allowed >= latest:
                    latest, last = allowed, place
        earliest = measured[moment]
        if limit[moment] == HELD:
            earliest += sums[0]
        elif limit[moment] == FOLLOWS:
            earliest -= sums[1]
        if last == ANCHOR or (limit[moment] != FREE and latest < earliest):
            latest, last = earliest, ANCHOR
        sums[1] = max(sums[1], measured[moment] - latest)
        time[moment] = latest
        if len(edge):
            edge[moment] = last


def _slack(first: Any, source: Any, weight: Any, time: Any, slack: Any) -> None:
    for moment in range(len(time) - 1, -1, -1):
        for edge in range(first[moment], first[moment + 1]):
            before = source[edge]
            allowed = slack[moment] + time[moment] - time[before] - weight[edge]
            if allowed < slack[before]:
                slack[before] = allowed


def _walk(last: int, source: Any, edge: Any, on_path: Any) -> None:
    moment = last
    while moment >= 0 and edge[moment] >= 0:
        on_path[moment] = 1
        moment = source[edge[moment]]


@dataclass(frozen=True)
class RunGraph:
    """Moments of a run, and what each waits for, with weights with which a replay gives the measured times.

    Moments are columns in the order of `time`, ns from the start of the window: `row` of the trace, and `label`, a place in the
    labels of the run: what the row did until then; -1: nothing that has a name. Edges are in the order of the moments at which
    they end, and of kinds and sources: `first` is the first edge of each moment, and one more at the end, the number of edges;
    `source` the moment where each edge begins; `weight` the time by which that must be before the target at least, ns, never
    more than was measured; `kind` an EdgeKind."""

    time: Numbers
    row: Places
    label: Places
    first: Places
    source: Places
    weight: Numbers
    kind: npt.NDArray[np.int8]

    @cached_property
    def target(self) -> Places:
        """The moment where each edge ends."""
        return np.repeat(np.arange(len(self.time), dtype=np.int32), np.diff(self.first))

    @cached_property
    def receives(self) -> Mask:
        """Which moments are ends of what receives a message."""
        receives = np.zeros(len(self.time), dtype=bool)
        receives[self.of_kind(EdgeKind.MESSAGE).target] = True
        return receives

    def slacks(self) -> Numbers:
        """How much later each moment may be without the run becoming longer, ns: the smallest sum of slacks on any way from the
        moment to one that nothing depends on, and from there to the end."""
        slack: Numbers = self.time.max(initial=0) - self.time
        run_loop(_slack, (self.first, self.source, self.weight, self.time), (slack,))
        return slack

    def of_kind(self, *kinds: EdgeKind) -> "Edges":
        """All edges of some kinds."""
        return Edges(self, np.flatnonzero(np.isin(self.kind, kinds)))


@dataclass(frozen=True)
class Edges:
    """Edges of a graph: columns of equal length.

    `number` are their places in the columns of the graph; of edges that follow each other a slice, and nothing is copied.
    `kind` is an EdgeKind, `weight` that as measured, ns. `source` and `target` are the moments where they begin and end,
    `source_row` and `row` their rows, `begin` and `end` their measured times, ns; `label` is that of the target."""

    graph: RunGraph
    number: Any

    def __len__(self) -> int:
        return len(self.target)

    def only(self, which: slice | Mask) -> "Edges":
        """Some of them."""
        return Edges(self.graph, self.number[which])

    kind = cached_property(lambda edges: edges.graph.kind[edges.number])
    weight = cached_property(lambda edges: edges.graph.weight[edges.number])
    source = cached_property(lambda edges: edges.graph.source[edges.number])
    target = cached_property(lambda edges: edges.graph.target[edges.number])
    begin = cached_property(lambda edges: edges.graph.time[edges.source])
    end = cached_property(lambda edges: edges.graph.time[edges.target])
    source_row = cached_property(lambda edges: edges.graph.row[edges.source])
    row = cached_property(lambda edges: edges.graph.row[edges.target])
    label = cached_property(lambda edges: edges.graph.label[edges.target])


Step = Callable[[Edges, Numbers], Numbers]
"""Gives edges other weights than those so far, ns: 0 or more, REMOVED where an edge no longer is."""
Variant = Callable[[Edges, Numbers, Integers], Numbers]
"""Of all edges of moments that follow each other, with their weights after all changes: weights that are used in their place.
In the last column, of all moments of the graph, it sets how early they can be (FREE, HELD, FOLLOWS); at first all are FREE."""


def as_changed(edges: Edges, weight: Numbers, limit: Integers) -> Numbers:
    """The variant with the changes alone: all moments are free."""
    return weight


@dataclass(frozen=True)
class Replay:
    """A graph with other times: the `time` of each moment, ns, and the `edge` that determines it (ANCHOR: none; empty where it
    was not requested); `growth` is the sum of what edges take longer than measured, and `shrinkage` of what they take less, ns
    (infinite: edges are removed)."""

    graph: RunGraph
    time: Numbers
    edge: Places
    growth: int
    shrinkage: float

    def path(self, last: int) -> Edges:
        """Edges of the critical path to a moment, from the first to the last: each begins where the one before ends."""
        on_path = np.zeros(len(self.time), dtype=np.int8)
        run_loop(_walk, (last, self.graph.source, self.edge), (on_path,))
        return Edges(self.graph, self.edge[np.flatnonzero(on_path)])


def replay(graph: RunGraph, steps: Sequence[Step] = ()) -> Replay:
    """Replay a graph with changes (`steps`), one after the other; errors as of `replays`."""
    return replays(graph, steps)[0]


def replays(
    graph: RunGraph, steps: Sequence[Step], variants: Sequence[Variant] = (as_changed,), *, with_edges: bool = True
) -> list[Replay]:
    """Replay a graph with changes (`steps`), one after the other, in several variants at once: the weights of a block of edges
    are the same for all. A UsageError when all times that become longer add up to more than 104 days."""
    size = len(graph.time)
    results = [
        (np.zeros(2, dtype=np.int64), np.empty_like(graph.time), np.empty(size * with_edges, dtype=np.int32)) for _ in variants
    ]
    limits = np.full((len(variants), size), FREE, dtype=np.int8)
    growth, shrinkage = 0, 0.0

    def changed(moments: tuple[int, int]) -> tuple[tuple[int, int], Numbers, float, list[Numbers]]:
        """Of edges to moments that follow each other how much longer each takes, how much less they take together, and the
        weight of each in each variant."""
        edges = Edges(graph, slice(*graph.first[list(moments)].tolist()))
        weight = edges.weight
        for step in steps:
            weight = step(edges, weight)
        of_variants = [variant(edges, weight, limit) for variant, limit in zip(variants, limits, strict=True)]
        less = np.inf if (weight == REMOVED).any() else float(np.maximum(edges.weight - weight, 0).sum())
        return moments, np.maximum(weight - edges.weight, 0), less, of_variants

    cuts = np.searchsorted(graph.first, np.arange(BLOCK, len(graph.source), BLOCK))
    for moments, grown, less, weights in map_ahead(changed, pairwise(sorted({0, *cuts.tolist(), size}))):
        if growth + grown.sum(dtype=np.float64) > LONGEST_SESSION_NS:
            raise UsageError("with these changes the run would be longer than can be counted (104 days); take smaller factors")
        growth, shrinkage = growth + int(grown.sum()), shrinkage + less
        for weight, limit, outputs in zip(weights, limits, results, strict=True):
            run_loop(_replay, (*moments, graph.first, graph.source, graph.time, weight, limit, grown), outputs)
    return [Replay(graph, time, edge, growth, shrinkage) for _, time, edge in results]
