"""The graph of a run as columns: moments in the order of time, and edges between them.

Moments and edges are numbered by their places. An edge goes from a lower to a higher number: nothing depends on what is later.
The columns may be files that are mapped into memory: everything reads them in windows of moments, one after the other.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution import memory
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.execution.threads import map_ahead

_MOMENTS_OF_WINDOW = 200_000
"""Moments that are worked on at once where memory is not short."""
NO_NUMBER = -1
"""Number of the edges of a window that has only some of them."""
WHOLE = 1 << 62
"""Least weight of an edge that takes as long as was measured, whatever else changes."""

Column = npt.NDArray[Any]

_PREFERENCE = np.array(edge_kinds.PREFERENCE, dtype=np.int64)


@dataclass(frozen=True)
class Moments:
    """Points of time on rows: a row per moment, in the order of time.

    Attributes
    ----------
    time
        ns from the start of the trace; never smaller than the one before.
    row
        Row of the trace.
    label
        Place in the labels of the run: what the row did until this moment; -1: nothing that has a name.
    """

    time: Column
    row: Column
    label: Column

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class Edges:
    """Edges in the order of their targets; at one target those come later that count rather (`edge_kinds.PREFERENCE`).

    Attributes
    ----------
    source, target
        Moments; the source is the lower number.
    weight
        Time by which the source must be before the target at least, ns: never more than was measured.
    kind
        One of `edge_kinds`.
    """

    source: Column
    target: Column
    weight: Column
    kind: Column

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class RunGraph:
    """Moments and edges of a run; `settle` gives edges their weights."""

    moments: Moments
    edges: Edges

    def windows(self, moments_of_window: int | None = None, beside: Sequence[Column] = ()) -> Iterator[GraphWindow]:
        """All moments with the edges that end at them, in windows, from first to last.

        Windows have so many moments (None: as many as the memory allows); nothing depends on it.

        Files of the graph, and those of columns that are read or written `beside` it, take memory for one window at a time.
        """
        for inside in windows_of(len(self.moments), moments_of_window):
            yield self.window(inside.start, inside.stop)
            self._release(beside)

    def windows_backwards(self, moments_of_window: int | None = None, beside: Sequence[Column] = ()) -> Iterator[GraphWindow]:
        """The same windows from last to first."""
        for inside in reversed(windows_of(len(self.moments), moments_of_window)):
            yield self.window(inside.start, inside.stop)
            self._release(beside)

    def _release(self, beside: Sequence[Column]) -> None:
        moments, edges = self.moments, self.edges
        release(moments.time, moments.row, moments.label, edges.source, edges.target, edges.weight, edges.kind, *beside)

    def window(self, first: int, behind: int) -> GraphWindow:
        """The moments from `first` to before `behind`, and the edges that end at them."""
        low, high = np.searchsorted(self.edges.target, [first, behind]).tolist()
        return GraphWindow(self, first, behind, low, high)


@dataclass(frozen=True)
class GraphWindow:
    """Some moments that follow each other, and the edges that end at them.

    Attributes
    ----------
    first, behind
        The first moment, and the one after the last.
    first_edge, behind_edge
        Likewise, of edges.
    """

    graph: RunGraph
    first: int
    behind: int
    first_edge: int
    behind_edge: int

    def __len__(self) -> int:
        return self.behind - self.first

    @cached_property
    def time(self) -> Numbers:
        """Time of each moment."""
        return _loaded(self.graph.moments.time[self.first : self.behind])

    @cached_property
    def row(self) -> Numbers:
        """Row of each moment."""
        return _loaded(self.graph.moments.row[self.first : self.behind])

    @cached_property
    def label(self) -> Numbers:
        """Label of each moment."""
        return _loaded(self.graph.moments.label[self.first : self.behind])

    @cached_property
    def source(self) -> Numbers:
        """Source of each edge, a number of all moments."""
        return _loaded(self.graph.edges.source[self.first_edge : self.behind_edge])

    @cached_property
    def target(self) -> Numbers:
        """Target of each edge, counted from the first moment of the window."""
        return _loaded(self.graph.edges.target[self.first_edge : self.behind_edge]) - self.first

    @cached_property
    def weight(self) -> Numbers:
        """Weight of each edge, ns."""
        return _loaded(self.graph.edges.weight[self.first_edge : self.behind_edge])

    @cached_property
    def kind(self) -> Numbers:
        """Kind of each edge."""
        return _loaded(self.graph.edges.kind[self.first_edge : self.behind_edge])

    @cached_property
    def source_time(self) -> Numbers:
        """Time of the source of each edge."""
        return self.of_sources(self.graph.moments.time, self.time)

    @cached_property
    def source_row(self) -> Numbers:
        """Row of the source of each edge."""
        return self.of_sources(self.graph.moments.row, self.row)

    @cached_property
    def is_inside(self) -> npt.NDArray[np.bool_]:
        """Whether the source of each edge is a moment of this window."""
        inside: npt.NDArray[np.bool_] = self.source >= self.first
        return inside

    @cached_property
    def number(self) -> Numbers:
        """Number of each edge among all of the graph."""
        return np.arange(self.first_edge, self.behind_edge, dtype=np.int64)

    def of_sources(self, column: Column, inside: Numbers) -> Numbers:
        """Values of a column of all moments at the sources of the edges; `inside` has those of this window."""
        place = self.source - self.first
        found: Numbers = np.asarray(inside[np.maximum(place, 0)], dtype=np.int64)
        outside = np.flatnonzero(place < 0)
        found[outside] = column[self.source[outside]]
        return found

    def only(self, edges: Numbers) -> GraphWindow:
        """The same moments with some of the edges (places among those of the window): they do not follow each other."""
        chosen = replace(self, first_edge=NO_NUMBER, behind_edge=NO_NUMBER)
        columns = ("number", "source", "target", "weight", "kind", "source_time", "source_row")
        vars(chosen).update({name: getattr(self, name)[edges] for name in columns})
        vars(chosen).update({name: getattr(self, name) for name in ("time", "row", "label")})
        return chosen


def windows_of(moments: int, moments_of_window: int | None = None) -> list[slice]:
    """So many moments in windows, each of so many (None: as many as the memory allows)."""
    size = memory.scaled(_MOMENTS_OF_WINDOW) if moments_of_window is None else moments_of_window
    return [slice(first, min(first + size, moments)) for first in range(0, moments, size)]


def _loaded(column: Column) -> Numbers:
    return np.asarray(column, dtype=np.int64)


def edge_order(source: Numbers, target: Numbers, kind: Numbers) -> Numbers:
    """The order of `Edges`: by target, by preference (the lowest comes last), and by source."""
    order: Numbers = np.lexsort((source, -_PREFERENCE[kind], target))
    return order


def latest_edges(target: Numbers, allowed: Numbers) -> Numbers:
    """For each target the edge that allows it last; of several the last one.

    Parameters
    ----------
    target, allowed
        Of each edge, in the order of `Edges`: its target, and the time from which it allows it.
    """
    first = np.flatnonzero(differ_from_before(target))
    latest = np.maximum.reduceat(allowed, first) if len(first) else allowed
    is_latest = allowed == np.repeat(latest, np.diff(first, append=len(target)))
    places = np.flatnonzero(is_latest)
    is_last = np.append(target[places[1:]] != target[places[:-1]], True)[: len(places)]
    found: Numbers = places[is_last]
    return found


def settle(graph: RunGraph, moments_of_window: int | None = None) -> None:
    """Change least weights, which may be more than was measured, to weights with which a replay gives the measured times.

    Of the edges that end at a moment, the one that allows it last gets the whole measured difference: what remains beyond its
    least weight is a delay that is not explained, and stays. The others keep their least weight, if that much was measured.
    """

    def settled(window: GraphWindow) -> tuple[GraphWindow, Numbers]:
        measured = window.time[window.target] - window.source_time
        weight = np.minimum(window.weight, measured)
        # The last member of a collective starts when it likes: the others only wait for it.
        allowed = np.where(window.kind == edge_kinds.ARRIVAL, -1, window.source_time + weight)
        last = latest_edges(window.target, allowed)
        weight[last] = measured[last]
        return window, weight

    for window, weight in map_ahead(settled, graph.windows(moments_of_window)):
        graph.edges.weight[window.first_edge : window.behind_edge] = weight


def in_memory(
    moments: Mapping[str, npt.ArrayLike],
    edges: Mapping[str, npt.ArrayLike],
) -> RunGraph:
    """A settled graph of columns in memory.

    Parameters
    ----------
    moments
        Columns `time`, `row`, `label` of `Moments`.
    edges
        Columns `source`, `target`, `weight`, `kind` of `Edges`, in any order; least weights.
    """
    of_moments = {name: np.asarray(values, dtype=np.int64) for name, values in moments.items()}
    of_edges = {name: np.asarray(values, dtype=np.int64) for name, values in edges.items()}
    order = edge_order(of_edges["source"], of_edges["target"], of_edges["kind"])
    graph = RunGraph(Moments(**of_moments), Edges(**{name: values[order] for name, values in of_edges.items()}))
    settle(graph)
    return graph


def release(*columns: Column) -> None:
    """Take columns that are mapped files out of memory, with what was written to them kept: they are read again when needed."""
    for column in columns:
        mapped = getattr(column, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def new_column(folder: Path | None, name: str, length: int) -> Column:
    """A column of whole numbers: in a file of a folder, or in memory where there is none."""
    if folder is None or not length:
        return np.zeros(length, dtype=np.int64)
    return np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.int64, shape=(length,))
