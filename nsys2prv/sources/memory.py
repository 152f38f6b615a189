"""Memory copies and memsets on CUDA streams."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source

_REQUIRED = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "bytes")
_OPTIONAL = ("correlationId", "graphNodeId")
_TYPES = (events.MEMORY_OPERATION, events.MEMORY_SIZE, events.CORRELATION_ID, events.GRAPH_NODE_ID)


def _operations(table: pl.LazyFrame, label: pl.Expr) -> pl.LazyFrame:
    return table.select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "correlationId",
        pl.col("bytes").alias(str(events.MEMORY_SIZE)),
        pl.col("correlationId").alias(str(events.CORRELATION_ID)),
        pl.col("graphNodeId").alias(str(events.GRAPH_NODE_ID)),
        type=pl.lit(events.MEMORY_OPERATION, pl.Int64),
        label=label,
        state=pl.lit(events.STATE_MEMORY_TRANSFER, pl.Int64),
        size="bytes",
    )


def _copies(report: Report) -> pl.LazyFrame:
    label = pl.col("copyKind").replace_strict(events.COPY_KINDS, default=events.OTHER_COPY_LABEL, return_dtype=pl.String)
    return _operations(COPIES.scan(report), label)


def _memsets(report: Report) -> pl.LazyFrame:
    return _operations(MEMSETS.scan(report), pl.lit(events.MEMSET_LABEL))


COPIES = Source(
    name="copies",
    title="Memory copies",
    table="CUPTI_ACTIVITY_KIND_MEMCPY",
    required=(*_REQUIRED, "copyKind"),
    optional=_OPTIONAL,
    row=RowKind.STREAM,
    types=_TYPES,
    frame=_copies,
    launch=Launch(events.TAG_MEMORY_LAUNCH),
)

MEMSETS = Source(
    name="memsets",
    title="Memsets",
    table="CUPTI_ACTIVITY_KIND_MEMSET",
    required=_REQUIRED,
    optional=_OPTIONAL,
    row=RowKind.STREAM,
    types=_TYPES,
    frame=_memsets,
    launch=Launch(events.TAG_MEMORY_LAUNCH),
)
