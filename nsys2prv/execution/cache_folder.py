"""The folder of `--cache`: files of columns that were read of an input, kept for the next command that reads the same input.

In the cache each input has a folder, with files of columns and a list of what they hold. They have checksums, and are used as
long as the size, the time of change and the inode of all files of the input are the same. Arrow trusts what it reads, so
nobody but the user may be able to write in a cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nsys2prv.errors import OutputError
from nsys2prv.execution.private_folders import make_private, make_with_parents
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.vocabulary.version import __version__
from nsys2prv.vocabulary.wording import size

FORMAT = 2
"""Version of the form of files in a cache."""
MOST_BYTES = 20 << 30
"""Size of a cache: above it, what was not used for the longest time goes."""
_COLUMNS = "nsys2prv-columns"
_LIST = "list.json"
_LONGEST_LIST = 256 << 20
_SETTLED_NS = 2_000_000_000
"""An input that was changed later than this before is not kept: another change may leave its time of change as it is."""
_AT_ONCE = 1 << 20

Stamp = tuple[int, int, int]
"""Inode, size and time of change (ns) of a file."""
Described = dict[str, dict[str, Any]]
"""What is kept of an input, by name. Under `files` each has the names of its files in the cache; all else is as JSON."""


def stamp(path: Path) -> Stamp:
    """The stamp of a file; raises OSError where there is none."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Origin:
    """An input whose columns are kept: its path, and the stamp that each of its files had when it was opened."""

    path: Path
    stamps: Sequence[Stamp]

    @property
    def head(self) -> dict[str, Any]:
        """What has to be the same for what is kept of it to be used."""
        path = os.fsencode(self.path.resolve()).hex()
        return {"format": FORMAT, "nsys2prv": __version__, "path": path, "stamps": [list(one) for one in self.stamps]}


@dataclass(frozen=True)
class _Content:
    """What is kept of an input, and of each of its files the size and the checksum."""

    kept: Described
    files: dict[str, list[int]]


class CacheFolder:
    """Columns of inputs, in a folder below that of `--cache`.

    Parameters
    ----------
    cache
        The folder of `--cache`.
    most_bytes
        Size that it may have.

    Raises
    ------
    OutputError
        When others than the user can write in the cache.
    """

    def __init__(self, cache: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = cache / _COLUMNS
        self._most_bytes = most_bytes
        # Whether it can be written there is found out when something is kept.
        with contextlib.suppress(OSError):
            status = self._folder.lstat()
            why = None if stat.S_ISDIR(status.st_mode) else "it is no folder"
            if why or (why := _shared(status)):
                raise OutputError.not_writable(self._folder, why, "another folder with --cache")

    def kept(self, origin: Origin) -> Described:
        """What is kept of an input; nothing where it has changed since, or another version of nsys2prv kept it."""
        return self._content(origin).kept

    def place(self, origin: Origin, names: Collection[str], folder: Path) -> set[str]:
        """Place files that are kept of an input in a folder; the result are those that are not what was kept.

        Raises OSError when files can't be placed in the folder.
        """
        entry, files = self._entry(origin), self._content(origin).files
        names = sorted(names)
        if names:
            make_folder(folder)
            # Used now: others go first where there is too much.
            with contextlib.suppress(OSError):
                os.utime(entry / _LIST)
        placed = run_all(partial(_place, entry / name, files.get(name), folder / name) for name in names)
        return {name for name, is_there in zip(names, placed, strict=True) if not is_there}

    def keep(self, origin: Origin, paths: Collection[Path], describe: Callable[[Mapping[Path, str]], Described]) -> str | None:
        """Keep what was read of an input, beside what is kept of it under other names.

        Parameters
        ----------
        paths
            Files with columns.
        describe
            Makes what is kept of the names that the files have in the cache.

        Returns
        -------
        A sentence for the user when it can't be kept.
        """
        if not paths or max(changed for *_, changed in origin.stamps) > time.time_ns() - _SETTLED_NS:
            return None
        try:
            needed_bytes = sum(path.stat().st_size for path in paths)
            if needed_bytes > self._most_bytes:
                return f"its columns are not kept: they have {size(needed_bytes)}, and a cache {size(self._most_bytes)}"
            make_with_parents(self._folder.parent)
            make_private(self._folder, exist_ok=True)
            with self._alone():
                self._write(origin, paths, describe)
                self._shrink()
        except OSError as error:
            return f"its columns are not kept: {self._folder} can't be written ({error.strerror or error})"
        return None

    def _entry(self, origin: Origin) -> Path:
        """The folder of an input."""
        name = os.fsencode(origin.path.resolve())
        return self._folder / hashlib.sha256(name).hexdigest()[:32]

    def _content(self, origin: Origin) -> _Content:
        """What is kept of an input; nothing where it is damaged, or of another input or state of it, or of another version."""
        nothing = _Content({}, {})
        try:
            with _opened(self._entry(origin) / _LIST) as number, open(number, "rb", closefd=False) as file:
                checksum, _, text = file.read(_LONGEST_LIST).partition(b"\n")
        except OSError:
            return nothing
        if checksum != b"%08x" % zlib.crc32(text):
            return nothing
        content = json.loads(text)
        return _Content(content["kept"], content["files"]) if content["head"] == origin.head else nothing

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the cache meanwhile."""
        number = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def _write(self, origin: Origin, paths: Collection[Path], describe: Callable[[Mapping[Path, str]], Described]) -> None:
        entry, content = self._entry(origin), self._content(origin)
        make_private(entry, exist_ok=True)
        names = {path: secrets.token_hex(8) for path in paths}
        for path, name in names.items():
            _link_or_copy(path, entry / name)
        kept = {**content.kept, **describe(names)}
        used = {name for one in kept.values() for name in one["files"]}
        known = {**content.files, **{name: _known(entry / name) for name in names.values()}}
        files = {name: file for name, file in known.items() if name in used}
        text = json.dumps({"head": origin.head, "kept": kept, "files": files}).encode()
        written = entry / secrets.token_hex(8)
        with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(b"%08x\n%b" % (zlib.crc32(text), text))
        written.replace(entry / _LIST)
        for path in entry.iterdir():
            if path.name != _LIST and path.name not in used:
                path.unlink()

    def _shrink(self) -> None:
        """Remove inputs, those first that were not used for the longest time, until the cache has its size."""
        entries = []
        for entry in filter(Path.is_dir, self._folder.iterdir()):
            files = [path.lstat() for path in entry.iterdir()]
            entries.append((max((one.st_mtime_ns for one in files), default=0), sum(one.st_size for one in files), entry))
        whole = sum(bytes_of_entry for _, bytes_of_entry, _ in entries)
        for _, bytes_of_entry, entry in sorted(entries):
            if whole <= self._most_bytes:
                break
            shutil.rmtree(entry)
            whole -= bytes_of_entry


def _shared(status: os.stat_result) -> str | None:
    """Why what is in a file or folder can't be trusted; None: only the user can write there."""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users can enter it" if status.st_mode & 0o077 else None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file that is no link and that only the user can write; raises OSError where it is something else."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or _shared(status):
            raise PermissionError(f"{path} is not a file of the user alone")
        yield number
    finally:
        os.close(number)


def _place(kept: Path, known: list[int] | None, place: Path, stop: Stop) -> bool:
    """Place a file that is kept at a path; False when it is not what was kept."""
    stop.check()
    try:
        if _known(kept) != known:
            return False
    except OSError:
        return False
    try:
        _link_or_copy(kept, place)
    except FileNotFoundError:
        # Another process has replaced it meanwhile.
        return False
    return True


def _link_or_copy(path: Path, place: Path) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(path, place)
    place.chmod(0o600)


def _known(path: Path) -> list[int]:
    """Size and checksum of a file; raises OSError as `_opened`."""
    size_read = checksum = 0
    with _opened(path) as number:
        while piece := os.read(number, _AT_ONCE):
            size_read, checksum = size_read + len(piece), zlib.crc32(piece, checksum)
    return [size_read, checksum]
