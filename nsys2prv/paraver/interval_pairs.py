"""Starts and ends of intervals (event type with a value, the same type with 0) to intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from nsys2prv.execution.keys import FEW_KEYS, distinct, one_key, order_of_keys
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.paraver.fields import Flags, Indices
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary import event_types


@dataclass(frozen=True)
class PairedIntervals:
    """What `pair_intervals` makes of starts and ends; all frames are in the order of the given one.

    Attributes
    ----------
    closed
        Intervals: the columns of their starts, `end` (time of the end) and `depth` (1: outermost).
    open
        Starts without an end, with the given columns: to be put before the next starts and ends.
    orphans
        Ends without a start, with the given columns.
    """

    closed: pl.DataFrame
    open: pl.DataFrame
    orphans: pl.DataFrame


def pair_intervals(edges: pl.DataFrame, key: Sequence[str]) -> PairedIntervals:
    """Pair each end with the innermost start that is open.

    `edges` are starts and ends in the order of the trace: `time` (ns), `value` (0: an end), the columns of `key` that intervals
    nest in (such as row and event type), and others. They may be paired in pieces: starts and ends that are left of each piece
    are paired afterwards, as if they were all.
    """
    columns = [edges[name].cast(pl.Int64).to_numpy() for name in key]
    is_start = (edges["value"] != 0).to_numpy()
    found = match_ends(columns, is_start)
    depth = np.zeros(len(is_start), np.int64)
    if len(depth):
        number, order = _in_order(columns)
        depth[order] = _depths(number, is_start[order])
    closed = edges[found.starts].with_columns(end=edges["time"].gather(found.ends), depth=pl.Series(depth[found.starts]))
    is_open = is_start[found.left]
    return PairedIntervals(closed, edges[found.left[is_open]], edges[found.left[~is_open]])


@dataclass(frozen=True)
class MatchedEnds:
    """Places of starts, in order, with the end of each; and places of starts and ends that are left, in order."""

    starts: Indices
    ends: Indices
    left: Indices


def match_ends(key: Sequence[Indices], is_start: Flags) -> MatchedEnds:
    """The innermost open start of each end, of edges in the order of the trace.

    Parameters
    ----------
    key
        Columns of what intervals nest in.
    is_start
        Whether each edge is a start.
    """
    if not len(is_start):
        return MatchedEnds(*[np.zeros(0, np.int64)] * 3)
    number, order = _in_order(key)
    starts, left = _followed(is_start[order], number)
    found, ends = [order[starts]], [order[starts + 1]]
    order = order[left]
    if len(order):
        # Between a start and its end are whole intervals only. Without these, each end follows its start at one depth.
        number, is_start = number[left], is_start[order]
        depth = _depths(number, is_start)
        by_depth = np.lexsort((depth, number))
        starts, left = _followed(is_start[by_depth], number[by_depth], depth[by_depth])
        found.append(order[by_depth[starts]])
        ends.append(order[by_depth[starts + 1]])
        order = order[by_depth[left]]
    first, last = np.concatenate(found), np.concatenate(ends)
    in_order = np.argsort(first)
    return MatchedEnds(first[in_order], last[in_order], np.sort(order))


def _in_order(key: Sequence[Indices]) -> tuple[Indices, Indices]:
    """A number for the key of each edge, key after key; and the places of these edges."""
    number = one_key(key)
    if number.max() >= FEW_KEYS:
        number = distinct(number).place
    order = order_of_keys(number)
    return number[order], order


def _followed(is_start: Flags, *key: Indices) -> tuple[Indices, Indices]:
    """Places of starts that an end of the same key follows at once, and of what is left without both."""
    is_followed = np.append(is_start[:-1] & ~is_start[1:], False)
    for number in key:
        is_followed[:-1] &= number[1:] == number[:-1]
    starts = np.flatnonzero(is_followed)
    is_followed[starts + 1] = True
    return starts, np.flatnonzero(~is_followed)


def _depths(number: Indices, is_start: Flags) -> Indices:
    """How deep each edge is nested, 1 for the outermost, of edges key after key: the depth of an end is that of its start."""
    depth = np.cumsum(np.where(is_start, 1, -1))
    depth[~is_start] += 1
    first = np.flatnonzero(differ_from_before(number))
    before = depth[first] - is_start[first]
    found: Indices = depth - np.repeat(before, np.diff(first, append=len(number)))
    return found


@lru_cache(1 << 18)
def is_interval(number: int) -> bool:
    """Whether events of this type start and end intervals; False for a type that is not one of nsys2prv."""
    event_type = type_of(number)
    return event_type is not None and event_type.role is event_types.Role.INTERVAL
