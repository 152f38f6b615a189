"""What a source is, and the columns of the frames that sources give."""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import NOT_APPLICABLE, labelled, pid_of, process_of, tid_of
from nsys2prv.exports.report import enum_labels
from nsys2prv.exports.tables import Stretch
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType
from nsys2prv.vocabulary.name_rules import first_match

F = TypeVar("F", pl.DataFrame, pl.LazyFrame)
Frame = Callable[[Report], pl.LazyFrame]
Step = Callable[[pl.DataFrame], pl.DataFrame]


class RowKind(enum.Enum):
    """What a row of a trace is for; the value is the columns that identify it inside a report."""

    THREAD = ("globalTid",)
    STREAM = ("globalPid", "deviceId", "contextId", "streamId")
    DEVICE = ("globalPid", "deviceId")  # what a process does to a device as a whole
    GPU = ("gpu",)  # a device of the node, by the index that sampled metrics use
    COMPONENT = ("component",)  # a part of the node, by its name: a port, a CPU, a sensor

    @property
    def key(self) -> tuple[str, ...]:
        key: tuple[str, ...] = self.value
        return key

    @property
    def interval(self) -> tuple[str, ...]:
        """Columns of an interval: the key, `start` and `end`."""
        return (*self.key, "start", "end")

    @property
    def key_schema(self) -> dict[str, type[pl.DataType]]:
        """Columns of the key with their types: numbers, but for the name of a component."""
        return dict.fromkeys(self.key, pl.String if self is RowKind.COMPONENT else pl.Int64)


CALL = 0
"""`Source.launch` of API calls."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One kind of activity in one nsys table.

    Attributes
    ----------
    frame
        From a report to a lazy frame, one row per event, in the order of the table:

        - the key columns of `row`
        - ``start``, ``end`` (ns of the report; a missing end means the end of the report; marks and samples have no end)
        - ``type``: event type; for a series also ``series``, the member's name
        - ``label`` (text that becomes a value) or ``value`` (a plain number)
        - attributes: columns named by their event type, numbers or texts; null where an event has none
        - ``state``: Paraver state meanwhile, null for none
        - ``correlationId``, and ``size`` in bytes, when the source takes part in launches
        - ``cpu``: number of the CPU on its host (0, 1, ...), null where it is not known; may be left out
        - ``continuation``: true for a further event of a row that another event was made of already; may be left out
        - ``left_out``: why the row becomes no event (for the account), null where it does; may be left out
        - ``repaired``: whether the value was repaired; may be left out

        Of a source with a `stream`, for the survey: all distinct keys, types, series, labels and text attributes of its
        events; more do no harm. A row that is there for nothing else has no `start`.
    stream
        Of a source whose events need several tables at once, or rows far apart: makes frames with these columns, in bounded
        memory, with intermediate files in a folder.
    """

    # Name for --only and --skip. Tables of one kind share it.
    name: str
    title: str  # what it is, for people
    table: str  # the nsys table
    # required, optional: its columns; without a required one the report can't be translated
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # columns that are read only where a step needs them, or a report has values in them
    # Values of columns that rows of the source have; the other rows of the table belong to other sources.
    only: Mapping[str, tuple[int, ...]] | None = None
    # Columns of the table with the start and the end of an event; where no two columns have them, what makes `start` and `end`
    # of the events of a report.
    times: tuple[str, str] | Frame = ("start", "end")
    frame: Frame
    stream: Callable[[Report, Path], Iterator[pl.DataFrame]] | None = None
    extra_tables: tuple[str, ...] = ()  # further tables (with columns `start`, `end`) that times of events come from
    # Why rows of the table that the source passes over are left out, for the account; "" where other sources have them.
    unread_reason: str = ""
    row: RowKind  # what rows its events are on
    existing_rows_only: bool = False  # its events make no rows: they are on rows that other sources have, or left out
    types: tuple[EventType, ...]  # event types of its events and their attributes
    # Makes a step that needs the events in the order of their start (all events that start together arrive together), and keeps
    # what it needs from one piece to the next.
    in_order: Callable[[], Step] | None = None
    outer_first: bool = False  # its events nest; of those that are equal in row and time it gives the outer one first
    # Its part in lines from API calls to what they start, if any: `CALL`, or the tag of the messages that end here.
    launch: int | None = None
    derived: bool = False  # its events are made of rows that other sources have: the account of rows counts none for it
    assumption: str = ""  # what is assumed about a table of which no real report was at hand; a sentence for the documentation
    since: str = ""  # oldest schema that is known to have the table, such as "3.7"; "" for the first of all

    def scan(self, report: Report) -> pl.LazyFrame:
        """The source's columns of its table, and only its rows."""
        return report.scan_events(self.table, self.required, self.optional, self.only)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of its table that are read for it, where the table has them."""
        times = self.times if isinstance(self.times, tuple) else ()
        return (*self.required, *self.optional, *self.extra, *times, *self.row.key, *(self.only or ()))

    def events(
        self, report: Report, finish: Callable[[pl.LazyFrame], pl.LazyFrame], rows: int, stretch: Stretch | None, folder: Path
    ) -> Iterator[pl.DataFrame]:
        """Its events in bounded memory.

        Parameters
        ----------
        finish
            What is done to each piece.
        rows
            About how many rows of the table make a piece.
        stretch
            Part of the table, for sources that read it row by row; None for all.
        folder
            For intermediate files; need not exist.

        Raises
        ------
        ReportError
            When a table breaks off while it is read.
        """
        if self.stream is None:
            return report.pieces(lambda piecewise: finish(self.frame(piecewise)), rows, stretch)
        return (finish(piece.lazy()).collect() for piece in self.stream(report, folder))


CONTINUATION = "continuation"
"""Column that marks further events of one row of a table: the account of rows counts rows."""


def count_rows(events: pl.DataFrame) -> int:
    """Number of rows of the table that events were made of."""
    return events.height - int(events[CONTINUATION].sum() or 0) if CONTINUATION in events.columns else events.height


LEFT_OUT, REPAIRED = "left_out", "repaired"
"""Further columns of a frame that are for the account of rows."""

UNNAMED = "(unnamed)"


def applicable(column: str) -> pl.Expr:
    """An id, null where it does not apply."""
    return pl.when(pl.col(column) != NOT_APPLICABLE).then(pl.col(column))


def of_schema(frame: F, schema: Mapping[str, Any]) -> F:
    """A frame with the columns of a schema: nulls for those that it lacks."""
    return with_absent(frame, schema).select(list(schema))


def with_text(report: Report, frame: pl.LazyFrame, column: str, text: str) -> pl.LazyFrame:
    """Rows with the text, in a column of that name, whose id is in another column; null where there is none."""
    strings = report.strings.lazy().rename({"value": text})
    return frame.join(strings, left_on=column, right_on="id", how="left", maintain_order="left")


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


def with_absent(frame: F, schema: Mapping[str, Any]) -> F:
    """A frame with all columns of a schema: nulls for those that it lacks."""
    present = frame.collect_schema().names()
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in present]
    return frame.with_columns(absent) if absent else frame


def enumerated(report: Report, table: str, labels: Mapping[int, str], column: str) -> pl.Expr:
    """Labels of the numbers in a column: those that are known, else those of the report's ENUM table, else the number."""
    return labelled(column, enum_labels(report, table, labels), "kind")


def attributes(columns: Mapping[EventType, str]) -> list[pl.Expr]:
    """Columns of a table as attributes."""
    return [pl.col(column).alias(str(number)) for number, column in columns.items()]


def on_first_thread() -> pl.Expr:
    """Column `globalTid`, of what is on no thread of a process (0), as notes of nsys, that of its first thread."""
    tid = pl.col("globalTid")
    return pl.when(tid_of(tid) == 0).then(process_of(tid) + pid_of(tid)).otherwise(tid).alias("globalTid")


def call_source(
    name: str,
    title: str,
    table: str,
    event_type: EventType,
    columns: Mapping[EventType, str],
    *,
    name_column: str = "nameId",
    states: Sequence[tuple[str, int]] = (),
    **attributes_of_source: Any,
) -> Source:
    """A source of calls: a row of the table is a call on its thread, with its name in `name_column`.

    `columns` are those of attributes; `states` gives the Paraver state meanwhile by the name, no states where it is empty;
    `attributes_of_source` are other attributes of the source."""
    of_names = ["label", "state"] if states else ["label"]

    def frame(report: Report) -> pl.LazyFrame:
        state = first_match(pl.col("value"), states, event_types.STATE_OTHERS)
        called = named(source.scan(report), name_column, report.strings.select("id", label="value", state=state))
        kind = pl.lit(event_type, pl.Int64).alias("type")
        return called.select(on_first_thread(), "start", "end", *of_names, *attributes(columns), kind)

    source = Source(
        name=name,
        title=title,
        table=table,
        required=("start", "end", "globalTid", name_column),
        optional=tuple(columns.values()),
        row=RowKind.THREAD,
        types=(event_type, *columns),
        frame=frame,
        **attributes_of_source,
    )
    return source
