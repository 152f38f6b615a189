"""Runs in which no process uses a GPU: the numbers of MPI and of hosts, and why all others are absent."""

import json
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.measured import MS
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions, window_choice
from nsys2prv.efficiency.findings.engine import HOST_RULES, RULES
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.errors import NoDevices

HOST_TREE = {
    "host_parallel_efficiency": 0.7,
    "mpi_parallel_efficiency": 0.7,
    "mpi_load_balance": 0.875,
    "mpi_communication_efficiency": 0.8,
}
"""E is 10 ms, M of the ranks is 4 and 2 ms: (E - mean M) / E, (E - mean M) / (E - min M), (E - min M) / E."""


def reducing(folder: Path, start: int = 0) -> list[Path]:
    """Two ranks that compute in `work`, 6 and 8 ms long, and reduce until 10 ms after `start`; rank 0 reads a file meanwhile.
    Before, MPI starts until 2 ms before and until `start`; after it, MPI ends for 5 ms."""
    paths = []
    for rank, work in enumerate((6, 8)):
        report = ReportBuilder(rank=rank, pid=1000 + rank).communicator(rank=rank, size=2)
        end = (start + 10) * MS
        report.nvtx_range("work", start * MS, (start + work) * MS)
        report.mpi_collective("MPI_Allreduce", (start + work) * MS, end, size=8)
        if rank == 0:
            report.os_call("read", (start + 1) * MS, (start + 2) * MS)
        if start:
            report.mpi_other("MPI_Init_thread", 0, (start - 2 + 2 * rank) * MS)
            report.mpi_other("MPI_Finalize", end, end + 5 * MS)
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return paths


@pytest.fixture
def of_mpi(tmp_path: Path) -> list[Path]:
    return reducing(tmp_path)


def measured(reports: list[Path], **options: object) -> EfficiencyResult:
    return measure(reports, EfficiencyOptions(align="utc", **options))  # type: ignore[arg-type]


def test_a_run_with_mpi_has_the_tree_of_its_hosts(of_mpi: list[Path]) -> None:
    result = measured(of_mpi)

    tree = result.tables["tree"]
    assert dict(tree.select("metric", "value").iter_rows()) == pytest.approx(HOST_TREE)
    assert set(tree["tree"]) == {"host"}
    assert result.tables["run"].select("devices", "processes", "threads", "mpi_ns").row(0) == (0, 2, 2, 6 * MS)
    # What only GPUs have is not 0 % or 100 %.
    assert result.tables["run"].select("orchestration_efficiency", "device_offload_efficiency").row(0) == (None, None)
    assert result.tables["tasks"]["os_ns"].to_list() == [MS, 0]
    assert result.tables["mpi_calls"].select("call", "count", "total_ns", "share").rows() == [("MPI_Allreduce", 2, 6 * MS, 0.3)]
    assert result.tables["os_calls"].select("call", "kind", "count", "total_ns", "tasks").rows() == [("read", "io", 1, MS, 1)]
    assert [(tile.name, tile.note) for tile in verdict(result.head, result.tables).tiles] == [
        ("host_parallel_efficiency", "mean over host threads"),
        ("mpi_load_balance", "mean over largest time outside of MPI of a process"),
        ("mpi_communication_efficiency", "of the process that is longest outside of MPI"),
        ("largest_mpi_call", "MPI_Allreduce, of the time of threads that call MPI"),
    ]
    computing = measured(of_mpi, window=window_choice("0ms:5ms"))
    assert verdict(computing.head, computing.tables).tiles[-1].note == "no MPI call in this window"


def test_the_start_and_the_end_of_mpi_are_apart_from_its_communication(tmp_path: Path) -> None:
    result = measured(reducing(tmp_path, start=20))
    found = verdict(result.head, result.tables)
    assert [(part.name, part.title, part.value) for part in found.bar] == [
        ("compute", "computing", 8 * MS),
        ("mpi_start_up", "MPI start-up (MPI_Init)", 19 * MS),
        ("mpi", "other MPI calls", 3 * MS),
        ("mpi_shut_down", "MPI shut-down (MPI_Finalize)", 5 * MS),
    ]
    assert "largest part of the rest: MPI start-up (MPI_Init), 54.3 %" in found.sentence
    windows = result.tables["windows"]
    assert windows.select("window", "begin_ns", "end_ns").rows() == [
        ("whole run", 0, 35 * MS),
        ("start-up", 0, 20 * MS),
        ("work of processes", 20 * MS, 30 * MS),
        ("shut-down", 30 * MS, 35 * MS),
    ]
    work = windows.row(2, named=True)
    # The tree of what is between them is that of a run without them.
    assert {name: work[name] for name in HOST_TREE} == pytest.approx(HOST_TREE)


def test_regions_and_iterations_have_the_tree_of_their_hosts(of_mpi: list[Path]) -> None:
    result = measured(of_mpi, regions=("work",), per_iteration="work")
    of_region = result.tables["regions"].row(0, named=True)
    assert (of_region["region"], of_region["count"], of_region["devices"]) == ("work", 2, 0)
    assert of_region["mpi_parallel_efficiency"] == 1.0
    assert result.tables["iterations"]["mpi_parallel_efficiency"].to_list() == [1.0]


def test_a_call_of_mpi_that_is_open_at_the_end_is_mpi_until_then(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).communicator(rank=0, size=2).nvtx_range("work", 0, 10 * MS)
    made = report.mpi_other("MPI_Barrier", 4 * MS, None).write(tmp_path / "host.sqlite")
    result = measured([made])
    bar = verdict(result.head, result.tables).bar
    assert [(part.name, part.value) for part in bar] == [("compute", 4 * MS), ("mpi", 6 * MS)]


def test_a_gpu_whose_work_was_lost_is_not_unused(tmp_path: Path) -> None:
    report = ReportBuilder().nvtx_range("work", 0, 10 * MS)
    report.api_call("cudaLaunchKernel_v7000", MS, 2 * MS)
    result = measured([report.write(tmp_path / "host.sqlite")])
    assert all(what in text for what, text in zip(("lost them", "nsys lost it"), result.head["warnings"], strict=True))
    assert "used" not in verdict(result.head, result.tables).sentence


def test_it_is_said_that_no_gpu_was_used_and_what_is_absent(of_mpi: list[Path], command_line: CommandLine) -> None:
    done = command_line.run("efficiency", *of_mpi, "--align", "utc", "--json-file", "out.json", "--talp", "talp.json")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1] == (
        "no work of GPUs was recorded; 2 host threads computed 70.0 % of 10.000 ms (the whole run); "
        "largest part of the rest: MPI calls, 30.0 %; it would be at most 2.000 ms (20.0 %) shorter without: "
        "MPI communication on 2 processes, most on Rank 0 node01 pid 1000 python3 on node01"
    )
    assert "MPI Load Balance" in done.stdout
    assert "GPU" not in "".join(lines[2:]).replace("no work of a GPU was recorded", "")
    assert "warning: no work of a GPU was recorded: efficiencies of devices" in done.stderr
    talp = json.loads((command_line.folder / "talp.json").read_text())
    assert talp["Application"]["Global"]["mpiParallelEfficiency"] == pytest.approx(0.7)
    checks = json.loads((command_line.folder / "out.json").read_text())["tables"]["finding_checks"]
    of_gpus = len(RULES)
    assert set(zip(checks["result"][:of_gpus], checks["reason"][:of_gpus], strict=True)) == {
        ("not decidable", "no work of a GPU was recorded")
    }
    assert checks["kind"][of_gpus:] == [rule.kind for rule in HOST_RULES]


def test_hosts_without_mpi_have_calls_of_the_os_and_no_efficiency(tmp_path: Path) -> None:
    report = ReportBuilder().nvtx_range("work", 0, 10 * MS).os_call("read", 1 * MS, 3 * MS)
    # What nsys marks for no thread, and what the driver of CUDA and nsys do, is not the program.
    report.os_call("none", 0, 0, tid=0)
    for tid, name in enumerate(("cuda-EvtHandlr", "*2CommsProcesso", "CUPTI worker thread"), start=2000):
        report.thread(tid, name=name)
        report.os_call("poll", 0, 10 * MS, tid=tid)
    result = measured([report.write(tmp_path / "host.sqlite")])

    root = result.tables["tree"].row(0, named=True)
    assert (root["metric"], root["value"], root["reason"]) == ("host_parallel_efficiency", None, "without MPI and GPUs")
    found = verdict(result.head, result.tables)
    largest = "largest part of 10.000 ms (the whole run) of 1 host thread: computing, or off the CPU, 80.0 %"
    in_range = "10.000 ms (100.0 %) in ranges of NVTX named work"
    assert found.sentence == f"neither work of GPUs nor MPI was recorded; {largest}; {in_range}"
    assert {part.name: part.share for part in found.bar} == pytest.approx({"compute": 0.8, "os": 0.2})
    assert {tile.note for tile in found.tiles} == {"no work of GPUs was recorded"}


def test_a_thread_that_was_joined_is_there_until_then(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.os_call("read", 0, MS).os_call("read", 10 * MS, 12 * MS, tid=1001).os_call("pthread_join", 5 * MS, 12 * MS + 100)
    report.os_call("read", 20 * MS, 21 * MS, tid=1002).os_call("write", 39 * MS, 40 * MS)
    result = measured([report.write(tmp_path / "host.sqlite")])
    assert result.threads["host_useful_ns"].to_list() == [40 * MS, 2 * MS, 20 * MS]
    # Who is in few calls may sleep.
    assert "the time in which they are there, 20.667 ms on average, in 40.000" in verdict(result.head, result.tables).sentence
    assert "busiest" not in verdict(result.head, result.tables).sentence


def test_a_run_without_a_gpu_is_not_replayed(of_mpi: list[Path], command_line: CommandLine) -> None:
    done = command_line.run("whatif", *of_mpi, "--ideal-network")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (NoDevices.exit_code, "", 1)


def test_ranges_that_nobody_ended_make_a_run_no_longer(tmp_path: Path) -> None:
    report = ReportBuilder().os_call("read", 0, 10 * MS).on_cpu(90 * MS, 100 * MS, tid=5)
    report.nvtx_range("run", MS, None).nvtx_range("step", 2 * MS, None)
    assert measure([report.write(tmp_path / "open.sqlite")]).head["window"]["length_ns"] == 10 * MS
    # nsys ends a single one where the recording stops.
    single = ReportBuilder().os_call("read", 0, 10 * MS).nvtx_range("run", MS, 100 * MS)
    single.row("ANALYSIS_DETAILS", duration=100 * MS)
    result = measure([single.write(tmp_path / "single.sqlite")])
    what = "10.000 ms (the program's first to last event, of 100.000 ms in the trace)"
    assert what in verdict(result.head, result.tables).sentence


def test_the_first_thread_of_a_process_is_of_the_program_whatever_nsys_calls_it(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).nvtx_range("calc", 0, 10 * MS, tid=1000)
    report.thread(1000, name="CUPTI worker thread")
    assert measure([report.write(tmp_path / "renamed.sqlite")]).tables["threads"].height == 1


def test_a_thread_of_nsys_that_waits_for_long_is_not_the_program(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).os_call("read", 0, 10 * MS, tid=1000).os_call("sem_wait", 0, 90 * MS, tid=1007)
    report.thread(1007, name="[NSys Comms]")
    assert measure([report.write(tmp_path / "waits.sqlite")]).head["window"]["length_ns"] == 10 * MS


def test_calls_of_cuda_that_take_no_time_do_not_say_which_threads_work(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000)
    report.thread(1001)
    report.api_call("cudaGetDeviceCount_v3020", 5 * MS, 5 * MS + 900)
    for thread in (1000, 1001):
        report.os_call("fread", 0, 10 * MS, tid=thread)
    assert measured([report.write(tmp_path / "host.sqlite")]).threads.height == 2
