"""What was read of the lines of a trace, kept in the folder of `--cache`: the next command does not read their text again."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsys2prv.efficiency.run_events import MPI_COLLECTIVES, Collection, new_collections
from nsys2prv.execution.cache_folder import CacheFolder, Origin, Stamp, stamp
from nsys2prv.execution.external_sort import ExternalSort

_NO_FILE: Stamp = (0, 0, 0)
_LAUNCHES, _MESSAGES = "launches", "messages"


@dataclass
class LinesRead:
    """What was read of the lines of a trace.

    Attributes
    ----------
    collections, launches, messages
        As in `RunEvents`, also those without rows.
    callers
        Rows that call CUDA or MPI.
    numbers
        Event types that occur.
    end
        Time of the last end, ns.
    """

    collections: dict[str, ExternalSort]
    launches: ExternalSort
    messages: ExternalSort
    end: int
    callers: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)

    @classmethod
    def in_folder(cls, folder: Path, collections: Sequence[Collection], end: int) -> LinesRead:
        """Nothing yet; intermediate files are written to the folder."""
        launches, messages = (ExternalSort(["to_time"], folder / name) for name in (_LAUNCHES, _MESSAGES))
        return cls(new_collections(folder, collections), launches, messages, end)

    @property
    def sorts(self) -> dict[str, ExternalSort]:
        """All sorted rows, by name."""
        return {**self.collections, _LAUNCHES: self.launches, _MESSAGES: self.messages}


class KeptTrace:
    """What a cache has of a trace.

    Parameters
    ----------
    cache
        The folder of `--cache`.
    files
        The .prv, and the files beside it that say what its lines mean; these need not be there.

    Raises
    ------
    OutputError
        When others than the user can write in the cache.
    """

    def __init__(self, cache: Path, files: Sequence[Path]) -> None:
        self._cache = CacheFolder(cache)
        self._files = files
        self._origin = self._as_it_is()

    def take(self, collections: Sequence[Collection], folder: Path) -> LinesRead | None:
        """What is kept of some collections, as files in a folder; None: not all of it is there, or the trace has changed.

        Raises OSError when files can't be placed in the folder.
        """
        if self._as_it_is() != self._origin:
            return None
        wanted = {one.name for one in collections}
        kept = next((one for one in self._cache.kept(self._origin).values() if wanted <= one["rows"].keys()), None)
        if kept is None:
            return None
        found = LinesRead.in_folder(folder, collections, kept["end"])
        # Messages are read only for collectives.
        rows = {name: kept["rows"][name] for name in found.sorts if name != _MESSAGES or MPI_COLLECTIVES in collections}
        if self._cache.place(self._origin, {name for one in rows.values() for name in one["files"]}, folder):
            return None
        for name, one in rows.items():
            found.sorts[name].take_over(one, folder)
        found.callers, found.numbers = set(kept["callers"]), set(kept["numbers"])
        return found

    def keep(self, read: LinesRead) -> str | None:
        """Keep what was read; the result is a sentence for the user when it can't be kept."""
        if self._as_it_is() != self._origin:
            return None
        for one in read.sorts.values():
            one.finish(on_disk=True)
        paths = [path for one in read.sorts.values() for path in one.files]

        def describe(names: Mapping[Path, str]) -> dict[str, dict[str, Any]]:
            return {
                " ".join(read.collections): {
                    "files": list(names.values()),
                    "rows": {name: one.as_json(names) for name, one in read.sorts.items()},
                    "callers": sorted(read.callers),
                    "numbers": sorted(read.numbers),
                    "end": read.end,
                }
            }

        return self._cache.keep(self._origin, paths, describe)

    def _as_it_is(self) -> Origin:
        stamps = []
        for path in self._files:
            stamps.append(_NO_FILE)
            with contextlib.suppress(OSError):
                stamps[-1] = stamp(path)
        return Origin(self._files[0], stamps)
