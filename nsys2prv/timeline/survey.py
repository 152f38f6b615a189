"""The survey of a report: which rows, event types and names its events have, how many there are, and when.

After it all that is numbered over all reports (rows, event types, values) is known, so that events can be read once, piece by
piece."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import CONTINUATION, LEFT_OUT, RowKind, Source, count_rows, with_absent
from nsys2prv.vocabulary.event_types import Role

_STREAM = "stream_number"


class StreamLanes:
    """A step that gives events of streams (key columns of RowKind.STREAM, `start`, `end`) the column `lane`.

    Called with pieces in the order of `start`. `streams` has the key columns of the streams and `first_lane`, the first that
    events of this source may take."""

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

    The folder is used only when events are not in the order of their start."""
    # Only the key columns that differ are read: often there is one process, one device, one context.
    key = [name for name in RowKind.STREAM.key if keys[name].n_unique() > 1] or ["streamId"]
    times = source.frame(report).select(*key, "start", "end").drop_nulls()
    at_once = _most_at_once(report.batches(times, PIECE_ROWS), key)
    if at_once is None:
        ordered = ExternalSort(["start"], folder)
        for piece in report.batches(times, PIECE_ROWS):
            ordered.add(piece)
        at_once = _most_at_once(ordered.windows(), key)
    assert at_once is not None
    schema = {**dict.fromkeys(key, pl.Int64), "lanes": pl.Int64}
    counted = pl.DataFrame([(*stream, most) for stream, most in at_once.items()], schema, orient="row")
    lanes = keys.join(counted, on=key, how="left", maintain_order="left").with_columns(pl.col("lanes").fill_null(1))
    return lanes.sort(RowKind.STREAM.key).with_columns(first_lane=pl.lit(0, pl.Int64))


def _most_at_once(pieces: Iterable[pl.DataFrame], key: list[str]) -> dict[tuple[Any, ...], int] | None:
    """How many events run at once on each stream at most, which are as many lanes as `Lanes` gives it; None where the pieces
    (columns `start`, `end` and those of the key) are not in the order of start."""
    most: dict[tuple[Any, ...], int] = {}
    # Of each stream: the last start, and ends behind it.
    so_far: dict[tuple[Any, ...], tuple[int, np.ndarray]] = {}
    for piece in pieces:
        for name, of_stream in piece.partition_by(key, as_dict=True).items():
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


def behind(lanes: pl.DataFrame, in_front: pl.DataFrame, streams: pl.DataFrame) -> pl.DataFrame:
    """`lanes` (as of `count_lanes`), behind those of another source on some streams."""
    key = list(RowKind.STREAM.key)
    beside = streams.join(in_front.select(*key, moved="lanes"), on=key, how="left")
    moved = lanes.join(beside, on=key, how="left", maintain_order="left").with_columns(pl.col("moved").fill_null(0))
    by = pl.max_horizontal(pl.col("moved") - pl.col("first_lane"), 0)
    return moved.with_columns(pl.col("lanes") + by, pl.col("first_lane") + by).drop("moved")


def streams_of_both_at_once(report: Report, first: Source, second: Source, keys: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Those of some streams (key columns) on which an event of one source runs while one of the other does."""
    key = list(RowKind.STREAM.key)
    streams = _numbered(keys)
    ordered = ExternalSort(["start"], folder)
    for is_second, source in enumerate((first, second)):
        times = source.frame(report).select(*key, "start", "end").drop_nulls()
        for piece in report.batches(times, PIECE_ROWS):
            of_streams = piece.join(streams, on=key, how="inner", maintain_order="left")
            # As in `Lanes`, what has no length takes its lane.
            reach = pl.max_horizontal("end", pl.col("start") + 1)
            ordered.add(of_streams.select("start", _STREAM, reach=reach, is_second=pl.lit(is_second, pl.Int64)))
    # How far events of each source reach that started before.
    reached = pl.DataFrame(schema={"start": pl.Int64, _STREAM: pl.Int64, "first": pl.Int64, "second": pl.Int64})
    covered_streams = [pl.DataFrame(schema={_STREAM: pl.Int64})]
    of_second = pl.col("is_second") == 1
    for window in ordered.windows():
        ends = window.select("start", _STREAM, first=pl.when(~of_second).then("reach"), second=pl.when(of_second).then("reach"))
        reaches = pl.concat([reached, ends]).sort(_STREAM, "start", maintain_order=True)
        before = {name: pl.col(name).cum_max().forward_fill().shift(1).over(_STREAM) for name in ("first", "second")}
        covered = reaches.with_columns(
            beside=pl.when(pl.col("first").is_not_null()).then(before["second"]).otherwise(before["first"])
        )
        covered_streams.append(covered.filter(pl.col("start") < pl.col("beside")).select(_STREAM))
        last = reaches.group_by(_STREAM, maintain_order=True).agg(pl.col("first").max(), pl.col("second").max())
        reached = last.select(pl.lit(None, pl.Int64).alias("start"), _STREAM, "first", "second")
    return streams.join(pl.concat(covered_streams).unique(), on=_STREAM, how="semi", maintain_order="left").select(key)


TYPE_COLUMNS = {"type": pl.Int64, "series": pl.String, "label": pl.String}
"""Columns that name an event: its type, of a series the member, and the text that becomes its value."""
CPU = "cpu"
"""Column with the number of the CPU on its host."""


def complete(frame: pl.LazyFrame) -> pl.LazyFrame:
    """A source's frame, with those of TYPE_COLUMNS that it leaves out as nulls."""
    return with_absent(frame, TYPE_COLUMNS)


def text_attributes(schema: pl.Schema) -> list[str]:
    """Attributes of a source whose values are texts."""
    return [name for name, dtype in schema.items() if name.isdigit() and dtype == pl.String]


@dataclass(frozen=True)
class Survey:
    """What one source found in one report."""

    source: Source
    groups: pl.DataFrame  # one row per distinct row key, type, series, label and text attribute
    rows: int  # of the table that the source looks through, for progress; it may leave some of them to another source
    span: tuple[int, int] | None  # first and last time in them, ns of the report; None when no event has a time
    # Of streams: the key columns, `lanes`, the number of rows each needs, and `first_lane`, the first that these events take.
    lanes: pl.DataFrame | None = None
    cpus: int = 0  # how many the host has at least, by the events; 0 when they name none
    existing: pl.DataFrame | None = None  # of a source that makes no rows: keys of rows that sources which are not read have

    @property
    def is_empty(self) -> bool:
        """Whether the source has no events."""
        return self.groups.is_empty()

    def within(self, extents: Sequence[Extent]) -> Survey:
        """The same survey with the rows of the first of its `measures`, and the times of all."""
        firsts = [extent.first for extent in extents if extent.first is not None]
        lasts = [extent.last for extent in extents if extent.last is not None]
        span = (min(firsts), max(lasts)) if firsts and lasts and not self.is_empty else None
        return replace(self, rows=extents[0].rows, span=span)

    @cached_property
    def keys(self) -> pl.DataFrame:
        """Distinct row keys that are complete."""
        key = list(self.source.row.key)
        return self.groups.select(key).drop_nulls().unique(maintain_order=True).sort(key)

    @property
    def row_keys(self) -> pl.DataFrame:
        """Keys of the rows that are there because of it."""
        if not self.source.existing_rows_only:
            return self.keys
        return self.keys.clear() if self.existing is None else self.existing

    @property
    def overlaps(self) -> bool:
        """Whether events of a stream overlap each other."""
        return self.lanes is not None and bool((self.lanes["lanes"] > 1).any())


@dataclass(frozen=True)
class Extent:
    """Rows of a table that a source looks through, and the first and last time in them, ns; None when no row has a time."""

    rows: int
    first: int | None
    last: int | None


_LONG_BEFORE = 1_000_000_000
"""ns from an event to the start of the recording, which makes a trace longer than it need be."""


@dataclass(frozen=True)
class Measure:
    """What the extent of events is found from: sources that share a table share measures."""

    table: str
    times: tuple[str, str] | Callable[[Report], pl.LazyFrame]
    only: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def of(self, report: Report) -> Extent:
        """The extent in a report; raises ReportError when the table can't be read."""
        if isinstance(self.times, tuple):
            begin, end = self.times
            extent_of_table = Extent(*report.extent(self.table, begin, end, dict(self.only)))
            if begin == end or (extent_of_table.first or 0) >= -_LONG_BEFORE:
                return extent_of_table
            # What has no length before the recording starts, at 0, is a note of nsys: it can be an hour old.
            is_note = ((pl.col(begin) < 0) & (pl.col(begin) == pl.col(end))).fill_null(value=False)
            calls = report.scan(self.table, self.times, only=dict(self.only)).filter(~is_note)
            first = report.collect(calls.select(pl.col(begin).min())).item()
            return extent_of_table if first is None else replace(extent_of_table, first=first)
        extent = self.times(report).select(pl.len(), first=pl.col("start").min(), last=pl.max_horizontal("start", "end").max())
        return Extent(*report.collect(extent).row(0))


def measures(source: Source, report: Report) -> list[Measure]:
    """What the extent of a source is joined from: its table, then further tables that its events are made of."""
    only = tuple((column, tuple(values)) for column, values in (source.only or {}).items())
    of_table = Measure(source.table, source.times, only)
    extra = source.extra_tables
    return [of_table, *(Measure(table, ("start", "end")) for table in filter(report.has, extra))]


def count_events(report: Report, surveyed: Survey) -> int:
    """Rows of the table that the events of a source are made of; raises ReportError when it breaks off."""
    source = surveyed.source
    frame = source.frame(report)
    if source.stream is not None:
        if not source.unread_reason:
            # Which rows of a shared table are the source's is known only from its events.
            with tempfile.TemporaryDirectory(prefix="nsys2prv-") as folder:
                return sum(map(count_rows, source.stream(report, Path(folder))))
        # Rows for the survey only have no start.
        frame = frame.drop_nulls("start")
    continuations = pl.col(CONTINUATION).fill_null(False).sum() if CONTINUATION in frame.collect_schema().names() else pl.lit(0)
    return int(report.collect(frame.select(rows=pl.len().cast(pl.Int64) - continuations.cast(pl.Int64))).item())


def survey(report: Report, source: Source, folder: Path | None = None) -> Survey:
    """Survey the events of one source of one report, without their extent (`Survey.within`).

    Without a folder for intermediate files, overlaps on streams are not counted. Raises ReportError when the table can't be
    read or misses a column."""
    frame = complete(source.frame(report.distinct))
    if LEFT_OUT in frame.collect_schema().names():
        frame = frame.filter(pl.col(LEFT_OUT).is_null())
    attributes = text_attributes(frame.collect_schema())
    groups = report.collect(frame.select(*source.row.key, *TYPE_COLUMNS, *attributes).unique())
    # Sorted: polars gives distinct rows in any order.
    surveyed = Survey(source, groups.sort(groups.columns), 0, None)
    if CPU in frame.collect_schema().names():
        last_cpu = report.collect(frame.select(pl.col(CPU).max())).item()
        surveyed = replace(surveyed, cpus=0 if last_cpu is None else int(last_cpu) + 1)
    # Derived events are on the rows of others, and marks have no length.
    marks = all(event_type.role is not Role.INTERVAL for event_type in source.types)
    if folder is None or source.row is not RowKind.STREAM or source.derived or marks or surveyed.is_empty:
        return surveyed
    return replace(surveyed, lanes=count_lanes(report, source, surveyed.keys, folder))


def apart(report: Report, surveys: Sequence[Survey], folder: Path) -> list[Survey]:
    """Surveys of a report; where events of two sources with the same event type run at once on a stream, so that one would end
    the other in the trace, the second source has its lanes behind those of the first. Raises ReportError."""
    placed: list[Survey] = []
    for second in surveys:
        for first in list(placed):
            common = {*first.source.types}.intersection(second.source.types)
            if first.lanes is None or second.lanes is None or all(kind.role is not Role.INTERVAL for kind in common):
                continue
            keys = second.keys.join(first.keys, on=list(RowKind.STREAM.key), how="semi", maintain_order="left")
            if keys.is_empty():
                continue
            streams = streams_of_both_at_once(report, first.source, second.source, keys, folder)
            if streams.height:
                second = replace(second, lanes=behind(second.lanes, first.lanes, streams))
        placed.append(second)
    return placed


def whole_survey(report: Report, source: Source) -> Survey:
    """A survey with its extent; raises ReportError when a table can't be read or misses a column."""
    # The scan raises when a column is missing.
    source.scan(report)
    return survey(report, source).within([measure.of(report) for measure in measures(source, report)])
