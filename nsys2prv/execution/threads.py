"""Work on threads of this process. The expensive steps are those of polars and Arrow, which release the interpreter lock."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from nsys2prv.execution import memory

S = TypeVar("S")
T = TypeVar("T")

WORKERS = 2
"""Pieces of work at once, where memory allows it; more would hold more memory than they save time."""


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


def run_all(work: Iterable[Callable[[Stop], T]], workers: int = WORKERS) -> list[T]:
    """Results of pieces of work, in the order of the pieces.

    The first error of a piece ends the others and is raised.
    """
    stop = Stop()
    with ThreadPoolExecutor(memory.threads(workers)) as pool:
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


def map_ahead(function: Callable[[S], T], items: Iterable[S], workers: int = WORKERS) -> Iterator[T]:
    """Results of a function for each item, in order, computed on other threads while earlier results are in use."""
    waiting: collections.deque[Future[T]] = collections.deque()
    workers = memory.threads(workers)
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                # One more than there are workers, so that no worker waits while a result is in use.
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, in order, each computed on another thread while the one before is in use."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming: Future[T | object] = pool.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, source, end)
            yield item  # type: ignore[misc]
