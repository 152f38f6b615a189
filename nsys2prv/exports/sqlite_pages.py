"""Columns of numbers out of the pages of an SQLite database, many rows at once: about twice as fast as by the driver.

The driver asks SQLite for one value after the other. Rows of a table of events are nearly alike: the heads of their records,
which say how many bytes each value has, are few. Rows with the same head are a matrix of bytes, and a column is a part of it.

Format: https://www.sqlite.org/fileformat2.html, "B-tree Pages" and "Record Format". Only what nsys writes is read here: all
else, and what is damaged, is an `UnsupportedPage`, and left to SQLite."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.exports.columns import in_type
from nsys2prv.exports.tables import Schema, Stretch

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
_HIGH_BITS = np.uint64(0x8080808080808080)
_LARGEST_ROW_NUMBER = 2**56


class UnsupportedPage(Exception):
    """Something that only SQLite should judge."""


class Pages:
    """Pages of a database file: their number (`count`), the size of each, and what of it is used, bytes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        head = self._file.read(100)
        self.size = page_size(head)
        self.usable = self.size - head[20]
        self.count = os.fstat(self._file.fileno()).st_size // self.size

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """Bytes of pages, by their numbers, one page after the other."""
        content = np.empty(len(numbers) * self.size, dtype=np.uint8)
        begin = 0
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            part = content.data[begin : begin + len(run) * self.size]
            if os.preadv(self._file.fileno(), [part], (int(run[0]) - 1) * self.size) != len(part):
                raise UnsupportedPage("a page is not there")
            begin += len(part)
        return content


def page_size(head: bytes) -> int:
    """Bytes of a page of a database, by the first 100 bytes of the file."""
    size = int.from_bytes(head[16:18], "big")
    return 65_536 if size == 1 else size


@dataclass(frozen=True)
class Leaves:
    """Pages with the rows of a table, in their order: on page k are rows with numbers above `edges[k]`, up to `edges[k + 1]`.

    `columns` are in the order in which they are in records."""

    columns: tuple[str, ...]
    pages: np.ndarray
    edges: np.ndarray

    @property
    def stretch(self) -> Stretch:
        """First and last row number."""
        return int(self.edges[0]) + 1, int(self.edges[-1])

    def split(self, count: int) -> list[Leaves]:
        """About `count` parts of equal length."""
        edges = sorted({len(self.pages) * part // count for part in range(count + 1)})
        return [
            Leaves(self.columns, self.pages[first:behind], self.edges[first : behind + 1])
            for first, behind in itertools.pairwise(edges)
        ]

    def batches(self, pages: Pages, rows: int) -> list[Leaves]:
        """Parts of about so many rows."""
        entries = int.from_bytes(pages.read(self.pages[:1])[3:5].tobytes(), "big")
        return self.split(max(-(-len(self.pages) * entries // rows), 1))


def find_leaves(pages: Pages, root: int, columns: tuple[str, ...], stretch: Stretch) -> Leaves:
    """Pages with the rows of a table, by its first page, its columns and its first and last row number; UnsupportedPage when
    SQLite has to judge what is there."""
    if not -_LARGEST_ROW_NUMBER < stretch[0] <= stretch[1] < _LARGEST_ROW_NUMBER:
        raise UnsupportedPage("row numbers are unusual")
    level, pages_read = [(root, stretch[1])], 0
    while True:
        numbers = np.array([number for number, _ in level])
        pages_read += len(level)
        if numbers.min() < 2 or numbers.max() > pages.count or pages_read > pages.count:
            raise UnsupportedPage("a page is not there, or there twice")
        # All leaves are on one level.
        if pages.read(numbers[:1])[0] == _LEAF:
            break
        level = [child for number, last_row in level for child in _children(pages, number, last_row)]
    edges = np.array([stretch[0] - 1, *(last_row for _, last_row in level)])
    if len(np.unique(numbers)) < len(numbers) or (np.diff(edges) <= 0).any():
        raise UnsupportedPage("pages are not in order")
    return Leaves(columns, numbers, edges)


def _children(pages: Pages, number: int, last_row: int) -> Iterator[tuple[int, int]]:
    """Pages below an inner page, each with its last row number."""
    content = pages.read(np.array([number])).tobytes()
    entries = int.from_bytes(content[3:5], "big")
    if content[0] != _INNER or not entries:
        raise UnsupportedPage("this is no inner page of a table")
    for (place,) in struct.iter_unpack(">H", content[_INNER_HEAD : _INNER_HEAD + _ENTRY_BYTES * entries]):
        yield int.from_bytes(content[place : place + 4], "big"), _row_number(content[place + 4 : place + 12])
    yield int.from_bytes(content[8:12], "big"), last_row


def _row_number(content: bytes) -> int:
    number = 0
    for byte in content:
        number = number << 7 | byte & 127
        if byte < 128:
            return number
    raise UnsupportedPage("a row number is larger than any of a row that was counted")


def read_rows(pages: Pages, leaves: Leaves, schema: Schema) -> pl.DataFrame:
    """Columns of all rows of some pages; UnsupportedPage when SQLite has to judge what is there."""
    head_bytes = len(leaves.columns) + 1
    if head_bytes >= 128:
        raise UnsupportedPage("it has more columns than tables of nsys have")
    content = pages.read(leaves.pages)
    heads, lengths = _records(content, len(leaves.pages), pages, head_bytes)
    values = {name: np.zeros(len(heads), np.float64 if dtype == pl.Float64 else np.int64) for name, dtype in schema.items()}
    nulls = {name: np.zeros(len(heads), dtype=bool) for name in schema}
    for kinds, rows in _by_head(_windows(content, heads, head_bytes)):
        widths = _WIDTHS[kinds]
        ends = np.cumsum(widths)
        length = int(ends[-1])
        is_unused = (kinds >= _FIRST_UNUSED) & (kinds < _FIRST_TEXT)
        if is_unused.any() or (lengths[rows] != head_bytes + length).any():
            raise UnsupportedPage("a record has another length than its values")
        # From 8 bytes before, so that as many end where any value ends.
        bodies = _windows(content, heads[rows] + head_bytes - 8, length + 8)
        for name, dtype in schema.items():
            place = leaves.columns.index(name)
            kind, end = int(kinds[place]), int(ends[place])
            if kind == _NULL:
                nulls[name][rows] = True
            # Where a column of real numbers has a whole one, SQLite stores that.
            elif kind >= _FIRST_UNUSED or dtype not in (pl.Int64, pl.Float64) or (kind == _REAL and dtype == pl.Int64):
                raise UnsupportedPage("texts, or numbers of another kind")
            else:
                values[name][rows] = kind - _ZERO if kind in (_ZERO, _ONE) else _numbers(bodies, end, int(widths[place]), kind)

    def column(name: str, dtype: type[pl.DataType]) -> pl.Series:
        if nulls[name].all():
            return pl.repeat(None, len(heads), dtype=dtype, eager=True).alias(name)
        numbers = pl.Series(name, values[name])
        return in_type(numbers.set(pl.Series(nulls[name]), None) if nulls[name].any() else numbers, dtype)

    return pl.DataFrame([column(name, dtype) for name, dtype in schema.items()])


def _numbers(bodies: np.ndarray, end: int, width: int, kind: int) -> np.ndarray:
    """Numbers of a type and width, bytes, with the highest byte first, that end 8 bytes behind a place in each row."""
    numbers: np.ndarray = np.ndarray(len(bodies), ">f8" if kind == _REAL else ">i8", bodies, end, bodies.strides[:1])
    if kind == _REAL:
        return numbers
    # Shifted there and back, numbers of fewer bytes lose what is before them, and keep their sign.
    whole: np.ndarray = numbers.astype(np.int64) << 8 * (8 - width)
    return whole >> 8 * (8 - width)


def _records(content: np.ndarray, count: int, pages: Pages, head_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the heads of all records are, and how long records are, bytes."""
    size, usable = pages.size, pages.usable
    by_page = content[: count * size].reshape(count, size)
    entries = by_page[:, 3].astype(np.int64) << 8 | by_page[:, 4]
    most = int(entries.max())
    if (by_page[:, 0] != _LEAF).any() or not entries.all() or _LEAF_HEAD + _ENTRY_BYTES * most > usable:
        raise UnsupportedPage("this is no page with rows of a table")
    table = np.ascontiguousarray(by_page[:, _LEAF_HEAD : _LEAF_HEAD + _ENTRY_BYTES * most]).view(">u2")
    places = table[np.arange(most) < entries[:, None]].astype(np.int64)
    if places.min() < _LEAF_HEAD or places.max() > usable - 4:
        raise UnsupportedPage("a row is outside of its page")
    begin = np.repeat(np.arange(count) * size, entries)
    heads = begin + places
    lengths = content[heads].astype(np.int64)
    if (is_long := lengths >= 128).any():
        heads = heads + is_long
        if (content[heads[is_long]] >= 128).any():
            raise UnsupportedPage("a record goes on in other pages")
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
    is_cut = lengths.max() > usable - _LARGEST_ON_PAGE or (heads - begin + lengths).max() > usable
    if goes_on.any() or lengths.min() < head_bytes or is_cut:
        raise UnsupportedPage("a record is shorter than its head, or goes on behind its page")
    return heads, lengths


def _by_head(heads: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """Types of the values of records, and the places of the records that have these."""
    head_bytes = heads.shape[1]
    padded = np.zeros((len(heads), -(-head_bytes // 8) * 8), dtype=np.uint8)
    padded[:, :head_bytes] = heads
    words = padded.view(np.uint64)
    if (padded[:, 0] != head_bytes).any() or (words & _HIGH_BITS).any():
        raise UnsupportedPage("a record has other columns, or long texts")
    if (words == words[0]).all():
        yield padded[0, 1:head_bytes], slice(None)
        return
    groups = pl.DataFrame(words, orient="row").with_row_index("row").group_by(pl.exclude("row")).agg("row")["row"]
    if len(groups) > _MOST_HEADS:
        raise UnsupportedPage("rows are too different")
    for rows in groups:
        yield padded[rows[0], 1:head_bytes], rows.to_numpy()


def _windows(content: np.ndarray, places: np.ndarray, length: int) -> np.ndarray:
    """So many bytes from each of some places on, one row for each place."""
    windows: np.ndarray = np.ndarray((len(content) - length + 1,), dtype=f"V{length}", buffer=content, strides=(1,))
    selected: np.ndarray = windows[places]
    return selected.view(np.uint8).reshape(len(places), length)
