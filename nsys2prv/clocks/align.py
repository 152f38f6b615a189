"""One time axis for all reports: integer nanoseconds from the first event.

1. Reports are placed roughly, by the clocks of their sessions (`session_placement`). Clocks of hosts differ by milliseconds to
   seconds, and drift apart.
2. Collectives and messages are read (`sync_points`). Where ranks of several hosts took part in the same collectives
   (`collective_matching`), offset and drift of each clock follow from these (`estimate`).
3. Hosts without such collectives are placed by messages (`message_offsets`).
4. Clocks are moved so that no message arrives before it was sent (`causality`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.clocks.causality import enforce_causality, min_latencies
from nsys2prv.clocks.collective_matching import CollectiveSequence, match_collectives
from nsys2prv.clocks.estimate import fit
from nsys2prv.clocks.host_clock import HostClock
from nsys2prv.clocks.message_offsets import TwoWayOffsets, fit_messages, two_way_offsets
from nsys2prv.clocks.methods import AlignMethod
from nsys2prv.clocks.self_check import Disagreement
from nsys2prv.clocks.session_placement import ReportClock, place_sessions, report_clocks
from nsys2prv.clocks.sync_points import SyncPoints, sync_points_of_run
from nsys2prv.execution.workers import InThisProcess, Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import ALL, KINDS
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.time_axis import ClockCorrection, ClockError, Placement

_LEAST_ERROR = 500.0
"""ns; no clock is known better, however small its error seems."""


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
    of_reports = report_clocks(identities, rough)
    names = [clock.name for clock in of_reports]
    clock_of_name = {name: number for number, name in enumerate(dict.fromkeys(names))}
    if method in (AlignMethod.NONE, AlignMethod.UTC, AlignMethod.MONOTONIC) or len(clock_of_name) < 2:
        errors = _errors_without_estimate(of_reports)
        first = [names.index(name) for name in clock_of_name]
        return Axis(tuple(rough), errors, tuple(HostClock(names[place], rough[place].method, errors[place]) for place in first))
    clock_of_report = [clock_of_name[name] for name in names]
    with_messages = method is not AlignMethod.NCCL
    sync_points = sync_points_of_run(
        reports,
        identities,
        {AlignMethod.AUTO: KINDS, AlignMethod.MESSAGES: ()}.get(method, (method.value,)),
        with_messages=with_messages,
        workers=workers or InThisProcess(),
        known=known,
        folder=scratch,
    )

    def messages(placements: Sequence[Placement], folder: str) -> Iterator[pl.DataFrame]:
        on_axis = [placement.of for placement in placements]
        return messages_between_clocks(sync_points, on_axis, clock_of_report, scratch / folder)

    def offsets_by_messages(corrections: Sequence[ClockCorrection], stretch: int) -> TwoWayOffsets:
        placements = [placement.corrected(corrections[clock]) for placement, clock in zip(rough, clock_of_report, strict=True)]
        return two_way_offsets(messages(placements, "exchanges"), stretch)

    events = match_collectives(_sequences(sync_points, rough, clock_of_report))
    by_collectives = fit(events, len(clock_of_name))
    corrections = fit_messages(events, by_collectives, offsets_by_messages) if with_messages else by_collectives
    placements = [
        placement.corrected(corrections[clock], "collectives" if by_collectives[clock].anchors else "messages")
        for placement, clock in zip(rough, clock_of_report, strict=True)
    ]
    moves = np.zeros(len(corrections))
    if with_messages:
        precision = np.array([_precision(correction) for correction in corrections])
        moves = enforce_causality(min_latencies(messages(placements, "messages")), precision)
    moved = [replace(one, offset=one.offset + float(by)) for one, by in zip(corrections, moves, strict=True)]
    placements = [
        replace(placement, method=placement.method if moved[clock].anchors else "messages", clock=moved[clock])
        if moves[clock]
        else placement
        for placement, clock in zip(placements, clock_of_report, strict=True)
    ]
    starts = [placement.at(span[0]) for placement, span in zip(placements, spans, strict=True) if span]
    shift = -min(starts, default=0)
    errors = tuple(
        ClockError(
            clock, half_widths=(moved[clock].largest if moved[clock].anchors else float("inf"),), of_report=of_host.of_report
        )
        for clock, of_host in zip(clock_of_report, of_reports, strict=True)
    )
    clocks = tuple(
        HostClock(
            name,
            placements[clock_of_report.index(clock)].method,
            errors[clock_of_report.index(clock)],
            moved[clock] if moved[clock].anchors else None,
            float(moves[clock]),
        )
        for name, clock in clock_of_name.items()
    )
    return Axis(
        tuple(replace(placement, shift=shift) for placement in placements),
        errors,
        clocks,
        _warnings(clocks),
        tuple(sync_points),
    )


def _errors_without_estimate(clocks: Sequence[ReportClock]) -> tuple[ClockError, ...]:
    """Errors of reports whose clocks were not compared: one clock has none, of several nothing is known."""
    number_of_name = {name: number for number, name in enumerate(dict.fromkeys(clock.name for clock in clocks))}
    known = 0.0 if len(number_of_name) == 1 else float("inf")
    return tuple(ClockError(number_of_name[clock.name], half_widths=(known,), of_report=clock.of_report) for clock in clocks)


def messages_between_clocks(
    sync_points: Sequence[SyncPoints],
    on_axis: Sequence[Callable[[pl.Expr], pl.Expr]],
    clocks: Sequence[int],
    folder: Path,
) -> Iterator[pl.DataFrame]:
    """Messages from ranks of one clock to ranks of another.

    Parameters
    ----------
    sync_points
        Of each report, with the ends of its messages.
    on_axis
        Of each report, what converts its times to times of the axis.
    clocks
        Number of each report's clock.
    folder
        For intermediate files.

    Yields
    ------
    Columns `row`, `to_row` (numbers of the clocks), `time` and `to_time` (when it was sent, and when the call ended that
    received it; ns of the axis), among others.
    """
    messages = Messages(folder)
    for points, to_axis, clock in zip(sync_points, on_axis, clocks, strict=True):
        for ends in points.message_ends():
            messages.add(ends.with_columns(to_axis(pl.col("start")), to_axis(pl.col("end")), row=pl.lit(clock, pl.Int64)))
    for matched in messages.matched_ends():
        yield matched.filter(pl.col("row") != pl.col("to_row")).drop_nulls(["time", "to_time"])


def _sequences(
    sync_points: Sequence[SyncPoints], rough: Sequence[Placement], clocks: Sequence[int]
) -> list[CollectiveSequence]:
    """Sequences of collectives of all reports. Processes are numbered over all reports, as pids repeat."""
    sequences = []
    processes: dict[tuple[int, int], int] = {}
    for index, (points, placement, clock) in enumerate(zip(sync_points, rough, clocks, strict=True)):
        for kind in points.kinds:
            collectives = points.of_kind(kind)
            if collectives is None:
                continue
            ends = collectives.filter(pl.col("rule") == ALL).with_columns(end=placement.of(pl.col("end")))
            for (pid, sequence), rows in ends.group_by("process", "sequence", maintain_order=True):
                process = processes.setdefault((index, int(pid)), len(processes))
                ordered = rows.sort("end")
                group = kind if kind == "nccl" else f"{kind} {sequence}"
                sequences.append(
                    CollectiveSequence(process, clock, group, ordered["end"].to_numpy(), ordered["name"].to_numpy())
                )
    return sequences


def _precision(correction: ClockCorrection) -> float:
    """How well a clock is known: the inverse of the square of its error, ns; 0 for not at all."""
    return correction.anchors / max(correction.median, _LEAST_ERROR) ** 2 if correction.anchors else 0.0


def _warnings(clocks: Sequence[HostClock]) -> tuple[str, ...]:
    warnings = []
    alone = [clock.name for clock in clocks if clock.correction is None and not clock.by_messages]
    if alone:
        warnings.append(
            f"no collective ties the clock of {', '.join(alone[:8])}{' and others' if len(alone) > 8 else ''} to those of the "
            f"other hosts: its times are those of its clock, which can be off by milliseconds to seconds"
        )
    groups = {clock.correction.group for clock in clocks if clock.correction is not None}
    if len(groups) > 1:
        warnings.append(
            f"the hosts fall into {len(groups)} groups without common collectives: times can be compared inside a group; "
            f"between groups they are only as precise as UTC"
        )
    return tuple(warnings)
