"""One time axis for all reports: integer nanoseconds from the first event.

1. Reports are placed roughly, by the starts of their sessions, and what ties them to others is read (`sync_points`).
2. The same collectives of several ranks are found (`collective_matching`, and `sequence_matching` for two of them), and the two
   ends of messages (`anchors`).
3. Where clocks jump is found (`anchors`); offset and drift of each clock are estimated from the ends of collectives, and where
   there are none from messages both ways. Where UTC is as good, it is kept (`estimate`).
4. Clocks are moved by as little as possible until no message arrives before it was sent, and no rank leaves a collective before
   the last one has come. The same bounds, and how well ends agree, say how well each clock is known (`bounds`, `agreement`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.clocks import AlignMethod
from nsys2prv.clocks.agreement import Disagreement, check_axis, count_anchors, deviations, report_agreement
from nsys2prv.clocks.anchors import FASTEST_CLOCK, PRECISION, Anchors, Floats, Ints, corrected_times, match_messages, stepping
from nsys2prv.clocks.bounds import ClockIntervals, bounds_of_run, clock_intervals, enforce_bounds
from nsys2prv.clocks.collective_matching import match_run
from nsys2prv.clocks.estimate import Estimate, estimate_clocks
from nsys2prv.clocks.sync_points import ReportClock, SyncPoints, place_sessions, report_clocks, sync_points_of_run
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import KINDS
from nsys2prv.timeline.time_axis import ClockCorrection, ClockError, ClockStep, Placement

_BY_SESSIONS = (AlignMethod.NONE, AlignMethod.UTC, AlignMethod.MONOTONIC)
_KINDS = {AlignMethod.NCCL: ("nccl",), AlignMethod.MPI: ("mpi",), AlignMethod.MESSAGES: ()}  # Others use all kinds
_UTC_PRECISION = 1e5  # ns; how well UTC is taken to be known, where it is preferred
_CONTRADICTION = 1e5  # ns; smaller contradictions of bounds are not worth a warning: clocks wander


@dataclass(frozen=True)
class HostClock:
    """What is known of the clock of a host (or of one report, where nothing ties those of a host).

    `by_messages` is the part of the offset that comes from bounds: no message arrives before it was sent, no rank leaves a
    collective before the last one entered it. `anchors` are, by kind ("nccl" and "mpi" for collectives, "messages"): how many
    the clock was estimated with (`used`), and how many it does not agree with (`outliers`)."""

    name: str  # the host, with the report where there are several clocks of it
    method: str  # as of `Placement`
    error: ClockError
    correction: ClockCorrection | None = None  # None: nothing is subtracted
    by_messages: float = 0.0  # ns
    drift_error: float = float("inf")  # how far the drift may be off, without a unit
    anchors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    contradiction: float = float("nan")  # by how much the most violated bound is violated as placed, ns; NaN without bounds

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "host": self.name,
            "method": self.method,
            "by_messages_ns": round(self.by_messages),
            "interval_ns": {
                "best": _rounded(min(self.error.half_widths)),
                "worst": _rounded(max(self.error.half_widths)),
                "times": list(self.error.times),
                "half_widths": [_rounded(width) for width in self.error.half_widths],
            },
            "anchors_by_kind": dict(self.anchors),
            "contradiction_ns": _rounded(self.contradiction),
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
    """The common axis: placements, errors and sync points of each report (these are empty when none were read), warnings about
    the clocks, and in `disagreements` what cannot be as it was placed, the largest first."""

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

    Identities have hosts and ranks; spans are first and last times, ns. The method NCCL does not use messages. The scratch
    folder is for intermediate files. Raises ReportError when a report breaks off while it is read."""
    rough = place_sessions(identities, spans, method)
    clocks = report_clocks(identities, rough)
    if len(reports) == 1:
        return Axis(tuple(rough), (ClockError(0),), (HostClock(clocks[0].name, rough[0].method, ClockError(0)),))
    has_several = len({clock.name for clock in clocks}) > 1 or any(clock.of_report for clock in clocks)
    is_estimated = has_several and method not in _BY_SESSIONS
    sync_points = sync_points_of_run(
        reports,
        identities,
        # Without an estimate all that there is checks what the clocks of the sessions say.
        _KINDS.get(method, KINDS) if is_estimated else KINDS,
        with_messages=not is_estimated or method is not AlignMethod.NCCL,
        workers=workers or Workers(),
        folder=scratch,
    )
    messages = match_messages(sync_points, rough, scratch / "matched-messages")
    warnings: list[str] = []
    widths, off = np.array([clock.of_report for clock in clocks]), [-1]
    while off:
        numbers: dict[str, int] = {}
        clock_of_report = [numbers.setdefault(clock.name, len(numbers)) for clock in clocks]
        matched = match_run(sync_points, rough, clock_of_report)
        anchors = Anchors(list(numbers), np.array(clock_of_report), *matched, messages)
        widths, off = report_agreement(anchors.collectives, clocks) if is_estimated else (widths, [])
        for report in off:
            host = clocks[report].name
            clocks[report] = ReportClock(f"{host} (report {report + 1})")
            warnings.append(
                f"{host}: collectives put report {report + 1} more than 1 ms off the others of its host: "
                f"the start of its session is wrong, it is placed by itself"
            )
    axis = _axis(anchors, rough, widths, spans, estimate_clocks(anchors) if is_estimated else None)
    return replace(axis, warnings=(*warnings, *axis.warnings), sync_points=tuple(sync_points))


def _axis(
    anchors: Anchors,
    rough: Sequence[Placement],
    widths: Floats,
    spans: Sequence[tuple[int, int] | None],
    estimate: Estimate | None,
) -> Axis:
    """The axis by an estimate, else by sessions; `widths`: how far each report may be off its clock, ns."""
    alone = (0.0 if anchors.clocks == 1 else float("inf"),)
    corrections, placed_by, moves = stepping(anchors.clocks, {}), ("utc",) * anchors.clocks, np.zeros(anchors.clocks)
    intervals = None
    if estimate is not None:
        placed_by, moves = estimate.placed_by, _moves(anchors, estimate)
        corrections = [
            replace(correction, offset=correction.offset + by)
            for correction, by in zip(estimate.corrections, moves.tolist(), strict=True)
        ]
    subtracted = [correction if correction.anchors or by else None for correction, by in zip(corrections, moves, strict=True)]
    # A clock without anchors may have been moved by messages.
    methods = np.where([correction.anchors > 0 for correction in corrections], placed_by, np.where(moves, "messages", "utc"))
    clock_of_report = anchors.clock_of_report.tolist()
    placements = [
        replace(at, clock=subtracted[clock], method=at.method if methods[clock] == "utc" else str(methods[clock]))
        for at, clock in zip(rough, clock_of_report, strict=True)
    ]
    ends = [placement.at(time) for placement, span in zip(placements, spans, strict=True) for time in span or ()]
    first, last = min(ends, default=0), max(ends, default=0)
    collectives = anchors.placed_collectives(corrections)
    of_hosts = deviations(collectives)
    if estimate is not None and anchors.clocks > 1 and len((bounds := bounds_of_run(anchors, corrections, widths)).start):
        has_steps = any(step.size for correction in corrections for step in correction.steps)
        intervals = clock_intervals(bounds, first, last, of_hosts, has_steps=has_steps)
    errors = [
        _error(clock, width, intervals, corrections, first)
        if intervals is not None
        else ClockError(clock, (0,), alone, width, clock if estimate is not None else 0)
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
            counts[clock] if estimate is not None else {},
            float("nan") if intervals is None else float(intervals.contradiction[clock]),
        )
        for clock, name in enumerate(anchors.names)
    ]
    collectives = collectives.with_columns(pl.col("start", "end") - first)
    return Axis(
        tuple(replace(placement, shift=placement.shift - first) for placement in placements),
        tuple(errors),
        tuple(clocks),
        tuple(_warnings(anchors, estimate.refused, clocks, corrections, first)) if estimate is not None else (),
        disagreements=check_axis(collectives, anchors.placed_messages(corrections), errors, anchors.names),
    )


def _moves(anchors: Anchors, estimate: Estimate) -> Floats:
    """What to subtract from each clock besides, ns, so that no message arrives before it was sent."""
    # The inverse of the square of the error of each clock; 0 where nothing is known.
    precisions = [
        1 / _UTC_PRECISION**2 if method == "utc" else correction.anchors / max(correction.median, PRECISION) ** 2
        for correction, method in zip(estimate.corrections, estimate.placed_by, strict=True)
    ]
    return enforce_bounds(bounds_of_run(anchors, estimate.corrections).over_all, np.nan_to_num(precisions))


def _error(
    clock: int, of_report: float, intervals: ClockIntervals, corrections: Sequence[ClockCorrection], first: int
) -> ClockError:
    """How well a report is known: an interval that includes each step of its clock wherever that was between two anchors."""
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


def _warnings(
    anchors: Anchors, refused: Sequence[int], clocks: Sequence[HostClock], corrections: Sequence[ClockCorrection], first: int
) -> Iterator[str]:
    """What a user should know of the clocks."""
    for number, clock in enumerate(clocks):
        if jumps := corrections[number].jumps:
            begin, end = _on_axis(jumps, number, corrections, first) / 1e9
            largest = int(np.argmax([abs(jump.size) for jump in jumps]))
            often = f"{len(jumps)} times, most " if len(jumps) > 1 else ""
            yield (
                f"the clock of {clock.name} jumps or is slewed {often}by {jumps[largest].size / 1e6:+.3f} ms between "
                f"{begin[largest]:.3f} and {end[largest]:.3f} s: that is corrected, but not known well between the collectives "
                f"before and after it"
            )
    names = anchors.names
    for number in refused:
        yield (
            f"collectives give the clock of {names[number]} a drift of more than {FASTEST_CLOCK * 1e6:.0f} ppm, which "
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
    if alone := [name for name, of_clock in zip(names, group, strict=True) if members[of_clock] == 1]:
        yield (
            f"no collective ties {_listed(alone)} to the other hosts: times there are those of the host's own clock, which "
            f"can be off by milliseconds to seconds"
        )
    if (groups := (members > 1).sum()) > 1:
        yield (
            f"the hosts fall into {groups} groups without common collectives: times can be compared inside a "
            f"group; between groups they are only as precise as UTC"
        )
    if contradicted := {clock.name: size for clock in clocks if (size := clock.contradiction) > _CONTRADICTION}:
        yield (
            f"collectives and messages contradict each other about the clocks of {_listed(list(contradicted))}, by "
            f"up to {max(contradicted.values()) / 1e6:.3f} ms: the intervals of these clocks include it"
        )


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:8])}{' and others' if len(names) > 8 else ''}"
