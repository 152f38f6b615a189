"""Collectives of different communicators are never the same, however alike their names, sizes and times are."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.simulated_run.causes import with_and_without
from support.simulated_run.cluster import TENSOR, Cluster
from support.simulated_run.truth import simulate
from support.simulated_run.write import write_reports

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(12, 20))])
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
