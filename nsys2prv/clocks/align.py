"""One time axis for all reports: integer nanoseconds from the first event.

1. Reports are placed roughly, by the starts of their sessions, and what ties them to others is read (`sync_points`). Clocks of
   hosts differ by milliseconds to seconds, and drift apart.
2. The same collectives of several ranks are found (`collective_matching`, and `sequence_matching` for two of them), and the two
   ends of messages (`anchors`).
3. Where clocks jump is found (`anchors`); offset and drift of each clock are estimated from the ends of collectives, and where
   there are none from messages both ways. Where UTC is as good, it is kept (`estimate`).
4. No message arrives before it was sent, and no rank leaves a collective before the last one has come: clocks are moved by as
   little as possible until that holds. The same bounds say how well each clock is known (`bounds`).
5. What was placed is checked (`check`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.clocks import AlignMethod
from nsys2prv.clocks.agreement import count_anchors, deviations
from nsys2prv.clocks.anchors import Anchors, Floats, Ints, corrected_times, match_messages, stepping
from nsys2prv.clocks.bounds import ClockIntervals, bounds_of_run, clock_intervals, enforce_bounds
from nsys2prv.clocks.check import Disagreement, check_axis, report_agreement
from nsys2prv.clocks.collective_matching import match_run
from nsys2prv.clocks.estimate import FASTEST_CLOCK, Estimate, estimate_clocks
from nsys2prv.clocks.sync_points import ReportClock, SyncPoints, place_sessions, report_clocks, sync_points_of_run
from nsys2prv.execution.workers import InThisProcess, Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import KINDS
from nsys2prv.timeline.time_axis import ClockCorrection, ClockError, ClockStep, Placement

_BY_SESSIONS = (AlignMethod.NONE, AlignMethod.UTC, AlignMethod.MONOTONIC)
_KINDS = {AlignMethod.NCCL: ("nccl",), AlignMethod.MPI: ("mpi",), AlignMethod.MESSAGES: ()}
"""Kinds of collectives of methods that do not use all."""
_LEAST_ERROR = 500.0
"""ns; no clock is known better, however small its error seems."""
_UTC_PRECISION = 1e5
"""ns; how well UTC is taken to be known, where it is preferred."""
_CONTRADICTION = 1e5
"""ns; smaller contradictions of bounds are not worth a warning: clocks wander."""


@dataclass(frozen=True)
class HostClock:
    """What is known of the clock of a host (or of one report, where nothing ties those of a host).

    Attributes
    ----------
    name
        Host, with the report where there are several clocks of it.
    method
        As of `Placement`.
    error
        How well it is known, over the time of the axis.
    correction
        Offset, drift and what remains at the anchors; None where nothing is subtracted.
    by_messages
        Part of the offset that comes from bounds: no message arrives before it was sent, no rank leaves a collective before the
        last one entered it; ns.
    drift_error
        How far the drift may be off, without a unit; infinite where nothing is known.
    anchors
        By kind ("nccl" and "mpi" for collectives, "messages"): how many the clock was estimated with (`used`), and how many it
        does not agree with (`outliers`).
    contradiction
        By how much the most violated bound is violated as placed, ns; 0 where all are kept, None without bounds.
    """

    name: str
    method: str
    error: ClockError
    correction: ClockCorrection | None = None
    by_messages: float = 0.0
    drift_error: float = float("inf")
    anchors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    contradiction: float | None = None

    @property
    def half_width(self) -> tuple[float, float]:
        """Half width of the interval where the clock is known best, and where it is known worst, ns."""
        return min(self.error.half_widths), max(self.error.half_widths)

    def as_json(self) -> dict[str, Any]:
        best, worst = map(_rounded, self.half_width)
        content: dict[str, Any] = {
            "host": self.name,
            "method": self.method,
            "by_messages_ns": round(self.by_messages),
            "interval_ns": {
                "best": best,
                "worst": worst,
                "times": list(self.error.times),
                "half_widths": [_rounded(width) for width in self.error.half_widths],
            },
            "anchors_by_kind": dict(self.anchors),
            "contradiction_ns": None if self.contradiction is None else round(self.contradiction),
        }
        if (correction := self.correction) is not None:
            content |= {
                "anchors": correction.anchors,
                "offset_ns": round(correction.offset),
                "drift_ppm": round(correction.drift * 1e6, 4),
                "drift_error_ppm": round(self.drift_error * 1e6, 4) if np.isfinite(self.drift_error) else None,
                "steps": [
                    {"after_ns": step.after, "before_ns": step.before, "size_ns": round(step.size)} for step in correction.jumps
                ],
                "error_ns": {
                    **{name: _rounded(getattr(correction, name)) for name in ("median", "percentile_95", "largest")},
                    "over_time": [_rounded(value) for value in correction.bins],
                },
            }
        return content


def _rounded(value: float) -> int | None:
    """A number of ns for JSON; None where it is not known."""
    return round(value) if np.isfinite(value) else None


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

    Raises
    ------
    ReportError
        When a report breaks off while it is read.
    """
    rough = place_sessions(identities, spans, method)
    clocks = report_clocks(identities, rough)
    if len(reports) == 1:
        error = ClockError(0)
        return Axis(tuple(rough), (error,), (HostClock(clocks[0].name, rough[0].method, error),))
    has_several = len({clock.name for clock in clocks}) > 1 or any(clock.of_report for clock in clocks)
    is_estimated = has_several and method not in _BY_SESSIONS
    sync_points = sync_points_of_run(
        reports,
        identities,
        # Without an estimate all that there is checks what the clocks of the sessions say.
        _KINDS.get(method, KINDS) if is_estimated else KINDS,
        with_messages=not is_estimated or method is not AlignMethod.NCCL,
        workers=workers or InThisProcess(),
        folder=scratch,
    )
    messages = match_messages(sync_points, rough, scratch / "matched-messages")
    anchors = _match(rough, clocks, sync_points, messages)
    if not is_estimated:
        return replace(_axis_of_sessions(anchors, rough, clocks), sync_points=tuple(sync_points))
    widths, off = report_agreement(anchors.collectives, clocks)
    warnings = [
        f"{clocks[report].name}: collectives put report {report + 1} more than 1 ms off the others of its host: "
        f"the start of its session is wrong, it is placed by itself"
        for report in off
    ]
    if off:
        for report in off:
            clocks[report] = ReportClock(f"{clocks[report].name} (report {report + 1})")
        anchors = _match(rough, clocks, sync_points, messages)
        widths, _ = report_agreement(anchors.collectives, clocks)
    axis = _estimated_axis(anchors, rough, widths, spans)
    return replace(axis, warnings=(*warnings, *axis.warnings), sync_points=tuple(sync_points))


def _match(
    rough: Sequence[Placement], clocks: Sequence[ReportClock], sync_points: Sequence[SyncPoints], messages: Sequence[Path]
) -> Anchors:
    numbers: dict[str, int] = {}
    clock_of_report = [numbers.setdefault(clock.name, len(numbers)) for clock in clocks]
    return Anchors(list(numbers), np.array(clock_of_report), *match_run(sync_points, rough, clock_of_report), messages)


def _axis_of_sessions(anchors: Anchors, rough: Sequence[Placement], clocks: Sequence[ReportClock]) -> Axis:
    """The axis of reports whose clocks are not estimated: one clock has no error, of several nothing is known."""
    clock_of_report = anchors.clock_of_report.tolist()
    width = 0.0 if anchors.clocks == 1 else float("inf")
    errors = tuple(
        ClockError(number, half_widths=(width,), of_report=clock.of_report)
        for number, clock in zip(clock_of_report, clocks, strict=True)
    )
    firsts = [clock_of_report.index(number) for number in range(anchors.clocks)]
    messages = anchors.placed_messages(stepping(anchors.clocks, {}))
    return Axis(
        tuple(rough),
        errors,
        tuple(HostClock(name, rough[first].method, errors[first]) for name, first in zip(anchors.names, firsts, strict=True)),
        disagreements=check_axis(anchors.collectives, messages, errors, anchors.names),
    )


def _estimated_axis(
    anchors: Anchors, rough: Sequence[Placement], widths: Floats, spans: Sequence[tuple[int, int] | None]
) -> Axis:
    """The axis by collectives and messages. `widths`: how far each report may be off its clock, ns."""
    estimate = estimate_clocks(anchors)
    moves = _moves(anchors, estimate)
    corrections = [
        replace(correction, offset=correction.offset + by)
        for correction, by in zip(estimate.corrections, moves.tolist(), strict=True)
    ]
    subtracted = [correction if correction.anchors or by else None for correction, by in zip(corrections, moves, strict=True)]
    clock_of_report = anchors.clock_of_report.tolist()
    placements = [
        _placement(of_report, subtracted[clock], estimate.placed_by[clock])
        for of_report, clock in zip(rough, clock_of_report, strict=True)
    ]
    first = min((placement.at(span[0]) for placement, span in zip(placements, spans, strict=True) if span), default=0)
    ends = [
        of_report.corrected(corrections[clock]).at(time)
        for of_report, clock, span in zip(rough, clock_of_report, spans, strict=True)
        for time in span or ()
    ]
    bounds = bounds_of_run(anchors, estimate.corrections, widths)
    extent = min(ends, default=0), max(ends, default=0)
    collectives = anchors.placed_collectives(corrections)
    of_hosts = deviations(collectives)
    intervals = clock_intervals(bounds.moved(moves), *extent, of_hosts) if bounds is not None else None
    errors = [
        _error(clock, width, intervals, corrections, first)
        for clock, width in zip(clock_of_report, widths.tolist(), strict=True)
    ]
    counts = count_anchors(of_hosts, anchors.placed_messages(corrections), anchors.clocks)
    clocks = [
        HostClock(
            name,
            placements[clock_of_report.index(clock)].method,
            errors[clock_of_report.index(clock)],
            subtracted[clock],
            float(moves[clock]),
            float("inf") if intervals is None else float(intervals.drift[clock]),
            counts[clock],
            None if intervals is None or np.isnan(intervals.contradiction[clock]) else float(intervals.contradiction[clock]),
        )
        for clock, name in enumerate(anchors.names)
    ]
    return Axis(
        tuple(replace(placement, shift=-first) for placement in placements),
        tuple(errors),
        tuple(clocks),
        (
            *(text for number, clock in enumerate(clocks) for text in _jumps(clock, number, corrections, first)),
            *_warnings(anchors, estimate, clocks),
        ),
        disagreements=check_axis(
            collectives.with_columns(pl.col("start", "end") - first),
            anchors.placed_messages(corrections),
            errors,
            anchors.names,
        ),
    )


def _moves(anchors: Anchors, estimate: Estimate) -> Floats:
    """What to subtract from each clock besides, ns, so that no message arrives before it was sent."""
    bounds = bounds_of_run(anchors, estimate.corrections)
    if bounds is None:
        return np.zeros(anchors.clocks)
    return enforce_bounds(bounds.over_all, np.array(list(map(_precision, estimate.corrections, estimate.placed_by))))


def _precision(correction: ClockCorrection, placed_by: str) -> float:
    """How well a clock is known: the inverse of the square of its error, ns; 0 for not at all."""
    if placed_by == "utc":
        return 1 / _UTC_PRECISION**2
    return correction.anchors / max(correction.median, _LEAST_ERROR) ** 2 if correction.anchors else 0.0


def _placement(rough: Placement, correction: ClockCorrection | None, placed_by: str) -> Placement:
    if correction is None:
        return rough
    method = placed_by if correction.anchors else "messages"
    return replace(rough, clock=correction, method=rough.method if method == "utc" else method)


def _error(
    clock: int, of_report: float, intervals: ClockIntervals | None, corrections: Sequence[ClockCorrection], first: int
) -> ClockError:
    """How well a report is known: an interval that includes each step of its clock wherever that was between two anchors."""
    if intervals is None:
        width = 0.0 if len(corrections) == 1 else float("inf")
        return ClockError(clock, half_widths=(width,), of_report=of_report, group=clock)
    steps = corrections[clock].steps
    times = intervals.times - first
    starts, stops = np.clip(_on_axis(steps, clock, corrections, first), times[0], times[-1])
    at = np.unique(np.concatenate([times, starts - 1, starts, stops, stops + 1]))
    wide = np.interp(at, times, intervals.half_widths[:, clock])
    for step, start, stop in zip(steps, starts, stops, strict=True):
        wide[(at >= start) & (at <= stop)] += step.error
    return ClockError(clock, tuple(at.tolist()), tuple(wide.tolist()), of_report, int(intervals.group[clock]))


def _on_axis(steps: Sequence[ClockStep], clock: int, corrections: Sequence[ClockCorrection], first: int) -> Ints:
    """Begin and end of each step of a clock, ns of the axis: two rows."""
    knots = np.array([time for step in steps for time in (step.after, step.before)], dtype=np.int64)
    placed: Ints = (corrected_times(knots, np.full(len(knots), clock), corrections)[0] - first).reshape(-1, 2).T
    return placed


def _jumps(clock: HostClock, number: int, corrections: Sequence[ClockCorrection], first: int) -> Iterator[str]:
    jumps = corrections[number].jumps
    if not jumps:
        return
    size, begin, end = max(
        zip((jump.size for jump in jumps), *_on_axis(jumps, number, corrections, first), strict=True),
        key=lambda jump: abs(jump[0]),
    )
    often = f"{len(jumps)} times, most " if len(jumps) > 1 else ""
    yield (
        f"the clock of {clock.name} jumps or is slewed {often}by {size / 1e6:+.3f} ms between {begin / 1e9:.3f} and "
        f"{end / 1e9:.3f} s: that is corrected, but not known well between the collectives before and after it"
    )


def _warnings(anchors: Anchors, estimate: Estimate, clocks: Sequence[HostClock]) -> Iterator[str]:
    """What a user should know of the clocks."""
    names = anchors.names
    for clock in estimate.refused:
        yield (
            f"collectives give the clock of {names[clock]} a drift of more than {FASTEST_CLOCK * 1e6:.0f} ppm, which "
            f"no clock has: they are not used for it"
        )
    if len(names) < 2:
        return
    group = np.array([clock.error.group for clock in clocks])
    for (first, second), count in sorted(anchors.ambiguous.items()):
        if group[first] != group[second]:
            yield (
                f"collectives of {names[first]} and {names[second]} can be matched in {count} ways, none of which is sure: "
                f"they are not used for the clocks"
            )
    members = np.bincount(group, minlength=len(names))
    alone = [name for name, of_clock in zip(names, group, strict=True) if members[of_clock] == 1]
    if alone:
        yield (
            f"no collective ties the clock of {_listed(alone)} to those of the other hosts: its times are those of its "
            f"clock, which can be off by milliseconds to seconds"
        )
    if (members > 1).sum() > 1:
        yield (
            f"the hosts fall into {(members > 1).sum()} groups without common collectives: times can be compared inside a "
            f"group; between groups they are only as precise as UTC"
        )
    contradicted = {clock.name: size for clock in clocks if (size := clock.contradiction or 0.0) > _CONTRADICTION}
    if contradicted:
        yield (
            f"collectives and messages contradict each other about the clocks of {_listed(list(contradicted))}, by "
            f"up to {max(contradicted.values()) / 1e6:.3f} ms: the intervals of these clocks include it"
        )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{' and others' if len(names) > 8 else ''}"
