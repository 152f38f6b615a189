"""Streams with events that overlap: kernels that start before the one before has ended, copies of unified memory.

A row shows one event at a time. A stream gets as many rows, its lanes, as events of one event type run on it at once: nearly
always one. What two sources with the same event type have on a stream, copies and memsets, can overlap as well where several
streams are shown as one: there the lanes of the second source are behind those of the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import RowKind, Source

_STREAM = "stream_number"


class StreamLanes:
    """A step that gives events of streams (key columns of RowKind.STREAM, `start`, `end`) the column `lane`.

    Called with pieces in the order of `start`. `streams` has the key columns of the streams and `first_lane`, the first that
    events of this source may take.
    """

    def __init__(self, streams: pl.DataFrame) -> None:
        self._streams = _numbered(streams)
        self._lanes = Lanes(_STREAM)

    def __call__(self, events: pl.DataFrame) -> pl.DataFrame:
        placed = self._lanes(events.join(self._streams, on=list(RowKind.STREAM.key), how="left", maintain_order="left"))
        return placed.with_columns(pl.col("lane") + pl.col("first_lane")).drop(_STREAM, "first_lane")


def _numbered(streams: pl.DataFrame) -> pl.DataFrame:
    return streams.with_row_index(_STREAM).with_columns(pl.col(_STREAM).cast(pl.Int64))


def count_lanes(report: Report, source: Source, keys: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """`keys` (key columns of streams) with `lanes`, the number each needs for the events of one source, and `first_lane`, 0.

    The folder is used only when events are not in the order of their start.
    """
    # Only the key columns that differ are read: often there is one process, one device, one context.
    key = [name for name in RowKind.STREAM.key if keys[name].n_unique() > 1]
    times = source.surveyed(report).select(*key, "start", "end").drop_nulls()
    at_once = _most_at_once(report.batches(times, PIECE_ROWS), key)
    if at_once is None:
        ordered = ExternalSort(["start"], folder)
        for piece in report.batches(times, PIECE_ROWS):
            ordered.add(piece)
        at_once = _most_at_once(ordered.windows(), key)
    assert at_once is not None
    if not key:
        lanes = keys.with_columns(lanes=pl.lit(max(at_once.values(), default=1), pl.Int64))
    else:
        schema = {**dict.fromkeys(key, pl.Int64), "lanes": pl.Int64}
        counted = pl.DataFrame([(*stream, most) for stream, most in at_once.items()], schema, orient="row")
        lanes = keys.join(counted, on=key, how="left", maintain_order="left").with_columns(pl.col("lanes").fill_null(1))
    return lanes.sort(RowKind.STREAM.key).with_columns(first_lane=pl.lit(0, pl.Int64))


def _most_at_once(pieces: Iterable[pl.DataFrame], key: list[str]) -> dict[tuple[Any, ...], int] | None:
    """How many events run at once on each stream at most, which are as many lanes as `Lanes` gives it; None where the pieces
    (columns `start`, `end` and those of the key) are not in the order of start.
    """
    most: dict[tuple[Any, ...], int] = {}
    # Of each stream: the last start, and ends behind it.
    so_far: dict[tuple[Any, ...], tuple[int, np.ndarray]] = {}
    for piece in pieces:
        streams = piece.partition_by(key, as_dict=True) if key else {(): piece}
        for name, of_stream in streams.items() if piece.height else ():
            start = of_stream["start"].to_numpy()
            # As in `Lanes`, what has no length takes its lane.
            end = np.maximum(of_stream["end"].to_numpy(), start + 1)
            last_start, ends = so_far.get(name, (int(start[0]), end[:0]))
            if start[0] < last_start or (start[1:] < start[:-1]).any():
                return None
            at_once = 1
            if len(ends) or (start[1:] < np.maximum.accumulate(end)[:-1]).any():
                ends = np.sort(np.append(ends, end))
                begun = np.arange(len(ends) - len(start), len(ends)) + 1
                at_once = int((begun - np.searchsorted(ends, start, side="right")).max())
            else:
                ends = end
            most[name] = max(most.get(name, 1), at_once)
            so_far[name] = int(start[-1]), ends[ends > start[-1]]
    return most


def behind(lanes: pl.DataFrame, others: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """`lanes` (as of `count_lanes`), behind those of another source on some streams."""
    key = list(RowKind.STREAM.key)
    beside = streams.join(others.select(*key, moved="lanes"), on=key, how="left")
    moved = lanes.join(beside, on=key, how="left", maintain_order="left").with_columns(pl.col("moved").fill_null(0))
    by = pl.max_horizontal(pl.col("moved") - pl.col("first_lane"), 0)
    return moved.with_columns(pl.col("lanes") + by, pl.col("first_lane") + by).drop("moved")


def streams_of_both_at_once(report: Report, first: Source, second: Source, keys: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Those of some streams (key columns) on which an event of one source runs while one of the other does."""
    key = list(RowKind.STREAM.key)
    streams = _numbered(keys)
    ordered = ExternalSort(["start"], folder)
    for is_second, source in enumerate((first, second)):
        times = source.surveyed(report).select(*key, "start", "end").drop_nulls()
        for piece in report.batches(times, PIECE_ROWS):
            of_streams = piece.join(streams, on=key, how="inner", maintain_order="left")
            # As in `Lanes`, what has no length takes its lane.
            reach = pl.max_horizontal("end", pl.col("start") + 1)
            ordered.add(of_streams.select("start", _STREAM, reach=reach, is_second=pl.lit(is_second, pl.Int64)))
    # How far events of each source reach that started before.
    reached = pl.DataFrame(schema={"start": pl.Int64, _STREAM: pl.Int64, "first": pl.Int64, "second": pl.Int64})
    found = [pl.DataFrame(schema={_STREAM: pl.Int64})]
    of_second = pl.col("is_second") == 1
    for window in ordered.windows(any_ties=True):
        ends = window.select(
            "start",
            _STREAM,
            first=pl.when(~of_second).then("reach"),
            second=pl.when(of_second).then("reach"),
        )
        whole = pl.concat([reached, ends]).sort(_STREAM, "start", maintain_order=True)
        before = {name: pl.col(name).cum_max().forward_fill().shift(1).over(_STREAM) for name in ("first", "second")}
        covered = whole.with_columns(
            beside=pl.when(pl.col("first").is_not_null()).then(before["second"]).otherwise(before["first"])
        )
        found.append(covered.filter(pl.col("start") < pl.col("beside")).select(_STREAM))
        last = whole.group_by(_STREAM, maintain_order=True).agg(pl.col("first").max(), pl.col("second").max())
        reached = last.select(pl.lit(None, pl.Int64).alias("start"), _STREAM, "first", "second")
    return streams.join(pl.concat(found).unique(), on=_STREAM, how="semi", maintain_order="left").select(key)
