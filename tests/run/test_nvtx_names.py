"""Names of NVTX ranges can be listed before one of them is chosen."""

import json
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.report_builder import ReportBuilder

from nsys2prv.run.inspect import nvtx_names

US = 1_000


@pytest.fixture
def reports(tmp_path: Path) -> list[Path]:
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


def test_names_are_counted_over_reports_and_domains_are_apart(reports: list[Path]) -> None:
    found = nvtx_names(reports)
    columns = ("count", "total_ns", "longest_ns", "threads", "reports")
    assert {(row["name"], row["domain"]): tuple(row[name] for name in columns) for row in found.to_dicts()} == EXPECTED
    assert found["total_ns"].to_list() == sorted(found["total_ns"], reverse=True)
    assert found.filter(name="step", domain="default")["mean_ns"].to_list() == [pytest.approx(80 * US / 3)]


def test_the_command_lists_some_names_and_says_how_many_more(reports: list[Path], command_line: CommandLine) -> None:
    done = command_line.run("inspect", *reports, "--nvtx", "--limit", "2")
    as_json = command_line.run("inspect", *reports, "--nvtx", "--json")

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
