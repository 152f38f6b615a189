"""How much memory the work may take: a cap that the user sets, else what is free. Sizes of pieces of work follow from it.

Sizes bound memory and change no result. What the system refuses nevertheless is in errors of libraries."""

import contextlib
import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from nsys2prv.errors import LittleAddressSpace, NoResources, UsageError

PIECE_ROWS = 60_000
"""Rows of a table that one thread holds at once."""
WIDE_PIECE_ROWS = 30_000
"""The same where a row takes much memory or becomes several events."""
ROWS_OF_PART = 75_000
"""Rows of a table for which one more thread reads it."""
REPORTS_AT_ONCE = 32
"""Reports in one piece of work at most: names of their processes and threads are all in memory."""

USUAL_BYTES, LEAST_BYTES = 400_000_000, 250_000_000
"""What a process takes at most of a long report, with sizes of pieces as they are declared, and with the smallest ones."""
_LARGEST_SHARE = 1.5
"""Larger pieces save hardly any time."""
FIRST_PROCESS_BYTES = 150_000_000
"""What the first process takes of a few reports while workers read them."""
_FIXED_BYTES = 200_000_000
"""What a process takes whatever the sizes are: libraries, and what is held of a report as a whole."""
_LOADED_BYTES = 100_000_000
"""What a process takes when all libraries are loaded."""
LEAST_ADDRESS_SPACE, _LEAST_OPEN_FILES = 1 << 31, 16
"""Bytes that a process may map, and files that it may have open, at least. Libraries map more than they use, for a small report
1.6 GB; with less, some end the process, print where they failed, or wait forever where they get no memory for a thread."""
in_force: list[int] = []
"""Bytes that this process may take, of all work that goes on in it; the least counts."""


def share() -> float:
    """Share of the usual sizes of pieces."""
    most = min(in_force, default=USUAL_BYTES)
    return min((most - _FIXED_BYTES) / (USUAL_BYTES - _FIXED_BYTES), _LARGEST_SHARE)


def scaled(size: int) -> int:
    """A size of a piece of work, in rows or bytes, as far as the memory allows it."""
    return max(round(size * share()), 1)


@contextlib.contextmanager
def limited(most: int) -> Iterator[None]:
    """Bytes that this process may take inside the block."""
    in_force.append(most)
    try:
        yield
    finally:
        in_force.remove(most)


def bytes_of_process(cap: int | None, workers: int) -> int:
    """Bytes that sizes of pieces are made for, in each of the processes that share the work.

    Parameters
    ----------
    cap
        Bytes that all processes may take together; None: what is free.
    workers
        Number of workers; 0: the first process does the work.

    Raises
    ------
    UsageError
        When the cap is too low for so many processes.
    """
    least = LEAST_BYTES * max(workers, 1) + (FIRST_PROCESS_BYTES if workers else 0)
    if cap is not None and cap < least:
        requested, needed = (f"{-(-size // 10**6)}MB" for size in (cap, least))
        who = f"{workers + 1} processes need" if workers else "one process needs"
        fewer = ", or fewer --workers" if workers else ""
        raise UsageError(f"--memory {requested}: {who} at least {needed}; give that{fewer}")
    return max((free() if cap is None else cap) // (workers + 1), LEAST_BYTES)


def left(cap: int | None, workers: int = 0) -> int:
    """Bytes that this process may still take, below a cap or of what is free, beside workers that keep what they took."""
    if cap is None:
        return free()
    of_workers = workers * bytes_of_process(cap, workers) if workers else 0
    return max(cap - _LOADED_BYTES - of_workers, 0)


def free(root: Path = Path("/")) -> int:
    """Bytes that this process and its children may still take: what is free, inside the limits of its control groups.

    `root` has the folders `proc` and `sys` of the system."""
    of_machine = [int(line.split()[1]) * 1024 for line in _lines(root / "proc/meminfo") if line.startswith("MemAvailable:")]
    rooms = [*of_machine, *_free_of_groups(root)]
    # Where the system does not say, there is enough.
    return max(min(rooms), 0) if rooms else USUAL_BYTES * (os.cpu_count() or 1)


def _free_of_groups(root: Path) -> Iterator[int]:
    """What is left below the limit of each control group that the process is in, of version 1 or 2."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        group = mount / path.lstrip("/")
        # Inside a container the path may be that outside of it.
        for folder in {mount, *(folder for folder in (group, *group.parents) if folder.is_relative_to(mount))}:
            numbers = [int(text) for name in names for text in _lines(folder / name) if text.isdecimal()]
            if len(numbers) == len(names):
                # Pages of files are given back when memory is needed.
                pages = dict(line.split()[:2] for line in _lines(folder / "memory.stat"))
                yield numbers[0] - numbers[1] + int(pages.get("total_inactive_file", pages.get("inactive_file", 0)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


_REFUSED = {
    # Of the driver of SQLite, for whatever keeps a database that is there from being opened.
    "memory or open files": "failed to allocate memory",
    "memory": "memoryerror|out of memory|cannot allocate memory|memory allocation|not enough memory|unable to allocate|"
    "malloc of size|failed to map segment",
    "open files": "too many open files",
    "threads or processes": "can't start new thread|failed to spawn thread|resource temporarily unavailable",
}
"""What SQLite, Arrow, polars, Python and the loader of libraries say, in lower case: not all pass on a number, or the same."""
_BYTES_ASKED_FOR = re.compile(r"(?:malloc|realloc) of size ([0-9]+)")
_MOST_BYTES = 2**44
"""Nobody needs so much at once: a damaged file asks for it."""


def check_limits() -> None:
    """Refuse to start where the libraries can't work.

    Raises
    ------
    NoResources
        When a limit of the process is too low (`ulimit -v`, `ulimit -d`: below `LEAST_ADDRESS_SPACE`; `ulimit -n`).
    """
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < _LEAST_OPEN_FILES:
        raise NoResources("open files")
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    least = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=LEAST_ADDRESS_SPACE)
    if least < LEAST_ADDRESS_SPACE:
        raise LittleAddressSpace(least, LEAST_ADDRESS_SPACE)


def resource_error_in(error: BaseException | None) -> NoResources | None:
    """What the system refused, when that is the reason of an error; None when it is another."""
    seen: set[int] = set()
    # An error can be a reason of itself.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, NoResources):
            return error
        text = f"{type(error).__name__}: {error}".lower()
        if any(int(size) > _MOST_BYTES for size in _BYTES_ASKED_FOR.findall(text)):
            return None
        refused = next((what for what, texts in _REFUSED.items() if re.search(texts, text)), None)
        if refused is not None:
            return NoResources(refused)
        error = error.__cause__ or error.__context__
    return None
