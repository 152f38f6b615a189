"""Graphs of small runs whose critical path is known."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.graph.replay import EdgeKind
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.run.options import ReadOptions

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def rank(folder: Path, number: int, compute: int) -> Path:
    """A rank that computes for some us, reduces with the other one, and waits for the result."""
    report = ReportBuilder(rank=number, with_mpi=True, ranks=2, pid=1000 + number).gpu(number)
    report.kernel("compute", 30 * US, (30 + compute) * US, launch=(10 * US, 15 * US))
    # The copy on another stream ends before the reduction does, and nothing waits for it.
    call = report.api_call("cudaMemcpyAsync_v3020", 16 * US, 18 * US)
    report.copy(22 * US, 42 * US, 1 << 20, kind=1, correlation=call, stream=13)
    report.kernel(NCCL, (32 + compute) * US, 400 * US, launch=(20 * US, 25 * US))
    report.api_call("cudaStreamSynchronize_v3020", 60 * US, 410 * US)
    # Rank 0 stops earlier than rank 1.
    report.api_call("cudaGetDevice_v3020", 450 * US, (500 - 20 * (1 - number)) * US)
    return report.write(folder / f"rank{number}.sqlite")


def segments(result: EfficiencyResult) -> list[tuple[int, int, str, str]]:
    """Begin and end of each segment, us, its kind, and the rank and kind of its row."""
    return [
        (row["begin_ns"] // US, row["end_ns"] // US, row["kind"], f"{row['task'][:6]} {row['row'].split('-')[0][:4]}")
        for row in result.critical_path.iter_rows(named=True)
    ]


@pytest.mark.parametrize("late", [0, 1])
def test_the_path_runs_through_the_rank_that_arrives_last(tmp_path: Path, late: int) -> None:
    reports = [rank(tmp_path, number, 200 if number == late else 100) for number in range(2)]
    result = measure(reports, EfficiencyOptions())
    # Times count from the first event, which is the launch at 10 us.
    stream = f"Rank {late} CUDA"
    assert segments(result)[:8] == [
        (0, 20, "launch latency", stream),
        (20, 220, "kernel", stream),
        (220, 222, "stream order", stream),
        (222, 390, "transfer", "Rank 1 CUDA"),
        (390, 400, "synchronization latency", "Rank 1 pyth"),
        (400, 440, "host", "Rank 1 pyth"),
        (440, 490, "host", "Rank 1 pyth"),
    ]
    assert result.critical_path["length_ns"].sum() == result.head["window"]["length_ns"]
    totals = result.critical_path_totals
    for division in ("kind", "task"):
        part = totals.filter(by=division)
        assert part["total_ns"].sum() == result.head["window"]["length_ns"]
        assert part["share"].sum() == pytest.approx(1)
    by_name = {(by, name): total for by, name, total, *_ in totals.iter_rows()}
    assert by_name["kernel", "compute"] == 200 * US
    assert by_name["kernel", NCCL] == 168 * US
    assert by_name["host cause", "other_cuda"] == 50 * US
    on_path = result.critical_path_rows.filter(pl.col("task").str.starts_with(f"Rank {late}")).row(0, named=True)
    assert on_path["least_slack_ns"] == 0
    beside = result.critical_path_rows.filter(pl.col("row").str.contains("S13"))
    assert beside["on_path_ns"].to_list() == [0, 0]
    assert beside["least_slack_ns"].to_list() == [458 * US, 458 * US]


def test_without_the_option_there_is_no_path(tmp_path: Path) -> None:
    result = measure([rank(tmp_path, 0, 100)], EfficiencyOptions(no_critical_path=True))
    assert result.critical_path.is_empty()
    assert result.critical_path_totals.is_empty()


@pytest.mark.parametrize("recorded", ["pthread_create", None], ids=["creation recorded", "one stream"])
def test_the_path_goes_on_in_the_thread_that_created_another_one(tmp_path: Path, recorded: str | None) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("forward", 110 * US, 200 * US, launch=(100 * US, 105 * US))
    if recorded:
        report.os_call(recorded, 150 * US, 160 * US)
    # Another thread launches, and is seen for the first time.
    call = report.api_call("cudaLaunchKernel_v7000", 400 * US, 405 * US, tid=1001)
    report.kernel("backward", 410 * US, 900 * US, correlation=call)
    report.api_call("cudaStreamSynchronize_v3020", 406 * US, 905 * US, tid=1001)
    path = report.write(tmp_path / "report.sqlite")
    totals = measure([path], EfficiencyOptions()).critical_path_totals
    kinds = {name for by, name in totals.select("by", "name").iter_rows() if by == "kind"}
    assert "wake-up" in kinds
    assert not {"before the path"} & kinds


def test_a_wait_in_a_call_of_the_os_that_nothing_explains_is_named_so(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("first", 110 * US, 200 * US, launch=(100 * US, 105 * US))
    report.os_call("poll", 300 * US, 800 * US).os_call("write", 810 * US, 850 * US)
    report.kernel("second", 910 * US, 950 * US, launch=(900 * US, 905 * US))
    result = measure([report.write(tmp_path / "report.sqlite")], EfficiencyOptions())
    totals = {(by, name): total for by, name, total in result.critical_path_totals.select("by", "name", "total_ns").iter_rows()}
    assert totals["kind", "unknown wait"] == 500 * US
    # It is nothing that the host did.
    assert totals["host cause", "os"] == 40 * US
    assert sum(total for (by, _), total in totals.items() if by == "kind") == result.head["window"]["length_ns"]


def test_launches_after_what_they_launch_are_left_out_and_counted(tmp_path: Path) -> None:
    report = ReportBuilder().gpu()
    for place in range(20):
        report.kernel("before its launch", place * 1000, place * 1000 + 500, launch=(place * 1000 + 9000, place * 1000 + 9100))
    path = report.write(tmp_path / "report.sqlite")
    built = graph_of_run(MeasuredRun(read_events([path], ReadOptions(), tmp_path, with_dependencies=True)))
    assert built.left_out == {EdgeKind.LAUNCH: 20}
