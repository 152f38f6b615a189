"""Overhead of the recording: inside CUDA, and of the profiler."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import RowKind, TableSource, named
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

_OVERHEAD_VALUES = ValueSet("overhead")
CUDA_OVERHEAD = EventType(63000600, "CUDA overhead", Role.INTERVAL, _OVERHEAD_VALUES)
PROFILER_OVERHEAD = EventType(63000601, "Profiler overhead", Role.INTERVAL, _OVERHEAD_VALUES)


def _overhead(title: str, table: str, event_type: EventType, *, since: str = "") -> TableSource:
    def frame(report: Report) -> pl.LazyFrame:
        names = report.strings.rename({"value": "label"})
        return named(source.scan(report), "nameId", names).select(
            "globalTid",
            "start",
            "end",
            "label",
            type=pl.lit(event_type, pl.Int64),
        )

    source = TableSource(
        name="overhead",
        title=title,
        table=table,
        required=("start", "end", "globalTid", "nameId"),
        optional=(),
        row=RowKind.THREAD,
        types=(event_type,),
        frame=frame,
        existing_rows_only=True,
        since=since,
    )
    return source


CUDA = _overhead("CUDA overhead", "CUPTI_ACTIVITY_KIND_OVERHEAD", CUDA_OVERHEAD, since="3.24")
# The profiler sets up something for each thread of the machine that it watches: a thread that has nothing else would look
# as if it ran all the time.
PROFILER = _overhead("Profiler overhead", "PROFILER_OVERHEAD", PROFILER_OVERHEAD)
