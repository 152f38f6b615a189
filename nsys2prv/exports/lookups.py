"""What is small in a report and needed often (texts, names, labels): read once while the report is in use.

That of a thousand reports would need too much memory: what was used last is kept.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import polars as pl

from nsys2prv.exports.forms import Tables


class Opened(Protocol):
    """What lookups need of a report."""

    @property
    def tables(self) -> Tables: ...

    @property
    def all_rows(self) -> Any: ...


R = TypeVar("R", bound=Opened)
P = ParamSpec("P")
T = TypeVar("T")

_BYTES_OF_OTHERS = 50_000
"""Assumed size of results that are not frames: names of processes, of ranks, of GPUs."""


@dataclass
class _Entry:
    """One lookup of one report; the first thread that needs it reads it, under the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_read: bool = False
    value: Any = None


@dataclass
class _OfReport:
    """The lookups of one report, and about how many bytes they hold."""

    entries: dict[Hashable, _Entry] = field(default_factory=dict)
    bytes: int = 0


class Lookups:
    """Lookups of the reports that were used last, as many as fit in `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order of use.
        self._held: weakref.WeakKeyDictionary[Tables, _OfReport] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def reports(self) -> int:
        """Number of reports that have some."""
        return len(self._held)

    def get(self, tables: Tables, name: Hashable, read: Callable[[], T]) -> T:
        """The lookup of a name in an export; `read` makes it when it is not held."""
        with self._lock:
            of_report = self._held.pop(tables, None) or _OfReport()
            self._held[tables] = of_report
            entry = of_report.entries.setdefault(name, _Entry())
        # Not under the lock of all: others go on meanwhile, and a lookup may need other ones.
        with entry.lock:
            if not entry.is_read:
                value = read()
                entry.value, entry.is_read = value, True
                with self._lock:
                    of_report.bytes += int(value.estimated_size()) if isinstance(value, pl.DataFrame) else _BYTES_OF_OTHERS
                    self._make_room(tables)
        found: T = entry.value
        return found

    def _make_room(self, keep: Tables) -> None:
        total = sum(of_report.bytes for of_report in self._held.values())
        for tables, of_report in list(self._held.items()):
            if total <= self._most:
                break
            if tables is not keep:
                del self._held[tables]
                total -= of_report.bytes


LOOKUPS = Lookups(most=100_000_000)


def once(read: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """A function that reads something small of a report, and reads it once for the same arguments."""

    @functools.wraps(read)
    def held(report: R, *arguments: P.args, **named: P.kwargs) -> T:
        name = (read, arguments, tuple(sorted(named.items())))
        # Whatever view of the report asks: they share the result.
        return LOOKUPS.get(report.tables, name, lambda: read(report.all_rows, *arguments, **named))

    # What wraps does is more than its type says.
    return cast("Callable[Concatenate[R, P], T]", held)
