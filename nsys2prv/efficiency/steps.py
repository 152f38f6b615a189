"""Pieces of windows, and nested intervals: no loop visits single ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys2prv.efficiency.intervals import Integers, Numbers, search

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
