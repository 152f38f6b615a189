"""Records as lines of a .prv: what each line consists of, and where it belongs; the text is made in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.paraver.line_text import Cells, LineText, Same, Words, both, numbers, word
from nsys2prv.timeline.records import EncodedRecords, RecordBatch, RecordKind
from nsys2prv.timeline.survey import CPU
from nsys2prv.vocabulary.limits import LARGEST_EXACT

# On one row and at one time come: the state; ends, the inner interval before the outer one; starts, the outer interval before
# the inner one; intervals without length, marks, samples; messages.
_STATES, _ENDS, _STARTS, _POINTS, _MESSAGES = range(5)
_STAGES = 5
_LONGEST = 2**44 - 1
"""Intervals above this length (almost five hours) count as equally long."""

STATE, EVENT, MESSAGE = RECORD_KINDS = (1, 2, 3)
"""Paraver's kinds of records: the first number of a line."""

_LINE_END = Same(b"\n")


class _Columns:
    """Columns of records as arrays.

    Parameters
    ----------
    records
        The records.
    places
        Those of them that count; None: all.
    """

    def __init__(self, records: pl.DataFrame, places: np.ndarray | None = None) -> None:
        self._series = {column.name: column for column in records.get_columns()}
        self._places = places
        self._arrays: dict[str, np.ndarray] = {}
        self.rows = records.height if places is None else len(places)

    def __contains__(self, name: str) -> bool:
        return name in self._series

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            self._arrays[name] = self._chosen(self._series[name])
        return self._arrays[name]

    def pair(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Numbers of a column, and where they are (None: everywhere); elsewhere is any number of the column."""
        present = self.present(name)
        if present is None:
            return self[name], None
        column = self._series[name]
        return self._chosen(column.fill_null(column.min() or 0)), present

    def present(self, name: str) -> np.ndarray | None:
        """Where a column has numbers; None: everywhere."""
        column = self._series[name]
        return self._chosen(column.is_not_null()) if column.null_count() else None

    def attributes(self) -> list[str]:
        """Attributes that some of the events have."""
        return [name for name, one in self._series.items() if name.isdigit() and one.null_count() < len(one)]

    def _chosen(self, column: pl.Series) -> np.ndarray:
        array = column.to_numpy()
        return array if self._places is None else array.take(self._places)


@dataclass(frozen=True)
class _Lines:
    """Lines of one shape, and what they are sorted by.

    Attributes
    ----------
    columns
        What is in a line, or in a piece of one.
    time, row
        Of each line: time (ns of the trace), row of the trace.
    stage
        What comes first on one row and at one time: of each line, or of all.
    rank
        What comes first of that; None: all the same.
    firsts
        The first piece of each line; None: each is one.
    pieces
        Number of pieces, where they are not lines.
    """

    columns: Sequence[Cells]
    time: np.ndarray
    row: np.ndarray
    stage: int | np.ndarray
    rank: np.ndarray | None = None
    firsts: np.ndarray | None = None
    pieces: int | None = None

    @property
    def rows(self) -> int:
        """Number of lines, or of their pieces."""
        return len(self.time) if self.pieces is None else self.pieces


class RecordText:
    """Makes lines of records.

    Parameters
    ----------
    rows
        The rows of the trace (`Rows.table`).
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        # With application 1.
        self._places = Words(rows.select(pl.format("1:{}:{}", "task", "thread")).to_series())
        # With CPU 0 (any).
        self._places_of_any = Words(rows.select(pl.format("0:1:{}:{}", "task", "thread")).to_series())

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window, in their order."""
        # What comes first of lines that are equal in all else: the collections as they come, and their records as they come.
        shapes = [list(self._shapes(batch)) for batch in batches]
        order = _order(shapes)
        every = [(shape, *_text(shape)) for of_batch in shapes for shape in of_batch]
        lengths = np.concatenate([np.zeros(0, np.int64), *(of_lines for _, _, of_lines in every)])
        ordered = lengths.take(order)
        behind = np.cumsum(ordered)
        begins = np.empty(len(order), np.int64)
        begins[order] = behind - ordered
        text = np.empty(behind[-1] if len(behind) else 0, np.uint8)
        done = 0
        for shape, lines, of_lines in every:
            own = begins[done : done + len(of_lines)]
            done += len(of_lines)
            lines.write(text, own if shape.firsts is None else _of_pieces(own, shape.firsts, lines.lengths))
        return EncodedRecords(text.data, len(order))

    def _shapes(self, batch: RecordBatch) -> Iterator[_Lines]:
        if batch.kind is RecordKind.INTERVALS:
            assert batch.ended is not None
            ends = self._ends(batch.ended, batch.behind)
            if ends is not None:
                yield ends
            if batch.started.height:
                yield self._starts(batch.started)
        elif batch.started.height:
            started = _Columns(batch.started)
            if batch.kind is RecordKind.STATES:
                cells = [numbers(started[name], ":") for name in ("end", "state")]
                yield self._lines(started, STATE, "start", _STATES, cells)
            elif batch.kind is RecordKind.MESSAGES:
                yield self._messages(started)
            else:
                yield self._points(started)

    def _lines(
        self,
        records: _Columns,
        kind: int,
        time: str,
        stage: int | np.ndarray,
        cells: Sequence[Cells],
        rank: np.ndarray | None = None,
    ) -> _Lines:
        columns = [*self._head(records, kind), numbers(records[time], ":"), *cells, _LINE_END]
        return _Lines(columns, records[time], records["row"], stage, rank)

    def _head(self, records: _Columns, kind: int, present: np.ndarray | None = None) -> list[Cells]:
        """What comes before the time."""
        if CPU in records:
            cpu, has_cpu = records.pair(CPU)
            cpu = np.maximum(cpu, 0) if has_cpu is None else np.maximum(cpu, 0) * has_cpu
            if cpu.any():
                return [numbers(cpu, f"{kind}:", present), Same(b":", present), word(self._places, records["row"], present)]
        return [Same(f"{kind}:".encode(), present), word(self._places_of_any, records["row"], present)]

    def _starts(self, records: pl.DataFrame) -> _Lines:
        """Lines where intervals start; an interval without length has one line for both ends."""
        intervals = _Columns(records)
        longest = _longest_ordered(intervals["start"], intervals["end"], intervals["end"])
        if longest is not None:
            intervals = _Columns(records, longest)
        length = intervals["end"] - intervals["start"]
        cells: list[Cells] = _opening(intervals)
        stage: int | np.ndarray = _STARTS
        is_point = length == 0
        if is_point.any():
            cells += _closing(intervals, is_point)
            stage = np.where(is_point, _POINTS, _STARTS)
        return self._lines(intervals, EVENT, "start", stage, cells, -np.minimum(length, _LONGEST))

    def _ends(self, records: pl.DataFrame, behind: int | None) -> _Lines | None:
        """Lines where intervals end, before a time; none for those without length."""
        start, end = records["start"].to_numpy(), records["end"].to_numpy()
        has_line = end > start if behind is None else (end > start) & (end < behind)
        places = None if has_line.all() else np.flatnonzero(has_line)
        intervals = _Columns(records, places)
        if not intervals.rows:
            return None
        longest = _longest_ordered(intervals["start"], intervals["end"], intervals["start"])
        if longest is not None:
            intervals = _Columns(records, longest if places is None else places[longest])
        length = np.minimum(intervals["end"] - intervals["start"], _LONGEST)
        return self._lines(intervals, EVENT, "end", _ENDS, _closing(intervals), length)

    def _points(self, points: _Columns) -> _Lines:
        """Lines of marks and samples, which are sorted by time and row; all of one time, row and CPU go on one line."""
        is_first = differ_from_before(*(points[name] for name in ("start", "row", CPU) if name in points))
        if is_first.all():
            return self._lines(points, EVENT, "start", _POINTS, _opening(points))
        firsts = np.flatnonzero(is_first)
        head = [*self._head(points, EVENT, is_first), numbers(points["start"], ":", is_first)]
        columns = [*head, *_opening(points), Same(b"\n", np.append(is_first[1:], True))]
        return _Lines(columns, points["start"][firsts], points["row"][firsts], _POINTS, None, firsts, points.rows)

    def _messages(self, messages: _Columns) -> _Lines:
        time, has_begin = messages["to_time"], "to_begin" in messages
        cells = [
            numbers(messages["time"], ":"),
            Same(b":0:"),
            word(self._places, messages["to_row"]),
            numbers(messages["to_begin"] if has_begin else time, ":"),
            numbers(time, ":"),
            *(numbers(_possible(*messages.pair(name)), ":") for name in ("size", "tag")),
        ]
        return self._lines(messages, MESSAGE, "time", _MESSAGES, cells)


def _text(shape: _Lines) -> tuple[LineText, np.ndarray]:
    """The lines of a shape, or their pieces, and the length of each line."""
    pieces = LineText(shape.rows, shape.columns)
    return pieces, pieces.lengths if shape.firsts is None else np.add.reduceat(pieces.lengths, shape.firsts)


def _of_pieces(begins: np.ndarray, firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where pieces begin, of lines that begin at some places."""
    before = np.cumsum(lengths) - lengths
    line = np.zeros(len(lengths), np.int64)
    line[firsts[1:]] = 1
    of_piece: np.ndarray = before + (begins - before[firsts])[np.cumsum(line)]
    return of_piece


def _possible(values: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """Numbers of messages, 0 where a report has none or one that no message can have."""
    if present is not None:
        values = values * present
    return np.where((values >= 0) & (values <= LARGEST_EXACT), values, 0)


def _longest_ordered(start: np.ndarray, end: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """Order of intervals by their other end, the last first, where some are above _LONGEST and have no order by length."""
    return None if int((end - start).max()) <= _LONGEST else np.argsort(-other, kind="stable")


def _opening(events: _Columns) -> list[Cells]:
    """Type and value, and the attributes that an event has."""
    before = {"number": ":", "value": ":"} | {name: f":{name}:" for name in events.attributes()}
    return [_numbers(events, name, text) for name, text in before.items()]


def _numbers(events: _Columns, name: str, before: str) -> Cells:
    values, present = events.pair(name)
    return numbers(values, before, present)


def _closing(events: _Columns, present: np.ndarray | None = None) -> list[Cells]:
    """0 for the type and for each attribute that an event has; of events that are `present`."""
    cells = [numbers(events["number"], ":", present), Same(b":0", present)]
    return [*cells, *(Same(f":{name}:0".encode(), both(events.present(name), present)) for name in events.attributes())]


def _order(shapes: Sequence[Sequence[_Lines]]) -> np.ndarray:
    """Numbers of lines, which are counted over all shapes, in the order of the trace."""
    lines = [shape for of_batch in shapes for shape in of_batch]
    if not lines:
        return np.zeros(0, np.int64)
    time = np.concatenate([shape.time for shape in lines])
    place = np.concatenate([shape.row * _STAGES + shape.stage for shape in lines])
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
        of_line = order[tied]
        order[tied] = of_line[np.lexsort([*(one[of_line] for one in _order_of_ties(shapes)), ordered[tied]])]
    return order


def _order_of_ties(shapes: Sequence[Sequence[_Lines]]) -> Iterator[np.ndarray]:
    """What lines that are equal in time, row and stage are sorted by, the last first."""
    counted = [(number, shape, len(shape.time)) for number, of_batch in enumerate(shapes) for shape in of_batch]
    yield np.concatenate([np.arange(count) for _, _, count in counted])
    yield np.concatenate([np.full(count, number) for number, _, count in counted])
    yield np.concatenate([np.zeros(count, np.int64) if shape.rank is None else shape.rank for _, shape, count in counted])
