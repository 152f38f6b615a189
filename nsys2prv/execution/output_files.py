"""Files are made in temporary folders, and get their names together when all of an output are complete.

Only the user can enter a temporary folder, and its process holds a lock in it. It is removed at the end, also when the process
is interrupted. When the process is killed it stays, without the lock: the next one that works for the same purpose removes it.
"""

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from nsys2prv.errors import DiskFull, OutputError, OutputExists
from nsys2prv.execution.memory import resource_error_in
from nsys2prv.execution.process import cleaned_up, published, signals_held

PREFIX = ".nsys2prv."
"""How names of temporary folders begin."""
_LOCK = "nsys2prv-temporary"
"""The file in a temporary folder that its process locks."""
_FORMER = "former-"
"""How names in a temporary folder begin of what had the names of an output."""
_SECONDS_TO_WAIT = 60.0
"""Of waiting for another program that gives names to files."""
_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def make_folder(folder: Path) -> None:
    """Make a folder for intermediate files, with its parents, that only the user can enter.

    Raises
    ------
    FileNotFoundError
        When the temporary folder that it is in was removed: the process that made it ends, or has ended.
    """
    if not folder.is_dir():
        if folder.name.startswith(PREFIX):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        make_folder(folder.parent)
        folder.mkdir(0o700, exist_ok=True)


@contextlib.contextmanager
def temporary_folder(parent: Path, purpose: str, *, with_parents: bool = False) -> Iterator[Path]:
    """A new folder in another one, private to the user, that is removed with its contents when the block ends.

    Parameters
    ----------
    purpose
        What is made in it, such as the name of an output. A folder that a killed process left there for the same is removed.
    with_parents
        Make the other folder, and those above it, where they are missing. They are removed when they are empty at the end.
    """
    missing = itertools.takewhile(lambda folder: with_parents and not folder.is_dir(), (parent, *parent.parents))
    prefix = f"{PREFIX}{hashlib.sha256(os.fsencode(purpose)).hexdigest()[:12]}."
    with cleaned_up(partial(_remove_empty, tuple(missing))), contextlib.ExitStack() as stack:
        if with_parents:
            parent.mkdir(parents=True, exist_ok=True)
        with signals_held():
            lock = None
            # Before it is locked, another process of the same purpose may take it for abandoned.
            while lock is None:
                # Reports may be confidential, and what workers exchange is executed: it is the user's alone.
                folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
                try:
                    lock = _locked(folder)
                except OSError:
                    folder.rmdir()
                    raise
            stack.enter_context(cleaned_up(partial(_remove, folder, lock)))
        for abandoned in set(parent.glob(f"{prefix}*")) - {folder}:
            _remove_abandoned(abandoned)
        yield folder


def _locked(folder: Path) -> int | None:
    """The lock of a temporary folder, which this process has now; None when another process has it, or removed the folder."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return None
    if _has_locked(lock) and (folder / _LOCK).exists():
        return lock
    os.close(lock)
    return None


def _remove_abandoned(folder: Path) -> None:
    """Remove a temporary folder of a process that was killed."""
    with contextlib.suppress(OSError):
        status = folder.lstat()
        is_of_user = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        if is_of_user and (lock := _locked(folder)) is not None:
            # While it published, it may have moved a folder of views, with files of the user among them.
            for former in folder.glob(f"{_FORMER}*"):
                name = folder.parent / former.name.removeprefix(_FORMER)
                if former.is_dir() and not os.path.lexists(name):
                    os.replace(former, name)
            _remove(folder, lock)


def _remove(folder: Path, lock: int) -> None:
    """Remove a temporary folder, by another name: threads and workers that still write can make nothing in it any more."""
    renamed = folder.with_name(f"{folder.name}.removed")
    with contextlib.suppress(OSError):
        folder.rename(renamed)
    for path in (renamed, folder):
        shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.close(lock)


def remove_file(path: Path) -> None:
    """Remove an intermediate file; where that fails it goes with its folder."""
    with contextlib.suppress(OSError):
        path.unlink()


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def staging_folder(base: Path) -> Iterator[Path]:
    """A folder beside the output where files are made; write errors in it are raised as errors of the output."""
    # Absolute, as all folders of intermediate files: polars would take a name that starts with ~ for a user's home.
    with disk_errors(base, has_output=True), temporary_folder(_utf8(base.parent), base.name) as folder:
        yield folder


@contextlib.contextmanager
def scratch_folder(requested: Path | None, purpose: str = "") -> Iterator[Path]:
    """A folder for intermediate files, in the requested folder, else in the system's temporary folder.

    Parameters
    ----------
    purpose
        As of `temporary_folder`, of work with an output. By default it is the work of this machine.
    """
    with contextlib.ExitStack() as stack:
        with disk_errors(requested or Path("temporary folder")):
            parent = _utf8(requested or Path(tempfile.gettempdir()))
            folder = stack.enter_context(temporary_folder(parent, purpose or platform.node()))
        # Work with an output has errors of that, too.
        stack.enter_context(disk_errors(parent, named=folder if purpose else None))
        yield folder


def is_utf8(path: Path) -> bool:
    """Whether libraries that take paths for UTF-8 can open a path."""
    return str(path).encode(errors="ignore").decode() == str(path)


def _utf8(parent: Path) -> Path:
    """The absolute path of a folder; OSError when libraries could not open files in it."""
    path = parent.absolute()
    if not is_utf8(path):
        raise OSError(errno.EILSEQ, "its path is not UTF-8", str(path))
    return path


# -- errors of disks ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Raise what is wrong with a path as an error of the output."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        raise resource_error_in(error) or OutputError.not_writable(path, error) from error


@contextlib.contextmanager
def disk_errors(path: Path, *, has_output: bool = False, named: Path | None = None) -> Iterator[None]:
    """Raise errors of a disk as those of an output, or of the intermediate files in a folder.

    Parameters
    ----------
    path
        The output, or the folder.
    named
        Only errors that name this path; None: all.
    """
    # Loaded after a worker has said how many threads they may have.
    import polars as pl
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        text = f"{error}{getattr(error, 'filename', '')}"
        # Polars and Arrow do not always pass on the error number, but they pass on its text.
        numbers = {number for number in _OF_DISKS if getattr(error, "errno", None) == number or os.strerror(number) in text}
        refused = resource_error_in(error)
        if (named is not None and str(named) not in text) or not (numbers or refused or isinstance(error, OSError)):
            raise
        if numbers - {errno.EIO}:
            raise DiskFull(path, has_output=has_output) from error
        failed = OutputError.not_writable if has_output else OutputError.of_intermediate_files
        raise refused or failed(path, error) from error


# -- names of outputs ---------------------------------------------------------------------------------------------------


def publish(staged: Mapping[Path, Mapping[str, str | None]], *, replace: bool = True) -> None:
    """Give files and folders their names.

    What had the names goes first, the last of them (a trace) before the others: at no time does it lie beside files of another
    output. Ctrl-C and other signals have their effect afterwards.

    Parameters
    ----------
    staged
        For each temporary folder, the names beside it, in the order in which they appear; each with what gets it, a path in the
        folder. None: what has the name goes.
    replace
        Replace what has one of the names.

    Raises
    ------
    OutputExists
        Without `replace`, when one of the names exists: another program may have made it meanwhile.
    OutputError
        When one of the files can't get its name, or what has it can't be moved; all is as it was then.
    """
    # Where each file is (None: nothing gets the name), the name that it gets, and the place of what had the name.
    paths = [
        (None if path is None else folder / path, folder.parent / name, folder / f"{_FORMER}{name}")
        for folder, names in staged.items()
        for name, path in names.items()
    ]
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as undo:
        for parent in sorted({folder.parent for folder in staged}):
            stack.enter_context(_alone_in(parent))
        stack.enter_context(signals_held())
        # What is only removed goes first of all.
        leaving = [entry for entry in paths if entry[0] is None] + [entry for entry in reversed(paths) if entry[0] is not None]
        moves = [(name, former, name) for _, name, former in leaving if os.path.lexists(name)]
        if moves and not replace:
            raise OutputExists(moves[-1][0])
        for source, name, _ in paths:
            if source is not None:
                if name.is_dir() and not name.is_symlink() and not source.is_dir():
                    raise OutputError.not_writable(name, "there is a folder of this name")
                moves.append((source, name, name))
        for current, new, name in moves:
            with output_errors(name):
                os.replace(current, new)
            undo.callback(os.replace, new, current)
        undo.pop_all()
        published.set()


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One program at a time gives names in a folder, which takes a moment: files of two traces must not be mixed. OutputError
    when another one does not end, perhaps because it is stopped."""
    until = time.monotonic() + _SECONDS_TO_WAIT
    with contextlib.ExitStack() as stack:
        # A folder that can't be listed can't be locked.
        with contextlib.suppress(OSError):
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, number)
            while not _has_locked(number):
                if time.monotonic() > until:
                    why = f"another program has been giving names to files there for {_SECONDS_TO_WAIT:.0f} s; end it"
                    raise OutputError.not_writable(folder, why, "another place, and start again")
                time.sleep(0.02)
        yield


def _has_locked(number: int) -> bool:
    """Whether an open file or folder is locked now for this process; true on a file system without locks, where nobody should
    write the same output twice at once."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True
