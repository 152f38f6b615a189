"""Temporary files and folders: they are removed also when the process is interrupted."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

_paths: set[Path] = set()
_TRIES = 100
_leaving = threading.Event()


def remove_temporary() -> None:
    """Remove all temporary files; for a process that ends at once."""
    _leaving.set()
    for path in tuple(_paths):
        # Other threads may still write there.
        for _ in range(_TRIES):
            _remove(path)
            if not path.exists():
                break


def make_folder(folder: Path) -> None:
    """Make a folder for intermediate files, with its parents.

    Raises
    ------
    SystemExit
        When the process is about to end: a folder that another thread makes now would not be removed.
    """
    if _leaving.is_set():
        raise SystemExit
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """A path that is moved elsewhere or removed when the block ends."""
    # Registered before it is made, so that it is removed whenever the process ends.
    _paths.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _paths.discard(path)


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """A new folder that is removed with its contents when the block ends."""
    with temporary_path(folder):
        folder.mkdir()
        yield folder


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
