"""Collectives: which calls of different ranks are the same one.

Each rank has sequences of collectives: the kernels of NCCL on a stream, the calls of MPI on a communicator. Reports do not say
which sequences belong together, so a sequence is compared with those that were found to belong together before it. As soon as
the clocks of two hosts are tied by one pair of sequences, the others only have to fit to that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nsys2prv.clocks.sequence_matching import (
    FEW,
    PRECISIONS,
    Ambiguous,
    CollectiveSequence,
    SequenceMatch,
    match_at_shift,
    match_by_count,
    match_sequences,
    robust_line,
)
from nsys2prv.clocks.shared_events import Floats, Ints

_LEAST_COMMON_NAMES = 0.5
_REFERENCES = 3
"""Sequences of a communicator that a further one is compared with."""
_SEARCHES = 4
"""Failed searches for the shift between two clocks, after which no more are tried; with a limit for all clocks together."""
_SEARCHES_PER_CLOCK = 20
_KNOT = 24
"""Collectives that one value of the shift between two clocks comes from."""
_LEAST_TOLERANCE, _SAME_CLOCK = 20e3, 200e3
"""ns between ends of one collective, where the shift between the clocks is known; on one host, where sessions read the time of
their start a little apart."""
_FAR = 1e12
"""ns."""


@dataclass(frozen=True)
class Matching:
    """Which collectives are the same.

    Attributes
    ----------
    events
        Per sequence, a number for each of its collectives, equal for the same collective of other ranks; -1 for one that was
        found on one rank only.
    communicators
        Per sequence, the number of those that belong together.
    ambiguous
        Clocks that nothing ties because their collectives can be matched in several ways, with the number of ways.
    """

    events: tuple[Ints, ...]
    communicators: tuple[int, ...]
    ambiguous: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass
class _Communicator:
    members: list[int]
    processes: set[int]


@dataclass(frozen=True)
class _ClockShift:
    """How far a clock is ahead of a common base: `shift` ns at rising times of the base. Ends agree within `tolerance`, ns."""

    base: int
    time: Floats
    shift: Floats
    tolerance: float


def match_collectives(sequences: Sequence[CollectiveSequence]) -> Matching:
    """Collectives that were found on two ranks or more, of the sequences of all ranks."""
    return _Matcher(sequences).match()


class _Matcher:
    def __init__(self, sequences: Sequence[CollectiveSequence]) -> None:
        self._sequences = sequences
        ends = np.cumsum([len(sequence) for sequence in sequences])
        self._numbers = [np.arange(end - len(sequence), end) for sequence, end in zip(sequences, ends.tolist(), strict=True)]
        self._communicators = [_Communicator([index], {one.process}) for index, one in enumerate(sequences)]
        self._of_kind: defaultdict[str, list[_Communicator]] = defaultdict(list)
        self._shifts: dict[int, _ClockShift] = {}
        self._failed: Counter[tuple[int, int]] = Counter()
        self._searches = _SEARCHES_PER_CLOCK * len({sequence.clock for sequence in sequences})
        self._ambiguous: dict[tuple[int, int], int] = {}
        self._names = [Counter(sequence.name.tolist()) for sequence in sequences]
        self._few = Counter(_shape(sequence) for sequence in sequences if len(sequence) < FEW)

    def match(self) -> Matching:
        for precision in (*PRECISIONS, None):
            # What one pass left apart the next may join, with less precise ends, but only on clocks that nothing ties yet.
            self._failed.clear()
            left = sorted(self._communicators, key=lambda one: -len(self._sequences[one.members[0]]))
            self._communicators = []
            self._of_kind.clear()
            for communicator in left:
                if not self._joined(communicator, precision):
                    self._communicators.append(communicator)
                    self._of_kind[self._sequences[communicator.members[0]].kind].append(communicator)
        shared = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *self._numbers]), minlength=1) > 1
        bases = {clock: shift.base for clock, shift in self._shifts.items()}
        communicators = {index: number for number, one in enumerate(self._communicators) for index in one.members}
        return Matching(
            tuple(np.where(shared[one], one, -1) for one in self._numbers),
            tuple(communicators[index] for index in range(len(self._sequences))),
            {
                (first, second): count
                for (first, second), count in self._ambiguous.items()
                if bases.get(first, -1 - first) != bases.get(second, -1 - second)
            },
        )

    def _joined(self, one: _Communicator, precision: float | None) -> bool:
        """Adds the sequences of a communicator to those of another that they belong to, if there is one."""
        index = one.members[0]
        second = self._sequences[index]
        if precision is not None and len(second) < FEW and not second.has_keys:
            # They can only be counted. Every rank of a large run may have such: no comparison in vain with all others.
            return False
        for communicator in self._of_kind[second.kind]:
            if not one.processes.isdisjoint(communicator.processes):
                continue
            for reference in communicator.members[:_REFERENCES]:
                first = self._sequences[reference]
                if not self._have_similar_names(reference, index):
                    break
                match = self._pair(first, second, precision)
                if match is None:
                    continue
                own, numbers = self._numbers[index][match.second], self._numbers[reference][match.first]
                order = np.argsort(own)
                for member in one.members:
                    place = np.minimum(np.searchsorted(own[order], self._numbers[member]), len(own) - 1)
                    is_same = own[order][place] == self._numbers[member]
                    self._numbers[member] = np.where(is_same, numbers[order][place], self._numbers[member])
                communicator.members += one.members
                communicator.processes |= one.processes
                self._tie(first, second, match)
                return True
        return False

    def _pair(self, first: CollectiveSequence, second: CollectiveSequence, precision: float | None) -> SequenceMatch | None:
        is_few = min(len(first), len(second)) < FEW
        if is_few and precision is None:
            # Which of several sequences of a process it is cannot be seen from a few collectives.
            is_sure = self._few[_shape(first)] == self._few[_shape(second)] == 1
            return match_by_count(first, second) if is_sure else None
        expected, tolerance = self._expected(first, second)
        if expected is not None:
            match = match_at_shift(first, second, expected, tolerance)
            if match is not None or first.clock != second.clock or is_few or precision is None:
                return match
            counted = match_by_count(first, second)
            return counted if counted is not None and counted.error <= precision and counted.evidence > 0 else None
        clocks = min(first.clock, second.clock), max(first.clock, second.clock)
        # What is ambiguous with precise ends does not become sure with less precise ones.
        if (
            clocks in self._ambiguous
            or precision is None
            or not (is_few or (self._failed[clocks] < _SEARCHES and self._searches))
        ):
            return None
        found = match_sequences(first, second, precision)
        if isinstance(found, SequenceMatch):
            return found
        if isinstance(found, Ambiguous):
            self._ambiguous[clocks] = max(found.candidates, self._ambiguous.get(clocks, 0))
        if not is_few:
            self._failed[clocks] += 1
            self._searches -= 1
        return None

    def _expected(self, first: CollectiveSequence, second: CollectiveSequence) -> tuple[Floats | None, float]:
        """When the collectives of one sequence end by the clock of another, and how well that is known; None: it is not."""
        own = first.time.astype(np.float64)
        if first.clock == second.clock:
            return own, _SAME_CLOCK
        ahead, behind = self._shifts.get(first.clock), self._shifts.get(second.clock)
        if ahead is None or behind is None or ahead.base != behind.base:
            return None, 0.0
        base = own - np.interp(own, ahead.time + ahead.shift, ahead.shift)
        return base + np.interp(base, behind.time, behind.shift), max(ahead.tolerance, behind.tolerance)

    def _have_similar_names(self, first: int, second: int) -> bool:
        """Whether two sequences have mostly the same names, about equally often."""
        common = (self._names[first] & self._names[second]).total()
        return common >= _LEAST_COMMON_NAMES * min(len(self._sequences[first]), len(self._sequences[second]))

    def _tie(self, first: CollectiveSequence, second: CollectiveSequence, match: SequenceMatch) -> None:
        """Keep the shift between two clocks, so that other sequences need not be searched."""
        if first.clock == second.clock:
            return
        if first.clock not in self._shifts and second.clock in self._shifts:
            first, second, match = second, first, match.inverse()
        if second.clock in self._shifts:
            return
        base = self._shifts.setdefault(first.clock, _ClockShift(first.clock, np.zeros(1), np.zeros(1), _LEAST_TOLERANCE))
        order = np.argsort(match.first)
        shown = first.time[match.first[order]].astype(np.float64)
        time = shown - np.interp(shown, base.time + base.shift, base.shift)
        shift = second.time[match.second[order]] - time
        pieces = max(len(time) // _KNOT, 1)
        knots = np.array([[np.median(part) for part in np.array_split(one, pieces)] for one in (time, shift)])
        slope = robust_line(time - time[0], shift)[1]
        # Beyond the first and the last, the drift goes on.
        far = np.array([[_FAR], [slope * _FAR]])
        knots = np.concatenate([knots[:, :1] - far, knots, knots[:, -1:] + far], axis=1)
        self._shifts[second.clock] = _ClockShift(base.base, knots[0], knots[1], max(10 * match.error, base.tolerance))


def _shape(sequence: CollectiveSequence) -> tuple[int, str, bytes]:
    """What a sequence has in common with others of its process that could be counted in its place."""
    return sequence.process, sequence.kind, sequence.name.tobytes()
