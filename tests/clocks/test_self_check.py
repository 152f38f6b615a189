"""What cannot be as it was placed is found, and reports of one host are compared."""

from __future__ import annotations

import polars as pl
import pytest

from nsys2prv.clocks.agreement import BETWEEN_HOSTS, INSIDE_HOST, MESSAGE, Disagreement, check_axis, report_agreement
from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS, ReportClock
from nsys2prv.timeline.time_axis import ClockError

MS = 1_000_000
NAMES = ("node01", "node02")
ERRORS = tuple(ClockError(report // 2, half_widths=(100_000.0,)) for report in range(4))


def collectives(*ends: tuple[int, ...], begin: int = 0) -> pl.DataFrame:
    """Collectives of four ranks on two hosts that begin together: the ends of each."""
    rows = [
        (event, report, report // 2, begin, end, "all")
        for event, of_event in enumerate(ends)
        for report, end in enumerate(of_event)
    ]
    numbers = dict.fromkeys(("event", "report", "clock", "start", "end"), pl.Int64)
    return pl.DataFrame(rows, schema={**numbers, "rule": pl.String}, orient="row")


def messages(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    placed = pl.DataFrame(rows, schema=dict.fromkeys(("report", "to_report", "time", "to_time"), pl.Int64), orient="row")
    return placed.with_columns(clock=pl.col("report") // 2, to_clock=pl.col("to_report") // 2, doubt=pl.lit(0, pl.Int64))


def test_what_can_be_is_no_disagreement() -> None:
    placed = collectives((5 * MS, 5 * MS + 40_000, 9 * MS, 9 * MS + 70_000))
    assert check_axis(placed, [messages((0, 2, 0, 5000))], ERRORS, NAMES) == ()


def test_ranks_of_a_host_that_end_a_collective_before_others_begin_it_are_found() -> None:
    placed = collectives((5 * MS, 8 * MS, 8 * MS, 8 * MS))
    # A rank may end any collective late.
    assert check_axis(placed, [], ERRORS, NAMES) == ()

    later = placed.with_columns(start=pl.when(pl.col("report") == 1).then(6 * MS).otherwise("start"))
    assert check_axis(later, [], ERRORS, NAMES) == (Disagreement(INSIDE_HOST, ("node01",), MS - 100_000, 1),)


def test_a_message_that_arrives_before_it_was_sent_is_found() -> None:
    found = check_axis(collectives(), [messages((0, 2, 0, 5000), (2, 0, 9000, 8000), (2, 1, 9000, 6000))], ERRORS, NAMES)
    assert found == (Disagreement(MESSAGE, ("node02", "node01"), 3000, 2),)


def test_hosts_that_disagree_by_more_than_their_intervals_are_found() -> None:
    placed = collectives((0, 0, 5 * MS, 5 * MS), (-150_000, -150_000, MS, MS))
    placed = placed.with_columns(start=pl.when(pl.col("clock") == 1).then(pl.col("start")).otherwise(-MS))

    assert check_axis(placed, [], ERRORS, NAMES) == ()
    later = placed.with_columns(pl.when(pl.col("clock") == 1).then(pl.col("start") + 300_000).otherwise("start").alias("start"))
    (found,) = check_axis(later, [], ERRORS, NAMES)
    assert (found.what, found.hosts, found.size) == (BETWEEN_HOSTS, NAMES, 250_000)


def _clocks(of_report: float) -> list[ReportClock]:
    return [ReportClock(NAMES[report // 2], of_report) for report in range(4)]


def test_reports_that_tell_only_utc_agree_as_well_as_their_collectives_show() -> None:
    ends = [(MS, MS + 30_000, MS, MS + 50_000 + number) for number in range(20)]
    widths, off = report_agreement(collectives(*ends), _clocks(UTC_READINGS_APART_NS))

    assert off == []
    assert widths.max() < 50_000
    assert report_agreement(collectives(*ends), _clocks(0.0))[0].tolist() == [0] * 4


def test_one_late_end_is_no_error_of_a_clock_and_ends_that_are_always_late_are() -> None:
    def width(*late: int) -> float:
        ends = [(MS, MS + 2 * of_rank, MS, MS) for of_rank in late]
        return float(report_agreement(collectives(*ends), _clocks(UTC_READINGS_APART_NS))[0][1])

    assert width(10 * MS) == 100_000
    assert width(10 * MS, 15_000) == 55_000
    assert width(*[150_000 + number for number in range(9)]) == pytest.approx(170_000, abs=10)
    assert width(*[(7 * number % 5) * MS for number in range(9)]) == 100_000


def test_a_report_that_is_far_off_its_host_is_found() -> None:
    names = [ReportClock("node01", UTC_READINGS_APART_NS)] * 3
    rows = [
        (event, report, 0, event * 100 * MS + off, event * 100 * MS + 2 * MS + off, "all")
        for event in range(8)
        for report, off in enumerate((0, 10_000, 30 * MS))
    ]
    placed = pl.DataFrame(rows, schema=["event", "report", "clock", "start", "end", "rule"], orient="row")
    assert report_agreement(placed, names)[1] == [2]
