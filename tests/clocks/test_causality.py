"""Clocks are moved by messages as little as can be, and no message arrives before it was sent."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report_builder import ReportBuilder
from support.simulated_run.causes import with_and_without
from support.simulated_run.cluster import TENSOR, Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports
from support.whole_trace import open_whole

from nsys2prv.clocks.agreement import BETWEEN_HOSTS, INSIDE_HOST, MESSAGE, Disagreement, check_axis, report_agreement
from nsys2prv.clocks.bounds import enforce_bounds
from nsys2prv.clocks.sync_points import UTC_READINGS_APART_NS, ReportClock
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.timeline.time_axis import ClockError
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions


def bounds(*rows: tuple[int, int, float], clocks: int = 2) -> np.ndarray:
    """By how much the second of two clocks may be ahead of the first."""
    ahead = np.full((clocks, clocks), np.inf)
    for first, second, most in rows:
        ahead[first, second] = most
    return ahead


def test_clocks_stay_where_no_message_runs_backwards() -> None:
    assert enforce_bounds(bounds((0, 1, 2000), (1, 0, 500)), np.array([1.0, 2.0])).tolist() == [0, 0]


def test_the_clock_that_is_known_better_moves_less() -> None:
    # Messages from 0 arrive too early: clock 0 is ahead of clock 1 by 1 us at least.
    first, second = enforce_bounds(bounds((0, 1, -1000), (1, 0, 5000)), np.array([1.0, 3.0]))
    assert (first, second) == pytest.approx((750, -250), abs=1)


def test_a_clock_of_which_nothing_is_known_follows_the_others() -> None:
    found = enforce_bounds(bounds((0, 1, -1000), (1, 0, 5000), (1, 2, 3000), clocks=3), np.array([1.0, 0.0, 4.0]))
    assert found.tolist() == pytest.approx([0, -1000, 0], abs=1)


def test_clocks_that_are_known_move_for_messages_by_way_of_one_that_is_not() -> None:
    # 0 to 1 to 2 in less than no time: wherever clock 1 is, 0 and 2 are too near.
    found = enforce_bounds(bounds((0, 1, -2200), (1, 2, 200), clocks=3), np.array([1.0, 0.0, 1.0]))
    assert found.tolist()[::2] == pytest.approx([1000, -1000], abs=1)
    assert found[1] - found[0] <= -2200 + 1
    assert found[2] - found[1] <= 200 + 1


def test_where_both_directions_cannot_be_right_both_are_wrong_by_the_same() -> None:
    found = enforce_bounds(bounds((0, 1, -3000), (1, 0, 1000)), np.array([1.0, 1.0]))
    assert -3000 - found[1] + found[0] == pytest.approx(1000 - found[0] + found[1], abs=2)


_TRUE_OFFSETS = st.lists(st.integers(-50_000, 50_000), min_size=2, max_size=6)


@given(_TRUE_OFFSETS, st.data())
def test_no_message_runs_backwards_wherever_clocks_were(offsets: list[int], data: st.DataObject) -> None:
    """Clocks that differ by any offsets, each known or not; latencies that messages of the right clocks could have gone."""
    clocks = range(len(offsets))
    true_latencies = {
        pair: data.draw(st.integers(0, 30_000))
        for pair in itertools.permutations(clocks, 2)
        if data.draw(st.booleans(), label=f"messages {pair}")
    }
    rows = [(a, b, latency + offsets[b] - offsets[a]) for (a, b), latency in true_latencies.items()]
    seen = bounds(*rows, clocks=len(offsets))
    precision = np.array([data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0])) for _ in clocks])
    moved = enforce_bounds(seen, precision)
    for a, b, latency in rows:
        assert latency - moved[b] + moved[a] > -20


def reports(tmp_path: Path, wrong: int) -> list[Path]:
    """Two hosts that meet in barriers, with noise, and exchange messages; the clock of the second is wrong."""
    random = np.random.default_rng(1)
    builders = [ReportBuilder(host=f"host{rank}", pid=1000, rank=rank, ranks=2, with_mpi=True) for rank in range(2)]
    for step in range(40):
        at = 1_000_000 * (step + 1) + step * step * 1000
        for rank, report in enumerate(builders):
            moved = at + rank * wrong
            report.mpi_collective("MPI_Barrier", moved, moved + 50_000 + int(random.integers(-4000, 9000)) * rank)
            call, size, end = ("MPI_Send", 8, 500) if (step + rank) % 2 else ("MPI_Recv", 8, 700)
            report.mpi_p2p(call, moved + 100_000, moved + 100_000 + end, partner=1 - rank, size=size)
    return [report.write(tmp_path / f"{index}.sqlite") for index, report in enumerate(builders)]


def ways_in_trace(summary: Summary) -> list[int]:
    found = open_whole(summary.prv).messages()
    return found.select(way=pl.col("physical_recv") - pl.col("physical_send"))["way"].to_list()


def test_messages_hold_what_collectives_say_within_what_can_be(tmp_path: Path) -> None:
    paths = reports(tmp_path, wrong=3_000_000)
    assert translate(paths, tmp_path / "utc", TranslateOptions(align="utc")).content["messages"]["backward"] == 20
    aligned = translate(paths, tmp_path / "auto")
    assert aligned.content["messages"]["backward"] == 0
    # True latencies take 700 ns in both directions: the clocks are right within that.
    assert all(0 < way < 1400 for way in ways_in_trace(aligned))
    assert {clock["method"] for clock in aligned.content["clocks"]} == {"collectives"}
    assert any(clock["by_messages_ns"] for clock in aligned.content["clocks"])


# -- what cannot be as it was placed is found, and reports of one host are compared ----------------------
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


# -- collectives of different communicators are never the same, however alike their names, sizes and times are ----


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(11, 20))
def test_reductions_inside_of_hosts_do_not_tie_their_clocks(seed: int, tmp_path: Path) -> None:
    # Each host has a communicator of its GPUs, whose many reductions are alike; few are over all ranks.
    cluster = Cluster(
        pattern=TENSOR, nodes=2, gpus=2, iterations=3, seed=seed, jitter=0.08, start_up=1_000_000, event_ids=False
    )
    slow, _ = with_and_without(cluster, "slow network")
    run = simulate(slow)
    result = measure(write_reports(run, tmp_path), EfficiencyOptions(no_critical_path=True))
    interval = result.head["length_interval"]
    assert interval["least_ns"] <= run.length <= interval["most_ns"]
    assert result.head["window"]["length_ns"] == pytest.approx(run.length, rel=0.01)
