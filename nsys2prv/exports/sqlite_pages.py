"""Columns of numbers out of the pages of an SQLite database, many rows at once.

The driver asks SQLite for one value after the other. Rows of a table of events are nearly alike: the heads of their records,
which say how many bytes each value has, are few. Rows with the same head are a matrix of bytes, and a column is a part of it.

Format: https://www.sqlite.org/fileformat2.html, "B-tree Pages" and "Record Format". Only what nsys writes is read here: all
else, and what is damaged, is `Unusual`, and left to SQLite.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from nsys2prv.exports.forms import Schema, Stretch

_INNER, _LEAF = 5, 13
"""First byte of a page of a table."""
_LEAF_HEAD, _INNER_HEAD = 8, 12
_ENTRY_BYTES = 2
_LARGEST_ON_PAGE = 35
"""A record whose length exceeds that of a page less so many bytes goes on in other pages."""
_WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, *((kind - 12) // 2 for kind in range(12, 128))])
"""Bytes of a value, by its type in the head of its record."""
_NULL, _REAL, _ZERO, _ONE, _FIRST_UNUSED, _FIRST_TEXT = 0, 7, 8, 9, 10, 12
_MOST_BYTES_OF_NUMBER = 9
_MOST_HEADS = 1000
"""Different heads of the rows that are read at once."""
_WHOLE = {1: "i1", 2: "i2", 4: "i4", 6: "i8", _REAL: "f8"}
_IN_TWO_PARTS = {3: (">i1", ">u2", 16, "i4"), 5: (">i2", ">u4", 32, "i8")}
"""Numbers by their types: their first bytes, the others, how many bits these are, and what holds both."""
_HIGH_BITS = np.uint64(0x8080808080808080)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Unusual(Exception):
    """Something that only SQLite should judge."""


@dataclass(frozen=True)
class PageFormat:
    """Size of pages of a database, and what of it is used, bytes."""

    size: int
    usable: int

    @classmethod
    def of(cls, head: bytes) -> PageFormat:
        """That of a database, by its first 100 bytes."""
        size = int.from_bytes(head[16:18], "big")
        size = 65_536 if size == 1 else size
        if int.from_bytes(head[56:60], "big") > 1 or size < 512 or size & (size - 1):
            raise Unusual("texts are not UTF-8, or pages have no usual size")
        return cls(size, size - head[20])


class Pages:
    """Pages of a database file."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self.format = PageFormat.of(file.read(100))
            self._file = path.open("rb", buffering=0)
            self.count = os.fstat(self._file.fileno()).st_size // self.format.size
        except OSError as error:
            raise Unusual("the file can't be read") from error

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, numbers: np.ndarray, behind: int = 0) -> np.ndarray:
        """Bytes of pages, by their numbers, one page after the other; `behind` further bytes are 0."""
        size = self.format.size
        content = np.zeros(len(numbers) * size + behind, dtype=np.uint8)
        edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for first, last in itertools.pairwise(edges):
            if last > first:
                self._read_into(content.data[first * size : last * size], (int(numbers[first]) - 1) * size)
        return content

    def _read_into(self, part: memoryview, place: int) -> None:
        try:
            read = os.preadv(self._file.fileno(), [part], place)
        except OSError as error:
            raise Unusual("a page can't be read") from error
        if read != len(part):
            raise Unusual("a page is not there")


@dataclass(frozen=True)
class Leaves:
    """Pages with the rows of a table, in their order; `last_rows` are bounds of their row numbers, the last one is open."""

    pages: np.ndarray
    last_rows: np.ndarray

    def parts(self, count: int, whole: Stretch) -> list[tuple[Stretch | None, np.ndarray]]:
        """About `count` parts of equal length: row numbers (None: all), and pages. `whole` has the row numbers of the table."""
        edges = sorted({len(self.pages) * part // count for part in range(count + 1)})
        if len(edges) == 2:
            return [(None, self.pages)]
        inner = [int(self.last_rows[edge - 1]) for edge in edges[1:-1]]
        stretches = zip([whole[0], *(row + 1 for row in inner)], [*inner, whole[1]], strict=True)
        return [(stretch, self.pages[slice(*edge)]) for stretch, edge in zip(stretches, itertools.pairwise(edges), strict=True)]


def leaves(pages: Pages, root: int) -> Leaves:
    """Pages with the rows of a table, by its first page."""
    level, bounds = np.array([root]), np.array([2**63 - 1])
    seen = 0
    while True:
        seen += len(level)
        if len(level) == 0 or level.min() < 2 or level.max() > pages.count or seen > pages.count:
            raise Unusual("a page is not there, or there twice")
        # All leaves are on one level.
        if pages.read(level[:1])[0] == _LEAF:
            break
        children = [_children(pages, int(page), int(bound)) for page, bound in zip(level, bounds, strict=True)]
        level = np.concatenate([numbers for numbers, _ in children])
        bounds = np.concatenate([rows for _, rows in children])
    if len(np.unique(level)) < len(level) or (np.diff(bounds) <= 0).any():
        raise Unusual("pages are not in order")
    return Leaves(level, bounds)


def _children(pages: Pages, number: int, bound: int) -> tuple[np.ndarray, np.ndarray]:
    """Pages below an inner page, and their last row numbers."""
    content = pages.read(np.array([number])).tobytes()
    entries = int.from_bytes(content[3:5], "big")
    if content[0] != _INNER or not entries:
        raise Unusual("this is no inner page of a table")
    numbers, rows = [], []
    for entry in range(entries):
        place = int.from_bytes(content[_INNER_HEAD + 2 * entry : _INNER_HEAD + 2 * entry + 2], "big")
        numbers.append(int.from_bytes(content[place : place + 4], "big"))
        rows.append(_signed_varint(content[place + 4 : place + 13]))
    return np.array([*numbers, int.from_bytes(content[8:12], "big")]), np.array([*rows, bound])


def _signed_varint(content: bytes) -> int:
    value = 0
    for byte in content[:8]:
        value = value << 7 | byte & 127
        if byte < 128:
            return value
    raise Unusual("a row number is larger than any of a row that was counted")


@dataclass(frozen=True)
class RowPages:
    """Columns in the order in which they are in records, and numbers of pages with rows."""

    columns: tuple[str, ...]
    numbers: np.ndarray

    def batches(self, pages: Pages, schema: Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Rows, about so many at once, with the columns of a schema, in the narrowest types that hold the numbers.

        Raises
        ------
        Unusual
            When SQLite has to judge what is there.
        """
        reader = _RowReader(pages, self.columns, schema)
        entries = pages.read(self.numbers[:1])[3:5]
        step = max(rows // max(int.from_bytes(entries.tobytes(), "big"), 1), 1)
        for first in range(0, len(self.numbers), step):
            yield reader.read(self.numbers[first : first + step])


class _RowReader:
    """Reads rows out of pages."""

    def __init__(self, pages: Pages, columns: Sequence[str], schema: Schema) -> None:
        self._pages = pages
        self._schema = schema
        self._places = [columns.index(name) for name in schema]
        self._head_bytes = len(columns) + 1
        if self._head_bytes >= 128:
            raise Unusual("it has more columns than tables of nsys have")

    def read(self, leaves: np.ndarray) -> pa.RecordBatch:
        """All rows of some pages."""
        # Values at the very end are taken with the bytes behind them.
        content = self._pages.read(leaves, behind=8)
        heads, lengths = self._records(content, len(leaves))
        groups = self._by_head(_windows(content, heads, self._head_bytes))
        columns = [_Column(dtype, len(heads)) for dtype in self._schema.values()]
        for kinds, rows in groups:
            widths = _WIDTHS[kinds]
            ends = np.cumsum(widths)
            length = int(ends[-1])
            if (
                (kinds[(kinds >= _FIRST_UNUSED) & (kinds < _FIRST_TEXT)]).any()
                or (lengths[rows] != self._head_bytes + length).any()
            ):
                raise Unusual("a record has another length than its values")
            bodies = _windows(content, heads[rows] + self._head_bytes, length) if length else None
            for column, place in zip(columns, self._places, strict=True):
                column.put(rows, int(kinds[place]), bodies, int(ends[place] - widths[place]))
        return pa.RecordBatch.from_arrays([column.array() for column in columns], names=list(self._schema))

    def _records(self, content: np.ndarray, pages: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the heads of all records are, and how long records are, bytes."""
        size, usable = self._pages.format.size, self._pages.format.usable
        by_page = content[: pages * size].reshape(pages, size)
        entries = by_page[:, 3].astype(np.int64) << 8 | by_page[:, 4]
        most = int(entries.max())
        if (by_page[:, 0] != _LEAF).any() or not entries.all() or _LEAF_HEAD + _ENTRY_BYTES * most > usable:
            raise Unusual("this is no page with rows of a table")
        table = np.ascontiguousarray(by_page[:, _LEAF_HEAD : _LEAF_HEAD + _ENTRY_BYTES * most]).view(">u2")
        places = table[np.arange(most) < entries[:, None]].astype(np.int64)
        if places.min() < _LEAF_HEAD or places.max() > usable - 4:
            raise Unusual("a row is outside of its page")
        begin = np.repeat(np.arange(pages) * size, entries)
        heads = begin + places
        lengths = content[heads].astype(np.int64)
        if (is_long := lengths >= 128).any():
            heads = heads + is_long
            if (content[heads[is_long]] >= 128).any():
                raise Unusual("a record goes on in other pages")
            lengths = np.where(is_long, (lengths & 127) << 7 | content[heads], lengths)
        # The number of the row.
        goes_on = content[heads + 1] >= 128
        heads = heads + 2
        for _ in range(_MOST_BYTES_OF_NUMBER - 1):
            if not goes_on.any():
                break
            here = content[np.minimum(heads, len(content) - 1)] >= 128
            heads = heads + goes_on
            goes_on &= here
        if (
            goes_on.any()
            or lengths.min() < self._head_bytes
            or lengths.max() > usable - _LARGEST_ON_PAGE
            or (heads - begin + lengths).max() > usable
        ):
            raise Unusual("a record is shorter than its head, or goes on behind its page")
        return heads, lengths

    def _by_head(self, heads: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
        """Types of the values of records, and the places of the records that have these."""
        padded = np.zeros((len(heads), -(-self._head_bytes // 8) * 8), dtype=np.uint8)
        padded[:, : self._head_bytes] = heads
        words = padded.view(np.uint64)
        if (padded[:, 0] != self._head_bytes).any() or (words & _HIGH_BITS).any():
            raise Unusual("a record has other columns, or long texts")
        if (words == words[0]).all():
            yield padded[0, 1 : self._head_bytes], slice(None)
            return
        mixed = np.zeros(len(heads), dtype=np.uint64)
        for word in words.T:
            mixed = (mixed ^ word) * _MULTIPLIER
            mixed ^= mixed >> np.uint64(29)
        order = np.argsort(mixed)
        edges = np.flatnonzero(np.diff(mixed[order])) + 1
        if len(edges) > _MOST_HEADS:
            raise Unusual("rows are too different")
        for rows in np.split(order, edges):
            if (words[rows] != words[rows[0]]).any():
                raise Unusual("different heads were mixed to the same number")
            yield padded[rows[0], 1 : self._head_bytes], rows


class _Column:
    """A column that is put together from rows with different heads."""

    def __init__(self, dtype: type[pl.DataType], rows: int) -> None:
        self._dtype = dtype
        self._rows = rows
        self._parts: list[tuple[Any, np.ndarray | int | None]] = []

    def put(self, rows: Any, kind: int, bodies: np.ndarray | None, offset: int) -> None:
        """Take the values of some rows out of the bodies of their records."""
        if kind == _NULL:
            self._parts.append((rows, None))
        elif not self._holds(kind):
            raise Unusual("texts, or numbers of another kind")
        elif kind in (_ZERO, _ONE):
            self._parts.append((rows, kind - _ZERO))
        else:
            assert bodies is not None
            self._parts.append((rows, _values(bodies, kind, offset)))

    def _holds(self, kind: int) -> bool:
        # Where a column of real numbers has a whole one, SQLite stores that.
        return kind < _FIRST_UNUSED and (self._dtype == pl.Float64 or (self._dtype == pl.Int64 and kind != _REAL))

    def array(self) -> pa.Array:
        """The column in the narrowest type that holds all values."""
        given = [part for _, part in self._parts if part is not None]
        if not given:
            return pa.nulls(self._rows, pa.int8() if self._dtype == pl.Int64 else pa.null())
        narrow = np.result_type(*(part.dtype if isinstance(part, np.ndarray) else np.int8 for part in given))
        values = np.zeros(self._rows, dtype=np.float64 if self._dtype == pl.Float64 else narrow)
        nulls = np.zeros(self._rows, dtype=bool)
        for rows, part in self._parts:
            if part is None:
                nulls[rows] = True
            else:
                values[rows] = part
        if self._dtype == pl.Float64:
            # As in what is read by way of the driver.
            nulls |= ~np.isfinite(values)
        return pa.array(values, mask=nulls if nulls.any() else None)


def _windows(content: np.ndarray, places: np.ndarray, length: int) -> np.ndarray:
    """So many bytes from each of some places on, one row for each place."""
    windows: np.ndarray = np.ndarray((len(content) - length + 1,), dtype=f"V{length}", buffer=content, strides=(1,))
    taken: np.ndarray = windows[places]
    return taken.view(np.uint8).reshape(len(places), length)


def _values(bodies: np.ndarray, kind: int, offset: int) -> np.ndarray:
    """Numbers of a type that begin at a byte of each row."""

    def at(place: int, stored: str, dtype: str) -> np.ndarray:
        column: np.ndarray = np.ndarray((len(bodies),), stored, bodies, place, bodies.strides[:1])
        return column.astype(dtype)

    if kind in _IN_TWO_PARTS:
        high, low, bits, dtype = _IN_TWO_PARTS[kind]
        both: np.ndarray = at(offset, high, dtype) << bits | at(offset + int(high[-1]), low, dtype)
        return both
    return at(offset, f">{_WHOLE[kind]}", _WHOLE[kind])
