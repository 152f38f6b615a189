"""Lines of text out of columns of numbers and words.

Lines whose columns have the same widths are a table of bytes: what is the same in all of them is written once, and each column
of numbers is looked up four digits at a time. Each table is then put where its lines belong, so that no line is made first and
moved later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

_ROWS_OF_PATTERN, _MOST_PATTERNS = 200, 900
"""Rows that take as long as one more table of lines, and tables of one stretch of columns at most."""
_WIDTHS = 64
"""Above all codes of widths of one column."""
_NEGATIVE = 32
"""Code of a number with a sign: above the digits of all numbers."""
_LARGEST_NARROW = 2**32 - 1

_FOUR = np.frombuffer(b"".join(b"%04d" % one for one in range(10_000)), "<u4")
_THREE = {sign: np.frombuffer(b"".join(b"%c%03d" % (sign, one) for one in range(1_000)), "<u4") for sign in b":-"}
_TWO = np.frombuffer(b"".join(b"%02d" % one for one in range(100)), "<u2")
_ONE = np.frombuffer(b"0123456789", "<u1")

Places = np.ndarray | slice
"""Some rows of columns: their numbers, or all."""
ALL = slice(None)


def _chosen(values: np.ndarray, places: Places) -> np.ndarray:
    # An array as an index takes up to three times as long as `take`.
    return values[places] if isinstance(places, slice) else values.take(places)


class Cells(Protocol):
    """A part of each line.

    `codes` says which rows have the same width and the same form: a number for all, or one below `_WIDTHS` for each.
    """

    @property
    def codes(self) -> int | np.ndarray: ...

    def width(self, code: int) -> int:
        """Bytes of a row with a code."""

    def put(self, table: LineTable, offset: int, code: int, places: Places) -> None:
        """Put the texts of rows that have a code into a table of lines."""


class LineTable:
    """Lines of one width, made of columns: first what is the same in all lines, then what differs."""

    def __init__(self, width: int) -> None:
        self.same = bytearray(width)
        self._different: list[tuple[int, np.ndarray]] = []

    def put(self, offset: int, values: np.ndarray) -> None:
        """Put bytes of each line, as numbers of so many bytes."""
        self._different.append((offset, values))

    def lines(self, rows: int) -> np.ndarray:
        """The lines, as an array of as many bytes for each."""
        width = len(self.same)
        text = np.empty(rows, f"V{width}")
        text[:] = np.frombuffer(bytes(self.same), text.dtype)
        for offset, values in self._different:
            np.ndarray(rows, values.dtype, text, offset, (width,))[:] = values
        return text


@dataclass(frozen=True)
class Same:
    """A text of all lines, or of those that have it."""

    text: bytes
    present: np.ndarray | None = None

    @property
    def codes(self) -> int | np.ndarray:
        """Whether lines have the text."""
        return 1 if self.present is None else self.present.view(np.uint8)

    def width(self, code: int) -> int:
        """Bytes of a row with a code."""
        return len(self.text) * code

    def put(self, table: LineTable, offset: int, code: int, _: Places) -> None:
        """Put the text, where it is."""
        if code:
            table.same[offset : offset + len(self.text)] = self.text


class Numbers:
    """Whole numbers, each with a text before it that ends with a colon; rows without a number have neither.

    Parameters
    ----------
    values
        The numbers.
    before
        The text before each.
    present
        Which rows have a number; None: all.
    """

    def __init__(self, values: np.ndarray, before: bytes, present: np.ndarray | None = None) -> None:
        assert before.endswith(b":")
        self._before = before
        self._least, self._most = int(values.min()), int(values.max())
        negative = None
        if self._least < 0:
            negative = values < 0
            # As unsigned numbers also the least of all numbers has a positive counterpart.
            values = values.astype(np.int64).view(np.uint64)
            values = np.where(negative, -values, values)
            self._least, self._most = int(values.min()), int(values.max())
        narrow = np.uint32 if self._most <= _LARGEST_NARROW else np.uint64
        # Numbers of half the size are divided in a quarter of the time.
        self._values = values.view(narrow) if values.dtype.itemsize == narrow().itemsize else values.astype(narrow)
        self.codes = _digits(self._values, self._least, self._most)
        if negative is not None:
            self.codes = self.codes + negative * np.uint8(_NEGATIVE)
        if present is not None:
            self.codes = self.codes * present.view(np.uint8)

    def width(self, code: int) -> int:
        """Bytes of a row with a code."""
        return len(self._before) + code % _NEGATIVE + code // _NEGATIVE if code else 0

    def put(self, table: LineTable, offset: int, code: int, places: Places) -> None:
        """Put digits, and what is before them."""
        if not code:
            return
        digits, sign = code % _NEGATIVE, b"-" * (code // _NEGATIVE)
        start, before = offset + len(self._before) + len(sign), self._before + sign
        table.same[offset:start] = before
        least, most, values = self._least, self._most, _chosen(self._values, places)
        while least != most:
            if digits == 3:
                # With the character before it: pieces of three bytes take ten times as long.
                table.put(start - 1, _THREE[before[-1]].take(values))
                return
            if digits < 3:
                table.put(start, (_ONE if digits == 1 else _TWO).take(values))
                return
            digits -= 4
            if not digits:
                table.put(start, _FOUR.take(values))
                return
            higher = values // 10_000
            table.put(start + digits, _FOUR.take(values - higher * 10_000))
            values, least, most = higher, least // 10_000, most // 10_000
        # Higher digits are the same in all rows, as those of times are in most windows.
        table.same[start : start + digits] = b"%d" % least


def _digits(values: np.ndarray, least: int, most: int) -> int | np.ndarray:
    """Digits of each number; one number where all have as many."""
    fewest, most_digits = len(str(least)), len(str(most))
    if fewest == most_digits:
        return fewest
    digits = np.full(len(values), fewest, np.uint8)
    for more in range(fewest, most_digits):
        digits += values >= 10**more
    return digits


class Words:
    """Texts without nulls that columns refer to by their numbers."""

    def __init__(self, texts: pl.Series) -> None:
        texts_of_rows = [text.encode() for text in texts]
        self._widest = max(map(len, texts_of_rows), default=0)
        self._padded = np.array([*texts_of_rows, b""], f"S{max(self._widest, 8)}")
        self.widths = np.array([*map(len, texts_of_rows), 0], np.uint8)
        self._pieces: dict[tuple[int, int], np.ndarray] = {}
        assert self._widest < _WIDTHS

    def text(self, number: int) -> bytes:
        """A text."""
        return bytes(self._padded[number])

    def pieces(self, width: int) -> Iterator[tuple[int, np.ndarray]]:
        """Texts of a width in pieces: where each begins, and the piece of each text as a number. They may overlap."""
        size = 8 if width >= 8 else 4 if width >= 4 else 1
        for start in range(0, width, size):
            at = min(start, width - size)
            if (at, size) not in self._pieces:
                every = self._padded.view(np.uint8).reshape(len(self._padded), -1)
                self._pieces[at, size] = np.ascontiguousarray(every[:, at : at + size]).view(f"<u{size}").reshape(-1)
            yield at, self._pieces[at, size]


class Word:
    """A column of words, by their numbers; rows that are not `present` have none."""

    def __init__(self, words: Words, numbers: np.ndarray, present: np.ndarray | None = None) -> None:
        self._words, self._numbers = words, numbers
        self.codes: int | np.ndarray = words.widths.take(numbers)
        if present is not None:
            self.codes = self.codes * present.view(np.uint8)

    def width(self, code: int) -> int:
        """Bytes of a row with a code."""
        return code

    def put(self, table: LineTable, offset: int, code: int, places: Places) -> None:
        """Put words of one width."""
        for start, piece in self._words.pieces(code):
            table.put(offset + start, piece.take(_chosen(self._numbers, places)))


def both(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """Where two parts of a line are; None: everywhere."""
    return other if one is None else one if other is None else one & other


def numbers(values: np.ndarray, before: str, present: np.ndarray | None = None) -> Cells:
    """A column of whole numbers, each with a text before it that ends with a colon."""
    least = int(values.min())
    return Same(f"{before}{least}".encode(), present) if least == values.max() else Numbers(values, before.encode(), present)


def word(words: Words, chosen: np.ndarray, present: np.ndarray | None = None) -> Cells:
    """A column of words, by their numbers."""
    least = int(chosen.min())
    return Same(words.text(least), present) if least == chosen.max() else Word(words, chosen, present)


@dataclass
class _Stretch:
    """Neighbouring columns; `pattern` numbers the codes of all of them in each row (None: all rows have the same)."""

    columns: list[Cells] = field(default_factory=list)
    pattern: np.ndarray | None = None
    patterns: int = 1

    def tables(self, rows: int) -> Iterator[tuple[Places, list[int], int]]:
        """Rows of each pattern, codes of the columns, width."""
        if self.pattern is None:
            yield self._table(ALL, 0)
            return
        order = np.argsort(self.pattern, kind="stable")
        ends = np.cumsum(np.bincount(self.pattern, minlength=self.patterns)).tolist()
        for start, end in itertools.pairwise([0, *ends]):
            yield self._table(order[start:end], order[start])

    def _table(self, places: Places, first: int) -> tuple[Places, list[int], int]:
        codes = [one.codes if isinstance(one.codes, int) else int(one.codes[first]) for one in self.columns]
        return places, codes, sum(one.width(code) for one, code in zip(self.columns, codes, strict=True))


class LineText:
    """Lines, or pieces of lines, that are made of columns.

    Parameters
    ----------
    rows
        Number of lines; not 0.
    columns
        What is in a line, one after the other.
    """

    def __init__(self, rows: int, columns: Sequence[Cells]) -> None:
        self._rows = rows
        stretches = [stretch for stretch in _stretches(rows, _joined(columns)) if stretch.columns]
        self._tables = [list(stretch.tables(rows)) for stretch in stretches]
        self._columns = [stretch.columns for stretch in stretches]
        self._widths = [self._widths_of(tables) for tables in self._tables]
        lengths = np.zeros(rows, np.int64)
        for widths in self._widths:
            lengths += widths
        self.lengths = lengths
        """Bytes of each line."""

    def _widths_of(self, tables: list[tuple[Places, list[int], int]]) -> int | np.ndarray:
        if len(tables) == 1:
            return tables[0][2]
        widths = np.empty(self._rows, np.int64)
        for places, _, width in tables:
            widths[places] = width
        return widths

    def write(self, text: np.ndarray, begins: np.ndarray) -> None:
        """Write the lines to where they begin in a text."""
        for columns, tables, widths in zip(self._columns, self._tables, self._widths, strict=True):
            for places, codes, width in tables:
                self._write(text, _chosen(begins, places), columns, places, codes, width)
            begins = begins + widths

    @staticmethod
    def _write(
        text: np.ndarray, begins: np.ndarray, columns: list[Cells], places: Places, codes: list[int], width: int
    ) -> None:
        if not width:
            return
        table, offset = LineTable(width), 0
        for column, code in zip(columns, codes, strict=True):
            column.put(table, offset, code, places)
            offset += column.width(code)
        lines = table.lines(len(begins))
        # A line may start anywhere in the text.
        np.ndarray(len(text) - width + 1, lines.dtype, text, 0, (1,))[begins] = lines


def _joined(columns: Sequence[Cells]) -> Iterator[Cells]:
    """The same columns, neighbours that are the same in all rows as one."""
    text = b""
    for column in columns:
        if isinstance(column, Same) and column.present is None:
            text += column.text
            continue
        if text:
            yield Same(text)
        text = b""
        yield column
    if text:
        yield Same(text)


def _stretches(rows: int, columns: Iterator[Cells]) -> Iterator[_Stretch]:
    """Columns in stretches whose patterns are few beside the rows."""
    most = min(1 + rows // _ROWS_OF_PATTERN, _MOST_PATTERNS)
    stretch = _Stretch()
    for column in columns:
        if isinstance(column.codes, int):
            stretch.columns.append(column)
            continue
        own, patterns = _numbered(column.codes)
        if stretch.pattern is not None:
            both, together = _numbered(stretch.pattern.astype(np.uint16) * np.uint16(patterns) + own)
            if together <= most:
                own, patterns = both, together
            else:
                yield stretch
                stretch = _Stretch()
        stretch.columns.append(column)
        stretch.pattern, stretch.patterns = own, patterns
    yield stretch


def _numbered(codes: np.ndarray) -> tuple[np.ndarray, int]:
    """Codes that occur as numbers from 0 on, in their order, and how many they are."""
    occurs = np.zeros(int(codes.max()) + 1, dtype=bool)
    occurs[codes] = True
    count = int(np.count_nonzero(occurs))
    if count == len(occurs):
        return codes, count
    return (np.cumsum(occurs) - 1).astype(np.uint16)[codes], count
