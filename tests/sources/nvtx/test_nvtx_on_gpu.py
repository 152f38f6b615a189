"""NVTX ranges on the GPU, and what autograd writes into names of ranges."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report_builder import ReportBuilder
from support.traces import trace_of
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.execution import external_sort
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.run.inspect import inspect
from nsys2prv.run.options import NvtxRange
from nsys2prv.sources.lanes import NestedLanes
from nsys2prv.sources.nvtx import nvtx_on_gpu, nvtx_ranges
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types

ON_GPU = "NVTX pushpop ranges on the GPU {} domain"


class Projected(NamedTuple):
    """One range on the GPU: label of its type, name, name of its row, begin and end in ns of the report."""

    type: str
    name: str
    row: str
    begin: int
    end: int


def on_gpu(trace: WholeTrace) -> list[Projected]:
    """Ranges on the GPU, in time of the trace, in the order of begin and depth."""
    on_gpus = [number for number, used in trace.labels.types.items() if " on the GPU" in used.label]
    found = trace.named(trace.intervals(on_gpus).sort("task", "thread", "type", "begin", "depth"))
    return [Projected(*one) for one in found.select("label", "name", "row", "begin", "end").iter_rows()]


def spans(trace: WholeTrace) -> dict[str, tuple[int, int]]:
    return {found.name: (found.begin, found.end) for found in on_gpu(trace)}


def test_a_range_reaches_from_its_first_kernel_to_its_last_and_ranges_nest_as_on_the_host(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("step", 0, 100).nvtx_range("forward", 10, 40).nvtx_range("same work", 11, 39).nvtx_range(
        "no work", 50, 60
    )
    report.copy(5, 25, 8, launch=(5, 6))
    report.kernel("one", 100, 200, launch=(20, 22))
    report.kernel("two", 200, 310, launch=(30, 32))
    report.memset(400, 410, 8, launch=(90, 95))
    report.kernel("outside", 500, 510, launch=(110, 120))
    report.kernel("of nobody", 600, 610)
    trace = trace_of(tmp_path, report)
    default = ON_GPU.format("default")
    assert on_gpu(trace) == [
        Projected(default, "step", "CUDA-D0.S7-node01", 5, 410),
        Projected(default, "forward", "CUDA-D0.S7-node01", 100, 310),
        Projected(default, "same work", "CUDA-D0.S7-node01", 100, 310),
    ]
    # The same name has the same value as on the host.
    on_host, beside = (
        trace.labels.types[event_types.NVTX_PUSHPOP].values,
        trace.labels.types[nvtx_on_gpu.NVTX_PUSHPOP_ON_GPU].values,
    )
    assert on_host == beside


def test_work_of_another_thread_or_process_or_without_a_range_is_not_that_of_a_range(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.process(2000)
    report.nvtx_range("mine", 0, 100).nvtx_range("theirs", 0, 100, pid=2000, tid=2000)
    for tid, pid, kernel in ((1000, 1000, (110, 120)), (1001, 1000, (130, 140)), (2000, 2000, (150, 160))):
        # Correlation ids repeat between processes.
        report.api_call("cudaLaunchKernel_v7000", 10, 15, tid=tid, pid=pid, correlation=7 + tid % 2)
        report.kernel("k", *kernel, pid=pid, correlation=7 + tid % 2)
    assert spans(trace_of(tmp_path, report)) == {"mine": (110, 120), "theirs": (150, 160)}


def test_a_range_lies_on_each_stream_and_device_it_launched_work_on(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0).gpu(1, cuda=1).nvtx_range("step", 0, 100)
    report.kernel("a", 200, 210, launch=(1, 2), stream=7)
    report.kernel("b", 205, 230, launch=(3, 4), stream=13)
    report.copy(150, 160, 8, launch=(5, 6), stream=13)
    report.kernel("c", 220, 240, launch=(7, 8), stream=7, device=1, context=2)
    assert [found[2:] for found in on_gpu(trace_of(tmp_path, report))] == [
        ("CUDA-D0.S7-node01", 200, 210),
        ("CUDA-D0.S13-node01", 150, 230),
        ("CUDA-D1.S7-node01", 220, 240),
    ]


def test_executions_of_graphs_and_all_nodes_of_one_launch_count(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("whole graph", 0, 10).nvtx_range("its nodes", 20, 30)
    report.graph(100, 200, launch=(5, 6))
    launch = report.api_call("cudaGraphLaunch_v10000", 25, 26)
    for start in (300, 320, 340):
        report.kernel("node", start, start + 10, correlation=launch, graphNodeId=start)
    assert spans(trace_of(tmp_path, report)) == {"whole graph": (100, 200), "its nodes": (300, 350)}


def test_each_domain_has_the_type_beside_its_type_on_the_host(tmp_path: Path) -> None:
    report = ReportBuilder()
    for at, domain in enumerate(("", "idle", "zeta", "NCCL")):
        name = {"NCCL": "ncclAllReduce"}.get(domain, f"range of {domain}")
        report.nvtx_range(name, 100 * at, 100 * at + 50, domain=domain)
        if domain != "idle":
            report.kernel("k", 100 * at + 60, 100 * at + 70, launch=(100 * at + 10, 100 * at + 20))
    trace = trace_of(tmp_path, report)
    on_host = {name: number for number, used in trace.labels.types.items() for name in [used.label] if "GPU" not in used.label}
    assert on_host["NVTX pushpop ranges zeta domain"] == 9800
    found = trace.intervals([9590, 9650, 9850]).select("type", "begin", "end").sort("type").rows()
    assert found == [(9590, 360, 370), (9650, 60, 70), (9850, 260, 270)]
    assert trace.labels.types[9850].label == ON_GPU.format("zeta")
    assert trace.labels.types[9590].label == "NCCL regions on the GPU"


def test_start_end_ranges_that_overlap_freely_and_unclosed_ranges(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_start_end("one", 0, 20).nvtx_start_end("two", 10, 40, end_tid=1001).nvtx_range("never closed", 30, None)
    for launch, kernel in ((5, (100, 110)), (15, (110, 120)), (35, (120, 130))):
        report.kernel("k", *kernel, launch=(launch, launch + 1))
    trace = trace_of(tmp_path, report)
    assert spans(trace) == {"one": (100, 120), "two": (110, 130), "never closed": (120, 130)}
    assert {found.name: found.type for found in on_gpu(trace)} == {
        "one": "NVTX startend ranges on the GPU",
        "two": "NVTX startend ranges on the GPU (overlap 1)",
        "never closed": ON_GPU.format("default"),
    }


def test_ranges_of_two_threads_on_one_stream_do_not_cut_each_other_off(tmp_path: Path) -> None:
    report = ReportBuilder()
    for thread, start in ((1000, 110), (1001, 120)):
        report.nvtx_range(f"thread {thread}", 0, 100, tid=thread)
        launch = report.api_call("cudaLaunchKernel_v7000", 10, 15, tid=thread)
        for at in (start, start + 40):
            report.kernel("k", at, at + 5, correlation=launch)
    default = ON_GPU.format("default")
    assert [(found.type, found.name, found.begin, found.end) for found in on_gpu(trace_of(tmp_path, report))] == [
        (default, "thread 1000", 110, 155),
        (f"{default} (overlap 1)", "thread 1001", 120, 165),
    ]


def test_projections_lie_on_the_first_row_of_a_stream_whose_kernels_overlap(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("both", 0, 10)
    report.kernel("a", 20, 50, launch=(1, 2))
    report.kernel("b", 30, 60, launch=(3, 4))
    trace = trace_of(tmp_path, report)
    assert trace.names["THREAD"].count("CUDA-D0.S7-node01") == 2
    assert trace.intervals([nvtx_on_gpu.NVTX_PUSHPOP_ON_GPU]).select("thread", "begin", "end").rows() == [(2, 20, 60)]


def test_without_ranges_or_work_or_calls_there_is_nothing(tmp_path: Path) -> None:
    no_ranges, no_work, no_calls = ReportBuilder(), ReportBuilder(), ReportBuilder()
    no_ranges.kernel("k", 10, 20, launch=(1, 2))
    no_work.nvtx_range("r", 0, 10)
    no_calls.nvtx_range("r", 0, 10).kernel("k", 10, 20, correlation=5)
    for name, report in {"a": no_ranges, "b": no_work, "c": no_calls}.items():
        folder = tmp_path / name
        folder.mkdir()
        assert on_gpu(trace_of(folder, report)) == []


def test_the_ledger_has_no_rows_of_projections_and_they_can_be_left_out(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("r", 0, 10).kernel("k", 20, 30, launch=(5, 6))
    path = report.write(tmp_path / "report.sqlite")
    tables = translate([path], tmp_path / "with", TranslateOptions(no_views=True)).content["reports"][0]["tables"]
    table = next(table for table in tables if table["table"] == "NVTX_EVENTS")
    assert table["rows"] == 1
    assert table["left_out"] == {}
    told = [(one["source"], one["rows"], one["written"]) for one in (*table["sources"], *table["derived"])]
    assert told == [("nvtx", 1, 1), ("nvtx-gpu", 0, 1)]
    (inspected,) = inspect([path])
    assert {source["source"]: source["rows"] for table in inspected["tables"] for source in table["sources"]} == {
        "kernels": 1, "cuda-api": 1, "nvtx": 1,
    }  # fmt: skip
    assert on_gpu(open_whole(translate([path], tmp_path / "without", TranslateOptions(skip=("nvtx-gpu",))).prv)) == []
    alone = open_whole(translate([path], tmp_path / "alone", TranslateOptions(only=("nvtx-gpu",), no_views=True)).prv)
    assert [found.name for found in on_gpu(alone)] == ["r"]


def test_in_a_part_of_the_time_projections_are_clipped_and_nest(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("outer", 0, 50).nvtx_range("inner", 10, 20)
    report.kernel("a", 100, 200, launch=(15, 16))
    report.kernel("b", 300, 400, launch=(30, 31))
    report.nvtx_range("cut", 150, 350, domain="cut")
    trace = trace_of(tmp_path, report, options=TranslateOptions(nvtx=NvtxRange("cut")))
    assert spans(trace) == {"outer": (0, 200), "inner": (0, 50)}


def test_forward_and_backward_of_an_operator_have_one_sequence_id_on_host_and_gpu(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("aten::mm, seq = 0, op_id = 3, sizes = [[2, 3], [3, 4]], input_op_ids = [(1,0), (2,0)]", 0, 10)
    report.nvtx_range("aten::empty, op_id = 4", 1, 3)
    report.kernel("gemm", 20, 30, launch=(5, 6))
    report.nvtx_range("autograd::engine::evaluate_function: MmBackward0, op_id = 50", 100, 140, tid=1001)
    report.nvtx_range("MmBackward0, seq = 0, op_id = 51", 110, 130, tid=1001)
    launch = report.api_call("cudaLaunchKernel_v7000", 120, 121, tid=1001)
    report.kernel("gemm", 200, 210, correlation=launch)
    trace = trace_of(tmp_path, report)
    host = trace.named(trace.intervals([event_types.NVTX_PUSHPOP]))
    assert sorted(host["name"]) == [
        "MmBackward0", "aten::empty", "aten::mm", "autograd::engine::evaluate_function: MmBackward0",
    ]  # fmt: skip
    # Sequence, direction and operation stand on the lines of both.
    begins = trace.events(list(nvtx_ranges.AUTOGRAD_TYPES)).filter(pl.col("value") != 0)
    told = {
        (thread, time, kind): value
        for thread, time, kind, value in begins.select("thread", "time", "type", "value").iter_rows()
    }
    sequence, direction, operation, sizes = nvtx_ranges.AUTOGRAD_TYPES
    stream = 3
    assert told == {
        (1, 0, sequence): 1, (1, 0, direction): 1, (1, 0, operation): 3, (1, 0, sizes): 1,
        (1, 1, operation): 4,
        (2, 100, direction): 2, (2, 100, operation): 50,
        (2, 110, sequence): 1, (2, 110, direction): 2, (2, 110, operation): 51,
        (stream, 20, sequence): 1, (stream, 20, direction): 1, (stream, 20, operation): 3, (stream, 20, sizes): 1,
        (stream, 200, direction): 2, (stream, 200, operation): 50,
    } | {(stream, 200, sequence): 1, (stream, 200, operation): 51}  # fmt: skip
    assert trace.labels.types[direction].values == {0: "End", 1: "forward", 2: "backward"}
    assert trace.labels.types[sizes].values == {0: "End", 1: "((2, 3), (3, 4))"}


@pytest.mark.parametrize(
    ("text", "label", "sequence", "direction", "operation", "sizes"),
    [
        ("aten::mm, seq = 7, op_id = 12", "aten::mm", 8, "forward", 12, None),
        ("aten::copy_, op_id = 999929", "aten::copy_", None, None, 999929, None),
        ("aten::add, seq = 7, sizes = [[], [2]]", "aten::add", 8, "forward", None, "[[], [2]]"),
        ("AddBackward0, stashed seq=7", "AddBackward0", 8, "backward", None, None),
        ("SomeNode, stashed seq = 7", "SomeNode", 8, "backward", None, None),
        ("FlashAttnFuncBackward, seq = 7, op_id = 3", "FlashAttnFuncBackward", 8, "backward", 3, None),
        ("CppFunction<Backward>, seq = 7", "CppFunction<Backward>", 8, "forward", None, None),
        ("torch::autograd::AccumulateGrad, op_id = 8", "torch::autograd::AccumulateGrad", None, "backward", 8, None),
        ("RegisterPostBackwardFunction, seq = 7", "RegisterPostBackwardFunction", 8, "forward", None, None),
        ("FSDP::pre (blocks.1), op_id = 8", "FSDP::pre (blocks.1)", None, None, 8, None),
        ("a, sizes = [[1, 2], [3", "a", None, None, None, "[[1, 2], [3"),
        ("a, seq = 18446744073709551615", "a", None, None, None, None),
        # These are what users write.
        ("Backward", "Backward", None, None, None, None),
        ("iteration, seq = 5 of 7", "iteration, seq = 5 of 7", None, None, None, None),
        ("load, sizes = big", "load, sizes = big", None, None, None, None),
        ("x, seqs = 5", "x, seqs = 5", None, None, None, None),
        ("", "", None, None, None, None),
    ],
)
def test_what_a_name_of_autograd_tells(
    text: str, label: str, sequence: int | None, direction: str | None, operation: int | None, sizes: str | None
) -> None:
    found = nvtx_ranges.with_autograd(pl.LazyFrame({"label": [text], "other": [1]})).collect()
    assert found.select("label", "other", *map(str, nvtx_ranges.AUTOGRAD_TYPES)).rows() == [
        (label, 1, sequence, direction, operation, sizes)
    ]
    assert pl.select(nvtx_ranges.name_of(pl.lit(text))).item() == label


def test_a_range_of_autograd_is_found_by_the_name_that_the_trace_shows(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("aten::mm, seq = 1", 0, 10).nvtx_range("aten::mm, seq = 2", 20, 30).nvtx_range(
        "aten::add, seq = 3", 40, 50
    )
    path = report.write(tmp_path / "r.sqlite")
    one = translate([path], tmp_path / "one", TranslateOptions(nvtx=NvtxRange("aten::mm, seq = 2")))
    both = translate([path], tmp_path / "both", TranslateOptions(nvtx=NvtxRange("aten::mm")))
    assert one.content["trace"]["windows_ns"] == [[20, 30]]
    assert both.content["trace"]["windows_ns"] == [[0, 10], [20, 30]]


# -- against a plain way of doing it ------------------------------------------------------------------------------------
times = st.integers(0, 40)
lengths = st.integers(0, 15)
a_range = st.tuples(st.integers(0, 1), times, lengths)
a_launch = st.tuples(st.integers(0, 2), st.integers(0, 2), times, st.integers(0, 60), lengths)


@given(
    ranges=st.lists(a_range, max_size=25),
    launches=st.lists(a_launch, max_size=40),
    limits=st.sampled_from([(1000, 1000, 1000), (7, 10, 3), (2, 3, 1)]),
    pairs=st.sampled_from([1_000_000, 3]),
    is_merged=st.booleans(),
)
def test_projections_are_those_that_a_look_at_each_range_and_each_launch_gives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranges: list[tuple[int, int, int]],
    launches: list[tuple[int, int, int, int, int]],
    limits: tuple[int, int, int],
    pairs: int,
    is_merged: bool,
) -> None:
    key = ["globalPid", "deviceId", "contextId", "streamId"]
    with monkeypatch.context() as patch:
        for name, limit in zip(("RUN_ROWS", "WINDOW_ROWS", "_BATCH_ROWS"), limits, strict=True):
            patch.setattr(external_sort, name, limit)
        patch.setattr(nvtx_on_gpu, "_PAIRS", pairs)
        of_ranges, of_launches = (
            ExternalSort(["hostStart"], tmp_path / "ranges"),
            ExternalSort(["callStart"], tmp_path / "launches"),
        )
        for number, (thread, start, length) in enumerate(ranges):
            row = {"range": number, "globalTid": thread, "hostStart": start, "hostEnd": start + length, "label": f"r{number}"}
            of_ranges.add(pl.DataFrame([row]))
        rows = [
            {"callTid": thread, "callStart": call, **dict.fromkeys(key, stream), "start": start, "end": start + length}
            for thread, stream, call, start, length in launches
        ]
        edges = np.sort(np.array([edge for _, start, length in ranges for edge in (start, start + length)]))
        for some in [rows] if is_merged else [[row] for row in rows]:
            if some:
                of_launches.add(nvtx_on_gpu._merged(pl.DataFrame(some), edges))
        found = [
            row
            for frame in nvtx_on_gpu.project(of_ranges, of_launches)
            for row in frame.select("label", "streamId", "start", "end").iter_rows()
        ]
    expected = []
    for number, (thread, start, length) in enumerate(ranges):
        for stream in range(3):
            work = [
                (begin, begin + duration)
                for of_thread, of_stream, call, begin, duration in launches
                if (of_thread, of_stream) == (thread, stream) and start <= call < start + length
            ]
            if work:
                expected.append((f"r{number}", stream, min(begin for begin, _ in work), max(end for _, end in work)))
    assert sorted(found) == sorted(expected)


def crossing(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    (_, begin, end), (_, other_begin, other_end) = sorted([one, other], key=lambda span: (span[1], -span[2]))
    return begin < other_begin < end < other_end


def in_order(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return sorted(((row, begin, begin + length) for row, begin, length in ranges), key=lambda span: (span[1], -span[2]))


def pieces(frame: pl.DataFrame, cuts: set[int]) -> Iterator[pl.DataFrame]:
    for begin, end in zip([-1, *sorted(cuts)], [*sorted(cuts), 1000], strict=True):
        yield frame.filter((pl.col("start") > begin) & (pl.col("start") <= end))


@given(ranges=st.lists(a_range, max_size=30), cuts=st.sets(times, max_size=4))
def test_on_one_lane_ranges_nest_or_lie_apart_and_on_the_first_one_is_all_that_nests_anyway(
    ranges: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    ordered = in_order(ranges)
    frame = pl.DataFrame(ordered, schema=dict.fromkeys(("row", "start", "end"), pl.Int64), orient="row")
    step = NestedLanes("row")
    found = pl.concat([step(piece) for piece in pieces(frame, cuts)])
    assert found.drop("lane").equals(frame)
    lanes: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for row, begin, end, lane in found.iter_rows():
        lanes.setdefault((row, lane), []).append((row, begin, end))
    for of_lane in lanes.values():
        assert not any(crossing(one, other) for one, other in combinations(of_lane, 2))
    for row in {row for row, *_ in ordered}:
        of_row = [span for span in ordered if span[0] == row]
        if not any(crossing(one, other) for one, other in combinations(of_row, 2)):
            assert {lane for of, lane in lanes if of == row} == {0}
        used = {lane for of, lane in lanes if of == row}
        assert used == set(range(len(used)))


def test_where_nothing_else_is_open_a_range_is_on_the_first_lane() -> None:
    frame = pl.DataFrame({"row": [0] * 6, "start": [0, 5, 20, 21, 30, 35], "end": [10, 15, 28, 25, 40, 45]})
    for cut in (100, 0, 5, 20, 30):
        step = NestedLanes("row")
        assert pl.concat([step(piece) for piece in pieces(frame, {cut})])["lane"].to_list() == [0, 1, 0, 0, 0, 1]
