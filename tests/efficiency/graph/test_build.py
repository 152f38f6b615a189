"""Graphs of small runs whose critical path is known."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import rest
from support.measured import MS, US, events_of
from support.report_builder import ReportBuilder
from support.simulated_run.causes import with_and_without
from support.simulated_run.cluster import Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.graph.bounds import PAGES
from nsys2prv.efficiency.graph.replay import EdgeKind
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions, scalings
from nsys2prv.exports.identity import IS_DEFAULT, NEVER_WAITS


@pytest.mark.parametrize("recorded", ["pthread_create", *rest(None)], ids=["creation recorded", "one stream"])
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
    assert graph_of_run(MeasuredRun(events_of(tmp_path, report))).left_out == {EdgeKind.LAUNCH: 20}


# -- replays of small runs in which threads wait for what nothing says, copies share an engine, and calls hand over data ----
LOADER = 2000
"""Thread that loads batches."""


def replayed(report: ReportBuilder, folder: Path, **changes: Any) -> dict[str, Any]:
    """The row of the whole window with changes."""
    if "scale" in changes:
        changes["scale"] = scalings(changes["scale"])
    return what_if([report.write(folder / "run.sqlite")], WhatIfOptions(**changes)).what_if.row(0, named=True)


def steps_and_their_loader() -> ReportBuilder:
    """Ten kernels of 10 ms in turn, each of which the main thread awaits; the loader copies a batch in each, 1 ms of work after
    it was let on, and is else off its CPU."""
    report = ReportBuilder()
    for step in range(10):
        begin = step * 10 * MS + step * 200 * US
        report.kernel("train_step", begin + 20 * US, begin + 10 * MS, launch=(begin, begin + 10 * US))
        report.api_call("cudaStreamSynchronize_v3020", begin + 15 * US, begin + 10 * MS + 10 * US)
        let_on, copied = begin + 30 * US, begin + 1030 * US
        call = report.api_call("cudaMemcpyAsync_v3020", copied, copied + 5 * US, tid=LOADER)
        report.copy(copied + 10 * US, copied + 500 * US, 8 << 20, correlation=call, stream=14)
        report.on_cpu(let_on, copied + 10 * US, 3, tid=LOADER)
    return report


def test_the_loader_of_a_run_may_follow_its_consumer(tmp_path: Path) -> None:
    row = replayed(steps_and_their_loader(), tmp_path, scale="train_step=0.5")
    half = row["measured_ns"] - 10 * (10 * MS - 20 * US) // 2
    assert row["least_ns"] <= half + MS <= row["most_ns"] <= row["measured_ns"]
    assert "while off their CPU" in row["reason"]


def pauses(*, off_cpu: bool | None) -> ReportBuilder:
    """A thread that pauses for 1 ms between kernels of 1 ms: on its CPU, off it, or nobody knows."""
    report = ReportBuilder()
    for step in range(10):
        begin = step * 2 * MS
        report.kernel("work", begin + 10 * US, begin + MS, launch=(begin, begin + 5 * US))
        if off_cpu:
            report.on_cpu(begin, begin + 100 * US)
    if off_cpu is False:
        report.on_cpu(0, 20 * MS)
    # Somebody else is off the CPU.
    return report.on_cpu(0, 10, 1, tid=LOADER).on_cpu(20 * MS, 20 * MS + 10, 1, tid=LOADER) if off_cpu is False else report


@pytest.mark.parametrize("off_cpu", [True, None])
def test_a_pause_that_may_be_a_wait_is_work_or_a_wait_for_the_device(off_cpu: bool | None, tmp_path: Path) -> None:
    row = replayed(pauses(off_cpu=off_cpu), tmp_path, scale="work=0.5")
    assert (row["replayed_ns"], row["speedup"]) == (None, None)
    # The end of each kernel lets the thread go on, if anything does.
    assert (row["least_ns"], row["most_ns"]) == (row["measured_ns"] - 10 * 495 * US, row["measured_ns"] - 495 * US)


def test_a_lock_inside_of_a_call_may_be_a_wait(tmp_path: Path) -> None:
    report = ReportBuilder()
    for begin in range(0, 20 * MS, 2 * MS):
        report.kernel("work", begin + 10 * US, begin + MS, launch=(begin, begin + 5 * US))
        report.api_call("cudaMalloc_v3020", begin + MS, begin + 2 * MS)
        report.os_call("pthread_rwlock_wrlock", begin + MS + US, begin + 2 * MS - US)
    row = replayed(report, tmp_path, scale="work=0.5")
    assert (row["least_ns"], row["most_ns"]) == (row["measured_ns"] - 10 * 495 * US, row["measured_ns"])


@pytest.mark.parametrize(
    ("work", "after", "flags", "waits"),
    [(13, 7, {}, 1), (7, 13, {}, 1), (13, 17, {}, 0), (13, 17, {17: IS_DEFAULT}, 1), (13, 7, {13: NEVER_WAITS}, 0)],
)
def test_default_streams_and_others_wait(tmp_path: Path, work: int, after: int, flags: dict[int, int], waits: int) -> None:
    report = ReportBuilder()
    for stream, flag in flags.items():
        report.row("TARGET_INFO_CUDA_STREAM", streamId=stream, flag=flag, processId=report.pid, contextId=1)
    for begin in range(0, 10 * MS, 2 * MS):
        report.kernel("work", begin + 10 * US, begin + MS, stream=work, launch=(begin, begin + 5 * US))
        report.kernel("after", begin + MS + 2 * US, begin + 2 * MS, stream=after, launch=(begin + 6 * US, begin + 9 * US))
        report.api_call("cudaDeviceSynchronize_v3020", begin + 10 * US, begin + 2 * MS)
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["replayed_ns"] == (row["measured_ns"] - 5 * 495 * US if waits else None)


@pytest.mark.parametrize(("begin", "waits"), [(30, True), (30_000, False)])
def test_polls_beside_a_wait_of_another_thread_wait_for_the_same(tmp_path: Path, begin: int, waits: bool) -> None:
    report = ReportBuilder()
    report.kernel("work", 10 * US, 50 * MS, launch=(0, 5 * US))
    report.os_call("poll", 20 * US, 51 * MS).api_call("cudaDeviceSynchronize_v3020", begin * US, 50 * MS, tid=1001)
    report.kernel("after", 52 * MS, 53 * MS, launch=(51 * MS + US, 51 * MS + 10 * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["replayed_ns"] == (row["measured_ns"] - (50 * MS - 10 * US) // 2 if waits else None)


@pytest.mark.parametrize(("rest", "waits"), [(300, True), (3000, False)])
def test_a_launch_that_loads_code_waits_for_idle_devices(tmp_path: Path, rest: int, waits: bool) -> None:
    report, end = ReportBuilder(), 50 * MS
    report.kernel("work", 10 * US, end, launch=(0, 5 * US))
    report.kernel("after", end + rest * US + 10 * US, 60 * MS, launch=(20 * US, end + rest * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["replayed_ns"] == (row["measured_ns"] - (end - 10 * US) // 2 if waits else end + rest * US)


def test_nothing_unknown_makes_a_run_shorter_by_more_than_what_takes_less(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0, ranks=2, with_mpi=True).gpu(0)
    report.mpi_collective("MPI_Allreduce", 0, 5 * MS)
    report.kernel("last", 6 * MS, 6 * MS + 10 * US, launch=(5 * MS + 900 * US, 5 * MS + 950 * US))
    row = replayed(report, tmp_path, scale="last=0.5")
    assert (row["least_ns"], row["most_ns"]) == (row["measured_ns"] - 2 * 5 * US, row["measured_ns"] - 5 * US)


@pytest.mark.parametrize("name", ["poll", "pthread_cond_timedwait"])
def test_polls_with_a_time_out_that_follow_each_other_are_one_wait(tmp_path: Path, name: str) -> None:
    report = ReportBuilder()
    report.kernel("work", 10 * US, 50 * MS, launch=(0, 5 * US))
    for place in range(5):
        begin = (10 * place) * MS + 20 * US
        report.os_call(name, begin, begin + 10 * MS - 20 * US).os_call("recvmsg", begin - 10 * US, begin - 5 * US)
    report.kernel("after", 50 * MS + 50 * US, 51 * MS, launch=(50 * MS + 30 * US, 50 * MS + 40 * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["least_ns"] == row["measured_ns"] - (50 * MS - 10 * US) // 2
    # The thread need not wait for the device at all.
    assert row["most_ns"] == row["measured_ns"]


def test_a_copy_between_devices_over_the_host_is_two_copies_of_which_the_second_waits(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0).gpu(1)
    report.kernel("work", 10 * US, 10 * MS, launch=(0, 5 * US))
    call = report.api_call("cudaMemcpyAsync_v3020", 6 * US, 9 * US)
    report.copy(10 * MS + 10 * US, 11 * MS, 1 << 20, kind=2, correlation=call)
    report.copy(11 * MS + 10 * US, 12 * MS, 1 << 20, correlation=call, device=1)
    report.kernel("work", 12 * MS + 10 * US, 20 * MS, device=1, launch=(10 * US, 15 * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["most_ns"] <= row["measured_ns"] - (18 * MS - 20 * US) // 2


@pytest.mark.parametrize("module", ["libcuda.so.525", "program"])
def test_a_thread_that_is_in_the_driver_in_no_recorded_call_may_wait(module: str, tmp_path: Path) -> None:
    report = ReportBuilder().on_cpu(0, 52 * MS)
    report.kernel("work", 20 * US, 50 * MS, launch=(0, 10 * US))
    for sampled in range(MS // 2, 50 * MS, MS):
        report.cpu_sample(sampled, [("poll", module)])
    report.kernel("after", 50 * MS + 30 * US, 51 * MS, launch=(50 * MS + 10 * US, 50 * MS + 20 * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    shorter = (50 * MS - 20 * US) // 2 if "cuda" in module else 0
    assert (row["least_ns"], row["most_ns"]) == (row["measured_ns"] - shorter, row["measured_ns"])


@pytest.mark.parametrize("full", [0, 5 * US])
def test_work_that_starts_long_after_its_launch_may_wait_for_other_streams(tmp_path: Path, full: int) -> None:
    report = ReportBuilder()
    for begin in range(0, 200 * MS, 20 * MS):
        # Of a device that was full the last blocks still run.
        report.kernel("work", begin + 20 * US, begin + 10 * MS + full, launch=(begin, begin + 10 * US), stream=14)
        report.copy(begin + 10 * MS, begin + 11 * MS, 1 << 20, kind=2, launch=(begin + 20 * US, begin + 11 * MS), stream=7)
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["least_ns"] < row["measured_ns"] - 9 * 5 * MS


def test_a_function_of_the_host_tells_its_thread_that_work_is_done(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("work", 20 * US, 50 * MS, launch=(0, 10 * US))
    report.api_call("cuLaunchHostFunc", 20 * US, 30 * US)
    report.kernel("after", 50 * MS + 330 * US, 51 * MS, launch=(50 * MS + 300 * US, 50 * MS + 310 * US))
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["replayed_ns"] == row["least_ns"] == row["most_ns"] == row["measured_ns"] - (50 * MS - 20 * US) // 2


def test_a_thread_that_is_seen_to_run_works(tmp_path: Path) -> None:
    row = replayed(pauses(off_cpu=False), tmp_path, scale="work=0.5")
    assert row["least_ns"] == row["most_ns"] == row["replayed_ns"] == row["measured_ns"] - 495 * US
    assert row["reason"] is None


def test_copies_of_one_direction_wait_for_each_other_also_in_other_streams(tmp_path: Path) -> None:
    report = ReportBuilder()
    for copy in range(20):
        begin = (copy + 1) * MS
        report.copy(begin, begin + MS, 1 << 20, launch=(copy * 10 * US, (copy * 10 + 5) * US), stream=10 + copy % 4)
    report.api_call("cudaDeviceSynchronize_v3020", 200 * US, 21 * MS + 10 * US)
    row = replayed(report, tmp_path, scale="CUDA memcpy*=0")
    # The first one starts 1 ms after its launch for what is not known.
    assert row["most_ns"] < 2 * MS


def test_a_call_that_hands_over_its_data_takes_the_time_of_its_copy(tmp_path: Path) -> None:
    report = ReportBuilder()
    for copy in range(5):
        begin = copy * 10 * MS
        report.copy(begin + 100 * US, begin + 9 * MS, 1 << 28, pageable=True, launch=(begin, begin + 8900 * US))
        report.kernel("work", begin + 9500 * US, begin + 9900 * US, launch=(begin + 9450 * US, begin + 9460 * US))
    row = replayed(report, tmp_path, scale="CUDA memcpy Host-to-Device=0")
    assert row["least_ns"] <= row["measured_ns"] - 5 * 8800 * US <= row["most_ns"] * 1.01


def test_a_copy_that_waits_for_its_stream_and_unloading_of_code_are_no_work_of_hosts(tmp_path: Path) -> None:
    report = ReportBuilder()
    for begin in range(0, 500 * MS, 100 * MS):
        report.kernel("work", begin + 20 * US, begin + 90 * MS, launch=(begin, begin + 10 * US))
        handed_over = begin + 99 * MS, begin + 99900 * US
        report.copy(begin + 90 * MS, handed_over[1], 1 << 26, pageable=True, launch=(begin + 20 * US, handed_over[1] - 50 * US))
    report.kernel("work", 500 * MS + 20 * US, 590 * MS, launch=(500 * MS, 500 * MS + 10 * US))
    report.api_call("cuLibraryUnload", 500 * MS + 20 * US, 590 * MS + 10 * US)
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["replayed_ns"] == pytest.approx(row["measured_ns"] - 6 * 45 * MS, rel=0.01)


def test_launches_that_load_code_are_no_launch_cost(tmp_path: Path) -> None:
    report = ReportBuilder()
    for begin, took in ((0, 300 * MS), *((begin * MS, 10 * US) for begin in range(310, 330))):
        report.kernel("work", begin + took + 10 * US, begin + took + 900 * US, launch=(begin, begin + took))
    row = replayed(report, tmp_path, no_launch_cost=True)
    assert 0 < row["measured_ns"] - row["replayed_ns"] <= 21 * 20 * US
    path = measure([tmp_path / "run.sqlite"]).critical_path.row(0, named=True)
    assert (path["begin_ns"], path["kind"], path["row"].partition(" tid")[0]) == (0, "host", "python3")


@pytest.mark.parametrize("creates", [False, True])
def test_what_is_loaded_before_the_first_launch_may_be_start_up(tmp_path: Path, creates: bool) -> None:
    report = ReportBuilder()
    report.api_call("cuModuleGetLoadingMode", 0, 10)
    for begin in range(100 * MS, 200 * MS, 10 * MS):
        report.copy(begin + 20 * US, begin + 500 * US, 1 << 20, launch=(begin, begin + 10 * US))
    report.process(9)
    report.kernel("work", 10 * US, 20 * US, launch=(0, 5 * US), pid=9, tid=9, stream=14)
    if creates:
        report.profiler("CUPTI: Resource Management", 50 * MS, 51 * MS)
    row = replayed(report, tmp_path, data_loading=0)
    assert 100 * MS < row["most_ns"] < 110 * MS
    # What creates the context is no loading.
    assert (row["least_ns"] == row["most_ns"]) if creates else (row["least_ns"] < 10 * MS)
    assert creates or row["reason"].endswith("nor what may be start-up or writing of results")


def test_a_loop_that_keeps_its_pace_gains_nothing_for_sure(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    for begin in range(0, 1000 * MS, 40 * MS):
        # The thread is off its CPU until the next frame comes, and computes before it launches.
        report.on_cpu(begin, begin + 26 * MS)
        for launch in (begin + 20 * US, begin + 25 * MS):
            report.kernel("work", launch + 20 * US, launch + MS, launch=(launch, launch + 10 * US))
    findings = measure([report.write(tmp_path / "run.sqlite")]).findings
    assert dict(findings.select("kind", "saved_how").iter_rows())["host-bound"] == "at most, by replay"


def test_a_call_waits_for_the_thread_that_holds_the_driver(tmp_path: Path) -> None:
    report = ReportBuilder().on_cpu(0, MS, 3, tid=LOADER)
    for step in range(10):
        begin, held = step * 10 * MS, step * 10 * MS + 9 * MS + 60 * US
        report.kernel("train_step", begin + 20 * US, begin + 9 * MS, launch=(begin, begin + 10 * US))
        report.copy(begin + 9 * MS, begin + 9 * MS + 2 * US, 4, kind=2, launch=(begin + 15 * US, begin + 9 * MS + 10 * US))
        # The loader comes to its copy when the main thread is done with its own; a second one finds the driver free.
        for called, until, copied in ((begin + MS, held, held), (held + 190 * US, held + 195 * US, held + 200 * US)):
            call = report.api_call("cudaMemcpyAsync_v3020", called, until, tid=LOADER)
            report.copy(copied, copied + 50 * US, 8 << 20, correlation=call, stream=14)
        report.on_cpu(begin, begin + 10 * MS).on_cpu(held, begin + 11 * MS, 3, tid=LOADER)
    row = replayed(report, tmp_path, scale="train_step=0.5")
    assert row["replayed_ns"] == row["measured_ns"] - 10 * (9 * MS - 20 * US) // 2


def test_a_call_that_is_there_again_with_its_call_chain_waits_once(tmp_path: Path) -> None:
    report = ReportBuilder()
    for step in range(5):
        begin = step * 10 * MS
        launch = report.api_call("cudaMemcpy_v3020", begin + US, begin + 9 * MS)
        report.copy(begin + 100 * US, begin + 8990 * US, 1 << 28, kind=2, correlation=launch)
        report.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=begin, end=begin + 9 * MS + US, eventClass=67,
            globalTid=report.global_tid(), correlationId=launch, nameId=report.string("cudaMemcpy"), callchainId=step,
        )  # fmt: skip
    row = replayed(report, tmp_path, scale="CUDA memcpy Device-to-Host=0")
    assert row["most_ns"] <= row["measured_ns"] - 5 * 8800 * US
    assert measure([tmp_path / "run.sqlite"]).cuda_calls.select("call", "count").rows() == [("cudaMemcpy", 5)]


def test_pages_move_with_the_kernel_that_needs_them_and_may_hold_it_alone(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("work", 2 * MS, 102 * MS, launch=(MS, MS + 10 * US))
    report.api_call("cudaDeviceSynchronize_v3020", MS + 20 * US, 102 * MS + 10 * US)
    for page in range(100):
        report.copy((3 + page // 2) * MS, (3 + page // 2) * MS + 40 * US, 65_536, kind=11, stream=13)
        report.copy((103 + page) * MS, (103 + page) * MS + 40 * US, 65_536, kind=12, stream=13)
    report.api_call("cudaFree_v3020", 203 * MS, 204 * MS)
    for time, on in ((0, True), (205 * MS, False)):
        report.switch(time, 0, on=on)
    row = replayed(report, tmp_path, scale="work=0.5")
    assert row["least_ns"] == row["measured_ns"] - 50 * MS
    # In the kernel pages move 50 times, two at a time: it may have waited for them, and for faults that were not recorded.
    assert row["most_ns"] == row["measured_ns"] - 50 * MS + 20 * 50 * 40 * US
    assert PAGES in row["reason"]


def test_what_makes_nothing_longer_makes_no_run_longer(tmp_path: Path) -> None:
    row = replayed(steps_and_their_loader(), tmp_path, scale="train_step=0.99")
    assert row["least_ns"] <= row["most_ns"] < row["measured_ns"]


# -- launch calls that wait for a place in the queue of their stream, against what the simulated machine did ----


def blocked_calls(folder: Path, cluster: Cluster) -> float | None:
    tables = measure(write_reports(simulate(cluster), folder)).tables
    numbers = tables["finding_numbers"]
    found = numbers.filter(kind="full-launch-queue", number="blocked calls")["value"]
    return found[0] if len(found) else None


@pytest.mark.parametrize("has_limit", [True, *rest(False)])
def test_calls_are_blocked_where_the_queue_has_a_limit_and_not_where_it_has_none(tmp_path: Path, has_limit: bool) -> None:
    limited, unlimited = with_and_without(replace(Cluster(gpus=1), launches_ahead=2_000), "full queue")
    run = simulate(limited if has_limit else unlimited)
    kernels = [operation for operation in run.operations_of(0) if operation.stream == 7]
    # Blocked: its call ended when the operation 1,024 places before it started.
    truly = sum(
        one.call.end.time == earlier.start.time + run.cluster.machine.wake and earlier.start.time > one.call.start
        for earlier, one in zip(kernels, kernels[1_024:], strict=False)
    )
    found = blocked_calls(tmp_path, limited if has_limit else unlimited)

    assert (truly > 0) == has_limit
    assert found == (pytest.approx(truly, rel=0.05) if has_limit else None)


def test_before_the_first_work_of_a_run_nothing_makes_place(tmp_path: Path) -> None:
    """A module is loaded while more than 1,000 kernels are launched: a call that takes long then is not blocked by a queue."""
    made = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    for index in range(1_300):
        call = index * 10 * US
        start = 20_000 * US + index * 20 * US
        made.kernel("k(int)", start, start + 15 * US, launch=(call, call + (9 if index >= 1_000 else 2) * US))
    found = measure([made.write(tmp_path / "rank0.sqlite")]).tables["findings"]
    assert "full-launch-queue" not in found["kind"].to_list()


def test_long_calls_with_few_pending_operations_and_short_ones_with_many_are_not_blocked(tmp_path: Path) -> None:
    """Half of the launches are far ahead, and take as long as any; others take long, and their kernels start at once."""
    made = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    for index in range(1_200):
        start = 6_000 * US + index * 20 * US
        made.kernel("k(int)", start, start + 20 * US, launch=(index * 5 * US, index * 5 * US + 4 * US))
    for index in range(100):
        start = 40_000 * US + index * 100 * US
        made.kernel("k(int)", start + 60 * US, start + 80 * US, launch=(start, start + 50 * US))
    found = measure([made.write(tmp_path / "rank0.sqlite")]).tables["findings"]
    assert "full-launch-queue" not in found["kind"].to_list()
