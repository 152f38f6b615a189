"""Intervals as columns: each has a group (a device, a task, a thread), a begin and an end in ns.

Intervals are half open, [begin, end): those that touch do not overlap, and one without length covers nothing. No loop visits
single intervals."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nsys2prv.vocabulary.limits import LONGEST_SESSION_NS

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
"""Whole numbers in fewer bytes: they are cast before arithmetic that may leave their range."""
Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

NONE = -1
"""A place of nothing."""


@dataclass(frozen=True)
class Intervals:
    """Intervals of groups: three columns of equal length, Int64. `group` counts from 0; times in ns."""

    group: Numbers
    begin: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, group: npt.ArrayLike, begin: npt.ArrayLike, end: npt.ArrayLike) -> "Intervals":
        """Intervals of anything that numpy takes for a column."""
        return cls(*(np.asarray(column, dtype=np.int64) for column in (group, begin, end)))

    def only(self, rows: Mask | Numbers) -> "Intervals":
        """Those that a mask, or a list of positions, selects."""
        return Intervals(self.group[rows], self.begin[rows], self.end[rows])


# -- moments -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Code:
    """How a group and a time are one number that sorts as they do: `bits` of it are the time since `first`, or the place of the
    time in `times`, where those need fewer bits."""

    groups: int
    bits: int
    first: int
    times: Numbers | None = None

    @classmethod
    def of(cls, groups: int, times: tuple[Numbers, ...], spare: int = 0) -> "_Code":
        """For groups below a number, and times in columns; `spare` bits are left for other use."""
        first = min((int(column.min()) for column in times if len(column)), default=0)
        span = max((int(column.max()) for column in times if len(column)), default=0) - first
        bits = max(span, 1).bit_length()
        if groups.bit_length() + bits + spare <= 63:
            return cls(groups, bits, first)
        distinct = np.unique(np.concatenate(times))
        return cls(groups, len(distinct).bit_length(), first, distinct)

    def keys(self, group: Integers, time: Numbers) -> Numbers:
        """Of any groups and times; a time that is none of `times` counts as the one before it."""
        place: Numbers = time - self.first if self.times is None else np.searchsorted(self.times, time, side="right") - 1
        # What is before all times is behind the group before, what is after all of them behind its own group.
        np.clip(place, -1, (1 << self.bits) - 1, out=place)
        place += np.minimum(group, self.groups).astype(np.int64) << self.bits
        return place

    def time(self, keys: Numbers) -> Numbers:
        place = keys & ((1 << self.bits) - 1)
        if self.times is not None:
            return np.take(self.times, place)
        place += self.first
        return place


@dataclass(frozen=True)
class Moments:
    """Times of groups, sorted by both: one number each (`keys`), of which `group` and `begin` are made."""

    keys: Numbers
    code: _Code

    @classmethod
    def of(cls, group: Integers, time: Numbers) -> "Moments":
        """Moments of columns that are sorted."""
        code = _Code.of(int(group.max(initial=0)) + 1, (time,))
        return cls(code.keys(group, time), code)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def group(self) -> Numbers:
        """Of each moment."""
        return self.keys >> self.code.bits

    @property
    def begin(self) -> Numbers:
        """Time of each moment, ns."""
        return self.code.time(self.keys)

    def find(self, group: Integers, time: Numbers) -> Numbers:
        """Position of the last moment that is not after each (group, time); NONE: there is none."""
        return np.searchsorted(self.keys, self.code.keys(group, time), side="right") - 1

    def place(self, group: Integers, time: Numbers) -> Numbers:
        """The same, of this group; NONE where the time is before all of its moments."""
        place = self.find(group, time)
        is_same = (place >= 0) & (self.keys[place] >> self.code.bits == group) if len(self.keys) else place >= 0
        return np.where(is_same, place, NONE)


# -- segments ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segments(Moments):
    """Segments of time in which the open intervals of a group do not change, in the order of group and time.

    Each begins where the one before it in its group ends, also where no interval is open. The last one of a group has no length
    and nothing open: what is asked for behind all intervals, or before those of the next group, is answered by it. There is
    always one. `counts` has a column per kind: number of its open intervals, in the fewest bytes that hold the sum of all."""

    counts: tuple[Integers, ...]

    def lengths(self, first: int = 0, behind: int | None = None) -> Numbers:
        """ns of each segment, or of some in a row."""
        behind, bits = len(self.keys) if behind is None else behind, self.code.bits
        keys = self.keys[first : behind + 1]
        times = keys if self.code.times is None else self.code.time(keys)
        length: Numbers = np.diff(times, append=times[-1:])[: behind - first]
        # The last one of a group is before where the next group would begin.
        next_groups = np.arange(keys[0] >> bits, keys[-1] >> bits) + 1 << bits
        length[np.searchsorted(keys, next_groups) - 1] = 0
        return length

    @property
    def mask(self) -> Integers:
        """Kinds with open intervals, as bits (UInt8): kind 0 is the lowest."""
        mask = np.zeros(len(self.keys), dtype=np.uint8)
        for kind, count in enumerate(self.counts):
            mask |= (count > 0).view(np.uint8) << kind
        return mask

    @property
    def first_kind(self) -> Integers:
        """The lowest kind with open intervals (UInt8); the number of kinds where there is none."""
        first = np.full(len(self.keys), len(self.counts), dtype=np.uint8)
        for kind in reversed(range(len(self.counts))):
            if self.counts[kind].any():
                first[self.counts[kind] > 0] = kind
        return first

    def where(self, selected: Mask) -> Intervals:
        """The selected segments, in which something is open, as intervals; neighbours become one."""
        # Begins and ends take turns: the last segment of a group is not selected.
        edges = self.keys[np.flatnonzero(np.diff(selected, prepend=False))]
        begin, end = edges[::2], edges[1::2]
        return Intervals(begin >> self.code.bits, self.code.time(begin), self.code.time(end))

    def cut(self, windows: Intervals) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Windows, each of some length, cut where segments of their groups begin or end: of each piece its window, the segment,
        its start and its end, in the order of windows and time.

        >>> busy = segments(Intervals.of([0, 1], [10, 5], [20, 9]))
        >>> window, segment, begin, end = busy.cut(Intervals.of([0, 1], [0, 6], [15, 8]))
        >>> window.tolist(), busy.counts[0][segment].tolist(), begin.tolist(), end.tolist()
        ([0, 0, 1], [0, 1, 1], [0, 10, 6], [10, 15, 8])
        """
        window, segment = expanded(self.find(windows.group, windows.begin), self.find(windows.group, windows.end - 1))
        is_new = np.append(np.ones(min(len(window), 1), dtype=bool), window[1:] != window[:-1])
        begin = np.where(is_new, windows.begin[window], self.code.time(self.keys[segment]))
        end = np.where(np.append(is_new[1:], is_new[:1]), windows.end[window], np.roll(begin, -1))
        return window, segment, begin, end


def segments(intervals: Intervals, kind: Integers | None = None, kinds: int = 1) -> Segments:
    """Cut time where any of `intervals` begins or ends, which are in any order, may overlap, and have a `kind` each (0, 1, ...
    below `kinds`; None: all are of kind 0). Those of the group NONE do not count.

    >>> busy = segments(Intervals.of([0, 0, 0, 1], [0, 5, 20, 7], [10, 15, 30, 9]))
    >>> busy.where(busy.counts[0] > 0).end.tolist()
    [15, 30, 9]
    """
    covers = (intervals.end > intervals.begin) & (intervals.group >= 0)
    if not covers.all():
        intervals, kind = intervals.only(covers), None if kind is None else kind[covers]
    rows, edge_bits = len(intervals), (kinds - 1).bit_length() + 1
    if not rows:
        return Segments(np.zeros(1, dtype=np.int64), _Code(1, 1, 0), (np.zeros(1, dtype=np.int8),) * kinds)
    code = _Code.of(int(intervals.group.max()) + 1, (intervals.begin, intervals.end), edge_bits)
    # Group, time, kind and whether it is an end in one number: sorted, it is all that is needed of an edge.
    edges = np.empty(2 * rows, dtype=np.int64)
    for is_end, times in enumerate((intervals.begin, intervals.end)):
        of_edge = edges[is_end * rows : (is_end + 1) * rows]
        of_edge[:] = code.keys(intervals.group, times)
        of_edge <<= edge_bits
        of_edge += is_end
        if kind is not None:
            of_edge += kind << 1
    # Begins are mostly in order already, and ends nearly.
    edges.sort(kind="stable")
    what = (edges & ((1 << edge_bits) - 1)).astype(np.uint8)
    edges >>= edge_bits
    # What is open after all edges of one time. Every interval of a group ends in it: a count over all groups is 0 behind each.
    is_last = np.append(edges[1:] != edges[:-1], True)
    occurs = np.bincount(np.zeros(1, dtype=np.uint8) if kind is None else kind, minlength=kinds) > 0
    nothing = np.zeros(np.count_nonzero(is_last), dtype=np.int8)
    counts = tuple(_open(what, place, kinds, is_last) if occurs[place] else nothing for place in range(kinds))
    return Segments(edges[is_last], code, counts)


def _open(what: Integers, kind: int, kinds: int, selected: Mask) -> Integers:
    """Open intervals of a kind after the selected edges; an edge is twice its kind, and 1 more where it is an end."""
    steps = (what == 2 * kind).view(np.int8) - (what == 2 * kind + 1).view(np.int8)
    count = np.cumsum(steps, dtype=np.int32)[selected]
    return count.astype(np.min_scalar_type(-kinds * int(count.max(initial=0)) - 1))


# -- sums of time --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Elapsed:
    """Time by key in windows of groups, from segments with a key each (0, 1, ... below `keys`).

    Nothing is kept beside the segments: sums over those that the windows reach are made for one key after the other."""

    segments: Segments
    key: Integers
    keys: int

    def in_windows(self, group: Integers, begin: Numbers, end: Numbers) -> Iterator[Numbers]:
        """ns in each window of a group, for one key after the other."""
        places = [self.segments.find(group, time) for time in (begin, end)]
        low = max(min(int(place.min(initial=len(self.key) - 1)) for place in places), 0)
        high = max(int(place.max(initial=low)) for place in places) + 1
        lengths, keys = self.segments.lengths(low, high), self.key[low:high]
        edges = [self._edge(place, time, low, lengths) for place, time in zip(places, (begin, end), strict=True)]
        before: Numbers = np.zeros(len(lengths) + 1, dtype=np.int64)
        for key in range(self.keys):
            is_key = keys == key
            if not is_key.any():
                yield np.zeros(len(group), dtype=np.int64)
                continue
            np.multiply(lengths, is_key, out=before[1:])
            np.cumsum(before[1:], out=before[1:])
            first, last = (before[place] + part * is_key[place] for place, part in edges)
            yield last - first

    def _edge(self, segment: Numbers, time: Numbers, low: int, lengths: Numbers) -> tuple[Numbers, Numbers]:
        """Segments with an edge of a window, counted from `low`, and the part of each that is before the edge. One of another
        group has no length."""
        place = np.maximum(segment, low)
        part = np.minimum(time - self.segments.code.time(self.segments.keys[place]), lengths[place - low])
        return place - low, np.where(segment == NONE, 0, part).clip(min=0)


def time_where(of_groups: Segments, selected: Mask, windows: Iterable[npt.ArrayLike]) -> Numbers:
    """ns of windows (columns group, begin and end) in the selected segments of their groups."""
    group, begin, end = (np.asarray(column, dtype=np.int64) for column in windows)
    (inside,) = Elapsed(of_groups, (~selected).view(np.int8), 1).in_windows(group, begin, end)
    return inside


class Spans:
    """Times of groups: columns group (a number from 0), begin and end, in any order; those of a group that overlap are one.
    `merged` are these, in the order of group and time."""

    def __init__(self, spans: Iterable[npt.ArrayLike]) -> None:
        covered = segments(Intervals.of(*spans))
        self.merged = covered.where(covered.counts[0] > 0)
        self._covered = Elapsed(covered, (covered.counts[0] == 0).view(np.uint8), 1)

    def inside(self, group: Integers, begin: Numbers, end: Numbers, which: Mask | None = None) -> Numbers:
        """Time of the spans of a group from a begin to an end, ns: columns of equal length; 0 but for `which` of their rows."""
        # Spans can be few, as when contexts are created, and early.
        first, last = self.merged.begin.min(initial=LONGEST_SESSION_NS), self.merged.end.max(initial=0)
        place = np.flatnonzero((begin < last) & (end > first) & (True if which is None else which))
        inside = np.zeros(len(group), dtype=np.int64)
        (inside[place],) = self._covered.in_windows(group[place], begin[place], end[place])
        return inside


# -- places --------------------------------------------------------------------------------------------


def expanded(first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """All numbers from `first` to `last`, including both, of each row: the row, and the number.

    >>> [column.tolist() for column in expanded(np.array([3, 7]), np.array([5, 7]))]
    [[0, 0, 0, 1], [3, 4, 5, 7]]
    """
    counts = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(first)), counts)
    return row, np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts - first, counts)


def moments_inside(group: Integers, time: Numbers, windows: Intervals) -> tuple[Numbers, Numbers]:
    """Which moments, sorted by group and time, are in which windows: places of a window and of a moment, for each such pair."""
    first, last = (Moments.of(group, time).find(windows.group, edge - 1) for edge in (windows.begin, windows.end))
    return expanded(first + 1, last)
