"""Which thread woke another one of its process: calls that wait, and the call that ended each wait.

Reports have no objects of waits: that a wait ended right after a call which can end such a wait is taken to be no chance. nsys
leaves out short calls (by default those under 1 us), most of those that unlock and post among them: many waits have no
known end. That of a thread is known only where it calls pthread_exit.

A thread that waited itself for what is not known when the wait began, and for most of it, is not the cause of the wait: a
helper that sleeps in epoll_wait was woken by someone else, who is.
"""

from __future__ import annotations

import re
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

_ASLEEP = r"^(e?poll(_p?wait2?)?|ppoll|p?select|(clock_)?nanosleep|u?sleep|sig(timed)?wait(info)?)$"
"""Calls in which a thread waits for what is not recorded."""
WAITING_CALLS = "|".join([_ASLEEP, *(pattern for pattern, _ in _WAITS)])
"""Names of calls of the OS in which a thread waits: for what, is known at best from who woke it."""
_MOSTLY = 0.5
"""Part of a wait in which the thread that ended it was asleep from its beginning on, at most."""
_ASLEEP_SCHEMA = {"row": pl.Int32, "begin": pl.Int64, "until": pl.Int64, "task": pl.Int64}

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
        names = self.events.types.get(event_types.OS_CALL)
        self._asleep_in = [
            value for value, name in ((names.values if names else None) or {}).items() if re.match(_ASLEEP, name)
        ]
        self._signals: pl.DataFrame | None = None
        # Those that cover the starts of waits which are still open.
        self._asleep = pl.DataFrame(schema=_ASLEEP_SCHEMA)

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
        paired = joined.filter(is_cause).select(list(WAKE_UP_SCHEMA))
        asleep = self._asleep_in_chunk(running, waits.join(paired, on=["row", "start"], how="anti"))
        found = _by_threads_awake(paired, asleep)
        open_waits = self._of_kinds(running.filter(pl.col("until") > chunk.end), "wait").select("task", opened="begin")
        covers = (pl.col("begin") <= pl.col("opened")) & (pl.col("opened") < pl.col("until"))
        self._asleep = asleep.join(open_waits.unique(), on="task").filter(covers).select(list(_ASLEEP_SCHEMA)).unique()
        self.waits += waits.height
        self.woken += found.height
        return found

    def _asleep_in_chunk(self, running: pl.DataFrame, unknown: pl.DataFrame) -> pl.DataFrame:
        """When threads wait for what is not known: _ASLEEP_SCHEMA; `unknown` are the waits that ended for unknown reasons."""
        in_os = (pl.col("number") == event_types.OS_CALL) & pl.col("value").is_in(self._asleep_in)
        calls = self.events.rows.located(running.filter(in_os).select("row", "begin", "until"))
        waits = unknown.select("row", "task", begin="start", until="end")
        columns = [pl.col(name).cast(dtype) for name, dtype in _ASLEEP_SCHEMA.items()]
        # What lasts over several chunks is in each of them.
        return pl.concat([self._asleep, calls.select(columns), waits.select(columns)]).unique()

    def _of_kinds(self, calls: pl.DataFrame, role: str) -> pl.DataFrame:
        """Calls that wait, or that signal, with `task` and their kind as a column of that name."""
        kinds = self._kinds.filter(pl.col(role) > 0).select("value", role)
        of_threads = calls.filter(pl.col("number") == event_types.PTHREAD_CALL)
        return self.events.rows.located(of_threads.join(kinds, on="value", how="inner", maintain_order="left"))


def _by_threads_awake(found: pl.DataFrame, asleep: pl.DataFrame) -> pl.DataFrame:
    """Waits without those that were ended by a thread which was asleep (_ASLEEP_SCHEMA) from their beginning on for long."""
    latest = found.sort("start").join_asof(
        asleep.select(signal_row="row", slept_from="begin", slept_until="until").sort("slept_from"),
        left_on="start",
        right_on="slept_from",
        by="signal_row",
        check_sortedness=False,
    )
    slept = pl.col("slept_until") - pl.col("start")
    is_asleep = (slept > 0) & (slept > _MOSTLY * (pl.col("end") - pl.col("start")))
    return latest.filter(~is_asleep.fill_null(False)).select(list(WAKE_UP_SCHEMA))
