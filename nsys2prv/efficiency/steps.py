"""What holds in a group at each time, as steps: a key holds from a change until the next one of its group.

Windows are cut where the key changes. No loop visits single windows or changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nsys2prv.efficiency.intervals import Integers, Intervals, Numbers, Places, Segments, search

_NEVER = np.iinfo(np.int64).max
NONE = -1
"""A place of nothing."""


@dataclass(frozen=True)
class Pieces:
    """Pieces of windows, in the order of windows and time.

    Attributes
    ----------
    window
        Index of the window of each.
    begin, end
        ns.
    key
        What holds in it.
    """

    window: Numbers
    begin: Numbers
    end: Numbers
    key: Numbers

    @property
    def length(self) -> Numbers:
        """ns of each."""
        return self.end - self.begin


@dataclass(frozen=True)
class Steps:
    """Changes, in the order of group and time (at most one per group and time).

    Attributes
    ----------
    group, time
        Of each change; ns.
    key
        What holds from there on.
    before
        What holds before the first change of a group.
    """

    group: Integers
    time: Numbers
    key: Integers
    before: int = 0

    @classmethod
    def of(cls, segments: Segments, key: Integers, before: int = 0) -> Steps:
        """From segments with a key each; outside of them `before` holds."""
        rows = len(segments.group)
        if not rows:
            return cls(segments.group, segments.begin, key, before)
        follows = np.zeros(rows, dtype=bool)
        follows[:-1] = (segments.group[1:] == segments.group[:-1]) & (segments.begin[1:] == segments.end[:-1])
        same = np.zeros(rows, dtype=bool)
        same[1:] = follows[:-1] & (key[1:] == key[:-1])
        # Where nothing follows, what was before holds again.
        holes = np.flatnonzero(~follows)
        is_change = np.insert(~same, holes + 1, values=True)
        group, time, keys = (
            np.insert(column, holes + 1, value)[is_change]
            for column, value in (
                (segments.group, segments.group[holes]),
                (segments.begin, segments.end[holes]),
                (key, np.full(len(holes), before)),
            )
        )
        return cls(group, time, keys, before)

    def __len__(self) -> int:
        return len(self.group)

    @cached_property
    def _places(self) -> Places:
        return Places(self.group, self.time)

    def of_groups(self, is_selected: Numbers) -> Steps:
        """Those of some groups; `is_selected` says of each group whether it is one of them."""
        rows = is_selected[self.group] > 0
        return Steps(self.group[rows], self.time[rows], self.key[rows], self.before)

    def cut(self, windows: Intervals) -> Pieces:
        """Windows, each of some length, cut where the key of their group changes.

        >>> steps = Steps(*(np.array(column) for column in ([0, 0, 1], [10, 20, 5], [7, 0, 9])))
        >>> pieces = steps.cut(Intervals.of([0, 1], [0, 6], [15, 8]))
        >>> pieces.window.tolist(), pieces.begin.tolist(), pieces.end.tolist(), pieces.key.tolist()
        ([0, 0, 1], [0, 10, 6], [10, 15, 8], [0, 7, 9])
        """
        if not len(self) or not len(windows):
            key = np.full(len(windows), self.before, dtype=np.int64)
            return Pieces(np.arange(len(windows)), windows.begin, windows.end, key)
        first = self._places.find(windows.group, windows.begin)
        last = self._places.find(windows.group, windows.end - 1)
        window, place = expanded(first, last)
        group = windows.group[window]
        is_since = (place >= 0) & (self.group[place] == group)
        following = np.minimum(place + 1, len(self) - 1)
        is_followed = (place + 1 < len(self)) & (self.group[following] == group)
        begin = np.maximum(windows.begin[window], np.where(is_since, self.time[place], windows.begin[window]))
        end = np.minimum(windows.end[window], np.where(is_followed, self.time[following], _NEVER))
        return Pieces(window, begin, end, np.where(is_since, self.key[place], self.before))


def expanded(first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """All numbers from `first` to `last`, including both, of each row: the row, and the number.

    >>> [column.tolist() for column in expanded(np.array([3, 7]), np.array([5, 7]))]
    [[0, 0, 0, 1], [3, 4, 5, 7]]
    """
    counts = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(first)), counts)
    skipped = np.cumsum(counts) - counts
    return row, np.arange(int(counts.sum())) - np.repeat(skipped - first, counts)


class Nested:
    """Intervals of groups that are nested in each other: which is the innermost one at a time.

    Parameters
    ----------
    group, begin, end
        Columns of equal length, in any order; each has some length.
    """

    def __init__(self, group: Numbers, begin: Numbers, end: Numbers) -> None:
        order = np.lexsort((-end, begin, group))
        group, begin, end = group[order], begin[order], end[order]
        by_end = np.lexsort((end, group))
        ended = search(group[by_end], end[by_end], group, begin) + 1 if len(group) else group
        first = np.searchsorted(group, group, side="left")
        # In the order of starts: those of the group so far, less those of it that have ended.
        depth = np.arange(len(group)) - np.maximum(ended, first) + 1
        self._depths = int(depth.max(initial=0)) + 1
        key = group * self._depths + depth
        by_depth = np.argsort(key, kind="stable")
        self._key, self._begin, self._end = key[by_depth], begin[by_depth], end[by_depth]
        self._place = order[by_depth]

    def innermost(self, group: Integers, time: Numbers, depth: Integers) -> Numbers:
        """Place of the innermost interval at each time of a group, where so many (`depth`) are open; NONE where none is, or
        where it is not known because intervals overlap without being nested."""
        if not len(self._key):
            return np.full(len(group), NONE, dtype=np.int64)
        key = group.astype(np.int64) * self._depths + np.minimum(depth.astype(np.int64), self._depths - 1)
        place = np.maximum(search(self._key, self._begin, key, time), 0)
        is_open = (depth > 0) & (self._key[place] == key) & (self._begin[place] <= time) & (self._end[place] > time)
        return np.where(is_open, self._place[place], NONE)
