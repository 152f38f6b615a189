"""Columns that are kept for the next command are those of the export; where they are damaged, the export is read again."""

from __future__ import annotations

import json
import os
import shutil
import stat
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.kept_files import EACH_DAMAGE, LONG_AGO, files_in, moved
from support.report_builder import ReportBuilder

from nsys2prv.demo import write_report
from nsys2prv.errors import OutputError
from nsys2prv.execution import cache_folder
from nsys2prv.exports.column_cache import ColumnCache, store_or_take
from nsys2prv.exports.sqlite_form import SqliteTables
from nsys2prv.exports.stored_tables import StoredTables
from nsys2prv.trace.translate import translate
from nsys2prv.trace.translate_options import TranslateOptions

pytestmark = pytest.mark.usefixtures("small_parts")

TABLE, OTHER = "NVTX_EVENTS", "OSRT_API"
SCHEMA: dict[str, Any] = {"start": pl.Int64, "end": pl.Int64, "text": pl.String, "doubleValue": pl.Float64}
NUMBERS: dict[str, Any] = {"start": pl.Int64, "end": pl.Int64}
NEEDED = {TABLE: SCHEMA, OTHER: NUMBERS}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = range(500)
    events = {
        "start": [2**40 + 10 * row for row in rows],
        "end": [None if row % 7 == 0 else 2**40 + 10 * row + 5 for row in rows],
        "text": [None if row % 3 == 0 else f"näme {row % 5}" for row in rows],
        "doubleValue": [None if row % 11 else row / 4 for row in rows],
    }
    calls = {"start": list(rows), "end": [row + 1 for row in rows]}
    path = tmp_path / "a.sqlite"
    write_report(path, {**ReportBuilder().tables(), TABLE: pl.DataFrame(events), OTHER: pl.DataFrame(calls)})
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


class Commands:
    """One command after another on the same export, with a cache."""

    def __init__(self, path: Path, rows_queried: Counter[str]) -> None:
        self.path, self.cache = path, path.parent / "cache"
        self._queried = rows_queried
        self._number = 0
        self.problems: dict[Any, str] = {}

    def read(self, needed: dict[str, dict[str, Any]] = NEEDED) -> set[str]:
        """Read columns, compare them with those of the database; the result are tables that were read out of it."""
        self._number += 1
        tables = StoredTables(self.path)
        self._queried.clear()
        self.problems = store_or_take({tables: needed}, self.path.parent / f"scratch{self._number}", self.cache)
        read = set(self._queried)
        for table, schema in needed.items():
            expected = SqliteTables(self.path).scan(table, schema, {}).collect()
            assert_frame_equal(tables.scan(table, schema, {}).collect(), expected)
            assert_frame_equal(pl.concat(tables.batches(table, schema, {})), expected)
        return read

    @property
    def files(self) -> list[Path]:
        return files_in(self.cache)

    @property
    def list(self) -> Path:
        return next(path for path in self.files if path.suffix == ".json")


@pytest.fixture
def commands(path: Path, rows_queried: Counter[str]) -> Commands:
    return Commands(path, rows_queried)


def test_the_second_command_reads_nothing_of_the_database(commands: Commands) -> None:
    assert commands.read() == {TABLE, OTHER}
    assert commands.read() == set()
    assert commands.read({TABLE: NUMBERS}) == set()


def test_further_columns_are_kept_beside_those_that_are_there(commands: Commands) -> None:
    commands.read({TABLE: NUMBERS})

    assert commands.read({TABLE: {"text": pl.String}, OTHER: NUMBERS}) == {TABLE, OTHER}
    assert commands.read() == {TABLE}
    assert commands.read() == set()


def test_what_is_kept_is_for_the_user_alone(commands: Commands) -> None:
    former = os.umask(0)
    try:
        commands.read()
    finally:
        os.umask(former)

    inside = commands.cache / "nsys2prv-columns"
    modes = {stat.S_IMODE(path.lstat().st_mode) for path in (inside, *inside.iterdir())}
    assert (modes, {stat.S_IMODE(path.lstat().st_mode) for path in commands.files}) == ({0o700}, {0o600})


@pytest.mark.parametrize(
    "change",
    [lambda path: os.utime(path, ns=(LONG_AGO, LONG_AGO + 1)), moved],
    ids=["time of change", "inode"],
)
def test_an_export_that_changed_is_read_again(commands: Commands, change: Callable[[Path], object]) -> None:
    commands.read()
    change(commands.path)

    assert commands.read() == {TABLE, OTHER}
    assert commands.read() == set()
    assert len({file.parent for file in commands.files}) == 1


def test_an_export_that_may_still_change_is_not_kept(commands: Commands) -> None:
    os.utime(commands.path)
    commands.read()

    assert not commands.files


@EACH_DAMAGE
@pytest.mark.parametrize("which", ["list", "columns"])
def test_what_is_damaged_or_open_to_others_is_read_again_and_replaced(
    commands: Commands, damage: Callable[[Path], object], which: str
) -> None:
    commands.read()
    damage(commands.list if which == "list" else next(file for file in commands.files if file != commands.list))

    assert commands.read()
    assert commands.read() == set()


@pytest.mark.parametrize("key", ["format", "nsys2prv"])
def test_what_another_version_kept_is_not_used(commands: Commands, key: str) -> None:
    commands.read()
    content = json.loads(commands.list.read_bytes().partition(b"\n")[2])
    content["head"][key] = "another"
    text = json.dumps(content).encode()
    commands.list.write_bytes(b"%08x\n%b" % (zlib.crc32(text), text))

    assert commands.read() == {TABLE, OTHER}
    assert commands.read() == set()


def test_a_folder_of_others_is_refused(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = commands.cache / "nsys2prv-columns"
    commands.read()
    inside.chmod(0o755)
    with pytest.raises(OutputError, match=r"other users can enter it.*--cache"):
        commands.read()
    inside.chmod(0o700)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(OutputError, match=r"another user.*--cache"):
        commands.read()
    monkeypatch.undo()
    inside.rename(commands.cache / "elsewhere")
    inside.symlink_to("elsewhere")
    with pytest.raises(OutputError, match=r"it is no folder.*--cache"):
        commands.read()


def test_what_was_not_used_for_the_longest_time_goes_where_there_is_too_much(commands: Commands, path: Path) -> None:
    reports = [Path(shutil.copy2(path, path.with_name(name))) for name in ("b.sqlite", "c.sqlite", "d.sqlite")]
    commands.read()
    size = sum(file.stat().st_size for file in commands.files)
    cache = ColumnCache(commands.cache, 3 * size)
    for number, report in enumerate(reports):
        # The first report is used again before each other one.
        tables = StoredTables(path)
        assert cache.take(tables, NEEDED, path.parent / f"again{number}") == {}
        tables = StoredTables(report)
        store_or_take({tables: NEEDED}, path.parent / f"of{number}", None)
        assert cache.keep(tables, NEEDED) is None

    there = [not cache.take(StoredTables(report), NEEDED, path.parent / f"to{report.stem}") for report in (path, *reports)]
    assert there == [True, False, True, True]
    assert sum(file.stat().st_size for file in commands.files) <= 3 * size


def test_what_goes_while_it_is_taken_is_read_again(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.read()
    known = cache_folder._known

    def known_and_gone(path: Path) -> list[int]:
        found = known(path)
        path.unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(cache_folder, "_known", known_and_gone)
        tables = StoredTables(commands.path)
        rest = ColumnCache(commands.cache).take(tables, NEEDED, commands.path.parent / "gone")
    assert set(rest) == {TABLE, OTHER}
    assert commands.read() == {TABLE, OTHER}


def test_a_file_beside_the_exports_of_a_cache_is_left_alone(commands: Commands) -> None:
    commands.read({TABLE: NUMBERS})
    (commands.cache / "nsys2prv-columns" / "mine").touch(0o600)

    assert commands.read() == {TABLE, OTHER}
    assert not commands.problems


def test_what_is_larger_than_the_cache_is_not_kept_and_reported(commands: Commands, path: Path) -> None:
    tables = StoredTables(path)
    store_or_take({tables: NEEDED}, path.parent / "columns", None)

    assert "its columns are not kept: they have " in (ColumnCache(commands.cache, 1).keep(tables, NEEDED) or "")
    assert not commands.files


def test_a_cache_that_can_not_be_written_is_reported_and_the_work_goes_on(commands: Commands) -> None:
    commands.cache.write_text("a file")

    assert commands.read() == {TABLE, OTHER}
    assert ["can't be written" in problem for problem in commands.problems.values()] == [True]


def test_a_trace_is_the_same_with_a_cache_and_without(tmp_path: Path) -> None:
    builder = ReportBuilder(host="node01")
    builder.kernel("gemm", 1000, 2000, launch=(100, 200))
    builder.nvtx_range("outer", 50, 3000)
    report = builder.gpu().write(tmp_path / "report.sqlite")
    os.utime(report, ns=(LONG_AGO, LONG_AGO))
    for name, cache in (("without", None), ("first", tmp_path / "cache"), ("second", tmp_path / "cache")):
        (tmp_path / name).mkdir()
        translate([report], tmp_path / name / "out", TranslateOptions(cache=cache, no_views=True))

    for suffix in (".prv", ".pcf", ".row"):
        assert len({(tmp_path / name / f"out{suffix}").read_bytes() for name in ("without", "first", "second")}) == 1
