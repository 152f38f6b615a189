"""Files and folders that are there only while something is made: taken away also when the process is told to end."""

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
    """Remove all of them; for a process that ends at once."""
    _leaving.set()
    for path in tuple(_paths):
        # Other threads may still write there.
        for _ in range(_TRIES):
            _remove(path)
            if not path.exists():
                break


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it is in, for intermediate files.

    Raises
    ------
    SystemExit
        When the process is about to end: what another thread makes anew would stay behind.
    """
    if _leaving.is_set():
        raise SystemExit
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """A path for something that is moved elsewhere, or removed, before the block ends."""
    # Known before it is made: an end at any moment finds it and takes it away.
    _paths.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _paths.discard(path)


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """A new folder that is removed with all that is in it when the block ends."""
    with temporary_path(folder):
        folder.mkdir()
        yield folder


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
