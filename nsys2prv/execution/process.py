"""This process: work on its threads, and what is cleaned up when a signal ends it.

The expensive steps of work on threads are those of polars, Arrow and zlib, which release Python's lock."""

import collections
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import TypeVar

from nsys2prv.execution import memory

S = TypeVar("S")
T = TypeVar("T")
F = TypeVar("F")

_MOST_THREADS = 2
"""Pieces of work at once, where memory and cores allow it; more would hold more memory than they save time."""
_SHARE_OF_ALL_THREADS = 0.6
"""Share of the usual sizes of pieces below which one thread works at a time."""


def cores() -> int:
    """Cores that this process may use: in a job, those of the job."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def max_threads() -> int:
    """Number of pieces of work that run at once; one, where polars may use one core, or memory is short."""
    # Read, not asked of polars, which takes long to load.
    threads = os.environ.get("POLARS_MAX_THREADS") or cores()
    return _MOST_THREADS if str(threads) != "1" and memory.share() >= _SHARE_OF_ALL_THREADS else 1


class Stopped(BaseException):
    """Raised in work that is no longer needed, because other work failed or the user interrupted."""


class Stop(threading.Event):
    """Asks work on other threads to end when it is set: long work calls `check` from time to time."""

    def check(self) -> None:
        """Raises `Stopped` when the end was requested."""
        if self.is_set():
            raise Stopped


def run_all(work: Iterable[Callable[[Stop], T]]) -> list[T]:
    """Results of pieces of work, in the order of the pieces; on as many threads as `max_threads` says.

    The first error of a piece ends the others and is raised."""
    stop, threads = Stop(), max_threads()
    if threads == 1:
        return [piece(stop) for piece in work]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(piece, stop) for piece in work]
        try:
            ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future in ended and future.exception() is not None]
            return [future.result() for future in (*failed[:1], *futures)]
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def in_order(submit: Callable[[S], F], result: Callable[[F], T], arguments: Iterable[S], waiting: int) -> Iterator[T]:
    """Results of work on each argument, in order, of which so many pieces are submitted ahead of the result in use."""
    futures: collections.deque[F] = collections.deque()
    for argument in arguments:
        futures.append(submit(argument))
        if len(futures) > waiting:
            yield result(futures.popleft())
    while futures:
        yield result(futures.popleft())


def map_ahead(function: Callable[[S], T], arguments: Iterable[S]) -> Iterator[T]:
    """Results of a function for each argument, in order, computed on other threads while earlier results are in use: on as many
    as `max_threads` says. Where that is one thread for all work, results are computed when they are needed."""
    threads = max_threads()
    if threads == 1:
        yield from map(function, arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            # One more than there are threads, so that none waits while a result is in use.
            yield from in_order(lambda argument: pool.submit(function, argument), Future.result, arguments, threads)
        finally:
            pool.shutdown(cancel_futures=True)


_NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM")
ENDING_SIGNALS = tuple(signal.Signals[name] for name in _NAMES)
"""What a terminal, another program, or a batch system sends to a program that is to end."""
_cleanups: list[Callable[[], object]] = []
published = threading.Event()
"""Set when files got their names: what was written before a signal is complete."""


@contextlib.contextmanager
def cleaned_up(function: Callable[[], object]) -> Iterator[None]:
    """Have a function called at the end of the block, also when a signal ends the process in it; if meanwhile, twice."""
    with contextlib.ExitStack() as stack:
        _cleanups.append(function)
        stack.callback(_cleanups.remove, function)
        stack.callback(function)
        yield


def clean_up() -> None:
    """Clean up all blocks of `cleaned_up`, the innermost first; for a process that ends at once."""
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
    """Signals that come in the block have their effect after it; processes that it starts hold those of `by_processes`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # None: set by another language, which can't be set again.
    caught = [number for number in ENDING_SIGNALS if signal.getsignal(number) not in (None, signal.SIG_IGN)]
    handlers = {number: signal.signal(number, lambda number, _: came.append(number)) for number in caught}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, by_processes)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
