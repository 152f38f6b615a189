"""Files get their names together: all of them, or none. What they replace comes back when one of them can't be placed, also
when the process is killed meanwhile: then the next one that clears its folder takes it back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nsys2prv.errors import OutputError, OutputExists
from nsys2prv.execution.private_folders import make_private
from nsys2prv.execution.signals import uninterrupted

_JOURNAL = "publishing.json"
"""In the temporary folder until all files have their names: for each name, the file in the folder and its inode."""
_FORMER = "former"
"""Folder in it for what had the names."""
_SECONDS_FOR_OTHERS = 20.0
_SECONDS_BETWEEN_TRIES = 0.02
_published = threading.Event()
ANOTHER_PLACE = "another place with -o"


@dataclass(frozen=True)
class Staged:
    """Files and folders that are complete, in a temporary folder that lies beside the names that they get.

    Attributes
    ----------
    folder
        The temporary folder.
    names
        For each name, what gets it: a path in the folder, in the order in which they appear. None: what has the name goes.
    """

    folder: Path
    names: Mapping[str, str | None]

    @property
    def beside(self) -> Path:
        """The folder of the outputs."""
        return self.folder.parent


def publish(*stages: Staged, replace: bool = True, place: str = ANOTHER_PLACE) -> None:
    """Give files and folders their names.

    Ctrl-C and other signals have no effect meanwhile.

    Parameters
    ----------
    replace
        Replace what has one of the names.
    place
        What the error says to give instead.

    Raises
    ------
    OutputExists
        Without `replace`, when one of the names exists: another program may have made it meanwhile.
    OutputError
        When one of the files can't get its name, or what has it can't be moved; all is as it was then.
    """
    with contextlib.ExitStack() as stack:
        for beside in sorted({stage.beside for stage in stages}):
            stack.enter_context(_alone_in(beside))
        stack.enter_context(uninterrupted())
        targets = [stage.beside / name for stage in stages for name in stage.names]
        present = [target for target in targets if os.path.lexists(target)]
        if present and not replace:
            raise OutputExists(present[0])
        target = targets[0]
        try:
            for stage in stages:
                _write_journal(stage)
            for stage in stages:
                # What is only removed comes first: when the last file has its name, all is done.
                for name, staged in sorted(stage.names.items(), key=lambda one: one[1] is not None):
                    target = stage.beside / name
                    _move_in(stage.folder, name, staged)
        except OSError as error:
            kept = [stage.folder for stage in stages if not take_back(stage.folder)]
            where = f"; what was there before is in {kept[0] / _FORMER}" if kept else ""
            raise OutputError.not_writable(target, f"{error.strerror or error}{where}", place) from error
        for stage in stages:
            (stage.folder / _JOURNAL).unlink()
        _published.set()


def has_published() -> bool:
    """Whether this process has given files their names."""
    return _published.is_set()


def _write_journal(stage: Staged) -> None:
    placed = {
        name: None if staged is None else (staged, (stage.folder / staged).lstat().st_ino)
        for name, staged in stage.names.items()
    }
    unfinished = stage.folder / f"{_JOURNAL}.part"
    unfinished.write_text(json.dumps(placed))
    make_private(stage.folder / _FORMER)
    unfinished.rename(stage.folder / _JOURNAL)


def _move_in(folder: Path, name: str, staged: str | None) -> None:
    target = folder.parent / name
    if staged is not None and not (folder / staged).is_dir() and target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, "there is a folder of this name")
    if os.path.lexists(target):
        target.rename(folder / _FORMER / name)
    if staged is not None:
        (folder / staged).rename(target)


def complete_or_take_back(folder: Path) -> None:
    """What a process that was killed had begun to publish: it stays when all files have their names, else it is taken back."""
    journal = _read_journal(folder)
    if any((folder / entry[0]).exists() for entry in journal.values() if entry is not None):
        take_back(folder)
    elif journal:
        (folder / _JOURNAL).unlink()


def take_back(folder: Path) -> bool:
    """Undo what `publish` did with a temporary folder; False when something can't be undone: the folder must stay then."""
    done = True
    for name, entry in _read_journal(folder).items():
        target, former = folder.parent / name, folder / _FORMER / name
        try:
            if entry is not None and not (folder / entry[0]).exists() and _inode(target) == entry[1]:
                target.rename(folder / entry[0])
            if os.path.lexists(former):
                if os.path.lexists(target):
                    # Somebody put another file there meanwhile.
                    done = False
                else:
                    former.rename(target)
        except OSError:
            done = False
    if done:
        (folder / _JOURNAL).unlink(missing_ok=True)
    return done


def holds_former(folder: Path) -> bool:
    """Whether a temporary folder holds files that could not be brought back."""
    # A name that is too long is no error here.
    return os.path.lexists(folder / _JOURNAL)


def _read_journal(folder: Path) -> dict[str, tuple[str, int] | None]:
    try:
        content = json.loads((folder / _JOURNAL).read_text())
    except FileNotFoundError:
        return {}
    return {name: None if entry is None else (entry[0], entry[1]) for name, entry in content.items()}


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One program at a time gives names in a folder: files of two traces must not be mixed."""
    with contextlib.ExitStack() as stack:
        try:
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, number)
            until = time.monotonic() + _SECONDS_FOR_OTHERS
            while not _is_locked(number):
                if time.monotonic() > until:
                    raise OutputError.not_writable(folder, "another program keeps it locked", "another place, or try again")
                time.sleep(_SECONDS_BETWEEN_TRIES)
        except OSError:
            # A folder that can't be listed, or a file system without locks.
            pass
        yield


def _is_locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
