"""One time axis for all reports: integer nanoseconds from the first event.

1. Reports are placed roughly, by the clocks of their sessions (`session_placement`). Clocks of hosts differ by milliseconds to
   seconds, and drift apart.
2. Collectives and messages are read (`sync_points`). The same collectives of several ranks are found (`collective_matching`),
   and the two ends of messages (`matched_messages`).
3. Where clocks jump is found (`clock_steps`); offset and drift of each clock are estimated from the ends of collectives
   (`estimate`), and where there are none from messages both ways (`message_offsets`). Where UTC is as good, it is kept
   (`utc_preference`).
4. No message arrives before it was sent, and no rank leaves a collective before the last one has come (`bounds`): clocks are
   moved by as little as possible until that holds (`causality`). The same bounds say how well each clock is known
   (`clock_intervals`).
5. What was placed is checked (`self_check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.clocks.anchor_counts import count_anchors
from nsys2prv.clocks.bounds import Bounds, find_bounds, stretches
from nsys2prv.clocks.causality import enforce_bounds
from nsys2prv.clocks.clock_intervals import ClockIntervals, clock_intervals
from nsys2prv.clocks.clock_steps import SMALLEST_STEP, find_steps
from nsys2prv.clocks.collective_matching import Matching, match_collectives
from nsys2prv.clocks.corrected_times import corrected_times, step_doubt, steps_until
from nsys2prv.clocks.estimate import FASTEST_CLOCK, fit
from nsys2prv.clocks.host_clock import AnchorCount, HostClock
from nsys2prv.clocks.matched_messages import MatchedMessages, match_messages
from nsys2prv.clocks.message_offsets import fit_messages, two_way_offsets
from nsys2prv.clocks.methods import AlignMethod
from nsys2prv.clocks.report_agreement import report_agreement
from nsys2prv.clocks.self_check import Disagreement, check_axis
from nsys2prv.clocks.sequence_matching import CollectiveSequence
from nsys2prv.clocks.session_placement import ReportClock, SessionTie, place_sessions, report_clocks
from nsys2prv.clocks.shared_events import Floats, Ints, SharedEvents
from nsys2prv.clocks.sync_points import SyncPoints, sync_points_of_run
from nsys2prv.clocks.utc_preference import prefer_utc, uncertainty
from nsys2prv.execution.workers import InThisProcess, Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import ALL, KINDS
from nsys2prv.timeline.time_axis import ClockCorrection, ClockError, ClockStep, Placement

_LEAST_ERROR = 500.0
"""ns; no clock is known better, however small its error seems."""
_UTC_PRECISION = 1e5
"""ns; how well UTC is taken to be known, where it is preferred."""
_UTC_VIOLATES = 2e5
"""ns; a clock for which bounds are violated by more than this does not keep UTC."""
_STEP_STRETCH = 500_000_000
"""ns; the fastest messages of such stretches show steps."""
_PRECISE_MESSAGE = 2e5
"""ns; messages show steps of clocks where the fastest of both ways tell them apart by less."""
_TIMES_ERROR = 4.0
"""Steps that messages show are larger than their error by this."""
_CONTRADICTION = 1e5
"""ns; smaller contradictions of bounds are not worth a warning: clocks wander."""
_MATCHED = {
    "event": pl.Int64, "communicator": pl.Int64, "clock": pl.Int64, "report": pl.Int64, "process": pl.Int64, "start": pl.Int64,
    "end": pl.Int64, "rule": pl.String, "is_root": pl.Boolean, "kind": pl.String, "name": pl.Int64,
}  # fmt: skip
"""Collectives that were found on several ranks; times by clocks that are roughly right."""


@dataclass(frozen=True)
class Axis:
    """The common axis.

    Placements, errors and sync points are of each report; sync points are empty when none were read. Warnings are about the
    clocks; `disagreements` is what cannot be as it was placed, the largest first.
    """

    placements: tuple[Placement, ...]
    errors: tuple[ClockError, ...]
    clocks: tuple[HostClock, ...] = ()
    warnings: tuple[str, ...] = ()
    sync_points: tuple[SyncPoints, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()


def align(
    reports: Sequence[Report],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    method: AlignMethod,
    scratch: Path,
    *,
    workers: Workers | None = None,
    known: Sequence[SyncPoints | None] = (),
) -> Axis:
    """Place reports on one axis as precisely as their contents allow.

    Collectives give the time of clocks to within their noise, messages give bounds: clocks are moved by as little as
    possible, the best known ones the least, until no message arrives before it was sent.

    Parameters
    ----------
    reports, identities, spans
        The reports, their hosts and ranks, and their first and last time, ns.
    method
        MPI and NCCL use collectives of one kind, AUTO of both, MESSAGES none. Messages, which are of MPI, place hosts without
        common collectives, and keep all messages forward; NCCL does not use them.
    scratch
        For intermediate files.
    workers
        Who reads the reports; None: this process.
    known
        Sync points of each report from an earlier call, as far as there are some.

    Raises
    ------
    ReportError
        When a report breaks off while it is read.
    """
    rough = place_sessions(identities, spans, method)
    clocks = report_clocks(identities, rough)
    names = [clock.name for clock in clocks]
    several = len(set(names)) > 1 or any(clock.tie is SessionTie.UTC for clock in clocks)
    if len(reports) == 1:
        return _without_estimate(rough, clocks)
    is_estimated = several and method not in (AlignMethod.NONE, AlignMethod.UTC, AlignMethod.MONOTONIC)
    # Without an estimate all that there is checks what the clocks of the sessions say.
    chosen: dict[AlignMethod, tuple[str, ...]] = {
        AlignMethod.NCCL: ("nccl",), AlignMethod.MPI: ("mpi",), AlignMethod.MESSAGES: ()
    }  # fmt: skip
    kinds = chosen.get(method, KINDS) if is_estimated else KINDS
    sync_points = sync_points_of_run(
        reports,
        identities,
        kinds,
        with_messages=not is_estimated or method is not AlignMethod.NCCL,
        workers=workers or InThisProcess(),
        known=known,
        folder=scratch,
    )
    messages = match_messages(sync_points, rough, scratch / "matched-messages")
    if not is_estimated:
        return _without_estimate(rough, clocks, sync_points, messages)
    return _Alignment(tuple(rough), tuple(clocks), spans, tuple(sync_points), messages).axis()


def _without_estimate(
    rough: Sequence[Placement],
    clocks: Sequence[ReportClock],
    sync_points: Sequence[SyncPoints] = (),
    messages: MatchedMessages | None = None,
) -> Axis:
    """The axis of reports whose clocks are not estimated, checked by their collectives and messages.

    One clock has no error, of several nothing is known.
    """
    names, clock_of_report = _numbered(clocks)
    width = 0.0 if len(names) == 1 else float("inf")
    errors = tuple(
        ClockError(number, half_widths=(width,), of_report=clock.of_report)
        for number, clock in zip(clock_of_report, clocks, strict=True)
    )
    first = [clock_of_report.index(number) for number in range(len(names))]
    disagreements: tuple[Disagreement, ...] = ()
    if messages is not None:
        collectives, _ = _match(sync_points, rough, clock_of_report)
        disagreements = check_axis(collectives, messages.placed(clock_of_report, None), errors, names)
    return Axis(
        tuple(rough),
        errors,
        tuple(HostClock(names[errors[place].clock], rough[place].method, errors[place]) for place in first),
        sync_points=tuple(sync_points),
        disagreements=disagreements,
    )


def _numbered(clocks: Sequence[ReportClock]) -> tuple[list[str], list[int]]:
    """Names of the clocks, in the order of their first reports, and the number of each report's clock among them."""
    numbers: dict[str, int] = {}
    of_reports = [numbers.setdefault(clock.name, len(numbers)) for clock in clocks]
    return list(numbers), of_reports


def _match(
    sync_points: Sequence[SyncPoints], rough: Sequence[Placement], clocks: Sequence[int]
) -> tuple[pl.DataFrame, Matching]:
    """Collectives that were found on several ranks: columns of _MATCHED. `clocks` are the numbers of the reports' clocks."""
    sequences, rows = _sequences(sync_points, rough, clocks)
    matching = match_collectives(sequences)
    parts = [
        frame.with_columns(
            event=pl.Series(events, dtype=pl.Int64),
            communicator=pl.lit(communicator, pl.Int64),
            clock=pl.lit(sequence.clock, pl.Int64),
            process=pl.lit(sequence.process, pl.Int64),
        )
        .filter(pl.col("event") >= 0)
        .select(list(_MATCHED))
        for frame, sequence, events, communicator in zip(rows, sequences, matching.events, matching.communicators, strict=True)
    ]
    return pl.concat([pl.DataFrame(schema=_MATCHED), *parts]), matching


def _sequences(
    sync_points: Sequence[SyncPoints], rough: Sequence[Placement], clocks: Sequence[int]
) -> tuple[list[CollectiveSequence], list[pl.DataFrame]]:
    """Sequences of collectives of all reports, with their rows. Processes are numbered over all reports, as pids repeat.

    Kernels of NCCL on a stream are one sequence for each communicator, where these are known: those of another one are never
    the same collective, however alike they are.
    """
    sequences, frames = [], []
    processes: dict[tuple[int, int], int] = {}
    placed = [
        collectives.with_columns(
            *(placement.of(pl.col(name)) for name in ("start", "end")), report=pl.lit(index, pl.Int64), kind=pl.lit(kind)
        )
        for index, (points, placement) in enumerate(zip(sync_points, rough, strict=True))
        for kind in points.kinds
        if (collectives := points.of_kind(kind)) is not None and collectives.height
    ]
    shared = _shared_communicators(placed)
    group = pl.when(pl.col("communicator").is_in(shared)).then("communicator").alias("group")
    for of_report in placed:
        index, kind = of_report.item(0, "report"), of_report.item(0, "kind")
        by_group = of_report.with_columns(group).group_by("process", "sequence", "group", maintain_order=True)
        for (pid, sequence, communicator), rows in by_group:
            process = processes.setdefault((index, int(pid)), len(processes))
            ordered = rows.drop("group").sort("end", "start", "name")
            of_nccl = kind if communicator is None else f"{kind} {communicator}"
            same = ordered.select(pl.struct("name", "size").hash().reinterpret(signed=True)).to_series()
            sequences.append(
                CollectiveSequence(
                    process,
                    clocks[index],
                    of_nccl if kind == AlignMethod.NCCL.value else f"{kind} {sequence}",
                    ordered["end"].to_numpy(),
                    same.to_numpy(),
                    ordered["key"].fill_null(0).to_numpy(),
                    ordered["start"].to_numpy(),
                )
            )
            frames.append(ordered)
    return sequences, frames


def _shared_communicators(placed: Sequence[pl.DataFrame]) -> list[int]:
    """Communicators of NCCL that several processes have; none where some report knows none."""
    of_nccl = [
        one.select("report", "process", "communicator").unique()
        for one in placed
        if one.item(0, "kind") == AlignMethod.NCCL.value
    ]
    if not of_nccl or any(one["communicator"].null_count() == one.height for one in of_nccl):
        return []
    members = pl.concat(of_nccl).drop_nulls().group_by("communicator").len()
    shared: list[int] = members.filter(pl.col("len") > 1)["communicator"].sort().to_list()
    return shared


class _Alignment:
    """The alignment of reports of several clocks, step by step; all steps share the matched collectives and messages."""

    def __init__(
        self,
        rough: tuple[Placement, ...],
        of_reports: tuple[ReportClock, ...],
        spans: Sequence[tuple[int, int] | None],
        sync_points: tuple[SyncPoints, ...],
        messages: MatchedMessages,
    ) -> None:
        self._rough, self._spans, self._sync_points, self._messages = rough, spans, sync_points, messages
        self._name(of_reports)
        self._collectives, matching = _match(self._sync_points, rough, self._clock_of_report)
        agreement = report_agreement(self._collectives, of_reports)
        self._warnings: list[str] = []
        if agreement.off:
            self._warnings += [
                f"{of_reports[index].name}: collectives put report {index + 1} more than 1 ms off the others of its host: "
                f"the start of its session is wrong, it is placed by itself"
                for index in agreement.off
            ]
            self._name(
                tuple(
                    ReportClock(f"{clock.name} (report {index + 1})", SessionTie.ALONE) if index in agreement.off else clock
                    for index, clock in enumerate(of_reports)
                )
            )
            self._collectives, matching = _match(self._sync_points, rough, self._clock_of_report)
            agreement = report_agreement(self._collectives, self._of_reports)
        self._of_report = agreement.widths
        self._ambiguous = matching.ambiguous

    def _name(self, of_reports: tuple[ReportClock, ...]) -> None:
        """Number the clocks."""
        self._of_reports = of_reports
        self._names, self._clock_of_report = _numbered(of_reports)

    def axis(self) -> Axis:
        """The common axis."""
        corrections, by_utc, placed_by = self._estimate()
        moves = np.zeros(len(self._names))
        as_placed = self._bounds(corrections)
        if as_placed is not None:
            precision = np.array([_precision(one, clock in by_utc) for clock, one in enumerate(corrections)])
            moves = enforce_bounds(as_placed.over_all, precision)
        bounds = self._bounds(corrections, of_report=self._of_report)
        bounds = bounds.moved(moves) if bounds is not None else None
        moved = [replace(one, offset=one.offset + float(by)) for one, by in zip(corrections, moves, strict=True)]
        intervals = clock_intervals(bounds, *self._whole(moved)) if bounds is not None else None
        placements = self._placements(moved, moves, placed_by)
        shift = -min(
            (placement.at(span[0]) for placement, span in zip(placements, self._spans, strict=True) if span), default=0
        )
        placements = [replace(placement, shift=shift) for placement in placements]
        errors = self._errors(intervals, moved, shift)
        placed = self._placed(moved).with_columns(pl.col("start", "end") + shift)
        anchors = count_anchors(placed, self._messages.placed(self._clock_of_report, moved))
        clocks = tuple(
            self._host_clock(clock, placements, errors, moved[clock], float(moves[clock]), intervals, anchors.get(clock, {}))
            for clock in range(len(self._names))
        )
        return Axis(
            tuple(placements),
            errors,
            clocks,
            (*self._warnings, *self._warnings_of(clocks, intervals, moved)),
            self._sync_points,
            check_axis(placed, self._messages.placed(self._clock_of_report, moved), errors, self._names),
        )

    def _placed(self, corrections: Sequence[ClockCorrection]) -> pl.DataFrame:
        """The collectives, after the corrections of their clocks."""
        clock = self._collectives["clock"].to_numpy()
        times = {
            name: pl.Series(corrected_times(self._collectives[name].to_numpy(), clock, corrections), dtype=pl.Int64)
            for name in ("start", "end")
        }
        return self._collectives.with_columns(**times)

    # -- estimate ---------------------------------------------------------------------------------------------------------

    def _estimate(self) -> tuple[list[ClockCorrection], set[int], list[str]]:
        """Corrections of all clocks, the clocks that keep UTC, and what places each."""
        clocks = len(self._names)
        # One rank of a host can end late: the median of its ranks counts.
        tying = (
            self._collectives.filter(pl.col("rule") == ALL)
            .group_by("event", "clock")
            .agg(pl.col("end").median().round().cast(pl.Int64), pl.col("kind", "name").first())
            .sort("event", "clock")
        )
        kind = tying.select(pl.struct("kind", "name").rank("dense")).to_series().to_numpy().astype(np.int64)
        events = SharedEvents(tying["event"].to_numpy(), tying["clock"].to_numpy(), tying["end"].to_numpy())
        steps = self._steps(events)
        without_steps = SharedEvents(events.event, events.clock, _without_steps(events, steps))
        estimate = fit(without_steps, clocks, kind)
        for clock in estimate.refused:
            self._warnings.append(
                f"collectives give the clock of {self._names[clock]} a drift of more than {FASTEST_CLOCK * 1e6:.0f} ppm, which "
                f"no clock has: they are not used for it"
            )
        by_collectives = [replace(one, steps=steps.get(clock, ())) for clock, one in enumerate(estimate.corrections)]
        corrections = by_collectives
        if self._messages.files:
            corrections = [
                replace(one, steps=steps.get(clock, ()))
                for clock, one in enumerate(
                    fit_messages(
                        without_steps,
                        by_collectives,
                        lambda found, stretch: two_way_offsets(
                            self._messages.placed(
                                self._clock_of_report,
                                [replace(one, steps=steps.get(clock, ())) for clock, one in enumerate(found)],
                            ),
                            stretch,
                        ),
                    )
                )
            ]
        placed_by = ["collectives" if one.anchors else "messages" for one in by_collectives]
        uncertain = np.array(
            [
                uncertainty(one) if by == "collectives" else one.median if one.anchors else 0.0
                for one, by in zip(corrections, placed_by, strict=True)
            ]
        )
        first, last = self._extent(events)
        chosen, by_utc = prefer_utc(corrections, uncertain, first, last)
        bounds = self._bounds(chosen) if by_utc else None
        if bounds is not None:
            violated = np.where(np.isfinite(bounds.over_all), -bounds.over_all, 0)
            wrong = np.flatnonzero(np.maximum(violated.max(axis=0), violated.max(axis=1)) > _UTC_VIOLATES)
            uncertain[np.intersect1d(wrong, by_utc)] = 0
            if len(np.intersect1d(wrong, by_utc)):
                chosen, by_utc = prefer_utc(corrections, uncertain, first, last)
        for clock in by_utc:
            placed_by[clock] = "utc"
        return chosen, set(by_utc), placed_by

    def _steps(self, events: SharedEvents) -> dict[int, tuple[ClockStep, ...]]:
        """Steps of clocks, by the ends of collectives, and by the fastest messages where a clock has none."""
        steps = find_steps(events, len(self._names))
        if not self._messages.files:
            return steps
        placed = [_without_correction(steps.get(clock, ())) for clock in range(len(self._names))]
        by_messages, error = two_way_offsets(self._messages.placed(self._clock_of_report, placed), _STEP_STRETCH)
        precise = error <= _PRECISE_MESSAGE
        if not precise.any():
            return steps
        chosen = SharedEvents(by_messages.event[precise], by_messages.clock[precise], by_messages.time[precise])
        smallest = max(_TIMES_ERROR * float(np.percentile(error[precise], 90)), SMALLEST_STEP)
        tied = set(np.unique(events.clock).tolist())
        more = find_steps(chosen, len(self._names), smallest)
        return {**{clock: found for clock, found in more.items() if clock not in tied}, **steps}

    def _extent(self, events: SharedEvents) -> tuple[float, float]:
        """First and last time of what ties clocks."""
        times = [float(self._messages.first), float(self._messages.last)] if self._messages.files else []
        times += [float(events.time.min()), float(events.time.max())] if len(events.time) else []
        return min(times, default=0.0), max(times, default=0.0)

    # -- bounds -----------------------------------------------------------------------------------------------------------

    def _bounds(self, corrections: Sequence[ClockCorrection], of_report: Floats | None = None) -> Bounds | None:
        """Bounds between clocks after corrections; None where there is nothing that bounds them.

        Bounds are wider by as much as reports may be off their clocks, if that is given, ns.
        """
        if len(self._names) < 2 or (self._collectives.is_empty() and not self._messages.files):
            return None
        wider = np.zeros(len(self._rough), dtype=np.int64) if of_report is None else np.rint(of_report).astype(np.int64)
        off = pl.Series(wider[self._collectives["report"].to_numpy()])
        clock = self._collectives["clock"].to_numpy()
        doubt = {
            name: pl.Series(step_doubt(self._collectives[name].to_numpy(), clock, corrections)) for name in ("start", "end")
        }
        collectives = self._placed(corrections).with_columns(
            start=pl.col("start") - (off + doubt["start"]), end=pl.col("end") + (off + doubt["end"])
        )
        borders = stretches(len(self._names), *self._anchored(collectives, corrections))
        return find_bounds(collectives, self._messages_apart(corrections, wider), len(self._names), borders)

    def _anchored(self, collectives: pl.DataFrame, corrections: Sequence[ClockCorrection]) -> tuple[float, float]:
        """First and last time of anchors, after corrections."""
        times: list[float] = []
        for part in (collectives["end"], *(one["time"] for one in self._messages.placed(self._clock_of_report, corrections))):
            if len(part):
                of_part = part.to_numpy()
                times += [float(of_part.min()), float(of_part.max())]
        return min(times), max(times)

    def _messages_apart(self, corrections: Sequence[ClockCorrection], wider: Ints) -> Iterator[pl.DataFrame]:
        for piece in self._messages.placed(self._clock_of_report, corrections):
            off = wider[piece["report"].to_numpy()] + wider[piece["to_report"].to_numpy()]
            yield piece.with_columns(to_time=pl.col("to_time") + pl.col("doubt") + pl.Series(off))

    # -- results ----------------------------------------------------------------------------------------------------------

    def _whole(self, corrections: Sequence[ClockCorrection]) -> tuple[float, float]:
        """First and last time of all reports, after corrections."""
        times = [
            placement.corrected(corrections[clock]).at(time)
            for placement, clock, span in zip(self._rough, self._clock_of_report, self._spans, strict=True)
            for time in span or ()
        ]
        return float(min(times, default=0)), float(max(times, default=0))

    def _placements(self, corrections: Sequence[ClockCorrection], moves: Floats, placed_by: Sequence[str]) -> list[Placement]:
        placements = []
        for placement, clock in zip(self._rough, self._clock_of_report, strict=True):
            one = corrections[clock]
            if moves[clock] and not one.anchors:
                placements.append(replace(placement, clock=one, method="messages"))
            else:
                method = placement.method if placed_by[clock] == "utc" else placed_by[clock]
                placements.append(placement.corrected(one, method))
        return placements

    def _errors(
        self, intervals: ClockIntervals | None, corrections: Sequence[ClockCorrection], shift: int
    ) -> tuple[ClockError, ...]:
        errors = []
        for clock, of_report in zip(self._clock_of_report, self._of_report, strict=True):
            if len(self._names) == 1:
                times, widths, group = np.zeros(1, dtype=np.int64), np.zeros(1), 0
            elif intervals is None:
                times, widths, group = np.zeros(1, dtype=np.int64), np.full(1, np.inf), clock
            else:
                times, widths, group = intervals.times + shift, intervals.half_widths[:, clock], int(intervals.group[clock])
                times, widths = _with_steps(times, widths, corrections[clock], shift)
            errors.append(ClockError(clock, tuple(times.tolist()), tuple(widths.tolist()), float(of_report), group))
        return tuple(errors)

    def _host_clock(
        self,
        clock: int,
        placements: Sequence[Placement],
        errors: Sequence[ClockError],
        correction: ClockCorrection,
        moved: float,
        intervals: ClockIntervals | None,
        anchors: Mapping[str, AnchorCount],
    ) -> HostClock:
        report = self._clock_of_report.index(clock)
        contradiction = float("nan") if intervals is None else float(intervals.contradiction[clock])
        return HostClock(
            self._names[clock],
            placements[report].method,
            errors[report],
            correction if correction.anchors or moved else None,
            moved,
            float("inf") if intervals is None else float(intervals.drift[clock]),
            anchors,
            None if np.isnan(contradiction) else contradiction,
        )

    def _warnings_of(
        self, clocks: Sequence[HostClock], intervals: ClockIntervals | None, corrections: Sequence[ClockCorrection]
    ) -> Iterator[str]:
        names = self._names
        if len(names) < 2:
            return
        group = np.arange(len(names)) if intervals is None else intervals.group
        size = np.bincount(group, minlength=len(names))
        for (first, second), count in sorted(self._ambiguous.items()):
            if group[first] != group[second]:
                yield (
                    f"collectives of {names[first]} and {names[second]} can be matched in {count} ways, none of which is sure: "
                    f"they are not used for the clocks"
                )
        alone = [name for clock, name in enumerate(names) if size[group[clock]] == 1]
        if alone:
            yield (
                f"no collective ties the clock of {_some(alone)} to those of the other hosts: its times are those of its "
                f"clock, which can be off by milliseconds to seconds"
            )
        if (size > 1).sum() > 1:
            yield (
                f"the hosts fall into {(size > 1).sum()} groups without common collectives: times can be compared inside a "
                f"group; between groups they are only as precise as UTC"
            )
        for clock, one in enumerate(corrections):
            if one.steps:
                largest = max(one.steps, key=lambda step: abs(step.size))
                yield (
                    f"the clock of {names[clock]} jumps {len(one.steps)} times, by {largest.size / 1e6:+.3f} ms at most: that "
                    f"is corrected, but not known well between the collectives before and after each jump"
                )
        wrong = [clock for clock in clocks if (clock.contradiction or 0) > _CONTRADICTION]
        if wrong:
            worst = max(wrong, key=lambda clock: clock.contradiction or 0)
            yield (
                f"collectives and messages contradict each other about the clocks of {_some([one.name for one in wrong])}, by "
                f"up to {(worst.contradiction or 0) / 1e6:.3f} ms: the intervals of these clocks include it"
            )


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{' and others' if len(names) > 8 else ''}"


def _without_correction(steps: tuple[ClockStep, ...]) -> ClockCorrection:
    nan = float("nan")
    return ClockCorrection(0.0, 0.0, 0, 0, 0, nan, nan, nan, (), steps)


def _without_steps(events: SharedEvents, steps: Mapping[int, tuple[ClockStep, ...]]) -> Ints:
    """Times of events as if clocks had not jumped, ns."""
    time: Ints = events.time.copy()
    for clock, of_clock in steps.items():
        own = events.clock == clock
        time[own] -= np.rint(steps_until(time[own], of_clock)).astype(np.int64)
    return time


def _with_steps(times: Ints, widths: Floats, correction: ClockCorrection, shift: int) -> tuple[Ints, Floats]:
    """An interval that includes each step of its clock wherever it was between the anchors around it."""
    knots = np.array([[step.after, step.before] for step in correction.steps], dtype=np.int64).reshape(-1, 2)
    borders = corrected_times(knots.ravel(), np.zeros(knots.size, dtype=np.int64), [correction]).reshape(-1, 2) + shift
    at = np.unique(np.concatenate([times, borders[:, 0] - 1, borders[:, 0], borders[:, 1], borders[:, 1] + 1]))
    wide = np.interp(at, times, widths) + sum(step.error for step in correction.steps)
    for step, (start, stop) in zip(correction.steps, borders, strict=True):
        wide[(at >= start) & (at <= stop)] += abs(step.size)
    return at, wide


def _precision(correction: ClockCorrection, keeps_utc: bool) -> float:
    """How well a clock is known: the inverse of the square of its error, ns; 0 for not at all."""
    if keeps_utc:
        return 1 / _UTC_PRECISION**2
    return correction.anchors / max(correction.median, _LEAST_ERROR) ** 2 if correction.anchors else 0.0
