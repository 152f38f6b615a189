"""Files of an output appear together, or what was there stays: also when one can't be replaced, or the process is killed."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.efficiency.outputs.export import write_files
from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.execution import publishing
from nsys2prv.execution.private_folders import PREFIX, _machine, new_name
from nsys2prv.execution.publishing import Staged, publish
from nsys2prv.execution.scratch import temporary_folder

NOT_WRITABLE = 5


class Killed(BaseException):
    """The process is killed here."""


def write_former(folder: Path) -> dict[str, bytes]:
    (folder / "OUT.cfgs").mkdir()
    (folder / "OUT.cfgs" / "view.cfg").write_text("former")
    for name in ("OUT.gone", "OUT.pcf", "OUT.prv"):
        (folder / name).write_text("former")
    return contents(folder)


def stage(folder: Path) -> Staged:
    (folder / "cfgs").mkdir()
    (folder / "cfgs" / "view.cfg").write_text("new")
    for name in ("pcf", "prv"):
        (folder / name).write_text("new")
    return Staged(folder, {"OUT.gone": None, "OUT.cfgs": "cfgs", "OUT.pcf": "pcf", "OUT.prv": "prv"})


def end_at(number: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error in place of the renaming of that number."""
    rename, calls = Path.rename, iter(range(1, 1000))

    def counting(path: Path, target: Path) -> Path:
        if next(calls) == number:
            raise error
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", counting)


@pytest.fixture
def former(tmp_path: Path) -> dict[str, bytes]:
    return write_former(tmp_path)


def test_all_get_their_names(tmp_path: Path, former: dict[str, bytes]) -> None:
    with temporary_folder(tmp_path) as folder:
        publish(stage(folder))

    assert contents(tmp_path) == {"OUT.cfgs": b"", "OUT.cfgs/view.cfg": b"new", "OUT.pcf": b"new", "OUT.prv": b"new"}


# The first is that of the journal, the last that of the last file.
@pytest.mark.parametrize("number", range(1, 9))
def test_where_one_can_not_be_replaced_all_stay(
    number: int, tmp_path: Path, former: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    end_at(number, PermissionError(1, "Operation not permitted"), monkeypatch)

    with temporary_folder(tmp_path) as folder, pytest.raises(OutputError, match=r"OUT\..*Operation not permitted"):
        publish(stage(folder))
    assert contents(tmp_path) == former


@pytest.mark.parametrize("has_former", [True, False], ids=["former", "none"])
@pytest.mark.parametrize("number", range(1, 9))
def test_the_next_run_takes_back_what_a_killed_one_began(
    number: int, has_former: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_former(tmp_path) if has_former else {}
    left = tmp_path / name_of_a_dead_process()
    left.mkdir(0o700)
    (left / "nsys2prv-temporary").touch()
    with monkeypatch.context() as patched:
        end_at(number, Killed(), patched)
        staged = stage(left)
        try:
            publish(staged)
        except Killed:
            complete = {}
        else:
            complete = contents(tmp_path)
    with temporary_folder(tmp_path):
        pass

    assert contents(tmp_path) == ({name: one for name, one in complete.items() if name.startswith("OUT")} or before)


def test_what_another_program_wrote_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        staged = stage(folder)
        (tmp_path / "OUT.prv").write_text("of another")

        with pytest.raises(OutputExists, match=r"OUT\.prv"):
            publish(staged, replace=False)
    assert contents(tmp_path) == {"OUT.prv": b"of another"}


def test_two_runs_to_one_output_do_not_replace_each_other(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = small_report().write(tmp_path / "rank0.sqlite")
    alone = publishing._alone_in

    def other_first(folder: Path) -> object:
        (folder / "OUT.prv").write_text("of another run")
        return alone(folder)

    monkeypatch.setattr(publishing, "_alone_in", other_first)
    sentence(command_line.run("translate", report, "-o", "OUT"), NOT_WRITABLE, "OUT.prv", "exists already")
    assert {path.name for path in tmp_path.iterdir()} == {"rank0.sqlite", "OUT.prv"}


@pytest.mark.thorough
@pytest.mark.parametrize("force", [(), ("--force",)], ids=["new", "force"])
@pytest.mark.parametrize("attempt", range(4))
def test_two_runs_at_once_make_one_output(
    force: tuple[str, ...], attempt: int, command_line: CommandLine, tmp_path: Path
) -> None:
    for rank in range(2):
        small_report(200 + 100 * rank).write(tmp_path / f"rank{rank}.sqlite")
    both = [command_line.start("translate", f"rank{rank}.sqlite", "-o", "OUT", *force) for rank in range(2)]
    said = [process.communicate(timeout=200)[1] for process in both]

    assert sorted(process.returncode for process in both) == ([0, 0] if force else [0, NOT_WRITABLE]), said
    assert command_line.run("check", "OUT.prv").returncode == 0
    assert not list(tmp_path.glob(".*"))
    written = json.loads((tmp_path / "OUT.json").read_text())
    assert (tmp_path / "OUT.prv").stat().st_size == written["trace"]["bytes"]


def test_one_program_at_a_time_gives_names_in_a_folder(tmp_path: Path, former: dict[str, bytes]) -> None:
    with ExitStack() as other, temporary_folder(tmp_path) as folder:
        number = os.open(tmp_path, os.O_RDONLY)
        other.callback(os.close, number)
        fcntl.flock(number, fcntl.LOCK_EX)
        thread = threading.Thread(target=publish, args=(stage(folder),))
        thread.start()
        time.sleep(0.1)
        assert (tmp_path / "OUT.prv").read_text() == "former"
        fcntl.flock(number, fcntl.LOCK_UN)
        thread.join()
        assert (tmp_path / "OUT.prv").read_text() == "new"


def test_a_folder_that_stays_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_SECONDS_FOR_OTHERS", 0.05)
    monkeypatch.setattr(publishing, "_is_locked", lambda number: False)

    with temporary_folder(tmp_path) as folder, pytest.raises(OutputError, match="another program keeps it locked"):
        publish(stage(folder))


# -- what killed processes left ----------------------------------------------------------------------------------------------


def name_of_a_dead_process() -> str:
    """A name of a folder that a process made that has ended."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return f"{PREFIX}{_machine()}.{child}.1.01234567"


def marked(folder: Path) -> Path:
    folder.mkdir(0o700)
    (folder / "nsys2prv-temporary").touch()
    (folder / "runs").mkdir()
    (folder / "runs" / "rows.arrow").write_text("rows")
    return folder


@pytest.fixture
def shown_dead() -> str:
    return name_of_a_dead_process()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, shown_dead: str) -> None:
    marked(tmp_path / shown_dead)

    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_a_number_that_another_process_has_now_is_that_of_a_dead_one(tmp_path: Path) -> None:
    # This process, but started at another time.
    marked(tmp_path / f"{PREFIX}{_machine()}.{os.getpid()}.1.01234567")

    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    "why", ["alive", "elsewhere", "not private", "not marked", "file", "link", "another user", "other name"]
)
def test_folders_of_others_and_of_running_processes_stay(why: str, tmp_path: Path, shown_dead: str) -> None:
    names = {
        "alive": new_name(),
        "elsewhere": shown_dead.replace(_machine(), "0" * 8),
        "other name": shown_dead + "x",
    }
    path = tmp_path / "parent" / names.get(why, shown_dead)
    path.parent.mkdir()
    if why == "file":
        path.write_text("mine")
    elif why == "link":
        path.symlink_to(marked(tmp_path / "target"))
    else:
        marked(path)
    if why == "not private":
        path.chmod(0o750)
    if why == "not marked":
        (path / "nsys2prv-temporary").unlink()
    if why == "another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to another user")
        os.chown(path, 12345, -1)
    before = contents(tmp_path)

    with temporary_folder(path.parent):
        pass
    assert contents(tmp_path) == before


def test_what_a_run_has_in_a_folder_of_reports_is_no_report(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    small_report().write(tmp_path / "run" / "rank0.sqlite")
    # Of another machine: it is not known whether it is still used.
    small_report().write(marked(tmp_path / "run" / f"{PREFIX}00000000.1.1.01234567") / "rank1_arwdir")

    done = command_line.run("inspect", "run", "--json")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"path"') == 1


# -- files of the user -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "again",
    [
        ("translate", "rank0.sqlite", "-o", "OUT", "--force"),
        pytest.param(("translate", "rank0.sqlite", "-o", "OUT", "--force", "--no-views"), marks=pytest.mark.thorough),
        pytest.param(("views", "OUT.prv"), marks=pytest.mark.thorough),
    ],
    ids=["translate", "no views", "views"],
)
def test_files_of_the_user_among_views_stay(again: tuple[str, ...], command_line: CommandLine, tmp_path: Path) -> None:
    small_report().write(tmp_path / "rank0.sqlite")
    assert command_line.run("translate", "rank0.sqlite", "-o", "OUT").returncode == 0
    views = tmp_path / "OUT.cfgs"
    own = {"own.cfg": b"own", "1-gpu-kernels/own.cfg": b"own", "notes/own.txt": b"own"}
    (views / "notes").mkdir()
    for name, text in own.items():
        (views / name).write_bytes(text)
    # A view of a former output that is not one of the new output.
    (views / "1-gpu-kernels" / "kernels.cfg").rename(views / "1-gpu-kernels" / "gone.cfg")
    index = views / "index.html"
    index.write_text(index.read_text().replace("1-gpu-kernels/kernels.cfg", "1-gpu-kernels/gone.cfg"))

    done = command_line.run(*again)

    assert done.returncode == 0, done.stderr
    after = contents(views)
    assert own.items() <= after.items()
    assert "1-gpu-kernels/gone.cfg" not in after
    assert ("1-gpu-kernels/kernels.cfg" in after) == ("--no-views" not in again)


def test_a_link_that_leads_nowhere_is_an_output_that_exists(command_line: CommandLine, tmp_path: Path) -> None:
    small_report().write(tmp_path / "rank0.sqlite")
    (tmp_path / "OUT.pcf").symlink_to("nothing")

    sentence(command_line.run("translate", "rank0.sqlite", "-o", "OUT"), NOT_WRITABLE, "OUT.pcf", "exists already")


def test_folders_that_were_made_for_results_go_when_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)

    with pytest.raises(OutputError, match="No space left"):
        write_files({tmp_path / "new" / "csv" / "run.csv": "text"})
    assert not list(tmp_path.iterdir())
