"""Values that many pieces of work need and that are too large to be sent with each of them."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any, Generic, TypeVar

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
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    def __reduce__(self) -> tuple[object, ...]:
        assert self._path is not None, "it has no file for other processes"
        return _shared_at, (self._path,)


# Of one translation at a time; a process that is reused for others keeps few of them.
@functools.lru_cache(maxsize=2)
def _shared_at(path: Path) -> Shared[Any]:
    shared: Shared[Any] = Shared(pickle.loads(path.read_bytes()))
    shared._path = path
    return shared
