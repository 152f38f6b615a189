"""Full launch queues: calls that launch, and are blocked because about 1,024 operations of their stream have not started yet.

CUDA holds so many launches of a stream; the next call returns when one of them has started. Nothing of that is recorded. The
evidence is a call that takes longer than such calls do, at whose end so many operations of its stream are launched and have not
started, and that ends right after another one of them has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.event_waits import LogicalStreams
from nsys2prv.efficiency.measured_run import LAUNCH, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import HOST_CALLS

FEWEST_PENDING = 900
"""Operations of the stream that are launched and have not started: records of events take places in the queue, too."""
LONGER = 2.0
"""Length of a blocked call against the usual one."""
LONGEST_RELEASE = 10_000
"""From the start of the operation that makes place to the end of the call at most, ns."""
_USUAL = 0.1
"""Quantile of the lengths of launch calls that is the usual one: in a full queue most are blocked."""
_BARS_PER_DOUBLING = 16

BLOCKED = dict.fromkeys(
    ("row", "begin", "until", "usual", "pending", "free_row", "free_start", "next_row", "next_start"), pl.Int64
)
"""Columns of blocked calls: row of the thread and times, ns; usual length, ns; operations that were pending when it ended; row
and start of the operation that made place, and of the one that was launched."""


@dataclass(frozen=True)
class BlockedCalls(Measurement):
    """Calls of a run that wait for a place in a launch queue: columns of BLOCKED."""

    calls: pl.DataFrame


def blocked_calls(run: MeasuredRun) -> BlockedCalls:
    """Those of a run."""
    calls = run.calls.filter(pl.col("number").is_in(HOST_CALLS)).select("row", "start", "end", "number", "value")
    is_launch = run.category(calls["number"].to_numpy(), calls["value"].to_numpy()) == LAUNCH
    launching = calls.select("row", begin="start", until="end").filter(pl.Series(is_launch))
    nothing = BlockedCalls(pl.DataFrame(schema=BLOCKED))
    if launching.is_empty() or run.operations.is_empty():
        return nothing
    length = pl.col("until") - pl.col("begin")
    usual = _usual_length(launching)
    long = launching.filter(length >= LONGER * usual)
    # Of calls that begin at the same time the longest counts. A graph has many operations: its call waits once.
    calls = long.sort("until", maintain_order=True).unique(["row", "begin"], keep="last", maintain_order=True)
    launches = run.launches.select("row", begin="time", next_row="to_row", next_start="to_time")
    pairs = launches.join(calls, on=["row", "begin"], how="inner", maintain_order="left")
    blocking = pairs.sort("next_start", maintain_order=True).unique(["row", "begin"], keep="first", maintain_order=True)
    if blocking.is_empty():
        return nothing
    stream_of_row = LogicalStreams(run.events.rows).of_row
    row, start = (run.operations[name].to_numpy() for name in ("row", "start"))
    # Streams follow each other in one order of keys.
    span = run.events.length + 2
    keys = stream_of_row[row] * span + start
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    stream, until = stream_of_row[blocking["next_row"].to_numpy()], blocking["until"].to_numpy()
    behind = np.searchsorted(keys, stream * span + until, side="right")
    # The last operation that had started when the call ended.
    free = order[np.maximum(behind - 1, 0)]
    # Before the first of all operations there is none that makes place.
    is_released = (behind > 0) & (stream_of_row[row[free]] == stream) & (start[free] > blocking["begin"].to_numpy())
    is_released &= until - start[free] <= LONGEST_RELEASE
    pending = np.searchsorted(keys, stream * span + blocking["next_start"].to_numpy()) + 1 - behind
    columns = blocking.with_columns(
        usual=pl.lit(usual), pending=pl.Series(pending), free_row=pl.Series(row[free]), free_start=pl.Series(start[free])
    )
    is_blocked = pl.Series(is_released & (pending >= FEWEST_PENDING))
    return BlockedCalls(columns.filter(is_blocked).select(pl.col(name).cast(dtype) for name, dtype in BLOCKED.items()))


def _usual_length(launching: pl.DataFrame) -> int:
    """Usual length of launch calls, ns: the upper edge of the bar of a histogram."""
    length = (launching["until"] - launching["begin"]).to_numpy()
    bars = np.bincount(np.floor(np.log2(np.maximum(length, 1)) * _BARS_PER_DOUBLING).astype(np.int64))
    counts = np.cumsum(bars)
    bar = int(np.searchsorted(counts, _USUAL * counts[-1]))
    return int(np.ceil(2 ** ((bar + 1) / _BARS_PER_DOUBLING)))
