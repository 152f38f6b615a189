"""Messages as constraints on clocks: none arrives before it was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.timeline.rank_messages import Messages

Floats = NDArray[np.float64]

WAY_SCHEMA = {"clock": pl.Int64, "to_clock": pl.Int64, "shortest": pl.Int64}
"""The shortest time, ns, that a message was on its way from ranks of one clock to ranks of another; negative: it can't be."""

_LEAST_WAY = 100.0
"""ns; no message is faster."""
_ROUNDS = 300
_SETTLED = 0.1
"""ns that nothing moves any more."""


def messages_between(
    anchors: Sequence[SyncPoints],
    on_axis: Sequence[Callable[[pl.Expr], pl.Expr]],
    clocks: Sequence[int],
    folder: Path,
) -> Iterator[pl.DataFrame]:
    """Messages from ranks of one clock to ranks of another.

    Parameters
    ----------
    anchors
        Of each report, with the ends of its messages.
    on_axis
        Of each report, what makes times of the axis of its own.
    clocks
        Number of each report's clock.
    folder
        For intermediate files.

    Yields
    ------
    Columns `row`, `to_row` (numbers of the clocks), `time` and `to_time` (when it was sent, and when the call ended that
    received it; ns of the axis), among others.
    """
    messages = Messages(folder)
    for of_report, placed, clock in zip(anchors, on_axis, clocks, strict=True):
        for ends in of_report.message_ends():
            messages.add(ends.with_columns(placed(pl.col("start")), placed(pl.col("end")), row=pl.lit(clock, pl.Int64)))
    for met in messages.matched_ends():
        yield met.filter(pl.col("row") != pl.col("to_row")).drop_nulls(["time", "to_time"])


def min_latencies(messages: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """How long messages were on their way at least, between each two clocks.

    Parameters
    ----------
    messages
        As `messages_between` gives them.

    Returns
    -------
    Columns of WAY_SCHEMA.
    """
    ways = pl.DataFrame(schema=WAY_SCHEMA)
    for met in messages:
        found = met.select(clock="row", to_clock="to_row", shortest=pl.col("to_time") - pl.col("time"))
        ways = pl.concat([ways, found]).group_by("clock", "to_clock").agg(pl.col("shortest").min())
    return ways.sort("clock", "to_clock")


def enforce_causality(ways: pl.DataFrame, precision: Floats) -> Floats:
    """What is to be subtracted from each clock, so that no message arrives before it was sent.

    The smallest movements that do it, weighted by how well each clock is known. Clocks of which nothing is known follow the
    others: these move first, and only as far as all ways between them ask for, those by way of unknown clocks too.

    Parameters
    ----------
    ways
        Columns of WAY_SCHEMA.
    precision
        Weight of each clock, 0 for one that is not known.

    Returns
    -------
    ns, one per clock.
    """
    limits = _limits(ways)
    moved = np.zeros(len(precision))
    if all(limit >= 0 for limit in limits.values()):
        return moved
    unknown = [clock for clock, known in enumerate(precision) if known == 0]
    between = _without(limits, unknown)
    if between:
        yielding = np.divide(precision.max(), precision, where=precision > 0, out=np.zeros(len(precision)))
        moved = _move(moved, between, yielding)
    return _settle(_move(moved, limits, (precision == 0).astype(np.float64)), limits)


_Limits = dict[tuple[int, int], float]
"""How far, ns, the second of two clocks may be moved further than the first."""


def _limits(ways: pl.DataFrame) -> _Limits:
    way = {(clock, to_clock): float(shortest) for clock, to_clock, shortest in ways.select(list(WAY_SCHEMA)).iter_rows()}
    limits = {}
    for (clock, to_clock), shortest in way.items():
        back = way.get((to_clock, clock), np.inf)
        # Where the two directions can't both be right, because a clock drifts or jumps, both are made wrong by the same.
        limits[clock, to_clock] = (shortest - back) / 2 if shortest + back < 2 * _LEAST_WAY else shortest - _LEAST_WAY
    return limits


def _without(limits: _Limits, clocks: Sequence[int]) -> _Limits:
    """What the limits mean for the other clocks alone."""
    left = dict(limits)
    for clock in clocks:
        into = [(source, limit) for (source, destination), limit in left.items() if destination == clock]
        out = [(destination, limit) for (source, destination), limit in left.items() if source == clock]
        left = {pair: limit for pair, limit in left.items() if clock not in pair}
        for source, first in into:
            for destination, second in out:
                if source != destination:
                    left[source, destination] = min(left.get((source, destination), np.inf), first + second)
    return left


def _move(moved: Floats, limits: _Limits, yielding: Floats) -> Floats:
    """Moves clocks, each in proportion to how much it yields, until the limits are kept.

    Hildreth's method for a quadratic problem: one limit after the other, and what a limit did is taken back when the others no
    longer need it. Limits between clocks that don't yield are left alone.
    """
    moved = moved.copy()
    active = [
        (source, destination, limit, float(yielding[source]), float(yielding[destination]))
        for (source, destination), limit in limits.items()
        if yielding[source] + yielding[destination] > 0
    ]
    held = [0.0] * len(active)
    for _ in range(_ROUNDS):
        largest = 0.0
        for place, (source, destination, limit, of_source, of_destination) in enumerate(active):
            excess = moved[destination] - moved[source] - limit
            step = max(excess / (of_source + of_destination), -held[place])
            if step:
                held[place] += step
                moved[destination] -= step * of_destination
                moved[source] += step * of_source
                largest = max(largest, abs(step) * (of_source + of_destination))
        if largest < _SETTLED:
            break
    return moved


def _settle(moved: Floats, limits: _Limits) -> Floats:
    """Takes off what `_move` left: where clocks are known very differently well, it comes near to the limits but slowly."""
    clock, to_clock = (np.array([pair[end] for pair in limits], dtype=np.int64) for end in (0, 1))
    limit = np.array(list(limits.values()))
    settled: Floats = moved.copy()
    # A chain of limits is as long as there are clocks, or the limits contradict each other.
    for _ in range(len(moved) + 1):
        before = settled.copy()
        np.minimum.at(settled, to_clock, before[clock] + limit)
        if (before - settled).max() < _SETTLED:
            return settled
    return moved
