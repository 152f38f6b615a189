"""NCCL kernels: by operation, size and communicator, with bandwidth; which of them are of one collective.

Size and communicator of a call come from the payloads of NCCL's NVTX ranges, where the report has them; the operation comes
from the name of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.kernel_stats import with_names
from nsys2prv.efficiency.meters.nccl_waits import NCCL_COLLECTIVES, NCCL_STRAGGLERS, NCCL_WAITS, wait_tables, waits_of_ranks
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import NCCL_CALLS, TypeNames
from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_OPERATIONS = (
    (r"(?i)all_?reduce", "AllReduce"),
    (r"(?i)all_?gather", "AllGather"),
    (r"(?i)reduce_?scatter", "ReduceScatter"),
    (r"(?i)all_?to_?all", "AllToAll"),
    (r"(?i)broadcast|bcast", "Broadcast"),
    (r"(?i)send|recv", "SendRecv"),
    (r"(?i)gather", "Gather"),
    (r"(?i)scatter", "Scatter"),
    (r"(?i)reduce", "Reduce"),
)
COLLECTIVE = ["communicator", "operation", "turn"]
"""Columns that identify a collective."""
_MATCHED: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("row", "start", "end", "task", "device", "communicator", "turn", "members"), pl.Int64),
    **dict.fromkeys(("communicator_name", "operation"), pl.String),
    "complete": pl.Boolean,
}
_UNKNOWN_OPERATION = "other"
_POINT_TO_POINT = "SendRecv"

# Bytes that a rank moves over its links for each byte of the message, as in nccl-tests, for n ranks. The size that NCCL
# reports for a gather or a scatter of all ranks is that of one rank's part: n - 1 such parts are moved.
_BUS_FACTORS: dict[str, pl.Expr] = {
    "AllReduce": 2 * (pl.col("ranks") - 1) / pl.col("ranks"),
    "AllGather": pl.col("ranks") - 1.0,
    "ReduceScatter": pl.col("ranks") - 1.0,
    "Broadcast": pl.lit(1.0),
    "Reduce": pl.lit(1.0),
    "SendRecv": pl.lit(1.0),
}

NCCL_OPERATIONS = Table(
    "nccl",
    "NCCL by operation, size and communicator",
    "one operation, size and communicator",
    (
        Column.text("operation", "AllReduce, AllGather, ..."),
        Column.text("communicator", "name; null when not known"),
        Column.count("ranks", "ranks of the communicator; null when not known"),
        Column.bytes("size_bytes", "message size of a call; null when not known"),
        Column.count("count", "kernels"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration, including waits for others"),
        Column.ns("min_ns", "shortest duration, which waits least"),
        Column.ns("max_ns", "longest duration"),
        Column.rate("bandwidth", "size / mean duration; null without a size"),
        Column.rate("best_bandwidth", "size / shortest duration; null without a size"),
        Column.rate("bus_bandwidth", "best bandwidth x the factor of nccl-tests for the operation; null without size or ranks"),
    ),
    when="NCCL kernels",
    order=700,
    page=OnPage("communication", place=2, worst_first="total_ns"),
    console=OnConsole((("operation", "NCCL"), "communicator", "size_bytes", "count", "mean_ns", "bandwidth", "bus_bandwidth"),
        place=60, spare=("bandwidth", "count")),
)  # fmt: skip

TABLES = (NCCL_OPERATIONS, NCCL_WAITS, NCCL_STRAGGLERS, NCCL_COLLECTIVES)


def is_complete(ranks: pl.Expr, run: MeasuredRun) -> pl.Expr:
    """Whether all ranks of matched collectives (`members`: so many are in the run) are in the run; `ranks` is the size of the
    communicator (null: not known)."""
    return (pl.col("members") >= ranks).fill_null(run.events.missing_ranks == 0)


def is_point_to_point(kernel: pl.Expr) -> pl.Expr:
    """Whether kernels of some names are NCCL's sends and receives; the names are those of any events."""
    return kernel.str.contains("(?i)nccl") & (first_match(kernel, _OPERATIONS, _UNKNOWN_OPERATION) == _POINT_TO_POINT)


@dataclass(frozen=True)
class Nccl(Measurement):
    """All NCCL kernels. Compared with other kernels they are few.

    Attributes
    ----------
    kernels
        `row`, `start`, `end`, `task`, `device`, `operation`, `communicator` and its name, its `ranks`, and `size`; what is not
        known is null.
    matched, pairs
        Those of collectives that are matched over their ranks, and sends and receives between the only two devices of a
        communicator: also `turn`, and `members` (ranks of the run that take part).
    """

    run: MeasuredRun
    kernels: pl.DataFrame
    matched: pl.DataFrame
    pairs: pl.DataFrame

    def tables(self) -> Filled:
        """The tables of NCCL."""
        return {NCCL_OPERATIONS: _by_size(self.kernels), **wait_tables(self.waits, self.run)}

    @cached_property
    def waits(self) -> pl.DataFrame:
        """Waits in collectives that are matched over their ranks, as of `nccl_waits.waits_of_ranks`; with `row`, `members`
        (ranks of the run that take part) and `ranks` (of the communicator; null: not known). Empty: there are none."""
        return self._waits(self.matched)

    @property
    def waits_in_pairs(self) -> pl.DataFrame:
        """The same of sends and receives between the only two devices of a communicator."""
        return self._waits(self.pairs)

    def _waits(self, kernels: pl.DataFrame) -> pl.DataFrame:
        columns = ("row", "start", "end", "task", "device", *COLLECTIVE, "communicator_name", "ranks", "members")
        if kernels.is_empty():
            return pl.DataFrame()
        waits = waits_of_ranks(kernels.select(columns), self.run)
        # Where ranks are not in the run, they may have been last, and all others may have waited for them.
        complete = is_complete(pl.col("ranks").max().over("collective"), self.run)
        return waits.with_columns(
            is_last=pl.col("is_last") & complete,
            is_decided=pl.col("is_decided") & complete,
            undecided=pl.when(complete).then("undecided").otherwise(pl.col("residence") - pl.col("waited")),
        )

    @property
    def members(self) -> pl.DataFrame:
        """Kernels that are matched with those of the other ranks: `row`, `start`, the columns of COLLECTIVE, `transfer`, the
        shortest duration of the collective, and `complete`: all ranks of the communicator are in the run.

        Matched are collectives, and sends and receives between the only two devices of a communicator.
        """
        shortest = (pl.col("end") - pl.col("start")).min().over(COLLECTIVE)
        return pl.concat(
            kernels.select("row", "start", *COLLECTIVE, transfer=shortest, complete=self._complete)
            for kernels in (self.matched, self.pairs)
        )

    @property
    def transfers(self) -> pl.DataFrame:
        """Kernels that are matched with those of the other ranks: `row`, `start`, `transfer`, the shortest duration, and
        `collective`, a number that is the same for kernels of one collective."""
        number = pl.struct(COLLECTIVE).rank("dense").cast(pl.Int64)
        return self.members.select("row", "start", "transfer", collective=number)

    @property
    def collectives(self) -> pl.DataFrame:
        """Kernels of collectives that are matched over ranks: `row`, `start`, `end`, `task`, `device`, `communicator`,
        `communicator_name`, `operation`, `turn`, `members`, the number of ranks in the run, and `complete`: whether these are
        all of the communicator."""
        kernels = self.matched.with_columns(complete=self._complete)
        return kernels.select(pl.col(name).cast(dtype) for name, dtype in _MATCHED.items())

    @property
    def _complete(self) -> pl.Expr:
        return is_complete(pl.col("ranks").max().over(COLLECTIVE), self.run)


def measure_nccl(run: MeasuredRun) -> Nccl:
    """NCCL kernels with what their calls say, and which of them are of one collective."""
    events = run.events
    calls = drop_duplicates(run.frame(NCCL_CALLS).select("row", "start", "size", "communicator", "ranks"), ["row", "start"])
    started = run.operations.filter(pl.col("number") == event_types.NCCL_KERNEL).select("row", "start", "end", "value")
    kernels = started.join(calls, on=["row", "start"], how="left", maintain_order="left")
    kinds = kernels.select(pl.col("value").unique(), number=pl.lit(event_types.NCCL_KERNEL))
    operation = first_match(pl.col("kernel"), _OPERATIONS, _UNKNOWN_OPERATION)
    operations = with_names(kinds, events).select("value", operation=operation)
    communicators = events.types.get(event_types.NCCL_COMMUNICATOR, TypeNames("")).values or {}
    name = pl.col("communicator").replace_strict(communicators, default=None, return_dtype=pl.String)
    located = events.rows.located(kernels).with_columns(pl.col("task", "device").cast(pl.Int32), communicator_name=name)
    located = located.join(operations, on="value", how="left", maintain_order="left")
    return Nccl(run, located, _matched(located), _pairs(located, run))


def _matched(kernels: pl.DataFrame) -> pl.DataFrame:
    """NCCL kernels that belong to the same collective on several devices.

    The n-th collective of an operation in a communicator is the same on all its devices, if all of them have equally many.
    Kernels without a known communicator count as those of one communicator over all devices that have such kernels.
    """
    key = ["communicator", "operation"]
    in_turns = (
        kernels.filter(pl.col("operation") != _POINT_TO_POINT)
        .sort("start", "end", "device")
        .with_columns(turn=pl.int_range(pl.len()).over(*key, "device", "task"))
    )
    counts = in_turns.group_by(*key, "device", "task").agg(count=pl.len())
    fitting = counts.group_by(key).agg(members=pl.len(), least=pl.col("count").min(), most=pl.col("count").max())
    fitting = fitting.filter((pl.col("members") > 1) & (pl.col("least") == pl.col("most")))
    return in_turns.join(fitting.select(*key, "members"), on=key, how="inner", nulls_equal=True)


def _pairs(kernels: pl.DataFrame, run: MeasuredRun) -> pl.DataFrame:
    """Sends and receives of communicators with exactly two devices, the n-th of one with the n-th of the other, if both have
    equally many and all pairs run at the same time, as far as their clocks can say that."""
    in_turns = (
        kernels.filter(pl.col("operation") == _POINT_TO_POINT)
        .sort("start", "end", "device")
        .with_columns(turn=pl.int_range(pl.len()).over("communicator", "device", "task"))
        .with_columns(
            count=pl.len().over("communicator", "device", "task"),
            members=pl.struct("device", "task").n_unique().over("communicator"),
        )
        .with_columns(equal=pl.col("count").n_unique().over("communicator") == 1)
        .filter((pl.col("members") == 2) & pl.col("equal"))
    )
    with_margins = run.clocks.with_margins(in_turns, "start").with_columns(margin=margin_of_group(COLLECTIVE))
    meets = (pl.col("start").max() < pl.col("end").min() + pl.col("margin").max()).over(COLLECTIVE)
    compared = with_margins.with_columns(meets=meets & pl.col("margin").is_finite())
    return compared.filter(pl.col("meets").all().over("communicator"))


def _by_size(kernels: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl`."""
    length = pl.col("end") - pl.col("start")
    factor: pl.Expr = pl.lit(None, pl.Float64)
    for operation, expression in _BUS_FACTORS.items():
        factor = pl.when(pl.col("operation") == operation).then(expression).otherwise(factor)
    return (
        kernels.group_by("operation", "communicator", "communicator_name", "ranks", "size")
        .agg(count=pl.len(), total_ns=length.sum(), mean_ns=length.mean(), min_ns=length.min(), max_ns=length.max())
        .sort("total_ns", "operation", "communicator", "size", descending=[True, False, False, False])
        .with_columns(
            communicator="communicator_name",
            size_bytes="size",
            bandwidth=_bytes_per_second("mean_ns"),
            best_bandwidth=_bytes_per_second("min_ns"),
            bus_bandwidth=_bytes_per_second("min_ns") * factor,
        )
    )


def _bytes_per_second(duration: str) -> pl.Expr:
    return pl.when(pl.col(duration) > 0).then(pl.col("size") * 1e9 / pl.col(duration))
