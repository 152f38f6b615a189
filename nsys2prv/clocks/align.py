"""One time axis for all reports: integer nanoseconds from the first event.

Reports are placed roughly first: by the start of their sessions in UTC, those of one host tied to each other by its monotonic
clock. Clocks of hosts differ by milliseconds to seconds and drift apart; where ranks met in collectives, offset and drift of
each clock follow from these (`meetings`, `clocks`), else from messages (`exchanges`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.clocks.causality import enforce_causality, messages_between, min_latencies
from nsys2prv.clocks.collective_matching import Collectives, match_collectives
from nsys2prv.clocks.estimate import Meetings, fit
from nsys2prv.clocks.message_offsets import Exchanges, exchanges, fit_messages
from nsys2prv.clocks.sync_points import SyncPoints, SyncPointsWork, read_sync_points
from nsys2prv.execution.sizes import REPORTS_AT_ONCE
from nsys2prv.execution.workers import InThisProcess, Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import KINDS
from nsys2prv.timeline.time_axis import Clock, Placement

_LEAST_ERROR = 500.0
"""ns; no clock is known better, however small its error seems."""


@dataclass(frozen=True)
class HostClock:
    """What is known of the clock of a host (or of one report, where those of a host are not tied to each other).

    Attributes
    ----------
    name
        Host, with the report where there are several clocks of it.
    method
        "collectives", or how it was placed without.
    clock
        Offset, drift, anchors and remaining error; None without anchors.
    by_messages
        Part of the offset that comes from messages, ns.
    """

    name: str
    method: str
    clock: Clock | None
    by_messages: float = 0.0

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"host": self.name, "method": self.method, "by_messages_ns": round(self.by_messages)}
        if self.clock is not None:
            values = asdict(self.clock)
            told |= {
                "anchors": values["anchors"],
                "offset_ns": round(values["offset"]),
                "drift_ppm": round(values["drift"] * 1e6, 4),
                "error_ns": {
                    "median": round(values["median"]),
                    "percentile_95": round(values["percentile_95"]),
                    "largest": round(values["largest"]),
                    "over_time": [None if np.isnan(value) else round(value) for value in values["bins"]],
                },
            }
        return told


@dataclass(frozen=True)
class Axis:
    """The common axis.

    Attributes
    ----------
    placements
        One per report.
    clocks
        The clocks that they come from.
    warnings
        What was odd.
    anchors
        Of each report, what was read of it; empty when there was nothing to align.
    """

    placements: tuple[Placement, ...]
    clocks: tuple[HostClock, ...] = ()
    warnings: tuple[str, ...] = ()
    anchors: tuple[SyncPoints, ...] = ()


def place(
    identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None], method: str = "monotonic"
) -> list[Placement]:
    """Place reports on one axis whose 0 is the first event of all, by what their clocks say.

    The monotonic clock of a host ties its reports to each other better than UTC, which steps: the first report of a host is
    placed by UTC and the others by their monotonic distance from it. A report that does not tell when it began is placed
    with its first event at the first event of the others.

    Parameters
    ----------
    identities
        Who the reports are.
    spans
        First and last time of each report, in its own time, ns; None for a report without events.
    method
        "monotonic", "utc" (each report by its own start), or "none" (all first events at 0).
    """
    placements: list[Placement | None] = []
    anchors: dict[str, tuple[int, int]] = {}
    for identity in identities:
        if identity.utc_ns is None or method == "none":
            placements.append(None)
        elif method != "utc" and identity.host and identity.monotonic_ns is not None and identity.host in anchors:
            utc, monotonic = anchors[identity.host]
            placements.append(Placement("monotonic", utc + identity.monotonic_ns - monotonic))
        else:
            if identity.monotonic_ns is not None:
                anchors[identity.host] = (identity.utc_ns, identity.monotonic_ns)
            placements.append(Placement("utc", identity.utc_ns))
    begins = [
        placement.offset + span[0] for placement, span in zip(placements, spans, strict=True) if placement is not None and span
    ]
    origin = min(begins, default=0)
    return [
        replace(placement, offset=placement.offset - origin)
        if placement is not None
        else Placement("none", -span[0] if span else 0)
        for placement, span in zip(placements, spans, strict=True)
    ]


def align(
    reports: Sequence[Report],
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    method: str = "auto",
    scratch: Path | None = None,
    *,
    workers: Workers | None = None,
    known: Sequence[SyncPoints | None] = (),
) -> Axis:
    """Place reports on one axis as well as can be.

    Collectives say where clocks are to within their noise, messages what can't be: clocks are moved by as little as can be,
    the best known ones the least, until no message arrives before it was sent.

    Parameters
    ----------
    reports, identities, spans
        The reports, who they are, and their first and last time.
    method
        An `AlignMethod`: "mpi" and "nccl" use collectives of one kind, "auto" of both, "messages" none. Messages, which are of
        MPI, place hosts that collectives leave apart, and keep all forward.
    scratch
        For intermediate files; without it, messages are not looked at.
    workers
        Who reads the reports; None: this process.
    known
        Anchors of each report from an earlier call, as far as there are some.

    Raises
    ------
    ReportError
        When a report breaks off while it is read.
    """
    rough = place(identities, spans, method if method in ("none", "utc") else "monotonic")
    names = _clock_names(identities, rough)
    distinct = list(dict.fromkeys(names))
    if method in ("none", "utc", "monotonic") or len(distinct) < 2:
        return Axis(tuple(rough))
    number = {name: index for index, name in enumerate(distinct)}
    kinds = {"auto": KINDS, "messages": ()}.get(method, (method,))
    with_messages = scratch is not None and method != "nccl"
    read = partial(_anchors, reports, identities, kinds, with_messages, workers or InThisProcess(), known)
    if scratch is None:
        with TemporaryDirectory(prefix="nsys2prv-") as folder:
            anchors = read(Path(folder))
            sequences = _sequences(anchors, rough, names, number)
    else:
        anchors = read(scratch)
        sequences = _sequences(anchors, rough, names, number)
    of_report = [number[name] for name in names]
    meetings = Meetings(*match_collectives(sequences))
    met = clocks = fit(meetings, len(distinct))
    if scratch is not None and with_messages:
        look = partial(_exchanges, anchors, rough, of_report, scratch)
        clocks = fit_messages(meetings, met, look)
    placements = [
        replace(placement, method="collectives" if met[index].anchors else "messages", clock=clocks[index])
        if clocks[index].anchors
        else placement
        for placement, index in zip(rough, of_report, strict=True)
    ]
    moved = np.zeros(len(distinct))
    if scratch is not None and with_messages:
        ways = min_latencies(
            messages_between(anchors, [placement.of for placement in placements], of_report, scratch / "messages")
        )
        moved = enforce_causality(ways, np.array([_precision(clock) for clock in clocks]))
        placements = [
            _moved(placement, clocks[index], float(moved[index]))
            for placement, index in zip(placements, of_report, strict=True)
        ]
        clocks = [replace(clock, offset=clock.offset + float(by)) for clock, by in zip(clocks, moved, strict=True)]
    begins = [placement.at(span[0]) for placement, span in zip(placements, spans, strict=True) if span]
    shift = -min(begins, default=0)
    placements = [replace(placement, shift=shift) for placement in placements]
    told = tuple(
        HostClock(
            name,
            next(placement.method for placement, of_report in zip(placements, names, strict=True) if of_report == name),
            clocks[number[name]] if clocks[number[name]].anchors else None,
            float(moved[number[name]]),
        )
        for name in distinct
    )
    return Axis(tuple(placements), told, _odd(told), tuple(anchors))


def _anchors(
    reports: Sequence[Report],
    identities: Sequence[Identity],
    kinds: tuple[str, ...],
    with_messages: bool,
    workers: Workers,
    known: Sequence[SyncPoints | None],
    folder: Path,
) -> list[SyncPoints]:
    """Anchors of all reports: those that are known already, and the others as they are read now."""
    found = [
        anchors if anchors is not None and anchors.kinds == kinds and anchors.ranks == identity.ranks else None
        for anchors, identity in zip(known or [None] * len(reports), identities, strict=True)
    ]
    left = [index for index, anchors in enumerate(found) if anchors is None]
    groups = [[left[place] for place in group] for group in workers.groups([1] * len(left), REPORTS_AT_ONCE)]
    pieces = [
        SyncPointsWork(tuple((reports[index], dict(identities[index].ranks)) for index in group), kinds, with_messages, folder)
        for group in groups
    ]
    for group, read in zip(groups, workers.map(read_sync_points, pieces), strict=True):
        for index, anchors in zip(group, read, strict=True):
            found[index] = anchors
    return [anchors for anchors in found if anchors is not None]


def _exchanges(
    anchors: Sequence[SyncPoints],
    rough: Sequence[Placement],
    of_report: Sequence[int],
    scratch: Path,
    clocks: Sequence[Clock],
    length: int,
) -> Exchanges:
    """What messages tell when clocks are corrected."""
    on_axis = [
        (replace(placement, clock=clocks[index]) if clocks[index].anchors else placement).of
        for placement, index in zip(rough, of_report, strict=True)
    ]
    return exchanges(messages_between(anchors, on_axis, of_report, scratch / "exchanges"), length)


def _precision(clock: Clock) -> float:
    """How well a clock is known: the inverse of the square of its error, ns; 0 for not at all."""
    return clock.anchors / max(clock.median, _LEAST_ERROR) ** 2 if clock.anchors else 0.0


def _moved(placement: Placement, clock: Clock, by: float) -> Placement:
    if not by:
        return placement
    method = placement.method if clock.anchors else "messages"
    return replace(placement, method=method, clock=replace(clock, offset=clock.offset + by))


def _clock_names(identities: Sequence[Identity], rough: Sequence[Placement]) -> list[str]:
    """Reports of a host share its clock where the monotonic clock ties them; else each has its own."""
    of_host: dict[str, list[int]] = {}
    for index, identity in enumerate(identities):
        of_host.setdefault(identity.host, []).append(index)
    names = [""] * len(identities)
    for host, members in of_host.items():
        tied = bool(host) and sum(rough[index].method != "monotonic" for index in members) == 1
        for place_in, index in enumerate(members):
            names[index] = (host or "host") if tied else f"{host or 'host'} (report {place_in + 1})"
    return names


def _sequences(
    anchors: Sequence[SyncPoints], rough: Sequence[Placement], names: Sequence[str], number: dict[str, int]
) -> list[Collectives]:
    """Sequences of collectives of all reports; pids repeat between reports, so each has its own number."""
    found = []
    owners: dict[tuple[int, int], int] = {}
    for index, (of_report, placement, name) in enumerate(zip(anchors, rough, names, strict=True)):
        for kind in of_report.kinds:
            told = of_report.of_kind(kind)
            if told is None:
                continue
            ends = told.with_columns(end=placement.of(pl.col("end")))
            for (process, sequence), rows in ends.group_by("process", "sequence", maintain_order=True):
                owner = owners.setdefault((index, int(process)), len(owners))
                ordered = rows.sort("end")
                group = kind if kind == "nccl" else f"{kind} {sequence}"
                found.append(Collectives(owner, number[name], group, ordered["end"].to_numpy(), ordered["name"].to_numpy()))
    return found


def _odd(clocks: Sequence[HostClock]) -> tuple[str, ...]:
    alone = [clock.name for clock in clocks if clock.clock is None and not clock.by_messages]
    found = []
    if alone:
        found.append(
            f"no collective ties the clock of {', '.join(alone[:8])}{' and others' if len(alone) > 8 else ''} to those of the "
            f"other hosts: it stands where its own clock puts it, which can be off by milliseconds to seconds"
        )
    groups = {clock.clock.group for clock in clocks if clock.clock is not None}
    if len(groups) > 1:
        found.append(
            f"the hosts fall into {len(groups)} groups that met in no collective: inside a group times compare, between groups "
            f"they are only as good as UTC"
        )
    return tuple(found)
