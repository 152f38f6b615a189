"""What calls of host threads waited for: work of devices, messages, collectives of MPI, and threads that woke them.

Where the recorded waits of CUDA name a stream or an event, that decides what a call waited for. Else it is known from the name
of the call: a copy waits for the operation that it launched, a synchronization of a stream for what its thread launched last,
and one of a device for all that ran there. A call did not wait for what had ended before it began.

All ranks of a communicator call its collectives in one order (MPI standard, 6.14), so the calls of a task on a communicator are
numbered. A recording, or the selected time, can begin on one rank before a call and on another one after it: the first calls of
the tasks decide, by their names and by when they run, where their numbers begin.

Reports have no objects of waits for threads: that a wait ended right after a call which can end such a wait is taken to be no
chance. nsys leaves out short calls (by default those under 1 us), most of those that unlock and post among them: many waits
have no known end. That of a thread is known only where it calls pthread_exit. A thread that waited itself for what is not known
when the wait began, and for most of it, is not the cause: a helper that sleeps in epoll_wait was woken by someone else, who is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import LogicalStreams, named_values, with_last
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
from nsys2prv.efficiency.graph.replay import WHOLE, EdgeKind
from nsys2prv.efficiency.intervals import Mask, Numbers
from nsys2prv.efficiency.measured_run import MPI, MeasuredRun
from nsys2prv.efficiency.run_events import MPI_COLLECTIVES
from nsys2prv.sources.cuda.synchronization import SYNC_STREAM
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_LONG_SEND = 50_000
"""ns that a send takes at least if it waits for the receive: one that only hands over its data takes less."""
_LONG_AGO = 100_000
"""ns before a receive was called in which a message has arrived that was sent then."""

_LEAST_STAGING = 10_000
"""ns that a call takes at least which hands over the data of a copy: one that only starts the copy takes less."""

LONGEST_WAKE_UP = 50_000
"""From the end of a call that ends a wait to the end of the wait, at most, ns."""
_WAKE_UPS = (
    (r"^pthread_cond_(timed|clock)?wait$", r"^pthread_cond_(signal|broadcast)$"),
    (r"^sem_(timed|clock)?wait$", r"^sem_post$"),
    # A wait for a condition starts by unlocking the mutex.
    (r"^pthread_(mutex_(timed|clock)?|spin_)lock$", r"^pthread_((mutex|spin)_unlock|cond_(timed|clock)?wait)$"),
    (r"^pthread_rwlock_(timed|clock)?(rd|wr)lock$", r"^pthread_rwlock_unlock$"),
    (r"^pthread_(timed|clock)?join(_np)?$", r"^pthread_exit$"),
    (r"^pthread_barrier_wait$", r"^pthread_barrier_wait$"),
)
"""Names of calls in which a thread waits, and of those that end such a wait."""
TIMERS = r"^((clock_)?nanosleep|u?sleep)$"
"""Calls in which a thread sleeps for a time that it knows."""
_ASLEEP = rf"{TIMERS}|^(e?poll(_p?wait2?)?|ppoll|p?select|sig(timed)?wait(info)?)$"
"""Calls in which a thread waits for what is not recorded."""
WAITING_CALLS = "|".join([_ASLEEP, *(wait for wait, _ in _WAKE_UPS)])
"""Names of calls of the OS in which a thread waits: for what, is known at best from who woke it."""
_MOSTLY = 0.5
"""Part of a wait in which the thread that ended it was asleep from its beginning on, at most; and part of a call that copies in
which the copy runs, at least, where the call hands over its data."""
WAKE_UP_SCHEMA = {"row": pl.Int32, "start": pl.Int64, "end": pl.Int64, "signal_row": pl.Int32, "signal_start": pl.Int64}
"""A wait: row, start and end; row and start of the call that ended it, ns."""

_FIRST_CALLS = 64
"""Calls of each task on a communicator that decide where its numbers begin."""
_MOST_MISSING = 8
"""Calls that may be missing at the beginning of a task."""

_TO_ALL, _FROM_ROOT, _TO_ROOT = range(1, 4)
WAITING_COLLECTIVES = (
    (r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)$", _TO_ALL),
    (r"^MPI_(Bcast|Scatterv?)$", _FROM_ROOT),
    (r"^MPI_(Reduce|Gatherv?)$", _TO_ROOT),
)
"""Collectives of which all wait for all, all for the root, and the root for all."""

_COLLECTIVE = ["communicator", "place"]
COLLECTIVE_SCHEMA = {
    **dict.fromkeys(("collective", "start", "end", "kind", "members", "awaited_start"), pl.Int64),
    **dict.fromkeys(("row", "awaited_row"), pl.Int32),
    "blocking": pl.Boolean,
}
"""A member of a collective: number of the collective, row and times of the call, ns; its name (a value of MPI_COLLECTIVE), and
whether it is blocking (MPI_Iallreduce is not); number of members; row and start of the member without which it could not end,
the last one that called, or the root: null for itself, where it need not wait for another, and where the root is not known."""


def add_host_waits(parts: GraphParts, by_events: pl.DataFrame) -> None:
    """Add the edges of what calls of host threads waited for, and set what these calls take by themselves; `by_events` are
    recorded waits of threads for events (`EventEdges.on_hosts`)."""
    _wait_for_devices(parts, by_events)
    _wait_for_messages(parts)
    _wait_for_members(parts)
    _wait_for_signals(parts)


# -- waits for devices --------------------------------------------------------------------------------------------------


def _wait_for_devices(parts: GraphParts, by_events: pl.DataFrame) -> None:
    points, edges = parts.points, parts.edges
    calls = np.flatnonzero(parts.labels.waits[points.label[points.devices :]] != NO_WAIT) + points.devices
    label, (begin, until) = points.label[calls], points.times(calls)
    kinds = parts.labels.waits[label]
    awaited = _awaited(parts, calls, kinds, by_events)
    waited = awaited != NO_MOMENT
    edges.add_class(EdgeKind.SYNCHRONIZATION, awaited, points.end[calls], until - points.moments.time[awaited], label)
    # Calls that did not wait show what such a call takes by itself; a copy always waits.
    code, free = class_code(EdgeKind.BLOCKED_CALL, label), ~waited & (kinds != COPY)
    edges.takes(code[free], (until - begin)[free])
    parts.set_alone(calls[waited], EdgeKind.BLOCKED_CALL, code[waited])
    _add_staging(parts, calls[~waited & (kinds == COPY)])


def _add_staging(parts: GraphParts, calls: Numbers) -> None:
    """Copies from pageable memory: most of the call hands over the data while the copy runs, which ends after the call."""
    points, row = parts.points, parts.points.moments.row
    begin, until = points.times(calls)
    copying = pl.DataFrame({"call": calls, "row": row[points.start[calls]], "launched": begin, "until": until})
    operations = pl.DataFrame({"row": parts.thread, "launched": parts.launched}).with_row_index("operation")
    pairs = copying.join(operations, on=["row", "launched"], how="inner").sort("operation").unique("call", keep="first")
    since, _ = points.times(pairs["operation"].to_numpy())
    overlap, length = pairs["until"].to_numpy() - since, (pairs["until"] - pairs["launched"]).to_numpy()
    staged = pairs.filter(pl.Series((length >= _LEAST_STAGING) & (overlap >= _MOSTLY * length)))
    call = staged["call"].to_numpy()
    parts.edges.add(EdgeKind.STAGING, points.start[staged["operation"].to_numpy()], points.end[call], WHOLE)
    parts.set_alone(call, EdgeKind.BLOCKED_CALL, 0)


def _awaited(parts: GraphParts, calls: Numbers, kinds: Numbers, by_events: pl.DataFrame) -> Numbers:
    """The moment at which the operation ended that each call waited for; NO_MOMENT: none."""
    points, rows = parts.points, parts.run.events.rows
    time, row = points.moments.time, points.moments.row
    begin, until = points.times(calls)
    of_row = row[points.start[calls]]
    waiting = pl.DataFrame({"row": of_row, "task": rows.task[of_row], "begin": begin, "until": until}).with_row_index("place")
    streams = LogicalStreams(rows)
    ends = np.sort(points.end[: points.devices])
    operation = points.interval(ends)
    columns = {"end": ends, "time": time[ends], "task": rows.task[row[ends]], "stream": streams.of_row[row[ends]]}
    ended = pl.DataFrame({**columns, "row": parts.thread[operation], "launched": parts.launched[operation]})
    synchronizations = streams.waits(parts.run).filter(pl.col("kind") == SYNC_STREAM).sort("row", maintain_order=True)
    stream = _first_inside(waiting, synchronizations.select("row", "start", "stream"), "stream")
    waiting = waiting.with_columns(stream.set(pl.Series(kinds != STREAM_WAIT), None))
    end = points.ends(by_events["awaited_row"].to_numpy(), by_events["awaited_end"].to_numpy())
    by_record = by_events.select("row", "start", pl.Series("end", end)).filter(pl.col("end") != NO_MOMENT).sort("end")

    def in_time(end: pl.Series) -> pl.Series:
        """Ends that calls can have waited for."""
        moment = end.fill_null(NO_MOMENT).to_numpy()
        return end.set(pl.Series((moment < 0) | (time[moment] <= begin) | (time[moment] > until)), None)

    def last_of(group: str, until: str, key: str) -> pl.Series:
        """The last end in the group of each call until it begins or ends."""
        joined = with_last(waiting, until, ended.select("end", group, key), key, group)
        return in_time(joined.sort("place")["end"])

    candidates = waiting.select("stream", kind=kinds).with_columns(
        copy=_ends_of_copies(waiting, ended),
        of_stream=last_of("stream", "until", "time"),
        recorded=in_time(_first_inside(waiting, by_record, "end").set(pl.Series(kinds != EVENT_WAIT), None)),
        of_thread=last_of("row", "begin", "launched"),
        of_task=last_of("task", "until", "time"),
    )
    kind, is_named = pl.col("kind"), pl.col("stream").is_not_null()
    # What the thread launched last, else what ended last in its task, is only what is likely.
    of_devices = pl.when(kind == DEVICE_WAIT).then("of_task").otherwise(pl.coalesce("recorded", "of_thread", "of_task"))
    awaited = pl.when(kind == COPY).then("copy").when(is_named).then("of_stream").otherwise(of_devices)
    return candidates.select(awaited.fill_null(NO_MOMENT).cast(pl.Int64)).to_series().to_numpy()


def _first_inside(calls: pl.DataFrame, waits: pl.DataFrame, column: str) -> pl.Series:
    """For each call a column of the first wait on its row that starts in it; null: none does."""
    joined = with_last(calls, "begin", waits.cast({"row": pl.Int32}), "start", "row", forward=True).sort("place")
    return joined.select(pl.when(pl.col("start") <= pl.col("until")).then(column).alias(column)).to_series()


def _ends_of_copies(calls: pl.DataFrame, ended: pl.DataFrame) -> pl.Series:
    """The end of what each call launched last, if it ended before the call did; null: else."""
    pairs = calls.join(ended, left_on=["row", "begin"], right_on=["row", "launched"], how="inner")
    in_time = pairs.filter((pl.col("time") > pl.col("begin")) & (pl.col("time") <= pl.col("until")))
    last = in_time.group_by("place").agg(pl.col("end").max())
    return calls.join(last, on="place", how="left", maintain_order="left")["end"]


# -- waits for ranks ----------------------------------------------------------------------------------------------------


def _wait_for_messages(parts: GraphParts) -> None:
    """Receives wait for sends, and long sends for receives."""
    messages, points, edges = parts.run.messages, parts.points, parts.edges
    row, sent_at, to_row, called, to_time, size = (
        messages[name].fill_null(0).to_numpy().astype(np.int64)
        for name in ("row", "time", "to_row", "to_begin", "to_time", "size")
    )
    sent, received = points.starts(row, sent_at), points.ends(to_row, to_time)
    # Messages of like sizes take like times.
    of_size = np.log2(size + 1.0).astype(np.int64)
    edges.add_class(EdgeKind.MESSAGE, sent, received, to_time - sent_at, of_size, sent_at > called)
    is_complete = (sent != NO_MOMENT) & (received != NO_MOMENT)
    calls = points.interval(received[is_complete])
    parts.set_alone(calls, EdgeKind.BLOCKED_CALL, class_code(EdgeKind.BLOCKED_CALL, points.label[calls]))
    # A call whose messages were sent long ago shows what it takes alone.
    receives, place = np.unique(calls, return_inverse=True)
    latest = np.full(len(receives), -1, dtype=np.int64)
    np.maximum.at(latest, place, sent_at[is_complete])
    begin, until = points.times(receives)
    free = latest < begin - _LONG_AGO
    edges.takes(class_code(EdgeKind.BLOCKED_CALL, points.label[receives[free]]), (until - begin)[free])
    _wait_for_receives(parts, pl.DataFrame({"row": row.astype(np.int32), "time": sent_at, "to_row": to_row, "called": called}))


def _wait_for_receives(parts: GraphParts, sent: pl.DataFrame) -> None:
    """A send that lasts until the receive was called waited for it: rendezvous."""
    points = parts.points
    calls = np.flatnonzero(parts.labels.causes[points.label] == MPI)
    calls = calls[np.argsort(points.end[calls])]
    begin, until = points.times(calls)
    sends = pl.DataFrame({"row": points.moments.row[points.start[calls]], "time": begin, "until": until, "send": calls})
    sends = sends.unique(["row", "time"], keep="first", maintain_order=True)
    long = sent.join(sends, on=["row", "time"], how="inner", maintain_order="left").filter(
        pl.col("until") - pl.col("time") >= _LONG_SEND,
        pl.col("called") > pl.col("time"),
        pl.col("called") <= pl.col("until"),
    )
    posted = points.starts(long["to_row"].to_numpy(), long["called"].to_numpy())
    send = long["send"].to_numpy()
    parts.edges.add(EdgeKind.MESSAGE, posted, points.end[send], 0)
    parts.set_alone(send[posted != NO_MOMENT], EdgeKind.BLOCKED_CALL, 0)


def _wait_for_members(parts: GraphParts) -> None:
    """Collective calls of MPI."""
    members, points, edges = mpi_collectives(parts.run).filter("blocking"), parts.points, parts.edges
    row, start, end, kind, last_row, last_start = (
        members[name].fill_null(NO_MOMENT).to_numpy().astype(np.int64)
        for name in ("row", "start", "end", "kind", "awaited_row", "awaited_start")
    )
    ended = points.ends(row, end)
    has_waited = last_row != NO_MOMENT
    hub = np.where(has_waited, points.starts(last_row, last_start), NO_MOMENT)
    is_alone, is_matched = (ended != NO_MOMENT) & ~has_waited, (ended != NO_MOMENT) & (hub != NO_MOMENT)
    call = points.interval(ended)
    transfer = class_code(EdgeKind.TRANSFER, points.label[call])
    parts.set_alone(call[is_alone], EdgeKind.TRANSFER, WHOLE)
    edges.takes(transfer[is_alone], (end - start)[is_alone])
    parts.set_alone(call[is_matched], EdgeKind.TRANSFER, transfer[is_matched])
    edges.add(EdgeKind.COLLECTIVE, hub, ended, transfer)
    # In a replay another member may be the last; a root that sends does not wait.
    names = named_values(parts.run, event_types.MPI_COLLECTIVE)
    from_root = [value for value, name in names if "cast" in name or "catter" in name]
    of_all = is_matched & (start <= last_start) & ~np.isin(kind, from_root)
    edges.add(EdgeKind.ARRIVAL, points.starts(row, start)[of_all], hub[of_all], 0)


# -- collectives of MPI -------------------------------------------------------------------------------------------------


def mpi_collectives(run: MeasuredRun) -> pl.DataFrame:
    """Calls of collectives that several tasks made, and that end in the window: COLLECTIVE_SCHEMA, in the order of `end`.

    They are matched in the whole recording. Times count from the start of the window; a call that began before begins there.
    """
    calls = run.recorded.frame(MPI_COLLECTIVES)
    if calls.is_empty():
        return pl.DataFrame(schema=COLLECTIVE_SCHEMA)
    low, high = run.events.offset, run.events.offset + run.events.length
    members = _with_awaited(run, _matched(run, _placed(run, calls))).filter(pl.col("end").is_between(low, high))
    return members.sort("end", "row").with_columns(
        (pl.col("start", "awaited_start") - low).clip(lower_bound=0), end=pl.col("end") - low
    )


def _placed(run: MeasuredRun, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls on communicators of several tasks, with the `task`, and the `place` of their collective on the communicator."""
    names = named_values(run, event_types.MPI_COMMUNICATOR)
    communicators = [value for value, name in names if name != event_types.UNKNOWN_COMMUNICATOR]
    numbered = (
        calls.select(
            pl.Series("task", run.events.rows.task[calls["row"].to_numpy()]),
            *("start", "end", "row", "communicator", "root"),
            kind="value",
        )
        .filter(pl.col("communicator").is_in(communicators))
        .with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64).over("communicator", "task"))
    )
    first = numbered.filter(pl.col("number") < _FIRST_CALLS)
    offsets = [
        (communicator, task, offset)
        for (communicator,), of_communicator in first.partition_by("communicator", as_dict=True).items()
        if of_communicator["task"].n_unique() > 1
        for task, offset in _offsets(of_communicator).items()
    ]
    schema = {"communicator": pl.Int64, "task": pl.Int64, "offset": pl.Int64}
    joined = numbered.join(pl.DataFrame(offsets, schema=schema, orient="row"), on=["communicator", "task"], how="inner")
    return joined.with_columns(place=pl.col("number") + pl.col("offset")).sort(*_COLLECTIVE, "start", "end", "row")


def _matched(run: MeasuredRun, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls in the place of others with the same name, with `collective`, `members`, `waiting` and `blocking`."""
    names = named_values(run, event_types.MPI_COLLECTIVE)
    kinds = pl.DataFrame(names, schema={"kind": pl.Int64, "name": pl.String}, orient="row").select(
        "kind",
        waiting=first_match(pl.col("name"), WAITING_COLLECTIVES, 0),
        blocking=~pl.col("name").str.contains("^MPI_I|_init$"),
    )
    together = calls.with_columns(
        members=pl.len().over(_COLLECTIVE).cast(pl.Int64),
        kinds=pl.col("kind").n_unique().over(_COLLECTIVE),
        collective=pl.struct(_COLLECTIVE).rle_id().cast(pl.Int64),
    ).filter(pl.col("members") > 1, pl.col("kinds") == 1)
    return together.join(kinds, on="kind", how="left", maintain_order="left")


def _with_awaited(run: MeasuredRun, members: pl.DataFrame) -> pl.DataFrame:
    """Members of collectives with whom each waited for: COLLECTIVE_SCHEMA. Ranks are those of the communicator of all."""
    names = named_values(run, event_types.MPI_COMMUNICATOR)
    world = [value for value, name in names if name == event_types.MPI_COMM_WORLD]
    ranks = pl.Series([task.rank for task in run.events.rows.tasks], dtype=pl.Int64)
    is_root = pl.col("communicator").is_in(world) & (pl.Series(ranks.gather(members["task"])) == pl.col("root") - 1)
    ends = members.with_columns(is_root=is_root.fill_null(False)).with_columns(
        *(pl.col(name).get(pl.col("start").arg_max()).over("collective").alias(f"last_{name}") for name in ("row", "start")),
        *(pl.col(name).filter("is_root").first().over("collective").alias(f"root_{name}") for name in ("row", "start")),
    )
    for_last = (pl.col("waiting") == _TO_ALL) | ((pl.col("waiting") == _TO_ROOT) & pl.col("is_root"))

    def awaited(name: str) -> pl.Expr:
        return pl.when(for_last).then(f"last_{name}").when(pl.col("waiting") == _FROM_ROOT).then(f"root_{name}")

    is_other = awaited("row") != pl.col("row")
    columns = {f"awaited_{name}": pl.when(is_other).then(awaited(name)) for name in ("row", "start")}
    return ends.with_columns(**columns).select(pl.col(name).cast(dtype) for name, dtype in COLLECTIVE_SCHEMA.items())


def _offsets(first: pl.DataFrame) -> Mapping[int, int]:
    """What is added to the numbers of each task on one communicator, so that equal numbers are one collective.

    `first` are the first calls of each task: task, number, start, end, kind. A task is shifted against the one with the most
    calls so that as many calls as possible have the same name and run at the same time; only if these are twice as many as
    without a shift.
    """
    of_tasks = {
        int(task): calls.sort("number").select("start", "end", "kind").to_numpy()
        for (task,), calls in first.partition_by("task", as_dict=True).items()
    }
    reference = max(of_tasks, key=lambda task: (len(of_tasks[task]), -task))
    shifts = sorted(range(-_MOST_MISSING, _MOST_MISSING + 1), key=abs)
    offsets = {}
    for task, calls in of_tasks.items():
        agreement = {shift: _agreement(calls, of_tasks[reference], shift) for shift in shifts}
        best = max(shifts, key=lambda shift: agreement[shift])
        offsets[task] = best if agreement[best] >= 2 * max(agreement[0], 1) else 0
    least = min(offsets.values())
    return {task: offset - least for task, offset in offsets.items()}


def _agreement(calls: Numbers, reference: Numbers, shift: int) -> int:
    """How many calls have the name of that of another task which is `shift` places later, and run at the same time."""
    ours, theirs = calls[max(0, -shift) :], reference[max(0, shift) :]
    length = min(len(ours), len(theirs))
    ours, theirs = ours[:length], theirs[:length]
    is_same = ours[:, 2] == theirs[:, 2]
    return int(np.count_nonzero(is_same & (ours[:, 0] <= theirs[:, 1]) & (theirs[:, 0] <= ours[:, 1])))


# -- threads that wake others -------------------------------------------------------------------------------------------


def _wait_for_signals(parts: GraphParts) -> None:
    """Waits of threads that other threads ended."""
    pairs = wake_ups(parts.run)
    row, end, signal_row, signal_start = (
        pairs[name].to_numpy().astype(np.int64) for name in ("row", "end", "signal_row", "signal_start")
    )
    signal, woken = parts.points.starts(signal_row, signal_start), parts.points.ends(row, end)
    parts.edges.add_class(EdgeKind.WAKE_UP, signal, woken, end - signal_start)
    is_complete = (signal != NO_MOMENT) & (woken != NO_MOMENT)
    parts.set_alone(parts.points.interval(woken[is_complete]), EdgeKind.BLOCKED_CALL, 0)


def wake_ups(run: MeasuredRun) -> pl.DataFrame:
    """Waits of threads with the calls that ended them: WAKE_UP_SCHEMA."""
    names = named_values(run, event_types.PTHREAD_CALL)
    rules = ([(pattern, kind) for kind, pattern in enumerate(patterns, 1)] for patterns in zip(*_WAKE_UPS, strict=True))
    wait, signal = (first_match(pl.col("name"), of_calls, 0) for of_calls in rules)
    calls = pl.DataFrame(names, schema={"value": pl.Int32, "name": pl.String}, orient="row")
    kinds = calls.select("value", wait=wait, signal=signal)
    if not (kinds["wait"] > 0).any():
        return pl.DataFrame(schema=WAKE_UP_SCHEMA)
    threads = run.calls.filter(pl.col("number") == event_types.PTHREAD_CALL).select("row", "start", "end", "value")
    of_kinds = run.events.rows.located(threads.join(kinds, on="value", how="inner", maintain_order="left"))
    waits = of_kinds.filter(pl.col("wait") > 0).select("row", "start", "end", "task", kind="wait")
    signals = of_kinds.filter(pl.col("signal") > 0).select(
        "task", kind="signal", signal_row="row", signal_start="start", signal_end="end"
    )
    joined = with_last(waits, "end", signals, "signal_start", ["task", "kind"])
    is_cause = (
        (pl.col("signal_start") >= pl.col("start"))
        & (pl.col("signal_end") >= pl.col("end") - LONGEST_WAKE_UP)
        & (pl.col("signal_row") != pl.col("row"))
    )
    paired = joined.filter(is_cause).select(list(WAKE_UP_SCHEMA))
    return _by_threads_awake(paired, _asleep(run, waits.join(paired, on=["row", "start"], how="anti")))


def _asleep(run: MeasuredRun, unexplained: pl.DataFrame) -> pl.DataFrame:
    """When threads wait for what is not known: in calls of the OS, and in waits that nothing explains."""
    values = [value for value, name in named_values(run, event_types.OS_CALL) if re.match(_ASLEEP, name)]
    in_os = run.calls.filter((pl.col("number") == event_types.OS_CALL) & pl.col("value").is_in(values))
    columns = {"signal_row": pl.col("row"), "slept_from": pl.col("start"), "slept_until": pl.col("end")}
    return pl.concat([in_os.select(**columns), unexplained.select(**columns)]).sort("slept_from", "slept_until")


def _by_threads_awake(pairs: pl.DataFrame, asleep: pl.DataFrame) -> pl.DataFrame:
    """Waits without those that were ended by a thread which was asleep from their beginning on for long."""
    latest = with_last(pairs, "start", asleep, "slept_from", "signal_row")
    slept = pl.col("slept_until") - pl.col("start")
    is_asleep = (slept > 0) & (slept > _MOSTLY * (pl.col("end") - pl.col("start")))
    return latest.filter(~is_asleep.fill_null(False)).select(list(WAKE_UP_SCHEMA))


def waits_in_os(labels: GraphLabels) -> Mask:
    """Whether a thread waits in the call of each label, for what may not be known."""
    waits: Mask = labels.by_name(pl.col("name").str.contains(WAITING_CALLS))
    return waits & labels.is_of(event_types.OS_CALL, event_types.PTHREAD_CALL)
