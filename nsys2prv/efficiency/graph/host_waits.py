"""What calls of host threads waited for: work of devices, messages, collectives of MPI, and threads that woke them.

docs/efficiency.md ("What waits for what") says how that is known. Recorded waits of CUDA decide before names of calls, and no
call waited for what had ended before it began. A thread that waited itself for what is not known when a wait began, and for
most of it, did not end that wait: a helper that sleeps in epoll_wait was woken by someone else, who did."""

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import named_values, recorded_waits, with_last
from nsys2prv.efficiency.graph.moments import CallWait, GraphLabels, GraphParts, class_code, columns_of
from nsys2prv.efficiency.graph.replay import WHOLE, EdgeKind
from nsys2prv.efficiency.intervals import NONE, Integers, Mask, Moments, Numbers
from nsys2prv.efficiency.measured_run import LAUNCH, MPI, MeasuredRun
from nsys2prv.efficiency.run_events import MPI_COLLECTIVES, OS_TYPES
from nsys2prv.sources.cuda.synchronization import SYNC_STREAM
from nsys2prv.vocabulary import call_names, event_types
from nsys2prv.vocabulary.name_rules import first_match

_LONG_SEND = 50_000
"""ns that a send takes at least if it waits for the receive: one that only hands over its data takes less."""
_LONG_AGO = 100_000
"""ns before a receive was called in which a message has arrived that was sent then."""
_LEAST_STAGING = 10_000
"""ns that a call takes at least which hands over the data of a copy: one that only starts the copy takes less."""
LONGEST_WAKE_UP, _MOST_OF_WAIT, _LATEST_WAKE_UP = 50_000, 0.1, 200_000
"""From the end of a call that ends a wait to the end of the wait, at most, ns; or, up to so many ns, a part of the wait."""
_LONGEST_BY_WRITE = 500_000
"""The same of a write, to what a poll waits for: the kernel wakes its thread."""
_LONGEST_TURN_AFTER_ALL = 2_000_000
"""The same of a broadcast that has ended another wait: threads that it wakes take their mutex one after the other."""
_LONG_CALL, _LONGEST_TURN = 1_000_000, 100_000
"""ns that calls of two threads take at least of which one lets the other one into the driver, and from the end of one to that
of the other at most. Ends of calls as long as that are hardly so near by chance."""
_LONGEST_LOAD, _MOST_OF_LOAD = 2_000_000, 0.05
"""ns, and part of the call, that loading of code takes at most once devices are idle: calls seldom end so near by chance."""
_MOSTLY = 0.5
"""Part of a wait in which the thread that ended it was asleep from its beginning on, at most; and of a call that copies, or of
its copy, the part in which both run, at least, where the call hands over its data."""
_FIRST_CALLS = 64
"""Calls of each task on a communicator that decide where its numbers begin."""
_MOST_MISSING = 8
"""Calls that may be missing at the beginning of a task."""
_COLLECTIVE = ["communicator", "place"]
COLLECTIVE_SCHEMA = {
    **dict.fromkeys(("collective", "start", "end", "kind", "waiting", "members", "awaited_start"), pl.Int64),
    **dict.fromkeys(("row", "awaited_row"), pl.Int32),
    "blocking": pl.Boolean,
}
"""A member of a collective: number of the collective, row and times of the call, ns; its name (a value of MPI_COLLECTIVE), who
waits in it (as in WAITING_COLLECTIVES; 0: not known), and whether it is blocking (MPI_Iallreduce is not); number of members;
row and start of the member without which it could not end, the last one that called, or the root: null for itself, where it
need not wait for another, and where the root is not known."""


# Each of these adds the edges of what calls of host threads waited for, and sets what these calls take by themselves.


def wait_for_devices(parts: GraphParts, by_events: pl.DataFrame) -> None:
    """Calls that wait for devices; `by_events` are recorded waits of threads for events (`EventEdges.on_hosts`)."""
    points, waits = parts.points, parts.labels.waits
    calls = points.intervals((waits != CallWait.NOTHING)[points.label_of]).with_row_index("place")
    calls = calls.with_columns(kind=waits[calls["label"].to_numpy()])
    calls = calls.with_columns(awaited=_awaited(parts, calls, by_events))
    weight = class_code(EdgeKind.SYNCHRONIZATION, calls["label"])
    parts.add_waits(EdgeKind.SYNCHRONIZATION, calls["awaited"], calls["end"], weight)
    # Calls that did not wait show what such a call takes by itself; a copy always waits.
    free, is_copy = calls.filter(pl.col("awaited") == NONE), pl.col("kind") == CallWait.COPY
    parts.edges.take_alone(free.filter(~is_copy))
    # Copies from pageable memory: most of the call hands over the data while the copy runs, which ends after the call.
    pairs = _launched_by(parts, free.filter(is_copy)).sort("operation").unique("interval", keep="first")
    length = pl.col("until") - pl.col("begin")
    # What waits for its turn on the stream runs late in its call.
    shorter = pl.min_horizontal(length, pl.col("ended") - pl.col("since"))
    staged = pairs.filter(length >= _LEAST_STAGING, pl.col("until") - pl.col("since") >= _MOSTLY * shorter)
    copied = points.start[staged["operation"].to_numpy()]
    parts.add_waits(EdgeKind.STAGING, copied, staged["end"], WHOLE, alone=0)


def _launched_by(parts: GraphParts, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls (columns of `RunMoments.intervals`), each with the operations that it launched: `operation`, and its times `since`
    and `ended`, ns."""
    points = parts.points
    since, ended = (points.time[of_intervals[: points.devices]] for of_intervals in (points.start, points.end))
    launches = parts.launches.rename({"launched": "begin"}).with_row_index("operation")
    return calls.join(launches.with_columns(since=since, ended=ended), on=["row", "begin"], how="inner")


def _awaited(parts: GraphParts, calls: pl.DataFrame, by_events: pl.DataFrame) -> Numbers:
    """The moment at which the operation ended that each call waited for; NONE: none."""
    points, rows = parts.points, parts.run.events.rows
    time, row = points.time, points.row
    of_row, begin, until, kinds = (calls[name].to_numpy() for name in ("row", "begin", "until", "kind"))
    ends = np.sort(points.end[: points.devices], kind="stable")

    def in_time(moment: Numbers) -> Numbers:
        """Ends that calls can have waited for; NONE in place of others."""
        return np.where((moment >= 0) & (time[moment] > begin) & (time[moment] <= until), moment, NONE)

    def last_of(ended: Integers, at: Numbers, group: Integers, until: Numbers) -> Numbers:
        """The last of the ends, each in a group at a time, in the group of each call until a time."""
        order = np.lexsort((at, ended))
        place = Moments.of(ended[order], at[order]).place(group, until)
        return in_time(np.append(ends[order], NONE)[place])

    synchronizations = recorded_waits(parts.run).filter(pl.col("kind") == SYNC_STREAM)
    stream = np.where(kinds == CallWait.STREAM, _first_inside(calls, synchronizations, "stream"), NONE)
    end = pl.Series("end", points.ends(by_events, "awaited_row", "awaited_end"))
    by_record = by_events.select("row", "start", end).filter(pl.col("end") != NONE).sort("end")
    recorded = np.where(kinds == CallWait.EVENT, in_time(_first_inside(calls, by_record, "end")), NONE)
    # The end of what each call launched last, if it ended before the call did.
    is_before = (pl.col("ended") > pl.col("begin")) & (pl.col("ended") <= pl.col("until"))
    ended = _launched_by(parts, calls.filter(pl.col("kind") == CallWait.COPY)).filter(is_before)
    copied = np.full(len(calls), NONE, dtype=np.int64)
    np.maximum.at(copied, ended["place"].to_numpy(), points.end[ended["operation"].to_numpy()])
    launching, launched = columns_of(parts.launches[points.interval[ends]], "row", "launched")
    of_stream = last_of(row[ends], time[ends], stream, until)
    # What the thread launched last, else what ended last in its task, is only what is likely.
    of_thread = last_of(launching, launched, of_row, begin)
    of_task = last_of(rows.task[row[ends]], time[ends], rows.task[of_row], until)
    # A stream may wait for an event of another one, with nothing behind it there.
    by_event = (of_stream == NONE) & np.isin(rows.task[of_row], parts.run.tasks_with_event_waits)
    of_stream = np.where(by_event, of_task, of_stream)
    likely = np.where(recorded != NONE, recorded, np.where(of_thread != NONE, of_thread, of_task))
    is_of_kind = [kinds == CallWait.COPY, stream != NONE, kinds == CallWait.DEVICE]
    return np.select(is_of_kind, [copied, of_stream, of_task], likely)


def _first_inside(calls: pl.DataFrame, waits: pl.DataFrame, column: str) -> Numbers:
    """For each call a column of the first wait on its row that starts in it; NONE: none does."""
    waits = waits.select(pl.col("row").cast(pl.Int32), since="start", inside=column)
    joined = with_last(calls, "begin", waits, "since", "row", strategy="forward").sort("place")
    return columns_of(joined.select(pl.when(pl.col("since") <= pl.col("until")).then("inside").alias("inside")), "inside")[0]


def wait_to_load(parts: GraphParts) -> None:
    """Long calls that launch or load, and end soon after all that was launched before: loading of code waits for devices."""
    points, rows = parts.points, parts.run.events.rows
    # Moments are in the order of time.
    ended = pl.Series("ended", points.end[: points.devices].astype(np.int64))
    launches = rows.located(parts.launches).with_columns(ended).filter(pl.col("launched") >= 0).sort("launched")
    before = launches.select("task", "launched", pl.col("ended").cum_max().over("task"))
    loads = parts.labels.by_name(pl.col("name").str.contains("Module|Library")) & parts.labels.is_of(event_types.CUDA_CALL)
    calls = points.intervals((loads | (parts.labels.causes == LAUNCH))[points.label_of])
    is_open, length = parts.alone_kind[calls["interval"].to_numpy()] == NONE, pl.col("until") - pl.col("begin")
    calls = rows.located(calls.filter(is_open, length >= _LONG_CALL))
    calls = with_last(calls, "begin", before, "launched", "task", allow_exact_matches=False).drop_nulls("ended")
    calls = calls.with_columns(at=pl.Series(points.time[calls["ended"].to_numpy()]))
    rest = pl.col("until") - pl.col("at")
    waits = calls.filter(rest.is_between(0, _LONGEST_LOAD), rest <= _MOST_OF_LOAD * length, length - rest >= _LONG_CALL)
    parts.add_waits(EdgeKind.SYNCHRONIZATION, waits["ended"], waits["end"], WHOLE, alone=0)


def wait_for_driver(parts: GraphParts) -> None:
    """Calls of CUDA that could begin their work only when another thread of the process left the driver: some calls that wait
    for a device, such as copies, let nobody else in meanwhile."""
    calls = parts.points.intervals(parts.labels.is_of(event_types.CUDA_CALL)[parts.points.label_of])
    long = calls.filter(pl.col("until") - pl.col("begin") >= _LONG_CALL)
    waits = parts.alone_kind[long["interval"].to_numpy()] != NONE
    long = parts.run.events.rows.located(long).with_columns(waits=waits)
    holders = long.filter("waits").select("task", pl.col("end", "row", "begin", "until").name.prefix("former_"))
    # Of calls inside of each other the innermost waits.
    has_inner = (pl.col("begin").shift(-1).over("row") < pl.col("until")).fill_null(value=False)
    held = with_last(long.filter(~pl.col("waits") & ~has_inner), "until", holders, "former_until", "task").filter(
        pl.col("former_row") != pl.col("row"),
        pl.col("former_begin") <= pl.col("begin"),
        pl.col("former_until") > pl.max_horizontal("begin", pl.col("until") - _LONGEST_TURN),
    )
    parts.add_waits(EdgeKind.WAKE_UP, held["former_end"], held["end"], WHOLE)
    # What they launched could not start sooner, either.
    launched = _launched_by(parts, held).filter(pl.col("since") >= pl.col("former_until"))
    parts.edges.add(EdgeKind.WAKE_UP, launched["former_end"], parts.points.start[launched["operation"].to_numpy()], 0)


def wait_for_messages(parts: GraphParts) -> None:
    """Receives wait for sends, and long sends for receives."""
    messages, points = parts.run.messages, parts.points
    sent, received = points.starts(messages, "row", "time"), points.ends(messages, "to_row", "to_time")
    # Messages of like sizes take like times.
    of_size = np.log2(messages["size"].fill_null(0).to_numpy() + 1.0).astype(np.int64)
    parts.add_waits(EdgeKind.MESSAGE, sent, received, class_code(EdgeKind.MESSAGE, of_size))
    # A call whose messages were sent long ago shows what it takes alone.
    is_complete = (sent != NONE) & (received != NONE)
    calls, sent_at = points.intervals(points.interval[received[is_complete]]), messages["time"].filter(pl.Series(is_complete))
    receives = calls.with_columns(ago=pl.col("begin") - sent_at).sort("ago").unique("interval", keep="first")
    parts.edges.take_alone(receives.filter(pl.col("ago") > _LONG_AGO))
    # A send that lasts until the receive was called waited for it: rendezvous.
    calls = points.intervals((parts.labels.causes == MPI)[points.label_of]).sort("end")
    sends = calls.unique(["row", "begin"], keep="first", maintain_order=True).select("row", "until", "end", time="begin")
    calling = messages.select("time", "to_row", pl.col("row").cast(pl.Int32), called="to_begin")
    long = calling.join(sends, on=["row", "time"], how="inner", maintain_order="left")
    long = long.filter(pl.col("until") - pl.col("time") >= _LONG_SEND, pl.col("called").is_between("time", "until", "right"))
    parts.add_waits(EdgeKind.MESSAGE, points.starts(long, "to_row", "called"), long["end"], 0, alone=0)


def wait_for_members(parts: GraphParts) -> None:
    """Collective calls of MPI."""
    members, points, edges = mpi_collectives(parts.run).filter("blocking"), parts.points, parts.edges
    start, end, waiting, last_row, last_start = columns_of(members, "start", "end", "waiting", "awaited_row", "awaited_start")
    ended, hub = points.ends(members), points.starts(members, "awaited_row", "awaited_start")
    is_alone, is_matched = (ended != NONE) & (last_row == NONE), (ended != NONE) & (hub != NONE)
    call = points.interval[ended]
    transfer = class_code(EdgeKind.TRANSFER, points.label_of[call])
    edges.takes(transfer[is_alone], (end - start)[is_alone])
    for which, alone in ((is_alone, WHOLE), (is_matched, transfer[is_matched])):
        parts.alone_kind[call[which]], parts.alone_weight[call[which]] = EdgeKind.TRANSFER, alone
    edges.add(EdgeKind.COLLECTIVE, hub, ended, transfer)
    # In a replay another member may be the last; a root that sends does not wait.
    of_all = is_matched & (start <= last_start) & (waiting != call_names.FROM_ROOT)
    edges.add(EdgeKind.ARRIVAL, points.starts(members)[of_all], hub[of_all], 0)


def mpi_collectives(run: MeasuredRun) -> pl.DataFrame:
    """Calls of collectives that several tasks made, and that end in the window: COLLECTIVE_SCHEMA, in the order of `end`. They
    are matched in the whole recording: all ranks call those of a communicator in one order (MPI standard, 6.14). Times count
    from the start of the window; a call that began before begins there."""
    of_task, name = ["communicator", "task"], pl.col("name")
    communicators = named_values(run, event_types.MPI_COMMUNICATOR).filter(name != event_types.UNKNOWN_COMMUNICATOR)
    is_named = pl.col("communicator").is_in(communicators["value"].to_list())
    calls = run.events.rows.located(run.recorded.frame(MPI_COLLECTIVES).filter(is_named)).select(
        *("task", "start", "end", "row", "communicator", "root"),
        kind="value",
        number=pl.int_range(pl.len(), dtype=pl.Int64).over(of_task),
    )
    offsets = _offsets(calls.filter(pl.col("number") < _FIRST_CALLS))
    placed = calls.join(offsets, on=of_task, how="inner").with_columns(place=pl.col("number") + pl.col("offset"))
    low, high = run.events.offset, run.events.offset + run.events.length
    # Calls that had not ended when the recording stopped say nothing of when they would.
    has_ended = pl.col("end").is_between(low, high) & ~pl.col("end").is_in(run.events.stops)
    members = _matched(run, placed.sort(*_COLLECTIVE, "start", "end", "row")).filter(has_ended)
    return members.sort("end", "row").with_columns(
        (pl.col("start", "awaited_start") - low).clip(lower_bound=0), end=pl.col("end") - low
    )


def _matched(run: MeasuredRun, calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with the `place` and name of others on a communicator, with whom each waited for: COLLECTIVE_SCHEMA."""
    name, waits = pl.col("name"), call_names.WAITING_COLLECTIVES
    kinds = named_values(run, event_types.MPI_COLLECTIVE).select(
        kind="value", waiting=first_match(name, waits, 0), blocking=~name.str.contains("^MPI_I|_init(_c)?$")
    )
    # Roots are known as ranks of the communicator of all.
    world = named_values(run, event_types.MPI_COMMUNICATOR).filter(name == event_types.MPI_COMM_WORLD)["value"].to_list()
    ranks = pl.Series([task.rank for task in run.events.rows.tasks], dtype=pl.Int64)
    is_root = pl.col("communicator").is_in(world) & (pl.lit(ranks).gather("task") == pl.col("root") - 1)
    member, waiting = pl.struct("row", "start"), pl.col("waiting")
    together = calls.join(kinds, on="kind", how="left", maintain_order="left").with_columns(
        members=pl.len().over(_COLLECTIVE),
        collective=pl.struct(_COLLECTIVE).rle_id(),
        is_root=is_root.fill_null(False),
        last=member.get(pl.col("start").arg_max()).over(_COLLECTIVE),
        root=member.filter(is_root.fill_null(False)).first().over(_COLLECTIVE),
    ).filter(pl.col("members") > 1, pl.col("kind").n_unique().over(_COLLECTIVE) == 1)  # fmt: skip
    for_last = (waiting == call_names.TO_ALL) | ((waiting == call_names.TO_ROOT) & pl.col("is_root"))
    awaited = pl.when(for_last).then("last").when(waiting == call_names.FROM_ROOT).then("root").struct
    is_other = awaited.field("row") != pl.col("row")
    columns = {f"awaited_{name}": pl.when(is_other).then(awaited.field(name)) for name in ("row", "start")}
    return together.with_columns(**columns).select(pl.col(name).cast(dtype) for name, dtype in COLLECTIVE_SCHEMA.items())


def _offsets(first: pl.DataFrame) -> pl.DataFrame:
    """What is added to the numbers of the tasks of a communicator, so that equal numbers are one collective: columns
    `communicator`, `task`, `offset`, where there are several tasks."""
    # Against the task with the most calls, as many as possible have the same name at one time: twice those without a shift.
    key = ["communicator", "task"]
    tasks = first.group_by(key).agg(calls=pl.len()).filter(pl.len().over("communicator") > 1)
    reference = tasks.sort("calls", "task", descending=[True, False]).unique("communicator", keep="first", maintain_order=True)
    calls = first.join(reference, on=key, how="semi").select("communicator", "kind", at="number", since="start", until="end")
    shifts = pl.DataFrame({"offset": range(-_MOST_MISSING, _MOST_MISSING + 1)}, schema={"offset": pl.Int64})
    shifted = first.join(shifts, how="cross").with_columns(at=pl.col("number") + pl.col("offset"))
    meet = (pl.col("start") <= pl.col("until")) & (pl.col("since") <= pl.col("end"))
    pairs = shifted.join(calls, on=["communicator", "at", "kind"]).filter(meet)
    counts = pairs.group_by(*key, "offset").agg(count=pl.len().cast(pl.Int64))
    unshifted = pl.col("count").filter(pl.col("offset") == 0).first().over(key)
    enough = counts.filter(pl.col("count") >= (2 * unshifted).fill_null(2))
    best = enough.sort(-pl.col("count"), pl.col("offset").abs(), "offset").unique(key, keep="first", maintain_order=True)
    offsets = tasks.join(best, on=key, how="left").with_columns(pl.col("offset").fill_null(0))
    return offsets.select(*key, pl.col("offset") - pl.col("offset").min().over("communicator"))


def wait_for_signals(parts: GraphParts, pairs: pl.DataFrame) -> None:
    """Waits of threads that other threads ended, as of `wake_ups`."""
    signal, woken = parts.points.starts(pairs, "signal_row", "signal_start"), parts.points.ends(pairs)
    parts.add_waits(EdgeKind.WAKE_UP, signal, woken, class_code(EdgeKind.WAKE_UP), alone=0)


def wait_beside_others(parts: GraphParts) -> None:
    """Long polls of threads, in most of which another one of the process waits for a device, and which end soon after: as Julia
    waits, with a thread for it."""
    points, labels, rows = parts.points, parts.labels, parts.run.events.rows
    is_poll = labels.by_name(pl.col("name").str.contains(call_names.POLLS)) & labels.is_of(event_types.OS_CALL)
    polls, waits = (points.intervals(of[points.label_of]) for of in (is_poll, labels.waits != CallWait.NOTHING))
    length, is_open = pl.col("until") - pl.col("begin"), parts.alone_kind[polls["interval"].to_numpy()] == NONE
    waits = rows.located(waits).select("task", since="begin", at="until", ended="end")
    pairs = with_last(rows.located(polls.filter(is_open, length >= _LONG_CALL)), "until", waits, "at", "task")
    beside, late = pl.col("at") - pl.max_horizontal("since", "begin"), pl.col("until") - pl.col("at")
    pairs = pairs.filter(late <= _MOST_OF_WAIT * length, beside >= _MOSTLY * length)
    parts.add_waits(EdgeKind.WAKE_UP, pairs["ended"], pairs["end"], WHOLE, alone=0)


def wake_ups(run: MeasuredRun) -> pl.DataFrame:
    """Waits of threads (`row`, `start`, `end`, ns), each with the call that ended it (`signal_row`, `signal_start`)."""
    by_kind = zip(*call_names.WAKE_UPS, strict=True)
    rules = ([(pattern, kind) for kind, pattern in enumerate(patterns, 1)] for patterns in by_kind)
    wait, signal = (first_match(pl.col("name"), of_calls, 0) for of_calls in rules)
    numbered = pl.concat(named_values(run, number).with_columns(number=pl.lit(number)) for number in OS_TYPES)
    kinds = numbered.cast({"number": run.calls.schema["number"], "value": run.calls.schema["value"]}).select(
        "number", "value", wait=wait, signal=signal, wakes_all=pl.col("name").str.contains("broadcast")
    )
    threads = run.calls.select("row", "start", "end", "number", "value")
    of_kinds = run.events.rows.located(threads.join(kinds, on=["number", "value"], how="inner", maintain_order="left"))
    waits = of_kinds.filter(pl.col("wait") > 0).select("row", "start", "end", "task", kind="wait")
    signals = of_kinds.filter(pl.col("signal") > 0)
    signals = signals.select("task", "wakes_all", kind="signal", signal_row="row", signal_start="start", signal_end="end")
    paired = with_last(waits, "end", signals, "signal_start", ["task", "kind"]).filter(
        pl.col("signal_start") >= pl.col("start"), pl.col("signal_row") != pl.col("row")
    )
    late, by_write = pl.col("end") - pl.col("signal_end"), pl.col("kind") == len(call_names.WAKE_UPS)
    of_wait = (_MOST_OF_WAIT * (pl.col("end") - pl.col("start"))).clip(LONGEST_WAKE_UP, _LATEST_WAKE_UP)
    is_soon = late <= pl.when(by_write).then(_LONGEST_BY_WRITE).otherwise(of_wait)
    has_woken = is_soon.any().over("signal_row", "signal_start")
    paired = paired.filter(is_soon | (has_woken & pl.col("wakes_all") & (late <= _LONGEST_TURN_AFTER_ALL)))
    # When threads wait for what is not known: for a time, and in waits that nothing explains.
    timers = run.calls.filter(run.is_named(run.calls, event_types.OS_CALL, call_names.TIMERS)).with_columns(is_timer=True)
    unexplained = waits.join(paired, on=["row", "start"], how="anti").with_columns(is_timer=False)
    sleeps = pl.concat(frame.select("row", "start", "end", "is_timer") for frame in (timers, unexplained)).sort("start", "end")
    asleep = sleeps.select("is_timer", signal_row="row", slept_from="start", slept_until="end")
    latest = with_last(paired, "start", asleep, "slept_from", "signal_row")
    slept = pl.col("slept_until") - pl.col("start")
    is_asleep = (slept > 0) & (slept > _MOSTLY * (pl.col("end") - pl.col("start")))
    awake = latest.filter(~is_asleep.fill_null(False))
    # One that wakes whom it keeps waiting was woken by it: a request and its answer.
    answers = awake.filter((slept > 0) & ~pl.col("is_timer") & (pl.col("slept_until") <= pl.col("signal_start")))
    asked = answers.select(row="signal_row", start="slept_from", end="slept_until", signal_row="row", signal_start="start")
    return pl.concat([awake.select(asked.columns), asked.unique(["row", "start"], keep="last", maintain_order=True)])


def waits_in_os(labels: GraphLabels) -> Mask:
    """Whether a thread waits in the call of each label, for what may not be known."""
    waits: Mask = labels.by_name(pl.col("name").str.contains(call_names.WAITING_CALLS))
    return waits & labels.is_of(event_types.OS_CALL, event_types.PTHREAD_CALL)
