"""What may have waited for ranks that are not in the run, or that can't be matched: NCCL kernels, and calls of MPI.

They ended when somebody let them, and nobody knows when that would be if something else took another time. Which ranks are
missing is known from the size of the run and of NCCL's communicators.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.chunk_moments import OpenIntervals
from nsys2prv.efficiency.graph.graph_labels import GraphLabels
from nsys2prv.efficiency.graph.host_waits import OwnEdges
from nsys2prv.efficiency.graph.moment_files import NOT_FOUND
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.nccl_stats import is_point_to_point
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.mpi_calls import MessagePart, message_parts

_WAITS_FOR_NOBODY, _FOR_ONE, _FOR_SEVERAL = range(3)
_COLLECTIVE = r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?|Bcast|Scatterv?|Reduce|Gatherv?)$"
"""Collectives that wait; others are not looked at in the graph."""


class OpenEnds:
    """Collects them: the moments of their ends, chunk by chunk."""

    def __init__(self, events: RunEvents, labels: GraphLabels) -> None:
        self._labels = labels
        self._waits: Numbers = np.zeros(0, dtype=np.int64)
        self._found: list[Numbers] = []
        self._lacks_ranks = events.missing_ranks > 0
        self.collectives = 0
        """Those of NCCL kernels that are no sends and receives, and of calls of MPI."""

    def add_kernels(self, ends: Numbers, labels: Numbers) -> None:
        """NCCL kernels whose other members are not all known."""
        if not len(ends):
            return
        self._found.append(ends)
        is_pair = self._labels.names().to_frame("name").select(is_point_to_point(pl.col("name"))).to_series()
        self.collectives += int((~is_pair.to_numpy()[labels]).sum())

    def add_calls(self, hosts: OpenIntervals, own: OwnEdges) -> None:
        """Calls of MPI that end in a chunk; `own` has which of them have a partner in the run."""
        if not self._lacks_ranks:
            return
        ended = np.flatnonzero(hosts.end != NOT_FOUND)
        waits = self._waits_of_labels()[hosts.label[ended]]
        ended, waits = ended[waits != _WAITS_FOR_NOBODY], waits[waits != _WAITS_FOR_NOBODY]
        end = hosts.end[ended]
        # One that waits for several may wait for one that is missing beside those that are known.
        is_known = (waits == _FOR_ONE) & (own.kind[end - own.first] == edge_kinds.BLOCKED_CALL)
        self._found.append(end[~is_known])
        self.collectives += int((~is_known).sum())

    def _waits_of_labels(self) -> Numbers:
        """How many ranks a call with each label can wait for."""
        known, new = len(self._waits), len(self._labels)
        if known < new:
            of_mpi = self._labels.is_of(*event_types.MPI_TYPES.values())[known:]
            name = pl.col("name")
            parts = message_parts(name).cast(pl.Int64)
            later, several = (pl.lit(int(part)) for part in (MessagePart.LATER | MessagePart.DEFINES, MessagePart.COMPLETES))
            moves = pl.lit(int(MessagePart.SENDS | MessagePart.RECEIVES))
            waits = (
                pl.when(name.str.contains(_COLLECTIVE) | ((parts & several) > 0)).then(_FOR_SEVERAL)
                .when(((parts & moves) > 0) & ((parts & later) == 0)).then(_FOR_ONE)
                .otherwise(_WAITS_FOR_NOBODY)
            )  # fmt: skip
            found = self._labels.names().slice(known).to_frame("name").select(waits).to_series().to_numpy()
            self._waits = np.append(self._waits, np.where(of_mpi, found, _WAITS_FOR_NOBODY))
        return self._waits

    def finish(self) -> Numbers:
        """The moments, in order."""
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *self._found]))
