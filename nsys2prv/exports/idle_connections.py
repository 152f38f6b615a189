"""Connections to databases that are kept for the next query: SQLite reads the names of all tables for the first one of each."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_IDLE = 4
"""Connections of a kind that are kept: each has files open, and reports are opened one after the other."""


class IdleConnections(Generic[T]):
    """Connections of one kind."""

    def __init__(self) -> None:
        # In the order of use.
        self._idle: list[tuple[Hashable, T, ExitStack]] = []
        self._lock = threading.Lock()
        atexit.register(self.close)

    @contextlib.contextmanager
    def borrowed(self, key: Hashable, connect: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """A connection that nobody else uses meanwhile. After an error it is not used again.

        Parameters
        ----------
        key
            What it is a connection to; nothing else may have the same.
        connect
            Makes a new one.
        """
        connection, opened = self._taken(key) or self._new(connect)
        with contextlib.ExitStack() as on_error:
            on_error.push(opened)
            yield connection
            on_error.pop_all()
        with self._lock:
            self._idle.append((key, connection, opened))
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        _close(surplus)

    def close(self) -> None:
        """Close those that are kept."""
        with self._lock:
            kept, self._idle = self._idle, []
        _close(kept)

    def _taken(self, key: Hashable) -> tuple[T, ExitStack] | None:
        with self._lock:
            place = next((place for place, (known, *_) in enumerate(self._idle) if known == key), None)
            return None if place is None else self._idle.pop(place)[1:]

    @staticmethod
    def _new(connect: Callable[[], AbstractContextManager[T]]) -> tuple[T, ExitStack]:
        with contextlib.ExitStack() as opened:
            return opened.enter_context(connect()), opened.pop_all()


def _close(connections: list[tuple[Hashable, T, ExitStack]]) -> None:
    for *_, opened in connections:
        opened.close()
