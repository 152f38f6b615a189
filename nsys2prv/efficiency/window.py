"""The window of a run that is measured, what is around it, and the iterations in it: their lengths, warm-up, slow ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.efficiency_options import CHOSEN
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.vocabulary.wording import time

WARM_UP, SLOW = "warm-up", "slow"
"""Kinds of iterations."""
_UNUSUAL = 1.2
"""Length of an iteration, relative to the median, from which it can be unusual."""
_DEVIATIONS = 5 * 1.4826
"""Median deviations from the median, from which it is: five standard deviations of normal lengths."""
_MOST_WARM_UP = 0.25
"""Share of the iterations that can be warm-up."""
_WORTH_A_WARNING = 0.01
"""Least share of the recording that is not of the program and is worth a warning."""

Span = tuple[int, int]
"""Begin and end, ns from the start of the trace."""
Lengths = npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Lengths of iterations in their order, ns."""
ITERATION_SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("number", "task", "device", "begin", "end"), pl.Int64),
    "is_warm_up": pl.Boolean,
}
"""Columns of iterations: `number` from 0, the same on all devices; places of the task and the device in `RunEvents.rows`;
`begin` and `end` in ns from the start of the trace. An iteration begins with the first work on its device, and ends where the
next one begins."""


@dataclass(frozen=True)
class RunIterations:
    """What repeats in a run.

    Attributes
    ----------
    iterations
        Columns of ITERATION_SCHEMA, sorted by `number`, `task`, `device`: a row for each device and each task that uses it.
    how, reason
        What repeats (`nvtx NAME`, with `#` for numbers that differ, or a period); or why there are none. One of them is None.
    work
        First start and last end of what runs on any device; None: nothing does.
    steady
        The iterations without those of the warm-up; None: nothing repeats.
    """

    iterations: pl.DataFrame
    how: str | None
    reason: str | None
    work: Span | None
    steady: Span | None

    @classmethod
    def none(cls, reason: str, work: Span | None) -> RunIterations:
        """Of a run in which nothing repeats, and why."""
        return cls(pl.DataFrame(schema=ITERATION_SCHEMA), None, reason, work, None)

    @property
    def lengths(self) -> pl.DataFrame:
        """Columns `number`, `begin`, `end` (first and last over devices), `tasks`, `shortest`, `median`, `longest` (ns),
        `is_warm_up`, and `is_slow`: longer than usual, and no warm-up."""
        length = pl.col("end") - pl.col("begin")
        by_number = (
            self.iterations.group_by("number")
            .agg(
                pl.col("begin").min(),
                pl.col("end").max(),
                tasks=pl.col("task").n_unique().cast(pl.Int64),
                shortest=length.min(),
                median=length.median(),
                longest=length.max(),
                is_warm_up=pl.col("is_warm_up").first(),
            )
            .sort("number")
        )
        usual = by_number.filter(~pl.col("is_warm_up"))["median"].to_numpy()
        most = unusual_lengths(usual)[1] if len(usual) else np.inf
        return by_number.with_columns(is_slow=~pl.col("is_warm_up") & (pl.col("longest") > most))

    def as_json(self) -> dict[str, Any]:
        """How they were found, or why not; their number, and how many of them are warm-up."""
        numbers = self.iterations.unique("number")
        return {"how": self.how, "reason": self.reason, "count": numbers.height, "warm_up": int(numbers["is_warm_up"].sum())}


@dataclass(frozen=True)
class MeasuredWindow:
    """What is measured, and what is around it.

    Attributes
    ----------
    name
        ALL, STEADY or CHOSEN.
    span
        Its start and end; as all times here ns from the start of the trace.
    program
        First start and last end of the program's own events: work on devices, calls of CUDA, MPI and the OS, NVTX ranges. An
        edge that `--time` chose is where it is.
    recorded
        Length of the recording, with what the profiler and others do before and after the program.
    iterations
        What repeats in the program.
    mpi_work
        Of a run without GPUs: between the calls that start and end MPI in all processes; None: these are not known.
    """

    name: str
    span: Span
    program: Span
    recorded: int
    iterations: RunIterations
    mpi_work: Span | None = None

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
        return [
            f"the recording lasts {time(self.recorded)}, and the program's own events {time(end - begin)} of it: what is "
            f"before and after them (the profiler, samples, scheduling) is not measured"
        ]

    def cut(self, events: RunEvents) -> RunEvents:
        """The events of a run with this window as the selected time."""
        begin, end = self.span
        return replace(events, begin=events.begin + begin, length=end - begin, offset=begin, recorded=self.recorded)


def unusual_lengths(lengths: Lengths) -> tuple[float, float]:
    """Lengths that are not shorter, and not longer, than usual."""
    median = float(np.median(lengths))
    deviation = _DEVIATIONS * float(np.median(np.abs(lengths - median)))
    return min(median / _UNUSUAL, median - deviation), max(median * _UNUSUAL, median + deviation)


def warm_up_iterations(lengths: Lengths) -> int:
    """Number of iterations that are warm-up: the first ones, as long as their lengths are unusual, but no more than a quarter.

    >>> warm_up_iterations(np.array([90, 30, 10, 11, 10, 10, 10, 50, 10, 10]))
    2
    """
    if not len(lengths):
        return 0
    least, most = unusual_lengths(lengths)
    unusual = (lengths < least) | (lengths > most)
    first = len(unusual) if unusual.all() else int(np.argmin(unusual))
    return first if first <= _MOST_WARM_UP * len(lengths) else 0


def iteration_kinds(lengths: Lengths) -> list[str | None]:
    """Kind of each iteration by its length: WARM_UP, SLOW, or None for the usual ones.

    >>> iteration_kinds(np.array([90, 10, 11, 10, 10, 50, 10, 10]))[::5]
    ['warm-up', 'slow']
    """
    first = warm_up_iterations(lengths)
    most = unusual_lengths(lengths[first:])[1] if len(lengths) > first else 0.0
    return [WARM_UP if place < first else SLOW if length > most else None for place, length in enumerate(lengths.tolist())]
