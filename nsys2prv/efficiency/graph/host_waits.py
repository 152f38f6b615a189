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
    """Edges to what waited: columns of equal length, in pieces. `late` ones may end before the chunk; those that are beside a
    HOST edge replace it."""

    pieces: list[tuple[int, Numbers, Numbers, Numbers]] = field(default_factory=list)
    late: list[tuple[int, Numbers, Numbers, Numbers]] = field(default_factory=list)


@dataclass(frozen=True)
class _EndedCalls:
    """Calls of host threads that ended, in the order of the moments of their ends: columns."""

    end: Numbers
    start: Numbers
    row: Numbers
    begin: Numbers
    until: Numbers
    label: Numbers

    @classmethod
    def of(cls, hosts: OpenIntervals, chosen: Numbers) -> _EndedCalls:
        return cls(*(getattr(hosts, name)[chosen] for name in ("end", "start", "row", "begin", "until", "label")))

    @classmethod
    def none(cls) -> _EndedCalls:
        return cls(*(np.zeros(0, dtype=np.int64) for _ in range(6)))

    def only(self, chosen: Mask) -> _EndedCalls:
        """Some of them."""
        return _EndedCalls(*(column[chosen] for column in self._columns))

    def then(self, later: _EndedCalls) -> _EndedCalls:
        """These and later ones."""
        return _EndedCalls(*(np.concatenate(both) for both in zip(self._columns, later._columns, strict=True)))

    def place(self, end: Numbers) -> Numbers:
        """Places by the moments of their ends; NOT_FOUND: none has it."""
        place: Numbers = np.minimum(np.searchsorted(self.end, end), max(len(self.end) - 1, 0))
        found = self.end[place] == end if len(self.end) else np.zeros(len(end), dtype=bool)
        return np.where(found, place, NOT_FOUND)

    @property
    def _columns(self) -> tuple[Numbers, ...]:
        return (self.end, self.start, self.row, self.begin, self.until, self.label)


def _columns(frame: pl.DataFrame) -> dict[str, Numbers]:
    return {name: frame[name].fill_null(0).to_numpy().astype(np.int64) for name in frame.columns}


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
        self._at_edge = _EndedCalls.none()
        self._least = least
        self._wake_ups = WakeUps(events)
        self._collectives = MpiCollectives(events, folder)
        names = events.types.get(event_types.MPI_COLLECTIVE)
        self._from_root = [
            value for value, name in ((names.values if names else None) or {}).items() if "cast" in name or "catter" in name
        ]

    def update(self, chunk: TimeChunk, hosts: OpenIntervals, own: OwnEdges) -> WaitEdges:
        """Edges to the waits that end in a chunk; what these calls take without the wait is set in `own`."""
        ended = np.flatnonzero(hosts.end != NOT_FOUND)
        calls = _EndedCalls.of(hosts, ended[np.argsort(hosts.end[ended])])
        edges = WaitEdges()
        # What ends just where a chunk does is known with the messages of the next one.
        known = self._at_edge.then(calls)
        self._add_messages(chunk.messages, known, own, edges)
        self._add_long_sends(chunk.messages, calls, own, edges)
        self._add_collectives(chunk, known, own, edges)
        self._add_wake_ups(chunk, own, edges)
        self._at_edge = calls.only(calls.until == chunk.end)
        return edges

    def _add(self, kind: int, source: Numbers, target: Numbers, weight: Numbers, own: OwnEdges, edges: WaitEdges) -> None:
        """Add edges to moments of the chunk, or of the one before."""
        late = target < own.first
        edges.pieces.append((kind, source[~late], target[~late], weight[~late]))
        edges.late.append((kind, source[late], target[late], weight[late]))

    def _set_own(self, calls: _EndedCalls, place: Numbers, kind: int, weight: Numbers, own: OwnEdges, edges: WaitEdges) -> None:
        """Set what calls take without their wait; those of the chunk before get an edge in the place of theirs."""
        late = calls.end[place] < own.first
        own.set(calls.end[place[~late]], kind, weight[~late])
        places, first = np.unique(place[late], return_index=True)
        edges.late.append((kind, calls.start[places], calls.end[places], weight[late][first]))

    def _add_messages(self, messages: pl.DataFrame, calls: _EndedCalls, own: OwnEdges, edges: WaitEdges) -> None:
        if messages.is_empty():
            return
        columns = _columns(messages)
        sent = self._moments.find(columns["row"], columns["time"], START)
        received = self._moments.find(columns["to_row"], columns["to_time"], END)
        # Messages of like sizes take like times.
        code = class_code(edge_kinds.MESSAGE, np.log2(columns["size"] + 1.0).astype(np.int64))
        place = calls.place(received)
        known = (sent != NOT_FOUND) & (place != NOT_FOUND)
        self._add(edge_kinds.MESSAGE, sent[known], received[known], code[known], own, edges)
        waited = known & (columns["time"] > columns["to_begin"])
        self._least.add(code[waited], (columns["to_time"] - columns["time"])[waited])
        place = place[known]
        call = class_code(edge_kinds.BLOCKED_CALL, calls.label[place])
        self._set_own(calls, place, edge_kinds.BLOCKED_CALL, call, own, edges)
        # A call whose messages were sent long ago shows what it takes alone.
        latest = np.full(len(calls.end), -1, dtype=np.int64)
        np.maximum.at(latest, place, columns["time"][known])
        free = np.flatnonzero((latest >= 0) & (latest < calls.begin - _LONG_AGO))
        self._least.add(class_code(edge_kinds.BLOCKED_CALL, calls.label[free]), (calls.until - calls.begin)[free])

    def _add_long_sends(self, messages: pl.DataFrame, calls: _EndedCalls, own: OwnEdges, edges: WaitEdges) -> None:
        """A send that lasts until the receive was called waited for it: rendezvous."""
        if messages.is_empty():
            return
        sends = pl.DataFrame({"row": calls.row, "time": calls.begin, "until": calls.until, "send": calls.end})
        sends = sends.unique(["row", "time"], keep="first", maintain_order=True)
        found = pl.DataFrame(_columns(messages.select("row", "time", "to_row", "to_begin"))).join(
            sends, on=["row", "time"], how="inner", maintain_order="left"
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

    def _add_collectives(self, chunk: TimeChunk, calls: _EndedCalls, own: OwnEdges, edges: WaitEdges) -> None:
        members = self._collectives.members_in(chunk).filter("blocking")
        if members.is_empty():
            return
        row, start, end, kind = (members[name].to_numpy().astype(np.int64) for name in ("row", "start", "end", "kind"))
        last_row, last_start = (
            members[name].fill_null(NOT_FOUND).to_numpy().astype(np.int64) for name in ("awaited_row", "awaited_start")
        )
        ended = self._moments.find(row, end, END)
        place = calls.place(ended)
        has_waited = last_row != NOT_FOUND
        hub: Numbers = np.full(len(row), NOT_FOUND, dtype=np.int64)
        hub[has_waited] = self._moments.find(last_row[has_waited], last_start[has_waited], START)
        alone = (place != NOT_FOUND) & ~has_waited
        transfer = class_code(
            edge_kinds.TRANSFER,
            np.where(place != NOT_FOUND, calls.label[np.maximum(place, 0)], NOTHING) if len(calls.label) else place,
        )
        self._set_own(calls, place[alone], edge_kinds.TRANSFER, np.full(int(alone.sum()), WHOLE), own, edges)
        self._least.add(transfer[alone], (end - start)[alone])
        known = (place != NOT_FOUND) & (hub != NOT_FOUND)
        self._set_own(calls, place[known], edge_kinds.TRANSFER, transfer[known], own, edges)
        self._add(edge_kinds.COLLECTIVE, hub[known], ended[known], transfer[known], own, edges)
        # In a replay another member may be the last; a root that sends does not wait.
        arrived = self._moments.find(row, start, START)
        of_all: Mask = known & (arrived != NOT_FOUND) & (start <= last_start) & ~np.isin(kind, self._from_root)
        edges.late.append((edge_kinds.ARRIVAL, arrived[of_all], hub[of_all], np.zeros(int(of_all.sum()), dtype=np.int64)))

    def _add_wake_ups(self, chunk: TimeChunk, own: OwnEdges, edges: WaitEdges) -> None:
        found = self._wake_ups.update(chunk)
        if found.is_empty():
            return
        columns = _columns(found)
        signal = self._moments.find(columns["signal_row"], columns["signal_start"], START)
        woken = self._moments.find(columns["row"], columns["end"], END)
        known = (signal != NOT_FOUND) & (woken >= own.first)
        code = class_code(edge_kinds.WAKE_UP, np.full(int(known.sum()), NOTHING, dtype=np.int64))
        edges.pieces.append((edge_kinds.WAKE_UP, signal[known], woken[known], code))
        self._least.add(code, (columns["end"] - columns["signal_start"])[known])
        own.set(woken[known], edge_kinds.BLOCKED_CALL, 0)
