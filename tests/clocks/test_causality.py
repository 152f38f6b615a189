"""Clocks are moved by messages as little as can be, and no message arrives before it was sent."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.report_builder import ReportBuilder
from support.whole_trace import open_whole

from nsys2prv.clocks.bounds import enforce_bounds
from nsys2prv.trace.translate import Summary, translate
from nsys2prv.trace.translate_options import TranslateOptions


def bounds(*rows: tuple[int, int, float], clocks: int = 2) -> np.ndarray:
    """By how much the second of two clocks may be ahead of the first."""
    ahead = np.full((clocks, clocks), np.inf)
    for first, second, most in rows:
        ahead[first, second] = most
    return ahead


def test_clocks_stay_where_no_message_runs_backwards() -> None:
    found = enforce_bounds(bounds((0, 1, 2000), (1, 0, 500)), np.array([1.0, 2.0]))
    assert found.tolist() == [0, 0]


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
    paths = []
    builders = [ReportBuilder(host=f"host{rank}", pid=1000, rank=rank, ranks=2, with_mpi=True) for rank in range(2)]
    for step in range(40):
        at = 1_000_000 * (step + 1) + step * step * 1000
        for rank, report in enumerate(builders):
            moved = at + rank * wrong
            report.mpi_collective("MPI_Barrier", moved, moved + 50_000 + int(random.integers(-4000, 9000)) * rank)
            call, size, end = ("MPI_Send", 8, 500) if (step + rank) % 2 else ("MPI_Recv", 8, 700)
            report.mpi_p2p(call, moved + 100_000, moved + 100_000 + end, partner=1 - rank, size=size)
    for index, report in enumerate(builders):
        paths.append(report.write(tmp_path / f"{index}.sqlite"))
    return paths


def ways_in_trace(summary: Summary) -> list[int]:
    found = open_whole(summary.prv).messages()
    return found.select(way=pl.col("physical_recv") - pl.col("physical_send"))["way"].to_list()


def test_messages_hold_what_collectives_say_within_what_can_be(tmp_path: Path) -> None:
    paths = reports(tmp_path, wrong=3_000_000)
    by_clocks = translate(paths, tmp_path / "utc", TranslateOptions(align="utc"))
    assert by_clocks.content["messages"]["backward"] == 20
    aligned = translate(paths, tmp_path / "auto")
    assert aligned.content["messages"]["backward"] == 0
    # True latencies take 700 ns in both directions: the clocks are right within that.
    assert all(0 < way < 1400 for way in ways_in_trace(aligned))
    assert {clock["method"] for clock in aligned.content["clocks"]} == {"collectives"}
    assert any(clock["by_messages_ns"] for clock in aligned.content["clocks"])


def test_messages_alone_put_clocks_right_as_far_as_they_tell(tmp_path: Path) -> None:
    builders = [ReportBuilder(host=f"host{rank}", pid=1000, rank=rank, ranks=2, with_mpi=True) for rank in range(2)]
    for step in range(10):
        for rank, report in enumerate(builders):
            at = 1_000_000 * (step + 1) + rank * 3_000_000
            report.mpi_p2p("MPI_Send" if (step + rank) % 2 else "MPI_Recv", at, at + 700, partner=1 - rank, size=8)
    paths = [report.write(tmp_path / f"{index}.sqlite") for index, report in enumerate(builders)]
    aligned = translate(paths, tmp_path / "auto")
    assert all(0 < way < 1400 for way in ways_in_trace(aligned))
    assert {report["alignment"]["method"] for report in aligned.content["reports"]} == {"messages"}
