"""What hosts do while devices wait: what is created once, sleeps and waits; in the wall time, in findings and in the tree."""

from pathlib import Path

import polars as pl
import pytest
from support.measured import MS, NCCL, check, finding, measured
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import NcclPolicy
from nsys2prv.efficiency.host_states import creates_communicators, creates_context, os_states
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.vocabulary import event_types


def bar_of(result: EfficiencyResult) -> dict[str, float]:
    return {part.name: round(part.value / MS) for part in verdict(result.head, result.tables).bar}


@pytest.mark.parametrize("thread", [{}, {"tid": 3_000}], ids=["by the thread that asks", "by a thread of NCCL"])
def test_contexts_and_communicators_are_no_start_up_and_no_allocation(tmp_path: Path, thread: dict[str, int]) -> None:
    """The context before the first work, the communicator after it: 300 and 400 of 1,000 ms."""
    report = ReportBuilder().gpu(0)
    report.api_call("cudaGetDeviceCount_v3020", 0, MS)
    report.api_call("cudaFree_v3020", MS, 301 * MS)
    report.kernel("first", 350 * MS, 400 * MS, launch=(349 * MS, 350 * MS))
    report.nvtx_range("ncclCommInitRank", 420 * MS, 820 * MS, domain="NCCL")
    report.api_call("cudaMalloc_v3020", 430 * MS, 530 * MS, **thread)
    call = report.api_call("cudaLaunchKernel_v7000", 899 * MS, 900 * MS, **thread)
    report.kernel("second", 900 * MS, 1_000 * MS, correlation=call)
    found = measured(tmp_path, report)
    assert bar_of(found) == {
        "compute": 150, "start_up": 50, "starved_communicator": 400, "starved_context": 300, "starved_host": 99,
        "starved_launch": 1,
    }  # fmt: skip
    for kind, cost in (("creating-communicators", 400), ("creating-context", 300)):
        assert (finding(found, kind)["cost_ns"], finding(found, kind)["share"]) == (cost * MS, cost / 1_000)
    assert not set(found.tables["findings"]["kind"]) & {"start-up", "idle-devices", "allocations", "host-bound"}


def test_a_window_that_begins_later_has_no_context_to_create(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 10 * MS, 20 * MS, launch=(0, MS))
    report.api_call("cudaMalloc_v3020", 30 * MS, 130 * MS)
    report.kernel("second", 150 * MS, 200 * MS, launch=(140 * MS, 141 * MS))
    assert bar_of(measured(tmp_path, report))["starved_allocation"] == 100


def test_the_profiler_on_no_thread_holds_the_one_whose_call_it_is_in(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0).profiler("CUPTI: Instrumentation", 20 * MS, 100 * MS, tid=0)
    report.os_call("OS runtime libraries profiling started", 0, 0, tid=0)
    report.api_call("cudaMalloc_v3020", 0, MS)
    report.kernel("first", 120 * MS, 130 * MS, launch=(10 * MS, 110 * MS))
    assert bar_of(measured(tmp_path, report))["starved_profiler"] == 80


@pytest.mark.parametrize(
    ("calls", "created"),
    [
        ([("cudaFree", 0, 200), ("cudaMalloc", 210, 300)], [0]),
        # What may be long for other reasons counts where it is the first.
        ([("cudaMallocHost", 0, 200), ("cudaMalloc", 210, 211)], [0]),
        ([("cudaMalloc", 0, 1), ("cudaMallocHost", 10, 200)], []),
        # In a context that is there code is loaded.
        *(([(call, 0, 1), ("cudaLaunchKernel", 10, 200)], []) for call in ("cuMemFree_v2", "cudaBindTexture")),
        # Later calls of the name take as long.
        ([("cudaMalloc", 0, 100), ("cudaMalloc", 600, 690)], []),
        ([("cuCtxCreate_v2", 0, 100), ("cuCtxCreate_v2", 600, 690)], [0]),
        # PyTorch asks this first of all.
        ([("cudaStreamIsCapturing", 0, 1_446), ("cudaMalloc", 1_447, 1_448)], [0]),
        # A small GPU with a driver that is loaded.
        ([("cudaMalloc", 0, 30), ("cudaMalloc", 31, 32)], [0]),
        # Another thread waits for the same context; a third call begins when it is there.
        ([("cudaFree", 0, 200), ("cudaMalloc", 100, 210), ("cudaMalloc", 250, 350)], [0, 100]),
        ([("cudaGetDeviceCount", 0, 200)], []),
        # A second copy of the runtime starts; then memory may be freed.
        ([("cudaFree", 0, 200), ("cudaFree", 210, 400), ("cudaMalloc", 401, 402), ("cudaFree", 403, 450)], [0, 210]),
        # Each library has its own copy of the runtime, at any time; a copy may be long by itself.
        ([("cudaMalloc", 0, 200), ("cuInit", 601, 602), ("cudaLaunchKernel", 603, 900)], [0, 603]),
        ([("cudaMalloc", 0, 1), ("cuInit", 601, 602), ("cuModuleGetLoadingMode", 602, 603), ("cudaFree", 604, 900)], [604]),
        ([("cudaMalloc", 0, 200), ("cuInit", 601, 602), ("cudaMemcpy", 603, 900)], [0]),
        ([("cudaMalloc", 0, 200), ("cudaLaunchKernel", 603, 900)], [0]),
    ],
)
def test_which_calls_create_the_context(calls: list[tuple[str, int, int]], created: list[int]) -> None:
    names = dict(enumerate(sorted({name for name, _, _ in calls}), start=1))
    values = {name: value for value, name in names.items()}
    rows = [(0, 0, values[name], start * MS, end * MS) for name, start, end in calls]
    frame = pl.DataFrame(rows, schema=["task", "row", "value", "start", "end"], orient="row")
    devices = pl.DataFrame({"task": [0], "devices": [1], "until": [500 * MS]})
    nowhere = pl.DataFrame(schema=dict.fromkeys(("task", "start", "since"), pl.Int64))
    assert creates_context(frame, devices, names, nowhere)["start"].to_list() == [start * MS for start in created]


def test_a_context_is_created_where_cupti_prepares_it(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    for start in (0, 500):
        report.api_call("cudaHostAlloc_v3020", start * MS, (start + 200) * MS)
    report.kernel("work", 400 * MS, 450 * MS, launch=(390 * MS, 391 * MS))
    assert check(measured(tmp_path, report), "creating-context")[0] == "not decidable"
    report.profiler("CUPTI: Resource Management", 100 * MS, 101 * MS)
    assert finding(measured(tmp_path, report), "creating-context")["cost_ns"] == 199 * MS


@pytest.mark.parametrize("first", [0, 199])
def test_a_context_may_be_created_between_calls_that_were_recorded(tmp_path: Path, first: int) -> None:
    report = ReportBuilder().gpu(0).gpu(1)
    report.api_call("cudaMalloc_v3020", first * MS, 200 * MS)
    report.kernel("work", 210 * MS, 250 * MS, launch=(201 * MS, 202 * MS))
    report.profiler("CUPTI: Resource Management", 400 * MS, 401 * MS)
    report.kernel("work", 502 * MS, 550 * MS, device=1, launch=(500 * MS, 501 * MS))
    result, in_first = measured(tmp_path, report), 200 if first == 0 else 0
    assert result.tables["absent_time"]["starved_context_ns"][1] == (in_first + 298 - 1) * MS
    assert f"{'100.0' if first else '43.3'} % of it is in pauses" in str(finding(result, "creating-context")["seen"])


def test_a_group_of_calls_creates_communicators_where_it_ends() -> None:
    names = ["ncclGroupStart", "ncclCommInitRank", "ncclGroupEnd", "ncclGroupStart", "ncclAllReduce", "ncclGroupEnd"]
    frame = pl.DataFrame({"row": [0] * 6, "name": names, "start": range(6)})
    assert creates_communicators(frame)["start"].to_list() == [1, 2]


def test_calls_of_the_os_by_what_they_wait_for(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 10 * MS, 20 * MS, launch=(0, MS))
    names = ("usleep", "epoll_wait", "pthread_cond_timedwait", "read", "ioctl")
    for place, name in enumerate(names):
        report.os_call(name, (20 + 10 * place) * MS, (29 + 10 * place) * MS)
    report.kernel("second", 80 * MS, 100 * MS, launch=(79 * MS, 80 * MS))
    found = measured(tmp_path, report)

    row = found.tables["absent_time"].row(0, named=True)
    states = ("asleep", "polling", "locked", "io", "os", "host")
    assert [row[f"starved_{name}_ns"] // MS for name in states] == [9, 9, 9, 9, 9, 14]
    assert finding(found, "host-waits")["cost_ns"] == 36 * MS
    assert finding(found, "host-waits")["share"] == 0.36
    others = ["nanosleep", "clock_nanosleep", "pselect", "waitpid", "system", "sem_timedwait", "recvmsg", "pthread_create"]
    assert os_states(pl.Series(others), event_types.OS_CALL).to_list() == [9, 9, 10, 11, 11, 12, 13, 14]


def test_waits_for_other_programs_have_advice_of_their_own(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("first", 10 * MS, 20 * MS, launch=(0, MS))
    report.os_call("system", 20 * MS, 80 * MS)
    report.kernel("second", 100 * MS, 120 * MS, launch=(99 * MS, 100 * MS))
    waits = finding(measured(tmp_path, report), "host-waits")
    assert waits["seen"].endswith("1 call of system, 60.000 ms; in the same gaps it works for 19.000 ms more")
    assert waits["advice"].startswith("It waits for other programs")


def sleeping() -> ReportBuilder:
    """The launching thread is off its CPU for 600 of 1,000 ms."""
    report = ReportBuilder().gpu(0)
    report.kernel("first", 100 * MS, 200 * MS, launch=(0, MS))
    report.on_cpu(0, 250 * MS).on_cpu(850 * MS, 1_000 * MS)
    report.kernel("second", 900 * MS, 1_000 * MS, launch=(899 * MS, 900 * MS))
    return report


def test_a_thread_that_sleeps_does_not_compute(tmp_path: Path) -> None:
    found = measured(tmp_path, sleeping())

    waits, run = finding(found, "host-waits"), found.tables["run"].row(0, named=True)
    assert (waits["cost_ns"], waits["share"], waits["saved_ns"]) == (600 * MS, 0.6, 600 * MS)
    assert "host off its CPU 100.0 % (half of it 600.000 ms or more at a time)" in waits["seen"]
    assert "what it waits for was not recorded" in waits["seen"]
    assert "-t osrt" in waits["advice"]
    assert not {"host-bound", "idle-devices"} & set(found.tables["findings"]["kind"])
    assert run["host_waiting_ns"] == 600 * MS
    assert run["host_computing_efficiency"] == pytest.approx((998 - 600) / 1_000)
    assert run["host_parallel_efficiency"] == pytest.approx(0.998)
    tree = {row["metric"]: row for row in found.tables["tree"].iter_rows(named=True)}
    assert tree["host_computing_efficiency"]["value"] == pytest.approx(0.398)
    # Without transfers the network is not known.
    assert tree["transfer_efficiency"]["value"] is None
    assert "between ranks that were recorded" in tree["serialization_efficiency"]["reason"]


def test_without_gpus_hosts_compute_or_are_off_their_cpus(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 0, 100 * MS).on_cpu(0, 400 * MS).on_cpu(900 * MS, 1_000 * MS)
    report.os_call("read", 950 * MS, 1_000 * MS)
    # A helper of the driver without a name, and what nsys does for itself on the thread of the program.
    report.on_cpu(100 * MS, 101 * MS, tid=3_000).profiler("CUDA profiling initialization", 200 * MS, 350 * MS)
    # A thread that is there for 200 ms.
    report.on_cpu(600 * MS, 700 * MS, tid=4_000).on_cpu(750 * MS, 800 * MS, tid=4_000)
    found = measured(tmp_path, report)

    assert bar_of(found) == {"compute": 175, "profiler": 75, "waiting": 275, "os": 75}
    assert found.tables["run"].select("host_waiting_ns", "elapsed_ns").row(0) == (850 * MS, 1_000 * MS)
    assert verdict(found.head, found.tables).sentence == (
        "no work of GPUs was recorded; 2 host threads computed outside of OS calls 29.2 % of the time in which they are there, "
        "600.000 ms on average, in 1.000 s (the whole run); the busiest, python3 tid 1000, 20.0 % of 1.000 s; "
        "largest part of the rest: off the CPU, 45.8 %"
    )


def test_nccl_kernels_that_are_useful_are_in_the_first_sentence(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel(NCCL, 100 * MS, 400 * MS, launch=(0, MS))
    report.api_call("cudaDeviceSynchronize_v3020", MS, 1_000 * MS)
    found = measured(tmp_path, report, nccl=NcclPolicy.USEFUL)
    sentence = verdict(found.head, found.tables).sentence
    assert sentence.startswith("1 GPU computed or ran NCCL kernels 30.0 % of 1.000 s")
    assert "; largest part of the rest: shut-down, 60.0 %; " in sentence
