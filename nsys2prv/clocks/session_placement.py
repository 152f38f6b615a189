"""Rough placement of reports: by the starts of their sessions in UTC, and by the monotonic clocks of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsys2prv.clocks.methods import AlignMethod
from nsys2prv.exports import Identity
from nsys2prv.timeline.time_axis import Placement


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


def clock_names(identities: Sequence[Identity], placements: Sequence[Placement]) -> list[str]:
    """The clock of each report: that of its host if the monotonic clock ties the reports of the host, else a separate one."""
    of_host: dict[str, list[int]] = {}
    for index, identity in enumerate(identities):
        of_host.setdefault(identity.host, []).append(index)
    names = [""] * len(identities)
    for host, members in of_host.items():
        is_tied = bool(host) and sum(placements[index].method != "monotonic" for index in members) == 1
        for number, index in enumerate(members, start=1):
            names[index] = (host or "host") if is_tied else f"{host or 'host'} (report {number})"
    return names
