"""Any value in any column of an SQLite export: a trace, or a sentence that names the report."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

BAD_REPORT = 3


@pytest.mark.parametrize("column", ["start", "end"])
@pytest.mark.parametrize("value", ["soon", b"\xff\x00", "²"], ids=["text", "blob", "superscript"])
def test_a_time_that_is_no_number_is_an_error_of_the_report(value: object, column: str, command_line: CommandLine) -> None:
    path = small_report().write(command_line.folder / "x.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"update CUPTI_ACTIVITY_KIND_KERNEL set {column} = ? where rowid = 2", (value,))
        database.commit()

    sentence(command_line.run("translate", "x.sqlite", "-o", "OUT"), BAD_REPORT, "x.sqlite", "CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("META_DATA_EXPORT", "value", "²"),
        ("META_DATA_EXPORT", "value", "9" * 5000),
        ("TARGET_INFO_SYSTEM_ENV", "value", "²"),
        ("TARGET_INFO_SYSTEM_ENV", "value", "9" * 5000),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId", -1),
    ],
    ids=lambda part: str(part)[:12],
)
def test_odd_numbers_and_names_are_no_reason_to_fail(table: str, column: str, value: object, command_line: CommandLine) -> None:
    path = small_report().write(command_line.folder / "x.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"update {table} set {column} = ?", (value,))
        database.commit()

    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0
    assert command_line.run("check", "OUT.prv").returncode == 0


def test_the_smallest_number_is_no_time(command_line: CommandLine) -> None:
    path = small_report().write(command_line.folder / "x.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("update CUPTI_ACTIVITY_KIND_KERNEL set start = ? where rowid = 1", (-(2**63),))
        database.commit()

    sentence(command_line.run("translate", "x.sqlite", "-o", "OUT"), BAD_REPORT, "x.sqlite", "no time of a session")
