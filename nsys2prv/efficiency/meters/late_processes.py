"""Who let other processes wait in calls of MPI: the last one to call a collective, or the root, and senders of messages.

A wait counts where it is longer than clocks of both processes can be wrong against each other; the rest is not decidable.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from nsys2prv.efficiency.graph.mpi_collectives import mpi_collectives
from nsys2prv.efficiency.run_events import ON_HOSTS
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.efficiency.task_clocks import margin_of_group
from nsys2prv.execution.merging import Merging, Sums
from nsys2prv.vocabulary import event_types

_WAIT_SCHEMA = {"row": pl.Int64, "late_row": pl.Int64, "begin": pl.Int64, "end": pl.Int64}
"""A wait: row of the thread that waits, row of the one that is late, and times, ns."""
_SUM_SCHEMA = dict.fromkeys(("task", "late", "count", "waited", "first", "last"), pl.Int64)
_LONGEST_SCHEMA = dict.fromkeys(("late", "task", "begin", "end"), pl.Int64)


def _longest(waits: pl.DataFrame) -> pl.DataFrame:
    """The longest wait for each late task."""
    ordered = waits.sort(pl.col("end") - pl.col("begin"), "begin", "task", descending=[True, False, False])
    return ordered.unique("late", keep="first", maintain_order=True)


class LateProcesses:
    """Finds them; made before the chunks are read, and updated with each.

    Parameters
    ----------
    context
        Of the run.
    folder
        For intermediate files.

    Attributes
    ----------
    calls
        Receives and calls of collectives of which the other process is known.
    undecided
        Time of waits that are not longer than clocks can be wrong, ns.
    """

    def __init__(self, context: SweepContext, folder: Path) -> None:
        self._context = context
        self._sums = Sums(_SUM_SCHEMA, ["task", "late"], smallest=["first"], largest=["last"])
        self._longest = Merging(_longest, pl.DataFrame(schema=_LONGEST_SCHEMA), 100_000)
        self.calls = 0
        self.undecided = 0

    def update(self, chunk: TimeChunk) -> None:
        """Add the waits that end in a chunk."""
        waits = pl.concat([self._in_collectives(chunk), self._in_receives(chunk)])
        if waits.is_empty():
            return
        decided = self._decided(waits)
        length = pl.col("end") - pl.col("begin")
        self._sums.add(decided.with_columns(count=pl.lit(1), waited=length, first="begin", last="end"))
        self._longest.add(decided.select(pl.col(name).cast(dtype) for name, dtype in _LONGEST_SCHEMA.items()))

    @property
    def waits(self) -> pl.DataFrame:
        """Of each pair of processes (indices) `task`, which waited, and `late`: `count` of waits, `waited`, their sum, and the
        start of the `first` and the end of the `last` one, ns."""
        return self._sums.rows.sort("late", "task")

    def longest(self, late: int) -> tuple[int, int, int]:
        """The longest wait for a process: the process that waited, begin and end, ns."""
        row = self._longest.rows.row(by_predicate=pl.col("late") == late, named=True)
        return row["task"], row["begin"], row["end"]

    def _in_collectives(self, chunk: TimeChunk) -> pl.DataFrame:
        members = mpi_collectives(chunk)
        self.calls += members.height
        known = members.filter(pl.col("awaited_row").is_not_null())
        return _waits(known, "row", "awaited_row", pl.col("start"), pl.min_horizontal("awaited_start", "end"))

    def _in_receives(self, chunk: TimeChunk) -> pl.DataFrame:
        """A receive that was started before waits from the call on that completes it."""
        messages = chunk.messages
        self.calls += messages.height
        if messages.is_empty():
            return pl.DataFrame(schema=_WAIT_SCHEMA)
        is_mpi = pl.col("number").is_in(list(event_types.MPI_TYPES.values()))
        calls = chunk.inside[ON_HOSTS.name].filter(is_mpi).group_by("row", "until").agg(called=pl.col("begin").max())
        known = messages.join(calls, left_on=["to_row", "to_time"], right_on=["row", "until"], how="inner")
        waits = _waits(
            known, "to_row", "row", pl.max_horizontal("to_begin", "called"), pl.min_horizontal("time", "to_time"), "to_time"
        )
        # A call that completes several receives waits for the one that is sent last.
        ordered = waits.sort("end", "begin", "late_row", descending=[True, False, False])
        return ordered.unique(["row", "until"], keep="first", maintain_order=True).drop("until")

    def _decided(self, waits: pl.DataFrame) -> pl.DataFrame:
        """Waits that are longer than clocks can be wrong, with the tasks of both; the others are counted."""
        task = self._context.events.rows.task
        found = waits.with_columns(
            task=pl.Series(task[waits["row"].to_numpy()], dtype=pl.Int64),
            late=pl.Series(task[waits["late_row"].to_numpy()], dtype=pl.Int64),
        ).with_row_index("wait")
        ends = pl.concat([found.select("wait", "end", task=pl.col(name)) for name in ("task", "late")])
        margins = self._context.clocks.with_margins(ends, "end").select("wait", margin=margin_of_group(["wait"]))
        joined = found.join(margins.unique("wait"), on="wait", how="left", maintain_order="left")
        length = pl.col("end") - pl.col("begin")
        decided = joined.filter(length > pl.col("margin"))
        self.undecided += int(joined.select(length.sum()).item()) - int(decided.select(length.sum()).item())
        return decided


def _waits(found: pl.DataFrame, row: str, late: str, begin: pl.Expr, end: pl.Expr, until: str | None = None) -> pl.DataFrame:
    """Waits with a length, of threads of different rows."""
    waits = found.select(
        *(expr.cast(pl.Int64) for expr in (pl.col(row).alias("row"), pl.col(late).alias("late_row"))),
        begin=begin.cast(pl.Int64),
        end=end.cast(pl.Int64),
        **({} if until is None else {"until": pl.col(until)}),
    )
    return waits.filter((pl.col("end") > pl.col("begin")) & (pl.col("row") != pl.col("late_row")))
