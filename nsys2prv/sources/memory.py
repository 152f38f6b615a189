"""Memory copies and memsets on CUDA streams, migrations of unified memory among them."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source, applicable, enumerated

_REQUIRED = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "bytes")
_OPTIONAL = ("correlationId", "graphNodeId", "greenContextId")
_TYPES = (
    events.MEMORY_OPERATION,
    events.MEMORY_SIZE,
    events.CORRELATION_ID,
    events.GRAPH_NODE_ID,
    events.GREEN_CONTEXT,
    events.DESTINATION_MEMORY,
)
_DEVICES = {events.SOURCE_DEVICE: "srcDeviceId", events.DESTINATION_DEVICE: "dstDeviceId"}


def _operations(table: pl.LazyFrame, label: pl.Expr, *attributes: pl.Expr) -> pl.LazyFrame:
    return table.select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "correlationId",
        pl.col("bytes").alias(str(events.MEMORY_SIZE)),
        pl.col("correlationId").alias(str(events.CORRELATION_ID)),
        pl.col("graphNodeId").alias(str(events.GRAPH_NODE_ID)),
        pl.when(pl.col("greenContextId") > 0).then(applicable("greenContextId")).alias(str(events.GREEN_CONTEXT)),
        *attributes,
        type=pl.lit(events.MEMORY_OPERATION, pl.Int64),
        label=label,
        state=pl.lit(events.STATE_MEMORY_TRANSFER, pl.Int64),
        size="bytes",
    )


def _memory_kind(report: Report, column: str, number: int) -> pl.Expr:
    return enumerated(report, "ENUM_CUDA_MEM_KIND", events.MEMORY_KINDS, column).alias(str(number))


def _copies(report: Report) -> pl.LazyFrame:
    label = pl.col("copyKind").replace_strict(events.COPY_KINDS, default=events.OTHER_COPY_LABEL, return_dtype=pl.String)
    duration = pl.col("end") - pl.col("start")
    cause = enumerated(report, "ENUM_CUDA_UNIF_MEM_MIGRATION", events.MIGRATION_CAUSES, "migrationCause")
    return _operations(
        COPIES.scan(report),
        label,
        _memory_kind(report, "srcKind", events.SOURCE_MEMORY),
        _memory_kind(report, "dstKind", events.DESTINATION_MEMORY),
        # Plus one: 0 is an end. Only copies between devices tell them.
        *((applicable(column) + 1).alias(str(number)) for number, column in _DEVICES.items()),
        # In floating point: bytes times nanoseconds of a long copy do not fit into 64 bits.
        pl.when(duration > 0).then((pl.col("bytes") * 1e9 / duration).round()).cast(pl.Int64).alias(str(events.THROUGHPUT)),
        cause.alias(str(events.MIGRATION_CAUSE)),
        pl.col("virtualAddress").alias(str(events.VIRTUAL_ADDRESS)),
        pl.when(pl.col("copyCount") > 1).then("copyCount").alias(str(events.COPY_COUNT)),
    )


def _memsets(report: Report) -> pl.LazyFrame:
    return _operations(
        MEMSETS.scan(report),
        pl.lit(events.MEMSET_LABEL),
        _memory_kind(report, "memKind", events.DESTINATION_MEMORY),
        pl.col("value").alias(str(events.MEMSET_VALUE)),
    )


COPIES = Source(
    name="copies",
    title="Memory copies",
    table="CUPTI_ACTIVITY_KIND_MEMCPY",
    required=(*_REQUIRED, "copyKind"),
    optional=(*_OPTIONAL, "srcKind", "dstKind", *_DEVICES.values(), "migrationCause", "virtualAddress", "copyCount"),
    row=RowKind.STREAM,
    types=(
        *_TYPES,
        events.SOURCE_MEMORY,
        *_DEVICES,
        events.THROUGHPUT,
        events.MIGRATION_CAUSE,
        events.VIRTUAL_ADDRESS,
        events.COPY_COUNT,
    ),
    frame=_copies,
    launch=Launch(events.TAG_MEMORY_LAUNCH),
)

MEMSETS = Source(
    name="memsets",
    title="Memsets",
    table="CUPTI_ACTIVITY_KIND_MEMSET",
    required=_REQUIRED,
    optional=(*_OPTIONAL, "value", "memKind"),
    row=RowKind.STREAM,
    types=(*_TYPES, events.MEMSET_VALUE),
    frame=_memsets,
    launch=Launch(events.TAG_MEMORY_LAUNCH),
)
