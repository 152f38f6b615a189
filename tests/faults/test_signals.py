"""Every signal that ends the program: one sentence, 128 and its number, and nothing is left."""

import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import few_of
from support.checkout import CHECKOUT
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.demo import Cluster
from nsys2prv.execution import process
from nsys2prv.execution.process import ENDING_SIGNALS, end_by_signals, signals_held
from nsys2prv.exports.nsys import run_program


@pytest.fixture(autouse=True)
def nothing_published() -> None:
    """This process has written nothing before."""
    process.published.clear()


STEPS = {
    "nsys2prv.run.collect.EventReader": ("translate", "rank0.sqlite", "-o", "OUT", "--force"),
    "nsys2prv.trace.translate.write_trace": ("translate", "rank0.sqlite", "-o", "OUT", "--force"),
    "nsys2prv.efficiency.measure.measure_all": ("efficiency", "rank0.sqlite", "--json-file", "OUT.json", "--scratch", "."),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "number", few_of(ENDING_SIGNALS, {signal.SIGHUP, signal.SIGINT, signal.SIGXCPU}), ids=lambda one: one.name
)
def test_each_signal_leaves_the_former_output(
    number: signal.Signals, step: str, command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the tests were started so that they ignore this signal, as nohup does it; without it: make test")
    small_report().write(tmp_path / "rank0.sqlite")
    (tmp_path / "OUT.prv").write_text("former")
    before = contents(tmp_path)
    monkeypatch.setattr(step, lambda *_, **__: os.kill(os.getpid(), number))
    said = sentence(command_line.run(*STEPS[step]), 128 + number, "nothing was written")
    assert number == signal.SIGINT or f"interrupted by {number.name}" in said
    assert contents(tmp_path) == before


def test_a_signal_after_the_output_says_that_it_is_there(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().write(tmp_path / "rank0.sqlite")
    monkeypatch.setattr("nsys2prv.trace.translate.Summary.as_text", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    sentence(command_line.run("translate", "rank0.sqlite", "-o", "OUT"), 143, "what was written before is complete")
    assert (tmp_path / "OUT.prv").exists()


def test_a_demo_that_was_interrupted_can_be_made_anew(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Cluster(nodes=1, gpus_per_node=1, iterations=2, layers=1)
    monkeypatch.setattr("nsys2prv.demo.run_demo.cluster_of_demo", lambda *_: small)
    with monkeypatch.context() as patched:
        patched.setattr("nsys2prv.demo.cluster.truth", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        sentence(command_line.run("demo", "DIR", "--nodes", "1", "--gpus", "1"), 143, "nothing was written")
        assert not [path for path in (tmp_path / "DIR").rglob("*") if path.is_file()]
    assert command_line.run("demo", "DIR", "--nodes", "1", "--gpus", "1").returncode == 0
    assert {"demo.html", "demo.prv"} <= {path.name for path in (tmp_path / "DIR").iterdir()}


def test_a_signal_while_modules_are_loaded_is_one_sentence(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as a module is not loaded to its end it has no functions.
    for name in ("workers", "process", "output_files"):
        monkeypatch.setitem(sys.modules, f"nsys2prv.execution.{name}", types.ModuleType(name))
    monkeypatch.setattr("nsys2prv.cli.app.app", lambda **_: os.kill(os.getpid(), signal.SIGTERM))
    sentence(command_line.run("inspect", "rank0.sqlite"), 143, "interrupted by SIGTERM")


@pytest.fixture
def came() -> list[int]:
    return []


@pytest.fixture
def handled(came: list[int]) -> Iterator[list[int]]:
    """Signals that were acted upon."""
    former = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_by_signals(came.append)
    yield came
    for number, handler in former.items():
        signal.signal(number, handler)


def test_what_nohup_ignores_stays_ignored(handled: list[int]) -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    assert handled == []


def test_signals_wait_while_an_output_is_published_and_one_of_them_is_enough(handled: list[int]) -> None:
    with signals_held():
        with signals_held():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        assert handled == []
    os.kill(os.getpid(), signal.SIGINT)
    assert handled == [signal.SIGTERM]


def test_a_program_that_was_called_ends_with_this_one(tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, time\n"
        "from nsys2prv.execution.process import clean_up\n"
        "from nsys2prv.exports.nsys import run_program\n"
        "threading.Timer(0.3, clean_up).start()\n"
        "began = time.monotonic()\n"
        "done = run_program(['sh', '-c', 'sleep 60 & sleep 60'])\n"
        "print(done.returncode, time.monotonic() - began < 30)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.split() == ["-9", "True"]


def test_what_a_program_prints_is_given() -> None:
    done = run_program(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
