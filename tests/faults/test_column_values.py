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
