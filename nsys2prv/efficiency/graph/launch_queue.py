"""Full launch queues: calls that launch, and are blocked because about 1,024 operations of their stream have not started yet.

CUDA holds so many launches of a stream; the next call returns when one of them has started. Nothing of that is recorded. The
evidence is a call that takes longer than such calls do, at whose end so many operations of its stream are launched and have not
started, and that ends right after another one of them has.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph.logical_streams import LogicalStreams
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import HOST_CALLS, ON_DEVICES, ON_HOSTS
from nsys2prv.efficiency.sweep import LAUNCH, SweepContext, TimeChunk

FEWEST_PENDING = 900
"""Operations of the stream that are launched and have not started: records of events take places in the queue, too."""
LONGER = 2.0
"""Length of a blocked call against the usual one."""
LONGEST_RELEASE = 10_000
"""From the start of the operation that makes place to the end of the call at most, ns."""
_USUAL = 0.1
"""Quantile of the lengths of launch calls that is the usual one: in a full queue most are blocked."""
_BARS_OF_DOUBLING = 16
_MOST_OPERATIONS = 2_000_000
_MOST_CALLS = 1_000_000
"""Operations, and long calls whose work has not started, that are kept from earlier chunks."""

BLOCKED = dict.fromkeys(
    ("row", "begin", "until", "usual", "pending", "free_row", "free_start", "next_row", "next_start"), pl.Int64
)
"""Columns of blocked calls: row of the thread and times, ns; usual length, ns; operations that were pending when it ended; row
and start of the operation that made place, and of the one that was launched."""


@dataclass(frozen=True)
class _Operations:
    """Operations that started in a chunk: columns of equal length, and the last start (ns)."""

    row: npt.NDArray[np.int32]
    start: Numbers
    last: int


@dataclass(frozen=True)
class BlockedCalls:
    """Calls of a run that wait for a place in a launch queue: columns of BLOCKED."""

    calls: pl.DataFrame


def blocked_calls(run: SweepContext) -> BlockedCalls:
    """Those of a run."""
    return BlockedCalls(LaunchQueue(run).update(run))


class LaunchQueue:
    """Finds blocked calls, chunk by chunk: each with the chunk in which what it launched starts.

    The graph of the run and the rule of findings follow the same one: `SweepContext.followed_once`.
    """

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._stream: Numbers = LogicalStreams(context.events.rows).of_row
        self._bars: Numbers = np.zeros(64 * _BARS_OF_DOUBLING, dtype=np.int64)
        self._calls = pl.DataFrame(schema=dict.fromkeys(("row", "begin", "until"), pl.Int64))
        nothing: Numbers = np.zeros(0, dtype=np.int64)
        self._none = _Operations(nothing.astype(np.int32), nothing, 0)
        self._operations: list[_Operations] = []
        self._lock = threading.Lock()
        self._latest: tuple[tuple[int, int], pl.DataFrame] | None = None

    def update(self, chunk: TimeChunk) -> pl.DataFrame:
        """Blocked calls: columns of BLOCKED. Several meters may ask for those of a chunk, each on its thread."""
        with self._lock:
            if self._latest is None or self._latest[0] != (chunk.begin, chunk.end):
                self._latest = (chunk.begin, chunk.end), self._follow(chunk)
            return self._latest[1]

    def _follow(self, chunk: TimeChunk) -> pl.DataFrame:
        self._add_calls(chunk)
        self._keep(chunk.started[ON_DEVICES.name].select(pl.col("row").cast(pl.Int32), "start"))
        launches = chunk.launches.select(
            pl.col("row").cast(pl.Int64), begin="time", next_row=pl.col("to_row").cast(pl.Int64), next_start="to_time"
        )
        # A graph has many operations: its call waits once. Of calls that begin at the same time the longest counts.
        first = launches.sort("next_start").unique(["row", "begin"], keep="first", maintain_order=True)
        calls = self._calls.sort("until").unique(["row", "begin"], keep="last", maintain_order=True)
        long = first.join(calls, on=["row", "begin"], how="inner")
        self._calls = self._calls.join(long, on=["row", "begin"], how="anti").tail(_MOST_CALLS)
        found = self._blocked(long) if long.height else pl.DataFrame(schema=BLOCKED)
        self._forget(chunk.end)
        return found

    @property
    def _usual_length(self) -> int:
        counts = np.cumsum(self._bars)
        bar = int(np.searchsorted(counts, _USUAL * counts[-1]))
        return int(np.ceil(2 ** ((bar + 1) / _BARS_OF_DOUBLING)))

    def _add_calls(self, chunk: TimeChunk) -> None:
        calls = chunk.started[ON_HOSTS.name].filter(pl.col("number").is_in(HOST_CALLS))
        category = self._context.category(calls["number"].to_numpy(), calls["value"].to_numpy().astype(np.int64))
        launching = calls.filter(pl.Series(category == LAUNCH)).select(pl.col("row").cast(pl.Int64), begin="start", until="end")
        length = (launching["until"] - launching["begin"]).to_numpy()
        bars = np.floor(np.log2(np.maximum(length, 1)) * _BARS_OF_DOUBLING).astype(np.int64)
        self._bars += np.bincount(bars, minlength=len(self._bars))
        long = launching.filter(pl.col("until") - pl.col("begin") >= LONGER * self._usual_length)
        self._calls = pl.concat([self._calls, long])

    def _keep(self, started: pl.DataFrame) -> None:
        if started.is_empty():
            return
        row, start = (started[name].to_numpy() for name in ("row", "start"))
        self._operations.append(_Operations(row, start, int(start.max())))
        kept = sum(len(one.start) for one in self._operations)
        while len(self._operations) > 1 and kept > _MOST_OPERATIONS:
            kept -= len(self._operations.pop(0).start)

    def _since(self, time: int) -> _Operations:
        """Kept operations that started at a time or later, and some before."""
        kept = [self._none, *(one for one in self._operations if one.last >= time)]
        return _Operations(
            np.concatenate([one.row for one in kept]), np.concatenate([one.start for one in kept]), kept[-1].last
        )

    def _forget(self, until: int) -> None:
        """Keep no operations but those that calls may have waited for which are kept, or which begin at a time or later."""
        earliest = min([until, *self._calls.select(pl.col("until").min()).to_series().drop_nulls()]) - LONGEST_RELEASE
        self._operations = [one for one in self._operations if one.last >= earliest]

    def _blocked(self, long: pl.DataFrame) -> pl.DataFrame:
        stream = self._stream[long["next_row"].to_numpy()]
        until = long["until"].to_numpy()
        # What started earlier makes no place for these calls, and is not pending either.
        recent = self._since(int(until.min()) - LONGEST_RELEASE)
        if not len(recent.start):
            return pl.DataFrame(schema=BLOCKED)
        # Streams follow each other in one order of keys.
        span = self._context.events.length + 2
        stream_of = self._stream[recent.row]
        keys = stream_of * span + recent.start
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        own = np.searchsorted(keys, stream * span + long["next_start"].to_numpy())
        behind = np.searchsorted(keys, stream * span + until, side="right")
        free = order[np.maximum(behind - 1, 0)]
        free_start = recent.start[free]
        is_same = stream_of[free] == stream
        # Before the first of all operations there is none that makes place.
        is_released = is_same & (behind > 0) & (free_start > long["begin"].to_numpy())
        is_released &= until - free_start <= LONGEST_RELEASE
        found = long.with_columns(
            usual=pl.lit(self._usual_length, pl.Int64),
            pending=pl.Series(own + 1 - behind, dtype=pl.Int64),
            free_row=pl.Series(recent.row[free]).cast(pl.Int64),
            free_start=pl.Series(free_start, dtype=pl.Int64),
        )
        return found.filter(pl.Series(is_released) & (pl.col("pending") >= FEWEST_PENDING)).select(list(BLOCKED))
