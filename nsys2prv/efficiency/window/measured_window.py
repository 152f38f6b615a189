"""The window that is measured: the whole program, its steady part, or a part that the user chose; and what is around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nsys2prv.efficiency.efficiency_options import ALL, CHOSEN, STEADY, EfficiencyOptions
from nsys2prv.efficiency.run_events import NCCL_CALLS, ON_DEVICES, ON_HOSTS, RANGES, RunEvents
from nsys2prv.efficiency.window.device_work import whole_span
from nsys2prv.efficiency.window.iterations import RunIterations, Span, find_iterations
from nsys2prv.efficiency.window.mpi_phases import mpi_phases, work_of_processes
from nsys2prv.errors import NothingToTranslate, UsageError
from nsys2prv.run.option_values import TimeRange
from nsys2prv.vocabulary.wording import time

_OF_PROGRAM = (ON_DEVICES, NCCL_CALLS, ON_HOSTS, RANGES)
"""What the program does itself; samples, scheduling and what the profiler does go on before and after it."""
_TELLING = 0.01
"""Least share of the recording that is not of the program and is worth a warning."""


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
        rest = self.recorded - (end - begin)
        if rest <= _TELLING * self.recorded:
            return []
        return [
            f"the recording lasts {time(self.recorded)}, and the program's own events {time(end - begin)} of it: what is "
            f"before and after them (the profiler, samples, scheduling) is not measured"
        ]

    def cut(self, events: RunEvents) -> RunEvents:
        """The events of a run with this window as the selected time."""
        begin, end = self.span
        return replace(events, begin=events.begin + begin, length=end - begin, offset=begin, recorded=self.recorded)


def measured_window(events: RunEvents, options: EfficiencyOptions) -> MeasuredWindow:
    """The window that options choose; collections are looked at and not used up.

    Raises
    ------
    UsageError
        When the steady part is requested and nothing repeats.
    NothingToTranslate
        When the window is outside of the run.
    """
    program = _program(events, options.time)
    iterations = find_iterations(events, options.per_iteration)
    mpi_work = None if events.rows.devices else work_of_processes(mpi_phases(events), program)
    name, times = options.window.name, options.window.times
    if name == CHOSEN and times is not None:
        begin, end = max(times.begin or 0, program[0]), program[1] if times.end is None else min(times.end, program[1])
        if begin >= end:
            raise NothingToTranslate(
                f"the window lies outside of the run, which is from {time(program[0])} to {time(program[1])}"
            )
        return MeasuredWindow(CHOSEN, (begin, end), program, events.length, iterations, mpi_work)
    if name == STEADY:
        if iterations.steady is None:
            raise UsageError(f"--window steady: no iterations are found, as {iterations.reason}; give --window BEGIN:END")
        return MeasuredWindow(STEADY, iterations.steady, program, events.length, iterations)
    return MeasuredWindow(ALL, program, program, events.length, iterations, mpi_work)


def _program(events: RunEvents, chosen: TimeRange | None) -> Span:
    collections = [events.collections[one.name] for one in _OF_PROGRAM if one.name in events.collections]
    span = whole_span(collections)
    first, last = (0, events.length) if span is None else (max(span[0], 0), min(span[1], events.length))
    begin = 0 if chosen is not None and chosen.begin is not None else first
    end = events.length if chosen is not None and chosen.end is not None else last
    return (begin, end) if end > begin else (0, events.length)
