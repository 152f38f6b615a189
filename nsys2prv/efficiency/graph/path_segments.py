"""The critical path as segments: when, on which row, and what it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.build import BuiltGraph
from nsys2prv.efficiency.graph.critical_path import PathSteps, last_moment, path_backwards
from nsys2prv.efficiency.graph.graph_labels import NOTHING
from nsys2prv.efficiency.graph.replay import Replay, as_measured
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.sweep import CAUSES
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.vocabulary import event_types

SEGMENT_SCHEMA: dict[str, type[pl.DataType]] = {
    "begin": pl.Int64,
    "end": pl.Int64,
    "row": pl.Int64,
    "kind": pl.Int64,
    "label": pl.Int64,
    "cause": pl.Int64,
}
"""Columns of segments: times, row, place in KINDS, label (of `graph_labels`; NOTHING: no name), and for the host a place in
HOST_CAUSES (-1: not on the host)."""

KINDS = (
    "kernel",
    "graph",
    "copy",
    "collective",
    "transfer",
    "host",
    "launch latency",
    "synchronization latency",
    "stream order",
    "event wait",
    "wait for a late rank",
    "message",
    "wake-up",
    "launch queue",
    "before the path",
    "after the path",
    "unknown wait",
)
"""Kinds of segments; a collective whose other members are not known is no transfer, and an unknown wait is in a call of the OS
in which a thread waits, when nothing says for what."""
_KERNEL, _GRAPH, _COPY, _COLLECTIVE, _TRANSFER, _HOST = range(6)
_BEFORE, _AFTER, _UNKNOWN_WAIT = 14, 15, 16
_KIND_OF_EDGE = {
    edge_kinds.DEVICE_WORK: _KERNEL,
    edge_kinds.TRANSFER: _TRANSFER,
    edge_kinds.COLLECTIVE: _TRANSFER,
    edge_kinds.ARRIVAL: 10,
    edge_kinds.STREAM_ORDER: 8,
    edge_kinds.LAUNCH: 6,
    edge_kinds.SYNCHRONIZATION: 7,
    edge_kinds.EVENT_WAIT: 9,
    edge_kinds.HOST: _HOST,
    edge_kinds.BLOCKED_CALL: _HOST,
    edge_kinds.MESSAGE: 11,
    edge_kinds.WAKE_UP: 12,
    edge_kinds.LAUNCH_QUEUE: 13,
}
_KIND_OF_WORK = {
    event_types.GRAPH_EXECUTION: _GRAPH,
    event_types.MEMORY_OPERATION: _COPY,
    event_types.NCCL_KERNEL: _COLLECTIVE,
}
HOST_CAUSES = (*CAUSES, "host")
"""What a host thread does on the path: the categories of calls, or none of these."""


class PathReader:
    """Reads the critical path of a graph.

    Parameters
    ----------
    built
        The graph.
    path_of
        Its replay.
    begin, end
        The window, in measured times, ns; None: the whole run.
    """

    def __init__(self, built: BuiltGraph, path_of: Replay, begin: int | None = None, end: int | None = None) -> None:
        self._built = built
        self._replay = path_of
        events = built.context.events
        self._first = 0 if begin is None else begin
        counted = built.counted_rows
        until = events.length if end is None else end
        self.last = last_moment(path_of, counted, until)
        # After the last moment that was measured in the window nothing is known to change.
        measured = last_moment(as_measured(path_of.graph), counted, until)
        rest = until - int(path_of.graph.moments.time[measured]) if measured >= 0 else 0
        self.end = int(path_of.time[self.last]) + rest if self.last >= 0 else until
        self._kind_of_edge = np.array([_KIND_OF_EDGE[kind] for kind in range(len(edge_kinds.NAMES))], dtype=np.int64)
        numbers = np.array(built.labels.number, dtype=np.int64)
        self._kind_of_work: Numbers = np.full(len(numbers) + 1, _KERNEL, dtype=np.int64)
        for number, kind in _KIND_OF_WORK.items():
            self._kind_of_work[:-1][numbers == number] = kind
        self._cause = built.labels.causes
        self._in_waits = built.labels.in_waits

    @property
    def length(self) -> int:
        """Length of the window in the replay, ns."""
        return self.end - self._first

    def segments(self) -> Iterator[pl.DataFrame]:
        """Segments of the path (SEGMENT_SCHEMA) that are inside the window, in pieces from the last to the first.

        Steps in which the same row does the same thing are one segment. They follow each other without a hole from the start of
        the window to its end, so their lengths add up to `length`.
        """
        if self.last >= 0:
            yield _single(int(self._replay.time[self.last]), self.end, int(self._built.graph.moments.row[self.last]), _AFTER)
        begin: int | None = None
        first_row = NOTHING
        for steps in path_backwards(self._replay, self.last) if self.last >= 0 else ():
            if not len(steps):
                continue
            found = self._segments_of(steps).filter(pl.col("end") > self._first)
            begin, first_row = int(steps.begin[-1]), int(self._built.graph.moments.row[steps.source[-1]])
            if found.height:
                yield _joined(found.with_columns(pl.col("begin").clip(lower_bound=self._first)))
            if begin <= self._first:
                return
        if self.last >= 0:
            begin = int(self._replay.time[self.last]) if begin is None else begin
            row = int(self._built.graph.moments.row[self.last]) if first_row == NOTHING else first_row
            yield _single(self._first, begin, row, _BEFORE)

    def _segments_of(self, steps: PathSteps) -> pl.DataFrame:
        moments = self._built.graph.moments
        row, label = (np.asarray(column[steps.target], dtype=np.int64) for column in (moments.row, moments.label))
        kind = self._kind_of_edge[steps.kind]
        kind = np.where(kind == _KERNEL, self._kind_of_work[label], kind)
        cause = np.where(kind == _HOST, self._cause[label], NOTHING)
        # Who woke the thread is not known: else the path went on there.
        kind = np.where((kind == _HOST) & self._in_waits[label], _UNKNOWN_WAIT, kind)
        columns = {"begin": steps.begin, "end": steps.end, "row": row, "kind": kind, "label": label, "cause": cause}
        return pl.DataFrame(columns, schema=SEGMENT_SCHEMA)


def _joined(found: pl.DataFrame) -> pl.DataFrame:
    """Segments, from last to first, with neighbours that are the same thing on the same row as one; none without length."""
    found = found.filter(pl.col("end") > pl.col("begin"))
    is_first = differ_from_before(*(found[name].to_numpy() for name in ("row", "kind", "label")))
    # The last one of neighbours is the earliest.
    is_last = np.append(is_first[1:], True)[: len(is_first)]
    return found.filter(pl.Series(is_first)).with_columns(begin=found["begin"].filter(pl.Series(is_last)))


def _single(begin: int, end: int, row: int, kind: int) -> pl.DataFrame:
    columns = {"begin": begin, "end": end, "row": row, "kind": kind, "label": NOTHING, "cause": NOTHING}
    return pl.DataFrame([columns], schema=SEGMENT_SCHEMA).filter(pl.col("end") > pl.col("begin"))
