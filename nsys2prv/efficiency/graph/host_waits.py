"""What calls of host threads waited for on other threads and ranks: messages, collectives of MPI, and who woke them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.chunk_moments import ChunkMoments, Mask, OpenIntervals
from nsys2prv.efficiency.graph.graph_labels import NOTHING
from nsys2prv.efficiency.graph.least_weights import LeastWeights, class_code
from nsys2prv.efficiency.graph.moment_files import END, NOT_FOUND, START, MomentFiles
from nsys2prv.efficiency.graph.mpi_collectives import MpiCollectives
from nsys2prv.efficiency.graph.run_graph import WHOLE
from nsys2prv.efficiency.graph.wakeups import WakeUps
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.vocabulary import event_types

_LONG_SEND = 50_000
"""ns that a send takes at least if it waits for the receive: one that only hands over its data takes less."""
_LONG_AGO = 100_000
"""ns before a receive was called in which a message has arrived that was sent then."""


@dataclass
class OwnEdges:
    """Of each moment of a chunk, the edge from the moment before on its host thread: its kind and least weight."""

    first: int
    kind: Numbers
    weight: Numbers

    @classmethod
    def of(cls, moments: ChunkMoments) -> OwnEdges:
        """All take what was measured."""
        return cls(moments.first, np.full(len(moments), edge_kinds.HOST), np.full(len(moments), WHOLE))

    def set(self, moment: Numbers, kind: int, weight: Numbers | int) -> None:
        """Edges to moments that waited for something else."""
        self.kind[moment - self.first] = kind
        self.weight[moment - self.first] = weight


@dataclass
class WaitEdges:
    """Edges to what waited: columns of equal length, in pieces. `late` ones end before the chunk."""

    pieces: list[tuple[int, Numbers, Numbers, Numbers]] = field(default_factory=list)
    late: list[tuple[int, Numbers, Numbers, Numbers]] = field(default_factory=list)


class HostWaits:
    """Finds them, chunk by chunk; made before the chunks are read.

    Parameters
    ----------
    moments
        Of the graph, those of the chunk included.
    least
        Is given what is seen to take how long.
    """

    def __init__(self, events: RunEvents, folder: Path, moments: MomentFiles, least: LeastWeights) -> None:
        self._moments = moments
        self._least = least
        self._wake_ups = WakeUps(events)
        self._collectives = MpiCollectives(events, folder)
        names = events.types.get(event_types.MPI_COLLECTIVE)
        self._from_root = [
            value for value, name in ((names.values if names else None) or {}).items() if "cast" in name or "catter" in name
        ]

    def update(self, chunk: TimeChunk, hosts: OpenIntervals, own: OwnEdges) -> WaitEdges:
        """Edges to the waits that end in a chunk; what these calls take without the wait is set in `own`."""
        label: Numbers = np.full(len(own.kind), NOTHING, dtype=np.int64)
        begin: Numbers = np.zeros(len(own.kind), dtype=np.int64)
        ended = hosts.end != NOT_FOUND
        label[hosts.end[ended] - own.first] = hosts.label[ended]
        begin[hosts.end[ended] - own.first] = hosts.begin[ended]
        edges = WaitEdges()
        self._add_messages(chunk.messages, hosts, own, label, begin, edges)
        self._add_collectives(chunk, own, label, edges)
        self._add_wake_ups(chunk, own, edges)
        return edges

    def _add_messages(
        self, messages: pl.DataFrame, hosts: OpenIntervals, own: OwnEdges, label: Numbers, begin: Numbers, edges: WaitEdges
    ) -> None:
        if messages.is_empty():
            return
        columns = {name: messages[name].fill_null(0).to_numpy().astype(np.int64) for name in messages.columns}
        sent = self._moments.find(columns["row"], columns["time"], START)
        received = self._moments.find(columns["to_row"], columns["to_time"], END)
        # Messages of like sizes take like times.
        code = class_code(edge_kinds.MESSAGE, np.log2(columns["size"] + 1.0).astype(np.int64))
        known = (sent != NOT_FOUND) & (received >= own.first)
        edges.pieces.append((edge_kinds.MESSAGE, sent[known], received[known], code[known]))
        waited = known & (columns["time"] > columns["to_begin"])
        self._least.add(code[waited], (columns["to_time"] - columns["time"])[waited])
        target = received[known]
        call = class_code(edge_kinds.BLOCKED_CALL, label[target - own.first])
        own.set(target, edge_kinds.BLOCKED_CALL, call)
        latest = np.full(len(own.kind), -1, dtype=np.int64)
        np.maximum.at(latest, target - own.first, columns["time"][known])
        free = np.flatnonzero((latest >= 0) & (latest < begin - _LONG_AGO))
        lengths = np.full(len(own.kind), 0, dtype=np.int64)
        ended = hosts.end != NOT_FOUND
        lengths[hosts.end[ended] - own.first] = (hosts.until - hosts.begin)[ended]
        self._least.add(class_code(edge_kinds.BLOCKED_CALL, label[free]), lengths[free])
        self._add_long_sends(columns, hosts, own, edges)

    def _add_long_sends(self, messages: dict[str, Numbers], hosts: OpenIntervals, own: OwnEdges, edges: WaitEdges) -> None:
        """A send that lasts until the receive was called waited for it: rendezvous."""
        ended = np.flatnonzero(hosts.end != NOT_FOUND)
        calls = pl.DataFrame(
            {"row": hosts.row[ended], "time": hosts.begin[ended], "until": hosts.until[ended], "send": hosts.end[ended]}
        ).unique(["row", "time"], keep="first", maintain_order=True)
        found = pl.DataFrame({name: messages[name] for name in ("row", "time", "to_row", "to_begin")}).join(
            calls, on=["row", "time"], how="inner", maintain_order="left"
        )
        long = found.filter(
            (pl.col("until") - pl.col("time") >= _LONG_SEND)
            & (pl.col("to_begin") > pl.col("time"))
            & (pl.col("to_begin") <= pl.col("until"))
        )
        posted = self._moments.find(long["to_row"].to_numpy(), long["to_begin"].to_numpy(), START)
        send = long["send"].to_numpy()[posted != NOT_FOUND]
        posted = posted[posted != NOT_FOUND]
        edges.pieces.append((edge_kinds.MESSAGE, posted, send, np.zeros(len(send), dtype=np.int64)))
        own.set(send, edge_kinds.BLOCKED_CALL, 0)

    def _add_collectives(self, chunk: TimeChunk, own: OwnEdges, label: Numbers, edges: WaitEdges) -> None:
        members = self._collectives.members_in(chunk).filter("blocking")
        if members.is_empty():
            return
        row, start, end, kind = (members[name].to_numpy().astype(np.int64) for name in ("row", "start", "end", "kind"))
        last_row, last_start = (members[name].fill_null(NOT_FOUND).to_numpy() for name in ("awaited_row", "awaited_start"))
        ended = self._moments.find(row, end, END)
        has_waited = last_row != NOT_FOUND
        hub = np.full(len(row), NOT_FOUND, dtype=np.int64)
        hub[has_waited] = self._moments.find(last_row[has_waited].astype(np.int64), last_start[has_waited], START)
        inside = ended >= own.first
        alone = inside & ~has_waited
        of_call = np.where(inside, label[np.where(inside, ended - own.first, 0)], NOTHING)
        transfer = class_code(edge_kinds.TRANSFER, of_call)
        own.set(ended[alone], edge_kinds.TRANSFER, WHOLE)
        self._least.add(transfer[alone], (end - start)[alone])
        known = inside & (hub != NOT_FOUND)
        own.set(ended[known], edge_kinds.TRANSFER, transfer[known])
        edges.pieces.append((edge_kinds.COLLECTIVE, hub[known], ended[known], transfer[known]))
        # In a replay another member may be the last; a root that sends does not wait.
        arrived = self._moments.find(row, start, START)
        of_all: Mask = known & (arrived != NOT_FOUND) & (start <= last_start) & ~np.isin(kind, self._from_root)
        edges.late.append((edge_kinds.ARRIVAL, arrived[of_all], hub[of_all], np.zeros(int(of_all.sum()), dtype=np.int64)))

    def _add_wake_ups(self, chunk: TimeChunk, own: OwnEdges, edges: WaitEdges) -> None:
        found = self._wake_ups.update(chunk)
        if found.is_empty():
            return
        columns = {name: found[name].to_numpy().astype(np.int64) for name in found.columns}
        signal = self._moments.find(columns["signal_row"], columns["signal_start"], START)
        woken = self._moments.find(columns["row"], columns["end"], END)
        known = (signal != NOT_FOUND) & (woken >= own.first)
        code = class_code(edge_kinds.WAKE_UP, np.full(int(known.sum()), NOTHING, dtype=np.int64))
        edges.pieces.append((edge_kinds.WAKE_UP, signal[known], woken[known], code))
        self._least.add(code, (columns["end"] - columns["signal_start"])[known])
        own.set(woken[known], edge_kinds.BLOCKED_CALL, 0)
