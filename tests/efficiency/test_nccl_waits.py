"""Who arrives last in NCCL collectives, as far as clocks allow to say it."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import QUICK
from support.measured import NCCL, US, picked
from support.report_builder import ReportBuilder
from support.told_intervals import clock_margin

from nsys2prv.efficiency.clock_accuracy import (
    CLOCK_BINS,
    CLOCKS,
    LengthInterval,
    TaskClocks,
    clock_errors,
    clock_tables,
    clock_warnings,
    length_interval,
)
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.measure import measure, measure_events
from nsys2prv.efficiency.meters.nccl_stats import waits_of_ranks
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.run_events import RunEvents, RunRows, TaskRows
from nsys2prv.timeline.time_axis import ClockError

UTC = 1_700_000_000_000_000_000

# Start and end of each of three reductions on four ranks, us: a straggler by far, a close one, and one that ends differently.
REDUCTIONS = (
    ((1000, 1600), (1300, 1600), (1100, 1600), (1050, 1600)),
    ((2000, 2200), (2080, 2200), (2010, 2200), (2030, 2200)),
    ((3000, 3100), (3000, 3100), (3000, 3400), (3000, 3500)),
)
WAITS = ("waited_ns", "undecided_ns", "start_skew_ns", "end_skew_ns", "residence_ns", "transfer_ns", "waiting_ns")
HOSTS = ("node01", "node01", "node02", "node02")


def reports(folder: Path, sessions: Sequence[int] = (0, 0, 0, 0)) -> list[Path]:
    """A report per rank; `sessions` says when each began, ns after the first."""
    paths = []
    for rank, (host, began) in enumerate(zip(HOSTS, sessions, strict=True)):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=4, pid=1000 + rank, host=host, utc_ns=UTC + began).gpu(rank % 2)
        report.kernel("compute", -began, 900 * US - began)
        for reduction in REDUCTIONS:
            start, end = reduction[rank]
            report.kernel(NCCL, start * US - began, end * US - began)
        paths.append(report.write(folder / f"rank{rank}.sqlite"))
    return paths


def measured_with_clocks(
    reports: Sequence[Path], clocks: Mapping[str, Mapping[str, Any]], options: EfficiencyOptions
) -> EfficiencyResult:
    """Efficiency numbers of reports; `clocks` has for each host what differs of `clocks` in OUT.json."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = read_events(reports, options, folder, with_dependencies=not options.no_critical_path)
        clocks_of_run = [{**clock, **clocks[clock["host"]]} for clock in events.clocks]
        errors = clock_errors(clocks_of_run, events.report_clocks, events.begin)
        tasks = [task if task.report is None else replace(task, clock=errors[task.report]) for task in events.rows.tasks]
        return measure_events(replace(events, rows=RunRows(tasks), clocks=clocks_of_run), options)


def known_to(*half_widths: int | None, times: Sequence[int] = (0,)) -> dict[str, Any]:
    """A clock that is known to half widths from times of the trace on, ns; None: it is not known."""
    known = [width for width in half_widths if width is not None]
    best, worst = min(known, default=None), max(known) if len(known) == len(half_widths) else None
    return {"interval_ns": {"best": best, "worst": worst, "times": list(times), "half_widths": list(half_widths)}}


EXACT = {"node01": known_to(0), "node02": known_to(0)}
OPTIONS = EfficiencyOptions(align="utc", **QUICK)


def stragglers(result: EfficiencyResult) -> list[tuple[Any, ...]]:
    return picked(result.nccl_stragglers, "decided", "last", "waited_ns", "caused_ns", "undecided_ns")


def test_exact_clocks_say_all(tmp_path: Path) -> None:
    result = measured_with_clocks(reports(tmp_path), EXACT, OPTIONS)

    assert picked(result.nccl_collectives, "begin_ns", "last_ns", "end_ns", "last_task", "device", "margin_ns") == [
        (1_000_000, 1_300_000, 1_600_000, "Rank 1 node01 pid 1001 python3", "node01:D1", 0),
        (2_000_000, 2_080_000, 2_200_000, "Rank 1 node01 pid 1001 python3", "node01:D1", 0),
        (3_000_000, 3_000_000, 3_500_000, None, None, 0),
    ]
    assert picked(result.nccl_collectives, *WAITS) == [
        (750_000, 0, 300_000, 0, 1_950_000, 1_200_000, 750_000),
        (200_000, 0, 80_000, 0, 680_000, 480_000, 200_000),
        (0, 0, 0, 400_000, 1_100_000, 400_000, 700_000),
    ]
    assert stragglers(result) == [
        (2, 0, 380_000, 0, 0), (2, 2, 0, 950_000, 0), (2, 0, 270_000, 0, 0), (2, 0, 300_000, 0, 0)
    ]  # fmt: skip
    assert picked(result.nccl_stragglers, "late_start_ns", "late_end_ns") == [
        (0, 0), (380_000, 0), (110_000, 300_000), (80_000, 400_000)
    ]  # fmt: skip


def test_where_clocks_of_hosts_are_not_known_ranks_of_one_host_are_compared(tmp_path: Path) -> None:
    result = measure(reports(tmp_path), OPTIONS)

    # Residence, transfer and the rest are durations: they need no clock of another host.
    assert picked(result.nccl_collectives, "last_task", "device", "margin_ns", *WAITS) == [
        (None, None, None, 350_000, 400_000, 300_000, 0, 1_950_000, 1_200_000, 750_000),
        (None, None, None, 100_000, 100_000, 80_000, 0, 680_000, 480_000, 200_000),
        (None, None, None, 0, 700_000, 0, 100_000, 1_100_000, 400_000, 700_000),
    ]
    assert stragglers(result) == [
        (0, 0, 380_000, 0, 0), (0, 0, 0, 0, 0), (0, 0, 20_000, 0, 550_000), (0, 0, 50_000, 0, 650_000)
    ]  # fmt: skip
    assert result.nccl_waits.row(0, named=True) == {
        "communicator": None, "collectives": 3, "decided": 0, "undecided_share": 1.0, "residence_ns": 3_730_000,
        "transfer_ns": 2_080_000, "waiting_ns": 1_650_000, "waited_ns": 450_000, "undecided_ns": 1_200_000,
        "undecided_time_share": 1_200 / 3_730, "late_start_ns": 450_000, "late_end_ns": 100_000, "margin_ns": None,
    }  # fmt: skip
    assert (
        "Which rank arrives last is not decidable in 3 of 3 collectives (100.0 %), and 32.2 % of the time in them may be "
        "waits: ranks arrive closer together than clocks are known, or others are not in the run"
    ) in result.as_text(verbose=True)


def test_what_is_within_the_errors_of_clocks_is_not_decidable(tmp_path: Path) -> None:
    # Known to 60 us up to 1.5 ms, and to 20 us from 2 ms on.
    better = known_to(60_000, 60_000, 20_000, times=(0, 1_500_000, 2_000_000))
    result = measured_with_clocks(reports(tmp_path), {"node01": better, "node02": better}, OPTIONS)

    assert picked(result.nccl_collectives, "last_task", "waited_ns", "undecided_ns", "margin_ns", "end_skew_ns") == [
        # All others start 200 us and more before the last one, and clocks can be wrong by 120.
        ("Rank 1 node01 pid 1001 python3", 750_000, 0, 120_000, 0),
        # 50 us and more, against 40.
        ("Rank 1 node01 pid 1001 python3", 200_000, 0, 40_000, 0),
        # Ends differ by more than that, starts do not.
        (None, 0, 80_000, 40_000, 400_000),
    ]
    assert stragglers(result) == [
        (2, 0, 380_000, 0, 0), (2, 2, 0, 950_000, 0), (2, 0, 270_000, 0, 40_000), (2, 0, 300_000, 0, 40_000)
    ]  # fmt: skip


def test_sessions_that_only_utc_ties_are_known_as_closely_as_it(tmp_path: Path) -> None:
    result = measured_with_clocks(reports(tmp_path, (0, 2_000, 5_000, 7_000)), EXACT, OPTIONS)
    # 200 us between any two reports.
    assert picked(result.nccl_collectives, "last_task", "waited_ns", "margin_ns") == [
        (None, 550_000, 200_000), (None, 0, 200_000), (None, 0, 200_000)
    ]  # fmt: skip


def test_a_rank_that_ends_as_late_as_it_starts_is_not_told_as_late(tmp_path: Path) -> None:
    """Its clock is ahead, whatever its interval says; ranks of one host are compared."""
    paths = []
    for rank, (host, ahead) in enumerate(zip(HOSTS, (0, 0, 5_000, 5_000), strict=True)):
        report = ReportBuilder(rank=rank, with_mpi=True, ranks=4, pid=1000 + rank, host=host, utc_ns=UTC).gpu(rank % 2)
        for turn in range(3):
            begin = (10_000 * turn + ahead) * US
            report.kernel(NCCL, begin + (30 * US if rank % 2 else 0), begin + 300 * US)
        paths.append(report.write(tmp_path / f"rank{rank}.sqlite"))
    result = measured_with_clocks(paths, EXACT, OPTIONS)

    assert result.nccl_collectives["last_task"].to_list() == [None] * 3
    assert result.nccl_stragglers["waited_ns"].to_list() == [3 * 30 * US, 0, 3 * 30 * US, 0]


def test_a_time_range_moves_the_intervals(tmp_path: Path) -> None:
    widths = known_to(None, 10_000, times=(1_900_000, 2_000_000))
    options = EfficiencyOptions(align="utc", time="1950us:")
    late = measured_with_clocks(reports(tmp_path), {"node01": widths, "node02": widths}, options)
    assert picked(late.nccl_collectives, "begin_ns", "margin_ns", "last_task") == [
        (50_000, 20_000, "Rank 1 node01 pid 1001 python3"), (1_050_000, 20_000, None)
    ]  # fmt: skip


def test_where_a_rank_is_missing_nobody_is_known_to_be_last(tmp_path: Path) -> None:
    """The rank that is not in the run may have been later than all others."""
    result = measure(reports(tmp_path)[:3])
    assert result.tables["nccl_waits"].select("collectives", "decided").row(0) == (3, 0)
    assert result.tables["nccl_stragglers"]["last"].sum() == 0
    assert result.tables["nccl_collectives"]["last_task"].null_count() == 3
    residence, waited, undecided = result.tables["nccl_waits"].select("residence_ns", "waited_ns", "undecided_ns").row(0)
    assert undecided == residence - waited
    checks = {row["kind"]: row for row in result.tables["finding_checks"].iter_rows(named=True)}
    assert checks["straggler"]["result"] == "not decidable"
    assert "not in the run" in checks["straggler"]["reason"]


_TIMES = st.integers(0, 60)
_ERRORS = st.sampled_from([0.0, 3.0, 10.0, float("inf")])


@given(st.data())
def test_a_wait_counts_if_and_only_if_a_rank_is_surely_later(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    clocks = [
        ClockError(number, (0, 30, 60), tuple(data.draw(_ERRORS) for _ in range(3)), group=data.draw(st.integers(0, 1)))
        for number in range(3)
    ]
    of_report = [data.draw(st.integers(0, 2)) for _ in range(4)]
    ties = [data.draw(st.sampled_from([0.0, 2.0])) for _ in range(4)]
    report = [data.draw(st.integers(0, 3)) for _ in range(count)]
    errors = [
        ClockError(clocks[of_report[one]].clock, clocks[of_report[one]].times, clocks[of_report[one]].half_widths, ties[one],
                   clocks[of_report[one]].group)
        for one in range(4)
    ]  # fmt: skip
    tasks = [TaskRows(f"Rank {rank}", "node", (), report[rank], errors[report[rank]]) for rank in range(count)]
    start = np.array([data.draw(_TIMES) for _ in range(count)])
    end = np.full(count, start.max() + data.draw(st.integers(1, 90)))
    kernels = pl.DataFrame({"communicator": 1, "operation": "AllReduce", "turn": 0, "task": range(count),
                            "device": range(count), "start": start, "end": end, "complete": True})  # fmt: skip
    waits = waits_of_ranks(kernels, SimpleNamespace(clocks=TaskClocks(tasks))).sort("task")  # type: ignore[arg-type]

    def margin(one: int, other: int) -> float:
        if report[one] == report[other]:
            return 0.0
        return float(clock_margin(errors[report[one]], errors[report[other]], np.array([start.max()]))[0])

    surely = [[start[other] - start[one] > margin(one, other) for other in range(count)] for one in range(count)]
    for one, waited in enumerate(waits["waited"]):
        later = {float(start[other] - start[one]) for other in range(count) if surely[one][other]}
        assert waited in later if later else waited == 0
    last = [other for other in range(count) if all(surely[one][other] for one in range(count) if one != other)]
    assert waits["is_last"].arg_true().to_list() == last
    assert waits["is_decided"].to_list() == [bool(last)] * count
    assert (waits["undecided"] >= 0).all()
    assert (
        waits["waited"] + waits["undecided"] <= pl.select(pl.max_horizontal(waits["waited"], waits["waiting"])).to_series()
    ).all()


# -- how long a run is where clocks are known to an interval, and what a user is told of clocks --------


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
