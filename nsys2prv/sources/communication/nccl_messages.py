"""Ends of messages of NCCL: sends, and receives with the kernels that complete them."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.communication import nccl
from nsys2prv.sources.communication.communicators import communicator_number
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.sources.source import of_schema
from nsys2prv.vocabulary import event_types, nccl_names

_NUMBERS = ("callTid", "callStart", "callEnd", "identifier", "peer", "size", "rank", "end")
_CALL_SCHEMA = {**dict.fromkeys(_NUMBERS, pl.Int64), "label": pl.String}
"""Calls of NCCL; and kernels, which have an `end` and no label."""


def has_messages(report: Report) -> bool:
    """Whether a report has sends or receives of NCCL."""
    names = [nccl_names.SEND, nccl_names.RECEIVE]
    return nvtx_ranges.has_text(report, lambda text: text.is_in(names))


def nccl_message_ends(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    """All ends of messages of NCCL in a report: columns of `messages.END_SCHEMA`.

    The kernel launched in a call, or in the group of calls that it is in, does its work: a receive ends with the last of these
    kernels, or with the call or group where none is known."""
    calls = ExternalSort(["callStart"], folder / "in-order")
    kernels = nccl.launched_kernels(report, folder / "launched")
    for piece in itertools.chain(report.pieces(nccl.point_to_point, PIECE_ROWS), kernels):
        calls.add(of_schema(piece, _CALL_SCHEMA))
    open_calls = pl.DataFrame(schema=_CALL_SCHEMA)
    ends_before = 0
    for window in calls.windows():
        ends, open_calls = _complete(pl.concat([open_calls, window]))
        yield _ends(ends, ends_before)
        ends_before += ends.height
    ends, open_ones = _complete(open_calls, is_last=True)
    assert open_ones.is_empty()
    yield _ends(ends, ends_before)


def _complete(rows: pl.DataFrame, *, is_last: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sends and receives of groups that are closed, with the `end` of their kernels; and what must wait for more rows."""
    of_units = nccl.with_units(rows.drop_nulls("label").drop("end"))
    units = of_units.group_by("callTid", "unit", maintain_order=True).agg(
        since=pl.col("callStart").min(), until=pl.col("callEnd").max()
    )
    kernels = (
        rows.filter(pl.col("label").is_null())
        .select("callTid", "callStart", "end")
        .sort("callStart")
        .join_asof(
            units.sort("since", maintain_order=True),
            left_on="callStart",
            right_on="since",
            by="callTid",
            check_sortedness=False,
        )
    )
    inside = kernels.filter(pl.col("unit").is_not_null() & (pl.col("callStart") <= pl.col("until")).fill_null(True))
    ended = inside.group_by("callTid", "unit").agg(pl.col("end").max())
    last = pl.lit(not is_last) & (pl.col("unit") == pl.col("unit").max().over("callTid"))
    closed = (
        of_units.filter(~last & pl.col("label").is_in([nccl_names.SEND, nccl_names.RECEIVE]))
        .join(ended, on=["callTid", "unit"], how="left", maintain_order="left")
        .join(units, on=["callTid", "unit"], how="left", maintain_order="left")
        .with_columns(end=pl.coalesce("end", "until"))
    )
    # The last group of a thread may get more calls and kernels.
    of_last = inside.join(of_units.filter(last).select("callTid", "unit").unique(), on=["callTid", "unit"], how="semi")
    parts = of_units.filter(last).drop("unit"), of_last.select("callTid", "callStart", "end")
    waiting = pl.concat(of_schema(part, _CALL_SCHEMA) for part in parts)
    return closed.drop("since", "until", "unit"), waiting.tail(nccl.MOST_KEPT)


def _ends(calls: pl.DataFrame, first: int) -> pl.DataFrame:
    # Distinct from those of MPI's communicators.
    numbers = {
        identifier: communicator_number(f"nccl {identifier}") for identifier in calls["identifier"].drop_nulls().unique()
    }
    is_send = pl.col("label") == nccl_names.SEND
    return calls.sort("callStart", maintain_order=True).select(
        globalTid="callTid",
        start="callStart",
        order=pl.int_range(first, first + pl.len(), dtype=pl.Int64),
        end="end",
        is_send=is_send,
        communicator=pl.col("identifier").replace_strict(numbers, default=None, return_dtype=pl.Int64),
        source=pl.when(is_send).then("rank").otherwise("peer"),
        destination=pl.when(is_send).then("peer").otherwise("rank"),
        tag=pl.lit(event_types.TAG_NCCL_MESSAGE, pl.Int64),
        size=pl.col("size").fill_null(0),
    )
