"""The critical path of a run as records of its trace: where it is at each time, and lines where it goes to another row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.efficiency.event_input import events_of_session
from nsys2prv.efficiency.graph.measured_path import NEEDED, measured_path
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.merging import Sums
from nsys2prv.run.session import RunSession
from nsys2prv.timeline.labels import UsedType
from nsys2prv.timeline.records import RecordKind
from nsys2prv.timeline.rows_of_types import RowsOfTypes
from nsys2prv.trace.merge import record_sort
from nsys2prv.vocabulary.event_types import CRITICAL_PATH, CRITICAL_PATH_PARTS, END_LABEL, TAG_CRITICAL_PATH


@dataclass(frozen=True)
class CriticalPathRecords:
    """The critical path in a trace.

    Attributes
    ----------
    intervals, lines
        Records: where it is, and where it goes to another row.
    total_ns
        Time in each part, ns, by its place in CRITICAL_PATH_PARTS.
    on_rows
        Rows that it is on.
    """

    intervals: ExternalSort
    lines: ExternalSort
    total_ns: Mapping[int, int]
    on_rows: RowsOfTypes

    @property
    def used_type(self) -> UsedType | None:
        """Its event type, with the labels of the values that it has; None without a path."""
        if not self.total_ns:
            return None
        values = {part + 1: CRITICAL_PATH_PARTS[part] for part in sorted(self.total_ns)}
        return UsedType(CRITICAL_PATH.number, CRITICAL_PATH.label, CRITICAL_PATH, {0: END_LABEL, **values})

    @property
    def warnings(self) -> list[str]:
        """A warning where a path was asked for and there is none."""
        return [] if self.total_ns else ["no critical path: no GPU and no MPI was used"]

    def as_json(self) -> dict[str, Any]:
        """What OUT.json has of it."""
        return {
            "segments": self.intervals.rows,
            "lines": self.lines.rows,
            "total_ns": {CRITICAL_PATH_PARTS[part]: total for part, total in sorted(self.total_ns.items())},
        }


def critical_path_records(session: RunSession, arguments: Sequence[str | Path], folder: Path) -> CriticalPathRecords:
    """Read what the graph of the run is made of, and make records of its critical path.

    Parameters
    ----------
    session
        Whose events have been collected.
    arguments
        Reports, as they were named.
    folder
        For intermediate files.

    Raises
    ------
    ReportError
        When a report breaks off now that did not before.
    """
    known = len(session.left_out)
    events = events_of_session(session, arguments, NEEDED)
    if len(session.left_out) > known:
        # The rows of the others are no longer those of what was collected.
        raise session.left_out[known].error
    intervals, lines = (
        record_sort(RecordKind.INTERVALS, folder / "path"),
        record_sort(RecordKind.MESSAGES, folder / "path-lines"),
    )
    totals = Sums({"part": pl.Int64, "total": pl.Int64}, ["part"])
    on_rows = RowsOfTypes()
    later: pl.DataFrame | None = None
    for segments in measured_path(events, folder / "graph"):
        if segments.is_empty():
            continue
        value = pl.col("part") + 1
        path = segments.select("row", "start", "end", number=pl.lit(CRITICAL_PATH.number, pl.Int64), value=value)
        intervals.add(path)
        on_rows.add_events(path)
        totals.add(segments.select("part", total=pl.col("end") - pl.col("start")))
        # Pieces, and the segments in them, come from the last to the first.
        both = segments if later is None else pl.concat([later, segments])
        lines.add(_lines(both))
        later = segments.tail(1)
    return CriticalPathRecords(intervals, lines, dict(totals.rows.select("part", "total").iter_rows()), on_rows)


def _lines(segments: pl.DataFrame) -> pl.DataFrame:
    """Lines between segments of different rows that follow each other, given from the last to the first."""
    to_row = pl.col("row").shift(1)
    return (
        segments.with_columns(to_row=to_row)
        .filter(pl.col("to_row") != pl.col("row"))
        .select(
            "row",
            "to_row",
            time="end",
            to_time="end",
            size=pl.lit(0, pl.Int64),
            tag=pl.lit(TAG_CRITICAL_PATH, pl.Int64),
        )
    )
