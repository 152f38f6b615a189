"""NVTX: push/pop ranges per domain, start/end ranges, marks."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.reports.identity import NVTX_DOMAIN_CREATED, PID_MASK
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import UNNAMED, RowKind, Source

MARK, PUSHPOP_RANGE, STARTEND_RANGE = 34, 59, 60
"""`eventType` of the events that are translated. The others (33, 39, 75, 76) give names to these."""

DEFAULT_DOMAIN = "default"
NCCL_DOMAIN = "NCCL"
# The row that names a domain is lost when the recording began after the program.
_NCCL_FUNCTION = r"^nccl[A-Z]\w*$"
NVSHMEM_DOMAIN = "NVSHMEM"
MPI_DOMAIN = "MPI"
"""Up to nsys 2023 calls of MPI are push/pop ranges of this domain."""

_REQUIRED = ("start", "eventType", "globalTid")
_OPTIONAL = ("end", "text", "textId", "domainId")


def ranges_in_domains(report: Report, source: Source) -> pl.LazyFrame:
    """Events of NVTX with `label` and the name of their `domain`."""
    names = report.strings.lazy().select("id", name="value")
    table = source.scan(report).with_columns(globalPid=pl.col("globalTid") & PID_MASK, domainId=pl.col("domainId").fill_null(0))
    return (
        table.join(names, left_on="textId", right_on="id", how="left", maintain_order="left")
        .join(_domains(report).lazy(), on=["globalPid", "domainId"], how="left", maintain_order="left")
        .with_columns(
            label=pl.coalesce("text", "name", pl.lit(UNNAMED)),
        )
        .with_columns(
            domain=pl.when(pl.col("domainId") == 0)
            .then(pl.lit(DEFAULT_DOMAIN))
            .when(pl.col("domain").is_null() & pl.col("label").str.contains(_NCCL_FUNCTION))
            .then(pl.lit(NCCL_DOMAIN))
            .otherwise(pl.coalesce("domain", pl.format("{}", pl.col("domainId"))))
        )
    )


def process_of(thread: str) -> pl.Expr:
    """globalPid of a column of globalTid."""
    return pl.col(thread) & PID_MASK


def is_mpi_call() -> pl.Expr:
    """Whether a range of `ranges_in_domains` is a call of MPI."""
    return (pl.col("domain") == MPI_DOMAIN) & pl.col("label").str.starts_with("MPI_")


def is_nvshmem_call() -> pl.Expr:
    """Whether a range of `ranges_in_domains` is a call of NVSHMEM."""
    return (pl.col("domain") == NVSHMEM_DOMAIN) & pl.col("label").str.contains("^(?i)nvshmem")


def _domains(report: Report) -> pl.DataFrame:
    """Columns `globalPid`, `domainId`, `domain`: ids of domains differ between processes."""
    created = report.scan("NVTX_EVENTS", _REQUIRED, _OPTIONAL, only={"eventType": (NVTX_DOMAIN_CREATED,)})
    named = created.join(report.strings.lazy(), left_on="textId", right_on="id", how="left")
    return report.collect(
        named.select(
            "domainId", globalPid=pl.col("globalTid") & PID_MASK, domain=pl.coalesce("text", "value").str.strip_chars()
        )
    ).unique(["globalPid", "domainId"], keep="first", maintain_order=True)


def _pushpop(report: Report) -> pl.LazyFrame:
    is_nccl = pl.col("domain") == NCCL_DOMAIN
    return (
        ranges_in_domains(report, PUSHPOP)
        .filter(~is_mpi_call() & ~is_nvshmem_call())
        .select(
            "globalTid",
            "start",
            "end",
            "label",
            type=pl.when(is_nccl).then(events.NCCL_REGION).otherwise(events.NVTX_PUSHPOP).cast(pl.Int64),
            series=pl.when(~is_nccl).then(pl.col("domain")),
        )
    )


def _startend(report: Report) -> pl.LazyFrame:
    return ranges_in_domains(report, STARTEND).select(
        "globalTid", "start", "end", "label", type=pl.lit(events.NVTX_RANGE, pl.Int64), series=pl.lit("")
    )


def _marks(report: Report) -> pl.LazyFrame:
    return ranges_in_domains(report, MARKS).select(
        "globalTid", "start", "label", end=pl.col("start"), type=pl.lit(events.NVTX_MARK, pl.Int64)
    )


PUSHPOP = Source(
    name="nvtx",
    title="NVTX push/pop ranges",
    table="NVTX_EVENTS",
    required=_REQUIRED,
    optional=_OPTIONAL,
    row=RowKind.THREAD,
    types=(events.NVTX_PUSHPOP, events.NCCL_REGION),
    frame=_pushpop,
    only={"eventType": (PUSHPOP_RANGE,)},
)

STARTEND = Source(
    name="nvtx-ranges",
    title="NVTX start/end ranges",
    table="NVTX_EVENTS",
    required=_REQUIRED,
    optional=_OPTIONAL,
    row=RowKind.THREAD,
    types=(events.NVTX_RANGE,),
    frame=_startend,
    only={"eventType": (STARTEND_RANGE,)},
    in_order=lambda: Lanes("globalTid"),
)

MARKS = Source(
    name="nvtx-marks",
    title="NVTX marks",
    table="NVTX_EVENTS",
    required=_REQUIRED,
    optional=_OPTIONAL,
    row=RowKind.THREAD,
    types=(events.NVTX_MARK,),
    frame=_marks,
    times=("start", "start"),
    only={"eventType": (MARK,)},
)
