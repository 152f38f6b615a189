"""How far apart ends of one collective are on the hosts, and what that says of their clocks.

All ranks end a collective at nearly the same time. Where ends of many collectives agree after clocks were aligned, the clocks
do. What remains is looked at in the order of time: ends of a host that are apart from those of the others for several
collectives in a row are an error of its clock, a single one is a rank that ended late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from nsys2prv.clocks.anchors import Floats, Ints, running_median
from nsys2prv.sources.communication.collectives import ALL

UNKNOWN_DRIFT = 1e-4
"""Quartz clocks of two hosts drift apart by less, if nothing else is known."""
LEAST_UNKNOWN_DRIFT = 5e-7
"""However well the drift over the whole run is known, clocks wander with their temperature."""
ENDS_APART_NS = 15e6
"""Ends of a single collective are not further apart between hosts."""
FEW = 5
"""Collectives from which nothing better than that is concluded."""

_OUTLIER = 6.0
"""An anchor that is off by more than this many times the usual is an outlier."""
_USUAL = 10e3
"""ns; ends of a collective are usually not closer."""
_TIMES_NOISE = 1.6
"""Ends of a host may be late in the same way each time, by as much as they vary."""
_VARIES = 90
"""Percentile of what ends vary by."""


def deviations(collectives: pl.DataFrame) -> pl.DataFrame:
    """How far the ends on each clock are from those on the others.

    Parameters
    ----------
    collectives
        As of `Anchors`, as placed. Those that tie ranks in one direction only do not count.

    Returns
    -------
    A row per collective and clock: `event`, `clock`, `communicator`, `kind`, `name`, `size`, `end`, `off` (how much later than
    the median of the clocks it ends, ns), and `is_outlier`: it is much further off than is usual for its kind.
    """
    off = pl.col("off").abs()
    return (
        collectives.filter(pl.col("rule") == ALL)
        .group_by("event", "clock")
        # A rank may end late because it was not running: not the latest of its host.
        .agg(pl.col("communicator", "kind", "name", "size").first(), pl.col("end").quantile(0.5, "lower").cast(pl.Int64))
        .filter(pl.len().over("event") > 1)
        .with_columns(off=pl.col("end") - pl.col("end").median().over("event"))
        .with_columns(is_outlier=off > _OUTLIER * off.median().over("kind").clip(lower_bound=_USUAL))
        .sort("clock", "end", "event")
    )


def count_anchors(ends: pl.DataFrame, messages: Iterable[pl.DataFrame], clocks: int) -> list[dict[str, dict[str, int]]]:
    """How many collectives (of `deviations`) and messages (as of `Anchors`, as placed) tie each of the clocks, and how many do
    not fit: `used`, `outliers` by kind. A message that arrives before it was sent is an outlier."""
    counts = [_counted(ends.select("clock", "kind", "is_outlier"))]
    for part in messages:
        between = part.filter(pl.col("clock") != pl.col("to_clock")).select(
            clock=pl.concat_list("clock", "to_clock"), kind=pl.lit("messages"), is_outlier=arrives_early()
        )
        counts.append(_counted(between.explode("clock")))
    anchors: list[dict[str, dict[str, int]]] = [{} for _ in range(clocks)]
    of_all = pl.concat(counts).group_by("clock", "kind").sum().sort("clock", "kind")
    for clock, kind, used, outliers in of_all.iter_rows():
        anchors[clock][kind] = {"used": used, "outliers": outliers}
    return anchors


def _counted(ends: pl.DataFrame) -> pl.DataFrame:
    is_outlier = pl.col("is_outlier")
    return ends.group_by("clock", "kind").agg(used=(~is_outlier).sum().cast(pl.Int64), outliers=is_outlier.sum().cast(pl.Int64))


def arrives_early() -> pl.Expr:
    """Whether a message arrives before it was sent."""
    return pl.col("to_time") + pl.col("doubt") < pl.col("time")


def usual_variation(off: Floats) -> float:
    """How far clocks may be apart though ends vary by no more than this about their usual distance, ns."""
    return _TIMES_NOISE * float(np.percentile(np.abs(off), _VARIES))


def widths_by_ends(ends: pl.DataFrame, times: Ints, clocks: int) -> Iterator[Floats]:
    """How far each clock may be from the others that take part in the same collectives.

    Parameters
    ----------
    ends
        As of `deviations`.
    times
        ns of the axis, rising. A width counts for all of the time between the neighbors of its time.
    clocks
        Number of clocks.

    Yields
    ------
    (times, clocks): ns, infinite for a clock without such ends; for each communicator, operation and size.
    """
    for _, of_kind in ends.group_by("communicator", "kind", "name", "size", maintain_order=True):
        numbers, begins = np.unique(of_kind["clock"].to_numpy(), return_index=True)
        parts = list(zip(*(np.split(of_kind[name].to_numpy(), begins[1:]) for name in ("end", "off")), strict=True))
        levels = [running_median(off) for _, off in parts]
        varies = np.concatenate([off - level for (_, off), level in zip(parts, levels, strict=True)])
        spread = usual_variation(varies)
        widths = np.full((len(times), clocks), np.inf)
        for clock, (end, _), level in zip(numbers, parts, levels, strict=True):
            few = ENDS_APART_NS * min(1.0, (FEW / len(end)) ** 4)
            widths[:, clock] = _width(times, end, np.abs(level), spread + few)
        yield widths


def _width(times: Ints, end: Ints, off: Floats, least: float) -> Floats:
    """How far a clock may be off at times, from its ends and how far each is off; ns."""
    # From one end to the next the clock may be as far off as at either.
    around = np.max(np.lib.stride_tricks.sliding_window_view(np.pad(off, 1, mode="edge"), 3), axis=1)
    neighbors = np.pad(times, 1, mode="edge")
    first = np.maximum(np.searchsorted(end, neighbors[:-2]) - 1, 0)
    last = np.minimum(np.searchsorted(end, neighbors[2:]), len(end) - 1)
    largest = np.array([around[begin : stop + 1].max() for begin, stop in zip(first, np.maximum(first, last), strict=True)])
    following = np.searchsorted(end, times)
    nearest = np.stack([end[np.maximum(following - 1, 0)], end[np.minimum(following, len(end) - 1)]])
    drift = np.clip(2 * least / max(end[-1] - end[0], 1), LEAST_UNKNOWN_DRIFT, UNKNOWN_DRIFT)
    width: Floats = largest + least + drift * np.abs(nearest - times).min(axis=0)
    return width
