"""Where the system gives no memory, files, threads or processes, the program ends with a sentence: no report is to blame."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.errors import NoResources
from nsys2prv.execution.memory import LEAST_ADDRESS_SPACE, resource_error_in
from nsys2prv.execution.workers import workers
from nsys2prv.exports import folder_tables, sqlite_tables

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
    assert printed.startswith("nsys2prv: this process may use 2,147 MB of memory or address space")
    assert printed.count("\n") == 1
    assert ended(2 * LEAST_ADDRESS_SPACE) == (0, "")


NO_RESOURCES, BAD_REPORT = 11, 3
LACKS = {
    "memory": [
        MemoryError(),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        sqlite3.OperationalError("out of memory"),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        ImportError("x.so: failed to map segment from shared object"),
        pl.exceptions.ComputeError("memory allocation of 4096 bytes failed"),
    ],
    "memory or open files": [OSError("failed to open 'file:x.sqlite': failed to allocate memory")],
    "open files": [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        pl.exceptions.ComputeError("Too many open files (os error 24): x.parquet"),
    ],
    "threads": [RuntimeError("can't start new thread")],
}


@pytest.mark.parametrize(("what", "error"), [(what, error) for what, errors in LACKS.items() for error in errors], ids=repr)
def test_what_the_system_refuses_is_known_by_number_and_by_text(what: str, error: BaseException) -> None:
    lack = resource_error_in(error)

    assert lack is not None
    assert f"gives no more {what}" in str(lack)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, os.strerror(errno.EIO)),
        sqlite3.DatabaseError("database disk image is malformed"),
        ValueError("x"),
        # What a damaged file asks for.
        pa.ArrowMemoryError("malloc of size 144115188075855936 failed"),
    ],
    ids=repr,
)
def test_other_errors_are_no_lack(error: BaseException) -> None:
    assert resource_error_in(error) is None


def test_what_led_to_an_error_counts() -> None:
    error = ValueError("a scan failed")
    error.__cause__ = MemoryError()

    assert resource_error_in(error) is not None


@pytest.mark.parametrize(
    ("form", "method", "error"),
    [
        (".sqlite", "in_type", sqlite3.OperationalError("out of memory")),
        (".sqlite", "in_type", MemoryError()),
        ("_arwdir", "_open_arrow", pa.ArrowMemoryError("malloc of size 64 failed")),
        ("_arwdir", "_open_arrow", OSError(errno.EMFILE, os.strerror(errno.EMFILE))),
    ],
    ids=repr,
)
@pytest.mark.parametrize("command", ["translate", "inspect"])
def test_a_report_is_not_damaged_where_memory_or_files_lack(
    command: str, form: str, method: str, error: Exception, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> object:
        raise error

    small_report().write(command_line.folder / f"rank0{form}")
    monkeypatch.setattr(sqlite_tables if form == ".sqlite" else folder_tables, method, refuse)

    out = ("-o", "OUT") if command == "translate" else ()
    sentence(command_line.run(command, f"rank0{form}", *out), NO_RESOURCES, "the system gives no more")
    assert {path.name for path in command_line.folder.iterdir()} == {f"rank0{form}"}
