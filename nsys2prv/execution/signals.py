"""Signals that end the program: which they are, when they wait, and when they have no effect."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Collection, Iterator

_NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM")
ENDING_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
"""What a terminal, another program, or a batch system sends to a program that is to end."""
_TO_ONE_PROCESS = {number for number in ENDING_SIGNALS if number.name in {"SIGTERM", "SIGXCPU"}}
"""What workers leave by."""
TO_ALL_PROCESSES = frozenset(ENDING_SIGNALS) - _TO_ONE_PROCESS
"""What reaches all processes of a terminal: the first one ends its workers."""


class _Ending:
    """What is done when a signal comes."""

    def __init__(self) -> None:
        self.leave: Callable[[int], object] | None = None
        self.held = 0
        self.came: int | None = None

    def __call__(self, number: int, _frame: object) -> None:
        if self.held:
            self.came = number
            return
        # Once: further signals would end the clean-up of the first.
        leave, self.leave = self.leave, None
        if leave is not None:
            leave(number)


_ending = _Ending()


def end_by_signals(leave: Callable[[int], object]) -> None:
    """Call a function with the number of a signal that ends the program."""
    _ending.leave = leave
    for number in ENDING_SIGNALS:
        # Ignored by who started the program, as nohup does: that stays.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _ending)


@contextlib.contextmanager
def signals_held(by_processes: Collection[signal.Signals] = ()) -> Iterator[None]:
    """Signals that come in the block have their effect after it.

    Processes that are started in it hold those of `by_processes` until they call `leave_by_signals`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _ending.held += 1
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, by_processes)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _ending.held -= 1
        if not _ending.held and _ending.came is not None:
            came, _ending.came = _ending.came, None
            _ending(came, None)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals have no effect in the block."""
    former = {}
    if threading.current_thread() is threading.main_thread():
        # None: set by another language, which can't be set again.
        known = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
        former = {number: signal.signal(number, signal.SIG_IGN) for number, handler in known.items() if handler is not None}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def leave_by_signals(leave: Callable[[], object]) -> None:
    """In a worker: call a function for a signal that is for it alone, and ignore those that reach the first process too."""
    for number in ENDING_SIGNALS:
        signal.signal(number, (lambda *_: leave()) if number in _TO_ONE_PROCESS else signal.SIG_IGN)
    # They were held while the worker was started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
