"""Collectives of two ranks: which of one sequence are those of the other.

Rows may be missing, and clocks differ by unknown amounts, so times decide. With the right shift between two clocks the ends of
both sequences agree; with a wrong one, such as that of an iteration, few of them do, because no two iterations take equally
long. A match is sure when it explains much more than the second-best shift does. Where both have the same collectives in the
same number, counting is a candidate as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsys2prv.clocks.shared_events import Floats, Ints

FARTHEST_SHIFT = 15e9
"""Clocks differ by less than this, ns, before they are aligned."""
FASTEST_DRIFT = 2e-4
"""A clock with a larger drift is broken."""

FEW = 6
"""Fewer collectives are matched only by counting."""
_FEW_APART = 50e6
"""By how much the time between two of a few collectives may differ between ranks, ns: in real runs the same collective ends
up to 12 ms apart."""
_WINDOW = 24
"""Collectives that a shift is looked for with, and that are matched at once."""
PRECISIONS = (60e3, 1e6, 10e6)
"""ns between ends of one collective on two ranks: what is tried one after the other."""
_NEIGHBOURS = 6
"""Collectives, one after the other, during which a clock does not drift or jump in most cases."""
_LEAST_TOLERANCE = 20e3
"""ns between ends of one collective on two ranks, however small the noise is."""
_LEAST_NOISE = 5e3
"""ns; ends that are closer together say no more."""
_STEP = 50e6
"""A clock that jumps does not jump further, ns."""
_CANDIDATES = 5
_MOST_PAIRS = 40_000
"""Pairs of collectives that a shift is looked for with."""
_MOST_DRIFTS = 101
_LEAST_SHARE = 0.5
"""Least share of the collectives, in the time that both sequences cover, that match."""
_MOST_IMPOSSIBLE = 0.2
"""Share of such neighbours of which, at any shift, one rank ended one before the other began it: the clock drifts or jumps."""
_LEAST_SHARE_OF_LOOSE = 0.65
"""The same where ends are farther apart than the first of PRECISIONS: then half of them agree by chance now and then."""
_LEAST_OF_SHORTER = 0.3
"""Least share of the shorter sequence that matches."""
_LEAST_PEAK = 0.4
"""Least share of a window that a shift must explain to be looked at."""
_SECOND_BEST = 0.75
"""A match is ambiguous where another shift explains more than this share of what it explains."""


@dataclass(frozen=True)
class CollectiveSequence:
    """Collectives of one rank in the order of their ends, with the numbers of its process and clock.

    Sequences of different kinds are never the same ("nccl", or "mpi" and the communicator). `time` has the ends by a clock that
    is roughly right, ns, `start` the starts where they are known, and `name` equal numbers for what can be the same collective.
    `key` has, where it is known, a number that only the same collective has on other ranks; 0 where it is not.
    """

    process: int
    clock: int
    kind: str
    time: Ints
    name: Ints
    key: Ints | None = None
    start: Ints | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def has_keys(self) -> bool:
        """Whether keys of most collectives are known."""
        return self.key is not None and 2 * int(np.count_nonzero(self.key)) >= len(self)

    def at(self, places: Ints) -> CollectiveSequence:
        """Only some of the collectives."""
        key, start = (None if one is None else one[places] for one in (self.key, self.start))
        return replace(self, time=self.time[places], name=self.name[places], key=key, start=start)


@dataclass(frozen=True)
class SequenceMatch:
    """Places of equal collectives in two sequences.

    `error` is the median distance of their ends after the shift between the clocks, ns; `evidence` how much the match explains.
    """

    first: Ints
    second: Ints
    error: float
    evidence: float

    def __len__(self) -> int:
        return len(self.first)

    def inverse(self) -> SequenceMatch:
        """The same with the sequences exchanged."""
        return replace(self, first=self.second, second=self.first)


@dataclass(frozen=True)
class Ambiguous:
    """Two sequences that can be matched in several ways, none of which is sure."""

    candidates: int


def match_sequences(
    first: CollectiveSequence, second: CollectiveSequence, precision: float = PRECISIONS[0]
) -> SequenceMatch | Ambiguous | None:
    """Equal collectives of two sequences whose clocks differ by an unknown shift.

    Parameters
    ----------
    first, second
        Sequences of two processes.
    precision
        Distance of ends of one collective, ns, up to which they are recognized: one of PRECISIONS.

    Returns
    -------
    None: they are not of the same communicator, or its ends are farther apart.
    """
    exact = _by_key(first, second)
    if exact is not None:
        return exact
    if min(len(first), len(second)) < FEW:
        return None
    if len(first) > len(second):
        exchanged = match_sequences(second, first, precision)
        return exchanged.inverse() if isinstance(exchanged, SequenceMatch) else exchanged
    found = _followed(first, second, precision)
    best = _best(found)
    counted = match_by_count(first, second)
    if counted is None or counted.error > PRECISIONS[-1] or not _is_enough(first, second, counted):
        return best
    # Where both ranks have the same collectives, they are the same ones, unless another match is clearly better.
    evidence = max((match.evidence for match in found), default=0.0)
    is_likely = counted.evidence > max(_SECOND_BEST * evidence, 0.0)
    return counted if is_likely and (counted.error <= precision or isinstance(best, Ambiguous)) else best


def match_at_shift(
    first: CollectiveSequence, second: CollectiveSequence, expected: Floats, tolerance: float
) -> SequenceMatch | None:
    """Equal collectives of two sequences where the shift between their clocks is known.

    Parameters
    ----------
    expected
        When each collective of the first should end in the second, ns.
    tolerance
        Distance of ends, ns, up to which they are taken for the same.
    """
    exact = _by_key(first, second)
    if exact is not None:
        return exact
    some = np.linspace(0, len(first) - 1, min(len(first), 4 * _WINDOW)).astype(np.int64)
    inside = some[(expected[some] >= second.time[0] - tolerance) & (expected[some] <= second.time[-1] + tolerance)]
    # Most sequences are of other communicators: a few collectives show it.
    if len(_nearest(first.at(inside), second, expected[inside], tolerance)[0]) < _LEAST_PEAK / 2 * len(inside):
        return None
    own, other = _nearest(first, second, expected, tolerance)
    if not len(own):
        return None
    error = float(np.median(np.abs(second.time[other] - expected[own])))
    match = SequenceMatch(own, other, error, _evidence(first, second, len(own), error))
    return match if _is_enough(first, second, match) and match.evidence > 0 else None


def match_by_count(first: CollectiveSequence, second: CollectiveSequence) -> SequenceMatch | None:
    """The first with the first, the second with the second.

    None where names or numbers differ, or where the times refute it: the time between two collectives is about the same on all
    ranks, and no rank ends one before the last rank has begun it.
    """
    if len(first) != len(second) or not np.array_equal(first.name, second.name) or not len(first):
        return None
    places = np.arange(len(first))
    distance = (second.time - first.time).astype(np.float64)
    if np.abs(np.median(distance)) > FARTHEST_SHIFT:
        return None
    if len(first) < FEW:
        elapsed = float(first.time[-1] - first.time[0])
        if np.ptp(distance) > _FEW_APART + FASTEST_DRIFT * elapsed or not _may_be_same(first, second, places, places):
            return None
        return SequenceMatch(places, places, float(np.ptp(distance)) / 2, 0.0)
    time = (first.time - first.time[0]).astype(np.float64)
    shift, drift = robust_line(time, distance)
    if abs(drift) > FASTEST_DRIFT:
        return None
    error = float(np.median(np.abs(distance - shift - drift * time)))
    return SequenceMatch(places, places, error, _evidence(first, second, len(places), error))


def _by_key(first: CollectiveSequence, second: CollectiveSequence) -> SequenceMatch | None:
    """By numbers that only the same collective has; None where they are not known."""
    if first.key is None or second.key is None or not (first.has_keys and second.has_keys):
        return None
    of_first, of_second = np.flatnonzero(first.key), np.flatnonzero(second.key)
    _, own, other = np.intersect1d(first.key[of_first], second.key[of_second], return_indices=True)
    own, other = of_first[own], of_second[other]
    if not len(own):
        return None
    order = np.argsort(own)
    distance = second.time[other] - first.time[own]
    error = float(np.median(np.abs(distance - np.median(distance))))
    return SequenceMatch(own[order], other[order], error, float("inf"))


def _may_be_same(first: CollectiveSequence, second: CollectiveSequence, own: Ints, other: Ints) -> bool:
    """Whether, at some shift between the clocks, no rank ends these collectives before the other has begun them.

    Clocks drift: that is judged for neighbours in time.
    """
    if first.start is None or second.start is None or not len(own):
        return True
    most = (second.time[other] - first.start[own]).astype(np.float64)
    least = (second.start[other] - first.time[own]).astype(np.float64)
    pieces = max(len(own) // _NEIGHBOURS, 1)
    room = np.array([part.min() for part in np.array_split(most, pieces)])
    needed = np.array([part.max() for part in np.array_split(least, pieces)])
    return bool(np.mean(needed - room > _LEAST_TOLERANCE) <= _MOST_IMPOSSIBLE)


def _best(candidates: Sequence[SequenceMatch]) -> SequenceMatch | Ambiguous | None:
    """The candidate that explains most, if no other explains nearly as much."""
    ranked = sorted((match for match in candidates if match.evidence > 0), key=lambda match: -match.evidence)
    if not ranked:
        return None
    best = ranked[0]
    others = [match for match in ranked if match.evidence > _SECOND_BEST * best.evidence and not _is_mostly_same(best, match)]
    return Ambiguous(1 + len(others)) if others else best


def _is_mostly_same(one: SequenceMatch, other: SequenceMatch) -> bool:
    _, places, of_other = np.intersect1d(one.first, other.first, return_indices=True)
    return bool(np.sum(one.second[places] == other.second[of_other]) > 0.5 * min(len(one), len(other)))


def _evidence(first: CollectiveSequence, second: CollectiveSequence, matched: int, error: float) -> float:
    """How much more likely the distances of the ends are than those of sequences that have nothing to do with each other.

    The logarithm of the ratio: ends would lie anywhere between two collectives of the other sequence.
    """
    longer = max(first, second, key=len)
    apart = float(longer.time[-1] - longer.time[0]) / max(len(longer) - 1, 1)
    return matched * float(np.log(max(apart, 1.0) / (4 * max(error, _LEAST_NOISE))))


def _is_enough(first: CollectiveSequence, second: CollectiveSequence, match: SequenceMatch) -> bool:
    """Whether a match explains most collectives of the time that both sequences cover, and can be true."""
    if len(match) < FEW:
        return False
    shift = float(np.median(second.time[match.second] - first.time[match.first]))
    start, stop = max(first.time[0], second.time[0] - shift), min(first.time[-1], second.time[-1] - shift)
    slack = 1e6 + FASTEST_DRIFT * (stop - start)
    common = min(
        int(np.sum((one.time - by >= start - slack) & (one.time - by <= stop + slack)))
        for one, by in ((first, 0.0), (second, shift))
    )
    share = _LEAST_SHARE if match.error <= PRECISIONS[0] else _LEAST_SHARE_OF_LOOSE
    is_most = len(match) >= max(share * common, _LEAST_OF_SHORTER * min(len(first), len(second)))
    return is_most and _may_be_same(first, second, match.first, match.second)


def _followed(first: CollectiveSequence, second: CollectiveSequence, precision: float) -> list[SequenceMatch]:
    """Matches with the likely shifts between two clocks that explain enough. The first sequence is the shorter one."""
    tried: list[tuple[float, float]] = []
    found: list[SequenceMatch] = []
    for start in _window_starts(len(first)):
        middle = float(first.time[min(start + _WINDOW // 2, len(first) - 1)])
        for shift, drift in _shifts(first, second, start, precision):
            # Another window of the same shift leads to the same match.
            if not any(abs(shift - by) <= 10 * precision + FASTEST_DRIFT * abs(middle - at) for by, at in tried):
                tried.append((shift, middle))
                match = _follow(first, second, start, shift, drift, precision)
                found += [match] if _is_enough(first, second, match) else []
        # Other shifts that explain the run are seen in the same window.
        if found:
            break
    return found


def _window_starts(length: int) -> list[int]:
    """Windows in the middle, at the start, at the end and between: the other sequence may cover a part of the time only."""
    last = max(length - _WINDOW, 0)
    return list(dict.fromkeys([last // 2, 0, last, last // 4, 3 * last // 4]))


def _shifts(first: CollectiveSequence, second: CollectiveSequence, start: int, precision: float) -> list[tuple[float, float]]:
    """Shifts, with drifts, that explain a window of the first sequence best: most distances of equal names agree."""
    stop = min(start + _WINDOW, len(first))
    time = first.time[start:stop]
    low, high = np.searchsorted(second.time, [time[0] - FARTHEST_SHIFT, time[-1] + FARTHEST_SHIFT])
    most = max(_MOST_PAIRS // len(time), _WINDOW)
    if high - low > most:
        # Near to the rough placement: clocks are rather close than far apart.
        near = int(np.searchsorted(second.time, time[len(time) // 2]))
        low, high = max(low, near - most // 2), min(high, near + most // 2)
    if high <= low:
        return []
    middle = (time[0] + time[-1]) // 2
    distance = (second.time[None, low:high] - time[:, None]).astype(np.float64)
    is_same = (first.name[start:stop, None] == second.name[None, low:high]) & (np.abs(distance) <= FARTHEST_SHIFT)
    elapsed = np.broadcast_to((time - middle).astype(np.float64)[:, None], distance.shape)[is_same]
    distance = distance[is_same]
    if not len(distance):
        return []
    width = 2 * precision
    least = max(_LEAST_PEAK * len(time), min(FEW, len(time)))
    drifts = min(2 * int(np.ceil(FASTEST_DRIFT * float(time[-1] - time[0]) / width)) + 1, _MOST_DRIFTS)
    peaks: list[tuple[int, float, float]] = []
    for drift in np.linspace(-FASTEST_DRIFT, FASTEST_DRIFT, drifts) if drifts > 1 else (0.0,):
        without = np.sort(distance - drift * elapsed)
        count = np.searchsorted(without, without + width, side="right") - np.arange(len(without))
        likely = np.flatnonzero(count >= least)
        for index in likely[np.argsort(-count[likely], kind="stable")[: 4 * _CANDIDATES]]:
            peaks.append((int(count[index]), float(np.median(without[index : index + count[index]])), float(drift)))
    found: list[tuple[float, float]] = []
    for _, shift, drift in sorted(peaks, key=lambda peak: -peak[0]):
        if len(found) < _CANDIDATES and all(abs(shift - other) > 5 * width for other, _ in found):
            found.append((shift, drift))
    return found


def _follow(
    first: CollectiveSequence, second: CollectiveSequence, seed: int, shift: float, drift: float, precision: float
) -> SequenceMatch:
    """Match window by window, from one on in both directions, with the shift that the last window had. A clock may jump."""
    own: list[Ints] = []
    other: list[Ints] = []
    errors: list[Floats] = []
    known: list[tuple[float, float, float]] = []
    failed: list[Ints] = []
    steps = 0
    middle = float(first.time[min(seed + _WINDOW // 2, len(first) - 1)])
    ahead = [(start, min(start + _WINDOW, len(first))) for start in range(seed, len(first), _WINDOW)]
    behind = [(max(stop - _WINDOW, 0), stop) for stop in range(seed, 0, -_WINDOW)]
    at_seed: tuple[float, float, float] | None = None
    for windows in (ahead, behind):
        at, by, rate = since = at_seed or (middle, shift, drift)
        tolerance = precision
        for start, stop in windows:
            part = first.at(np.arange(start, stop))
            centre, wide = float(part.time.mean()), float(part.time[-1] - part.time[0])
            covered = max(abs(at - since[0]), wide, 1.0)
            unknown = min(FASTEST_DRIFT, 2 * tolerance / covered)
            allowed = min(tolerance + unknown * max(abs(centre - at), wide / 2), max(20 * precision, tolerance))
            matched, places = _in_window(part, second, at, by, rate, allowed)
            if len(matched) < _LEAST_SHARE * (stop - start):
                step = _step(part, second, by + rate * (centre - at), precision)
                if step is not None:
                    again = _in_window(part, second, centre, step, rate, precision)
                    matched, places = again if len(again[0]) > len(matched) else (matched, places)
            if len(matched) < max(_LEAST_SHARE * (stop - start), 4):
                failed.append(np.arange(start, stop))
                continue
            residual = second.time[places] - part.time[matched] - by - rate * (part.time[matched] - at)
            local = float(np.median(residual))
            deviation = np.abs(residual - local)
            by, at = by + rate * (centre - at) + local, centre
            if at_seed is None:
                at_seed = since = (at, by, rate)
            elif abs(local) > allowed:
                # A jump: what was known of the drift holds on.
                steps += 1
                since = (at, by, rate)
            else:
                # The drift since the first window is known better the longer that is ago.
                rate = (
                    float(np.clip((by - since[1]) / (at - since[0]), -FASTEST_DRIFT, FASTEST_DRIFT)) if at != since[0] else rate
                )
            tolerance = min(max(8 * float(np.median(deviation)), _LEAST_TOLERANCE), precision)
            known.append((at, by, rate))
            own.append(matched + start)
            other.append(places)
            errors.append(deviation)
    if not own:
        return SequenceMatch(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), float("inf"), 0.0)
    for matched, places, deviation in _rest(first, second, np.concatenate(own), failed, known):
        own.append(matched)
        other.append(places)
        errors.append(deviation)
    places, which = np.unique(np.concatenate(own), return_index=True)
    partner = np.concatenate(other)[which]
    # Both in order, and each collective once: of those that cross, the later are left out.
    kept = partner > np.maximum.accumulate(np.concatenate([[-1], partner[:-1]]))
    error = float(np.median(np.concatenate(errors)[which][kept]))
    # A window that starts at a wrong shift may jump to the right one: a match without jumps is more likely.
    evidence = _evidence(first, second, int(kept.sum()), error) - steps * _WINDOW
    return SequenceMatch(places[kept], partner[kept], error, evidence)


def _rest(
    first: CollectiveSequence,
    second: CollectiveSequence,
    matched: Ints,
    failed: list[Ints],
    known: list[tuple[float, float, float]],
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """What windows left where the clock jumped, and windows in which too little was found: with the shifts of those around."""
    at, by, rate = (np.array(values) for values in zip(*sorted(known), strict=True))

    def expected(places: Ints, window: Ints) -> Floats:
        time = first.time[places]
        return time + by[window] + rate[window] * (time - at[window])  # type: ignore[no-any-return]

    left = np.setdiff1d(np.arange(len(first)), matched)
    behind = np.searchsorted(at, first.time[left])
    before, behind = np.maximum(behind - 1, 0), np.minimum(behind, len(at) - 1)
    jumps = np.abs(expected(left, before) - expected(left, behind)) > _LEAST_TOLERANCE
    chosen = jumps | np.isin(left, np.concatenate([np.zeros(0, dtype=np.int64), *failed]))
    for window in (before, behind):
        time = expected(left, window)[chosen]
        own, places = _nearest(first.at(left[chosen]), second, time, _LEAST_TOLERANCE)
        yield left[chosen][own], places, np.abs(second.time[places] - time[own])


def _in_window(
    part: CollectiveSequence, second: CollectiveSequence, at: float, shift: float, drift: float, tolerance: float
) -> tuple[Ints, Ints]:
    """Pairs in a window; once more with its own shift, so that the tolerance is around that."""
    expected = part.time + shift + drift * (part.time - at)
    own, other = _nearest(part, second, expected, tolerance)
    if len(own) < 4:
        return own, other
    residual = second.time[other] - expected[own]
    local = float(np.median(residual))
    narrow = max(8 * float(np.median(np.abs(residual - local))), _LEAST_TOLERANCE)
    return _nearest(part, second, expected + local, min(narrow, tolerance))


def _step(part: CollectiveSequence, second: CollectiveSequence, shift: float, precision: float) -> float | None:
    """A shift near to the expected one that explains most of a window, and much more than others do; None: there is none."""
    low, high = np.searchsorted(second.time, [part.time[0] + shift - _STEP, part.time[-1] + shift + _STEP])
    distance = (second.time[None, low:high] - part.time[:, None]).astype(np.float64)
    near = distance[(part.name[:, None] == second.name[None, low:high]) & (np.abs(distance - shift) <= _STEP)]
    if not len(near):
        return None
    near.sort()
    count = np.searchsorted(near, near + 2 * precision, side="right") - np.arange(len(near))
    best = int(np.argmax(count))
    step = float(np.median(near[best : best + count[best]]))
    others = count[np.abs(near - step) > 6 * precision]
    is_sure = count[best] >= max(0.6 * len(part), 4) and (not len(others) or others.max() <= 0.5 * count[best])
    return step if is_sure else None


def _nearest(first: CollectiveSequence, second: CollectiveSequence, expected: Floats, tolerance: float) -> tuple[Ints, Ints]:
    """Pairs of collectives of equal names that are close to where they are expected, each collective in one pair at most."""
    behind = np.clip(np.searchsorted(second.time, expected), 1, max(len(second) - 1, 1))
    before = behind - 1
    behind = np.minimum(behind, len(second) - 1)
    nearer = np.where(np.abs(second.time[before] - expected) <= np.abs(second.time[behind] - expected), before, behind)
    fits = (np.abs(second.time[nearer] - expected) <= tolerance) & (first.name == second.name[nearer])
    own, other = np.flatnonzero(fits), nearer[fits]
    _, once = np.unique(other, return_index=True)
    return own[once], other[once]


def robust_line(time: Floats, value: Floats) -> tuple[float, float]:
    """Height and slope of a robust line: slope between the medians of the outer thirds, median of what remains."""
    third = max(len(time) // 3, 1)
    span = float(np.median(time[-third:]) - np.median(time[:third]))
    drift = float(np.median(value[-third:]) - np.median(value[:third])) / span if span > 0 and len(time) >= 3 else 0.0
    return float(np.median(value - drift * time)), drift
