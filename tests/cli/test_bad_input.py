"""Each error is one sentence that names the file, has its exit code, and leaves no incomplete output."""

import os
import resource
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

BAD_REPORT, NO_NSYS, NOT_WRITABLE = 3, 4, 5


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return small_report().write(tmp_path / "good.sqlite")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the output is to go: a folder with nothing else in it."""
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder / "OUT"


@pytest.fixture
def former(command_line: CommandLine, report: Path, out: Path) -> dict[str, bytes]:
    """Content of a former output at the same place."""
    assert command_line.run("translate", report, "-o", out).returncode == 0
    return contents(out.parent)


def file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def cut(path: Path, size: int) -> Path:
    os.truncate(path, size)
    return path


def database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as opened, opened:
        for statement in statements:
            opened.execute(statement)
    return path


def overwritten(path: Path) -> Path:
    size = path.stat().st_size
    with path.open("r+b") as opened:
        opened.seek(size // 4)
        opened.write(b"\xa5" * (size // 2))
    return path


def tables_of_which_one_is_cut(path: Path) -> Path:
    cut(small_report(2000).write(path) / "CUPTI_ACTIVITY_KIND_KERNEL.parquet", 5000)
    return path


def folder_with(path: Path, name: str) -> Path:
    path.mkdir()
    (path / name).touch()
    return path


BAD_REPORTS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "text": (lambda folder: file(folder / "notes.sqlite", b"These are notes.\n" * 100), "not an SQLite database"),
    "empty": (lambda folder: file(folder / "empty.sqlite", b""), "the file is empty"),
    "cut": (lambda folder: cut(small_report(2000).write(folder / "cut.sqlite"), 100_000), "damaged or incomplete"),
    "cut header": (lambda folder: cut(small_report().write(folder / "header.sqlite"), 50), "header.sqlite"),
    "overwritten": (lambda folder: overwritten(small_report(2000).write(folder / "over.sqlite")), "damaged or incomplete"),
    "cut Parquet": (lambda folder: tables_of_which_one_is_cut(folder / "short_pqtdir"), "damaged or incomplete"),
    "no table": (lambda folder: database(folder / "bare.sqlite", "create table t (a)", "drop table t"), "no table in it"),
    "other tables": (
        lambda folder: database(folder / "music.sqlite", "create table albums (id integer, title text)"),
        "not those of an nsys export",
    ),
    "folder": (lambda folder: folder_with(folder / "nothing-here", "README.txt"), "there is no report in this folder"),
    "column": (
        lambda folder: small_report().without("CUPTI_ACTIVITY_KIND_KERNEL", "end").write(folder / "columns.sqlite"),
        "table CUPTI_ACTIVITY_KIND_KERNEL has no column end",
    ),
}


@pytest.mark.parametrize("kind", BAD_REPORTS)
def test_a_report_that_cannot_be_read_is_named_and_leaves_no_output(
    kind: str, command_line: CommandLine, tmp_path: Path, out: Path
) -> None:
    make, said = BAD_REPORTS[kind]
    bad = make(tmp_path)
    done = command_line.run("translate", bad, "-o", out)
    sentence(done, BAD_REPORT, bad, said)
    assert contents(out.parent) == {}


@pytest.mark.parametrize("kind", ["cut", "overwritten", "column"])
def test_one_bad_report_among_good_ones_leaves_a_former_output_whole(
    kind: str, command_line: CommandLine, tmp_path: Path, report: Path, out: Path, former: dict[str, bytes]
) -> None:
    bad = BAD_REPORTS[kind][0](tmp_path)
    done = command_line.run("translate", report, bad, "-o", out, "--force")
    sentence(done, BAD_REPORT, bad)
    assert contents(out.parent) == former


SECOND: dict[str, Callable[[Path], Path]] = {
    "same path": lambda report: report,
    "link": lambda report: report.with_name("link.sqlite"),
    "copy": lambda report: Path(shutil.copy(report, report.with_name("copy.sqlite"))),
    "other form": lambda report: small_report().write(report.with_name("good_pqtdir")),
}


@pytest.mark.parametrize("again", SECOND)
def test_the_same_report_twice_is_refused_whatever_its_name(
    again: str, command_line: CommandLine, report: Path, out: Path
) -> None:
    report.with_name("link.sqlite").symlink_to(report)
    second = SECOND[again](report)
    done = command_line.run("translate", report, second, "-o", out)
    assert "the same report as" in sentence(done, BAD_REPORT, report, second)
    assert contents(out.parent) == {}


def test_a_raw_report_without_nsys_says_how_to_go_on(command_line: CommandLine, tmp_path: Path, out: Path) -> None:
    raw = tmp_path / "run.nsys-rep"
    raw.write_bytes(b"\x00raw")
    said = sentence(command_line.run("translate", raw, "-o", out), NO_NSYS, raw)
    assert "--nsys" in said
    assert "nsys export --type sqlite --include-json true --include-blobs true run.nsys-rep" in said
    assert contents(out.parent) == {}


def test_an_nsys_that_fails_is_named_with_what_it_said(command_line: CommandLine, tmp_path: Path, out: Path) -> None:
    raw = tmp_path / "run.nsys-rep"
    raw.write_bytes(b"\x00raw")
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\necho 'this report is too new' >&2\nexit 1\n")
    nsys.chmod(0o755)
    sentence(command_line.run("translate", raw, "-o", out, "--nsys", nsys), NO_NSYS, raw, nsys, "this report is too new")
    assert contents(out.parent) == {}
    assert not [path for path in tmp_path.iterdir() if ".part" in path.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere; as another user: make test")
def test_an_output_in_a_read_only_folder_cannot_be_written(command_line: CommandLine, report: Path, out: Path) -> None:
    out.parent.chmod(0o500)
    try:
        sentence(command_line.run("translate", report, "-o", out), NOT_WRITABLE, out)
    finally:
        out.parent.chmod(0o700)
    assert contents(out.parent) == {}


@pytest.mark.parametrize("suffix", [".prv", ".prv.gz", ".pcf", ".row", ".json"])
def test_an_existing_file_is_replaced_only_with_force(suffix: str, command_line: CommandLine, report: Path, out: Path) -> None:
    there = out.with_suffix(suffix)
    there.write_text("somebody's work\n")
    sentence(command_line.run("translate", report, "-o", out), NOT_WRITABLE, there, "--force")
    assert contents(out.parent) == {there.name: b"somebody's work\n"}


def no_file_above_64_kb() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


@pytest.mark.parametrize("gzip", [(), pytest.param(("-z",), marks=pytest.mark.thorough)], ids=["plain", "gzip"])
def test_a_trace_that_grows_beyond_what_may_be_written_leaves_nothing(
    gzip: tuple[str, ...], command_line: CommandLine, report: Path, tmp_path: Path, out: Path, former: dict[str, bytes]
) -> None:
    large = small_report(20_000).write(tmp_path / "large.sqlite")
    done = command_line.run("translate", large, "-o", out, "--force", *gzip, prepare=no_file_above_64_kb)
    sentence(done, NOT_WRITABLE, out, "the disk is full")
    assert contents(out.parent) == former
