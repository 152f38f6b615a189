"""Executions of CUDA graphs on streams (graph-level trace: the kernels inside are not recorded)."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source


def _frame(report: Report) -> pl.LazyFrame:
    return EXECUTIONS.scan(report).select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "correlationId",
        pl.col("graphId").alias(str(events.GRAPH_ID)),
        pl.col("graphExecId").alias(str(events.GRAPH_EXEC_ID)),
        pl.col("correlationId").alias(str(events.CORRELATION_ID)),
        type=pl.lit(events.GRAPH_EXECUTION, pl.Int64),
        label=pl.format("CUDA graph {}", pl.col("graphId").fill_null(0)),
        state=pl.lit(events.RUNNING, pl.Int64),
        size=pl.lit(0, pl.Int64),
    )


EXECUTIONS = Source(
    name="graphs",
    title="CUDA graph executions",
    table="CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    required=("start", "end", "globalPid", "deviceId", "contextId", "streamId", "graphId"),
    optional=("graphExecId", "correlationId"),
    row=RowKind.STREAM,
    types=(events.GRAPH_EXECUTION, events.GRAPH_ID, events.GRAPH_EXEC_ID, events.CORRELATION_ID),
    frame=_frame,
    since="3.11",
    launch=Launch(events.TAG_KERNEL_LAUNCH),
)
