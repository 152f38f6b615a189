"""Which thread woke another one of its process: calls that wait, and the call that ended each wait.

Reports have no objects of waits: that a wait ended right after a call which can end such a wait is taken to be no chance. nsys
leaves out short calls (by default those under 1 us), most of those that unlock and post among them: many waits have no
known end. That of a thread is known only where it calls pthread_exit.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.run_events import ON_HOSTS, RunEvents
from nsys2prv.efficiency.sweep import TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

LONGEST_WAKE_UP = 50_000
"""From the end of a call that ends a wait to the end of the wait, at most, ns."""

_CONDITION, _SEMAPHORE, _MUTEX, _READ_WRITE_LOCK, _END_OF_THREAD, _BARRIER = range(1, 7)
_WAITS = (
    (r"^pthread_cond_(timed|clock)?wait$", _CONDITION),
    (r"^sem_(timed|clock)?wait$", _SEMAPHORE),
    (r"^pthread_(mutex_(timed|clock)?|spin_)lock$", _MUTEX),
    (r"^pthread_rwlock_(timed|clock)?(rd|wr)lock$", _READ_WRITE_LOCK),
    (r"^pthread_(timed|clock)?join(_np)?$", _END_OF_THREAD),
    (r"^pthread_barrier_wait$", _BARRIER),
)
_SIGNALS = (
    (r"^pthread_cond_(signal|broadcast)$", _CONDITION),
    (r"^sem_post$", _SEMAPHORE),
    # A wait for a condition starts by unlocking the mutex.
    (r"^pthread_((mutex|spin)_unlock|cond_(timed|clock)?wait)$", _MUTEX),
    (r"^pthread_rwlock_unlock$", _READ_WRITE_LOCK),
    (r"^pthread_exit$", _END_OF_THREAD),
    (r"^pthread_barrier_wait$", _BARRIER),
)

WAKE_UP_SCHEMA = {"row": pl.Int32, "start": pl.Int64, "end": pl.Int64, "signal_row": pl.Int32, "signal_start": pl.Int64}
"""A wait: row, start and end; row and start of the call that ended it, ns."""


@dataclass
class WakeUps:
    """Finds what ended waits, over the chunks of a run; `woken` of the `waits` are known."""

    events: RunEvents
    waits: int = 0
    woken: int = 0

    def __post_init__(self) -> None:
        names = self.events.types.get(event_types.PTHREAD_CALL)
        self._kinds = pl.DataFrame(
            list(((names.values if names else None) or {}).items()), schema={"value": pl.Int64, "name": pl.String}, orient="row"
        ).select(
            "value",
            wait=first_match(pl.col("name"), _WAITS, 0),
            signal=first_match(pl.col("name"), _SIGNALS, 0),
        )
        self._signals: pl.DataFrame | None = None

    def update(self, chunk: TimeChunk) -> pl.DataFrame:
        """Waits that end in a chunk with the calls that ended them: WAKE_UP_SCHEMA. Chunks come in the order of time."""
        if not (self._kinds["wait"] > 0).any():
            return pl.DataFrame(schema=WAKE_UP_SCHEMA)
        signals = self._of_kinds(chunk.started[ON_HOSTS.name], "signal")
        signals = signals.select("task", kind="signal", signal_row="row", signal_start="start", signal_end="end")
        if self._signals is not None:
            signals = pl.concat([self._signals, signals])
        running = chunk.inside[ON_HOSTS.name]
        # What lasts longer than the chunk is in the next one again.
        ended = running.filter(pl.col("until") <= chunk.end).with_columns(start="begin", end="until")
        waits = self._of_kinds(ended, "wait").select("row", "start", "end", "task", kind="wait")
        joined = waits.sort("end").join_asof(
            signals.sort("signal_start"),
            left_on="end",
            right_on="signal_start",
            by=["task", "kind"],
            coalesce=False,
            check_sortedness=False,
        )
        self._signals = signals.filter(pl.col("signal_end") > chunk.end - LONGEST_WAKE_UP)
        is_cause = (
            (pl.col("signal_start") >= pl.col("start"))
            & (pl.col("signal_end") >= pl.col("end") - LONGEST_WAKE_UP)
            & (pl.col("signal_row") != pl.col("row"))
        )
        found = joined.filter(is_cause).select(list(WAKE_UP_SCHEMA))
        self.waits += waits.height
        self.woken += found.height
        return found

    def _of_kinds(self, calls: pl.DataFrame, role: str) -> pl.DataFrame:
        """Calls that wait, or that signal, with `task` and their kind as a column of that name."""
        kinds = self._kinds.filter(pl.col(role) > 0).select("value", role)
        of_threads = calls.filter(pl.col("number") == event_types.PTHREAD_CALL)
        return self.events.rows.located(of_threads.join(kinds, on="value", how="inner", maintain_order="left"))
