"""Starts and ends of intervals (event type with a value, the same type with 0) to intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

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
    is_start = pl.col("value") != 0
    # The depth of an end is that of its start. Between the two there is no other edge of this depth, so after a stable sort
    # by depth each end follows its start; an end that is first of its depth has none.
    edges_by_depth = (
        edges.with_row_index("order")
        .with_columns(depth=pl.when(is_start).then(1).otherwise(-1).cum_sum().over(key) + (~is_start).cast(pl.Int64))
        .sort([*key, "depth"], maintain_order=True)
        .with_columns(
            end=pl.col("time").shift(-1),
            closed=(
                (pl.struct(*key, "depth") == pl.struct(*key, "depth").shift(-1)) & (pl.col("value").shift(-1) == 0)
            ).fill_null(False),
        )
    )
    starts = edges_by_depth.filter(is_start)
    orphans = edges_by_depth.filter(~is_start & ~pl.col("closed").shift(1, fill_value=False))
    return PairedIntervals(
        starts.filter("closed").sort("order").select(*edges.columns, "end", "depth"),
        starts.filter(~pl.col("closed")).sort("order").select(edges.columns),
        orphans.sort("order").select(edges.columns),
    )


@lru_cache(1 << 18)
def is_interval(number: int) -> bool:
    """Whether events of this type start and end intervals; False for a type that is not one of nsys2prv."""
    event_type = type_of(number)
    return event_type is not None and event_type.role is event_types.Role.INTERVAL
