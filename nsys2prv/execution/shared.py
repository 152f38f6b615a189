"""Values that many pieces of work need and that are too large to be sent with each of them.

They are pickled, and who writes a pickle decides what is executed when it is read: nobody else may be able to.
"""

from __future__ import annotations

import functools
import os
import pickle
import stat
from pathlib import Path
from typing import Any, Generic, TypeVar

from nsys2prv.errors import NotPrivate
from nsys2prv.execution.scratch import make_folder

T = TypeVar("T")


class Shared(Generic[T]):
    """A value for all pieces of work: in this process the object, in other processes read once from a file.

    Parameters
    ----------
    value
        The value; it must not be changed.
    path
        File for other processes, on a disk that they see; None when the work stays in this process.
    """

    def __init__(self, value: T, path: Path | None = None) -> None:
        self.value = value
        self._path = path
        if path is not None:
            make_folder(path.parent)
            with open(path, "xb", opener=_only_for_user) as file:
                pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[object, ...]:
        assert self._path is not None, "it has no file for other processes"
        return _shared_at, (self._path,)


# Of one translation at a time; a process that is reused for others keeps few of them.
@functools.lru_cache(maxsize=2)
def _shared_at(path: Path) -> Shared[Any]:
    with path.open("rb") as file:
        # The open file, which nobody can replace after it was looked at.
        for place, status in ((path, os.fstat(file.fileno())), (path.parent, path.parent.stat())):
            if status.st_uid != os.geteuid():
                raise NotPrivate(place, "it belongs to another user")
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise NotPrivate(place, "other users can write to it")
        shared: Shared[Any] = Shared(pickle.load(file))
    shared._path = path
    return shared


def _only_for_user(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
