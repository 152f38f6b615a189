"""What ties the clock of a report to those of others, read once and kept on the disk: collectives, and ends of messages."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports import Report
from nsys2prv.sources.communication.collectives import collectives
from nsys2prv.sources.communication.message_ends import MPI, kinds_of_messages, message_ends


@dataclass(frozen=True)
class SyncPoints:
    """What ties the clock of one report to others, in time of the report.

    Attributes
    ----------
    kinds
        Kinds of collectives that were looked for.
    collectives
        File with the columns of `sources.collectives.collectives` and `kind`; None when there are none.
    ends
        Ends of messages of MPI (columns of `sources.messages.END_SCHEMA`); None when there are none, or they were not read.
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
        return pl.read_ipc(self.collectives).filter(pl.col("kind") == kind).drop("kind")

    def message_ends(self) -> Iterator[pl.DataFrame]:
        """Ends of messages of MPI, in the order of their calls."""
        return iter(()) if self.ends is None else self.ends.windows(keep=True)


@dataclass(frozen=True)
class SyncPointsWork:
    """A piece of work: reports whose anchors are wanted.

    Attributes
    ----------
    reports
        Each report with the ranks of its processes.
    kinds
        Kinds of collectives.
    with_messages
        Whether messages are wanted.
    folder
        Where anchors are kept.
    """

    reports: tuple[tuple[Report, Mapping[int, int]], ...]
    kinds: tuple[str, ...]
    with_messages: bool
    folder: Path


def read_sync_points(piece: SyncPointsWork) -> list[SyncPoints]:
    """Anchors of some reports.

    Raises
    ------
    ReportError
        When a report breaks off while it is read.
    """
    # Of this attempt alone: another worker may have died over the same piece.
    folder = piece.folder / f"anchors-{secrets.token_hex(4)}"
    make_folder(folder)
    work = [
        partial(_read, report, dict(ranks), piece.kinds, piece.with_messages, folder, index)
        for index, (report, ranks) in enumerate(piece.reports)
    ]
    return run_all(work)


def _read(
    report: Report, ranks: Mapping[int, int], kinds: Sequence[str], with_messages: bool, folder: Path, index: int, stop: Stop
) -> SyncPoints:
    stop.check()
    found = [collectives(report, kind).with_columns(kind=pl.lit(kind)) for kind in kinds]
    path = None
    if any(of_kind.height for of_kind in found):
        path = folder / f"{index}.arrow"
        pl.concat(found).write_ipc(path)
    ends = None
    # Those of NCCL end with kernels, on the clock of the GPU: collectives of NCCL tell more.
    if with_messages and kinds_of_messages(report, (MPI,)):
        # In the order in which they come.
        ends = ExternalSort(["place"], folder / f"ends{index}")
        place = 0
        for piece in message_ends(report, ranks, folder / f"messages{index}"):
            stop.check()
            ends.add(piece.with_row_index("place", place).with_columns(pl.col("place").cast(pl.Int64)))
            place += piece.height
        ends.spill()
    return SyncPoints(tuple(kinds), path, ends, ranks)
