"""Efficiency numbers of small runs with known answers, and what must hold for any run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.command_line import CommandLine
from support.failed_runs import sentence
from support.measured import NCCL, measured_tables, picked, row, written
from support.report_builder import ReportBuilder

from nsys2prv import NsysRun, open_run
from nsys2prv.efficiency import table_registry
from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure
from nsys2prv.efficiency.measured_run import CAUSES
from nsys2prv.efficiency.metrics import (
    DEVICE_TREE,
    EFFICIENCIES,
    HAS_MPI,
    HOST_TREE,
    TREES,
    EfficiencyTree,
    at_length,
    with_ideal_network,
)
from nsys2prv.efficiency.outputs.export import GENERATOR, as_talp
from nsys2prv.efficiency.results import EfficiencyResult
from nsys2prv.efficiency.what_if import what_if
from nsys2prv.efficiency.what_if_options import WhatIfOptions
from nsys2prv.errors import UsageError
from nsys2prv.run.options import TimeRange

TENSOR = "Tensor Active [Throughput %]"
PLACED = EfficiencyOptions(align="utc")


def rank0(**options: Any) -> ReportBuilder:
    report = ReportBuilder(rank=0, with_mpi=True, ranks=2, pid=1000, **options).gpu(0)
    report.api_call("cudaMalloc_v3020", 0, 10)
    report.kernel("k1(int)", 100, 300, launch=(10, 20))
    report.copy(250, 400, 4096, launch=(20, 30), stream=8)
    report.kernel(NCCL, 350, 500, launch=(30, 40), stream=8)
    report.kernel("k2(int)", 450, 600, launch=(40, 50), stream=9)
    report.api_call("cudaDeviceSynchronize_v3020", 50, 650)
    report.mpi_collective("MPI_Barrier", 700, 1000)
    report.nvtx_range("step", 0, 650).nvtx_range("step", 650, 1000).nvtx_range("other", 10, 20, domain="mine")
    for time, value in ((150, 10), (200, 30), (460, 50), (700, 90)):
        report.metric(TENSOR, time, value)
    return report


def rank1(**options: Any) -> ReportBuilder:
    report = ReportBuilder(rank=1, with_mpi=True, ranks=2, pid=1001, **options).gpu(1)
    report.api_call("cudaMalloc_v3020", 5, 10)
    report.kernel("k1(int)", 100, 500, launch=(10, 20))
    report.kernel(NCCL, 500, 700, launch=(30, 40))
    report.mpi_collective("MPI_Barrier", 950, 1000)
    return report.nvtx_range("step", 0, 700).nvtx_range("step", 700, 1000)


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("two_gpus")
    return [rank0().write(folder / "rank0.sqlite"), rank1().write(folder / "rank1.sqlite")]


@pytest.fixture(scope="module")
def read_once(two_gpus: list[Path]) -> Iterator[NsysRun]:
    """Their run."""
    with open_run(two_gpus, align="utc") as run:
        yield run


@pytest.fixture(scope="module")
def of_two_gpus(read_once: NsysRun) -> EfficiencyResult:
    """Their numbers."""
    return read_once.efficiency()


@pytest.fixture(scope="module")
def nccl_is_useful(read_once: NsysRun) -> EfficiencyResult:
    """The same where kernels of NCCL count as useful."""
    return read_once.efficiency(nccl="useful")


@pytest.fixture(scope="module")
def in_parts(read_once: NsysRun) -> EfficiencyResult:
    """Their numbers in regions, iterations and halves of the time."""
    return read_once.efficiency(regions=["step", "other@mine"], per_iteration="step", bins=2)


def measured(paths: Sequence[Path | str], read: EfficiencyOptions = PLACED, **options: Any) -> EfficiencyResult:
    return measure(list(paths), replace(read, **options))


def test_the_tree_of_the_devices(of_two_gpus: EfficiencyResult) -> None:
    run = of_two_gpus.tables["run"].row(0, named=True)

    assert (run["devices"], run["elapsed_ns"], run["useful_ns"], run["communication_ns"]) == (2, 1000, 750, 350)
    assert (run["max_useful_ns"], run["max_active_ns"]) == (400, 600)
    assert run["device_parallel_efficiency"] == pytest.approx(750 / 2000)
    assert run["load_balance"] == pytest.approx(750 / 800)
    assert run["communication_efficiency"] == pytest.approx(400 / 600)
    assert run["orchestration_efficiency"] == pytest.approx(600 / 1000)
    useful = row(of_two_gpus.tables["useful"], over="devices")
    assert (useful["total_ns"], useful["average_ns"], useful["maximum_ns"]) == (750, 375.0, 400)
    assert (useful["deviation_ns"], useful["avg_max"]) == (25.0, run["load_balance"])


def test_nccl_kernels_count_as_useful_when_they_shall(nccl_is_useful: EfficiencyResult) -> None:
    found = nccl_is_useful
    run = found.tables["run"].row(0, named=True)
    assert picked(found.tables["devices"], "nccl", "useful_ns", "communication_ns") == [("useful", 450, 50), ("useful", 600, 0)]
    assert (run["load_balance"], run["communication_efficiency"]) == (pytest.approx(1050 / 1200), 1.0)
    assert run["device_parallel_efficiency"] == pytest.approx(1050 / 2000)


def test_the_tree_of_the_hosts(of_two_gpus: EfficiencyResult) -> None:
    found = of_two_gpus
    run = found.tables["run"].row(0, named=True)
    assert picked(found.tables["threads"], "cuda_ns", "mpi_ns", "host_useful_ns") == [(650, 300, 50), (25, 50, 925)]
    assert run["host_parallel_efficiency"] == pytest.approx(975 / 2000)
    assert run["mpi_parallel_efficiency"] == pytest.approx(825 / 1000)
    assert run["mpi_load_balance"] == pytest.approx(825 / 950)
    assert run["mpi_communication_efficiency"] == pytest.approx(950 / 1000)
    assert run["device_offload_efficiency"] == pytest.approx(975 / 1650)


def test_without_mpi_its_rows_are_absent(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 10, 20, launch=(0, 5))
    tree = measured([report.write(tmp_path / "one.sqlite")]).tables["tree"]
    without = {name for name, one in EFFICIENCIES.items() if one.needs == (HAS_MPI,)} | {"host_computing_efficiency"}
    assert tree["metric"].to_list() == [name for name in EFFICIENCIES if name not in without]
    assert "mpi_load_balance" not in tree["metric"]


times = st.integers(0, 10**15)


NO_TIMES: dict[str, Any] = {
    **{column.name: 0 for tree in TREES for column in tree.columns_of_run},
    "ideal_network_ns": None, "mpi_parallel_efficiency": None,
}  # fmt: skip


def device_row(elapsed: int, useful: Sequence[int], communication: Sequence[int]) -> dict[str, Any]:
    """The row of a run whose devices have these U and C, ns."""
    active = [u + c for u, c in zip(useful, communication, strict=True)]
    times = {"devices": len(useful), "useful_ns": sum(useful), "max_useful_ns": max(useful), "max_active_ns": max(active)}
    return at_length({**NO_TIMES, **times}, elapsed)


def assert_products(tree: EfficiencyTree, row: Mapping[str, Any]) -> None:
    """Each efficiency with a meaning is the product of its factors."""
    for one in tree.efficiencies:
        for names in (tree.factors(one), one.product_of):
            factors = [row[name] for name in names]
            if factors and None not in factors:
                assert row[one.name] == pytest.approx(float(np.prod(factors)), rel=1e-12, abs=1e-300)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=8), st.integers(1, 10**16), st.integers(0, 10**17))
def test_the_product_of_the_factors_is_the_efficiency_of_the_devices(
    devices: list[tuple[int, int]], longer: int, replayed: int
) -> None:
    elapsed = longer + max(useful for useful, _ in devices)
    row = with_ideal_network(device_row(elapsed, *zip(*devices, strict=True)), replayed)
    of_run = [row[efficiency.name] for efficiency in DEVICE_TREE.efficiencies if efficiency.of_whole_run]
    assert all(value is None or 0 <= value <= 1 for value in of_run)
    assert_products(DEVICE_TREE, row)
    assert row["useful_ns"] == 0 or None not in (row[column.name] for column in DEVICE_TREE.columns_of_run)


@given(st.lists(st.tuples(st.integers(1, 5), times, times), min_size=1, max_size=8))
def test_the_product_of_the_factors_is_the_efficiency_of_the_hosts(processes: list[tuple[int, int, int]]) -> None:
    elapsed = 3 * max(gpu + mpi for _, gpu, mpi in processes) + 1
    # One thread of each process is in calls.
    threads, cuda, mpi = (sum(column) for column in zip(*processes, strict=True))
    in_mpi = [mpi for _, _, mpi in processes]
    measured_times = {
        "devices": 1, "processes": len(processes), "threads": threads, "cuda_ns": cuda, "mpi_ns": mpi,
        "host_useful_ns": -cuda - mpi, "mean_mpi_ns": float(np.mean(in_mpi)), "min_mpi_ns": min(in_mpi),
    }  # fmt: skip
    row = at_length({**NO_TIMES, **measured_times, "mpi_parallel_efficiency": 1.0}, elapsed)

    assert_products(HOST_TREE, row)
    assert None not in (row[column.name] for column in HOST_TREE.columns_of_run)


def test_threads_that_only_launch_do_not_raise_the_efficiency_of_mpi(tmp_path: Path) -> None:
    """Two processes that are in MPI for 400 and 200 of 1000 ns; each has a thread beside that launches."""
    reports = [ReportBuilder(rank=rank, ranks=2, with_mpi=True, pid=1000 + rank * 10).gpu(rank) for rank in range(2)]
    for rank, (report, in_mpi) in enumerate(zip(reports, (400, 200), strict=True)):
        report.api_call("cudaLaunchKernel_v7000", 0, 100)
        report.mpi_collective("MPI_Allreduce", 500, 500 + in_mpi)
        report.api_call("cudaLaunchKernel_v7000", 990, 1000, tid=1000 + rank * 10 + 1)
        report.kernel("k", 200, 300)
    run = measured_tables(written(tmp_path, *reports), ())["run"].row(0, named=True)

    assert (run["processes"], run["threads"], run["mpi_ns"]) == (2, 4, 600)
    assert (run["mean_mpi_ns"], run["min_mpi_ns"]) == (300, 200)
    assert run["mpi_parallel_efficiency"] == pytest.approx(0.7)
    assert run["mpi_load_balance"] == pytest.approx(0.7 / 0.8)
    assert run["mpi_communication_efficiency"] == pytest.approx(0.8)
    offload = (4000 - 600 - 220) / (4000 - 600)
    assert run["device_offload_efficiency"] == pytest.approx(offload)
    assert run["host_parallel_efficiency"] == pytest.approx(0.7 * offload)


def test_every_efficiency_but_the_roots_is_a_factor_of_a_known_one_and_says_what_it_loses() -> None:
    for tree in TREES:
        for place, one in enumerate(tree.efficiencies):
            is_factor = one.parent in [former.name for former in tree.efficiencies[:place]]
            assert bool(one.loss) == is_factor == (one.parent is not None)


def test_a_case_that_is_known_from_bsc() -> None:
    row = device_row(10_000, [4_400, 4_450, 4_430, 4_460], [540, 540, 540, 540])
    names = ("device_parallel_efficiency", "load_balance", "communication_efficiency", "orchestration_efficiency")
    assert [round(row[name], 2) for name in names] == [0.44, 0.99, 0.89, 0.5]


def test_a_gpu_that_is_idle_throughout_counts(two_gpus: list[Path]) -> None:
    found = measured_tables(two_gpus, ("devices",), time=TimeRange(650, 1000))
    run = found["run"].row(0, named=True)
    assert (run["devices"], run["useful_ns"], run["communication_ns"], run["elapsed_ns"]) == (2, 0, 50, 350)
    assert (run["device_parallel_efficiency"], run["load_balance"], run["communication_efficiency"]) == (0.0, None, 0.0)
    assert found["devices"]["idle_ns"].to_list() == [350, 300]


def test_a_gpu_that_several_processes_use_counts_once_with_the_union(tmp_path: Path) -> None:
    shared = [ReportBuilder(pid=1000).gpu(0), ReportBuilder(pid=1001).gpu(0)]
    shared[0].kernel("k", 0, 60)
    shared[1].kernel("k", 40, 100)
    found = measured_tables(written(tmp_path, *shared), ("devices", "tasks"))
    assert picked(found["devices"], "device", "useful_ns", "streams") == [("node01:D0", 100, 2)]
    assert found["tasks"]["useful_ns"].to_list() == [60, 60]
    assert found["run"]["device_parallel_efficiency"].item() == 1.0


def test_a_gpu_that_was_only_sampled_does_not_count_and_is_named(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0, cuda=0).gpu(1, cuda=1)
    report.kernel("k", 0, 10)
    report.metric("SMs Active [Throughput %]", 5, 7, gpu=1)
    found = measured([report.write(tmp_path / "one.sqlite")])
    assert found.tables["run"]["devices"].item() == 1
    assert any("node01:D1" in warning for warning in found.head["warnings"])


def test_a_graph_that_was_recorded_as_a_whole_is_useful_and_said_so(tmp_path: Path) -> None:
    report = ReportBuilder(schema="3.24.0").gpu(0)
    report.graph(0, 10, graph=7)
    found = measured([report.write(tmp_path / "one.sqlite")])
    assert found.tables["devices"]["useful_ns"].to_list() == [10]
    assert picked(found.tables["kernels"], "kind", "family", "count") == [("graph", "CUDA graph", 1)]
    assert any("CUDA graphs" in warning for warning in found.head["warnings"])


Kernel = tuple[int, int, int]
kernels = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60), st.sampled_from((7, 8))), min_size=1, max_size=12)
quick = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(kernels, st.integers(1, 7))
def test_bins_add_up_to_the_run_and_gaps_to_the_idle_time(tmp_path: Path, found: list[Kernel], bins: int) -> None:
    report = ReportBuilder().gpu(0)
    for begin, length, stream in found:
        report.kernel(NCCL if (begin + length) % 3 == 0 else "mine(int)", begin, begin + length, stream=stream)
    report.api_call("cudaFree_v3020", 0, 1)
    report.api_call("cudaFree_v3020", 600, 601)
    path = report.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite")
    tables = measured_tables([path], ("bins", "devices", "gaps"), bins=bins)
    device = tables["devices"].row(0, named=True)

    assert tables["bins"].height == bins
    for column in ("useful_ns", "communication_ns", "elapsed_ns", "cuda_ns"):
        assert tables["bins"][column].sum() == tables["run"][column].item(), column
    of_bins = tables["device_bins"].select(pl.col("kernels_ns", "nccl_ns", "memory_ns", "idle_ns").sum()).row(0)
    assert of_bins == (device["kernels_ns"], device["nccl_alone_ns"], device["memory_alone_ns"], device["idle_ns"])
    assert tables["gaps"]["total_ns"].sum() == device["idle_ns"]
    causes = [f"{cause}_ns" for cause in (*CAUSES, "host", "unknown")]
    assert (tables["gaps"].select(pl.sum_horizontal(causes)).to_series() == tables["gaps"]["total_ns"]).all()


def test_overlap_counts_kernels_at_once_and_keeps_tasks_that_never_have_so_many(of_two_gpus: EfficiencyResult) -> None:
    tables = of_two_gpus.tables
    assert picked(tables["overlap"], "kernels", "time_ns", "of_communication", "of_trace") == [
        (1, 100, pytest.approx(2 / 3), 0.1), (2, 50, pytest.approx(1 / 3), 0.05),
        (1, 200, 1.0, 0.2), (2, 0, 0.0, 0.0),
    ]  # fmt: skip
    summary = row(tables["overlap_summary"], kernels=2, base="trace")
    assert summary == {"kernels": 2, "base": "trace", "average": 0.025, "maximum": 0.05, "minimum": 0.0,
                       "deviation": 0.025, "avg_max": 0.5}  # fmt: skip


def test_gaps_tell_what_the_launching_thread_did(of_two_gpus: EfficiencyResult) -> None:
    gaps = of_two_gpus.tables["longest_gaps"]
    first = row(gaps, device="node01:D0", begin_ns=0)
    assert (first["end_ns"], first["before"], first["after"], first["thread"]) == (100, None, "k1(int)", "python3 tid 1000")
    assert [first[f"{cause}_ns"] for cause in (*CAUSES, "host", "unknown")] == [30, 50, 10, 10, 0, 0, 0, 0, 0]
    second = row(gaps, device="node01:D1", begin_ns=0)
    assert [second[f"{cause}_ns"] for cause in (*CAUSES, "host", "unknown")] == [20, 0, 0, 5, 0, 0, 0, 75, 0]
    last = row(gaps, device="node01:D0", begin_ns=600)
    assert (last["before"], last["after"], last["thread"], last["unknown_ns"]) == ("k2(int)", None, "python3 tid 1000", 0)


def test_regions_and_iterations(in_parts: EfficiencyResult) -> None:
    tables = in_parts.tables

    assert picked(tables["regions"], "region", "domain", "count", "tasks", "total_ns", "max_ns") == [
        ("step", "default", 4, 2, 2000, 700), ("other", "mine", 1, 1, 10, 10),
    ]  # fmt: skip
    assert row(tables["regions"], region="step")["device_parallel_efficiency"] == pytest.approx(0.375)
    assert picked(tables["iterations"], "iteration", "begin_ns", "end_ns", "shortest_ns", "longest_ns", "useful_ns") == [
        (0, 0, 700, 650, 700, 750), (1, 650, 1000, 300, 350, 0),
    ]  # fmt: skip
    first = row(tables["iterations"], iteration=0)
    assert (first["elapsed_ns"], first["orchestration_efficiency"]) == (700, pytest.approx(600 / 700))
    # E of the hosts is the mean of their windows: 650 and 700.
    assert (first["host_useful_ns"], first["cuda_ns"], first["mpi_ns"]) == (1350 - 675, 675, 0)


def test_ranges_inside_each_other_count_their_time_once(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 0, 100)
    report.nvtx_range("f", 10, 50).nvtx_range("f", 20, 40)
    found = row(measured_tables([report.write(tmp_path / "one.sqlite")], ("regions",), regions=("f",))["regions"], region="f")
    assert (found["count"], found["total_ns"], found["elapsed_ns"], found["useful_ns"]) == (2, 60, 40, 40)


def test_metrics_of_a_gpu_without_kernels_are_sampled(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0).metric(TENSOR, 50, 7)
    report.copy(0, 100, 1024)
    tables = measured_tables([report.write(tmp_path / "copies.sqlite")], ("sampled_kernels",))
    assert tables["sampled_kernels"].is_empty()
    assert tables["sampled_bins"]["samples"].sum() == 1


@pytest.mark.parametrize("idle", [4, 6])
def test_samples_that_call_a_gpu_idle_inside_of_its_kernels_are_left_out(tmp_path: Path, idle: int) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("k", 0, 2_000_000)
    for sample in range(10):
        report.metric("GR Active [Throughput %]", 100_000 * sample + 1, 0 if sample < idle else 100)
    result = measure([report.write(tmp_path / "idle.sqlite")])
    assert result.tables["sampled_bins"].is_empty() == (idle == 6)
    assert ("60.0 % of samples inside of kernels" in str(result.head["warnings"])) == (idle == 6)


def test_sampled_metrics_of_kernels_are_means_of_the_samples_inside(in_parts: EfficiencyResult) -> None:
    tables = in_parts.tables
    found = tables["sampled_kernels"].filter(pl.col("level") == "kernel")
    assert picked(found, "name", "samples", "mean", "time_ns") == [
        ("k1(int)", 2, 20.0, 200), ("k2(int)", 1, 50.0, 150), (NCCL, 1, 50.0, 150),
    ]  # fmt: skip
    assert picked(tables["sampled_bins"], "bin", "samples", "mean", "maximum") == [(0, 3, 30.0, 50.0), (1, 1, 90.0, 90.0)]


def test_means_of_families_weigh_kernels_with_their_time(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    report.kernel("volta_sgemm_128x64_nn", 0, 300)
    report.kernel("volta_sgemm_128x64_nn_2", 300, 400)
    for time, value in ((100, 10), (350, 90)):
        report.metric(TENSOR, time, value)
    summary = measured_tables([report.write(tmp_path / "one.sqlite")], ("sampled_summary",))["sampled_summary"]
    assert row(summary, level="family")["weighted"] == pytest.approx((10 * 300 + 90 * 100) / 400)


def test_two_modes_of_one_kernel_are_seen(tmp_path: Path) -> None:
    report = ReportBuilder().gpu(0)
    for index in range(60):
        length = 1000 + index if index % 3 else 4000 + index
        report.kernel("bimodal", 10_000 * index, 10_000 * index + length)
        report.kernel("steady", 10_000 * index + 5000, 10_000 * index + 6000 + index)
    tables = measured_tables([report.write(tmp_path / "one.sqlite")], ("kernels",))

    assert picked(tables["kernels"], "kernel", "modes") == [("bimodal", 2), ("steady", 1)]
    assert picked(tables["kernel_modes"], "kernel", "mode", "count") == [("bimodal", 0, 40), ("bimodal", 1, 20)]
    bars = tables["kernel_histograms"].filter(pl.col("kernel") == "bimodal")
    assert (bars["count"].sum(), bars["total_ns"].sum()) == (60, row(tables["kernels"], kernel="bimodal")["total_ns"])


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=40))
@example(list(range(40)))
@quick
def test_durations_have_the_quantiles_of_numpy(tmp_path: Path, lengths: list[int]) -> None:
    report = ReportBuilder().gpu(0)
    for index, length in enumerate(lengths):
        report.kernel("k", 10_000 * index, 10_000 * index + length)
    path = report.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite")
    found = measured_tables([path], ("kernels",))["kernels"].row(0, named=True)

    values = np.array(lengths)
    assert (found["count"], found["total_ns"], found["min_ns"], found["max_ns"]) == (
        len(values), values.sum(), values.min(), values.max(),
    )  # fmt: skip
    assert found["median_ns"] == np.quantile(values, 0.5, method="inverted_cdf")
    assert found["p95_ns"] == np.quantile(values, 0.95, method="inverted_cdf")
    assert found["deviation_ns"] == pytest.approx(values.std(), abs=1e-3)


def test_kernels_copies_and_calls(of_two_gpus: EfficiencyResult) -> None:
    tables = of_two_gpus.tables

    slower = row(tables["kernels"], kernel="k1(int)")
    assert (slower["slowest_device"], slower["avg_max"]) == ("node01:D1", pytest.approx(300 / 400))
    assert picked(tables["memory_operations"], "operation", "source", "destination", "from_bytes", "bytes", "total_ns") == [
        ("CUDA memcpy Host-to-Device", "Pinned", "Device", 1024, 4096, 150)
    ]
    assert row(tables["cuda_calls"], call="cudaLaunchKernel")["count"] == 5
    assert picked(tables["mpi_calls"], "call", "count", "total_ns", "tasks", "maximum_task_ns") == [
        ("MPI_Barrier", 2, 350, 2, 300)
    ]


def test_streams_on_several_rows_of_a_trace_are_one_stream(tmp_path: Path) -> None:
    report = ReportBuilder(pid=1000).gpu(0)
    report.kernel("first(int)", 100, 300, launch=(10, 20))
    report.copy(150, 310, 4096, launch=(20, 30))
    report.copy(200, 450, 4096, launch=(20, 30))
    report.kernel("second(int)", 320, 400, launch=(30, 40))
    # From the end of the second kernel it waited 50 ns for the copy, which ended last on its stream.
    report.kernel("third(int)", 460, 500, launch=(40, 50))
    report.kernel("fourth(int)", 480, 700, launch=(50, 60), context=2)
    report.kernel("fifth(int)", 720, 800, launch=(60, 70))
    report.kernel("sixth(int)", 820, 900, launch=(70, 80), context=2)
    report.api_call("cudaDeviceSynchronize_v3020", 90, 1000)
    path = report.write(tmp_path / "one.sqlite")
    tables = measured_tables([path], ("devices", "absent_time"))

    assert tables["devices"]["streams"].item() == open_run(path).ranks["streams"].item() == 1
    assert tables["absent_time"]["copy_ns"].item() == 10 + 50


def test_json_has_every_key_table_and_column_of_the_schema(of_two_gpus: EfficiencyResult) -> None:
    content = json.loads(json.dumps(of_two_gpus.as_json(), allow_nan=False))

    assert list(content) == [key for key, _, _ in table_registry.HEAD]
    assert (content["format"], content["version"]) == (table_registry.FORMAT, table_registry.VERSION)
    names = [table.name for table in table_registry.TABLES]
    assert names[:7] == ["run", "tree", "findings", "finding_checks", "finding_devices", "finding_numbers", "nodes"]
    assert names == list(content["tables"])
    for table in table_registry.TABLES:
        columns = content["tables"][table.name]
        assert list(columns) == list(table.schema)
        assert len({len(values) for values in columns.values()}) == 1
        assert pl.DataFrame(columns, schema=table.schema).height == len(columns[table.columns[0].name])


def test_the_command_writes_json_csv_talp_and_a_page(two_gpus: list[Path], command_line: CommandLine) -> None:
    folder = command_line.folder
    (folder / "page.html").write_bytes(b"<html>" + GENERATOR + b'0.0.1">')
    done = command_line.run(
        "efficiency", *two_gpus, "--align", "utc", "--json-file", "out.json", "--csv", "tables", "--talp", "talp.json",
        "-o", "page.html", "--regions", "step",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "Device Parallel Efficiency" in done.stdout
    assert "37.5 %" in done.stdout
    assert '<section id="efficiencies">' in (folder / "page.html").read_text(encoding="utf-8")
    assert json.loads((folder / "out.json").read_text())["tables"]["run"]["useful_ns"] == [750]
    assert pl.read_csv(folder / "tables" / "devices.csv")["useful_ns"].to_list() == [350, 400]
    talp = json.loads((folder / "talp.json").read_text())
    assert sorted(talp["Application"]) == ["Global", "step"]
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--json-file", ""], 5),
        (["--talp", "."], 5),
        (["--json-file", "no/such/folder.json"], 5),
        (["--csv", "former.csv"], 5),
        # There is no such report either, but nobody looks for it.
        (["none.sqlite", "-o", "not/there/page.html"], 5),
        (["-o", "."], 5),
        (["--json-file", "same.json", "--talp", "./same.json"], 5),
        (["--scratch", "no-such-folder"], 5),
        (["--ranks", "9"], 7),
        (["--time", "5s:"], 7),
        (["--kernel-families", "nothing.csv"], 2),
    ],
)
def test_what_makes_no_sense_is_told_in_one_sentence_and_leaves_nothing(
    two_gpus: list[Path], command_line: CommandLine, options: list[str], code: int
) -> None:
    former = command_line.folder / "former.csv"
    former.write_text("kept")
    before = sorted(command_line.folder.iterdir())
    done = command_line.run("efficiency", *two_gpus, "--csv", "tables", *options)
    sentence(done, code)
    assert sorted(command_line.folder.iterdir()) == before


def test_a_table_that_is_empty_now_does_not_stay_from_a_former_run(
    in_parts: EfficiencyResult, of_two_gpus: EfficiencyResult, tmp_path: Path
) -> None:
    in_parts.to_csv(tmp_path)
    assert (tmp_path / "regions.csv").exists()
    of_two_gpus.to_csv(tmp_path)
    assert not (tmp_path / "regions.csv").exists()


def test_the_talp_file_has_the_numbers_of_the_trees(nccl_is_useful: EfficiencyResult) -> None:
    talp = as_talp(nccl_is_useful.head, nccl_is_useful.tables)
    whole = talp["Application"]["Global"]

    assert talp["resources"] == {"numCpus": 2, "numNodes": 1, "numMpiRanks": 2, "numGpus": 2}
    assert talp["timestamp"] == "2023-11-14T22:13:20"
    assert (whole["elapsedTime"], whole["usefulTime"], whole["mpiTime"], whole["gpuRuntimeTime"]) == (1000, 975, 350, 675)
    assert (whole["gpuUsefulTime"], whole["gpuCommunicationTime"], whole["maxGpuUsefulTime"], whole["maxGpuActiveTime"]) == (
        1050, 50, 600, 600,
    )  # fmt: skip
    # TALP's own formulas.
    assert whole["parallelEfficiency"] == pytest.approx(975 / (975 + 350 + 675))
    assert whole["mpiLoadBalanceIn"] * whole["mpiLoadBalanceOut"] == pytest.approx(whole["mpiLoadBalance"])
    assert whole["gpuParallelEfficiency"] == pytest.approx(float(Fraction(1050, 2000)))
    assert (whole["numMpiCalls"], whole["numGpuRuntimeCalls"]) == (2, 9)


@pytest.mark.parametrize("name", ["OUT.prv", "OUT.prv.gz"])
def test_a_trace_is_not_measured_but_its_reports(two_gpus: list[Path], name: str) -> None:
    for measuring in (measured, partial(what_if, options=WhatIfOptions(ideal_network=True)), compare):
        with pytest.raises(UsageError, match=f"{name}: this is a trace; give the reports that it was made from"):
            measuring([two_gpus[0], name])
