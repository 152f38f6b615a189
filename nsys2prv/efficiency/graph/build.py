"""The graph of a run is built from its events, chunk by chunk.

Rows are streams and host threads. Moments are the starts and ends of their intervals; edges say what each waited for:

- an interval on a device takes its duration, and starts after what was before it on its stream, and after its launch;
- a host thread does one thing after the other, each for as long as was measured, but in calls that wait for a device;
- such a call ends after the operation that it waited for;
- a member of a collective ends when all have arrived, and it takes the transfer from there.

An edge that would go back in time is left out and counted: clocks differ, or something did not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.chunk_moments import (
    ChunkMoments,
    Former,
    OpenIntervals,
    moments_of,
    outside_calls,
    stretch_labels,
)
from nsys2prv.efficiency.graph.event_waits import EventEdges, EventWaits
from nsys2prv.efficiency.graph.graph_labels import COPY, NO_WAIT, NOTHING, GraphLabels
from nsys2prv.efficiency.graph.host_waits import HostWaits, OwnEdges
from nsys2prv.efficiency.graph.launch_queue import BlockedCalls, blocked_calls
from nsys2prv.efficiency.graph.least_weights import LeastWeights, class_code
from nsys2prv.efficiency.graph.loading import LEAST_BYTES, LoadingTimes
from nsys2prv.efficiency.graph.moment_files import EDGE_COLUMNS, END, NOT_FOUND, START, ColumnFiles, MomentFiles
from nsys2prv.efficiency.graph.open_ends import OpenEnds
from nsys2prv.efficiency.graph.run_graph import WHOLE, Edges, Moments, RunGraph, edge_order, release, settle, windows_of
from nsys2prv.efficiency.graph.taking_turns import TakingTurns
from nsys2prv.efficiency.graph.waiting_calls import CALLS, OPERATIONS, WaitingCalls
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meters.nccl_stats import COLLECTIVE, Nccl, measure_nccl
from nsys2prv.efficiency.run_events import HOST_CALLS, ON_DEVICES, ON_HOSTS, STREAM, WAITS, RunEvents
from nsys2prv.efficiency.sweep import LAUNCH, MEMORY_CALL, MPI, NO_LAUNCH, SweepContext, TimeChunk
from nsys2prv.execution.external_sort import ExternalSort, Window
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.execution.threads import map_ahead
from nsys2prv.vocabulary import event_types

_LAUNCH_KEY = ["row", "begin"]
_TO_DEVICE = event_types.COPY_KINDS[1]


@dataclass(frozen=True)
class BuiltGraph:
    """The graph of a run with what its numbers mean.

    Attributes
    ----------
    graph
        Settled.
    labels
        Of its moments.
    left_out
        Edges that would have gone back in time, by kind of edge.
    context
        Of the run.
    counted_rows
        Which rows count for when the run is done: streams, and threads that launch work or call MPI. What other threads wait
        for is often not known.
    loading
        Times in which hosts load data (`loading.SCHEMA`).
    kinds
        Kinds of edges that the graph has.
    open_ends
        Moments, in order, at which something ends that may have waited for ranks that are not known: `open_ends.OpenEnds`.
    open_collectives
        How many of these are of collectives, and not of sends and receives of NCCL.
    """

    graph: RunGraph
    labels: GraphLabels
    left_out: dict[int, int]
    context: SweepContext
    counted_rows: npt.NDArray[np.bool_]
    loading: pl.DataFrame
    kinds: frozenset[int]
    open_ends: Numbers
    open_collectives: int

    @property
    def warnings(self) -> list[str]:
        """How many dependencies would have gone back in time."""
        if not self.left_out:
            return []
        kinds = ", ".join(f"{count} of {edge_kinds.NAMES[kind]}" for kind, count in sorted(self.left_out.items()))
        return [f"dependencies that would go back in time are not in the graph of the run: {kinds}"]


@dataclass
class _Pending:
    """Edges of a chunk, in pieces."""

    pieces: list[tuple[Numbers, Numbers, Numbers, int]] = field(default_factory=list)

    def add(self, kind: int, source: Numbers, target: Numbers, weight: Numbers | int) -> None:
        """Edges of one kind."""
        self.pieces.append((source, target, np.broadcast_to(np.asarray(weight, dtype=np.int64), source.shape), kind))


def _without_replaced(edges: dict[str, Numbers]) -> dict[str, Numbers]:
    """Edges without those of a host thread that are beside another one of the same call: it is known that it waited."""
    is_host = edges["kind"] == edge_kinds.HOST
    of_call = np.isin(edges["kind"], (edge_kinds.BLOCKED_CALL, edge_kinds.TRANSFER))
    replaced = is_host & np.isin(edges["target"], edges["target"][of_call])
    return {name: column[~replaced] for name, column in edges.items()} if replaced.any() else edges


def built_graph(events: RunEvents, folder: Path) -> BuiltGraph:
    """The graph of a run, for which its collections are used up; moments and edges are written to a folder."""
    run = MeasuredRun(events)
    if events.recorded is not None:
        whole = replace(events, begin=events.begin - events.offset, length=events.recorded, offset=0, recorded=None)
        run = MeasuredRun(events, recorded=MeasuredRun(whole))
    builder = GraphBuilder(run, folder, measure_nccl(run), EventWaits(events).update(run), blocked_calls(run))
    builder.update(run)
    return builder.finish()


class GraphBuilder:
    """Builds the graph of a run. It is updated with each chunk of time.

    Parameters
    ----------
    context
        Of the run.
    folder
        Where moments and edges are written.
    nccl
        NCCL kernels and their collectives; it is updated with the same chunks by who makes it.
    event_waits, blocked
        Of the run.
    """

    def __init__(self, context: SweepContext, folder: Path, nccl: Nccl, event_waits: EventEdges, blocked: BlockedCalls) -> None:
        self._context = context
        self._nccl = nccl
        self._folder = folder
        rows = context.events.rows
        self.labels = GraphLabels(context.events)
        self._moments = MomentFiles(folder / "moments")
        self._edges = ColumnFiles(folder / "edges", EDGE_COLUMNS)
        self._late = ExternalSort(["target"], folder / "late")
        self._least = LeastWeights()
        self._left_out: dict[int, int] = {}
        self._former = Former(len(rows.names) + 1)
        self._former_end = Former(len(rows.names) + 1)
        self._created = Former(len(rows.tasks) + 1)
        self._waiting = WaitingCalls(context.events)
        self._event_waits = event_waits
        self._blocked = blocked
        self._turns = TakingTurns(len(rows.names) + 1)
        self._open_ends = OpenEnds(context.events, self.labels)
        self._host_waits = HostWaits(context.events, folder / "collectives", self._moments, self._least)
        nothing: Numbers = np.zeros(0, dtype=np.int64)
        self._carried = {ON_DEVICES.name: nothing, ON_HOSTS.name: nothing}
        # Thread and time of the launch of operations that are open.
        self._launches_of_carried = pl.DataFrame(schema={"thread": pl.Int64, "launched": pl.Int64})
        self._members: list[pl.DataFrame] = []
        self._is_stream = rows.of_kind(STREAM)
        self._counted = rows.of_kind(STREAM)
        self._loading = LoadingTimes()
        copies = context.events.types.get(event_types.MEMORY_OPERATION)
        self._to_device = [value for value, name in ((copies.values if copies else None) or {}).items() if name == _TO_DEVICE]

    def update(self, chunk: TimeChunk) -> None:
        """Add the moments and edges of a chunk."""
        devices = self._intervals(chunk, ON_DEVICES.name)
        hosts = self._intervals(chunk, ON_HOSTS.name)
        number = chunk.inside[ON_HOSTS.name]["number"].to_numpy()
        outside = outside_calls(hosts, np.isin(number, HOST_CALLS), self._context.events.length)
        hosts.is_kept &= outside | ~hosts.is_new
        devices.is_kept &= self._is_stream[devices.row] | ~devices.is_new
        waits = self.labels.waits
        may_wait = waits[hosts.label] != NO_WAIT if len(waits) else np.zeros(len(hosts.label), dtype=bool)
        moments = moments_of(self._moments.count, devices, hosts, may_wait, chunk.end)
        shown = stretch_labels(moments, hosts)
        self._moments.append(chunk.begin, {"time": moments.time, "row": moments.row, "label": shown, "side": moments.side})
        edges = _Pending()
        launches = self._launches(chunk)
        self._note_threads(chunk, hosts, devices, launches)
        by_events = self._event_waits
        own = OwnEdges.of(moments)
        self._waits(chunk, devices, hosts, launches, by_events.on_hosts, own, edges)
        found = self._host_waits.update(chunk, hosts, own)
        self._open_ends.add_calls(hosts, own)
        for kind, source, target, weight in found.pieces:
            edges.add(kind, source, target, weight)
        for kind, source, target, weight in found.late:
            self._add_late(kind, source, target, weight)
        # What is inferred where no events were recorded, too: without it streams would be independent.
        after_events = self._add_event_waits(pl.concat([by_events.on_streams, by_events.inferred]), edges)
        self._add_device_edges(chunk, moments, devices, launches, after_events, edges)
        self._add_queue_edges(self._blocked.calls)
        self._add_host_edges(moments, hosts, own, shown, edges)
        self._write(moments, edges)
        for name, intervals in ((ON_DEVICES.name, devices), (ON_HOSTS.name, hosts)):
            self._carried[name] = intervals.start[intervals.until > chunk.end]
        self._launches_of_carried = launches.filter(pl.Series(devices.until > chunk.end)).select("thread", "launched")

    def finish(self) -> BuiltGraph:
        """The graph, when all chunks were added."""
        self._add_collectives()
        self._moments.columns.close()
        self._edges.flush()
        self._late.finish()
        merged = ColumnFiles(self._folder / "graph", EDGE_COLUMNS)
        own = {name: self._edges.column(name) for name in EDGE_COLUMNS}

        def edges_to(inside: slice) -> dict[str, Numbers]:
            """Edges to the moments of a window in their order, those among them that are of any time."""
            low, high = np.searchsorted(own["target"], [inside.start, inside.stop])
            columns = {name: np.asarray(column[low:high], dtype=np.int64) for name, column in own.items()}
            if late := self._late.load(Window(inside.start, inside.stop)):
                further = pl.concat(late)
                columns = {name: np.concatenate([column, further[name].to_numpy()]) for name, column in columns.items()}
            columns = _without_replaced(columns)
            order = edge_order(columns["source"], columns["target"], columns["kind"])
            columns = {name: column[order] for name, column in columns.items()}
            release(*own.values())
            return columns

        kinds: set[int] = set()
        for columns in map_ahead(edges_to, windows_of(self._moments.count)):
            kinds.update(np.flatnonzero(np.bincount(columns["kind"])).tolist())
            merged.append(columns | {"weight": self._least.resolved(columns["weight"])})
        merged.flush()
        merged.close()
        self._edges.close()
        self._late.delete()
        moments = Moments(*(self._moments.columns.column(name) for name in ("time", "row", "label")))
        graph = RunGraph(moments, Edges(*(merged.column(name) for name in EDGE_COLUMNS)))
        settle(graph)
        return BuiltGraph(
            graph, self.labels, self._left_out, self._context, self._counted, self._loading.finish(), frozenset(kinds),
            self._open_ends.finish(), self._open_ends.collectives,
        )  # fmt: skip

    # -- intervals of a chunk ---------------------------------------------------------------------------------------------

    def _intervals(self, chunk: TimeChunk, name: str) -> OpenIntervals:
        inside = chunk.inside[name]
        return OpenIntervals.of(inside, self.labels.of(inside), self._carried[name])

    def _launches(self, chunk: TimeChunk) -> pl.DataFrame:
        """Of each operation in the chunk: `thread` and `launched`, row and start of its launch (null: not known)."""
        # Those that start in the chunk are behind the carried ones.
        calls = chunk.launches.select(thread=pl.col("row").cast(pl.Int64), launched="time")
        place = pl.Series(chunk.launch_of)
        found = calls.select(pl.all().gather(place.set(place == NO_LAUNCH, None)))
        return pl.concat([self._launches_of_carried, found])

    def _note_threads(self, chunk: TimeChunk, hosts: OpenIntervals, devices: OpenIntervals, launches: pl.DataFrame) -> None:
        """Note which threads launch work and call MPI, and where they load data."""
        self._turns.note(launches.select("thread", stream=pl.Series(devices.row)))
        number = chunk.inside[ON_HOSTS.name]["number"].to_numpy()
        launches_work = np.isin(self.labels.causes, (LAUNCH, MEMORY_CALL, MPI))[hosts.label]
        self._counted[hosts.row[launches_work]] = True
        calls = np.flatnonzero(hosts.is_new & np.isin(number, HOST_CALLS))
        inside = chunk.inside[ON_DEVICES.name]
        is_batch = (
            (pl.col("number") == event_types.MEMORY_OPERATION)
            & pl.col("value").is_in(self._to_device)
            & (pl.col("size") >= LEAST_BYTES)
        )
        launched = launches.select("launched", row="thread").with_columns(inside.select(is_batch=is_batch.fill_null(False)))
        self._loading.update(hosts, calls, launched.filter(pl.Series(devices.is_new)))

    # -- edges ------------------------------------------------------------------------------------------------------------

    def _add_device_edges(
        self,
        chunk: TimeChunk,
        moments: ChunkMoments,
        devices: OpenIntervals,
        launches: pl.DataFrame,
        after_events: Numbers,
        edges: _Pending,
    ) -> None:
        number = chunk.inside[ON_DEVICES.name]["number"].to_numpy()
        ended = np.flatnonzero(devices.end != NOT_FOUND)
        is_nccl = number[ended] == event_types.NCCL_KERNEL
        plain = ended[~is_nccl]
        edges.add(edge_kinds.DEVICE_WORK, devices.start[plain], devices.end[plain], WHOLE)
        members = ended[is_nccl]
        if len(members):
            columns = {name: getattr(devices, name)[members] for name in ("row", "start", "end")}
            self._members.append(pl.DataFrame(columns | {"begin": devices.begin[members]}))
        self._add_stream_order(moments, devices, launches, number, after_events, edges)

    def _add_stream_order(
        self,
        moments: ChunkMoments,
        devices: OpenIntervals,
        launches: pl.DataFrame,
        number: np.ndarray,
        after_events: Numbers,
        edges: _Pending,
    ) -> None:
        """Edges to the starts of operations: from the end of the one before, and from the launch."""
        on_streams = np.flatnonzero(~moments.is_host)
        numbers = moments.first + on_streams
        before = self._former_end.of(moments.row[on_streams], numbers, moments.side[on_streams] == END)
        is_start = moments.side[on_streams] == START
        place = moments.interval[on_streams][is_start]
        start, former = numbers[is_start], before[is_start]
        code = class_code(edge_kinds.STREAM_ORDER, np.full(len(start), NOTHING, dtype=np.int64))
        has_former = former != NOT_FOUND
        edges.add(edge_kinds.STREAM_ORDER, former[has_former], start[has_former], code[has_former])
        thread, launched = (launches[name].fill_null(NOT_FOUND).to_numpy()[place] for name in ("thread", "launched"))
        call = np.full(len(start), NOT_FOUND, dtype=np.int64)
        # A later call may be in a chunk that was not read yet: what the count is must not depend on it.
        is_later = launched > devices.begin[place]
        self._leave_out(edge_kinds.LAUNCH, int(is_later.sum()))
        known = (thread != NOT_FOUND) & ~is_later
        call[known] = self._moments.find(thread[known], launched[known], START)
        has_call = call != NOT_FOUND
        of_launch = class_code(edge_kinds.LAUNCH, number[place].astype(np.int64))
        edges.add(edge_kinds.LAUNCH, call[has_call], start[has_call], of_launch[has_call])
        # What nothing else delays shows how long it takes: an order after an early launch, a launch on a free stream.
        begin = devices.begin[place]
        former_time = np.where(has_former, self._times(np.where(has_former, former, 0)), NOT_FOUND)
        shows = has_call & ~np.isin(start, after_events)
        is_queued = shows & has_former & (launched < former_time)
        self._least.add(code[is_queued], (begin - former_time)[is_queued])
        is_free = shows & (former_time < launched)
        self._least.add(of_launch[is_free], (begin - launched)[is_free])

    def _times(self, moments: Numbers) -> Numbers:
        return np.asarray(self._moments.columns.column("time")[moments], dtype=np.int64)

    def _add_event_waits(self, waits: pl.DataFrame, edges: _Pending) -> Numbers:
        """Edges from operations before a recorded event to those that a stream starts after it has waited for the event; their
        starts."""
        row, start, awaited_row, awaited_end = (
            waits[name].to_numpy() for name in ("row", "start", "awaited_row", "awaited_end")
        )
        source, target = self._moments.find(awaited_row, awaited_end, END), self._moments.find(row, start, START)
        known = (source != NOT_FOUND) & (target != NOT_FOUND)
        code = class_code(edge_kinds.EVENT_WAIT, np.full(int(known.sum()), NOTHING, dtype=np.int64))
        edges.add(edge_kinds.EVENT_WAIT, source[known], target[known], code)
        self._least.add(code, (start - awaited_end)[known])
        starts: Numbers = target[known]
        return starts

    def _add_queue_edges(self, blocked: pl.DataFrame) -> None:
        """Edges from operations that made place in a queue to the ends of the calls that were blocked."""
        if blocked.is_empty():
            return
        columns = {name: blocked[name].to_numpy() for name in blocked.columns}
        source = self._moments.find(columns["free_row"], columns["free_start"], START)
        begin = self._moments.find(columns["row"], columns["begin"], START)
        end = self._moments.find(columns["row"], columns["until"], END)
        known = (source != NOT_FOUND) & (begin != NOT_FOUND) & (end != NOT_FOUND)
        source, begin, end = source[known], begin[known], end[known]
        code = class_code(edge_kinds.LAUNCH_QUEUE, np.full(len(end), NOTHING, dtype=np.int64))
        self._least.add(code, (columns["until"] - columns["free_start"])[known])
        self._add_late(edge_kinds.LAUNCH_QUEUE, source, end, code)
        # Without the wait it takes as long as others.
        self._add_late(edge_kinds.BLOCKED_CALL, begin, end, columns["usual"][known])

    def _waits(
        self,
        chunk: TimeChunk,
        devices: OpenIntervals,
        hosts: OpenIntervals,
        launches: pl.DataFrame,
        by_events: pl.DataFrame,
        own: OwnEdges,
        edges: _Pending,
    ) -> None:
        """Add edges from operations to the ends of the calls that waited for them; `own` gets what these calls take alone."""
        ended = np.flatnonzero(devices.end != NOT_FOUND)
        operations = pl.DataFrame(
            {"row": devices.row[ended], "ended": devices.until[ended], "operation": devices.end[ended]}
        ).hstack(launches.select(pl.all().gather(ended)))
        kind = self.labels.waits
        may_wait = np.flatnonzero((hosts.end != NOT_FOUND) & (kind[hosts.label] != NO_WAIT)) if len(kind) else ended[:0]
        calls = pl.DataFrame(
            {
                "call": may_wait,
                "row": hosts.row[may_wait],
                "begin": hosts.begin[may_wait],
                "until": hosts.until[may_wait],
                "kind": kind[hosts.label[may_wait]] if len(may_wait) else may_wait,
            }
        )
        end = self._moments.find(by_events["awaited_row"].to_numpy(), by_events["awaited_end"].to_numpy(), END)
        of_events = by_events.select("row", "start", ended="awaited_end").with_columns(operation=pl.Series(end, dtype=pl.Int64))
        awaited = self._waiting.awaited(
            calls.select(pl.col(name).cast(dtype) for name, dtype in CALLS.items()),
            operations.select(pl.col(name).cast(dtype) for name, dtype in OPERATIONS.items()),
            chunk.started[WAITS.name],
            of_events.filter(pl.col("operation") != NOT_FOUND),
        )
        waited = awaited["call"].to_numpy()
        code = class_code(edge_kinds.SYNCHRONIZATION, hosts.label[waited])
        edges.add(edge_kinds.SYNCHRONIZATION, awaited["operation"].to_numpy(), hosts.end[waited], code)
        self._least.add(code, hosts.until[waited] - awaited["ended"].to_numpy())
        # Calls that did not wait show what such a call takes by itself; a copy always waits.
        free = np.setdiff1d(may_wait, waited)
        free = free[kind[hosts.label[free]] != COPY] if len(free) else free
        self._least.add(class_code(edge_kinds.BLOCKED_CALL, hosts.label[free]), (hosts.until - hosts.begin)[free])
        code = class_code(edge_kinds.BLOCKED_CALL, hosts.label[waited])
        own.set(hosts.end[waited], edge_kinds.BLOCKED_CALL, code)

    def _add_host_edges(
        self, moments: ChunkMoments, hosts: OpenIntervals, own: OwnEdges, shown: Numbers, edges: _Pending
    ) -> None:
        """Edges between moments of host threads that follow each other."""
        on_hosts = np.flatnonzero(moments.is_host)
        numbers = moments.first + on_hosts
        before = self._former.of(moments.row[on_hosts], numbers, np.ones(len(on_hosts), dtype=bool))
        place = moments.interval[on_hosts]
        # Nothing else is between start and end of a call that waits; else only what is before its last part can be waited for.
        is_call_alone = (moments.side[on_hosts] == END) & (before == hosts.start[place])
        is_blocked = is_call_alone & (own.kind[on_hosts] != edge_kinds.HOST)
        known = before != NOT_FOUND
        pause = moments.time[on_hosts] - self._times(np.maximum(before, 0))
        is_call = self.labels.is_of(*HOST_CALLS)[moments.label[on_hosts]]
        waker = self._turns.wakers(moments, on_hosts, before, pause, is_call, shown[on_hosts] == NOTHING)
        is_woken = known & (waker != NOT_FOUND)
        plain, blocked = known & ~is_blocked & ~is_woken, known & is_blocked
        edges.add(edge_kinds.HOST, before[plain], numbers[plain], WHOLE)
        edges.add(edge_kinds.HOST, before[is_woken], numbers[is_woken], 0)
        edges.add(edge_kinds.WAKE_UP, waker[is_woken], numbers[is_woken], 0)
        # A thread that appears was created before, or waited for another one that launches on its stream.
        is_creation = self.labels.creates[moments.label[on_hosts]] & (moments.side[on_hosts] == START)
        task = self._context.events.rows.task[moments.row[on_hosts]].astype(np.int64)
        cause = np.maximum(self._created.of(task, numbers, is_creation), waker)
        is_first = ~known & (cause != NOT_FOUND)
        edges.add(edge_kinds.WAKE_UP, cause[is_first], numbers[is_first], 0)
        for kind in (edge_kinds.BLOCKED_CALL, edge_kinds.TRANSFER):
            of_kind = blocked & (own.kind[on_hosts] == kind)
            edges.add(kind, before[of_kind], numbers[of_kind], own.weight[on_hosts[of_kind]])

    def _write(self, moments: ChunkMoments, edges: _Pending) -> None:
        """Write the edges of a chunk that do not go back in time."""
        kinds: Sequence[Numbers] = [np.full(len(piece[0]), piece[3], dtype=np.int64) for piece in edges.pieces]
        columns = {
            name: np.concatenate([piece[place] for piece in edges.pieces])
            for place, name in enumerate(("source", "target", "weight"))
        } | {"kind": np.concatenate(kinds)}
        columns = self._forward(columns)
        order = np.argsort(columns["target"], kind="stable")
        self._edges.append({name: column[order] for name, column in columns.items()})

    def _forward(self, columns: dict[str, Numbers]) -> dict[str, Numbers]:
        """The edges that do not go back in time; the others are counted."""
        is_forward = columns["source"] < columns["target"]
        for kind, count in zip(*np.unique(columns["kind"][~is_forward], return_counts=True), strict=True):
            self._leave_out(int(kind), int(count))
        return {name: column[is_forward] for name, column in columns.items()}

    def _leave_out(self, kind: int, count: int) -> None:
        if count:
            self._left_out[kind] = self._left_out.get(kind, 0) + count

    def _add_late(self, kind: int, source: Numbers, target: Numbers, weight: Numbers | int) -> None:
        """Add edges of any time."""
        columns = self._forward(
            {
                "source": source,
                "target": target,
                "weight": np.broadcast_to(np.asarray(weight, dtype=np.int64), source.shape),
                "kind": np.full(len(source), kind, dtype=np.int64),
            }
        )
        self._late.add(pl.DataFrame(columns))

    def _add_collectives(self) -> None:
        """Edges of NCCL kernels, whose collectives are known when the run ends."""
        if not self._members:
            return
        members = pl.concat(self._members)
        matched = self._nccl.members.select("row", *COLLECTIVE, "transfer", "complete", begin="start")
        matched = one_of_each(matched.with_columns(pl.col("row").cast(pl.Int64)), _LAUNCH_KEY)
        found = members.join(matched, on=_LAUNCH_KEY, how="left", maintain_order="left", nulls_equal=False)
        alone = found.filter(pl.col("transfer").is_null())
        self._add_late(edge_kinds.DEVICE_WORK, alone["start"].to_numpy(), alone["end"].to_numpy(), WHOLE)
        incomplete = found.filter(~pl.col("complete").fill_null(value=False))
        ends = np.asarray(incomplete["end"].to_numpy(), dtype=np.int64)
        self._open_ends.add_kernels(ends, np.asarray(self._moments.columns.column("label")[ends], dtype=np.int64))
        together = found.filter(pl.col("transfer").is_not_null())
        # The last one to arrive.
        last = together.with_columns(hub=pl.col("start").max().over(COLLECTIVE))
        start, end, hub, transfer = (last[name].to_numpy() for name in ("start", "end", "hub", "transfer"))
        self._add_late(edge_kinds.TRANSFER, start, end, transfer)
        others = start != hub
        self._add_late(edge_kinds.ARRIVAL, start[others], hub[others], 0)
        self._add_late(edge_kinds.COLLECTIVE, hub[others], end[others], transfer[others])
