"""What calls of host threads waited for: work of devices, messages, collectives of MPI, and threads that woke them.

Where the recorded waits of CUDA name a stream or an event, that decides what a call waited for. Else it is known from the name
of the call: a copy waits for the operation that it launched, a synchronization of a stream for what its thread launched last,
and one of a device for all that ran there. A call did not wait for what had ended before it began.

Reports have no objects of waits for threads: that a wait ended right after a call which can end such a wait is taken to be no
chance. nsys leaves out short calls (by default those under 1 us), most of those that unlock and post among them: many waits
have no known end. That of a thread is known only where it calls pthread_exit. A thread that waited itself for what is not known
when the wait began, and for most of it, is not the cause: a helper that sleeps in epoll_wait was woken by someone else, who is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.event_waits import LogicalStreams
from nsys2prv.efficiency.graph.moments import (
    COPY,
    DEVICE_WAIT,
    EVENT_WAIT,
    NO_MOMENT,
    NO_WAIT,
    STREAM_WAIT,
    GraphLabels,
    GraphParts,
    class_code,
)
from nsys2prv.efficiency.graph.mpi_collectives import mpi_collectives
from nsys2prv.efficiency.graph.replay import WHOLE, Mask, Places
from nsys2prv.efficiency.intervals import Moments, Numbers
from nsys2prv.efficiency.measured_run import MPI, MeasuredRun
from nsys2prv.efficiency.run_events import WAITS
from nsys2prv.execution.keys import order_of_keys
from nsys2prv.sources.cuda.synchronization import SYNC_STREAM, SYNCHRONIZATION
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_LONG_SEND = 50_000
"""ns that a send takes at least if it waits for the receive: one that only hands over its data takes less."""
_LONG_AGO = 100_000
"""ns before a receive was called in which a message has arrived that was sent then."""

LONGEST_WAKE_UP = 50_000
"""From the end of a call that ends a wait to the end of the wait, at most, ns."""
_CONDITION, _SEMAPHORE, _MUTEX, _READ_WRITE_LOCK, _END_OF_THREAD, _BARRIER = range(1, 7)
_THREAD_WAITS = (
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
WAITING_CALLS = "|".join([_ASLEEP, *(pattern for pattern, _ in _THREAD_WAITS)])
"""Names of calls of the OS in which a thread waits: for what, is known at best from who woke it."""
_MOSTLY = 0.5
"""Part of a wait in which the thread that ended it was asleep from its beginning on, at most."""
WAKE_UP_SCHEMA = {"row": pl.Int32, "start": pl.Int64, "end": pl.Int64, "signal_row": pl.Int32, "signal_start": pl.Int64}
"""A wait: row, start and end; row and start of the call that ended it, ns."""


@dataclass
class TimesWithoutWaits:
    """What calls that waited for something take by themselves: kind of edge and least weight. What is set later counts."""

    _columns: list[tuple[Numbers, int, npt.NDArray[Any] | int]] = field(default_factory=list)

    def set(self, calls: npt.NDArray[Any], kind: int, weight: npt.NDArray[Any] | int) -> None:
        """Set it for some calls (intervals)."""
        self._columns.append((calls.astype(np.int64), kind, weight))

    def columns(self) -> tuple[Numbers, Numbers, Numbers]:
        """Calls in order, with kinds and weights."""
        sizes = [len(calls) for calls, _, _ in self._columns]
        calls = np.concatenate([np.zeros(0, dtype=np.int64), *(calls for calls, _, _ in self._columns)])
        kind = np.repeat(np.array([kind for _, kind, _ in self._columns], dtype=np.int64), sizes)
        weights = [np.broadcast_to(weight, size) for (_, _, weight), size in zip(self._columns, sizes, strict=True)]
        distinct, place = np.unique(calls[::-1], return_index=True)
        last = len(calls) - 1 - place
        return distinct, kind[last], np.concatenate([np.zeros(0, dtype=np.int64), *weights])[last].astype(np.int64)


class HostWaits:
    """Finds what calls waited for: adds the edges to those of a graph, and sets what these calls take by themselves."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts, self._run = parts, parts.run
        self._points, self._labels, self._edges = parts.points, parts.labels, parts.edges
        self.alone = TimesWithoutWaits()

    # -- devices ------------------------------------------------------------------------------------------------------------

    def wait_for_devices(self, by_events: pl.DataFrame) -> None:
        """Add waits for operations; `by_events` are recorded waits of threads for events (`EventEdges.on_hosts`)."""
        points, labels = self._points, self._labels
        kinds = labels.waits[points.label[points.devices :]] if len(labels) else np.zeros(0, dtype=np.int64)
        calls = np.flatnonzero(kinds != NO_WAIT) + points.devices
        kinds = kinds[calls - points.devices]
        awaited = _awaited(self._parts, calls, kinds, by_events)
        begin, until = points.times(calls)
        label, waited = points.label[calls], awaited != NO_MOMENT
        length = until - points.moments.time[np.maximum(awaited, 0)] if len(calls) else until
        self._edges.add_class(edge_kinds.SYNCHRONIZATION, awaited, points.end[calls], length, label)
        # Calls that did not wait show what such a call takes by itself; a copy always waits.
        code, free = class_code(edge_kinds.BLOCKED_CALL, label), ~waited & (kinds != COPY)
        self._edges.takes(code[free], (until - begin)[free])
        self.alone.set(calls[waited], edge_kinds.BLOCKED_CALL, code[waited])

    # -- ranks --------------------------------------------------------------------------------------------------------------

    def wait_for_messages(self) -> None:
        """Add point-to-point messages: receives wait for sends, and long sends for receives."""
        messages, points = self._run.messages, self._points
        if messages.is_empty():
            return
        row, sent_at, to_row, called, to_time, size = (
            messages[name].fill_null(0).to_numpy().astype(np.int64)
            for name in ("row", "time", "to_row", "to_begin", "to_time", "size")
        )
        sent, received = points.starts(row, sent_at), points.ends(to_row, to_time)
        # Messages of like sizes take like times.
        of_size = np.log2(size + 1.0).astype(np.int64)
        self._edges.add_class(edge_kinds.MESSAGE, sent, received, to_time - sent_at, of_size, sent_at > called)
        is_complete = (sent != NO_MOMENT) & (received != NO_MOMENT)
        calls = points.interval(received[is_complete])
        self.alone.set(calls, edge_kinds.BLOCKED_CALL, class_code(edge_kinds.BLOCKED_CALL, points.label[calls]))
        # A call whose messages were sent long ago shows what it takes alone.
        receives, place = np.unique(calls, return_inverse=True)
        latest = np.full(len(receives), -1, dtype=np.int64)
        np.maximum.at(latest, place, sent_at[is_complete])
        begin, until = points.times(receives)
        free = latest < begin - _LONG_AGO
        code = class_code(edge_kinds.BLOCKED_CALL, points.label[receives[free]])
        self._edges.takes(code, (until - begin)[free])
        self._wait_for_receives(row, sent_at, to_row, called)

    def _wait_for_receives(self, row: Numbers, sent_at: Numbers, to_row: Numbers, called: Numbers) -> None:
        """A send that lasts until the receive was called waited for it: rendezvous."""
        points = self._points
        calls = np.flatnonzero(self._labels.causes[points.label] == MPI)
        calls = calls[np.argsort(points.end[calls])]
        begin, until = points.times(calls)
        sends = pl.DataFrame({"row": points.moments.row[points.start[calls]], "time": begin, "until": until, "send": calls})
        sends = sends.unique(["row", "time"], keep="first", maintain_order=True)
        sent = pl.DataFrame({"row": row.astype(np.int32), "time": sent_at, "to_row": to_row, "called": called})
        long = sent.join(sends, on=["row", "time"], how="inner", maintain_order="left").filter(
            pl.col("until") - pl.col("time") >= _LONG_SEND,
            pl.col("called") > pl.col("time"),
            pl.col("called") <= pl.col("until"),
        )
        posted = points.starts(long["to_row"].to_numpy(), long["called"].to_numpy())
        send = long["send"].to_numpy()
        self._edges.add(edge_kinds.MESSAGE, posted, points.end[send], 0)
        self.alone.set(send[posted != NO_MOMENT], edge_kinds.BLOCKED_CALL, 0)

    def wait_for_members(self) -> None:
        """Add collective calls of MPI."""
        members = mpi_collectives(self._run).filter("blocking")
        if members.is_empty():
            return
        points, edges = self._points, self._edges
        row, start, end, kind, last_row, last_start = (
            members[name].fill_null(NO_MOMENT).to_numpy().astype(np.int64)
            for name in ("row", "start", "end", "kind", "awaited_row", "awaited_start")
        )
        ended = points.ends(row, end)
        has_waited = last_row != NO_MOMENT
        hub = np.where(has_waited, points.starts(last_row, last_start), NO_MOMENT)
        is_alone, is_matched = (ended != NO_MOMENT) & ~has_waited, (ended != NO_MOMENT) & (hub != NO_MOMENT)
        call = points.interval(ended)
        transfer = class_code(edge_kinds.TRANSFER, points.label[call])
        self.alone.set(call[is_alone], edge_kinds.TRANSFER, WHOLE)
        edges.takes(transfer[is_alone], (end - start)[is_alone])
        self.alone.set(call[is_matched], edge_kinds.TRANSFER, transfer[is_matched])
        edges.add(edge_kinds.COLLECTIVE, hub, ended, transfer)
        # In a replay another member may be the last; a root that sends does not wait.
        names = self._run.events.types.get(event_types.MPI_COLLECTIVE)
        from_root = [value for value, name in _values(names) if "cast" in name or "catter" in name]
        arrived = points.starts(row, start)
        of_all = is_matched & (start <= last_start) & ~np.isin(kind, from_root)
        edges.add(edge_kinds.ARRIVAL, arrived[of_all], hub[of_all], 0)

    # -- threads ------------------------------------------------------------------------------------------------------------

    def wait_for_signals(self) -> None:
        """Add waits of threads that other ones ended."""
        pairs = wake_ups(self._run)
        row, end, signal_row, signal_start = (
            pairs[name].to_numpy().astype(np.int64) for name in ("row", "end", "signal_row", "signal_start")
        )
        signal, woken = self._points.starts(signal_row, signal_start), self._points.ends(row, end)
        self._edges.add_class(edge_kinds.WAKE_UP, signal, woken, end - signal_start)
        is_complete = (signal != NO_MOMENT) & (woken != NO_MOMENT)
        self.alone.set(self._points.interval(woken[is_complete]), edge_kinds.BLOCKED_CALL, 0)


def _values(names: Any) -> list[tuple[int, str]]:
    """Values of an event type with their names."""
    return list(((names.values if names else None) or {}).items())


# -- waits for devices --------------------------------------------------------------------------------------------------


def _awaited(parts: GraphParts, calls: Numbers, kinds: Numbers, by_events: pl.DataFrame) -> Numbers:
    """The moment at which the operation ended that each call waited for; NO_MOMENT: none."""
    run, points = parts.run, parts.points
    awaited: Numbers = np.full(len(calls), NO_MOMENT, dtype=np.int64)
    ends = np.sort(points.end[: points.devices])
    if not len(calls) or not len(ends):
        return awaited
    time, row = points.moments.time, points.moments.row
    begin, until = points.times(calls)
    of_row = row[points.start[calls]]
    rows, streams = run.events.rows, LogicalStreams(run.events.rows)
    operation = points.interval(ends)

    def wait(which: Numbers, end: Numbers) -> None:
        """Set the ends that calls (their places) waited for; NO_MOMENT: it is not known."""
        ended = np.where(end >= 0, time[end], -1)
        is_wait = (ended > begin[which]) & (ended <= until[which])
        awaited[which[is_wait]] = end[is_wait]

    def last_of(group: Numbers, which: Numbers, of_calls: Numbers) -> Numbers:
        """What ended last in the group of each call before it did."""
        return _taken(ends, _latest(group, time[ends], of_calls, until[which]))

    def last_of_task(which: Numbers) -> Numbers:
        return last_of(rows.task[row[ends]], which, rows.task[of_row[which]])

    def last_of_thread(which: Numbers) -> Numbers:
        """What the thread launched last before each call."""
        is_launched = np.flatnonzero(parts.thread[operation] >= 0)
        by_launch = is_launched[np.argsort(parts.launched[operation[is_launched]], kind="stable")]
        thread, launched = parts.thread[operation[by_launch]], parts.launched[operation[by_launch]]
        return _taken(ends[by_launch], _latest(thread, launched, of_row[which], begin[which]))

    columns = {"place": np.arange(len(calls)), "row": of_row, "begin": begin, "until": until}
    of_kind = {kind: np.flatnonzero(kinds == kind) for kind in (DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT, COPY)}
    frame = pl.DataFrame(columns)
    if len(of_kind[COPY]):
        wait(*_own_copies(parts, frame[of_kind[COPY]], ends, operation))
    if len(of_kind[DEVICE_WAIT]):
        wait(of_kind[DEVICE_WAIT], last_of_task(of_kind[DEVICE_WAIT]))
    stream = _first_inside(frame[of_kind[STREAM_WAIT]], _named_streams(run, streams), "stream")
    is_named = stream.is_not_null().to_numpy()
    named = of_kind[STREAM_WAIT][is_named]
    if len(named):
        wait(named, last_of(streams.of_row[row[ends]], named, stream.drop_nulls().to_numpy()))
    end = points.ends(by_events["awaited_row"].to_numpy(), by_events["awaited_end"].to_numpy())
    by_record = by_events.select("row", "start", pl.Series("end", end)).filter(pl.col("end") != NO_MOMENT)
    recorded = _first_inside(frame[of_kind[EVENT_WAIT]], by_record.sort("row", "start", "end"), "end").fill_null(NO_MOMENT)
    wait(of_kind[EVENT_WAIT], recorded.to_numpy())
    unnamed = np.concatenate([of_kind[STREAM_WAIT][~is_named], of_kind[EVENT_WAIT]])
    unnamed = unnamed[awaited[unnamed] == NO_MOMENT]
    if len(unnamed):
        wait(unnamed, last_of_thread(unnamed))
        unnamed = unnamed[awaited[unnamed] == NO_MOMENT]
        wait(unnamed, last_of_task(unnamed))
    return awaited


def _taken(values: npt.NDArray[Any], place: Numbers) -> Numbers:
    """Values at places; NO_MOMENT where there is none."""
    return np.where(place >= 0, values[np.maximum(place, 0)] if len(values) else NO_MOMENT, NO_MOMENT).astype(np.int64)


def _latest(groups: npt.NDArray[Any], times: Numbers, group: npt.NDArray[Any], time: Numbers) -> Numbers:
    """For each (group, time) the last place with this group and a time that is not later; -1: none. `times` are in order, and
    groups are not negative."""
    order = order_of_keys(groups.astype(np.int64))
    ordered = groups[order].astype(np.int64)
    place = Moments.of(ordered, times[order]).find(group.astype(np.int64), time) if len(order) else np.full(len(group), -1)
    is_same = (place >= 0) & (ordered[np.maximum(place, 0)] == group) if len(order) else place >= 0
    return _taken(order, np.where(is_same, place, -1))


def _named_streams(run: MeasuredRun, streams: LogicalStreams) -> pl.DataFrame:
    """Recorded waits for streams: row of the thread, start, stream."""
    waits = run.frame(WAITS)
    located = run.events.rows.located(waits).with_columns(device=waits["device"] - 1)
    streams.note_devices(located.select("task", "device").unique().iter_rows())
    of_stream = next((value for value, name in _values(run.events.types.get(SYNCHRONIZATION)) if name == SYNC_STREAM), -1)
    of_streams = located.filter(pl.col("value") == of_stream)
    return of_streams.select("row", "start", streams.find(of_streams).alias("stream")).sort("row", "start", maintain_order=True)


def _first_inside(calls: pl.DataFrame, waits: pl.DataFrame, column: str) -> pl.Series:
    """For each call a column of the first wait on its row that starts in it; null: none does."""
    if calls.is_empty() or waits.is_empty():
        return pl.repeat(None, calls.height, dtype=waits.schema[column], eager=True)
    first = waits.select(pl.col("row").cast(pl.Int64), "start", column).sort("start", maintain_order=True)
    joined = calls.with_columns(pl.col("row").cast(pl.Int64)).sort("begin").join_asof(
        first, left_on="begin", right_on="start", by="row", strategy="forward", check_sortedness=False, coalesce=False
    )  # fmt: skip
    is_inside = pl.col("start") <= pl.col("until")
    return joined.sort("place").select(pl.when(is_inside).then(column).alias(column)).to_series()


def _own_copies(parts: GraphParts, calls: pl.DataFrame, ends: Places, operation: Places) -> tuple[Numbers, Numbers]:
    """Places of calls that copy, and the end of what they launched last, if it ended before they did."""
    is_launched = parts.thread[operation] >= 0
    launched = pl.DataFrame(
        {
            "row": parts.thread[operation[is_launched]],
            "begin": parts.launched[operation[is_launched]],
            "end": ends[is_launched],
        }
    )
    pairs = calls.join(launched, on=["row", "begin"], how="inner")
    ended = pl.Series(parts.points.moments.time[pairs["end"].to_numpy()])
    in_time = pairs.filter((ended > pl.col("begin")) & (ended <= pl.col("until")))
    last = in_time.group_by("place").agg(pl.col("end").max())
    return last["place"].to_numpy(), last["end"].to_numpy().astype(np.int64)


# -- threads that wake others -------------------------------------------------------------------------------------------


def wake_ups(run: MeasuredRun) -> pl.DataFrame:
    """Waits of threads with the calls that ended them: WAKE_UP_SCHEMA."""
    kinds = pl.DataFrame(
        _values(run.events.types.get(event_types.PTHREAD_CALL)), schema={"value": pl.Int32, "name": pl.String}, orient="row"
    ).select(
        "value", wait=first_match(pl.col("name"), _THREAD_WAITS, 0), signal=first_match(pl.col("name"), _SIGNALS, 0)
    )  # fmt: skip
    if not (kinds["wait"] > 0).any():
        return pl.DataFrame(schema=WAKE_UP_SCHEMA)
    threads = run.calls.filter(pl.col("number") == event_types.PTHREAD_CALL).select("row", "start", "end", "value")
    of_kinds = run.events.rows.located(threads.join(kinds, on="value", how="inner", maintain_order="left"))
    waits = of_kinds.filter(pl.col("wait") > 0).select("row", "start", "end", "task", kind="wait")
    signals = of_kinds.filter(pl.col("signal") > 0).select(
        "task", kind="signal", signal_row="row", signal_start="start", signal_end="end"
    )
    joined = waits.sort("end", maintain_order=True).join_asof(
        signals.sort("signal_start", maintain_order=True), left_on="end", right_on="signal_start", by=["task", "kind"],
        coalesce=False, check_sortedness=False,
    )  # fmt: skip
    is_cause = (
        (pl.col("signal_start") >= pl.col("start"))
        & (pl.col("signal_end") >= pl.col("end") - LONGEST_WAKE_UP)
        & (pl.col("signal_row") != pl.col("row"))
    )
    paired = joined.filter(is_cause).select(list(WAKE_UP_SCHEMA))
    return _by_threads_awake(paired, _asleep(run, waits.join(paired, on=["row", "start"], how="anti")))


def _asleep(run: MeasuredRun, unexplained: pl.DataFrame) -> pl.DataFrame:
    """When threads wait for what is not known: in calls of the OS, and in waits that nothing explains."""
    values = [value for value, name in _values(run.events.types.get(event_types.OS_CALL)) if re.match(_ASLEEP, name)]
    in_os = run.calls.filter((pl.col("number") == event_types.OS_CALL) & pl.col("value").is_in(values))
    columns = {"signal_row": pl.col("row"), "slept_from": pl.col("start"), "slept_until": pl.col("end")}
    return pl.concat([in_os.select(**columns), unexplained.select(**columns)]).sort("slept_from", "slept_until")


def _by_threads_awake(pairs: pl.DataFrame, asleep: pl.DataFrame) -> pl.DataFrame:
    """Waits without those that were ended by a thread which was asleep from their beginning on for long."""
    latest = pairs.sort("start", maintain_order=True).join_asof(
        asleep, left_on="start", right_on="slept_from", by="signal_row", check_sortedness=False
    )
    slept = pl.col("slept_until") - pl.col("start")
    is_asleep = (slept > 0) & (slept > _MOSTLY * (pl.col("end") - pl.col("start")))
    return latest.filter(~is_asleep.fill_null(False)).select(list(WAKE_UP_SCHEMA))


def waits_in_os(labels: GraphLabels) -> Mask:
    """Whether a thread waits in the call of each label, for what may not be known; of the last one, for no label, not."""
    is_os = labels.is_of(event_types.OS_CALL, event_types.PTHREAD_CALL)
    waits = labels.names.str.contains(WAITING_CALLS).fill_null(False).to_numpy() if len(labels) else is_os
    return np.append(is_os & waits, False)
