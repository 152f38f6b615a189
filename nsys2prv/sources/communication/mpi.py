"""MPI calls: from nsys' MPI tables, or from the NVTX domain "MPI" of old exports."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.communication import message_ends
from nsys2prv.sources.communication.communicators import names_of_handles
from nsys2prv.sources.nvtx.nvtx_ranges import ON_THREADS, PUSHPOP, is_mpi_call, ranges_in_domains
from nsys2prv.sources.source import RowKind, Source, named
from nsys2prv.vocabulary import call_names, event_types
from nsys2prv.vocabulary.event_types import EventType

_ANY_PARTNER = 0
"""Value of a partner or root that is none (MPI_ANY_SOURCE, MPI_PROC_NULL): ranks are written plus one, 0 would be an end."""


def _one_row_per_call(rows: pl.DataFrame) -> pl.DataFrame:
    """MPI_Waitall and MPI_Startall write a row per request, MPI_Sendrecv one per direction: one call is one interval."""
    key = ["globalTid", "start", "label"]
    attributes = [pl.col(name).drop_nulls().first() for name in rows.columns if name not in (*key, "end")]
    return rows.group_by(key, maintain_order=True).agg(pl.col("end").max(), *attributes).select(rows.columns)


def _calls(names: pl.Series) -> pl.DataFrame:
    """Columns `label`, `type`, `state` of those names that are calls of MPI."""
    label = pl.col("label")
    calls = pl.DataFrame({"label": names}).filter(label.str.starts_with("MPI_")).unique()
    return calls.with_columns(
        type=call_names.call_kind(label).replace_strict(event_types.MPI_TYPES, return_dtype=pl.Int64),
        state=call_names.call_state(label),
    )


def _rank(column: str) -> pl.Expr:
    return pl.when(pl.col(column) >= 0).then(pl.col(column) + 1).otherwise(_ANY_PARTNER)


_ATTRIBUTES: dict[str, dict[EventType, pl.Expr]] = {
    "MPI_P2P_EVENTS": {
        event_types.MPI_MESSAGE_SIZE: pl.col("size"),
        event_types.MPI_PARTNER: _rank("remoteRank"),
        event_types.MPI_TAG: pl.col("tag"),
    },
    "MPI_COLLECTIVES_EVENTS": {
        event_types.MPI_SEND_SIZE: pl.col("size"),
        event_types.MPI_RECV_SIZE: pl.col("recvSize"),
        event_types.MPI_ROOT: pl.when(pl.col("rootRank").is_not_null()).then(_rank("rootRank")),
    },
    "MPI_START_WAIT_EVENTS": {},
    "MPI_OTHER_EVENTS": {},
}

# A call that has no name that is known is one of the others.
_OF_EACH_CALL = (
    *(pl.col(name) for name in ("globalTid", "start", "end", "label")),
    pl.col("type").fill_null(event_types.MPI_OTHER),
    pl.col("state").fill_null(event_types.STATE_OTHERS),
)


def _table_source(table: str) -> Source:
    columns = [*dict.fromkeys(name for values in _ATTRIBUTES[table].values() for name in values.meta.root_names())]
    # Tables with attributes have the communicator of each call, too.
    columns += ["commHandle"] if columns else []
    communicator = (event_types.MPI_COMMUNICATOR,) if columns else ()

    def frame(report: Report) -> pl.LazyFrame:
        calls = _calls(report.strings["value"])
        names = report.strings.rename({"value": "label"}).join(calls, on="label", how="left", maintain_order="left")
        called = named(source.scan(report), "textId", names)
        if columns:
            handles = names_of_handles(report).lazy()
            name = pl.coalesce("communicator", pl.lit(event_types.UNKNOWN_COMMUNICATOR))
            called = called.join(handles, on="commHandle", how="left", maintain_order="left").with_columns(
                pl.when(pl.col("commHandle").is_not_null()).then(name).alias(str(event_types.MPI_COMMUNICATOR))
            )
        return called.select(
            *_OF_EACH_CALL,
            *(expression.cast(pl.Int64).alias(str(number)) for number, expression in _ATTRIBUTES[table].items()),
            *map(str, communicator),
        )

    source = Source(
        name="mpi",
        title="MPI calls",
        table=table,
        required=("start", "globalTid", "textId"),
        optional=("end", *columns),
        extra=message_ends.TABLES.get(table, ()),
        row=RowKind.THREAD,
        types=(*event_types.MPI_TYPES.values(), *_ATTRIBUTES[table], *communicator),
        frame=frame,
        in_order=lambda: _one_row_per_call,
        since="3.7",
    )
    return source


def _as_nvtx(report: Report) -> pl.LazyFrame:
    calls = _calls(pl.Series(list(call_names.NUMBERS), dtype=pl.String))
    return (
        ranges_in_domains(report, AS_NVTX)
        .filter(is_mpi_call())
        .join(calls.lazy(), on="label", how="left", maintain_order="left")
        .select(*_OF_EACH_CALL)
    )


TABLES: tuple[Source, ...] = tuple(_table_source(table) for table in _ATTRIBUTES)

AS_NVTX = Source(
    name="mpi",
    title="MPI calls (as NVTX ranges)",
    **ON_THREADS,
    types=tuple(event_types.MPI_TYPES.values()),
    frame=_as_nvtx,
    only=PUSHPOP.only,
)
