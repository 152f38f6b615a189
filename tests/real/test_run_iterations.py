"""Iterations of real reports: found without NVTX they are those that NVTX has."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.event_input import read_events
from nsys2prv.efficiency.iterations import BY_KERNELS, find_iterations
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.window import RunIterations


def iterations_of(path: Path, scratch: Path) -> RunIterations:
    events = read_events([path], EfficiencyOptions(progress=False), scratch, with_ranges=True)
    return find_iterations(MeasuredRun(events))


def without_nvtx(path: Path, folder: Path) -> Path:
    """A copy of a report without NVTX events."""
    copied = Path(shutil.copyfile(path, folder / path.name))
    with closing(sqlite3.connect(copied)) as database, database:
        database.execute("DROP TABLE NVTX_EVENTS")
    return copied


@pytest.mark.parametrize(
    "version",
    [
        "dali_amp",
        "4gpu_baseline",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("baseline", "8workers", "dali")),
    ],
)
def test_without_nvtx_the_iterations_of_unet_training_are_the_same(version: str, real_reports: Path, tmp_path: Path) -> None:
    path = real_reports / "unet-training" / f"{version}.sqlite"
    by_ranges = iterations_of(path, tmp_path / "with")
    by_kernels = iterations_of(without_nvtx(path, tmp_path), tmp_path / "without")
    assert by_ranges.how == "nvtx step #"
    assert by_kernels.how == BY_KERNELS
    assert by_ranges.iterations.height == by_kernels.iterations.height == (23 if version == "4gpu_baseline" else 29)
    begin, other = (one.iterations["begin"].to_numpy() for one in (by_ranges, by_kernels))
    # Without NVTX the trace may begin elsewhere.
    apart = (begin - begin[0]) - (other - other[0])
    assert np.abs(apart).max() <= 0.03 * np.median(np.diff(begin))


def test_time_steps_of_two_directions_are_found(real_reports: Path, tmp_path: Path) -> None:
    """By SQL the state is updated 924 times, in x and z three times for each of 154 steps; the last one is cut."""
    found = iterations_of(real_reports / "openacc-mpas.sqlite", tmp_path)
    assert found.how == BY_KERNELS
    lengths = (found.iterations["end"] - found.iterations["begin"]).to_numpy()
    assert len(lengths) == 153
    assert lengths.max() < 1.06 * lengths.min()


def test_blocks_of_a_model_are_found_where_no_range_is_around_them(real_reports: Path, tmp_path: Path) -> None:
    found = iterations_of(real_reports / "pytorch-nccl-2gpu.sqlite", tmp_path)
    assert found.how == BY_KERNELS
    # The first and the last of 17 executions of what a block has once are of blocks that were not recorded whole.
    assert found.iterations.group_by("task").len()["len"].to_list() == [16, 16]
    # Both ranks meet in each block.
    begins = found.iterations.sort("task", "number")["begin"].to_numpy().reshape(2, 16)
    assert np.abs(begins[0] - begins[1]).max() < 0.25 * np.median(np.diff(begins[0]))


@pytest.mark.parametrize(
    ("report", "count", "usual_ms"),
    [
        # By SQL each kernel of a time step is executed 10 times.
        ("cloverleaf-3.13", 10, 32),
        # 13 batches of 416 operations; the first ones load code.
        ("pytorch-uvm", 13, 182),
        # 28 layers of 78 operations, in which a matrix product repeats eight times.
        ("conclusions/llm-2h100-1s", 28, 29),
    ],
)
def test_iterations_are_what_the_program_repeats(
    report: str, count: int, usual_ms: int, real_reports: Path, tmp_path: Path
) -> None:
    lengths = iterations_of(real_reports / f"{report}.sqlite", tmp_path).lengths
    assert lengths.height == count
    assert int(np.median(lengths["median"].to_numpy()) / 1e6) in range(usual_ms - 2, usual_ms + 1)
