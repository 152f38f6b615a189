"""Events of a source on rows and on the time axis of the run, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.sources.lanes import LANE_OF_TYPE
from nsys2prv.sources.registry import TYPES
from nsys2prv.sources.source import Source, count_rows
from nsys2prv.timeline import coverage
from nsys2prv.timeline.coverage import SourceCoverage
from nsys2prv.timeline.labels import Labels
from nsys2prv.timeline.messages import Launches
from nsys2prv.timeline.rows import LANE, key_columns
from nsys2prv.timeline.survey import CPU, TYPE_COLUMNS, Survey, text_attributes
from nsys2prv.timeline.time_axis import Placement, TimeSelection
from nsys2prv.vocabulary.event_types import Role
from nsys2prv.vocabulary.limits import LARGEST_EXACT


def gives_intervals(source: Source) -> bool:
    """Whether events of a source have a length; those of the others are marks or samples."""
    # Attributes of no interval of the same source last as long as the interval that they belong to.
    return {event_type.role for event_type in source.types} <= {Role.INTERVAL, Role.ATTRIBUTE}


class EventsOfSource:
    """Places events of one source of one report; `lanes` is complete when all events were placed."""

    def __init__(
        self,
        survey: Survey,
        row_of_key: pl.DataFrame | None,  # key columns and `row`; None when none of its rows was selected
        labels: Labels,
        selection: TimeSelection,
        *,
        placement: Placement,
        first_cpu: int | None,  # counted over all hosts from 1; None: events get no CPU
        report_end: int,  # where intervals without an end stop, ns of the report
        min_duration: int,
    ) -> None:
        self._source = survey.source
        self._placement = placement
        self._selection = selection
        self.lanes: set[tuple[int, int, int]] = set()
        self._min_duration = min_duration if gives_intervals(survey.source) else 0
        self._report_end = report_end
        self._key = list(key_columns(survey.source.row))
        self._first_cpu = first_cpu
        empty = pl.DataFrame(schema={**key_columns(survey.source.row), "row": pl.Int64})
        self._row_of_key = empty if row_of_key is None else row_of_key
        self._numbers = labels.of_survey(survey)
        self._attributes = {name: labels.of_attribute(survey, name) for name in text_attributes(survey.groups.schema)}

    def place(self, events: pl.DataFrame, entry: SourceCoverage, launches: Launches) -> Iterator[pl.DataFrame]:
        """Place events; count in `entry` those that are left out.

        Yields
        ------
        The columns of `TableSource.frame`, with `row`, `start` and `end` in ns of the selection's origin, cut at its edges,
        `number` (event type) and `value`, and attributes as numbers.
        """
        if LANE in self._key and LANE not in events.columns:
            events = events.with_columns(pl.lit(0, pl.Int64).alias(LANE))
        timed = entry.keep(events, _without_nulls(events, ["start"]), coverage.NO_TIME)
        valued = entry.keep(timed, _with_values(timed), coverage.NO_VALUE)
        is_exact = "value" not in valued.columns or _is_exact(valued["value"])
        exact = entry.keep(valued, valued if is_exact else valued.filter(_exact("value")), coverage.INEXACT)
        exact = _with_exact_attributes(exact, entry)
        named = entry.keep(exact, _without_nulls(exact, self._key), coverage.NO_ROW_NAMED)
        absent = coverage.NO_OTHER_EVENTS if self._source.existing_rows_only else coverage.ROW_NOT_CHOSEN
        on_rows = named.with_columns(look_up(named, self._row_of_key, self._key))
        placed = entry.keep(named, _without_nulls(on_rows, ["row"]), absent)
        on_axis = placed.with_columns(
            start=self._placement.of(pl.col("start")),
            end=self._placement.of(pl.max_horizontal(pl.col("end").fill_null(self._report_end), "start")),
        )
        long_enough = on_axis
        if self._min_duration:
            is_long = pl.col("end") - pl.col("start") >= self._min_duration
            long_enough = entry.keep(on_axis, on_axis.filter(is_long), coverage.TOO_SHORT)
        if self._source.launch is not None:
            held = self._selection.hold(long_enough["start"])
            launches.add(self._source, long_enough.with_columns(pl.col("start") - self._selection.origin), held)
        if self._selection.covers(long_enough):
            entry.written += count_rows(long_enough)
            inside = long_enough.with_columns(pl.col("start", "end") - self._selection.origin)
        else:
            inside = self._inside(long_enough, entry)
        if inside.height:
            yield self._numbered(inside)

    def _inside(self, events: pl.DataFrame, entry: SourceCoverage) -> pl.DataFrame:
        """The parts of events inside the selected time, in time of the trace."""
        clipped = self._selection.clip(events.with_row_index("event"))
        # In one window an event has one part at most.
        inside = clipped if len(self._selection.starts) == 1 else clipped.unique("event")
        entry.written += count_rows(entry.keep(events, inside, coverage.OUTSIDE))
        first, last = self._selection.starts[0], self._selection.ends[-1]
        is_cut = ((events["start"] < first) | (events["end"] > last)).any()
        if inside.height < events.height or clipped.height > inside.height or is_cut:
            original = (events["end"] - events["start"]).gather(clipped["event"])
            cut = clipped.filter(original != clipped["end"] - clipped["start"])
            entry.clipped += cut["event"].n_unique()
        return clipped.drop("event")

    def _numbered(self, events: pl.DataFrame) -> pl.DataFrame:
        numbered = events.with_columns(look_up(events, self._numbers, list(TYPE_COLUMNS)))
        value = pl.col("number_value") if "value" not in events.columns else pl.coalesce("number_value", "value")
        numbered = numbered.with_columns(value=value)
        if CPU in events.columns:
            numbered = numbered.with_columns((pl.col(CPU) + pl.lit(self._first_cpu, pl.Int64)).fill_null(0))
        for name, values in self._attributes.items():
            texts = numbered.select(name).join(values, on=name, how="left", maintain_order="left")
            numbered = numbered.with_columns(texts["value"].alias(name))
        lane = LANE_OF_TYPE if LANE_OF_TYPE in events.columns else LANE
        return self._in_lanes(numbered, lane) if lane in events.columns and lane not in self._key else numbered

    def _in_lanes(self, numbered: pl.DataFrame, lane: str) -> pl.DataFrame:
        """Ranges that would cut others off get the types beside theirs."""
        what = ["type", "number", lane]
        distinct = numbered.select(what).unique().sort(what)
        beside = [TYPES[kind].beside(number, of_lane) for kind, number, of_lane in distinct.iter_rows()]
        self.lanes.update(zip(distinct["number"], distinct[lane], beside, strict=True))
        places = distinct.with_columns(beside=pl.Series(beside, dtype=pl.Int64))
        return numbered.with_columns(
            number=numbered.select(what).join(places, on=what, how="left", maintain_order="left")["beside"]
        )


def look_up(events: pl.DataFrame, table: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """What a small table has for each event, by the columns of a key (nulls are equal); null where it has nothing.

    Columns in which all events are equal, as most are in most tables, are not joined.
    """
    varying = []
    for name in key:
        column = events[name]
        if column.null_count() == len(column):
            table = table.filter(pl.col(name).is_null())
        elif column.dtype.is_integer() and not column.null_count() and (least := column.min()) == column.max():
            table = table.filter(pl.col(name) == least)
        else:
            varying.append(name)
    table = table.drop(name for name in key if name not in varying)
    if varying:
        # Events can be wide: only their keys go through the join.
        joined = events.select(varying).join(table, on=varying, how="left", nulls_equal=True, maintain_order="left")
        return joined.drop(varying)
    return table[np.zeros(events.height, dtype=np.uint32)] if table.height else table.clear(events.height)


def _without_nulls(events: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Events that have all of the columns; the same frame, not a copy, when that is all of them."""
    return events.drop_nulls(columns) if any(events[name].null_count() for name in columns) else events


def _with_values(events: pl.DataFrame) -> pl.DataFrame:
    """Events with a value or a label; the same frame when that is all of them."""
    named = [name for name in ("label", "value") if name in events.columns]
    if any(not events[name].null_count() for name in named):
        return events
    return events.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in named))


def _with_exact_attributes(events: pl.DataFrame, entry: SourceCoverage) -> pl.DataFrame:
    """Events without attributes that are too large for a trace; those that lose one count as repaired."""
    inexact = [name for name in events.columns if name.isdecimal() and not _is_exact(events[name])]
    if not inexact:
        return events
    entry.repaired += int(events.select(pl.any_horizontal(~_exact(name) for name in inexact).sum()).item())
    return events.with_columns(pl.when(_exact(name)).then(name).alias(name) for name in inexact)


def _exact(name: str) -> pl.Expr:
    return pl.col(name).is_between(-LARGEST_EXACT, LARGEST_EXACT).fill_null(True)


def _is_exact(numbers: pl.Series) -> bool:
    """Whether all of some numbers are; texts get other numbers later."""
    if numbers.dtype != pl.Int64:
        return True
    least, greatest = numbers.min(), numbers.max()
    return least is None or bool(least >= -LARGEST_EXACT and greatest <= LARGEST_EXACT)  # type: ignore[operator]
