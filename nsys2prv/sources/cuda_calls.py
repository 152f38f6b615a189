"""CUDA API calls of host threads, runtime and driver."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.source import Launch, RowKind, Source, first_match, named

STATES_BY_NAME = (
    (r"(?i)synchronize|^cu(da)?(Event|Stream)Query|^cu(da)?StreamWait|^cuStreamBatchMemOp", events.STATE_SYNCHRONIZATION),
    (r"(?i)memcpy|memset|prefetch|^cuMem(Advise|PoolTrim)", events.STATE_MEMORY_TRANSFER),
    (
        r"(?i)^cu(da)?(Mem)?(Host)?(Malloc|Alloc|Create|Map|Reserve|AddressReserve)|HostRegister|^cuMemHost",
        events.STATE_ALLOCATING,
    ),
    (r"(?i)^cu(da)?(Mem|Host|Address)*(Free|Unmap|Release|Unregister)", events.STATE_FREEING),
    (r"(?i)launch", events.STATE_CONFIGURING),
)
"""What a call's name looks like, and the Paraver state meanwhile; the first match counts, else `STATE_OTHERS`."""


def call_names(report: Report) -> pl.DataFrame:
    """Columns `id`, `label`: texts of the report as names of API calls."""
    # nsys appends the version of the entry point: cudaLaunchKernel_v7000, cudaMemcpyAsync_ptsz_v7000.
    return report.strings.select("id", label=pl.col("value").str.replace(r"(_ptsz|_ptds)?_v\d{4,}$", ""))


def _frame(report: Report) -> pl.LazyFrame:
    states = call_names(report).with_columns(state=first_match(pl.col("label"), STATES_BY_NAME, events.STATE_OTHERS))
    return named(CALLS.scan(report), "nameId", states).select(
        "globalTid",
        "start",
        "end",
        "label",
        "state",
        "correlationId",
        pl.col("correlationId").alias(str(events.CORRELATION_ID)),
        type=pl.lit(events.CUDA_CALL, pl.Int64),
    )


CALLS = Source(
    name="cuda-api",
    title="CUDA API calls",
    table="CUPTI_ACTIVITY_KIND_RUNTIME",
    required=("start", "end", "globalTid", "nameId"),
    optional=("correlationId",),
    row=RowKind.THREAD,
    types=(events.CUDA_CALL, events.CORRELATION_ID),
    frame=_frame,
    launch=Launch(tag=None),
)
