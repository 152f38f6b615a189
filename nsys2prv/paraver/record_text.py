"""Records as lines of a .prv: the delimited writer makes text of whole columns, and lines are put in order as bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from nsys2prv.execution.row_order import differ_from_before
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

_ROWS_OF_CALL = 500
"""Rows that the delimited writer writes in the time of one more call."""
_NEWLINE = ord("\n")

_Cell = str | pl.Series
"""A text that is the same in all lines, or the texts or numbers of each."""


@dataclass(frozen=True)
class _Lines:
    """Lines of one shape, and what they are sorted by.

    Attributes
    ----------
    cells
        What is between the colons of a line, in columns; each row of the frame ends with `terminator`.
    time, row
        Of each line: time (ns of the trace), row of the trace.
    stage
        What comes first on one row and at one time.
    rank
        What comes first of that; None: all the same.
    places
        Where the records are in their batch: what comes first of those that are equal otherwise. None: as they are here.
    """

    cells: pl.DataFrame
    time: np.ndarray
    row: np.ndarray
    stage: int
    rank: np.ndarray | None = None
    places: np.ndarray | None = None
    terminator: str = "\n"


class RecordText:
    """Makes lines of records.

    Parameters
    ----------
    rows
        The rows of the trace (`Rows.table`).
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        # With application 1.
        self._places = rows.select(pl.format("1:{}:{}", "task", "thread")).to_series()
        # What comes before the time, with CPU 0 (any).
        self._heads = {kind: pl.select(pl.format("{}:0:{}", kind, self._places)).to_series() for kind in RECORD_KINDS}

    def encode(self, batches: Sequence[RecordBatch]) -> EncodedRecords:
        """Lines of the records of one window, in their order."""
        # What comes first of lines that are equal in all else: the collections as they come, and their records as they come.
        shapes = [[shape for shape in self._shapes(batch) if len(shape.time)] for batch in batches]
        text = io.BytesIO()
        for shape in (shape for of_batch in shapes for shape in of_batch):
            shape.cells.write_csv(
                text, include_header=False, separator=":", quote_style="never", line_terminator=shape.terminator
            )
            if not shape.terminator:
                text.write(b"\n")
        order = _order(shapes)
        return EncodedRecords(_gathered(text.getbuffer(), order), len(order))

    def _shapes(self, batch: RecordBatch) -> Iterator[_Lines]:
        if batch.kind is RecordKind.STATES:
            yield self._lines(batch.started, STATE, "start", _STATES, [batch.started["end"], batch.started["state"]])
        elif batch.kind is RecordKind.MESSAGES:
            yield self._messages(batch.started)
        elif batch.kind is RecordKind.POINTS:
            yield from self._points(batch.started)
        else:
            assert batch.ended is not None
            yield from self._ends(batch.ended)
            yield from self._starts(batch.started)

    def _lines(
        self,
        frame: pl.DataFrame,
        kind: int,
        time: str,
        stage: int,
        cells: Sequence[_Cell],
        rank: np.ndarray | None = None,
        places: np.ndarray | None = None,
    ) -> _Lines:
        whole = _cells(frame.height, [*self._head(frame, kind), frame[time], *cells])
        return _Lines(whole, frame[time].to_numpy(), frame["row"].to_numpy(), stage, rank, places)

    def _head(self, frame: pl.DataFrame, kind: int) -> list[_Cell]:
        """What comes before the time."""
        if CPU in frame.columns and (frame[CPU] > 0).any():
            return [str(kind), frame[CPU].fill_null(0).clip(0), self._places[frame["row"]]]
        return [self._heads[kind][frame["row"]]]

    def _starts(self, intervals: pl.DataFrame) -> Iterator[_Lines]:
        """Lines where intervals start; an interval without length has one line for both ends."""
        is_point = intervals["start"].to_numpy() == intervals["end"].to_numpy()
        if is_point.any():
            for same, places in _of_patterns(intervals[np.flatnonzero(is_point)]):
                yield self._lines(same, EVENT, "start", _POINTS, [*_opening(same), *_closing(same)], places=places)
            intervals = intervals[np.flatnonzero(~is_point)]
        for same, places in _of_patterns(_longest_ordered(intervals, "end")):
            yield self._lines(same, EVENT, "start", _STARTS, _opening(same), -_length(same), places)

    def _ends(self, intervals: pl.DataFrame) -> Iterator[_Lines]:
        """Lines where intervals end; none for those without length."""
        is_extended = intervals["end"].to_numpy() > intervals["start"].to_numpy()
        if not is_extended.all():
            intervals = intervals[np.flatnonzero(is_extended)]
        for same, places in _of_patterns(_longest_ordered(intervals, "start")):
            yield self._lines(same, EVENT, "end", _ENDS, _closing(same), _length(same), places)

    def _points(self, points: pl.DataFrame) -> Iterator[_Lines]:
        """Lines of marks and samples, which are sorted by time and row; all of one time, row and CPU go on one line."""
        of_line = ["start", "row", *([CPU] if CPU in points.columns else [])]
        is_first = differ_from_before(*(points[name].to_numpy() for name in of_line))
        if is_first.all():
            for same, places in _of_patterns(points):
                yield self._lines(same, EVENT, "start", _POINTS, _opening(same), places=places)
            return
        firsts = points[np.flatnonzero(is_first)]
        head = _cells(firsts.height, [*self._head(firsts, EVENT), firsts["start"]])
        # A line begins after the newline before its first point; no other point has one before it.
        lines = head.select(pl.concat_str(pl.lit("\n"), pl.concat_str(pl.all(), separator=":"))).to_series()
        lines[0] = str(lines[0])[1:]
        numbers = pl.select(pl.when(pl.lit(is_first)).then(pl.lit(np.cumsum(is_first) - 1))).to_series()
        cells = _cells(points.height, [lines.gather(numbers), *_opening(points)])
        yield _Lines(cells, firsts["start"].to_numpy(), firsts["row"].to_numpy(), _POINTS, terminator="")

    def _messages(self, messages: pl.DataFrame) -> _Lines:
        time, to = messages["to_time"], self._places[messages["to_row"]]
        logical = messages["to_begin"] if "to_begin" in messages.columns else time
        cells: list[_Cell] = [messages["time"], "0", to, logical, time, _possible(messages["size"]), _possible(messages["tag"])]
        return self._lines(messages, MESSAGE, "time", _MESSAGES, cells)


def _possible(values: pl.Series) -> pl.Series:
    """Numbers of messages, 0 where a report has one that no message can have."""
    if values.is_empty() or values.is_between(0, LARGEST_EXACT).all(ignore_nulls=False):
        return values
    return pl.select(pl.when(values.is_between(0, LARGEST_EXACT)).then(values).otherwise(0)).to_series()


def _length(intervals: pl.DataFrame) -> np.ndarray:
    length: np.ndarray = np.minimum(intervals["end"].to_numpy() - intervals["start"].to_numpy(), _LONGEST)
    return length


def _longest_ordered(intervals: pl.DataFrame, other: str) -> pl.DataFrame:
    """Intervals sorted by their other end, the last first, where some are above _LONGEST and have no order by length."""
    if intervals.is_empty() or (intervals["end"] - intervals["start"]).max() <= _LONGEST:
        return intervals
    return intervals.sort(other, descending=True, maintain_order=True)


def _attributes(frame: pl.DataFrame) -> list[str]:
    """Attributes that some of the events have."""
    return [name for name in frame.columns if name.isdigit() and frame[name].null_count() < frame.height]


def _of_patterns(frame: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, np.ndarray | None]]:
    """Events that have the same attributes, and where they are in the frame; all events where each has others."""
    optional = [frame[name].is_null().to_numpy() for name in _attributes(frame) if frame[name].null_count()]
    if optional:
        pattern = np.zeros(frame.height, np.int64)
        for is_null in optional:
            pattern = pattern * 2 + is_null
        patterns = np.unique(pattern)
        if len(patterns) <= 1 + frame.height // _ROWS_OF_CALL:
            for one in patterns:
                places = np.flatnonzero(pattern == one)
                yield frame[places], places
            return
    yield frame, None


def _opening(events: pl.DataFrame) -> list[_Cell]:
    """Type and value, and the attributes that an event has."""
    return _pairs(events, events["value"], {name: _shared(events[name]) for name in _attributes(events)})


def _shared(numbers: pl.Series) -> _Cell:
    """Numbers; a text where all are the same, as many attributes are in most windows."""
    least = numbers.min()
    return str(least) if numbers.null_count() == 0 and least == numbers.max() else numbers


def _closing(events: pl.DataFrame) -> list[_Cell]:
    """0 for the type and for each attribute that an event has."""
    return _pairs(events, "0", dict.fromkeys(_attributes(events), "0"))


def _pairs(events: pl.DataFrame, value: _Cell, attributes: Mapping[str, _Cell]) -> list[_Cell]:
    if all(events[name].null_count() == 0 for name in attributes):
        return [_shared(events["number"]), value, *(cell for pair in attributes.items() for cell in pair)]
    pairs = (
        pl.when(pl.col(name).is_not_null()).then(pl.concat_str(pl.lit(f"{name}:"), pl.lit(cell)))
        for name, cell in attributes.items()
    )
    return [events.select(pl.concat_str(pl.col("number"), pl.lit(value), *pairs, separator=":", ignore_nulls=True)).to_series()]


def _cells(rows: int, cells: Sequence[_Cell]) -> pl.DataFrame:
    """Columns of text and numbers; neighbours that are the same in all rows are one."""
    merged: list[_Cell] = []
    for cell in cells:
        if isinstance(cell, str) and merged and isinstance(merged[-1], str):
            merged[-1] += f":{cell}"
        else:
            merged.append(cell)
    columns = (pl.Series([cell]).new_from_index(0, rows) if isinstance(cell, str) else cell for cell in merged)
    return pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)])


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
    ordered = key[order]
    like_before = ordered[1:] == ordered[:-1]
    if like_before.any():
        tied = np.flatnonzero(np.append(like_before, False) | np.append(False, like_before))
        of_line = order[tied]
        order[tied] = of_line[np.lexsort([*(one[of_line] for one in _order_of_ties(shapes)), ordered[tied]])]
    return order


def _order_of_ties(shapes: Sequence[Sequence[_Lines]]) -> Iterator[np.ndarray]:
    """What lines that are equal in time, row and stage are sorted by, the last first."""
    counted = [(number, shape, len(shape.time)) for number, of_batch in enumerate(shapes) for shape in of_batch]
    yield np.concatenate([np.arange(count) if shape.places is None else shape.places for _, shape, count in counted])
    yield np.concatenate([np.full(count, number) for number, _, count in counted])
    yield np.concatenate([np.zeros(count, np.int64) if shape.rank is None else shape.rank for _, shape, count in counted])


def _gathered(text: memoryview, order: np.ndarray) -> memoryview:
    """The lines of a text in an order."""
    behind = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE) + 1
    offsets = np.concatenate([np.zeros(1, np.int64), behind])
    lines = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(behind), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    # Not `lines.take`, which loads a module that takes longer to load than a small trace to write.
    ordered = pl.Series(lines)[order].to_arrow(compat_level=pl.CompatLevel.oldest())
    return memoryview(ordered.buffers()[2])[: len(text)]
