"""Collectives: when each rank began and ended them, and how that ties the clocks of ranks together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from nsys2prv.execution.sizes import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.identity import process_of
from nsys2prv.sources.communication import mpi
from nsys2prv.sources.communication.communicators import communicator_handles
from nsys2prv.sources.cuda import kernels
from nsys2prv.sources.nvtx import nvtx_ranges

KINDS = ("nccl", "mpi")

ALL: Final = "all"
"""No rank ends before the last one has begun."""
FROM_ROOT: Final = "from root"
"""No rank ends before the root has begun."""
TO_ROOT: Final = "to root"
"""The root does not end before the last rank has begun."""

# NCCL calls a kernel AllGatherV that does several broadcasts.
_OF_NCCL = r"(?i)All_?Reduce|All_?Gather(?:[^V]|$)|Reduce_?Scatter"
_ALGORITHM = r"(?i)_?(RING|TREE|COLLNET|NVLS|PAT)"
_OF_MPI = {
    ALL: r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall[vw]?|Reduce_scatter(_block)?)$",
    FROM_ROOT: r"^MPI_(Bcast|Scatterv?)$",
    TO_ROOT: r"^MPI_(Reduce|Gatherv?)$",
}
_OF_EQUAL_SIZE = r"^MPI_(Allreduce|Allgather|Alltoall|Reduce_scatter(_block)?|Reduce|Gather)$"
"""Each rank gives the same number of bytes."""

_MOST = 8_192
"""Collectives of a sequence that are kept at its start, and as many at its end: a drift shows over a long time."""

_COLUMNS = {
    "process": pl.Int64,
    "sequence": pl.String,
    "name": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "rule": pl.String,
    "is_root": pl.Boolean,
    "algorithm": pl.String,
    "size": pl.Int64,
    "key": pl.Int64,
}
_ALWAYS_KNOWN = ("process", "sequence", "name", "start", "end", "rule")


def read_collectives(report: Report, kind: str, ranks: Mapping[int, int] | None = None) -> pl.DataFrame:
    """Collectives of one report.

    Parameters
    ----------
    report
        The report.
    kind
        "nccl": kernels, one sequence per stream; "mpi": calls, one sequence per communicator.
    ranks
        Rank of each process, by globalPid. Without them roots of MPI are not known.

    Returns
    -------
    One row per collective and process, sorted by process, sequence and end. Of a long sequence only its start and its end.

    `process` (globalPid), `sequence` (which one of the process), `name` (a number that is equal for equal names in all
    reports), `start`, `end` (ns of the report);
    `rule`: how it ties the ranks, one of ALL, FROM_ROOT, TO_ROOT; the latter two only where the root is known;
    `is_root`: whether the process is the root, null where there is none;
    `algorithm`: of NCCL, in lower case (ring, tree, ...): in a ring ends are closer together than in a tree. NCCL's kernels
    have the name of a protocol as well, but one that is called LL does the work of the other protocols too;
    `size`: bytes, where they are equal for all ranks;
    `key`: a number that is equal for all ranks of this collective and for no other collective, null where none is known.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    found = pl.DataFrame(schema=_COLUMNS)
    for piece in _nccl(report) if kind == "nccl" else _mpi(report, ranks or {}):
        absent = [pl.lit(None, dtype).alias(name) for name, dtype in _COLUMNS.items() if name not in piece.columns]
        found = pl.concat([found, piece.with_columns(absent).select(list(_COLUMNS)).cast(pl.Schema(_COLUMNS))])
        if found.height > 8 * _MOST:
            found = _begin_and_end(found)
    return _begin_and_end(found)


def _begin_and_end(found: pl.DataFrame) -> pl.DataFrame:
    ordered = found.drop_nulls(_ALWAYS_KNOWN).sort("process", "sequence", "end", "start", "name")
    place, length = pl.int_range(pl.len()).over("process", "sequence"), pl.len().over("process", "sequence")
    return ordered.filter((place < _MOST) | (place >= length - _MOST))


def _nccl(report: Report) -> Iterator[pl.DataFrame]:
    names = report.strings.filter(
        pl.col("value").str.contains(kernels.NCCL_KERNEL_NAME) & pl.col("value").str.contains(_OF_NCCL)
    )
    table = kernels.KERNELS.table
    if names.is_empty() or not report.has(table, "demangledName", "globalPid"):
        return iter(())
    of_names = names.select(
        "id",
        name=pl.col("value").hash().reinterpret(signed=True),
        algorithm=pl.col("value").str.extract(_ALGORITHM).str.to_lowercase(),
        rule=pl.lit(ALL),
    )

    def frame(report: Report) -> pl.LazyFrame:
        columns = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "demangledName")
        scanned = report.scan_events(table, columns, (), {"demangledName": names["id"].to_list()})
        return scanned.join(of_names.lazy(), left_on="demangledName", right_on="id", maintain_order="left").select(
            *("start", "end", "name", "algorithm", "rule"),
            process="globalPid",
            sequence=pl.format("{}.{}.{}", "deviceId", "contextId", "streamId"),
        )

    return report.pieces(frame, PIECE_ROWS)


def _rule_of_mpi(name: pl.Expr) -> pl.Expr:
    return pl.coalesce(pl.when(name.str.contains(pattern)).then(pl.lit(rule)) for rule, pattern in _OF_MPI.items())


def _mpi(report: Report, ranks: Mapping[int, int]) -> Iterator[pl.DataFrame]:
    table = "MPI_COLLECTIVES_EVENTS"
    if report.has(table, "end", "textId"):
        rules = report.strings.with_columns(rule=_rule_of_mpi(pl.col("value"))).drop_nulls("rule")
        of_names = rules.select(
            textId="id",
            name=pl.col("value").hash().reinterpret(signed=True),
            rule="rule",
            is_equal=pl.col("value").str.contains(_OF_EQUAL_SIZE),
        )

        def of_table(report: Report) -> pl.LazyFrame:
            columns = ("start", "end", "globalTid", "textId")
            optional = ("commHandle", "rootRank", "size")
            scanned = report.scan_events(table, columns, optional, {"textId": rules["id"].to_list()})
            return scanned.join(of_names.lazy(), on="textId", how="left", maintain_order="left").with_columns(
                process=process_of("globalTid")
            )

        if rules.is_empty():
            return iter(())
        handles, communicators = communicator_handles(report, ranks), mpi.communicator_names(report)
        pieces = report.pieces(of_table, PIECE_ROWS)
        return (_with_communicators(piece, handles, communicators) for piece in pieces)

    def as_nvtx(report: Report) -> pl.LazyFrame:
        return (
            nvtx_ranges.ranges_in_domains(report, mpi.AS_NVTX)
            .filter(nvtx_ranges.is_mpi_call() & pl.col("label").str.contains(_OF_MPI[ALL]))
            .select(
                "start",
                "end",
                name=pl.col("label").hash().reinterpret(signed=True),
                process=process_of("globalTid"),
                sequence=pl.lit("unknown"),
                rule=pl.lit(ALL),
            )
        )

    return report.pieces(as_nvtx, PIECE_ROWS) if report.has(mpi.AS_NVTX.table, *mpi.AS_NVTX.required) else iter(())


def _with_communicators(calls: pl.DataFrame, handles: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Calls with their communicators as `sequence`, and whether the process is the root; without those of unknown root."""
    known = (
        calls.drop_nulls("start")
        .sort("start")
        .join_asof(handles, left_on="start", right_on="since", by=["process", "commHandle"], check_sortedness=False)
        .join(names.rename({"communicator": "called"}), on="commHandle", how="left")
    )
    has_root = pl.col("rule") != ALL
    return known.with_columns(
        sequence=pl.coalesce(pl.format("communicator {}", "communicator"), "called", pl.lit("unknown")),
        is_root=pl.when(has_root).then(pl.col("rootRank") == pl.col("localRank")),
        size=pl.when("is_equal").then("size"),
    ).filter(~has_root | pl.col("is_root").is_not_null())
