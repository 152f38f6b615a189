"""Memory copies and memsets on CUDA streams, migrations of unified memory among them."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.cuda.kernels import GRAPH_NODE_ID, GREEN_CONTEXT
from nsys2prv.sources.source import RowKind, Source, applicable, attributes, enumerated
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet, numbered

_CAUSES = "Unknown, Prefetch by the user, Page fault, Speculative prefetch, Eviction, Access counters"
MIGRATION_CAUSES = dict(enumerate(_CAUSES.split(", ")))
SOURCE_DEVICE = EventType(63000502, "Memcopy source device", Role.ATTRIBUTE, unit="CUDA device of the process + 1")
DESTINATION_DEVICE = EventType(63000503, "Memcopy destination device", Role.ATTRIBUTE, unit="CUDA device of the process + 1")
THROUGHPUT = EventType(63000504, "Memcopy throughput", Role.ATTRIBUTE, unit="bytes/s")
MEMSET_VALUE = EventType(63000505, "Memset value", Role.ATTRIBUTE, unit="value")
COPY_COUNT = EventType(63000506, "Memcopy number of copies", Role.ATTRIBUTE, unit="copies")
VIRTUAL_ADDRESS = EventType(63000406, "Unified memory address", Role.ATTRIBUTE, unit="address")
MIGRATION_CAUSE = EventType(
    63000407,
    "Unified memory migration cause",
    Role.ATTRIBUTE,
    ValueSet("migration causes", numbered(MIGRATION_CAUSES), first=20),
)


_REQUIRED = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "bytes")
_OPTIONAL = ("correlationId", "graphNodeId", "greenContextId")
_COLUMNS = {event_types.MEMORY_SIZE: "bytes", event_types.CORRELATION_ID: "correlationId", GRAPH_NODE_ID: "graphNodeId"}
_TYPES = (event_types.MEMORY_OPERATION, *_COLUMNS, GREEN_CONTEXT, event_types.DESTINATION_MEMORY)
_DEVICES = {SOURCE_DEVICE: "srcDeviceId", DESTINATION_DEVICE: "dstDeviceId"}


def _operations(table: pl.LazyFrame, label: pl.Expr, *columns: pl.Expr) -> pl.LazyFrame:
    return table.select(
        *RowKind.STREAM.interval,
        "correlationId",
        *attributes(_COLUMNS),
        pl.when(pl.col("greenContextId") > 0).then(applicable("greenContextId")).alias(str(GREEN_CONTEXT)),
        *columns,
        type=pl.lit(event_types.MEMORY_OPERATION, pl.Int64),
        label=label,
        state=pl.lit(event_types.STATE_MEMORY_TRANSFER, pl.Int64),
        size="bytes",
    )


def _memory_kind(report: Report, column: str, number: int) -> pl.Expr:
    return enumerated(report, "ENUM_CUDA_MEM_KIND", event_types.MEMORY_KINDS, column).alias(str(number))


def _copies(report: Report) -> pl.LazyFrame:
    kinds, unnamed = event_types.COPY_KINDS, event_types.OTHER_COPY_LABEL
    label = pl.col("copyKind").replace_strict(kinds, default=unnamed, return_dtype=pl.String)
    duration = pl.col("end") - pl.col("start")
    cause = enumerated(report, "ENUM_CUDA_UNIF_MEM_MIGRATION", MIGRATION_CAUSES, "migrationCause")
    return _operations(
        COPIES.scan(report),
        label,
        _memory_kind(report, "srcKind", event_types.SOURCE_MEMORY),
        _memory_kind(report, "dstKind", event_types.DESTINATION_MEMORY),
        # Plus one: 0 is an end. Only copies between devices have them.
        *((applicable(column) + 1).alias(str(number)) for number, column in _DEVICES.items()),
        # In floating point: bytes times nanoseconds of a long copy do not fit into 64 bits.
        pl.when(duration > 0)
        .then((pl.col("bytes") * 1e9 / duration).round())
        .cast(pl.Int64, strict=False)
        .alias(str(THROUGHPUT)),
        cause.alias(str(MIGRATION_CAUSE)),
        pl.col("virtualAddress").alias(str(VIRTUAL_ADDRESS)),
        pl.when(pl.col("copyCount") > 1).then("copyCount").alias(str(COPY_COUNT)),
    )


def _memsets(report: Report) -> pl.LazyFrame:
    return _operations(
        MEMSETS.scan(report),
        pl.lit(event_types.MEMSET_LABEL),
        _memory_kind(report, "memKind", event_types.DESTINATION_MEMORY),
        pl.col("value").alias(str(MEMSET_VALUE)),
    )


COPIES = Source(
    name="copies",
    title="Memory copies",
    table="CUPTI_ACTIVITY_KIND_MEMCPY",
    required=(*_REQUIRED, "copyKind"),
    optional=(*_OPTIONAL, "srcKind", "dstKind", *_DEVICES.values(), "migrationCause", "virtualAddress", "copyCount"),
    row=RowKind.STREAM,
    types=(*_TYPES, event_types.SOURCE_MEMORY, *_DEVICES, THROUGHPUT, MIGRATION_CAUSE, VIRTUAL_ADDRESS, COPY_COUNT),
    frame=_copies,
    launch=event_types.TAG_MEMORY_LAUNCH,
)

MEMSETS = Source(
    name="memsets",
    title="Memsets",
    table="CUPTI_ACTIVITY_KIND_MEMSET",
    required=_REQUIRED,
    optional=(*_OPTIONAL, "value", "memKind"),
    row=RowKind.STREAM,
    types=(*_TYPES, MEMSET_VALUE),
    frame=_memsets,
    launch=event_types.TAG_MEMORY_LAUNCH,
)
