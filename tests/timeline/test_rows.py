"""Which rows a trace has: nodes, tasks in the order of ranks, threads, streams, devices of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import TooManyRows
from nsys2prv.paraver import trace_format
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions


def tasks(tmp_path: Path, *reports: ReportBuilder) -> list[dict[str, object]]:
    paths = [report.write(tmp_path / f"r{index}.sqlite") for index, report in enumerate(reports)]
    content = translate(paths, tmp_path / "out", TranslateOptions(no_views=True)).content
    return [{key: task[key] for key in ("node", "rank", "pid", "threads")} for task in content["tasks"]]


def streams(of_tasks: list[dict[str, object]]) -> list[list[str]]:
    return [[name for name in task["threads"] if not name.startswith(("python3", "tid"))] for task in of_tasks]  # type: ignore[attr-defined]


def test_tasks_are_in_the_order_of_ranks_whatever_the_files_are_called(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=100 + rank, host=f"n{rank // 2}") for rank in (3, 0, 2, 1)]
    for report in reports:
        report.os_call("read", 0, 5)
    found = tasks(tmp_path, *reports)
    assert [(task["rank"], task["node"], task["pid"]) for task in found] == [
        (0, "n0", 100), (1, "n0", 101), (2, "n1", 102), (3, "n1", 103),
    ]  # fmt: skip


def test_ranks_of_mpi_count_before_those_of_the_launcher(tmp_path: Path) -> None:
    report = ReportBuilder(rank=7, pid=50)
    report.process(60)
    report.mpi_rank(1, pid=50, tid=50).mpi_rank(0, pid=60, tid=60)
    report.os_call("read", 0, 5).os_call("read", 0, 5, pid=60, tid=60)
    assert [(task["rank"], task["pid"]) for task in tasks(tmp_path, report)] == [(0, 60), (1, 50)]


def test_two_ranks_that_both_say_device_0_on_different_gpus_get_different_numbers(tmp_path: Path) -> None:
    reports = []
    for rank, bus in enumerate(("0000:b3:00.0", "0000:1a:00.0")):
        report = ReportBuilder(rank=rank, pid=10 + rank)
        report.gpu(0, uuid=f"uuid-{rank}", bus=bus)
        report.kernel("k", 0, 10)
        report.metric("SM Active", 5, 50)
        reports.append(report)
    # Both report one GPU with index 0: the place on the bus tells them apart.
    assert streams(tasks(tmp_path, *reports)) == [["CUDA-D1.S7-node01", "Metrics GPU1"], ["CUDA-D0.S7-node01", "Metrics GPU0"]]


def test_a_rank_that_sees_one_gpu_of_many_is_placed_by_what_was_visible(tmp_path: Path) -> None:
    reports = []
    for rank in range(3):
        report = ReportBuilder(rank=rank, pid=10 + rank, environment={"CUDA_VISIBLE_DEVICES": str(2 - rank)})
        for gpu in range(3):
            report.gpu(gpu, uuid=f"uuid-{gpu}")
        report.kernel("k", 0, 10, device=0)
        reports.append(report)
    assert streams(tasks(tmp_path, *reports)) == [["CUDA-D2.S7-node01"], ["CUDA-D1.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_tables_of_newer_exports_say_which_gpu_a_process_calls_0(tmp_path: Path) -> None:
    report = ReportBuilder(pid=10)
    report.process(11)
    for gpu in range(2):
        report.gpu(gpu, uuid=f"uuid-{gpu}")
    report.cuda_device(0, 1, pid=10).cuda_device(0, 0, pid=11)
    report.kernel("k", 0, 10, pid=10)
    report.kernel("k", 0, 10, pid=11)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D1.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_one_gpu_that_two_ranks_share_has_one_number_and_stays_apart(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=10 + rank) for rank in range(2)]
    for report in reports:
        report.gpu(0, uuid="shared")
        report.kernel("k", 0, 10)
    found = tasks(tmp_path, *reports)
    assert streams(found) == [["CUDA-D0.S7-node01"], ["CUDA-D0.S7-node01"]]


def test_streams_of_several_contexts_stay_apart_under_the_name_that_tools_read(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.gpu(0)
    report.kernel("k", 0, 10, context=1)
    report.kernel("k", 5, 15, context=2)
    report.kernel("k", 5, 15, context=2, stream=9)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D0.S7-node01", "CUDA-D0.S7-node01", "CUDA-D0.S9-node01"]]


def test_equal_pids_and_tids_on_two_hosts_stay_apart(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, pid=10, host=f"n{rank}") for rank in range(2)]
    for rank, report in enumerate(reports):
        report.gpu(0, uuid=f"uuid-{rank}")
        report.kernel("k", 20, 30, launch=(0, 10))
        report.thread(12, name="worker")
        report.os_call("read", 3, 4, tid=12)
    found = tasks(tmp_path, *reports)
    assert [(task["node"], task["threads"]) for task in found] == [
        (f"n{rank}", ["python3 tid 10", "worker tid 12", f"CUDA-D0.S7-n{rank}"]) for rank in range(2)
    ]


def test_the_main_thread_is_first(tmp_path: Path) -> None:
    report = ReportBuilder(pid=100)
    for tid, name in ((7, "early"), (100, "python3"), (200, "")):
        report.thread(tid, name=name)
        report.os_call("read", 0, 5, tid=tid)
    assert tasks(tmp_path, report)[0]["threads"] == ["python3 tid 100", "early tid 7", "tid 200"]


def test_a_gpu_that_no_process_uses_has_its_row_in_a_task_of_the_node(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0)
    for gpu in range(2):
        report.gpu(gpu)
        report.metric("SM Active", 5, 50, gpu=gpu)
    report.kernel("k", 0, 10, device=0)
    found = tasks(tmp_path, report)
    assert streams(found) == [["CUDA-D0.S7-node01", "Metrics GPU0"], ["Metrics GPU1"]]
    assert found[1]["pid"] is None


def test_more_rows_than_paraver_takes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_format, "MOST_OBJECTS", 3)
    report = ReportBuilder()
    for tid in range(1, 6):
        report.os_call("read", 0, 5, tid=tid)
    with pytest.raises(TooManyRows, match="would have 5 rows and 3 rows are the most; select"):
        tasks(tmp_path, report)


def test_a_blank_in_the_name_of_a_node_does_not_end_the_name_that_tools_read(tmp_path: Path) -> None:
    report = ReportBuilder(host="big node")
    report.gpu(0)
    report.kernel("k", 0, 10)
    assert streams(tasks(tmp_path, report)) == [["CUDA-D0.S7-big_node"]]
    assert measure([report.write(tmp_path / "blank.sqlite")]).tables["devices"]["device"].to_list() == ["big node:D0"]
