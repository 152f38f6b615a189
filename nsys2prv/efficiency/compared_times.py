"""What the wall time of each run of a comparison went to, and how long its iterations took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.comparison_basis import ComparisonBasis
from nsys2prv.efficiency.meters.absent_tables import PART_COLUMNS
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.verdict import BarPart, wall_time_of_hosts, wall_time_parts
from nsys2prv.efficiency.window import WARM_UP


def wall_time(runs: Mapping[str, EfficiencyResult], basis: str, over: ComparisonBasis) -> list[dict[str, Any]]:
    """Rows of `wall_time`: of runs with these letters, the first first; `basis` is `run` or `iteration`."""
    parts = {run: {part.name: part for part in _parts(one, basis, over)} for run, one in runs.items()}
    first = next(iter(parts.values()))
    names = dict.fromkeys(name for of_run in parts.values() for name in of_run)
    rows = []
    for run, of_run in parts.items():
        for name in names:
            like = next(others[name] for others in parts.values() if name in others)
            value = of_run[name].value if name in of_run else 0.0
            rows.append(
                {
                    "run": run,
                    "part": name,
                    "title": like.title,
                    "group": like.group,
                    "value_ns": value,
                    "share": of_run[name].share if name in of_run else 0.0,
                    "difference_ns": value - (first[name].value if name in first else 0.0),
                }
            )
    return rows


def _parts(one: EfficiencyResult, basis: str, over: ComparisonBasis) -> Sequence[BarPart]:
    if over.is_of_hosts:
        return wall_time_of_hosts(one.tables, with_mpi=over.has_mpi)
    return wall_time_parts(_of_basis(one, basis))


def _of_basis(one: EfficiencyResult, basis: str) -> Mapping[str, pl.DataFrame]:
    """The tables of a run, or with its mean iteration in the place of the whole run."""
    if basis == "run" or one.tables["absent_iterations"].is_empty():
        return one.tables
    usual = one.tables["iterations"].filter(pl.col("kind").fill_null("") != WARM_UP)["iteration"]
    of_devices = (
        one.tables["absent_iterations"]
        .filter(pl.col("iteration").is_in(usual.implode()))
        .group_by("device", maintain_order=True)
        .agg(pl.col("elapsed_ns", "compute_ns", *PART_COLUMNS).mean())
    )
    return {**one.tables, "absent_time": of_devices, "absent_parts": one.tables["absent_parts"].clear()}


def iteration_lengths(runs: Mapping[str, EfficiencyResult]) -> pl.DataFrame:
    """Rows of `iteration_lengths`."""
    return pl.concat(
        one.tables["iterations"].select(
            pl.lit(run, pl.String).alias("run"), "iteration", pl.col("longest_ns").alias("length_ns"), "kind"
        )
        for run, one in runs.items()
    )
