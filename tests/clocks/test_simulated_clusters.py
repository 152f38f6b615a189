"""Simulated clusters: their reports are true, and the true offsets of clocks lie in the intervals that nsys2prv tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from support.checkout import CHECKOUT
from support.simulated_clocks import KINDS, SimulatedReport, simulate
from support.told_intervals import HONEST, PairsOfReports, aligned, compare_with_truth, try_kind

from nsys2prv.demo.nsys_tables import NVTX_MARK


def _true(report: SimulatedReport, times: pl.Series) -> np.ndarray:
    """True times of a report's times."""
    session = dict(report.tables["META_DATA_EXPORT"].iter_rows())
    in_session = times.to_numpy() - int(session.get("EXPORT_CONFIG_TIME_SHIFT", 0))
    grid = np.linspace(report.session, report.recorded[1] + 10**9, 100_001)
    return np.interp(in_session, report.in_session(grid.astype(np.int64)), grid)


@pytest.mark.parametrize("kind", ["MPI", "two tree collectives", "UTC only", "some shifted"])
def test_no_rank_leaves_a_collective_before_the_last_one_has_come(kind: str) -> None:
    reports = simulate(KINDS[kind], 1)
    table = "MPI_COLLECTIVES_EVENTS" if kind == "MPI" else "CUPTI_ACTIVITY_KIND_KERNEL"
    starts, ends = (
        np.stack([_true(report, report.tables[table][column]) for report in reports]) for column in ("start", "end")
    )

    assert len(reports) == KINDS[kind].nodes * KINDS[kind].ranks_per_node
    assert (ends.min(axis=0) > starts.max(axis=0)).all()
    assert np.median(ends.max(axis=0) - ends.min(axis=0)) < (10e6 if "tree" in kind else 30e3)


def test_messages_arrive_after_their_latency() -> None:
    calls = []
    for report in simulate(KINDS["unequal latency"], 1):
        table, strings = report.tables["MPI_P2P_EVENTS"], dict(report.tables["StringIds"].iter_rows())
        times = (pl.Series(name, _true(report, table[name])) for name in ("start", "end"))
        call = pl.col("textId").replace_strict(strings)
        calls.append(table.with_columns(*times, rank=pl.lit(report.rank), call=call, place=pl.int_range(pl.len())))
    key = ["from", "to", "tag", "number"]
    every = pl.concat(calls).with_columns(
        number=pl.int_range(pl.len()).over("rank", "call", "tag", order_by="place"),
        **{"from": pl.when(pl.col("call") == "MPI_Send").then("rank").otherwise("remoteRank")},
        to=pl.when(pl.col("call") == "MPI_Send").then("remoteRank").otherwise("rank"),
    )
    sends, receives = (every.filter(pl.col("call") == call) for call in ("MPI_Send", "MPI_Recv"))
    messages = sends.join(receives, on=key, suffix="_received")
    shortest = messages.group_by("tag").agg((pl.col("end_received") - pl.col("start")).min()).sort("tag")

    assert messages.height == sends.height == receives.height
    assert shortest["end_received"].to_list() == pytest.approx([7_000, 152_000], abs=3_000)


def test_marks_of_nccl_name_a_message_on_both_sides() -> None:
    kind = KINDS["one ring collective"]
    posted, complete = [], []
    for report in simulate(kind, 1):
        if "NVTX_EVENTS" in report.tables:
            marks = report.tables["NVTX_EVENTS"].select(
                "eventType", "text", "start", time=_true(report, report.tables["NVTX_EVENTS"]["start"])
            )
            posted.append(marks.filter(pl.col("text").str.starts_with("ncclNetIsend(): Data_Size")))
            complete.append(marks.filter(pl.col("text").str.starts_with("ncclNetRecvTest(): Data_Size")))
    # Sends that could not be taken were tried again.
    first, done = pl.concat(posted).sort("time"), pl.concat(complete).sort("time")

    assert done.height == 2 * kind.net_messages <= first.height
    assert done["eventType"].unique().to_list() == [NVTX_MARK]
    assert first["time"].min() < done["time"].min()
    assert first["time"].max() < done["time"].max()


def test_the_same_seed_gives_the_same_run() -> None:
    first, same, other = (simulate(KINDS["missing ranks"], seed)[0].tables for seed in (4, 4, 5))

    assert all(first[name].equals(same[name]) for name in first)
    assert not first["MPI_P2P_EVENTS"].equals(other["MPI_P2P_EVENTS"])


def test_the_documentation_has_the_result_of_each_kind() -> None:
    page = (CHECKOUT / "docs" / "reference" / "simulated-clusters.md").read_text(encoding="utf-8")
    table = page[page.index("<!-- measured by make bench -->") : page.index("<!-- end -->")]
    rows = [line.split(" | ")[:2] for line in table.splitlines() if line.startswith("| ")][2:]

    assert [(name.removeprefix("| "), text) for name, text in rows] == [(name, kind.text) for name, kind in KINDS.items()]


_LIKE_OTHERS = {
    *("one ring collective", "few MPI collectives", "UTC seconds apart", "shifted", "some shifted", "MPI", "jump"),
    *("a host without collectives", "regular iterations, UTC within 0.1 ms"),
}
"""Kinds that differ little from others, which `make test` has."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.thorough] if kind in _LIKE_OTHERS else []) for kind in KINDS]
)
def test_true_offsets_are_inside_the_told_intervals(kind: str) -> None:
    result = try_kind(kind, range(1))

    assert result.is_honest, result
    assert result.is_useful, result


def test_messages_that_are_not_precise_do_not_bend_the_line_of_a_clock_that_jumps() -> None:
    result = try_kind("jump, messages", (9, 12, 17))

    assert result.inside == 1
    assert result.margin_median < 30_000


@pytest.mark.parametrize(("iterations", "lasts"), [(20, 0), (20, 4_000_000_000), (60, 0), (60, 4_000_000_000)])
def test_where_a_clock_jumps_or_is_slewed_at_any_place_the_interval_holds_it(iterations: int, lasts: int) -> None:
    kind = replace(
        KINDS["jump"], nodes=8, ranks_per_node=3, nccl=1, iterations=iterations, jump_lasts=lasts, jump_place=(0.05, 0.95),
        jump=(2_000_000, 2_000_000) if lasts else (100_000, 20_000_000),
    )  # fmt: skip
    runs = [simulate(kind, seed) for seed in range(2)]
    pairs = PairsOfReports.joined([compare_with_truth(reports, aligned(reports)) for reports in runs]).of_hosts(same=False)

    assert pairs.inside.mean() >= HONEST
    assert iterations < 60 or np.nanmedian(pairs.margins) < 10 * np.median(np.nanmax(pairs.errors, axis=1))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_true_offsets_are_inside_the_told_intervals_of_more_runs(kind: str) -> None:
    result = try_kind(kind, range(1, 12))

    assert result.is_honest, result
    assert result.is_useful, result
