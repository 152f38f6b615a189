"""Findings of small runs with one problem; no finding where a run is near a threshold, or where the cause is not known."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support import few_of, rest
from support.measured import MS, NCCL, US, measured
from support.report_builder import ReportBuilder

from nsys2prv.demo import Cluster, truth, write_reports
from nsys2prv.demo.run_demo import cluster_of_demo
from nsys2prv.efficiency.findings.engine import DEVICE_BOUND, RULES
from nsys2prv.efficiency.findings.rule import GENERAL_THRESHOLDS
from nsys2prv.efficiency.measure import measure
from nsys2prv.paraver.views.view_table import read_view_table

KIB, MIB = 1 << 10, 1 << 20
CLOCK = "GPC Clock Frequency [MHz]"
WITH_HOST = "CUDA-D0.S7-node01; python3 tid 1000"

Tables = dict[str, pl.DataFrame]
Run = Callable[..., Tables]


def report(rank: int = 0, ranks: int = 4, **options: Any) -> ReportBuilder:
    return ReportBuilder(rank=rank, with_mpi=True, ranks=ranks, pid=1000 + rank, **options).gpu(rank)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Gives the tables of a run of some reports."""
    return lambda *reports, **options: dict(measured(tmp_path, *reports, **options).tables)


def only(tables: Tables) -> dict[str, Any]:
    """The one finding of a known cause there is."""
    assert len(kinds(tables)) == 1, tables["findings"]["seen"].to_list()
    found: dict[str, Any] = tables["findings"].row(by_predicate=pl.col("kind") == kinds(tables)[0], named=True)
    return found


def all_kinds(tables: Tables) -> list[str]:
    return tables["findings"]["kind"].to_list()


def kinds(tables: Tables) -> list[str]:
    """All findings but the one of idle time that no other explains."""
    return [kind for kind in all_kinds(tables) if kind != "idle-devices"]


def numbers(tables: Tables) -> dict[str, float]:
    """Numbers of the first finding of a known cause."""
    of_first = tables["finding_numbers"].filter(pl.col("kind") == kinds(tables)[0])
    return dict(of_first.select("number", "value").iter_rows())


def values(finding: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(finding[name] for name in names)


WHERE = ("cost_ns", "devices", "device", "ranks", "rows", "begin_ns", "end_ns")
PLACE = ("begin_ns", "end_ns", "worst_begin_ns", "worst_end_ns")


# -- idle devices ----------------------------------------------------------------------------


def launching(count: int = 200, kernel: int = 5 * US, *, with_calls: bool = True, ahead: bool = False) -> ReportBuilder:
    """Kernels with gaps of 15 µs; of a gap the launch takes 8 µs."""
    made, period = report(), kernel + 15 * US
    for index in range(count):
        begin = index * period
        launch = (index * 8 * US, (index + 1) * 8 * US - 1) if ahead else (begin, begin + 8 * US)
        begin += count * 8 * US if ahead else 0
        made.kernel("k(int)", begin + 10 * US, begin + 10 * US + kernel, launch=launch if with_calls else None)
    return made


def stalling(count: int = 60, *, copies: bool = False, late: bool = True, size: int = 4, sets: bool = False) -> ReportBuilder:
    """Kernels (or memsets) of 30 µs every 100 µs, and a wait for the device between."""
    made = report()
    for index in range(count):
        begin = index * 100 * US
        work = [begin + 10 * US, begin + 40 * US]
        work_of_kind, what = (made.memset, [*work, 64]) if sets else (made.kernel, ["k(int)", *work])
        work_of_kind(*what, launch=(begin, begin + 5 * US))
        if copies:
            made.copy(begin + 40 * US, begin + 42 * US, size, kind=2, launch=(begin + 6 * US, begin + 9 * US))
        made.api_call("cudaStreamSynchronize_v3020", begin + 10 * US, begin + (50 if late else 30) * US)
    return made


@pytest.mark.thorough
def test_synchronization_stalls_before_any_work(run: Run) -> None:
    tables = run(stalling(sets=True))
    assert values(only(tables), "kind", "cost_ns") == ("synchronization-stalls", 59 * 70 * US)


def test_synchronization_stalls_after_small_copies_to_the_host(run: Run) -> None:
    tables = run(stalling(copies=True))
    assert values(only(tables), "kind", "cost_ns") == ("synchronization-stalls", 59 * 68 * US)
    assert numbers(tables)["stalls after a small copy to the host"] == 59


def computing_hosts(count: int = 20, *, in_mpi: bool = False, with_calls: bool = True) -> ReportBuilder:
    """Kernels of 200 µs every ms."""
    made = report()
    for index in range(count):
        begin = index * MS
        launch = (begin, begin + 10 * US) if with_calls else None
        made.kernel("k(int)", begin + 20 * US, begin + 220 * US, launch=launch)
        if in_mpi:
            made.mpi_collective("MPI_Barrier", begin + 100 * US, begin + 900 * US)
    return made


def test_idle_time_that_nothing_explains_is_named_with_what_is_known_of_it(run: Run) -> None:
    tables = run(computing_hosts(with_calls=False))
    found = tables["findings"].row(0, named=True)
    assert values(found, "kind", *WHERE) == (
        "idle-devices", 19 * 800 * US, 1, "node01:D0", "0", "CUDA-D0.S7-node01", 200 * US, 19000 * US
    )  # fmt: skip
    of_idle = dict(tables["finding_numbers"].select("number", "value").iter_rows())
    assert of_idle == {"gaps": 19, "longest gap": 800 * US, "not known": 19 * 800 * US}
    assert all_kinds(tables) == ["idle-devices"]


def test_few_gaps_that_have_most_of_the_time_are_counted(run: Run) -> None:
    made = computing_hosts(40, with_calls=False)
    for begin in (80 * MS, 120 * MS):
        made.kernel("k(int)", begin, begin + 200 * US)
    assert "72.1 % of their time is in 2 gaps of 39.800 ms or more, from 0.039, 0.080 s on" in run(made)["findings"]["seen"][0]


def test_work_that_a_device_leaves_waiting_is_not_blamed_on_hosts(run: Run) -> None:
    made = report()
    for index in range(20):
        launch = (index * 10 * US, (index * 10 + 5) * US)
        made.kernel("k(int)", (index + 1) * MS, (index + 1) * MS + 200 * US, launch=launch)
    found = run(made)["findings"].row(by_predicate=pl.col("kind") == "idle-devices", named=True)
    assert found["title"].startswith("Idle devices (queued): no other finding")
    waits = "For 15.200 ms what follows was launched before, and nothing is known that it waits for: "
    assert found["seen"].endswith(f"{waits}devices leave it waiting, whatever hosts do")
    assert "nvidia-smi" in found["advice"]


def test_gaps_before_pages_that_the_host_fetches_are_named_though_no_thread_launches_what_ends_them(run: Run) -> None:
    made = report(0)
    made.api_call("cudaDeviceSynchronize_v3020", 30 * MS, 40 * MS)
    made.kernel("k(int)", 20 * US, 40 * MS, launch=(0, 10 * US))
    for page in range(20):
        begin = (41 + 15 * page) * MS
        made.copy(begin, begin + 10 * US, 65_536, kind=12, stream=13, correlation=0)
    found = run(made)["findings"].row(by_predicate=pl.col("kind") == "idle-devices", named=True)

    # A replay knows of no thread that could be quicker.
    assert found["saved_how"] == DEVICE_BOUND
    assert found["saved_ns"] == found["cost_ns"] == 1 * MS + 19 * (15 * MS - 10 * US)


def test_one_long_gap_on_all_devices_is_named(run: Run) -> None:
    reports = [report(rank) for rank in range(2)]
    for made in reports:
        for begin in (0, 100 * MS):
            made.kernel("k(int)", begin + 20 * US, begin + 40 * MS, launch=(begin, begin + 10 * US))
    tables = run(*reports)
    found = tables["findings"].row(0, named=True)
    assert all_kinds(tables) == ["idle-devices"]
    # Both wait at the same time: the run is shorter by one of these gaps.
    assert values(found, "saved_ns", "cost_ns", "devices", "worst_begin_ns", "worst_end_ns") == (
        60_020 * US, 2 * 60_020 * US, 2, 40 * MS, 100 * MS + 20 * US
    )  # fmt: skip


def loading(count: int = 5, size: int = MIB, *, with_calls: bool = True) -> ReportBuilder:
    """Batches every 10 ms that are used within 8 ms."""
    made = report()
    for index in range(count):
        begin = index * 10 * MS
        calls = [(begin, begin + 10 * US), (begin + 15 * US, begin + 20 * US)] if with_calls else [None, None]
        made.copy(begin + 20 * US, begin + 120 * US, size, launch=calls[0])
        made.kernel("k(int)", begin + 120 * US, begin + 8 * MS, launch=calls[1])
    return made


def test_a_thread_that_is_seen_to_compute_may_make_the_data_itself(run: Run) -> None:
    # Somebody else is off the CPU, so that scheduling was recorded.
    tables = run(loading().on_cpu(0, 50 * MS).on_cpu(0, 10, 1, tid=2000).on_cpu(49 * MS, 50 * MS, 1, tid=2000))
    assert only(tables)["kind"] == "data-loading"
    assert "in no CUDA call, and computes for 99.3 % of the time" in only(tables)["seen"]


def test_after_a_download_of_that_size_the_host_writes_and_loads_nothing(run: Run) -> None:
    made = loading()
    for begin in range(8 * MS, 48 * MS, 10 * MS):
        made.copy(begin, begin + 100 * US, MIB, kind=2, launch=(begin - 20 * US, begin - 10 * US))
    # Without calls of the OS it may do either.
    found = run(made)["findings"].row(by_predicate=pl.col("kind") == "data-loading", named=True)
    assert found["title"].startswith("Writing of results, or late input: ")
    assert "; 4 of them begin after a copy of results" in found["seen"]
    for begin in range(8 * MS, 48 * MS, 10 * MS):
        made.os_call("write", begin + 150 * US, begin + 1900 * US)
    assert "data-loading" not in all_kinds(run(made))


def test_mpi_in_gaps_of_late_input_counts_for_mpi_alone(run: Run) -> None:
    made = loading()
    for begin in range(8 * MS, 48 * MS, 10 * MS):
        made.mpi_collective("MPI_Barrier", begin + 200 * US, begin + 900 * US)
    found = {row["kind"]: row for row in run(made)["findings"].iter_rows(named=True)}
    costs = {kind: (row["cost_ns"], row["saved_ns"]) for kind, row in found.items()}
    assert costs == {"data-loading": (4 * 1320 * US, 4 * 1320 * US), "mpi-waits": (4 * 700 * US, 4 * 700 * US)}
    assert "4 gaps on 1 GPU, 1.320 ms on average and 1.320 ms at most without 2.800 ms in MPI" in found["data-loading"]["seen"]


@pytest.mark.parametrize(
    ("count", "expected"),
    # Two gaps are no late input: then all are waits, and not idle once more.
    [(5, {"data-loading": 4 * 2020 * US, "host-waits": 6 * MS}), (3, {"host-waits": 10 * MS})],
)
def test_waits_for_late_input_are_no_other_waits(run: Run, count: int, expected: dict[str, int]) -> None:
    """A thread that is only on its CPU while it launches batches, and another kernel 6 ms after the last one."""
    made, end = loading(count), count * 10 * MS - 2 * MS
    made.kernel("k(int)", end + 6 * MS + 10 * US, end + 12 * MS, launch=(end + 6 * MS, end + 6 * MS + 5 * US))
    for begin in (*range(0, end, 10 * MS), end + 6 * MS):
        made.on_cpu(begin, begin + 20 * US)
    assert dict(run(made)["findings"].select("kind", "cost_ns").iter_rows()) == expected


def test_copies_after_copies_load_no_batches(run: Run) -> None:
    """A model that goes to the device piece by piece."""
    made = report()
    for index in range(5):
        begin = index * 10 * MS
        made.copy(begin + 20 * US, begin + 8 * MS, MIB, launch=(begin, begin + 10 * US))
    tables = run(made)
    # No kernel runs that could hide them.
    assert values(only(tables), "kind", "cost_ns") == ("bound-by-copies", 5 * 7_980_000)
    reasons = dict(tables["finding_checks"].select("kind", "reason").iter_rows())
    assert reasons["exposed-copies"] == "it costs 0 ns, less than is worth a look"
    assert tables["absent_time"]["copy_ns"].to_list() == [5 * 7_980_000]


def allocating(count: int = 20, of_these: int = 20) -> ReportBuilder:
    """Kernels of 480 µs every ms with a cudaMalloc between, or long ones without."""
    made = report()
    for index in range(count):
        begin, allocates = index * MS, index < of_these
        made.kernel("k(int)", begin + 20 * US, begin + (500 if allocates else 1020) * US, launch=(begin, begin + 10 * US))
        if allocates:
            made.api_call("cudaMalloc_v3020", begin + 500 * US, begin + 990 * US)
    return made


def computing(rank: int, *lengths: int, count: int = 20, names: Sequence[str] = ("k(int)", "k2(int)")) -> ReportBuilder:
    """Kernels one right after the other, with these names in turn."""
    made, time = report(rank), 0
    for index, length in enumerate(lengths * count):
        made.kernel(names[index % len(names)], time, time + length)
        time += length
    return made


def test_one_kernel_that_differs_or_durations_that_are_spread_are_unequal_work(run: Run) -> None:
    """As on real runs of particles: the same kernels, equally often, take 0.8 to 1.9 times as long over the ranks."""
    one = run(*(computing(rank, length * US, names=("k(int)",), count=40) for rank, length in enumerate((100, 130, 100))))
    assert values(only(one), "kind", *WHERE, "saved_ns") == (
        "unequal-work", 2 * 1200 * US, 1, "node01:D1", "1", "CUDA-D1.S7-node01", 0, 5200 * US, 1200 * US
    )  # fmt: skip
    lengths = (310, 610, 320, 245, 400, 560, 255, 410)
    spread = run(*(computing(rank, length * US) for rank, length in enumerate(lengths)))
    assert kinds(spread)[0] == "unequal-work"
    assert "slow-device" not in kinds(spread)
    assert "nvidia-smi" not in "".join(spread["findings"]["advice"])
    assert spread["findings"]["device"][0] == "node01:D1"


def test_whether_a_gpu_is_slow_or_has_more_to_do_is_not_decidable_with_few_executions(run: Run) -> None:
    tables = run(*(computing(rank, length * MS, count=9) for rank, length in enumerate((1, 2, 1))))
    checks = {row["kind"]: row for row in tables["finding_checks"].iter_rows(named=True)}
    assert only(tables)["kind"] == "imbalance"
    assert "has more" not in only(tables)["title"]
    assert [checks[kind]["result"] for kind in ("slow-device", "unequal-work")] == ["not decidable"] * 2
    assert checks["slow-device"]["reason"].startswith("no kernel is executed 10 times or more")


def test_the_clock_of_a_slow_gpu_is_reported(run: Run) -> None:
    reports = []
    for rank, length, clock in ((0, 100, 2000), (1, 130, 1500), (2, 100, 2000)):
        made = computing(rank, length * US, count=40)
        for time in range(5 * US, length * 40 * US, 10 * US):
            made.metric(CLOCK, time, clock, gpu=rank)
        reports.append(made)
    assert numbers(run(*reports))["clock against the median of the others"] == 0.75


def test_of_two_slow_gpus_the_slowest_counts(run: Run) -> None:
    slow = [computing(rank, length * US, count=40) for rank, length in enumerate((100, 130, 100, 120))]
    tables = run(*slow, computing(4, 100 * US, count=40))
    # The median of the others of rank 1 is 100 µs.
    assert values(only(tables), "kind", "cost_ns", "devices", "device", "ranks") == (
        "slow-device", 5 * 1200 * US, 2, "node01:D1", "1,3"
    )  # fmt: skip
    assert tables["finding_devices"].select("device", "cost_ns").rows() == [("node01:D1", 5 * 1200 * US), ("node01:D3", 0)]


def clocked(low: int, count: int = 10) -> ReportBuilder:
    """A GPU that is busy for 100 ms, with `low` ms of half the clock."""
    made = computing(0, 100 * MS // count, count=count)
    for time in range(250 * US, 100 * MS, 500 * US):
        made.metric(CLOCK, time, 1000 if 20 * MS <= time < (20 + low) * MS else 2000)
    return made


def clocked_while_idle() -> ReportBuilder:
    """The clock is low where the GPU is idle."""
    idle = report()
    for begin in (0, 50 * MS):
        idle.kernel("k(int)", begin, begin + 20 * MS)
    for time in range(250 * US, 70 * MS, 500 * US):
        idle.metric(CLOCK, time, 1000 if 20 * MS <= time < 50 * MS else 2000)
    return idle


# -- kernels, communication, copies, streams ---------------------------------------------------


def beside(length: int, kernel: str = NCCL, **larger: int) -> ReportBuilder:
    """51 kernels of 100 µs alone, and 50 of `length` beside another kernel, which may be `larger`."""
    made, time = report(), 0
    for _ in range(51):
        made.kernel("k(int)", time, time + 100 * US)
        time += 100 * US
    made.kernel(kernel, time - 10 * US, time + 50 * length - 10 * US, stream=8)
    for _ in range(50):
        made.kernel("k(int)", time, time + length, **larger)
        time += length
    made.kernel("k(int)", time, time + 100 * US)
    return made


def reducing(rank: int, late: int, *, covered: int = 0, count: int = 12) -> ReportBuilder:
    """Steps of 2 ms: a kernel of 1 ms, then a reduction of 0.5 ms that the last rank starts; `covered` ns of it are covered."""
    made = report(rank, ranks=2)
    for index in range(count):
        begin = index * 2 * MS
        made.kernel("k(int)", begin + late, begin + late + MS)
        made.kernel(NCCL, begin + late + MS, begin + 1700 * US, stream=8)
        if covered:
            made.kernel("k2(int)", begin + 1700 * US - covered, begin + 1700 * US)
    return made


def test_exposed_communication(run: Run) -> None:
    tables = run(reducing(0, 0), reducing(1, 200 * US))
    found = tables["findings"].row(0, named=True)
    assert kinds(tables) == ["exposed-communication", "straggler"]
    assert values(found, "kind", *WHERE) == (
        "exposed-communication", 2 * 12 * 500 * US, 2, "node01:D0", "0-1", "CUDA-D0.S8-node01", MS, 23700 * US
    )  # fmt: skip
    assert numbers(tables) == {
        "NCCL kernels": 24, "their time, waits for the last rank left out": 12 * MS, "part of it beside no other kernel": 1,
        "their waits for the last rank": 12 * 200 * US,
        "of the exposed time, also exposed on the rank that arrives last": 12 * MS,
    }  # fmt: skip
    assert tables["finding_devices"]["cost_ns"].to_list()[:2] == [6 * MS, 6 * MS]
    late = tables["findings"].row(by_predicate=pl.col("kind") == "straggler", named=True)
    # What makes it late the first time belongs to the start of the run.
    assert values(late, "device", "ranks", "saved_ns", "cost_ns") == ("node01:D1", "1", 11 * 200 * US, 12 * 200 * US)


def test_covered_and_rare_communication_is_not_found(run: Run) -> None:
    # Few are found where they take much of the time.
    few = [reducing(rank, 0, covered=340 * US, count=9) for rank in (0, 1)]
    assert values(only(run(*few)), "kind", "cost_ns") == ("exposed-communication", 2 * 9 * 360 * US)
    assert kinds(run(*(and_then(made, 20 * MS, 200 * MS) for made in few))) == []


def test_sends_and_receives_of_two_ranks_wait_for_each_other(run: Run) -> None:
    reports = [report(0), report(1)]
    for index in range(12):
        for made, late in zip(reports, (0, 300 * US), strict=True):
            begin = index * 2 * MS
            made.kernel("k(int)", begin + late, begin + late + MS)
            made.kernel("ncclDevKernel_SendRecv(x)", begin + late + MS, begin + 1700 * US, stream=8)
    tables = run(*reports)
    assert values(only(tables), "kind", "cost_ns") == ("exposed-communication", 2 * 12 * 400 * US)
    assert numbers(tables)["their waits for the last rank"] == 12 * 300 * US


def copying(*, pageable: bool = True, count: int = 20, size: int = MIB, covered: bool = False) -> ReportBuilder:
    """Copies of 100 µs every ms, each before a kernel of 900 µs."""
    made = report()
    for index in range(count):
        begin = index * MS
        made.copy(begin, begin + 100 * US, size, pageable=pageable, stream=8)
        made.kernel("k(int)", begin + (0 if covered else 100 * US), begin + MS)
    return made


def test_copies_inside_a_device(run: Run) -> None:
    made = report()
    for index in range(20):
        made.copy(index * MS, index * MS + 750 * US, 64 * MIB, kind=8)
        made.kernel("k(int)", index * MS + 750 * US, (index + 1) * MS)
    findings = run(made)["findings"]
    # Kernels can hide a third of them.
    assert findings.select("kind", "cost_ns", "saved_ns").rows() == [
        ("bound-by-copies", 20 * 500 * US, 20 * 500 * US), ("exposed-copies", 20 * 750 * US, 20 * 250 * US)
    ]  # fmt: skip


def test_few_long_copies_from_pageable_memory(run: Run) -> None:
    made = report()
    for index in range(3):
        made.copy(index * 50 * MS, index * 50 * MS + 20 * MS, 512 * MIB, pageable=True)
        made.kernel("k(int)", index * 50 * MS + 20 * MS, (index + 1) * 50 * MS)
    assert values(only(run(made)), "kind", "cost_ns") == ("pageable-copies", 3 * 20 * MS)


def test_a_device_that_is_idle_in_calls_that_copy_pageable_memory_loses_that_too(run: Run) -> None:
    made = report()
    for begin in range(0, 40 * MS, 2 * MS):
        made.kernel("k(int)", begin, begin + 100 * US, launch=(begin - 10 * US, begin))
        made.copy(begin + 600 * US, begin + 700 * US, MIB, pageable=True, launch=(begin, begin + 900 * US))
        made.copy(begin + MS, begin + 1100 * US, MIB, pageable=True, launch=(begin + 900 * US, begin + 1300 * US))
    lost = 20 * 2 * 100 * US + 20 * (500 + 300) * US + 19 * 200 * US
    assert run(made)["findings"].select("kind", "cost_ns", "saved_ns").row(0) == ("pageable-copies", lost, lost)


@pytest.mark.parametrize(
    ("pinned", "least"),
    [(None, 1_048_576), pytest.param(8 * MS, 8 * MS, marks=pytest.mark.thorough)],
    ids=["of the link", "of this run"],
)
def test_pinned_copies_take_time_too(run: Run, pinned: int | None, least: int) -> None:
    """64 MiB from pageable memory in 16 ms: over PCIe 5 it is 1 ms at least. Kernels of 1 ms hide as much."""
    made = report()
    for begin in range(0, 20 * 17 * MS, 17 * MS):
        made.copy(begin, begin + 16 * MS, 64 * MIB, pageable=True)
        made.kernel("k(int)", begin + 16 * MS, begin + 17 * MS)
    if pinned is not None:
        made.copy(340 * MS, 340 * MS + pinned, 64 * MIB)
    assert only(run(made))["saved_ns"] == pytest.approx(20 * (17 * MS - least))


@pytest.mark.parametrize("beside", [True, *rest(False)])
def test_what_the_run_does_already_is_not_advised(run: Run, beside: bool) -> None:
    made = report()
    for begin in range(0, 20 * 21 * MS, 21 * MS):
        made.copy(begin, begin + 10 * MS, 64 * MIB, stream=8)
        made.copy(begin + (0 if beside else 10 * MS), begin + 20 * MS, 64 * MIB, kind=2, stream=8 if not beside else 9)
        made.kernel("k(int)", begin + 20 * MS, begin + 21 * MS)
    advice = dict(run(made)["findings"].select("kind", "advice").iter_rows())
    assert ("both directions" in advice["bound-by-copies"]) == (not beside)
    assert "are on separate streams already" in advice["exposed-copies"]


def small_copies(count: int = 600, size: int = KIB) -> ReportBuilder:
    """Copies of 2 µs every 5 µs."""
    made = report()
    for index in range(count):
        begin = index * 5 * US
        made.copy(begin + 3 * US, begin + 5 * US, size, launch=(begin, begin + 2 * US))
    return made


def on_two_streams(count: int = 60, beside: int = 0, *, waits: bool = False, late: bool = False) -> ReportBuilder:
    """Work of 79 µs that begins 1 µs after 100 µs on the default stream, every 200 µs, launched 80 µs before."""
    made = report()
    for index in range(count):
        begin = 10 * US + index * 200 * US
        made.kernel("k(int)", begin, begin + 100 * US, launch=(begin - 10 * US, begin - 5 * US))
        start = begin + (50 if index < beside else 101) * US
        launch = (start - 4 * US, start - 2 * US) if late else (begin + 20 * US, begin + 25 * US)
        made.kernel("k2(int)", start, start + 79 * US, stream=13, launch=launch)
    if waits:
        made.api_call("cudaStreamWaitEvent_v3020", 1 * US, 2 * US)
    return made


FOUND: dict[str, tuple[Callable[[], Sequence[ReportBuilder]], tuple[Any, ...], dict[str, Any]]] = {
    # Kernels of four times the gap.
    "launch-bound": (
        lambda: [launching(kernel=60 * US)],
        (199 * 15 * US, 199 * 15 * US, "node01:D0", "0", WITH_HOST, 70 * US, 14935 * US, 145 * US, 310 * US),
        {
            "gaps": 199, "mean gap": 15 * US, "mean duration of the kernels behind them": 60 * US,
            "part of the gaps in launch calls": pytest.approx(8 / 15),
        },
    ),
    "synchronization-stalls": (
        lambda: [stalling()],
        (59 * 70 * US, 59 * 40 * US, "node01:D0", "0", WITH_HOST, 40 * US, 5910 * US, 1240 * US, 1310 * US),
        {"stalls": 59, "stalls after a small copy to the host": 0, "mean gap": 70 * US},
    ),
    "host-bound": (
        lambda: [computing_hosts()],
        (19 * 800 * US, 19 * 800 * US, "node01:D0", "0", WITH_HOST, 220 * US, 19020 * US, 220 * US, 1020 * US),
        {
            "gaps": 19, "mean gap": 800 * US, "longest gap": 800 * US, "part of the gaps in no call": 1 - 10 / 800,
            "part of the gaps in OS calls": 0,
        },
    ),
    "mpi-waits": (
        lambda: [computing_hosts(in_mpi=True)],
        (19 * 800 * US, 19 * 800 * US, "node01:D0", "0", WITH_HOST, 220 * US, 19020 * US, 220 * US, 1020 * US),
        {
            "gaps": 19, "mean time lost in a gap": 800 * US, "longest time": 800 * US,
            "part of it in MPI calls": pytest.approx(680 / 800),
        },
    ),
    "data-loading": (
        lambda: [loading()],
        (4 * 2020 * US, 4 * 2020 * US, "node01:D0", "0", WITH_HOST, 8 * MS, 40020 * US, 8 * MS, 10020 * US),
        {
            "gaps": 4, "mean gap": 2020 * US, "longest gap": 2020 * US, "part of the gaps in OS calls": 0,
            "part of the gaps in which the thread sleeps or waits": 0,
            "part of the gaps in which the thread is seen to compute": 0,
        },
    ),
    # Each gap of 520 µs is there because of them.
    "allocations": (
        lambda: [allocating(40)],
        (20 * 520 * US, 20 * 490 * US, "node01:D0", "0", WITH_HOST, 500 * US, 20020 * US, 1500 * US, 2020 * US),
        {"gaps": 20, "mean time lost in a gap": 520 * US, "longest time": 520 * US},
    ),
    # It takes 1.2 ms longer, and three devices may have to wait for it.
    "slow-device": (
        lambda: [computing(rank, length * US, count=40) for rank, length in enumerate((100, 130, 100))],
        (3 * 1200 * US, 1200 * US, "node01:D1", "1", "CUDA-D1.S7-node01", 0, 5200 * US, 4004 * US, 4056 * US),
        {
            "slow GPUs": 1, "ratio of durations to the median of the others": 1.3, "kernel time that was compared": 5200 * US,
            "the same at the median of the others": 4000 * US, "part of it in kernels that are slower there": 1,
            "different kernels that are slower by a like factor": 2,
        },
    ),
    "imbalance": (
        lambda: [computing(rank, 500 * US, count=count) for rank, count in enumerate((20, 26, 20))],
        (6 * MS, 2 * MS, "node01:D1", "1", "CUDA-D1.S7-node01", 0, 13 * MS, 10010 * US, 10140 * US),
        {
            "load balance": pytest.approx(2200 / 2600), "largest useful time": 13 * MS, "mean useful time": 11 * MS,
            "smallest useful time": 10 * MS, "of it explained by slow GPUs and unequal work": 0,
        },
    ),
    "clock-throttling": (
        lambda: [clocked(10)],
        (5 * MS, 5 * MS, "node01:D0", "0", "CUDA-D0.S7-node01", 20 * MS, 30 * MS, 20 * MS, 21 * MS),
        {
            "bins with a low clock": 10, "lowest clock": 1e9, "usual clock of that GPU": 2e9,
            "lowest clock against the usual one": 0.5,
        },
    ),
    "contention-slowdown": (
        lambda: [beside(150 * US)],
        (
            50 * 50 * US, 50 * 50 * US, "node01:D0", "0", "CUDA-D0.S7-node01; CUDA-D0.S8-node01",
            5100 * US, 12600 * US, 5100 * US, 5250 * US,
        ),
        {
            "kernels with a slowdown": 1, "executions beside NCCL kernels": 50,
            "mean duration alone, of the kernel that loses most": 100 * US, "mean duration beside NCCL kernels": 150 * US,
            "part of its executions beside NCCL kernels": 0.5,
        },
    ),
    "pageable-copies": (
        lambda: [copying()],
        (20 * 100 * US, 20 * 100 * US, "node01:D0", "0", "CUDA-D0.S8-node01", 0, 19100 * US, 0, 100 * US),
        {
            "copies": 20, "mean size": MIB, "their time": 20 * 100 * US, "part of it beside no kernel": 1,
            "least time of pinned copies for each byte, against these": 0.16384,
        },
    ),
    "exposed-copies": (
        lambda: [copying(pageable=False)],
        (20 * 100 * US, 20 * 100 * US, "node01:D0", "0", "CUDA-D0.S8-node01", 0, 19100 * US, 0, 100 * US),
        {"copies": 20, "mean size": MIB, "their time": 20 * 100 * US, "part of it beside no kernel": 1},
    ),
    "small-copies": (
        lambda: [small_copies()],
        (
            600 * 2 * US + 599 * 3 * US, 600 * 2 * US + 599 * 3 * US, "node01:D0", "0", "CUDA-D0.S7-node01",
            3 * US, 3000 * US, 3 * US, 30 * US,
        ),
        {"copies": 600, "mean size": KIB, "time in gaps between them": 599 * 3 * US},
    ),
    "default-stream": (
        lambda: [on_two_streams()],
        (60 * 79 * US, 60 * 79 * US, "node01:D0", "0", "CUDA-D0.S13-node01", 30 * US, 11990 * US, 30 * US, 190 * US),
        {
            "waits": 60, "work on other streams": 60, "part of it that waits": 1,
            "part of it that begins beside the default stream": 0, "mean time that it could have run meanwhile": 79 * US,
        },
    ),
}  # fmt: skip
"""Of each kind: reports with that problem alone, what it costs and where, and its numbers."""


@pytest.mark.parametrize("kind", FOUND)
def test_a_problem_is_found_with_its_cost_its_place_and_its_numbers(run: Run, kind: str) -> None:
    reports, where, expected = FOUND[kind]
    tables = run(*reports(), no_critical_path=False)
    found = only(tables)
    reasons = dict(tables["finding_checks"].select("kind", "reason").iter_rows())
    assert kind != "slow-device" or reasons["imbalance"] is None, "what a slow GPU explains is told once more"
    assert values(found, "kind", "cost_ns", "saved_ns", "device", "ranks", "rows", *PLACE) == (kind, *where)
    # What it explains is not told once more as idle time; between work on two streams there is some that it does not.
    assert ("idle-devices" in all_kinds(tables)) == (kind == "default-stream")
    assert found["share"] == pytest.approx(found["cost_ns"] / tables["devices"]["elapsed_ns"].sum())
    assert values(found, "devices", "consequence_of") == (1, None)
    assert kind != "mpi-waits" or "MPI_Barrier" in found["seen"]
    assert numbers(tables) == expected
    of_device = tables["finding_devices"].row(by_predicate=pl.col("kind") == kind, named=True)
    assert values(of_device, "place", "device", "cost_ns", *PLACE) == (1, *values(found, "device", "cost_ns", *PLACE))


def and_then(made: ReportBuilder, begin: int, end: int, launch: tuple[int, int] | None = None) -> ReportBuilder:
    """A report with one long kernel more."""
    made.kernel("long(int)", begin, end, launch=launch)
    return made


NOTHING: dict[str, Callable[[], Sequence[ReportBuilder]]] = {
    "few gaps": lambda: [launching(100)],
    "kernels longer than four gaps": lambda: [launching(kernel=60 * US + 1)],
    "few stalls": lambda: [stalling(50)],
    "waits that end before the device": lambda: [stalling(late=False)],
    "few gaps of hosts": lambda: [computing_hosts(10)],
    "allocations of a start": lambda: [allocating(200, 10)],
    "clocks that drop shortly": lambda: [clocked(2)],
    "clocks of an idle GPU": lambda: [clocked_while_idle()],
    "covered communication": lambda: [reducing(rank, 0, covered=500 * US) for rank in (0, 1)],
    "gaps of unknown launches": lambda: [launching(with_calls=False)],
    "launches ahead": lambda: [launching(ahead=True)],
    "gaps of a phase": lambda: [and_then(computing_hosts(20), 20 * MS, 80 * MS, (19_900 * US, 19_910 * US))],
    "few batches": lambda: [loading(3)],
    "small batches": lambda: [loading(size=KIB)],
    "batches of unknown launches": lambda: [loading(with_calls=False)],
    "GPUs that differ little": lambda: [computing(rank, length * US, count=200) for rank, length in enumerate((100, 104, 100))],
    "one GPU": lambda: [computing(0, 130 * US)],
    "other work on one GPU": lambda: [
        *(computing(rank, 100 * US, 100 * US, 90 * US) for rank in (0, 1)),
        computing(2, 150 * US, 70 * US, 70 * US),
    ],
    "little imbalance": lambda: [computing(rank, 500 * US, count=count) for rank, count in enumerate((20, 21, 20))],
    "durations that are near": lambda: [beside(119 * US)],
    "durations of another reason": lambda: [beside(150 * US, "other(int)")],
    "kernels of other sizes": lambda: [beside(150 * US, gridX=2)],
    "covered copies": lambda: [copying(covered=True)],
    "few copies": lambda: [copying(count=9)],
    "pageable copies that are small": lambda: [copying(size=64 * KIB - 1)],
    "copies of unknown memory": lambda: [copying().without("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind", "dstKind")],
    "copies of a start": lambda: [and_then(copying(), 20 * MS, 80 * MS)],
    "few small copies": lambda: [small_copies(499)],
    # Launches take longer than copies: without these the run would be as long.
    "copies that are not small": lambda: [small_copies(size=64 * KIB)],
    "streams that run beside": lambda: [on_two_streams(beside=2)],
    "streams that wait for events": lambda: [on_two_streams(waits=True)],
    "streams with late launches": lambda: [on_two_streams(late=True)],
    "few waits of streams": lambda: [on_two_streams(19)],
}


LIKE_OTHERS = {
    *("batches of unknown launches", "gaps of a phase", "one GPU", "few batches", "few copies", "few waits of streams"),
    *("copies that are not small", "durations of another reason", "gaps of unknown launches", "launches ahead", "few stalls"),
    *("copies of unknown memory", "clocks of an idle GPU", "kernels of other sizes", "few small copies", "covered copies"),
    *("streams that wait for events", "streams with late launches", "waits that end before the device"),
}
"""What is near a problem in the same way as another one, or farther."""


@pytest.mark.parametrize("near", few_of(NOTHING, NOTHING.keys() - LIKE_OTHERS))
def test_what_is_near_a_problem_is_none(run: Run, near: str) -> None:
    assert kinds(run(*NOTHING[near]())) == []


# -- the demo ----------------------------------------------------------------------------------
CLEAN = Cluster(
    nodes=1, slow_gpu=None, data_loading_gap=False, pageable_copies=False, exposed_communication=False, gpu_metrics_hz=500
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gpus_per_node": 1}, []),
        *rest(
            ({"allocations_in_loop": True}, ["allocations"]),
            ({"iterations": 2, "layers": 2}, ["exposed-communication"]),
            ({"nodes": 2, "with_mpi": False}, []),
            # What the others reduce while they wait for the slow one is not covered, and costs the run nothing.
            ({"slow_gpu": 3}, ["slow-device", "straggler"]),
            ({"exposed_communication": True}, ["exposed-communication"]),
            ({"data_loading_gap": True}, ["data-loading"]),
            ({"pageable_copies": True}, ["pageable-copies"]),
        ),
    ],
    ids=str,
)
def test_each_problem_of_the_demo_is_found_alone_and_clean_runs_have_none(
    tmp_path: Path, settings: dict[str, Any], expected: list[str]
) -> None:
    write_reports(tmp_path, replace(CLEAN, **settings))
    assert kinds(dict(measure([tmp_path]).tables)) == expected


@pytest.mark.thorough
@pytest.mark.parametrize("gpus_per_node", [2, 4])
def test_the_problems_of_the_demo_are_found_in_the_order_of_their_cost_and_are_shown(
    tmp_path: Path, gpus_per_node: int
) -> None:
    cluster = cluster_of_demo(gpus_per_node=gpus_per_node)
    write_reports(tmp_path, cluster)
    result = measure([tmp_path])
    findings, lines = result.findings, result.as_text().splitlines()
    assert findings["kind"].to_list() == [
        "slow-device", "exposed-communication", "data-loading", "pageable-copies", "straggler",
    ]  # fmt: skip
    assert findings["place"].to_list() == [1, 2, 3, 4, 5]
    assert findings["saved_ns"][:4].is_sorted(descending=True)
    # The others wait for the slow GPU: that is named, and is not one more loss.
    assert findings["consequence_of"].to_list() == [None] * 4 + ["slow-device"]
    planted = {problem["kind"] for problem in truth(cluster)["problems"]}
    assert planted == {"slow GPU", "exposed communication", "data loading gap", "pageable copies"}
    assert findings["share"].to_list() == pytest.approx(
        (findings["cost_ns"] / (cluster.ranks * result.run["elapsed_ns"][0])).to_list()
    )
    slow = findings.row(0, named=True)
    saved = f"{slow['saved_share'] * 100:.1f} %  {slow['saved_ns'] / 1e6:.3f} ms"
    place = lines.index("Findings in the whole run: it would be shorter by this time")
    assert lines[place + 1].split(maxsplit=1) == ["1.", f"{saved}  {slow['title']} ({slow['saved_how']})"]


# -- the table of rules ------------------------------------------------------------------------


def test_every_rule_has_its_view_its_limits_and_a_kind_of_its_own() -> None:
    views = {f"{view.group}/{view.name}" for view in read_view_table().views}
    assert {rule.view for rule in RULES} <= views
    assert len({rule.kind for rule in RULES}) == len(RULES)
    assert all(rule.thresholds for rule in RULES)
    thresholds = [*GENERAL_THRESHOLDS, *(threshold for rule in RULES for threshold in rule.thresholds)]
    assert all(threshold.unit in {"ns", "bytes", "0 to 1", ""} and threshold.reason for threshold in thresholds)
