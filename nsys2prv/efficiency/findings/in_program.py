"""Where in the program host threads are: functions that were sampled most, the NVTX range, and MPI that was not recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings.finding import Finding, Number
from nsys2prv.efficiency.intervals import Elapsed, Intervals, expanded, search, segments
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import FUNCTION_SAMPLES, RANGES
from nsys2prv.sources.host import call_chains
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, short

_MOST_FUNCTIONS = 3
_FEWEST_SAMPLES = 10
"""Samples from which on the functions that have most of them are named."""
_LEAST_IN_RANGE = 0.5
"""Least part of the time in an NVTX range that is named."""
_LEAST_IN_MPI = 0.01
_OF_MPI = r"(?i)(?:^|/)lib(?:mpi|pmpi|mpich|open-pal|open-rte|ucp|uct|ucs|ucm|psm2|fabric)[^/]*$|^P?MPI_|^(?:ucp|uct|ucs)_"
"""Modules and functions of MPI and of the libraries below it."""


def in_program(finding: Finding, run: MeasuredRun, times: pl.DataFrame | None) -> Finding:
    """A finding with the functions that were sampled most in some times of host threads, and with the shortest NVTX ranges
    that hold most of them.

    Parameters
    ----------
    times
        `row` of the thread (-1: not known), `begin`, `end` (ns); None: they are not known.
    """
    if times is None or (times := times.filter(pl.col("row") >= 0).sort("row", "begin")).is_empty():
        return finding
    text, functions = finding.text, _most_sampled(run, times)
    if functions:
        text += f"; of CPU samples of these threads meanwhile, most are in {', '.join(f'{of.what} {of}' for of in functions)}"
    ranges = _range_of(run, times)
    if ranges:
        text += f"; {ranges[0]} of the time is in the NVTX range {ranges[0].what}"
    functions = [replace(number, what=f"CPU samples in {number.what}") for number in functions]
    ranges = [replace(number, what=f"time in the NVTX range {number.what}") for number in ranges]
    return replace(finding, text=text, numbers=[*finding.numbers, *functions, *ranges])


def _samples(run: MeasuredRun) -> pl.DataFrame:
    """CPU samples with call chains by thread and time: `row`, `start`, names of the innermost `function` and its `module`."""
    samples = run.frame(FUNCTION_SAMPLES).drop_nulls("function").sort("row", "start")
    names = {"function": call_chains.SAMPLED_FUNCTION, "module": call_chains.SAMPLED_MODULE}
    return samples.select("row", "start").with_columns(
        run.events.named(pl.repeat(int(number), samples.height, dtype=pl.Int64, eager=True), samples[name])
        .fill_null("not known")
        .alias(name)
        for name, number in names.items()
    )


def _most_sampled(run: MeasuredRun, times: pl.DataFrame) -> list[Number]:
    """Functions with most samples in some times, with their part of these samples."""
    samples = _samples(run)
    row, time = (samples[name].to_numpy().astype(np.int64) for name in ("row", "start"))
    of_row, begin, end = (times[name].to_numpy().astype(np.int64) for name in ("row", "begin", "end"))
    first, last = (search(row, time, of_row, edge - 1) for edge in (begin, end))
    inside = samples[np.unique(expanded(first + 1, last)[1])]
    by_function = inside.group_by("function", "module").len()
    top = by_function.sort("len", "function", "module", descending=[True, False, False]).head(_MOST_FUNCTIONS)
    return [
        Number(f"{short(function)} of {short(module)}", count / inside.height, "0 to 1")
        for function, module, count in top.iter_rows()
        if inside.height >= _FEWEST_SAMPLES
    ]


def _range_of(run: MeasuredRun, times: pl.DataFrame) -> list[Number]:
    """The NVTX range that holds most of some times, of several the shortest, with its part of them; none, or one."""
    together = segments(Intervals.of(*(times[name].to_numpy() for name in ("row", "begin", "end"))))
    is_inside = (together.counts[0] > 0).astype(np.int64)
    ranges, total = run.frame(RANGES), int(together.length[is_inside > 0].sum())
    if ranges.is_empty() or not total:
        return []
    edges = (ranges[name].to_numpy().astype(np.int64) for name in ("row", "start", "end"))
    inside = pl.Series(Elapsed(together, is_inside, 2).between(*edges)[:, 1])
    by_name = ranges.with_columns(inside=inside).group_by("number", "value")
    holding = by_name.agg(pl.col("inside").sum(), length=(pl.col("end") - pl.col("start")).mean())
    holding = holding.filter(pl.col("inside") >= _LEAST_IN_RANGE * total).sort("length", "number", "value").head(1)
    names = run.events.named(holding["number"], holding["value"])
    # A range inside another one of its name holds the same time.
    return [Number(short(names[0]), min(holding["inside"][0] / total, 1.0), "0 to 1")] if len(names) else []


@dataclass(frozen=True)
class UnrecordedMpi(Measurement):
    """CPU samples in MPI, and in libraries below it, of a run whose MPI was not recorded: of all (`total`), and `by_module`."""

    total: int
    by_module: pl.DataFrame

    @property
    def warnings(self) -> Sequence[str]:
        """That waits for other ranks look like work of hosts."""
        in_mpi = int(self.by_module["count"].sum())
        if in_mpi < max(_FEWEST_SAMPLES, _LEAST_IN_MPI * self.total):
            return []
        modules = ", ".join(map(short, self.by_module["module"].head(_MOST_FUNCTIONS)))
        return [
            f"{percent(in_mpi / self.total)} of the CPU samples are in {modules}, and MPI was not recorded (--trace=mpi): "
            "waits for other ranks count as work of hosts"
        ]


def unrecorded_mpi(run: MeasuredRun) -> UnrecordedMpi:
    """Look for MPI in the CPU samples of a run without MPI calls."""
    samples = _samples(run)
    if set(event_types.MPI_TYPES.values()) & run.events.types.keys():
        samples = samples.clear()
    is_mpi = pl.any_horizontal(pl.col("function", "module").str.contains(_OF_MPI))
    by_module = samples.filter(is_mpi)["module"].value_counts().sort("count", "module", descending=[True, False])
    return UnrecordedMpi(samples.height, by_module)
