"""Rough placement of reports: by the starts of their sessions in UTC, and by the monotonic clocks of hosts."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nsys2prv.clocks.methods import AlignMethod
from nsys2prv.exports import Identity
from nsys2prv.timeline.time_axis import Placement

UTC_READINGS_APART_NS = 100_000.0
"""How far off the start of a session in UTC may be. Reports of one host share a clock, but a session reads it a little before
or after the moment that becomes time 0: in real runs, ranks of one host end a collective 20 to 90 us apart."""


class SessionTie(enum.Enum):
    """What ties a report to the others of its clock."""

    ALONE = "no other report has its clock"
    MONOTONIC = "the monotonic clock of the host"
    SESSION = "one start in UTC, to the nanosecond: that of one session"
    UTC = "the starts of the sessions in UTC, of one host"


@dataclass(frozen=True)
class ReportClock:
    """The clock that the times of a report are of.

    Attributes
    ----------
    name
        The host, with the report where nothing ties it to others of the host. Reports with one name share a clock.
    tie
        What ties the report to the others of that clock.
    """

    name: str
    tie: SessionTie

    @property
    def of_report(self) -> float:
        """How far the report may be from others of its clock, ns."""
        return UTC_READINGS_APART_NS if self.tie is SessionTie.UTC else 0.0


def place_sessions(
    identities: Sequence[Identity],
    spans: Sequence[tuple[int, int] | None],
    method: AlignMethod = AlignMethod.MONOTONIC,
) -> list[Placement]:
    """Place reports on one axis whose 0 is the first event of all, by what their clocks say.

    The monotonic clock of a host ties its reports to each other better than UTC, which steps: the first report of a host is
    placed by UTC and the others by their monotonic distance from it. A report of which the start is not known is placed with
    its first event at the first event of the others.

    Parameters
    ----------
    identities
        Hosts and starts of the reports.
    spans
        First and last time of each report, in its own time, ns; None for a report without events.
    method
        UTC places each report by its own start, NONE all first events at 0; others use the monotonic clocks.
    """
    placements: list[Placement | None] = []
    first_of_host: dict[str, tuple[int, int]] = {}
    for identity in identities:
        if identity.utc_ns is None or method is AlignMethod.NONE:
            placements.append(None)
        elif (
            method is not AlignMethod.UTC
            and identity.host
            and identity.monotonic_ns is not None
            and identity.host in first_of_host
        ):
            utc, monotonic = first_of_host[identity.host]
            placements.append(Placement("monotonic", utc + identity.monotonic_ns - monotonic))
        else:
            if identity.monotonic_ns is not None:
                first_of_host[identity.host] = (identity.utc_ns, identity.monotonic_ns)
            placements.append(Placement("utc", identity.utc_ns))
    starts = [
        placement.offset + span[0] for placement, span in zip(placements, spans, strict=True) if placement is not None and span
    ]
    origin = min(starts, default=0)
    return [
        replace(placement, offset=placement.offset - origin)
        if placement is not None
        else Placement("none", -span[0] if span else 0)
        for placement, span in zip(placements, spans, strict=True)
    ]


def report_clocks(identities: Sequence[Identity], placements: Sequence[Placement]) -> list[ReportClock]:
    """The clock of each report.

    All reports of a host share its clock: the starts of their sessions were read from it. A report without a start of its
    session, or without a host, has a separate clock.

    Parameters
    ----------
    identities
        Of the reports; reports with the same host are of one host.
    placements
        Of the reports, as of `place_sessions`.
    """
    of_host: dict[str, list[int]] = {}
    for index, identity in enumerate(identities):
        of_host.setdefault(identity.host, []).append(index)
    clocks = [ReportClock("", SessionTie.ALONE)] * len(identities)
    for host, members in of_host.items():
        placed = [index for index in members if host and placements[index].method != "none"]
        monotonic = _tied_by_monotonic(identities, placements, placed)
        is_session = len({identities[index].utc_ns for index in placed}) == 1
        for number, index in enumerate(members, start=1):
            if index in placed or len(members) == 1:
                by_utc = SessionTie.SESSION if is_session else SessionTie.UTC
                tie = SessionTie.MONOTONIC if index in monotonic else by_utc
                clocks[index] = ReportClock(host or "host", tie if len(placed) > 1 else SessionTie.ALONE)
            else:
                clocks[index] = ReportClock(f"{host or 'host'} (report {number})", SessionTie.ALONE)
    return clocks


def _tied_by_monotonic(identities: Sequence[Identity], placements: Sequence[Placement], of_host: Sequence[int]) -> set[int]:
    """Reports of a host that were placed by its monotonic clock, and the one relative to which they were placed."""
    tied = {index for index in of_host if placements[index].method == "monotonic"}
    first = next((index for index in of_host if identities[index].monotonic_ns is not None), None)
    return tied | {first} if tied and first is not None else tied
