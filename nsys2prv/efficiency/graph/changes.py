"""Changes of a run: which edges of its graph get which weights, for a what-if, or without what a finding speaks of."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import named_values
from nsys2prv.efficiency.graph.moments import CLASS_QUANTILE
from nsys2prv.efficiency.graph.replay import REMOVED, EdgeKind, Edges, Replay, Step, replay, run_loop
from nsys2prv.efficiency.graph.run_graph import IS_LOADING, BuiltGraph, times_of_loading
from nsys2prv.efficiency.intervals import Floats, Integers, Mask, Moments, Numbers, Spans
from nsys2prv.efficiency.measured_run import ALLOCATION, LATE_START, LAUNCH, MEMORY_CALL, SYNCHRONIZATION
from nsys2prv.efficiency.meters.kernel_stats import family_names
from nsys2prv.efficiency.what_if_options import Scaling
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS
from nsys2prv.vocabulary.name_rules import fits
from nsys2prv.vocabulary.wording import did_you_mean

_WORK = (EdgeKind.DEVICE_WORK, EdgeKind.TRANSFER, EdgeKind.COLLECTIVE)
_CALLS = (EdgeKind.HOST, EdgeKind.BLOCKED_CALL)
_FOR_DEVICES = (EdgeKind.SYNCHRONIZATION, EdgeKind.STAGING)
PAGES_ALONE = "pages of unified memory move within the time of kernels and hosts that wait: no change is about them alone"
TRANSFERS = (EdgeKind.TRANSFER, EdgeKind.COLLECTIVE, EdgeKind.MESSAGE)
"""Kinds of edges that take the time of a network."""
_ON_THREADS = (*_CALLS, *_FOR_DEVICES, *TRANSFERS, EdgeKind.WAKE_UP)
LONG_LAUNCH = 1_000_000
"""ns from which a launch does more than launch: that takes 2 to 100 µs."""
_USED_OFTEN = 0.1
"""Part of the waits in gaps that are of a function that copies: fewer are others."""
_PARTS = 40
"""Parts of the executions of a kernel in which those of several devices are compared."""
_MOST_PASSES = 8
"""Where a rank is late for two reasons at once, or waits for messages of a late one, that shows when the first is gone."""
_LEAST_LESS = 0.001
"""Passes end when all that takes less time is less than this part of the run."""


def _hold_ends(spans: Spans, edges: Edges, which: Mask) -> Mask:
    """Which of some edges end inside of spans of their rows."""
    return spans.inside(edges.row, edges.end - 1, edges.end, which) > 0


def _setting(value: int, which: Callable[[Edges], Mask]) -> Step:
    """Edges get a weight."""
    return lambda edges, weight: np.where(which(edges), value, weight)


def _scaled(weight: Numbers, which: Mask, factors: float | Floats) -> Numbers:
    """Weights of edges times factors, as far as a replay can be that long."""
    longer = np.minimum(np.rint(weight * factors), LONGEST_SESSION_NS).astype(np.int64)
    return np.where(which & np.not_equal(factors, 1) & (weight != REMOVED), longer, weight)


def _shortened(edges: Edges, weight: Numbers, which: Mask, spans: Spans, group: Integers) -> Numbers:
    """Weights of edges without the time of spans: an edge needs no more than the rest of what was measured."""
    time = spans.inside(group, edges.begin, edges.end, which & (weight != REMOVED))
    return np.where(time > 0, np.minimum(weight, edges.end - edges.begin - time), weight)


def _in_calls(edges: Edges, of_labels: Mask) -> Mask:
    """Edges inside of calls with some labels."""
    inside: Mask = np.isin(edges.kind, _CALLS) & of_labels[edges.label]
    return inside


ideal_network = _setting(
    0,
    lambda edges: np.isin(edges.kind, TRANSFERS) | ((edges.kind == EdgeKind.BLOCKED_CALL) & edges.graph.receives[edges.target]),
)
"""Transfers of collectives and messages take no time, nor do calls whose message was still on its way when they began."""


def no_launch_cost(built: BuiltGraph) -> Step:
    """Calls that launch take no time, and what they launch can start at once, but for what waits long after its call: for what,
    as another process on the device, was not recorded. Calls that take long load code, or create the context: that stays."""
    is_launch, is_cuda = built.labels.causes == LAUNCH, pl.col("number") == event_types.CUDA_CALL
    calls = built.context.calls.filter(is_cuda).sort("row", "start")
    starts, ends = Moments.of(*calls.select("row", "start").to_numpy().T), np.append(calls["end"].to_numpy(), 0)

    def step(edges: Edges, weight: Numbers) -> Numbers:
        changed = np.where(_in_calls(edges, is_launch) & (weight < LONG_LAUNCH), 0, weight)
        launches = np.flatnonzero(edges.kind == EdgeKind.LAUNCH)
        begin, longest = edges.begin[launches], weight[launches]
        waits = begin + longest - ends[starts.place(edges.source_row[launches], begin)]
        stays = np.where(longest < LONG_LAUNCH, 0, longest)
        changed[launches] = np.where(waits > LATE_START, waits.clip(max=longest), stays)
        return changed

    return step


def loading_times(built: BuiltGraph, times: float, tasks: Sequence[int] | None = None, which: pl.Expr = IS_LOADING) -> Step:
    """Times in which hosts of some tasks (None: of all) load data (`which`: as of `times_of_loading`) take so many times as
    long, and so does all that threads do which wake them."""
    task, loads = built.context.events.rows.task, times_of_loading(built.context, which)
    is_of_tasks = np.isin(task[loads["row"].to_numpy()], task if tasks is None else tasks)
    spans, wake_ups = Spans(loads.filter(pl.Series(is_of_tasks, dtype=pl.Boolean))), built.graph.of_kind(EdgeKind.WAKE_UP)
    created = Spans(built.context.creations.select("row", "start", "end"))
    loaders = np.setdiff1d(wake_ups.source_row[_hold_ends(spans, wake_ups, wake_ups.kind >= 0)], loads["row"].to_numpy())

    def step(edges: Edges, weight: Numbers) -> Numbers:
        of_thread = (edges.source_row == edges.row) & np.isin(edges.kind, _CALLS)
        is_loading = of_thread & (spans.inside(edges.row, edges.begin, edges.end, of_thread) == edges.end - edges.begin)
        scaled = _scaled(weight, is_loading | (of_thread & np.isin(edges.row, loaders)), times)
        # Contexts, and what the profiler sets up, stay.
        stays = np.minimum(weight, created.inside(edges.row, edges.begin, edges.end, is_loading))
        scaled = np.where(is_loading, np.maximum(scaled, stays), scaled)
        # Without loading nothing wakes who waits for it.
        return np.where(_hold_ends(spans, edges, edges.kind == EdgeKind.WAKE_UP) & (times == 0), REMOVED, scaled)

    return step


def scaled_work(built: BuiltGraph, scalings: Sequence[Scaling]) -> Step:
    """Kernels, copies and graphs take other times; a UsageError when nothing fits a pattern."""
    names, copies = names_of_work(built), named_values(built.context, event_types.MEMORY_OPERATION)
    factors = np.ones(built.labels.frame.height)
    for scaling in scalings:
        # Upper and lower case are the same.
        of_pattern = [fits(pl.col(column).str.to_lowercase(), scaling.pattern.lower()) for column in ("kernel", "family")]
        scaled = names.filter(pl.any_horizontal(of_pattern))["label"].to_numpy()
        if not len(scaled) and copies.select(fits(pl.col("name").str.to_lowercase(), scaling.pattern.lower()).any()).item():
            # The graph has all other copies.
            raise UsageError(f"--scale {scaling.pattern}: {PAGES_ALONE}")
        if not len(scaled):
            possible = [name for column in ("family", "kernel") for name in names[column].drop_nulls().unique().sort()]
            near = did_you_mean(scaling.pattern, possible, "efficiency REPORT... --csv DIR")
            raise UsageError(f"--scale {scaling.pattern}: no kernel, kernel family or copy of the run has this name{near}")
        factors[scaled] *= scaling.factor

    def step(edges: Edges, weight: Numbers) -> Numbers:
        # A call that hands over the data of a copy takes the time of the copy.
        label = np.where(edges.kind == EdgeKind.STAGING, edges.graph.label[edges.source], edges.label)
        return _scaled(weight, np.isin(edges.kind, (*_WORK, EdgeKind.STAGING)), factors[label])

    return step


def median_of_ranks(built: BuiltGraph, ranks: Sequence[int]) -> Step:
    """Kernels of some ranks take the median of the other ranks: `as_others`; a UsageError when the run has no such rank."""
    rows = built.context.events.rows
    of_rank = {task.rank: place for place, task in enumerate(rows.tasks)}
    if missing := [rank for rank in ranks if rank not in of_rank]:
        raise UsageError(f"--rank {missing[0]}=median: the run has no rank {missing[0]}")
    return as_others(built, rows.task, [of_rank[rank] for rank in ranks])


def as_others(built: BuiltGraph, group: Integers, slow: Sequence[int], kernels: pl.DataFrame | None = None) -> Step:
    """Kernels (of some, by `number` and `value`; None: all) in `slow` groups of rows take the median over the mean durations in
    the other groups, part by part (`means_in_parts`)."""
    work = built.graph.of_kind(EdgeKind.DEVICE_WORK)
    columns = {"edge": work.number, "label": work.label, "group": group[work.row], "length": work.weight}
    executions = pl.DataFrame(columns).filter(pl.Series(built.labels.is_of(event_types.KERNEL)[work.label]))
    if kernels is not None:
        names = kernels.select(pl.col("number", "value").cast(pl.Int64))
        labels = built.labels.frame.join(names, on=["number", "value"], how="semi")
        executions = executions.join(labels, on="label", how="semi")
    means = means_in_parts(executions, ["label"], "group", edge=pl.col("edge")).filter(pl.col("group").is_in(slow))
    means, factor = means.filter(pl.col("mean") > 0).explode("edge"), np.ones(len(built.graph.source))
    factor[means["edge"].to_numpy()] = (means["usual"] / means["mean"]).to_numpy()
    return lambda edges, weight: _scaled(weight, edges.kind == EdgeKind.DEVICE_WORK, factor[edges.number])


def means_in_parts(executions: pl.DataFrame, key: Sequence[str], group: str, **also: pl.Expr) -> pl.DataFrame:
    """Means of the `length` of executions with a key in several groups (columns of `with_usual`), and what is `also` asked for
    of each. A device can be slow for a part of the run: what all groups execute equally often is compared in several parts, in
    the order of the executions."""
    count, place = pl.len().over(*key, group), pl.int_range(pl.len()).over(*key, group)
    placed = executions.with_columns(count=count, place=place)
    is_like = (pl.col("count").min() == pl.col("count").max()).over(key)
    part = pl.when(is_like).then(pl.col("place") * _PARTS // pl.col("count")).otherwise(0)
    means = placed.group_by(*key, group, part=part).agg(mean=pl.col("length").mean(), **also)
    return with_usual(means, [*key, "part"], group)


def with_usual(means: pl.DataFrame, key: Sequence[str], group: str) -> pl.DataFrame:
    """Means (`mean`) of what has a key in several groups, with the median of the other groups, `usual`."""
    # Of the sorted means without that of the group itself, which is at `place`.
    ranked = means.sort(*key, "mean", group).with_columns(place=pl.int_range(pl.len()).over(key), several=pl.len().over(key))
    ranked = ranked.filter(pl.col("several") > 1)
    ranks = ((pl.col("several") - 2) // 2, (pl.col("several") - 1) // 2)
    lower, upper = (pl.col("mean").gather(rank + (rank >= pl.col("place"))).over(key) for rank in ranks)
    return ranked.with_columns(usual=(lower + upper) / 2)


def names_of_work(built: BuiltGraph) -> pl.DataFrame:
    """Columns `label`, `kernel` (its name) and `family` (null of copies) of what runs on devices."""
    labels = built.labels.frame.filter(pl.col("number").is_in([*event_types.KERNEL_TYPES, event_types.MEMORY_OPERATION]))
    return labels.select("label", kernel="name", family=family_names(labels, built.context.events))


def _of_gaps(built: BuiltGraph, gaps: pl.DataFrame) -> Spans:
    """Gaps (`device`, `row` of the thread that launched what comes after, -1: not known, `begin` and `end`, ns) by the row of
    the thread, and by device: groups behind those of all rows."""
    edges, device = ("begin", "end"), pl.col("device") + len(built.context.events.rows.names)
    threads, devices = gaps.filter(pl.col("row") >= 0).select("row", *edges), gaps.select(device.alias("row"), *edges)
    return Spans(pl.concat([threads, devices]))


def without_gaps(built: BuiltGraph, gaps: pl.DataFrame, *, keeps_order: bool = False) -> Step:
    """In gaps the threads that launch what comes after take no time, and devices wait for nothing else; with `keeps_order` they
    take the time from one operation to the next that they take where both are launched early."""
    spans, rows = _of_gaps(built, gaps), built.context.events.rows
    groups = np.where(rows.device >= 0, rows.device + len(rows.names), np.arange(len(rows.device)))
    orders = built.graph.weight[built.graph.kind == EdgeKind.STREAM_ORDER] if keeps_order else ()
    least = int(np.quantile(orders, CLASS_QUANTILE, method="lower")) if len(orders) else 0

    def step(edges: Edges, weight: Numbers) -> Numbers:
        # A launch is a matter of the thread, and the order in a stream of the device.
        of_source = edges.kind == EdgeKind.LAUNCH
        row = np.where(of_source, edges.source_row, edges.row)
        is_order = edges.kind == EdgeKind.STREAM_ORDER
        shorter = _shortened(edges, weight, of_source | is_order | np.isin(edges.kind, _ON_THREADS), spans, groups[row])
        return np.where(is_order, np.maximum(shorter, np.minimum(weight, least)), shorter)

    return step


def without_launches(built: BuiltGraph, gaps: pl.DataFrame) -> Step:
    """Calls that launch take no time in gaps of their thread."""
    spans, is_launch = _of_gaps(built, gaps), built.labels.causes == LAUNCH
    return lambda edges, weight: _shortened(edges, weight, _in_calls(edges, is_launch), spans, edges.row)


def without_waits(built: BuiltGraph, gaps: pl.DataFrame) -> Step:
    """Calls that end in gaps of their thread don't wait for devices: results are read later. Functions that copy, and
    wait in gaps, wait nowhere in these threads: their copies are asynchronous."""
    spans, causes = _of_gaps(built, gaps), built.labels.causes
    waits = np.isin(causes, (MEMORY_CALL, SYNCHRONIZATION))
    threads = np.isin(np.arange(len(built.context.events.rows.names) + 1), gaps["row"].unique().to_numpy())

    def is_wait(edges: Edges) -> Mask:
        return _hold_ends(spans, edges, np.isin(edges.kind, _FOR_DEVICES))

    synchronizations = built.graph.of_kind(*_FOR_DEVICES)
    counts = np.bincount(synchronizations.label[is_wait(synchronizations)], minlength=len(causes))
    copying = (causes == MEMORY_CALL) & (counts >= _USED_OFTEN * counts.sum())

    def step(edges: Edges, weight: Numbers) -> Numbers:
        shorter = _shortened(edges, weight, _in_calls(edges, waits), spans, edges.row)
        copies = np.isin(edges.kind, _FOR_DEVICES) & copying[edges.label] & threads[edges.row]
        return np.where(is_wait(edges) | copies, REMOVED, shorter)

    return step


def without_allocations(built: BuiltGraph, tasks: Sequence[int], begin: int, end: int) -> Step:
    """Calls that allocate or free in some tasks, from a begin to an end, ns, take no time and wait for nothing."""
    allocates, of_task = built.labels.causes == ALLOCATION, np.isin(built.context.events.rows.task, tasks)

    def step(edges: Edges, weight: Numbers) -> Numbers:
        inside = of_task[edges.row] & allocates[edges.label] & (edges.begin >= begin) & (edges.end <= end)
        shorter = np.where(inside & np.isin(edges.kind, _CALLS), 0, weight)
        return np.where(inside & np.isin(edges.kind, _FOR_DEVICES), REMOVED, shorter)

    return step


without_launch_queue = _setting(REMOVED, lambda edges: edges.kind == EdgeKind.LAUNCH_QUEUE)
"""Launches never wait for a place in the queue."""


def without_transfers(built: BuiltGraph, devices: Sequence[int]) -> Step:
    """NCCL kernels of some devices take no time, once all members are there."""
    is_nccl, on_devices = built.labels.is_of(event_types.NCCL_KERNEL), np.isin(built.context.events.rows.device, devices)
    return _setting(0, lambda edges: np.isin(edges.kind, _WORK) & is_nccl[edges.label] & on_devices[edges.row])


def without_collectives(built: BuiltGraph, kernels: pl.DataFrame) -> Step:
    """Some NCCL kernels (columns `row`, `start`, `end`) take no time, once all members are there."""
    is_nccl, spans = built.labels.is_of(event_types.NCCL_KERNEL), Spans(kernels)
    return _setting(0, lambda edges: _hold_ends(spans, edges, np.isin(edges.kind, _WORK) & is_nccl[edges.label]))


def faster_copies(built: BuiltGraph, copies: pl.DataFrame, factor: float, staging: pl.DataFrame) -> Step:
    """Copies (columns `row`, `begin`, `end`) take so many times as long, and calls that copy don't take
    the time of the copies, nor times of `staging` (likewise, a row of the same task): they don't wait for them, nor move their
    data themselves."""
    rows, copying = built.context.events.rows, built.labels.causes == MEMORY_CALL
    times = pl.concat([copies, staging])
    spans, of_tasks = Spans(copies), Spans((rows.task[times["row"].to_numpy()], times["begin"], times["end"]))

    def step(edges: Edges, weight: Numbers) -> Numbers:
        is_copy = spans.inside(edges.row, edges.begin, edges.end, edges.kind == EdgeKind.DEVICE_WORK) > 0
        scaled = _scaled(weight, is_copy, factor)
        launched = spans.inside(edges.row, edges.end, edges.end + 1, edges.kind == EdgeKind.LAUNCH) > 0
        shorter = _shortened(edges, scaled, _in_calls(edges, copying) | launched, of_tasks, rows.task[edges.row])
        awaited = spans.inside(edges.source_row, edges.begin - 1, edges.begin + 1, np.isin(edges.kind, _FOR_DEVICES)) > 0
        return np.where(awaited, REMOVED, shorter)

    return step


def scaled_kernels(built: BuiltGraph, kernels: pl.DataFrame) -> Step:
    """Kernels (columns `device`, `number`, `value`) take a `factor` of their time."""
    device = built.context.events.rows.device
    scaled = kernels.cast({"number": pl.Int64, "value": pl.Int64}).join(built.labels.frame, on=["number", "value"])
    # Rows of no device are of the last one, -1.
    table = np.ones((int(device.max(initial=0)) + 2, built.labels.frame.height))
    table[scaled["device"].to_numpy(), scaled["label"].to_numpy()] = scaled["factor"].to_numpy()
    return lambda edges, weight: _scaled(weight, edges.kind == EdgeKind.DEVICE_WORK, table[device[edges.row], edges.label])


def no_late_ranks(built: BuiltGraph, former: list[Step], tasks: Sequence[int] | None = None) -> Step:
    """Collectives start when their typical member arrives, after other changes (`former`): docs/efficiency.md ("Late ranks").

    Of a rank that takes longer, the edges that determine when it arrives take less, all by one share; only of some `tasks`,
    where these are not None."""
    arrivals, tasks = _arrivals(built), range(len(built.context.events.rows.tasks)) if tasks is None else tasks
    # No member of a collective waits for another one.
    alone = _setting(REMOVED, lambda edges: np.isin(edges.kind, (EdgeKind.ARRIVAL, EdgeKind.COLLECTIVE)))
    less = np.zeros(len(built.graph.source), dtype=np.int64)

    def step(edges: Edges, weight: Numbers) -> Numbers:
        return np.where(weight == REMOVED, REMOVED, np.maximum(weight - less[edges.number], 0))

    for _ in range(_MOST_PASSES):
        before = int(less.sum())
        _reduce(less, built, replay(built.graph, [*former, step, alone]), arrivals, tasks)
        if int(less.sum()) - before <= _LEAST_LESS * built.context.events.length:
            break
    return step


def _arrivals(built: BuiltGraph) -> pl.DataFrame:
    """Members of collectives that wait for all others: `moment` (start of the member), `hub` (that of the last one), `task`,
    and `members`, a number for the set of all."""
    graph, arrival = built.graph, built.graph.of_kind(EdgeKind.ARRIVAL)
    hubs = np.unique(arrival.target)
    moment, hub = np.append(arrival.source, hubs), np.append(arrival.target, hubs)
    # Who receives waits for what is sent, which is no matter of being late.
    receives = built.labels.is_pair[graph.label[moment]]
    waits = np.isin(moment, graph.of_kind(EdgeKind.TRANSFER).source) & ~receives
    members = {"moment": moment, "hub": hub, "task": built.context.events.rows.task[graph.row[moment]]}
    return pl.DataFrame(members).filter(pl.Series(waits)).with_columns(members=pl.col("task").hash().sum().over("hub"))


def _reduce(less: Numbers, built: BuiltGraph, alone: Replay, arrivals: pl.DataFrame, tasks: Sequence[int]) -> None:
    """Add to what edges take `less`, ns, by what late ranks arrive later than typical ones in the replay `alone`, in which no
    member waits."""
    timed = arrivals.with_columns(time=pl.Series(alone.time[arrivals["moment"].to_numpy()])).sort("task", "time", "moment")
    # Members are late for a collective of others as well: time counts since the former one of the same members.
    timed = timed.with_columns(since=pl.col("time").shift(fill_value=0).over("task", "members"))
    length = pl.col("time") - pl.col("since")
    typical = length.quantile(0.5, interpolation="lower").over("hub").cast(pl.Int64)
    late = timed.with_columns(excess=length - typical).filter(pl.col("excess") > 0, pl.col("task").is_in(list(tasks)))
    graph, of_late = built.graph, (late[name].to_numpy() for name in ("moment", "since", "task", "excess"))
    # What belongs to other ranks takes no less.
    counts = ~np.isin(graph.kind, (*TRANSFERS, EdgeKind.ARRIVAL))
    task = built.context.events.rows.task[graph.row]
    run_loop(_shorten_ways, (*of_late, graph.source, task, counts, alone.time, alone.edge), (less,))


def _shorten_ways(
    moment: Any, since: Any, task: Any, excess: Any, source: Any, task_of: Any, counts: Any, time: Any, edge: Any, less: Any
) -> None:
    """What determined when late ranks arrived, back to their former arrival, takes less, all by one share."""
    for way in range(len(moment)):
        total = 0
        # First what the edges take together, then what each takes less.
        for is_second in range(2):
            target, goes_on = moment[way], True
            while goes_on and edge[target] >= 0:
                place = edge[target]
                begin = time[source[place]]
                length = time[target] - max(begin, since[way])
                if counts[place] and is_second:
                    less[place] += int(length * min(excess[way] / max(total, 1), 1.0))
                elif counts[place]:
                    total += length
                target = source[place]
                goes_on = begin > since[way] and task_of[target] == task[way]
