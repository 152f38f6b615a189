"""Lines from API calls to what they start: kernels, copies, memsets, graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.exports.columns import process_of
from nsys2prv.sources.correlate import places_of_calls, side_by_side
from nsys2prv.sources.source import RowKind, Source

_OUTSIDE = -1
"""Row of a call outside the selected time."""


class Launches:
    """Pairs calls with what they start, by correlation id and process, for one report (ids repeat between reports)."""

    def __init__(self, calls: ExternalSort, started: ExternalSort) -> None:
        self._calls = calls
        self._started = started

    @classmethod
    def in_folder(cls, folder: Path) -> Launches:
        """One that writes intermediate files to a folder."""
        return cls(ExternalSort(["correlationId"], folder / "calls"), ExternalSort(["correlationId"], folder / "started"))

    def part(self) -> Launches:
        """One for a piece of work on another thread, to be absorbed when it is done."""
        return Launches(self._calls.part(), self._started.part())

    def absorb(self, part: Launches) -> None:
        """Take over what a part collected."""
        self._calls.absorb(part._calls)
        self._started.absorb(part._started)

    def spill(self) -> None:
        """Write what is still in memory: the rest can be pickled then."""
        self._calls.spill()
        self._started.spill()

    def delete(self) -> None:
        """Take all off the disk."""
        self._calls.delete()
        self._started.delete()

    @property
    def rows(self) -> int:
        """Number of ends that were collected."""
        return self._calls.rows + self._started.rows

    def add(self, source: Source, events: pl.DataFrame, held: pl.Series) -> None:
        """Add events of a source (its columns, with `row` and `start` in ns of the trace); `held`: inside the selected time."""
        if source.launch is None:
            return
        is_call = source.launch.tag is None
        if not held.all():
            # A call outside still counts as the outer one of another call with its id.
            outside = pl.when(pl.lit(held)).then("row").otherwise(pl.lit(_OUTSIDE, pl.Int64))
            events = events.with_columns(row=outside) if is_call else events.filter(held)
        process = process_of("globalTid" if source.row is RowKind.THREAD else "globalPid")
        known = events.lazy().filter(pl.col("correlationId") > 0)
        if is_call:
            self._calls.add(known.select("correlationId", "row", time="start", process=process).collect())
        else:
            tag = pl.lit(source.launch.tag, pl.Int64)
            ends = known.select("correlationId", "size", to_row="row", to_time="start", process=process, tag=tag)
            self._started.add(ends.collect())

    def messages(self) -> Iterator[pl.DataFrame]:
        """Columns `row`, `time`, `to_row`, `to_time`, `size` (bytes), `tag`."""
        for started, of_calls in side_by_side(self._started, self._calls):
            if of_calls.is_empty():
                continue
            calls, place = places_of_calls(started, of_calls, "time")
            of_call = calls.select(pl.col("row", "time").gather(place))
            joined = started.hstack(of_call).filter(pl.col("row").is_not_null() & (pl.col("row") != _OUTSIDE))
            yield joined.select("row", "time", "to_row", "to_time", "size", "tag")
