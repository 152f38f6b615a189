"""Kernels and CUDA graphs: on streams, and how graphs are made."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import RowKind, Source, applicable, attributes, call_source, named
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

GRAPH_CONSTRUCTION = EventType(
    63000120, "CUDA graph construction", Role.INTERVAL, ValueSet("graph construction"), former=63000009
)
GRAPH_ID = EventType(63000100, "CUDA Graphs ID", Role.ATTRIBUTE, unit="id")
GRAPH_EXEC_ID = EventType(63000101, "CUDA Graphs Exec ID", Role.ATTRIBUTE, unit="id")
GRAPH_NODE_ID = EventType(63000102, "Graph Node ID", Role.ATTRIBUTE, unit="id")
GRAPH_ORIGINAL_ID = EventType(63000103, "CUDA Graphs ID of the original", Role.ATTRIBUTE, unit="id")
GRAPH_ORIGINAL_NODE_ID = EventType(63000104, "Graph Node ID of the original", Role.ATTRIBUTE, unit="id")


_OF_EXECUTION = {GRAPH_ID: "graphId", GRAPH_EXEC_ID: "graphExecId", event_types.CORRELATION_ID: "correlationId"}


def _executions(report: Report) -> pl.LazyFrame:
    return GRAPH_EXECUTIONS.scan(report).select(
        *RowKind.STREAM.interval,
        "correlationId",
        *attributes(_OF_EXECUTION),
        type=pl.lit(event_types.GRAPH_EXECUTION, pl.Int64),
        label=pl.format("CUDA graph {}", pl.col("graphId").fill_null(0)),
        state=pl.lit(event_types.RUNNING, pl.Int64),
        size=pl.lit(0, pl.Int64),
    )


GRAPH_EXECUTIONS = Source(
    name="graphs",
    title="CUDA graph executions",
    table="CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    required=("start", "end", "globalPid", "deviceId", "contextId", "streamId", "graphId"),
    optional=("graphExecId", "correlationId"),
    row=RowKind.STREAM,
    types=(event_types.GRAPH_EXECUTION, *_OF_EXECUTION),
    frame=_executions,
    since="3.11",
    launch=event_types.TAG_KERNEL_LAUNCH,
)


_NODE_IDS = {GRAPH_NODE_ID: "graphNodeId", GRAPH_ORIGINAL_NODE_ID: "originalGraphNodeId"}

# Up to schema 3.7 the table of graphs is that of nodes; from 3.11 each has its own.
GRAPHS = call_source(
    "graphs",
    "CUDA graphs made on the host",
    "CUDA_GRAPH_EVENTS",
    GRAPH_CONSTRUCTION,
    {GRAPH_ID: "graphId", GRAPH_ORIGINAL_ID: "originalGraphId", GRAPH_EXEC_ID: "graphExecId", **_NODE_IDS},
)

GRAPH_NODES = call_source(
    "graphs",
    "CUDA graph nodes made on the host",
    "CUDA_GRAPH_NODE_EVENTS",
    GRAPH_CONSTRUCTION,
    _NODE_IDS,
    since="3.11",
    assumption="A row is the creation or the cloning of one node by the thread in `globalTid`; its name says which.",
)


GRID_X = EventType(9101, "Kernel GrdX", Role.ATTRIBUTE, unit="blocks")
GRID_Y = EventType(9102, "Kernel GrdY", Role.ATTRIBUTE, unit="blocks")
GRID_Z = EventType(9103, "Kernel GrdZ", Role.ATTRIBUTE, unit="blocks")
BLOCK_X = EventType(9104, "Kernel BlkX", Role.ATTRIBUTE, unit="threads")
BLOCK_Y = EventType(9105, "Kernel BlkY", Role.ATTRIBUTE, unit="threads")
BLOCK_Z = EventType(9106, "Kernel BlkZ", Role.ATTRIBUTE, unit="threads")
STATIC_SHARED_MEMORY = EventType(9107, "Kernel Static Shared Memory", Role.ATTRIBUTE, unit="bytes")
DYNAMIC_SHARED_MEMORY = EventType(9108, "Kernel Dynamic Shared Memory", Role.ATTRIBUTE, unit="bytes")
LOCAL_MEMORY = EventType(9109, "Kernel Local memory reserved for kernel", Role.ATTRIBUTE, unit="bytes")
REGISTERS = EventType(9110, "Kernel Registers/Thread", Role.ATTRIBUTE, unit="registers")
GREEN_CONTEXT = EventType(63000510, "CUDA green context", Role.ATTRIBUTE, unit="id")


NCCL_KERNEL_NAME = r"(?i)(?:\b|\b_Z[0-9]+)nccl\w*kernel"
"""What names of NCCL's kernels look like: ncclAllReduceRingLLKernel_sum_f32(...), ncclKernel_AllReduce_RING_LL_Sum_float(...),
ncclDevKernel_AllReduce_..., and for symmetric memory ncclSymDevKernel_... and ncclSymkDevKernel_...;
_Z22nccl... where nothing demangled them."""

_ATTRIBUTES = {
    GRID_X: "gridX",
    GRID_Y: "gridY",
    GRID_Z: "gridZ",
    BLOCK_X: "blockX",
    BLOCK_Y: "blockY",
    BLOCK_Z: "blockZ",
    STATIC_SHARED_MEMORY: "staticSharedMemory",
    DYNAMIC_SHARED_MEMORY: "dynamicSharedMemory",
    LOCAL_MEMORY: "localMemoryTotal",
    REGISTERS: "registersPerThread",
    event_types.CORRELATION_ID: "correlationId",
    GRAPH_NODE_ID: "graphNodeId",
}
_IDS_OR_ZERO = {GRAPH_ID: "graphId", GREEN_CONTEXT: "greenContextId"}
"""Ids that are 0 where there is none."""


def _frame(report: Report) -> pl.LazyFrame:
    is_nccl = pl.col("value").str.contains(NCCL_KERNEL_NAME)
    names = report.strings.select(
        "id",
        label="value",
        type=pl.when(is_nccl).then(event_types.NCCL_KERNEL).otherwise(event_types.KERNEL).cast(pl.Int64),
        state=pl.when(is_nccl).then(event_types.STATE_GROUP).otherwise(event_types.RUNNING).cast(pl.Int64),
    )
    return named(KERNELS.scan(report), "demangledName", names).select(
        *RowKind.STREAM.interval,
        "label",
        pl.col("type").fill_null(event_types.KERNEL),
        pl.col("state").fill_null(event_types.RUNNING),
        "correlationId",
        *attributes(_ATTRIBUTES),
        *(pl.when(pl.col(column) > 0).then(applicable(column)).alias(str(number)) for number, column in _IDS_OR_ZERO.items()),
        size=pl.lit(0, pl.Int64),
    )


KERNELS = Source(
    name="kernels",
    title="Kernels",
    table="CUPTI_ACTIVITY_KIND_KERNEL",
    required=("start", "end", "globalPid", "deviceId", "contextId", "streamId", "demangledName"),
    optional=(*_ATTRIBUTES.values(), *_IDS_OR_ZERO.values()),
    row=RowKind.STREAM,
    types=(event_types.KERNEL, event_types.NCCL_KERNEL, event_types.KERNEL_FAMILY, *_ATTRIBUTES, *_IDS_OR_ZERO),
    frame=_frame,
    launch=event_types.TAG_KERNEL_LAUNCH,
)
