"""What contradicts itself on the time axis is a warning, and an error with --strict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.report_builder import ReportBuilder

from nsys2prv.clocks import AlignMethod
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import ClocksDisagree, DamagedReport
from nsys2prv.run.inspect import nvtx_names
from nsys2prv.run.open import BrokenReports
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

MS = 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
UTC = 1_700_000_000_000_000_000

INSIDE = (
    "as placed, ranks of node01 end 8 collectives before others of it have begun them, by up to 4.200 ms: "
    "the times of their reports do not fit together"
)


def reports(folder: Path, *, off: int, hosts: tuple[str, str] = ("node01", "node01")) -> list[Path]:
    """Two ranks with eight reductions and a kernel; the session of the second has a start that is `off` ns late."""
    paths = []
    for rank, host in enumerate(hosts):
        report = ReportBuilder(
            rank=rank, with_mpi=True, ranks=2, pid=1000 + rank, host=host, utc_ns=UTC + rank * (1000 + off)
        ).gpu(rank)
        began = rank * 1000
        for turn in range(8):
            start = (10 + 7 * turn + turn * turn) * MS - began
            report.kernel(NCCL, start, start + MS // 2)
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return paths


def test_ranks_of_a_host_that_end_collectives_apart_are_a_warning(tmp_path: Path) -> None:
    summary = translate(reports(tmp_path, off=5 * MS), tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC))

    assert INSIDE in summary.content["warnings"]
    assert summary.content["clock_check"] == [
        {"what": "inside host", "hosts": ["node01"], "size_ns": 4_200_000, "count": 8, "text": INSIDE}
    ]
    paths = [tmp_path / f"rank{rank}.sqlite" for rank in range(2)]
    assert INSIDE in measure(paths, EfficiencyOptions(align=AlignMethod.UTC)).head["warnings"]


def test_with_strict_it_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    paths = reports(tmp_path, off=5 * MS)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(ClocksDisagree, match=r"ranks of node01 end 8 collectives before others") as failed:
        translate(paths, tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC, strict=True))
    assert failed.value.exit_code == 9
    with pytest.raises(ClocksDisagree):
        measure(paths, EfficiencyOptions(align=AlignMethod.UTC, strict=True))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("off", "hosts"),
    [
        # As far as ranks of a host may be apart.
        (MS // 2, ("node01", "node01")),
        # Nothing is known of the clocks of two hosts, and nothing is claimed.
        (5 * MS, ("node01", "node02")),
    ],
)
def test_what_can_be_is_no_contradiction(tmp_path: Path, off: int, hosts: tuple[str, str]) -> None:
    content = translate(
        reports(tmp_path, off=off, hosts=hosts), tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC, strict=True)
    ).content

    assert content["clock_check"] == []
    assert json.loads((tmp_path / "OUT.json").read_text())["clock_check"] == []


def test_messages_that_arrive_before_they_are_sent_are_a_contradiction(tmp_path: Path) -> None:
    paths = []
    for rank, host in enumerate(("node01", "node02")):
        # The clock of the second is 3 ms behind.
        report = ReportBuilder(
            rank=rank, with_mpi=True, ranks=2, pid=1000 + rank, host=host, utc_ns=UTC - rank * 3 * MS
        ).communicator(rank=rank, size=2)
        for turn in range(4):
            time = (10 + 10 * turn) * MS
            if rank == 0:
                report.mpi_p2p("MPI_Send", time, time + 1000, partner=1, size=8, tag=turn)
            else:
                report.mpi_p2p("MPI_Recv", time - 500, time + 2000, partner=0, size=8, tag=turn)
        paths.append(report.write(tmp_path / f"rank{rank}.sqlite"))

    with pytest.raises(ClocksDisagree, match=r"4 messages from node01 to node02 arrive up to 2\.998 ms before they are sent"):
        translate(paths, tmp_path / "OUT", TranslateOptions(align=AlignMethod.UTC, strict=True))
    # Messages move the clocks until they fit.
    assert translate(paths, tmp_path / "OUT", TranslateOptions(strict=True)).content["clock_check"] == []


# -- what happens to reports that can't be read: left out, or an error -----------------------------------


FIRST, SECOND = (DamagedReport(Path(name), "cut off") for name in ("a.sqlite", "b.sqlite"))


def test_without_keep_going_the_error_of_a_report_is_raised() -> None:
    broken = BrokenReports(keep_going=False)

    with pytest.raises(DamagedReport) as raised:
        broken.leave_out(FIRST.path, FIRST)

    assert raised.value is FIRST
    assert broken.left_out == []


def test_with_keep_going_reports_are_left_out_in_their_order() -> None:
    broken = BrokenReports(keep_going=True)
    for error in (FIRST, SECOND):
        broken.leave_out(error.path, error)

    assert [(one.path, one.error) for one in broken.left_out] == [(FIRST.path, FIRST), (SECOND.path, SECOND)]


def test_when_no_report_is_left_the_first_error_is_raised() -> None:
    broken = BrokenReports(keep_going=True)
    broken.check_rest([])
    for error in (FIRST, SECOND):
        broken.leave_out(error.path, error)

    with pytest.raises(DamagedReport) as raised:
        broken.check_rest([])
    assert raised.value is FIRST


def test_an_error_about_none_of_the_reports_is_raised() -> None:
    with pytest.raises(DamagedReport) as raised:
        BrokenReports(keep_going=True).without([], FIRST)
    assert raised.value is FIRST


# -- names of NVTX ranges can be listed before one of them is chosen -------------------------------------


US = 1_000


@pytest.fixture
def ranges(tmp_path: Path) -> list[Path]:
    """Two processes; `step` is on two threads of the first, in the default domain and in that of a library."""
    builder = ReportBuilder(pid=1000)
    builder.thread(1001)
    builder.nvtx_range("step", 0, 10 * US).nvtx_range("step", 20 * US, 50 * US, tid=1001, registered=True)
    builder.nvtx_start_end("load", 0, 5 * US).nvtx_range("never closed", 1 * US, None)
    builder.nvtx_range("step", 60 * US, 61 * US, domain="library")
    other = ReportBuilder(pid=2000).nvtx_range("step", 0, 40 * US)
    other.nvtx_range("aten::mm, seq = 7, op_id = 12", 0, 2 * US).nvtx_range("aten::mm, seq = 8, op_id = 13", 3 * US, 4 * US)
    return [builder.write(tmp_path / "one.sqlite"), other.write(tmp_path / "two.sqlite")]


EXPECTED = {
    ("step", "default"): (3, 80 * US, 40 * US, 3, 2),
    ("load", "default"): (1, 5 * US, 5 * US, 1, 1),
    ("aten::mm", "default"): (2, 3 * US, 2 * US, 1, 1),
    ("step", "library"): (1, 1 * US, 1 * US, 1, 1),
    ("never closed", "default"): (1, 0, None, 1, 1),
}
"""Count, total, longest, threads and reports, the longest total first."""


def test_names_are_counted_over_reports_and_domains_are_apart(ranges: list[Path]) -> None:
    found = nvtx_names(ranges)

    columns = ("count", "total_ns", "longest_ns", "threads", "reports")
    assert {(row["name"], row["domain"]): tuple(row[name] for name in columns) for row in found.to_dicts()} == EXPECTED
    assert found["total_ns"].to_list() == sorted(found["total_ns"], reverse=True)
    assert found.filter(name="step", domain="default")["mean_ns"].to_list() == [pytest.approx(80 * US / 3)]


def test_the_command_lists_some_names_and_says_how_many_more(ranges: list[Path], command_line: CommandLine) -> None:
    done = command_line.run("inspect", *ranges, "--nvtx", "--limit", "2")
    as_json = command_line.run("inspect", *ranges, "--nvtx", "--json")

    assert done.returncode == as_json.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "8 NVTX ranges with 5 names",
        "  name  domain   count      total       mean    longest  threads",
        "  step  default      3  80.000 µs  26.667 µs  40.000 µs        3",
        "  load  default      1   5.000 µs   5.000 µs   5.000 µs        1",
        "  ... and 3 more names; --limit 5 shows all",
    ]
    assert {(one["name"], one["domain"]) for one in json.loads(as_json.stdout)} == set(EXPECTED)


def test_reports_without_ranges_say_how_to_record_them(tmp_path: Path, command_line: CommandLine) -> None:
    path = ReportBuilder().os_call("read", 0, 10).write(tmp_path / "other.sqlite")

    done = command_line.run("inspect", path, "--nvtx")

    assert (done.returncode, done.stderr) == (0, "")
    assert "no NVTX ranges (nsys profile --trace=nvtx" in done.stdout


def test_a_name_that_is_listed_can_be_chosen(ranges: list[Path], command_line: CommandLine) -> None:
    for name in ("step", "step@library", "aten::mm"):
        done = command_line.run("translate", *ranges, "-o", "OUT", "--force", "--nvtx", name, "--unrelated", "--align", "none")
        assert done.returncode == 0, done.stderr


# -- `inspect` begins with the run, says each thing once, and has a line for each report -----------------


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
        "  GPUs: 2 x NVIDIA H100",
        "  clocks: 2, synchronized by utc; not known",
    ]
    assert "             3  Kernels (kernels)" in lines
    assert sum("schema 3.99 is newer" in line for line in lines) == 1
    assert (
        sum(
            str(path) in line and f"node{rank // 2}" in line
            for path, rank in zip(paths, (0, 1, 3), strict=True)
            for line in lines
        )
        == 3
    )
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


def test_the_clock_of_a_single_host_is_the_only_one_and_reports_may_be_off_it(command_line: CommandLine) -> None:
    for rank in range(2):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=2, pid=rank, utc_ns=10**18 + rank)
        report.kernel("k", 10, 1_000_010)
        report.write(command_line.folder / f"rank{rank}.sqlite")

    lines = command_line.run("inspect", "--clocks", "rank0.sqlite", "rank1.sqlite").stdout.splitlines()

    assert lines[-1].endswith("by utc: the only one of the run; this report may be off it by up to 100.000 µs")
    assert not any("0 ns" in line for line in lines)
