"""Which window of a run is measured: the whole program, its steady part, or a part that the user chose."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.efficiency_options import STEADY
from nsys2prv.efficiency.iterations import find_iterations
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.run_events import NCCL_CALLS, ON_DEVICES, ON_HOSTS, RANGES
from nsys2prv.efficiency.window import MeasuredWindow, Span
from nsys2prv.errors import NothingToTranslate, UsageError
from nsys2prv.run.options import TimeRange
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

START_UP_CALLS, SHUT_DOWN_CALLS = r"^MPI_Init(_thread)?$", r"^MPI_Finalize$"
"""Names of the calls that start MPI, and of that which ends it. They are no communication of the program."""
_OF_PROGRAM = (ON_DEVICES, NCCL_CALLS, ON_HOSTS, RANGES)
"""What the program does itself; samples, scheduling and what the profiler does go on before and after it."""


def measured_window(recorded: MeasuredRun) -> MeasuredWindow:
    """The window that the options of a whole recording choose.

    Raises
    ------
    UsageError
        When the steady part is requested and nothing repeats.
    NothingToTranslate
        When the window is outside of the run.
    """
    events, options = recorded.events, recorded.options
    program = _program(recorded, options.time)
    iterations = find_iterations(recorded, options.per_iteration)
    mpi_work = None if events.rows.devices else _between_phases(mpi_phases(recorded), program)
    times, span = options.window.times, program
    if times is not None:
        span = max(times.begin or 0, program[0]), program[1] if times.end is None else min(times.end, program[1])
        if span[0] >= span[1]:
            raise NothingToTranslate(
                f"the window lies outside of the run, which is from {time(program[0])} to {time(program[1])}"
            )
    elif options.window.name == STEADY:
        if iterations.steady is None:
            raise UsageError(f"--window steady: no iterations are found, as {iterations.reason}; give --window BEGIN:END")
        span = iterations.steady
    return MeasuredWindow(options.window.name, span, program, events.length, iterations, mpi_work)


def _program(recorded: MeasuredRun, selected: TimeRange | None) -> Span:
    """First start and last end of the program's own events; where `--time` selects an edge, that edge."""
    length = recorded.events.length
    frames = [frame for collection in _OF_PROGRAM if (frame := recorded.frame(collection)).height]
    first = max(min((int(frame["start"].to_numpy().min()) for frame in frames), default=0), 0)
    last = min(max((int(frame["end"].to_numpy().max()) for frame in frames), default=length), length)
    begin = 0 if selected is not None and selected.begin is not None else first
    end = length if selected is not None and selected.end is not None else last
    return (begin, end) if end > begin else (0, length)


def mpi_phases(run: MeasuredRun) -> pl.DataFrame:
    """Calls that start or end MPI in a run: columns `task`, `start`, `end`, and `is_start_up`, in the order of time.

    Times are those of the run, and of a call that reaches over an edge of its window the part inside counts.
    """
    kinds = run.calls.select("number", "value").unique().filter(pl.col("number").is_in(event_types.MPI_TYPES.values()))
    name = run.events.named(kinds["number"], kinds["value"])
    kinds = kinds.with_columns(is_start_up=name.str.contains(START_UP_CALLS))
    kinds = kinds.filter(name.str.contains(f"{START_UP_CALLS}|{SHUT_DOWN_CALLS}"))
    calls = run.calls.filter((pl.col("end") > 0) & (pl.col("start") < run.events.length))
    phases = run.events.rows.located(calls.join(kinds, on=["number", "value"], how="inner"))
    return phases.select("task", "start", "end", "is_start_up").sort("start", "task", "end")


def _between_phases(phases: pl.DataFrame, program: Span) -> Span | None:
    """From the end of the last call that starts MPI to the start of the first one that ends it; None: they are not known, or
    nothing is in between."""
    starts, ends = (phases.filter(pl.col("is_start_up") == is_start_up) for is_start_up in (True, False))
    begin = program[0] if starts.is_empty() else int(starts["end"].to_numpy().max())
    end = program[1] if ends.is_empty() else int(ends["start"].to_numpy().min())
    return (begin, end) if phases.height and begin < end else None
