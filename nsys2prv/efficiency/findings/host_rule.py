"""What a rule of findings for runs without a GPU consists of, and what it judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from nsys2prv.efficiency.findings.finding import Number
from nsys2prv.efficiency.findings.rule import Threshold
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.late_processes import LateProcesses
from nsys2prv.efficiency.sweep import SweepContext


@dataclass(frozen=True)
class HostFinding:
    """What a rule found.

    Attributes
    ----------
    text
        What was seen, with its numbers.
    saved, how
        Time by which the run would be shorter without it, ns, and how that is known: one of `saved_time.HOW`.
    cost
        Time of processes that it costs, summed over them, ns.
    tasks
        Processes that show it, the one to look at first.
    span, worst
        Start of the first and end of the last occurrence; and those of the place to look at, ns.
    numbers
        That it is based on.
    follows
        Kind of another finding that causes this one.
    """

    text: str
    saved: int
    how: str
    cost: int
    tasks: Sequence[int]
    span: tuple[int, int]
    worst: tuple[int, int]
    numbers: Sequence[Number] = ()
    follows: str | None = None


@dataclass(frozen=True)
class HostNeed:
    """What a rule needs: its name, and why it is missing, None where it is there."""

    text: str
    missing: Callable[[HostEvidence], str | None]


@dataclass(frozen=True)
class HostRule:
    """One rule; attributes as of `FindingRule`, with costs that are times of processes."""

    kind: str
    title: str
    sees: str
    needs: Sequence[HostNeed]
    cost: str
    view: str
    advice: str
    thresholds: Sequence[Threshold]
    judge: Callable[[HostEvidence], HostFinding | None]


@dataclass
class HostEvidence:
    """What rules judge: a run without a GPU.

    Attributes
    ----------
    context
        What all chunks share.
    tables
        Tables of the results.
    phases
        Calls that start and end MPI (`measured_window.mpi_phases`), times from the start of the window.
    late
        Who let others wait.
    """

    context: SweepContext
    tables: Mapping[str, pl.DataFrame]
    phases: pl.DataFrame
    late: LateProcesses

    @property
    def length(self) -> int:
        """E, ns."""
        return self.context.events.length

    @cached_property
    def processes(self) -> list[int]:
        """Tasks with threads that call MPI."""
        rows = self.context.events.rows
        return sorted({int(rows.task[row]) for row in self.context.callers})

    @cached_property
    def times(self) -> pl.DataFrame:
        """Of each process `task`, `start_up` and `shut_down`: times in calls that start and end MPI; the `begin` and `end` of
        its work between them; of that `mpi`, the time of the thread that is in MPI longest, and `outside`, the rest, ns."""
        threads = self.tables["threads"].with_columns(task=pl.Series(self.context.events.rows.task[self.context.callers]))
        in_mpi = threads.group_by("task").agg(mpi=pl.col("mpi_ns").max())
        length = pl.col("end") - pl.col("start")
        is_start = pl.col("is_start_up")
        phases = self.phases.group_by("task").agg(
            start_up=length.filter(is_start).sum(),
            shut_down=length.filter(~is_start).sum(),
            begin=pl.col("end").filter(is_start).max(),
            end=pl.col("start").filter(~is_start).min(),
        )
        every = pl.DataFrame({"task": self.processes}, schema={"task": pl.Int64})
        found = every.join(in_mpi.cast(pl.Int64), on="task", how="left").join(phases, on="task", how="left").sort("task")
        known = found.with_columns(
            pl.col("start_up", "shut_down", "begin", "mpi").fill_null(0), pl.col("end").fill_null(self.length)
        )
        rest = pl.col("mpi") - pl.col("start_up") - pl.col("shut_down")
        work = pl.max_horizontal(pl.col("end") - pl.col("begin"), 0)
        in_work = known.with_columns(mpi=pl.min_horizontal(pl.max_horizontal(rest, 0), work))
        return in_work.with_columns(outside=work - pl.col("mpi"))

    def column(self, name: str) -> Numbers:
        """A column of `times`."""
        values: Numbers = self.times[name].to_numpy().astype(int)
        return values

    def name(self, task: int) -> str:
        """Name of a process."""
        return self.context.events.rows.tasks[task].name


def _no_mpi(evidence: HostEvidence) -> str | None:
    return None if evidence.tables["mpi_calls"].height else "not recorded: MPI calls"


def _one_process(evidence: HostEvidence) -> str | None:
    return None if len(evidence.processes) > 1 else "there is one process with MPI, and nothing to compare it with"


def _no_partners(evidence: HostEvidence) -> str | None:
    return None if evidence.late.calls else "no collective or message is known with both of its processes"


MPI_CALLS = HostNeed("MPI calls", _no_mpi)
SEVERAL_PROCESSES = HostNeed("several processes", _one_process)
PARTNERS = HostNeed("collectives or messages whose processes are in the run", _no_partners)
