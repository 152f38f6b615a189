"""How well clocks are known, and what follows for the run as a whole."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.known_clocks import known_to
from support.measured import US
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.clock_accuracy import (
    CLOCK_BINS,
    CLOCKS,
    LengthInterval,
    clock_tables,
    clock_warnings,
    length_interval,
)
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import RunEvents


def of_clock(clock: int, span: tuple[int, int] = (0, 100), group: int = 0, of_report: int | None = 0) -> dict[str, Any]:
    """The alignment of a report, with its first and last event."""
    return {"clock": clock, "group": group, "of_report_ns": of_report, "first_ns": span[0], "last_ns": span[1]}


def test_the_table_has_all_that_is_known_of_each_clock(tmp_path: Path) -> None:
    estimated = {
        **known_to(4_000, 9_000, times=(0, 1000)),
        "host": "node01", "method": "collectives", "by_messages_ns": -7, "anchors": 12, "offset_ns": 1234, "drift_ppm": 1.5,
        "drift_error_ppm": 0.25,
        "anchors_by_kind": {"nccl": {"used": 10, "outliers": 3}, "messages": {"used": 2, "outliers": 0}},
        "contradiction_ns": 40,
        "steps": [{"after_ns": 1, "before_ns": 2, "size_ns": -2_000_000}, {"after_ns": 3, "before_ns": 4, "size_ns": 500}],
        "error_ns": {"median": 100, "percentile_95": 200, "largest": 300, "over_time": [5, None]},
    }  # fmt: skip
    # As a former version wrote it.
    short = {"host": "node02", "method": "utc"}
    tables = clock_tables([estimated, short], [of_clock(0, of_report=3), of_clock(0, of_report=8), of_clock(1, of_report=None)])
    clocks = CLOCKS.frame(tables[CLOCKS])

    assert clocks.row(0, named=True) == {
        "host": "node01", "method": "collectives", "reports": 2, "group": 0, "interval_ns": 9_000, "best_interval_ns": 4_000,
        "of_report_ns": 8, "offset_ns": 1234, "drift_ppm": 1.5, "drift_error_ppm": 0.25, "anchors": 12, "nccl_anchors": 10,
        "nccl_outliers": 3, "mpi_anchors": None, "mpi_outliers": None, "messages_anchors": 2, "messages_outliers": 0,
        "contradiction_ns": 40, "steps": 2, "largest_step_ns": -2_000_000, "by_messages_ns": -7, "median_error_ns": 100,
        "p95_error_ns": 200, "largest_error_ns": 300,
    }  # fmt: skip
    numbers = {name: value for name, value in clocks.row(1, named=True).items() if value is not None}
    assert numbers == {"host": "node02", "method": "utc", "reports": 1, "group": 0, "steps": 0}
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("k", 0, 100)
    result = measure([report.write(tmp_path / "rank0.sqlite")])
    text = EfficiencyResult(result.head, {**result.tables, "clocks": clocks}).as_text(verbose=True)
    assert "node01 collectives 9.000 µs 1.234 µs 1.5 12 40 ns" in " ".join(text.split())
    assert CLOCK_BINS.frame(tables[CLOCK_BINS]).rows() == [("node01", 0, 5), ("node01", 1, None)]


def run_of(
    clocks: Sequence[dict[str, Any]], reports: Sequence[dict[str, Any]], window: tuple[int, int] = (0, 1000 * US)
) -> RunEvents:
    """What is asked of a run: its window, and the clocks of its reports."""
    begin, end = window
    return cast(RunEvents, SimpleNamespace(begin=begin, length=end - begin, clocks=clocks, report_clocks=reports))


@pytest.mark.parametrize(
    ("spans", "widths", "window", "expected"),
    [
        # The first event and the last are of two hosts.
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), (0, 1000 * US), (970 * US, 1030 * US)),
        # One host has both; the other may reach over them.
        ([(0, 1000 * US), (5 * US, 700 * US)], (10 * US, 20 * US), (0, 1000 * US), (1000 * US, 1025 * US)),
        ([(0, 1000 * US), (300 * US, 700 * US)], (0, 0), (0, 1000 * US), (1000 * US, 1000 * US)),
        # Nothing is known: the run takes as long as its longest clock at least.
        ([(0, 700 * US), (300 * US, 1000 * US)], (None, None), (0, 1000 * US), (700 * US, None)),
        # What the user chooses is as long as it is.
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), (100 * US, 600 * US), (500 * US, 500 * US)),
        ([(0, 700 * US), (300 * US, 1000 * US)], (10 * US, 20 * US), (100 * US, 1000 * US), (880 * US, 920 * US)),
    ],
)
def test_the_length_of_the_run_is_known_as_well_as_clocks_are(
    spans: list[tuple[int, int]], widths: tuple[int | None, ...], window: tuple[int, int], expected: tuple[int, int | None]
) -> None:
    reports = [of_clock(clock, span) for clock, span in enumerate(spans)]
    run = run_of(list(map(known_to, widths)), reports, window)

    assert length_interval(run) == LengthInterval(*expected)


def test_reports_of_one_clock_and_those_of_several_groups() -> None:
    spans = [(0, 700 * US), (300 * US, 1000 * US)]
    of_one = [of_clock(0, span) for span in spans]
    tied_to = [of_clock(0, span, of_report=10 * US) for span in spans]
    of_groups = [of_clock(clock, span, group=clock) for clock, span in enumerate(spans)]

    assert length_interval(run_of([known_to(500 * US)], of_one)) == LengthInterval(1000 * US, 1000 * US)
    assert length_interval(run_of([known_to(500 * US)], tied_to)) == LengthInterval(980 * US, 1020 * US)
    assert length_interval(run_of([known_to(0)] * 2, of_groups)) == LengthInterval(700 * US, None)
    assert length_interval(run_of([], [])) == LengthInterval(1000 * US, 1000 * US)


def test_a_part_of_the_run_is_as_uncertain_as_the_run() -> None:
    assert LengthInterval(900, 1200).of_part(300, 1000) == LengthInterval(200, 500)
    assert LengthInterval(500, None).of_part(300, 1000) == LengthInterval(0, None)


def test_warnings_say_what_the_length_can_be_and_how_wide_bins_are() -> None:
    run = run_of([known_to(10 * US), known_to(20 * US)], [])

    assert clock_warnings(run, 100, LengthInterval(970 * US, 1030 * US)) == [
        "the run takes 1.000 ms as clocks are placed; they allow at least 970.000 µs, and at most 1.030 ms: efficiencies that "
        "divide by its length are as uncertain",
        "clocks are known to 20.000 µs and each of the 100 bins over time has 10.000 µs: activity of a host can be in a bin "
        "beside its own",
    ]
    assert clock_warnings(run, 10, LengthInterval(996 * US, 1004 * US)) == []
    assert "nothing is known of the longest" in clock_warnings(run, 10, LengthInterval(996 * US, None))[0]
