"""Limits of what is read: above them a report would take memory or time without end, and no real run comes near."""

import errno
import stat
from pathlib import Path

from nsys2prv.vocabulary import wording

MOST_RANKS = 1_000_000
"""Ranks of a run; of larger runs, missing ranks are not listed."""
MOST_DIGITS = 18
"""Digits of a number in a text of a report or in an option: more don't fit into 64 bits."""
LONGEST_NS = 1 << 60
"""Longest time in an option, ns: 36 years. It can be added to any time in 64 bits."""
MOST_WORKERS = 10_000
"""Processes on one machine that share the work."""
EARLIEST_NS = -(1 << 62)
"""Times before it, ns, could not be moved to another time axis in 64 bits."""
MOST_PAYLOAD_FIELDS = 10_000
"""Fields of a schema of NVTX payloads, with those of schemas inside it."""
LARGEST_EXACT = 1 << 53
"""Values beyond it, and below its negative, lose digits in the doubles that views compute with: traces have none."""
LONGEST_SESSION_NS = 1 << 53
"""From the first event of a report to the last, ns: 104 days."""
MOST_TABLES = 5_000
"""Tables of a report; nsys has some two hundred."""
MOST_COLUMNS = 2_000
"""Columns of a table."""
LONGEST_NAME = 1_000
"""Characters of the name of a table."""
LONGEST_TEXT = 16 << 20
"""Bytes of one text, or of what else is in one place of a table."""
MOST_TEXT, MOST_TEXT_PER_BYTE = 256_000_000, 100
"""Bytes of the texts of a table in a compressed file, which many rows can share: so many, and so many for each byte."""
MOST_ROWS, MOST_ROWS_PER_BYTE = 1_000_000, 100
"""Rows of a table in a compressed file: so many, and so many for each byte."""
MOST_ROWS_OF_REPORT = 65_535
"""Threads, streams, devices and parts of the node that have events in one report: as many as Paraver takes in all."""
MOST_DEVICES = 4_096
"""Devices with events in one report, by their CUDA numbers."""


def whole_number(text: str | None) -> int | None:
    """The number that a text of a report is; None for other texts, and for what does not fit into 64 bits.

    >>> whole_number(" 12 "), whole_number("²"), whole_number("9" * 5000)
    (12, None, None)
    """
    digits = (text or "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS else None


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_ordinary(path: Path, most: int | None = None) -> None:
    """Check that a path is that of a file that can be read to its end, of `most` bytes where given.

    Raises
    ------
    OSError
        When it is something else, or there is none; `strerror` says what.
    """
    # What a shell gives for `<(command)`: a pipe that ends with the command.
    if path.parent == Path("/dev/fd"):
        return
    status = path.stat()
    if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")
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
