"""`inspect` begins with the run, says each thing once, and has a line for each report."""

from pathlib import Path

from support.command_line import CommandLine
from support.report_builder import ReportBuilder

from nsys2prv.run import inspect


def write_run(folder: Path, ranks: tuple[int, ...], **options: int) -> list[Path]:
    """Reports of a run of four ranks, two on a host; each with a process that recorded nothing."""
    paths = []
    for rank in ranks:
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=4, host=f"node{rank // 2}", pid=1000 + rank, schema="3.99.0")
        report.gpu(0, name="NVIDIA H100")
        report.kernel("k", 10, 1_000_010 + rank, launch=(0, 5))
        report.process(7, "systemd")
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return paths


def test_a_run_is_told_first_and_each_warning_once(command_line: CommandLine) -> None:
    paths = write_run(command_line.folder, (0, 1, 3))

    done = command_line.run("inspect", *paths)

    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "3 reports, 1.000 ms",
        "  ranks: 0-1,3 of 4, from MPI_RANKS; missing: 2",
        "  hosts: 2 (node0, node1)",
        "  GPUs: 2 x NVIDIA H100 (D0)",
        "  clocks: 2, synchronized by utc; not known",
    ]
    assert "             3  Kernels (kernels)" in lines
    assert sum("schema 3.99 is newer" in line for line in lines) == 1
    named = ((str(path), f"node{rank // 2}") for path, rank in zip(paths, (0, 1, 3), strict=True))
    assert sum(path in line and host in line for path, host in named for line in lines) == 3
    assert "systemd" not in done.stdout


def test_details_of_each_report_are_asked_for(command_line: CommandLine) -> None:
    paths = write_run(command_line.folder, (0, 1))
    done = command_line.run("inspect", "-v", *paths)
    assert done.stdout.startswith("2 reports, ")
    assert done.stdout.count("  processes: ") == 2
    assert done.stdout.count("on 1 row") >= 2
    assert "systemd" not in done.stdout


def test_reports_of_several_runs_are_told_and_are_no_error(command_line: CommandLine) -> None:
    for number, (job, start) in enumerate((("1", 10**18), ("2", 2 * 10**18))):
        report = ReportBuilder(pid=number, utc_ns=start)
        report.kernel("k", 10, 20)
        report.write(command_line.folder / f"{job}.sqlite")
    done = command_line.run("inspect", "1.sqlite", "2.sqlite")
    assert done.returncode == 0, done.stderr
    assert "not of the same run" in done.stdout
    assert "not of the same run" not in command_line.run("inspect", "1.sqlite", "2.sqlite", "--unrelated").stdout


def test_a_report_without_events_is_told_too(command_line: CommandLine) -> None:
    report = ReportBuilder()
    report.process(7, "systemd")
    done = command_line.run("inspect", report.write(command_line.folder / "a.sqlite"))
    assert done.returncode == 0, done.stderr
    assert "no events of the sources" in done.stdout
    assert "a.sqlite" in done.stdout


def test_processes_of_which_nsys_lost_all_kernels_are_told(command_line: CommandLine) -> None:
    report = ReportBuilder(pid=1000)
    report.kernel("k", 20, 30, launch=(0, 5))
    for pid, call in ((2000, "cudaGraphLaunch_v10000"), (3000, "cudaLaunchKernel_v7000"), (4000, "cudaLaunchHostFunc_v10000")):
        report.api_call(call, 10, 20, pid=pid)
    path = report.write(command_line.folder / "a.sqlite")
    warning = "no kernel is recorded of processes that launch some (pid 2000,3000): nsys lost them"
    assert warning in command_line.run("inspect", path).stdout
    assert warning in command_line.run("translate", path, "-o", "trace").stderr
    assert warning not in command_line.run("translate", path, "-o", "trace", "--only", "cuda-api").stderr
    # One launch of several that fails is no reason, unless nothing runs after it.
    for error, why in (
        (222, "nsys lost them"),
        (700, "calls failed: 1 of 4 calls of cudaLaunchKernel (cudaErrorIllegalAddress)"),
    ):
        report.api_call("cudaLaunchKernel_v7000", 30, 40, pid=3000, error=error)
        assert f"(pid 2000,3000): {why}" in command_line.run("inspect", report.write(path)).stdout


def test_the_clock_of_a_single_host_is_the_only_one_and_reports_may_be_off_it(command_line: CommandLine) -> None:
    for rank in range(2):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=2, pid=rank, utc_ns=10**18 + rank)
        report.kernel("k", 10, 1_000_010)
        report.write(command_line.folder / f"rank{rank}.sqlite")
    lines = command_line.run("inspect", "--clocks", "rank0.sqlite", "rank1.sqlite").stdout.splitlines()
    of_host, *of_reports = lines[-3:]
    assert of_host.endswith("by utc: the only one of the run")
    assert all(line.endswith("it may be off the clock of its host by up to 100.000 µs") for line in of_reports)
    assert not any("0 ns" in line for line in lines)


def test_anchors_of_a_clock_are_counted_with_those_that_do_not_fit() -> None:
    interval = {"best": 1000, "worst": 2000}
    anchors = {"messages": {"used": 256, "outliers": 0}, "nccl": {"used": 1, "outliers": 2}}
    clock = {"start": "utc", "method": "utc", "host": "a", "interval_ns": interval, "of_report_ns": 0, "contradiction_ns": None}
    _, line = inspect._clock_lines({**clock, "anchors_by_kind": anchors})
    assert line.endswith("; 256 anchors by messages; 1 anchor by nccl (2 more do not fit)")
