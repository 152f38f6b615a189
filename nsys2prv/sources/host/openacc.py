"""OpenACC constructs of host threads: data, launch and other."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import UNNAMED, RowKind, TableSource
from nsys2prv.vocabulary import event_types

_STATES = {
    4: event_types.STATE_CONFIGURING,
    5: event_types.STATE_MEMORY_TRANSFER,
    6: event_types.STATE_MEMORY_TRANSFER,
    7: event_types.STATE_SYNCHRONIZATION,
    8: event_types.STATE_SYNCHRONIZATION,
    13: event_types.STATE_ALLOCATING,
    14: event_types.STATE_FREEING,
    15: event_types.STATE_ALLOCATING,
    16: event_types.STATE_FREEING,
}
"""Paraver state by `eventKind` (see events.OPENACC_KINDS)."""


def _source(construct: str, table: str, event_type: int) -> TableSource:
    has_bytes = event_type == event_types.OPENACC_DATA

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
                pl.col("name").fill_null(UNNAMED).alias(str(event_types.OPENACC_NAME[event_type])),
                pl.col("function").fill_null(UNNAMED).alias(str(event_types.OPENACC_FUNCTION[event_type])),
                *([pl.col("bytes").alias(str(event_types.OPENACC_BYTES))] if has_bytes else []),
                type=pl.lit(event_type, pl.Int64),
                label=pl.coalesce(
                    kind.replace_strict(event_types.OPENACC_KINDS, default=None, return_dtype=pl.String),
                    pl.format("kind {}", kind),
                ),
                state=kind.replace_strict(_STATES, default=event_types.STATE_OTHERS, return_dtype=pl.Int64),
            )
        )

    source = TableSource(
        name="openacc",
        title=f"OpenACC {construct} constructs",
        table=table,
        required=("start", "end", "globalTid", "eventKind"),
        optional=("nameId", "funcName", *(["bytes"] if has_bytes else [])),
        row=RowKind.THREAD,
        types=(
            event_type,
            event_types.OPENACC_NAME[event_type],
            event_types.OPENACC_FUNCTION[event_type],
            *([event_types.OPENACC_BYTES] if has_bytes else []),
        ),
        frame=frame,
    )
    return source


DATA = _source("data", "CUPTI_ACTIVITY_KIND_OPENACC_DATA", event_types.OPENACC_DATA)
LAUNCH = _source("launch", "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", event_types.OPENACC_LAUNCH)
OTHER = _source("other", "CUPTI_ACTIVITY_KIND_OPENACC_OTHER", event_types.OPENACC_OTHER)
