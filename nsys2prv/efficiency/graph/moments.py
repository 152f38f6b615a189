"""What the graph of a run is made of: names of what rows do, moments in one order, and edges, collected kind by kind."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph import edge_kinds
from nsys2prv.efficiency.graph.replay import BLOCK, Mask, Moments, Places, RunGraph, run_loop
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MPI, NO_CALL, OS, MeasuredRun, call_categories
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.vocabulary import event_types

NOTHING = -1
"""Label of a row that does nothing that has a name."""
NO_MOMENT = -1
NO_WAIT, DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT, COPY = range(5)
"""What a call waits for: nothing, all work of devices, that of a stream, an event, or the copy that it makes."""
_WAITS = (
    (re.compile(r"(?i)EventSynchronize"), EVENT_WAIT),
    (re.compile(r"(?i)StreamSynchronize"), STREAM_WAIT),
    (re.compile(r"(?i)(Device|Ctx|Context|Thread)Synchronize"), DEVICE_WAIT),
    # Memory is freed when all work of the device is done; freed in the order of a stream, it is not waited for.
    (re.compile(r"(?i)^cu(da)?(Mem)?Free(_v\d)?$"), DEVICE_WAIT),
    (re.compile(r"(?i)memcpy"), COPY),
)
_KEY_VALUES = 1 << 40

_CLASS_QUANTILE = 0.1
"""Least weight of a class of edges, among those that nothing else delayed: a few odd time stamps don't count."""
_BARS_PER_DOUBLING = 16
_KINDS = 16


# -- labels -------------------------------------------------------------------------------------------------------------


class GraphLabels:
    """What rows of the graph do, as small numbers 0, 1, ..., each an event type and a value of the trace.

    Parameters
    ----------
    frames
        Intervals, with columns `number`, `value`, and `family` where there is one; those of different frames have different
        event types.

    Attributes
    ----------
    number, value, family
        Event type, value, and value of the kernel family (-1: none) of each label.
    names
        "value N" where the trace has no name.
    waits
        What a call with each label waits for: NO_WAIT, DEVICE_WAIT, ...
    causes
        What a host thread does with each label: a place in `measured_run.CAUSES`; NO_CALL for NOTHING, the last one.
    """

    def __init__(self, events: RunEvents, frames: Sequence[pl.DataFrame]) -> None:
        first = [pl.col("number", "value").first().cast(pl.Int64)]
        family = pl.col("family").first().fill_null(NOTHING).cast(pl.Int64)
        without = pl.lit(NOTHING, pl.Int64).alias("family")
        self._distinct = [
            frame.group_by(_KEY.alias("key")).agg(*first, family if "family" in frame.columns else without).sort("key")
            for frame in frames
        ]
        labels = pl.concat(self._distinct)
        self.number, self.value, self.family = (labels[name].to_numpy() for name in ("number", "value", "family"))
        self.names = events.named(labels["number"], labels["value"])
        is_call, is_mpi = self.is_of(event_types.CUDA_CALL), self.is_of(*event_types.MPI_TYPES.values())
        names = self.names.fill_null("")
        self.waits: Numbers = np.array(
            [
                next((kind for pattern, kind in _WAITS if pattern.search(name)), NO_WAIT) if of_cuda else NO_WAIT
                for name, of_cuda in zip(names.to_list(), is_call.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        causes = np.where(is_call, call_categories(names), np.where(is_mpi, MPI, OS))
        self.causes: Numbers = np.append(causes, NO_CALL).astype(np.int64)

    def __len__(self) -> int:
        return len(self.number)

    def of(self, place: int, frame: pl.DataFrame) -> Places:
        """Labels of intervals of the frame with this place among those that the labels were made of."""
        before = sum(labels.height for labels in self._distinct[:place])
        keys = self._distinct[place]["key"].to_numpy()
        return (np.searchsorted(keys, frame.select(_KEY).to_series().to_numpy()) + before).astype(np.int32)

    def is_of(self, *numbers: int) -> Mask:
        """Whether each label is of some event types."""
        return np.isin(self.number, numbers)


_KEY = pl.col("number").cast(pl.Int64) * _KEY_VALUES + pl.col("value") % _KEY_VALUES


# -- moments ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunMoments:
    """Starts and ends of intervals in one order. Intervals are numbered, those of devices first.

    Attributes
    ----------
    moments
        Their labels are what host threads did until then, and on devices those of the intervals.
    event
        Of each moment: the number of its interval, and of an end so many more as there are intervals.
    moment
        The moment of each event.
    label
        Of each interval.
    devices
        Number of intervals of devices.
    """

    moments: Moments
    event: Places
    moment: Places
    label: Places
    devices: int

    @property
    def start(self) -> Places:
        """Moment at which each interval starts."""
        return self.moment[: len(self.label)]

    @property
    def end(self) -> Places:
        """Moment at which each interval ends."""
        return self.moment[len(self.label) :]

    @cached_property
    def is_end(self) -> Mask:
        """Which moments are ends."""
        is_end: Mask = self.event >= len(self.label)
        return is_end

    @cached_property
    def is_host(self) -> Mask:
        """Which moments are on host threads."""
        is_host: Mask = self.interval(slice(None)) >= self.devices
        return is_host

    def interval(self, moments: npt.NDArray[Any] | slice) -> Places:
        """Intervals of some moments."""
        interval: Places = self.event[moments] % np.int32(max(len(self.label), 1))
        return interval

    def times(self, intervals: npt.NDArray[Any]) -> tuple[Numbers, Numbers]:
        """Begin and end of some intervals, ns."""
        return self.moments.time[self.start[intervals]], self.moments.time[self.end[intervals]]

    def starts(self, row: npt.NDArray[Any], time: Numbers) -> Numbers:
        """Moments at which something starts on a row at a time; NO_MOMENT: nothing does."""
        return self._find(row, time, False)

    def ends(self, row: npt.NDArray[Any], time: Numbers) -> Numbers:
        """Moments at which something ends, likewise."""
        return self._find(row, time, True)

    def _find(self, row: npt.NDArray[Any], time: Numbers, is_end: bool) -> Numbers:
        times, rows, size = self.moments.time, self.moments.row, len(self.label)
        matches: Numbers = np.full(len(row), NO_MOMENT, dtype=np.int64)
        place = np.searchsorted(times, time)
        pending = np.flatnonzero(place < len(times))
        # Few moments have the same time: each round goes one further.
        while len(pending):
            here = place[pending]
            same_time = times[here] == time[pending]
            fits = same_time & (rows[here] == row[pending]) & ((self.event[here] >= size) == is_end)
            matches[pending[fits]] = here[fits]
            pending = pending[same_time & ~fits]
            place[pending] += 1
            pending = pending[place[pending] < len(times)]
        return matches


def run_moments(
    row: Places, begin: Numbers, end: Numbers, label: Places, devices: int, may_wait: Mask, rows: int
) -> RunMoments:
    """The moments of intervals, of which the first ones (`devices`) are on devices.

    At one time ends come before starts, ends of inner calls before those of outer ones, starts of calls before those of what
    they launch, and ends of operations before those of calls that wait for them. The order depends on what the intervals are,
    not on their places.

    Parameters
    ----------
    may_wait
        Which can wait for a device.
    rows
        Number of rows.
    """
    size = len(row)
    time = np.concatenate([begin, end])
    order = np.argsort(time, kind="stable")
    time = time[order]
    event = order.astype(np.int32)
    del order
    like_before = ~differ_from_before(time)
    # Few moments have the same time: only these are sorted by more than that.
    tied = np.flatnonzero(like_before | np.append(like_before[1:], False)[: len(event)])
    groups = np.flatnonzero(~like_before[tied])
    cuts = groups[np.searchsorted(groups, np.arange(BLOCK, len(tied), BLOCK), side="right") - 1].tolist() if len(tied) else []
    for low, high in pairwise([0, *cuts, len(tied)]):
        at = event[tied[low:high]]
        place, is_end = at % size, at >= size
        since, until = begin[place], end[place]
        waits = may_wait[place]
        turns: Any = _turns_at_one_time(since, until, is_end, place >= devices, waits)
        # What differs in none of these is the same but for its place. Calls without length that wait are inside of each other.
        sign = np.where(waits & is_end & (since == until), -1, 1)
        keys = (sign * (place.astype(np.int64) * 2 + is_end), sign * label[place], row[place], *turns, time[tied[low:high]])
        event[tied[low:high]] = at[np.lexsort(keys)]
    moment = np.empty(2 * size, dtype=np.int32)
    moment[event] = np.arange(2 * size, dtype=np.int32)
    interval = event % np.int32(max(size, 1))
    of_moments = row[interval]
    until_then = label[interval]
    if devices < size:
        columns = (of_moments, interval, event >= size, label, devices)
        open_calls = (
            np.full(rows, NOTHING, dtype=np.int32),
            *(np.full(size - devices, NOTHING, dtype=np.int32) for _ in range(2)),
        )
        run_loop(_label_until, columns, (*open_calls, until_then))
    return RunMoments(Moments(time, of_moments, until_then), event, moment, label, devices)


def _label_until(
    row: Any, interval: Any, is_end: Any, label: Any, devices: int, top: Any, below: Any, above: Any, until: Any
) -> None:
    """What each host thread did until each of its moments: of the calls that are open that which started last."""
    for moment in range(len(row)):
        call = interval[moment] - devices
        if call >= 0:
            thread = row[moment]
            until[moment] = label[top[thread] + devices] if top[thread] >= 0 else -1
            if not is_end[moment]:
                below[call] = top[thread]
                if top[thread] >= 0:
                    above[top[thread]] = call
                top[thread] = call
            else:
                if top[thread] == call:
                    top[thread] = below[call]
                else:
                    below[above[call]] = below[call]
                if below[call] >= 0:
                    above[below[call]] = above[call]


def _turns_at_one_time(begin: Numbers, end: Numbers, is_end: Mask, is_host: Mask, waits: Mask) -> tuple[Numbers, ...]:
    """What decides between moments of one time, the last of it first; `begin` and `end` are those of their intervals."""
    has_length = end > begin
    inner = np.where(has_length, np.where(is_end, -begin, -end), 0)
    # Of what has no length: calls that launch, the start of those that wait, operations, the end of those that wait.
    no_length = np.where(is_host, np.where(waits, np.where(is_end, 3, 1), 0), 2)
    device_or_host = np.where(has_length, (is_host == is_end).astype(np.int64), no_length)
    turn = np.where(has_length, np.where(is_end, 0, 2), 1)
    return inner, device_or_host, turn


# -- edges --------------------------------------------------------------------------------------------------------------


def class_code(kind: int, label: npt.NDArray[Any] | int = NOTHING) -> Any:
    """The class of edges, by their kind and perhaps a label (of a call) or an event type, in the place of their least weight
    where that is not known of each edge. It is below 0.
    """
    return -(kind + _KINDS * (label + 1)) - 1


@dataclass
class EdgeCollector:
    """Edges of a graph, which are added kind by kind in any order.

    An edge that would go back in time is left out and counted: clocks differ, or something did not wait. The weight of a class
    of edges is a low quantile of what such edges are seen to take where nothing else delays them.

    Attributes
    ----------
    left_out
        Edges that would have gone back in time, by kind of edge.
    """

    left_out: dict[int, int] = field(default_factory=dict)
    _columns: dict[int, list[tuple[Places, Places, Numbers | int]]] = field(default_factory=lambda: defaultdict(list))
    _lengths: list[pl.DataFrame] = field(default_factory=list)

    def add(self, kind: int, source: npt.NDArray[Any], target: npt.NDArray[Any], weight: npt.NDArray[Any] | int) -> None:
        """Edges of a kind: moments (NO_MOMENT: there is no edge), and the least time between them, ns, or a class."""
        has_both = (source != NO_MOMENT) & (target != NO_MOMENT)
        is_forward = has_both & (source < target)
        self.leave_out(kind, int(np.count_nonzero(has_both)) - int(np.count_nonzero(is_forward)))
        if is_forward.any():
            weight = weight if isinstance(weight, int) else weight[is_forward]
            self._columns[kind].append((source[is_forward].astype(np.int32), target[is_forward].astype(np.int32), weight))

    def add_class(
        self,
        kind: int,
        source: npt.NDArray[Any],
        target: npt.NDArray[Any],
        length: Numbers,
        label: npt.NDArray[Any] | int = NOTHING,
        shows: Mask | None = None,
    ) -> None:
        """Edges that take what the shortest of their class take; those that nothing else delayed (`shows`; None: all) show by
        their lengths, ns, what that is."""
        code = class_code(kind, label)
        self.add(kind, source, target, code)
        shows = (source != NO_MOMENT) & (target != NO_MOMENT) & (True if shows is None else shows)
        self.takes(code if isinstance(code, int) else code[shows], length[shows])

    def leave_out(self, kind: int, count: int) -> None:
        """Count edges that would go back in time."""
        if count:
            self.left_out[kind] = self.left_out.get(kind, 0) + count

    def takes(self, code: npt.NDArray[Any] | int, length: Numbers) -> None:
        """What edges of a class were seen to take that nothing else delayed, ns."""
        if len(length):
            bar = np.floor(np.log2(np.maximum(length, 0) + 1.0) * _BARS_PER_DOUBLING).astype(np.int16)
            of_class = pl.lit(code) if isinstance(code, int) else pl.Series(code)
            lengths = pl.DataFrame({"bar": bar}).with_columns(code=of_class.cast(pl.Int64))
            self._lengths.append(lengths.group_by("code", "bar").agg(count=pl.len().cast(pl.Int64)))

    def _least_weights(self) -> tuple[Numbers, Numbers]:
        """Codes of classes in their order, and their weights, ns."""
        empty = pl.DataFrame(schema={"code": pl.Int64, "bar": pl.Int16, "count": pl.Int64})
        counts = pl.concat([empty, *self._lengths]).group_by("code", "bar").agg(pl.col("count").sum()).sort("code", "bar")
        until, total = pl.col("count").cum_sum().over("code"), pl.col("count").sum().over("code")
        least = counts.filter(until >= total * _CLASS_QUANTILE).group_by("code", maintain_order=True).agg(pl.col("bar").first())
        weight = np.ceil(np.exp2(least["bar"].to_numpy() / _BARS_PER_DOUBLING) - 1).astype(np.int64)
        return least["code"].to_numpy(), weight

    @property
    def kinds(self) -> frozenset[int]:
        """Kinds of edges that there are."""
        return frozenset(self._columns)

    def graph(self, moments: Moments) -> RunGraph:
        """The settled graph with all edges, which are used up."""
        counts = np.zeros(len(moments), dtype=np.int64)
        for pieces in self._columns.values():
            for _, target, _ in pieces:
                counts += np.bincount(target, minlength=len(moments))
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        del counts
        edges = int(first[-1])
        source, weight = np.empty(edges, dtype=np.int32), np.empty(edges, dtype=np.int64)
        kinds = np.empty(edges, dtype=np.int8)
        behind = first[:-1].copy()
        for of_source, of_target, of_weight, of_kind in self._by_preference():
            is_first = differ_from_before(of_target)
            rank = np.arange(len(of_target)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
            place = behind[of_target] + rank
            source[place], weight[place], kinds[place] = of_source, of_weight, of_kind
            # Of several values for one place, numpy keeps the last one.
            behind[of_target] = place + 1
        return RunGraph(moments, first, source, weight, kinds).settle()

    def _by_preference(self) -> Iterator[tuple[Places, Places, Any, Any]]:
        """Source, target, weight and kind of edges of one preference, those first that count least; each time in the order of
        targets and sources."""
        codes, least = self._least_weights()
        # Kinds of the same preference are sorted together.
        for preference in sorted(set(edge_kinds.PREFERENCE), reverse=True):
            kinds = [kind for kind in edge_kinds.KINDS if edge_kinds.PREFERENCE[kind] == preference and kind in self._columns]
            pieces = [(kind, *piece) for kind in kinds for piece in self._columns.pop(kind)]
            if not pieces:
                continue
            source = np.concatenate([piece[1] for piece in pieces])
            target = np.concatenate([piece[2] for piece in pieces])
            weight = np.concatenate([_weights(piece[3], len(piece[1]), codes, least) for piece in pieces])
            kind = np.repeat(np.array([piece[0] for piece in pieces], dtype=np.int8), [len(piece[1]) for piece in pieces])
            if not (target[1:] > target[:-1]).all():
                order = np.lexsort((source, target))
                source, target, weight, kind = source[order], target[order], weight[order], kind[order]
            yield source, target, weight, kind


def _weights(weight: npt.NDArray[Any] | int, size: int, codes: Numbers, least: Numbers) -> Numbers:
    """Weights with the least weight of the class in place of each class; 0 where none was seen."""
    if isinstance(weight, int):
        return np.broadcast_to(_weights(np.array([weight]), 1, codes, least), size)
    resolved = weight.astype(np.int64)
    is_class = resolved < 0
    place = np.searchsorted(codes, resolved[is_class])
    # One more class, behind the others, has no weight.
    has_weight = np.append(codes, 0)[place] == resolved[is_class]
    resolved[is_class] = np.where(has_weight, np.append(least, 0)[place], 0)
    return resolved


@dataclass(frozen=True)
class GraphParts:
    """What the graph of a run is built of.

    Attributes
    ----------
    thread, launched
        Of each operation its launch: row of the thread (-1: not known) and time, ns.
    """

    run: MeasuredRun
    labels: GraphLabels
    points: RunMoments
    thread: Places
    launched: Numbers
    edges: EdgeCollector = field(default_factory=EdgeCollector)
