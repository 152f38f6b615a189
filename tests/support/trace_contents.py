"""What is in a trace, in names: two traces of the same events have the same contents, whatever their numbers are."""

from dataclasses import dataclass

import polars as pl

from nsys2prv.paraver.blocks import is_interval
from nsys2prv.sources.registry import type_of
from nsys2prv.vocabulary.event_types import Role
from support.interval_pairs import pair_intervals
from support.whole_trace import WholeTrace

_ROW = ("task", "thread")


@dataclass(frozen=True)
class TraceContents:
    """Contents of a trace, each sorted by all of its columns. Rows are named; times are ns."""

    intervals: pl.DataFrame
    points: pl.DataFrame
    states: pl.DataFrame
    messages: pl.DataFrame


def contents(trace: WholeTrace) -> TraceContents:
    """Contents of a trace, which must be whole."""
    events = trace.events()
    numbers = [number for number in events["type"].unique() if is_interval(number)]
    named = trace.named(events).sort("line", "position").with_columns(row=_row(trace, "task", "thread"))
    is_edge = pl.col("type").is_in(numbers)
    edges = named.filter(is_edge)
    paired = pair_intervals(edges, [*_ROW, "type"])
    assert paired.open.is_empty()
    assert paired.orphans.is_empty()
    others = named.filter(~is_edge).join(edges.select("line").unique(), on="line", how="semi")
    attributes = others.filter(pl.col("value") != 0).group_by("line").agg(
        attributes=pl.format("{}={}", "label", "name").sort().str.join("; ")
    )  # fmt: skip
    intervals = paired.closed.join(attributes, on="line", how="left").with_columns(pl.col("attributes").fill_null(""))
    # Fields of payloads are attributes with separate lines; they end, too.
    of_payloads = [number for number in events["type"].unique() if (kind := type_of(number)) and kind.role is Role.ATTRIBUTE]
    points = named.join(edges.select("line").unique(), on="line", how="anti").filter(~pl.col("type").is_in(of_payloads))
    return TraceContents(
        _sorted(_events(intervals, pl.col("end"))),
        _sorted(_events(points.with_columns(attributes=pl.lit(""), depth=pl.lit(1, pl.Int64)), pl.col("time"))),
        _sorted(trace.states().select("state", "begin", "end", row=_row(trace, "task", "thread"))),
        _sorted(_messages(trace)),
    )


def _events(found: pl.DataFrame, end: pl.Expr) -> pl.DataFrame:
    depth = pl.col("depth").cast(pl.Int64)
    return found.select("row", "name", "attributes", depth, number="type", type="label", begin="time", end=end)


def _messages(trace: WholeTrace) -> pl.DataFrame:
    rows = {"row": _row(trace, "send_task", "send_thread"), "to_row": _row(trace, "recv_task", "recv_thread")}
    times = {"send": "logical_send", "wait": "logical_recv", "receive": "physical_recv"}
    return trace.messages().select("size", "tag", **rows, **times)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    ordered = frame.select(sorted(frame.columns))
    return ordered.sort(ordered.columns)


def _row(trace: WholeTrace, task: str, thread: str) -> pl.Expr:
    """Name of a row: of its task and its own, with its place among those of the same name."""
    names: list[str] = []
    for index, of_task in enumerate(trace.header.tasks):
        rows = trace.names["THREAD"][of_task.first_row : of_task.first_row + of_task.threads]
        names += [f"{trace.names['TASK'][index]} | {name} | {rows[:place].count(name)}" for place, name in enumerate(rows)]
    first = pl.Series([one.first_row for one in trace.header.tasks])
    place = pl.lit(first).gather(pl.col(task) - 1) + pl.col(thread) - 1
    return pl.lit(pl.Series(names)).gather(place)
