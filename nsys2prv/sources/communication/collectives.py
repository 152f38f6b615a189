"""Collectives whose end is the same moment on all ranks: they tie clocks together."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from nsys2prv.execution.sizes import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.identity import process_of
from nsys2prv.sources.communication import mpi
from nsys2prv.sources.cuda import kernels
from nsys2prv.sources.nvtx import nvtx_ranges

KINDS = ("nccl", "mpi")

# What ends on no rank before the last one has come. Broadcasts and reductions to a root do not: some leave early.
_OF_NCCL = r"(?i)All_?Reduce|All_?Gather|Reduce_?Scatter"
_OF_MPI = r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)$"

_MOST = 8_192
"""Collectives of a sequence that are kept at its start, and as many at its end: a drift shows over a long time."""

_COLUMNS = {"process": pl.Int64, "sequence": pl.String, "name": pl.Int64, "end": pl.Int64}


def read_collectives(report: Report, kind: str) -> pl.DataFrame:
    """Collectives of one report.

    Parameters
    ----------
    report
        The report.
    kind
        "nccl": kernels, one sequence per stream; "mpi": calls, one sequence per communicator.

    Returns
    -------
    Columns `process` (globalPid), `sequence` (which one of the process), `name` (a number that is equal for equal names in
    all reports), `end` (ns of the report), sorted by all but the name. Of a long sequence only its start and its end.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    found = pl.DataFrame(schema=_COLUMNS)
    for piece in _nccl(report) if kind == "nccl" else _mpi(report):
        found = pl.concat([found, piece.select(list(_COLUMNS)).cast(pl.Schema(_COLUMNS))])
        if found.height > 8 * _MOST:
            found = _begin_and_end(found)
    return _begin_and_end(found)


def _begin_and_end(found: pl.DataFrame) -> pl.DataFrame:
    ordered = found.drop_nulls().sort("process", "sequence", "end")
    place, length = pl.int_range(pl.len()).over("process", "sequence"), pl.len().over("process", "sequence")
    return ordered.filter((place < _MOST) | (place >= length - _MOST))


def _nccl(report: Report) -> Iterator[pl.DataFrame]:
    names = report.strings.filter(
        pl.col("value").str.contains(kernels.NCCL_KERNEL_NAME) & pl.col("value").str.contains(_OF_NCCL)
    )
    table = kernels.KERNELS.table
    if names.is_empty() or not report.has(table, "demangledName", "globalPid"):
        return iter(())
    numbers = names.select("id", name=pl.col("value").hash().reinterpret(signed=True))

    def frame(report: Report) -> pl.LazyFrame:
        columns = ("end", "globalPid", "deviceId", "contextId", "streamId", "demangledName")
        scanned = report.scan_events(table, columns, (), {"demangledName": names["id"].to_list()})
        return scanned.join(numbers.lazy(), left_on="demangledName", right_on="id", maintain_order="left").select(
            "end", "name", process="globalPid", sequence=pl.format("{}.{}.{}", "deviceId", "contextId", "streamId")
        )

    return report.pieces(frame, PIECE_ROWS)


def _mpi(report: Report) -> Iterator[pl.DataFrame]:
    table = "MPI_COLLECTIVES_EVENTS"
    if report.has(table, "end", "textId"):
        names = report.strings.filter(pl.col("value").str.contains(_OF_MPI))
        numbers = names.select("id", name=pl.col("value").hash().reinterpret(signed=True))
        communicators = mpi.communicator_names(report)

        def of_table(report: Report) -> pl.LazyFrame:
            columns = ("end", "globalTid", "textId")
            scanned = report.scan_events(table, columns, ("commHandle",), {"textId": names["id"].to_list()})
            named = scanned.join(numbers.lazy(), left_on="textId", right_on="id", maintain_order="left").join(
                communicators.lazy(), on="commHandle", how="left", maintain_order="left"
            )
            sequence = pl.col("communicator").fill_null("unknown")
            return named.select("end", "name", process=process_of("globalTid"), sequence=sequence)

        return report.pieces(of_table, PIECE_ROWS) if names.height else iter(())

    def as_nvtx(report: Report) -> pl.LazyFrame:
        return (
            nvtx_ranges.ranges_in_domains(report, mpi.AS_NVTX)
            .filter(nvtx_ranges.is_mpi_call() & pl.col("label").str.contains(_OF_MPI))
            .select(
                "end",
                name=pl.col("label").hash().reinterpret(signed=True),
                process=process_of("globalTid"),
                sequence=pl.lit("unknown"),
            )
        )

    return report.pieces(as_nvtx, PIECE_ROWS) if report.has(mpi.AS_NVTX.table, *mpi.AS_NVTX.required) else iter(())
