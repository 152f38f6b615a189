"""Where the files of a trace are made: out of sight until all of them are complete; what goes wrong there has its sentence."""

from __future__ import annotations

import contextlib
import errno
import shutil
import tempfile
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
    """
    final = {suffix: base.with_name(base.name + suffix) for suffix in SUFFIXES}
    present = [path for path in final.values() if path.exists()]
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
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{base.name}.", dir=base.parent))
    except OSError as error:
        raise _disk_error(error, base) from error
    try:
        yield folder
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise _disk_error(error, base) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(wanted: Path | None, staging: Path) -> Iterator[Path]:
    if wanted is None:
        yield staging / "runs"
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix=".nsys2prv.", dir=wanted))
    except OSError as error:
        raise OutputError.not_writable(wanted, str(error)) from error
    try:
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
