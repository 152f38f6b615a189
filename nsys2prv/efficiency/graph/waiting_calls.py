"""What CUDA calls of host threads waited for: the operation whose end let them end.

Where the recorded waits name a stream or an event, that decides. Else it is known from the name of the call: a copy waits for
the operation that it launched, a synchronization of a stream for what its thread launched last, and one of a device for all
that ran there. A call did not wait for what had ended before it began.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.graph import graph_labels
from nsys2prv.efficiency.run_events import RunRows

_KEPT_ENDS = 64
"""Operations of each row that are kept from earlier chunks: a call ends soon after what it waited for."""

CALLS = {
    "call": pl.Int64,
    "row": pl.Int64,
    "begin": pl.Int64,
    "until": pl.Int64,
    "kind": pl.Int64,
    "stream": pl.Int64,
    "recorded": pl.Int64,
}
"""Calls that may wait and end in a chunk: place, row, times, what they wait for (of `graph_labels`), the row of the stream that
they wait for (null: not known), and for an event, when it was recorded (null: likewise)."""
OPERATIONS = {
    "row": pl.Int64,
    "ended": pl.Int64,
    "operation": pl.Int64,
    "thread": pl.Int64,
    "launched": pl.Int64,
}
"""Operations that end in a chunk: row, end, the moment of the end, and thread and time of the launch (null: not known)."""


@dataclass
class WaitingCalls:
    """Finds what calls waited for, chunk by chunk."""

    rows: RunRows

    def __post_init__(self) -> None:
        self._recent = pl.DataFrame(schema=OPERATIONS)

    def awaited(self, calls: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
        """What the calls of a chunk waited for.

        Parameters
        ----------
        calls, operations
            Columns of CALLS and OPERATIONS.

        Returns
        -------
        Columns `call` (place), `operation` (the moment of its end) and `ended` of those that waited.
        """
        recent = pl.concat([self._recent, operations]).sort("ended", "operation")
        self._recent = recent.group_by("row", maintain_order=True).tail(_KEPT_ENDS)
        if calls.is_empty() or recent.is_empty():
            return pl.DataFrame(schema={"call": pl.Int64, "operation": pl.Int64, "ended": pl.Int64})
        recent = recent.with_columns(task=pl.Series(self.rows.task[recent["row"].to_numpy()]))
        calls = calls.with_columns(task=pl.Series(self.rows.task[calls["row"].to_numpy()]))
        of_kind = {kind: calls.filter(pl.col("kind") == kind) for kind in range(graph_labels.COPY + 1)}
        of_streams, of_events = of_kind[graph_labels.STREAM_WAIT], of_kind[graph_labels.EVENT_WAIT]
        known = pl.concat([of_streams, of_events]).filter(pl.col("stream").is_not_null())
        unknown = pl.concat([of_streams, of_events]).filter(pl.col("stream").is_null())
        found = [
            _own_copy(of_kind[graph_labels.COPY], recent),
            _last_of_task(of_kind[graph_labels.DEVICE_WAIT], recent),
            _last_of_stream(known.filter(pl.col("recorded").is_null()), recent),
            _last_before_record(known.filter(pl.col("recorded").is_not_null()), recent),
            _last_of_thread(unknown, recent),
        ]
        of_task = _last_of_task(unknown.join(found[-1].filter(_is_wait()), on="call", how="anti"), recent)
        waited = pl.concat([*found, of_task]).filter(_is_wait())
        return waited.select("call", "operation", "ended").unique("call", keep="first", maintain_order=True)


def _is_wait() -> pl.Expr:
    return (pl.col("ended") > pl.col("begin")) & (pl.col("ended") <= pl.col("until"))


_RESULT = ("call", "begin", "until", "operation", "ended")


def _own_copy(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """Of copies: what they launched, where it ended before they did."""
    own = recent.select("operation", "ended", row="thread", begin="launched").drop_nulls()
    return calls.join(own, on=["row", "begin"], how="inner").sort("ended", descending=True).select(_RESULT)


def _last_of_task(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What ended last, of all work of the task, before each call did."""
    ended = recent.select("operation", "ended", "task")
    return _latest(calls, ended, "until", "ended", "task")


def _last_of_stream(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What ended last on the stream before each call did."""
    ended = recent.select("operation", "ended", stream="row")
    return _latest(calls, ended, "until", "ended", "stream")


def _last_before_record(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What was launched last on the stream before the event was recorded."""
    launched = recent.select("operation", "ended", "launched", stream="row").drop_nulls()
    return _latest(calls, launched, "recorded", "launched", "stream")


def _last_of_thread(calls: pl.DataFrame, recent: pl.DataFrame) -> pl.DataFrame:
    """What the thread launched last before each call."""
    launched = recent.select("operation", "ended", "launched", row="thread").drop_nulls()
    return _latest(calls, launched, "begin", "launched", "row")


def _latest(calls: pl.DataFrame, operations: pl.DataFrame, time: str, until: str, by: str) -> pl.DataFrame:
    """For each call the operation with the same `by` and the latest `until` that is not after `time`."""
    # A stable order: of several at one time the one that ended last.
    ordered = operations.sort(until, "ended", "operation")
    return (
        calls.sort(time)
        .join_asof(ordered, left_on=time, right_on=until, by=by, strategy="backward", check_sortedness=False, coalesce=False)
        .drop_nulls("operation")
        .select(_RESULT)
    )
