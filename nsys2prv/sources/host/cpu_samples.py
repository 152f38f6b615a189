"""Samples of what runs on CPUs: thread, CPU, thread state, cycles, and call chains."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import labelled
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.host import call_chains
from nsys2prv.sources.host.call_chains import SAMPLED_FUNCTIONS, SAMPLED_MODULES
from nsys2prv.sources.host.profiled import FOREIGN, SAMPLES, of_profiled
from nsys2prv.sources.source import LEFT_OUT, RowKind, Source
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role

CPU_SAMPLE = EventType(30000300, "CPU sample, thread state", Role.MARK, event_types.THREAD_STATE_VALUES)
SAMPLED_CYCLES = EventType(30000301, "CPU sample, cycles", Role.ATTRIBUTE, unit="cycles")


_OF_SCHEDULING = "stacks of changes of a thread's state, which are no samples"
_CHAINS = "SAMPLING_CALLCHAINS"
_TYPES = {call_chains.FUNCTION: SAMPLED_FUNCTIONS, call_chains.MODULE: SAMPLED_MODULES}


def _samples(report: Report) -> pl.LazyFrame:
    states = enum_labels(report, "ENUM_SAMPLING_THREAD_STATE", event_types.THREAD_STATES)
    samples = CPU_SAMPLES.scan(report).filter(of_profiled(report, SAMPLES))
    return samples.select(
        "id",
        "globalTid",
        "start",
        "cpu",
        pl.col("cpuCycles").alias(str(SAMPLED_CYCLES)),
        end=pl.col("start"),
        type=pl.lit(CPU_SAMPLE, pl.Int64),
        label=labelled("threadState", states, "thread state").fill_null(event_types.THREAD_STATES[0]),
        **{LEFT_OUT: pl.when(pl.col("cpuCycles") == 0).then(pl.lit(_OF_SCHEDULING))},
    )


def _frame(report: Report) -> pl.LazyFrame:
    samples = _samples(report).drop("id")
    if not report.has_rows(_CHAINS):
        return samples
    names = call_chains.names(report, _CHAINS, _TYPES).with_columns(type=pl.lit(CPU_SAMPLE, pl.Int64))
    return pl.concat([samples, names], how="diagonal")


def _gather(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    if not report.has_rows(_CHAINS):
        yield from report.pieces(lambda piecewise: _samples(piecewise).drop("id"), 60_000)
        return
    for piece in call_chains.with_chains(report, _samples, "id", _CHAINS, _TYPES, folder):
        yield piece.drop("id")


CPU_SAMPLES = Source(
    name="cpu-samples",
    title="CPU samples",
    table=SAMPLES,
    required=("id", "start", "globalTid"),
    optional=("cpu", "threadState", "cpuCycles"),
    row=RowKind.THREAD,
    types=(CPU_SAMPLE, SAMPLED_CYCLES, *SAMPLED_FUNCTIONS, *SAMPLED_MODULES),
    frame=_frame,
    times=("start", "start"),
    stream=_gather,
    unread_reason=FOREIGN,
)
