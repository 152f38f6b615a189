"""What was looked for: found, not found, or not decidable with the reason; and where a cost is more than it says."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.findings import RULES
from nsys2prv.efficiency.measure import measure

US, MS = 1_000, 1_000_000
MIB = 1 << 20
CLOCK = "GPC Clock Frequency [MHz]"
TENSOR = "Tensor Active [Throughput %]"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"

Tables = dict[str, pl.DataFrame]


def report(rank: int = 0) -> ReportBuilder:
    return ReportBuilder(rank=rank, ranks=4, pid=1000 + rank).gpu(rank)


def measured(folder: Path, *reports: ReportBuilder) -> Tables:
    paths = [one.write(folder / f"rank{rank}.sqlite") for rank, one in enumerate(reports)]
    return dict(measure(paths, EfficiencyOptions(align="utc")).tables)


def finding(tables: Tables, kind: str) -> dict[str, object]:
    found = tables["findings"].filter(pl.col("kind") == kind)
    assert found.height == 1, tables["findings"]["kind"].to_list()
    return found.row(0, named=True)


def check(tables: Tables, kind: str) -> tuple[str, str | None]:
    row = tables["finding_checks"].row(by_predicate=pl.col("kind") == kind, named=True)
    return row["result"], row["reason"]


def test_every_rule_has_a_result_and_what_is_not_recorded_is_not_decidable(tmp_path: Path) -> None:
    made = report()
    for index in range(20):
        made.kernel("k(int)", index * MS, index * MS + 900 * US)
    tables = measured(tmp_path, made)

    assert tables["finding_checks"]["kind"].to_list() == [rule.kind for rule in RULES]
    assert check(tables, "exposed-communication") == ("not found", None)
    assert check(tables, "launch-bound") == ("not decidable", "not recorded: CUDA API calls that launch")
    assert check(tables, "mpi-waits")[0] == "not decidable"
    assert check(tables, "clock-throttling") == (
        "not decidable", "not recorded: sampled clocks of GPUs (GPC Clock Frequency)"
    )  # fmt: skip
    assert check(tables, "slow-device") == ("not decidable", "there is one GPU, and nothing to compare it with")


def test_what_costs_too_little_is_not_found_and_says_so(tmp_path: Path) -> None:
    made = report()
    for index in range(20):
        made.copy(index * 100 * US, index * 100 * US + 20 * US, MIB, pageable=True, stream=8)
        made.kernel("k(int)", index * 100 * US + 20 * US, index * 100 * US + 100 * US)
    tables = measured(tmp_path, made)

    assert tables["findings"].is_empty()
    assert check(tables, "pageable-copies") == ("not found", "it costs 400.000 µs, less than is worth a look")


def test_hardly_any_work_and_a_long_start_and_end(tmp_path: Path) -> None:
    """As on a real report with 3 ms of kernels in 0.5 s."""
    made = report()
    made.api_call("cudaMalloc_v3020", 0, 200 * MS)
    made.os_call("read", 200 * MS, 490 * MS)
    made.kernel("k(int)", 500 * MS, 503 * MS, launch=(499 * MS, 500 * MS))
    made.os_call("close", 680 * MS, 700 * MS)
    tables = measured(tmp_path, made)

    assert tables["findings"]["kind"].to_list() == ["little-gpu-work", "start-up", "creating-context", "shut-down"]
    assert tables["findings"]["saved_ns"].to_list() == [697 * MS, 300 * MS, 200 * MS, 197 * MS]
    assert "creating the context 40.0 %" in str(finding(tables, "start-up")["seen"])


def test_the_start_of_a_process_is_no_long_one(tmp_path: Path) -> None:
    made = report()
    made.os_call("read", 0, 10 * MS)
    made.kernel("k(int)", 240 * MS, 900 * MS)
    assert "start-up" not in measured(tmp_path, made)["findings"]["kind"].to_list()


@pytest.mark.parametrize(("call", "latency", "kernel"), [(8, 2, 6), (10, 6, 8), (12, 4, 9)])
def test_launch_bound_with_longer_calls(tmp_path: Path, call: int, latency: int, kernel: int) -> None:
    """Calls one after the other that take longer than the kernels: each kernel starts `latency` after its call."""
    made = report()
    for index in range(1000):
        launch = index * call * US
        start = launch + (call + latency) * US
        made.kernel("k(int)", start, start + kernel * US, launch=(launch, launch + call * US))
    tables = measured(tmp_path, made)

    lost = finding(tables, "launch-bound")["saved_ns"]
    assert lost == pytest.approx(999 * (call - kernel) * US, rel=0.01)


def test_code_that_is_loaded_when_a_kernel_is_launched_first(tmp_path: Path) -> None:
    made = report()
    for index in range(6):
        begin = index * 26 * MS
        made.kernel(f"k{index}(int)", begin + 20 * MS, begin + 26 * MS, launch=(begin, begin + 20 * MS - US))
    tables = measured(tmp_path, made)
    found = finding(tables, "launch-stalls")

    assert found["saved_ns"] == 5 * 20 * MS
    assert "code is loaded" in str(found["seen"])


def test_launches_that_stall_again_and_again_load_no_code(tmp_path: Path) -> None:
    made = report()
    for index in range(6):
        begin = index * 26 * MS
        made.kernel("k(int)", begin + 20 * MS, begin + 26 * MS, launch=(begin, begin + 20 * MS - US))
    assert "code is loaded" not in str(finding(measured(tmp_path, made), "launch-stalls")["seen"])


def test_small_graphs(tmp_path: Path) -> None:
    made = report()
    for index in range(100):
        begin = index * 60 * US
        made.graph(begin + 40 * US, begin + 60 * US, launch=(begin + 20 * US, begin + 39 * US))
    tables = measured(tmp_path, made)
    assert finding(tables, "small-graphs")["saved_ns"] == 99 * 40 * US
    assert "launch-bound" not in tables["findings"]["kind"].to_list()


def test_memsets_that_the_host_waits_for(tmp_path: Path) -> None:
    made = report()
    for index in range(40):
        begin = index * MS
        made.api_call("cudaMemset_v3020", begin, begin + 300 * US)
        made.kernel("k(int)", begin + 310 * US, begin + MS, launch=(begin + 301 * US, begin + 305 * US))
    tables = measured(tmp_path, made)
    found = finding(tables, "synchronous-copies")
    # The gaps are as long as the calls, what the host does then, and the launch; without the calls the latter stay.
    assert (found["cost_ns"], found["saved_ns"], found["saved_how"]) == (39 * 310 * US, 39 * 300 * US, "by replay")


def test_pages_that_migrate_back_and_forth(tmp_path: Path) -> None:
    made = report()
    for index in range(200):
        begin = index * 100 * US
        made.copy(begin, begin + 20 * US, 65_536, kind=11, stream=13)
        made.kernel("k(int)", begin, begin + 60 * US)
        made.copy(begin + 60 * US, begin + 80 * US, 65_536, kind=12, stream=13)
    tables = measured(tmp_path, made)
    found = finding(tables, "unified-memory")

    assert found["saved_ns"] == 200 * 40 * US
    assert "back and forth" in str(found["seen"])
    # Kernels wait for longer than pages move.
    assert found["saved_how"] == "about, from device time"
    assert "how long kernels wait for page faults was not recorded" in str(found["seen"])


def test_kernels_wait_while_page_faults_are_handled(tmp_path: Path) -> None:
    made = report()
    for index in range(200):
        begin = index * 100 * US
        made.kernel("k(int)", begin, begin + 90 * US)
        # The second fault overlaps the first one, and a page moves after both.
        made.gpu_page_fault(begin, begin + 30 * US, 1).gpu_page_fault(begin + 20 * US, begin + 50 * US, 1)
        made.copy(begin + 40 * US, begin + 60 * US, 65_536, kind=11, stream=13)
    tables = measured(tmp_path, made)
    found = finding(tables, "unified-memory")
    assert (found["saved_ns"], found["cost_ns"]) == (200 * 60 * US, 200 * 60 * US)
    assert found["saved_how"] == "at most, from device time"
    assert "page faults of kernels are handled for 10.000 ms" in str(found["seen"])
    numbers = dict(tables["finding_numbers"].select("number", "value").iter_rows())
    assert numbers["groups of page faults of kernels"] == 400


def clocked(low: int, rank: int = 0) -> ReportBuilder:
    """A GPU that is busy for 100 ms, the last `low` ms of these with half the clock."""
    made = report(rank)
    for index in range(100):
        made.kernel("k(int)", index * MS, (index + 1) * MS)
        made.metric(CLOCK, index * MS + 500 * US, 1000 if index >= 100 - low else 2000, gpu=rank)
    return made


def test_a_clock_that_is_low_in_most_of_the_run(tmp_path: Path) -> None:
    found = finding(measured(tmp_path, clocked(70)), "clock-throttling")
    assert found["saved_ns"] == 35 * MS


def test_all_gpus_wait_for_the_one_with_the_low_clock(tmp_path: Path) -> None:
    reports = [clocked(70), clocked(0, 1)]
    for made in reports:
        made.kernel(NCCL, 100 * MS, 101 * MS, stream=8)
    found = finding(measured(tmp_path, *reports), "clock-throttling")

    assert found["saved_ns"] == pytest.approx(35 * MS, rel=0.01)
    assert (found["cost_ns"], found["device"]) == (2 * found["saved_ns"], "node01:D0")  # type: ignore[operator]


@pytest.mark.parametrize(("use", "found"), [(1, True), (40, False)])
def test_tensor_cores_that_are_idle_in_matrix_multiplications(tmp_path: Path, use: int, found: bool) -> None:
    made = report()
    for index in range(100):
        made.kernel("sm80_xmma_gemm_f32f32_128x128(int)", index * MS, index * MS + 800 * US)
        made.kernel("k(int)", index * MS + 800 * US, (index + 1) * MS)
        made.metric(TENSOR, index * MS + 500 * US, use)
        made.metric(TENSOR, index * MS + 900 * US, 0)
    kinds = measured(tmp_path, made)["findings"]["kind"].to_list()
    assert kinds == (["idle-tensor-cores"] if found else [])


def test_a_rank_that_loads_late_is_the_straggler_and_the_cause_is_named(tmp_path: Path) -> None:
    """Four ranks; rank 2 gets its batches 500 µs after the others."""
    reports = []
    for rank in range(4):
        made, late = report(rank), 500 * US if rank == 2 else 0
        for index in range(40):
            begin = index * 3 * MS
            made.os_call("read", begin + 10 * US, begin + 40 * US + late)
            launch = begin + 50 * US + late
            made.kernel("k(int)", launch + 10 * US, launch + 10 * US + 2 * MS, launch=(launch, launch + 5 * US))
            arrival, end = launch + 10 * US + 2 * MS, begin + 2900 * US
            made.kernel(NCCL, arrival, end, stream=8, launch=(launch + 5 * US, launch + 10 * US))
            made.api_call("cudaDeviceSynchronize_v3020", launch + 12 * US, end + 3 * US)
        reports.append(made)
    tables = measured(tmp_path, *reports)
    found = finding(tables, "straggler")

    # What makes it late the first time belongs to the start of the run.
    assert (found["device"], found["ranks"], found["saved_how"]) == ("node01:D2", "2", "by replay")
    assert found["saved_ns"] == pytest.approx(39 * 500 * US, rel=0.05)
    assert found["cost_ns"] == 3 * 40 * 500 * US
    assert "gaps" in str(found["seen"])
