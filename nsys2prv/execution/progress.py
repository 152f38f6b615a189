"""Progress of long work, on stderr."""

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
    """How much of some work is done, of `total`, which may be changed while it runs."""

    def __init__(self, total: float | None = None) -> None:
        self.total, self.count = total, 0.0

    def update(self, n: float = 1) -> None:
        """So much more is done."""
        self.count += n


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
    bar, screen = Bar(total), sys.stderr
    if _hidden or screen is None or not (screen.isatty() if shown is None else shown):
        yield bar
        return
    # Loaded where it is shown.
    from tqdm import tqdm

    form = {"desc": what, "unit": unit, "unit_scale": True, "leave": False, "bar_format": None if unit else "{desc}: {elapsed}"}
    ended = threading.Event()

    def show() -> None:
        # A terminal may go away meanwhile: the work goes on without it.
        with contextlib.suppress(OSError, ValueError), tqdm(file=screen, delay=_DELAY, **form) as drawn:
            while not ended.wait(_DELAY):
                drawn.total, drawn.n = bar.total, bar.count
                drawn.refresh()
            if drawn.format_dict["elapsed"] >= _DELAY:
                # What is drawn so is not known to `close`, and would stay before the next line.
                drawn.clear()

    # On a thread: a long piece of work would leave the bar as it is. Where there is none, nothing is shown.
    thread = threading.Thread(target=show, daemon=True)
    with contextlib.suppress(RuntimeError):
        thread.start()
    try:
        yield bar
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()
