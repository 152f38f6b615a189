"""Kernels on CUDA streams, NCCL's among them."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import Launch, RowKind, TableSource, applicable, named
from nsys2prv.vocabulary import event_types

NCCL_KERNEL_NAME = r"(?i)(?:\b|\b_Z[0-9]+)nccl\w*kernel"
"""What names of NCCL's kernels look like: ncclAllReduceRingLLKernel_sum_f32(...), ncclKernel_AllReduce_RING_LL_Sum_float(...),
ncclDevKernel_AllReduce_..., and for symmetric memory ncclSymDevKernel_... and ncclSymkDevKernel_...;
_Z22nccl... where nothing demangled them."""

_ATTRIBUTES = {
    event_types.GRID_X: "gridX",
    event_types.GRID_Y: "gridY",
    event_types.GRID_Z: "gridZ",
    event_types.BLOCK_X: "blockX",
    event_types.BLOCK_Y: "blockY",
    event_types.BLOCK_Z: "blockZ",
    event_types.STATIC_SHARED_MEMORY: "staticSharedMemory",
    event_types.DYNAMIC_SHARED_MEMORY: "dynamicSharedMemory",
    event_types.LOCAL_MEMORY: "localMemoryTotal",
    event_types.REGISTERS: "registersPerThread",
    event_types.CORRELATION_ID: "correlationId",
    event_types.GRAPH_NODE_ID: "graphNodeId",
}
_IDS_OR_ZERO = {event_types.GRAPH_ID: "graphId", event_types.GREEN_CONTEXT: "greenContextId"}
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
        *RowKind.STREAM.key,
        "start",
        "end",
        "label",
        pl.col("type").fill_null(event_types.KERNEL),
        pl.col("state").fill_null(event_types.RUNNING),
        "correlationId",
        *(pl.col(column).alias(str(number)) for number, column in _ATTRIBUTES.items()),
        *(pl.when(pl.col(column) > 0).then(applicable(column)).alias(str(number)) for number, column in _IDS_OR_ZERO.items()),
        size=pl.lit(0, pl.Int64),
    )


KERNELS = TableSource(
    name="kernels",
    title="Kernels",
    table="CUPTI_ACTIVITY_KIND_KERNEL",
    required=("start", "end", "globalPid", "deviceId", "contextId", "streamId", "demangledName"),
    optional=(*_ATTRIBUTES.values(), *_IDS_OR_ZERO.values()),
    row=RowKind.STREAM,
    types=(event_types.KERNEL, event_types.NCCL_KERNEL, event_types.KERNEL_FAMILY, *_ATTRIBUTES, *_IDS_OR_ZERO),
    frame=_frame,
    launch=Launch(event_types.TAG_KERNEL_LAUNCH),
)
