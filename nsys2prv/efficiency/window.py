"""The window of a run that is measured, what is around it, and the iterations in it: their lengths, warm-up, slow ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.efficiency_options import CHOSEN
from nsys2prv.efficiency.intervals import Floats, Numbers
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.call_names import SHUT_DOWN_CALLS, START_UP_CALLS
from nsys2prv.vocabulary.wording import time

WARM_UP, SLOW, OTHER_WORK = "warm-up", "slow", "other work"
"""Kinds of iterations."""
_UNUSUAL = 1.2
"""Length of an iteration, relative to the median, from which it can be unusual."""
_DEVIATIONS = 5 * 1.4826
"""Median deviations from the median, from which it is: five standard deviations of normal lengths."""
_MORE_WORK = 1.5
"""Operations of an iteration, relative to the median, from which a longer one does other work than the others."""
_MOST_WARM_UP = 0.25
"""Share of the iterations that can be warm-up."""
_WORTH_A_WARNING = 0.01
"""Least share of the recording that is not of the program and is worth a warning."""

Span = tuple[int, int]
"""Begin and end, ns from the start of the trace."""
ITERATION_SCHEMA = dict.fromkeys(("number", "task", "device", "begin", "end", "operations"), pl.Int64)
"""Columns of iterations: `number` from 0, the same on all devices; places of the task and the device in `RunEvents.rows`;
`begin` and `end` in ns from the start of the trace; the number of operations that start in it. An iteration begins with the
first work on its device, and ends where the next one begins."""


@dataclass(frozen=True)
class RunIterations:
    """What repeats in a run: `iterations`, columns of ITERATION_SCHEMA, sorted by `number`, `task`, `device`, a row for each
    device and each task that uses it; and `work`, first start and last end of what runs on any device (None: nothing does).

    `how` says what repeats (`nvtx NAME`, with `#` for numbers that differ, or a period), or `reason` why there are none: one of
    them is None."""

    iterations: pl.DataFrame
    work: Span | None
    how: str | None = None
    reason: str | None = None

    @cached_property
    def lengths(self) -> pl.DataFrame:
        """Columns `number`, `begin`, `end` (first and last over devices), `tasks`, `shortest`, `median`, `longest` (ns), `kind`
        of `iteration_kinds`, and `is_warm_up`."""
        length = pl.col("end") - pl.col("begin")
        by_number = self.iterations.group_by("number").agg(
            pl.col("begin").min(),
            pl.col("end").max(),
            tasks=pl.col("task").n_unique().cast(pl.Int64),
            shortest=length.min(),
            median=length.median(),
            longest=length.max(),
            operations=pl.col("operations").sum(),
        ).sort("number")  # fmt: skip
        kind = iteration_kinds(*(by_number[name].to_numpy() for name in ("median", "longest", "operations")))
        return by_number.with_columns(kind=kind, is_warm_up=kind.eq_missing(WARM_UP))

    @property
    def steady(self) -> Span | None:
        """First start and last end of the iterations without those of the warm-up; None: nothing repeats."""
        usual = self.lengths.filter(~pl.col("is_warm_up"))
        return (int(usual["begin"].to_numpy().min()), int(usual["end"].to_numpy().max())) if usual.height else None

    def as_json(self) -> dict[str, Any]:
        """How they were found, or why not; their number, and how many of them are warm-up."""
        is_warm_up = self.lengths["is_warm_up"]
        return {"how": self.how, "reason": self.reason, "count": len(is_warm_up), "warm_up": int(is_warm_up.sum())}


@dataclass(frozen=True)
class MeasuredWindow:
    """What is measured: a window called ALL, STEADY or CHOSEN, with its `span` (as all times here ns from the start of the
    trace); and what is around it.

    `program` is from the first start to the last end of the program's own events: work on devices, calls of CUDA, MPI and the
    OS, NVTX ranges, and samples of its calling threads. An edge that `--time` chose is where it is. `recorded` is the length of
    the trace, with what the profiler and others do before and after the program. `mpi_work`, of a run without GPUs, is between
    the calls that start and end MPI in all processes; None: these are not known. `loss` says why launches are lost, and from
    when on; None: they are not. `running` is how long a calling thread is on a CPU outside of the program, and `prepared` how
    long CUPTI prepares contexts before it on a thread, at most, ns."""

    name: str
    span: Span
    program: Span
    recorded: int
    iterations: RunIterations
    mpi_work: Span | None = None
    loss: tuple[str, int] | None = None
    running: int = 0
    prepared: int = 0

    @property
    def parts(self) -> Mapping[str, Span]:
        """Parts of the run by name: the whole program, its start-up before the first work of devices and its shut-down after
        the last (without GPUs: until all are out of MPI_Init, and from the first MPI_Finalize on), and the steady part, as far
        as they have a length."""
        begin, end = self.program
        work, steady = self.iterations.work or self.mpi_work, self.iterations.steady
        parts = {"whole run": self.program}
        if work is not None:
            title = "work of processes" if self.iterations.work is None else "work of devices"
            parts |= {"start-up": (begin, work[0]), title: work, "shut-down": (work[1], end)}
        if steady is not None:
            parts["steady part"] = steady
        if self.name == CHOSEN:
            parts["chosen window"] = self.span
        return {name: span for name, span in parts.items() if span[1] > span[0]}

    @property
    def warnings(self) -> list[str]:
        """That much of the recording is not of the program."""
        begin, end = self.program
        if self.recorded - (end - begin) <= _WORTH_A_WARNING * self.recorded:
            return []
        scheduled = f"; a thread is on a CPU for {time(self.running)} of it (scheduling)" if self.running > 0 else ""
        context = f"; before them CUPTI prepares a CUDA context for {time(self.prepared)}" if self.prepared else ""
        return [
            f"the trace lasts {time(self.recorded)}, and the program's own events {time(end - begin)} of it: what is "
            f"before and after them (the profiler, or work of the program in no recorded call or sample) is not measured"
            f"{scheduled}{context}"
        ]


def iteration_kinds(usual: Numbers | Floats, longest: Numbers | Floats, operations: Numbers) -> pl.Series:
    """Kinds of iterations by their lengths: WARM_UP, SLOW, OTHER_WORK, or null.

    The first ones are warm-up as long as their lengths are unusual, but no more than a quarter. Others are slow where they take
    longer than usual anywhere, or do other work, where they have far more operations. Of each iteration, `usual` is its length
    and `longest` that where it takes longest, ns.

    >>> lengths, operations = np.array([90, 30, 10, 11, 10, 10, 10, 50, 10, 60]), np.array([8, 8, 8, 8, 8, 8, 8, 8, 8, 40])
    >>> iteration_kinds(lengths, lengths, operations).to_list()
    ['warm-up', 'warm-up', None, None, None, None, None, 'slow', None, 'other work']
    >>> falling = np.array([90, 80, 30, 29, 27, 26, 25, 24, 23, 22, 15, 14, 13, 12])
    >>> "warm-up" in iteration_kinds(falling, falling, falling)
    False
    """
    if not len(usual):
        return pl.Series([], dtype=pl.String)
    least, most = _unusual_lengths(usual)
    first = int(np.argmax(np.append((usual >= least) & (usual <= most), True)))
    # Lengths that go on to fall have no warm-up that ends; of two nobody can say that.
    half = (first + len(usual)) // 2
    is_level = np.median(usual[first:half]) <= _UNUSUAL * np.median(usual[half:]) if half > first + 2 else True
    first = first if first <= _MOST_WARM_UP * len(usual) and is_level else 0
    most = _unusual_lengths(usual[first:])[1]
    is_slow, has_more = longest > most, operations > _MORE_WORK * np.median(operations)
    kinds = np.where(np.arange(len(usual)) < first, WARM_UP, np.where(is_slow, np.where(has_more, OTHER_WORK, SLOW), ""))
    return pl.Series([kind or None for kind in kinds.tolist()], dtype=pl.String)


def _unusual_lengths(lengths: Numbers | Floats) -> tuple[float, float]:
    """Lengths that are not shorter, and not longer, than usual."""
    median = float(np.median(lengths))
    deviation = _DEVIATIONS * float(np.median(np.abs(lengths - median)))
    return min(median / _UNUSUAL, median - deviation), max(median * _UNUSUAL, median + deviation)


def mpi_phases(events: RunEvents, calls: pl.DataFrame) -> pl.DataFrame:
    """Of calls of a run, as of `MeasuredRun.calls`, those that start or end MPI: columns `task`, `start`, `end`, and
    `is_start_up`, in the order of time."""
    kinds = calls.select("number", "value").unique().filter(pl.col("number").is_in(event_types.MPI_TYPES.values()))
    name = events.named(kinds["number"], kinds["value"])
    kinds = kinds.with_columns(is_start_up=name.str.contains(START_UP_CALLS))
    kinds = kinds.filter(name.str.contains(f"{START_UP_CALLS}|{SHUT_DOWN_CALLS}"))
    calls = calls.filter((pl.col("end") > 0) & (pl.col("start") < events.length))
    phases = events.rows.located(calls.join(kinds, on=["number", "value"], how="inner"))
    return phases.select("task", "start", "end", "is_start_up").sort("start", "task", "end")


def between_phases(phases: pl.DataFrame, program: Span) -> Span | None:
    """From the end of the last call that starts MPI to the start of the first one that ends it; None: they are not known, or
    nothing is in between."""
    starts, ends = (phases.filter(pl.col("is_start_up") == is_start_up) for is_start_up in (True, False))
    begin = program[0] if starts.is_empty() else int(starts["end"].to_numpy().max())
    end = program[1] if ends.is_empty() else int(ends["start"].to_numpy().min())
    return (begin, end) if phases.height and begin < end else None
