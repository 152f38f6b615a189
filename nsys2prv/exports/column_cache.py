"""Columns that were read of exports, kept for the next command: with `--cache`, an unchanged report is not read again.

In the cache each export has a folder, with files of columns as `store_columns` writes them and a list of what they hold. They
have checksums, and are used as long as the size, the time of change and the inode of the export are the same. Arrow trusts
what it reads, so nobody but the user may be able to write in a cache.
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
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.errors import OutputError
from nsys2prv.execution.private_folders import make_private, make_with_parents
from nsys2prv.execution.progress import no_progress
from nsys2prv.execution.scratch import make_folder
from nsys2prv.execution.threads import Stop, run_all
from nsys2prv.exports.column_files import StoredBatch
from nsys2prv.exports.forms import NO_SELECTION
from nsys2prv.exports.stored_tables import Needed, StoredTable, StoredTables, store_columns
from nsys2prv.vocabulary.version import __version__
from nsys2prv.vocabulary.wording import size

FORMAT = 1
"""Version of the form of files in a cache."""
MOST_BYTES = 20 << 30
"""Size of a cache: above it, what was not used for the longest time goes."""
_COLUMNS = "nsys2prv-columns"
_LIST = "list.json"
_LONGEST_LIST = 256 << 20
_SETTLED_NS = 2_000_000_000
"""An export that was changed later than this before is not kept: another change may leave its time of change as it is."""
_AT_ONCE = 1 << 20
_TYPES: Mapping[str, type[pl.DataType]] = {str(dtype()): dtype for dtype in (pl.Int64, pl.Float64, pl.String, pl.Binary)}

_Content = dict[str, Any]


def store_or_take(
    needed: Mapping[StoredTables, Needed],
    folder: Path,
    cache: Path | None,
    update: Callable[[int], object] = no_progress,
) -> dict[StoredTables, str]:
    """`store_columns`, for what is not in a cache, which gets it; the result is why exports could not be kept.

    Parameters
    ----------
    needed, folder, update
        As of `store_columns`. What is taken from the cache is in the folder too: the cache may change meanwhile.
    cache
        The folder of `--cache`; None: there is no cache.

    Raises
    ------
    OutputError
        When others than the user can write in the cache.
    OSError
        When files can't be written in the folder.
    """
    if cache is None:
        store_columns(needed, folder, update)
        return {}
    kept = ColumnCache(cache)
    rest = {
        tables: kept.take(tables, columns, folder / f"kept{number}") for number, (tables, columns) in enumerate(needed.items())
    }
    update(sum(map(len, needed.values())) - sum(map(len, rest.values())))
    rest = {tables: columns for tables, columns in rest.items() if columns}
    store_columns(rest, folder, update)
    problems = {tables: kept.keep(tables, columns) for tables, columns in rest.items()}
    return {tables: problem for tables, problem in problems.items() if problem is not None}


class ColumnCache:
    """Columns of exports, in a folder below that of `--cache`.

    Parameters
    ----------
    cache
        The folder of `--cache`.
    most_bytes
        Size that it may have.
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

    def take(self, tables: StoredTables, needed: Needed, folder: Path) -> dict[str, Any]:
        """Have an export use what is kept of it; the result are columns that have to be read, with all that were kept of their
        tables. Raises OSError when files can't be placed in the folder."""
        entry = self._entry(tables)
        content = _read_list(entry, _head(tables))
        kept = _tables(content, folder)
        missing = {
            table: schema for table, schema in needed.items() if table not in kept or not kept[table].has(schema, NO_SELECTION)
        }
        found = {table: kept[table] for table in needed.keys() - missing.keys()}
        names = sorted({batch.path.name for table in found.values() for batch in table.batches()})
        if names:
            make_folder(folder)
            # Used now: others go first where there is too much.
            with contextlib.suppress(OSError):
                os.utime(entry / _LIST)
        placed = run_all(partial(_place, entry / name, content["files"][name], folder / name) for name in names)
        lost = {name for name, is_there in zip(names, placed, strict=True) if not is_there}
        whole = {table: one for table, one in found.items() if not any(batch.path.name in lost for batch in one.batches())}
        tables.adopt(whole)
        more = {table: {**(kept[table].schema if table in kept else {}), **schema} for table, schema in missing.items()}
        return {**more, **{table: kept[table].schema for table in found.keys() - whole.keys()}}

    def keep(self, tables: StoredTables, read: Needed) -> str | None:
        """Keep what was read of an export; the result is a sentence for the user when it can't be kept."""
        stored = {table: tables.stored[table] for table in read if table in tables.stored}
        paths = sorted({batch.path for table in stored.values() for batch in table.batches()})
        if not paths or max(changed for *_, changed in tables.stamps) > time.time_ns() - _SETTLED_NS:
            return None
        try:
            needed_bytes = sum(path.stat().st_size for path in paths)
            if needed_bytes > self._most_bytes:
                return f"its columns are not kept: they have {size(needed_bytes)}, and a cache {size(self._most_bytes)}"
            entry = self._entry(tables)
            make_with_parents(self._folder.parent)
            make_private(self._folder, exist_ok=True)
            with self._alone():
                make_private(entry, exist_ok=True)
                self._write(entry, tables, stored, paths)
                self._shrink()
        except OSError as error:
            return f"its columns are not kept: {self._folder} can't be written ({error.strerror or error})"
        return None

    def _entry(self, tables: StoredTables) -> Path:
        """The folder of an export."""
        name = os.fsencode(tables.path.resolve())
        return self._folder / hashlib.sha256(name).hexdigest()[:32]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the cache meanwhile."""
        number = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)

    def _write(self, entry: Path, tables: StoredTables, stored: Mapping[str, StoredTable], paths: list[Path]) -> None:
        head = _head(tables)
        content = _read_list(entry, head)
        names = {path: secrets.token_hex(8) for path in paths}
        for path, name in names.items():
            _link_or_copy(path, entry / name)
            content["files"][name] = _known(entry / name)
        content["tables"].update({table: _as_json(one, names) for table, one in stored.items()})
        used = {batch[0] for table in content["tables"].values() for _, batches in table["parts"] for batch in batches}
        content["files"] = {name: file for name, file in content["files"].items() if name in used}
        text = json.dumps({"head": head, **content}).encode()
        written = entry / secrets.token_hex(8)
        with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(b"%08x\n%b" % (zlib.crc32(text), text))
        written.replace(entry / _LIST)
        for path in entry.iterdir():
            if path.name != _LIST and path.name not in used:
                path.unlink()

    def _shrink(self) -> None:
        """Remove exports, those first that were not used for the longest time, until the cache has its size."""
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


def _head(tables: StoredTables) -> dict[str, Any]:
    """What has to be the same for what is kept of an export to be used."""
    path = os.fsencode(tables.path.resolve()).hex()
    return {"format": FORMAT, "nsys2prv": __version__, "path": path, "stamps": [list(stamp) for stamp in tables.stamps]}


def _read_list(entry: Path, head: Mapping[str, Any]) -> _Content:
    """What is kept in a folder; nothing where it is of another export, another state of it, or another version, or damaged."""
    nothing: _Content = {"files": {}, "tables": {}}
    try:
        with _opened(entry / _LIST) as number, open(number, "rb", closefd=False) as file:
            checksum, _, text = file.read(_LONGEST_LIST).partition(b"\n")
    except OSError:
        return nothing
    if checksum != b"%08x" % zlib.crc32(text):
        return nothing
    content: _Content = json.loads(text)
    return {name: content[name] for name in nothing} if content["head"] == head else nothing


def _tables(content: _Content, folder: Path) -> dict[str, StoredTable]:
    """Tables of a list, as they are when their files are in a folder."""
    return {
        table: StoredTable(
            {name: _TYPES[dtype] for name, dtype in one["schema"].items()},
            tuple(
                (
                    None if stretch is None else (stretch[0], stretch[1]),
                    tuple(StoredBatch(folder / name, *rest) for name, *rest in batches),
                )
                for stretch, batches in one["parts"]
            ),
        )
        for table, one in content["tables"].items()
    }


def _as_json(table: StoredTable, names: Mapping[Path, str]) -> dict[str, Any]:
    parts = [[stretch, [[names[batch.path], *batch[1:]] for batch in batches]] for stretch, batches in table.parts]
    return {"schema": {name: str(dtype()) for name, dtype in table.schema.items()}, "parts": parts}


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


def _place(kept: Path, known: list[int], place: Path, stop: Stop) -> bool:
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
