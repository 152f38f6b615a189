"""Lengths of sets of intervals, computed with numpy alone."""

from collections.abc import Iterable

import numpy as np


def union_length(intervals: Iterable[tuple[int, int]]) -> int:
    """Time that at least one of some intervals (start, end) covers."""
    found = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 2)
    if not len(found):
        return 0
    start, end = found[:, 0], found[:, 1]
    reached = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], reached[:-1]])
    return int(np.maximum(reached - np.maximum(start, before), 0).sum())
