"""What a source is, and the columns of the frames that sources give."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import NOT_APPLICABLE
from nsys2prv.exports.lookups import once


class RowKind(enum.Enum):
    """What a row of a trace stands for; the value is the columns that name it inside a report."""

    THREAD = ("globalTid",)
    STREAM = ("globalPid", "deviceId", "contextId", "streamId")
    DEVICE = ("globalPid", "deviceId")  # what a process does to a device as a whole
    GPU = ("gpu",)  # a device of the node, by the index that sampled metrics use
    UNIT = ("unit",)  # a part of the node, by its name: a port, a CPU, a sensor

    @property
    def key(self) -> tuple[str, ...]:
        key: tuple[str, ...] = self.value
        return key

    @property
    def key_schema(self) -> dict[str, type[pl.DataType]]:
        """Columns of the key with their types: numbers, but for the name of a unit."""
        return dict.fromkeys(self.key, pl.String if self is RowKind.UNIT else pl.Int64)


@dataclass(frozen=True)
class Launch:
    """How events of a source take part in lines from API calls to what they start.

    Attributes
    ----------
    tag
        Tag of the message that ends here; None for the calls, where messages begin.
    """

    tag: int | None


@dataclass(frozen=True)
class Source:
    """One kind of activity in one nsys table.

    Attributes
    ----------
    name
        Name for --only and --skip. Tables of one kind share it.
    title
        What it is, for people.
    table
        The nsys table.
    required, optional
        Its columns; without a required one the report can't be translated.
    row
        What rows its events are on.
    types
        Event types it gives (numbers; of a series, the first).
    frame
        From a report to a lazy frame, one row per event, in the order of the table:

        - the key columns of `row`
        - ``start``, ``end`` (ns of the report; a missing end means the end of the report; marks and samples have no end)
        - ``type``: event type; for a series also ``series``, the member's name
        - ``label`` (text that becomes a value) or ``value`` (a plain number)
        - attributes: columns named by their event type, numbers or texts; null where an event has none
        - ``state``: Paraver state meanwhile, null for none
        - ``correlationId``, and ``size`` in bytes, when the source takes part in launches
        - ``cpu``: number of the CPU on its host (0, 1, ...), null where it is not told; may be left out
        - ``again``: true for a further event of a row that another event was made of already; may be left out
        - ``left_out``: why the row becomes no event (for the ledger), null where it does; may be left out
        - ``repaired``: whether the value was mended; may be left out
    times
        Columns of the table with the begin and the end of an event.
    launch
        Its part in launch lines, if any.
    only
        Rows of the table that belong to the source: values of a column. The others belong to other sources.
    in_order
        Makes a step that needs events in the order of their begin (all events that begin together arrive together), and
        keeps what it needs from one piece to the next.
    gather
        For events that are found in several tables at once: makes frames of the columns of `frame`, in bounded memory, with
        intermediate files in a folder. `frame` is for the survey then: all distinct keys, types, series, labels and text
        attributes that `gather` gives stand in it; more do no harm. What stands there for nothing else has no `start`.
    others
        Further tables (with columns `start`, `end`) that `gather` takes times of events from.
    derived
        The events are made of those of other sources: the ledger has no rows for them.
    rest
        Why rows of the table that `frame` and `gather` pass over are left out, for the ledger; empty: other sources have them.
    assumption
        What is taken for granted about a table that no real report was there for; a sentence for the documentation.
    since
        Oldest schema that is known to have the table, such as "3.7"; "" for the first of all.
    moments
        From a report to `start` and `end` of the events, where no two columns of the table tell them.
    guest
        Its events lie on rows that others have: they make none of their own.
    """

    name: str
    title: str
    table: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    row: RowKind
    types: tuple[int, ...]
    frame: Callable[[Report], pl.LazyFrame]
    times: tuple[str, str] = ("start", "end")
    launch: Launch | None = None
    only: Mapping[str, tuple[int, ...]] | None = None
    in_order: Callable[[], Callable[[pl.DataFrame], pl.DataFrame]] | None = None
    gather: Callable[[Report, Path], Iterator[pl.DataFrame]] | None = None
    others: tuple[str, ...] = ()
    derived: bool = False
    rest: str = ""
    assumption: str = ""
    since: str = ""
    moments: Callable[[Report], pl.LazyFrame] | None = None
    guest: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        # Its functions don't travel between processes: it is looked up there.
        return _known_source, (self.title, self.table)

    def scan(self, report: Report) -> pl.LazyFrame:
        """The source's columns of its table, and only its rows."""
        return report.scan_events(self.table, self.required, self.optional, self.only)


def _known_source(title: str, table: str) -> Source:
    from nsys2prv.sources import SOURCES

    return next(source for source in SOURCES if (source.title, source.table) == (title, table))


AGAIN = "again"
"""Column that marks further events of one row of a table: the ledger counts rows."""


def count_rows(events: pl.DataFrame) -> int:
    """Number of rows of the table that events were made of."""
    return events.height - int(events[AGAIN].sum() or 0) if AGAIN in events.columns else events.height


LEFT_OUT, REPAIRED = "left_out", "repaired"
"""Further columns of a frame that are for the ledger."""

UNNAMED = "(unnamed)"


def applicable(column: str) -> pl.Expr:
    """An id, null where it does not apply."""
    return pl.when(pl.col(column) != NOT_APPLICABLE).then(pl.col(column))


def named(frame: pl.LazyFrame, column: str, names: pl.DataFrame) -> pl.LazyFrame:
    """Join what is known of a name to the rows that refer to it.

    Parameters
    ----------
    frame
        Rows with an id of a string in `column`.
    names
        Columns `id`, `label` and whatever goes with a name.
    """
    joined = frame.join(names.lazy(), left_on=column, right_on="id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("label").fill_null(UNNAMED))


DEVICE_ROW = "device_row"


def device_row() -> pl.Expr:
    """One number for the process and the device of a row of RowKind.DEVICE: the lowest 24 bits of `globalPid` are 0."""
    return (pl.col("globalPid") | pl.col("deviceId")).alias(DEVICE_ROW)


def enumerated(report: Report, table: str, known: Mapping[int, str], column: str) -> pl.Expr:
    """Labels of the numbers in a column: those that are known, else as the report's own ENUM table tells, else the number."""
    labels = {**_enumeration(report, table), **known}
    number = pl.col(column)
    return pl.coalesce(number.replace_strict(labels, default=None, return_dtype=pl.String), pl.format("kind {}", number))


@once
def _enumeration(report: Report, table: str) -> dict[int, str]:
    told = report.collect(report.scan(table, optional=("id", "label"))).drop_nulls()
    return dict(told.select("id", "label").iter_rows())


def first_match(text: pl.Expr, rules: tuple[tuple[str, int], ...], default: int) -> pl.Expr:
    """Number of the first rule (regular expression, number) that a text matches."""
    expression = pl.lit(default, pl.Int64)
    for pattern, number in reversed(rules):
        expression = pl.when(text.str.contains(pattern)).then(pl.lit(number, pl.Int64)).otherwise(expression)
    return expression
