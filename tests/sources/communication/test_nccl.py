"""Regions of NCCL and events of NVTX with payloads, on the host and on the kernels behind them."""

import struct
from pathlib import Path

import polars as pl
import pytest
from support import rest
from support.nccl_regions import COMMUNICATOR, DOUBLE, STATIC, Nccl, payload_blob
from support.report_builder import ReportBuilder
from support.traces import trace_of, translate_reports
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.exports import open_report
from nsys2prv.sources.communication.nccl import ATTRIBUTES, kernels_with_calls
from nsys2prv.sources.nvtx import nvtx_ranges
from nsys2prv.vocabulary import event_types


def attributes_of(trace: WholeTrace, event_type: int, task: int = 1) -> list[dict[str, object]]:
    """Label and attributes of each interval of a type, with labels for values that have some, in the order of begin."""
    found = trace.events().filter((pl.col("task") == task) & (pl.col("value") != 0))
    labels = {number: dict(of_type.values or {}) for number, of_type in trace.labels.types.items()}
    names = ATTRIBUTES | {event_type: "call"}
    lines: dict[int, dict[str, object]] = {}
    for line, kind, value in found.select("line", "type", "value").iter_rows():
        if kind in names:
            label = labels.get(kind, {}).get(value, value)
            lines.setdefault(line, {})[names[kind]] = label
    return [line for _, line in sorted(lines.items()) if "call" in line]


def one_rank(rank: int, *, binary: bool, with_init: bool = True) -> ReportBuilder:
    """A rank of two that joins a communicator, reduces and broadcasts."""
    report = ReportBuilder(host=f"node{rank}", pid=1000 + rank, rank=rank, ranks=2)
    report.gpu(0, uuid=f"{rank}")
    nccl = Nccl(report, binary=binary)
    if with_init:
        nccl.call("ncclCommInitRank", 10, 90, COMMUNICATOR, 2, rank, 0)
    nccl.call("ncclAllReduce", 100, 200, COMMUNICATOR, 4096, 1)
    report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 300, 400, launch=(110, 120))
    nccl.call("ncclBroadcast", 500, 600, COMMUNICATOR, 64, 1)
    report.kernel("ncclDevKernel_Broadcast_RING_LL(x)", 700, 800, launch=(510, 520))
    return report


@pytest.mark.parametrize("binary", [*rest(False), True], ids=["json", "binary"])
def test_regions_of_nccl_and_the_kernels_behind_them_have_the_payload(tmp_path: Path, binary: bool) -> None:
    trace = trace_of(tmp_path, one_rank(0, binary=binary), one_rank(1, binary=binary))
    label = "NCCL communicator of 2 ranks: 0-1 (#1a2b)"
    for task in (1, 2):
        of_communicator = {"NCCL communicator ID": label, "No. of ranks": 2, "Rank": task}
        calls = [
            {"call": "ncclAllReduce", "Message size [bytes]": 4096, "Reduction operation": "Prod", **of_communicator},
            {"call": "ncclBroadcast", "Message size [bytes]": 64, "Root": 2, **of_communicator},
        ]
        assert attributes_of(trace, event_types.NCCL_REGION, task) == [{"call": "ncclCommInitRank", **of_communicator}, *calls]
        assert attributes_of(trace, event_types.NCCL_CALL_OF_KERNEL, task) == calls
        assert attributes_of(trace, event_types.NCCL_KERNEL, task)[0]["call"] == "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
    assert trace.labels.types[event_types.NCCL_COMMUNICATOR].values == {0: "End", 1: label}
    # The rest of the payload is there too.
    assert [found.label for found in trace.labels.types.values() if "CUDA device" in found.label] == [
        "NVTX payload NCCL CUDA device"
    ]


def test_a_communicator_is_the_same_in_reports_that_do_not_tell_how_it_was_made(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, one_rank(0, binary=True), one_rank(1, binary=False, with_init=False))
    label = "NCCL communicator of 2 ranks: 0-1 (#1a2b)"
    assert trace.labels.types[event_types.NCCL_COMMUNICATOR].values == {0: "End", 1: label}
    assert attributes_of(trace, event_types.NCCL_REGION, 2)[0] == {
        "call": "ncclAllReduce",
        "Message size [bytes]": 4096,
        "Reduction operation": "Prod",
        "NCCL communicator ID": label,
    }


def test_of_several_calls_in_a_group_a_kernel_has_what_they_agree_on(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    nccl = Nccl(report, binary=True)
    nccl.call("ncclCommInitRank", 10, 90, COMMUNICATOR, 4, 2, 0)

    def group(start: int, *calls: tuple[str, int, int]) -> None:
        nccl.call("ncclGroupStart", start, start + 10)
        for index, (name, size, peer) in enumerate(calls):
            nccl.call(name, start + 20 + 10 * index, start + 25 + 10 * index, COMMUNICATOR, size, peer)
        nccl.call("ncclGroupEnd", start + 80, start + 99)
        report.kernel("ncclDevKernel_SendRecv(x)", start + 200, start + 210, launch=(start + 85, start + 88))

    group(1000, ("ncclSend", 100, 1), ("ncclSend", 100, 3))
    group(2000, ("ncclSend", 100, 3), ("ncclRecv", 200, 3))
    group(3000, ("ncclRecv", 7, 0))
    # A launch after the group is none of its kernels.
    report.kernel("ncclDevKernel_AllGather(x)", 5000, 5001, launch=(4000, 4001))
    trace = trace_of(tmp_path, report)
    of_communicator = {"NCCL communicator ID": "NCCL communicator of 4 ranks (#1a2b)", "No. of ranks": 4, "Rank": 3}
    assert attributes_of(trace, event_types.NCCL_CALL_OF_KERNEL) == [
        {"call": "ncclSend", "Message size [bytes]": 200, **of_communicator},
        {"call": "ncclGroupEnd", "Message size [bytes]": 200, "Peer rank": 4, **of_communicator},
        {"call": "ncclRecv", "Message size [bytes]": 7, "Peer rank": 1, **of_communicator},
    ]


def sizes_of_group(tmp_path: Path, sizes: list[int], kernels: int, *, tag: str, other: str | None = None) -> list[object]:
    """Sizes of the kernels that a group of all-reduces launches; `other`: one more call."""
    report = ReportBuilder()
    report.gpu(0)
    nccl = Nccl(report, binary=True)
    nccl.call("ncclGroupStart", 1000, 1010)
    for index, size in enumerate(sizes):
        nccl.call("ncclAllReduce", 1020 + 10 * index, 1025 + 10 * index, COMMUNICATOR, size, 1)
    if other is not None:
        nccl.call(other, 1070, 1075, COMMUNICATOR, 64, 1)
    nccl.call("ncclGroupEnd", 1080, 1190)
    for index in range(kernels):
        begin = 2000 + 100 * index
        launch = (1085 + 10 * index, 1088 + 10 * index)
        report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", begin, begin + 50, launch=launch, stream=7 + index)
    found = pl.concat(kernels_with_calls(open_report(report.write(tmp_path / f"{tag}.sqlite")), tmp_path / tag))
    return found.sort("start")[str(event_types.NCCL_SIZE)].to_list()


def test_sizes_of_calls_that_one_kernel_does_add_up(tmp_path: Path) -> None:
    mib = 1 << 20
    assert sizes_of_group(tmp_path, [96 * mib] * 4, 1, tag="one") == [384 * mib]
    assert sizes_of_group(tmp_path, [96 * mib, mib], 1, tag="different") == [97 * mib]
    # A thread that drives four GPUs, and one that drives two and calls twice for each.
    assert sizes_of_group(tmp_path, [96 * mib] * 4, 4, tag="each") == [96 * mib] * 4
    assert sizes_of_group(tmp_path, [mib] * 4, 2, tag="pairs") == [2 * mib] * 2
    # Which kernel does which calls is not known.
    assert sizes_of_group(tmp_path, [mib] * 5, 2, tag="five") == [None] * 2
    assert sizes_of_group(tmp_path, [mib, 2 * mib], 2, tag="two") == [None] * 2
    assert sizes_of_group(tmp_path, [mib], 1, tag="other", other="ncclBroadcast") == [None]


def test_processes_with_other_ids_for_the_domain_have_their_own_payloads(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.process(2000)
    report.thread(2000, pid=2000)
    # In the second process another domain has the id that NCCL has in the first one.
    report.nvtx_domain("app", pid=2000)
    for pid in (1000, 2000):
        nccl = Nccl(report, binary=True, pid=pid)
        nccl.call("ncclBroadcast", 100, 200, COMMUNICATOR + pid, pid, 0)
    report.nvtx_schema(STATIC + 6, [("step", DOUBLE, 0), ("kind", DOUBLE, 8), ("more", DOUBLE, 16)], 24, domain="app", pid=2000)
    blob = payload_blob(1, STATIC + 6, struct.pack("<ddd", 0.5, 2.0, 3.0))
    report.nvtx_range("step", 300, 400, domain="app", pid=2000, binaryData=blob)
    trace = trace_of(tmp_path, report)
    assert report.nvtx_domain("NCCL", pid=1000) == report.nvtx_domain("app", pid=2000)
    for task, pid in ((1, 1000), (2, 2000)):
        assert attributes_of(trace, event_types.NCCL_REGION, task)[0]["Message size [bytes]"] == pid
    fields = {
        trace.labels.types[number].label: value
        for number, value in trace.events().filter(pl.col("value") != 0).select("type", "value").iter_rows()
        if number in range(nvtx_ranges.NVTX_REAL_FIELD, nvtx_ranges.NVTX_REAL_FIELD + 20)
    }
    assert fields == {
        "NVTX payload app step, real": 500_000,
        "NVTX payload app kind, real": 2_000_000,
        "NVTX payload app more, real": 3_000_000,
    }


def values_at(trace: WholeTrace, time: int) -> dict[str, object]:
    """Label of each type with a value at a time, and the value or its label."""
    found = {}
    for number, value in (
        trace.events().filter((pl.col("time") == time) & (pl.col("value") != 0)).select("type", "value").rows()
    ):
        of_type = trace.labels.types[number]
        found[of_type.label] = (of_type.values or {}).get(value, value)
    return found


def test_numbers_and_categories_of_events_are_in_the_trace(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_category(1, "io", domain="app").nvtx_category(1, "compute").nvtx_range("whole", 0, 1000)
    report.nvtx_range("a", 100, 900, int64Value=-5, category=1, domain="app")
    report.nvtx_range("b", 200, 800, uint32Value=7, category=1).nvtx_range("c", 300, 400, category=9)
    report.nvtx_mark("loss", 310, doubleValue=0.25).nvtx_mark("huge", 320, doubleValue=1e300)
    report.nvtx_mark("none", 330, doubleValue=float("nan"), category=0)
    report.nvtx_start_end("free", 340, 500, floatValue=-1.5, category=1)
    report.nvtx_start_end("other", 350, 600, uint64Value=-1)
    trace = trace_of(tmp_path, report)
    app, default = "NVTX pushpop ranges app domain", "NVTX pushpop ranges default domain"
    assert values_at(trace, 100) == {app: "a", "NVTX category": "io", "NVTX payload": -5}
    assert values_at(trace, 200) == {default: "b", "NVTX category": "compute", "NVTX payload": 7}
    assert values_at(trace, 300) == {default: "c", "NVTX category": "category 9"}
    assert values_at(trace, 310) == {"NVTX marks": "loss", "NVTX payload, real": 250_000}
    assert values_at(trace, 320) == {"NVTX marks": "huge"}
    assert values_at(trace, 330) == {"NVTX marks": "none"}
    assert values_at(trace, 340) == {
        "NVTX startend ranges": "free", "NVTX category": "compute", "NVTX payload, real": -1_500_000,
    }  # fmt: skip
    assert values_at(trace, 350) == {"NVTX startend ranges (overlap 1)": "other", "NVTX payload": -1}
    # What an inner range said is over when it ends, and what the outer one said is not.
    assert trace.events([nvtx_ranges.NVTX_INTEGER]).filter(pl.col("value") == 0)["time"].to_list() == [350, 800, 900]
    pcf = next(tmp_path.glob("*.pcf")).read_text()
    assert f"{nvtx_ranges.NVTX_REAL}    NVTX payload, real\nPRECISION 6\n" in pcf


def test_fields_of_any_domain_are_types_of_their_own(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.nvtx_range("outer", 0, 100, domain="app", payload={"step": 3, "loss": 1.25, "phase": "train", "done": True})
    report.nvtx_range("inner", 10, 60, domain="app", payload={"step": 4, "nested": {"depth": 2}})
    report.nvtx_mark("mark", 30, payload={"step": 5})
    registered = report.string('{"rate": 8}')
    report.nvtx_range("registered", 40, 50, jsonTextId=registered)
    trace = trace_of(tmp_path, report)
    of_fields = [number for number, found in trace.labels.types.items() if found.label.startswith("NVTX payload ")]
    spans = {
        (trace.labels.types[number].label, begin, end): (trace.labels.types[number].values or {}).get(value, value)
        for number, value, begin, end in trace.intervals(of_fields).select("type", "value", "begin", "end").iter_rows()
    }
    assert spans == {
        ("NVTX payload app step", 0, 100): 3,
        ("NVTX payload app loss, real", 0, 100): 1_250_000,
        ("NVTX payload app phase, text", 0, 100): "train",
        ("NVTX payload app done", 0, 100): 1,
        ("NVTX payload app step", 10, 60): 4,
        ("NVTX payload app depth", 10, 60): 2,
        ("NVTX payload default step", 30, 30): 5,
        ("NVTX payload default rate", 40, 50): 8,
    }


def test_names_that_the_program_gives_are_those_of_the_rows(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.gpu(0)
    report.thread(1001, pid=1000, name="python3")
    report.nvtx_thread_name("before", tid=1001).nvtx_thread_name("data loader", tid=1001).nvtx_thread_name("MPI Rank 0")
    report.nvtx_range("a", 0, 10).nvtx_range("b", 0, 10, tid=1001)
    report.kernel("k", 20, 30, stream=7)
    report.kernel("k", 20, 30, stream=8)
    place = {"hwId": 0, "vmId": 1, "deviceId": 0}
    report.row("TARGET_INFO_NVTX_CUDA_DEVICE", name="left", **place)
    report.row("TARGET_INFO_NVTX_CUDA_CONTEXT", name="main", processId=1000, contextId=1, **place)
    report.row("TARGET_INFO_NVTX_CUDA_STREAM", name="copies", processId=1000, contextId=1, streamId=8, **place)
    summary = translate_reports(tmp_path, report)
    # Tools that read traces know streams by these names: those of the program stand in OUT.json.
    assert open_whole(summary.prv).names["THREAD"] == (
        "python3 tid 1000",
        "data loader tid 1001",
        "CUDA-D0.S7-node01",
        "CUDA-D0.S8-node01",
    )
    assert summary.content["tasks"][0]["nvtx_names"] == {
        3: "device left, context main",
        4: "device left, context main, stream copies",
    }


def test_calls_that_nsys_traced_have_their_sequence_numbers(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    of_call = {"commHash": COMMUNICATOR, "commRank": 1, "seqNumber": 6, "apiId": 99, "count": 10, "dataType": "ncclBfloat16"}
    report.nvtx_range("API Group", 100, 200, domain="NCCL", registered=True)
    report.nvtx_range("AllReduce", 110, 120, domain="NCCL", registered=True, payload=of_call)
    report.nvtx_range("GroupLaunch", 130, 190, domain="NCCL", registered=True)
    report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 300, 400, launch=(140, 150))
    trace = trace_of(tmp_path, report)

    assert attributes_of(trace, event_types.NCCL_CALL_OF_KERNEL) == [
        {
            "call": "AllReduce",
            "NCCL communicator ID": "NCCL communicator (#1a2b)",
            "Message size [bytes]": 20,
            "Rank": 2,
            "Sequence number": 7,
        }
    ]
    # The rest of the payload is there too.
    fields = [found.label for found in trace.labels.types.values() if found.label.startswith("NVTX payload NCCL")]
    assert sorted(fields) == [f"NVTX payload NCCL {name}" for name in ("apiId", "count", "dataType, text")]
