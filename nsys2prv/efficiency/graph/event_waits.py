"""What operations and host threads wait for by CUDA events: chunk by chunk, with what is open carried on.

A record of an event stands for all work launched on its stream before. A stream that waits for the event starts nothing that is
launched after the wait before that work has ended; neither does a call that synchronizes with the event end before. What
was launched before is known from the times of calls on the host.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.inferred_event_waits import InferredEventWaits
from nsys2prv.efficiency.graph.logical_streams import NONE, LogicalStreams
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, RECORDS, WAITS, RunEvents
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.sources.cuda.synchronization import SYNC_EVENT, SYNC_WAIT_EVENT, SYNCHRONIZATION

_MOST_KEPT = 100_000
"""Waits, and records, that are carried from one chunk to the next. What waits for older ones hardly waits at all."""
_MOST_STREAMS_ON_THE_WAY = 32
"""Streams that waited for each other, without work in between, before what an operation waits for."""

_WAIT_SCHEMA = {
    "wait": pl.Int64,
    "task": pl.Int64,
    "row": pl.Int64,
    "call": pl.Int64,
    "until": pl.Int64,
    "stream": pl.Int64,
    "event": pl.Int64,
    "sync": pl.Int64,
    "is_open": pl.Boolean,
}
_RECORD_SCHEMA = {
    "record": pl.Int64,
    "task": pl.Int64,
    "stream": pl.Int64,
    "event": pl.Int64,
    "sync": pl.Int64,
    "call": pl.Int64,
    **dict.fromkeys(("last_call", "last_row", "last_start", "last_end"), pl.Int64),
}
_OPERATION_SCHEMA = dict.fromkeys(("stream", "call", "row", "start", "end"), pl.Int64)
_AWAITED_SCHEMA = dict.fromkeys(("wait", "awaited_stream", "awaited_row", "awaited_start", "awaited_end"), pl.Int64)
EDGE_SCHEMA = dict.fromkeys(("row", "start", "end", "awaited_row", "awaited_start", "awaited_end"), pl.Int64)
"""What waits, and what it waits for: rows, start and end, ns."""


@dataclass(frozen=True)
class EventEdges:
    """What waits for what, as found in a chunk of time: columns of EDGE_SCHEMA.

    Attributes
    ----------
    on_streams
        Operations (that start in the chunk) and the operations that a wait of their stream made them wait for. An operation is
        there once for each awaited row, with the last operation on it.
    on_hosts
        The same for waits of host threads for events that end in the chunk: `start` and `end` are those of the wait.
    inferred
        The same as `on_streams`, of runs in which events were not recorded: see `inferred_event_waits`.
    """

    on_streams: pl.DataFrame
    on_hosts: pl.DataFrame
    inferred: pl.DataFrame


@dataclass
class EventWaitCounts:
    """How many waits were followed.

    Attributes
    ----------
    waits
        Waits of streams, and of host threads, for events.
    joined
        Those whose record, and an operation before it, are known.
    without_record
        Those whose event was not recorded as far as is known.
    without_operation
        Those of whose record is known that nothing was launched on its stream before, as far as is known.
    without_stream
        Waits of streams that have no row, or are not known: no work ran on them.
    unfollowed
        Waits of streams after which nothing was launched on the stream.
    contradicted
        Pairs that were left out: the awaited operation ended after what waits began (after the wait ended, of host threads).
    inferred
        Operations for which it follows from times what they waited for, where events were not recorded.
    """

    waits: int = 0
    joined: int = 0
    without_record: int = 0
    without_operation: int = 0
    without_stream: int = 0
    unfollowed: int = 0
    contradicted: int = 0
    inferred: int = 0


@dataclass
class EventWaits:
    """Follows waits for CUDA events over the chunks of a run."""

    events: RunEvents
    counts: EventWaitCounts = field(default_factory=EventWaitCounts)

    def __post_init__(self) -> None:
        self._streams = LogicalStreams(self.events.rows)
        names = self.events.types.get(SYNCHRONIZATION)
        values = {label: value for value, label in ((names.values if names else None) or {}).items()}
        self._kinds = [values[kind] for kind in (SYNC_WAIT_EVENT, SYNC_EVENT) if kind in values]
        self._wait_of_stream = values.get(SYNC_WAIT_EVENT, 0)
        self._is_recorded = RECORDS.name in self.events.collections
        self._inferred = InferredEventWaits(self.events, self._streams)
        self._waits = pl.DataFrame(schema=_WAIT_SCHEMA)
        self._records = pl.DataFrame(schema=_RECORD_SCHEMA)
        self._last = pl.DataFrame(schema=_OPERATION_SCHEMA)
        self._given = 0
        self._lock = threading.Lock()
        self._followed: tuple[tuple[int, int], EventEdges] | None = None

    def update(self, chunk: TimeChunk) -> EventEdges:
        """What is found with a chunk; chunks come in the order of time. Several meters may ask for one, each on its thread:
        it is followed once.
        """
        with self._lock:
            if self._followed is None or self._followed[0] != (chunk.begin, chunk.end):
                self._followed = (chunk.begin, chunk.end), self._follow(chunk)
            return self._followed[1]

    def _follow(self, chunk: TimeChunk) -> EventEdges:
        waits = self._new_waits(chunk)
        self.counts.waits += waits.height
        operations = self._operations(chunk) if self._kinds else self._last.clear()
        nothing = pl.DataFrame(schema=EDGE_SCHEMA)
        if not self._is_recorded:
            self.counts.without_record += waits.height
            inferred = self._inferred.update(chunk, waits.drop_nulls("stream"), operations)
            self.counts.inferred += inferred.height
            return EventEdges(nothing, nothing, inferred)
        self._waits = pl.concat([self._waits, waits])
        self._add_records(chunk, operations)
        self._last = pl.concat([self._last, operations]).group_by("stream", maintain_order=True).last()
        found = self._found(chunk, operations)
        self._forget()
        return found

    def finish(self) -> None:
        """Count what is still open after the last chunk."""
        self.counts.unfollowed += self._waits.filter("is_open").height

    def _new_waits(self, chunk: TimeChunk) -> pl.DataFrame:
        found = chunk.started[WAITS.name].filter(pl.col("value").is_in(self._kinds) & pl.col("event").is_not_null())
        if found.is_empty():
            return self._waits.clear()
        located = self.events.rows.located(found.drop("number")).with_columns(device=found["device"] - 1)
        of_devices = located.select("task", "device").unique()
        self._streams.note_devices(of_devices.iter_rows())
        is_of_stream = pl.col("value") == self._wait_of_stream
        numbered = located.with_columns(
            stream=pl.when(is_of_stream).then(self._streams.find(located).fill_null(NONE)),
            wait=pl.int_range(self._given, self._given + located.height, dtype=pl.Int64),
        )
        self._given += located.height
        waits = numbered.select(
            *(pl.col(name).cast(pl.Int64) for name in ("wait", "task", "row")),
            pl.col("start").alias("call"),
            pl.col("end").alias("until"),
            *("stream", "event", "sync"),
            is_open=pl.lit(True),
        )
        lost = waits.filter(pl.col("stream") == NONE)
        self.counts.without_stream += lost.height
        return waits.filter(pl.col("stream").fill_null(0) != NONE).select(list(_WAIT_SCHEMA))

    def _operations(self, chunk: TimeChunk) -> pl.DataFrame:
        """Operations that start in a chunk and whose calls are known, in the order of the calls."""
        operations = chunk.started[ON_DEVICES.name].select(pl.col("row").cast(pl.Int64), "start", "end").sort("start")
        calls = chunk.launches.select(row="to_row", start="to_time")
        place = _places(calls, operations, chunk.begin)
        launched = operations.with_columns(
            pl.Series("stream", self._streams.of_row[operations["row"].to_numpy()]),
            call=chunk.launches["time"].gather(pl.Series(place, dtype=pl.Int64).replace(NONE, None)),
        )
        return launched.drop_nulls("call").select(list(_OPERATION_SCHEMA)).sort("call", maintain_order=True)

    def _add_records(self, chunk: TimeChunk, operations: pl.DataFrame) -> None:
        """Add the records of a chunk; find the last operation that was launched before each."""
        found = chunk.started[RECORDS.name]
        new = self.events.rows.located(found).select(
            pl.int_range(self._given, self._given + found.height, dtype=pl.Int64).alias("record"),
            "task",
            pl.Series("stream", self._streams.of_row[found["row"].to_numpy()]),
            event="value",
            sync="sync",
            call=pl.col("start") - pl.col("since_call").fill_null(0),
        )
        self._given += found.height
        # Work of a stream runs in order: what was launched before a record and did not start in this chunk is the last that
        # started before.
        new = self._with_last(new, pl.concat([self._last, operations]).sort("call", maintain_order=True))
        # Those that only have the time of their call are here before the work that they stand for.
        former = self._with_last(self._records.drop(r"^last_.*$"), operations)
        kept = [pl.coalesce(former[name], self._records[name]).alias(name) for name in former.columns if name[:5] == "last_"]
        self._records = pl.concat([former.with_columns(kept), new]).select(list(_RECORD_SCHEMA))

    @staticmethod
    def _with_last(records: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
        last = operations.select("stream", pl.exclude("stream").name.prefix("last_"))
        placed = records.with_row_index("place").sort("call")
        joined = placed.join_asof(
            last,
            left_on="call",
            right_on="last_call",
            by="stream",
            coalesce=False,
            allow_exact_matches=False,
            check_sortedness=False,
        )
        return joined.sort("place").drop("place")

    def _found(self, chunk: TimeChunk, operations: pl.DataFrame) -> EventEdges:
        """What waits whose end is known now waited for."""
        opened = self._waits.filter("is_open").sort("call")
        of_streams = opened.filter(pl.col("stream").is_not_null()).join_asof(
            operations.select("stream", issued="call", to_row="row", to_start="start", to_end="end"),
            left_on="call",
            right_on="issued",
            by="stream",
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        )
        followed = of_streams.drop_nulls("to_row").select("wait", "stream", row="to_row", start="to_start", end="to_end")
        ended = opened.filter(pl.col("stream").is_null() & (pl.col("until") <= chunk.end))
        ended = ended.select("wait", "stream", "row", start="call", end="until")
        done = pl.concat([followed["wait"], ended["wait"]])
        if done.is_empty():
            nothing = pl.DataFrame(schema=EDGE_SCHEMA)
            return EventEdges(nothing, nothing, nothing)
        is_done = pl.col("wait").is_in(done.implode())
        self._waits = self._waits.with_columns(is_open=pl.col("is_open") & ~is_done)
        awaited = self._awaited(done)
        return EventEdges(
            self._edges(followed, awaited, pl.col("start")),
            self._edges(ended, awaited, pl.col("end")),
            pl.DataFrame(schema=EDGE_SCHEMA),
        )

    def _edges(self, waiting: pl.DataFrame, awaited: pl.DataFrame, released: pl.Expr) -> pl.DataFrame:
        """Pairs of what waits and what it waits for, that ended before it was `released`."""
        pairs = waiting.join(awaited, on="wait", how="inner").filter(
            pl.col("awaited_stream").ne_missing(pl.col("stream"))  # what comes before in its own stream
        )
        in_order = pairs.filter(pl.col("awaited_end") <= released)
        self.counts.contradicted += pairs.height - in_order.height
        last = in_order.sort("awaited_start").unique(["row", "start", "awaited_row"], keep="last", maintain_order=True)
        return last.select(list(EDGE_SCHEMA)).sort("start", "row", "awaited_row")

    def _awaited(self, done: pl.Series) -> pl.DataFrame:
        """Last operations before the records that waits are for: wait, awaited_stream, awaited_row, awaited_start, awaited_end.

        Where a stream waited for another one, and then recorded an event with no operation in between, the operations of both
        are awaited.
        """
        bound = self._bound()
        reached = bound.filter(pl.col("wait").is_in(done.implode())).select("wait", "record")
        self.counts.without_record += len(done) - reached.height
        known = reached["wait"]
        links = bound.filter(pl.col("stream").is_not_null()).select(
            "stream", "call", next_record="record", source="record_stream"
        )
        links = links.sort("call")
        sources = links.select("stream", "source").unique()
        records = self._records.select("record", "stream", "call", pl.col(r"^last_.*$"))
        found = [pl.DataFrame(schema=_AWAITED_SCHEMA)]
        for _ in range(_MOST_STREAMS_ON_THE_WAY):
            if reached.is_empty():
                break
            at = reached.join(records, on="record", how="inner")
            found.append(
                at.drop_nulls("last_row").select(
                    "wait",
                    awaited_stream="stream",
                    awaited_row="last_row",
                    awaited_start="last_start",
                    awaited_end="last_end",
                )
            )
            # Of several waits for records on one stream the last one counts.
            before = (
                at.join(sources, on="stream", how="inner")
                .sort("call")
                .join_asof(
                    links.rename({"call": "waited"}),
                    left_on="call",
                    right_on="waited",
                    by=["stream", "source"],
                    coalesce=False,
                    check_sortedness=False,
                )
            )
            is_after = pl.col("last_call").is_null() | (pl.col("waited") > pl.col("last_call"))
            reached = before.filter(is_after).drop_nulls("next_record").select("wait", record="next_record").unique()
        awaited = pl.concat(found)
        joined = awaited["wait"].n_unique()
        self.counts.joined += joined
        self.counts.without_operation += len(known) - joined
        return awaited

    def _bound(self) -> pl.DataFrame:
        """Waits with the record that each is for (`record`, `record_stream`); those without one are left out."""
        ids = self._records.select("task", "event", "sync", "call", record="record", record_stream="stream")
        with_sync = self._waits.drop_nulls("sync").join(
            ids.drop_nulls("sync").unique(["task", "sync"], keep="last", maintain_order=True).drop("event", "call"),
            on=["task", "sync"],
            how="inner",
        )
        # A wait is for the latest record that was called before it.
        others = self._waits.join(with_sync, on="wait", how="anti").sort("call")
        by_event = others.join_asof(
            ids.rename({"call": "recorded", "sync": "of_record"}).sort("recorded", maintain_order=True),
            left_on="call",
            right_on="recorded",
            by=["task", "event"],
            check_sortedness=False,
        ).drop_nulls("record")
        # Two different numbers: the record of the wait is not in the run.
        same = pl.col("sync").is_null() | pl.col("of_record").is_null()
        columns = [*_WAIT_SCHEMA, "record", "record_stream"]
        return pl.concat([with_sync.select(columns), by_event.filter(same).select(columns)])

    def _forget(self) -> None:
        """Keep what later chunks may need."""
        if self._waits.height > _MOST_KEPT:
            dropped = self._waits.head(self._waits.height - _MOST_KEPT)
            self.counts.unfollowed += dropped.filter("is_open").height
            self._waits = self._waits.tail(_MOST_KEPT)
        self._records = self._records.sort("call", maintain_order=True).tail(_MOST_KEPT)


def _places(calls: pl.DataFrame, operations: pl.DataFrame, begin: int) -> Numbers:
    """For each operation (columns `row`, `start`) the place of the first of `calls` with its row and start; NONE: none has.

    Times are from `begin` on. It is much faster than a join.
    """
    most = max((int(frame["row"].max() or 0) for frame in (calls, operations) if frame.height), default=0) + 1  # type: ignore[arg-type]
    key, asked = ((frame["start"] - begin).to_numpy() * most + frame["row"].to_numpy() for frame in (calls, operations))
    order = np.argsort(key, kind="stable")
    found = np.searchsorted(key[order], asked)
    if not len(key):
        return np.full(len(asked), NONE, dtype=np.int64)
    place: Numbers = order[np.minimum(found, len(key) - 1)]
    return np.where(key[place] == asked, place, NONE)
