"""Events of a source on rows and on the time axis of the trace, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from nsys2prv.sources.lanes import LANE_OF_TYPE
from nsys2prv.sources.registry import TYPES
from nsys2prv.sources.source import Source, count_rows
from nsys2prv.timeline import coverage
from nsys2prv.timeline.coverage import Entry
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.launches import Launches
from nsys2prv.timeline.rows import LANE, key_columns
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.timeline.survey import CPU, TYPE_COLUMNS, Survey, text_attributes
from nsys2prv.timeline.time_axis import Placement
from nsys2prv.trace.merge import Shape
from nsys2prv.vocabulary.event_types import Role


def shape_of(source: Source) -> Shape:
    """What events of a source are in the trace."""
    roles = {TYPES[number].role for number in source.types} - {Role.ATTRIBUTE}
    # Attributes that come without what they are attributes of are as long as that.
    return Shape.INTERVALS if roles <= {Role.INTERVAL} else Shape.POINTS


class EventsOfSource:
    """Places events of one source of one report.

    Parameters
    ----------
    found
        What the survey of this source found in this report.
    row_of_key
        The source's key columns and `row`; None when none of its rows is in the trace.
    labels
        Numbers of types and values.
    windows
        What is kept of the time axis.
    placement
        From times of the report to times of the axis.
    first_cpu
        Number in the trace of the first CPU of the report's host; None: the trace does not tell CPUs.
    report_end
        Where intervals end whose end is not told, in time of the report, ns.
    min_duration
        Shorter intervals are left out, ns.
    """

    def __init__(
        self,
        found: Survey,
        row_of_key: pl.DataFrame | None,
        labels: Labels,
        windows: TimeSelection,
        *,
        placement: Placement,
        first_cpu: int | None,
        report_end: int,
        min_duration: int,
    ) -> None:
        self._source = found.source
        self._placement = placement
        self._windows = windows
        self.lanes: set[tuple[int, int, int]] = set()
        """Lanes that ranges took, for `Labels.use_lane`."""
        self._min_duration = min_duration
        self._report_end = report_end
        self._key = list(key_columns(found.source.row))
        self._first_cpu = first_cpu
        empty = pl.DataFrame(schema={**key_columns(found.source.row), "row": pl.Int64})
        self._row_of_key = empty if row_of_key is None else row_of_key
        self._numbers = labels.of_survey(found)
        self._attributes = {name: labels.of_attribute(found, name) for name in text_attributes(found.groups.schema)}
        self.is_interval = shape_of(found.source) is Shape.INTERVALS

    def place(self, events: pl.DataFrame, entry: Entry, launches: Launches) -> Iterator[pl.DataFrame]:
        """Events on rows and on the time axis of the trace, clipped; counts in `entry` what is left out."""
        if LANE in self._key and LANE not in events.columns:
            events = events.with_columns(pl.lit(0, pl.Int64).alias(LANE))
        told = _without_nulls(events, ["start"])
        entry.leave_out(coverage.NO_TIME, count_rows(events) - count_rows(told))
        valued = _with_values(told)
        entry.leave_out(coverage.NO_VALUE, count_rows(told) - count_rows(valued))
        named = _without_nulls(valued, self._key)
        entry.leave_out(coverage.NO_ROW_NAMED, count_rows(valued) - count_rows(named))
        # Only the columns that tell go through the join: events can be wide.
        rows = named.select(self._key).join(self._row_of_key, on=self._key, how="left", maintain_order="left")["row"]
        placed = _without_nulls(named.with_columns(rows), ["row"])
        absent = coverage.NO_OTHER_EVENTS if self._source.existing_rows_only else coverage.ROW_NOT_CHOSEN
        entry.leave_out(absent, count_rows(named) - count_rows(placed))
        timed = placed.with_columns(
            start=self._placement.of(pl.col("start")),
            end=self._placement.of(pl.max_horizontal(pl.col("end").fill_null(self._report_end), "start")),
        )
        long_enough = timed
        if self._min_duration and self.is_interval:
            long_enough = timed.filter(pl.col("end") - pl.col("start") >= self._min_duration)
            entry.leave_out(coverage.TOO_SHORT, count_rows(timed) - count_rows(long_enough))
        if self._source.launch is not None:
            held = self._windows.hold(long_enough["start"])
            begun = long_enough if held.all() else long_enough.filter(held)
            launches.add(self._source, begun.with_columns(pl.col("start") - self._windows.origin))
        clipped = self._windows.clip(long_enough.with_row_index("event"))
        # In one window an event has one part at most.
        whole = clipped if len(self._windows.begins) == 1 else clipped.unique("event")
        rows_inside = count_rows(whole)
        entry.leave_out(coverage.OUTSIDE, count_rows(long_enough) - rows_inside)
        entry.written += rows_inside
        if whole.height < long_enough.height or clipped.height > whole.height or self._cut_any(long_enough):
            original = (long_enough["end"] - long_enough["start"]).gather(clipped["event"])
            cut = clipped.filter(original != clipped["end"] - clipped["start"])
            entry.clipped += cut["event"].n_unique()
        if clipped.height:
            yield self._numbered(clipped.drop("event"))

    def narrow(self, placed: pl.DataFrame) -> pl.DataFrame:
        """What the trace needs of events that `place` gave."""
        columns = ["row", "start", "end"] if self.is_interval else ["row", "start"]
        cpu = [CPU] if CPU in placed.columns else []
        return placed.select(*columns, *cpu, "number", "value", pl.col(r"^\d+$"))

    def _cut_any(self, events: pl.DataFrame) -> bool:
        return bool(((events["start"] < self._windows.begins[0]) | (events["end"] > self._windows.ends[-1])).any())

    def _numbered(self, events: pl.DataFrame) -> pl.DataFrame:
        what = list(TYPE_COLUMNS)
        numbers = events.select(what).join(self._numbers, on=what, how="left", nulls_equal=True, maintain_order="left")
        numbered = events.with_columns(numbers.drop(what))
        value = pl.col("number_value") if "value" not in events.columns else pl.coalesce("number_value", "value")
        numbered = numbered.with_columns(value=value)
        if CPU in events.columns:
            numbered = numbered.with_columns((pl.col(CPU) + pl.lit(self._first_cpu, pl.Int64)).fill_null(0))
        for name, values in self._attributes.items():
            renamed = values.rename({"value": "attribute_value"})
            numbered = (
                numbered.join(renamed, on=name, how="left", maintain_order="left")
                .with_columns(pl.col("attribute_value").alias(name))
                .drop("attribute_value")
            )
        lane = LANE_OF_TYPE if LANE_OF_TYPE in events.columns else LANE
        return self._in_lanes(numbered, lane) if lane in events.columns and lane not in self._key else numbered

    def _in_lanes(self, numbered: pl.DataFrame, lane: str) -> pl.DataFrame:
        """Ranges that would cut others off, on the types beside theirs."""
        what = ["type", "number", lane]
        taken = numbered.select(what).unique().sort(what)
        beside = [TYPES[kind].beside(number, of_lane) for kind, number, of_lane in taken.iter_rows()]
        for (_, number, of_lane), number_beside in zip(taken.iter_rows(), beside, strict=True):
            self.lanes.add((number, of_lane, number_beside))
        places = taken.with_columns(beside=pl.Series(beside, dtype=pl.Int64))
        return numbered.with_columns(
            number=numbered.select(what).join(places, on=what, how="left", maintain_order="left")["beside"]
        )


def types_of(narrowed: pl.DataFrame) -> set[int]:
    """Numbers of the event types that events, as `EventsOfSource.narrow` gives them, have in the trace."""
    told = [name for name in narrowed.columns if name.isdigit() and narrowed[name].null_count() < narrowed.height]
    return {*narrowed["number"].unique().to_list(), *map(int, told)}


def _without_nulls(events: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Events that have all of the columns; the same frame, not a copy, when that is all of them."""
    return events.drop_nulls(columns) if any(events[name].null_count() for name in columns) else events


def _with_values(events: pl.DataFrame) -> pl.DataFrame:
    """Events of a source of plain numbers that have one, or a label."""
    if "value" not in events.columns or not events["value"].null_count():
        return events
    return events.filter(pl.col("value").is_not_null() | pl.col("label").is_not_null())
