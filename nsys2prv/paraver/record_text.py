"""Records as lines of a .prv: what each line consists of, where it belongs, and its text, which is made in its place.

Lines are columns of texts and numbers. Those in which all numbers have as many digits are made together, as a table of bytes,
the digits of a column four at a time, and put to their places as a whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RecordKind
from nsys2prv.timeline.survey import CPU
from nsys2prv.vocabulary.limits import LARGEST_EXACT

STATE, EVENT, MESSAGE = (1, 2, 3)
"""Paraver's kinds of records: the first number of a line."""

# On one row and at one time come: the state; ends, the inner interval before the outer one; starts, the outer interval before
# the inner one; intervals without length, marks, samples; messages.
_STATES, _ENDS, _STARTS, _POINTS, _MESSAGES = range(5)
_STAGES = 5

_DIGITS = {size: np.array([b"%0*d" % (size, number) for number in range(10**size)]).view(f"<u{size}") for size in (4, 2, 1)}
"""The digits of all numbers of so many digits, each as one number of as many bytes."""
_DIGITS_WRITTEN = range(4, 25, 4)
"""How many digits of a column may differ: whole lookups of four."""
_LARGEST_NARROW = 2**32 - 1
_ROWS_OF_COMBINATION, _MOST_COMBINATIONS = 500, 60
"""Lines for each combination of widths at least, about, and combinations of cells that are written together at most."""


class Cell(NamedTuple):
    """A part of each line: a text, and a number behind it where there are `values`.

    Lines that are not `present` have neither (None: all lines have them). `values` are without their signs, and without the
    digits that are the same in all lines; `digits` of them are written. Numbers that are `negative` have a sign before the
    first, which is a 0."""

    text: bytes
    present: np.ndarray | None = None
    values: np.ndarray | None = None
    digits: int | np.ndarray = 0
    negative: np.ndarray | None = None

    @property
    def widths(self) -> int | np.ndarray:
        """Bytes in each line; one number where all lines have as many."""
        widths = self.digits + len(self.text)
        return widths if self.present is None else widths * self.present


def cell(text: str, values: np.ndarray | None = None, present: np.ndarray | None = None) -> Cell:
    """A part of each line; digits that are the same in all of them are text."""
    if values is None:
        return Cell(text.encode(), present)
    least, most = int(values.min()), int(values.max())
    if least == most:
        return Cell(f"{text}{least}".encode(), present)
    if least < 0:
        # As unsigned numbers also the least of all numbers has a positive counterpart.
        magnitudes, negative = np.abs(values.astype(np.int64)).view(np.uint64), values < 0
        of_magnitudes = _digits(magnitudes, int(magnitudes.min()), int(magnitudes.max()))
        return Cell(text.encode(), present, magnitudes, of_magnitudes + negative, negative)
    if len(str(least)) < len(str(most)):
        return Cell(text.encode(), present, _narrow(values, most), _digits(values, least, most))
    differing = next(digits for digits in _DIGITS_WRITTEN if least // 10**digits == most // 10**digits)
    same = least // 10**differing
    values = values - values.dtype.type(same * 10**differing) if same else values
    digits = min(differing, len(str(least)))
    return Cell(f"{text}{same or ''}".encode(), present, _narrow(values, most - same * 10**differing), digits)


def _narrow(values: np.ndarray, most: int) -> np.ndarray:
    # Numbers of half the size are divided in a quarter of the time.
    return values.astype(np.uint32 if most <= _LARGEST_NARROW else np.uint64)


def _digits(values: np.ndarray, least: int, most: int) -> np.ndarray:
    """Number of digits of each number, from the least to the largest one."""
    fewest = len(str(least))
    digits = np.full(len(values), fewest, np.int32)
    for more in range(fewest, len(str(most))):
        digits += values >= 10**more
    return digits


class LineText:
    """Lines, or pieces of lines, that are made of cells.

    Parameters
    ----------
    rows
        Number of lines; not 0.
    cells
        What is in a line, one after the other.

    Attributes
    ----------
    lengths
        Bytes of each line.
    """

    def __init__(self, rows: int, cells: Sequence[Cell]) -> None:
        self._pieces = list(_pieces(rows, _joined(cells)))
        self.lengths = np.zeros(rows, np.int64)
        for piece in self._pieces:
            self.lengths += piece.width

    def write(self, text: np.ndarray, begins: np.ndarray) -> None:
        """Write the lines to where they begin in a text."""
        for piece in self._pieces:
            piece.write(text, begins)
            begins = begins + piece.width


def _joined(cells: Sequence[Cell]) -> Iterator[Cell]:
    """The same cells; a text without a number becomes part of what follows it in the same lines."""
    before = cells[0]
    for part in cells[1:]:
        if before.values is None and before.present is part.present:
            before = part._replace(text=before.text + part.text)
        else:
            yield before
            before = part
    yield before


class _Piece:
    """Neighbouring cells of lines, with few combinations of widths; `width` of all of them in each line, bytes."""

    def __init__(self, rows: int) -> None:
        self._cells: list[tuple[Cell, int | np.ndarray]] = []
        self._combination, self._combinations = np.zeros(rows, np.uint16), 1
        self._most = min(1 + rows // _ROWS_OF_COMBINATION, _MOST_COMBINATIONS)
        self.width: int | np.ndarray = 0

    def add(self, part: Cell) -> bool:
        """Add a cell, unless there would be too many combinations then."""
        widths = part.widths
        if not isinstance(widths, int):
            combination, count = _numbered(self._combination.astype(np.int32) * (int(widths.max()) + 1) + widths)
            if count > self._most and self._cells:
                return False
            self._combination, self._combinations = combination, count
        self._cells.append((part, widths))
        self.width = self.width + widths
        return True

    def write(self, text: np.ndarray, begins: np.ndarray) -> None:
        """Write the pieces to where they begin in a text."""
        if self._combinations == 1:
            self._write(text, begins, slice(None))
            return
        order = np.argsort(self._combination, kind="stable")
        edges = np.cumsum(np.bincount(self._combination))[:-1]
        for rows in np.split(order, edges):
            self._write(text, begins.take(rows), rows)

    def _write(self, text: np.ndarray, begins: np.ndarray, rows: np.ndarray | slice) -> None:
        """Write the pieces of rows with one combination of widths."""
        first = 0 if isinstance(rows, slice) else rows[0]
        widths = [width if isinstance(width, int) else int(width[first]) for _, width in self._cells]
        parts = [(part, width) for (part, _), width in zip(self._cells, widths, strict=True) if width]
        if not parts:
            return
        same = b"".join(part.text.ljust(width) for part, width in parts)
        table = np.full(len(begins), np.void(same))
        behind = 0
        for part, width in parts:
            behind += width
            if part.values is not None:
                # An array as an index takes up to three times as long as `take`.
                values = part.values if isinstance(rows, slice) else part.values.take(rows)
                _fill(table, behind, width - len(part.text), values)
                if part.negative is not None:
                    _bytes(table, behind - width + len(part.text), np.uint8)[part.negative[rows]] = ord("-")
        # A line may begin at any byte.
        np.ndarray(len(text) - behind + 1, table.dtype, text, 0, (1,))[begins] = table


def _pieces(rows: int, cells: Iterable[Cell]) -> Iterator[_Piece]:
    piece = _Piece(rows)
    for part in cells:
        if not piece.add(part):
            yield piece
            piece = _Piece(rows)
            piece.add(part)
    yield piece


def _numbered(codes: np.ndarray) -> tuple[np.ndarray, int]:
    """Codes that occur as numbers from 0 on, in their order, and how many they are."""
    occurs = np.bincount(codes) > 0
    # The order of numbers of two bytes is found several times as fast.
    return (np.cumsum(occurs) - 1).astype(np.uint16)[codes], int(np.count_nonzero(occurs))


def _fill(table: np.ndarray, behind: int, width: int, values: np.ndarray) -> None:
    """Write so many digits of numbers into lines of one width, up to a byte."""
    while width:
        size = next(size for size in _DIGITS if size <= width)
        width, behind, number = width - size, behind - size, values
        if width:
            values = number // 10**size
            number = number - values * 10**size
        _bytes(table, behind, _DIGITS[size].dtype)[:] = _DIGITS[size].take(number.astype(np.int64, copy=False))


def _bytes(table: np.ndarray, offset: int, dtype: npt.DTypeLike) -> np.ndarray:
    """Some bytes of each line, as numbers of as many bytes."""
    numbers: np.ndarray = np.ndarray(len(table), dtype, table, offset, table.strides)
    return numbers


@dataclass(frozen=True)
class _Lines:
    """Lines of one shape, and what they are sorted by.

    Attributes
    ----------
    text
        The lines, or their pieces.
    time, row
        Of each line: time (ns of the trace), row of the trace.
    stage
        What comes first on one row and at one time: of each line, or of all.
    rank
        What comes first of that, in the same way.
    firsts
        The first piece of each line; None: each is one.
    """

    text: LineText
    time: np.ndarray
    row: np.ndarray
    stage: int | np.ndarray
    rank: int | np.ndarray = 0
    firsts: np.ndarray | None = None

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each line."""
        return self.text.lengths if self.firsts is None else np.add.reduceat(self.text.lengths, self.firsts)

    def write(self, text: np.ndarray, begins: np.ndarray) -> None:
        """Write the lines to where they begin in a text."""
        if self.firsts is not None:
            before = np.cumsum(self.text.lengths) - self.text.lengths
            pieces = np.diff(self.firsts, append=len(before))
            begins = before + np.repeat(begins - before[self.firsts], pieces)
        self.text.write(text, begins)


class RecordText:
    """Makes lines of records.

    Parameters
    ----------
    rows
        The rows of the trace (`Rows.table`).
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self._task, self._thread = rows["task"].to_numpy(), rows["thread"].to_numpy()

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window, in their order."""
        # What comes first of lines that are equal in all else: the collections as they come, and their records as they come.
        shapes = [shape for batch in batches for shape in self._shapes(batch)]
        if not shapes:
            return EncodedRecords(b"", 0)
        order = _order(shapes)
        lengths = np.concatenate([shape.lengths for shape in shapes]).take(order)
        begins = np.empty_like(lengths)
        begins[order] = np.cumsum(lengths) - lengths
        text = np.empty(lengths.sum(), np.uint8)
        for shape, of_lines in zip(shapes, np.split(begins, np.cumsum([len(shape.time) for shape in shapes])), strict=False):
            shape.write(text, of_lines)
        return EncodedRecords(text.data, len(order))

    def _shapes(self, batch: RecordBatch) -> Iterator[_Lines]:
        if batch.ended is not None:
            has_line = _has_end_line(batch.ended, batch.behind)
            ended = batch.ended if has_line.all() else batch.ended.filter(has_line)
            if ended.height:
                length = (ended["end"] - ended["start"]).to_numpy()
                yield self._lines(ended, EVENT, "end", _ENDS, _closing(ended), length)
        if not batch.started.height:
            return
        if batch.kind is RecordKind.INTERVALS:
            yield self._starts(batch.started)
        elif batch.kind is RecordKind.STATES:
            cells = [cell(":", batch.started[name].to_numpy()) for name in ("end", "state")]
            yield self._lines(batch.started, STATE, "start", _STATES, cells)
        elif batch.kind is RecordKind.MESSAGES:
            yield self._messages(batch.started)
        else:
            yield self._points(batch.started)

    def _lines(
        self,
        records: pl.DataFrame,
        kind: int,
        time: str,
        stage: int | np.ndarray,
        cells: Sequence[Cell],
        rank: int | np.ndarray = 0,
    ) -> _Lines:
        text = LineText(records.height, [*self._head(records, kind, time), *cells, cell("\n")])
        return _Lines(text, records[time].to_numpy(), records["row"].to_numpy(), stage, rank)

    def _head(self, records: pl.DataFrame, kind: int, time: str, present: np.ndarray | None = None) -> list[Cell]:
        """What comes first in a line, up to the time."""
        row = records["row"].to_numpy()
        cpu = records[CPU].fill_null(0).clip(0).to_numpy() if CPU in records.columns else np.zeros(1, np.int64)
        columns = {f"{kind}:": cpu, ":1:": self._task.take(row), ":": self._thread.take(row)}
        return [cell(text, values, present) for text, values in [*columns.items(), (":", records[time].to_numpy())]]

    def _starts(self, intervals: pl.DataFrame) -> _Lines:
        """Lines where intervals start; an interval without length has one line for both ends."""
        length = (intervals["end"] - intervals["start"]).to_numpy()
        is_point = length == 0
        cells, stage = _opening(intervals), np.where(is_point, _POINTS, _STARTS)
        if is_point.any():
            cells += _closing(intervals, is_point)
        return self._lines(intervals, EVENT, "start", stage, cells, -length)

    def _points(self, points: pl.DataFrame) -> _Lines:
        """Lines of marks and samples, which are sorted by time and row; all of one time, row and CPU go on one line."""
        is_first = differ_from_before(*(points[name].to_numpy() for name in ("start", "row", CPU) if name in points.columns))
        if is_first.all():
            return self._lines(points, EVENT, "start", _POINTS, _opening(points))
        firsts = np.flatnonzero(is_first)
        head, end = self._head(points, EVENT, "start", is_first), cell("\n", None, np.append(is_first[1:], True))
        text = LineText(points.height, [*head, *_opening(points), end])
        return _Lines(text, points["start"].to_numpy()[firsts], points["row"].to_numpy()[firsts], _POINTS, 0, firsts)

    def _messages(self, messages: pl.DataFrame) -> _Lines:
        # 0 where a report has no number, or one that no message can have.
        possible = [pl.when(pl.col(name).is_between(0, LARGEST_EXACT)).then(name).otherwise(0) for name in ("size", "tag")]
        columns = messages.with_columns(*possible)
        begin = "to_begin" if "to_begin" in messages.columns else "to_time"
        to_row = messages["to_row"].to_numpy()
        receiver = [cell(":0:1:", self._task.take(to_row)), cell(":", self._thread.take(to_row))]
        numbers = {name: cell(":", columns[name].to_numpy()) for name in ("time", begin, "to_time", "size", "tag")}
        cells = [numbers["time"], *receiver, *(numbers[name] for name in (begin, "to_time", "size", "tag"))]
        return self._lines(messages, MESSAGE, "time", _MESSAGES, cells)


def _has_end_line(intervals: pl.DataFrame, behind: int | None) -> pl.Series:
    """Which intervals have a line where they end, before a time; not those without length."""
    has_length = intervals["end"] > intervals["start"]
    return has_length if behind is None else has_length & (intervals["end"] < behind)


def _attributes(events: pl.DataFrame) -> list[str]:
    """Attributes that some of the events have."""
    return [name for name in events.columns if name.isdigit() and events[name].null_count() < events.height]


def _opening(events: pl.DataFrame) -> list[Cell]:
    """Type and value, and the attributes that an event has."""
    columns = {"number": ":", "value": ":"} | {name: f":{name}:" for name in _attributes(events)}
    return [_cell_of(events[name], text) for name, text in columns.items()]


def _cell_of(column: pl.Series, text: str) -> Cell:
    if not column.null_count():
        return cell(text, column.to_numpy())
    return cell(text, column.fill_null(column.min()).to_numpy(), column.is_not_null().to_numpy())


def _closing(events: pl.DataFrame, present: np.ndarray | None = None) -> list[Cell]:
    """0 for the type and for each attribute that an event has; of events that are `present`."""
    cells = [cell(":", events["number"].to_numpy(), present), cell(":0", None, present)]
    for name in _attributes(events):
        has_attribute = events[name].is_not_null().to_numpy() if events[name].null_count() else None
        if present is not None and has_attribute is not None:
            has_attribute = has_attribute & present
        cells.append(cell(f":{name}:0", None, present if has_attribute is None else has_attribute))
    return cells


def _order(shapes: Sequence[_Lines]) -> np.ndarray:
    """Numbers of lines, which are counted over all shapes, in the order of the trace."""
    time = np.concatenate([shape.time for shape in shapes])
    place = np.concatenate([shape.row * _STAGES + shape.stage for shape in shapes])
    begin, places = int(time.min()), int(place.max()) + 1
    if (int(time.max()) - begin + 1) * places > np.iinfo(np.int64).max:
        # The times by their number: a window can be long, but has few of them.
        time, begin = np.unique(time, return_inverse=True)[1], 0
    key = (time - begin) * places + place
    order = np.argsort(key, kind="stable")
    ordered = key.take(order)
    like_before = ordered[1:] == ordered[:-1]
    if like_before.any():
        tied = np.flatnonzero(np.append(like_before, False) | np.append(False, like_before))
        rank = np.concatenate([np.broadcast_to(shape.rank, len(shape.time)) for shape in shapes])
        order[tied] = order[tied][np.lexsort([rank[order[tied]], ordered[tied]])]
    return order
