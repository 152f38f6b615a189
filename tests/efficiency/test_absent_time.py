"""Compute-absent time: small runs with known parts, and simulated clusters of which every ns is known."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import few_of
from support.measured import MS, NCCL, measured, measured_tables, written
from support.report_builder import ReportBuilder
from support.simulated_run.absent import absent_parts
from support.simulated_run.causes import CAUSES, with_and_without
from support.simulated_run.cluster import PATTERNS, Cluster
from support.simulated_run.truth import SimulatedRun, simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import window_choice
from nsys2prv.efficiency.intervals import Intervals, segments
from nsys2prv.efficiency.meters import gaps
from nsys2prv.efficiency.meters.absent_pieces import Timeline
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS

TABLES = ("absent_time", "absent_regions", "absent_iterations", "absent_parts", "absent_calls", "absent_ranges",
          "absent_functions", "absent_stretches", "gaps", "longest_gaps", "nccl_exposure", "task_iterations")  # fmt: skip
COMMUNICATION = {"late_rank_ns", "transfer_ns", "communication_ns"}


def absent(folder: Path, *reports: ReportBuilder, **options: Any) -> dict[str, pl.DataFrame]:
    """Tables about time without computation."""
    return measured_tables(written(folder, *reports), TABLES, **options)


def of_simulated(reports: list[Path], **options: Any) -> dict[str, pl.DataFrame]:
    return measured_tables(reports, TABLES, regions=("*",), **options)


def parts_of(found: dict[str, pl.DataFrame], device: int = 0) -> dict[str, int]:
    """Parts of a device that are not 0."""
    row = found["absent_time"].row(device, named=True)
    assert sum(row[name] for name in PART_COLUMNS) == row["absent_ns"] == row["elapsed_ns"] - row["compute_ns"]
    return {name: row[name] for name in PART_COLUMNS if row[name]}


def details_of(found: dict[str, pl.DataFrame]) -> dict[tuple[str, str | None], int]:
    rows = found["absent_parts"].group_by("part", "detail").agg(pl.col("total_ns").sum()).iter_rows()
    return {(part, detail): total for part, detail, total in rows}


def test_a_stretch_is_launch_starved_until_the_launch_and_queued_from_then_on(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.api_call("cudaDeviceSynchronize_v3020", 110, 230)
    report.api_call("cudaMalloc_v3020", 250, 300)
    report.kernel("second", 450, 500, launch=(400, 410))
    report.api_call("cudaDeviceSynchronize_v3020", 420, 600)
    found = absent(tmp_path, report)
    assert parts_of(found) == {
        "start_up_ns": 100,
        "starved_synchronization_ns": 30,
        "starved_allocation_ns": 50,
        "starved_host_ns": 120,
        "starved_launch_ns": 10,
        "queued_ns": 40,
        "shut_down_ns": 100,
    }
    calls = dict(found["absent_calls"].select("call", "total_ns").iter_rows())
    assert calls == {None: 120, "cudaMalloc": 50, "cudaDeviceSynchronize": 30, "cudaLaunchKernel": 10}


def test_pages_move_before_the_first_kernel_and_after_the_last_one_and_nothing_computes_meanwhile(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.api_call("cudaMallocManaged_v6000", 0, 200 * MS)
    report.copy(300 * MS, 310 * MS, 65_536, kind=12, stream=13)
    report.api_call("cudaMemPrefetchAsync_v8000", 350 * MS, 370 * MS)
    report.copy(355 * MS, 365 * MS, 65_536, kind=11, stream=13)
    report.kernel("k(int)", 400 * MS, 500 * MS, launch=(390 * MS, 395 * MS))
    report.copy(600 * MS, 640 * MS, 65_536, kind=12, stream=13)
    report.api_call("cudaFree_v3020", 650 * MS, 700 * MS)
    result = measured(tmp_path, report)
    assert result.absent_time["compute_ns"].to_list() == result.run["useful_ns"].to_list() == [100 * MS]
    # No call launches that a page moves: who waits for the first one is known from what is launched later.
    assert parts_of(result.tables) == {
        "start_up_ns": 100 * MS,
        "starved_context_ns": 200 * MS,
        "starved_unified_memory_ns": 10 * MS,
        "starved_host_ns": 60 * MS + 100 * MS,
        "starved_launch_ns": 5 * MS,
        "starved_memory_ns": 10 * MS,
        "queued_ns": 5 * MS,
        # The prefetch, and what moves after the last kernel.
        "unified_memory_ns": 10 * MS + 40 * MS,
        "shut_down_ns": 60 * MS,
    }
    assert result.longest_gaps.sort("begin_ns")["context_ns"][0] == 200 * MS


def test_the_innermost_call_of_the_activity_and_the_innermost_range_have_the_time(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.nvtx_range("step", 0, 390).nvtx_range("load", 210, 300)
    report.api_call("cudaMalloc_v3020", 220, 320)
    report.api_call("cuMemAlloc_v2", 230, 260)
    report.kernel("second", 400, 500, launch=(400, 410))
    found = absent(tmp_path, report)
    assert dict(found["absent_calls"].select("call", "total_ns").iter_rows()) == {
        None: 100, "cudaMalloc": 70, "cuMemAlloc_v2": 30
    }  # fmt: skip
    assert dict(found["absent_ranges"].select("range", "total_ns").iter_rows()) == {"step": 100, "load": 90, None: 10}


def test_a_kernel_waits_for_the_operations_before_it_in_its_stream(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.copy(210, 300, 4096, launch=(20, 30))
    report.copy(310, 320, 4096, launch=(30, 40))
    report.kernel("second", 350, 500, launch=(40, 50))
    found = absent(tmp_path, report)
    assert parts_of(found) == {"start_up_ns": 100, "copy_ns": 100, "queued_ns": 50}
    assert found["absent_calls"].is_empty()


def test_what_runs_on_another_stream_is_not_waited_for(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.copy(210, 300, 4096, launch=(20, 30), stream=8)
    report.kernel("second", 350, 500, launch=(40, 50))
    found = absent(tmp_path, report)
    assert parts_of(found) == {"start_up_ns": 100, "queued_ns": 150}
    assert details_of(found)["queued", "beside other work of the process"] == 90
    # Where events are awaited and not recorded it is not decidable beside other work.
    report.api_call("cudaStreamWaitEvent_v3020", 30, 35)
    assert parts_of(absent(tmp_path / "awaited", report)) == {"start_up_ns": 100, "queued_ns": 60, "undecided_ns": 90}


def test_what_runs_on_the_device_comes_before_what_its_host_does(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.api_call("cudaMemcpyAsync_v3020", 210, 220)
    report.copy(240, 340, 4096)
    report.api_call("cudaStreamSynchronize_v3020", 220, 350)
    report.kernel("second", 400, 500, launch=(400, 410))
    found = absent(tmp_path, report)
    assert parts_of(found)["copy_ns"] == 100
    assert details_of(found)["launch-starved: waiting for the device", None] == 30
    assert found["absent_calls"].filter(call="cudaStreamSynchronize")["total_ns"].to_list() == [30]


def test_without_launches_nothing_is_decidable_between_start_and_end(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200)
    report.kernel("second", 350, 500)
    found = absent(tmp_path, report)
    assert parts_of(found) == {"undecided_ns": 150}
    (detail,) = [detail for (part, detail) in details_of(found) if part == "not decidable"]
    assert detail is not None
    assert detail.startswith("no launch was recorded")


def test_after_its_last_kernel_a_device_waits_for_none_while_others_work(tmp_path: Path) -> None:
    first, second = ReportBuilder(rank=0, ranks=2, pid=1000).gpu(0), ReportBuilder(rank=1, ranks=2, pid=1001).gpu(1)
    first.kernel("a", 100, 200, launch=(0, 10))
    second.kernel("b", 150, 400, launch=(0, 10))
    second.api_call("cudaDeviceSynchronize_v3020", 10, 500)
    found = absent(tmp_path, first, second)
    assert parts_of(found, 0) == {"start_up_ns": 100, "starved_ended_ns": 200, "shut_down_ns": 100}
    assert parts_of(found, 1) == {"start_up_ns": 100, "queued_ns": 50, "shut_down_ns": 100}


def test_a_run_without_kernels_is_absent_throughout(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.copy(100, 200, 4096, launch=(0, 10))
    report.copy(300, 400, 4096, launch=(210, 220))
    report.api_call("cudaDeviceSynchronize_v3020", 220, 450)
    found = absent(tmp_path, report)
    assert parts_of(found) == {
        "start_up_ns": 100, "copy_ns": 200, "starved_host_ns": 10, "queued_ns": 90, "shut_down_ns": 50
    }  # fmt: skip


def test_without_kernels_what_the_thread_did_before_it_launched_other_work_counts(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel(NCCL, 100, 200, launch=(0, 10))
    report.on_cpu(0, 250).on_cpu(750, 1000)
    report.kernel(NCCL, 850, 900, launch=(800, 810))
    found = absent(tmp_path, report)
    row = found["absent_time"].row(0, named=True)
    named = ("starved_computing", "starved_off_cpu", "starved_launch", "queued", "starved_ended")
    assert [row[f"{name}_ns"] for name in named] == [100, 500, 10, 40, 0]
    assert row["off_cpu_ns"] == 500


def test_of_kernels_that_start_at_once_the_one_of_the_last_known_thread_ends_the_gap(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.kernel("nobody's", 300, 400, stream=20)
    for thread, (start, stream) in {1000: (20, 8), 2000: (40, 9)}.items():
        call = report.api_call("cudaLaunchKernel_v7000", start, start + 10, tid=thread)
        report.kernel(f"of {thread}", 300, 400, stream=stream, correlation=call)
    found = absent(tmp_path, report)

    for table, following in (("longest_gaps", "after"), ("absent_stretches", "next")):
        row = found[table].filter(pl.col("begin_ns") == 200).row(0, named=True)
        assert (row[following], row["thread"]) == ("of 2000", "tid 2000"), table


def loads_on_and_off_its_cpu() -> ReportBuilder:
    """Between two kernels the thread is off its CPU from 240 to 300 and from 380 to 395, there in a call that waits."""
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.on_cpu(0, 240).on_cpu(300, 380).on_cpu(395, 600)
    report.api_call("cudaStreamSynchronize_v3020", 370, 400)
    for time in (150, 310, 320, 330, 390, 550):
        report.cpu_sample(time, [("decode" if time < 330 else "copy", "libimage.so"), ("main", "app")])
    report.cpu_sample(340)
    report.kernel("second", 450, 500, launch=(400, 410))
    report.api_call("cudaDeviceSynchronize_v3020", 420, 600)
    return report


def test_a_thread_that_launches_too_late_computes_or_is_off_its_cpu_and_samples_say_where(tmp_path: Path) -> None:
    found = absent(tmp_path, loads_on_and_off_its_cpu())

    row = found["absent_time"].row(0, named=True)
    assert (row["starved_computing_ns"], row["off_cpu_ns"], row["starved_synchronization_ns"]) == (110, 60, 30)
    assert found["absent_calls"].select("part", "call", "total_ns", "off_cpu_ns").rows() == [
        ("launch-starved: host computing", None, 110, 0),
        ("launch-starved: host off its CPU", None, 60, 60),
        ("launch-starved: waiting for the device", "cudaStreamSynchronize", 30, 15),
        ("launch-starved: launching", "cudaLaunchKernel", 10, 0),
    ]
    # Those at 150 and 550 are beside kernels, and that at 340 has no call chain.
    assert found["absent_functions"].select("part", "function", "module", "samples", "share").rows() == [
        ("launch-starved: host computing", "decode", "libimage.so", 2, 0.5),
        ("launch-starved: waiting for the device", "copy", "libimage.so", 1, 0.25),
        ("launch-starved: host computing", "copy", "libimage.so", 1, 0.25),
    ]


def test_where_scheduling_was_not_recorded_nothing_is_said_about_it(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.kernel("second", 450, 500, launch=(400, 410))
    found = absent(tmp_path, report)
    assert found["absent_time"]["off_cpu_ns"].to_list() == [None]
    assert found["absent_calls"]["off_cpu_ns"].to_list() == [None, None]
    assert found["absent_functions"].is_empty()


def two_ranks(hosts: tuple[str, str] = ("node01", "node01")) -> list[ReportBuilder]:
    """Rank 1 arrives 300 ns later; a kernel after the collective needs it."""
    reports = []
    for rank, arrives in ((0, 300), (1, 600)):
        report = ReportBuilder(rank=rank, ranks=2, pid=1000 + rank, host=hosts[rank]).gpu(rank)
        report.kernel("before", 100, 200, launch=(0, 10))
        report.kernel(NCCL, arrives, 1000, launch=(20, 30))
        report.kernel("after", 1010, 1100, launch=(30, 40))
        reports.append(report)
    return reports


def test_a_wait_for_a_collective_is_for_the_late_rank_and_then_for_the_transfer(tmp_path: Path) -> None:
    both = absent(tmp_path, *two_ranks())
    assert parts_of(both, 0) == {"start_up_ns": 100, "queued_ns": 110, "late_rank_ns": 300, "transfer_ns": 400}
    assert parts_of(both, 1) == {"start_up_ns": 100, "queued_ns": 410, "transfer_ns": 400}
    assert details_of(both)["waiting for a late rank", "Rank 1 node01 pid 1001 python3"] == 300
    longest = both["absent_stretches"].row(0, named=True)
    assert (longest["late_rank_ns"], longest["transfer_ns"], longest["queued_ns"]) == (300, 400, 110)


def test_between_hosts_communication_is_divided_only_as_far_as_clocks_are_known(tmp_path: Path) -> None:
    both = absent(tmp_path, *two_ranks(hosts=("node01", "node02")))
    assert parts_of(both, 0) == {"start_up_ns": 100, "queued_ns": 110, "communication_ns": 300, "transfer_ns": 400}
    assert details_of(both)["communication, not divided", "ranks arrive closer together than their clocks are known"] == 300


def test_of_a_single_rank_communication_is_not_divided(tmp_path: Path) -> None:
    first, _ = two_ranks()
    alone = absent(tmp_path, first)
    assert parts_of(alone) == {"start_up_ns": 100, "queued_ns": 110, "communication_ns": 700}


def assert_true(run: SimulatedRun, found: dict[str, pl.DataFrame]) -> None:
    """All parts are those of the simulation; of communication, what is not divided for want of clocks may be either."""
    for rank, truth in enumerate(absent_parts(run)):
        row = found["absent_time"].row(rank, named=True)
        # The communicators of a rank are created before the first work.
        created = 40_000 * len({one.communicator for one in run.recorded.ranges if one.rank == rank and one.communicator})
        assert row["starved_communicator_ns"] == created
        row |= {"start_up_ns": row["start_up_ns"] + created, "starved_communicator_ns": 0}
        wanted = {name: truth.get(name.removesuffix("_ns"), 0) for name in PART_COLUMNS}
        different = {name: (row[name], wanted[name]) for name in PART_COLUMNS if row[name] != wanted[name]}
        assert set(different) <= COMMUNICATION, different
        assert sum(row[name] for name in COMMUNICATION) == sum(wanted[name] for name in COMMUNICATION)
        # Ranks do not leave a collective in the same ns.
        spread = 1_000
        assert row["late_rank_ns"] <= wanted["late_rank_ns"] + spread
        assert row["late_rank_ns"] + row["communication_ns"] >= wanted["late_rank_ns"] - spread


RUNS = {
    **{pattern: Cluster(pattern=pattern, iterations=2) for pattern in PATTERNS},
    **{cause: with_and_without(Cluster(gpus=3, iterations=2), cause)[0] for cause in CAUSES},
}


@pytest.mark.parametrize("name", few_of(RUNS, {"halo"}))
def test_parts_are_those_of_simulated_runs(name: str, tmp_path: Path) -> None:
    run = simulate(RUNS[name])
    assert_true(run, of_simulated(write_reports(run, tmp_path)))


def test_tables_do_not_depend_on_how_much_is_looked_at_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = write_reports(simulate(Cluster(gpus=1, iterations=1, layers=1)), tmp_path)
    together = of_simulated(reports)
    monkeypatch.setattr(gaps, "BLOCK_GAPS", 31)
    in_blocks = of_simulated(reports)
    assert together["absent_time"]["absent_ns"].min() > 0
    for name in TABLES:
        assert in_blocks[name].equals(together[name]), name


def test_pieces_are_cut_where_what_holds_changes_and_outside_of_all_segments() -> None:
    edges = segments(Intervals.of([0, 0, 2], [10, 20, 5], [30, 30, 8]))
    timeline = Timeline(edges, {"depth": edges.counts[0]})
    pieces = pl.DataFrame({"thread": [0, 0, 1, 2], "begin": [5, 31, 0, 6], "end": [35, 32, 9, 7], "gap": [0, 1, 2, 3]})
    assert timeline.cut(pieces, "thread").sort("gap", "begin").select("gap", "begin", "end", "depth").rows() == [
        (0, 5, 10, 0), (0, 10, 20, 1), (0, 20, 30, 2), (0, 30, 35, 0), (1, 31, 32, 0), (2, 0, 9, 0), (3, 6, 7, 1)
    ]  # fmt: skip


def test_parts_of_regions_are_cut_at_the_edges_of_ranges_that_may_be_nested(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.nvtx_range("step", 50, 470).nvtx_range("load", 210, 300).nvtx_range("step", 480, 490)
    report.kernel("first", 100, 200, launch=(0, 10))
    report.api_call("cudaMalloc_v3020", 220, 320)
    report.kernel("second", 450, 500, launch=(400, 410))
    found = absent(tmp_path, report, regions=("step", "load"))["absent_regions"]

    rows = {row["region"]: {name: row[name] for name in PART_COLUMNS if row[name]} for row in found.iter_rows(named=True)}
    assert rows == {
        "step": {"start_up_ns": 50, "starved_allocation_ns": 100, "starved_host_ns": 100, "starved_launch_ns": 10,
                 "queued_ns": 40},
        "load": {"starved_host_ns": 10, "starved_allocation_ns": 80},
    }  # fmt: skip
    assert found.select("region", "elapsed_ns", "compute_ns", "absent_ns").rows() == [
        ("step", 430, 130, 300),
        ("load", 90, 0, 90),
    ]


def test_times_in_iterations_are_those_of_a_window_of_the_same_edges(tmp_path: Path) -> None:
    run = simulate(Cluster(gpus=1, iterations=3, layers=1))
    reports = write_reports(run, tmp_path)
    found = of_simulated(reports)
    iterations, edges = found["absent_iterations"], found["task_iterations"]
    assert iterations.height == edges.height > run.cluster.ranks
    edge = edges.row(-1, named=True)
    window = window_choice((edge["begin_ns"], edge["end_ns"]))
    alone = of_simulated(reports, window=window)["absent_time"].filter(pl.col("device") == edge["device"])
    inside = iterations.filter(pl.col("device") == edge["device"], pl.col("iteration") == edge["iteration"])
    total = ["elapsed_ns", "compute_ns", "absent_ns"]
    assert inside.select(total).equals(alone.select(total))
    assert inside.select(pl.sum_horizontal(PART_COLUMNS)).item() == inside["absent_ns"].item() > 0
