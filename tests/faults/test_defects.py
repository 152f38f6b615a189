"""Errors of nsys2prv itself end with a sentence, too."""

from __future__ import annotations

import polars as pl
import pytest
from support.command_line import CommandLine
from support.failed_runs import sentence, small_report

from nsys2prv.run import open as opening

DEFECT = 14


@pytest.mark.parametrize("error", [KeyError("x"), pl.exceptions.PanicException("index out of bounds")], ids=repr)
def test_what_is_not_expected_ends_with_a_sentence(
    error: BaseException, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_report().write(command_line.folder / "x.sqlite")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(opening, "describe", fail)

    for command in (("efficiency", "x.sqlite"), ("translate", "x.sqlite", "-o", "OUT")):
        sentence(command_line.run(*command), DEFECT, "an error in nsys2prv itself", type(error).__name__, "open.py")
    assert not list(command_line.folder.glob("OUT*"))
