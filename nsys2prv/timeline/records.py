"""From events to records: one line of a trace each, with what is needed to sort them."""

from __future__ import annotations

import polars as pl

RECORD_SCHEMA = {"time": pl.Int64, "order": pl.Int64, "row": pl.Int64, "kind": pl.Int64, "body": pl.String}
"""`time` (ns of the trace); `order` of records with equal time; `row`; Paraver's `kind` (1 state, 2 event, 3 message);
`body`: the line after its time."""

SORT_COLUMNS = ("time", "order")

# `order` packs: the row, then what kind of record it is, then how long its interval is. On one row and at one time: ends,
# the inner range before the outer one; begins, the outer one before the inner one; what has no length; messages.
_ENDS, _BEGINS, _POINTS, _MESSAGES = range(4)
_LENGTH_BITS = 44
_LONGEST = 2**_LENGTH_BITS - 1
"""Intervals above this length (almost five hours) count as equally long."""
_STAGE_BITS = 2

STATE, EVENT, MESSAGE = RECORD_KINDS = (1, 2, 3)


def _order(stage: int, rank: pl.Expr) -> pl.Expr:
    of_row: int = 2 ** (_LENGTH_BITS + _STAGE_BITS)
    of_stage: int = stage * 2**_LENGTH_BITS
    return pl.col("row") * of_row + of_stage + rank


def interval_records(intervals: pl.DataFrame) -> pl.DataFrame:
    """Begin and end lines of intervals; one line with both for an interval without length.

    Parameters
    ----------
    intervals
        Columns `row`, `start`, `end` (ns of the trace), `number` (event type), `value`, and attributes: numbers in columns
        named by their event type.
    """
    # What no event of the piece has is left out at once; what all have closes with the same text.
    missing = {name: intervals[name].null_count() for name in intervals.columns if name.isdigit()}
    attributes = [name for name, nulls in missing.items() if nulls < intervals.height]
    begin_body = pl.concat_str(
        _pair(pl.col("number"), pl.col("value")),
        *(piece for name in attributes for piece in _attribute(name, missing[name] > 0)),
        ignore_nulls=True,
    )
    end_body = pl.concat_str(
        pl.col("number").cast(pl.String), *_closing([(name, missing[name] > 0) for name in attributes]), ignore_nulls=True
    )
    is_point = pl.col("start") == pl.col("end")
    length = pl.min_horizontal(pl.col("end") - pl.col("start"), pl.lit(_LONGEST))
    bodies = intervals.select("row", "start", "end", begin_body=begin_body, end_body=end_body)
    extended, points = bodies.filter(~is_point), bodies.filter(is_point)
    kind = pl.lit(EVENT, pl.Int64)
    frames = [
        extended.select(time="end", order=_order(_ENDS, length), row="row", kind=kind, body="end_body"),
        extended.select(time="start", order=_order(_BEGINS, _LONGEST - length), row="row", kind=kind, body="begin_body"),
        points.select(
            time="start",
            order=_order(_POINTS, pl.lit(0)),
            row="row",
            kind=kind,
            body=pl.concat_str("begin_body", pl.lit(":"), "end_body"),
        ),
    ]
    return pl.concat(frames)


def _closing(attributes: list[tuple[str, bool]]) -> list[pl.Expr]:
    """What stands after the number on the end line: neighbours that no event misses in one piece."""
    pieces: list[pl.Expr] = []
    text = ":0"
    for name, may_miss in attributes:
        if not may_miss:
            text += f":{name}:0"
            continue
        if text:
            pieces.append(pl.lit(text))
        pieces.append(pl.when(pl.col(name).is_not_null()).then(pl.lit(f":{name}:0")))
        text = ""
    return [*pieces, pl.lit(text)] if text else pieces


def _attribute(name: str, may_miss: bool) -> list[pl.Expr]:
    value = pl.col(name).cast(pl.String)
    return [pl.concat_str(pl.lit(f":{name}:"), value)] if may_miss else [pl.lit(f":{name}:"), value]


def point_records(points: pl.DataFrame) -> pl.DataFrame:
    """Lines of marks and samples; all with the same row and time go on one line.

    Parameters
    ----------
    points
        Columns `row`, `start` (ns of the trace), `number` (event type), `value`. Points of one time stand in one frame.
    """
    lines = points.group_by("start", "row", maintain_order=True).agg(
        body=_pair(pl.col("number"), pl.col("value")).str.join(":")
    )
    return lines.select(time="start", order=_order(_POINTS, pl.lit(0)), row="row", kind=pl.lit(EVENT, pl.Int64), body="body")


def message_records(messages: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Lines of messages.

    Parameters
    ----------
    messages
        Columns `row`, `time` of the sender, `to_row`, `to_time` of the receiver (ns of the trace), `size` (bytes), `tag`.
    rows
        The rows of the trace (`Rows.table`).
    """
    receivers = rows.select(to_row="row", to=pl.format("0:1:{}:{}", "task", "thread"))
    return messages.join(receivers, on="to_row", how="inner", maintain_order="left").select(
        time="time",
        order=_order(_MESSAGES, pl.lit(0)),
        row="row",
        kind=pl.lit(MESSAGE, pl.Int64),
        body=pl.format("{}:{}:{}:{}:{}:{}", "time", "to", "to_time", "to_time", "size", "tag"),
    )


def state_records(states: pl.DataFrame) -> pl.DataFrame:
    """Lines of states.

    Parameters
    ----------
    states
        Columns `row`, `start`, `end` (ns of the trace), `state`.
    """
    return states.select(
        time="start",
        order=_order(_ENDS, pl.lit(0)),
        row="row",
        kind=pl.lit(STATE, pl.Int64),
        body=_pair(pl.col("end"), pl.col("state")),
    )


def _pair(first: pl.Expr, second: pl.Expr) -> pl.Expr:
    return pl.concat_str(first.cast(pl.String), pl.lit(":"), second.cast(pl.String))
