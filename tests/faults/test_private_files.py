"""Intermediate files are the user's alone: what workers exchange is executed by who reads it."""

import os
import pickle
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import small_report

from nsys2prv.errors import NotPrivate
from nsys2prv.execution import output_files
from nsys2prv.execution.output_files import make_folder, temporary_folder
from nsys2prv.execution.workers import Shared


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o002, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    former = os.umask(request.param)
    yield request.param
    os.umask(former)


def test_folders_are_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    with temporary_folder(tmp_path, "OUT") as folder:
        make_folder(folder / "group" / "runs")
        assert {mode(one) for one in (folder, folder / "group", folder / "group" / "runs")} == {0o700}


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_nothing_of_a_run_is_open_to_others_before_it_is_published(
    workers: tuple[str, ...], command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = small_report().write(tmp_path / "rank0.sqlite")
    (tmp_path / "scratch").mkdir()
    removed: dict[Path, int] = {}
    pickles: dict[str, int] = {}
    remove = output_files._remove

    def look_and_remove(path: Path, lock: int) -> None:
        removed[path] = mode(path)
        pickles.update({file.name: mode(file) for file in path.rglob("*.pickle")})
        remove(path, lock)

    monkeypatch.setattr(output_files, "_remove", look_and_remove)
    former = os.umask(0o002)
    try:
        done = command_line.run("translate", report, "-o", "OUT", "--scratch", "scratch", *workers)
    finally:
        os.umask(former)

    assert done.returncode == 0, done.stderr
    assert len(removed) == 2
    assert set(removed.values()) == {0o700}
    assert set(pickles.values()) <= {0o600}
    # Plan, head and records; the survey of one report is made by the first process.
    assert len(pickles) == (3 if workers else 0)
    # What is published has the rights that the user's umask gives.
    assert {mode(tmp_path / f"OUT.{suffix}") for suffix in ("prv", "pcf", "row", "json")} == {0o664}
    assert mode(tmp_path / "OUT.cfgs") == 0o775
    assert {mode(path) for path in (tmp_path / "OUT.cfgs").rglob("*.cfg")} == {0o664}


class Planted:
    """What is executed when its pickle is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def exchanged(tmp_path: Path) -> Path:
    """A file as workers exchange them, with a planted content."""
    folder = tmp_path / "exchanged"
    Shared(Planted(tmp_path / "executed"), folder / "plan.pickle")
    return folder / "plan.pickle"


def read(path: Path) -> object:
    return pickle.loads(pickle.dumps(_at(path)))


def _at(path: Path) -> Shared[object]:
    shared: Shared[object] = Shared(None)
    shared._path = path
    return shared


def test_what_only_the_user_could_write_is_read(exchanged: Path, tmp_path: Path) -> None:
    read(exchanged)
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH], ids=["group", "others"])
def test_what_others_could_write_is_not_executed(bit: int, is_folder: bool, exchanged: Path, tmp_path: Path) -> None:
    changed = exchanged.parent if is_folder else exchanged
    changed.chmod(mode(changed) | bit)
    with pytest.raises(NotPrivate, match=r"not read \(other users can write to it\).*--scratch"):
        read(exchanged)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user; as root: make test")
def test_what_belongs_to_another_user_is_not_executed(is_folder: bool, exchanged: Path, tmp_path: Path) -> None:
    os.chown(exchanged.parent if is_folder else exchanged, 12345, -1)
    with pytest.raises(NotPrivate, match="belongs to another user"):
        read(exchanged)
    assert not (tmp_path / "executed").exists()
