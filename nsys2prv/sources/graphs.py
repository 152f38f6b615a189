"""CUDA graphs: their executions on streams (graph-level trace: the kernels inside are not recorded), and how they are made.

In a node-level trace the kernels, copies and memsets of a graph are in their own tables, with the id of their node.
"""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source, named


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


def _construction(what: str, table: str, ids: dict[int, str], *, since: str = "", assumption: str = "") -> Source:
    def frame(report: Report) -> pl.LazyFrame:
        names = report.strings.rename({"value": "label"})
        return named(source.scan(report), "nameId", names).select(
            "globalTid",
            "start",
            "end",
            "label",
            *(pl.col(column).alias(str(number)) for number, column in ids.items()),
            type=pl.lit(events.GRAPH_CONSTRUCTION, pl.Int64),
        )

    source = Source(
        name="graphs",
        title=f"CUDA {what} made on the host",
        table=table,
        required=("start", "end", "globalTid", "nameId"),
        optional=tuple(ids.values()),
        row=RowKind.THREAD,
        types=(events.GRAPH_CONSTRUCTION, *ids),
        frame=frame,
        assumption=assumption,
        since=since,
    )
    return source


_NODE_IDS = {events.GRAPH_NODE_ID: "graphNodeId", events.GRAPH_ORIGINAL_NODE_ID: "originalGraphNodeId"}

# Up to schema 3.7 the table of graphs is that of nodes; from 3.11 each has its own.
GRAPHS = _construction(
    "graphs",
    "CUDA_GRAPH_EVENTS",
    {
        events.GRAPH_ID: "graphId",
        events.GRAPH_ORIGINAL_ID: "originalGraphId",
        events.GRAPH_EXEC_ID: "graphExecId",
        **_NODE_IDS,
    },
)

NODES = _construction(
    "graph nodes",
    "CUDA_GRAPH_NODE_EVENTS",
    _NODE_IDS,
    since="3.11",
    assumption="A row is the creation or the cloning of one node by the thread in `globalTid`; its name tells which.",
)
