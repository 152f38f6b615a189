"""Ends of messages between ranks, of one report: on rows and on the common time axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from nsys2prv.exports.columns import process_of
from nsys2prv.run.open import OpenedReport
from nsys2prv.sources.communication.message_ends import BOUNDING, kinds_of_messages, read_message_ends
from nsys2prv.sources.source import RowKind
from nsys2prv.timeline.rank_messages import Messages
from nsys2prv.timeline.reader import TimelinePlan


def add_message_ends(
    messages: Messages, timeline: TimelinePlan, index: int, opened: OpenedReport, kinds: Sequence[str], folder: Path
) -> None:
    """Add the ends of messages that a report has to those of the run.

    Parameters
    ----------
    messages
        Takes the ends.
    timeline
        Rows and time axis.
    index, opened
        Number of the report in the plan, and the report.
    kinds
        Kinds of messages, of `message_ends.SOURCE_OF_KIND`.
    folder
        For intermediate files.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    threads = timeline.rows.keys.get((index, RowKind.THREAD))
    present = kinds_of_messages(opened.report, kinds)
    if threads is None or not present:
        return
    ranks = {process_of(tid): timeline.rows.rank(row) for tid, row in threads.select("globalTid", "row").iter_rows()}
    known = {process: rank for process, rank in ranks.items() if rank is not None}
    placement = timeline.placements[index]
    added = messages.part()
    sync_points = opened.sync_points
    already_read: Iterator[pl.DataFrame] = iter(())
    if sync_points is not None and sync_points.ends is not None and sync_points.ranks == known:
        bounding = kinds_of_messages(opened.report, BOUNDING)
        if set(bounding).issubset(present):
            # They were read when clocks were aligned.
            already_read = (ends.drop("place") for ends in sync_points.message_ends())
            present = tuple(kind for kind in present if kind not in bounding)
    for ends in itertools.chain(already_read, read_message_ends(opened.report, known, folder, present)):
        placed = ends.join(threads, on="globalTid", how="inner", maintain_order="left")
        added.add(placed.with_columns(placement.of(pl.col("start")), placement.of(pl.col("end"))))
    messages.absorb(added)
