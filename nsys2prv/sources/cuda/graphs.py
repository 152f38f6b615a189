"""CUDA graphs: their executions on streams (graph-level trace: the kernels inside are not recorded), and how they are made.

In a node-level trace the kernels, copies and memsets of a graph are in their own tables, with the id of their node.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import Launch, RowKind, TableSource, named
from nsys2prv.vocabulary import event_types


def _frame(report: Report) -> pl.LazyFrame:
    return EXECUTIONS.scan(report).select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "correlationId",
        pl.col("graphId").alias(str(event_types.GRAPH_ID)),
        pl.col("graphExecId").alias(str(event_types.GRAPH_EXEC_ID)),
        pl.col("correlationId").alias(str(event_types.CORRELATION_ID)),
        type=pl.lit(event_types.GRAPH_EXECUTION, pl.Int64),
        label=pl.format("CUDA graph {}", pl.col("graphId").fill_null(0)),
        state=pl.lit(event_types.RUNNING, pl.Int64),
        size=pl.lit(0, pl.Int64),
    )


EXECUTIONS = TableSource(
    name="graphs",
    title="CUDA graph executions",
    table="CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    required=("start", "end", "globalPid", "deviceId", "contextId", "streamId", "graphId"),
    optional=("graphExecId", "correlationId"),
    row=RowKind.STREAM,
    types=(event_types.GRAPH_EXECUTION, event_types.GRAPH_ID, event_types.GRAPH_EXEC_ID, event_types.CORRELATION_ID),
    frame=_frame,
    since="3.11",
    launch=Launch(event_types.TAG_KERNEL_LAUNCH),
)


def _construction(what: str, table: str, ids: dict[int, str], *, since: str = "", assumption: str = "") -> TableSource:
    def frame(report: Report) -> pl.LazyFrame:
        names = report.strings.rename({"value": "label"})
        return named(source.scan(report), "nameId", names).select(
            "globalTid",
            "start",
            "end",
            "label",
            *(pl.col(column).alias(str(number)) for number, column in ids.items()),
            type=pl.lit(event_types.GRAPH_CONSTRUCTION, pl.Int64),
        )

    source = TableSource(
        name="graphs",
        title=f"CUDA {what} made on the host",
        table=table,
        required=("start", "end", "globalTid", "nameId"),
        optional=tuple(ids.values()),
        row=RowKind.THREAD,
        types=(event_types.GRAPH_CONSTRUCTION, *ids),
        frame=frame,
        assumption=assumption,
        since=since,
    )
    return source


_NODE_IDS = {event_types.GRAPH_NODE_ID: "graphNodeId", event_types.GRAPH_ORIGINAL_NODE_ID: "originalGraphNodeId"}

# Up to schema 3.7 the table of graphs is that of nodes; from 3.11 each has its own.
GRAPHS = _construction(
    "graphs",
    "CUDA_GRAPH_EVENTS",
    {
        event_types.GRAPH_ID: "graphId",
        event_types.GRAPH_ORIGINAL_ID: "originalGraphId",
        event_types.GRAPH_EXEC_ID: "graphExecId",
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
