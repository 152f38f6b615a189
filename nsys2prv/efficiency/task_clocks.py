"""How far times of different tasks can be wrong against each other, for many events at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.run_events import TaskRows
from nsys2prv.timeline.time_axis import ClockError

REPORT, CLOCK, GROUP = "of_one_report", "of_one_clock", "of_one_group"
OF_REPORT, OF_CLOCK = "report_margin", "clock_margin"
"""Columns that `TaskClocks.with_margins` adds."""


class TaskClocks:
    """Clocks of all tasks.

    Times of one report are exact against each other. Those of two reports with one clock can be wrong by what ties each report
    to the clock, and those of two clocks also by the errors of both (`timeline.time_axis.clock_margin`). Between groups of
    clocks nothing is known.

    Where nothing is known, tasks of one node have one clock and those of different nodes can't be compared.

    Times are `offset` ns before those that the errors of tasks are for.
    """

    def __init__(self, tasks: Sequence[TaskRows], offset: int = 0) -> None:
        self._offset = offset
        # Numbers of known clocks and groups are not negative.
        unknown = {node: -1 - place for place, node in enumerate(dict.fromkeys(task.node for task in tasks))}
        errors = [task.clock or ClockError(unknown[task.node], group=unknown[task.node]) for task in tasks]
        reports: dict[object, int] = {}
        self._errors = {error.clock: error for error in errors}
        self._of_task = pl.DataFrame(
            {
                REPORT: [reports.setdefault(task.node if task.clock is None else task.report, len(reports)) for task in tasks],
                CLOCK: [error.clock for error in errors],
                GROUP: [error.group for error in errors],
                OF_REPORT: [error.of_report for error in errors],
            },
            schema={REPORT: pl.Int64, CLOCK: pl.Int64, GROUP: pl.Int64, OF_REPORT: pl.Float64},
        )

    def with_margins(self, events: pl.DataFrame, time: str) -> pl.DataFrame:
        """Events with the clocks of their tasks.

        Parameters
        ----------
        events
            With the column `task` (index).
        time
            Column with the times at which the errors of the clocks count, ns.

        Returns
        -------
        The events with the columns REPORT, CLOCK and GROUP (numbers), OF_REPORT (how far the report may be from others of its
        clock, ns) and OF_CLOCK (how far the clock may be from the axis, ns; infinite: not known).
        """
        found = events.with_columns(self._of_task[events["task"].to_numpy()])
        times, clocks = found[time].to_numpy(), found[CLOCK].to_numpy()
        widths = np.zeros(len(times))
        order = np.argsort(clocks, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(clocks[order])) + 1):
            if len(places):
                widths[places] = self._errors[int(clocks[places[0]])].at(times[places] + self._offset)
        # Between a time where the clock is known and one where it is not, nothing is known.
        return found.with_columns(pl.Series(OF_CLOCK, np.where(np.isnan(widths), np.inf, widths)))


def margin_of_group(key: Sequence[str]) -> pl.Expr:
    """Largest margin between two members of each group of events, as of `clock_margin`, ns; infinite: not known.

    Parameters
    ----------
    key
        Columns that are equal in a group; the events are those of `TaskClocks.with_margins`.
    """

    def two_largest(column: str) -> pl.Expr:
        return pl.col(column).top_k(2).sum()

    of_reports, of_clocks = two_largest(OF_REPORT), pl.sum_horizontal(OF_REPORT, OF_CLOCK).top_k(2).sum()
    return (
        pl.when(pl.col(REPORT).n_unique() == 1)
        .then(0.0)
        .when(pl.col(CLOCK).n_unique() == 1)
        .then(of_reports)
        .when(pl.col(GROUP).n_unique() == 1)
        .then(of_clocks)
        .otherwise(float("inf"))
        .over(key)
    )
