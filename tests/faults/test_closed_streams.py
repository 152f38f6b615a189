"""Streams that are closed, or that nobody reads any more: no hang, and a signal still ends the program."""

import contextlib
import io
import json
import os
import pty
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
from support import rest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.cli.console import prepare_output, print_json
from nsys2prv.execution import progress
from nsys2prv.execution.progress import progress_bar


@pytest.fixture
def report(command_line: CommandLine) -> Path:
    return small_report().write(command_line.folder / "rank0.sqlite")


COMMANDS = [("translate", "rank0.sqlite", "-o", "OUT"), ("inspect", "rank0.sqlite")]


@pytest.mark.parametrize("number", [1, *rest(0, 2)])
@pytest.mark.parametrize("command", [COMMANDS[0], *rest((COMMANDS[1],))], ids=lambda command: command[0])
def test_a_stream_that_is_closed_from_the_start_changes_no_result(
    command: tuple[str, ...], number: int, report: Path, command_line: CommandLine
) -> None:
    done = command_line.run(*command, prepare=lambda: os.close(number))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    if command[0] == "translate":
        assert command_line.run("check", "OUT.prv").returncode == 0


def test_an_error_with_no_error_stream_is_the_exit_code_alone(command_line: CommandLine) -> None:
    done = command_line.run("inspect", "nothing.sqlite", prepare=lambda: os.close(2))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


@pytest.mark.parametrize("command", [*rest((COMMANDS[0],)), COMMANDS[1]], ids=lambda one: one[0])
def test_a_full_output_is_one_sentence_and_what_was_written_is_complete(
    command: tuple[str, ...], report: Path, command_line: CommandLine
) -> None:
    def fill() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    done = command_line.run(*command, prepare=fill)
    sentence(done, 5, "standard output: can't be written (No space left on device)")
    if command[0] == "translate":
        assert command_line.run("check", "OUT.prv").returncode == 0


def test_a_reader_that_ends_is_no_error(report: Path, command_line: CommandLine) -> None:
    def end_reader() -> None:
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 1)

    done = command_line.run("inspect", "rank0.sqlite", prepare=end_reader)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_output_that_is_not_utf8_gets_escapes_that_json_has(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding="ascii"))
    prepare_output()
    names = ["é", "日本", "\U0001f600", "caf\udce9"]
    print_json(names)
    sys.stdout.flush()
    assert json.loads(printed.getvalue()) == names


def test_without_a_temporary_folder_there_is_a_sentence(
    report: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", find_none)
    sentence(command_line.run("efficiency", "rank0.sqlite"), 5, "temporary folder", "--scratch")
    assert command_line.run("efficiency", "rank0.sqlite", "--scratch", ".").returncode == 0


@pytest.mark.parametrize("way", ["closed", "gone", "pipe"])
def test_a_bar_goes_on_without_its_stream(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe() if way == "pipe" else pty.openpty()
    os.close(reading)
    ended = []
    monkeypatch.setattr(progress, "_DELAY", 0.01)
    # What was not written is still there when it is closed.
    with contextlib.suppress(OSError), open(writing, "w", buffering=1) as stream:
        monkeypatch.setattr("sys.stderr", None if way == "closed" else stream)
        with progress_bar("working", "piece", 10, shown=True) as bar:
            for _ in range(10):
                bar.update()
                time.sleep(0.02)
        # Another bar gets the lock.
        with progress_bar("working", "piece") as bar:
            bar.update()
        ended.append(way)
    assert ended == [way]


@pytest.mark.parametrize("number", [signal.SIGTERM, *rest(signal.SIGINT)], ids=lambda number: number.name)
def test_a_signal_ends_a_program_without_an_error_stream(number: signal.Signals, command_line: CommandLine) -> None:
    small_report(20_000).write(command_line.folder / "large.sqlite")
    process = command_line.start("translate", "large.sqlite", "-o", "OUT", prepare=lambda: os.close(2))
    until = time.monotonic() + 300
    while not list(command_line.folder.glob(".nsys2prv.*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(timeout=300) == 128 + number
    process.communicate()
    assert not list(command_line.folder.glob("*[!e]"))
