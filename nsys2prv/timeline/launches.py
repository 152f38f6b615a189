"""Lines from API calls to what they start: kernels, copies, memsets, graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.row_order import one_of_each
from nsys2prv.exports.identity import process_of
from nsys2prv.sources.correlate import of_one_process
from nsys2prv.sources.source import RowKind, Source

_CALL_TAG = -1
_OUTSIDE = -1
"""Row of a call outside the selected time."""


class Launches:
    """Pairs calls with what they start, by correlation id and process, for one report (ids repeat between reports)."""

    def __init__(self, ends: ExternalSort) -> None:
        self._ends = ends

    @classmethod
    def in_folder(cls, folder: Path) -> Launches:
        """One that writes intermediate files to a folder."""
        return cls(ExternalSort(["correlationId"], folder))

    def part(self) -> Launches:
        """One for a piece of work on another thread, to be absorbed when it is done."""
        return Launches(self._ends.part())

    def absorb(self, part: Launches) -> None:
        """Take over what a part collected."""
        self._ends.absorb(part._ends)

    def spill(self) -> None:
        """Write what is still in memory: the rest can be pickled then."""
        self._ends.spill()

    def delete(self) -> None:
        """Take all off the disk."""
        self._ends.delete()

    @property
    def rows(self) -> int:
        """Number of ends that were collected."""
        return self._ends.rows

    def add(self, source: Source, events: pl.DataFrame, held: pl.Series) -> None:
        """Add events of a source (its columns, with `row` and `start` in ns of the trace); `held`: inside the selected time."""
        if source.launch is None:
            return
        is_call = source.launch.tag is None
        if not held.all():
            # A call outside still counts as the outer one of another call with its id.
            outside = pl.when(pl.lit(held)).then("row").otherwise(pl.lit(_OUTSIDE, pl.Int64))
            events = events.with_columns(row=outside) if is_call else events.filter(held)
        process = "globalTid" if source.row is RowKind.THREAD else "globalPid"
        self._ends.add(
            events.filter(pl.col("correlationId") > 0).select(
                "correlationId",
                "row",
                time="start",
                process=process_of(process),
                size=pl.lit(0, pl.Int64) if is_call else pl.col("size"),
                tag=pl.lit(_CALL_TAG if is_call else source.launch.tag, pl.Int64),
            )
        )

    def messages(self) -> Iterator[pl.DataFrame]:
        """Columns `row`, `time`, `to_row`, `to_time`, `size` (bytes), `tag`."""
        for window in self._ends.windows(any_ties=True):
            is_call = pl.col("tag") == _CALL_TAG
            calls = window.filter(is_call)
            if calls["correlationId"].n_unique() < calls.height:
                # A driver call inside a runtime call may have the same id: the outer one, which is first, counts.
                calls = one_of_each(calls.select("time", pl.exclude("time")), ["process", "correlationId"])
            started = window.filter(~is_call).rename({"row": "to_row", "time": "to_time"})
            known = calls.filter(pl.col("row") != _OUTSIDE).select("process", "correlationId", "row", "time")
            key = ["correlationId"] if of_one_process(started, known) else ["process", "correlationId"]
            joined = started.join(known, on=key, how="inner", maintain_order="left")
            yield joined.select("row", "time", "to_row", "to_time", "size", "tag")
