"""Sync points: what ties the clock of a report to those of others.

The start of its session places a report roughly: in UTC, and by the monotonic clock of its host. Its collectives and the ends
of its messages tie it to other reports; they are read once and kept on the disk."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import polars as pl

from nsys2prv.clocks import AlignMethod
from nsys2prv.execution.memory import REPORTS_AT_ONCE
from nsys2prv.execution.output_files import make_folder
from nsys2prv.execution.process import Stop, run_all
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import read_collectives
from nsys2prv.sources.communication.message_ends import BOUNDING, kinds_of_messages, read_message_ends
from nsys2prv.timeline.time_axis import Placement

UTC_READINGS_APART_NS = 100_000.0
"""How far off the start of a session in UTC may be. Reports of one host share a clock, but a session reads it a little before
or after the moment that becomes time 0."""


@dataclass(frozen=True)
class ReportClock:
    """The clock of a report: the host, with the report where nothing ties it to others of the host. Reports with one name share
    a clock. `of_report`: how far the report may be from these, ns; not 0 where only UTC ties it to them."""

    name: str
    of_report: float = 0.0


def place_sessions(
    identities: Sequence[Identity], spans: Sequence[tuple[int, int] | None], method: AlignMethod = AlignMethod.MONOTONIC
) -> list[Placement]:
    """Place reports on one axis whose 0 is the first event of all, by what their clocks say.

    The monotonic clock of a host ties its reports to each other better than UTC, which steps: the first report of a host is
    placed by UTC and the others by their monotonic distance from it. A report of which the start is not known is placed with
    its first event at the first event of the others. With the method UTC each report is placed by its start, with NONE all
    first events are at 0. Spans are the first and the last time of each report, in its time, ns; None without events."""
    zero_of_host: dict[str, int] = {}
    placements = [_place(identity, zero_of_host, method) for identity in identities]
    origin = min((at.offset + span[0] for at, span in zip(placements, spans, strict=True) if at and span), default=0)
    return [
        replace(placement, offset=placement.offset - origin) if placement else Placement("none", -span[0] if span else 0)
        for placement, span in zip(placements, spans, strict=True)
    ]


def _place(identity: Identity, zero_of_host: dict[str, int], method: AlignMethod) -> Placement | None:
    """The placement in UTC, if that is known. `zero_of_host`: where the monotonic clock of each host has its 0, in UTC."""
    host, utc, monotonic = identity.host, identity.utc_ns, identity.monotonic_ns
    if utc is None or method is AlignMethod.NONE:
        return None
    if monotonic is not None and host and method is not AlignMethod.UTC:
        if host in zero_of_host:
            return Placement("monotonic", zero_of_host[host] + monotonic)
        zero_of_host[host] = utc - monotonic
    return Placement("utc", utc)


def report_clocks(identities: Sequence[Identity], placements: Sequence[Placement]) -> list[ReportClock]:
    """The clock of each report, which `place_sessions` placed.

    All reports of a host share its clock: the starts of their sessions were read from it. A report without a start of its
    session, or without a host, has a separate clock."""
    of_host: dict[str, list[int]] = {}
    for index, identity in enumerate(identities):
        of_host.setdefault(identity.host, []).append(index)
    clocks = [ReportClock("")] * len(identities)
    for host, members in of_host.items():
        placed = [index for index in members if host and placements[index].method != "none"]
        is_one_session = len({identities[index].utc_ns for index in placed}) == 1
        has_monotonic = any(placements[index].method == "monotonic" for index in placed)
        for number, index in enumerate(members, start=1):
            is_tied = is_one_session or (has_monotonic and identities[index].monotonic_ns is not None)
            if index in placed or len(members) == 1:
                clocks[index] = ReportClock(host or "host", 0.0 if is_tied or len(placed) < 2 else UTC_READINGS_APART_NS)
            else:
                clocks[index] = ReportClock(f"{host or 'host'} (report {number})")
    return clocks


@dataclass(frozen=True)
class SyncPoints:
    """Files of collectives and ends of messages of one report, in time of the report."""

    collectives: Path | None  # columns of `sources.communication.collectives.read_collectives`, and `kind`
    ends: tuple[Path, ...]  # of the kinds `BOUNDING`, columns of `sources.communication.message_ends.END_SCHEMA`
    ranks: Mapping[int, int]  # of processes, by globalPid, that the ends were read with


def sync_points_of_run(
    reports: Sequence[Report],
    identities: Sequence[Identity],
    kinds: Sequence[str],
    *,
    with_messages: bool,
    workers: Workers,
    folder: Path,
) -> list[SyncPoints]:
    """Sync points of all reports: collectives of some kinds, and ends of messages, in files in a folder. Raises ReportError
    when a report breaks off while it is read."""
    groups = workers.groups([1] * len(reports), REPORTS_AT_ONCE)
    parts = [[(reports[index], dict(identities[index].ranks)) for index in group] for group in groups]
    return list(chain.from_iterable(workers.map(partial(_read_reports, kinds, with_messages, folder), parts)))


def _read_reports(
    kinds: Sequence[str], with_messages: bool, scratch: Path, reports: Sequence[tuple[Report, Mapping[int, int]]]
) -> list[SyncPoints]:
    # The folder is of this attempt alone: a worker may have died over the same reports before.
    folder = scratch / f"sync-points-{secrets.token_hex(4)}"
    parts = [(report, ranks, kinds, with_messages, folder / str(index)) for index, (report, ranks) in enumerate(reports)]
    return run_all([partial(_read, *part) for part in parts])


def _read(
    report: Report, ranks: Mapping[int, int], kinds: Sequence[str], with_messages: bool, folder: Path, stop: Stop
) -> SyncPoints:
    stop.check()
    make_folder(folder)
    by_kind = [read_collectives(report, kind, ranks, folder / "calls").with_columns(kind=pl.lit(kind)) for kind in kinds]
    collectives = folder / "collectives.arrow" if any(of_kind.height for of_kind in by_kind) else None
    if collectives is not None:
        pl.concat(by_kind).write_ipc(collectives)
    ends: list[Path] = []
    message_kinds = kinds_of_messages(report, BOUNDING) if with_messages else ()
    for piece in read_message_ends(report, ranks, folder / "messages", message_kinds):
        stop.check()
        ends.append(folder / f"ends{len(ends)}.arrow")
        piece.write_ipc(ends[-1])
    return SyncPoints(collectives, tuple(ends), ranks)
