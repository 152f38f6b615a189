"""CUDA beyond calls, kernels and copies: waits, events, memory, page faults, graphs, overhead."""

from pathlib import Path

import pytest
from support import rest
from support.report_builder import ReportBuilder
from support.traces import table_summary, trace_of, translate_reports
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.run.options import TimeRange
from nsys2prv.sources.cuda import api_calls, device_memory, kernels, memory_operations, synchronization, unified_memory
from nsys2prv.trace.translate import Summary
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary import event_types


def named(trace: WholeTrace, event_type: int) -> list[tuple[str, int, int, str]]:
    """Row, begin, end and label of the intervals of a type."""
    return trace.named(trace.intervals([event_type]).sort("begin", "end")).select("row", "begin", "end", "name").rows()


def lines(summary: Summary, event_type: int) -> list[str]:
    """What stands behind the time on the lines that begin with a type."""
    return [
        line.split(":", 6)[6]
        for line in summary.prv.read_text().splitlines()
        if line.startswith("2:") and line.split(":")[6] == str(event_type) and line.split(":")[7] != "0"
    ]


def pairs(line: str) -> dict[int, int]:
    """Type and value of each pair of a line."""
    numbers = list(map(int, line.split(":")))
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


CALLS = {
    "cudaDeviceSynchronize_v3020": synchronization.SYNC_DEVICE,
    "cuCtxSynchronize": synchronization.SYNC_DEVICE,
    "cudaStreamSynchronize_ptsz_v7000": synchronization.SYNC_STREAM,
    "cuEventSynchronize": synchronization.SYNC_EVENT,
    "cudaStreamWaitEvent_v3020": synchronization.SYNC_WAIT_EVENT,
    "cudaEventQuery_v3020": synchronization.SYNC_EVENT_QUERY,
    "cuStreamQuery": synchronization.SYNC_STREAM_QUERY,
    "cudaMemcpy_v3020": synchronization.SYNC_OTHER,
}


def test_what_a_wait_is_for_is_told_by_its_call_and_not_by_its_number(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    for place, name in enumerate(CALLS):
        begin = 100 * place
        call = report.api_call(name, begin, begin + 50, tid=1000 + place % 2)
        report.synchronization(begin + 10, begin + 40, kind=1, correlation=call)
    summary = translate_reports(tmp_path, report)
    found = named(open_whole(summary.prv), synchronization.SYNCHRONIZATION)
    assert [label for *_, label in found] == list(CALLS.values())
    assert [row for row, *_ in found] == ["python3 tid 1000", "tid 1001"] * 4
    assert found[0][1:3] == (10, 40)
    assert "Metrics GPU0" not in open_whole(summary.prv).names["THREAD"]


def test_ids_of_a_wait_that_do_not_apply_are_left_out(tmp_path: Path) -> None:
    report = ReportBuilder()
    call = report.api_call("cudaEventSynchronize_v3020", 0, 50)
    report.synchronization(10, 40, correlation=call, stream=4294967295, event=5)
    call = report.api_call("cudaStreamSynchronize_v3020", 60, 90)
    report.synchronization(65, 85, correlation=call, stream=13)
    assert lines(translate_reports(tmp_path, report), synchronization.SYNCHRONIZATION) == [
        f"63000700:3:{synchronization.SYNC_CONTEXT_ID}:1:{synchronization.CUDA_EVENT_ID}:5:{synchronization.SYNC_DEVICE_ID}:1",
        f"63000700:2:{synchronization.SYNC_STREAM_ID}:13:{synchronization.SYNC_CONTEXT_ID}:1:{synchronization.SYNC_DEVICE_ID}:1",
    ]


def test_waits_and_records_have_the_number_of_the_record(tmp_path: Path) -> None:
    report = ReportBuilder(schema="3.25.0")
    report.gpu(0).kernel("k", 0, 500)
    call = report.api_call("cudaEventRecord_v3020", 100, 110)
    report.event_record(5, time=340, correlation=call, sync=71)
    for sync in (71, 0, 4294967295):
        call = report.api_call("cudaEventSynchronize_v3020", 120, 350)
        report.synchronization(130, 340, correlation=call, stream=4294967295, event=5, sync=sync)
    summary = translate_reports(tmp_path, report)
    waits = [pairs(line).get(synchronization.EVENT_SYNC_ID) for line in lines(summary, synchronization.SYNCHRONIZATION)]
    assert sorted(waits, key=str) == [71, None, None]
    [record] = map(pairs, lines(summary, synchronization.CUDA_EVENT_RECORD))
    assert (record[synchronization.RECORD_SYNC_ID], record[synchronization.SINCE_RECORD_CALL]) == (71, 240)


@pytest.mark.parametrize(("fold_streams", "is_old"), [(False, True), (True, False), *rest((False, False))])
def test_records_and_waits_are_of_the_device_of_their_context(tmp_path: Path, fold_streams: bool, is_old: bool) -> None:
    """nsys writes device 0 in their tables: a GPU that no process used was counted, and idle."""
    report = ReportBuilder(schema="3.13.1")
    table, stream = ("NULL_STREAM", "streamId") if is_old else ("CONTEXT_INFO", "nullStreamId")
    context = {stream: 7, "hwId": report.hardware, "vmId": 1, "processId": report.pid, "deviceId": 1, "contextId": 1}
    report.gpu(0, cuda=0).gpu(1, cuda=1).row(f"TARGET_INFO_CUDA_{table}", **context)
    report.kernel("k", 0, 500, device=1, stream=13)
    call = report.api_call("cudaEventRecord_v3020", 100, 110)
    report.event_record(5, time=340, correlation=call, stream=13)
    call = report.api_call("cudaStreamSynchronize_v3020", 120, 350)
    report.synchronization(130, 340, correlation=call, stream=13)
    # Of a context that is not known, the device is believed.
    call = report.api_call("cudaStreamSynchronize_v3020", 400, 450)
    report.synchronization(410, 440, correlation=call, stream=14, context=2)
    summary = translate_reports(tmp_path, report, options=TranslateOptions(fold_streams=fold_streams))
    stream = "CUDA-D1.S0-node01" if fold_streams else "CUDA-D1.S13-node01"
    assert open_whole(summary.prv).names["THREAD"] == ("python3 tid 1000", stream)
    waits = [pairs(line).get(synchronization.SYNC_DEVICE_ID) for line in lines(summary, synchronization.SYNCHRONIZATION)]
    assert sorted(filter(None, waits)) == [1, 2]


def test_waits_of_unknown_calls_lie_on_their_device_and_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    none = 4294967295
    # An id of another process is not this one's.
    report.api_call("cudaDeviceSynchronize_v3020", 0, 5, pid=2000, correlation=77)
    report.synchronization(10, 40, correlation=77, stream=none).synchronization(20, 50, correlation=78, stream=13)
    report.synchronization(30, 35, stream=none, event=4).synchronization(60, 65, correlation=80, stream=13, event=4)
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    lanes = [synchronization.SYNCHRONIZATION.beside(synchronization.SYNCHRONIZATION, lane) for lane in range(3)]
    found = {interval[1:]: interval[0] for lane in lanes for interval in named(trace, lane)}
    assert found == {
        (10, 40, synchronization.SYNC_DEVICE): "Metrics GPU0", (20, 50, synchronization.SYNC_STREAM): "Metrics GPU0",
        (30, 35, synchronization.SYNC_EVENT): "Metrics GPU0", (60, 65, synchronization.SYNC_WAIT_EVENT): "Metrics GPU0",
    }  # fmt: skip
    table = table_summary(summary, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    assert [(source["rows"], source["written"]) for source in table["sources"]] == [(0, 0), (4, 4)]
    assert table["left_out"] == {}


def test_waits_without_a_table_of_calls_are_not_lost(tmp_path: Path) -> None:
    report = ReportBuilder().synchronization(10, 40, correlation=1)
    found = named(open_whole(translate_reports(tmp_path, report).prv), synchronization.SYNCHRONIZATION)
    assert found == [("Metrics GPU0", 0, 30, synchronization.SYNC_STREAM)]


def test_an_event_is_recorded_when_the_device_says_so_else_when_the_call_began(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.kernel("k", 0, 500)
    for event, told in enumerate((None, 0, 340), start=1):
        call = report.api_call("cudaEventRecord_v3020", 100 * event, 100 * event + 20)
        report.event_record(event, time=told, correlation=call)
    report.event_record(9, correlation=1234)
    # Two at one time on one stream are no overlap.
    call = report.api_call("cudaEventRecord_v3020", 400, 410)
    report.event_record(4, correlation=call).event_record(5, correlation=call)
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    records = trace.events([synchronization.CUDA_EVENT_RECORD]).sort("time", "value")
    assert records.select("time", "value").rows() == [(100, 1), (200, 2), (340, 3), (400, 4), (400, 5)]
    assert trace.names["THREAD"] == ("python3 tid 1000", "CUDA-D0.S7-node01")
    assert set(records["thread"]) == {2}
    [source] = table_summary(summary, "CUPTI_ACTIVITY_KIND_CUDA_EVENT")["sources"]
    assert (source["rows"], source["written"], source["left_out"]) == (6, 5, {"it has no start time": 1})


def test_memory_in_use_is_a_running_sum_of_each_kind_and_of_the_device(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0, cuda=0).gpu(1, cuda=1)
    # Not in the order of time, as tables may be.
    report.memory_use(30, 100, freed=True).memory_use(10, 100).memory_use(20, 1000, kind=4, name="matrix")
    report.memory_use(40, 7, device=1).memory_use(50, 11)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    kinds = {found.label: number for number, found in trace.labels.types.items() if found.label.startswith("GPU memory in use")}
    assert set(kinds) == {"GPU memory in use", "GPU memory in use: Device", "GPU memory in use: Managed"}
    assert trace.names["THREAD"] == ("Metrics GPU0", "Metrics GPU1")

    def values(number: int) -> list[tuple[int, ...]]:
        return trace.events([number]).sort("time").select("thread", "time", "value").rows()

    assert values(kinds["GPU memory in use: Device"]) == [(1, 0, 100), (1, 20, 0), (2, 30, 7), (1, 40, 11)]
    assert values(kinds["GPU memory in use: Managed"]) == [(1, 10, 1000)]
    assert values(device_memory.DEVICE_MEMORY_TOTAL) == [(1, 0, 100), (1, 10, 100), (1, 20, 0), (2, 30, 7), (1, 40, 11)]
    assert values(device_memory.DEVICE_MEMORY_FREED) == [(1, 20, 100)]
    assert [value for *_, value in values(device_memory.DEVICE_MEMORY_ALLOCATED)] == [100, 1000, 7, 11]
    assert trace.labels.types[device_memory.DEVICE_MEMORY_NAME].values == {0: "End", 1: "matrix"}


def test_memory_in_use_counts_what_was_allocated_before_the_time_chosen(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.memory_use(0, 100).memory_use(50, 10).memory_use(90, 1).nvtx_range("all", 0, 100)
    trace = open_whole(translate_reports(tmp_path, report, options=TranslateOptions(time=TimeRange(40, 60))).prv)
    assert trace.events([device_memory.DEVICE_MEMORY_TOTAL]).select("time", "value").rows() == [(10, 110)]


def test_operations_of_memory_pools_are_marks(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.row(
        "CUDA_GPU_MEMORY_POOL_EVENTS",
        start=10, globalPid=report.global_pid(), deviceId=0, address=64, operationType=3, poolType=1,
        localMemoryPoolSize=500, localMemoryPoolUtilizedSize=300,
    )  # fmt: skip
    report.nvtx_range("all", 0, 100)
    assert lines(translate_reports(tmp_path, report), device_memory.POOL_OPERATION) == [
        f"63000330:4:{device_memory.POOL_TYPE}:2:{device_memory.DEVICE_MEMORY_ADDRESS}:64:{device_memory.POOL_SIZE}:500:{device_memory.POOL_USED}:300"
    ]


def test_page_faults_of_a_device_that_overlap_are_all_whole(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    for start, end, faults, access in ((0, 50, 3, 2), (40, 80, 5, 1), (60, 70, 1, 2)):
        report.gpu_page_fault(start, end, faults, access=access)
    trace = trace_of(tmp_path, report)
    lanes = [unified_memory.GPU_PAGE_FAULT.beside(unified_memory.GPU_PAGE_FAULT, lane) for lane in range(2)]
    assert sorted(interval[1:] for lane in lanes for interval in named(trace, lane)) == [
        (0, 50, "Write"), (40, 80, "Read"), (60, 70, "Write"),
    ]  # fmt: skip
    assert trace.events([unified_memory.GPU_PAGE_FAULT_COUNT])["value"].sum() == 9
    assert trace.names["THREAD"] == ("Metrics GPU0",)


@pytest.mark.parametrize("hardware", [0, 200])
def test_a_page_fault_of_the_host_is_a_mark_on_the_main_thread(tmp_path: Path, hardware: int) -> None:
    report = ReportBuilder(hardware=hardware)
    report.api_call("cudaMalloc_v3020", 0, 100)
    report.row(
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        start=40, globalPid=report.global_pid(), address=4096, CpuInstruction=report.string("fill(float*)"),
        module=report.string("/opt/app"), sourceFile=report.string("fill.cpp"), sourceLine=17,
    )  # fmt: skip
    report.row("CUDA_UM_CPU_PAGE_FAULT_EVENTS", start=50, globalPid=report.global_pid(), address=8192, CpuInstruction=999)
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    assert trace.names["THREAD"] == ("python3 tid 1000",)
    assert trace.labels.types[unified_memory.CPU_PAGE_FAULT].values == {1: "(unnamed)", 2: "fill(float*)"}
    assert lines(summary, unified_memory.CPU_PAGE_FAULT) == [
        f"63000402:2:{unified_memory.FAULT_MODULE}:1:{unified_memory.FAULT_FILE}:1:{unified_memory.FAULT_LINE}:17:{memory_operations.VIRTUAL_ADDRESS}:4096",
        f"63000402:1:{memory_operations.VIRTUAL_ADDRESS}:8192",
    ]


def test_a_copy_tells_kinds_of_memory_devices_and_throughput(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.copy(0, 100, 1000, pageable=True)
    report.copy(200, 300, 4000, kind=10, srcDeviceId=0, dstDeviceId=1)
    report.copy(400, 400, 8, kind=1)
    report.copy(500, 510, 64, kind=11, srcKind=7, dstKind=7, migrationCause=2, virtualAddress=4096)
    # More bytes than fit into 64 bits times 10^9.
    report.copy(1_000, 1_000_001_000, 80_000_000_000)
    report.memset(600, 610, 64, memKind=1, value=255)
    found = [pairs(line) for line in lines(translate_reports(tmp_path, report), event_types.MEMORY_OPERATION)]
    types = event_types
    assert found == [
        {types.MEMORY_OPERATION: 5, types.MEMORY_SIZE: 1000, types.SOURCE_MEMORY: 1, types.DESTINATION_MEMORY: 3,
         memory_operations.THROUGHPUT: 10**10},
        {types.MEMORY_OPERATION: 7, types.MEMORY_SIZE: 4000, types.SOURCE_MEMORY: 3, types.DESTINATION_MEMORY: 3,
         memory_operations.SOURCE_DEVICE: 1, memory_operations.DESTINATION_DEVICE: 2, memory_operations.THROUGHPUT: 4 * 10**10},
        # No length, no throughput; its end is on the same line.
        {types.MEMORY_OPERATION: 0, types.MEMORY_SIZE: 0, types.SOURCE_MEMORY: 0, types.DESTINATION_MEMORY: 0},
        {types.MEMORY_OPERATION: 9, types.MEMORY_SIZE: 64, types.SOURCE_MEMORY: 8, types.DESTINATION_MEMORY: 8,
         memory_operations.MIGRATION_CAUSE: 3, memory_operations.VIRTUAL_ADDRESS: 4096,
         memory_operations.THROUGHPUT: 6_400_000_000},
        {types.MEMORY_OPERATION: 6, types.MEMORY_SIZE: 64, types.DESTINATION_MEMORY: 2, memory_operations.MEMSET_VALUE: 255},
        {types.MEMORY_OPERATION: 5, types.MEMORY_SIZE: 8 * 10**10, types.SOURCE_MEMORY: 2, types.DESTINATION_MEMORY: 3,
         memory_operations.THROUGHPUT: 8 * 10**10},
    ]  # fmt: skip


def test_green_contexts_are_told_where_there_are_some(tmp_path: Path) -> None:
    report = ReportBuilder(schema="3.7.2")
    for place, context in enumerate((None, 0, 4294967295, 3)):
        report.kernel("k", 10 * place, 10 * place + 5, greenContextId=context)
        report.copy(100 + 10 * place, 105 + 10 * place, 8, greenContextId=context)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    assert trace.events([kernels.GREEN_CONTEXT]).filter(value=3).select("time").to_series().to_list() == [30, 130]
    assert trace.events([kernels.GREEN_CONTEXT]).height == 4


def test_nodes_of_a_graph_hang_on_the_call_that_launched_it(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    launch = report.api_call("cudaGraphLaunch_v10000", 0, 20)
    for node, (start, end) in enumerate(((30, 40), (50, 60)), start=1):
        report.kernel(f"k{node}", start, end, correlation=launch, graphNodeId=2**33 + node, graphId=5)
    report.copy(70, 80, 16, correlation=launch, graphNodeId=2**33 + 3)
    report.memset(90, 95, 16, correlation=launch, graphNodeId=2**33 + 4)
    trace = open_whole(translate_reports(tmp_path, report).prv)
    assert trace.events([kernels.GRAPH_NODE_ID]).filter(value=2**33 + 1)["time"].to_list() == [30]
    begun = trace.events([kernels.GRAPH_NODE_ID]).filter(trace.events([kernels.GRAPH_NODE_ID])["value"] > 0)
    assert (begun["value"] - 2**33).to_list() == [1, 2, 3, 4]
    assert trace.events([kernels.GRAPH_ID])["value"].to_list() == [5, 0, 5, 0]
    messages = trace.messages().sort("logical_recv")
    assert messages.select("logical_send", "logical_recv", "tag").rows() == [
        (0, 30, 55001), (0, 50, 55001), (0, 70, 55002), (0, 90, 55002),
    ]  # fmt: skip


def test_graphs_and_nodes_are_made_on_the_host_in_old_and_new_schemas(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.api_call("cudaGraphInstantiate_v12000", 0, 100)
    at = {"globalTid": report.global_tid(), "eventClass": 95}
    report.row("CUDA_GRAPH_EVENTS", start=10, end=10, nameId=report.string("Graph Creation"), graphId=1, **at)
    report.row(
        "CUDA_GRAPH_EVENTS", start=20, end=30, nameId=report.string("GraphExec Creation"), graphId=1, graphExecId=2, **at
    )
    report.row("CUDA_GRAPH_NODE_EVENTS", start=40, end=41, nameId=report.string("Node Creation"), graphNodeId=7, **at)
    # Up to schema 3.7 nodes are in the table of graphs.
    report.row(
        "CUDA_GRAPH_EVENTS", start=50, end=51, nameId=report.string("Node Clone"), graphNodeId=8, originalGraphNodeId=7, **at
    )
    summary = translate_reports(tmp_path, report)
    found = named(open_whole(summary.prv), kernels.GRAPH_CONSTRUCTION)
    assert [interval[1:] for interval in found] == [
        (10, 10, "Graph Creation"), (20, 30, "GraphExec Creation"), (40, 41, "Node Creation"), (50, 51, "Node Clone"),
    ]  # fmt: skip
    assert lines(summary, kernels.GRAPH_CONSTRUCTION)[-1].endswith(
        f":{kernels.GRAPH_NODE_ID}:8:{kernels.GRAPH_ORIGINAL_NODE_ID}:7"
    )


def test_overhead_makes_no_rows_of_its_own(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.api_call("cudaLaunchKernel_v7000", 0, 100)
    name = {"nameId": report.string("Lazy Function Loading")}
    report.row(
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        start=10, end=60, globalTid=report.global_tid(), eventClass=103, correlationId=1, overheadType=7, **name,
    )  # fmt: skip
    for tid in (1000, 4711):
        report.row("PROFILER_OVERHEAD", start=20, end=30, globalTid=report.global_tid(tid), **name)
    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)
    assert trace.names["THREAD"] == ("python3 tid 1000",)
    assert named(trace, api_calls.CUDA_OVERHEAD) == [("python3 tid 1000", 10, 60, "Lazy Function Loading")]
    assert named(trace, api_calls.PROFILER_OVERHEAD) == [("python3 tid 1000", 20, 30, "Lazy Function Loading")]
    [source] = table_summary(summary, "PROFILER_OVERHEAD")["sources"]
    assert source["left_out"] == {"its thread has no other events": 1}
