"""Streams with events that overlap: kernels that start before the one before has ended, copies of unified memory.

A row shows one event at a time. A stream gets as many rows, its lanes, as events of one source run on it at once: nearly
always one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.sizes import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import RowKind, Source

_STREAM = "stream_number"


class StreamLanes:
    """A step that gives events of streams (key columns of RowKind.STREAM, `start`, `end`) the column `lane`.

    Called with pieces in the order of `start`.
    """

    def __init__(self, keys: pl.DataFrame) -> None:
        self._numbers = keys.with_row_index(_STREAM).with_columns(pl.col(_STREAM).cast(pl.Int64))
        self._lanes = Lanes(_STREAM)

    def __call__(self, events: pl.DataFrame) -> pl.DataFrame:
        numbered = events.join(self._numbers, on=list(RowKind.STREAM.key), how="left", maintain_order="left")
        return self._lanes(numbered).drop(_STREAM)


def count_lanes(report: Report, source: Source, keys: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """`keys` (key columns of streams) with `lanes`, the number each needs for the events of one source.

    The folder is used only when events overlap or are not in the order of their start.
    """
    key = list(RowKind.STREAM.key)
    events = source.surveyed(report)
    # Only the key columns that differ are read: often there is one process, one device, one context.
    differing = [name for name in key if keys[name].n_unique() > 1]
    if not _may_overlap(report, events.select(*differing, "start", "end").drop_nulls(), differing):
        return keys.with_columns(lanes=pl.lit(1, pl.Int64))
    times = events.select(*key, "start", "end").drop_nulls()
    ordered = ExternalSort(["start"], folder)
    for piece in report.batches(times, PIECE_ROWS):
        ordered.add(piece)
    step = StreamLanes(keys)
    most = [keys.with_columns(lanes=pl.lit(1, pl.Int64))]
    for window in ordered.windows():
        most.append(step(window).group_by(key).agg(lanes=pl.col("lane").max() + 1))
    return pl.concat(most).group_by(key).agg(pl.col("lanes").max()).sort(key)


def _may_overlap(report: Report, times: pl.LazyFrame, key: list[str]) -> bool:
    """Whether events overlap, or the table is not in the order of start, so that overlaps can't be seen in passing."""
    ends: dict[tuple[object, ...], int] = {}
    for piece in report.batches(times, PIECE_ROWS):
        streams = piece.partition_by(key, as_dict=True) if key else {(): piece}
        for name, of_stream in streams.items():
            start = of_stream["start"].to_numpy()
            # As in `Lanes`, what has no length takes its lane: it overlaps what starts then, whichever row comes first.
            end = np.maximum(of_stream["end"].to_numpy(), start + 1)
            if start[0] < ends.get(name, start[0]) or (start[1:] < np.maximum.accumulate(end)[:-1]).any():
                return True
            ends[name] = int(end.max())
    return False
