"""Files of a trace: staged in a temporary folder until all of them are complete. Disk errors become errors for the user."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa

from nsys2prv.errors import DiskFull, OutputError, OutputExists
from nsys2prv.execution.lacks import lack_in
from nsys2prv.execution.private_folders import is_utf8
from nsys2prv.execution.publishing import ANOTHER_PLACE
from nsys2prv.execution.scratch import temporary_folder

VIEWS = ".cfgs"
"""Suffix of the folder of views."""
_SCRATCH = "another place with --scratch"
SUFFIXES = (".prv", ".prv.gz", ".pcf", ".row", ".json", VIEWS)
"""Files of a trace, and its folder of views."""


def final_paths(base: Path, *, force: bool) -> dict[str, Path]:
    """Path of each file of a trace, by suffix.

    Raises OutputExists when one of them exists, unless `force`; OutputError when one of them is a folder, or the folder of
    views is a file.
    """
    if base.name in {"", ".."}:
        raise OutputError.not_writable(base, "this is the name of a folder", "a name for the files")
    final = {suffix: base.with_name(base.name + suffix) for suffix in SUFFIXES}
    with output_errors(base):
        if base.exists() and not base.is_file() and not base.is_dir():
            raise OutputError.not_writable(base, "this is no ordinary file", "a name for the files")
        present = [path for path in final.values() if _is_there(path)]
        folders = [path for suffix, path in final.items() if path.is_dir() and suffix != VIEWS]
        if folders:
            raise OutputError.not_writable(folders[0], "there is a folder of this name")
        if final[VIEWS].exists() and not final[VIEWS].is_dir():
            raise OutputError.not_writable(final[VIEWS], "there is a file of this name")
    if present and not force:
        raise OutputExists(present[0])
    return final


def _is_there(path: Path) -> bool:
    """Whether there is something of a name, be it a link that leads nowhere; OSError when no file can have it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextlib.contextmanager
def output_errors(path: Path, place: str = ANOTHER_PLACE) -> Iterator[None]:
    """Raise what is wrong with a path as an error of the output."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise lack_in(error) or OutputError.not_writable(path, why, place) from error


def without_suffix(out: Path) -> Path:
    for suffix in (".prv.gz", ".prv"):
        if out.name.endswith(suffix) and out.name != suffix:
            return out.with_name(out.name.removesuffix(suffix))
    return out


@contextlib.contextmanager
def staging_folder(base: Path) -> Iterator[Path]:
    """A folder beside the output where files are made; write errors in it are raised as errors of the output."""
    try:
        # Absolute, as all folders of intermediate files: polars would take a name that starts with ~ for a user's home.
        with temporary_folder(_utf8(base.parent)) as folder:
            yield folder
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise _disk_error(error, base) from error


@contextlib.contextmanager
def scratch_folder(requested: Path | None, staging: Path) -> Iterator[Path]:
    """A folder for intermediate files: in the requested folder, else in the staging folder."""
    if requested is None:
        yield staging / "runs"
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder(_utf8(requested)))
        except OSError as error:
            raise OutputError.not_writable(requested, error.strerror or str(error), _SCRATCH) from error
        yield folder


@contextlib.contextmanager
def scratch_alone(requested: Path | None) -> Iterator[Path]:
    """A folder for intermediate files of work without an output folder.

    It is made in the requested folder, else in the temporary folder of the system.
    """
    with contextlib.ExitStack() as stack:
        parent = requested or Path("temporary folder")
        try:
            parent = _utf8(requested or Path(tempfile.gettempdir()))
            folder = stack.enter_context(temporary_folder(parent))
        except OSError as error:
            raise OutputError.not_writable(parent, error.strerror or str(error), _SCRATCH) from error
        stack.enter_context(full_disk_named(parent))
        yield folder


def _utf8(parent: Path) -> Path:
    """The absolute path of a folder; OSError when libraries could not open files in it."""
    path = parent.absolute()
    if not is_utf8(path):
        raise OSError(errno.EILSEQ, "its path is not UTF-8", str(path))
    return path


@contextlib.contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Raise `DiskFull` when there is no space left for intermediate files in a folder."""
    try:
        yield
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        if _is_full(error):
            raise DiskFull(folder, has_output=False) from error
        raise


def _disk_error(error: BaseException, base: Path) -> Exception:
    if _is_full(error):
        return DiskFull(base)
    if (lack := lack_in(error)) is not None:
        return lack
    if isinstance(error, OSError):
        return OutputError.not_writable(base, error.strerror or str(error))
    return error if isinstance(error, Exception) else RuntimeError(str(error))


def _is_full(error: BaseException) -> bool:
    # Polars and Arrow do not always pass on the error number, but they pass on its text.
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return getattr(error, "errno", None) in full or any(os.strerror(one) in str(error) for one in full)
