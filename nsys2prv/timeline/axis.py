"""One time axis for all reports: integer nanoseconds from the first event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsys2prv.reports import Identity


@dataclass(frozen=True)
class Placement:
    """How the clock of one report is placed on the common axis: `time = report time + offset`.

    Attributes
    ----------
    method
        "utc": by the start of the session; "monotonic": by the monotonic clock of the host; "none": not placed.
    offset
        Added to times of the report, ns.
    """

    method: str
    offset: int


def place(identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None]) -> list[Placement]:
    """Place reports on one axis whose 0 is the first event of all.

    The monotonic clock of a host ties its reports to each other better than UTC, which steps: the first report of a host is
    placed by UTC and the others by their monotonic distance from it. A report that does not tell when it began is placed
    with its first event at the first event of the others.

    Parameters
    ----------
    identities
        Who the reports are.
    spans
        First and last time of each report, in its own time, ns; None for a report without events.
    """
    placements: list[Placement | None] = []
    anchors: dict[str, tuple[int, int]] = {}
    for identity in identities:
        if identity.utc_ns is None:
            placements.append(None)
        elif identity.host and identity.monotonic_ns is not None and identity.host in anchors:
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
        Placement(placement.method, placement.offset - origin)
        if placement is not None
        else Placement("none", -span[0] if span else 0)
        for placement, span in zip(placements, spans, strict=True)
    ]
