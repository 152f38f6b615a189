"""MPI communicators: the communicator that each handle of each process means, over all reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text

TABLE = "MPI_COMMUNICATORS"

HANDLE_SCHEMA = {
    "process": pl.Int64,
    "commHandle": pl.Int64,
    "since": pl.Int64,
    "communicator": pl.Int64,
    "localRank": pl.Int64,
}

_ALWAYS = -(2**62)


def communicator_handles(report: Report, ranks: Mapping[int, int]) -> pl.DataFrame:
    """What the handles of communicators mean.

    A handle is an address of one process, and can be used again after its communicator was freed. A communicator made by a
    split names its group (the global rank of its root, and a number there). One without a group is assumed to have the
    ranks of its parent in the same order, as a duplicate or a Cartesian one has, and to be the same for all ranks that made
    as many of such before it.

    Parameters
    ----------
    report
        The report.
    ranks
        Rank of each process, by globalPid.

    Returns
    -------
    Columns of HANDLE_SCHEMA, in the order of `since`: the process (globalPid), the handle, the time from which on it has this
    meaning (ns of the report), a number of the communicator that is the same in all reports, and the rank of the process in it.
    """
    optional = ("timestamp", "parentHandle", "localRank", "size", "groupRoot", "groupRootUid", Text("members"))
    reported = report.collect(report.scan(TABLE, optional=("rank", "commHandle", *optional)))
    rows = (
        reported.drop_nulls(["rank", "commHandle"])
        .with_columns(pl.col("timestamp").fill_null(_ALWAYS), pl.col("parentHandle").fill_null(0))
        # The handle, an address, counts last: it differs between the processes of a communicator.
        .sort("timestamp", "rank", pl.exclude("timestamp", "rank", "commHandle", "parentHandle"), "parentHandle", "commHandle")
        .with_row_index("place")
    )
    named = _named(rows)
    numbers = {text: communicator_number(text) for text in named["text"].drop_nulls().unique()}
    processes = pl.DataFrame(
        {"process": list(ranks), "rank": list(ranks.values())}, schema={"process": pl.Int64, "rank": pl.Int64}
    )
    is_first = pl.int_range(pl.len()).over("rank", "commHandle") == 0
    return (
        named.sort("place")
        .with_columns(
            # What was used before it was made known is most likely the first that had the handle.
            since=pl.when(is_first).then(pl.lit(_ALWAYS, pl.Int64)).otherwise("timestamp"),
            communicator=pl.col("text").replace_strict(numbers, default=None, return_dtype=pl.Int64),
        )
        .join(processes, on="rank", how="inner", maintain_order="left")
        .select(list(HANDLE_SCHEMA))
        .sort("since", maintain_order=True)
    )


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `text`, which is the same for one communicator in all processes and for no other; null where it is not known.

    `localRank` is filled in where it follows from the parent's.
    """
    # The largest one without a parent is MPI_COMM_WORLD; one of a single rank is that rank's own.
    whole = rows.filter(pl.col("parentHandle") == 0).sort("size", "place", descending=[True, False], nulls_last=True)
    own = pl.when(pl.col("size") == 1).then(pl.format(" of rank {}", "rank")).otherwise(pl.lit(""))
    whole = whole.with_columns(
        text=pl.format("world {}", pl.int_range(pl.len()).over("rank")) + own,
        localRank=pl.coalesce("localRank", pl.when(pl.col("size") == 1).then(0).otherwise("rank")),
    )
    derived = rows.filter(pl.col("parentHandle") != 0)
    has_group = pl.col("groupRoot").is_not_null() & pl.col("groupRootUid").is_not_null()
    groups = derived.filter(has_group).with_columns(text=pl.format("group {} of rank {}", "groupRootUid", "groupRoot"))
    children = derived.filter(~has_group).join_asof(
        rows.select("rank", "timestamp", parentHandle="commHandle", parent="place"),
        on="timestamp",
        by=["rank", "parentHandle"],
        check_sortedness=False,
    )
    members = pl.col("members").fill_null("")
    children = children.with_columns(members).with_columns(
        child=pl.format("{} child {}", "members", pl.int_range(pl.len()).over("rank", "parent", "members"))
    )
    named = pl.concat([whole, groups])
    # A child of a child is known when its parent is.
    while children.height:
        parents = named.select(parent="place", parentText="text", parentLocal="localRank")
        known = children.join(parents, on="parent", how="inner", maintain_order="left")
        if known.is_empty():
            break
        found = known.with_columns(
            text=pl.format("{} / {}", "parentText", "child"), localRank=pl.coalesce("localRank", "parentLocal")
        )
        children = children.join(known, on="place", how="anti", maintain_order="left")
        named = pl.concat([named, found.select(named.columns)])
    return pl.concat([named, children.select(pl.lit(None, pl.String).alias("text"), *rows.columns).select(named.columns)])


def communicator_number(text: str) -> int:
    """Number of the communicator that a text identifies: the same in every process and run, whatever else is read."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
