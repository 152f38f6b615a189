"""Who let other processes wait in calls of MPI: the last one to call a collective, or the root, and senders of messages.

A wait counts where it is longer than clocks of both processes can be wrong against each other; the rest is not decidable.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nsys2prv.efficiency.clock_accuracy import margin_of_group
from nsys2prv.efficiency.graph.host_waits import mpi_collectives
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.vocabulary import event_types

_LENGTH = pl.col("end") - pl.col("begin")
_WAIT_SCHEMA = {"row": pl.Int64, "late_row": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
"""A wait: row of the thread that waits, row of the one that is late, and times, ns."""


@dataclass(frozen=True)
class LateProcesses(Measurement):
    """Waits for other processes.

    Attributes
    ----------
    waits
        Of each pair of processes (indices) `task`, which waited, and `late`: `count` of waits, `waited`, their sum, and the
        start of the `first` and the end of the `last` one, ns.
    calls
        Receives and calls of collectives of which the other process is known.
    undecided
        Time of waits that are not longer than clocks can be wrong, ns.
    """

    waits: pl.DataFrame
    calls: int
    undecided: int
    _longest: pl.DataFrame

    def longest(self, late: int) -> tuple[int, int, int]:
        """The longest wait for a process: the process that waited, begin and end, ns."""
        row = self._longest.row(by_predicate=pl.col("late") == late, named=True)
        return row["task"], row["begin"], row["end"]


def late_processes(run: MeasuredRun) -> LateProcesses:
    """Waits in collectives and receives that end in the window."""
    members = mpi_collectives(run)
    collectives = _waits(
        members.filter(pl.col("awaited_row").is_not_null()),
        "row",
        "awaited_row",
        pl.col("start"),
        pl.min_horizontal("awaited_start", "end"),
    )
    waits = _with_margins(run, pl.concat([collectives, _in_receives(run)]))
    decided = waits.filter(pl.col("margin") < _LENGTH)
    longest = decided.sort(_LENGTH, "begin", "task", descending=[True, False, False])
    return LateProcesses(
        decided.group_by("task", "late")
        .agg(count=pl.len().cast(pl.Int64), waited=_LENGTH.sum(), first=pl.col("begin").min(), last=pl.col("end").max())
        .sort("late", "task"),
        members.height + run.messages.height,
        int(waits.select(_LENGTH.sum()).item()) - int(decided.select(_LENGTH.sum()).item()),
        longest.unique("late", keep="first", maintain_order=True),
    )


def _in_receives(run: MeasuredRun) -> pl.DataFrame:
    """A receive that was started before waits from the call on that completes it."""
    messages = run.messages
    if messages.is_empty():
        return pl.DataFrame(schema=_WAIT_SCHEMA)
    is_mpi = pl.col("number").is_in(list(event_types.MPI_TYPES.values()))
    calls = run.calls.filter(is_mpi).group_by("row", "end").agg(called=pl.col("start").max())
    received = messages.join(calls, left_on=["to_row", "to_time"], right_on=["row", "end"], how="inner")
    waits = _waits(
        received, "to_row", "row", pl.max_horizontal("to_begin", "called"), pl.min_horizontal("time", "to_time"), "to_time"
    )
    # A call that completes several receives waits for the one that is sent last.
    ordered = waits.sort("end", "begin", "late_row", descending=[True, False, False])
    return ordered.unique(["row", "until"], keep="first", maintain_order=True).drop("until")


def _with_margins(run: MeasuredRun, waits: pl.DataFrame) -> pl.DataFrame:
    """Waits with the tasks of both processes, and the `margin` by which their clocks can be wrong against each other, ns."""
    task = run.events.rows.task
    tasks = {"task": "row", "late": "late_row"}
    waits = waits.with_columns(
        pl.Series(name, task[waits[row].to_numpy()], dtype=pl.Int64) for name, row in tasks.items()
    ).with_row_index("wait")
    ends = pl.concat([waits.select("wait", "end", task=pl.col(name)) for name in tasks])
    margins = run.clocks.with_margins(ends, "end").select("wait", margin=margin_of_group(["wait"]))
    return waits.join(margins.unique("wait"), on="wait", how="left", maintain_order="left")


def _waits(calls: pl.DataFrame, row: str, late: str, begin: pl.Expr, end: pl.Expr, until: str | None = None) -> pl.DataFrame:
    """Waits with a length, of threads of different rows."""
    waits = calls.select(
        *(expr.cast(pl.Int64) for expr in (pl.col(row).alias("row"), pl.col(late).alias("late_row"))),
        begin=begin.cast(pl.Int64),
        end=end.cast(pl.Int64),
        **({} if until is None else {"until": pl.col(until)}),
    )
    return waits.filter((pl.col("end") > pl.col("begin")) & (pl.col("row") != pl.col("late_row")))
