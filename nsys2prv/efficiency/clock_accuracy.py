"""How well clocks are known, and what follows: tables of clocks, the length of a run, and how far times of tasks can be wrong
against each other."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Floats
from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import RunEvents, TaskRows
from nsys2prv.errors import counted
from nsys2prv.timeline.time_axis import ClockError
from nsys2prv.vocabulary.wording import time

_COLUMNS: tuple[tuple[Column, str], ...] = (
    (Column.text("host", "host, or report where nothing ties those of a host to each other"), "host"),
    (Column.text("method", "how it was placed, as of docs/clocks.md"), "method"),
    (Column.count("reports", "reports that have this clock"), ""),
    (Column.count("group", "clocks of one group are tied to each other; of those of two groups nothing is known"), ""),
    (Column.ns("interval_ns", "half width of the interval that holds it, where it is widest; null: not known"),
     "interval_ns.worst"),
    (Column.ns("best_interval_ns", "the same where it is narrowest"), "interval_ns.best"),
    (Column.ns("of_report_ns", "how far each of its reports can be from the others, at most; null: not known"), ""),
    (Column.ns("offset_ns", "what was subtracted from the rough placement; null without an estimate"), "offset_ns"),
    (Column.number("drift_ppm", "drift in millionths; null without an estimate"), "drift_ppm"),
    (Column.number("drift_error_ppm", "how far the drift can be off, in millionths; null: not known"), "drift_error_ppm"),
    (Column.count("anchors", "collectives that it was estimated from; null without an estimate"), "anchors"),
    (Column.count("nccl_anchors", "collectives of NCCL that it was estimated from"), "anchors_by_kind.nccl.used"),
    (Column.count("nccl_outliers", "collectives of NCCL that do not fit to the estimate"), "anchors_by_kind.nccl.outliers"),
    (Column.count("mpi_anchors", "collectives of MPI that it was estimated from"), "anchors_by_kind.mpi.used"),
    (Column.count("mpi_outliers", "collectives of MPI that do not fit to the estimate"), "anchors_by_kind.mpi.outliers"),
    (Column.count("messages_anchors", "messages that it was estimated from"), "anchors_by_kind.messages.used"),
    (Column.count("messages_outliers", "messages that do not fit to the estimate"), "anchors_by_kind.messages.outliers"),
    (Column.ns("contradiction_ns", "by how much the most violated bound is violated as placed; null without bounds"),
     "contradiction_ns"),
    (Column.count("steps", "jumps that were found"), ""),
    (Column.ns("largest_step_ns", "the largest of them; null without one"), ""),
    (Column.ns("by_messages_ns", "part of the offset that keeps messages, and collectives, in order"), "by_messages_ns"),
    (Column.ns("median_error_ns", "what remains at the anchors, median; null without an estimate"), "error_ns.median"),
    (Column.ns("p95_error_ns", "95th percentile; null without an estimate"), "error_ns.percentile_95"),
    (Column.ns("largest_error_ns", "largest; null without an estimate"), "error_ns.largest"),
)  # fmt: skip
"""Columns of `clocks`, each with its place in an entry of `clocks` of OUT.json; "": computed by `_clock_row`."""
CLOCKS = Table(
    "clocks",
    "How well clocks are known",
    "one clock",
    tuple(column for column, _ in _COLUMNS),
    page=OnPage("clocks", columns=("host", "method", "reports", "interval_ns", "offset_ns", "drift_ppm", "anchors",
        "contradiction_ns", "median_error_ns", "largest_error_ns"), worst_first="interval_ns"),
    console=OnConsole((("host", "clock of"), "method", ("interval_ns", "known to within"), "offset_ns",
        ("drift_ppm", "drift [ppm]"), "anchors", "contradiction_ns"), spare=("anchors", "drift_ppm",
        "contradiction_ns"), least_rows=2),
)  # fmt: skip
CLOCK_BINS = Table(
    "clock_bins",
    "Remaining error of clocks over time",
    "one clock in one of the intervals of equal length between the first anchor and the last",
    (
        Column.text("host", "as in `clocks`"),
        Column.count("bin", "0, 1, ..."),
        Column.ns("error_ns", "median of what remains between the host's collectives and those of the others, with sign; null "
                  "without collectives"),
    ),
    when="clocks that were estimated",
)  # fmt: skip


def clock_tables(clocks: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]]) -> Filled:
    """Both tables, from `clocks` of OUT.json and `alignment` of each of its reports."""
    rows = [_clock_row(clock, [report for report in reports if report.get("clock") == n]) for n, clock in enumerate(clocks)]
    errors = [(clock["host"], enumerate(clock.get("error_ns", {}).get("over_time", ()))) for clock in clocks]
    bins = [{"host": host, "bin": number, "error_ns": error} for host, over_time in errors for number, error in over_time]
    return {CLOCKS: rows, CLOCK_BINS: bins}


def _clock_row(clock: Any, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A row of `clocks`."""
    ties = [report["of_report_ns"] for report in reports]
    steps = [step["size_ns"] for step in clock.get("steps", ())]
    keys_of_columns = {column.name: path.split(".") for column, path in _COLUMNS if path}
    return {
        **{name: reduce(lambda of, key: (of or {}).get(key), keys, clock) for name, keys in keys_of_columns.items()},
        "reports": len(reports) or None,
        "group": reports[0]["group"] if reports else None,
        "of_report_ns": max(ties) if ties and None not in ties else None,
        "steps": len(steps),
        "largest_step_ns": max(steps, key=abs, default=None),
    }


LEAST_UNCERTAINTY = 0.01
"""Least part of the length of a run by which clocks must leave it open to be named."""


def clock_errors(clocks: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]], origin: int) -> list[ClockError]:
    """How well times of each report are known, at times that count from `origin` of the axis, from `clocks` of OUT.json and
    `alignment` of each of its reports."""
    errors = []
    for report in reports:
        interval = clocks[report["clock"]]["interval_ns"]
        times, widths = (time - origin for time in interval["times"]), (*interval["half_widths"], report["of_report_ns"])
        *half_widths, of_report = (math.inf if width is None else width for width in widths)
        errors.append(ClockError(report["clock"], tuple(times), tuple(half_widths), of_report, report["group"]))
    return errors


class LengthInterval(NamedTuple):
    """What E can be, ns: at least, and at most (None: not known). Both are E where one clock decides, or the user did."""

    least: int
    most: int | None

    def of_part(self, length: int, run: int, error: int = 0) -> "LengthInterval":
        """The interval of a part of the run that is as uncertain as the run, and by an error more; their lengths, ns."""
        less = run - length
        return LengthInterval(max(self.least - less - error, 0), None if self.most is None else self.most - less + error)


def length_interval(events: RunEvents) -> LengthInterval:
    """What the length of a run can be if its clocks are wrong by as much as they can be.

    The time inside a clock does not depend on others, so that the run takes at least as long as its events on one clock."""
    begin, end = events.begin, events.begin + events.length
    reports = [report for report in events.report_clocks if report.get("first_ns") is not None]
    errors = clock_errors(events.clocks, reports, 0)
    if not errors:
        return LengthInterval(events.length, events.length)
    times = {name: np.array([report[name] for report in reports], dtype=np.float64) for name in ("first_ns", "last_ns")}
    earliest, begins_by = _edge(begin, times["first_ns"], errors, np.min)
    ends_after, latest = _edge(end, times["last_ns"], errors, np.max)
    # Where ties of reports to their clocks are not exact, each report counts alone.
    is_tied = not any(error.of_report for error in errors)
    clock = [error.clock if is_tied else place for place, error in enumerate(errors)]
    last, first = pl.col("last_ns").clip(upper_bound=end).max(), pl.col("first_ns").clip(lower_bound=begin).min()
    inside = pl.DataFrame(times).group_by(pl.Series("clock", clock)).agg(length=last - first)["length"].to_list()
    least, most = max(ends_after - begins_by, *inside), latest - earliest
    return LengthInterval(min(round(least), events.length), round(most) if math.isfinite(most) else None)


def _edge(at: int, times: Floats, errors: Sequence[ClockError], outermost: Callable[[Floats], Any]) -> tuple[float, float]:
    """The earliest and latest that an edge of the run can be, of its reports' outermost times; one that was chosen is known."""
    if at != outermost(times):
        return at, at
    widths: Floats = np.array([error.of_report for error in errors], dtype=np.float64)
    if len({error.group for error in errors}) > 1:
        widths += np.inf
    elif len({error.clock for error in errors}) > 1:
        widths += [error.at(np.array([time]))[0] for error, time in zip(errors, times, strict=True)]
    widths[np.isnan(widths)] = np.inf
    return float(outermost(times - widths)), float(outermost(times + widths))


def clock_warnings(events: RunEvents, bins: int, interval: LengthInterval) -> list[str]:
    """Where clocks are not known well enough for times of the run as a whole: a sentence each."""
    warnings = []
    if interval.most is None or interval.most - interval.least > LEAST_UNCERTAINTY * events.length:
        at_most = "nothing is known of the longest" if interval.most is None else f"at most {time(interval.most)}"
        warnings.append(
            f"the run takes {time(events.length)} as clocks are placed; they allow at least {time(interval.least)}, and "
            f"{at_most}: efficiencies that divide by its length are as uncertain"
        )
    widths = [width for clock in events.clocks if (width := clock.get("interval_ns", {}).get("worst")) is not None]
    if len(events.clocks) > 1 and widths and bins and max(widths) > events.length / bins:
        warnings.append(
            f"clocks are known to {time(max(widths))} and each of the {counted(bins, 'bin')} over time has "
            f"{time(events.length / bins)}: activity of a host can be in a bin beside its own"
        )
    return warnings


REPORT, CLOCK, GROUP = "of_one_report", "of_one_clock", "of_one_group"
OF_REPORT, OF_CLOCK = "report_margin", "clock_margin"
"""Columns that `TaskClocks.with_margins` adds."""


class TaskClocks:
    """Clocks of all tasks.

    Times of one report are exact against each other. Those of two reports with one clock can be wrong by what ties each report
    to the clock, and those of two clocks also by the errors of both. Of clocks of two groups nothing is known.

    Times are `offset` ns before those that the errors of tasks are for."""

    def __init__(self, tasks: Sequence[TaskRows], offset: int = 0) -> None:
        self._offset = offset
        # Nothing is known of tasks of no report. Numbers of known clocks and groups are not negative.
        errors = [task.clock or ClockError(-1 - place, group=-1 - place) for place, task in enumerate(tasks)]
        self._errors = {error.clock: error for error in errors}
        of_tasks = [
            (-1 - place if task.report is None else task.report, error.clock, error.group, error.of_report)
            for place, (task, error) in enumerate(zip(tasks, errors, strict=True))
        ]
        schema = {REPORT: pl.Int64, CLOCK: pl.Int64, GROUP: pl.Int64, OF_REPORT: pl.Float64}
        self._of_task = pl.DataFrame(of_tasks, schema=schema, orient="row")

    def with_margins(self, events: pl.DataFrame, time: str) -> pl.DataFrame:
        """Events (with a column `task`, an index) with the clocks of their tasks: columns REPORT, CLOCK and GROUP (numbers),
        OF_REPORT (how far the report may be from others of its clock, ns) and OF_CLOCK (how far the clock may be from the axis
        at the times in the column `time`, ns; infinite: not known)."""
        placed = events.with_columns(self._of_task[events["task"].to_numpy()])
        times, clocks = placed[time].to_numpy(), placed[CLOCK].to_numpy()
        widths = np.zeros(len(times))
        for clock, error in self._errors.items():
            is_such = clocks == clock
            widths[is_such] = error.at(times[is_such] + self._offset)
        # Between a time where the clock is known and one where it is not, nothing is known.
        return placed.with_columns(pl.Series(OF_CLOCK, np.where(np.isnan(widths), np.inf, widths)))


def margin_of_group(key: Sequence[str]) -> pl.Expr:
    """Largest margin between two members of each group of events, as of `TaskClocks`, ns; infinite: not known. The events are
    those of `TaskClocks.with_margins`, and those of a group are equal in the columns of the key."""
    of_reports, of_clocks = (error.top_k(2).sum() for error in (pl.col(OF_REPORT), pl.sum_horizontal(OF_REPORT, OF_CLOCK)))
    is_same_report, is_same_clock, is_same_group = (pl.col(name).n_unique() == 1 for name in (REPORT, CLOCK, GROUP))
    margin = pl.when(is_same_report).then(0.0).when(is_same_clock).then(of_reports).when(is_same_group).then(of_clocks)
    return margin.otherwise(float("inf")).over(key)
