"""Ranges on the GPU in the trace of a real training, against SQL that goes through correlation ids, and in Paraver."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from itertools import pairwise

import polars as pl
import pytest
from support.paramedir import VIEW, Paramedir, Step, joined_steps
from support.whole_trace import WholeTrace, row_of

from .conftest import Translated

REPORT = "pytorch-nccl-2gpu"

TEN = (
    "FSDP::pre_forward (blocks.10._checkpoint_wrapped_module), op_id = 994763",
    "AllToAll4D, seq = 46568, op_id = 995572",
    "FlashAttnFunc, seq = 46496, op_id = 995252",
    "aten::linear, seq = 46498, op_id = 995262",
    "aten::addmm, seq = 46500, op_id = 995267",
    "aten::layer_norm, seq = 46504, op_id = 995274",
    "aten::stack, seq = 46575, op_id = 995619",
    "aten::clone, op_id = 995576",
    "c10d::alltoall_base_, op_id = 995582",
    "nccl:all_to_all, op_id = 995584",
)
"""Ten ranges of both processes, from one kernel to 54 of them."""

_WORK = "start, end, deviceId, streamId, globalPid, correlationId"
_PROJECTION = f"""
    select pid, deviceId, streamId, min(begin), max(finish) from (
      select range.globalTid >> 24 & 0xFFFFFF as pid, deviceId, streamId, work.start as begin, work.end as finish
      from NVTX_EVENTS range
      join CUPTI_ACTIVITY_KIND_RUNTIME call on call.globalTid = range.globalTid and call.start >= range.start
        and call.start < range.end
      join (select {_WORK} from CUPTI_ACTIVITY_KIND_KERNEL union all select {_WORK} from CUPTI_ACTIVITY_KIND_MEMCPY
            union all select {_WORK} from CUPTI_ACTIVITY_KIND_MEMSET) work
        on work.correlationId = call.correlationId and work.globalPid = call.globalTid - call.globalTid % 16777216
      where range.text = ? and range.eventType = 59
    ) group by pid, deviceId, streamId order by pid
"""


def _on_gpu(trace: WholeTrace) -> list[int]:
    return [number for number, label in trace.labels.types.items() if " on the GPU " in label.label]


def _offset(translated: Translated) -> int:
    """What must be added to times of the report; the first push/pop range tells."""
    ((first,),) = translated.query("select min(start) from NVTX_EVENTS where eventType = 59")
    of_host = [number for number in translated.trace.labels.types if number == 9500 or number in range(9600, 9700, 100)]
    begin = translated.trace.intervals(of_host)["begin"].min()
    assert isinstance(begin, int)
    return begin - int(first)


@pytest.mark.parametrize("range_name", TEN)
def test_a_range_begins_and_ends_on_the_gpu_where_sql_says(translation: Callable[[str], Translated], range_name: str) -> None:
    translated = translation(REPORT)
    trace, offset = translated.trace, _offset(translated)
    (host,) = trace.names["NODE"]
    with sqlite3.connect(f"file:{translated.databases[0]}?immutable=1", uri=True) as database:
        expected = [
            (pid, f"CUDA-D{device}.S{stream}-{host}", begin + offset, end + offset)
            for pid, device, stream, begin, end in database.execute(_PROJECTION, (range_name,))
        ]

    # The line where a range begins tells its operation, which is in the name (each process counts them for itself).
    label = re.sub(r"(, (seq|op_id) = \d+)+$", "", range_name)
    values = {
        number: {text: value for value, text in (trace.labels.types[number].values or {}).items()} for number in _on_gpu(trace)
    }
    of_label = pl.DataFrame({"type": list(values), "value": [of_type.get(label, -1) for of_type in values.values()]})
    events = trace.events([9612, *values])
    lines = events.filter((pl.col("type") == 9612) & (pl.col("value") == int(range_name.rpartition(" = ")[2]))).select("line")
    begins = events.join(of_label, on=["type", "value"]).join(lines, on="line").drop("line").rename({"time": "begin"})
    found = begins.join(trace.intervals(list(values)), on=["task", "thread", "type", "value", "begin"])
    rows = found.select(row_of(trace.header, pl.col("task"), pl.col("thread"))).to_series()
    pids = [int(re.findall(r"pid (\d+)", trace.names["TASK"][task - 1])[0]) for task in found["task"]]
    spans = zip(pids, [trace.names["THREAD"][row] for row in rows], found["begin"], found["end"], strict=True)

    assert sorted(spans) == expected
    assert expected


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


def test_paraver_shows_on_the_gpu_the_innermost_range_and_then_the_outer_one_again(
    translation: Callable[[str], Translated], paramedir: Paramedir
) -> None:
    trace = translation(REPORT).trace
    view = VIEW.format(function="Last Evt Val", types="=", composition="Stacked Val").replace(
        "window_selected", "window_filter_module evt_type 1 9650\nwindow_selected"
    )
    shown: dict[tuple[int, int], list[Step]] = {}
    for line in paramedir.show_one(trace.path, view).read_text().splitlines():
        row, begin, length, value = line.split("\t")
        _, task, thread = map(int, row.split("."))
        step = (float(begin), float(begin) + float(length), str(round(float(value))))
        shown.setdefault((task, thread), []).append(step)
    ranges = trace.intervals([9650]).sort("task", "thread", "begin", "depth")
    expected = {
        (int(task), int(thread)): joined_steps(_innermost(of_row.select("begin", "end", "value").rows(), trace.header.end))
        for (task, thread), of_row in ranges.group_by("task", "thread")
    }

    assert {row: joined_steps(shown[row]) for row in expected} == expected
    assert all({step[2] for step in steps} == {"0"} for row, steps in shown.items() if row not in expected)
    assert ranges["depth"].n_unique() >= 4


def _innermost(ranges: list[tuple[int, ...]], last: int) -> list[Step]:
    """What is to be seen on a row with ranges that nest, in the order of begin, outer before inner: the innermost open one."""
    steps: list[Step] = []
    still_open: list[tuple[int, ...]] = []
    following = iter([*ranges, (last, last, 0)])
    coming = next(following)
    for begin, end in pairwise(sorted({0, last, *(time for one in ranges for time in one[:2])})):
        still_open = [one for one in still_open if one[1] > begin]
        while coming[0] == begin:
            still_open.append(coming)
            coming = next(following)
        steps.append((float(begin), float(end), str(still_open[-1][2]) if still_open else "0"))
    return steps
