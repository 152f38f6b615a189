"""Collectives: which calls of different ranks are the same one.

Each rank has sequences of collectives: the kernels of NCCL on a stream, the calls of MPI on a communicator. Reports do not say
which sequences belong together, so a sequence is compared with those that were found to belong together before it. As soon as
the clocks of two hosts are tied by one pair of sequences, further pairs only have to fit to that."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.clocks.anchors import Floats, Ints
from nsys2prv.clocks.sequence_matching import (
    FEW,
    LEAST_TOLERANCE,
    PRECISIONS,
    Ambiguous,
    CollectiveSequence,
    SequenceMatch,
    match_at_shift,
    match_by_count,
    match_sequences,
    robust_line,
)
from nsys2prv.clocks.sync_points import SyncPoints
from nsys2prv.timeline.time_axis import Placement

_LEAST_COMMON_NAMES = 0.5
_REFERENCES = 3  # Sequences of a communicator that a further one is compared with
_SEARCHES, _SEARCHES_PER_CLOCK = 4, 20  # Searches for the shift: failed ones of two clocks, and those of all, for each clock
_KNOT = 24  # Collectives that one value of the shift between two clocks comes from
_SAME_CLOCK = 400e3  # ns between ends of one collective on one host, where sessions read the time of their start a little apart
_FAR = 1e12  # ns

Ambiguities = dict[tuple[int, int], int]
"""Two clocks that nothing ties because their collectives can be matched in several ways, with the number of ways."""

_MATCHED = pl.Schema(
    dict.fromkeys(("event", "communicator", "clock", "report", "start", "end", "name"), pl.Int64())
    | {"rule": pl.String(), "is_root": pl.Boolean(), "kind": pl.String()}
)


def match_run(
    sync_points: Sequence[SyncPoints], rough: Sequence[Placement], clocks: Sequence[int]
) -> tuple[pl.DataFrame, Ambiguities]:
    """Collectives that were found on several ranks, and ambiguities. `clocks` are the numbers of the clocks of reports.

    A row per collective and rank: `event`, equal for the same collective, `communicator`, `clock` and `report` (numbers),
    `start`, `end` (ns of the rough placement), and `name`, `rule`, `is_root`, `kind` of the collective."""
    frames = _sequences(sync_points, rough)
    sequences = [
        CollectiveSequence(
            process=rows.item(0, "process_of_run"),
            clock=clocks[rows.item(0, "report")],
            kind=rows.item(0, "sequence_kind"),
            time=rows["end"].to_numpy(),
            name=rows["name_and_size"].to_numpy(),
            key=rows["key"].fill_null(0).to_numpy(),
            start=rows["start"].to_numpy(),
        )
        for rows in frames
    ]
    matching = Matching(sequences)
    matched = [
        rows.with_columns(event=pl.Series(events), communicator=communicator, clock=sequence.clock)
        .filter(pl.col("event") >= 0)
        .select(pl.col(name).cast(dtype) for name, dtype in _MATCHED.items())
        for rows, sequence, events, communicator in zip(frames, sequences, matching.events, matching.communicators, strict=True)
    ]
    return pl.concat([pl.DataFrame(schema=_MATCHED), *matched]), matching.ambiguous


def _sequences(sync_points: Sequence[SyncPoints], rough: Sequence[Placement]) -> list[pl.DataFrame]:
    """The collectives of each sequence in the order of their ends; known communicators on a stream of NCCL are divided."""
    of_reports = [
        pl.read_ipc(points.collectives.read_bytes()).with_columns(
            *(placement.of(pl.col(name)) for name in ("start", "end")), report=pl.lit(report, pl.Int64)
        )
        for report, (points, placement) in enumerate(zip(sync_points, rough, strict=True))
        if points.collectives is not None
    ]
    if not of_reports:
        return []
    collectives = pl.concat(of_reports)
    is_nccl, is_known = pl.col("kind") == "nccl", pl.col("communicator").is_not_null().any().over("report", "kind")
    is_shared = pl.struct("report", "process").n_unique().over("kind", "communicator") > 1
    # Where a report knows none, and of one that only one process has, kernels are of any communicator.
    of_nccl = pl.format("nccl {}", pl.when(is_shared & (is_known | ~is_nccl).all()).then("communicator"))
    return [
        rows.sort("end", "start", "name")
        for _, rows in collectives.with_columns(
            # Pids repeat from report to report.
            process_of_run=pl.struct("report", "process").rank("dense"),
            sequence_kind=pl.when(is_nccl).then(pl.coalesce(of_nccl, "kind")).otherwise(pl.format("{} {}", "kind", "sequence")),
            name_and_size=pl.struct("name", "size").hash().reinterpret(signed=True),
        ).group_by("process_of_run", "sequence", "sequence_kind", maintain_order=True)
    ]


@dataclass(frozen=True)
class _ClockShift:
    """How far a clock is ahead of a common base: `shift` ns at rising times of the base. Ends agree within `tolerance`, ns."""

    base: int
    time: Floats
    shift: Floats
    tolerance: float


class Matching:
    """Which collectives are the same, of the sequences of all ranks.

    `events` has, per sequence, a number for each of its collectives, equal for the same collective of other ranks; -1 for one
    that was found on one rank only. `communicators` has, per sequence, the number of those that belong together."""

    def __init__(self, sequences: Sequence[CollectiveSequence]) -> None:
        self._sequences = sequences
        ends = np.cumsum([len(sequence) for sequence in sequences]).tolist()
        self._numbers = [np.arange(end - len(sequence), end) for sequence, end in zip(sequences, ends, strict=True)]
        self._shifts: dict[int, _ClockShift] = {}
        self._failed: Counter[tuple[int, int]] = Counter()
        self._searches = _SEARCHES_PER_CLOCK * len({sequence.clock for sequence in sequences})
        self._ambiguous: Ambiguities = {}
        self._names = [Counter(sequence.name.tolist()) for sequence in sequences]
        self._few = Counter(_shape(sequence) for sequence in sequences if len(sequence) < FEW)
        communicators = [[index] for index in range(len(sequences))]
        # Sequences that one pass did not join the next may, with less precise ends, but only on clocks that nothing ties.
        for precision in (*PRECISIONS, None):
            communicators = self._joined(communicators, precision)
        is_shared = np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *self._numbers]), minlength=1) > 1
        self.events = [np.where(is_shared[numbers], numbers, -1) for numbers in self._numbers]
        numbers_of = {index: number for number, members in enumerate(communicators) for index in members}
        self.communicators = [numbers_of[index] for index in range(len(sequences))]
        self.ambiguous = {clocks: ways for clocks, ways in self._ambiguous.items() if not self._are_tied(*clocks)}

    def _joined(self, separate: Sequence[list[int]], precision: float | None) -> list[list[int]]:
        """Communicators after the sequences of some were added to those of another that they belong to."""
        self._failed.clear()
        joined: list[list[int]] = []
        of_kind: defaultdict[str, list[list[int]]] = defaultdict(list)
        for communicator in sorted(separate, key=lambda members: -len(self._sequences[members[0]])):
            sequence = self._sequences[communicator[0]]
            same_kind = of_kind[sequence.kind]
            # Every rank of a large run may have sequences that can only be counted: no comparison in vain with all of them.
            is_compared = precision is None or len(sequence) >= FEW or sequence.has_keys
            if not (is_compared and any(self._joins(communicator, candidate, precision) for candidate in same_kind)):
                joined.append(communicator)
                same_kind.append(communicator)
        return joined

    def _are_tied(self, first: int, second: int) -> bool:
        return {first, second} <= self._shifts.keys() and self._shifts[first].base == self._shifts[second].base

    def _joins(self, communicator: list[int], candidate: list[int], precision: float | None) -> bool:
        """Adds the sequences of a communicator to those of another if they belong to it."""
        index = communicator[0]
        second = self._sequences[index]
        processes = {self._sequences[member].process for member in communicator}
        if any(self._sequences[member].process in processes for member in candidate):
            return False
        for reference in candidate[:_REFERENCES]:
            first = self._sequences[reference]
            common = (self._names[reference] & self._names[index]).total()
            if common < _LEAST_COMMON_NAMES * min(len(first), len(second)):
                return False
            match = self._pair(first, second, precision)
            if match is not None:
                self._renumber(communicator, self._numbers[index][match.second], self._numbers[reference][match.first])
                candidate += communicator
                self._tie(first, second, match)
                return True
        return False

    def _renumber(self, communicator: list[int], before: Ints, after: Ints) -> None:
        """Give the collectives of a communicator the numbers of those that they are the same as."""
        order = np.argsort(before)
        for member in communicator:
            numbers = self._numbers[member]
            place = order[np.minimum(np.searchsorted(before, numbers, sorter=order), len(before) - 1)]
            self._numbers[member] = np.where(before[place] == numbers, after[place], numbers)

    def _pair(self, first: CollectiveSequence, second: CollectiveSequence, precision: float | None) -> SequenceMatch | None:
        is_few = min(len(first), len(second)) < FEW
        if is_few and precision is None:
            # Which of several sequences of a process it is cannot be seen from a few collectives.
            is_sure = self._few[_shape(first)] == self._few[_shape(second)] == 1
            return match_by_count(first, second) if is_sure else None
        if first.clock == second.clock:
            match = match_at_shift(first, second, first.time.astype(np.float64), _SAME_CLOCK)
            if match is not None or is_few or precision is None:
                return match
            counted = match_by_count(first, second)
            return counted if counted is not None and counted.error <= precision and counted.evidence > 0 else None
        if self._are_tied(first.clock, second.clock):
            ahead, behind = self._shifts[first.clock], self._shifts[second.clock]
            base = first.time - np.interp(first.time, ahead.time + ahead.shift, ahead.shift)
            expected, tolerance = base + np.interp(base, behind.time, behind.shift), max(ahead.tolerance, behind.tolerance)
            # The tie is between two reports: others of these hosts may be as far off as sessions read the time of their start.
            is_loose = precision != PRECISIONS[0]
            return match_at_shift(first, second, expected, max(tolerance, _SAME_CLOCK) if is_loose else tolerance)
        return self._searched(first, second, precision) if precision is not None else None

    def _searched(self, first: CollectiveSequence, second: CollectiveSequence, precision: float) -> SequenceMatch | None:
        """A match of sequences of clocks that nothing ties yet."""
        is_few = min(len(first), len(second)) < FEW
        clocks = min(first.clock, second.clock), max(first.clock, second.clock)
        # What is ambiguous with precise ends does not become sure with less precise ones.
        if clocks in self._ambiguous or not (is_few or (self._failed[clocks] < _SEARCHES and self._searches)):
            return None
        match = match_sequences(first, second, precision)
        if isinstance(match, SequenceMatch):
            return match
        if isinstance(match, Ambiguous):
            self._ambiguous[clocks] = match.candidates
        if not is_few:
            self._failed[clocks] += 1
            self._searches -= 1
        return None

    def _tie(self, first: CollectiveSequence, second: CollectiveSequence, match: SequenceMatch) -> None:
        """Keep the shift between two clocks, so that further sequences need not be searched."""
        if first.clock not in self._shifts and second.clock in self._shifts:
            first, second, match = second, first, match.inverse()
        if first.clock == second.clock or second.clock in self._shifts:
            return
        base = self._shifts.setdefault(first.clock, _ClockShift(first.clock, np.zeros(1), np.zeros(1), LEAST_TOLERANCE))
        order = np.argsort(match.first)
        shown = first.time[match.first[order]].astype(np.float64)
        time = shown - np.interp(shown, base.time + base.shift, base.shift)
        shift = second.time[match.second[order]] - time
        parts = max(len(time) // _KNOT, 1)
        knots = np.array([[np.median(part) for part in np.array_split(values, parts)] for values in (time, shift)])
        slope = robust_line(time - time[0], shift)[1]
        # Beyond the first and the last, the drift goes on.
        far = np.array([[_FAR], [slope * _FAR]])
        knots = np.concatenate([knots[:, :1] - far, knots, knots[:, -1:] + far], axis=1)
        self._shifts[second.clock] = _ClockShift(base.base, knots[0], knots[1], max(10 * match.error, base.tolerance))


def _shape(sequence: CollectiveSequence) -> tuple[int, str, bytes]:
    """What a sequence has in common with others of its process that could be counted in its place."""
    return sequence.process, sequence.kind, sequence.name.tobytes()
