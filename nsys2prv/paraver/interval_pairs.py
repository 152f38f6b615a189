"""Starts and ends of intervals (event type with a value, the same type with 0) to intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from nsys2prv.paraver.keys import one_number
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
    nest in (such as row and event type), and others.
    """
    # Edges of one key in their order, one key after the other.
    by_key = edges.select("time", is_start=pl.col("value") != 0, key=one_number(edges, key)).with_row_index("order")
    by_key = by_key.sort("key", maintain_order=True)
    # The depth of an end is that of its start. Between the two there is no other edge of this depth, so after a stable sort
    # by depth each end follows its start; an end that is first of its depth has none.
    depth = pl.when("is_start").then(1).otherwise(-1).cum_sum() + (~pl.col("is_start")).cast(pl.Int64)
    by_key = by_key.with_columns(depth=depth, key=pl.col("key").rle_id())
    before = by_key.group_by("key", maintain_order=True).agg(
        pl.col("depth").first() - pl.col("is_start").first().cast(pl.Int64)
    )
    by_key = by_key.with_columns(pl.col("depth") - before["depth"].gather(by_key["key"]))
    by_depth = by_key.with_columns(place=one_number(by_key, ("key", "depth"))).sort("place", maintain_order=True)
    is_end = ~pl.col("is_start") & (pl.col("place") == pl.col("place").shift(1)) & pl.col("is_start").shift(1)
    by_depth = by_depth.with_columns(end=pl.col("time").shift(-1), is_closed=is_end.shift(-1, fill_value=False), is_end=is_end)
    starts = by_depth.filter("is_start")
    closed = starts.filter("is_closed").sort("order")
    orphans = by_depth.filter(~pl.col("is_start") & ~pl.col("is_end").fill_null(False)).sort("order")
    return PairedIntervals(
        edges[closed["order"]].with_columns(closed["end"], closed["depth"]),
        edges[starts.filter(~pl.col("is_closed")).sort("order")["order"]],
        edges[orphans["order"]],
    )


@lru_cache(1 << 18)
def is_interval(number: int) -> bool:
    """Whether events of this type start and end intervals; False for a type that is not one of nsys2prv."""
    event_type = type_of(number)
    return event_type is not None and event_type.role is event_types.Role.INTERVAL
