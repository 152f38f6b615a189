"""Sampled metrics of GPUs."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import RowKind, Source

GPU_OF_TYPE = 0xFF
"""`typeId & GPU_OF_TYPE` is nsys' index of the GPU (`TARGET_INFO_GPU.id`)."""


def _frame(report: Report) -> pl.LazyFrame:
    names = report.collect(report.scan("TARGET_INFO_GPU_METRICS", optional=("typeId", "metricId", "metricName")))
    # Ids of metrics differ between reports: only their names are equal.
    named = METRICS.scan(report).join(
        names.unique(["typeId", "metricId"], keep="first").lazy(), on=["typeId", "metricId"], how="left", maintain_order="left"
    )
    return named.select(
        "value",
        gpu=pl.col("typeId") & GPU_OF_TYPE,
        start=pl.col("timestamp"),
        end=pl.col("timestamp"),
        type=pl.lit(events.GPU_METRIC, pl.Int64),
        series=pl.coalesce("metricName", pl.format("GPU metric {}", "metricId")),
    )


METRICS = Source(
    name="gpu-metrics",
    title="GPU metrics",
    table="GPU_METRICS",
    required=("timestamp", "typeId", "metricId", "value"),
    optional=(),
    row=RowKind.GPU,
    types=(events.GPU_METRIC,),
    frame=_frame,
    times=("timestamp", "timestamp"),
    since="3.7",
)
