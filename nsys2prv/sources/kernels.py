"""Kernels on CUDA streams, NCCL's among them."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source, applicable, named

NCCL_KERNEL_NAME = r"(?i)(?:\b|\b_Z[0-9]+)nccl\w*kernel"
"""What names of NCCL's kernels look like: ncclAllReduceRingLLKernel_sum_f32(...), ncclKernel_AllReduce_RING_LL_Sum_float(...),
ncclDevKernel_AllReduce_..., and for symmetric memory ncclSymDevKernel_... and ncclSymkDevKernel_...;
_Z22nccl... where nothing demangled them."""

_ATTRIBUTES = {
    events.GRID_X: "gridX",
    events.GRID_Y: "gridY",
    events.GRID_Z: "gridZ",
    events.BLOCK_X: "blockX",
    events.BLOCK_Y: "blockY",
    events.BLOCK_Z: "blockZ",
    events.STATIC_SHARED_MEMORY: "staticSharedMemory",
    events.DYNAMIC_SHARED_MEMORY: "dynamicSharedMemory",
    events.LOCAL_MEMORY: "localMemoryTotal",
    events.REGISTERS: "registersPerThread",
    events.CORRELATION_ID: "correlationId",
    events.GRAPH_NODE_ID: "graphNodeId",
}
_IDS_OR_ZERO = {events.GRAPH_ID: "graphId", events.GREEN_CONTEXT: "greenContextId"}
"""Ids that are 0 where there is none."""


def _frame(report: Report) -> pl.LazyFrame:
    is_nccl = pl.col("value").str.contains(NCCL_KERNEL_NAME)
    names = report.strings.select(
        "id",
        label="value",
        type=pl.when(is_nccl).then(events.NCCL_KERNEL).otherwise(events.KERNEL).cast(pl.Int64),
        state=pl.when(is_nccl).then(events.STATE_GROUP).otherwise(events.RUNNING).cast(pl.Int64),
    )
    return named(KERNELS.scan(report), "demangledName", names).select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "label",
        pl.col("type").fill_null(events.KERNEL),
        pl.col("state").fill_null(events.RUNNING),
        "correlationId",
        *(pl.col(column).alias(str(number)) for number, column in _ATTRIBUTES.items()),
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
    types=(events.KERNEL, events.NCCL_KERNEL, events.KERNEL_FAMILY, *_ATTRIBUTES, *_IDS_OR_ZERO),
    frame=_frame,
    launch=Launch(events.TAG_KERNEL_LAUNCH),
)
