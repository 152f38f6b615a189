"""Any value in any column of an SQLite export: a trace, or a sentence that names the report."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.timeline.coverage import INEXACT

BAD_REPORT = 3
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def write_changed(command_line: CommandLine, change: str, *values: object) -> None:
    """x.sqlite, with three kernels and a change."""
    with closing(sqlite3.connect(small_report().write(command_line.folder / "x.sqlite"))) as database, database:
        database.execute(f"update {change}", values)


@pytest.mark.parametrize(
    ("change", "value", "says"),
    [
        *(
            (f"{column} = ? where rowid = 2", value, KERNELS)
            for column in ("start", "end")
            for value in ("soon", b"\xff\0", "²")
        ),
        ("start = ? where rowid = 1", -(2**63), "no time of a session"),
        *(("streamId = cast(? as text)", value, "column streamId") for value in ("soon", b"\xff\0", b"\xed\xa0\x80")),
    ],
    ids=ascii,
)
def test_a_text_or_what_is_no_time_is_an_error_of_the_report(
    change: str, value: object, says: str, command_line: CommandLine
) -> None:
    write_changed(command_line, f"{KERNELS} set {change}", value)

    sentence(command_line.run("translate", "x.sqlite", "-o", "OUT"), BAD_REPORT, "x.sqlite", says)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("META_DATA_EXPORT set value = ?", "²"),
        ("META_DATA_EXPORT set value = ?", "9" * 5000),
        ("TARGET_INFO_SYSTEM_ENV set value = ?", "²"),
        ("TARGET_INFO_SYSTEM_ENV set value = ?", "9" * 5000),
        (f"{KERNELS} set deviceId = ?", -1),
    ],
    ids=lambda part: str(part)[:22],
)
def test_odd_numbers_and_names_are_no_reason_to_fail(change: str, value: object, command_line: CommandLine) -> None:
    write_changed(command_line, change, value)

    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0
    assert command_line.run("check", "OUT.prv").returncode == 0


@pytest.mark.parametrize("form", ["x.sqlite", "x_pqtdir"])
def test_one_damaged_end_makes_no_trace_of_centuries(form: str, command_line: CommandLine) -> None:
    report = small_report()
    report.kernel("late", 500, 2**62)
    report.write(command_line.folder / form)

    sentence(command_line.run("translate", form, "-o", "OUT"), BAD_REPORT, form, "53,376 days", "CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)])
def test_values_that_no_tool_shows_exactly_are_left_out_and_counted(number: int, command_line: CommandLine) -> None:
    report = small_report(1, context=number, stream=number)
    report.copy(100, 120, number, launch=(90, 95))
    report.nvtx_range("step", 0, 200, payload={"batch": number})
    report.nvtx_range("layer", 0, 100, int64Value=number)
    report.metric("power", 50, number)
    report.write(command_line.folder / "x.sqlite")

    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0

    assert command_line.run("check", "OUT.prv").returncode == 0
    account = json.loads((command_line.folder / "OUT.json").read_text())["reports"][0]["tables"]
    sources = [source for table in account for source in table["sources"]]
    assert sum(source["repaired"] for source in sources) >= 2
    assert {INEXACT: 1} in [source["left_out"] for source in sources]


def test_an_event_without_a_name_for_what_it_is_is_left_out(command_line: CommandLine) -> None:
    report = small_report()
    report.copy(100, 120, 4096, launch=(90, 95), copyKind=None)
    report.write(command_line.folder / "x.sqlite")

    assert command_line.run("translate", "x.sqlite", "-o", "OUT").returncode == 0
    assert command_line.run("check", "OUT.prv").returncode == 0


def test_overhead_can_be_chosen_alone(command_line: CommandLine) -> None:
    report = small_report()
    report.row("PROFILER_OVERHEAD", start=0, end=5, globalTid=report.global_tid(), nameId=1)
    report.write(command_line.folder / "x.sqlite")

    assert command_line.run("translate", "x.sqlite", "-o", "OUT", "--only", "overhead").returncode == 0

    tables = json.loads((command_line.folder / "OUT.json").read_text())["reports"][0]["tables"]
    assert [(one["source"], one["written"]) for table in tables for one in table["sources"]] == [("overhead", 1)]
