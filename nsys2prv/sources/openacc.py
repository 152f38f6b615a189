"""OpenACC constructs of host threads: data, launch and other."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import UNNAMED, RowKind, Source

_STATES = {
    4: events.STATE_CONFIGURING,
    5: events.STATE_MEMORY_TRANSFER,
    6: events.STATE_MEMORY_TRANSFER,
    7: events.STATE_SYNCHRONIZATION,
    8: events.STATE_SYNCHRONIZATION,
    13: events.STATE_ALLOCATING,
    14: events.STATE_FREEING,
    15: events.STATE_ALLOCATING,
    16: events.STATE_FREEING,
}
"""Paraver state by `eventKind` (see events.OPENACC_KINDS)."""


def _source(construct: str, table: str, event_type: int) -> Source:
    has_bytes = event_type == events.OPENACC_DATA

    def frame(report: Report) -> pl.LazyFrame:
        strings = report.strings.lazy()
        kind = pl.col("eventKind")
        return (
            source.scan(report)
            .join(strings.rename({"value": "name"}), left_on="nameId", right_on="id", how="left", maintain_order="left")
            .join(strings.rename({"value": "function"}), left_on="funcName", right_on="id", how="left", maintain_order="left")
            .select(
                "globalTid",
                "start",
                "end",
                pl.col("name").fill_null(UNNAMED).alias(str(events.OPENACC_NAME[event_type])),
                pl.col("function").fill_null(UNNAMED).alias(str(events.OPENACC_FUNCTION[event_type])),
                *([pl.col("bytes").alias(str(events.OPENACC_BYTES))] if has_bytes else []),
                type=pl.lit(event_type, pl.Int64),
                label=pl.coalesce(
                    kind.replace_strict(events.OPENACC_KINDS, default=None, return_dtype=pl.String),
                    pl.format("kind {}", kind),
                ),
                state=kind.replace_strict(_STATES, default=events.STATE_OTHERS, return_dtype=pl.Int64),
            )
        )

    source = Source(
        name="openacc",
        title=f"OpenACC {construct} constructs",
        table=table,
        required=("start", "end", "globalTid", "eventKind"),
        optional=("nameId", "funcName", *(["bytes"] if has_bytes else [])),
        row=RowKind.THREAD,
        types=(
            event_type,
            events.OPENACC_NAME[event_type],
            events.OPENACC_FUNCTION[event_type],
            *([events.OPENACC_BYTES] if has_bytes else []),
        ),
        frame=frame,
    )
    return source


DATA = _source("data", "CUPTI_ACTIVITY_KIND_OPENACC_DATA", events.OPENACC_DATA)
LAUNCH = _source("launch", "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", events.OPENACC_LAUNCH)
OTHER = _source("other", "CUPTI_ACTIVITY_KIND_OPENACC_OTHER", events.OPENACC_OTHER)
