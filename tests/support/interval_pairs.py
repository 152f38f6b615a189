"""Starts and ends of intervals (event type with a value, the same type with 0) to intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.paraver.record_checks import one_key


@dataclass(frozen=True)
class PairedIntervals:
    """What `pair_intervals` makes of starts and ends; all frames are in the order of the given one."""

    closed: pl.DataFrame
    open: pl.DataFrame
    orphans: pl.DataFrame


def pair_intervals(edges: pl.DataFrame, key: Sequence[str]) -> PairedIntervals:
    """Pair each end with the innermost start that is open."""
    is_start = (edges["value"] != 0).to_numpy()
    if not len(is_start):
        return PairedIntervals(edges.with_columns(end="time", depth=pl.lit(1, pl.Int64)), edges, edges)
    number = one_key([edges[name].cast(pl.Int64).to_numpy() for name in key])
    by_key = np.argsort(number, kind="stable")
    first = np.flatnonzero(differ_from_before(number[by_key]))
    # How deep an edge is nested, 1 for the outermost; the depth of an end is that of its start.
    depth_by_key = np.cumsum(np.where(is_start[by_key], 1, -1))
    depth_by_key[~is_start[by_key]] += 1
    before = depth_by_key[first] - is_start[by_key][first]
    depth = np.zeros(len(is_start), np.int64)
    depth[by_key] = depth_by_key - np.repeat(before, np.diff(first, append=len(number)))
    # Of one depth, each end follows its start.
    order = np.lexsort((depth, number))
    is_same = (number[order][1:] == number[order][:-1]) & (depth[order][1:] == depth[order][:-1])
    place = np.flatnonzero(is_same & is_start[order][:-1] & ~is_start[order][1:])
    starts, ends = order[place], order[place + 1]
    in_order = np.argsort(starts)
    starts, ends = starts[in_order], ends[in_order]
    is_left = np.ones(len(is_start), dtype=bool)
    is_left[np.concatenate([starts, ends])] = False
    closed = edges[starts].with_columns(end=edges["time"].gather(ends), depth=pl.Series(depth[starts]))
    return PairedIntervals(closed, edges.filter(is_left & is_start), edges.filter(is_left & ~is_start))
