"""Signals that end the program: which they are, when they wait, and what is cleaned up, such as programs that were called."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FrameType

_NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM")
ENDING_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
"""What a terminal, another program, or a batch system sends to a program that is to end."""
_TO_ONE_PROCESS = {signal.SIGTERM, signal.SIGXCPU}
"""What workers leave by."""
TO_ALL_PROCESSES = frozenset(ENDING_SIGNALS) - _TO_ONE_PROCESS
"""What reaches all processes of a terminal: the first one ends its workers."""
_cleanups: list[Callable[[], object]] = []
leaving = threading.Event()
"""Set when the process ends at once: what another thread makes from now on would not be removed."""
published = threading.Event()
"""Set when files got their names: what was written before a signal is complete."""


@contextlib.contextmanager
def cleaned_up(function: Callable[[], object]) -> Iterator[None]:
    """Have a function called when a signal ends the process inside the block."""
    _cleanups.append(function)
    try:
        yield
    finally:
        _cleanups.remove(function)


def clean_up() -> None:
    """Clean up all blocks of `cleaned_up`, the innermost first; for a process that ends at once."""
    leaving.set()
    for function in _cleanups[::-1]:
        function()


def end_by_signals(leave: Callable[[int], object]) -> None:
    """Call a function with the number of a signal that ends the program."""

    def end(number: int, _: FrameType | None) -> None:
        # Once: further signals would end the clean-up of the first.
        for any_number in ENDING_SIGNALS:
            signal.signal(any_number, signal.SIG_IGN)
        leave(number)

    for number in ENDING_SIGNALS:
        # Ignored by who started the program, as nohup does: that stays.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


@contextlib.contextmanager
def signals_held(by_processes: Collection[signal.Signals] = ()) -> Iterator[None]:
    """Signals that come in the block have their effect after it.

    Processes that are started in it hold those of `by_processes` until they call `leave_by_signals`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
    # None: set by another language, which can't be set again.
    handlers = {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, by_processes)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def leave_by_signals(leave: Callable[[], object]) -> None:
    """In a worker: call a function for a signal that is for it alone, and ignore those that reach the first process too."""
    for number in ENDING_SIGNALS:
        signal.signal(number, (lambda *_: leave()) if number in _TO_ONE_PROCESS else signal.SIG_IGN)
    # They were held while the worker was started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)


def run_program(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Call a program and wait for its end; OSError when it can't be called."""
    with contextlib.ExitStack() as stack:
        # A program that is not known yet would not be ended.
        with signals_held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # Signals of a terminal end this process, which ends the program with all that it started.
                start_new_session=True,
            )
            stack.enter_context(cleaned_up(functools.partial(_kill, process)))
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            _kill(process)
            process.wait()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
