"""Ends of point-to-point messages of MPI: sends, and receives with the calls that complete them; and the table of all kinds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.columns import process_of
from nsys2prv.sources.communication import nccl_messages, nccl_network
from nsys2prv.sources.communication.communicators import communicator_handles
from nsys2prv.sources.source import of_schema
from nsys2prv.vocabulary import call_names
from nsys2prv.vocabulary.call_names import MessagePart

NAME = "messages"
"""Name for --skip."""
MPI, NCCL, NCCL_NETWORK = "mpi", "nccl", "nccl-network"
SOURCE_OF_KIND = {MPI: "mpi", NCCL: "nccl", NCCL_NETWORK: "nvtx-marks"}
"""Kinds of messages, with the names of the sources that they belong to: without these there are none."""
BOUNDING = (MPI, NCCL_NETWORK)
"""Kinds that bound clocks. Those of NCCL end with kernels, as its collectives do, which are more precise."""

END_SCHEMA = {
    "globalTid": pl.Int64,
    "start": pl.Int64,
    "order": pl.Int64,
    "end": pl.Int64,
    "is_send": pl.Boolean,
    "communicator": pl.Int64,
    "source": pl.Int64,
    "destination": pl.Int64,
    "tag": pl.Int64,
    "size": pl.Int64,
    "channel": pl.Int64,
    "sequence": pl.Int64,
}
"""One end of a message: the thread; start of the call that sends, receives, or starts a persistent request, and the order of
calls that start together; end of the call that completes it, null where none is known (ns of the report); the communicator,
by a number that is the same in all reports, null where it is not known; ranks in the communicator, null or negative for none or
any; the tag, negative for any; bytes. Of messages over the network: the channel, -1 where its text is not complete, and the
place in the order of the channel, which may start again with each operation, null where it is not known; null for others."""

_P2P, _COLLECTIVES = "MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS"
TABLES: dict[str, tuple[str, ...]] = {
    _P2P: ("commHandle", "tag", "remoteRank", "size", "requestHandle"),
    "MPI_START_WAIT_EVENTS": ("requestHandle",),
    # Handles are used again: a wait may be for a collective.
    _COLLECTIVES: ("requestHandle",),
}
_CALL_SCHEMA = {
    "globalTid": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "order": pl.Int64,
    "part": pl.Int64,
    "process": pl.Int64,
    **dict.fromkeys(TABLES[_P2P], pl.Int64),
}
_OF_MESSAGE = ("commHandle", "tag", "remoteRank", "size")
_REQUEST = ["process", "requestHandle"]


def kinds_of_messages(report: Report, kinds: Sequence[str]) -> tuple[str, ...]:
    """Those of the kinds of messages that a report has."""
    has_kind = {
        MPI: lambda: report.has(_P2P),
        NCCL: lambda: nccl_messages.has_messages(report),
        NCCL_NETWORK: lambda: nccl_network.has_network_messages(report),
    }
    return tuple(kind for kind in kinds if has_kind[kind]())


def read_message_ends(
    report: Report, ranks: Mapping[int, int], folder: Path, kinds: Sequence[str] = (MPI,)
) -> Iterator[pl.DataFrame]:
    """All ends of messages in a report; those of one thread and kind in the order of their calls.

    Parameters
    ----------
    ranks
        Rank of each process, by globalPid. In a process without one, no communicator is known.
    kinds
        Which of SOURCE_OF_KIND.

    Yields
    ------
    Columns of END_SCHEMA.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    read: dict[str, Callable[[Report, Path], Iterator[pl.DataFrame]]] = {
        MPI: partial(_of_mpi, ranks),
        NCCL: nccl_messages.nccl_message_ends,
        NCCL_NETWORK: nccl_network.network_message_ends,
    }
    for kind in filter(kinds.__contains__, read):
        yield from (of_schema(ends, END_SCHEMA) for ends in read[kind](report, folder / kind))


def _of_mpi(ranks: Mapping[int, int], report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    names = report.strings.filter(pl.col("value").str.starts_with("MPI_"))
    parts = names.select(textId="id", part=call_names.message_parts(pl.col("value")))
    calls = ExternalSort(["start"], folder)
    for table in TABLES:
        for piece in report.pieces(partial(_calls, table, parts), PIECE_ROWS):
            calls.add(piece)
    handles = communicator_handles(report, ranks)
    requests = _Requests()
    rows_before = 0
    for window in calls.windows():
        split = _sends_and_receives(window.with_columns(order=pl.int_range(rows_before, rows_before + window.height)))
        rows_before += window.height
        at_once = split.filter(_has(MessagePart.SENDS | MessagePart.RECEIVES) & ~_has(MessagePart.LATER | MessagePart.DEFINES))
        yield _ends(pl.concat([at_once, requests.follow(split)]), handles)
    yield _ends(requests.rest(), handles)


def _has(parts: int) -> pl.Expr:
    return (pl.col("part") & int(parts)) != 0


def _calls(table: str, parts: pl.DataFrame, report: Report) -> pl.LazyFrame:
    """Calls of a table that have to do with messages, with the columns of _CALL_SCHEMA."""
    columns = TABLES[table]
    rows = report.scan_events(table, ("start", "globalTid", "textId"), ("end", *columns), None).drop_nulls(
        ["start", "globalTid"]
    )
    if table == _COLLECTIVES:
        calls = rows.drop_nulls("requestHandle").with_columns(part=pl.lit(int(MessagePart.LATER), pl.Int64))
    else:
        calls = rows.join(parts.lazy(), on="textId", how="left", maintain_order="left").filter(pl.col("part") > 0)
    calls = calls.with_columns(process=process_of(pl.col("globalTid")), order=pl.lit(0, pl.Int64))
    return of_schema(calls, _CALL_SCHEMA)


def _sends_and_receives(calls: pl.DataFrame) -> pl.DataFrame:
    """A call that sends and receives becomes two rows.

    nsys writes two rows where the partners differ: first the send, which ends where it begins, then the receive, which ends
    with the call. One row is both."""
    is_both = _has(MessagePart.SENDS) & _has(MessagePart.RECEIVES)
    two_way = calls.filter(is_both)
    if two_way.is_empty():
        return calls
    place = pl.int_range(pl.len()).over("globalTid", "start")
    ordered = two_way.sort("start", "end", nulls_last=True, maintain_order=True).with_columns(
        is_first=place == 0, is_last=place == pl.len().over("globalTid", "start") - 1
    )
    sends = ordered.filter("is_first").with_columns(pl.col("part") & ~int(MessagePart.RECEIVES))
    receives = ordered.filter("is_last").with_columns(pl.col("part") & ~int(MessagePart.SENDS))
    split = pl.concat([calls.filter(~is_both), sends.select(calls.columns), receives.select(calls.columns)])
    return split.sort("start", maintain_order=True)


class _Requests:
    """Follows requests from the calls that make or start them to those that complete them.

    Takes in calls in the order of time; keeps open receives, and definitions of persistent requests, from one piece to the
    next. A request is identified by its process and handle, and belongs to the last call that returned the handle."""

    def __init__(self) -> None:
        self._open_calls = pl.DataFrame(schema=_CALL_SCHEMA)

    def follow(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Sends, and receives that are completed or of which nothing more can be known: columns of _CALL_SCHEMA."""
        with_request = calls.filter(_has(MessagePart.LATER | MessagePart.DEFINES | MessagePart.STARTS | MessagePart.COMPLETES))
        lost = with_request.filter(
            pl.col("requestHandle").is_null() & _has(MessagePart.LATER) & _has(MessagePart.SENDS | MessagePart.RECEIVES)
        )
        open_calls = pl.concat([self._open_calls, with_request.drop_nulls("requestHandle")]).with_row_index("place")
        begins, defines = (
            _has(MessagePart.LATER | MessagePart.DEFINES | MessagePart.STARTS),
            _has(MessagePart.LATER | MessagePart.DEFINES),
        )
        turns = (
            open_calls.sort(*_REQUEST, "place")
            .with_columns(
                turn=begins.cast(pl.Int64).cum_sum().over(_REQUEST),
                definition=pl.when(defines).then("place").forward_fill().over(_REQUEST),
            )
            .with_columns(
                last_turn=pl.col("turn").max().over(_REQUEST), last_definition=pl.col("definition").max().over(_REQUEST)
            )
        )
        of_definition = open_calls.filter(_has(MessagePart.DEFINES)).select("part", *_OF_MESSAGE, definition="place")
        started = (
            turns.filter(_has(MessagePart.STARTS)).drop("part", *_OF_MESSAGE).join(of_definition, on="definition", how="inner")
        )
        begun = turns.filter(_has(MessagePart.LATER) & _has(MessagePart.SENDS | MessagePart.RECEIVES))
        # nsys records a test only when it found the request complete, and MPI_Waitall also for requests that MPI_Waitany
        # completed before: the first one counts.
        completed = (
            turns.filter(_has(MessagePart.COMPLETES))
            .group_by(*_REQUEST, "turn")
            .agg(completed=pl.col("end").sort_by("place").first())
        )
        begun = (
            pl.concat([begun, started.select(begun.columns)])
            .join(completed.with_columns(is_complete=pl.lit(True)), on=[*_REQUEST, "turn"], how="left")
            .with_columns(end="completed")
        )
        is_open = _has(MessagePart.RECEIVES) & pl.col("is_complete").is_null() & (pl.col("turn") == pl.col("last_turn"))
        keep = pl.concat(
            [
                begun.filter(is_open)["place"],
                turns.filter(_has(MessagePart.DEFINES) & (pl.col("place") == pl.col("last_definition")))["place"],
            ]
        )
        self._open_calls = open_calls[keep.unique().sort()].drop("place")
        return pl.concat(
            [lost.with_columns(end=pl.lit(None, pl.Int64)), begun.filter(~is_open).sort("place").select(list(_CALL_SCHEMA))]
        )

    def rest(self) -> pl.DataFrame:
        """Receives that are still open."""
        # Anything that gives the handles a new meaning closes them.
        closing = self._open_calls.with_columns(start=pl.lit(2**62, pl.Int64), part=pl.lit(int(MessagePart.LATER), pl.Int64))
        return self.follow(closing.unique(_REQUEST, maintain_order=True))


def _ends(calls: pl.DataFrame, handles: pl.DataFrame) -> pl.DataFrame:
    """Ends of messages with their communicators."""
    in_communicator = calls.sort("start", maintain_order=True).join_asof(
        handles, left_on="start", right_on="since", by=["process", "commHandle"], check_sortedness=False
    )
    is_send = _has(MessagePart.SENDS)
    return in_communicator.select(
        *("globalTid", "start", "order", "end", "communicator"),
        is_send=is_send,
        source=pl.when(is_send).then("localRank").otherwise("remoteRank"),
        destination=pl.when(is_send).then("remoteRank").otherwise("localRank"),
        size=pl.col("size").fill_null(0),
        # Without any tags, order alone distinguishes messages.
        tag=pl.col("tag").fill_null(0),
    )
