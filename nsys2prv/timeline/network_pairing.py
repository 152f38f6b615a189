"""Messages of NCCL over the network: which post of the sender and which of the receiver are one message.

A connection is a sender, a receiver, a channel and, where it is known, a communicator; its messages arrive in the order of
their posts. Sequences count the steps of one operation, or go on over all operations; the two sides need not count alike.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

SEVERAL_THREADS = "several threads have such messages: of which communicator each is, is not known"
OTHER_COUNT = "its channel has not as many sends as receives"
OTHER_SEQUENCE = "no end of the other rank has its sequence and size"

CONNECTION = ["communicator", "source", "destination", "channel"]
_SIDE = [*CONNECTION, "is_send"]


def pair_connections(ends: pl.DataFrame, no_partner: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Messages whose both ends are known, and ends without another one.

    A round ends where the sequence of a side starts again. Where both sides have as many rounds, and begin and end with the
    same sequences, equal sequences of a round are one message. Otherwise messages are counted: that takes as many sends as
    receives, and sequences that always differ by the same number until one of them starts again. Both ends of a message have
    the same size.

    Parameters
    ----------
    ends
        All ends of some connections: columns of `message_ends.END_SCHEMA`, and `row`, the row or clock that they are on.
    no_partner
        Reason for ends of which the other side of the connection has none.

    Returns
    -------
    The sends with `to_row`, `to_begin` and `to_time` of the receives; and the other ends with the `reason`.
    """
    sides = (
        ends.sort("start", "order")
        .with_row_index("end_number")
        .with_columns(
            place=pl.int_range(pl.len(), dtype=pl.Int64).over(_SIDE),
            is_again=(pl.col("sequence") <= pl.col("sequence").shift(1).over(_SIDE)).fill_null(value=False),
            threads=pl.struct("row", "globalTid").n_unique().over(_SIDE),
        )
        .with_columns(round=pl.col("is_again").cast(pl.Int64).cum_sum().over(_SIDE))
    )
    is_send = pl.col("is_send")

    def of_both(name: str, which: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
        return (which(pl.col(name).filter(is_send)) == which(pl.col(name).filter(~is_send))).fill_null(value=False)

    facts = sides.group_by(CONNECTION, maintain_order=True).agg(
        has_both=pl.col("is_send").n_unique() == 2,
        most_threads=pl.col("threads").max(),
        by_sequence=of_both("round", pl.Expr.max)
        & of_both("sequence", pl.Expr.first)
        & of_both("sequence", pl.Expr.last)
        & (pl.col("sequence").null_count() == 0),
        is_equally_many=is_send.sum() * 2 == pl.len(),
    )
    known = sides.join(facts, on=CONNECTION, how="left", maintain_order="left").with_columns(
        turn=pl.when("by_sequence").then("round").otherwise(0),
        number=pl.when("by_sequence").then("sequence").otherwise("place"),
        reason=pl.when(~pl.col("has_both"))
        .then(pl.lit(no_partner))
        .when(pl.col("most_threads") > 1)
        .then(pl.lit(SEVERAL_THREADS))
        .when(~pl.col("by_sequence") & ~pl.col("is_equally_many"))
        .then(pl.lit(OTHER_COUNT)),
    )
    usable = known.filter(pl.col("reason").is_null())
    message = [*CONNECTION, "turn", "number"]
    both = usable.filter("is_send").join(
        usable.filter(~pl.col("is_send")).select(
            *message,
            to_row="row",
            to_begin="start",
            to_time="end",
            to_size="size",
            to_sequence="sequence",
            to_number="end_number",
            to_is_again="is_again",
        ),
        on=message,
        how="inner",
        maintain_order="left",
    )
    difference = pl.col("sequence") - pl.col("to_sequence")
    goes_on = (difference == difference.shift(1).over(CONNECTION)) | pl.col("is_again") | pl.col("to_is_again")
    # The size of a receive is known when it is complete.
    has_size = pl.col("to_time").is_null() | (pl.col("size") == pl.col("to_size"))
    pairs = (
        both.with_columns(fits=has_size & (pl.col("by_sequence") | goes_on.fill_null(value=True)))
        # Where counting fails once, an end is missing, and it is not known from where on.
        .filter(pl.when("by_sequence").then("fits").otherwise(pl.col("fits").all().over(CONNECTION)))
    )
    paired = pl.concat([pairs["end_number"], pairs["to_number"]])
    alone = known.filter(~pl.col("end_number").is_in(paired.implode())).with_columns(pl.col("reason").fill_null(OTHER_SEQUENCE))
    return pairs, alone
