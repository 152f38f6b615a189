"""Causality: clocks are moved by as little as possible until bounds are kept, as no message arrives before it was sent."""

from __future__ import annotations

import numpy as np

from nsys2prv.clocks.bounds import shortest_ways
from nsys2prv.clocks.shared_events import Floats

_ROUNDS = 300
_SETTLED = 0.1
"""ns; smaller moves count as none."""
_MOST_ADDED = 50
"""How often bounds that moves violated are added."""


def enforce_bounds(ahead: Floats, precision: Floats) -> Floats:
    """What to subtract from each clock, so that bounds are kept.

    These are the smallest moves, weighted by how well each clock is known. Clocks of which nothing is known follow the others:
    the others move first, and only as far as the bounds between them require, including those by way of unknown clocks.

    Parameters
    ----------
    ahead
        (clocks, clocks): by how much the second clock may be ahead of the first at most, ns; infinite where nothing bounds it.
    precision
        Weight of each clock, 0 for one that is not known.

    Returns
    -------
    ns, one per clock. Where bounds contradict each other, they are violated by about the same.
    """
    moves = np.zeros(len(precision))
    if not len(ahead) or ahead.min() >= 0:
        return moves
    bounds = _possible(ahead)
    is_known = precision > 0
    if is_known.any():
        mobility = np.divide(precision.max(), precision, where=is_known, out=np.zeros(len(precision)))
        between_known = np.where(is_known[:, None] & is_known[None, :], bounds, np.inf)
        moves = _moved(moves, between_known, mobility)
    return _settled(_moved(moves, bounds, (~is_known).astype(np.float64)), bounds)


def _possible(ahead: Floats) -> Floats:
    """Bounds that do not contradict each other, with those that follow from them.

    Where both directions cannot be right, because a clock drifts or jumps, both get the same error.
    """
    both = ahead + ahead.T
    finite = np.isfinite(both)
    apart = np.subtract(ahead, ahead.T, where=finite, out=np.zeros_like(ahead))
    bounds = np.where(finite & (both < 0), apart / 2, ahead)
    np.fill_diagonal(bounds, 0)
    ways = shortest_ways(bounds)
    # A contradiction by way of a third clock: only the bounds themselves are used then.
    return bounds if (np.diagonal(ways) < -_SETTLED).any() else ways


def _moved(moves: Floats, bounds: Floats, mobility: Floats) -> Floats:
    """Moves clocks, each in proportion to its mobility, until the bounds are kept.

    Hildreth's method for a quadratic problem: one bound after the other, and what a bound did is undone when the others no
    longer need it. Bounds between clocks without mobility are skipped, and so are those that are never violated.
    """
    start, active = moves, np.zeros(bounds.shape, dtype=bool)
    can_move = (mobility[:, None] + mobility[None, :]) > 0
    for _ in range(_MOST_ADDED):
        excess = moves[None, :] - moves[:, None] - bounds
        violated = can_move & (excess > _SETTLED)
        if not (violated & ~active).any():
            break
        active |= violated
        moves = _kept(start, bounds, mobility, active)
    return moves


def _kept(moves: Floats, bounds: Floats, mobility: Floats, active: np.ndarray) -> Floats:
    moves = moves.copy()
    pairs = [
        (source, destination, float(bounds[source, destination]), float(mobility[source]), float(mobility[destination]))
        for source, destination in np.argwhere(active).tolist()
    ]
    held = [0.0] * len(pairs)
    for _ in range(_ROUNDS):
        largest = 0.0
        for place, (source, destination, bound, of_source, of_destination) in enumerate(pairs):
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


def _settled(moves: Floats, bounds: Floats) -> Floats:
    """Removes what `_moved` left: where precisions differ much, it comes near to the bounds only slowly."""
    settled: Floats = moves.copy()
    # A chain of bounds has as many links as there are clocks, unless the bounds contradict each other.
    for _ in range(len(moves) + 1):
        before = settled
        settled = np.minimum(before, (before[:, None] + bounds).min(axis=0))
        if (before - settled).max() < _SETTLED:
            return settled
    return moves
