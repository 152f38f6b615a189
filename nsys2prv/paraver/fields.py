"""Fields of the lines of a .prv, all at once: where they end, how long they are, and their values as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COLON, LINE_END, MINUS, NUMBER_SIGN, ZERO = (ord(character) for character in ":\n-#0")
Number = TypeVar("Number", bound=np.generic)

_SURE_DIGITS = 18
"""A number of more digits may not fit in 64 bits."""
_AT_ONCE = 4
"""Digits of a number that are read at once."""
_MOST_LENGTH = 255
"""Longer fields count as so long."""
_LAST_BYTE = 255
_USUAL_FIELD = 64
"""Bytes of most fields."""
_BEFORE = 24
"""Bytes before a piece of text in which numbers of 18 digits begin that end in it, and some more."""
_CHUNK = 1 << 21
"""Bytes of text that are worked on at a time: as many stay in the processor's cache, with what is made of them."""


class Fields:
    """The fields of some whole lines.

    Attributes
    ----------
    text
        The lines, each with its line end.
    first, count
        Of each line: index of its first field, and number of its fields.
    length
        Of each field: its bytes, at most 255.
    values
        Of each field that is a number: its value. What else there is has some value.
    too_large
        Fields of many digits that have no value of 64 bits.
    other
        Positions in the text of all bytes that are neither digits, colons nor line ends.
    """

    def __init__(self, text: bytes | npt.NDArray[np.uint8]) -> None:
        self.text = text
        self._bytes = np.frombuffer(text, np.uint8)
        self._separators = [_separators(self._bytes[begin : begin + _CHUNK]) for begin in range(0, len(text), _CHUNK)]
        fields = sum(int(found.sum()) for found in self._separators)
        self.length = np.empty(fields, np.uint8)
        self.values: Indices = np.empty(fields, np.int64)
        is_line_end = np.empty(fields, bool)
        others = []
        done, last_end = 0, -1
        for number, separators in enumerate(self._separators):
            piece = _Piece(self._bytes, number * _CHUNK, separators, last_end)
            inside = slice(done, done + len(piece.length))
            self.length[inside] = piece.length
            piece.read_values(self.values[inside])
            is_line_end[inside] = piece.is_line_end
            others.append(piece.other)
            done, last_end = inside.stop, piece.last_end
        self.other = np.concatenate(others)
        last = np.flatnonzero(is_line_end)
        self.first: Indices = np.empty_like(last)
        self.first[0] = 0
        np.add(last[:-1], 1, out=self.first[1:])
        self.count: Indices = last - self.first
        self.count += 1
        self.values[self._negative()] *= -1
        self.too_large = self._read_long()

    @cached_property
    def _ends(self) -> npt.NDArray[np.int32]:
        """Positions of the separators behind each field; narrow, as there are many. Few traces need them."""
        return np.concatenate([_positions(found, number * _CHUNK) for number, found in enumerate(self._separators)])

    def line_of(self, fields: Indices) -> Indices:
        """Index of the line of each field."""
        return np.searchsorted(self.first, fields, side="right") - 1

    def field_at(self, positions: Indices) -> Indices:
        """Index of the field at each position in the text."""
        if not len(positions):
            return positions
        # Of one type: all ends would be widened otherwise.
        return np.searchsorted(self._ends, positions.astype(np.int32))

    def start(self, fields: Indices) -> Indices:
        """Position of the first byte of each field."""
        if not len(fields):
            return fields
        before: Indices = np.where(fields > 0, self._ends.take(fields - 1, mode="wrap"), -1)
        return before + 1

    def single_digits(self, fields: Indices) -> Indices:
        """Values of fields of one byte; of longer fields -1."""
        found = self.values.take(fields)
        found[self.length.take(fields) != 1] = -1
        return found

    def byte(self, positions: Indices) -> npt.NDArray[np.uint8]:
        """The byte at each position."""
        return self._bytes.take(positions)

    def line(self, number: int) -> str:
        """The text of a line, by its index, without its line end."""
        first, count = int(self.first[number]), int(self.count[number])
        return self._text_of(first, first + count - 1)

    def field(self, number: int) -> str:
        """The text of a field, by its index."""
        return self._text_of(number, number)

    def _text_of(self, first: int, last: int) -> str:
        begin = self._ends[first - 1] + 1 if first else 0
        return bytes(self.text[begin : self._ends[last]]).decode("utf-8", "replace")

    def _negative(self) -> Indices:
        """Fields that start with a minus."""
        minuses = self.other[self.byte(self.other) == MINUS]
        fields = self.field_at(minuses)
        negative: Indices = fields[self.start(fields) == minuses]
        return negative

    def _read_long(self) -> Indices:
        """Read fields of so many digits that they may not fit in 64 bits; the result are those that do not."""
        if self.length.max() <= _SURE_DIGITS:
            return np.zeros(0, np.int64)
        found: Indices = np.flatnonzero(self.length > _SURE_DIGITS)
        values = pl.Series([self.field(field) for field in found.tolist()], dtype=pl.String).cast(pl.Int64, strict=False)
        self.values[found] = values.fill_null(0).to_numpy()
        too_large: Indices = found[values.is_null().to_numpy()]
        return too_large


class _Piece:
    """The fields that end in a piece of text.

    What is at separators is taken by filters of Polars: those of numpy, and looking up at indices, take several times as long.

    Parameters
    ----------
    text
        The whole text.
    begin
        Where the piece begins.
    separators
        Which bytes of the piece are separators.
    before
        Position of the last separator before it; -1: there is none.

    Attributes
    ----------
    length
        As of `Fields`.
    last_end
        Position of the last separator up to the end of the piece; -1: there is none.
    is_line_end
        Of each field: whether it is the last of its line.
    other
        As of `Fields`.
    """

    def __init__(self, text: npt.NDArray[np.uint8], begin: int, separators: pl.Series, before: int) -> None:
        self._separators = separators
        earlier, inside = min(begin, _BEFORE), text[begin : begin + _CHUNK]
        self._digits = np.empty(_BEFORE + len(inside), np.uint8)
        self._digits[: _BEFORE - earlier] = 0
        np.subtract(text[begin - earlier : begin + _CHUNK], np.uint8(ZERO), out=self._digits[_BEFORE - earlier :])
        is_digit = self._digits < 10
        self._digits *= is_digit
        self.is_line_end = pl.Series(inside).filter(separators).to_numpy() == LINE_END
        self.other: Indices = np.zeros(0, np.int64)
        if len(self.is_line_end) + np.count_nonzero(is_digit[_BEFORE:]) != len(inside):
            self.other = np.flatnonzero(~(separators.to_numpy() | is_digit[_BEFORE:])) + begin
        self.last_end = last = _last(separators, begin, before)
        # The last bytes of positions will do: their differences are the lengths of all but long fields.
        last_bytes = _last_bytes()[: len(inside)].filter(separators).to_numpy()
        self.length = _distances(last_bytes, np.uint8((before - begin) & _LAST_BYTE))
        if int(self.length.sum(dtype=np.int64)) + len(self.length) != last - before:
            ends = _positions(separators, begin)
            self.length = np.minimum(_distances(ends, np.int32(before)), _MOST_LENGTH).astype(np.uint8)

    def read_values(self, values: Indices) -> None:
        """Write the value of each field."""
        # Of each byte: the number of two digits that ends there, as digits are 0 at other bytes.
        two = np.empty_like(self._digits)
        two[0] = 0
        np.multiply(self._digits[:-1], np.uint8(10), out=two[1:])
        two += self._digits
        self._read(values, pl.Series(two), self.length, [self._separators], 0)

    def _read(
        self, values: Indices, two: pl.Series, length: npt.NDArray[np.uint8], chosen: Sequence[pl.Series], read: int
    ) -> None:
        """Write the number that the digits of some fields make without the last ones.

        Parameters
        ----------
        two
            Of each byte: the number of two digits that ends there.
        length
            Digits of each field without those.
        chosen
            Which bytes are separators; which of their fields are read; which of those; and so on.
        read
            How many last digits are left out.
        """
        behind = _BEFORE - 1 - read
        lower, higher = (two.slice(behind - digits, len(self._separators)) for digits in (0, _AT_ONCE // 2))
        for mask in chosen:
            lower, higher = lower.filter(mask), higher.filter(mask)
        last = (higher.to_numpy() * (length > _AT_ONCE // 2)).astype(np.uint16)
        last *= np.uint16(100)
        last += lower.to_numpy()
        values[:] = last
        mask = pl.Series(length) > _AT_ONCE
        if read + _AT_ONCE < _SURE_DIGITS and mask.any():
            of_longer = pl.Series(length).filter(mask).to_numpy() - np.uint8(_AT_ONCE)
            found = np.empty(len(of_longer), np.int64)
            self._read(found, two, of_longer, [*chosen, mask], read + _AT_ONCE)
            found *= 10**_AT_ONCE
            found += pl.Series(last).filter(mask).to_numpy()
            values[_places()[: len(length)].filter(mask).to_numpy()] = found


def _distances(ends: npt.NDArray[Number], before: Number) -> npt.NDArray[Number]:
    """Bytes between separators; `before` is the last one before them. As `numpy.diff`, without a copy of all."""
    found = np.empty_like(ends)
    found[:1] = ends[:1] - before
    np.subtract(ends[1:], ends[:-1], out=found[1:])
    found -= found.dtype.type(1)
    return found


def _last(separators: pl.Series, begin: int, before: int) -> int:
    """Position of the last separator of a piece that begins somewhere; `before` where it has none."""
    for behind in (_USUAL_FIELD, len(separators)):
        found = separators.tail(behind).arg_true()
        if len(found):
            return begin + max(len(separators) - behind, 0) + int(found[-1])
    return before


def _positions(separators: pl.Series, begin: int) -> npt.NDArray[np.int32]:
    """Positions of the separators of a piece that begins somewhere."""
    positions: npt.NDArray[np.int32] = _places()[: len(separators)].filter(separators).to_numpy() + np.int32(begin)
    return positions


@cache
def _places() -> pl.Series:
    """Places in a piece of text; made when a trace is read, not when a command starts."""
    return pl.Series(np.arange(_CHUNK, dtype=np.int32))


@cache
def _last_bytes() -> pl.Series:
    """The last byte of each place."""
    return pl.Series(_places().to_numpy().astype(np.uint8))


def _separators(text: npt.NDArray[np.uint8]) -> pl.Series:
    """Which bytes are colons or line ends: a bit for each, which Polars makes in a sixth of the time of an array."""
    every = pl.Series(text)
    return (every == COLON) | (every == LINE_END)
