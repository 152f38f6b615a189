"""A report whose texts all try something goes through every command, and no text does anything in any output."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from support.acting import acting_characters, outputs_fault, screen_fault
from support.browser import browser_or_skip
from support.checkout import CHECKOUT
from support.command_line import CommandLine
from support.hostile_report import BEHIND, BROKEN, Alike, InTurn, write_hostile_report, write_hostile_training
from support.view_parser import parse_views

from nsys2prv.exports.columns import Text
from nsys2prv.exports.report import Report, open_report
from nsys2prv.vocabulary.terminal import ERROR, FAINT, FAIR, GOOD, POOR, STRONG, WARNING

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
WITH_PAGE = ("efficiency", REPORTS[0], "-o", "page.html", *RESULTS)
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

    faults = {" ".join(command): fault_of(command_line, *command) for command in SHORT}

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
def test_pages_do_nothing_in_a_browser(command_line: CommandLine, tmp_path: Path) -> None:
    write_reports(command_line.folder, 7, ranks=1)
    for command in (SHORT[1], WITH_PAGE):
        assert fault_of(command_line, *command) is None
    training = ("efficiency", "run", "-o", "training.html", "--regions", "*")
    assert not any(training_faults(command_line, Alike(BEHIND[0]), training).values())
    browser = browser_or_skip(tmp_path)

    for page in ("page.html", "training.html", "OUT.cfgs/index.html"):
        html = (command_line.folder / page).read_text()
        shown, complaints = browser.run(html, "--dump-dom")
        assert complaints == ""
        assert f"<title>{BROKEN}" not in shown
        assert "<table" in shown
        assert browser.requests(html) == []


@pytest.mark.thorough
@pytest.mark.parametrize("command", SHORT, ids=lambda command: command[0])
def test_a_terminal_gets_plain_lines(command: tuple[str, ...], command_line: CommandLine) -> None:
    write_reports(command_line.folder, 11, ranks=1)
    plain = _on_a_terminal(command_line.folder, *command, NO_COLOR="1")
    for output in command_line.folder.glob("OUT*"):
        shutil.rmtree(output) if output.is_dir() else output.unlink()
    colored = _on_a_terminal(command_line.folder, *command)

    assert len(plain) > 100
    assert acting_characters(plain) == []
    # Styles are ours only, and each ends.
    assert acting_characters(_STYLED.sub(r"\1", colored)) == []
    assert ("\x1b" in colored) == (command[0] == "efficiency")


def _on_a_terminal(folder: Path, *command: str, **environment: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nsys2prv", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "NSYS_HOME": "", "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    printed = b""
    while chunk := _read(ours):
        printed += chunk
    os.close(ours)
    assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # The program ended.
        return b""
