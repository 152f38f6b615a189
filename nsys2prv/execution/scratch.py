"""Temporary folders: no other user can open them, and they are removed also when the process is interrupted. When it is killed,
the next one that makes a temporary folder at the same place removes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from nsys2prv.execution.private_folders import left_by_dead, make_marked, make_private, missing_folders, new_name
from nsys2prv.execution.publishing import complete_or_take_back, holds_former

_paths: set[Path] = set()
_made: list[Path] = []
"""Folders for outputs that were made and may still be empty, outer ones first."""
_TRIES = 100
_leaving = threading.Event()


def remove_temporary() -> None:
    """Remove all temporary folders; for a process that ends at once."""
    _leaving.set()
    for path in tuple(_paths):
        # Other threads may still write there.
        for _ in range(_TRIES):
            _remove(path)
            if not os.path.lexists(path):
                break
    _remove_empty(_made)


def make_folder(folder: Path) -> None:
    """Make a folder for intermediate files, with its parents.

    Raises
    ------
    SystemExit
        When the process is about to end: a folder that another thread makes now would not be removed.
    """
    if _leaving.is_set():
        raise SystemExit
    # Each of them private, not only the first: another process may have removed all of them meanwhile.
    for missing in missing_folders(folder):
        make_private(missing, exist_ok=True)


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in another one, private to the user, that is removed with its contents when the block ends.

    What processes that were killed left in the other one is removed first.
    """
    _remove_left(parent)
    folder = parent / new_name()
    # Registered before it is made, so that it is removed whenever the process ends.
    _paths.add(folder)
    try:
        make_marked(folder)
        yield folder
    finally:
        _remove(folder)
        _paths.discard(folder)


@contextlib.contextmanager
def folder_for_outputs(folder: Path) -> Iterator[None]:
    """A folder, made with its parents where they are missing. Those that are empty when the block ends, or when the process is
    interrupted in it, are removed again."""
    missing = list(missing_folders(folder))
    _made.extend(missing)
    try:
        for one in missing:
            one.mkdir(exist_ok=True)
        yield
    finally:
        _remove_empty(missing)
        _made.clear()


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove_left(parent: Path) -> None:
    for left in left_by_dead(parent):
        # With the name of this process: others leave it alone, until this one is killed too.
        mine = parent / new_name()
        with contextlib.suppress(OSError):
            left.rename(mine)
            complete_or_take_back(mine)
            _remove(mine)


def _remove(folder: Path) -> None:
    if not holds_former(folder):
        shutil.rmtree(folder, ignore_errors=True)
