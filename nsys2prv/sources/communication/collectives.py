"""Collectives: when each rank began and ended them, and how that ties the clocks of ranks together."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.columns import process_of
from nsys2prv.sources.communication import mpi, nccl
from nsys2prv.sources.communication.communicators import communicator_handles, names_of_handles
from nsys2prv.sources.cuda import kernels
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.source import of_schema
from nsys2prv.vocabulary import nccl_names

KINDS = ("nccl", "mpi")

ALL: Final = "all"
"""No rank ends before the last one has begun."""
FROM_ROOT: Final = "from root"
"""No rank ends before the root has begun."""
TO_ROOT: Final = "to root"
"""The root does not end before the last rank has begun."""

# NCCL calls a kernel AllGatherV that does several broadcasts.
_OF_NCCL = {ALL: r"(?i)All_?Reduce|All_?Gather(?:[^V]|$)|Reduce_?Scatter", FROM_ROOT: "(?i)Broadcast", TO_ROOT: "(?i)Reduce"}
_OF_NCCL_CALLS = {
    ALL: "^(AllReduce|AllGather|ReduceScatter|AlltoAll)$",
    FROM_ROOT: "^(Broadcast|Bcast|Scatter)$",
    TO_ROOT: "^(Reduce|Gather)$",
}
_SENDS = "(?i)SendRecv"
"""Kernels of what NCCL makes of sends and receives, such as ncclAlltoAll; only the call says what it is."""
_ALGORITHM = r"(?i)_?(RING|TREE|COLLNET|NVLS|PAT)"
# MPI_Alltoallv, MPI_Gatherv and the like may be without data between some ranks: these do not wait for each other.
_OF_MPI = {
    ALL: r"^MPI_(Barrier|Allreduce|Allgatherv?|Alltoall|Reduce_scatter(_block)?)$",
    FROM_ROOT: r"^MPI_(Bcast|Scatter)$",
    TO_ROOT: r"^MPI_(Reduce|Gather)$",
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
    "communicator": pl.Int64,
    "size": pl.Int64,
    "key": pl.Int64,
}
_OTHERS = tuple(name for name in _COLUMNS if name not in ("process", "sequence", "end", "start"))
_ALWAYS_KNOWN = ("process", "sequence", "name", "start", "end")


def read_collectives(
    report: Report, kind: str, ranks: Mapping[int, int] | None = None, folder: Path | None = None
) -> pl.DataFrame:
    """Collectives of one report.

    Parameters
    ----------
    kind
        "nccl": kernels, one sequence per stream; "mpi": calls, one sequence per communicator.
    ranks
        Rank of each process, by globalPid. Without them roots of MPI are not known.
    folder
        For intermediate files. Without it, payloads of NCCL's calls are not read.

    Returns
    -------
    One row per collective and process, sorted by process, sequence and end. Of a long sequence only its start and its end.

    `process` (globalPid), `sequence` (which one of the process), `name` (a number that is equal for equal names in all
    reports), `start`, `end` (ns of the report);
    `rule`: how it ties the ranks, one of ALL, FROM_ROOT, TO_ROOT; the latter two only where the root is known;
    `is_root`: whether the process is the root, null where there is none;
    `algorithm`: of NCCL, in lower case (ring, tree, ...): in a ring ends are closer together than in a tree. NCCL's kernels
    have the name of a protocol as well, but one that is called LL does the work of the other protocols too;
    `communicator`: a number that is equal in all its processes, null where it is not known;
    `size`: bytes, where they are equal for all ranks;
    `key`: a number that is equal for all ranks of this collective and for no other collective, null where none is known.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    ends = pl.DataFrame(schema=_COLUMNS)
    with_calls = kind == "nccl" and folder is not None and nccl.has_payloads(report)
    for piece in _nccl(report, with_calls=with_calls) if kind == "nccl" else _mpi(report, ranks or {}):
        ends = pl.concat([ends, of_schema(piece, _COLUMNS).cast(pl.Schema(_COLUMNS))])
        if ends.height > 8 * _MOST:
            ends = _begin_and_end(ends)
    ends = _begin_and_end(ends)
    if with_calls and folder is not None:
        ends = _with_calls(ends, nccl.kernels_with_calls(report, folder))
    has_root = pl.col("rule").is_in([FROM_ROOT, TO_ROOT])
    return ends.filter(pl.col("rule").is_not_null() & (~has_root | pl.col("is_root").is_not_null()))


def _begin_and_end(ends: pl.DataFrame) -> pl.DataFrame:
    ordered = ends.drop_nulls(_ALWAYS_KNOWN).sort("process", "sequence", "end", "start", *_OTHERS)
    place, length = pl.int_range(pl.len()).over("process", "sequence"), pl.len().over("process", "sequence")
    return ordered.filter((place < _MOST) | (place >= length - _MOST))


def _rule(name: pl.Expr, patterns: Mapping[str, str]) -> pl.Expr:
    """The rule of the first pattern that a name fits; null where it fits none."""
    return pl.coalesce(pl.when(name.str.contains(pattern)).then(pl.lit(rule)) for rule, pattern in patterns.items())


def _nccl(report: Report, *, with_calls: bool) -> Iterator[pl.DataFrame]:
    """Kernels of collectives; with those that are one only if their calls say so, or say the root."""
    rule = _rule(pl.col("value"), _OF_NCCL)
    of_calls = pl.lit(with_calls) & (rule.is_not_null() | pl.col("value").str.contains(_SENDS))
    names = report.strings.filter(pl.col("value").str.contains(kernels.NCCL_KERNEL_NAME) & (of_calls | (rule == ALL)))
    table = kernels.KERNELS.table
    if names.is_empty() or not report.has(table, "demangledName", "globalPid"):
        return iter(())
    of_names = names.select(
        "id",
        name=pl.col("value").hash().reinterpret(signed=True),
        algorithm=pl.col("value").str.extract(_ALGORITHM).str.to_lowercase(),
        rule=rule,
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


def _with_calls(ends: pl.DataFrame, kernels: Iterator[pl.DataFrame]) -> pl.DataFrame:
    """What the payloads of NCCL's calls say of collectives: rule, root, communicator, size, and which one it is."""
    kernel = ["process", "sequence", "start", "end"]
    number_of = {name: pl.col(str(number)) for number, name in nccl.ATTRIBUTES.items()}
    # nsys has the names of NCCL's calls without the prefix.
    call = pl.col("label").str.strip_prefix("nccl")
    sequence = number_of[nccl_names.SEQUENCE]
    which = pl.coalesce(pl.format("call {}", "call_id"), pl.format("{} {}", call, sequence))
    parts = [
        piece.select(
            process="globalPid",
            sequence=pl.format("{}.{}.{}", "deviceId", "contextId", "streamId"),
            start="start",
            end="end",
            rule_of_call=_rule(call, _OF_NCCL_CALLS),
            is_root_of_call=number_of[nccl_names.ROOT] == number_of[nccl_names.RANK],
            identifier=pl.format("nccl {}", "identifier"),
            size_of_call=number_of[nccl_names.SIZE],
            which=pl.format("nccl {} {}", "identifier", which),
        ).join(ends, on=kernel, how="semi")
        for piece in kernels
    ]
    if not parts:
        return ends
    # Of a fused group of calls a kernel may have more than one row.
    calls = pl.concat(parts).unique(kernel, keep="none")
    has_root = pl.col("rule").is_in([FROM_ROOT, TO_ROOT])
    with_calls = ends.join(calls, on=kernel, how="left", maintain_order="left").with_columns(
        # Sends and receives have a rule by their call only; a group of several calls by its kernel only.
        rule=pl.coalesce("rule_of_call", "rule")
    )
    key = pl.col("which").hash().reinterpret(signed=True)
    return with_calls.with_columns(
        is_root=pl.when(has_root).then("is_root_of_call"),
        communicator=pl.col("identifier").hash().reinterpret(signed=True),
        size=pl.col("size_of_call"),
        # Each launch of a graph repeats the call that was captured.
        key=pl.when(pl.col("which").is_not_null() & (pl.len().over("process", "sequence", "which") == 1)).then(key),
    ).select(list(_COLUMNS))


def _mpi(report: Report, ranks: Mapping[int, int]) -> Iterator[pl.DataFrame]:
    table = "MPI_COLLECTIVES_EVENTS"
    if report.has(table, "end", "textId"):
        rules = report.strings.with_columns(rule=_rule(pl.col("value"), _OF_MPI)).drop_nulls("rule")
        of_names = rules.select(
            textId="id",
            name=pl.col("value").hash().reinterpret(signed=True),
            rule="rule",
            is_equal=pl.col("value").str.contains(_OF_EQUAL_SIZE),
        )

        def of_table(report: Report) -> pl.LazyFrame:
            columns = ("start", "end", "globalTid", "textId")
            optional = ("commHandle", "rootRank", "size", "recvSize")
            scanned = report.scan_events(table, columns, optional, {"textId": rules["id"].to_list()})
            return scanned.join(of_names.lazy(), on="textId", how="left", maintain_order="left").with_columns(
                process=process_of(pl.col("globalTid"))
            )

        if rules.is_empty():
            return iter(())
        handles, communicators = communicator_handles(report, ranks), names_of_handles(report)
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
                process=process_of(pl.col("globalTid")),
                sequence=pl.lit("unknown"),
                rule=pl.lit(ALL),
            )
        )

    return report.pieces(as_nvtx, PIECE_ROWS) if report.has(mpi.AS_NVTX.table, *mpi.AS_NVTX.required) else iter(())


def _with_communicators(calls: pl.DataFrame, handles: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Calls with their communicators as `sequence`, and whether the process is the root."""
    named = (
        calls.drop_nulls("start")
        .sort("start")
        .join_asof(handles, left_on="start", right_on="since", by=["process", "commHandle"], check_sortedness=False)
        .join(names.rename({"communicator": "called"}), on="commHandle", how="left")
    )
    has_root = pl.col("rule") != ALL
    # Who gives or gets nothing does not wait.
    has_data = has_root | (pl.min_horizontal("size", "recvSize") > 0).fill_null(value=True)
    return named.filter(has_data).with_columns(
        sequence=pl.coalesce(pl.format("communicator {}", "communicator"), "called", pl.lit("unknown")),
        is_root=pl.when(has_root).then(pl.col("rootRank") == pl.col("localRank")),
        size=pl.when("is_equal").then("size"),
    )
