"""Where the files of a trace are made: out of sight until all of them are complete; what goes wrong there has its sentence."""

from __future__ import annotations

import contextlib
import errno
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa

from nsys2prv.errors import DiskFull, OutputError, OutputExists

SUFFIXES = (".prv", ".prv.gz", ".pcf", ".row", ".json")
"""Files of a trace."""


def final_paths(base: Path, *, force: bool) -> dict[str, Path]:
    """Path of each file of a trace, by suffix.

    Raises
    ------
    OutputExists
        When one of them is there already, unless `force`.
    OutputError
        When one of them is a folder.
    """
    final = {suffix: base.with_name(base.name + suffix) for suffix in SUFFIXES}
    present = [path for path in final.values() if path.exists()]
    folders = [path for path in present if path.is_dir()]
    if folders:
        raise OutputError.not_writable(folders[0], "there is a folder of this name")
    if present and not force:
        raise OutputExists(present[0])
    return final


def without_suffix(out: Path) -> Path:
    for suffix in (".prv.gz", ".prv"):
        if out.name.endswith(suffix) and out.name != suffix:
            return out.with_name(out.name.removesuffix(suffix))
    return out


@contextlib.contextmanager
def staging_folder(base: Path) -> Iterator[Path]:
    """A folder beside the output where files are made; what can't be written there is told as the output's fault."""
    # Named before it is made: an interrupt at any moment finds it here and takes it away.
    folder = base.parent / f".{base.name}.{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        yield folder
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise _disk_error(error, base) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(wanted: Path | None, staging: Path) -> Iterator[Path]:
    """A folder for intermediate files: in the one that the user wants, else in the staging folder."""
    if wanted is None:
        yield staging / "runs"
        return
    folder = wanted / f".nsys2prv.{secrets.token_hex(4)}"
    try:
        try:
            folder.mkdir()
        except OSError as error:
            raise OutputError.not_writable(wanted, str(error)) from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk_error(error: BaseException, base: Path) -> Exception:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error):
        return DiskFull(base)
    if isinstance(error, OSError):
        return OutputError.not_writable(base, str(error))
    return error if isinstance(error, Exception) else RuntimeError(str(error))
