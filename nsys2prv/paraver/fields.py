"""Fields of the lines of a .prv, read as numbers in columns: positions of all separators first, then the values asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COLON, LINE_END, MINUS, NUMBER_SIGN, ZERO = (ord(character) for character in ":\n-#0")
_SURE_DIGITS = 18
"""A number of more digits may not fit in 64 bits."""
_AT_ONCE = 4
"""Digits that `_tails` has of a number at each of its bytes."""
_BEFORE = 16
"""Bytes before the text for which there are tails: a number of 18 digits that starts the text is read from there on."""
_CHUNK = 1 << 18
"""Bytes of text that are worked on at a time: as many stay in the processor's cache."""


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
    other
        Positions in the text of all bytes that are neither digits, colons nor line ends.
    """

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._bytes = np.frombuffer(text, np.uint8)
        self._tails = np.empty(_BEFORE + len(text), np.uint16)
        self._tails[:_BEFORE] = 0
        pieces = [self._scan(begin) for begin in range(0, len(text), _CHUNK)]
        # Positions of the separators behind each field; narrow, as there are many.
        self._ends = np.concatenate([ends for ends, _, _ in pieces])
        is_line_end = np.concatenate([is_line_end for _, is_line_end, _ in pieces])
        self.other = np.concatenate([other for _, _, other in pieces])
        self.length = _lengths(self._ends)
        last = np.flatnonzero(is_line_end)
        self.first: Indices = np.empty_like(last)
        self.first[0] = 0
        np.add(last[:-1], 1, out=self.first[1:])
        self.count: Indices = last - self.first
        self.count += 1

    def _scan(self, begin: int) -> tuple[npt.NDArray[np.int32], Flags, npt.NDArray[np.int32]]:
        """Separators from a position on (position, whether it ends a line), and positions of other bytes; fills the tails.

        The tail of a byte that is a digit is the number that its field has up to there, of which the last four digits count.
        """
        # With what is before: digits that numbers of this chunk begin with.
        before = min(begin, 2 * _AT_ONCE)
        piece = self._bytes[begin - before : begin + _CHUNK] - ZERO
        is_digit = piece < 10
        marks = np.flatnonzero(~is_digit[before:]).astype(np.int32)
        marks += begin
        kinds = self._bytes.take(marks)
        is_line_end = kinds == LINE_END
        kinds_of_ends = kinds == COLON
        kinds_of_ends |= is_line_end
        other = marks[:0]
        if not kinds_of_ends.all():
            other = marks[~kinds_of_ends]
            marks, is_line_end = marks[kinds_of_ends], is_line_end[kinds_of_ends]
        digit = is_digit.view(np.uint8)
        piece *= digit
        two = piece[:-1] * np.uint8(10)
        two += piece[1:]
        # Two digits before two others, without another byte between them.
        two_before = two[:-2] * digit[1:-2]
        two_before *= digit[2:-1]
        tails = self._tails[_BEFORE + begin : _BEFORE + begin + _CHUNK]
        if before:
            tails[:] = two[before - 1 :]
            tails += two_before[before - 3 :] * np.uint16(100)
        else:
            tails[:1] = piece[:1]
            tails[1:] = two
            tails[3:] += two_before * np.uint16(100)
            # At the third byte the two before are one digit.
            tails[2:3] += piece[:1] * digit[1:2] * np.uint16(100)
        return marks, is_line_end, other

    def line_of(self, fields: Indices) -> Indices:
        """Index of the line of each field."""
        return np.searchsorted(self.first, fields, side="right") - 1

    def field_at(self, positions: Indices) -> Indices:
        """Index of the field at each position in the text."""
        return np.searchsorted(self._ends, positions)

    def start(self, fields: Indices) -> Indices:
        """Position of the first byte of each field."""
        before: Indices = np.where(fields > 0, self._ends.take(fields - 1, mode="wrap"), -1)
        return before + 1

    def single_digits(self, fields: Indices) -> npt.NDArray[np.uint8]:
        """Fields of one byte that is a digit as numbers; other fields as numbers above 9."""
        found = self._bytes.take(self._ends.take(fields) - 1, mode="wrap")
        found -= ZERO
        found[self.length.take(fields) != 1] = 255
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

    @cached_property
    def negative(self) -> Indices:
        """Fields that start with a minus."""
        minuses = self.other[self.byte(self.other) == MINUS]
        fields = self.field_at(minuses)
        negative: Indices = fields[self.start(fields) == minuses]
        return negative

    @cached_property
    def long(self) -> pl.DataFrame:
        """Fields of so many digits that they may not fit in 64 bits: `field`, and `value` (Int64), null where it does not."""
        found = np.flatnonzero(self.length > _SURE_DIGITS)
        texts = pl.Series([self.field(field) for field in found.tolist()], dtype=pl.String)
        return pl.DataFrame({"field": found, "value": texts.cast(pl.Int64, strict=False)})

    def numbers(self, fields: Indices) -> Indices:
        """Values of fields that are numbers; 0 for one that does not fit in 64 bits."""
        if not len(fields):
            return np.zeros(0, np.int64)
        last = self._ends.take(fields)
        last += _BEFORE - 1
        length = self.length.take(fields)
        longest = min(int(length.max()), _SURE_DIGITS)
        values: Indices = self._tails.take(last).astype(np.int64)
        longer = np.flatnonzero(length > _AT_ONCE) if longest > _AT_ONCE else fields[:0]
        for digits in range(_AT_ONCE, longest, _AT_ONCE):
            values[longer] += self._tails.take(last.take(longer) - digits) * np.int64(10**digits)
            longer = longer[length.take(longer) > digits + _AT_ONCE]
        if len(self.negative):
            is_negative, _ = _found(fields, self.negative)
            values[is_negative] *= -1
        if self.long.height:
            is_long, place = _found(fields, self.long["field"].to_numpy())
            values[is_long] = self.long["value"].fill_null(0).to_numpy()[place]
        return values


def _lengths(ends: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Bytes of each field, at most 255."""
    lengths = np.empty(len(ends), np.uint8)
    previous = -1
    for begin in range(0, len(ends), _CHUNK):
        piece = np.diff(ends[begin : begin + _CHUNK], prepend=np.int32(previous))
        piece -= 1
        np.minimum(piece, 255, out=lengths[begin : begin + _CHUNK], casting="unsafe")
        previous = ends[min(begin + _CHUNK, len(ends)) - 1]
    return lengths


def _found(fields: Indices, known: Indices) -> tuple[Flags, Indices]:
    """(which of some fields are among the known ones, which are sorted; and at which of their places these are)."""
    place = np.minimum(np.searchsorted(known, fields), len(known) - 1)
    found = known[place] == fields
    return found, place[found]
