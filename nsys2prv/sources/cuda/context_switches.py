"""Switches of the context that runs on a GPU."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import labelled, pid_of
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.source import CONTINUATION, RowKind, Source
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

GPU_CONTEXT = EventType(63000200, "GPU context that runs", Role.SAMPLE, ValueSet("gpu contexts"))
GPU_CONTEXT_SWITCH = EventType(63000201, "GPU context switch", Role.MARK, ValueSet("gpu context switches"))


_SAVE_END, _RESTORE_START, _CONTEXT_START = 7, 8, 9
"""`tag` of the switches where a context has left the GPU, and where one comes back to it or begins to run."""


def _source(table: str, since: str) -> Source:
    def frame(report: Report) -> pl.LazyFrame:
        switches = source.scan(report).with_columns(gpu="gpuId", start="timestamp", end="timestamp")
        common = ("gpu", "start", "end")
        marks = switches.select(
            *common,
            label=labelled("tag", enum_labels(report, "ENUM_GPU_CTX_SWITCH"), "switch"),
            type=pl.lit(GPU_CONTEXT_SWITCH, pl.Int64),
        )
        begins = pl.col("tag") != _SAVE_END
        pid = pid_of(pl.col("globalPid"))
        context = pl.concat_str(pl.lit("context "), "contextId", pl.coalesce(pl.format(" of pid {}", pid), pl.lit("")))
        runs = switches.filter(pl.col("tag").is_in([_SAVE_END, _RESTORE_START, _CONTEXT_START])).select(
            *common,
            label=pl.when(begins).then(context),
            type=pl.lit(GPU_CONTEXT, pl.Int64),
            value=pl.when(~begins).then(pl.lit(0, pl.Int64)),
            **{CONTINUATION: pl.lit(True)},
        )
        return pl.concat([marks, runs], how="diagonal")

    source = Source(
        name="gpu-contexts",
        title="GPU context switches",
        table=table,
        required=("tag", "contextId", "timestamp", "gpuId"),
        optional=("globalPid",),
        row=RowKind.GPU,
        types=(GPU_CONTEXT, GPU_CONTEXT_SWITCH),
        frame=frame,
        times=("timestamp", "timestamp"),
        since=since,
        assumption="A context runs from its switch 8 (restore) or 9 (start) to the next switch 7 (save end) of the GPU.",
    )
    return source


SWITCHES = _source("GPU_CONTEXT_SWITCH_EVENTS", "3.7")
SWITCHES_UP_TO_3_0 = _source("FECS_EVENTS", "")
