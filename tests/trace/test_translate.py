"""A small report, and the whole trace that it must give."""

import gzip
import json
from pathlib import Path

import pytest
from support.report_builder import ReportBuilder
from support.trace_properties import assert_account_balances
from support.traces import labels_of, table_summary, trace_of, translate_reports
from support.whole_trace import open_whole

from nsys2prv.errors import NothingToTranslate
from nsys2prv.run.options import NvtxRange, TimeRange
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types


def intervals(summary: Summary, *types: int) -> list[tuple[int, ...]]:
    found = open_whole(summary.prv).intervals(types).sort("begin", "end", "task", "thread")
    return found.select("task", "thread", "begin", "end", "value").rows()


def test_a_launch_and_its_kernel_give_this_trace_and_no_other(tmp_path: Path) -> None:
    report = ReportBuilder(host="nid001", pid=1000)
    report.gpu(0)
    report.kernel("gemm", 3000, 5000, launch=(1000, 1500), stream=7, registersPerThread=32)
    summary = translate_reports(tmp_path, report)
    assert summary.prv.read_text().splitlines() == [
        "#Paraver (14/11/2023 at 22:13):4000_ns:1(64):1:1(2:1)",
        "1:0:1:1:1:0:500:32",
        "2:0:1:1:1:0:63000000:18:9200:1",
        "3:0:1:1:1:0:0:0:1:1:2:2000:2000:0:55001",
        "1:0:1:1:2:0:2000:0",
        "1:0:1:1:1:500:4000:1",
        "2:0:1:1:1:500:63000000:0:9200:0",
        "1:0:1:1:2:2000:4000:1",
        "2:0:1:1:2:2000:63000006:19:9101:1:9102:1:9103:1:9104:128:9105:1:9106:1:9107:0:9108:0:9109:0:9110:32:9200:1:63000121:20",
        "2:0:1:1:2:4000:63000006:0:9101:0:9102:0:9103:0:9104:0:9105:0:9106:0:9107:0:9108:0:9109:0:9110:0:9200:0:63000121:0",
    ]
    trace = open_whole(summary.prv)
    assert trace.names["NODE"] == ("nid001",)
    assert trace.names["TASK"] == ("nid001 pid 1000 python3",)
    assert trace.names["THREAD"] == ("python3 tid 1000", "CUDA-D0.S7-nid001")
    assert labels_of(trace, event_types.CUDA_CALL) == {0: "End", 18: "cudaLaunchKernel"}
    assert labels_of(trace, event_types.KERNEL) == {0: "End", 19: "gemm"}
    assert labels_of(trace, event_types.KERNEL_FAMILY) == {0: "End", 20: "GEMM"}


def test_all_forms_of_a_report_give_the_same_bytes(tmp_path: Path) -> None:
    # From 128 on hardware ids make global ids negative in SQLite and large in Parquet.
    report = ReportBuilder(rank=0, with_mpi=True, hardware=200)
    report.gpu(0)
    report.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", 30, 90, launch=(10, 20), stream=15)
    report.copy(100, 200, 4096, launch=(95, 99))
    report.nvtx_range("step", 0, 300, domain="app", registered=True).nvtx_range("étape", 5, 200)
    report.metric("SM Active", 50, 80)
    texts = []
    for form, ending in {"sqlite": ".sqlite", "parquet": "_pqtdir", "arrow": "_arwdir"}.items():
        (tmp_path / form).mkdir()
        summary = translate([report.write(tmp_path / form / f"a{ending}")], tmp_path / form / "same")
        texts.append([(tmp_path / form / f"same{suffix}").read_bytes() for suffix in (".prv", ".pcf", ".row")])
        assert summary.content["reports"][0]["form"] == form
    assert texts[0] == texts[1] == texts[2]


def test_kernels_that_overlap_on_one_stream_are_all_whole_on_rows_of_their_own(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    # The table is not in the order of begin, as the tables of real reports.
    for name, start, end in (("late", 90, 95), ("one", 0, 50), ("two", 40, 80), ("inside", 60, 70)):
        report.kernel(name, start, end)
    report.copy(45, 55, 8)
    summary = translate_reports(tmp_path, report)
    assert open_whole(summary.prv).names["THREAD"] == ("CUDA-D0.S7-node01", "CUDA-D0.S7-node01")
    assert [row[1:4] for row in intervals(summary, event_types.KERNEL)] == [(1, 0, 50), (2, 40, 80), (1, 60, 70), (2, 90, 95)]
    assert [row[1:4] for row in intervals(summary, event_types.MEMORY_OPERATION)] == [(1, 45, 55)]


def test_a_memset_that_overlaps_a_copy_of_its_stream_is_on_a_row_of_its_own(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    # Copies of stream 7 overlap each other and a memset; the memset of stream 8 overlaps none.
    for start, end in ((0, 50), (40, 60), (90, 100)):
        report.copy(start, end, 8)
    report.memset(55, 95, 8)
    report.memset(200, 210, 8)
    report.copy(300, 310, 8, stream=8)
    report.memset(310, 320, 8, stream=8)
    summary = translate_reports(tmp_path, report)
    streams = [name for name in open_whole(summary.prv).names["THREAD"] if name.startswith("CUDA")]
    assert streams == ["CUDA-D0.S7-node01"] * 3 + ["CUDA-D0.S8-node01"]
    assert [row[1:4] for row in intervals(summary, event_types.MEMORY_OPERATION)] == [
        (1, 0, 50), (2, 40, 60), (3, 55, 95), (2, 90, 100), (3, 200, 210), (4, 300, 310), (4, 310, 320),
    ]  # fmt: skip


def test_a_range_that_was_never_closed_ends_with_the_report(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("open", 10, None).nvtx_start_end("also open", 20, None).nvtx_range("last", 50, 500)
    summary = translate_reports(tmp_path, report)
    assert [row[2:4] for row in intervals(summary, event_types.NVTX_PUSHPOP)] == [(0, 490), (40, 490)]
    assert [row[2:4] for row in intervals(summary, event_types.NVTX_RANGE)] == [(10, 490)]


def test_all_requests_of_one_waitall_are_one_call(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0, with_mpi=True)
    report.mpi_wait("MPI_Waitall", 100, 200, requests=(1, 2, 3, 4, 5))
    report.mpi_wait("MPI_Wait", 300, 400)
    summary = translate_reports(tmp_path, report)
    assert [row[2:] for row in intervals(summary, event_types.MPI_POINT_TO_POINT)] == [(0, 100, 6), (200, 300, 5)]
    table = table_summary(summary, "MPI_START_WAIT_EVENTS")
    assert table["rows"] == 6
    assert table["sources"][0]["written"] == 2
    assert sum(table["sources"][0]["left_out"].values()) == 4


def test_states_say_what_a_row_does_at_any_time(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.api_call("cudaDeviceSynchronize_v3020", 100, 200)
    report.os_call("pthread_cond_wait", 120, 150).os_call("read", 250, 260)
    report.kernel("k", 110, 190)
    report.kernel("ncclDevKernel_Broadcast(x)", 190, 220)
    report.copy(230, 240, 8)
    states = (
        open_whole(translate_reports(tmp_path, report).prv)
        .states()
        .sort("thread", "begin")
        .select("thread", "begin", "end", "state")
        .rows()
    )
    assert states == [
        (1, 0, 100, event_types.STATE_SYNCHRONIZATION), (1, 100, 150, event_types.RUNNING), (1, 150, 160, event_types.STATE_IO),
        (2, 0, 10, event_types.IDLE), (2, 10, 90, event_types.RUNNING), (2, 90, 120, event_types.STATE_GROUP),
        (2, 120, 130, event_types.IDLE), (2, 130, 140, event_types.STATE_MEMORY_TRANSFER), (2, 140, 160, event_types.IDLE),
    ]  # fmt: skip


def test_time_is_cut_with_units_and_intervals_over_the_edge_are_clipped(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("all", 0, 1000).nvtx_range("left", 0, 300).nvtx_range("out", 10, 20).nvtx_range("in", 400, 500)
    summary = translate_reports(tmp_path, report, options=TranslateOptions(time=TimeRange(200, 600)))
    assert sorted(row[2:4] for row in intervals(summary, event_types.NVTX_PUSHPOP)) == [(0, 100), (0, 400), (200, 300)]
    assert open_whole(summary.prv).header.end == 400
    entry = table_summary(summary, "NVTX_EVENTS")["sources"][0]
    assert (entry["written"], entry["clipped"], entry["left_out"]) == (3, 2, {"outside the chosen time": 1})


def test_a_launch_line_is_kept_only_where_both_its_ends_are(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0).nvtx_range("whole", 0, 1000)
    report.kernel("before", 250, 320, launch=(100, 110))
    report.kernel("reaches in", 150, 240, launch=(120, 130), stream=8)
    report.kernel("inside", 400, 420, launch=(300, 310))
    summary = translate_reports(tmp_path, report, options=TranslateOptions(time=TimeRange(200, 600)))
    assert open_whole(summary.prv).messages().select("logical_send", "logical_recv").rows() == [(100, 200)]
    assert len(intervals(summary, event_types.KERNEL)) == 3


def test_the_inner_one_of_two_calls_starts_nothing_where_the_outer_one_is_cut_off(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.api_call("cudaLaunchKernel_v7000", 100, 200, correlation=1)
    report.api_call("cuLaunchKernel", 120, 180, correlation=1, driver=True)
    report.kernel("k", 300, 400, correlation=1)
    whole = trace_of(tmp_path, report, name="whole")
    part = trace_of(tmp_path, report, name="part", options=TranslateOptions(time=TimeRange(10, None)))
    assert whole.messages()["logical_send"].to_list() == [0]
    assert part.messages().is_empty()


@pytest.mark.parametrize("requested", [NvtxRange("step", "app"), NvtxRange("st?p", "a*")])
def test_the_time_inside_nvtx_ranges_of_all_their_instances(tmp_path: Path, requested: NvtxRange) -> None:
    report = ReportBuilder()
    report.nvtx_range("step", 100, 200, domain="app").nvtx_range("step", 300, 400, domain="app").nvtx_range("step", 900, 950)
    report.nvtx_range("work", 150, 350)
    summary = translate_reports(tmp_path, report, options=TranslateOptions(nvtx=requested))
    assert sorted(row[2:4] for row in intervals(summary, event_types.NVTX_PUSHPOP)) == [(50, 100), (200, 250)]
    assert sorted(row[2:4] for row in intervals(summary, event_types.NVTX_PUSHPOP + 100)) == [(0, 100), (200, 300)]
    # Between the instances no row is in any state.
    assert open_whole(summary.prv).states().select("begin", "end").rows() == [(0, 100), (200, 300)]


def test_ranks_are_chosen_and_short_intervals_left_out(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=100 + rank) for rank in range(4)]
    for rank, report in enumerate(reports):
        report.api_call("cudaMalloc_v3020", 10, 10 + 100 * (rank + 1))
        report.api_call("cudaFree_v3020", 900, 905)
    summary = translate_reports(tmp_path, *reports, options=TranslateOptions(ranks=frozenset({1, 3}), min_duration=50))
    assert [task["rank"] for task in summary.content["tasks"]] == [1, 3]
    assert [row[:4] for row in intervals(summary, event_types.CUDA_CALL)] == [(1, 1, 0, 200), (2, 1, 0, 400)]
    (calls,) = table_summary(summary, "CUPTI_ACTIVITY_KIND_RUNTIME", report=1)["sources"]
    assert (calls["rows"], calls["written"], calls["left_out"]) == (2, 1, {"shorter than --min-duration": 1})


def test_names_keep_the_numbers_of_an_earlier_trace(tmp_path: Path) -> None:
    def report(*names: str) -> ReportBuilder:
        made = ReportBuilder()
        for place, name in enumerate(names):
            made.nvtx_range(name, 100 * place, 100 * place + 50, domain="" if place % 2 else f"domain {name}")
        return made

    first = translate_reports(tmp_path, report("zebra", "yak", "ape"), name="first")
    second = translate_reports(
        tmp_path,
        report("ant", "yak", "zebra", "ape"),
        name="second",
        options=TranslateOptions(labels=first.prv),
    )

    def numbers(summary: Summary) -> tuple[dict[str, int], dict[str, int]]:
        types = open_whole(summary.prv).labels.types
        values = {text: value for found in types.values() for value, text in (found.values or {}).items() if value}
        return {found.label: number for number, found in types.items()}, values

    (types_before, before), (types_after, after) = numbers(first), numbers(second)
    assert {name: after[name] for name in before} == before
    assert after["ant"] not in before.values()
    shared = types_before.keys() & types_after.keys()
    assert {label: types_after[label] for label in shared} == {label: types_before[label] for label in shared}
    assert len(set(types_after.values())) == len(types_after)


def test_labels_with_earlier_numbers_of_types_are_still_taken(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("void mine::step()", 0, 10)
    labels = tmp_path / "earlier.pcf"
    labels.write_text("EVENT_TYPE\n0    63000010    CUDA kernel family\nVALUES\n0      End\n77     mine::step\n")
    found = open_whole(translate_reports(tmp_path, report, options=TranslateOptions(labels=labels)).prv)
    assert labels_of(found, event_types.KERNEL_FAMILY) == {0: "End", 77: "mine::step"}


def test_a_compressed_trace_holds_the_same_and_is_the_same_file_each_time(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("a", 0, 10)
    plain = translate_reports(tmp_path, report, name="plain")
    packed = translate_reports(tmp_path, report, name="packed", options=TranslateOptions(gzip=True))
    assert packed.prv.name == "packed.prv.gz"
    packed_bytes = packed.prv.read_bytes()
    assert gzip.decompress(packed_bytes) == plain.prv.read_bytes()
    again = translate_reports(tmp_path, report, name="packed", options=TranslateOptions(gzip=True, force=True))
    assert again.prv.read_bytes() == packed_bytes
    # In its place the plain trace would be read with the labels of the compressed one.
    translate([tmp_path / "plain0.sqlite"], tmp_path / "plain.prv", TranslateOptions(gzip=True, force=True))
    files = sorted(path.name for path in tmp_path.glob("plain*"))
    assert files == [*(f"plain.{suffix}" for suffix in ("cfgs", "json", "pcf", "prv.gz", "row")), "plain0.sqlite"]


def test_nothing_to_translate_is_said(tmp_path: Path) -> None:
    ReportBuilder().write(tmp_path / "a.sqlite")
    with pytest.raises(NothingToTranslate, match=r"a\.sqlite: no events of the sources"):
        translate([tmp_path / "a.sqlite"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.sqlite"]
    # What only the profiler does has no rows; it may have said why there is nothing else.
    ReportBuilder().profiler("CUPTI", 0, 10).diagnostic("Driver 13.0 is not supported.").write(tmp_path / "a.sqlite")
    with pytest.raises(NothingToTranslate, match=r"a\.sqlite: no events but .*; nsys said: Driver 13\.0 is not supported"):
        translate([tmp_path / "a.sqlite"], tmp_path / "out")


def test_a_trace_without_events_is_said(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.kernel("k", 10, 20)
    report.kernel("k", 900, 950)
    quiet = translate_reports(tmp_path, report, options=TranslateOptions(time=TimeRange(100, 200)))
    busy = translate_reports(tmp_path, report, name="busy", options=TranslateOptions(time=TimeRange(0, 200)))
    assert [warning for warning in quiet.content["warnings"] if warning not in busy.content["warnings"]] == [
        "no event is in the selected time, ranks and sources: the trace has states only"
    ]


def test_the_account_is_beside_the_trace(tmp_path: Path) -> None:
    report = ReportBuilder(rank=3)
    report.gpu(0)
    report.kernel("k", 30, 40, launch=(0, 10))
    report.row("EVENTS_NOT_KNOWN", start=5, globalTid=report.global_tid())
    report.diagnostic("Not all CUDA events might have been collected.")
    summary = translate_reports(tmp_path, report)
    content = json.loads((tmp_path / "out.json").read_text())
    assert content == json.loads(json.dumps(summary.content))
    assert content["tasks"][0]["rank"] == 3
    assert content["reports"][0]["warnings"] == ["nsys said: Not all CUDA events might have been collected."]
    tables = {table["table"]: table for table in content["reports"][0]["tables"]}
    assert tables["EVENTS_NOT_KNOWN"]["left_out"] == {"no source translates this table": 1}
    assert assert_account_balances(content) == sum(table["rows"] for table in tables.values())

    without_kernels = translate_reports(tmp_path, report, options=TranslateOptions(skip=("kernels",)), name="without").content
    reasons = {table["table"]: table["left_out"] for table in without_kernels["reports"][0]["tables"]}
    assert reasons["CUPTI_ACTIVITY_KIND_KERNEL"] == {"its source was left out with --only or --skip": 1}


def test_a_device_whose_times_contradict_those_of_its_host_is_a_warning(tmp_path: Path) -> None:
    report = ReportBuilder()
    for begin in range(0, 60_000_000, 20_000_000):
        report.kernel("k", begin, begin + 9, launch=(begin + 4_000_000, begin + 5_000_000))
    text = "times of CUDA-D0.S7-node01 contradict those of its host: most work begins before its launch, by up to 4.000 ms"
    assert text in translate_reports(tmp_path, report).warnings


def test_a_warning_that_several_reports_share_is_told_once() -> None:
    reports = [{"path": f"rank{rank}.sqlite", "warnings": ["events were lost"]} for rank in range(3)]
    summary = Summary(Path("out.prv"), {"reports": reports, "warnings": ["a rank is missing"]})
    assert summary.warnings == ["rank0.sqlite and 2 more: events were lost", "a rank is missing"]
