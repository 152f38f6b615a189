"""Moments and edges on disk while a graph is built: they come in the order of time, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from nsys2prv.efficiency.graph.run_graph import Column
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.execution.scratch import make_folder

MOMENT_COLUMNS: Mapping[str, type[np.signedinteger]] = {"time": np.int64, "row": np.int32, "label": np.int32, "side": np.int8}
"""Columns of moments and how they are stored; `side` is START or END."""
EDGE_COLUMNS: Mapping[str, type[np.signedinteger]] = {
    "source": np.int64,
    "target": np.int64,
    "weight": np.int64,
    "kind": np.int8,
}
START, END = 0, 1
"""What a moment is: the start or the end of an interval."""
NOT_FOUND = -1


class ColumnFiles:
    """Columns that are appended to, each in a file of a folder."""

    def __init__(self, folder: Path, columns: Mapping[str, type[np.signedinteger]]) -> None:
        self._folder = folder
        self._types = columns
        self._files: dict[str, BinaryIO] = {}
        self.rows = 0

    def append(self, rows: Mapping[str, Numbers]) -> None:
        """Add rows: a value for each column."""
        if not self._files:
            make_folder(self._folder)
            self._files = {name: self._path(name).open("wb") for name in self._types}
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(rows[name], dtype=self._types[name]).data)
        self.rows += len(rows[next(iter(self._types))])

    def flush(self) -> None:
        """Write what is still in memory: then the files can be read."""
        for file in self._files.values():
            file.flush()

    def column(self, name: str, first: int = 0, behind: int | None = None) -> Column:
        """Rows of a column, mapped into memory; after `flush`. They may be changed."""
        dtype = np.dtype(self._types[name])
        count = (self.rows if behind is None else behind) - first
        if count <= 0:
            return np.zeros(0, dtype=dtype)
        return np.memmap(self._path(name), dtype=dtype, mode="r+", offset=first * dtype.itemsize, shape=(count,))

    def close(self) -> None:
        """End appending."""
        for file in self._files.values():
            file.close()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.bin"


@dataclass(frozen=True)
class _Piece:
    """Moments of a chunk: numbers from `first` to before `behind`, times from `begin` on."""

    first: int
    behind: int
    begin: int


class MomentFiles:
    """Moments that are written chunk by chunk, and found again by row and time."""

    def __init__(self, folder: Path) -> None:
        self.columns = ColumnFiles(folder, MOMENT_COLUMNS)
        self._pieces: list[_Piece] = []

    @property
    def count(self) -> int:
        """Moments so far."""
        return self.columns.rows

    def append(self, begin: int, moments: Mapping[str, Numbers]) -> None:
        """Add the moments of a chunk that begins at a time."""
        first = self.count
        self.columns.append(moments)
        self._pieces.append(_Piece(first, self.count, begin))
        self.columns.flush()

    def find(self, row: Numbers, time: Numbers, side: int) -> Numbers:
        """Numbers of moments by row, time and side; NOT_FOUND where there is none."""
        found: Numbers = np.full(len(row), NOT_FOUND, dtype=np.int64)
        if not self._pieces or not len(row):
            return found
        begins = np.array([piece.begin for piece in self._pieces])
        # An end at the edge of two chunks is in the first of them, but that of an interval without length.
        for choose in ("right", "left") if side == START else ("left", "right"):
            missing = np.flatnonzero(found == NOT_FOUND)
            piece = np.searchsorted(begins, time[missing], side=choose) - 1
            for number in np.unique(piece[piece >= 0]).tolist():
                places = missing[piece == number]
                found[places] = self._find_in(self._pieces[number], row[places], time[places], side)
        return found

    def _find_in(self, piece: _Piece, row: Numbers, time: Numbers, side: int) -> Numbers:
        times, rows, sides = (
            np.asarray(self.columns.column(name, piece.first, piece.behind)) for name in ("time", "row", "side")
        )
        return _place(times, rows, sides, row, time, side, piece.first)


def _place(times: Column, rows: Column, sides: Column, row: Numbers, time: Numbers, side: int, first: int) -> Numbers:
    """Numbers of moments of a chunk by row, time and side."""
    found: Numbers = np.full(len(row), NOT_FOUND, dtype=np.int64)
    place = np.searchsorted(times, time)
    pending = np.flatnonzero(place < len(times))
    # Few moments have the same time: each round goes one further.
    while len(pending):
        here = place[pending]
        same_time = times[here] == time[pending]
        fits: npt.NDArray[np.bool_] = same_time & (rows[here] == row[pending]) & (sides[here] == side)
        found[pending[fits]] = here[fits] + first
        pending = pending[same_time & ~fits]
        place[pending] += 1
        pending = pending[place[pending] < len(times)]
    return found
