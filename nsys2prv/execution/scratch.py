"""Temporary files and folders: no other user can open them, and they are removed also when the process is interrupted."""

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
    # Each of them private, not only the first: another process may have removed all of them meanwhile.
    if not folder.is_dir():
        make_folder(folder.parent)
        _make_private(folder, exist_ok=True)


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
    """A new folder, private to the user, that is removed with its contents when the block ends."""
    with temporary_path(folder):
        _make_private(folder)
        yield folder


def _make_private(folder: Path, *, exist_ok: bool = False) -> None:
    """Make a folder that only the user can enter: reports may be confidential, and what workers exchange is executed."""
    folder.mkdir(0o700, exist_ok=exist_ok)
    # A umask may take rights from the user too.
    if folder.stat().st_mode & 0o700 != 0o700:
        folder.chmod(0o700)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
