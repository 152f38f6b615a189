"""A report that is not complete, or changes while it is read: an error sentence, and never a result with rows missing."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report
from support.report_builder import ReportBuilder

from nsys2prv.timeline.reader import EventReader

BAD_REPORT, LEFT_OUT = 3, 10
INSERT = "insert into CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId) values (?, ?, 0, 7)"
COMMANDS = [("translate", "rank0.sqlite", "-o", "OUT"), ("inspect", "rank0.sqlite"), ("efficiency", "rank0.sqlite")]


@pytest.fixture
def report(command_line: CommandLine) -> Path:
    return small_report(200).write(command_line.folder / "rank0.sqlite")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_rows_that_are_only_in_a_write_ahead_log_are_not_missing_silently(
    command: tuple[str, ...], report: Path, command_line: CommandLine
) -> None:
    with closing(sqlite3.connect(report)) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("pragma wal_autocheckpoint = 0")
        with database:
            database.executemany(INSERT, [(time, time + 5) for time in range(0, 1000, 10)])

        sentence(command_line.run(*command), BAD_REPORT, report.name, "rows are in rank0.sqlite-wal only", "vacuum")
    # The last connection wrote them into the database.
    assert command_line.run(*command).returncode == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_change_that_is_not_complete_is_not_read(command: tuple[str, ...], report: Path, command_line: CommandLine) -> None:
    with closing(sqlite3.connect(report)) as database:
        database.execute("pragma cache_size = 1")
        database.executemany(INSERT, [(time, time + 5) for time in range(0, 100_000, 10)])

        sentence(command_line.run(*command), BAD_REPORT, report.name, "rank0.sqlite-journal")
        database.rollback()
    assert command_line.run(*command).returncode == 0


def test_a_link_to_a_report_has_the_files_beside_the_report(report: Path, command_line: CommandLine) -> None:
    (command_line.folder / "elsewhere").mkdir()
    (command_line.folder / "elsewhere" / "rank0.sqlite").symlink_to(report)
    with closing(sqlite3.connect(report)) as database:
        database.execute("pragma journal_mode = wal")
        with database:
            database.execute(INSERT, (0, 5))

        sentence(command_line.run("inspect", "elsewhere/rank0.sqlite"), BAD_REPORT, "rank0.sqlite-wal")


@pytest.mark.parametrize("mode", ["persist", "truncate", "delete"])
def test_what_sqlite_leaves_behind_a_complete_change_is_nothing(mode: str, report: Path, command_line: CommandLine) -> None:
    with closing(sqlite3.connect(report)) as database:
        database.execute(f"pragma journal_mode = {mode}")
        with database:
            database.executemany(INSERT, [(time, time + 5) for time in range(0, 1000, 10)])

        assert command_line.run("translate", "rank0.sqlite", "-o", "OUT").returncode == 0


@pytest.mark.parametrize("form", [".sqlite", "_pqtdir", "_arwdir"])
@pytest.mark.parametrize("change", ["written", "touched", "removed"])
def test_a_report_that_changes_while_it_is_read_is_an_error(
    change: str, form: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = small_report().write(command_line.folder / f"rank0{form}")
    other = ReportBuilder(host="node02", pid=2000)
    other.kernel("gemm", 10, 20, launch=(0, 5))
    other.write(command_line.folder / "rank1.sqlite")
    changed = report if form == ".sqlite" else next(report.glob("CUPTI_ACTIVITY_KIND_KERNEL.*"))

    def change_first(*arguments: Any) -> EventReader:
        if changed.exists():
            status = changed.stat()
            if change == "written":
                content = changed.read_bytes()
                changed.write_bytes(content)
            elif change == "touched":
                os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
            else:
                changed.unlink()
        return EventReader(*arguments)

    monkeypatch.setattr("nsys2prv.run.collect.EventReader", change_first)
    done = command_line.run("translate", report, "-o", "OUT")

    sentence(done, BAD_REPORT, report.name)
    assert not (command_line.folder / "OUT.prv").exists()
    if change == "touched":
        left_out = command_line.run("translate", report, "rank1.sqlite", "-o", "OUT", "--keep-going")
        assert left_out.returncode == LEFT_OUT, left_out.stderr
