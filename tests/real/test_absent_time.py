"""Compute-absent time of the real reports: its parts against each other."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from support.real_reports import REPORTS, RUNS

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult


def check_parts(measured: EfficiencyResult) -> None:
    """Assert that parts of each device, iteration and region add up to the time without computation."""
    tables, elapsed = measured.tables, measured.head["window"]["length_ns"]
    absent = tables["absent_time"]

    assert sorted(absent["absent_ns"]) == sorted(elapsed - tables["devices"]["useful_ns"])
    assert (absent.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == absent["absent_ns"]).all()
    assert absent.select(pl.col(PART_COLUMNS).min()).min_horizontal().item() >= 0
    by_part = tables["absent_parts"].group_by("device").agg(pl.col("total_ns").sum())
    assert dict(by_part.iter_rows()) == dict(absent.filter(pl.col("absent_ns") > 0).select("device", "absent_ns").iter_rows())
    for inside in (tables["absent_iterations"], tables["absent_regions"]):
        assert (inside.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == inside["absent_ns"]).all()
        assert (inside["compute_ns"] + inside["absent_ns"] == inside["elapsed_ns"]).all()
    stretches = tables["absent_stretches"]
    assert (stretches.select(pl.sum_horizontal(PART_COLUMNS)).to_series() == stretches["length_ns"]).all()
    starved = absent.select(
        pl.col(f"starved_{kind}_ns").sum() for kind in (*host_states.NAMES, "unified_memory")
    ).sum_horizontal().item()  # fmt: skip
    if tables["absent_calls"].height < 500:
        assert tables["absent_calls"]["total_ns"].sum() == starved


def test_the_parts_add_up_to_the_time_without_computation(
    name: str, efficiency: Callable[[str, str], EfficiencyResult]
) -> None:
    check_parts(efficiency(name, "communication"))


OTHER_RUNS = [run for run in RUNS if run not in REPORTS]


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=[] if run == "8workers" else [pytest.mark.thorough]) for run in OTHER_RUNS]
)
def test_so_they_do_in_trainings_and_over_several_hosts(run: str) -> None:
    check_parts(measure(RUNS[run], EfficiencyOptions(regions=("*",))))
