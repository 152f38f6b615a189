"""Shared by sources of sampled counters: rates, the 0 where a sample ends, values that are in a second table."""

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import WIDE_PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.sources.correlate import side_by_side
from nsys2prv.sources.source import CONTINUATION
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

REAL_PRECISION = 3
"""Decimal places of sampled numbers that are not whole."""
_MEMBERS = 50_000


def sampled_series(number: int, unit: str, values: ValueSet | None = None, *, precision: int = 0) -> EventType:
    """Event types of sampled metrics, one per name."""
    series = {"step": 1, "members": _MEMBERS, "overflow": number + _MEMBERS, "gradient": 0 if values else 7}
    return EventType(number, "{}", Role.SAMPLE, values, unit=unit, precision=precision, **series)


NS_PER_SECOND = 1_000_000_000
_ID = "values_id"
_NO_VALUES = -1


def per_second(count: pl.Expr) -> pl.Expr:
    """Rate of what was counted from `start` to `end`, rounded; null where no time passed."""
    length = pl.col("end") - pl.col("start")
    exact = (count.cast(pl.Float64) * NS_PER_SECOND / length.cast(pl.Float64)).round()
    return pl.when(length > 0).then(exact).cast(pl.Int64, strict=False)


def with_ends(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Samples that hold from `start` to `end` as points: the value at the start, and 0 at the end.

    `until` keeps the end. The 0 is half a sample after its place: by then `EndsOfSamples` knows whether the next sample has
    started; it moves the 0 back."""
    edges = samples.with_columns(
        until=pl.max_horizontal("start", "end"), is_end=pl.concat_list(pl.lit(False), pl.lit(True))
    ).explode("is_end")
    half = (pl.col("until") - pl.col("start")) // 2
    points = edges.with_columns(
        start=pl.when("is_end").then(pl.col("until") + half).otherwise("start"),
        value=pl.when("is_end").then(pl.col("value") * 0).otherwise("value"),
        **{CONTINUATION: pl.col("is_end")},
    )
    return points.with_columns(end=pl.col("start"))


class EndsOfSamples:
    """Drops the 0 at the end of a sample where the next one follows: within half the length of a sample there is no gap.

    Called with points of `with_ends` in the order of `start`. Keeps how far the samples of each metric of a component reach."""

    _KEY = ("component", "type", "series")

    def __init__(self) -> None:
        self._reach = pl.DataFrame(schema={"component": pl.String, "type": pl.Int64, "series": pl.String, "reach": pl.Int64})

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        # A sample that starts at the same time as a 0 counts before it.
        ordered = points.sort("start", "is_end", maintain_order=True).join(
            self._reach, on=list(self._KEY), how="left", maintain_order="left"
        )
        of_start = pl.when(~pl.col("is_end")).then("until")
        reached = ordered.with_columns(
            reach=pl.max_horizontal("reach", of_start.cum_max().over(self._KEY).forward_fill().over(self._KEY))
        )
        self._reach = (
            pl.concat([self._reach, reached.select(self._reach.columns)]).group_by(self._KEY).agg(pl.col("reach").max())
        )
        samples = reached.filter(~pl.col("is_end") | (pl.col("reach") <= pl.col("until")))
        moved = pl.when("is_end").then("until").otherwise("start")
        return samples.with_columns(start=moved, end=moved).drop("reach")


def with_values(
    report: Report, folder: Path, events: Callable[[Report], pl.LazyFrame], values: Callable[[Report], pl.LazyFrame]
) -> Iterator[pl.DataFrame]:
    """Events of one table with their values out of another, a row per value, in bounded memory.

    Parameters
    ----------
    events, values
        From a report to rows of the two tables, as for `Report.pieces`; both with the column `values_id`.

    Yields
    ------
    Columns of both, and `again` for all but the first value of an event. An event without values has one row with nulls.

    Raises
    ------
    ReportError
        When a table breaks off while it is read.
    """
    of_events, of_values = ExternalSort([_ID], folder / "events"), ExternalSort([_ID], folder / "values")
    schema = values(report).collect_schema()
    for piece in report.pieces(events, WIDE_PIECE_ROWS):
        of_events.add(piece.with_columns(pl.col(_ID).fill_null(_NO_VALUES)))
    for piece in report.pieces(values, WIDE_PIECE_ROWS):
        of_values.add(piece.drop_nulls(_ID))
    for window, window_values in side_by_side(of_events, of_values):
        # Which value of an event is its first must not depend on the order of the table.
        beside = window_values.sort(window_values.columns) if window_values.width else pl.DataFrame(schema=schema)
        numbered = window.with_row_index("event").join(beside, on=_ID, how="left", maintain_order="left")
        yield numbered.with_columns(pl.col("event").is_first_distinct().not_().alias(CONTINUATION)).drop("event", _ID)
