"""The moments of a chunk of time: starts and ends of intervals in one order, with what was before them on their rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.graph.graph_labels import NOTHING
from nsys2prv.efficiency.graph.moment_files import END, NOT_FOUND, START
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.row_order import differ_from_before

Mask = npt.NDArray[np.bool_]


@dataclass
class OpenIntervals:
    """Intervals of one kind of row that are in a chunk: those carried from the one before, then those that start in it.

    Attributes
    ----------
    row, begin, until, label
        Columns; times are not cut.
    start, end
        Moments of each; NOT_FOUND: none yet, or left out.
    is_new
        Which start in the chunk.
    is_kept
        Which are in the graph.
    """

    row: Numbers
    begin: Numbers
    until: Numbers
    label: Numbers
    start: Numbers
    is_new: Mask
    is_kept: Mask
    end: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.end = np.full(len(self.row), NOT_FOUND, dtype=np.int64)

    @classmethod
    def of(cls, inside: pl.DataFrame, label: Numbers, carried: Numbers) -> OpenIntervals:
        """From `TimeChunk.inside`, whose first rows are those carried; `carried` has their starts."""
        row, begin, until = (inside[name].to_numpy().astype(np.int64) for name in ("row", "begin", "until"))
        start: Numbers = np.full(len(row), NOT_FOUND, dtype=np.int64)
        start[: len(carried)] = carried
        is_new = np.arange(len(row)) >= len(carried)
        return cls(row, begin, np.maximum(begin, until), label, start, is_new, is_new | (start != NOT_FOUND))

    def ended(self, until: int) -> Mask:
        """Which end in a chunk that lasts until a time."""
        return self.is_kept & (self.until <= until)


@dataclass(frozen=True)
class ChunkMoments:
    """Moments of a chunk in their order; `first` is the number of the first one.

    Attributes
    ----------
    side
        START or END.
    is_host
        Whether it is on a host thread.
    interval
        Place of its interval among those of its kind of row.
    """

    first: int
    time: Numbers
    row: Numbers
    label: Numbers
    side: Numbers
    is_host: Mask
    interval: Numbers

    def __len__(self) -> int:
        return len(self.time)


def moments_of(first: int, devices: OpenIntervals, hosts: OpenIntervals, may_wait: Mask, until: int) -> ChunkMoments:
    """The moments of a chunk, and their numbers in `start` and `end` of the intervals.

    At one time ends come before starts, ends of inner calls before those of outer ones, starts of calls before those of what
    they launch, and ends of operations before those of calls that wait for them. The order depends on what the intervals are,
    not on their places.

    Parameters
    ----------
    first
        Number of the first moment.
    devices, hosts
        Intervals of the chunk; those of devices and those of host threads.
    may_wait
        Which of `hosts` can wait for a device.
    until
        End of the chunk.
    """
    columns = []
    for is_host, intervals in ((False, devices), (True, hosts)):
        for side, chosen in ((START, intervals.is_new & intervals.is_kept), (END, intervals.ended(until))):
            place = np.flatnonzero(chosen)
            of_intervals = (getattr(intervals, name)[place] for name in ("begin", "until", "row", "label"))
            waits = may_wait[place] if is_host else np.zeros(len(place), dtype=bool)
            columns.append((*of_intervals, np.full(len(place), side), np.full(len(place), is_host), waits, place))
    begin, end, row, label, side_of, host, waits, place = (np.concatenate(several) for several in zip(*columns, strict=True))
    time = np.where(side_of == END, end, begin)
    order = np.argsort(time, kind="stable")
    like_before = ~differ_from_before(time[order])
    # Few moments have the same time: only these are sorted by more than that.
    tied = np.flatnonzero(like_before | np.append(like_before[1:], False)[: len(order)])
    at = order[tied]
    turn = _turns_at_one_time(begin[at], end[at], side_of[at], host[at], waits[at])
    # What differs in none of these is the same but for its place. Calls without length that wait are one inside of the other.
    is_last = waits[at] & (side_of[at] == END) & (begin[at] == end[at])
    sign = np.where(is_last, -1, 1)
    order[tied] = at[np.lexsort((sign * (place[at] * 2 + side_of[at]), sign * label[at], row[at], *turn, time[at]))]
    moments = ChunkMoments(first, time[order], row[order], label[order], side_of[order], host[order], place[order])
    for is_host, intervals in ((False, devices), (True, hosts)):
        of_kind = moments.is_host == is_host
        for side, numbers in ((START, intervals.start), (END, intervals.end)):
            of_side = np.flatnonzero(of_kind & (moments.side == side))
            numbers[moments.interval[of_side]] = first + of_side
    return moments


def _turns_at_one_time(
    begin: Numbers, end: Numbers, side: Numbers, is_host: Mask, waits: Mask
) -> tuple[Numbers, Numbers, Numbers]:
    """What decides between moments of one time, the last of it first; `begin` and `end` are those of their intervals."""
    is_end, has_length = side == END, end > begin
    inner = np.where(has_length, np.where(is_end, -begin, -end), 0)
    # Of what has no length: calls that launch, the start of those that wait, operations, the end of those that wait.
    no_length = np.where(is_host, np.where(waits, np.where(is_end, 3, 1), 0), 2)
    device_or_host = np.where(has_length, (is_host == is_end).astype(np.int64), no_length)
    turn = np.where(has_length, np.where(is_end, 0, 2), 1)
    return inner, device_or_host, turn


class Former:
    """The moment before each on its row, over chunks.

    Parameters
    ----------
    rows
        Number of rows.
    """

    def __init__(self, rows: int) -> None:
        self._last: Numbers = np.full(rows, NOT_FOUND, dtype=np.int64)
        # Numbers of 16 bits are sorted many times faster.
        self._row_type = np.uint16 if rows <= 1 << 16 else np.int64

    def of(self, row: Numbers, number: Numbers, counts: Mask) -> Numbers:
        """For moments in their order: the last one before on the same row that counts; NOT_FOUND: none."""
        order = np.argsort(row.astype(self._row_type), kind="stable")
        ordered = row[order]
        is_first = differ_from_before(ordered)
        known = np.where(counts, number, NOT_FOUND)[order]
        before = np.concatenate([[NOT_FOUND], known[:-1]])[: len(order)]
        before[is_first] = self._last[ordered[is_first]]
        # The last known one: numbers increase, but each row begins anew.
        group = np.cumsum(is_first)
        span = int(number[-1]) + 2 if len(number) else 1
        running = np.maximum.accumulate(before + 1 + group * span) - group * span - 1
        found = np.empty(len(order), dtype=np.int64)
        found[order] = running
        chosen = np.flatnonzero(counts)
        self._last[row[chosen]] = number[chosen]
        return found


def stretch_labels(moments: ChunkMoments, hosts: OpenIntervals) -> Numbers:
    """What each host thread did until each of its moments: of the calls that were open the label of the one that started last,
    which is the innermost one; NOTHING: none was open.

    Of moments of devices, the label stays.
    """
    on_hosts = np.flatnonzero(moments.is_host)
    # Calls that are open when the chunk begins, the outer ones first, in the order of their starts.
    opened = np.flatnonzero(~hosts.is_new & hosts.is_kept)
    opened = opened[np.lexsort((hosts.label[opened], -hosts.until[opened], hosts.begin[opened]))]
    row = np.concatenate([hosts.row[opened], moments.row[on_hosts]])
    by_row = np.argsort(row, kind="stable")
    is_first = differ_from_before(row[by_row])
    interval = np.concatenate([opened, moments.interval[on_hosts]])[by_row]
    is_start = np.concatenate([np.ones(len(opened), dtype=bool), moments.side[on_hosts] == START])[by_row]
    # A call that does not end here is open to the last moment of its row.
    behind_row = np.append(np.flatnonzero(is_first)[1:], len(row))
    end = np.full(len(hosts.row), NOT_FOUND, dtype=np.int64)
    end[interval[~is_start]] = np.flatnonzero(~is_start)
    start = np.flatnonzero(is_start)
    end_of_call = end[interval[start]]
    end_of_call = np.where(end_of_call == NOT_FOUND, behind_row[(np.cumsum(is_first) - 1)[start]], end_of_call)
    after = last_begun(start, end_of_call, len(row))
    label = np.where(after != NOT_FOUND, hosts.label[interval[np.maximum(after, 0)]], NOTHING) if len(row) else after
    until = np.append(NOTHING, label)[: len(row)]
    until[is_first] = NOTHING
    labels: Numbers = moments.label.copy()
    ordered = np.empty(len(row), dtype=np.int64)
    ordered[by_row] = until
    labels[on_hosts] = ordered[len(opened) :]
    return labels


def last_begun(first: Numbers, behind: Numbers, size: int) -> Numbers:
    """Of the stretches that each place is in, the one that begins last: its first place; NOT_FOUND: it is in none.

    A stretch is two of 1, 2, 4, ... places that may overlap, and each of these two of half as many.

    Parameters
    ----------
    first, behind
        Of each stretch: its first place, and the one behind its last.
    size
        Number of places.

    >>> last_begun(np.array([0, 1, 2]), np.array([4, 3, 5]), 6).tolist()
    [0, 1, 2, 2, 2, -1]
    """
    found = np.full(size, NOT_FOUND, dtype=np.int64)
    first, behind = first[behind > first], behind[behind > first]
    power = np.frexp(behind - first)[1] - 1
    for one in range(int(power.max(initial=0)), -1, -1):
        chosen = power == one
        np.maximum.at(found, first[chosen], first[chosen])
        np.maximum.at(found, behind[chosen] - 2**one, first[chosen])
        if one:
            half = 2 ** (one - 1)
            second_half = found[:-half].copy()
            np.maximum(found[half:], second_half, out=found[half:])
    return found


def outside_calls(hosts: OpenIntervals, is_call: Mask, length: int) -> Mask:
    """Which intervals of host threads are not inside of a CUDA or MPI call of their thread; calls themselves are.

    What the OS does in a call that waits is how the call waits: it says nothing further.

    Parameters
    ----------
    is_call
        Which are CUDA or MPI calls.
    length
        Larger than all times.
    """
    if is_call.all():
        return is_call
    # What is as long as a call is inside of it.
    order = np.lexsort((~is_call, -hosts.until, hosts.begin, hosts.row))
    row, until = hosts.row[order], hosts.until[order]
    # The end of the last call so far, by row: rows follow each other, so a later row is always above.
    span = length + 2
    covered = np.maximum.accumulate(np.where(is_call[order], row * span + until + 1, row * span))
    is_inside = (covered - row * span - 1 >= until) & ~is_call[order]
    outside: Mask = np.empty(len(order), dtype=bool)
    outside[order] = ~is_inside
    return outside
