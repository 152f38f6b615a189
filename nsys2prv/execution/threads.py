"""Work on threads of this process. The expensive steps are those of polars and Arrow, which release the interpreter lock."""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from nsys2prv.execution import memory

S = TypeVar("S")
T = TypeVar("T")

_AT_ONCE = 2
"""Pieces of work at once, where memory and cores allow it; more would hold more memory than they save time."""


def at_once() -> int:
    """Number of pieces of work that run at once; one, where polars may use one core, or memory is short."""
    # Read, not asked of polars, which takes long to load.
    cores = os.environ.get("POLARS_MAX_THREADS") or os.cpu_count() or 1
    return memory.threads(_AT_ONCE) if str(cores) != "1" else 1


class Stopped(BaseException):
    """Raised in work that is no longer needed, because other work failed or the user interrupted."""


class Stop:
    """Asks work on other threads to end: long work calls `check` from time to time."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Request the end of the work."""
        self._event.set()

    def check(self) -> None:
        """Raises `Stopped` when the end was requested."""
        if self._event.is_set():
            raise Stopped


def run_all(work: Iterable[Callable[[Stop], T]], threads: int | None = None) -> list[T]:
    """Results of pieces of work, in the order of the pieces; on as many threads as `at_once` says, if no number is given.

    The first error of a piece ends the others and is raised.
    """
    stop, threads = Stop(), threads or at_once()
    if threads == 1:
        return [piece(stop) for piece in work]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(piece, stop) for piece in work]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((future for future in futures if future in done and future.exception() is not None), None)
            if failed is not None:
                failed.result()
            return [future.result() for future in futures]
        finally:
            stop.set()
            for future in futures:
                future.cancel()


def map_ahead(function: Callable[[S], T], items: Iterable[S], most: int = _AT_ONCE, *, beyond: int = 1) -> Iterator[T]:
    """Results of a function for each item, in order, computed on other threads while earlier results are in use: on as many
    as `at_once` says, and at most `most`. Where that is one thread for all work, results are computed when they are needed.

    So many items more (`beyond`) are begun or done, so that no thread waits while a result is in use; 2 where the next item
    takes long to get, too.
    """
    if at_once() == 1:
        yield from map(function, items)
        return
    waiting: collections.deque[Future[T]] = collections.deque()
    threads = min(at_once(), most)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= threads + beyond:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, in order, each computed on another thread while the one before is in use, where `at_once` allows it."""
    if at_once() == 1:
        yield from items
        return
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming: Future[T | object] = pool.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, source, end)
            yield item  # type: ignore[misc]
