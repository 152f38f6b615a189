"""Ranges on the GPU in the trace of a real training, against SQL that goes through correlation ids, and in Paraver."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
from support.whole_trace import WholeTrace, row_of

from .conftest import Translated

REPORT = "pytorch-nccl-2gpu"


def _on_gpu(trace: WholeTrace) -> list[int]:
    return [number for number, label in trace.labels.types.items() if " on the GPU " in label.label]


def test_ranges_that_touch_do_not_share_the_call_between_them(translation: Callable[[str], Translated]) -> None:
    # Six launches start when Warmup ends: with their kernels there are 32,257 ns of kernels in it.
    trace = translation("gpu-metrics-a100").trace
    warm_up = [number for number in _on_gpu(trace) if "Warmup" in (trace.labels.types[number].values or {}).values()]
    values = [
        value for number in warm_up for value, text in (trace.labels.types[number].values or {}).items() if text == "Warmup"
    ]
    ((begin, end),) = trace.intervals(warm_up).filter(pl.col("value").is_in(values)).select("begin", "end").rows()
    kernels = trace.intervals([number for number in trace.labels.types if 63000006 <= number < 63000007])
    inside = kernels.filter((pl.col("begin") >= begin) & (pl.col("end") <= end))
    assert inside.select(pl.col("end") - pl.col("begin")).sum().item() == 21_409
    # Ranges that touch on the host do not overlap on the GPU.
    assert not any("overlap" in used.label for used in trace.labels.types.values() if " on the GPU" in used.label)


def test_ranges_on_the_gpu_have_the_sequence_ids_of_their_names(translation: Callable[[str], Translated]) -> None:
    translated = translation(REPORT)
    trace = translated.trace
    names = translated.query("select text from NVTX_EVENTS where text like '%, seq = %'")
    expected = sorted(int(re.findall(r"seq = (\d+)", name)[0]) + 1 for (name,) in names)
    told = trace.events([9610]).filter(pl.col("value") != 0).select("task", "thread", "value")
    rows = told.select(row_of(trace.header, pl.col("task"), pl.col("thread"))).to_series()
    is_stream = pl.Series([trace.names["THREAD"][row].startswith("CUDA-") for row in rows])

    assert sorted(told.filter(~is_stream)["value"]) == expected
    assert set(told.filter(is_stream)["value"]) <= set(expected)
    assert is_stream.sum() > 4_000
    # One name for each operator, not one for each sequence id.
    assert len(trace.labels.types[9600].values or {}) < 200
