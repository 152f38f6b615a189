"""Contents that would take memory or time without end: a limit, with a sentence where it is reached."""

import contextlib
import json
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.report_builder import ReportBuilder

BAD_REPORT, TOO_MANY_ROWS = 3, 6
SECONDS = 60
"""Processor time: another program that is busy meanwhile takes none of it."""
GIB = 1 << 30


def translated(command_line: CommandLine, *options: str) -> subprocess.CompletedProcess[str]:
    """The translation of x.sqlite, with 4 GiB more of address space and bounded time."""
    me = psutil.Process()
    taken = me.cpu_times()
    with (
        limited(resource.RLIMIT_AS, me.memory_info().vms + 4 * GIB),
        limited(resource.RLIMIT_CPU, round(taken.user + taken.system) + SECONDS),
    ):
        return command_line.run("translate", "x.sqlite", "-o", "OUT", "--no-views", *options)


@contextlib.contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """A limit of this process; beyond that of processor time comes SIGXCPU, which ends the program with a sentence."""
    before, most = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, most))


@pytest.mark.parametrize("size", ["100000000", "9" * 5000, "²", *rest("9" * 18, "-1")], ids=lambda size: size[:20])
def test_a_run_of_more_ranks_than_there_are_is_read(size: str, command_line: CommandLine) -> None:
    report = ReportBuilder(environment={"RANK": "0", "WORLD_SIZE": size})
    report.kernel("gemm", 10, 20, launch=(0, 5))
    report.write(command_line.folder / "x.sqlite")
    done = translated(command_line)
    assert done.returncode == 0, done.stderr
    is_number = size.isdecimal() and len(size) <= 18
    assert ("are not looked for" in done.stderr) == is_number
    assert json.loads((command_line.folder / "OUT.json").read_text())["run"]["size"] is None


@pytest.mark.parametrize("number", [4_000_000_000, 2**63 - 1, *rest(2**62, -1, -(2**63))])
def test_a_correlation_id_may_be_any_number(number: int, command_line: CommandLine) -> None:
    report = ReportBuilder()
    for correlation in (1, number):
        report.api_call("cudaStreamSynchronize_v3020", 0, 50, correlation=correlation)
        report.synchronization(10, 20, correlation=correlation)
    report.kernel("gemm", 60, 70, launch=(55, 58))
    report.write(command_line.folder / "x.sqlite")
    done = translated(command_line)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("table", ["StringIds", "NVTX_EVENTS"])
@pytest.mark.parametrize("disguised", [False, True], ids=["view", "view that is called a table"])
def test_a_view_in_the_place_of_a_table_is_refused(table: str, disguised: bool, command_line: CommandLine) -> None:
    report = ReportBuilder()
    report.kernel("gemm", 10, 20, launch=(0, 5))
    report.nvtx_range("step", 0, 30)
    path = report.write(command_line.folder / "x.sqlite")
    with closing(sqlite3.connect(path)) as database:
        columns = [name for (name,) in database.execute("select name from pragma_table_info(?)", (table,))]
        database.execute(f"drop table {table}")
        endless = "with recursive r(n) as (select 1 union all select n + 1 from r)"
        database.execute(f"create view {table} as {endless} select {', '.join(f'n as {name}' for name in columns)} from r")
        if disguised:
            database.execute("pragma writable_schema = on")
            database.execute("update sqlite_master set type = 'table' where type = 'view'")
        database.commit()

    sentence(translated(command_line), BAD_REPORT, "x.sqlite", f"({table})" if disguised else f"{table} is a view")


def test_a_view_of_the_user_is_left_alone(command_line: CommandLine) -> None:
    report = ReportBuilder()
    report.kernel("gemm", 10, 20, launch=(0, 5))
    path = report.write(command_line.folder / "x.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("create view my_kernels as select * from CUPTI_ACTIVITY_KIND_KERNEL")
        database.commit()
    assert translated(command_line).returncode == 0


def test_a_payload_schema_that_holds_itself_is_refused(command_line: CommandLine) -> None:
    own = 1 << 24
    report = ReportBuilder()
    report.nvtx_range("step", 0, 30)
    report.kernel("gemm", 10, 20, launch=(0, 5))
    report.row("NVTX_PAYLOAD_SCHEMAS", domainId=0, schemaId=own, type=1, payloadSize=64, numEntries=20)
    for index in range(20):
        report.row(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            domainId=0, schemaId=own, idx=index, flags=0, type=own, name=f"f{index}", arrayOrUnionDetail=0, offset=8 * index,
        )  # fmt: skip
    report.row("NVTX_EVENTS", start=1, end=2, eventType=59, globalTid=report.global_tid(), domainId=0, binaryData=b"\0" * 96)
    report.write(command_line.folder / "x.sqlite")

    sentence(translated(command_line), BAD_REPORT, "x.sqlite", "more than 10,000 fields")


def test_a_report_of_more_rows_than_any_can_have_is_refused(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys2prv.timeline.rows.MOST_ROWS_OF_REPORT", 3)
    report = ReportBuilder()
    for stream in range(3):
        report.kernel("gemm", 10, 20, launch=(0, 5), stream=stream)
    report.write(command_line.folder / "x.sqlite")
    sentence(
        command_line.run("translate", "x.sqlite", "-o", "OUT"), TOO_MANY_ROWS, "4 rows", "3 rows are the most", "--fold-streams"
    )


def test_a_report_of_more_devices_than_any_can_have_is_refused(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsys2prv.run.open.MOST_DEVICES", 2)
    report = ReportBuilder()
    for device in range(3):
        report.kernel("gemm", 10, 20, launch=(0, 5), device=device)
    report.write(command_line.folder / "x.sqlite")
    sentence(command_line.run("efficiency", "x.sqlite"), BAD_REPORT, "x.sqlite", "on 3 devices")
