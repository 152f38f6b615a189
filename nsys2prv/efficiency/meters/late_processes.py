"""Who let other processes wait in calls of MPI: the last one to call a collective, or the root, and senders of messages.

A wait counts where it is longer than clocks of both processes can be wrong against each other; the rest is not decidable."""

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph.host_waits import mpi_collectives
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.vocabulary import event_types

_LENGTH = pl.col("end") - pl.col("begin")
_IS_WAIT = (_LENGTH > 0) & (pl.col("row") != pl.col("late_row"))
"""Waits have a length, and are of threads of different rows."""


@dataclass(frozen=True)
class LateProcesses(Measurement):
    """Waits for other processes.

    `waits` are those that are longer than clocks can be wrong, with processes (indices) `task`, which waited, and `late`, and
    `begin` and `end`, ns; `undecided` is the time of all others, ns. `calls` is the number of receives and calls of collectives
    of which the other process is known."""

    waits: pl.DataFrame
    calls: int
    undecided: int


def late_processes(run: MeasuredRun) -> LateProcesses:
    """Waits in collectives and receives that end in the window."""
    members = mpi_collectives(run)
    end = pl.min_horizontal("awaited_start", "end")
    collectives = members.drop_nulls("awaited_row").select("row", late_row="awaited_row", begin="start", end=end)
    task = pl.lit(pl.Series(run.events.rows.task))
    waits = pl.concat([frame.cast(pl.Int64) for frame in (collectives, _in_receives(run))]).filter(_IS_WAIT)
    waits = waits.select("begin", "end", task=task.gather("row"), late=task.gather("late_row"), wait=pl.int_range(pl.len()))
    # By how much the clocks of both processes can be wrong against each other.
    ends = pl.concat([waits.select("wait", "end", task=process) for process in ("task", "late")])
    margins = run.clocks.with_margins(ends, "end").select("wait", margin=margin_of_group(["wait"])).unique("wait")
    decided = waits.join(margins, on="wait", how="left", maintain_order="left").filter(pl.col("margin") < _LENGTH)
    undecided = int(waits.select(_LENGTH.sum()).item()) - int(decided.select(_LENGTH.sum()).item())
    return LateProcesses(decided, members.height + run.messages.height, undecided)


def _in_receives(run: MeasuredRun) -> pl.DataFrame:
    """Waits in receives: `row`, `late_row`, `begin`, `end`. One started before waits from the call that completes it."""
    is_mpi = pl.col("number").is_in(list(event_types.MPI_TYPES.values()))
    calls = run.calls.filter(is_mpi).group_by("row", "end").agg(called=pl.col("start").max())
    received = run.messages.join(calls, left_on=["to_row", "to_time"], right_on=["row", "end"], how="inner")
    waits = received.select(
        row="to_row",
        late_row="row",
        begin=pl.max_horizontal("to_begin", "called"),
        end=pl.min_horizontal("time", "to_time"),
        until="to_time",
    )
    # A call that completes several receives waits for the one that is sent last.
    ordered = waits.filter(_IS_WAIT).sort("end", "begin", "late_row", descending=[True, False, False])
    return ordered.unique(["row", "until"], keep="first", maintain_order=True).drop("until")
