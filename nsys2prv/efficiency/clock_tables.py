"""How well clocks are known: the tables `clocks` and `clock_bins`, and errors of reports, from what OUT.json has of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys2prv.efficiency.result_tables import Column, Filled, OnConsole, OnPage, Table
from nsys2prv.timeline.time_axis import ClockError

_KINDS = {"nccl": "collectives of NCCL", "mpi": "collectives of MPI", "messages": "messages"}
"""Kinds of anchors."""

CLOCKS = Table(
    "clocks",
    "How well clocks are known",
    "one clock",
    (
        Column.text("host", "host, or report where nothing ties those of a host to each other"),
        Column.text("method", "how it was placed, as of docs/trace.md"),
        Column.count("reports", "reports that have this clock"),
        Column.count("group", "clocks of one group are tied to each other; of those of two groups nothing is known"),
        Column.ns("interval_ns", "half width of the interval that holds it, where it is widest; null: not known"),
        Column.ns("best_interval_ns", "the same where it is narrowest"),
        Column.ns("of_report_ns", "how far each of its reports can be from the others, at most; null: not known"),
        Column.ns("offset_ns", "what was subtracted from the rough placement; null without an estimate"),
        Column.number("drift_ppm", "drift in millionths; null without an estimate"),
        Column.number("drift_error_ppm", "how far the drift can be off, in millionths; null: not known"),
        Column.count("anchors", "collectives and messages that it was estimated from; null without an estimate"),
        *(
            column
            for kind, title in _KINDS.items()
            for column in (
                Column.count(f"{kind}_anchors", f"{title} that it was estimated from"),
                Column.count(f"{kind}_outliers", f"{title} that do not fit to the estimate"),
            )
        ),
        Column.ns("contradiction_ns", "by how much the most violated bound is violated as placed; null without bounds"),
        Column.count("steps", "jumps that were found"),
        Column.ns("largest_step_ns", "the largest of them; null without one"),
        Column.ns("by_messages_ns", "part of the offset that keeps messages, and collectives, in order"),
        Column.ns("median_error_ns", "what remains at the anchors, median; null without an estimate"),
        Column.ns("p95_error_ns", "95th percentile; null without an estimate"),
        Column.ns("largest_error_ns", "largest; null without an estimate"),
    ),
    when="reports, or a trace with its .json",
    order=800,
    page=OnPage("clocks", columns=("host", "method", "reports", "interval_ns", "offset_ns", "drift_ppm", "anchors",
        "contradiction_ns", "median_error_ns", "largest_error_ns"), worst_first="interval_ns"),
    console=OnConsole((("host", "clock of"), "method", ("interval_ns", "known to within"), "offset_ns",
        ("drift_ppm", "drift [ppm]"), "anchors", "contradiction_ns"), place=100, spare=("anchors", "drift_ppm",
        "contradiction_ns"), least_rows=2),
)  # fmt: skip
CLOCK_BINS = Table(
    "clock_bins",
    "Remaining error of clocks over time",
    "one clock in one of the intervals of equal length between the first anchor and the last",
    (
        Column.text("host", "as in `clocks`"),
        Column.count("bin", "0, 1, ..."),
        Column.ns(
            "error_ns",
            "median of what remains between the host's collectives and those of the others, with sign; "
            "null without collectives",
        ),
    ),
    when="clocks that were estimated",
)


def clock_tables(clocks: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]]) -> Filled:
    """Both tables, from `clocks` of OUT.json and `alignment` of each of its reports."""
    return {
        CLOCKS: [
            _clock_row(clock, [report for report in reports if report.get("clock") == number])
            for number, clock in enumerate(clocks)
        ],
        CLOCK_BINS: [
            {"host": clock["host"], "bin": number, "error_ns": error}
            for clock in clocks
            for number, error in enumerate(clock.get("error_ns", {}).get("over_time", ()))
        ],
    }


def clock_errors(
    clocks: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]], origin: int
) -> list[ClockError | None]:
    """How well times of each report are known, at times that count from `origin` of the axis.

    Parameters
    ----------
    clocks, reports
        `clocks` of OUT.json, and `alignment` of each of its `reports`; a report of which that does not have the clock gives
        None.
    """
    return [_error(clocks[report["clock"]], report, origin) if "clock" in report else None for report in reports]


def _error(clock: Mapping[str, Any], report: Mapping[str, Any], origin: int) -> ClockError:
    interval = clock["interval_ns"]
    return ClockError(
        clock=report["clock"],
        times=tuple(time - origin for time in interval["times"]),
        half_widths=tuple(map(_or_unknown, interval["half_widths"])),
        of_report=_or_unknown(report["of_report_ns"]),
        group=report["group"],
    )


def _or_unknown(value: int | None) -> float:
    return float("inf") if value is None else value


def _clock_row(clock: Mapping[str, Any], reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A row of `clocks`; an OUT.json of an earlier version has less."""
    errors, interval, anchors = (clock.get(name, {}) for name in ("error_ns", "interval_ns", "anchors_by_kind"))
    ties = [report["of_report_ns"] for report in reports]
    steps = [step["size_ns"] for step in clock.get("steps", ())]
    same = ("host", "method", "offset_ns", "drift_ppm", "drift_error_ppm", "anchors", "contradiction_ns", "by_messages_ns")
    return {
        **{name: clock.get(name) for name in same},
        "reports": len(reports) or None,
        "group": reports[0]["group"] if reports else None,
        "interval_ns": interval.get("worst"),
        "best_interval_ns": interval.get("best"),
        "of_report_ns": max(ties) if ties and None not in ties else None,
        **{f"{kind}_{what}s": anchors.get(kind, {}).get(name)
           for kind in _KINDS for what, name in (("anchor", "used"), ("outlier", "outliers"))},
        "steps": len(steps),
        "largest_step_ns": max(steps, key=abs, default=None),
        "median_error_ns": errors.get("median"),
        "p95_error_ns": errors.get("percentile_95"),
        "largest_error_ns": errors.get("largest"),
    }  # fmt: skip
