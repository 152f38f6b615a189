"""Anchors of clocks: how many collectives and messages tie each, and how many of them are unusually far from it."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from nsys2prv.clocks.host_clock import AnchorCount
from nsys2prv.sources.communication.collectives import ALL

_OUTLIER = 6.0
"""An anchor that is off by more than this many times the usual is an outlier."""
_USUAL = 10e3
"""ns; ends of a collective are usually not closer."""
MESSAGES = "messages"


def count_anchors(collectives: pl.DataFrame, messages: Iterable[pl.DataFrame]) -> dict[int, dict[str, AnchorCount]]:
    """Anchors of each clock, by kind.

    Parameters
    ----------
    collectives
        Columns `event`, `clock`, `end` (ns of the axis), `rule`, `kind`. One that ties ranks in one direction only is none.
    messages
        Columns `clock`, `to_clock`, `time`, `to_time`, `doubt`. One that arrives before it was sent is an outlier.
    """
    anchors = (
        collectives.filter(pl.col("rule") == ALL)
        .filter(pl.col("clock").n_unique().over("event") > 1)
        .group_by("event", "clock", "kind")
        .agg(pl.col("end").min())
        .with_columns(off=(pl.col("end") - pl.col("end").median().over("event")).abs())
        .with_columns(usual=pl.col("off").median().over("kind").clip(lower_bound=_USUAL))
        .group_by("clock", "kind")
        .agg(every=pl.len(), outliers=(pl.col("off") > _OUTLIER * pl.col("usual")).sum())
    )
    found: dict[int, dict[str, AnchorCount]] = {}
    for clock, kind, every, outliers in anchors.sort("clock", "kind").iter_rows():
        found.setdefault(clock, {})[kind] = AnchorCount(every - outliers, outliers)
    for clock, every, outliers in _of_messages(messages).iter_rows():
        found.setdefault(clock, {})[MESSAGES] = AnchorCount(every - outliers, outliers)
    return found


def _of_messages(messages: Iterable[pl.DataFrame]) -> pl.DataFrame:
    counts = pl.DataFrame(schema=dict.fromkeys(("clock", "every", "outliers"), pl.Int64))
    for piece in messages:
        between = piece.filter(pl.col("clock") != pl.col("to_clock"))
        is_outlier = (pl.col("to_time") + pl.col("doubt") < pl.col("time")).cast(pl.Int64)
        ends = [between.select(clock=clock, every=pl.lit(1, pl.Int64), outliers=is_outlier) for clock in ("clock", "to_clock")]
        counts = pl.concat([counts, *ends]).group_by("clock").agg(pl.col("every").sum(), pl.col("outliers").sum())
    return counts.sort("clock")
