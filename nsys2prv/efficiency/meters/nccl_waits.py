"""Waits in NCCL collectives: who arrives last, how long the others wait for it, and how far clocks allow to say that.

A difference of times of two ranks counts only where it is larger than their clocks can be wrong against each other; the rest is
not decidable. Durations are of one clock each. They split the residence of a rank in a collective into transfer, which is the
duration of the rank that was in it for the shortest time, and waiting, which is the rest.
"""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, Table
from nsys2prv.efficiency.task_clocks import CLOCK, GROUP, OF_CLOCK, OF_REPORT, REPORT, margin_of_group

MOST_COLLECTIVES = 200
"""Collectives that have a row each: those with the longest waits."""

_ID = "collective"
_COMMUNICATOR = Column.text("communicator", "name; null when not known; all tasks then count as one")
_RESIDENCE = (
    Column.ns("residence_ns", "sum of durations; it is transfer and waiting, whatever clocks say"),
    Column.ns("transfer_ns", "of it, transfer: for each collective the duration of the rank with the shortest one"),
    Column.ns("waiting_ns", "of it, the rest: waiting for the last rank, or late completion"),
)

NCCL_WAITS = Table(
    "nccl_waits",
    "Waits in NCCL collectives",
    "one communicator",
    (
        _COMMUNICATOR,
        Column.count("collectives", "collectives that were matched over its ranks"),
        Column.count("decided", "of these, in which the rank that arrived last is known"),
        Column.share(
            "undecided_share", "share of those in which it is not decidable: differences are within the errors of clocks"
        ),
        *_RESIDENCE,
        Column.ns("waited_ns", "sum of the times that ranks waited for a later one, where larger than the errors of clocks"),
        Column.ns("undecided_ns", "largest further waits that the errors of clocks allow: not decidable"),
        Column.share("undecided_time_share", "`undecided_ns` / `residence_ns`"),
        Column.ns("late_start_ns", "sum over ranks and collectives of how much later than the first one they start, likewise"),
        Column.ns("late_end_ns", "sum of how much later than the first one they end, likewise"),
        Column.mean_ns("margin_ns", "how far starts of two ranks can be wrong against each other, median; null when not known"),
    ),
    when="NCCL collectives of two devices or more",
)
NCCL_STRAGGLERS = Table(
    "nccl_stragglers",
    "Stragglers in NCCL collectives",
    "one task in the collectives of one communicator",
    (
        _COMMUNICATOR,
        Column.text("task", "name of the task"),
        DEVICE,
        Column.count("collectives", "collectives that were matched over its ranks"),
        Column.count("decided", "of these, in which the rank that arrived last is known: by more than the errors of clocks"),
        Column.count("last", "of these, in which it arrived last"),
        Column.ns("waited_ns", "sum of the times that it waited for a later one, where larger than the errors of clocks"),
        Column.mean_ns("mean_wait_ns", "mean of these over all collectives"),
        Column.ns("caused_ns", "sum, over collectives in which it was last, of the times that all others waited"),
        Column.ns("undecided_ns", "largest further waits that the errors of clocks allow: not decidable"),
        *_RESIDENCE,
        Column.ns("late_start_ns", "start skew: sum of how much later than the first rank it starts, likewise"),
        Column.ns("late_end_ns", "late completion: sum of how much later than the first rank it ends, likewise"),
    ),
    when="NCCL collectives of two devices or more",
)
NCCL_COLLECTIVES = Table(
    "nccl_collectives",
    "NCCL collectives with the longest waits",
    "one collective",
    (
        Column.text("operation", "what it did"),
        Column.text("communicator", "name; null when not known"),
        Column.moment("begin_ns", "when the first task arrived"),
        Column.moment("last_ns", "when the last task arrived"),
        Column.moment("end_ns", "when the last kernel ended"),
        Column.ns("waited_ns", "sum over tasks of the times that they waited, where larger than the errors of clocks"),
        Column.text("last_task", "the task that arrived last; null where it is not decidable"),
        Column.text("device", "its device: node and number there; null likewise"),
        Column.ns("undecided_ns", "largest further waits that the errors of clocks allow: not decidable"),
        Column.ns("margin_ns", "how far starts of two tasks can be wrong against each other; null when not known"),
        Column.ns("start_skew_ns", "largest difference of starts, of those larger than the errors of clocks; 0 for none"),
        Column.ns("end_skew_ns", "largest difference of ends, likewise"),
        *_RESIDENCE,
    ),
    when="NCCL collectives of two devices or more",
)

_SUMS = ("residence", "transfer", "waiting", "waited", "undecided", "late_start", "late_end")


def wait_tables(waits: pl.DataFrame, run: MeasuredRun) -> Filled:
    """The tables of waits.

    Parameters
    ----------
    waits
        As of `waits_of_ranks`; empty: no collective is matched.
    """
    if waits.is_empty():
        return {}
    names = {"communicator": pl.col("communicator_name")}
    device = run.device_names(pl.col("device"))
    return {
        NCCL_WAITS: _by_communicator(waits).with_columns(**names),
        NCCL_STRAGGLERS: _by_task(waits).with_columns(**names, task=run.task_names(pl.col("task")), device=device),
        NCCL_COLLECTIVES: _longest_waits(waits).with_columns(
            **names, last_task=run.task_names(pl.col("last_task")), device=device
        ),
    }


def waits_of_ranks(collectives: pl.DataFrame, run: MeasuredRun) -> pl.DataFrame:
    """Waits of each rank in each collective.

    Parameters
    ----------
    collectives
        NCCL kernels, one per collective and device: columns `communicator` (number), `communicator_name`, `operation`, `turn`
        (which together are the collective), `task`, `device` (index), `start`, `end` (ns).

    Returns
    -------
    The kernels, those of a collective one after the other, with the columns

    `collective`: its number;
    `residence`, `transfer`, `waiting`: duration, the shortest one of the collective, and the rest, ns;
    `is_decided`: whether it is known who arrived last, `is_last`: whether this rank did;
    `waited`: to the start of a later rank, 0 where none is surely later, ns;
    `undecided`: by how much longer it may have waited, ns;
    `late_start`, `late_end`: from the start, and the end, of an earlier rank, 0 where none is surely earlier, ns;
    `margin`: the largest error of a difference of two starts of the collective, ns; infinite: not known.
    """
    key = ["communicator", "operation", "turn"]
    numbers = collectives.select(key).unique().sort(key, nulls_last=True).with_row_index(_ID)
    frame = collectives.join(numbers, on=key, how="left", nulls_equal=True)
    frame = frame.with_columns(arrived=pl.col("start").max().over(_ID), residence=pl.col("end") - pl.col("start"))
    frame = run.clocks.with_margins(frame, "arrived").sort(_ID, GROUP, CLOCK, REPORT, "start", "device")
    frame = frame.with_columns(
        transfer=pl.col("residence").min().over(_ID),
        is_last=_is_last(frame),
        waited=_known_distance(pl.col("start")),
        late_start=_known_distance(-pl.col("start")),
        late_end=_known_distance(-pl.col("end")),
        margin=margin_of_group([_ID]),
    ).with_columns(waiting=pl.col("residence") - pl.col("transfer"), is_decided=pl.col("is_last").any().over(_ID))
    # A rank can't have waited for longer than it was in the collective.
    longest = pl.min_horizontal("waiting", pl.col("arrived") - pl.col("start") + pl.col("margin"))
    undecided = pl.when("is_decided").then(0).otherwise((longest - pl.col("waited")).clip(lower_bound=0))
    return frame.with_columns(undecided=undecided.round().cast(pl.Int64))


def _known_distance(time: pl.Expr) -> pl.Expr:
    """Distance from a time of each rank to a later one of its collective that is surely later, ns; 0: none is.

    Inside a report the latest one counts. Otherwise it is the one that is latest even if its clock is wrong by as much as it
    can be: one comparison for each rank instead of one for each pair of ranks.
    """
    distance = (time.max().over(_ID, GROUP, CLOCK, REPORT) - time).cast(pl.Float64)
    of_report, of_clock = pl.col(OF_REPORT), pl.col(OF_REPORT) + pl.col(OF_CLOCK)
    for error, key in ((of_report, [_ID, GROUP, CLOCK]), (of_clock, [_ID, GROUP])):
        surely = (time - error).max().over(key)
        latest = pl.when(time - error == surely).then(time).max().over(key)
        distance = pl.when(surely > time + error).then(pl.max_horizontal(distance, latest - time)).otherwise(distance)
    return distance.round().cast(pl.Int64)


def _is_last(ranks: pl.DataFrame) -> pl.Series:
    """Whether each rank arrived after all others of its collective, by more than their clocks can be wrong."""
    placed = ranks.with_row_index("place")
    last = placed[placed.select(pl.col("place").get(pl.col("start").arg_max()).over(_ID)).to_series()]
    pairs = pl.concat([placed, last.select(pl.all().name.prefix("last_"))], how="horizontal")
    same_report, same_clock, same_group = (pl.col(name) == pl.col(f"last_{name}") for name in (REPORT, CLOCK, GROUP))
    of_reports, of_clocks = (pl.col(name) + pl.col(f"last_{name}") for name in (OF_REPORT, OF_CLOCK))
    margin = pl.when(same_report).then(0.0).when(same_clock).then(of_reports).otherwise(of_reports + of_clocks)
    is_itself = pl.col("place") == pl.col("last_place")
    # Of different groups nothing is known.
    is_earlier = same_group & (pl.col("last_start") - pl.col("start") > margin)
    return pairs.select(is_itself & (is_earlier | is_itself).all().over(_ID)).to_series()


def _sums() -> list[pl.Expr]:
    return [pl.col(name).sum().alias(f"{name}_ns") for name in _SUMS]


def _median_margin() -> pl.Expr:
    """Of collectives, not of ranks; null where it is not known."""
    median = pl.col("margin").filter(pl.col(_ID).is_first_distinct()).median()
    return pl.when(median.is_finite()).then(median)


def _by_communicator(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl_waits`."""
    return (
        waits.group_by("communicator", "communicator_name")
        .agg(
            *_sums(),
            collectives=pl.col(_ID).n_unique(),
            decided=pl.col(_ID).filter("is_decided").n_unique(),
            margin_ns=_median_margin(),
        )
        .sort("communicator", nulls_last=True)
        .with_columns(
            undecided_share=1 - pl.col("decided") / pl.col("collectives"),
            undecided_time_share=pl.when(pl.col("residence_ns") > 0).then(pl.col("undecided_ns") / pl.col("residence_ns")),
        )
    )


def _by_task(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl_stragglers`, with indices of tasks and devices."""
    return (
        waits.with_columns(waited_of_all=pl.col("waited").sum().over(_ID))
        .group_by("communicator", "communicator_name", "task", "device")
        .agg(
            *_sums(),
            collectives=pl.len(),
            decided=pl.col("is_decided").sum(),
            last=pl.col("is_last").sum(),
            mean_wait_ns=pl.col("waited").mean(),
            caused_ns=pl.col("waited_of_all").filter(pl.col("is_last")).sum(),
        )
        .sort("communicator", "task", "device", nulls_last=True)
    )


def _longest_waits(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl_collectives`, with indices of tasks and devices."""
    margin = pl.col("margin").first()
    last = {"last_task": pl.col("task"), "device": pl.col("device")}
    return (
        waits.group_by(_ID)
        .agg(
            *_sums(),
            pl.col("operation", "communicator_name").first(),
            begin_ns=pl.col("start").min(),
            last_ns=pl.col("arrived").first(),
            end_ns=pl.col("end").max(),
            margin_ns=pl.when(margin.is_finite()).then(margin),
            start_skew_ns=pl.col("late_start").max(),
            end_skew_ns=pl.col("late_end").max(),
            **{name: column.filter(pl.col("is_last")).first() for name, column in last.items()},
        )
        .sort("waited_ns", "undecided_ns", "begin_ns", _ID, descending=[True, True, False, False])
        .head(MOST_COLLECTIVES)
    )
