"""Progress of long work, on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

from nsys2prv.vocabulary.printable import printable

_DELAY = 0.5
"""Seconds that work takes before it is shown, and until it is shown anew."""
_hidden = False


def hide(hidden: bool = True) -> None:
    """Show no progress in this process, whatever is asked for."""
    global _hidden
    _hidden = hidden


def say(sentence: str) -> None:
    """Print what a user has to know while the work goes on, unless nothing is to be shown."""
    if not _hidden:
        _Screen().write(f"nsys2prv: {printable(sentence)}\n")


class Bar(Protocol):
    """Shows how much of some work is done, of `total`, which may be changed while it runs."""

    total: float | None

    def update(self, n: float = 1) -> object:
        """So much more is done."""


class _Screen:
    """The error stream, as long as there is one: a bar that raises while it holds its lock would stop all others for good."""

    def __init__(self) -> None:
        # None when it was closed before the program started.
        self._stream = sys.stderr
        self.encoding = getattr(self._stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of the stream; None comes where it fails."""

        def call(*arguments: object) -> Any:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                return getattr(self._stream, name)(*arguments)
            return None

        return call


@contextlib.contextmanager
def progress_bar(what: str, unit: str = "", total: float | None = None, *, shown: bool | None = None) -> Iterator[Bar]:
    """A progress bar for work that takes longer than a moment.

    Parameters
    ----------
    what
        The work, one word or a few.
    unit, total
        What is counted, and how much of it there is. Without a unit, only the time that the work takes is shown.
    shown
        None: when stderr is a terminal.
    """
    screen = _Screen()
    if _hidden or not (screen.isatty() if shown is None else shown):
        yield SimpleNamespace(total=total, update=lambda n=1: None)
        return
    # Loaded where it is shown.
    from tqdm import tqdm

    style: dict[str, str] = {} if unit else {"bar_format": "{desc}: {elapsed}"}
    with tqdm(desc=what, total=total, unit=unit, unit_scale=True, file=screen, leave=False, delay=_DELAY, **style) as bar:
        ended = threading.Event()

        def tick() -> None:
            # A long piece of work would leave the bar as it is, or not be seen at all.
            while not ended.wait(_DELAY):
                bar.refresh()

        ticking = threading.Thread(target=tick, daemon=True)
        # Without a thread it moves only with the work.
        with contextlib.suppress(RuntimeError):
            ticking.start()
        try:
            yield bar
        finally:
            ended.set()
            if ticking.ident is not None:
                ticking.join()
            if bar.format_dict["elapsed"] >= _DELAY:
                # What was drawn between updates is not known to `close`, and would stay before the next line.
                bar.clear()


def no_progress(_count: int) -> None:
    """Progress that is not shown."""
