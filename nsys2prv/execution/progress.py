"""Progress of long work, on stderr."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tqdm import tqdm


class _Screen:
    """The error stream, as long as there is one: a bar that raises while it holds its lock would stop all others for good."""

    encoding = "utf-8"

    def __init__(self) -> None:
        # None when it was closed before the program started.
        self._stream = sys.stderr
        self.encoding = getattr(self._stream, "encoding", None) or self.encoding

    def write(self, text: str) -> int:
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        self._try("flush")

    def isatty(self) -> bool:
        return bool(self._try("isatty"))

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("there is no error stream")
        return self._stream.fileno()

    def _try(self, method: str, *arguments: str) -> object:
        with contextlib.suppress(OSError, ValueError):
            return None if self._stream is None else getattr(self._stream, method)(*arguments)
        # Nobody sees it any more.
        self._stream = None
        return None


def progress_bar(what: str, unit: str, total: float | None = None, *, shown: bool | None = None) -> tqdm[Any]:
    """A progress bar for work that takes longer than a moment; `shown` is None for: when stderr is a terminal."""
    disable = None if shown is None else not shown
    return tqdm(desc=what, total=total, unit=unit, unit_scale=True, disable=disable, file=_Screen(), leave=False, delay=0.5)


def no_progress(_done: int) -> None:
    """Progress that is not shown."""
