"""Intervals as columns: each has a group (a device, a task, a thread), a begin and an end in ns.

Intervals are half open, [begin, end): those that touch do not overlap, and one without length covers nothing. No loop visits
single intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

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

    def only(self, chosen: npt.NDArray[np.bool_] | Numbers) -> Intervals:
        """Those that a mask, or a list of positions, chooses."""
        return Intervals(self.group[chosen], self.begin[chosen], self.end[chosen])


@dataclass(frozen=True)
class Segments:
    """Segments of time in which the open intervals of a group do not change, in the order of group and time.

    Attributes
    ----------
    group, begin, end
        As of intervals; every segment between two edges of a group is listed, also one without open intervals.
    counts
        One column per kind: number of its open intervals.
    """

    group: Numbers
    begin: Numbers
    end: Numbers
    counts: tuple[Numbers, ...]

    @property
    def length(self) -> Numbers:
        """ns of each segment."""
        return self.end - self.begin

    @property
    def mask(self) -> Numbers:
        """Kinds with open intervals, as bits: kind 0 is the lowest."""
        mask: Numbers = np.zeros(len(self.group), dtype=np.int64)
        for kind, count in enumerate(self.counts):
            mask |= (count > 0).astype(np.int64) << kind
        return mask

    @cached_property
    def _places(self) -> Places:
        return Places(self.group, self.begin)

    def place(self, group: Numbers, time: Numbers) -> Numbers:
        """Index of the segment with each time of a group; -1 where the time is before all segments of the group."""
        if not len(self.group):
            return np.full(len(group), -1, dtype=np.int64)
        place = self._places.find(group, time)
        return np.where(self.group[np.maximum(place, 0)] == group, place, -1)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Intervals:
        """The chosen segments as intervals; neighbours become one."""
        group, begin, end = self.group[chosen], self.begin[chosen], self.end[chosen]
        if not len(group):
            return Intervals(group, begin, end)
        is_new = np.concatenate([[True], (group[1:] != group[:-1]) | (begin[1:] != end[:-1])])
        is_last = np.concatenate([is_new[1:], [True]])
        return Intervals(group[is_new], begin[is_new], end[is_last])


def segments(intervals: Intervals, kind: Numbers | None = None, kinds: int = 1) -> Segments:
    """Cut time where any interval begins or ends.

    Parameters
    ----------
    intervals
        In any order; they may overlap.
    kind
        Kind of each (0, 1, ... below `kinds`); None: all are of kind 0.

    >>> found = segments(Intervals.of([0, 0, 0, 1], [0, 5, 20, 7], [10, 15, 30, 9]))
    >>> found.where(found.counts[0] > 0).end.tolist()
    [15, 30, 9]
    """
    extended = intervals.end > intervals.begin
    if not extended.all():
        intervals, kind = intervals.only(extended), None if kind is None else kind[extended]
    edges = len(intervals)
    group = np.concatenate([intervals.group, intervals.group])
    time = np.concatenate([intervals.begin, intervals.end])
    order = _order(group, time)
    group, time = group[order], time[order]
    step = np.where(order < edges, 1, -1)
    if kind is None:
        counts = [np.cumsum(step)]
    else:
        of_edge = np.concatenate([kind, kind])[order]
        counts = [np.cumsum(np.where(of_edge == one, step, 0)) for one in range(kinds)]
    # Every interval of a group ends in it, so a count over all groups is 0 between two of them.
    real = (group[1:] == group[:-1]) & (time[1:] > time[:-1]) if edges else np.zeros(0, dtype=bool)
    return Segments(group[:-1][real], time[:-1][real], time[1:][real], tuple(count[:-1][real] for count in counts))


def time_by(key: Numbers, length: Numbers, keys: int, group: Numbers, groups: int) -> Numbers:
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
    """Time by key in a group up to any moment: F(group, t); the time in a window is F(end) - F(begin).

    Parameters
    ----------
    segments_of_groups
        Segments of all groups.
    key
        Key of each segment (0, 1, ... below `keys`).
    """

    def __init__(self, segments_of_groups: Segments, key: Numbers, keys: int) -> None:
        self._segments = segments_of_groups
        self._places = Places(segments_of_groups.group, segments_of_groups.begin)
        self._key = key
        self._keys = keys
        length = segments_of_groups.length
        rows = np.arange(len(length))
        each = np.zeros((len(length) + 1, keys), dtype=np.int64)
        each[rows + 1, key] = length
        self._before = np.cumsum(each, axis=0)
        groups = int(segments_of_groups.group[-1]) + 1 if len(length) else 0
        self._first = np.searchsorted(segments_of_groups.group, np.arange(groups + 1), side="left")

    def until(self, group: Numbers, time: Numbers) -> Numbers:
        """ns by key before each time in its group: a row per time, a column per key."""
        found = self._segments
        if not len(found.group):
            return np.zeros((len(group), self._keys), dtype=np.int64)
        place = self._places.find(group, time)
        first = self._first[np.minimum(group, len(self._first) - 1)]
        inside = place >= first
        last = np.maximum(place, 0)
        whole: Numbers = self._before[last] - self._before[np.minimum(first, len(self._before) - 1)]
        part = np.minimum(time, found.end[last]) - found.begin[last]
        whole[np.arange(len(group)), self._key[last]] += part
        return np.where(inside[:, None], whole, 0)


def _order(group: Numbers, time: Numbers) -> Numbers:
    """Order by group and time. Edges of equal time may be in any order: only the state after all of them counts."""
    if not len(group):
        return np.zeros(0, dtype=np.int64)
    first = int(time.min())
    if int(time.max()) - first < 1 << _TIME_BITS and int(group.max()) < _MOST_GROUPS:
        return np.argsort(group << _TIME_BITS | time - first)
    return np.lexsort((time, group))


class Places:
    """Rows that are sorted by group and begin, found by group and time.

    Parameters
    ----------
    groups, begins
        Columns of equal length.
    """

    def __init__(self, groups: Numbers, begins: Numbers) -> None:
        self._groups, self._begins = groups, begins
        self._first = int(begins.min(initial=_NEVER))
        span = int(begins.max(initial=self._first)) - self._first
        fits = span < 1 << _TIME_BITS and int(groups.max(initial=0)) < _MOST_GROUPS
        # Made once: the same rows are searched again and again.
        self._keys = groups << _TIME_BITS | begins - self._first if fits else None

    def find(self, group: Numbers, time: Numbers) -> Numbers:
        """Position of the last (group, begin) that is not after each (group, time); -1: there is none."""
        if self._keys is None or int(group.max(initial=0)) >= _MOST_GROUPS:
            return self._by_order(group, time)
        # What is before all begins is behind the group before, what is after all of them behind its own group.
        since = np.clip(time - self._first, -1, (1 << _TIME_BITS) - 1)
        return np.searchsorted(self._keys, (group << _TIME_BITS) + since, side="right") - 1

    def _by_order(self, group: Numbers, time: Numbers) -> Numbers:
        known = len(self._groups)
        is_asked = np.append(np.zeros(known, dtype=bool), np.ones(len(group), dtype=bool))
        order = np.lexsort((is_asked, np.concatenate([self._begins, time]), np.concatenate([self._groups, group])))
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.cumsum(order < known) - 1
        found: Numbers = place[known:]
        return found


def search(groups: Numbers, begins: Numbers, group: Numbers, time: Numbers) -> Numbers:
    """Position of the last (group, begin) that is not after (group, time); columns `groups`, `begins` are sorted."""
    return Places(groups, begins).find(group, time)
