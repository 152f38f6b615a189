"""Texts of reports and names of files on the screen, in JSON and in tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from support.acting import acting_characters, screen_fault
from support.command_line import CommandLine
from support.report_builder import ReportBuilder

import nsys2prv
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import UsageError
from nsys2prv.paraver.check import check_trace
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.wording import short

NAMES = ("\x1b[31mred", "two\nlines", "\u202etxt.exe", "\x9b2J", "a\udcff")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("content", [b"", b"no database"], ids=["empty", "damaged"])
def test_a_sentence_that_names_an_odd_file_is_one_plain_line(name: str, content: bytes, command_line: CommandLine) -> None:
    (command_line.folder / f"{name}.sqlite").write_bytes(content)

    done = command_line.run("inspect", f"{name}.sqlite")

    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert acting_characters(done.stderr) == []


def test_a_device_of_a_host_with_control_characters_is_shown_as_text(command_line: CommandLine) -> None:
    report = ReportBuilder(host="\x9b31m=node\n\u202e1", process_name="p\x1b[2J").gpu(0, name="H100\x1b]0;title\x07")
    report.kernel("k", 0, 10, launch=(0, 5))
    report.diagnostic("lost\x1b[2J\n \u2028events").write(command_line.folder / "one.sqlite")

    for form in ((), ("--json",)):
        done = command_line.run("inspect", "one.sqlite", *form)
        assert done.returncode == 0, done.stderr
        assert screen_fault(done.stdout + done.stderr) is None
    # JSON keeps what it was.
    assert json.loads(done.stdout)[0]["processes"] == {"1000": "p\x1b[2J"}


def test_streams_of_hosts_with_any_name_are_known_by_theirs(tmp_path: Path) -> None:
    hosts = {"\x1b \x02": "host", "n" * 100_000: f"{'n' * 83}...{'n' * 42}", "[a]\u00a0b\u3000c": "(a)_b_c"}
    reports = []
    for number, host in enumerate(hosts):
        report = ReportBuilder(host=host, rank=number, ranks=len(hosts), pid=1000 + number).gpu(0)
        report.kernel("k", 0, 10, launch=(0, 5))
        reports.append(report.write(tmp_path / f"{number}.sqlite"))

    trace = translate(reports, tmp_path / "OUT", TranslateOptions(no_views=True)).prv

    assert check_trace(trace).violations == ()
    names = (tmp_path / "OUT.row").read_text().splitlines()
    assert [name for name in names if "CUDA" in name] == [f"CUDA-D0.S7-{shown}" for shown in hosts.values()]


def test_cells_that_a_spreadsheet_would_run_are_text(tmp_path: Path) -> None:
    report = ReportBuilder(host="=cmd|' /C calc'!A0").gpu(0)
    report.kernel("+k", 0, 10, launch=(0, 5))
    report.nvtx_range("@SUM(1)", 0, 10).nvtx_range("plain", 0, 10)
    measured = measure([report.write(tmp_path / "one.sqlite")], EfficiencyOptions(regions=("*",)))
    measured.to_csv(tmp_path / "tables")

    def column(table: str, name: str) -> list[str]:
        return sorted(pl.read_csv(tmp_path / "tables" / f"{table}.csv")[name].to_list())

    assert column("nodes", "node") == ["'=cmd|' /C calc'!A0"]
    assert column("kernels", "kernel") == ["'+k"]
    assert column("regions", "region") == ["'@SUM(1)", "plain"]


def test_wildcards_of_regions_are_two_and_take_no_time(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 0, 10, launch=(0, 5))
    for name in ("step{0}", "step{1}\\n", "a" * 200):
        report.nvtx_range(name, 0, 10)
    path = report.write(tmp_path / "one.sqlite")

    requested = ("step{?}*", "step[{]*", "a*" * 50 + "b", "?" * 200)
    measured = measure([path], EfficiencyOptions(regions=requested[::3]))

    assert sorted(measured.tables["regions"]["region"]) == ["a" * 200, "step{0}", "step{1}\\n"]
    for name in requested[1:3]:
        with pytest.raises(UsageError, match=f"^no NVTX range is called {re.escape(short(name))}; "):
            measure([path], EfficiencyOptions(regions=(name,)))


@pytest.mark.thorough
def test_a_report_whose_name_is_no_utf8_is_read_as_others(command_line: CommandLine) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 0, 10, launch=(0, 5))
    path = report.write(command_line.folder / "a.sqlite").rename(command_line.folder / "a\udcff.sqlite")

    with nsys2prv.open_run(path) as run:
        assert run.ranks["report"].item().endswith("a?.sqlite")
    for command in (["inspect"], ["translate", "-o", "OUT"], ["efficiency", "-o", "page.html"], ["compare", path.name]):
        done = command_line.run(command[0], path.name, *command[1:])
        assert done.returncode == 0, done.stderr
        assert screen_fault(done.stdout + done.stderr) is None
