"""Fields of the lines of a .prv, all at once: where they end, how long they are, and their values as numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COLON, LINE_END, MINUS, NUMBER_SIGN, ZERO = (ord(character) for character in ":\n-#0")
_SURE_DIGITS = 18
"""A number of more digits may not fit in 64 bits."""
_AT_ONCE = 4
"""Digits of a number that are read at once."""
_BEFORE = 24
"""Bytes before a piece of text in which numbers of 18 digits begin that end in it, and some more."""
_CHUNK = 1 << 20
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

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._bytes = np.frombuffer(text, np.uint8)
        pieces = []
        end = -1
        for begin in range(0, len(text), _CHUNK):
            piece = _Piece(self._bytes, begin, end)
            end = piece.last_end
            pieces.append(piece)
        # Positions of the separators behind each field; narrow, as there are many.
        self._ends = np.concatenate([piece.ends for piece in pieces])
        self.length = np.concatenate([piece.length for piece in pieces])
        self.values: Indices = np.concatenate([piece.values for piece in pieces])
        self.other = np.concatenate([piece.other for piece in pieces])
        last = np.flatnonzero(np.concatenate([piece.is_line_end for piece in pieces]))
        self.first: Indices = np.empty_like(last)
        self.first[0] = 0
        np.add(last[:-1], 1, out=self.first[1:])
        self.count: Indices = last - self.first
        self.count += 1
        self.values[self._negative()] *= -1
        self.too_large = self._read_long()

    def line_of(self, fields: Indices) -> Indices:
        """Index of the line of each field."""
        return np.searchsorted(self.first, fields, side="right") - 1

    def field_at(self, positions: Indices) -> Indices:
        """Index of the field at each position in the text."""
        # Of one type: all ends would be widened otherwise.
        return np.searchsorted(self._ends, positions.astype(np.int32))

    def start(self, fields: Indices) -> Indices:
        """Position of the first byte of each field."""
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
        return self.text[begin : self._ends[last]].decode("utf-8", "replace")

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
    """The fields that end in a piece of text: attributes are those of `Fields`.

    Parameters
    ----------
    text
        The whole text.
    begin
        Where the piece begins.
    last_end
        Position of the last separator before it; -1: there is none.
    """

    def __init__(self, text: npt.NDArray[np.uint8], begin: int, last_end: int) -> None:
        before = min(begin, _BEFORE)
        digits = text[begin - before : begin + _CHUNK] - ZERO
        is_digit = digits < 10
        ends = np.flatnonzero(~is_digit[before:])
        ends += before
        kinds = digits.take(ends)
        self.is_line_end = kinds == (LINE_END - ZERO) % 256
        is_end = kinds == COLON - ZERO
        is_end |= self.is_line_end
        self.other: Indices = ends[:0]
        if not is_end.all():
            self.other = ends[~is_end] + (begin - before)
            ends, self.is_line_end = ends[is_end], self.is_line_end[is_end]
        self.ends = (ends + (begin - before)).astype(np.int32)
        length = np.diff(self.ends, prepend=np.int32(last_end))
        length -= 1
        self.length = np.minimum(length, 255).astype(np.uint8)
        self.last_end = int(self.ends[-1]) if len(ends) else last_end
        digits *= is_digit
        # Of each byte: the number of two digits that ends there, as digits are 0 at other bytes.
        two = digits * np.uint8(1)
        two[1:] += digits[:-1] * np.uint8(10)
        ends -= 1
        self.values = _last_four(two, ends, self.length)
        longer = np.flatnonzero(self.length > _AT_ONCE)
        at, length = ends.take(longer), self.length.take(longer)
        for read in range(_AT_ONCE, _SURE_DIGITS, _AT_ONCE):
            at -= _AT_ONCE
            self.values[longer] += _last_four(two, at, length - np.uint8(read)) * 10**read
            is_longer = length > read + _AT_ONCE
            if not is_longer.all():
                longer, at, length = longer[is_longer], at[is_longer], length[is_longer]


def _last_four(two: npt.NDArray[np.uint8], ends: Indices, length: npt.NDArray[np.uint8]) -> Indices:
    """The numbers that the last four digits of fields make, or all where they have fewer.

    Parameters
    ----------
    two
        Of each byte: the number of two digits that ends there.
    ends
        The last byte of each field, as an index into it.
    length
        Digits of each field.
    """
    higher = two.take(ends - 2, mode="wrap")
    higher *= length > _AT_ONCE // 2
    values = higher.astype(np.int64)
    values *= 100
    values += two.take(ends, mode="wrap")
    return values
