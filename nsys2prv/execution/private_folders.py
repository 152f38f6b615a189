"""Folders for intermediate files: only the user can enter them, and their names say which process made them.

So it is known which of them a killed process left, without a file that it would have had to write.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import re
import secrets
import socket
import stat
from pathlib import Path

PREFIX = ".nsys2prv."
_NAME = re.compile(re.escape(PREFIX) + r"(?P<machine>[0-9a-f]{8})\.(?P<pid>[0-9]{1,9})\.(?P<started>[0-9]{1,19})\.[0-9a-f]{8}")
_MARK = "nsys2prv-temporary"
"""A file in each of these folders: no other folder is one of them, whatever its name is."""


def new_name() -> str:
    """Name of a folder that this process makes."""
    pid = os.getpid()
    return f"{PREFIX}{_machine()}.{pid}.{_started(pid)}.{secrets.token_hex(4)}"


def is_utf8(path: Path) -> bool:
    """Whether libraries that take paths for UTF-8 can open a path."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def make_private(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder that only the user can enter: reports may be confidential, and what workers exchange is executed."""
    folder.mkdir(0o700, exist_ok=exist_ok)
    # A umask may take rights from the user too.
    if folder.stat().st_mode & 0o700 != 0o700:
        folder.chmod(0o700)


def missing_folders(folder: Path) -> list[Path]:
    """A folder and those above it that are not there, the outermost first."""
    return list(itertools.takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))[::-1]


def make_with_parents(folder: Path) -> None:
    """Make a folder and those above it; `Path.mkdir` calls itself for each of them, and a path may have thousands."""
    for missing in missing_folders(folder):
        missing.mkdir(exist_ok=True)


def make_marked(folder: Path) -> None:
    """Make a folder of a `new_name`, private."""
    make_private(folder)
    (folder / _MARK).touch(0o600)


def left_by_dead(parent: Path) -> list[Path]:
    """Folders that processes of this user left in a folder when they were killed, on this machine since it was started."""
    try:
        named = [(entry, found) for entry in os.scandir(parent) if (found := _NAME.fullmatch(entry.name))]
        return [Path(entry.path) for entry, found in named if _is_ours(entry) and _is_dead(found)]
    except OSError:
        # Whether anything can be written there is found out by who writes.
        return []


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether this user made a folder, for intermediate files, and nobody else can have changed what is in it."""
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return False
        within = os.listdir(entry.path)
        return not within or _MARK in within
    except OSError:
        return False


def _is_dead(name: re.Match[str]) -> bool:
    if name["machine"] != _machine():
        return False
    pid, started = int(name["pid"]), int(name["started"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # Of another user by now.
        return True
    return _started(pid) != started


@functools.cache
def _machine() -> str:
    """What the numbers of processes belong to: a machine since it was started, or a container on it."""
    known = [socket.gethostname()]
    # Not on each system.
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _started(pid: int) -> int:
    """When a process was started, in ticks: its number may be that of another one later. 0 where this is not known or it has
    ended.
    """
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return 0
    # The 22nd field, after the number, the name and the state.
    return 0 if state in {"Z", "X"} else int(fields[18])
