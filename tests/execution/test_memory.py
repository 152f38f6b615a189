"""A cap on memory: sizes of pieces follow from it, the output does not depend on it, and it is kept."""

import re
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import small_report

from nsys2prv.errors import RunTooLarge, UsageError
from nsys2prv.execution import memory
from nsys2prv.execution.memory import bytes_of_process, limited
from nsys2prv.execution.process import max_threads
from nsys2prv.execution.workers import workers
from nsys2prv.run.options import ReadOptions

MB = 10**6


@pytest.mark.parametrize(
    ("cap", "count", "of_each", "share"),
    [
        (250, 0, 250, 0.25),
        (300, 0, 300, 0.5),
        (450, 0, 450, 1.25),
        (2000, 0, 2000, 1.5),
        (650, 2, 250, 0.25),
        (900, 2, 300, 0.5),
        (2700, 8, 300, 0.5),
    ],
)
def test_a_cap_is_shared_by_all_processes(cap: int, count: int, of_each: int, share: float) -> None:
    assert bytes_of_process(cap * MB, count) == of_each * MB
    with limited(of_each * MB):
        assert memory.share() == share


@pytest.mark.parametrize(("cap", "count", "least"), [("249MB", 0, "250MB"), ("649MB", 2, "650MB"), ("1GB", 8, "2150MB")])
def test_a_cap_that_is_too_low_is_refused_with_the_least(cap: str, count: int, least: str, command_line: CommandLine) -> None:
    report = small_report().write(command_line.folder / "report.sqlite")
    done = command_line.run("translate", report, "-o", "out", "--memory", cap, "--workers", count)
    assert done.returncode == 2
    assert re.search(f"at least {least}; give that", done.stderr)
    assert done.stderr.count("\n") == 1
    assert [path.name for path in command_line.folder.iterdir()] == [report.name]
    assert bytes_of_process(int(least.removesuffix("MB")) * MB, count)


@pytest.mark.parametrize("text", ["2", "GB", "-1GB", "1e9GB", "2 apples", "٣GB", "9" * 5000 + "GB"])
def test_a_size_without_sense_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"memory=.*not a size"):
        ReadOptions(memory=text)  # type: ignore[arg-type]


def test_a_cluster_has_no_cap() -> None:
    with pytest.raises(UsageError, match="--memory and --scheduler"), workers(0, "tcp://127.0.0.1:1", 10**10):
        pass


def system(root: Path, groups: str, files: dict[str, str], available_kb: int = 8_000_000) -> Path:
    """A folder with what a system tells of its memory."""
    texts = {"proc/meminfo": f"MemTotal: 9000000 kB\nMemAvailable: {available_kb} kB\n", "proc/self/cgroup": groups, **files}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def limit(folder: str, most: str, used: str, of_files: int = 0, *, first: bool = False) -> dict[str, str]:
    """Files of a control group, of version 1 (`first`) or 2."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if first else ("memory.max", "memory.current")
    statistics = f"cache 7\n{'total_' if first else ''}inactive_file {of_files}\n"
    return dict(zip([f"{folder}/{name}" for name in (*names, "memory.stat")], (most, used, statistics), strict=True))


@pytest.mark.parametrize(
    ("groups", "files", "wanted"),
    [
        ("0::/\n", {}, 8_192_000_000),
        ("0::/job/step\n", limit("sys/fs/cgroup/job/step", "2000\n", "500\n", 100), 1600),
        (
            "0::/job/step\n",
            limit("sys/fs/cgroup/job/step", "max\n", "500\n") | limit("sys/fs/cgroup/job", "900\n", "300\n"),
            600,
        ),
        ("0::/outside/of/it\n", limit("sys/fs/cgroup", "900\n", "950\n"), 0),
        ("0::/../../other\n", limit("sys/fs/cgroup", "900\n", "500\n"), 400),
        ("4:memory:/job\n0::/\n", limit("sys/fs/cgroup/memory/job", "3000\n", "1000\n", 500, first=True), 2500),
        ("4:memory:/job\n", limit("sys/fs/cgroup/memory/job", "9223372036854771712\n", "9\n", first=True), 8_192_000_000),
    ],
)
def test_what_is_free_is_the_least_of_machine_and_control_groups(
    groups: str, files: dict[str, str], wanted: int, tmp_path: Path
) -> None:
    assert memory.free(system(tmp_path, groups, files)) == wanted


@pytest.mark.parametrize(("free", "share"), [(100, 0.25), (300, 0.5), (400, 1.0), (2_000, 1.5)])
def test_without_a_cap_sizes_follow_what_is_free(free: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free", lambda: free * MB)
    with limited(bytes_of_process(None, 0)):
        assert memory.share() == share


def test_the_least_of_several_limits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", "2")
    with limited(300 * MB):
        with limited(250 * MB):
            assert (memory.scaled(1000), max_threads()) == (250, 1)
        assert memory.scaled(1000) == 500
    assert (memory.scaled(1000), max_threads()) == (1000, 2)


def test_more_than_the_usual_sizes_are_taken_where_all_may_take_more() -> None:
    assert memory.scaled(50) == 50
    with limited(1200 * MB):
        assert memory.scaled(50) == 75
        with limited(400 * MB):
            assert memory.scaled(50) == 50


def resident(pid: int) -> int:
    """Resident memory of a process, bytes; 0 when it has ended."""
    try:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell how much memory was taken")
@pytest.mark.parametrize("command", ["translate", "efficiency"])
@pytest.mark.parametrize(("cap", "count"), [(250, 0), (300, 0), (650, 2)])
def test_a_cap_is_kept_within_a_fifth(
    command: str, cap: int, count: int, long_report: Path, command_line: CommandLine, request: pytest.FixtureRequest
) -> None:
    if command == "efficiency" and count:
        request.applymarker(pytest.mark.xfail(reason="measuring takes more for each interval than is assumed"))
    out = ["-o", "out", "--force"] if command == "translate" else []
    process = command_line.start(command, long_report, *out, "--memory", f"{cap}MB", "--workers", count)
    highest = 0
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pids = [process.pid, *map(int, children.read_text().split())] if children.exists() else []
        # Together, at one time: workers have ended when the first process measures what they read.
        highest = max(highest, sum(map(resident, pids)))
    if command == "efficiency" and not count:
        # 1.2 million intervals need more to be measured.
        assert process.wait() == RunTooLarge.exit_code
        return
    assert process.wait() == 0, process.communicate()
    assert 50 * MB < highest <= 1.2 * cap * MB


def test_workers_that_stay_keep_what_they_took() -> None:
    assert memory.left(1000 * MB) == 900 * MB
    assert memory.left(1000 * MB, 2) == 900 * MB - 2 * bytes_of_process(1000 * MB, 2)
