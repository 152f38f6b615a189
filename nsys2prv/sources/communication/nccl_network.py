"""Messages over the network, which an instrumented NCCL notes in NVTX: when each was posted, and when it was complete.

The thread of NCCL that serves the network has ranges and marks such as
`ncclNetIsend(): Data_Size: 65536, Sender_Rank: 2, Receiver_Rank: 3, Channel_ID: 0, Sequence: 7`. An `Isend` that the network
does not take is tried again, so the last one posts the message; the last `RecvTest` finds it complete. Older texts have no
sequence."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.report import once
from nsys2prv.sources.communication.communicators import communicator_number
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.vocabulary import event_types

_NOTE = r"^ncclNet(Isend|Irecv|SendTest|RecvTest)\(\):\s*\S"
"""What notes of messages look like; the names of the functions alone are ranges around them."""
_NUMBERS = {"size": "Data_Size", "source": "Sender_Rank", "destination": "Receiver_Rank", "channel": "Channel_ID"}
_HASH = r"(?i)\bcomm_?hash:?\s*(\w+)"
"""The hash of a communicator is the same in all its ranks; its address is not, and is not used."""
_NEEDED = ("source", "destination", "channel")
_CONNECTION = ["globalTid", "communicator", "is_send", "source", "destination", "channel"]
_COLUMNS = {
    "connection": pl.Int64,
    "start": pl.Int64,
    "globalTid": pl.Int64,
    "is_send": pl.Boolean,
    "is_post": pl.Boolean,
    "is_whole": pl.Boolean,
    "communicator": pl.Int64,
    **dict.fromkeys((*_NUMBERS, "sequence"), pl.Int64),
}


@once
def has_network_messages(report: Report) -> bool:
    """Whether a report has notes of messages over the network."""
    return nvtx_ranges.has_text(report, lambda text: text.str.contains(_NOTE))


def network_message_ends(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    """All ends of messages over the network in a report: columns of `message_ends.END_SCHEMA`.

    The start is when the message, or the buffer for it, was posted; the end is when it was found complete. What has been posted
    with a text that is not complete is an end without source and destination, with channel -1."""
    notes = ExternalSort(["connection", "start"], folder)
    for piece in report.pieces(_notes, PIECE_ROWS):
        notes.add(piece)
    ends_before = 0
    for window in notes.windows():
        ends = _ends(window).with_columns(order=pl.int_range(ends_before, ends_before + pl.len(), dtype=pl.Int64))
        ends_before += ends.height
        yield ends


def _notes(report: Report) -> pl.LazyFrame:
    """Notes of messages, with the columns of _COLUMNS."""
    label = pl.col("label")
    function = label.str.extract(_NOTE)
    of_texts = {
        name: label.str.extract(rf"\b{text}:\s*(\d+)\b").cast(pl.Int64, strict=False) for name, text in _NUMBERS.items()
    }
    unnamed = communicator_number("nccl network")
    parsed = (
        nvtx_ranges.ranges_in_domains(report, nvtx_ranges.FIELDS)
        .filter(label.str.contains(_NOTE))
        .drop_nulls(["start", "globalTid"])
        .select(
            "start",
            "globalTid",
            is_send=function.str.contains("(?i)send"),
            is_post=function.str.starts_with("I"),
            has_sequence=label.str.contains("Sequence"),
            communicator=label.str.extract(_HASH).hash().reinterpret(signed=True).fill_null(unnamed),
            sequence=label.str.extract(r"\bSequence:\s*(\d+)\b").cast(pl.Int64, strict=False),
            **of_texts,
        )
    )
    is_whole = pl.all_horizontal(pl.col(*_NEEDED, "size").is_not_null()) & (
        pl.col("sequence").is_not_null() | ~pl.col("has_sequence")
    )
    return (
        parsed.with_columns(is_whole=is_whole)
        # What is left of a broken text is not used.
        .with_columns(pl.when("is_whole").then(pl.col(*_NEEDED, "size", "sequence")))
        .with_columns(connection=pl.struct(_CONNECTION).hash().reinterpret(signed=True))
        .select(list(_COLUMNS))
    )


def _ends(notes: pl.DataFrame) -> pl.DataFrame:
    """Ends of messages from all notes of some connections, in the order of time."""
    complete = notes.filter("is_whole")
    parts = [
        _with_sequence(complete.drop_nulls("sequence")),
        _in_order(complete.filter(pl.col("sequence").is_null())),
        notes.filter(~pl.col("is_whole") & pl.col("is_post")).select(
            *_CONNECTION, "start", "sequence", "size", end=pl.lit(None, pl.Int64)
        ),
    ]
    columns = [*_CONNECTION, "start", "end", "sequence", "size"]
    return (
        pl.concat([part.select(columns) for part in parts])
        .sort(*_CONNECTION[1:], "start", "globalTid")
        .with_columns(
            pl.col("size").fill_null(0), pl.col("channel").fill_null(-1), tag=pl.lit(event_types.TAG_NCCL_NETWORK, pl.Int64)
        )
    )


def _with_sequence(notes: pl.DataFrame) -> pl.DataFrame:
    """A message is what is posted with one sequence, again and again, until it is found complete."""
    message = [*_CONNECTION, "sequence"]
    tests = (~pl.col("is_post")).cast(pl.Int64).cum_sum().over(message)
    counted = notes.sort("start", "is_post").with_columns(tests=tests)
    place = pl.col("sequence", "tests")
    is_next = pl.any_horizontal(place != place.shift(1).over(_CONNECTION)).fill_null(True)
    posts = (
        counted.filter("is_post")
        .with_columns(is_next=is_next)
        .with_columns(turn=pl.col("is_next").cast(pl.Int64).cum_sum().over(_CONNECTION))
        .group_by(*message, "turn")
        .agg(pl.col("start").max(), posted=pl.col("size").last())
    )
    completed = (
        counted.filter(~pl.col("is_post"))
        .select(*message, "size", end="start")
        .join_asof(
            posts.sort("start").select(*message, "start", "turn"),
            left_on="end",
            right_on="start",
            by=message,
            check_sortedness=False,
        )
        .drop_nulls("turn")
        .group_by(*message, "turn")
        .agg(pl.col("end").max(), pl.col("size").sort_by("end").last())
    )
    # A buffer can be larger than what is received in it.
    size = pl.coalesce("size", pl.when("is_send").then("posted"))
    return posts.join(completed, on=[*message, "turn"], how="left").with_columns(size=size)


def _in_order(notes: pl.DataFrame) -> pl.DataFrame:
    """Without sequences, each message is posted once and found complete once, both in order."""
    placed = notes.sort("start").with_columns(place=pl.int_range(pl.len()).over(*_CONNECTION, "is_post"))
    is_once = pl.col("is_post").sum().over(_CONNECTION) * 2 == pl.len().over(_CONNECTION)
    posts = placed.filter("is_post").rename({"size": "posted"})
    completed = placed.filter(is_once & ~pl.col("is_post")).select(*_CONNECTION, "place", "size", end="start")
    size = pl.coalesce("size", pl.when("is_send").then("posted"))
    return posts.join(completed, on=[*_CONNECTION, "place"], how="left").with_columns(size=size)
