"""Close-ups: short parts of the run, kernel by kernel, around places of findings and of two iterations."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from support.pages import Run, run_of
from support.report_builder import ReportBuilder

from nsys2prv.demo import Cluster, write_reports
from nsys2prv.efficiency.closeups import MOST_BARS
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions, window_choice
from nsys2prv.efficiency.measure import measure


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two nodes with a GPU each, one of them slow."""
    cluster = Cluster(nodes=2, gpus_per_node=1, iterations=6, layers=2, slow_gpu=1, slow_factor=1.5, gpu_metrics_hz=0)
    return write_reports(tmp_path_factory.mktemp("reports"), cluster)


@pytest.fixture(scope="module")
def run(reports: list[Path]) -> Run:
    return run_of(measure(reports))


def test_iterations_are_the_slowest_and_one_of_median_length(run: Run) -> None:
    lengths = run.measured.tables["iterations"].filter(pl.col("kind").fill_null("") != "warm-up").sort("longest_ns")
    closeups = {row["what"]: row for row in run.measured.tables["closeups"].iter_rows(named=True)}

    slowest, usual = closeups["slowest iteration"], closeups["usual iteration"]
    assert slowest["iteration"] == lengths["iteration"][-1] != usual["iteration"]
    assert slowest["end_ns"] - slowest["begin_ns"] == lengths["longest_ns"][-1]
    assert lengths["longest_ns"][0] <= usual["end_ns"] - usual["begin_ns"] <= lengths["longest_ns"][-1]


def test_bars_are_what_runs_on_the_devices_there(run: Run) -> None:
    for row in run.measured.tables["closeups"].iter_rows(named=True):
        bars = run.measured.tables["closeup_bars"].filter(pl.col("closeup") == row["closeup"])
        assert bars["count"].sum() == row["operations"]
        assert bars.height <= MOST_BARS
        assert row["device"] in bars["device"].to_list()
        assert row["begin_ns"] <= bars["begin_ns"].min() < bars["end_ns"].max() <= row["end_ns"]  # type: ignore[operator]
        assert set(bars["name"]) <= {
            *run.measured.tables["kernels"]["kernel"],
            *run.measured.tables["memory_operations"]["operation"],
        }


def test_all_work_of_a_device_in_an_iteration_is_there(run: Run) -> None:
    """The busy times of bars are those of the table of the iteration, as nothing overlaps in a lane of the demo."""
    row = run.measured.tables["closeups"].filter(pl.col("what") == "usual iteration").row(0, named=True)
    bars = run.measured.tables["closeup_bars"].filter(pl.col("closeup") == row["closeup"], pl.col("activity") == "kernels")
    begin, end = row["begin_ns"], row["end_ns"]

    chosen = window_choice(f"{begin}ns:{end}ns")
    useful = measure(run.measured.head["inputs"], EfficiencyOptions(window=chosen)).tables["devices"]
    for device, busy in bars.group_by("device").agg(pl.col("busy_ns").sum()).iter_rows():
        assert busy == useful.filter(pl.col("device") == device)["useful_ns"][0]


def test_many_short_kernels_are_few_bars_that_add_up(tmp_path: Path) -> None:
    report = ReportBuilder()
    for iteration in range(4):
        start = iteration * 1_000_000
        report.nvtx_range("step", start, start + 999_999)
        for number in range(3_000):
            at = start + 100 + 300 * number
            report.kernel(f"k{number % 7}", at, at + 200, launch=(at - 90, at - 50))
    result = measure([report.write(tmp_path / "many.sqlite")])

    row = result.tables["closeups"].filter(pl.col("iteration").is_not_null()).row(0, named=True)
    bars = result.tables["closeup_bars"].filter(pl.col("closeup") == row["closeup"])
    assert 100 < bars.height <= MOST_BARS < bars["count"].sum()
    assert bars["busy_ns"].sum() == 200 * 3_000
    assert f"{bars.height:,} bars" in run_of(result).read.one("figure", id=f"closeup-{row['closeup']}").text


def test_a_run_without_gpus_has_none_though_a_finding_has_a_place(tmp_path: Path) -> None:
    reports = []
    for rank in range(2):
        report = ReportBuilder(pid=1000 + rank, rank=rank, ranks=2, with_mpi=True)
        report.mpi_collective("MPI_Init", 0, 10).mpi_collective("MPI_Finalize", 9_990_000, 10_000_000)
        for step in range(10):
            end = 1_000_000 * step + 900_000
            report.mpi_collective("MPI_Barrier", end - (700_000 if rank else 10_000), end)
        reports.append(report.write(tmp_path / f"rank{rank}.sqlite"))
    result = measure(reports)

    assert result.tables["findings"]["worst_begin_ns"].count() > 0
    assert result.tables["closeups"].is_empty()


def test_findings_and_iterations_lead_to_their_close_ups(run: Run) -> None:
    figures = {one.attributes["id"] for one in run.read.all("figure") if one.attributes.get("id", "").startswith("closeup-")}
    links = [one.attributes["href"][1:] for one in run.read.all("a") if one.attributes["href"].startswith("#closeup-")]
    closeups = run.measured.tables["closeups"]

    assert figures == {f"closeup-{number}" for number in closeups["closeup"]}
    assert set(links) == figures
