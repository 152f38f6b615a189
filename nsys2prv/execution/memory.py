"""How much memory the work may take: a cap that the user sets, else what is free. Sizes of pieces of work follow from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nsys2prv.errors import LittleAddressSpace, MemoryCapReached, UsageError

USUAL_BYTES = 400_000_000
"""What a process takes at most of a long report, with sizes of pieces as they are declared."""
LEAST_BYTES = 250_000_000
"""The same with the smallest ones."""
FIRST_PROCESS_BYTES = 150_000_000
"""What the first process takes of a few reports while workers read them."""
_FIXED_BYTES = 200_000_000
"""What a process takes whatever the sizes are: libraries, and what is held of a report as a whole."""
_SMALLEST_SHARE = 0.2
_SHARE_OF_ALL_THREADS = 0.6
"""Share of the usual sizes below which one thread works at a time."""
_TOLERANCE = 1.2
"""How far memory may exceed a cap before the work ends."""
LEAST_ADDRESS_SPACE = 1 << 30
"""Bytes that a process may map at least. Libraries map more than they use; below this, some end the process, or wait forever,
where they get no memory for a thread.
"""
AMPLE_BYTES = 1_200_000_000
"""What a process may take at least for pieces of more than the usual sizes, where these save time (`ample`)."""
_LOADED_BYTES = 100_000_000
"""What a process takes when all libraries are loaded: what it holds beyond that at the start is not of this work."""


@dataclass(frozen=True)
class Allotment:
    """What one process may take: share of the usual sizes (at most 1), bytes above which it ends (None: never), and whether it
    may well take more than is usual."""

    share: float
    most: int | None = None
    is_ample: bool = False


USUAL = Allotment(1.0)
_OF_ALLOCATOR = {
    # Bytes that are kept at the end of the heap when they are free.
    "MALLOC_TRIM_THRESHOLD_": (-1, 64 << 20),
    # Bytes above which an array gets separate pages, which go back to the system as soon as it is free.
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20),
    # Heaps: in one of them all threads find what another one has freed.
    "MALLOC_ARENA_MAX": (-8, 1),
}
"""Settings of the allocator of the GNU C library, by the variables with which a user sets them: number for mallopt, value."""
_in_force: list[Allotment] = []
"""Of all work that goes on in this process; the strictest counts."""


def share() -> float:
    """Share of the usual sizes of pieces, at most 1."""
    return min((one.share for one in _in_force), default=1.0)


def scaled(size: int) -> int:
    """A size of a piece of work, in rows or bytes, as far as the memory allows it."""
    return max(round(size * share()), 1)


def ample(usual: int, large: int) -> int:
    """A size of a piece of work: the large one where memory is ample."""
    return large if _in_force and all(one.is_ample for one in _in_force) else usual


def threads(count: int) -> int:
    """Number of threads that work at once, as far as the memory allows it."""
    return count if share() >= _SHARE_OF_ALL_THREADS else 1


def keep_freed() -> None:
    """Have this process keep memory that is freed for the next piece of work: each page that goes back to the system is
    cleared before it is used again, which takes as long as to fill it. Other C libraries than that of GNU do as they do.
    """
    # Not loaded to print the version.
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for variable, (setting, value) in _OF_ALLOCATOR.items():
            if variable not in os.environ:
                mallopt(setting, value)


def check_address_space() -> None:
    """Refuse to start where the libraries can't work.

    Raises
    ------
    LittleAddressSpace
        When a limit of the process (`ulimit -v`, `ulimit -d`) is below `LEAST_ADDRESS_SPACE`.
    """
    # Not loaded to print the version.
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    least = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=LEAST_ADDRESS_SPACE)
    if least < LEAST_ADDRESS_SPACE:
        raise LittleAddressSpace(least, LEAST_ADDRESS_SPACE)


@contextlib.contextmanager
def limited(allotment: Allotment) -> Iterator[None]:
    """What this process may take inside the block."""
    most = None if allotment.most is None else allotment.most + max(_resident() - _LOADED_BYTES, 0)
    own = replace(allotment, most=most)
    _in_force.append(own)
    try:
        yield
    finally:
        _in_force.remove(own)


def limit_process(allotment: Allotment) -> None:
    """What this process may take from now on."""
    _in_force.append(allotment)


def check() -> None:
    """End the work where this process takes more than it may, by more than the tolerance.

    Raises
    ------
    MemoryCapReached
        When it does.
    """
    most = min((one.most for one in _in_force if one.most is not None), default=None)
    if most is not None and (taken := _resident()) > most * _TOLERANCE:
        raise MemoryCapReached(most, taken)


def allotments(memory: int | None, workers: int) -> tuple[Allotment, Allotment]:
    """What the first process and each of the workers may take.

    Parameters
    ----------
    memory
        Bytes that all processes may take together; None: what is free, without an end of the work above it.
    workers
        Number of workers; 0: the first process does the work.

    Raises
    ------
    UsageError
        When the cap is too low for so many processes.
    """
    whole = free() if memory is None else memory
    first = FIRST_PROCESS_BYTES if workers else 0
    least = first + LEAST_BYTES * max(workers, 1)
    if memory is not None and memory < least:
        who = f"{workers + 1} processes need" if workers else "one process needs"
        fewer = ", or fewer --workers" if workers else ""
        raise UsageError(f"--memory {in_megabytes(memory)}: {who} at least {in_megabytes(least)}; give that{fewer}")
    # As much for the first process as for the others, as far as these can work then.
    of_first = max(min(whole // (workers + 1), whole - LEAST_BYTES * workers), first)
    of_each = (whole - of_first) // workers if workers else of_first
    share_of_each = (of_each - _FIXED_BYTES) / (USUAL_BYTES - _FIXED_BYTES)
    of_usual = min(max(share_of_each, _SMALLEST_SHARE), 1.0)
    is_ample = of_each >= AMPLE_BYTES
    if memory is None:
        return Allotment(of_usual, is_ample=is_ample), Allotment(of_usual, is_ample=is_ample)
    return Allotment(of_usual, of_first, is_ample), Allotment(of_usual, of_each, is_ample)


def in_megabytes(size: int) -> str:
    """A number of bytes as `--memory` takes it."""
    return f"{-(-size // 10**6)}MB"


def left() -> int:
    """Bytes that this process may still take: what a cap leaves, else what is free."""
    most = min((allotment.most for allotment in _in_force if allotment.most is not None), default=None)
    return free() if most is None else max(most - _resident(), 0)


def free(root: Path = Path("/")) -> int:
    """Bytes that this process and its children may still take: what is free, inside the limits of its control groups.

    `root` has the folders `proc` and `sys` of the system.
    """
    found = [*_free_of_machine(root / "proc/meminfo"), *_free_of_groups(root)]
    # Where the system does not say, there is enough.
    return max(min(found), 0) if found else USUAL_BYTES * (os.cpu_count() or 1)


def _free_of_machine(meminfo: Path) -> Iterator[int]:
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _free_of_groups(root: Path) -> Iterator[int]:
    """What is left below the limit of each control group that the process is in, of version 1 or 2."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        is_first = controllers == "memory"
        mount = root / "sys/fs/cgroup" / controllers
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_first else ("memory.max", "memory.current")
        group = mount / path.lstrip("/")
        # Inside a container the path may be that outside of it.
        for folder in (group, *group.parents) if group.is_relative_to(mount) else (mount,):
            numbers = [int(text) for name in names for text in _lines(folder / name) if text.isdecimal()]
            if len(numbers) == len(names):
                # Pages of files are given back when memory is needed.
                yield numbers[0] - numbers[1] + _pages_of_files(folder / "memory.stat")
            if folder == mount:
                break


def _pages_of_files(statistics: Path) -> int:
    found = dict(line.split()[:2] for line in _lines(statistics))
    return int(found.get("total_inactive_file", found.get("inactive_file", 0)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _resident() -> int:
    """Resident memory of this process, bytes; 0 where the system does not say."""
    pages = _lines(Path("/proc/self/statm"))
    return int(pages[0].split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
