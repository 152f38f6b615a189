"""The graph of a run is made of its events.

Rows are streams and host threads, moments the starts and ends of their intervals; edges (`EdgeKind`) say what each waited for.
A host thread does one thing after the other, each for as long as was measured, but in calls that wait for something else.
docs/efficiency.md ("What waits for what") says for what."""

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph import cuda_waits, host_waits, moments
from nsys2prv.efficiency.graph.cuda_waits import LEAST_HELD, BlockedCalls, EventEdges, launches_of, with_last
from nsys2prv.efficiency.graph.moments import GraphLabels, GraphParts, class_code, columns_of
from nsys2prv.efficiency.graph.replay import WHOLE, EdgeKind
from nsys2prv.efficiency.intervals import NONE, Mask, Numbers
from nsys2prv.efficiency.measured_run import LAUNCH, MEMORY_CALL, MPI, MeasuredRun
from nsys2prv.efficiency.meters.nccl_stats import COLLECTIVE, Nccl, measure_nccl
from nsys2prv.efficiency.run_events import HOST_CALLS, STREAM
from nsys2prv.execution.row_order import distinct, drop_duplicates
from nsys2prv.exports.identity import IS_DEFAULT, NEVER_WAITS
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.call_names import POLLS, TIMED_WAITS, WAITING_COLLECTIVES, MessagePart, message_parts
from nsys2prv.vocabulary.name_rules import first_match

LEAST_PAUSE = 100_000
"""ns in which a thread is in no call before it can have waited for another one: between launches it takes less."""
_LONGEST_FUNCTION = 1_000_000
"""ns from the end of the work before a function of the host to what the thread does then: it runs, and wakes the thread."""
LEAST_LOADING_NS = 1_000_000
"""Shortest time in no call that can be loading of data: a batch that is ready is copied within some 100 us."""
_FEWEST_LOADS = 3
"""Times of loading of a thread: fewer may be its set-up."""
LEAST_LOADING_BYTES = 16 << 10
"""Smallest copy after it: smaller ones are flags and parameters, and no batch."""
_RIGHT_AFTER = 10_000
"""From the end of work on another stream to the start of what waited for it, at most, ns."""
_MOST_OVERLAPS = 0.01
"""Part of the copies of a direction, at most, that start before the former one has ended, if there is one copy engine."""


class BuiltGraph:
    """The graph of a run, settled, with the `labels` of its moments and the run that is its `context`.

    `left_out` counts edges that would have gone back in time, by kind; `backward` are the moments, in order, at which those
    between ranks would end. `counted_rows` are those that count for when the run is done: streams, and threads that
    launch work or call MPI; what other threads wait for is often not known.

    `open_ends` are the moments, in order, at which something ends that may have waited for ranks that are not in the run, or
    that can't be matched: NCCL kernels, and calls of MPI. Nobody knows when they would end if something else took another time.
    `open_collectives` of them are of collectives, and not of sends and receives of NCCL.

    Of a run that is measured: `nccl` are its NCCL kernels and their collectives, `by_events` and `blocked` its waits for CUDA
    events, and for places in launch queues."""

    def __init__(self, run: MeasuredRun, nccl: Nccl, by_events: EventEdges, blocked: BlockedCalls) -> None:
        counted = run.events.rows.kind == STREAM
        # Kernels and hosts whose pages move make them move, and wait meanwhile: these are no work of a stream.
        on_streams = counted[run.operations["row"].to_numpy()] & ~run.moves_pages
        operations = run.operations if on_streams.all() else run.operations.filter(pl.Series(on_streams))
        woken = host_waits.wake_ups(run)
        calls = _whole_polls(run, outermost_calls(run.calls.select("row", "start", "end", "number", "value")), woken)
        labels = GraphLabels(run.events, (operations, calls))
        row, begin, end = (np.concatenate([operations[name], calls[name]]) for name in ("row", "start", "end"))
        label = np.concatenate([labels.of(operations), labels.of(calls)])
        may_wait = (labels.waits != moments.CallWait.NOTHING)[label]
        points = moments.RunMoments(row, begin, end, label, operations.height, may_wait, len(run.events.rows.names))
        counted[row[np.isin(labels.causes, (LAUNCH, MEMORY_CALL, MPI))[label]]] = True
        parts = GraphParts(run, labels, points, launches_of(run).filter(pl.Series(on_streams)))
        del operations, calls, row, begin, end, label, may_wait
        host_waits.wait_for_devices(parts, by_events.on_hosts)
        host_waits.wait_to_load(parts)
        host_waits.wait_for_messages(parts)
        host_waits.wait_for_members(parts)
        host_waits.wait_for_signals(parts, woken)
        host_waits.wait_beside_others(parts)
        host_waits.wait_for_driver(parts)
        awaited, waiting = points.ends(by_events.on_streams, "awaited_row", "awaited_end"), points.starts(by_events.on_streams)
        parts.edges.add(EdgeKind.EVENT_WAIT, awaited, waiting, class_code(EdgeKind.EVENT_WAIT))
        _add_copy_engines(parts)
        _add_device_edges(parts)
        _add_default_streams(parts)
        unmatched = _add_nccl_kernels(parts, nccl)
        open_calls = _open_calls(parts)
        _add_host_edges(parts, _add_calls_that_wait(parts, blocked.calls))
        self.open_collectives = len(open_calls) + int((~labels.is_pair[points.label_of[points.interval[unmatched]]]).sum())
        self.open_ends: Numbers = np.unique(np.concatenate([open_calls, unmatched])).astype(np.int64)
        self.context, self.labels, self.counted_rows, edges = run, labels, counted, parts.edges
        del points, parts  # Putting edges in order takes memory.
        self.backward: Numbers = np.unique(np.concatenate(edges.backward)).astype(np.int64)
        self.left_out, self.graph = dict(+edges.left_out), edges.graph()

    @property
    def warnings(self) -> list[str]:
        """How many dependencies would have gone back in time."""
        kinds = ", ".join(f"{count} of {kind.text}" for kind, count in sorted(self.left_out.items()))
        return [f"dependencies that would go back in time are not in the graph of the run: {kinds}"] if kinds else []


def graph_of_run(run: MeasuredRun) -> BuiltGraph:
    """The graph of a run of which nothing was measured yet."""
    return BuiltGraph(run, measure_nccl(run), cuda_waits.event_edges(run), cuda_waits.blocked_calls(run))


def _calls_by_thread(calls: pl.DataFrame) -> pl.DataFrame:
    """CUDA and MPI calls in the order of starts: row, begin, and the end of all calls of the thread until then."""
    until = pl.max_horizontal("start", "end").cum_max().over("row")
    return calls.filter(pl.col("number").is_in(HOST_CALLS)).select("row", begin="start", until=until)


def outermost_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Those of `calls` that are not inside of CUDA and MPI calls: what the OS does in a call that waits is how it waits."""
    # What is as long as a call is inside of it. What takes no time is a note of nsys.
    is_inside = (pl.col("until") >= pl.col("end")).fill_null(False) | (pl.col("start") == pl.col("end"))
    is_inside &= ~pl.col("number").is_in(HOST_CALLS)
    return with_last(calls, "start", _calls_by_thread(calls), "begin", "row").filter(~is_inside).select(calls.columns)


def _whole_polls(run: MeasuredRun, calls: pl.DataFrame, woken: pl.DataFrame) -> pl.DataFrame:
    """Calls, in which polls that follow each other with hardly anything between them, as after a time-out, are one wait; so are
    waits with a time-out of which nobody (`woken`, as of `wake_ups`) is known to have ended any but the last."""
    is_poll, pause = pl.col("is_poll"), pl.col("start") - pl.col("end").shift()
    is_timed = run.is_named(calls, event_types.PTHREAD_CALL, TIMED_WAITS)
    calls = calls.with_columns(is_poll=is_timed | run.is_named(calls, event_types.OS_CALL, POLLS))
    if not calls["is_poll"].any():
        return calls.drop("is_poll")
    may_be_between = pl.col("number").is_in((event_types.OS_CALL, event_types.IO_CALL)) & ~is_poll
    # Polls are too often near a write to be ended by it each time.
    known = woken.select("row", "start", is_woken=True)
    polls = calls.filter(~may_be_between).join(known, on=["row", "start"], how="left", maintain_order="left")
    goes_on = (is_poll & ((pl.col("number") == event_types.OS_CALL) | pl.col("is_woken").is_null())).shift()
    polls = polls.with_columns(is_again=(is_poll & goes_on & (pause < LEAST_PAUSE)).fill_null(False).over("row"))
    is_last = ~pl.col("is_again").shift(-1, fill_value=False)
    end = pl.when(is_last).then("end").otherwise(None).backward_fill().over("row")
    whole = polls.with_columns(end=end).filter(~pl.col("is_again"))
    others = with_last(calls.filter(may_be_between), "start", whole.select("row", begin="start", until="end"), "begin", "row")
    others = others.filter((pl.col("until") < pl.col("end")).fill_null(True))
    return pl.concat(frame.select("row", "start", "end", "number", "value") for frame in (whole, others))


IS_LOADING = ~pl.any_horizontal("is_at_start", "is_after_results")
"""Which times of loading are nothing else for sure."""


def times_of_loading(run: MeasuredRun, which: pl.Expr = IS_LOADING) -> pl.DataFrame:
    """Times in which threads load data, ns (`row` of the thread, `begin`, `end`): they are in no CUDA or MPI call for long, and
    then first copy to the device. The rule is that of the finding `data-loading`, without its device. What a thread does before
    its first kernel (without any, its first copy), or hardly ever, may be its start-up (`is_at_start`), as all is that a run
    without kernels does; and after a copy of results it may write these (`is_after_results`)."""
    calls = _calls_by_thread(run.calls).select("row", begin=pl.col("until").shift(1).over("row"), end="begin")
    pauses = calls.filter(pl.col("end") - pl.col("begin") >= LEAST_LOADING_NS)
    is_batch, is_result = (
        run.is_named(run.operations, event_types.MEMORY_OPERATION, f"^{event_types.COPY_KINDS[kind]}$") for kind in (1, 2)
    )
    is_batch &= (run.operations["size"] >= LEAST_LOADING_BYTES).fill_null(False)
    is_kernel = run.operations["number"] != event_types.MEMORY_OPERATION
    launches = launches_of(run).with_columns(is_batch=is_batch, is_after_results=is_result, is_kernel=is_kernel)
    launched = launches.filter(pl.col("row").is_in(pauses["row"].unique().implode())).sort("launched", "is_batch")
    before = launched.select("row", "is_after_results", former="launched")
    at = pl.col("launched")
    first = launched.group_by("row").agg(first=pl.coalesce(at.filter("is_kernel").min(), at.min()))
    followed = with_last(pauses, "end", launched.select("row", "launched", "is_batch"), "launched", "row", strategy="forward")
    loads = with_last(followed.filter("is_batch").join(first, on="row", how="left"), "begin", before, "former", "row")
    is_at_start = (pl.col("begin") < pl.col("first")) | (pl.len().over("row") < _FEWEST_LOADS) | (not is_kernel.any())
    loads = loads.with_columns(pl.col("is_after_results").fill_null(False), is_at_start=is_at_start)
    return loads.filter(which).select("row", "begin", "end").cast(pl.Int64)


def _add_copy_engines(parts: GraphParts) -> None:
    """Edges between copies of one direction and device, where they never run at the same time: a device has one copy engine for
    each direction; and between copies of one call, which moves data between devices over the host."""
    points, labels = parts.points, parts.labels
    is_copy = labels.by_name(pl.col("name").is_in([event_types.COPY_KINDS[kind] for kind in (1, 2)]))
    copies = points.intervals((is_copy & labels.is_of(event_types.MEMORY_OPERATION))[points.label_of])
    device = parts.run.events.rows.device[copies["row"].to_numpy()]
    former = pl.col("row", "end", "until").shift().over("device", "label").name.prefix("former_")
    of_call = pl.col("device", "end", "until").shift().over("call", "launched").name.prefix("staged_")
    of_calls = parts.launches[copies["interval"].to_numpy()].select("launched", call="row")
    in_order = copies.hstack(of_calls).with_columns(device=device).sort("start").with_columns(former, of_call)
    overlaps = (pl.col("former_until") > pl.col("begin")).mean().over("device", "label")
    waits = in_order.filter(
        overlaps <= _MOST_OVERLAPS, pl.col("former_until") <= pl.col("begin"), pl.col("former_row") != pl.col("row")
    )
    parts.edges.add(EdgeKind.STREAM_ORDER, waits["former_end"], waits["start"], 0)
    staged = in_order.filter(
        pl.col("launched") != NONE, pl.col("staged_device") != pl.col("device"), pl.col("staged_until") <= pl.col("begin")
    )
    parts.edges.add(EdgeKind.STREAM_ORDER, staged["staged_end"], staged["start"], 0)


def _add_device_edges(parts: GraphParts) -> None:
    """Edges inside of operations but NCCL kernels, and to their starts: from the end before on their stream, and the launch."""
    points, edges, labels = parts.points, parts.edges, parts.labels
    start, end, label = (of_intervals[: points.devices] for of_intervals in (points.start, points.end, points.label_of))
    is_work = ~labels.is_of(event_types.NCCL_KERNEL)[label]
    edges.add(EdgeKind.DEVICE_WORK, start[is_work], end[is_work], WHOLE)
    edges.add(EdgeKind.STREAM_ORDER, points.before[start], start, class_code(EdgeKind.STREAM_ORDER))
    call, event_type = points.starts(parts.launches, "row", "launched"), distinct(labels.frame["number"].to_numpy()).place
    edges.add(EdgeKind.LAUNCH, call, start, class_code(EdgeKind.LAUNCH, event_type[label]))


def _add_default_streams(parts: GraphParts) -> None:
    """Edges between operations on a default stream and on others of its process and device, which wait for each other unless
    these were created otherwise: to those that were ready before, and start right after the end of one launched earlier."""
    points, rows, issued = parts.points, parts.run.events.rows, parts.launches["launched"]
    flag = rows.flag[points.row[points.start[: points.devices]]]
    which, is_default = flag != NEVER_WAITS, flag == IS_DEFAULT
    if not is_default.any() or is_default[which].all():
        return
    launched = issued.set(issued == NONE, None).filter(which)
    placed = points.intervals(which).with_columns(launched=launched, is_default=is_default[which])
    placed = rows.located(placed).sort("begin", "until")
    ready = pl.max_horizontal("launched", pl.col("until").shift().over("row"))
    held = placed.filter(pl.col("begin") - ready >= LEAST_HELD)
    key = ["task", "device", "is_default"]
    others = placed.select(*key[:2], ~pl.col("is_default"), at="until", before="launched", ended="end").sort("at")
    last = held.join_asof(others, left_on="begin", right_on="at", by=key, check_sortedness=False)
    waits = last.filter(pl.col("begin") - pl.col("at") <= _RIGHT_AFTER, pl.col("before") < pl.col("launched"))
    parts.edges.add(EdgeKind.STREAM_ORDER, waits["ended"], waits["start"], 0)


def _add_nccl_kernels(parts: GraphParts, nccl: Nccl) -> Numbers:
    """Edges of NCCL kernels; the ends of those whose other members are not all in the run."""
    points, edges = parts.points, parts.edges
    kernels, key = points.intervals(parts.labels.is_of(event_types.NCCL_KERNEL)[points.label_of]), ["row", "begin"]
    matched = nccl.members.select(pl.col("row").cast(pl.Int32), *COLLECTIVE, "transfer", "complete", begin="start")
    columns = kernels.select(*key, "start", "end")
    members = columns.join(drop_duplicates(matched, key), on=key, how="left", maintain_order="left")
    alone = members.filter(pl.col("transfer").is_null())
    edges.add(EdgeKind.DEVICE_WORK, alone["start"], alone["end"], WHOLE)
    # The last one to arrive.
    together = members.filter(pl.col("transfer").is_not_null()).with_columns(hub=pl.col("start").max().over(COLLECTIVE))
    edges.add(EdgeKind.TRANSFER, together["start"], together["end"], together["transfer"])
    waits = together.filter(pl.col("start") != pl.col("hub"))
    edges.add(EdgeKind.ARRIVAL, waits["start"], waits["hub"], 0)
    edges.add(EdgeKind.COLLECTIVE, waits["hub"], waits["end"], waits["transfer"])
    return members.filter(~pl.col("complete").fill_null(value=False))["end"].to_numpy()


def _open_calls(parts: GraphParts) -> Numbers:
    """Ends of calls of MPI that may wait for ranks which are not in the run, if it has not all."""
    points, labels = parts.points, parts.labels
    phases = labels.by_name(message_parts(pl.col("name")).cast(pl.Int64))
    # Other collectives than these do not wait.
    is_collective = labels.by_name(first_match(pl.col("name"), WAITING_COLLECTIVES, 0)) > 0
    for_several = is_collective | (phases & MessagePart.COMPLETES > 0)
    moves = phases & (MessagePart.SENDS | MessagePart.RECEIVES) > 0
    for_one = moves & (phases & (MessagePart.LATER | MessagePart.DEFINES) == 0)
    # One that waits for several may wait for one that is missing beside those that are there.
    is_mpi = labels.is_of(*event_types.MPI_TYPES.values()) & (not parts.run.events.has_all_ranks)
    is_open = (is_mpi & for_several)[points.label_of]
    is_open |= (is_mpi & for_one)[points.label_of] & (parts.alone_kind != EdgeKind.BLOCKED_CALL)
    return points.end[is_open].astype(np.int64)


def _add_calls_that_wait(parts: GraphParts, in_queue: pl.DataFrame) -> Mask:
    """Edges inside of calls that waited for something, or for a place in a queue; at which moments these end."""
    points, edges = parts.points, parts.edges
    waited = np.flatnonzero(parts.alone_kind != NONE)
    # Nothing else is between start and end of a call that waits; else only what is before its last part can be waited for.
    waited = waited[points.before[points.end[waited]] == points.start[waited]]
    for kind in np.unique(parts.alone_kind[waited]).tolist():
        of_kind = waited[parts.alone_kind[waited] == kind]
        edges.add(EdgeKind(kind), points.start[of_kind], points.end[of_kind], parts.alone_weight[of_kind])
    is_replaced = np.zeros(len(points.time), dtype=bool)
    is_replaced[points.end[waited]] = True
    free, start = points.starts(in_queue, "free_row", "free_start"), points.starts(in_queue, "row", "begin")
    end = np.where((free != NONE) & (start != NONE), points.ends(in_queue, "row", "until"), NONE)
    edges.add(EdgeKind.LAUNCH_QUEUE, free, end, class_code(EdgeKind.LAUNCH_QUEUE))
    # Without the wait it takes as long as others.
    edges.add(EdgeKind.BLOCKED_CALL, start, end, in_queue["usual"])
    is_replaced[end[end != NONE]] = True
    return is_replaced


def _add_host_edges(parts: GraphParts, is_replaced: Mask) -> None:
    """Edges between moments of host threads that follow each other, and from threads that woke them."""
    points, labels, edges = parts.points, parts.labels, parts.edges
    woken, waker = _wakers(parts)
    is_woken = np.zeros(len(points.time), dtype=bool)
    is_woken[woken] = True
    for weight, which in ((0, is_woken), (WHOLE, ~is_woken)):
        target = np.flatnonzero(points.is_host & ~is_replaced & which)
        edges.add(EdgeKind.HOST, points.before[target], target, weight)
    edges.add(EdgeKind.WAKE_UP, waker, woken, 0)
    # A thread that appears was created before; where that was not recorded, it follows the last call of its process: a thread
    # that only sleeps causes nothing.
    creates = labels.is_of(event_types.PTHREAD_CALL) & labels.by_name(pl.col("name") == "pthread_create")
    is_call = labels.is_of(*HOST_CALLS)[points.label_of[points.interval]]
    is_creation, is_first = creates[points.label_of[points.interval]] & ~points.is_end, points.is_host & (points.before == NONE)
    hosts = np.flatnonzero(points.is_host)
    moments = pl.DataFrame({"task": parts.run.events.rows.task[points.row[hosts]], "moment": hosts})
    first = moments.filter(pl.Series(is_first[hosts]))
    for is_source in (is_creation, is_call & ~is_first):
        sources = moments.filter(pl.Series(is_source[hosts])).rename({"moment": "source"})
        last = with_last(first, "moment", sources, "source", "task", allow_exact_matches=False)
        caused = last.drop_nulls("source")
        edges.add(EdgeKind.WAKE_UP, caused["source"], caused["moment"], 0)
        first = last.filter(pl.col("source").is_null()).select("task", "moment")


def _wakers(parts: GraphParts) -> tuple[Numbers, Numbers]:
    """Starts of calls that waited for a thread which launches on the same stream, or for its work, and the ends of these."""
    points, row = parts.points, parts.points.row
    threads = parts.launches.select(pl.Series("stream", row[points.start[: points.devices]]), thread="row")
    counts = threads.filter(pl.col("thread") >= 0).group_by("thread", "stream").len()
    # The one that each launches on most: collectives and copies have separate streams.
    shared = counts.sort("len", "stream").unique("thread", keep="last").filter(pl.len().over("stream") > 1)
    stream = np.full(len(parts.run.events.rows.names), -1, dtype=np.int32)
    stream[shared["thread"].to_numpy()] = shared["stream"].to_numpy()
    moment = np.flatnonzero(parts.labels.is_of(*HOST_CALLS)[points.label_of[points.interval]] & (stream[row] >= 0))
    calls = pl.DataFrame({"moment": moment, "stream": stream[row[moment]], "is_end": points.is_end[moment]})
    ended = calls.filter("is_end").select("stream", waker="moment")
    begun = calls.filter(~pl.col("is_end") & pl.Series(points.label[moment] == NONE))
    last = with_last(begun, "moment", ended, "waker", "stream", allow_exact_matches=False)
    woken, waker = columns_of(last, "moment", "waker")
    woken, waker = (np.concatenate(pair) for pair in zip((woken, waker), _after_host_functions(parts), strict=True))
    pause = points.time[woken] - points.time[np.maximum(points.before[woken], 0)]
    is_woken = (waker > points.before[woken]) & (waker < woken) & (pause >= LEAST_PAUSE)
    return woken[is_woken], waker[is_woken]


def _after_host_functions(parts: GraphParts) -> tuple[Numbers, Numbers]:
    """Moments at which threads go on after a function of the host that they launched as the last, and the ends of the work
    before it: the function runs then, and wakes the thread."""
    points, is_function = parts.points, parts.labels.by_name(pl.col("name").str.contains("LaunchHostFunc"))
    if not is_function.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    launched = parts.launches.with_row_index("operation").filter(pl.col("launched") >= 0)
    functions = points.intervals(is_function[points.label_of])
    last = with_last(functions, "begin", launched, "launched", "row").drop_nulls("operation")
    following = np.full(len(points.before), NONE, dtype=np.int64)
    has_before = np.flatnonzero(points.before != NONE)
    following[points.before[has_before]] = has_before
    after, ended = following[last["end"].to_numpy()], points.end[last["operation"].to_numpy()].astype(np.int64)
    is_soon = (after != NONE) & (points.time[after] - points.time[ended] <= _LONGEST_FUNCTION)
    return after[is_soon], ended[is_soon]
