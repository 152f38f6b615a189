"""An error of any kind in any step of a command: one sentence, an exit code, and nothing left of what was begun."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from support.command_line import CommandLine
from support.failed_runs import contents, small_report

from nsys2prv.errors import Defect, OutputError
from nsys2prv.execution import external_sort

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


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("step", STEPS)
def test_any_error_of_a_step_is_one_sentence_and_leaves_nothing(
    step: str, kind: str, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().write(command_line.folder / "rank0.sqlite")
    before = contents(command_line.folder)

    def fail(*_: Any, **__: Any) -> Any:
        raise ERRORS[kind]()

    monkeypatch.setattr(step, fail)
    result = command_line.run(*STEPS[step])

    assert kind not in ("own", "panic") or result.returncode == Defect.exit_code, result.stderr
    assert result.returncode not in (0, 1)
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("nsys2prv: ")
    assert "Traceback" not in result.stderr
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

    assert result.returncode == OutputError.exit_code, result.stderr
    assert "intermediate files" in result.stderr
    assert "damaged" not in result.stderr
