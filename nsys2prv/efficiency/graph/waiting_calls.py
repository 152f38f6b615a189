"""What CUDA calls of host threads waited for: the operation whose end let them end.

Where the recorded waits name a stream or an event, that decides. Else it is known from the name of the call: a copy waits for
the operation that it launched, a synchronization of a stream for what its thread launched last, and one of a device for all
that ran there. A call did not wait for what had ended before it began.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.graph import graph_labels
from nsys2prv.efficiency.graph.logical_streams import LogicalStreams
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.sources.cuda.synchronization import SYNC_STREAM, SYNCHRONIZATION

_KEPT_ENDS = 64
"""Operations of each row that are kept from earlier chunks: a call ends soon after what it waited for."""

CALLS = {"call": pl.Int64, "row": pl.Int64, "begin": pl.Int64, "until": pl.Int64, "kind": pl.Int64}
"""Calls that may wait and end in a chunk: place, row, times, and what they wait for (of `graph_labels`)."""
OPERATIONS = {
    "row": pl.Int64,
    "ended": pl.Int64,
    "operation": pl.Int64,
    "thread": pl.Int64,
    "launched": pl.Int64,
}
"""Operations that end in a chunk: row, end, the moment of the end, and thread and time of the launch (null: not known)."""
_NAMED = {"row": pl.Int64, "start": pl.Int64, "end": pl.Int64, "stream": pl.Int64}
_RESULT = ("call", "operation", "ended")
_NOTHING = pl.DataFrame(schema=dict.fromkeys(_RESULT, pl.Int64))


class WaitingCalls:
    """Finds what calls waited for, chunk by chunk."""

    def __init__(self, events: RunEvents) -> None:
        self._rows = events.rows
        self._streams = LogicalStreams(events.rows)
        self._recent = pl.DataFrame(schema={**OPERATIONS, "task": pl.Int64, "stream": pl.Int64})
        self._named = pl.DataFrame(schema=_NAMED)
        names = events.types.get(SYNCHRONIZATION)
        values = {label: value for value, label in ((names.values if names else None) or {}).items()}
        self._of_stream = values.get(SYNC_STREAM, -1)

    def awaited(
        self, calls: pl.DataFrame, operations: pl.DataFrame, waits: pl.DataFrame, of_events: pl.DataFrame
    ) -> pl.DataFrame:
        """What the calls of a chunk waited for.

        Parameters
        ----------
        calls, operations
            Columns of CALLS and OPERATIONS.
        waits
            Waits that were recorded (collection WAITS) and start in the chunk.
        of_events
            What recorded waits for events waited for: `row` and `start` of the wait, `operation` and `ended`.

        Returns
        -------
        Columns `call` (place), `operation` (the moment of its end) and `ended` of those that waited.
        """
        place = operations["row"].to_numpy()
        new = operations.with_columns(task=pl.Series(self._rows.task[place]), stream=pl.Series(self._streams.of_row[place]))
        recent = pl.concat([self._recent, new]).sort("ended", "operation")
        self._recent = recent.group_by("row", maintain_order=True).tail(_KEPT_ENDS)
        named = self._named_streams(waits)
        if calls.is_empty() or recent.is_empty():
            return _NOTHING
        calls = calls.with_columns(task=pl.Series(self._rows.task[calls["row"].to_numpy()]))
        of_kind = {kind: calls.filter(pl.col("kind") == kind) for kind in range(graph_labels.COPY + 1)}
        of_streams = _inside(of_kind[graph_labels.STREAM_WAIT], named, "stream")
        known, unknown = of_streams.filter(pl.col("stream").is_not_null()), of_streams.filter(pl.col("stream").is_null())
        of_event_calls = of_kind[graph_labels.EVENT_WAIT]
        by_record = _inside(of_event_calls, of_events.sort("row", "start", "ended"), "operation", "ended").filter(_is_wait())
        by_name = pl.concat(
            [unknown.select(calls.columns), of_event_calls.join(by_record, on="call", how="anti").select(calls.columns)]
        )
        of_thread = _last_of_thread(by_name, recent)
        found = [
            by_record.select(_RESULT),
            _own_copy(of_kind[graph_labels.COPY], recent),
            _last_of_task(of_kind[graph_labels.DEVICE_WAIT], recent),
            _last_of_stream(known, recent),
            of_thread,
            _last_of_task(by_name.join(of_thread, on="call", how="anti"), recent),
        ]
        return pl.concat(found).unique("call", keep="first", maintain_order=True)

    def _named_streams(self, waits: pl.DataFrame) -> pl.DataFrame:
        """Recorded waits for streams, also the last ones of earlier chunks: columns of _NAMED."""
        if waits.is_empty():
            return self._named
        located = self._rows.located(waits).with_columns(device=waits["device"] - 1)
        self._streams.note_devices(located.select("task", "device").unique().iter_rows())
        of_streams = located.filter(pl.col("value") == self._of_stream)
        stream = self._streams.find(of_streams).alias("stream")
        new = of_streams.select("row", "start", "end", stream).select(pl.col(name).cast(pl.Int64) for name in _NAMED)
        named = pl.concat([self._named, new]).sort("row", "start")
        self._named = named.group_by("row", maintain_order=True).tail(1)
        return named


def _is_wait() -> pl.Expr:
    return (pl.col("ended") > pl.col("begin")) & (pl.col("ended") <= pl.col("until"))


def _inside(calls: pl.DataFrame, waits: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Calls with columns of the first wait on their row that starts in them; null: none does."""
    if calls.is_empty() or waits.is_empty():
        return calls.with_columns(pl.lit(None, waits.schema[name]).alias(name) for name in columns)
    first = waits.select("row", "start", *columns).with_columns(pl.col("row").cast(pl.Int64))
    found = calls.sort("begin").join_asof(
        first.sort("start", maintain_order=True),
        left_on="begin",
        right_on="start",
        by="row",
        strategy="forward",
        check_sortedness=False,
        coalesce=False,
    )
    is_inside = pl.col("start") <= pl.col("until")
    return found.select(*calls.columns, *(pl.when(is_inside).then(name).alias(name) for name in columns))


def _own_copy(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """Of copies: what they launched, where it ended before they did."""
    if calls.is_empty():
        return _NOTHING
    own = recent.select("operation", "ended", row="thread", begin="launched").drop_nulls()
    found = calls.join(own, on=["row", "begin"], how="inner")
    return found.filter(_is_wait()).sort("ended", "operation", descending=True).select(_RESULT)


def _last_of_task(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What ended last, of all work of the task, before each call did."""
    return _latest(calls, recent.select("operation", "ended", "task"), "until", "ended", "task")


def _last_of_stream(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What ended last on the stream before each call did."""
    return _latest(calls, recent.select("operation", "ended", "stream"), "until", "ended", "stream")


def _last_of_thread(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What the thread launched last before each call."""
    launched = recent.select("operation", "ended", "launched", row="thread").drop_nulls()
    return _latest(calls, launched, "begin", "launched", "row")


def _latest(calls: pl.DataFrame, operations: pl.DataFrame, time: str, until: str, by: str) -> pl.DataFrame:
    """For each call that waited the operation with the same `by` and the latest `until` that is not after `time`."""
    if calls.is_empty():
        return _NOTHING
    # A stable order: of several at one time the one that ended last.
    found = calls.sort(time).join_asof(
        operations.sort(until, "ended", "operation"),
        left_on=time,
        right_on=until,
        by=by,
        strategy="backward",
        check_sortedness=False,
        coalesce=False,
    )
    return found.filter(_is_wait()).select(_RESULT)
