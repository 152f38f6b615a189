"""Collectives: which calls of different ranks are the same one. Their ends tie clocks together.

Each rank has sequences of collectives: the kernels of NCCL on a stream, the calls of MPI on a communicator. Reports do not say
which sequences belong together, and rows may be missing, so sequences are matched by their times. With the right shift between
two clocks the ends of both sequences agree to microseconds; with a wrong one, such as that of an iteration, they do not,
because no two iterations take equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nsys2prv.clocks.shared_events import Floats, Ints, SharedEvents

FARTHEST_SHIFT = 15e9
"""Clocks differ by less than this, ns, before they are aligned."""
FASTEST_DRIFT = 2e-4
"""A clock with a larger drift is broken."""

_FIRST = 48
"""Collectives that a shift is found from; then their number is doubled again and again."""
_AS_CLOSE = 60e3
"""ns between ends of one collective on two ranks, before the noise is known."""
_LEAST_TOLERANCE = 20e3
"""ns between ends of one collective on two ranks, however small the noise is."""
_MOST_NOISE = 300e3
"""Median distance, ns, above which two sequences are not the same."""
_CANDIDATES = 6
_LEAST_SHARE = 0.5
"""Least share of the collectives of the shorter sequence that are found in the other."""
_LEAST_MATCHED = 6


@dataclass(frozen=True)
class CollectiveSequence:
    """Collectives of one rank in the order of their ends, with the numbers of its process and clock.

    Sequences of different kinds are never the same ("nccl", or "mpi" and the communicator). `time` has the ends by a clock that
    is roughly right, ns, and `name` equal numbers for equal names.
    """

    process: int
    clock: int
    kind: str
    time: Ints
    name: Ints


@dataclass(frozen=True)
class SequenceMatch:
    """Places of equal collectives in two sequences; `error` is the median distance of their ends after shift and drift, ns."""

    first: Ints
    second: Ints
    error: float

    def __len__(self) -> int:
        return len(self.first)


def match_sequences(first: CollectiveSequence, second: CollectiveSequence) -> SequenceMatch | None:
    """Equal collectives of two sequences; None: they are not of the same communicator."""
    shorter = min(len(first.time), len(second.time))
    if shorter < _LEAST_MATCHED:
        return None
    best: SequenceMatch | None = None
    for shift, start, stop in _shifts(first, second):
        match = _follow(first, second, shift, start, stop)
        if match is None or match.error > _MOST_NOISE:
            continue
        if best is None or len(match) > 1.2 * len(best) or (len(match) > 0.8 * len(best) and match.error < best.error):
            best = match
    return best if best is not None and len(best) >= _LEAST_SHARE * shorter else None


def _shifts(first: CollectiveSequence, second: CollectiveSequence) -> list[tuple[float, int, int]]:
    """Likely shifts between two clocks, each with the part of `first` that it was found from."""
    found: list[tuple[float, int, int]] = []
    # In the middle, where the other sequence most likely has them too; otherwise at the start.
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


def _follow(first: CollectiveSequence, second: CollectiveSequence, shift: float, start: int, stop: int) -> SequenceMatch | None:
    """Match a part, estimate shift and drift from it, continue with a part of twice the size."""
    origin = float(first.time[start])
    drift, tolerance = 0.0, _AS_CLOSE + FASTEST_DRIFT * float(first.time[stop - 1] - first.time[start])
    while True:
        own, other = _nearest(first, second, start, stop, shift, drift, origin, tolerance)
        if len(own) < max(_LEAST_MATCHED, _LEAST_SHARE / 2 * (stop - start)):
            return None
        time = (first.time[own] - origin).astype(np.float64)
        shift, drift = _line(time, (second.time[other] - first.time[own]).astype(np.float64))
        if abs(drift) > FASTEST_DRIFT:
            return None
        error = float(np.median(np.abs(second.time[other] - first.time[own] - shift - drift * time)))
        tolerance = max(8 * error, _LEAST_TOLERANCE)
        if start == 0 and stop == len(first.time):
            break
        more = stop - start
        start, stop = max(start - more, 0), min(stop + more, len(first.time))
    # Once more with shift and drift of the whole.
    own, other = _nearest(first, second, start, stop, shift, drift, origin, max(10 * error, _LEAST_TOLERANCE))
    return SequenceMatch(own, other, error) if len(own) >= _LEAST_MATCHED else None


def _nearest(
    first: CollectiveSequence,
    second: CollectiveSequence,
    start: int,
    stop: int,
    shift: float,
    drift: float,
    origin: float,
    tolerance: float,
) -> tuple[Ints, Ints]:
    """Pairs of collectives that are close under a shift and a drift, each collective in one pair at most."""
    time = first.time[start:stop]
    expected = time + shift + drift * (time - origin)
    behind = np.clip(np.searchsorted(second.time, expected), 1, max(len(second.time) - 1, 1))
    before = behind - 1
    behind = np.minimum(behind, len(second.time) - 1)
    nearer = np.where(np.abs(second.time[before] - expected) <= np.abs(second.time[behind] - expected), before, behind)
    distance = np.abs(second.time[nearer] - expected)
    fits = (distance <= tolerance) & (first.name[start:stop] == second.name[nearer])
    own, other = np.flatnonzero(fits) + start, nearer[fits]
    _, once = np.unique(other, return_index=True)
    return own[once], other[once]


def _line(time: Floats, value: Floats) -> tuple[float, float]:
    """A robust line: the slope between the medians of the outer thirds, then the median of the remainders."""
    third = max(len(time) // 3, 1)
    span = float(np.median(time[-third:]) - np.median(time[:third]))
    drift = float(np.median(value[-third:]) - np.median(value[:third])) / span if span > 0 and len(time) >= 3 else 0.0
    return float(np.median(value - drift * time)), drift


def match_collectives(sequences: Sequence[CollectiveSequence]) -> SharedEvents:
    """Collectives that were found on two ranks or more, of the sequences of all ranks."""
    left = sorted(range(len(sequences)), key=lambda index: -len(sequences[index].time))
    groups: list[SharedEvents] = []
    count = 0
    while left:
        reference = sequences[left.pop(0)]
        processes = {reference.process}
        members: list[tuple[CollectiveSequence, Ints, Ints]] = []
        rest = []
        for index in left:
            other = sequences[index]
            matched = None
            if other.kind == reference.kind and other.process not in processes and _have_similar_names(reference, other):
                matched = match_sequences(reference, other)
            if matched is None:
                rest.append(index)
                continue
            processes.add(other.process)
            members.append((other, matched.first, matched.second))
        left = rest
        if not members:
            continue
        matched_places = np.unique(np.concatenate([places for _, places, _ in members]))
        for sequence, event, place in [(reference, matched_places, matched_places), *members]:
            clock = np.full(len(event), sequence.clock, dtype=np.int64)
            groups.append(SharedEvents(count + event, clock, sequence.time[place]))
        count += len(reference.time)
    return SharedEvents.joined(*groups)


def _have_similar_names(first: CollectiveSequence, second: CollectiveSequence) -> bool:
    """Whether two sequences have mostly the same names, about equally often."""
    names = np.unique(np.concatenate([first.name, second.name]))
    counts = [np.bincount(np.searchsorted(names, one.name), minlength=len(names)) for one in (first, second)]
    common = float(np.minimum(*counts).sum())
    return common >= _LEAST_SHARE * min(len(first.name), len(second.name))
