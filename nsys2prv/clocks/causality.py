"""Causality: messages bound clocks, as none arrives before it was sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from nsys2prv.clocks.shared_events import Floats

LATENCY_SCHEMA = {"clock": pl.Int64, "to_clock": pl.Int64, "shortest": pl.Int64}
"""The shortest latency, ns, of messages from ranks of one clock to ranks of another, by these clocks; it is negative where the
clocks do not fit."""

_LEAST_LATENCY = 100.0
"""ns; no message is faster."""
_ROUNDS = 300
_SETTLED = 0.1
"""ns; smaller moves count as none."""


def min_latencies(messages: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The shortest latency of messages between each two clocks, in each direction.

    Parameters
    ----------
    messages
        As of `align.messages_between_clocks`.

    Returns
    -------
    Columns of LATENCY_SCHEMA.
    """
    latencies = pl.DataFrame(schema=LATENCY_SCHEMA)
    for piece in messages:
        of_piece = piece.select(clock="row", to_clock="to_row", shortest=pl.col("to_time") - pl.col("time"))
        latencies = pl.concat([latencies, of_piece]).group_by("clock", "to_clock").agg(pl.col("shortest").min())
    return latencies.sort("clock", "to_clock")


def enforce_causality(latencies: pl.DataFrame, precision: Floats) -> Floats:
    """What to subtract from each clock, so that no message arrives before it was sent.

    These are the smallest moves, weighted by how well each clock is known. Clocks of which nothing is known follow the others:
    the others move first, and only as far as the bounds between them require, including those by way of unknown clocks.

    Parameters
    ----------
    latencies
        Columns of LATENCY_SCHEMA.
    precision
        Weight of each clock, 0 for one that is not known.

    Returns
    -------
    ns, one per clock.
    """
    bounds = _bounds(latencies)
    moves = np.zeros(len(precision))
    if all(bound >= 0 for bound in bounds.values()):
        return moves
    unknown = [clock for clock, weight in enumerate(precision) if weight == 0]
    between_known = _without(bounds, unknown)
    if between_known:
        mobility = np.divide(precision.max(), precision, where=precision > 0, out=np.zeros(len(precision)))
        moves = _move(moves, between_known, mobility)
    return _settle(_move(moves, bounds, (precision == 0).astype(np.float64)), bounds)


_Bounds = dict[tuple[int, int], float]
"""By how much, ns, the second of two clocks may be moved further than the first."""


def _bounds(latencies: pl.DataFrame) -> _Bounds:
    by_clocks = {
        (clock, to_clock): float(shortest) for clock, to_clock, shortest in latencies.select(list(LATENCY_SCHEMA)).iter_rows()
    }
    bounds = {}
    for (clock, to_clock), shortest in by_clocks.items():
        back = by_clocks.get((to_clock, clock), np.inf)
        # Where both directions cannot be right, because a clock drifts or jumps, both get the same error.
        is_possible = shortest + back >= 2 * _LEAST_LATENCY
        bounds[clock, to_clock] = shortest - _LEAST_LATENCY if is_possible else (shortest - back) / 2
    return bounds


def _without(bounds: _Bounds, clocks: Sequence[int]) -> _Bounds:
    """The bounds between the other clocks, with those that follow by way of the clocks left out."""
    kept = dict(bounds)
    for clock in clocks:
        into = [(source, bound) for (source, destination), bound in kept.items() if destination == clock]
        out = [(destination, bound) for (source, destination), bound in kept.items() if source == clock]
        kept = {pair: bound for pair, bound in kept.items() if clock not in pair}
        for source, first in into:
            for destination, second in out:
                if source != destination:
                    kept[source, destination] = min(kept.get((source, destination), np.inf), first + second)
    return kept


def _move(moves: Floats, bounds: _Bounds, mobility: Floats) -> Floats:
    """Moves clocks, each in proportion to its mobility, until the bounds are kept.

    Hildreth's method for a quadratic problem: one bound after the other, and what a bound did is undone when the others no
    longer need it. Bounds between clocks without mobility are skipped.
    """
    moves = moves.copy()
    active = [
        (source, destination, bound, float(mobility[source]), float(mobility[destination]))
        for (source, destination), bound in bounds.items()
        if mobility[source] + mobility[destination] > 0
    ]
    held = [0.0] * len(active)
    for _ in range(_ROUNDS):
        largest = 0.0
        for place, (source, destination, bound, of_source, of_destination) in enumerate(active):
            excess = moves[destination] - moves[source] - bound
            step = max(excess / (of_source + of_destination), -held[place])
            if step:
                held[place] += step
                moves[destination] -= step * of_destination
                moves[source] += step * of_source
                largest = max(largest, abs(step) * (of_source + of_destination))
        if largest < _SETTLED:
            break
    return moves


def _settle(moves: Floats, bounds: _Bounds) -> Floats:
    """Removes what `_move` left: where precisions differ much, it comes near to the bounds only slowly."""
    clock, to_clock = (np.array([pair[end] for pair in bounds], dtype=np.int64) for end in (0, 1))
    bound = np.array(list(bounds.values()))
    settled: Floats = moves.copy()
    # A chain of bounds has as many links as there are clocks, unless the bounds contradict each other.
    for _ in range(len(moves) + 1):
        before = settled.copy()
        np.minimum.at(settled, to_clock, before[clock] + bound)
        if (before - settled).max() < _SETTLED:
            return settled
    return moves
