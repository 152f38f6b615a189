"""Where the system gives no memory, threads or processes, the program ends with a sentence: it does not wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.failed_runs import small_report

from nsys2prv.errors import NoResources
from nsys2prv.execution.memory import LEAST_ADDRESS_SPACE
from nsys2prv.execution.workers import workers

NO_RESOURCES, SECONDS = 11, 300


def refuse_threads(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let threads of a kind not start, as where the number of processes is limited."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if kind in (type(thread).__name__, thread.name):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.fixture
def excepthook() -> Iterator[None]:
    former = threading.excepthook
    yield
    threading.excepthook = former


@pytest.mark.parametrize("kind", ["_ExecutorManagerThread", "QueueFeederThread"])
@pytest.mark.usefixtures("excepthook")
def test_workers_that_get_no_work_are_no_reason_to_wait(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refuse_threads(monkeypatch, kind)

    with pytest.raises(NoResources, match="no more threads or processes; use fewer --workers"), workers(2) as pool:
        list(pool.map(abs, range(4)))
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_libraries_that_get_no_address_space_are_not_started(kind: str, command_line: CommandLine, tmp_path: Path) -> None:
    """They print panics, or wait forever for a thread that could not start."""
    import resource

    small_report(10).write(tmp_path / "rank0.sqlite")

    def ended(limit: int) -> tuple[int, str]:
        process = command_line.start(
            "inspect", "rank0.sqlite", prepare=lambda: resource.setrlimit(getattr(resource, kind), (limit, limit))
        )
        _, printed = process.communicate(timeout=SECONDS)
        return process.returncode, printed

    code, printed = ended(LEAST_ADDRESS_SPACE - 4096)
    assert code == NO_RESOURCES
    assert printed.startswith("nsys2prv: this process may use 1,074 MB of memory or address space")
    assert printed.count("\n") == 1
    assert ended(2 * LEAST_ADDRESS_SPACE) == (0, "")
