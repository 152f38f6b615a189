"""Sync points: what ties the clock of a report to others. They are read once and kept on the disk."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import REPORTS_AT_ONCE
from nsys2prv.execution.output_files import make_folder
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.execution.workers import Workers
from nsys2prv.exports import Identity, Report
from nsys2prv.sources.communication.collectives import read_collectives
from nsys2prv.sources.communication.message_ends import BOUNDING, kinds_of_messages, read_message_ends


@dataclass(frozen=True)
class SyncPoints:
    """Sync points of one report, in time of the report.

    Attributes
    ----------
    kinds
        Kinds of collectives that were read.
    collectives
        File with the columns of `sources.communication.collectives.read_collectives` and `kind`; None when there are none.
    ends
        Ends of messages of the kinds `BOUNDING` (columns of `sources.communication.message_ends.END_SCHEMA`); None when there
        are none, or they were not read.
    ranks
        Ranks of processes, by globalPid, that the ends were read with.
    """

    kinds: tuple[str, ...]
    collectives: Path | None
    ends: ExternalSort | None
    ranks: Mapping[int, int]

    def of_kind(self, kind: str) -> pl.DataFrame | None:
        """Collectives of a kind; None when there are none."""
        if self.collectives is None:
            return None
        with self.collectives.open("rb") as file:
            return pl.read_ipc(file).filter(pl.col("kind") == kind).drop("kind")

    def message_ends(self) -> Iterator[pl.DataFrame]:
        """Ends of messages, in the order in which they were read."""
        return iter(()) if self.ends is None else self.ends.windows(keep=True)


def sync_points_of_run(
    reports: Sequence[Report],
    identities: Sequence[Identity],
    kinds: tuple[str, ...],
    *,
    with_messages: bool,
    workers: Workers,
    known: Sequence[SyncPoints | None],
    folder: Path,
) -> list[SyncPoints]:
    """Sync points of all reports, as far as they are not `known` already.

    Raises
    ------
    ReportError
        When a report breaks off while it is read.
    """
    found = [
        points if points is not None and points.kinds == kinds and points.ranks == identity.ranks else None
        for points, identity in zip(known or [None] * len(reports), identities, strict=True)
    ]
    missing = [index for index, points in enumerate(found) if points is None]
    groups = [[missing[place] for place in group] for group in workers.groups([1] * len(missing), REPORTS_AT_ONCE)]
    pieces = [[(reports[index], dict(identities[index].ranks)) for index in group] for group in groups]
    work = partial(_read_reports, kinds, with_messages, folder)
    for group, read in zip(groups, workers.map(work, pieces), strict=True):
        for index, points in zip(group, read, strict=True):
            found[index] = points
    return [points for points in found if points is not None]


def _read_reports(
    kinds: tuple[str, ...], with_messages: bool, scratch: Path, reports: Sequence[tuple[Report, Mapping[int, int]]]
) -> list[SyncPoints]:
    # The folder is of this attempt alone: a worker may have died over the same piece before.
    folder = scratch / f"sync-points-{secrets.token_hex(4)}"
    make_folder(folder)
    return run_all(
        [partial(_read, report, ranks, kinds, with_messages, folder, index) for index, (report, ranks) in enumerate(reports)]
    )


def _read(
    report: Report, ranks: Mapping[int, int], kinds: Sequence[str], with_messages: bool, folder: Path, index: int, stop: Stop
) -> SyncPoints:
    stop.check()
    by_kind = [
        read_collectives(report, kind, ranks, folder / f"calls{index}").with_columns(kind=pl.lit(kind)) for kind in kinds
    ]
    path = None
    if any(of_kind.height for of_kind in by_kind):
        path = folder / f"{index}.arrow"
        pl.concat(by_kind).write_ipc(path)
    ends = None
    message_kinds = kinds_of_messages(report, BOUNDING) if with_messages else ()
    if message_kinds:
        # `place` keeps the order in which they are read.
        ends = ExternalSort(["place"], folder / f"ends{index}")
        place = 0
        for piece in read_message_ends(report, ranks, folder / f"messages{index}", message_kinds):
            stop.check()
            ends.add(piece.with_row_index("place", place).with_columns(pl.col("place").cast(pl.Int64)))
            place += piece.height
        ends.spill()
    return SyncPoints(tuple(kinds), path, ends, ranks)
