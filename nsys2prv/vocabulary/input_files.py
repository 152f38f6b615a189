"""Files that are read as a whole or in blocks: ordinary ones, of a bounded size. A pipe or a device may never end."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from nsys2prv.vocabulary import wording

_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "a folder"),
    (stat.S_ISFIFO, errno.ESPIPE, "a named pipe"),
    (stat.S_ISSOCK, errno.ESPIPE, "a socket"),
    (stat.S_ISCHR, errno.ESPIPE, "a device"),
    (stat.S_ISBLK, errno.ESPIPE, "a device"),
)

_OF_SHELL = Path("/dev/fd")
"""What a shell gives for `<(command)`: a pipe that ends with the command."""


def check_ordinary(path: Path, most: int | None = None) -> None:
    """Check that a path is that of a file that can be read to its end, of `most` bytes where given.

    Raises
    ------
    OSError
        When it is something else, or there is none; `strerror` says what.
    """
    if path.parent == _OF_SHELL:
        return
    status = path.stat()
    for is_kind, number, name in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(number, f"it is {name}, not a file")
    if most is not None and status.st_size > most:
        raise OSError(errno.EFBIG, f"it has {wording.size(status.st_size)}, and at most {wording.size(most)} are read")


def read_ordinary(path: Path, most: int) -> bytes:
    """Content of a file of at most so many bytes; raises OSError as `check_ordinary`."""
    check_ordinary(path, most)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {wording.size(most)}")
    return content
