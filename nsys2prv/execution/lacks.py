"""What the system refuses: errors of libraries that mean a lack of memory, threads or open files, and nothing about a file."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from nsys2prv.errors import NoResources

_BY_NUMBER = {
    errno.ENOMEM: "memory",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.EAGAIN: "threads or processes",
}
_BY_TEXT = {
    "out of memory": "memory",
    "cannot allocate memory": "memory",
    "memory allocation": "memory",
    "not enough memory": "memory",
    "unable to allocate": "memory",
    # Of the driver of SQLite, for whatever keeps a database that is there from being opened.
    "failed to allocate memory": "memory or open files",
    "malloc of size": "memory",
    "failed to map segment": "memory",
    "too many open files": "open files",
    "can't start new thread": "threads",
    "failed to spawn thread": "threads",
    "resource temporarily unavailable": "threads or processes",
}
"""What SQLite, Arrow, polars, Python and the loader of libraries say, in lower case: they do not always pass on a number."""
_BYTES_ASKED_FOR = re.compile(r"(?:malloc|realloc) of size ([0-9]+)")
_MOST_BYTES = 2**44
"""Nobody needs so much at once: a damaged file asks for it."""


def lack_in(error: BaseException) -> NoResources | None:
    """What the system refused, when that is the reason of an error; None when it is another."""
    for one in _reasons(error):
        if isinstance(one, NoResources):
            return one
        if any(int(asked) > _MOST_BYTES for asked in _BYTES_ASKED_FOR.findall(str(one))):
            return None
        if isinstance(one, MemoryError):
            return NoResources("memory")
        # Some libraries have other numbers in this place.
        number = one.errno if isinstance(one, OSError) else None
        what = _BY_NUMBER.get(number or 0)
        what = what or next((lack for text, lack in _BY_TEXT.items() if text in str(one).lower()), None)
        if what is not None:
            return NoResources(what)
    return None


def _reasons(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__
