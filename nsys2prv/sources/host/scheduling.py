"""Scheduling: when each thread is on which CPU, when it is off, and why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.memory import PIECE_ROWS
from nsys2prv.exports import Report
from nsys2prv.exports.columns import labelled
from nsys2prv.exports.report import enum_labels
from nsys2prv.sources.host.profiled import FOREIGN, SCHEDULING, of_profiled
from nsys2prv.sources.source import RowKind, Source
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet

BLOCK_REASON = EventType(40000162, "Off CPU, reason", Role.ATTRIBUTE, ValueSet("reasons of blocking"), former=40000062)


_REQUIRED = ("start", "cpu", "isSchedIn", "globalTid")
_OPTIONAL = ("threadState", "threadBlock")
_UNKNOWN = [pl.lit(None, pl.Int64).alias(name) for name in _OPTIONAL]
_OFF = "off CPU"
"""Value of the time off CPU where nsys does not report the thread's state."""

_THREAD, _IS_IN = "globalTid", "isIn"
_SWITCH = {
    _THREAD: pl.Int64,
    "start": pl.Int64,
    "cpu": pl.Int64,
    _IS_IN: pl.Boolean,
    "threadState": pl.Int64,
    "threadBlock": pl.Int64,
}


class Stays:
    """Makes of each switch of a thread what holds until its next one: a stay on a CPU, or off it.

    Called with pieces of a table of switches in the order of time (all switches of one time in one piece); gives the stays
    that end in the piece, with their `end`. Keeps the last switch of each thread from one piece to the next; what is open at
    the end is given by `finish`.

    A thread that is put on a CPU again without having been taken off it was on the CPU until then: the row between is lost."""

    def __init__(self) -> None:
        self._last = pl.DataFrame(schema=_SWITCH)

    def __call__(self, switches: pl.DataFrame) -> pl.DataFrame:
        """Stays that end with one of the switches: columns of the switch that they start with, and `end`, ns."""
        ordered = pl.concat([self._last, _alternating(switches, self._last)]).sort(_THREAD, maintain_order=True)
        thread = ordered[_THREAD]
        is_last = thread.ne_missing(thread.shift(-1))
        self._last = ordered.filter(is_last)
        return ordered.with_columns(end=pl.col("start").shift(-1)).filter(~is_last)

    def finish(self) -> pl.DataFrame:
        """Stays that are open at the end, with no `end`."""
        return self._last.with_columns(end=pl.lit(None, pl.Int64))


def _alternating(switches: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Switches in an order in which each thread goes on and off in turns, as far as that can be.

    nsys writes "off" first when a thread is put on a CPU and taken off it in the same nanosecond, whatever came first."""
    moment = [_THREAD, "start"]
    if not switches.select(moment).is_duplicated().any():
        return switches.sort("start", maintain_order=True)
    step = pl.when(_IS_IN).then(1).otherwise(-1)
    moments = pl.concat(
        [before.select(*moment, isOn=step.cast(pl.Int32)), switches.group_by(moment).agg(isOn=step.sum().sign().cast(pl.Int32))]
    ).sort(moment, maintain_order=True)
    # Where as many switches go on as off the thread stays what it was; one of which nothing is known was off.
    is_on = pl.when(pl.col("isOn") != 0).then("isOn").forward_fill().over(_THREAD)
    was_on = moments.with_columns(isOn=is_on).with_columns(wasOn=pl.col("isOn").shift(1).over(_THREAD).fill_null(-1) > 0)
    return (
        switches.join(was_on, on=moment, how="left", maintain_order="left")
        .with_columns(turn=pl.int_range(pl.len()).over(*moment, _IS_IN), isSecond=pl.col(_IS_IN) == pl.col("wasOn"))
        .sort("start", "turn", "isSecond", maintain_order=True)
        .select(switches.columns)
    )


def _switches(report: Report) -> pl.LazyFrame:
    """Rows of the table that are of profiled processes."""
    switches = SWITCHES.scan(report).filter(of_profiled(report, SCHEDULING))
    return switches.select(_THREAD, "start", "cpu", (pl.col("isSchedIn") != 0).fill_null(False).alias(_IS_IN), *_OPTIONAL)


def _as_events(stays: pl.LazyFrame, report: Report) -> pl.LazyFrame:
    """Stays (columns of a switch, and `end`) as a source gives them."""
    states = enum_labels(report, "ENUM_SAMPLING_THREAD_STATE", event_types.THREAD_STATES)
    reasons = enum_labels(report, "ENUM_SCHEDULING_THREAD_BLOCK")
    is_in = pl.col(_IS_IN)
    return stays.select(
        _THREAD,
        "start",
        "end",
        pl.when(~is_in).then(labelled("threadBlock", reasons, "reason")).alias(str(BLOCK_REASON)),
        type=pl.when(is_in).then(event_types.EXECUTING_CPU).otherwise(event_types.OFF_CPU).cast(pl.Int64),
        label=pl.when(~is_in).then(labelled("threadState", states, "thread state").fill_null(_OFF)),
        # A negative one would be the end of a stay.
        value=pl.when(is_in, pl.col("cpu") >= 0).then(pl.col("cpu") + 1),
        cpu=pl.when(is_in).then("cpu"),
        state=pl.when(~is_in).then(pl.lit(event_types.STATE_BLOCKED, pl.Int64)),
    )


def _frame(report: Report) -> pl.LazyFrame:
    return _as_events(_switches(report).with_columns(end=pl.lit(None, pl.Int64)), report)


def _gather(report: Report, folder: Path) -> Iterator[pl.DataFrame]:
    ordered = ExternalSort(["start"], folder)
    for piece in report.pieces(_switches, PIECE_ROWS):
        is_complete = piece.select(pl.all_horizontal(pl.col("start", _THREAD).is_not_null())).to_series()
        ordered.add(piece.filter(is_complete))
        if not is_complete.all():
            # Without a thread or a time: counted as left out.
            incomplete = piece.filter(~is_complete).with_columns(end=pl.col("start"))
            yield _as_events(incomplete.lazy(), report).collect()
    stays = Stays()
    for window in ordered.windows():
        yield _as_events(stays(window).lazy(), report).collect()
    yield _as_events(stays.finish().lazy(), report).collect()


def _first_switches(report: Report) -> pl.DataFrame:
    """The first switch of each thread."""
    first = pl.DataFrame(schema=_SWITCH)
    for piece in report.pieces(_switches, PIECE_ROWS):
        switches = pl.concat([first, piece.drop_nulls([_THREAD, "start"])])
        first = switches.sort("start", pl.col(_IS_IN).not_(), "cpu").unique(_THREAD, keep="first", maintain_order=True)
    return first


def _before(report: Report, _folder: Path) -> Iterator[pl.DataFrame]:
    first = _first_switches(report)
    # Time 0 is the start of the recording; events that were under way then may have a time below it.
    recording_start = pl.min_horizontal(pl.lit(0, pl.Int64), pl.col("start").min())
    opened = first.with_columns(pl.col(_IS_IN).not_(), *_UNKNOWN, end=pl.col("start"), start=recording_start)
    yield _as_events(opened.filter(pl.col("end") > pl.col("start")).lazy(), report).collect()


def _before_anything(report: Report) -> pl.LazyFrame:
    """What threads can have been doing before their first row: for the survey, which reads no times."""
    return _as_events(_switches(report).with_columns(pl.col(_IS_IN).not_(), *_UNKNOWN, end=pl.col("start")), report)


_OF_TABLE: dict[str, Any] = {
    "name": "scheduling", "table": SCHEDULING, "required": _REQUIRED, "optional": _OPTIONAL, "row": RowKind.THREAD,
    "times": ("start", "start"),
}  # fmt: skip

SWITCHES = Source(
    **_OF_TABLE,
    title="Threads on and off CPUs",
    types=(event_types.EXECUTING_CPU, event_types.OFF_CPU, BLOCK_REASON),
    frame=_frame,
    stream=_gather,
    unread_reason=FOREIGN,
    assumption="threadState and threadBlock of a row that takes a thread off its CPU say why it is off until its next row.",
)
"""Each row of the table starts a stay, which the next row of the thread ends."""

BEFORE = Source(
    **_OF_TABLE,
    title="Threads on and off CPUs before their first row",
    types=(event_types.EXECUTING_CPU, event_types.OFF_CPU),
    frame=_before_anything,
    stream=_before,
    derived=True,
)
"""A thread whose first row takes it off a CPU was on it from the start of the recording; any other one was on none."""
