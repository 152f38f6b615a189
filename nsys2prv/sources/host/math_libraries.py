"""Calls of cuBLAS and cuDNN."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import RowKind, TableSource, named
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

_MATH_LIBRARY_VALUES = ValueSet("math libraries")
CUBLAS_CALL = EventType(67000000, "cuBLAS call", Role.INTERVAL, _MATH_LIBRARY_VALUES)
CUDNN_CALL = EventType(67000001, "cuDNN call", Role.INTERVAL, _MATH_LIBRARY_VALUES)


def _source(library: str, table: str, event_type: EventType) -> TableSource:
    def frame(report: Report) -> pl.LazyFrame:
        called = named(source.scan(report), "nameId", report.strings.rename({"value": "label"}))
        return called.select("globalTid", "start", "end", "label", type=pl.lit(event_type, pl.Int64))

    source = TableSource(
        name=library.lower(),
        title=f"{library} calls",
        table=table,
        required=("start", "end", "globalTid", "nameId"),
        optional=(),
        row=RowKind.THREAD,
        types=(event_type,),
        frame=frame,
        assumption=f"A row of {table} is one call on the thread that made it, and nameId is the call's name.",
    )
    return source


CUBLAS = _source("cuBLAS", "CUBLAS_EVENTS", CUBLAS_CALL)
CUDNN = _source("cuDNN", "CUDNN_EVENTS", CUDNN_CALL)
