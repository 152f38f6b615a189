"""Work that takes longer than a moment is shown, also while nothing of it is done."""

from __future__ import annotations

import io
import time

import pytest

from nsys2prv.execution import progress
from nsys2prv.execution.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait_for(self, text: str) -> bool:
        """Whether a text comes within the time in which a stopped program is noticed."""
        until = time.monotonic() + 30
        while text not in self.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        return text in self.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "_DELAY", 0.01)
    found = Terminal()
    monkeypatch.setattr(progress, "_Screen", lambda: found)
    return found


def test_a_bar_is_shown_before_anything_is_done(terminal: Terminal) -> None:
    with progress_bar("surveying", "table", 5):
        assert terminal.wait_for("surveying:   0%")
        assert terminal.wait_for("0.00/5.00")


def test_a_step_without_a_unit_shows_its_time(terminal: Terminal) -> None:
    with progress_bar("planning"):
        assert terminal.wait_for("planning: 00:00")


def test_the_total_of_a_bar_may_change(terminal: Terminal) -> None:
    with progress_bar("surveying", "table", 0) as bar:
        bar.total = 4
        bar.update(2)
        assert terminal.wait_for("2.00/4.00")


@pytest.mark.parametrize("shown", [None, False], ids=["no terminal", "not wanted"])
def test_nothing_is_shown(shown: bool | None, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if shown is None:
        monkeypatch.setattr(Terminal, "isatty", lambda _: False)
    with progress_bar("surveying", "table", 5, shown=shown) as bar:
        bar.total = 6
        bar.update(2)
        time.sleep(0.05)

    assert not terminal.getvalue()
