"""NCCL kernels by operation, size and communicator, with bandwidth; which of them are of one collective; and waits in
collectives: who arrives last, how long the others wait for it, and how far clocks allow to say that.

docs/efficiency.md says how. Besides, a rank that is late by its start has to be in the collective for a shorter time than those
that wait for it: where it ends as late as it starts, its clock is wrong."""

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.clock_accuracy import CLOCK, GROUP, OF_CLOCK, OF_REPORT, REPORT, margin_of_group
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.kernel_stats import with_names
from nsys2prv.efficiency.result_tables import DEVICE, Column, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import NCCL_CALLS, ON_DEVICES
from nsys2prv.execution.row_order import drop_duplicates
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.name_rules import first_match

_TURNS = ["communicator", "operation"]
COLLECTIVE = [*_TURNS, "turn"]
"""Columns that identify a collective."""
_ID = "collective"
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
_UNKNOWN_OPERATION = "other"
_POINT_TO_POINT = "SendRecv"
_IS_COLLECTIVE = pl.col("operation") != _POINT_TO_POINT
_LEAST_BY_RESIDENCE = 0.5
"""Part of the waits by starts that durations have to show too; else a clock is wrong."""

# Bytes that a rank moves over its links for each byte of the message, as in nccl-tests, for n ranks. The size that NCCL
# reports for a gather or a scatter of all ranks is that of one rank's part: n - 1 such parts are moved.
_BUS_FACTORS: dict[str, pl.Expr] = {
    "AllReduce": 2 * (pl.col("ranks") - 1) / pl.col("ranks"),
    "AllGather": pl.col("ranks") - 1.0,
    "ReduceScatter": pl.col("ranks") - 1.0,
    **dict.fromkeys(("Broadcast", "Reduce", _POINT_TO_POINT), pl.lit(1.0)),
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
    page=OnPage("communication", worst_first="total_ns"),
    console=OnConsole((("operation", "NCCL"), "communicator", "size_bytes", "count", "mean_ns", "bandwidth",
        ("bus_bandwidth", "best bus bandwidth")),
        spare=("bandwidth", "count")),
)  # fmt: skip

MOST_COLLECTIVES = 200
"""Collectives that have a row each: those with the longest waits."""

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
        Column.share("undecided_share", "share of those in which it is not decidable: clocks can be wrong by as much"),
        *_RESIDENCE,
        Column.ns("waited_ns", "sum of the times that ranks waited for a later one, where larger than the errors of clocks"),
        Column.ns("undecided_ns", "largest further waits that the errors of clocks allow: not decidable"),
        Column.share("undecided_time_share", "`undecided_ns` / `residence_ns`"),
        Column.ns("late_start_ns", "sum over ranks and collectives of how much later than the first one they start, likewise"),
        Column.ns("late_end_ns", "sum of how much later than the first one they end, likewise"),
        Column.mean_ns("margin_ns", "how far starts of two ranks can be wrong against each other, median; null when not known"),
    ),
    when="NCCL collectives of two devices or more",
    page=OnPage("communication"),
    console=OnConsole(("communicator", "collectives", ("residence_ns", "time in them"), "transfer_ns", ("waiting_ns", "rest"),
        "waited_ns", ("undecided_ns", "not decidable")), spare=("waiting_ns", "collectives")),
)  # fmt: skip
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
        Column.count("rank", "rank of the task; null when it has none"),
    ),
    when="NCCL collectives of two devices or more",
    page=OnPage("communication", worst_first="caused_ns"),
    console=OnConsole(("task", "collectives", "decided", "last", "waited_ns", ("caused_ns", "others waited"),
        ("undecided_ns", "not decidable")), spare=("decided", "waited_ns")),
)  # fmt: skip
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
    page=OnPage("communication"),
)

TABLES = (NCCL_OPERATIONS, NCCL_WAITS, NCCL_STRAGGLERS, NCCL_COLLECTIVES)

_SUMS = [
    pl.col(name).sum().alias(f"{name}_ns")
    for name in ("residence", "transfer", "waiting", "waited", "undecided", "late_start", "late_end")
]


def is_point_to_point(kernel: pl.Expr) -> pl.Expr:
    """Whether kernels of some names are NCCL's sends and receives; the names are those of any events."""
    return kernel.str.contains("(?i)nccl") & (first_match(kernel, _OPERATIONS, _UNKNOWN_OPERATION) == _POINT_TO_POINT)


@dataclass(frozen=True)
class Nccl(Measurement):
    """All NCCL kernels; compared with other kernels they are few.

    `kernels` have `row`, `start`, `end`, `task`, `device`, `operation`, `communicator` and its name, its `ranks`, and `size`;
    what is not known is null. `members` are those that are matched with those of the other ranks: of collectives, and sends and
    receives between the only two devices of a communicator. They have also `turn`, `members` (ranks of the run that take part),
    `complete` (whether these are all ranks of the communicator), and the columns of `waits_of_ranks`."""

    kernels: pl.DataFrame
    members: pl.DataFrame

    @property
    def waits(self) -> pl.DataFrame:
        """Those of `members` that are of collectives."""
        return self.members.filter(_IS_COLLECTIVE)


def measure_nccl(run: MeasuredRun) -> Nccl:
    """NCCL kernels with what their calls say, and which of them are of one collective."""
    # Turns count from the start of the recording: an edge of a part may be in a collective that has ended on other ranks.
    events, whole = run.events, run.recorded if run.is_part else run
    calls = whole.frame(NCCL_CALLS).select("row", "start", "size", "communicator", "ranks")
    calls, columns = drop_duplicates(calls, ["row", "start"]), ("row", "start", "end", "number", "value")
    started = whole.operations.filter(pl.col("number") == event_types.NCCL_KERNEL).select(columns)
    kernels = with_names(started.join(calls, on=["row", "start"], how="left", maintain_order="left"), events)
    communicators = events.names(event_types.NCCL_COMMUNICATOR)
    located = events.rows.located(kernels).with_columns(
        pl.col("task", "device").cast(pl.Int32),
        communicator_name=pl.col("communicator").replace_strict(communicators, default=None, return_dtype=pl.String),
        operation=first_match(pl.col("kernel"), _OPERATIONS, _UNKNOWN_OPERATION),
        duration=pl.col("end") - pl.col("start"),
    )
    located = _in_turns(located)
    located = run.inside(located, ON_DEVICES) if run.is_part else located
    members = _members(located, run)
    waits, communicator = members.filter(_IS_COLLECTIVE), pl.col("communicator_name")
    task, last_task = (run.task_names(pl.col(name)) for name in ("task", "last_task"))
    ranks = pl.Series([of_task.rank for of_task in events.rows.tasks], dtype=pl.Int64)
    names = {"communicator": communicator, "device": run.device_names(pl.col("device"))}
    tables = {
        NCCL_OPERATIONS: _by_size(located),
        NCCL_WAITS: _by_communicator(waits).with_columns(communicator=communicator),
        NCCL_STRAGGLERS: _by_task(waits).with_columns(task=task, rank=pl.lit(ranks).gather("task"), **names),
        NCCL_COLLECTIVES: _longest_waits(waits).with_columns(last_task=last_task, **names),
    }
    return Nccl(located, members, tables=tables)


def _in_turns(kernels: pl.DataFrame) -> pl.DataFrame:
    """NCCL kernels in the order of time, with `turn`, `members`, and whether all of these have as many turns, `is_even`."""
    member = ["device", "task"]
    in_turns = kernels.sort("start", "end", "device").with_columns(
        turn=pl.int_range(pl.len()).over(*_TURNS, *member),
        count=pl.len().over(*_TURNS, *member),
        members=pl.struct(member).n_unique().over(_TURNS),
    )
    return in_turns.with_columns(is_even=pl.col("count").n_unique().over(_TURNS) == 1)


def _members(in_turns: pl.DataFrame, run: MeasuredRun) -> pl.DataFrame:
    """NCCL kernels that belong to the same collective on several devices.

    docs/efficiency.md ("NCCL") says which. Sends and receives are matched where there are exactly two devices, and all pairs
    run at the same time, as far as clocks can say that."""
    is_pair, members = pl.col("operation") == _POINT_TO_POINT, pl.col("members")
    # At an edge of a part some members can be outside of it.
    is_matched = pl.col("is_even") & (members > 1) & (~is_pair | (members == 2)) & (pl.len().over(COLLECTIVE) == members)
    # Of a communicator whose size is not known, the ranks of the run are all.
    complete = (members >= pl.col("ranks").max().over(COLLECTIVE)).fill_null(run.events.missing_ranks == 0)
    waits = waits_of_ranks(in_turns.filter(is_matched).with_columns(complete=complete), run)
    meets = (pl.col("arrived") < pl.col("end").min().over(_ID) + pl.col("margin")) & pl.col("margin").is_finite()
    return waits.filter((~is_pair | meets).all().over(_TURNS))


def waits_of_ranks(collectives: pl.DataFrame, run: MeasuredRun) -> pl.DataFrame:
    """Waits of each rank in `collectives`: NCCL kernels, one per collective and device, with the columns of COLLECTIVE, `task`,
    `device` (index), `start`, `end` (ns), and `complete`: whether all ranks of the communicator are in the run.

    They get the columns
    `collective`: its number;
    `arrived`: the last start of the collective;
    `residence`, `transfer`, `waiting`: duration, the shortest one of the collective, and the rest, ns;
    `is_decided`: whether it is known who arrived last, `is_last`: whether this rank did;
    `waited`: to the start of a later rank, 0 where none is surely later, ns; where durations contradict it, of ranks of one
    clock only;
    `undecided`: by how much longer it may have waited, ns;
    `late_start`, `late_end`: from the start, and the end, of an earlier rank, 0 where none is surely earlier, ns;
    `margin`: the largest error of a difference of two starts of the collective, ns; infinite: not known."""
    frame = collectives.with_columns(
        pl.struct(COLLECTIVE).rank("dense").cast(pl.Int64).alias(_ID),
        arrived=pl.col("start").max().over(COLLECTIVE),
        residence=pl.col("end") - pl.col("start"),
    )
    frame = run.clocks.with_margins(frame, "arrived").with_columns(
        transfer=pl.col("residence").min().over(_ID),
        waited=_known_distance(pl.col("start")),
        waited_on_clock=_known_distance(pl.col("start"), between_clocks=False),
        late_start=_known_distance(-pl.col("start")),
        late_end=_known_distance(-pl.col("end")),
        margin=margin_of_group([_ID]),
    )
    # Those that wait for the last rank are in the collective for longer than it, by about as much.
    shortest = pl.col("residence").filter(pl.col("waited") == 0).min()
    by_residence = (pl.col("residence") - shortest).sum().over(_ID)
    is_contradicted = by_residence < _LEAST_BY_RESIDENCE * pl.col("waited").sum().over(_ID)
    frame = frame.with_columns(waited=pl.when(is_contradicted).then("waited_on_clock").otherwise("waited"))
    # To be surely later is transitive: a rank is last if it is the only one that no rank is surely later than.
    # Where ranks are not in the run, all may have waited for them.
    may_be_last = pl.col("waited") == 0
    frame = frame.with_columns(
        waiting=pl.col("residence") - pl.col("transfer"), is_decided=(may_be_last.sum().over(_ID) == 1) & pl.col("complete")
    ).with_columns(is_last=may_be_last & pl.col("is_decided"))
    # A rank can't have waited for longer than it was in the collective.
    longest = pl.min_horizontal("waiting", pl.col("arrived") - pl.col("start") + pl.col("margin")).round().cast(pl.Int64)
    undecided = pl.when("complete").then(longest).otherwise("residence") - pl.col("waited")
    return frame.with_columns(undecided=pl.when("is_decided").then(0).otherwise(undecided.clip(lower_bound=0)))


def _known_distance(time: pl.Expr, *, between_clocks: bool = True) -> pl.Expr:
    """Distance from a time of each rank to a later one of its collective that is surely later, ns; 0: none is.

    Inside a report the latest one counts. Otherwise it is the one that is latest even if its clock is wrong by as much as it
    can be: one comparison for each rank instead of one for each pair of ranks."""
    distance = (time.max().over(_ID, GROUP, CLOCK, REPORT) - time).cast(pl.Float64)
    of_report, of_clock = pl.col(OF_REPORT), pl.col(OF_REPORT) + pl.col(OF_CLOCK)
    steps = ((of_report, [_ID, GROUP, CLOCK]), (of_clock, [_ID, GROUP]))
    for error, key in steps if between_clocks else steps[:1]:
        surely = (time - error).max().over(key)
        latest = pl.when(time - error == surely).then(time).max().over(key)
        distance = pl.when(surely > time + error).then(pl.max_horizontal(distance, latest - time)).otherwise(distance)
    return distance.round().cast(pl.Int64)


def _by_communicator(waits: pl.DataFrame) -> pl.DataFrame:
    # Of collectives, not of ranks.
    margin = pl.col("margin").filter(pl.col(_ID).is_first_distinct()).median()
    sums = waits.group_by("communicator", "communicator_name").agg(
        *_SUMS,
        collectives=pl.col(_ID).n_unique(),
        decided=pl.col(_ID).filter("is_decided").n_unique(),
        margin_ns=pl.when(margin.is_finite()).then(margin),
    )
    return sums.sort("communicator", nulls_last=True).with_columns(
        undecided_share=1 - pl.col("decided") / pl.col("collectives"),
        undecided_time_share=pl.when(pl.col("residence_ns") > 0).then(pl.col("undecided_ns") / pl.col("residence_ns")),
    )


def _by_task(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl_stragglers`, with indices of tasks and devices."""
    waits = waits.with_columns(waited_of_all=pl.col("waited").sum().over(_ID))
    sums = waits.group_by("communicator", "communicator_name", "task", "device").agg(
        *_SUMS,
        collectives=pl.len(),
        decided=pl.col("is_decided").sum(),
        last=pl.col("is_last").sum(),
        mean_wait_ns=pl.col("waited").mean(),
        caused_ns=pl.col("waited_of_all").filter(pl.col("is_last")).sum(),
    )
    return sums.sort("communicator", "task", "device", nulls_last=True)


def _longest_waits(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `nccl_collectives`, with indices of tasks and devices."""
    margin = pl.col("margin").first()
    task, device = (pl.col(name).filter("is_last").first() for name in ("task", "device"))
    sums = waits.group_by(_ID).agg(
        *_SUMS,
        pl.col("operation", "communicator_name").first(),
        begin_ns=pl.col("start").min(),
        last_ns=pl.col("arrived").first(),
        end_ns=pl.col("end").max(),
        last_task=task,
        device=device,
        margin_ns=pl.when(margin.is_finite()).then(margin),
        start_skew_ns=pl.col("late_start").max(),
        end_skew_ns=pl.col("late_end").max(),
    )
    return sums.sort("waited_ns", "undecided_ns", "begin_ns", _ID, descending=[True, True, False, False]).head(MOST_COLLECTIVES)


def _by_size(kernels: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("end") - pl.col("start")
    # What an edge of a part cuts says nothing of how long it takes.
    whole = length.filter(length == pl.col("duration"))
    bandwidth, best_bandwidth = (
        pl.when(pl.col(duration) > 0).then(pl.col("size") * 1e9 / pl.col(duration)) for duration in ("mean_ns", "min_ns")
    )
    factors = (pl.when(pl.col("operation") == operation).then(factor) for operation, factor in _BUS_FACTORS.items())
    by_size = kernels.group_by("operation", "communicator", "communicator_name", "ranks", "size")
    sums = by_size.agg(count=pl.len(), total_ns=length.sum(), mean_ns=whole.mean(), min_ns=whole.min(), max_ns=length.max())
    return sums.sort("total_ns", "operation", "communicator", "size", descending=[True, False, False, False]).with_columns(
        communicator="communicator_name",
        size_bytes="size",
        bandwidth=bandwidth,
        best_bandwidth=best_bandwidth,
        bus_bandwidth=best_bandwidth * pl.coalesce(*factors),
    )
