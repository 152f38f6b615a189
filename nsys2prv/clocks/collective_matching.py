"""Which calls of different ranks are the same collective: their ends tie clocks together.

Each rank has sequences of collectives: the kernels of NCCL on a stream, the calls of MPI on a communicator. Nothing in a
report says which sequences belong together, and rows may be missing, so sequences are matched by their times: at the right
shift of two clocks the ends of a sequence lie on those of the other, all of them within microseconds; at a wrong one, by an
iteration say, they do not, because no two iterations take equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FARTHEST_SHIFT = 15e9
"""Clocks differ by less than this, ns, before they are aligned."""
FASTEST_DRIFT = 2e-4
"""A clock that goes wrong by more is broken."""

_FIRST = 48
"""Collectives from which a shift is found; then twice as many are looked at, and again."""
_AS_CLOSE = 60e3
"""ns between ends of one collective on two ranks, before anything is known of the noise."""
_CLOSEST = 20e3
_NOISIEST = 300e3
"""Median distance, ns, above which two sequences are not the same."""
_CANDIDATES = 6
_LEAST_SHARE = 0.5
"""Share of the shorter sequence's collectives that must be found in the other."""
_LEAST_MATCHED = 6


@dataclass(frozen=True)
class Collectives:
    """Collectives of one rank in the order of their ends.

    Attributes
    ----------
    owner
        Number of the process.
    host
        Number of its host.
    kind
        Sequences of different kinds are never the same ("nccl", or "mpi" and the communicator).
    time
        Ends, by a clock that is roughly right, ns.
    name
        What it is: equal numbers for equal names.
    """

    owner: int
    host: int
    kind: str
    time: Ints
    name: Ints


def match(first: Collectives, second: Collectives) -> tuple[Ints, Ints, float] | None:
    """Places of equal collectives in two sequences, and the median distance of their ends (ns); None: not the same."""
    if min(len(first.time), len(second.time)) < _LEAST_MATCHED:
        return None
    best: tuple[Ints, Ints, float] | None = None
    for shift, start, stop in _shifts(first, second):
        found = _follow(first, second, shift, start, stop)
        if found is None or found[2] > _NOISIEST:
            continue
        if best is None or (len(found[0]) > 1.2 * len(best[0])) or (len(found[0]) > 0.8 * len(best[0]) and found[2] < best[2]):
            best = found
    if best is None or len(best[0]) < _LEAST_SHARE * min(len(first.time), len(second.time)):
        return None
    return best


def _shifts(first: Collectives, second: Collectives) -> list[tuple[float, int, int]]:
    """Likely shifts between two clocks, each with the stretch of `first` that it was found from."""
    found: list[tuple[float, int, int]] = []
    # In the middle, where the other is there too; else at the begin.
    for middle in (len(first.time) // 2, min(_FIRST // 2, len(first.time) // 2)):
        start = max(min(middle - _FIRST // 2, len(first.time) - _FIRST), 0)
        stop = min(start + _FIRST, len(first.time))
        times, names = first.time[start:stop].astype(np.float64), first.name[start:stop]
        low, high = np.searchsorted(second.time, [times[0] - FARTHEST_SHIFT, times[-1] + FARTHEST_SHIFT])
        others, other_names = second.time[low:high].astype(np.float64), second.name[low:high]
        distance = (others[None, :] - times[:, None])[names[:, None] == other_names[None, :]]
        distance = np.sort(distance[np.abs(distance) <= FARTHEST_SHIFT])
        if not len(distance):
            continue
        width = _AS_CLOSE + FASTEST_DRIFT * (times[-1] - times[0])
        together = np.searchsorted(distance, distance + width, side="right") - np.arange(len(distance))
        for _ in range(_CANDIDATES):
            peak = int(np.argmax(together))
            if together[peak] < min(_LEAST_MATCHED, stop - start):
                break
            found.append((float(np.median(distance[peak : peak + together[peak]])), start, stop))
            together[np.abs(distance - distance[peak]) <= 2 * width] = 0
        if found:
            break
    return found


def _follow(first: Collectives, second: Collectives, shift: float, start: int, stop: int) -> tuple[Ints, Ints, float] | None:
    """Match a stretch, learn shift and drift from it, go on with twice the stretch."""
    origin = float(first.time[start])
    drift, tolerance = 0.0, _AS_CLOSE + FASTEST_DRIFT * float(first.time[stop - 1] - first.time[start])
    while True:
        here, there = _nearest(first, second, start, stop, shift, drift, origin, tolerance)
        if len(here) < max(_LEAST_MATCHED, _LEAST_SHARE / 2 * (stop - start)):
            return None
        time = (first.time[here] - origin).astype(np.float64)
        shift, drift = _line(time, (second.time[there] - first.time[here]).astype(np.float64))
        if abs(drift) > FASTEST_DRIFT:
            return None
        error = float(np.median(np.abs(second.time[there] - first.time[here] - shift - drift * time)))
        tolerance = max(8 * error, _CLOSEST)
        if start == 0 and stop == len(first.time):
            break
        more = stop - start
        start, stop = max(start - more, 0), min(stop + more, len(first.time))
    # Once more with what the whole tells.
    here, there = _nearest(first, second, start, stop, shift, drift, origin, max(10 * error, _CLOSEST))
    return (here, there, error) if len(here) >= _LEAST_MATCHED else None


def _nearest(
    first: Collectives, second: Collectives, start: int, stop: int, shift: float, drift: float, origin: float, tolerance: float
) -> tuple[Ints, Ints]:
    """Pairs that lie next to each other under a shift and a drift, each collective in one pair at most."""
    time = first.time[start:stop]
    expected = time + shift + drift * (time - origin)
    behind = np.clip(np.searchsorted(second.time, expected), 1, max(len(second.time) - 1, 1))
    before = behind - 1
    behind = np.minimum(behind, len(second.time) - 1)
    nearer = np.where(np.abs(second.time[before] - expected) <= np.abs(second.time[behind] - expected), before, behind)
    distance = np.abs(second.time[nearer] - expected)
    fits = (distance <= tolerance) & (first.name[start:stop] == second.name[nearer])
    here, there = np.flatnonzero(fits) + start, nearer[fits]
    _, once = np.unique(there, return_index=True)
    return here[once], there[once]


def _line(time: Floats, value: Floats) -> tuple[float, float]:
    """A robust line: the slope between the medians of the outer thirds, the median of what is left."""
    third = max(len(time) // 3, 1)
    span = float(np.median(time[-third:]) - np.median(time[:third]))
    drift = float(np.median(value[-third:]) - np.median(value[:third])) / span if span > 0 and len(time) >= 3 else 0.0
    return float(np.median(value - drift * time)), drift


def match_collectives(sequences: Sequence[Collectives]) -> tuple[Ints, Ints, Ints]:
    """Meetings of ranks.

    Parameters
    ----------
    sequences
        Of all ranks.

    Returns
    -------
    Number of the meeting, number of the host, time: one entry for each collective of a rank that was found at another one.
    """
    left = sorted(range(len(sequences)), key=lambda index: -len(sequences[index].time))
    meetings: list[Ints] = []
    hosts: list[Ints] = []
    times: list[Ints] = []
    count = 0
    while left:
        reference = sequences[left.pop(0)]
        joined: set[int] = {reference.owner}
        members: list[tuple[Collectives, Ints, Ints]] = []
        rest = []
        for index in left:
            other = sequences[index]
            found = None
            if other.kind == reference.kind and other.owner not in joined and _alike(reference, other):
                found = match(reference, other)
            if found is None:
                rest.append(index)
                continue
            joined.add(other.owner)
            members.append((other, found[0], found[1]))
        left = rest
        if not members:
            continue
        own = np.unique(np.concatenate([here for _, here, _ in members]))
        for sequence, here, there in [(reference, own, own), *members]:
            meetings.append(count + here)
            hosts.append(np.full(len(here), sequence.host, dtype=np.int64))
            times.append(sequence.time[there])
        count += len(reference.time)
    if not meetings:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    return np.concatenate(meetings), np.concatenate(hosts), np.concatenate(times)


def _alike(first: Collectives, second: Collectives) -> bool:
    """Whether two sequences have about the same names about as often."""
    names = np.unique(np.concatenate([first.name, second.name]))
    counts = [np.bincount(np.searchsorted(names, one.name), minlength=len(names)) for one in (first, second)]
    common = float(np.minimum(*counts).sum())
    return common >= _LEAST_SHARE * min(len(first.name), len(second.name))
