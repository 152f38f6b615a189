"""What the graph of a run is made of: names of what rows do, moments in one order, and edges, collected kind by kind."""

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph.replay import EdgeKind, Places, RunGraph, run_loop
from nsys2prv.efficiency.intervals import NONE, Mask, Numbers
from nsys2prv.efficiency.measured_run import MPI, NO_CALL, OS, MeasuredRun, call_categories
from nsys2prv.efficiency.meters.nccl_stats import is_point_to_point
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match


class CallWait(IntEnum):
    """What a call waits for: nothing, all work of devices, that of a stream, an event, or the copy that it makes."""

    NOTHING, DEVICE, STREAM, EVENT, COPY = range(5)


_WAITS = (
    (r"(?i)EventSynchronize", CallWait.EVENT),
    (r"(?i)StreamSynchronize", CallWait.STREAM),
    (r"(?i)(Device|Ctx|Context|Thread)Synchronize", CallWait.DEVICE),
    # Memory is freed, and code unloaded, when all work of the device is done; in the order of a stream nobody waits for it.
    (r"(?i)^cu(da)?((Mem)?Free|(Library|Module)Unload)(_v\d)?$", CallWait.DEVICE),
    (r"(?i)memcpy", CallWait.COPY),
)

CLASS_QUANTILE = 0.1
"""Least weight of a class of edges, among those that nothing else delayed: a few odd time stamps don't count."""
_FEW, _LEAST_QUANTILE = 0.1, 0.001
"""Part of the edges of a class that shows its weight, below which the least of all of them, but odd time stamps, bounds it."""
_SOON = 2
"""From the start of a launch to that of what it launched, against the median where nothing else is waited for."""


AnyColumn = npt.NDArray[Any] | pl.Series
_KEY = ["number", "value"]


def columns_of(frame: pl.DataFrame, *names: str) -> list[Numbers]:
    """Some columns of a frame as whole numbers; NONE where they are null."""
    return [frame[name].cast(pl.Int64).fill_null(NONE).to_numpy() for name in names]


class GraphLabels:
    """What rows of the graph do, as small numbers 0, 1, ..., each an event type and a value of the trace; the last is NONE,
    of a row that does nothing that has a name.

    They are those of intervals in `frames`, with columns `number`, `value`, and at least once `family`; those of different
    frames have different event types. `frame` has of each `label` its `number` (event type), `value`, `family` (value of the
    kernel family, -1: none), and `name` ("value N" where the trace has none); `waits` what a call with each label waits for (a
    CallWait); `causes` what a host thread does with it: a place in `measured_run.CAUSES`, or NO_CALL."""

    def __init__(self, events: RunEvents, frames: Sequence[pl.DataFrame]) -> None:
        columns = pl.col("^(number|value|family)$").cast(pl.Int64)
        distinct = [frame.unique(_KEY, keep="first").select(columns) for frame in frames]
        labels = pl.concat([*distinct, pl.DataFrame({"number": [NONE]})], how="diagonal").fill_null(NONE)
        labels = labels.sort(pl.col("number") == NONE, *_KEY).with_columns(label=pl.int_range(pl.len(), dtype=pl.Int32))
        self.frame = labels.with_columns(name=events.named(labels["number"], labels["value"]))
        names = self.frame["name"].fill_null("")
        is_call, is_mpi = self.is_of(event_types.CUDA_CALL), self.is_of(*event_types.MPI_TYPES.values())
        self.waits: Numbers = np.where(is_call, self.by_name(first_match(pl.col("name"), _WAITS, 0)), CallWait.NOTHING)
        self.causes: Numbers = np.where(is_call, call_categories(names), np.where(is_mpi, MPI, OS))
        self.causes[NONE] = NO_CALL

    @cached_property
    def is_pair(self) -> Mask:
        """Whether each label is of sends and receives of NCCL."""
        return self.by_name(is_point_to_point(pl.col("name")))

    def of(self, intervals: pl.DataFrame) -> Places:
        """Labels of intervals, by their columns `number` and `value`."""
        keys = intervals.select(pl.col(_KEY).cast(pl.Int64))
        return keys.join(self.frame, on=_KEY, how="left", maintain_order="left")["label"].to_numpy()

    def is_of(self, *numbers: int) -> Mask:
        """Whether each label is of some event types."""
        return np.isin(self.frame["number"].to_numpy(), numbers)

    def by_name(self, value: pl.Expr) -> npt.NDArray[Any]:
        """A value of each label that follows from its name; where there is none, from an empty one."""
        return self.frame.select(pl.col("name").fill_null("")).select(value).to_series().to_numpy()


class RunMoments:
    """Starts and ends of intervals in one order. Intervals are numbered, those of devices (`devices` of them) first.

    Of each moment, in that order, there are `time`, `row` and `label` (what host threads did until then, and on devices that of
    the interval); its `interval`, and whether it `is_end`, and `is_host`: on a host thread; and the moment `before` on its row,
    on streams the last end. Of each interval `start` and `end` are its moments, and `label_of` is its label.

    At one time ends come before starts, ends of inner calls before those of outer ones, starts of calls before those of what
    they launch, and ends of operations before those of calls that wait for them (`may_wait`). The order depends on what the
    intervals are, not on their places. The number of rows is `rows`."""

    def __init__(
        self, row: Places, begin: Numbers, end: Numbers, label: Places, devices: int, may_wait: Mask, rows: int
    ) -> None:
        size, end = len(row), np.maximum(begin, end)
        time = np.concatenate([begin, end])
        event = np.argsort(time, kind="stable").astype(np.int32)
        time = time[event]
        like_before = ~differ_from_before(time)
        # Few moments have the same time: only these are sorted by more than that.
        tied = np.flatnonzero(like_before | np.append(like_before[1:], False)[: len(event)])
        at = event[tied]
        place, is_end = at % np.int32(max(size, 1)), at >= size
        since, until, waits = begin[place], end[place], may_wait[place]
        has_length, on_host = until > since, place >= devices
        inner = np.where(has_length, np.where(is_end, -since, -until), 0)
        # Of what has no length: calls that launch, the start of those that wait, operations, the end of those that wait.
        no_length = np.where(on_host, np.where(waits, np.where(is_end, 3, 1), 0), 2)
        of_hosts = np.where(has_length, (on_host == is_end).astype(np.int64), no_length)
        turn = np.where(has_length, np.where(is_end, 0, 2), 1)
        # What differs in none of these is the same but for its place. Calls without length that wait are inside of each other.
        sign = np.where(waits & is_end & (since == until), -1, 1)
        order = sign * (place.astype(np.int64) * 2 + is_end)
        event[tied] = at[np.lexsort((order, sign * label[place], row[place], inner, of_hosts, turn, time[tied]))]
        moment: Places = np.empty(2 * size, dtype=np.int32)
        moment[event] = np.arange(2 * size, dtype=np.int32)
        self.start, self.end, self.label_of, self.devices = moment[:size], moment[size:], label, devices
        self.time, self.interval, self.is_end = time, event % np.int32(max(size, 1)), event >= size
        self.row, self.label, self.is_host = row[self.interval], label[self.interval], self.interval >= devices
        top, below = np.full(rows, NONE, dtype=np.int32), np.full(size - devices, NONE, dtype=np.int32)
        has_ended = np.zeros(size - devices, dtype=np.int8)
        last, self.before = np.full(rows, NONE, dtype=np.int32), np.empty(2 * size, dtype=np.int32)
        inputs = (self.row, self.interval, self.is_end, label, devices)
        run_loop(_look_back, inputs, (top, below, has_ended, last, self.label, self.before))

    def intervals(self, which: npt.NDArray[Any]) -> pl.DataFrame:
        """Some intervals, by a mask or their numbers: columns `interval` (number), `row`, `label`, the moments `start` and
        `end`, and their times `begin` and `until`, ns."""
        interval = np.flatnonzero(which) if which.dtype == np.bool_ else which
        start, end = self.start[interval], self.end[interval]
        moments = {"start": start, "end": end, "begin": self.time[start], "until": self.time[end]}
        return pl.DataFrame({"interval": interval, "row": self.row[start], "label": self.label_of[interval], **moments})

    def starts(self, frame: pl.DataFrame, row_column: str = "row", time_column: str = "start", is_end: bool = False) -> Numbers:
        """Moments at which something starts (or ends) on the rows and at the times of a frame; NONE: nothing does, and
        where these are null."""
        row, time = columns_of(frame, row_column, time_column)
        matches: Numbers = np.full(len(row), NONE, dtype=np.int64)
        place = np.searchsorted(self.time, time)
        pending = np.flatnonzero(place < len(self.time))
        # Few moments have the same time: each round goes one further.
        while len(pending):
            here = place[pending]
            same_time = self.time[here] == time[pending]
            fits = same_time & (self.row[here] == row[pending]) & (self.is_end[here] == is_end)
            matches[pending[fits]] = here[fits]
            pending = pending[same_time & ~fits]
            place[pending] += 1
            pending = pending[place[pending] < len(self.time)]
        return matches

    def ends(self, frame: pl.DataFrame, row_column: str = "row", time_column: str = "end") -> Numbers:
        """Moments at which something ends, likewise."""
        return self.starts(frame, row_column, time_column, is_end=True)


def _look_back(
    row: Any, interval: Any, is_end: Any, label: Any, devices: int, top: Any, below: Any, has_ended: Any, last: Any, until: Any,
    before: Any,
) -> None:  # fmt: skip
    """What each host thread did until each of its moments: of the calls that are open that which started last; and `before`."""
    for moment in range(len(row)):
        call, thread = interval[moment] - devices, row[moment]
        before[moment] = last[thread]
        if call >= 0 or is_end[moment]:
            last[thread] = moment
        if call >= 0:
            while top[thread] >= 0 and has_ended[top[thread]]:
                top[thread] = below[top[thread]]
            until[moment] = label[top[thread] + devices] if top[thread] >= 0 else -1
            if is_end[moment]:
                has_ended[call] = 1
            else:
                below[call] = top[thread]
                top[thread] = call


def class_code(kind: EdgeKind, label: AnyColumn | int = NONE) -> Any:
    """The class of edges, by their kind and perhaps a label (of a call) or another small number, in the place of their least
    weight where that is not known of each edge. It is below 0."""
    return -(kind + len(EdgeKind) * (label + 1)) - 1


_ARRIVAL = int(EdgeKind.ARRIVAL)
_EDGE_TYPES = {"target": np.int32, "source": np.int32, "kind": np.int8, "weight": np.int64}


class EdgeCollector:
    """Edges of a graph, which are added kind by kind in any order.

    An edge that would go back in time is left out and counted (`left_out`): clocks differ, or something did not wait;
    `backward` are the moments at which those between ranks would end. The weight of a class of edges is a low quantile of what
    such edges are seen to take where nothing else delays them: where nothing that is awaited is later than their source."""

    def __init__(self, time: Numbers, row: Places, label: Places) -> None:
        self._time, self._row, self._label = time, row, label
        self.left_out: Counter[EdgeKind] = Counter()
        self.backward: list[Numbers] = [np.zeros(0, dtype=np.int64)]
        self._columns: dict[str, list[npt.NDArray[Any]]] = {
            name: [np.zeros(0, dtype=dtype)] for name, dtype in _EDGE_TYPES.items()
        }
        self._lengths = [pl.DataFrame(schema={"code": pl.Int64, "length": pl.Int64})]

    def add(self, kind: EdgeKind, source: AnyColumn, target: AnyColumn, weight: AnyColumn | int) -> None:
        """Edges of a kind: moments (NONE: there is no edge), and the least time between them, ns, or a class."""
        source, target = np.asarray(source), np.asarray(target)
        has_both = (source != NONE) & (target != NONE)
        is_forward = has_both & (source < target)
        backward = target[has_both & ~is_forward]
        self.left_out[kind] += len(backward)
        if kind in (EdgeKind.MESSAGE, EdgeKind.COLLECTIVE):
            self.backward.append(backward)
        edges, count = {"target": target, "source": source, "kind": kind, "weight": weight}, int(is_forward.sum())
        is_added = slice(None) if count == len(source) else is_forward
        for name, dtype in _EDGE_TYPES.items():
            column = np.asarray(edges[name]).astype(dtype, copy=False)
            # What is the same for all takes no memory until it is concatenated.
            self._columns[name].append(column[is_added] if column.ndim else np.broadcast_to(column, count))

    def takes(self, code: Numbers, length: Numbers) -> None:
        """What calls were seen to take that had nothing to wait for, ns: as edges of a class do."""
        self._lengths.append(pl.DataFrame({"code": code, "length": length}, {"code": pl.Int64, "length": pl.Int64}))

    def take_alone(self, calls: pl.DataFrame) -> None:
        """The same of calls (columns of `RunMoments.intervals`) that wait for what is not a collective."""
        code = class_code(EdgeKind.BLOCKED_CALL, calls["label"].cast(pl.Int64))
        self._lengths.append(calls.select(code=code, length=pl.col("until") - pl.col("begin")))

    def graph(self) -> RunGraph:
        """The graph with all edges, which are used up.

        Of the edges that end at a moment, the one that allows it last gets the measured difference: what remains beyond its
        least weight is a delay that is not explained, and stays. The others keep their least weight, if so much was measured.
        """
        target, source, kind, weight = (np.concatenate(self._columns.pop(name)) for name in _EDGE_TYPES)
        # What edges of classes take. Sources are in the order of time.
        time, latest = self._time, np.zeros(len(self._time), dtype=np.int32)
        np.maximum.at(latest, target, source)
        shows = np.flatnonzero(weight < 0)
        shows = shows[time[source[shows]] == time[latest[target[shows]]]]
        # What starts so soon after its launch waits for that, and says nothing of the order of a stream.
        length, is_launch = time[target[shows]] - time[source[shows]], kind[shows] == EdgeKind.LAUNCH
        soon = _SOON * np.median(length[is_launch]) if is_launch.any() else -1.0
        launches = np.flatnonzero(kind == EdgeKind.LAUNCH)
        near = launches[time[target[launches]] - time[source[launches]] <= soon]
        starts_soon = np.zeros(len(time), dtype=bool)
        starts_soon[target[near]] = True
        shows_order = (kind[shows] != EdgeKind.STREAM_ORDER) | ~starts_soon[target[shows]]
        self.takes(weight[shows[shows_order]], length[shows_order])
        low = pl.col("length").quantile(CLASS_QUANTILE, "lower").clip(lower_bound=0).cast(pl.Int64)
        code, least_of_code = pl.concat(self._lengths).group_by("code").agg(low)
        of_class = np.zeros(1 - min(weight.min(initial=0), code.min() or 0), dtype=np.int64)
        of_class[-code.to_numpy()] = least_of_code
        # Where hardly anything shows what the order of a stream takes, it is no more than the least between any two operations.
        order = class_code(EdgeKind.STREAM_ORDER)
        orders, shown = np.flatnonzero(weight == order), int((weight[shows[shows_order]] == order).sum())
        if 0 < shown < _FEW * len(orders):
            # Where it is hardly shorter than a launch, the next one may be launched only then.
            lengths = time[target[orders]] - time[source[orders]], length[is_launch]
            least, launch = (np.quantile(of, _LEAST_QUANTILE, method="lower") if len(of) else 0 for of in lengths)
            of_class[-order] = min(of_class[-order], least if 2 * least < launch else max(least - launch, 0))
        del latest, shows, launches, near, starts_soon, self._lengths
        first = np.zeros(len(time) + 1, dtype=np.int32)
        np.cumsum(np.bincount(target, minlength=len(time)), out=first[1:], dtype=np.int32)
        sources, weights, kinds = np.empty_like(source), np.empty_like(weight), np.empty_like(kind)
        inputs = (first, target, source, kind, weight, of_class, time)
        run_loop(_arrange, inputs, (first[:-1].copy(), sources, weights, kinds))
        return RunGraph(time, self._row, self._label, first, sources, weights, kinds)


def _arrange(
    first: Any, target: Any, source: Any, kind: Any, weight: Any, of_class: Any, time: Any, behind: Any, sources: Any,
    weights: Any, kinds: Any,
) -> None:  # fmt: skip
    """Edges in the order of their targets, and of kinds and sources, with weights with which a replay gives measured times."""
    for edge in range(len(target)):
        place = behind[target[edge]]
        behind[target[edge]] += 1
        while place > first[target[edge]] and (kinds[place - 1], sources[place - 1]) > (kind[edge], source[edge]):
            sources[place], kinds[place], weights[place] = sources[place - 1], kinds[place - 1], weights[place - 1]
            place -= 1
        least = weight[edge] if weight[edge] >= 0 else of_class[-weight[edge]]
        sources[place], kinds[place], weights[place] = source[edge], kind[edge], least
    for moment in range(len(time)):
        latest, last = -2, -1
        for edge in range(first[moment], first[moment + 1]):
            begin = time[sources[edge]]
            weights[edge] = min(weights[edge], time[moment] - begin)
            # The last member of a collective starts when it likes: the others only wait for it.
            allowed = -1 if kinds[edge] == _ARRIVAL else begin + weights[edge]
            if allowed >= latest:
                latest, last = allowed, edge
        if last >= 0:
            weights[last] = time[moment] - time[sources[last]]


class GraphParts:
    """What the graph of a run is built of; `launches` are those of all operations: `row` of the thread and time, `launched`, ns
    (-1: not known). `alone_kind` and `alone_weight` are what intervals that waited for something take by themselves: kind of
    edge (NONE: they did not wait), and least weight. What is set last counts."""

    def __init__(self, run: MeasuredRun, labels: GraphLabels, points: RunMoments, launches: pl.DataFrame) -> None:
        self.run, self.labels, self.points, self.launches = run, labels, points, launches
        self.edges = EdgeCollector(points.time, points.row, points.label)
        self.alone_kind = np.full(len(points.label_of), NONE, dtype=np.int8)
        self.alone_weight = np.zeros(len(points.label_of), dtype=np.int64)

    def add_waits(
        self, kind: EdgeKind, source: AnyColumn, ended: AnyColumn, weight: AnyColumn | int, alone: int | None = None
    ) -> None:
        """Edges of a kind to moments at which calls ended that waited for what is at the sources; what these calls take alone,
        None: as long as others of their name."""
        self.edges.add(kind, source, ended, weight)
        source, ended = np.asarray(source), np.asarray(ended)
        calls = self.points.interval[ended[(source != NONE) & (ended != NONE)]]
        of_class = class_code(EdgeKind.BLOCKED_CALL, self.points.label_of[calls])
        self.alone_kind[calls], self.alone_weight[calls] = EdgeKind.BLOCKED_CALL, of_class if alone is None else alone
