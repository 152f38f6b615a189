"""Intervals as columns: each has a group (a device, a task, a thread), a begin and an end in ns.

Intervals are half open, [begin, end): those that touch do not overlap, and one without length covers nothing. No loop visits
single intervals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
"""Whole numbers in fewer bytes: they are cast before arithmetic that may leave their range."""

_TIME_BITS = 46
"""Bits of a sort key that are a time: up to 19 hours are sorted by one number per edge."""
_MOST_GROUPS = 1 << (63 - _TIME_BITS)
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Intervals:
    """Intervals of groups: three columns of equal length, Int64. `group` counts from 0; times in ns."""

    group: Numbers
    begin: Numbers
    end: Numbers

    def __len__(self) -> int:
        return len(self.group)

    @classmethod
    def of(cls, group: npt.ArrayLike, begin: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
        """Intervals of anything that numpy takes for a column."""
        return cls(*(np.asarray(column, dtype=np.int64) for column in (group, begin, end)))

    def only(self, rows: npt.NDArray[np.bool_] | Numbers) -> Intervals:
        """Those that a mask, or a list of positions, selects."""
        return Intervals(self.group[rows], self.begin[rows], self.end[rows])


@dataclass(frozen=True)
class Segments:
    """Segments of time in which the open intervals of a group do not change, in the order of group and time.

    Attributes
    ----------
    group, begin, end
        As of intervals (the group is Int32 where all fit); every segment between two edges of a group is listed, also one
        without open intervals.
    counts
        One column per kind: number of its open intervals, in the fewest bytes that hold the sum of all columns.
    """

    group: Integers
    begin: Numbers
    end: Numbers
    counts: tuple[Integers, ...]

    @property
    def length(self) -> Numbers:
        """ns of each segment."""
        return self.end - self.begin

    @property
    def mask(self) -> Integers:
        """Kinds with open intervals, as bits (UInt8): kind 0 is the lowest."""
        mask = np.zeros(len(self.group), dtype=np.uint8)
        for kind, count in enumerate(self.counts):
            mask |= (count > 0).view(np.uint8) << kind
        return mask

    @property
    def first_kind(self) -> Integers:
        """The lowest kind with open intervals (UInt8); the number of kinds where there is none."""
        first = np.full(len(self.group), len(self.counts), dtype=np.uint8)
        for kind in reversed(range(len(self.counts))):
            first[self.counts[kind] > 0] = kind
        return first

    @cached_property
    def _places(self) -> Places:
        return Places(self.group, self.begin)

    def place(self, group: Integers, time: Numbers) -> Numbers:
        """Index of the segment with each time of a group; -1 where the time is before all segments of the group."""
        if not len(self.group):
            return np.full(len(group), -1, dtype=np.int64)
        place = self._places.find(group, time)
        return np.where(self.group[np.maximum(place, 0)] == group, place, -1)

    def where(self, selected: npt.NDArray[np.bool_]) -> Intervals:
        """The selected segments as intervals; neighbours become one."""
        group, begin, end = self.group[selected].astype(np.int64), self.begin[selected], self.end[selected]
        if not len(group):
            return Intervals(group, begin, end)
        is_new = np.concatenate([[True], (group[1:] != group[:-1]) | (begin[1:] != end[:-1])])
        is_last = np.concatenate([is_new[1:], [True]])
        return Intervals(group[is_new], begin[is_new], end[is_last])


def segments(intervals: Intervals, kind: Integers | None = None, kinds: int = 1) -> Segments:
    """Cut time where any interval begins or ends.

    Parameters
    ----------
    intervals
        In any order; they may overlap.
    kind
        Kind of each (0, 1, ... below `kinds`); None: all are of kind 0.

    >>> busy = segments(Intervals.of([0, 0, 0, 1], [0, 5, 20, 7], [10, 15, 30, 9]))
    >>> busy.where(busy.counts[0] > 0).end.tolist()
    [15, 30, 9]
    """
    extended = intervals.end > intervals.begin
    if not extended.all():
        intervals, kind = intervals.only(extended), None if kind is None else kind[extended]
    first = int(intervals.begin.min(initial=_NEVER))
    time_bits = max(int(intervals.end.max(initial=first)) - first, 1).bit_length()
    edge_bits = (kinds - 1).bit_length() + 1
    groups = int(intervals.group.max(initial=0)) + 1
    if groups.bit_length() + time_bits + edge_bits > 63:
        # Of times far apart the places in their order need fewer bits.
        times = np.unique(np.concatenate([intervals.begin, intervals.end]))
        begin, end = (np.searchsorted(times, column) for column in (intervals.begin, intervals.end))
        cut = segments(Intervals(intervals.group, begin, end), kind, kinds)
        return replace(cut, begin=times[cut.begin], end=times[cut.end])
    # Group, time, kind and whether it is an end in one number: sorted, it is all that is needed of an edge.
    of_kind = 0 if kind is None else kind.astype(np.int64) << 1
    edges = np.concatenate(
        [
            ((intervals.group << time_bits | intervals.begin - first) << edge_bits) + of_kind,
            ((intervals.group << time_bits | intervals.end - first) << edge_bits) + of_kind + 1,
        ]
    )
    edges.sort()
    what = (edges & ((1 << edge_bits) - 1)).astype(np.uint8)
    edges >>= edge_bits
    # What is open after all edges of one time.
    is_last = np.append(edges[1:] != edges[:-1], np.ones(min(len(edges), 1), dtype=bool))
    moments = edges[is_last]
    del edges
    group = (moments >> time_bits).astype(np.int32 if groups < 1 << 31 else np.int64)
    moments &= (1 << time_bits) - 1
    moments += first
    # Every interval of a group ends in it, so a count over all groups is 0 between two of them.
    is_same = group[1:] == group[:-1]
    counts = tuple(_open(what, place, kinds, is_last)[:-1][is_same] for place in range(kinds))
    return Segments(group[:-1][is_same], moments[:-1][is_same], moments[1:][is_same], counts)


def _open(what: Integers, kind: int, kinds: int, selected: npt.NDArray[np.bool_]) -> Integers:
    """Open intervals of a kind after the selected edges; an edge is twice its kind, and 1 more where it is an end."""
    steps = (what == 2 * kind).view(np.int8) - (what == 2 * kind + 1).view(np.int8)
    count = np.cumsum(steps, dtype=np.int32)[selected]
    return count.astype(np.min_scalar_type(-kinds * int(count.max(initial=0)) - 1))


def time_by(key: Integers, length: Numbers, keys: int, group: Integers, groups: int) -> Numbers:
    """Sum of lengths by group and key, ns.

    Parameters
    ----------
    key, length, group
        Columns of equal length; keys count from 0 to below `keys`, groups to below `groups`.

    Returns
    -------
    `groups` rows of `keys` columns.
    """
    # Sums in doubles are exact up to 2^53 ns, which are 104 days.
    sums = np.bincount(group * keys + key, weights=length, minlength=groups * keys)
    return sums.astype(np.int64).reshape(groups, keys)


class Elapsed:
    """Time by key in windows of groups.

    Nothing is kept beside the segments: sums over those that the windows reach are made for one key after the other.

    Parameters
    ----------
    segments_of_groups
        Segments of all groups.
    key
        Key of each segment (0, 1, ... below `keys`).
    """

    def __init__(self, segments_of_groups: Segments, key: Integers, keys: int) -> None:
        self._segments = segments_of_groups
        self._key = key
        self._keys = keys
        groups = int(segments_of_groups.group[-1]) + 1 if len(key) else 0
        self._first = np.searchsorted(segments_of_groups.group, np.arange(groups + 1), side="left")

    def in_windows(self, group: Integers, begin: Numbers, end: Numbers) -> Iterator[Numbers]:
        """ns in each window of a group, for one key after the other."""
        if not len(self._key) or not len(group):
            yield from (np.zeros(len(group), dtype=np.int64) for _ in range(self._keys))
            return
        edges = [self._edge(group, time) for time in (begin, end)]
        low, high = min(int(place.min()) for place, _ in edges), max(int(place.max()) for place, _ in edges) + 1
        keys, length = self._key[low:high], self._segments.end[low:high] - self._segments.begin[low:high]
        of_edges = [(place - low, self._key[np.minimum(place, len(self._key) - 1)], part) for place, part in edges]
        before: Numbers = np.zeros(high - low + 1, dtype=np.int64)
        for key in range(self._keys):
            np.cumsum(np.where(keys == key, length, 0), out=before[1 : len(length) + 1])
            before[len(length) + 1 :] = before[len(length)]
            first, last = (before[place] + np.where(key_there == key, part, 0) for place, key_there, part in of_edges)
            yield last - first

    def between(self, group: Integers, begin: Numbers, end: Numbers) -> Numbers:
        """ns by key in each window: a row per window, a column per key."""
        return np.stack(list(self.in_windows(group, begin, end)), axis=1)

    def _edge(self, group: Integers, time: Numbers) -> tuple[Numbers, Numbers]:
        """The segment that holds a time of a group, and the part of it that is before; before all segments, the first and 0."""
        place = self._segments.place(group, time)
        first = self._first[np.minimum(group, len(self._first) - 1)]
        segment = np.maximum(place, 0)
        part = np.minimum(time, self._segments.end[segment]) - self._segments.begin[segment]
        return np.where(place >= 0, place, first), np.where(place >= 0, part, 0)


class Places:
    """Rows that are sorted by group and begin, found by group and time.

    Parameters
    ----------
    groups, begins
        Columns of equal length.
    """

    def __init__(self, groups: Integers, begins: Numbers) -> None:
        self._groups, self._begins = groups, begins
        self._first = int(begins.min(initial=_NEVER))
        span = int(begins.max(initial=self._first)) - self._first
        fits = span < 1 << _TIME_BITS and int(groups.max(initial=0)) < _MOST_GROUPS
        # Made once: the same rows are searched again and again.
        self._keys = groups.astype(np.int64) << _TIME_BITS | begins - self._first if fits else None

    def find(self, group: Integers, time: Numbers) -> Numbers:
        """Position of the last (group, begin) that is not after each (group, time); -1: there is none."""
        if self._keys is None or int(group.max(initial=0)) >= _MOST_GROUPS:
            return self._by_order(group, time)
        # What is before all begins is behind the group before, what is after all of them behind its own group.
        since = np.clip(time - self._first, -1, (1 << _TIME_BITS) - 1)
        return np.searchsorted(self._keys, (group.astype(np.int64) << _TIME_BITS) + since, side="right") - 1

    def _by_order(self, group: Integers, time: Numbers) -> Numbers:
        rows = len(self._groups)
        is_sought = np.append(np.zeros(rows, dtype=bool), np.ones(len(group), dtype=bool))
        order = np.lexsort((is_sought, np.concatenate([self._begins, time]), np.concatenate([self._groups, group])))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.cumsum(order < rows) - 1
        return place[rows:]


def search(groups: Integers, begins: Numbers, group: Integers, time: Numbers) -> Numbers:
    """Position of the last (group, begin) that is not after (group, time); columns `groups`, `begins` are sorted."""
    return Places(groups, begins).find(group, time)
