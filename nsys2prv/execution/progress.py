"""Progress of long work, on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

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
    # None when it was closed before the program started.
    if not _hidden and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"nsys2prv: {printable(sentence)}", file=sys.stderr)


class Bar:
    """How much of some work is done, of `total`, which may be changed while it runs; this class shows it nowhere."""

    def __init__(self, total: float | None = None) -> None:
        self.total = total

    def update(self, n: float = 1) -> object:
        """So much more is done."""


no_progress = Bar().update


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
    screen = sys.stderr
    # A terminal may go away meanwhile: tqdm goes on without it.
    if _hidden or screen is None or not (screen.isatty() if shown is None else shown):
        yield Bar(total)
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
