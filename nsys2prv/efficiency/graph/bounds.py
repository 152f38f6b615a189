"""Between which bounds the times of a replay are, where what something waited for, or how long, is not known.

docs/efficiency.md ("What if") says what is not known of hosts, clocks and missing ranks: such a run is replayed twice more,
with the shortest and with the longest of these times. Besides,

- a thread that has waited for long may wait for a producer that is not in the run: then it goes on when it did;
- streams may wait that start nothing though nothing is known to hold them;
- pages of unified memory that move while a kernel runs may be what it waits for: at the earliest it is shorter by all that a
  change says, and at the latest it keeps the time of these moves;
- what an edge that would go back in time ends at can be as early, and is no later than measured."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph.host_waits import waits_in_os
from nsys2prv.efficiency.graph.replay import FOLLOWS, FREE, HELD, REMOVED, EdgeKind, Edges, Replay, Step, as_changed, replays
from nsys2prv.efficiency.graph.run_graph import LEAST_PAUSE, BuiltGraph, times_of_loading
from nsys2prv.efficiency.intervals import Floats, Integers, Moments, Numbers, Spans
from nsys2prv.efficiency.measured_run import NO_CALL, PAGE_MOVES
from nsys2prv.efficiency.meters.recording_checks import device_clocks, lost_work
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, OFF_CPU_TIMES, PAGE_FAULTS
from nsys2prv.errors import counted
from nsys2prv.sources.host.call_chains import SAMPLED_MODULE
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.call_names import TIMERS, WAITING_CALLS

CLOCKS = "times of different clocks can be wrong against each other"
NOT_TYPICAL = "ranks of the run are missing: how long the typical rank takes is not known"
NOT_TIED = "clocks of ranks that wait for each other are not known against each other, or by more than can be counted"
WAITS = "it is not known what host threads wait for while off their CPU or not seen to run, nor what idle streams wait for"
PAGES = "it is not known how much of a kernel is taken by pages of unified memory that move, and stays"
LOADING = "it is not known how far ahead data are loaded, nor what may be start-up or writing of results"
_LONGER = "ranks that are not in the run may take longer, too"

LATENCY = 20_000
"""ns that are usual between two operations of a stream."""
_LAST_BLOCKS = 0.05
"""Part of a kernel before its end, at most, in which its last blocks leave place on the device."""
_DRIVER = r"libcuda\.so|[\[(]vdso[\])]"
"""In names of modules in which a thread polls for the device, which is in no call that was recorded."""
_LEAST_OFF_CPU = 10_000
"""ns off its CPU in which a thread can wait for something: less is what a change of threads takes."""
_LONG_WAIT = 1_000_000
"""ns off its CPU in which a thread can have waited for one that produces at its own speed."""
_LEAST_OF_PRODUCER = 0.05
"""Part of the run in such waits, at least, of a thread that waits for one that produces at its own speed."""
_LEAST_WAITING = 0.1
"""Part of the time in which threads load data, from which on waits in it count."""
_TIME_OF_CALLS = (EdgeKind.DEVICE_WORK, EdgeKind.TRANSFER, EdgeKind.COLLECTIVE, EdgeKind.HOST, EdgeKind.BLOCKED_CALL)
"""What takes the time of kernels and calls that wait."""


class ReplayBounds(NamedTuple):
    """A replay, the shorter and the longer one (None: nothing is known of how short, or how long, it is), and why these are not
    the replay itself; no reason: they are. `saved`: by how much any part of the run can be shorter at most, ns."""

    replayed: Replay
    least: Replay | None
    most: Replay | None
    reasons: Sequence[str]
    saved: float = math.inf


class OpenWaits:
    """Edges of a run, in order, in which a thread or a stream may wait for what is not known: `number` in the graph, how much
    of each may be such a `wait`, ns, which of them end at the latest when they did (`is_held`), and which can end at any time
    (`is_free`): the device was full until work of another stream was about to end."""

    def __init__(self, built: BuiltGraph) -> None:
        graph = built.graph
        on_devices = np.isin(graph.kind, (EdgeKind.STREAM_ORDER, EdgeKind.LAUNCH)) & (graph.weight >= LATENCY + _LEAST_OFF_CPU)
        may_wait = on_devices | ((graph.kind == EdgeKind.HOST) & (graph.weight >= _LEAST_OFF_CPU))
        edges = Edges(graph, np.flatnonzero(may_wait))
        rows, times = built.context.events.rows, built.context.frame(OFF_CPU_TIMES)
        is_scheduled = np.isin(rows.task, rows.task[times["row"].unique().to_numpy()])
        is_host, is_seen = edges.kind == EdgeKind.HOST, is_scheduled[edges.row]
        off_cpu = Spans(times.select("row", "start", "end")).inside(edges.row, edges.begin, edges.end, is_seen)
        unseen, polling = _unseen(built, edges)
        wait = np.where(is_host, np.where(is_seen, off_cpu + polling, unseen), edges.weight - LATENCY)
        wait[is_host & built.labels.by_name(pl.col("name").str.contains(TIMERS))[edges.label]] = 0
        is_open = wait >= _LEAST_OFF_CPU
        waits = (built.labels.causes == NO_CALL) | waits_in_os(built.labels)
        # What devices do has no pace before it begins, nor when all is done.
        starts, ends = (built.context.operations[name].to_numpy() for name in ("start", "end"))
        in_work = (edges.end > starts.min(initial=0)) & (edges.begin < ends.max(initial=0))
        long = np.where(is_host & waits[edges.label] & (off_cpu >= _LONG_WAIT) & in_work, off_cpu, 0)
        of_row = np.bincount(edges.row, weights=long, minlength=len(rows.names))
        is_held = (long > 0) & (of_row >= _LEAST_OF_PRODUCER * built.context.events.length)[edges.row]
        last = pl.max_horizontal(LATENCY, (pl.col("end") - pl.col("start")) * _LAST_BLOCKS).cast(pl.Int64)
        begins = pl.max_horizontal("start", pl.col("end") - last)
        ending = Spans(rows.located(built.context.operations).select("device", begins, "end"))
        is_free = ending.inside(rows.device[edges.row], edges.end - 1, edges.end, ~is_host) > 0
        self.number, self.wait, self.is_held, self.is_free = (of[is_open] for of in (edges.number, wait, is_held, is_free))

    def variant(self, edges: Edges, weight: Numbers, limit: Integers, how: int = FOLLOWS) -> Numbers:
        """The variant of a replay without these waits (`how` is FOLLOWS), where changes leave them as they were; or in which
        those that are held end when they did (HELD), where changes leave as much time."""
        here = np.arange(*np.searchsorted(self.number, [edges.number.start, edges.number.stop]))
        place = self.number[here] - edges.number.start
        is_whole = weight[place] == edges.weight[place]
        stays = is_whole if how == FOLLOWS else self.is_held[here] & (weight[place] >= self.wait[here])
        here, place = here[stays], place[stays]
        limit[edges.target[place]] = how
        if how != FOLLOWS:
            return weight
        limit[edges.target[place[self.is_free[here]]]] = FREE
        shorter: Numbers = weight.copy()
        shorter[place] -= np.minimum(self.wait[here], weight[place])
        return shorter


def _unseen(built: BuiltGraph, edges: Edges) -> tuple[Numbers, Numbers]:
    """Time of threads in edges in which they may wait, by what they do and by samples, ns: each stands for the time to the next
    one, as usual; and of it time in no call in which they are seen in the driver, where they poll for the device."""
    length, names, calls = edges.end - edges.begin, built.context.events.names(SAMPLED_MODULE), built.context.calls
    outside = built.labels.causes[edges.label] == NO_CALL
    may_wait = (outside & (length >= LEAST_PAUSE)) | waits_in_os(built.labels)[edges.label]
    # In a call of CUDA a thread can wait for a lock of the driver, which others hold.
    locks = calls.filter(built.context.is_named(calls, event_types.PTHREAD_CALL, WAITING_CALLS)).select("row", "start", "end")
    waiting = np.where(may_wait, length, Spans(locks).inside(edges.row, edges.begin, edges.end))
    samples = built.context.frame(FUNCTION_SAMPLES).sort("row", "start")
    if samples.is_empty():
        return waiting, np.zeros_like(length)
    period = samples.select(pl.col("start").diff().over("row").median()).item() or 0
    is_driver = pl.col("module").is_in([module for module, name in names.items() if re.search(_DRIVER, name)]).fill_null(False)
    seen = []
    for of_samples in (samples.filter(~is_driver), samples.filter(is_driver)):
        sampled_at = Moments.of(of_samples["row"].to_numpy(), of_samples["start"].to_numpy())
        count = sampled_at.find(edges.row, edges.end - 1) - sampled_at.find(edges.row, edges.begin - 1)
        seen.append(np.minimum((count * period).astype(np.int64), length))
    return np.maximum(waiting - seen[0], 0), np.where(outside, seen[1], 0)


class UncertainRun:
    """What is not known of the times of a run, for all its replays; `built` is its graph."""

    def __init__(self, built: BuiltGraph) -> None:
        self.built, self._waits, self._moves = built, OpenWaits(built), built.context.page_waits
        # Where faults were not recorded, those of few moves can take nearly as many times as long as makes a kernel wait.
        self._waits_of_moves = 1.0 if built.context.frame(PAGE_FAULTS).height else 1 / PAGE_MOVES
        self._margins = _margins(built)
        margin = float(self._margins.max(initial=0.0))
        self._reasons = [CLOCKS] if margin or len(built.backward) else []
        if len(built.open_ends):
            operations = counted(len(built.open_ends), "operation")
            self._reasons.append(
                f"other members of {operations} of NCCL or MPI are not in the run, or can't be matched: they may take any time"
            )
        lost = lost_work(built.context).reason
        self._unknown = [*device_clocks(built.context).contradictions.values(), *([lost] if lost else [])]
        if not self._unknown and not np.isfinite(margin):
            self._unknown = [NOT_TIED, *self._reasons[1:]]
        self._reasons += [WAITS] if len(self._waits.number) else []
        self._reasons += [PAGES] if len(self._moves.merged) else []

    @property
    def waits_for_loading(self) -> bool:
        """Whether threads wait for others in much of the time in which they load data, or may do so."""
        loads, graph = times_of_loading(self.built.context), self.built.graph
        waits, woken, spans = Edges(graph, self._waits.number), graph.of_kind(EdgeKind.WAKE_UP), Spans(loads)
        waiting = spans.inside(waits.row, waits.begin, waits.end).sum()
        is_woken = spans.inside(woken.row, woken.end - 1, woken.end).any()
        return bool(is_woken or waiting > _LEAST_WAITING * (loads["end"] - loads["begin"]).sum())

    def bounds(
        self, steps: Sequence[Step], *, loads: bool = True, perhaps: Sequence[Step] = (), unknown: Sequence[str] = ()
    ) -> ReplayBounds:
        """A replay with changes and its bounds.

        Data are loaded as before, at the speed of who loads them (`loads`), or batches are there when they are asked for.
        `perhaps` are changes of loading that may come with the others, and make nothing longer; `unknown`: why nothing is known
        of how long it takes."""
        built, unknown, reasons = self.built, unknown or self._unknown, [*self._reasons, *([LOADING] if perhaps else [])]
        if unknown or not reasons:
            (replayed,) = replays(built.graph, steps)
            bound = None if unknown else replayed
            return ReplayBounds(replayed, bound, bound, unknown or reasons)
        ends = np.union1d(built.open_ends, built.backward)

        def shortest(edges: Edges, weight: Numbers, limit: Integers) -> Numbers:
            for step in perhaps:
                weight = step(edges, weight)
            shorter = self._waits.variant(edges, weight, limit)
            # What may have waited for ranks that are not known, or for what can't be before it.
            is_open = np.isin(edges.target, ends) & np.isin(edges.kind, _TIME_OF_CALLS)
            no_time = np.where(is_open, 0, np.maximum(shorter - self._margins[edges.number], 0))
            return np.where(weight == REMOVED, REMOVED, no_time).astype(np.int64)

        def longest(edges: Edges, weight: Numbers, limit: Integers) -> Numbers:
            longer = self._waits.variant(edges, weight, limit, HELD if loads else FREE)
            limit[ends] = HELD
            if len(self._moves.merged):
                device, is_work = built.context.events.rows.device[edges.row], edges.kind == EdgeKind.DEVICE_WORK
                moving = self._moves.inside(device, edges.begin, edges.end, is_work) * self._waits_of_moves
                longer = longer + np.minimum(moving, np.maximum(edges.weight - weight, 0))
            return np.where(weight == REMOVED, REMOVED, longer + self._margins[edges.number]).astype(np.int64)

        replayed, least, most = replays(built.graph, steps, (as_changed, shortest, longest))
        events, saved = built.context.events, replayed.shrinkage if not (perhaps or replayed.growth) else math.inf
        if len(built.open_ends) and not events.has_all_ranks:
            # Each rank that is missing may take less by as much as all others together; without any, nothing is known of it.
            saved = saved * (1 + events.missing_ranks) if saved and events.missing_ranks else math.inf
            if replayed.growth:
                return ReplayBounds(replayed, least, None, [*reasons, _LONGER])
        return ReplayBounds(replayed, least, most, reasons, saved)


def _margins(built: BuiltGraph) -> Floats:
    """By how much each edge can be wrong because its ends are of different clocks, ns; infinite: not known."""
    graph, clocks, task = built.graph, built.context.clocks, built.context.events.rows.task[built.graph.row]
    edges, margins = Edges(graph, np.flatnonzero(task[graph.source] != task[graph.target])), np.zeros(len(graph.source))
    moment, edge = np.concatenate([edges.source, edges.target]), np.tile(edges.number, 2)
    ends = clocks.with_margins(pl.DataFrame({"task": task[moment], "time": graph.time[moment], "edge": edge}), "time")
    margins[edges.number] = ends.select(margin_of_group(["edge"])).to_series().head(len(edges)).to_numpy()
    return margins
