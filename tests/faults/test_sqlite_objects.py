"""What an SQLite export can be besides complete tables: nothing in it is run or goes on without end, and no rows are lost."""

import itertools
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report
from support.report_builder import ReportBuilder

from nsys2prv.errors import DamagedReport, NotAReport, ReportError
from nsys2prv.exports import Report, open_report
from nsys2prv.exports.columns import Text
from nsys2prv.timeline.coverage import walk
from nsys2prv.timeline.reader import EventReader
from nsys2prv.vocabulary import limits

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small_report().write(tmp_path / "x.sqlite")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("pragma writable_schema = on")
        for statement in statements:
            database.execute(statement)


def kernels(report: Report) -> int:
    return report.count(report.scan(KERNELS, ("start", "end")))


@pytest.mark.parametrize(
    "module", ["fts5(start, [end])", "rtree(id, start, [end])", "dbstat", "csv(filename='/etc/hosts')"], ids=lambda one: one[:4]
)
def test_a_virtual_table_is_refused(module: str, path: Path) -> None:
    sql = f"CREATE VIRTUAL TABLE {KERNELS} using {module}".replace("'", "''")
    change(path, f"update sqlite_master set rootpage = 0, sql = '{sql}' where name = '{KERNELS}'")
    with pytest.raises(NotAReport, match=f"{KERNELS} is a view or a virtual table"):
        open_report(path)


def test_what_a_generated_column_computes_is_not_computed(path: Path) -> None:
    computed = "replace(sql, ')', ', graphId as (json(''[''))) ')"
    change(path, f"update sqlite_master set sql = {computed} where name = '{KERNELS}'")
    report = open_report(path)
    assert not report.has(KERNELS, "graphId")
    assert kernels(report) == 3


def test_a_column_may_be_called_as_sqlite_calls_the_number_of_a_row(path: Path) -> None:
    change(path, f"alter table {KERNELS} add column ROWID text default 'a'")
    report = open_report(path)
    assert (report.tables.row_numbers([KERNELS]), kernels(report)) == ({}, 3)


def test_an_index_that_contradicts_its_table_is_not_asked(path: Path) -> None:
    change(
        path,
        f"create index by_start on {KERNELS} (start)",
        "create index of_nothing on META_DATA_CAPTURE (name) where name = 'nothing'",
        "update sqlite_master set rootpage = (select rootpage from sqlite_master where name = 'of_nothing') "
        "where name = 'by_start'",
    )
    assert open_report(path).extent(KERNELS, "start", "end", {}) == (3, 30, 290)


@pytest.mark.parametrize(
    "name", ["null", "5", "x'fffe'", "'a' || char(10)", "char(0)", f"'{'x' * 2000}'"], ids=lambda one: one[:8]
)
def test_a_name_that_is_none_is_an_error_of_the_report(name: str, path: Path) -> None:
    change(path, f"update sqlite_master set name = {name} where name = '{KERNELS}'")
    with pytest.raises(DamagedReport):
        open_report(path)


def test_thousands_of_further_tables_are_counted_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(path, "begin", *(f"create table FURTHER_{number} (value integer)" for number in range(1000)), "commit")
    connections = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *arguments, **named: connections.append(1) or connect(*arguments, **named))
    report = open_report(path)
    before = len(connections)
    list(walk(report, {}, (), ()))
    assert len(connections) - before < 10


def test_more_tables_than_any_report_has_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsys2prv.exports.sqlite_tables.MOST_TABLES", 5)
    with pytest.raises(NotAReport, match="more than 5 tables"):
        open_report(path)


def test_a_table_that_holds_itself_again_and_again_ends(path: Path) -> None:
    """Inner pages with hundreds of references each to the next one, twelve deep: 10^30 rows in a few pages."""
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("select rootpage from sqlite_master where name = ?", (KERNELS,)).fetchone()
        (size,) = database.execute("pragma page_size").fetchone()
    content = bytearray(path.read_bytes())
    leaf = content[(root - 1) * size : root * size]
    first_new = len(content) // size + 1
    depth, references = 12, 300
    pages = [root, *range(first_new, first_new + depth)]
    for page, child in itertools.pairwise(pages):
        cell = struct.pack(">I", child) + b"\x7f"
        head = struct.pack(">BHHHBI", 5, 0, references, size - len(cell), 0, child)
        made = (head + struct.pack(">H", size - len(cell)) * references).ljust(size - len(cell), b"\0") + cell
        content[(page - 1) * size : page * size] = made
    content += bytes((first_new + depth - 1) * size - len(content))
    content[(pages[-1] - 1) * size : pages[-1] * size] = leaf
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(content)
    report = open_report(path)

    with pytest.raises(ReportError, match=KERNELS):
        kernels(report)


def test_a_text_that_is_too_long_is_not_read(path: Path) -> None:
    change(path, f"update StringIds set value = cast(zeroblob({limits.LONGEST_TEXT + 1}) as text) where id = 1")
    report = open_report(path)
    with pytest.raises(DamagedReport, match="a text of more than 16,777,216 bytes"):
        report.collect(report.scan("StringIds", ("id", Text("value"))))


def test_a_report_is_never_written(path: Path) -> None:
    report = open_report(path)
    with report.tables.database() as database, pytest.raises(sqlite3.DatabaseError):
        database.execute("create table x (y)")


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


@pytest.mark.parametrize("form", [".sqlite", *rest("_pqtdir", "_arwdir")])
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
