"""Calls of UCX and NVSHMEM: intervals on host threads, with sizes, tags and states."""

from pathlib import Path

import polars as pl
from support.report_builder import ReportBuilder
from support.traces import trace_of, translate_reports
from support.whole_trace import WholeTrace, open_whole

from nsys2prv.sources.communication import ucx as ucx_calls
from nsys2prv.vocabulary import event_types


def intervals(trace: WholeTrace, *types: int) -> list[tuple[str, str, int, int]]:
    """Event type, label, begin and end of intervals."""
    found = trace.named(trace.intervals(types).sort("begin", "end", "type"))
    return found.select("label", "name", "begin", "end").rows()


def states(trace: WholeTrace) -> list[tuple[int, int, int]]:
    return trace.states().select("begin", "end", "state").sort("begin").rows()


def ucx(report: ReportBuilder, table: str, name: str, start: int, end: int | None, **columns: int) -> None:
    row = {"start": start, "end": end, "globalTid": report.global_tid(), "textId": report.string(name), **columns}
    report.row(table, **row)


def test_calls_of_ucx_have_their_messages_and_states(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.row("UCP_WORKERS", globalTid=report.global_tid(), workerUid=5)
    ucx(report, "UCP_EVENTS", "ucp_init", 0, 10)
    ucx(report, "UCP_SUBMIT_EVENTS", "ucp_tag_send_nbx", 20, 30, packedSize=4096, tag=77, peerWorkerUid=9)
    ucx(report, "UCP_SUBMIT_EVENTS", "ucp_tag_recv_nbx", 40, 50, packedSize=8, tag=78, peerWorkerUid=9)
    ucx(report, "UCP_SUBMIT_EVENTS", "ucp_put_nbx", 60, 70, packedSize=16)
    ucx(report, "UCP_EVENTS", "ucp_worker_progress", 80, 90)
    ucx(report, "UCP_EVENTS", "ucp_worker_flush", 92, 100)

    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)

    assert intervals(trace, ucx_calls.UCX_SUBMIT, ucx_calls.UCX_OTHER) == [
        ("UCX call", "ucp_init", 0, 10),
        ("UCX submission", "ucp_tag_send_nbx", 20, 30),
        ("UCX submission", "ucp_tag_recv_nbx", 40, 50),
        ("UCX submission", "ucp_put_nbx", 60, 70),
        ("UCX call", "ucp_worker_progress", 80, 90),
        ("UCX call", "ucp_worker_flush", 92, 100),
    ]
    attributes = trace.events([ucx_calls.UCX_SIZE, ucx_calls.UCX_TAG, ucx_calls.UCX_PEER]).filter(pl.col("value") != 0)
    assert attributes.select("time", "type", "value").sort("time", "type").rows() == [
        (20, ucx_calls.UCX_SIZE, 4096),
        (20, ucx_calls.UCX_TAG, 77),
        (20, ucx_calls.UCX_PEER, 9),
        (40, ucx_calls.UCX_SIZE, 8),
        (40, ucx_calls.UCX_TAG, 78),
        (40, ucx_calls.UCX_PEER, 9),
        (60, ucx_calls.UCX_SIZE, 16),
    ]
    told = [(begin, state) for begin, _, state in states(trace) if state != event_types.RUNNING]
    assert told == [
        (0, event_types.STATE_OTHERS),
        (20, event_types.STATE_IMMEDIATE_SEND),
        (40, event_types.STATE_IMMEDIATE_RECEIVE),
        (60, event_types.STATE_REMOTE_MEMORY),
        (80, event_types.STATE_TEST),
        (92, event_types.STATE_WAIT),
    ]
    assert [one["table"] for one in summary.content["reports"][0]["tables"]] == ["UCP_EVENTS", "UCP_SUBMIT_EVENTS"]


def test_requests_of_ucx_that_overlap_do_not_cut_each_other_off(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    for start, end, tag in ((0, 50, 1), (10, 30, 2), (20, 80, 3), (60, 70, 4)):
        ucx(report, "UCP_PROGRESS_EVENTS", "ucp_tag_send_nbx", start, end, packedSize=100 * tag, tag=tag)
    trace = trace_of(tmp_path, report)
    lanes = [number for number in trace.labels.types if number == 51000002 or 51001000 <= number < 51002000]
    assert [(begin, end) for *_, begin, end in intervals(trace, *lanes)] == [(0, 50), (10, 30), (20, 80), (60, 70)]
    assert len(lanes) == 3
    # What is in flight is not what the thread does.
    assert states(trace) == [(0, 80, event_types.RUNNING)]


def test_calls_of_nvshmem_are_told_from_other_ranges(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.nvtx_range("nvshmem_barrier_all", 10, 20, domain="NVSHMEM")
    report.nvtx_range("nvshmem_putmem_nbi", 30, 40, domain="NVSHMEM", registered=True)
    report.nvtx_range("nvshmem_quiet", 50, 60, domain="NVSHMEM").nvtx_range("nvshmem_malloc", 70, 80, domain="NVSHMEM")
    report.nvtx_range("nvshmem_barrier_all", 90, 100)

    summary = translate_reports(tmp_path, report)
    trace = open_whole(summary.prv)

    assert intervals(trace, ucx_calls.NVSHMEM_CALL) == [
        ("NVSHMEM call", "nvshmem_barrier_all", 0, 10),
        ("NVSHMEM call", "nvshmem_putmem_nbi", 20, 30),
        ("NVSHMEM call", "nvshmem_quiet", 40, 50),
        ("NVSHMEM call", "nvshmem_malloc", 60, 70),
    ]
    assert intervals(trace, event_types.NVTX_PUSHPOP) == [("NVTX pushpop ranges default domain", "nvshmem_barrier_all", 80, 90)]
    assert [(begin, state) for begin, _, state in states(trace) if state != event_types.RUNNING] == [
        (0, event_types.STATE_GROUP),
        (20, event_types.STATE_REMOTE_MEMORY),
        (40, event_types.STATE_SYNCHRONIZATION),
        (60, event_types.STATE_ALLOCATING),
    ]
    (table,) = summary.content["reports"][0]["tables"]
    assert table["left_out"] == {"names of threads, domains and categories, not events": 1}
