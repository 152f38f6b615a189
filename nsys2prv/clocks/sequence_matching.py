"""Collectives of two ranks: which of one sequence are those of the other.

Rows may be missing, and clocks differ by unknown amounts, so times decide. With the right shift between two clocks the ends of
both sequences agree; with a wrong one, such as that of an iteration, few of them do, because no two iterations take equally
long. A match is sure when it explains much more than the second-best shift does. Where both have the same collectives in the
same number, counting is a candidate as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nsys2prv.clocks.anchors import FASTEST_CLOCK, Floats, Ints

FEW = 6
"""Fewer collectives are matched only by counting."""
LEAST_TOLERANCE = 20e3
"""ns between ends of one collective on two ranks, however small the noise is."""
PRECISIONS = (60e3, 1e6, 10e6)
"""ns between ends of one collective on two ranks: what is tried one after the other."""
_FARTHEST_SHIFT = 15e9  # Clocks differ by less than this, ns, before they are aligned
_FEW_APART = 50e6  # ns that the time between two of a few may differ by between ranks: one ends up to 12 ms apart in real runs
_WINDOW = 24  # Collectives that a shift is looked for with, and that are matched at once
_NEIGHBOURS = 6  # Collectives, one after the other, during which a clock does not drift or jump in most cases
_LEAST_NOISE = 5e3  # ns; ends that are closer together say no more
_STEP = 50e6  # A clock that jumps does not jump further, ns
_CANDIDATES = 5
_MOST_PAIRS = 40_000  # Pairs of collectives that a shift is looked for with
_MOST_DRIFTS = 101
_LEAST_SHARE = 0.5  # Least share of the collectives, in the time that both sequences cover, that match
_LEAST_SHARE_OF_LOOSE = 0.65  # The same where ends are farther apart than PRECISIONS[0]: half of them may agree by chance
_MOST_IMPOSSIBLE = 0.2  # Share of neighbours of which one rank ended one before the other began it: the clock drifts or jumps
_LEAST_OF_SHORTER = 0.3  # Least share of the shorter sequence that matches
_LEAST_PEAK = 0.4  # Least share of a window that a shift must explain to be looked at
_SECOND_BEST = 0.75  # A match is ambiguous where another shift explains more than this share of what it explains


@dataclass(frozen=True)
class CollectiveSequence:
    """Collectives of one rank in the order of their ends, with the numbers of its process and clock.

    Sequences of different kinds are never the same ("nccl", or "mpi" and the communicator). `start` and `time` have the starts
    and the ends by a clock that is roughly right, ns, and `name` equal numbers for what can be the same collective. `key` has,
    where it is known, a number that only the same collective has on other ranks; 0 where it is not."""

    process: int
    clock: int
    kind: str
    start: Ints
    time: Ints
    name: Ints
    key: Ints

    def __len__(self) -> int:
        return len(self.time)

    @property
    def has_keys(self) -> bool:
        """Whether keys of most collectives are known."""
        return 2 * int(np.count_nonzero(self.key)) >= len(self)

    def at(self, places: Ints | slice) -> CollectiveSequence:
        """Only the collectives at these places."""
        columns = {name: getattr(self, name)[places] for name in ("start", "time", "name", "key")}
        return replace(self, **columns)


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
    """Equal collectives of sequences of two processes whose clocks differ by an unknown shift.

    They are recognized by ends that are not further apart than the precision, ns: one of PRECISIONS. None: they are not of the
    same communicator, or its ends are further apart."""
    if (exact := _by_key(first, second)) is not None:
        return exact
    if min(len(first), len(second)) < FEW:
        return None
    if len(first) > len(second):
        exchanged = match_sequences(second, first, precision)
        return exchanged.inverse() if isinstance(exchanged, SequenceMatch) else exchanged
    candidates = _followed(first, second, precision)
    best = _best(candidates)
    best = _without_gaps(first, second, best) if isinstance(best, SequenceMatch) else best
    counted = match_by_count(first, second)
    if counted is None or counted.error > PRECISIONS[-1] or not _is_enough(first, second, counted):
        return best
    # Where both ranks have the same collectives, they are the same ones, unless another match is clearly better.
    evidence = max((match.evidence for match in candidates), default=0.0)
    is_likely = counted.evidence > max(_SECOND_BEST * evidence, 0.0)
    return counted if is_likely and (counted.error <= precision or isinstance(best, Ambiguous)) else best


def match_at_shift(
    first: CollectiveSequence, second: CollectiveSequence, expected: Floats, tolerance: float
) -> SequenceMatch | None:
    """Equal collectives of two sequences where the shift between their clocks is known: when each of the first is expected to
    end in the second, and how far from there it may end, ns."""
    if (exact := _by_key(first, second)) is not None:
        return exact
    sample = np.linspace(0, len(first) - 1, min(len(first), 4 * _WINDOW)).astype(np.int64)
    sample = sample[(expected[sample] >= second.time[0] - tolerance) & (expected[sample] <= second.time[-1] + tolerance)]
    # Most sequences are of other communicators: a few collectives show it.
    if len(_nearest(first.at(sample), second, expected[sample], tolerance)[0]) < _LEAST_PEAK / 2 * len(sample):
        return None
    here, there = _nearest(first, second, expected, tolerance)
    if not len(here):
        return None
    error = float(np.median(np.abs(second.time[there] - expected[here])))
    match = SequenceMatch(here, there, error, _evidence(first, second, len(here), error))
    return _without_gaps(first, second, match) if _is_enough(first, second, match) and match.evidence > 0 else None


def _without_gaps(first: CollectiveSequence, second: CollectiveSequence, match: SequenceMatch) -> SequenceMatch:
    """All collectives by counting, where a match does that: a jump or a late end is no reason to leave any out."""
    shifts = np.unique(match.second - match.first)
    if len(shifts) > 1:
        return match
    places = np.arange(max(0, -shifts[0]), min(len(first), len(second) - shifts[0]))
    is_same = np.array_equal(first.name[places], second.name[places + shifts[0]])
    return replace(match, first=places, second=places + shifts[0]) if is_same else match


def match_by_count(first: CollectiveSequence, second: CollectiveSequence) -> SequenceMatch | None:
    """The first with the first, the second with the second.

    None where names or numbers differ, or where the times refute it: the time between two collectives is about the same on all
    ranks, and no rank ends one before the last rank has begun it."""
    if not len(first) or not np.array_equal(first.name, second.name):
        return None
    places = np.arange(len(first))
    distance = (second.time - first.time).astype(np.float64)
    if np.abs(np.median(distance)) > _FARTHEST_SHIFT:
        return None
    time = (first.time - first.time[0]).astype(np.float64)
    if len(first) < FEW:
        deviation = float(np.ptp(distance))
        is_refuted = deviation > _FEW_APART + FASTEST_CLOCK * time[-1] or not _may_be_same(first, second)
        return None if is_refuted else SequenceMatch(places, places, deviation / 2, 0.0)
    shift, drift = robust_line(time, distance)
    error = float(np.median(np.abs(distance - shift - drift * time)))
    is_refuted = abs(drift) > FASTEST_CLOCK
    return None if is_refuted else SequenceMatch(places, places, error, _evidence(first, second, len(places), error))


def robust_line(time: Floats, value: Floats) -> tuple[float, float]:
    """Height and slope of a robust line: slope between the medians of the outer thirds, median of what remains."""
    third = max(len(time) // 3, 1)
    span = float(np.median(time[-third:]) - np.median(time[:third]))
    drift = float(np.median(value[-third:]) - np.median(value[:third])) / span if span > 0 and len(time) >= 3 else 0.0
    return float(np.median(value - drift * time)), drift


def _by_key(first: CollectiveSequence, second: CollectiveSequence) -> SequenceMatch | None:
    """By numbers that only the same collective has; None where they are not known."""
    if not (first.has_keys and second.has_keys):
        return None
    keys, here, there = np.intersect1d(first.key, second.key, return_indices=True)
    here, there = here[keys != 0], there[keys != 0]
    if not len(here):
        return None
    order = np.argsort(here)
    here, there = here[order], there[order]
    distance = second.time[there] - first.time[here]
    return SequenceMatch(here, there, float(np.median(np.abs(distance - np.median(distance)))), float("inf"))


def _best(candidates: Sequence[SequenceMatch]) -> SequenceMatch | Ambiguous | None:
    """The candidate that explains most, if no other explains nearly as much."""
    ranked = sorted((match for match in candidates if match.evidence > 0), key=lambda match: -match.evidence)
    if not ranked:
        return None
    best = ranked[0]
    rivals = [match for match in ranked if match.evidence > _SECOND_BEST * best.evidence and not _is_mostly_same(best, match)]
    return Ambiguous(1 + len(rivals)) if rivals else best


def _is_mostly_same(match: SequenceMatch, rival: SequenceMatch) -> bool:
    _, places, of_rival = np.intersect1d(match.first, rival.first, return_indices=True)
    return bool(np.sum(match.second[places] == rival.second[of_rival]) > 0.5 * min(len(match), len(rival)))


def _evidence(first: CollectiveSequence, second: CollectiveSequence, matched: int, error: float) -> float:
    """The logarithm of how much more likely such distances are than with ends anywhere between two of the other sequence."""
    longer = max(first, second, key=len)
    between = float(longer.time[-1] - longer.time[0]) / max(len(longer) - 1, 1)
    return matched * float(np.log(max(between, 1.0) / (4 * max(error, _LEAST_NOISE))))


def _is_enough(first: CollectiveSequence, second: CollectiveSequence, match: SequenceMatch) -> bool:
    """Whether a match explains most collectives of the time that both sequences cover, and can be true."""
    if len(match) < FEW:
        return False
    shift = float(np.median(second.time[match.second] - first.time[match.first]))
    start, stop = max(first.time[0], second.time[0] - shift), min(first.time[-1], second.time[-1] - shift)
    slack = 1e6 + FASTEST_CLOCK * (stop - start)
    common = min(
        int(np.sum((time >= start - slack) & (time <= stop + slack))) for time in (first.time - 0.0, second.time - shift)
    )
    share = _LEAST_SHARE if match.error <= PRECISIONS[0] else _LEAST_SHARE_OF_LOOSE
    is_most = len(match) >= max(share * common, _LEAST_OF_SHORTER * min(len(first), len(second)))
    return is_most and _may_be_same(first.at(match.first), second.at(match.second))


def _may_be_same(first: CollectiveSequence, second: CollectiveSequence) -> bool:
    """Whether at some shift, which is judged for neighbours, no rank ends these collectives before the other begins them."""
    parts = max(len(first) // _NEIGHBOURS, 1)
    most = np.array([part.min() for part in np.array_split(second.time - first.start, parts)])
    least = np.array([part.max() for part in np.array_split(second.start - first.time, parts)])
    return bool(np.mean(least - most > LEAST_TOLERANCE) <= _MOST_IMPOSSIBLE)


@dataclass(frozen=True)
class _Shift:
    """By how much a clock is ahead of another: `by` ns at a time, with a drift."""

    at: float
    by: float
    drift: float

    def moved(self, to: float, more: float = 0.0) -> _Shift:
        """The same at another time, and larger by some ns."""
        return _Shift(to, self.by + self.drift * (to - self.at) + more, self.drift)

    def expected(self, time: Ints) -> Floats:
        """Times of the one clock, by the other."""
        return time + self.by + self.drift * (time - self.at)


def _followed(first: CollectiveSequence, second: CollectiveSequence, precision: float) -> list[SequenceMatch]:
    """Matches with the likely shifts between two clocks that explain enough. The first sequence is the shorter one."""
    tried: list[tuple[float, float]] = []
    matches: list[SequenceMatch] = []
    # Windows in the middle, at the start, at the end and between: the other sequence may cover a part of the time only.
    last = max(len(first) - _WINDOW, 0)
    for start in dict.fromkeys([last // 2, 0, last, last // 4, 3 * last // 4]):
        for shift in _shifts(first.at(slice(start, start + _WINDOW)), second, precision):
            # Another window of the same shift leads to the same match.
            if all(abs(shift.by - by) > 10 * precision + FASTEST_CLOCK * abs(shift.at - at) for at, by in tried):
                tried.append((shift.at, shift.by))
                match = _follow(first, second, start, shift, precision)
                matches += [match] if _is_enough(first, second, match) else []
        # Other shifts that explain the run are seen in the same window.
        if matches:
            break
    return matches


def _shifts(window: CollectiveSequence, second: CollectiveSequence, precision: float) -> list[_Shift]:
    """Shifts, with drifts, that explain a window of the first sequence best: most distances of equal names agree."""
    time = window.time
    low, high = np.searchsorted(second.time, [time[0] - _FARTHEST_SHIFT, time[-1] + _FARTHEST_SHIFT])
    most = max(_MOST_PAIRS // len(time), _WINDOW)
    if high - low > most:
        # Near to the rough placement: clocks are rather close than far apart.
        near = int(np.searchsorted(second.time, time[len(time) // 2]))
        low, high = max(low, near - most // 2), min(high, near + most // 2)
    distance, row = _distances(window, second.at(slice(low, high)), 0.0, _FARTHEST_SHIFT)
    elapsed = (time - (time[0] + time[-1]) // 2).astype(np.float64)[row]
    width = 2 * precision
    least = max(_LEAST_PEAK * len(time), min(FEW, len(time)))
    drifts = min(2 * int(np.ceil(FASTEST_CLOCK * float(time[-1] - time[0]) / width)) + 1, _MOST_DRIFTS)
    peaks: list[tuple[int, float, float]] = []
    for drift in np.linspace(-FASTEST_CLOCK, FASTEST_CLOCK, drifts) if drifts > 1 else (0.0,):
        without = np.sort(distance - drift * elapsed)
        count = _within(without, width)
        likely = np.flatnonzero(count >= least)
        for index in likely[np.argsort(-count[likely], kind="stable")[: 4 * _CANDIDATES]]:
            peaks.append((int(count[index]), float(np.median(without[index : index + count[index]])), float(drift)))
    middle = float(time[min(_WINDOW // 2, len(time) - 1)])
    shifts: list[_Shift] = []
    for _, by, drift in sorted(peaks, key=lambda peak: -peak[0]):
        if len(shifts) < _CANDIDATES and all(abs(by - likelier.by) > 5 * width for likelier in shifts):
            shifts.append(_Shift(middle, by, drift))
    return shifts


def _distances(window: CollectiveSequence, second: CollectiveSequence, shift: float, most: float) -> tuple[Floats, Ints]:
    """Distances of ends of equal names that are near to a shift, and the place in the window of each."""
    distance = (second.time[None, :] - window.time[:, None]).astype(np.float64)
    is_near = (window.name[:, None] == second.name[None, :]) & (np.abs(distance - shift) <= most)
    return distance[is_near], np.nonzero(is_near)[0]


def _within(ordered: Floats, width: float) -> Ints:
    """From each number on, how many are not further than the width."""
    return np.searchsorted(ordered, ordered + width, side="right") - np.arange(len(ordered))


def _follow(first: CollectiveSequence, second: CollectiveSequence, seed: int, shift: _Shift, precision: float) -> SequenceMatch:
    """Match window by window, from one on in both directions, with the shift that the last window had. A clock may jump."""
    pairs: list[tuple[Ints, Ints, Floats]] = []
    steps = 0
    forward = [slice(start, min(start + _WINDOW, len(first))) for start in range(seed, len(first), _WINDOW)]
    backward = [slice(max(stop - _WINDOW, 0), stop) for stop in range(seed, 0, -_WINDOW)]
    at_seed: _Shift | None = None
    for windows in (forward, backward):
        shift = since = at_seed or shift
        tolerance = precision
        for window in windows:
            part = first.at(window)
            centre, wide = float(part.time.mean()), float(part.time[-1] - part.time[0])
            covered = max(abs(shift.at - since.at), wide, 1.0)
            unknown = min(FASTEST_CLOCK, 2 * tolerance / covered)
            allowed = min(tolerance + unknown * max(abs(centre - shift.at), wide / 2), max(20 * precision, tolerance))
            matched, places = _in_window(part, second, shift, allowed)
            if len(matched) < _LEAST_SHARE * len(part):
                stepped = _step(part, second, shift.moved(centre), precision)
                again = _in_window(part, second, stepped, precision) if stepped is not None else (matched, places)
                matched, places = max((matched, places), again, key=lambda pair: len(pair[0]))
            if len(matched) < max(_LEAST_SHARE * len(part), 4):
                continue
            residual = second.time[places] - shift.expected(part.time[matched])
            local = float(np.median(residual))
            deviation = np.abs(residual - local)
            shift = shift.moved(centre, local)
            if at_seed is None:
                at_seed = since = shift
            elif abs(local) > allowed:
                # A jump: what was known of the drift holds on.
                steps += 1
                since = shift
            elif centre != since.at:
                # The drift since the first window is known better the longer that is ago.
                drift = (shift.by - since.by) / (centre - since.at)
                shift = replace(shift, drift=float(np.clip(drift, -FASTEST_CLOCK, FASTEST_CLOCK)))
            tolerance = min(max(8 * float(np.median(deviation)), LEAST_TOLERANCE), precision)
            pairs.append((matched + window.start, places, deviation))
    if not pairs:
        return SequenceMatch(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), float("inf"), 0.0)
    here, there, deviation = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    here, entry = np.unique(here, return_index=True)
    there, deviation = there[entry], deviation[entry]
    # Both in order, and each collective once: of those that cross, the later are left out.
    in_order = there > np.maximum.accumulate(np.concatenate([[-1], there[:-1]]))
    error = float(np.median(deviation[in_order]))
    # A window that starts at a wrong shift may jump to the right one: a match without jumps is more likely.
    evidence = _evidence(first, second, int(in_order.sum()), error) - steps * _WINDOW
    return SequenceMatch(here[in_order], there[in_order], error, evidence)


def _in_window(part: CollectiveSequence, second: CollectiveSequence, shift: _Shift, tolerance: float) -> tuple[Ints, Ints]:
    """Pairs in a window; once more with its local shift, so that the tolerance is around that."""
    expected = shift.expected(part.time)
    here, there = _nearest(part, second, expected, tolerance)
    if len(here) < 4:
        return here, there
    residual = second.time[there] - expected[here]
    local = float(np.median(residual))
    narrow = max(8 * float(np.median(np.abs(residual - local))), LEAST_TOLERANCE)
    return _nearest(part, second, expected + local, min(narrow, tolerance))


def _step(part: CollectiveSequence, second: CollectiveSequence, shift: _Shift, precision: float) -> _Shift | None:
    """A shift near to the expected one that explains most of a window, and much more than others do; None: there is none."""
    low, high = np.searchsorted(second.time, [part.time[0] + shift.by - _STEP, part.time[-1] + shift.by + _STEP])
    near = np.sort(_distances(part, second.at(slice(low, high)), shift.by, _STEP)[0])
    if not len(near):
        return None
    count = _within(near, 2 * precision)
    best = int(np.argmax(count))
    step = float(np.median(near[best : best + count[best]]))
    rivals = count[np.abs(near - step) > 6 * precision]
    is_sure = count[best] >= max(0.6 * len(part), 4) and (not len(rivals) or rivals.max() <= 0.5 * count[best])
    return replace(shift, by=step) if is_sure else None


def _nearest(first: CollectiveSequence, second: CollectiveSequence, expected: Floats, tolerance: float) -> tuple[Ints, Ints]:
    """Pairs of collectives of equal names that are close to where they are expected, each collective in one pair at most."""
    behind = np.clip(np.searchsorted(second.time, expected), 1, max(len(second) - 1, 1))
    before = behind - 1
    behind = np.minimum(behind, len(second) - 1)
    nearer = np.where(np.abs(second.time[before] - expected) <= np.abs(second.time[behind] - expected), before, behind)
    fits = (np.abs(second.time[nearer] - expected) <= tolerance) & (first.name == second.name[nearer])
    here, there = np.flatnonzero(fits), nearer[fits]
    _, once = np.unique(there, return_index=True)
    return here[once], there[once]
