"""Clocks of hosts are tied together by collectives and messages of their ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import rest
from support.simulated_clocks import KINDS, ClusterKind, simulate
from support.told_intervals import aligned, compare_with_truth

from nsys2prv.clocks import AlignMethod
from nsys2prv.clocks.anchors import SharedEvents
from nsys2prv.clocks.collective_matching import Matching
from nsys2prv.clocks.estimate import fit
from nsys2prv.clocks.sequence_matching import CollectiveSequence, SequenceMatch, match_sequences


@pytest.mark.parametrize(
    ("kind", "method", "by", "most", "drift_ppm"),
    [
        ("NCCL", AlignMethod.AUTO, "collectives", 20_000, 0.5),
        pytest.param("MPI", AlignMethod.AUTO, "collectives", 20_000, 0.5, marks=pytest.mark.thorough),
        ("MPI and its messages", AlignMethod.MPI, "collectives", 20_000, 0.5),
        pytest.param("UTC seconds apart", AlignMethod.NCCL, "collectives", 20_000, 0.5, marks=pytest.mark.thorough),
        ("MPI messages", AlignMethod.MESSAGES, "messages", 100_000, 15),
    ],
)
def test_clocks_that_drift_are_aligned_by_what_ranks_have_in_common(
    kind: str, method: AlignMethod, by: str, most: int, drift_ppm: float
) -> None:
    reports = simulate(KINDS[kind], 1)
    axis = aligned(reports, method)
    pairs = compare_with_truth(reports, axis)

    assert {placement.method for placement in axis.placements} == {by}
    assert np.nanpercentile(pairs.errors, 99) < most
    assert pairs.inside.all()
    drifts = np.array([clock.correction.drift * 1e6 for clock in axis.clocks if clock.correction is not None])
    true = np.array([report.clock.drift * 1e6 for report in reports[::2]])
    assert drifts - drifts.mean() == pytest.approx(true - true.mean(), abs=drift_ppm)
    assert min(placement.at(0) for placement in axis.placements) <= 0


@pytest.mark.parametrize("method", [AlignMethod.UTC, *rest(AlignMethod.MONOTONIC)])
def test_without_collectives_times_are_as_wrong_as_the_clocks(method: AlignMethod) -> None:
    reports = simulate(KINDS["NCCL"], 1)
    assert np.nanmedian(compare_with_truth(reports, aligned(reports, method)).of_hosts(same=False).errors) > 1e8


def test_a_host_without_common_collectives_is_named_and_stays_at_its_own_clock() -> None:
    axis = aligned(simulate(KINDS["a host without collectives"], 1))
    assert [placement.method for placement in axis.placements] == [*["collectives"] * 6, "utc", "monotonic"]
    assert [clock.name for clock in axis.clocks if clock.correction is None] == ["node04"]
    assert "node04" in " ".join(axis.warnings)


def test_a_host_without_collectives_is_placed_by_its_messages() -> None:
    reports = simulate(ClusterKind(text="", nccl=2, mpi_messages=True), 1)
    for report in reports[6:]:
        del report.tables["CUPTI_ACTIVITY_KIND_KERNEL"]  # type: ignore[attr-defined]
    axis = aligned(reports)
    assert [placement.method for placement in axis.placements] == [*["collectives"] * 6, *["messages"] * 2]
    assert np.nanpercentile(compare_with_truth(reports, axis).errors, 99) < 100_000
    assert not axis.warnings


@given(
    seed=st.integers(0, 2**32 - 1),
    hosts=st.integers(2, 6),
    noise=st.sampled_from([0, 2_000, 10_000]),
    outliers=st.sampled_from([0.0, 0.05]),
)
def test_the_fit_finds_offsets_and_drifts(seed: int, hosts: int, noise: int, outliers: float) -> None:
    random = np.random.default_rng(seed)
    moments = np.sort(random.uniform(0, 30e9, 400))
    offset, drift = random.uniform(-5e9, 5e9, hosts), random.uniform(-5e-5, 5e-5, hosts)
    event, host = np.repeat(np.arange(len(moments)), hosts), np.tile(np.arange(hosts), len(moments))
    time = moments[event] * (1 + drift[host]) + offset[host] + random.exponential(max(noise, 1), len(event))
    wrong = random.random(len(event)) < outliers
    time[wrong] += random.uniform(1e6, 1e8, int(wrong.sum()))

    clocks = fit(SharedEvents(event, host, time.astype(np.int64)), hosts).corrections

    at = np.array([0.0, 15e9, 30e9])
    shown = at * (1 + drift[:, None]) + offset[:, None]
    placed = np.stack(
        [one - clock.offset - clock.drift * (one - clock.pivot) for one, clock in zip(shown, clocks, strict=True)]
    )
    assert np.abs(placed - placed.mean(axis=0)).max() < max(noise, 500)
    assert len({clock.group for clock in clocks}) == 1


def test_hosts_without_shared_events_keep_their_clocks_and_are_separate_groups() -> None:
    event, host = np.repeat(np.arange(20), 2), np.tile([0, 2], 20)
    clocks = fit(SharedEvents(event, host, np.repeat(np.arange(20), 2) * 10**8 + np.tile([0, 5000], 20)), 4).corrections
    assert [clock.group for clock in clocks] == [0, 1, 0, 3]
    assert [clock.anchors for clock in clocks] == [20, 0, 20, 0]
    assert clocks[2].offset - clocks[0].offset == pytest.approx(5000, abs=1)
    assert (clocks[1].offset, clocks[1].drift) == (0, 0)


def _sequence(owner: int, times: np.ndarray) -> CollectiveSequence:
    nothing = np.zeros(len(times), dtype=np.int64)
    return CollectiveSequence(owner, owner, "nccl", (times - 5e6).astype(np.int64), times.astype(np.int64), nothing, nothing)


def test_regular_iterations_are_not_mistaken_for_each_other() -> None:
    random = np.random.default_rng(3)
    ends = np.cumsum(random.normal(1, 0.01, 600) * 50e6)
    first, second = _sequence(0, ends), _sequence(1, ends[17:] + 3e9 + random.exponential(2_000, len(ends) - 17))
    found = match_sequences(first, second)
    assert isinstance(found, SequenceMatch)
    assert (found.first - found.second == 17).all()
    assert found.error < 10_000


def test_communicators_of_equal_shape_are_distinguished_by_their_times() -> None:
    random = np.random.default_rng(4)
    groups = [np.cumsum(random.normal(1, 0.05, 300) * 20e6) for _ in range(2)]
    sequences = [_sequence(rank, groups[rank // 2] + rank * 1e8 + random.exponential(2_000, 300)) for rank in range(4)]
    events = Matching(sequences).events
    assert all((first == second).mean() > 0.99 for first, second in (events[:2], events[2:]))
    assert not set(events[0].tolist()) & set(events[2].tolist()) - {-1}


def test_nothing_is_matched_where_there_is_nothing() -> None:
    assert match_sequences(_sequence(0, np.arange(3) * 1e6), _sequence(1, np.arange(3) * 1e6)) is None
    assert Matching([]).events == []
    nothing = np.zeros(0, dtype=np.int64)
    assert fit(SharedEvents(nothing, nothing, nothing), 2).corrections[0].anchors == 0
