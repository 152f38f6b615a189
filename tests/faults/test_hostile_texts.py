"""A report whose texts all try something goes through every command, and no text does anything in any output."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from support import QUICK
from support.acting import acting_characters, outputs_fault, screen_fault
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.hostile_report import BEHIND, Alike, InTurn, write_hostile_report, write_hostile_training
from support.report_builder import ReportBuilder
from support.view_parser import parse_views

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.errors import UsageError
from nsys2prv.exports.columns import Text
from nsys2prv.exports.report import Report, open_report
from nsys2prv.paraver.check import check_trace
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions
from nsys2prv.vocabulary.terminal import ERROR, FAINT, FAIR, GOOD, POOR, STRONG, WARNING
from nsys2prv.vocabulary.wording import short

REPORTS = ("rank0.sqlite", "rank1.sqlite")
RESULTS = ("--json-file", "all.json", "--csv", "csv", "--talp", "talp.json", "--regions", "*")
CHANGES = ("--ideal-network", "--no-late-ranks", "--no-launch-cost", "--data-loading", "0.5", "--scale", "*=2")
REPLAYED = ("--json-file", "replayed.json", "--csv", "replayed")
SHORT: tuple[tuple[str, ...], ...] = (
    ("inspect", REPORTS[0]),
    ("translate", REPORTS[0], "-o", "OUT", "--critical-path"),
    ("efficiency", REPORTS[0], *RESULTS),
    ("whatif", REPORTS[0], *CHANGES, *REPLAYED),
)
NOT_COMPLETE = 9
_STYLED = re.compile(rf"\x1b\[(?:{'|'.join((STRONG, GOOD, FAIR, POOR, FAINT, ERROR, WARNING))})m([^\x1b]*)\x1b\[0m")


def write_reports(folder: Path, first: int, ranks: int) -> None:
    weave = InTurn(first)
    for rank in range(ranks):
        write_hostile_report(folder / REPORTS[rank], weave, rank=rank, ranks=ranks)


def fault_of(command_line: CommandLine, *arguments: str) -> str | None:
    done = command_line.run(*arguments)
    if done.returncode not in (0, NOT_COMPLETE):
        return f"exit code {done.returncode}: {done.stderr[-300:]!r}"
    return screen_fault(done.stdout + done.stderr)


@pytest.fixture
def read_texts() -> Iterator[set[tuple[str, str]]]:
    """Columns of text that commands ask reports for, with their tables."""
    found: set[tuple[str, str]] = set()
    columns = Report._columns

    def recorded(report: Report, table: str, *names: tuple[str, ...]) -> object:
        found.update((table, name) for group in names for name in group if isinstance(name, Text))
        return columns(report, table, *names)

    with mock.patch.object(Report, "_columns", recorded):
        yield found


def test_no_text_of_a_report_acts(command_line: CommandLine, read_texts: set[tuple[str, str]]) -> None:
    write_reports(command_line.folder, 0, ranks=1)
    faults = {" ".join(command): fault_of(command_line, *command) for command in (SHORT[1:3] if QUICK else SHORT)}
    assert not any(faults.values()), faults
    assert outputs_fault(command_line.folder) is None
    assert parse_views(command_line.folder / "OUT.cfgs")
    # Each column of texts that is read was hostile.
    report = open_report(command_line.folder / REPORTS[0])
    assert {one for one in read_texts if not report.has(*one)} == set()
    assert len(read_texts) > 40


def training_faults(command_line: CommandLine, weave: Alike, *commands: tuple[str, ...]) -> dict[str, str | None]:
    """What a training whose texts are all hostile does in commands on its reports, by the command."""
    write_hostile_training(command_line.folder / "run", weave)
    return {" ".join(command): fault_of(command_line, *command) for command in commands}


def test_no_text_of_a_training_acts_in_its_findings_and_iterations(command_line: CommandLine) -> None:
    command = ("efficiency", "run", "-o", "page.html", *RESULTS, "--per-iteration", "iteration*")
    faults = training_faults(command_line, Alike(BEHIND[0]), command)
    assert not any(faults.values()), faults
    tables = json.loads((command_line.folder / "all.json").read_text())["tables"]
    for name in ("findings", "finding_devices", "iterations", "absent_iterations", "critical_path", "regions"):
        assert any(tables[name].values()), name
    assert outputs_fault(command_line.folder) is None


@pytest.mark.thorough
@pytest.mark.parametrize("command", SHORT, ids=lambda command: command[0])
def test_a_terminal_gets_plain_lines(command: tuple[str, ...], command_line: CommandLine) -> None:
    write_reports(command_line.folder, 11, ranks=1)
    plain = command_line.on_terminal(*command, with_errors=False, NO_COLOR="1")
    for output in command_line.folder.glob("OUT*"):
        shutil.rmtree(output) if output.is_dir() else output.unlink()
    colored = command_line.on_terminal(*command, with_errors=False)
    assert len(plain) > 100
    assert acting_characters(plain) == []
    # Styles are ours only, and each ends.
    assert acting_characters(_STYLED.sub(r"\1", colored)) == []
    assert ("\x1b" in colored) == (command[0] == "efficiency")


# -- texts of reports and names of files on the screen, in JSON and in tables ----------------------------
NAMES = ("\x1b[31mred", "two\nlines", "\u202etxt.exe", "\x9b2J", "a\udcff")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("content", [b"", b"no database"], ids=["empty", "damaged"])
def test_a_sentence_that_names_an_odd_file_is_one_plain_line(name: str, content: bytes, command_line: CommandLine) -> None:
    (command_line.folder / f"{name}.sqlite").write_bytes(content)
    done = command_line.run("inspect", f"{name}.sqlite")
    assert acting_characters(sentence(done, 3)) == []


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
    measured = measure([path], EfficiencyOptions(regions=requested[::3], **QUICK))
    assert sorted(measured.tables["regions"]["region"]) == ["a" * 200, "step{0}", "step{1}\\n"]
    for name in requested[1:3]:
        with pytest.raises(UsageError, match=f"^no NVTX range is called {re.escape(short(name))}; "):
            measure([path], EfficiencyOptions(regions=(name,)))
