"""What operations waited for by CUDA events that were not recorded: where the times leave one answer.

nsys reports the calls of cudaStreamWaitEvent with their streams, and by default no records of events. A program records an
event right before another stream waits for it. So for an operation that was held after such a wait, what it waited for was
launched before the last record call of the same thread, as the last on some other stream, and it ended right before the
operation started. Where that is true for one stream alone, it is the one.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.graph.logical_streams import LogicalStreams
from nsys2prv.efficiency.run_events import ON_HOSTS, RunEvents
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.vocabulary import event_types

_LEAST_HELD = 10_000
"""From when an operation could have started to its start, ns: launches alone take up to about this."""
_LONGEST_RELEASE = 15_000
"""From the end of what was awaited to the start of what waited, at most, ns: 1 to 14 us on the A100 of a real report."""
_MOST_KEPT = 100_000
"""Waits that no operation followed yet, and operations without an end of the wait, that are carried on."""

_RECORD_CALL = r"(?i)EventRecord"
_RESULT = ("row", "start", "end", "awaited_row", "awaited_start", "awaited_end")
_OPERATION_SCHEMA = dict.fromkeys(("stream", "call", "row", "start", "end"), pl.Int64)


@dataclass
class InferredEventWaits:
    """Follows waits of streams over the chunks of a run without records of events."""

    events: RunEvents
    streams: LogicalStreams

    def __post_init__(self) -> None:
        names = self.events.types.get(event_types.CUDA_CALL)
        known = pl.DataFrame(
            list(((names.values if names else None) or {}).items()), schema={"value": pl.Int64, "name": pl.String}, orient="row"
        )
        self._record_calls = known.filter(pl.col("name").str.contains(_RECORD_CALL))["value"].to_list()
        self._recorded = pl.DataFrame(schema={"row": pl.Int64, "recorded": pl.Int64})
        self._open = pl.DataFrame(schema=dict.fromkeys(("task", "stream", "call", "recorded"), pl.Int64))
        self._last = pl.DataFrame(schema=_OPERATION_SCHEMA)
        self._nothing = pl.DataFrame(schema=dict.fromkeys(_RESULT, pl.Int64))

    def update(self, chunk: TimeChunk, waits: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
        """Operations of a chunk with what they waited for.

        Parameters
        ----------
        chunk
            Chunks come in the order of time.
        waits
            Waits of streams that start in it: task, row (of the thread), stream, call (time, ns).
        operations
            Operations that start in it: stream, call (time of their launch), row, start, end.

        Returns
        -------
        row, start, end, awaited_row, awaited_start, awaited_end.
        """
        if not self._record_calls:
            return self._nothing
        self._open = pl.concat([self._open, self._with_records(chunk, waits)])
        with_last = pl.concat([self._last, operations])
        if self._open.is_empty():
            self._last = _last_of_streams(with_last)
            return self._nothing
        followed = self._open.sort("call").join_asof(
            operations.rename({"call": "issued"}).sort("issued", "start"),
            left_on="call",
            right_on="issued",
            by="stream",
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        )
        self._open = followed.filter(pl.col("row").is_null()).select(self._open.columns).tail(_MOST_KEPT)
        self._last = _last_of_streams(with_last)
        held = self._held(followed.drop_nulls("row"), with_last)
        return self._inferred(held, with_last)

    def _with_records(self, chunk: TimeChunk, waits: pl.DataFrame) -> pl.DataFrame:
        """Waits with the last record call of their thread before them (`recorded`); those without one are left out."""
        calls = chunk.started[ON_HOSTS.name].filter(
            (pl.col("number") == event_types.CUDA_CALL) & pl.col("value").is_in(self._record_calls)
        )
        records = pl.concat([self._recorded, calls.select(pl.col("row").cast(pl.Int64), recorded="start")]).sort("recorded")
        self._recorded = records.group_by("row", maintain_order=True).last()
        joined = waits.sort("call").join_asof(
            records, left_on="call", right_on="recorded", by="row", coalesce=False, check_sortedness=False
        )
        return joined.drop_nulls("recorded").select(self._open.columns)

    @staticmethod
    def _held(followed: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
        """Operations that started later than their launch and their stream explain; each with its last wait."""
        before = operations.sort("start").select("row", "start", former=pl.col("end").shift(1).over("stream"))
        placed = followed.join(before, on=["row", "start"], how="left")
        ready = pl.max_horizontal("issued", "former")
        last = placed.sort("call").unique(["row", "start"], keep="last", maintain_order=True)
        return last.filter(pl.col("start") - ready >= _LEAST_HELD)

    def _inferred(self, held: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
        candidates = held.join(self.streams.of_tasks, on="task", how="inner").filter(pl.col("other") != pl.col("stream"))
        last = operations.select(
            other="stream", launched="call", awaited_row="row", awaited_start="start", awaited_end="end"
        ).sort("launched")
        known = candidates.sort("recorded").join_asof(
            last,
            left_on="recorded",
            right_on="launched",
            by="other",
            coalesce=False,
            allow_exact_matches=False,
            check_sortedness=False,
        )
        released = pl.col("start") - pl.col("awaited_end")
        fitting = known.filter(released.is_between(0, _LONGEST_RELEASE)).unique(
            ["row", "start"], keep="none", maintain_order=True
        )
        return fitting.select(_RESULT).sort("start", "row")


def _last_of_streams(operations: pl.DataFrame) -> pl.DataFrame:
    """The operation of each stream that was launched last."""
    return operations.sort("call", maintain_order=True).group_by("stream", maintain_order=True).last()
