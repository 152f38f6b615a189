"""Work on threads of this process. The heavy steps are those of polars and Arrow, which leave the interpreter free."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

WORKERS = max(2, min(4, os.cpu_count() or 2))
"""Pieces of work at once: more would hold more memory than they save time."""


class Stopped(BaseException):
    """Raised in work that is no longer wanted, because other work failed or the user interrupted."""


class Stop:
    """Asks work on other threads to end: long work calls `check` from time to time."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """No more work is wanted."""
        self._event.set()

    def check(self) -> None:
        """Raises `Stopped` when no more work is wanted."""
        if self._event.is_set():
            raise Stopped

    def is_set(self) -> bool:
        """Whether no more work is wanted."""
        return self._event.is_set()


def run_all(work: Iterable[Callable[[Stop], T]], workers: int = WORKERS) -> list[T]:
    """Results of pieces of work, in the order of the pieces.

    The first error of a piece ends the others and is raised.
    """
    stop = Stop()
    with ThreadPoolExecutor(workers) as pool:
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


def ahead(items: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same items, each made on another thread while the one before is in use; at most `depth` of them wait."""
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(depth)
    stop = Stop()

    def put(entry: tuple[bool, T | BaseException | None]) -> None:
        while not stop.is_set():
            try:
                ready.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return

    def make() -> None:
        try:
            for item in items:
                put((True, item))
                if stop.is_set():
                    return
            put((False, None))
        except BaseException as error:
            put((False, error))

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    try:
        while True:
            is_item, entry = ready.get()
            if not is_item:
                if entry is not None:
                    raise entry  # type: ignore[misc]
                return
            yield entry  # type: ignore[misc]
    finally:
        stop.set()
        maker.join()
