"""Tables of nsys exports with their columns and types."""

from pathlib import Path

import polars as pl

from nsys2prv.demo.nsys_tables import COLUMNS as COLUMNS_OF_DEMO

_TYPES: dict[str, type[pl.DataType]] = {"": pl.Int64, "text": pl.String, "real": pl.Float64}
_SHARED = {
    "@thread": "start end globalTid",
    "@stream": "start end deviceId contextId greenContextId streamId correlationId globalPid",
    "@openacc": "@thread nameId eventKind DeviceType lineNo cuDeviceId cuContextId cuStreamId srcFile funcName",
    "@openmp": "@thread correlationId nameId eventKind",
}
# Tables = their columns, which are integers unless a type stands behind them; up to 3.7, CUDA_GRAPH_EVENTS has nodes, too.
_TABLES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


def _parsed(columns: str) -> dict[str, type[pl.DataType]]:
    found: dict[str, type[pl.DataType]] = {}
    for column in columns.split():
        name, _, kind = column.partition(":")
        found |= _parsed(_SHARED[name]) if name in _SHARED else {name: _TYPES[kind]}
    return found


COLUMNS: dict[str, dict[str, type[pl.DataType]]] = {
    **COLUMNS_OF_DEMO,
    **{
        table: _parsed(columns)
        for names, _, columns in (line.partition("=") for line in _TABLES.replace("\n    ", " ").strip().splitlines())
        for table in names.split()
    },
}
