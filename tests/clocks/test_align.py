"""Clocks of hosts are tied together by collectives and messages of their ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock_truth import alignment_error

from nsys2prv.clocks.anchors import SharedEvents
from nsys2prv.clocks.collective_matching import Matching
from nsys2prv.clocks.estimate import fit
from nsys2prv.clocks.sequence_matching import CollectiveSequence, SequenceMatch, match_sequences
from nsys2prv.demo import Cluster, write_reports

NODES = 4
OFFSETS = (-1_409_000_000, 4_800_000_000, -4_900_000_000, 95_000_000)
DRIFTS = (50.0, -50.0, 12.0, -31.5)


def _cluster(**settings: object) -> Cluster:
    of_run = {
        "iterations": 20,
        "layers": 2,
        "gpus_per_node": 2,
        "pause_ns": 450_000_000,
        "lost_collectives": 0.02,
        "late_ns": 10_000,
    }
    return Cluster(
        nodes=NODES,
        with_nvtx=False,
        with_os_calls=False,
        gpu_metrics_hz=0,
        clock_offsets_ns=OFFSETS,
        clock_drifts_ppm=DRIFTS,
        **{**of_run, **settings},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("method", "with_mpi", "with_nccl"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("nccl", True, True),
        ("mpi", True, True),
    ],
)
def test_clocks_that_are_seconds_apart_and_drift_are_aligned_to_microseconds(
    tmp_path: Path, method: str, with_mpi: bool, with_nccl: bool
) -> None:
    cluster = _cluster(with_mpi=with_mpi, with_nccl=with_nccl)
    found = alignment_error(write_reports(tmp_path, cluster), cluster, method)

    assert found.percentile(50) < 5_000
    assert found.percentile(99) < 20_000
    assert found.honest >= 0.95
    assert {placement.method for placement in found.axis.placements} == {"collectives"}
    drifts = np.array([clock.correction.drift * 1e6 for clock in found.axis.clocks if clock.correction is not None])
    assert drifts - drifts.mean() == pytest.approx(np.array(DRIFTS) - np.mean(DRIFTS), abs=0.5)


def test_messages_alone_align_clocks_to_what_their_latency_leaves_open(tmp_path: Path) -> None:
    # What goes to a rank that is always late tells only that it was late.
    cluster = _cluster(with_nccl=False, slow_gpu=None)
    found = alignment_error(write_reports(tmp_path, cluster), cluster, "messages")

    assert found.percentile(99) < 100_000
    assert found.honest == 1
    assert {placement.method for placement in found.axis.placements} == {"messages"}
    drifts = np.array([clock.correction.drift * 1e6 for clock in found.axis.clocks if clock.correction is not None])
    assert drifts - drifts.mean() == pytest.approx(np.array(DRIFTS) - np.mean(DRIFTS), abs=15)


def test_where_messages_wait_for_a_slow_rank_the_reported_error_holds(tmp_path: Path) -> None:
    cluster = _cluster(with_nccl=False)
    found = alignment_error(write_reports(tmp_path, cluster), cluster, "messages")

    assert found.percentile(99) < 2_000_000
    assert found.honest == 1


@pytest.mark.thorough
def test_without_collectives_times_are_as_wrong_as_the_clocks(tmp_path: Path) -> None:
    cluster = _cluster()
    reports = write_reports(tmp_path, cluster)

    assert alignment_error(reports, cluster, "utc").percentile(50) > 1e8
    assert alignment_error(reports, cluster, "monotonic").percentile(50) > 1e8


def test_a_host_without_common_collectives_is_named_and_stays_at_its_own_clock(tmp_path: Path) -> None:
    cluster = _cluster(lonely_host=2, with_mpi=False)
    found = alignment_error(write_reports(tmp_path, cluster), cluster, "auto", hosts=(0, 1, 3))

    assert found.percentile(99) < 20_000
    assert [placement.method for placement in found.axis.placements[4:6]] == ["utc", "monotonic"]
    assert [clock.name for clock in found.axis.clocks if clock.correction is None] == [cluster.host(4)]
    assert cluster.host(4) in " ".join(found.axis.warnings)


def test_a_host_without_collectives_is_placed_by_its_messages(tmp_path: Path) -> None:
    cluster = _cluster(lonely_host=2, slow_gpu=None)
    found = alignment_error(write_reports(tmp_path, cluster), cluster, "auto")

    assert found.percentile(99) < 100_000
    assert [placement.method for placement in found.axis.placements] == [
        *["collectives"] * 4,
        *["messages"] * 2,
        *["collectives"] * 2,
    ]
    assert not found.axis.warnings


def test_the_first_event_of_all_stays_at_zero(tmp_path: Path) -> None:
    cluster = _cluster()
    found = alignment_error(write_reports(tmp_path, cluster), cluster, "auto")
    begins = [placement.at(0) for placement in found.axis.placements]

    assert min(begins) <= 0
    assert all(placement.at(10**9) > placement.at(0) for placement in found.axis.placements)


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
