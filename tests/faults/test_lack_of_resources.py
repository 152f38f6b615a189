"""Where the system gives no memory, files, threads or processes, the program ends with a sentence: no report is to blame."""

import errno
import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, sentence, small_report

from nsys2prv.errors import Defect, NoResources, OutputError
from nsys2prv.execution import external_sort
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


@pytest.mark.parametrize(
    ("kind", "least", "sentence"),
    [
        ("RLIMIT_AS", LEAST_ADDRESS_SPACE, "this process may use 2,147 MB of memory or address space"),
        ("RLIMIT_DATA", LEAST_ADDRESS_SPACE, "this process may use 2,147 MB of memory or address space"),
        ("RLIMIT_NOFILE", 16, "the system gives no more open files"),
    ],
)
def test_libraries_that_get_too_little_are_not_started(
    kind: str, least: int, sentence: str, command_line: CommandLine, tmp_path: Path
) -> None:
    """They print panics, or wait forever for a thread that could not start."""
    small_report(10).write(tmp_path / "rank0.sqlite")

    def ended(limit: int) -> tuple[int, str]:
        process = command_line.start(
            "inspect", "rank0.sqlite", prepare=lambda: resource.setrlimit(getattr(resource, kind), (limit, limit))
        )
        _, printed = process.communicate(timeout=SECONDS)
        return process.returncode, printed

    code, printed = ended(least - 1)
    assert code == NO_RESOURCES
    assert printed.startswith(f"nsys2prv: {sentence}")
    assert printed.count("\n") == 1
    assert ended(2 * least) == (0, "")


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


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_what_led_to_an_error_counts(link: str) -> None:
    error = ValueError("a scan failed")
    setattr(error, link, MemoryError())
    assert resource_error_in(error) is not None
    setattr(error, link, error)
    assert resource_error_in(error) is None


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


# -- an error of any kind in any step of a command: one sentence, an exit code, and nothing left of what was begun ----
TRANSLATE = ("translate", "rank0.sqlite", "-o", "OUT")
EFFICIENCY = ("efficiency", "rank0.sqlite", "-o", "page.html", "--json-file", "OUT.json")
STEPS: dict[str, tuple[str, ...]] = {
    "nsys2prv.run.open.describe": TRANSLATE,
    "nsys2prv.run.open.survey": TRANSLATE,
    "nsys2prv.exports.report.Report.pieces": TRANSLATE,
    "nsys2prv.timeline.reader.EventReader.read": TRANSLATE,
    "nsys2prv.trace.translate.pair_messages": TRANSLATE,
    "nsys2prv.trace.translate.write_trace": TRANSLATE,
    "nsys2prv.trace.translate.safe_json": TRANSLATE,
    "nsys2prv.paraver.views.folder.write_views": TRANSLATE,
    "nsys2prv.efficiency.measure.measured_window": EFFICIENCY,
    "nsys2prv.efficiency.measure.measure_all": EFFICIENCY,
    "nsys2prv.efficiency.measure.findings_of": EFFICIENCY,
}
ERRORS: dict[str, Callable[[], BaseException]] = {
    "polars": lambda: pl.exceptions.ComputeError("no column of that name"),
    "arrow": lambda: pa.ArrowInvalid("offsets are not in order"),
    "disk": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "memory": lambda: MemoryError(),
    "own": lambda: ZeroDivisionError("division by zero"),
    "panic": lambda: pl.exceptions.PanicException("index out of bounds"),
}


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        # What becomes of an error is up to its kind, and not to the step.
        pytest.param(step, kind, marks=() if place % len(ERRORS) == number else pytest.mark.thorough)
        for place, step in enumerate(STEPS)
        for number, kind in enumerate(ERRORS)
    ],
)
def test_any_error_of_a_step_is_one_sentence_and_leaves_nothing(
    step: str, kind: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().write(command_line.folder / "rank0.sqlite")
    before = contents(command_line.folder)

    def fail(*_: Any, **__: Any) -> Any:
        raise ERRORS[kind]()

    monkeypatch.setattr(step, fail)
    result = command_line.run(*STEPS[step])

    assert result.returncode not in (0, 1)
    sentence(result, Defect.exit_code if kind in ("own", "panic") else result.returncode)
    assert contents(command_line.folder) == before


@pytest.mark.parametrize("command", [TRANSLATE, EFFICIENCY], ids=lambda command: command[0])
def test_what_can_not_be_removed_is_no_error(
    command: tuple[str, ...], command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intermediate files go with their folder, at the end or when the next run to the same place begins."""
    small_report().write(command_line.folder / "rank0.sqlite")
    monkeypatch.setattr(external_sort, "_KEPT_ROWS", 0)
    monkeypatch.setattr(external_sort, "RUN_ROWS", 1)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "unlink", fail)
    result = command_line.run(*command)

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "command", [TRANSLATE, EFFICIENCY, ("inspect", "rank0.sqlite", "--clocks")], ids=lambda command: command[0]
)
@pytest.mark.parametrize("error", ["Input/output error", "No space left on device"])
def test_a_disk_of_intermediate_files_that_fails_is_no_damage_of_a_report(
    error: str, command: tuple[str, ...], command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().write(command_line.folder / "rank0.sqlite")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO if error.startswith("Input") else errno.ENOSPC, error)

    monkeypatch.setattr(pa, "memory_map", fail)
    result = command_line.run(*command)
    assert "damaged" not in sentence(result, OutputError.exit_code, "intermediate files")
