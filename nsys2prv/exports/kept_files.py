"""Files that no output replaces, whatever the user forces: what a command reads, and reports."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from nsys2prv.errors import KeptFile
from nsys2prv.exports.find import FILE_SUFFIXES, TRACE_SUFFIXES
from nsys2prv.exports.folder_forms import ArrowTables, ParquetTables
from nsys2prv.exports.sqlite_form import SQLITE_START

_SUFFIXES = (*FILE_SUFFIXES, *ParquetTables.suffixes, *ArrowTables.suffixes)
_STARTS = (SQLITE_START, b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
"""First bytes of databases, and of tables in Parquet, Arrow's file format and its stream format."""


def check_kept(outputs: Iterable[Path], inputs: Iterable[str | Path] = ()) -> None:
    """Check before long work that outputs replace nothing that must stay.

    Parameters
    ----------
    outputs
        Files that are written, and folders that are replaced with all that is in them.
    inputs
        Files and folders that the command reads. Reports in folders and globs need not be listed one by one: a report is
        kept whether or not it is read.

    Raises
    ------
    KeptFile
        When there is an input, a report, or something else than a file, such as a device.
    """
    read = {identity for given in inputs if (identity := _identity(Path(given))) is not None}
    for output in outputs:
        if os.path.isdir(output):
            _check_folder(output, read)
        else:
            _check_file(output, read)


def _check_file(path: Path, read: set[tuple[int, int]]) -> None:
    try:
        status = path.stat()
    except OSError:
        # Whether it can be written there is found out by who writes.
        return
    if not stat.S_ISREG(status.st_mode):
        raise KeptFile(path, "this is no ordinary file")
    if (status.st_dev, status.st_ino) in read:
        raise KeptFile(path, "this command reads it")
    if _is_report(path):
        raise KeptFile(path, "this is a report, or a table of one")


def _check_folder(folder: Path, read: set[tuple[int, int]]) -> None:
    if _identity(folder) in read:
        raise KeptFile(folder, "this command reads it")
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if _identity(path) in read:
                raise KeptFile(folder, f"it contains {path}, which this command reads")
            if name in files and (name.endswith(TRACE_SUFFIXES) or _is_report(path)):
                raise KeptFile(folder, f"it contains a report or a trace, {path}")


def _identity(path: Path) -> tuple[int, int] | None:
    """What is the same for all names of a file; None when there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _is_report(path: Path) -> bool:
    if path.suffix in _SUFFIXES:
        return True
    try:
        # Not of a pipe, which would not answer.
        if not os.path.isfile(path):
            return False
        with path.open("rb") as file:
            return file.read(16).startswith(_STARTS)
    except OSError:
        return False
