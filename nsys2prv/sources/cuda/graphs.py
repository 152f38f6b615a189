"""CUDA graphs: their executions on streams (graph-level trace: the kernels inside are not recorded), and how they are made.

In a node-level trace the kernels, copies and memsets of a graph are in their own tables, with the id of their node.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import Launch, RowKind, TableSource, attributes, call_source
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


def _frame(report: Report) -> pl.LazyFrame:
    return EXECUTIONS.scan(report).select(
        *RowKind.STREAM.key,
        "start",
        "end",
        "correlationId",
        *attributes(_OF_EXECUTION),
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
    types=(event_types.GRAPH_EXECUTION, *_OF_EXECUTION),
    frame=_frame,
    since="3.11",
    launch=Launch(event_types.TAG_KERNEL_LAUNCH),
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

NODES = call_source(
    "graphs",
    "CUDA graph nodes made on the host",
    "CUDA_GRAPH_NODE_EVENTS",
    GRAPH_CONSTRUCTION,
    _NODE_IDS,
    since="3.11",
    assumption="A row is the creation or the cloning of one node by the thread in `globalTid`; its name says which.",
)
