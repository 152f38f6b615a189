"""What was looked for: found, not found, or not decidable with the reason; and where a cost is more than it says."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import rest
from support.measured import MS, NCCL, US, check, finding, measured
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.findings.engine import RULES
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, over_parts, summed, with_top

MIB = 1 << 20
CLOCK = "GPC Clock Frequency [MHz]"
TENSOR = "Tensor Active [Throughput %]"


def report(rank: int = 0) -> ReportBuilder:
    return ReportBuilder(rank=rank, ranks=4, pid=1000 + rank).gpu(rank)


def test_every_rule_has_a_result_and_what_is_not_recorded_is_not_decidable(tmp_path: Path) -> None:
    made = report()
    for index in range(20):
        made.kernel("k(int)", index * MS, index * MS + 900 * US)
    result = measured(tmp_path, made)
    assert result.finding_checks["kind"].to_list() == [rule.kind for rule in RULES]
    assert check(result, "exposed-communication") == ("not found", None)
    assert check(result, "launch-bound") == ("not decidable", "not recorded: CUDA API calls that launch")
    assert check(result, "mpi-waits")[0] == "not decidable"
    assert check(result, "clock-throttling") == (
        "not decidable", "not recorded: sampled clocks of GPUs (GPC Clock Frequency)"
    )  # fmt: skip
    assert check(result, "slow-device") == ("not decidable", "there is one GPU, and nothing to compare it with")


def test_what_costs_too_little_is_not_found_and_says_so(tmp_path: Path) -> None:
    made = report()
    for index in range(20):
        made.copy(index * 100 * US, index * 100 * US + 20 * US, MIB, pageable=True, stream=8)
        made.kernel("k(int)", index * 100 * US + 20 * US, index * 100 * US + 100 * US)
    result = measured(tmp_path, made)
    assert result.findings.is_empty()
    assert check(result, "pageable-copies") == ("not found", "it costs 400.000 µs, less than is worth a look")
    late = report()
    late.kernel("k(int)", 50 * MS, 100 * MS, launch=(0, MS))
    assert check(measured(tmp_path, late), "start-up") == ("not found", "it takes 50.000 ms (50.0 %), less than 200.000 ms")


def test_hardly_any_work_and_a_long_start_and_end(tmp_path: Path) -> None:
    """As on a real report with 3 ms of kernels in 0.5 s."""
    made = report()
    made.api_call("cudaMalloc_v3020", 0, 200 * MS)
    made.os_call("read", 200 * MS, 490 * MS)
    made.kernel("k(int)", 500 * MS, 503 * MS, launch=(499 * MS, 500 * MS))
    made.os_call("close", 680 * MS, 700 * MS).os_call("ioctl", 503 * MS, 508 * MS)
    for begin in (510, 580):
        made.api_call("cuModuleUnload", begin * MS, (begin + 60) * MS)
        made.os_call("ioctl", begin * MS, (begin + 59) * MS)
    result = measured(tmp_path, made)
    assert result.findings["kind"].to_list() == ["start-up", "creating-context", "shut-down", "little-gpu-work"]
    assert "most of it is in 2 calls of cuModuleUnload, 120.000 ms" in str(finding(result, "shut-down")["seen"])
    assert "calls of cuModuleUnload" in str(finding(result, "shut-down")["advice"])
    assert result.findings["saved_ns"].to_list() == [300 * MS, 200 * MS, 197 * MS, 697 * MS]
    assert "host in I/O 10.2 %" in str(finding(result, "shut-down")["seen"])
    assert "creating the context 40.0 %" in str(finding(result, "start-up")["seen"])
    assert "most of it is in 1 call of read, 290.000 ms" in str(finding(result, "start-up")["seen"])


def test_what_becomes_of_managed_memory_is_not_decidable_without_its_migrations(tmp_path: Path) -> None:
    made = report()
    made.api_call("cudaMallocManaged_v6000", 0, MS)
    made.kernel("k(int)", 2 * MS, 9 * MS)
    result = measured(tmp_path, made)
    assert {check(result, kind)[0] for kind in ("unified-memory", "pages-pulled-back")} == {"not decidable"}


def test_of_stages_that_compute_in_turns_no_more_than_the_rest_is_communication(tmp_path: Path) -> None:
    reports = [report(rank) for rank in range(2)]
    for begin in range(0, 40 * MS, 2 * MS):
        for rank, made in enumerate(reports):
            made.kernel("k(int)", begin + rank * MS, begin + (rank + 1) * MS)
            made.kernel(NCCL, begin + (1 - rank) * MS, begin + (2 - rank) * MS, stream=20)
    assert finding(measured(tmp_path, *reports), "exposed-communication")["saved_ns"] == 20 * MS


def test_hardly_any_work_follows_from_what_explains_most_of_the_idle_time(tmp_path: Path) -> None:
    made = report()
    made.os_call("read", 0, 690 * MS)
    made.kernel("k(int)", 693 * MS, 700 * MS, launch=(690 * MS, 691 * MS))
    result = measured(tmp_path, made)
    assert result.findings["kind"].to_list() == ["start-up", "little-gpu-work"]
    assert result.findings["consequence_of"].to_list() == [None, "start-up"]


@pytest.mark.parametrize("scheduled", [True, *rest(False)])
def test_before_a_thread_appears_it_computes_nothing(tmp_path: Path, scheduled: bool) -> None:
    made = report()
    made.os_call("read", 0, 10 * MS)
    if scheduled:
        made.on_cpu(450 * MS, 900 * MS, tid=2000)
    call = made.api_call("cudaLaunchKernel_v7000", 450 * MS, 451 * MS, tid=2000)
    made.kernel("k(int)", 500 * MS, 900 * MS, correlation=call)
    assert "not known 90.0 %" in str(finding(measured(tmp_path, made), "start-up")["seen"])


def test_a_helper_that_launches_first_does_not_hide_what_its_process_did_before(tmp_path: Path) -> None:
    made = report()
    made.api_call("cuModuleLoad", MS, 401 * MS)
    call = made.api_call("cudaLaunchKernel_v7000", 480 * MS, 481 * MS, tid=2000)
    made.kernel("k(int)", 500 * MS, 900 * MS, correlation=call)
    made.api_call("cudaFreeHost_v2000", 1100 * MS, 1300 * MS)
    result = measured(tmp_path, made)
    seen = {kind: str(finding(result, kind)["seen"]) for kind in ("start-up", "shut-down")}
    assert "other CUDA calls 80.2 %" in seen["start-up"]
    assert "allocating 50.0 %" in seen["shut-down"]


def test_at_the_end_the_thread_counts_that_still_works(tmp_path: Path) -> None:
    made = report().on_cpu(0, 1200 * MS).on_cpu(450 * MS, 500 * MS, 1, tid=2000)
    call = made.api_call("cudaLaunchKernel_v7000", 480 * MS, 481 * MS, tid=2000)
    made.kernel("k(int)", 500 * MS, 900 * MS, correlation=call)
    made.api_call("cudaMalloc", 10 * MS, 11 * MS)
    made.os_call("fwrite", 900 * MS, 1200 * MS)
    assert "meanwhile: host in I/O 100.0 %" in finding(measured(tmp_path, made), "shut-down")["seen"]


def test_what_the_profiler_sets_up_is_no_start_of_the_program(tmp_path: Path) -> None:
    made = report()
    made.os_call("open", 0, 1 * MS).profiler("CUDA profiling", 0, 350 * MS)
    made.kernel("k(int)", 500 * MS, 900 * MS, launch=(499 * MS, 500 * MS))
    result = measured(tmp_path, made)
    assert finding(result, "profiler-set-up")["cost_ns"] == 350 * MS
    absent = result.tables["absent_time"].row(0, named=True)
    assert (absent["starved_profiler_ns"], absent["start_up_ns"]) == (350 * MS, 150 * MS)
    assert "start-up" not in result.findings["kind"].to_list()
    unknown = "no call that was recorded creates it: it is part of the 500.000 ms before the first work, or was there before"
    assert check(result, "creating-context") == ("not decidable", unknown)


def test_idle_devices_do_not_cost_what_has_its_own_finding(tmp_path: Path) -> None:
    made = report()
    made.kernel("k(int)", 10 * MS, 100 * MS, launch=(0, 5 * MS))
    made.profiler("CUDA profiling", 150 * MS, 300 * MS)
    made.kernel("k(int)", 500 * MS, 600 * MS, launch=(499 * MS, 500 * MS))
    found = measured(tmp_path, made).findings
    assert found.select("kind", "cost_ns").rows() == [("idle-devices", 250 * MS), ("profiler-set-up", 150 * MS)]


@pytest.mark.thorough
def test_the_start_of_a_process_is_no_long_one(tmp_path: Path) -> None:
    made = report()
    made.os_call("read", 0, 10 * MS)
    made.kernel("k(int)", 190 * MS, 900 * MS)
    assert "start-up" not in measured(tmp_path, made).findings["kind"].to_list()


@pytest.mark.parametrize(("call", "latency", "kernel"), [(10, 6, 8), *rest((8, 2, 6), (12, 4, 9))])
def test_launch_bound_with_longer_calls(tmp_path: Path, call: int, latency: int, kernel: int) -> None:
    """Calls one after the other that take longer than the kernels: each kernel starts `latency` after its call."""
    made = report()
    for index in range(1000):
        launch = index * call * US
        start = launch + (call + latency) * US
        made.kernel("k(int)", start, start + kernel * US, launch=(launch, launch + call * US))
    result = measured(tmp_path, made, no_critical_path=False)
    assert finding(result, "launch-bound")["saved_ns"] == pytest.approx(999 * (call - kernel) * US, rel=0.01)


@pytest.mark.parametrize(("kernel", "is_loaded"), [("k{}(int)", True), *rest(("k(int)", False))], ids=["first", "again"])
def test_launches_that_stall_load_code_where_the_kernel_is_launched_first(tmp_path: Path, kernel: str, is_loaded: bool) -> None:
    made = report()
    for index in range(6):
        begin = index * 26 * MS
        made.api_call("cuLibraryLoadData", begin, begin + 12 * MS, driver=True)
        launch = begin + 12 * MS, begin + 20 * MS - US
        made.kernel(kernel.format(index), begin + 20 * MS, begin + 26 * MS, launch=launch)
    found = finding(measured(tmp_path, made), "launch-stalls")
    assert found["saved_ns"] == 5 * 20 * MS
    assert ("code is loaded" in found["seen"]) == is_loaded


def test_small_graphs(tmp_path: Path) -> None:
    made = report()
    for index in range(100):
        begin = index * 60 * US
        made.graph(begin + 40 * US, begin + 60 * US, launch=(begin + 20 * US, begin + 39 * US))
    result = measured(tmp_path, made)
    assert finding(result, "small-graphs")["saved_ns"] == 99 * 40 * US
    assert "launch-bound" not in result.findings["kind"].to_list()


def test_memsets_that_the_host_waits_for(tmp_path: Path) -> None:
    made = report()
    for index in range(40):
        begin = index * MS
        made.api_call("cudaMemset_v3020", begin, begin + 300 * US)
        made.kernel("k(int)", begin + 310 * US, begin + MS, launch=(begin + 301 * US, begin + 305 * US))
    result = measured(tmp_path, made, no_critical_path=False)
    found = finding(result, "synchronous-copies")
    # The gaps are as long as the calls, what the host does then, and the launch; without the calls the latter stay.
    assert (found["cost_ns"], found["saved_ns"], found["saved_how"]) == (39 * 310 * US, 39 * 300 * US, "by replay")


def test_pages_that_migrate_back_and_forth(tmp_path: Path) -> None:
    made = report()
    for begin in range(0, 200 * 100 * US, 100 * US):
        made.copy(begin, begin + 20 * US, 65_536, kind=11, stream=13)
        made.kernel("k(int)", begin, begin + 60 * US)
        made.copy(begin + 60 * US, begin + 80 * US, 65_536, kind=12, stream=13, migrationCause=4)
        # A prefetch by the program itself, for which nothing waits.
        made.copy(begin + 80 * US, begin + 100 * US, 65_536, kind=11, stream=13, migrationCause=1)
    result = measured(tmp_path, made)
    found = finding(result, "unified-memory")
    assert found["saved_ns"] == 200 * 40 * US
    assert "back and forth; 50.0 % of all were evicted, as the device has no room for them" in str(found["seen"])
    # Kernels wait for longer than pages move.
    assert found["saved_how"] == "about, from device time"
    assert "page faults were not recorded" in str(found["seen"])


def test_kernels_wait_while_page_faults_are_handled(tmp_path: Path) -> None:
    made = report()
    for index in range(200):
        begin = index * 100 * US
        made.kernel("k(int)", begin, begin + 90 * US)
        # The second fault overlaps the first one, and a page moves after both.
        made.gpu_page_fault(begin, begin + 30 * US, 1).gpu_page_fault(begin + 20 * US, begin + 50 * US, 1)
        made.copy(begin + 40 * US, begin + 60 * US, 65_536, kind=11, stream=13)
    result = measured(tmp_path, made)
    found = finding(result, "unified-memory")
    assert (found["saved_ns"], found["cost_ns"]) == (200 * 60 * US, 200 * 60 * US)
    assert found["saved_how"] == "about, from device time"
    assert "page faults of kernels are handled for 10.000 ms" in str(found["seen"])
    numbers = dict(result.finding_numbers.select("number", "value").iter_rows())
    assert numbers["groups of page faults of kernels"] == 400


def clocked(low: int, rank: int = 0) -> ReportBuilder:
    """A GPU that is busy for 100 ms, the last `low` ms of these with half the clock."""
    made = report(rank)
    for index in range(100):
        made.kernel("k(int)", index * MS, (index + 1) * MS)
        made.metric(CLOCK, index * MS + 500 * US, 1000 if index >= 100 - low else 2000, gpu=rank)
    return made


def test_all_gpus_wait_for_the_one_with_the_low_clock(tmp_path: Path) -> None:
    reports = [clocked(70), clocked(0, 1)]
    for made in reports:
        made.kernel(NCCL, 100 * MS, 101 * MS, stream=8)
    found = finding(measured(tmp_path, *reports), "clock-throttling")
    assert found["saved_ns"] == pytest.approx(35 * MS, rel=0.01)
    assert (found["cost_ns"], found["device"]) == (2 * found["saved_ns"], "node01:D0")


@pytest.mark.parametrize(("use", "found"), [(1, True), pytest.param(40, False, marks=pytest.mark.thorough)])
def test_tensor_cores_that_are_idle_in_matrix_multiplications(tmp_path: Path, use: int, found: bool) -> None:
    made = report()
    for index in range(100):
        made.kernel("sm80_xmma_gemm_f32f32_128x128(int)", index * MS, index * MS + 800 * US)
        made.kernel("k(int)", index * MS + 800 * US, (index + 1) * MS)
        made.metric(TENSOR, index * MS + 500 * US, use).metric(TENSOR, index * MS + 900 * US, 0)
    assert measured(tmp_path, made).findings["kind"].to_list() == (["idle-tensor-cores"] if found else [])


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
    result = measured(tmp_path, *reports, no_critical_path=False)
    found = finding(result, "straggler")

    # What makes it late the first time belongs to the start of the run.
    assert (found["device"], found["ranks"], found["saved_how"]) == ("node01:D2", "2", "by replay")
    assert found["saved_ns"] == pytest.approx(39 * 500 * US, rel=0.05)
    assert found["cost_ns"] == 3 * 40 * 500 * US
    assert "gaps" in str(found["seen"])


# -- findings of collectives that are exposed and not blocking, and of those that are hidden and blocking ----
STEPS = 20


def exposed_in_steps(launched_at: int, steps: int = STEPS) -> ReportBuilder:
    """Steps of 2 ms: a kernel of 1 ms, a collective of 0.5 ms that nothing waits for, and the next kernel, launched at
    `launched_at` ns of the step before its own."""
    report = ReportBuilder(ranks=1).gpu(0)
    for index in range(steps):
        begin = 2 * MS * index + MS
        report.kernel("k(int)", begin, begin + MS, launch=(begin - 2 * MS + launched_at, begin - 2 * MS + launched_at + 5 * US))
        report.kernel(NCCL, begin + MS, begin + 1500 * US, stream=20, launch=(begin + 100 * US, begin + 105 * US))
    return report


def test_the_next_kernel_is_not_launched_while_a_collective_is_exposed(tmp_path: Path) -> None:
    found = finding(measured(tmp_path, exposed_in_steps(launched_at=1990 * US)), "starved-beside-communication")
    # Not of the last step, after which there is no kernel.
    assert found["cost_ns"] == (STEPS - 1) * 500 * US
    assert found["saved_ns"] == found["cost_ns"]


@pytest.mark.parametrize(
    "report",
    [
        # The next kernel was launched before: the device has something to do, and does not do it.
        pytest.param(exposed_in_steps(launched_at=800 * US), id="launched"),
        pytest.param(exposed_in_steps(launched_at=1990 * US, steps=8), id="few", marks=pytest.mark.thorough),
    ],
)
def test_launched_kernels_and_few_collectives_are_not_starved(report: ReportBuilder, tmp_path: Path) -> None:
    assert "starved-beside-communication" not in measured(tmp_path, report).findings["kind"]


def hidden_in_steps(hides: int, *, waits: bool = True) -> ReportBuilder:
    """Steps of 1.5 ms, all launched before the first: a collective of 1 ms beside a kernel of `hides` ns on another stream,
    then a kernel of 0.5 ms that waits for the collective by an event, as the next collective waits for it."""
    report = ReportBuilder(ranks=1).gpu(0)
    calls = iter(range(0, MS, 2 * US))

    def launch() -> tuple[int, int]:
        begin = next(calls)
        return begin, begin + US

    def wait(stream: int, event: int, of: int, sync: int) -> None:
        report.event_record(event, correlation=report.api_call("cudaEventRecord_v3020", *launch()), stream=of, sync=sync)
        times = launch()
        call = report.api_call("cudaStreamWaitEvent_v3020", *times)
        report.synchronization(*times, kind=2, correlation=call, stream=stream, event=event, sync=sync)

    for index in range(STEPS):
        begin = MS + index * 1500 * US
        report.kernel(NCCL, begin, begin + MS, stream=20, launch=launch())
        report.kernel("beside(int)", begin, begin + hides, stream=9, launch=launch())
        if waits:
            wait(7, 3, 20, 2 * index + 1)
        report.kernel("last(int)", begin + MS, begin + 1500 * US, launch=launch())
        wait(20, 4, 7, 2 * index + 2)
    return report


def test_a_launched_kernel_waits_for_a_hidden_collective(tmp_path: Path) -> None:
    found = finding(measured(tmp_path, hidden_in_steps(MS), no_critical_path=False), "hidden-communication")
    assert found["cost_ns"] == STEPS * MS
    # Without the collectives the kernels beside them are in the way of each other: 1 ms in each step, not 1.5.
    assert found["saved_ns"] == pytest.approx(STEPS * 500 * US, rel=0.05)
    assert found["saved_how"].startswith("at most")


@pytest.mark.parametrize("report", [hidden_in_steps(MS, waits=False), *rest(hidden_in_steps(20 * US))], ids=["free", "exposed"])
def test_collectives_that_nothing_waits_for_or_hides_are_not_hidden_and_blocking(report: ReportBuilder, tmp_path: Path) -> None:
    assert "hidden-communication" not in measured(tmp_path, report, no_critical_path=False).findings["kind"]


# -- occurrences summed by device and part of the run, and what a finding says of them: numbers on small frames ----
LENGTH = 1000
"""Of a run whose 100 parts are 10 ns long."""


def occurrences(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """From device, begin, end and cost."""
    return pl.DataFrame(rows, ["device", "begin", "end", "cost"], orient="row")


def test_an_occurrence_counts_in_its_first_part_and_costs_in_all_by_its_time_there() -> None:
    pieces = over_parts(occurrences((0, 5, 9, 4), (0, 25, 50, 20)), (), LENGTH).sort("begin", "part")
    # 5, 10 and 10 of 25 ns; what is lost by rounding is in the first part.
    assert pieces.select("part", "count", "cost", "top_cost").rows() == [
        (0, 1, 4, 4), (2, 1, 4, 20), (3, 0, 8, 20), (4, 0, 8, 20)
    ]  # fmt: skip


def test_an_occurrence_of_hours_costs_in_all_parts_together_what_it_costs() -> None:
    hour = 3_600_000_000_000
    pieces = over_parts(occurrences((0, hour, 9 * hour, 8 * hour)), (), 10 * hour)
    assert (pieces.height, pieces["cost"].sum(), pieces["cost"].unique().to_list()) == (80, 8 * hour, [hour // 10])


def test_sums_by_key_have_the_most_costly_occurrence_and_of_equal_ones_the_first() -> None:
    rows = occurrences((0, 30, 40, 7), (0, 10, 20, 7), (1, 50, 60, 1), (0, 70, 90, 3)).with_columns(row=pl.col("begin") // 10)
    frame = with_top(rows, LENGTH)
    expected = pl.DataFrame(
        {
            "device": [0, 1], "count": [3, 1], "cost": [17, 1], "begin": [10, 50], "end": [90, 60],
            "top_cost": [7, 1], "top_begin": [10, 50], "top_end": [20, 60], "top_row": [1, 5], "top_thread": [-1, -1],
        }
    )  # fmt: skip
    together = summed([frame], ("device",), ())
    # Sums of blocks can be summed again.
    blocks = [summed([block], ("device",), ()) for block in (frame[:1], frame[1:])]

    assert_frame_equal(together, expected)
    assert_frame_equal(summed(blocks, ("device",), ()), expected)
    assert summed([], ("device",), ()).schema == expected.schema


def losses(costs: dict[int, dict[int, int]], **columns: Any) -> Losses:
    """From costs by device and part."""
    parts = [(device, part, 1, cost) for device, of_parts in costs.items() for part, cost in of_parts.items()]
    frame = pl.DataFrame(parts, ["device", "part", "count", "cost"], orient="row")
    return Losses(frame.group_by("device").agg(pl.col("count", "cost").sum()).sort("device").with_columns(**columns), frame)


def test_devices_that_lose_time_in_the_same_part_lose_it_together() -> None:
    lost = losses({0: {1: 5, 2: 1}, 1: {1: 3, 2: 4}})
    assert (lost.cost, Finding("", lost).saved, str(lost)) == (13, 9, "on 2 GPUs")
    assert Finding("", lost, wall=2).saved == 2
    # Where parts are not known of all devices, the device counts that loses most.
    assert Finding("", Losses(lost.devices)).saved == 7
    assert Finding("", Losses(lost.devices, lost.parts.filter(device=0))).saved == 7
    # Of devices of the same cost the first one is shown.
    assert losses({1: {1: 2}, 0: {1: 2}}).worst["device"] == 0


def test_a_device_loses_at_most_its_limit_and_all_its_parts_less() -> None:
    lost = losses({0: {1: 9_000_000_000, 2: 1}, 1: {1: 4}}, limit=pl.Series([4_500_000_000, 7])).at_most(pl.col("limit"))
    assert sorted(lost.devices["cost"]) == [4, 4_500_000_000]
    # Rounded up: a part that loses anything is not without a loss.
    assert lost.parts["cost"].to_list() == [4_500_000_000, 1, 4]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Number("", 1200), "1,200"), (Number("", 1_500_000, "ns"), "1.500 ms"), (Number("", 2048, "bytes"), "2.000 KiB"),
        (Number("", 0.25, "0 to 1"), "25.0 %"), (Number("", 1.2e9, "Hz"), "1,200 MHz"),
    ],
)  # fmt: skip
def test_numbers_are_worded_by_their_unit(number: Number, text: str) -> None:
    assert str(number) == text


def test_of_ranks_that_were_recorded_for_different_times_none_has_less_work(tmp_path: Path) -> None:
    reports = [report(rank) for rank in (0, 1)]
    for made, count in zip(reports, (20, 12), strict=True):
        for begin in range(0, count * MS, MS):
            made.kernel("k(int)", begin + 10 * US, begin + 800 * US, launch=(begin, begin + 5 * US))
            made.kernel(NCCL, begin + 810 * US, begin + 900 * US, launch=(begin + 6 * US, begin + 9 * US))
    result = measured(tmp_path, *reports)
    assert "less was recorded of 1 rank than of others: Rank 1 " in str(check(result, "imbalance")[1])
    assert check(result, "late-in-turn")[0] == "not decidable"


def test_ranks_that_are_late_in_turn_are_found_where_none_is_a_straggler(tmp_path: Path) -> None:
    reports = [ReportBuilder(rank=rank, ranks=3, pid=1000 + rank).gpu(rank) for rank in range(3)]
    for rank, made in enumerate(reports):
        for step in range(30):
            begin, length = step * MS, 800 if step % 3 == rank else 500
            made.kernel("k(int)", begin + 10 * US, begin + length * US, launch=(step * 10 * US, (step * 10 + 4) * US))
            made.kernel(NCCL, begin + (length + 10) * US, begin + 900 * US, launch=((step * 10 + 5) * US, (step * 10 + 9) * US))
    result = measured(tmp_path, *reports, no_critical_path=False)
    found = finding(result, "late-in-turn")
    # Each waits for 300 us in two of three steps.
    assert (found["cost_ns"], check(result, "straggler")[0]) == (3 * 20 * 300 * US, "not found")
    assert "60 times, for ranks that are last in turn: node01:D0 in 10, node01:D1 in 10, node01:D2 in 10 of 30" in found["seen"]
    assert found["saved_ns"] == pytest.approx(30 * 300 * US, rel=0.05)
