"""Records as lines of a .prv, with what is needed to sort them."""

from __future__ import annotations

import itertools

import polars as pl

from nsys2prv.timeline.records import RecordBatch, RecordKind
from nsys2prv.vocabulary.limits import LARGEST_EXACT

SORT_COLUMNS = ("time", "order")

# `order` packs the row, the stage and the length of the interval. On one row and at one time come: ends, the inner interval
# before the outer one; starts, the outer interval before the inner one; intervals without length, marks, samples; messages.
_ENDS, _STARTS, _POINTS, _MESSAGES = range(4)
_LENGTH_BITS = 44
_LONGEST = 2**_LENGTH_BITS - 1
"""Intervals above this length (almost five hours) count as equally long."""
_STAGE_BITS = 2

STATE, EVENT, MESSAGE = RECORD_KINDS = (1, 2, 3)
"""Paraver's kinds of records: the first number of a line."""


def record_lines(batch: RecordBatch, rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Lines of a batch.

    Parameters
    ----------
    rows
        The rows of the trace (`Rows.table`).

    Returns
    -------
    list[pl.DataFrame]
        Columns `time` (ns of the trace), `order` of lines of equal time, `row`, `kind` (of RECORD_KINDS), `cpu` (counted over
        all nodes, 0 for any), `body` (the line after its time).
    """
    if batch.kind is RecordKind.STATES:
        return [state_records(batch.started)]
    if batch.kind is RecordKind.MESSAGES:
        return [message_records(batch.started, rows)]
    if batch.kind is RecordKind.POINTS:
        return [point_records(batch.started)]
    assert batch.ended is not None
    return [end_records(batch.ended), start_records(batch.started)]


def _lines(frame: pl.DataFrame, time: str, order: pl.Expr, kind: int, body: pl.Expr) -> pl.DataFrame:
    cpu = pl.col("cpu") if "cpu" in frame.columns else pl.lit(0, pl.Int64)
    return frame.select(time=time, order=order, row="row", kind=pl.lit(kind, pl.Int64), cpu=cpu, body=body)


def _order(stage: int, rank: pl.Expr) -> pl.Expr:
    of_row: int = 2 ** (_LENGTH_BITS + _STAGE_BITS)
    of_stage: int = stage * 2**_LENGTH_BITS
    return pl.col("row") * of_row + of_stage + rank


def start_records(intervals: pl.DataFrame) -> pl.DataFrame:
    """Lines where intervals start; an interval without length has one line for both ends.

    Parameters
    ----------
    intervals
        Columns `row`, `start`, `end` (ns of the trace), `number` (event type), `value`, and attributes: numbers in columns
        named by their event type; perhaps `cpu` (as counted over all nodes, 0 for any).
    """
    intervals = _longest_ordered(intervals, "end")
    attributes = _attributes(intervals)
    pieces: list[pl.Expr | pl.Series | str] = []
    segment: list[pl.Expr | str] = [_number(intervals, "number"), ":", pl.col("value")]
    columns = ["number", "value"]
    # The order of attributes does not depend on which of them repeat in these rows: the same events make the same lines
    # wherever a window starts.
    for repeats, of_segment in itertools.groupby(attributes, lambda name: _repeats(intervals[name])):
        names = list(of_segment)
        segment += _attribute_texts(intervals, names)
        columns += names
        is_worth_it = repeats and len(names) >= _WORTH_FINDING_COPIES
        pieces += [_once_each(intervals, columns, _joined(*segment))] if is_worth_it else segment
        segment, columns = [], []
    body = _joined(*pieces, *segment)
    length = pl.min_horizontal(pl.col("end") - pl.col("start"), pl.lit(_LONGEST))
    order = _order(_STARTS, _LONGEST - length)
    is_point = intervals["start"] == intervals["end"]
    if is_point.any():
        body = pl.when(is_point).then(pl.concat_str(body, pl.lit(":"), _closing(intervals, attributes))).otherwise(body)
        order = pl.when(is_point).then(_order(_POINTS, pl.lit(0))).otherwise(order)
    return _lines(intervals, "start", order, EVENT, body)


def end_records(intervals: pl.DataFrame) -> pl.DataFrame:
    """Lines where intervals (as of `start_records`) end; none for those without length."""
    extended = _longest_ordered(intervals.filter(pl.col("end") > pl.col("start")), "start")
    length = pl.min_horizontal(pl.col("end") - pl.col("start"), pl.lit(_LONGEST))
    return _lines(extended, "end", _order(_ENDS, length), EVENT, _closing(extended, _attributes(extended)))


def _longest_ordered(intervals: pl.DataFrame, other: str) -> pl.DataFrame:
    """Intervals sorted by their other end, the last first, where some are above _LONGEST and have no order by length."""
    if intervals.is_empty() or (intervals["end"] - intervals["start"]).max() <= _LONGEST:
        return intervals
    return intervals.sort(other, descending=True, maintain_order=True)


def _attributes(intervals: pl.DataFrame) -> list[str]:
    """Attributes that some of the intervals have."""
    return [name for name in intervals.columns if name.isdigit() and intervals[name].null_count() < intervals.height]


def _number(frame: pl.DataFrame, name: str) -> pl.Expr | str:
    """Numbers of a column; a text where all are the same, as event types are in most windows of a collection."""
    least, most = frame[name].min(), frame[name].max()
    return str(least) if frame.height and least == most else pl.col(name)


def _attribute_texts(frame: pl.DataFrame, attributes: list[str]) -> list[pl.Expr | str]:
    """Attributes that follow type and value; nothing where they are null."""
    pieces: list[pl.Expr | str] = []
    for name in attributes:
        if frame[name].null_count() == 0:
            # In pieces: each intermediate text costs as much as the line.
            pieces += [f":{name}:", pl.col(name)]
        else:
            pieces.append(pl.concat_str(pl.lit(f":{name}:"), pl.col(name).cast(pl.String)))
    return pieces


def _closing(intervals: pl.DataFrame, attributes: list[str]) -> pl.Expr:
    """The line where an interval ends: 0 for the type and for each attribute that the interval has."""
    pieces = [_number(intervals, "number")]
    text = ":0"
    for name in attributes:
        if intervals[name].null_count() == 0:
            text += f":{name}:0"
            continue
        # Consecutive attributes that all intervals have are one piece.
        pieces += [text] if text else []
        pieces.append(pl.when(pl.col(name).is_not_null()).then(pl.lit(f":{name}:0")))
        text = ""
    return _joined(*pieces, *([text] if text else []))


def _joined(*pieces: pl.Expr | pl.Series | str) -> pl.Expr:
    """Texts and numbers in one text, without those that are null."""
    texts: list[str | pl.Expr | pl.Series] = []
    for piece in pieces:
        if isinstance(piece, str) and texts and isinstance(texts[-1], str):
            texts[-1] += piece
        else:
            texts.append(piece if isinstance(piece, str) else piece.cast(pl.String))
    return pl.concat_str([pl.lit(text) if isinstance(text, str) else text for text in texts], ignore_nulls=True)


_SAMPLE_ROWS = 1_000
_WORTH_FINDING_COPIES = 3
"""Number of repeating attributes from which it is faster to find copies than to make each text."""


def _repeats(values: pl.Series) -> bool:
    """Whether the values seem to be few that repeat."""
    sample = values.head(_SAMPLE_ROWS)
    return sample.n_unique() <= 1 + len(sample) // 4


def _once_each(frame: pl.DataFrame, columns: list[str], text: pl.Expr) -> pl.Series:
    """A text for each row, made once for rows with equal columns: most events repeat, and copying a text takes a tenth of the
    time of making one."""
    hashes = frame.select(columns).hash_rows()
    first = hashes.arg_unique()
    if len(first) <= len(hashes) // 4:
        distinct = frame[first]
        known = pl.DataFrame({"hash": hashes.gather(first), "place": pl.int_range(len(first), eager=True)})
        place = hashes.to_frame("hash").join(known, on="hash", how="left", maintain_order="left")["place"]
        if all(distinct[name].gather(place).equals(frame[name]) for name in columns):
            return distinct.select(text).to_series().gather(place)
    return frame.select(text).to_series()


def point_records(points: pl.DataFrame) -> pl.DataFrame:
    """Lines of marks and samples; all with the same row and time go on one line.

    Parameters
    ----------
    points
        Columns `row`, `start` (ns of the trace), `number` (event type), `value`, and attributes as of `start_records`. Points
        of one time are in one frame.
    """
    of_line = ["start", "row", *(["cpu"] if "cpu" in points.columns else [])]
    body = _joined(_number(points, "number"), ":", pl.col("value"), *_attribute_texts(points, _attributes(points)))
    lines = points.group_by(of_line, maintain_order=True).agg(body=body.str.join(":"))
    return _lines(lines, "start", _order(_POINTS, pl.lit(0)), EVENT, pl.col("body"))


def message_records(messages: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Lines of messages.

    Parameters
    ----------
    messages
        Columns `row`, `time` of the sender, `to_row`, `to_time` of the receiver (ns of the trace), `size` (bytes), `tag`;
        perhaps `to_begin`, when the receiver began to wait: Paraver's logical receive; by default `to_time`.
    rows
        The rows of the trace (`Rows.table`).
    """
    messages = messages.with_columns(_possible("size"), _possible("tag"))
    to = rows.select(pl.format(":0:1:{}:{}:", "task", "thread")).to_series().gather(messages["to_row"])
    # Mostly both are the same text, which is made once.
    arrival = messages["to_time"].cast(pl.String)
    logical = messages["to_begin"].cast(pl.String) if "to_begin" in messages.columns else arrival
    size, tag = _number(messages, "size"), _number(messages, "tag")
    body = _joined(pl.col("time"), to, logical, ":", arrival, ":", size, ":", tag)
    return _lines(messages, "time", _order(_MESSAGES, pl.lit(0)), MESSAGE, body)


def _possible(name: str) -> pl.Expr:
    """A column of a message, 0 where a report has a number that no message can have."""
    return pl.when(pl.col(name).is_between(0, LARGEST_EXACT)).then(name).otherwise(0).alias(name)


def state_records(states: pl.DataFrame) -> pl.DataFrame:
    """Lines of states: columns `row`, `start`, `end` (ns of the trace), `state`; perhaps `cpu` (as counted over all nodes, 0
    for any).
    """
    # There are few states, so their texts are looked up.
    most = states.select(pl.col("state").max()).item() or 0
    texts = pl.Series([f":{state}" for state in range(most + 1)])
    return _lines(states, "start", _order(_ENDS, pl.lit(0)), STATE, _joined(pl.col("end"), texts.gather(states["state"])))
