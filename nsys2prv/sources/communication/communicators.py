"""MPI communicators: the communicator that each handle of each process means, over all reports, and its name."""

import hashlib
from collections.abc import Mapping

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text
from nsys2prv.exports.report import once
from nsys2prv.vocabulary import event_types

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
    ranks
        Rank of each process, by globalPid.

    Returns
    -------
    Columns of HANDLE_SCHEMA, in the order of `since`: the process (globalPid), the handle, the time from which on it has this
    meaning (ns of the report), a number of the communicator that is the same in all reports, and the rank of the process in it.
    """
    named = _named(_reported(report))
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


@once
def communicator_names(report: Report) -> pl.DataFrame:
    """Communicators by names that are equal over all reports.

    Columns `rank` (of the process that has it), `commHandle` (an address of this process), `localRank` (its rank in the
    communicator, null where that is not known), `communicator` (the name), in the order in which they were made."""
    columns = ("rank", "commHandle", "localRank", "communicator")
    return _named(_reported(report)).sort("place").rename({"label": "communicator"}).select(columns)


def names_of_handles(report: Report) -> pl.DataFrame:
    """Columns `commHandle`, `communicator`: a handle by the first communicator that has it."""
    return (
        communicator_names(report).select("commHandle", "communicator").unique("commHandle", keep="first", maintain_order=True)
    )


def _reported(report: Report) -> pl.DataFrame:
    """Rows of the table in the order of their times, with that order as `place`."""
    optional = ("timestamp", "parentHandle", "localRank", "size", "groupRoot", "groupRootUid", Text("members"))
    reported = report.read(TABLE, optional=("rank", "commHandle", *optional))
    return (
        reported.drop_nulls("commHandle")
        .with_columns(pl.col("timestamp").fill_null(_ALWAYS), pl.col("parentHandle").fill_null(0))
        # The handle, an address, counts last: it differs between the processes of a communicator.
        .sort("timestamp", "rank", pl.exclude("timestamp", "rank", "commHandle", "parentHandle"), "parentHandle", "commHandle")
        .with_row_index("place")
    )


def _named(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `text`, which is the same for one communicator in all processes and for no other; null where it is not known.

    Also `label`, its name for people, which is unique as well. `localRank` is filled in where it follows from the parent's."""
    # The largest one without a parent is MPI_COMM_WORLD; one of a single rank is that rank's own.
    roots = rows.filter(pl.col("parentHandle") == 0).sort("size", "place", descending=[True, False], nulls_last=True)
    of_rank = pl.when(pl.col("size") == 1).then(pl.format(" of rank {}", "rank")).otherwise(pl.lit(""))
    number = pl.when(pl.col("rank").is_null()).then(0).otherwise(pl.int_range(pl.len()).over("rank"))
    roots = roots.with_columns(
        text=pl.format("world {}", number) + of_rank,
        label=pl.when(number == 0)
        .then(pl.lit(event_types.MPI_COMM_WORLD))
        .when(pl.col("size") == 1)
        .then(pl.format(event_types.MPI_COMM_SELF, "rank"))
        .otherwise(pl.format("communicator without a parent, number {}", number)),
        localRank=pl.coalesce("localRank", pl.when(pl.col("size") == 1).then(0).otherwise("rank")),
    )
    derived = rows.filter(pl.col("parentHandle") != 0)
    has_group = pl.col("groupRoot").is_not_null() & pl.col("groupRootUid").is_not_null()
    listed = pl.when(pl.col("members").fill_null("") != "").then(pl.format(": {}", "members")).otherwise(pl.lit(""))
    of_size = pl.format("communicator of {} ranks{}", pl.col("size").cast(pl.String).fill_null("unknown"), listed)
    groups = derived.filter(has_group).with_columns(
        text=pl.format("group {} of rank {}", "groupRootUid", "groupRoot"),
        # The number counts at the root of the group.
        label=of_size + pl.format(" from rank {}, number {}", "groupRoot", "groupRootUid"),
    )
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
    copy = pl.int_range(1, pl.len() + 1).over("rank", "parent", "members")
    children = children.with_columns(
        childLabel=pl.when(members == "")
        .then(pl.format("copy {}", copy))
        .otherwise(pl.format("ranks {}, number {}", members, copy))
    )
    named = pl.concat([roots, groups])
    # A child of a child is known when its parent is.
    while children.height:
        parents = named.select(parent="place", parentText="text", parentLabel="label", parentLocal="localRank")
        with_parents = children.join(parents, on="parent", how="inner", maintain_order="left")
        if with_parents.is_empty():
            break
        identified = with_parents.with_columns(
            text=pl.format("{} / {}", "parentText", "child"),
            label=pl.format("{} of {}", "childLabel", "parentLabel"),
            localRank=pl.coalesce("localRank", "parentLocal"),
        )
        children = children.join(with_parents, on="place", how="anti", maintain_order="left")
        named = pl.concat([named, identified.select(named.columns)])
    unknown = pl.lit(None, pl.String)
    return pl.concat(
        [named, children.select(*rows.columns, text=unknown, label=of_size + " of unknown origin").select(named.columns)]
    )


def communicator_number(text: str) -> int:
    """Number of the communicator that a text identifies: the same in every process and run, whatever else is read."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
