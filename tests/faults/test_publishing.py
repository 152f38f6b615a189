"""Files of an output appear together, or what was there stays; a trace never lies beside labels of another; and what a killed
process leaves is removed by the next one.
"""

import fcntl
import os
import signal
import tempfile
import threading
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.efficiency.outputs.export import write_files
from nsys2prv.errors import OutputError
from nsys2prv.execution import output_files
from nsys2prv.execution.output_files import PREFIX, publish, temporary_folder

NOT_WRITABLE = 5


def write_former(folder: Path) -> dict[str, bytes]:
    (folder / "OUT.cfgs").mkdir()
    (folder / "OUT.cfgs" / "view.cfg").write_text("former")
    for name in ("OUT.gone", "OUT.pcf", "OUT.prv"):
        (folder / name).write_text("former")
    return contents(folder)


def stage(folder: Path) -> dict[Path, dict[str, str | None]]:
    (folder / "cfgs").mkdir()
    (folder / "cfgs" / "view.cfg").write_text("new")
    for name in ("pcf", "prv"):
        (folder / name).write_text("new")
    return {folder: {"OUT.gone": None, "OUT.cfgs": "cfgs", "OUT.pcf": "pcf", "OUT.prv": "prv"}}


NEW = {"OUT.cfgs": b"", "OUT.cfgs/view.cfg": b"new", "OUT.pcf": b"new", "OUT.prv": b"new"}
MOVES = 7
"""Four former files leave, three new ones come."""


def end_at(number: int, error: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error, or with None end the process as a kill does, in place of the renaming of that number."""
    replace, calls = os.replace, iter(range(1, 1000))

    def counting(path: Path, target: Path) -> None:
        if next(calls) == number:
            if error is None:
                os._exit(0)
            raise error
        replace(path, target)

    monkeypatch.setattr(os, "replace", counting)


@pytest.fixture
def former(tmp_path: Path) -> dict[str, bytes]:
    return write_former(tmp_path)


def test_all_get_their_names(tmp_path: Path, former: dict[str, bytes]) -> None:
    with temporary_folder(tmp_path, "OUT") as folder:
        publish(stage(folder))
    assert contents(tmp_path) == NEW


@pytest.mark.parametrize("number", range(1, MOVES + 1))
def test_where_one_can_not_be_replaced_all_stay(
    number: int, tmp_path: Path, former: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    end_at(number, PermissionError(1, "Operation not permitted"), monkeypatch)
    with temporary_folder(tmp_path, "OUT") as folder, pytest.raises(OutputError, match=r"/OUT\..*Operation not permitted"):
        publish(stage(folder))
    assert contents(tmp_path) == former


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "OUT.pcf").mkdir()
    with temporary_folder(tmp_path, "OUT") as folder, pytest.raises(OutputError, match=r"OUT\.pcf.*there is a folder"):
        publish(stage(folder))
    assert contents(tmp_path) == {"OUT.pcf": b""}


@pytest.mark.parametrize("number", range(1, MOVES + 1))
def test_at_no_time_a_trace_lies_beside_files_of_another(
    number: int, tmp_path: Path, former: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if child == 0:
        end_at(number, None, monkeypatch)
        context = temporary_folder(tmp_path, "OUT")
        try:
            publish(stage(context.__enter__()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    left = {name: content for name, content in contents(tmp_path).items() if name.startswith("OUT")}
    # The second renaming is that of the former trace.
    assert ("OUT.prv" in left) == (number <= 2)
    assert number > 2 or left == {name: content for name, content in former.items() if number == 1 or name != "OUT.gone"}
    with temporary_folder(tmp_path, "OUT"):
        # Files of the user may be among the views.
        assert (tmp_path / "OUT.cfgs" / "view.cfg").exists()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_two_runs_to_one_output_do_not_replace_each_other(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = small_report().write(tmp_path / "rank0.sqlite")
    alone = output_files._alone_in

    def other_first(folder: Path) -> object:
        (folder / "OUT.prv").write_text("of another run")
        return alone(folder)

    monkeypatch.setattr(output_files, "_alone_in", other_first)
    sentence(command_line.run("translate", report, "-o", "OUT"), NOT_WRITABLE, "OUT.prv", "exists already")
    assert {path.name for path in tmp_path.iterdir()} == {"rank0.sqlite", "OUT.prv"}


def test_one_program_at_a_time_gives_names_in_a_folder(tmp_path: Path, former: dict[str, bytes]) -> None:
    with ExitStack() as other, temporary_folder(tmp_path, "OUT") as folder:
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


def test_who_waits_for_a_stopped_program_gives_up_with_a_sentence(
    tmp_path: Path, former: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_files, "_SECONDS_TO_WAIT", 0.3)
    locked, tells = os.pipe()
    child = os.fork()
    if child == 0:
        fcntl.flock(os.open(tmp_path, os.O_RDONLY), fcntl.LOCK_EX)
        os.write(tells, b".")
        os.kill(os.getpid(), signal.SIGSTOP)
    os.read(locked, 1)
    os.waitpid(child, os.WUNTRACED)
    try:
        with temporary_folder(tmp_path, "OUT") as folder, pytest.raises(OutputError, match=r"another program .* end it"):
            publish(stage(folder))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert contents(tmp_path) == former


def left_behind(parent: Path, purpose: str = "OUT", keep: Collection[Path] = ()) -> Path:
    """A temporary folder of a process that was killed."""
    child = os.fork()
    if child == 0:
        context = temporary_folder(parent, purpose)
        folder = context.__enter__()
        (folder / "runs").mkdir()
        (folder / "runs" / "rows.arrow").write_text("rows")
        os._exit(0)
    os.waitpid(child, 0)
    (folder,) = set(parent.glob(f"{PREFIX}*")).difference(keep)
    return folder


def test_what_a_killed_process_left_is_removed_by_the_next_one_of_the_same_purpose(tmp_path: Path) -> None:
    left = left_behind(tmp_path)
    with temporary_folder(tmp_path, "OTHER"):
        assert (left / "runs" / "rows.arrow").exists()
    with temporary_folder(tmp_path, "OUT") as folder:
        assert set(tmp_path.iterdir()) == {folder}
        # What a process left that worked beside another one goes too.
        left_behind(tmp_path, keep={folder})
        with temporary_folder(tmp_path, "OUT") as second:
            assert set(tmp_path.iterdir()) == {folder, second}
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_makes_no_folders_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="No space left"), temporary_folder(tmp_path, "OUT"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("why", ["in use", "not private", "file", "link", "another user"])
def test_folders_of_others_and_of_running_processes_stay(why: str, tmp_path: Path) -> None:
    path = left_behind(tmp_path)
    mark = path / output_files._LOCK
    with ExitStack() as stack:
        if why == "in use":
            lock = stack.enter_context(mark.open("r+"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        if why == "not private":
            path.chmod(0o750)
        if why in {"file", "link"}:
            path.rename(tmp_path / "elsewhere")
            path.write_text("mine") if why == "file" else path.symlink_to("elsewhere")
        if why == "another user":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder to another user; as root: make test")
            os.chown(path, 12345, -1)
        before = contents(tmp_path)

        with temporary_folder(tmp_path, "OUT") as folder:
            assert folder != path
        assert contents(tmp_path) == before


def test_a_folder_that_another_one_of_the_same_purpose_removes_is_not_shared(tmp_path: Path) -> None:
    with temporary_folder(tmp_path, "OUT") as first, temporary_folder(tmp_path, "OUT") as second:
        assert first != second
        assert {path.name for path in first.iterdir()} == {output_files._LOCK}


def test_a_file_system_that_keeps_no_modes_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def make_open(**where: str) -> str:
        folder = make(**where)
        Path(folder).chmod(0o777)
        assert len(list(tmp_path.iterdir())) == 1
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", make_open)
    with temporary_folder(tmp_path, "OUT") as folder:
        publish(stage(folder))
    assert contents(tmp_path) == NEW


def test_what_a_run_has_in_a_folder_of_reports_is_no_report(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    small_report().write(tmp_path / "run" / "rank0.sqlite")
    small_report().write(left_behind(tmp_path / "run") / "rank1_arwdir")
    done = command_line.run("inspect", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"path"') == 1


@pytest.mark.parametrize(
    "again",
    [
        ("translate", "rank0.sqlite", "-o", "OUT", "--force"),
        pytest.param(("translate", "rank0.sqlite", "-o", "OUT", "--force", "--no-views"), marks=pytest.mark.thorough),
        pytest.param(("views", "OUT.prv"), marks=pytest.mark.thorough),
    ],
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
