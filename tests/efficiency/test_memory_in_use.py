"""Memory in use over time: sums of allocations and frees of each device."""

from pathlib import Path

import polars as pl
import pytest
from support import QUICK
from support.measured import measured_tables, written
from support.pages import run_of
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions, window_choice
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.run.options import time_range

GIB = 2**30
PINNED, MANAGED = 1, 4


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ranks on one node, each with a GPU: 10 bins of 100 ns."""
    reports = [ReportBuilder(host="node", pid=100 + rank).gpu(rank).mpi_rank(rank) for rank in range(2)]
    for rank, report in enumerate(reports):
        report.kernel("k", 0, 1_000, launch=(0, 0), device=rank)
        report.memory_use(150, 2 * GIB, device=rank).memory_use(250, (3 + rank) * GIB, device=rank)
        report.memory_use(260, (3 + rank) * GIB, device=rank, freed=True)
        report.memory_use(650, GIB, device=rank, kind=MANAGED)
    return written(tmp_path_factory.mktemp("memory"), *reports)


@pytest.fixture(scope="module")
def result(reports: list[Path]) -> EfficiencyResult:
    return measure(reports, EfficiencyOptions(bins=10, **QUICK))


def over_time(result: EfficiencyResult, device: str, memory: str) -> list[float]:
    bins = result.tables["memory_bins"].filter(pl.col("device") == device, pl.col("memory") == memory)
    assert bins["bin"].to_list() == result.tables["bins"]["bin"].to_list()
    return [peak / GIB for peak in bins["peak_bytes"]]


def test_sums_of_allocations_and_frees_by_device_and_kind_with_their_peak(result: EfficiencyResult) -> None:
    rows = result.tables["memory_in_use"].filter(pl.col("memory") == "device").drop("memory").rows()
    assert rows == [
        (f"node:D{rank}", (5 + rank) * GIB, 250, 0, 2 * GIB, 0, 2, (5 + rank) * GIB, 1, (3 + rank) * GIB) for rank in range(2)
    ]
    assert over_time(result, "node:D1", "device") == [0, 2, 6, 2, 2, 2, 2, 2, 2, 2]
    assert over_time(result, "node:D1", "managed") == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_a_window_begins_with_what_was_allocated_before(reports: list[Path]) -> None:
    result = measure(reports, EfficiencyOptions(bins=4, **QUICK, window=window_choice("400ns:800ns")))
    (row,) = result.tables["memory_in_use"].filter(pl.col("device") == "node:D0", pl.col("memory") == "device").to_dicts()
    assert (row["begin_bytes"], row["peak_bytes"], row["end_bytes"]) == (2 * GIB, 2 * GIB, 2 * GIB)
    assert (row["peak_at_ns"], row["allocations"], row["frees"]) == (400, 0, 0)
    assert over_time(result, "node:D0", "device") == [2, 2, 2, 2]
    assert over_time(result, "node:D0", "managed") == [0, 0, 1, 1]


def test_of_a_selected_time_what_was_there_before_is_known_from_the_events(reports: list[Path]) -> None:
    result = measure(reports, EfficiencyOptions(bins=4, **QUICK, time=time_range("200ns:600ns")))
    (row,) = result.tables["memory_in_use"].filter(pl.col("device") == "node:D0").to_dicts()
    assert (row["before_bytes"], row["begin_bytes"], row["peak_bytes"], row["end_bytes"]) == (
        2 * GIB, 2 * GIB, 5 * GIB, 2 * GIB)  # fmt: skip


def test_what_is_freed_without_an_allocation_was_there_before(tmp_path: Path) -> None:
    report = ReportBuilder(host="node").gpu(0)
    report.kernel("k", 0, 1_000, launch=(0, 0))
    report.memory_use(100, GIB).memory_use(500, 4 * GIB, freed=True)
    (row,) = measured_tables([report.write(tmp_path / "one.sqlite")], ("memory_in_use",), bins=2)["memory_in_use"].to_dicts()
    assert (row["before_bytes"], row["begin_bytes"], row["peak_bytes"], row["end_bytes"]) == (3 * GIB, 3 * GIB, 4 * GIB, 0)


def test_the_page_names_the_peak_and_leaves_out_what_does_not_change(result: EfficiencyResult, tmp_path: Path) -> None:
    figures = [one.text for one in run_of(result).read.all("figcaption")]
    assert any("GPU memory in use." in text and "6.000 GiB, on node:D1 at 250 ns" in text for text in figures)
    assert any(text.startswith("Managed memory.") for text in figures)
    report = ReportBuilder(host="node").gpu(0)
    report.kernel("k", 100, 1_000, launch=(0, 0))
    report.memory_use(0, GIB).memory_use(500, 1_000, kind=PINNED)
    constant = run_of(measure([report.write(tmp_path / "constant.sqlite")], EfficiencyOptions(bins=10)))
    assert constant.read.all("details", id="table-memory_in_use")
    assert not any("memory" in one.text.lower() and "peak" in one.text for one in constant.read.all("figcaption"))


def test_changes_at_an_edge_are_in_the_bin_that_begins_there_and_those_at_the_end_in_the_last(tmp_path: Path) -> None:
    report = ReportBuilder(host="node").gpu(0)
    report.kernel("k", 0, 1_000, launch=(0, 0))
    report.memory_use(0, 2).memory_use(250, 5, freed=True).memory_use(250, 2).memory_use(1_000, 3, freed=True)
    bins = measured_tables([report.write(tmp_path / "edges.sqlite")], ("memory_bins",), bins=4)["memory_bins"]
    assert bins.select("peak_bytes", "end_bytes").rows() == [(6, 6), (8, 3), (3, 3), (3, 0)]
