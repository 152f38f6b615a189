"""How well clocks of hosts agree: the tables `alignment` and `alignment_bins`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys2prv.efficiency.result_tables import Column, Filled, Table
from nsys2prv.timeline.time_axis import ClockError

ALIGNMENT = Table(
    "alignment",
    "Clock alignment",
    "one clock",
    (
        Column.text("host", "host, or report where clocks of a host are not tied to each other"),
        Column.text("method", "how it was placed"),
        Column.count("anchors", "collectives that it was fitted to; null without"),
        Column.ns("offset_ns", "offset against the rough placement; null without collectives"),
        Column.number("drift_ppm", "drift in millionths; null without collectives"),
        Column.ns("median_error_ns", "remaining error, median; null without collectives"),
        Column.ns("p95_error_ns", "95th percentile; null without collectives"),
        Column.ns("largest_error_ns", "largest; null without collectives"),
    ),
    when="reports, or a trace with its .json",
)
ALIGNMENT_BINS = Table(
    "alignment_bins",
    "Remaining error of clocks over time",
    "one clock in one of the intervals of equal length between the first collective and the last",
    (
        Column.text("host", "as in `alignment`"),
        Column.count("bin", "0, 1, ..."),
        Column.ns(
            "error_ns",
            "median of what remains between the host's collectives and those of the others, with sign; "
            "null without collectives",
        ),
    ),
    when="clocks that were aligned by collectives",
)


def clock_tables(clocks: Sequence[Mapping[str, Any]]) -> Filled:
    """Both tables, from the entries of clocks in OUT.json."""
    return {
        ALIGNMENT: [_placed(clock) for clock in clocks],
        ALIGNMENT_BINS: [
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


def _placed(clock: Mapping[str, Any]) -> dict[str, Any]:
    errors = clock.get("error_ns", {})
    return {
        **{name: clock.get(name) for name in ("host", "method", "anchors", "offset_ns", "drift_ppm")},
        "median_error_ns": errors.get("median"),
        "p95_error_ns": errors.get("percentile_95"),
        "largest_error_ns": errors.get("largest"),
    }
