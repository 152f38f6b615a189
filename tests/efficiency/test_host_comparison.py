"""`compare` of runs without a GPU, and of one with a GPU and one without: what is compared, and what can't be."""

from pathlib import Path

import polars as pl
import pytest
from support.measured import MS, written
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.comparison import compare
from nsys2prv.efficiency.efficiency_options import CompareOptions
from nsys2prv.efficiency.outputs.page import comparison_page
from nsys2prv.efficiency.results import ComparisonResult
from nsys2prv.vocabulary.wording import time


def of_mpi(folder: Path, *work: int, length: int = 10) -> Path:
    """Ranks that compute for so many ms, and reduce until the end."""
    reports = []
    for rank, own in enumerate(work):
        report = ReportBuilder(rank=rank, ranks=len(work), pid=1000 + rank).communicator(rank=rank, size=len(work))
        report.nvtx_range("work", 0, own * MS).mpi_collective("MPI_Allreduce", own * MS, length * MS, size=8)
        reports.append(report.os_call("read", 1 * MS, 2 * MS).os_call("poll", 2 * MS, length * MS // 2))
    return written(folder, *reports)[0].parent


def of_hosts(path: Path, reads: int) -> Path:
    """A process that reads for so many of 10 ms."""
    report = ReportBuilder().nvtx_range("work", 0, 10 * MS).os_call("read", 1 * MS, (1 + reads) * MS)
    return report.write(path)


def with_gpu(path: Path) -> Path:
    """A kernel of 3 ms in 5 ms, for which the host waits 1 ms."""
    report = ReportBuilder(rank=0, ranks=1, pid=1000).gpu(0)
    report.kernel("gemm", 1 * MS, 4 * MS, launch=(0, MS // 2))
    report.api_call("cudaDeviceSynchronize_v3020", 3 * MS, 4 * MS)
    report.nvtx_range("all", 0, 5 * MS)
    return report.write(path)


def compared(*runs: Path, **options: object) -> ComparisonResult:
    return compare(list(runs), CompareOptions(align="utc", **options))  # type: ignore[arg-type]


def values(table: pl.DataFrame, key: str, value: str, run: str) -> dict[str, float]:
    return dict(table.filter(pl.col("run") == run).select(key, value).iter_rows())


@pytest.fixture(scope="module")
def compared_mpi(tmp_path_factory: pytest.TempPathFactory) -> ComparisonResult:
    """Two ranks, and four with the same work in all: M is 4, 2 of 10 ms, and 5, 5, 5, 1 of 8 ms."""
    folder = tmp_path_factory.mktemp("mpi")
    runs = of_mpi(folder / "two", 6, 8), of_mpi(folder / "four", 3, 3, 3, 7, length=8)
    return compared(*runs, fail_if=("mpi_load_balance < 0.9*A", "host_parallel_efficiency < 0.1", "useful_ns < A"))


def test_runs_with_mpi_alone_are_compared_by_their_processes(compared_mpi: ComparisonResult) -> None:
    first, second = compared_mpi.tables["runs"].rows(named=True)
    sizes = [(run["per"], run["size"], run["processes"], run["devices"]) for run in (first, second)]
    assert sizes == [("process", 2, 2, 0), ("process", 4, 4, 0)]
    # 14 and 16 ms outside of MPI, of 10 and 8 ms.
    assert (second["scaling"], second["speedup"]) == ("strong", pytest.approx(10 / 8))
    assert second["useful_scalability"] == pytest.approx(14 / 16)
    assert second["scaling_efficiency"] == pytest.approx(10 / 8 / 2)
    assert second["global_efficiency"] == pytest.approx(16 / 32 * 14 / 16)
    metrics = compared_mpi.tables["metrics"]
    assert values(metrics, "metric", "value", "B")["mpi_load_balance"] == pytest.approx(4 / 7)
    assert set(metrics["tree"]) == {"host"}
    assert compared_mpi.head["not_compared"] is None


def test_their_wall_time_and_calls_are_compared(compared_mpi: ComparisonResult) -> None:
    wall = compared_mpi.tables["wall_time"].filter(pl.col("run") == "B").select("title", "value_ns", "difference_ns").rows()
    assert wall == [("computing", 4 * MS, -3 * MS), ("MPI calls", 4 * MS, 1 * MS)]
    changes = compared_mpi.tables["changes"].select("what", "name", "before_ns", "after_ns").rows()
    # Polling goes on inside of MPI and in its helper threads.
    assert changes == [("MPI call", "MPI_Allreduce", 3 * MS, 4 * MS)]


def test_the_gate_works_on_numbers_of_hosts_and_not_on_those_of_gpus(compared_mpi: ComparisonResult) -> None:
    gate = compared_mpi.gate
    assert gate["result"].to_list() == ["fails", "passes", "not decidable"]
    assert gate["value"].to_list() == [pytest.approx(4 / 7), pytest.approx(0.5), None]
    assert gate["reason"][2] == "B has no useful_ns (no work of a GPU was recorded)"
    assert "strong scaling efficiency (speedup / processes)" in (text := compared_mpi.as_text())
    assert "changed most: computing, −3.000 ms (mean over host threads)" in text


def test_hosts_without_mpi_are_compared_by_wall_time_and_calls_of_the_os(tmp_path: Path) -> None:
    result = compared(of_hosts(tmp_path / "slow.sqlite", 6), of_hosts(tmp_path / "fast.sqlite", 2))
    shares = values(result.tables["wall_time"], "title", "share", "B")
    assert shares == pytest.approx({"computing, or off the CPU": 0.8, "OS calls": 0.2})
    assert result.tables["changes"].select("what", "name", "difference_ns").rows() == [("OS call", "read", -4 * MS)]
    # Time in no call is not known to be work.
    assert result.tables["runs"]["scalability"].to_list() == [None, None]


def test_a_run_with_a_gpu_and_one_without_say_what_can_not_be_compared(tmp_path: Path) -> None:
    result = compared(of_mpi(tmp_path / "hosts", 6, 8), with_gpu(tmp_path / "gpu.sqlite"))

    said = (
        "B uses GPUs and A uses none: efficiencies of GPUs, kernels, copies, idle GPUs and useful time can't be compared; what "
        "is compared is of hosts: wall time, and calls of CUDA, MPI and the OS"
    )
    assert result.head["not_compared"] == said
    for text in (result.as_text(), result.as_markdown(), comparison_page(result.head, result.tables).replace("&#39;", "'")):
        assert text.count(said) == 1
    assert result.tables["matched"].is_empty()
    assert result.tables["runs"]["scaling_efficiency"].to_list() == [None, None]
    assert result.tables["runs"]["speedup"].to_list() == [1.0, 2.0]
    of_gpu = values(result.tables["wall_time"], "title", "value_ns", "B")
    # The launch, and the wait for the device.
    assert of_gpu["CUDA calls"] == 1.5 * MS
    assert set(result.tables["changes"]["what"]) == {"CUDA call", "MPI call", "OS call"}


def test_text_and_markdown_have_the_wall_time_by_cause_of_the_page(compared_mpi: ComparisonResult) -> None:
    page = comparison_page(compared_mpi.head, compared_mpi.tables)
    title = "of the measured window, mean over host threads"
    lines = [line for line in compared_mpi.as_text().splitlines() if line.startswith("  MPI calls")]
    assert [" ".join(line.split()) for line in lines] == ["MPI calls 3.000 ms 30.0 % 4.000 ms 50.0 % +1.000 ms"]
    assert "| MPI calls | 3.000 ms  30.0 % | 4.000 ms  50.0 % | +1.000 ms |" in compared_mpi.as_markdown()
    for row in compared_mpi.tables["wall_time"].iter_rows(named=True):
        assert f"{row['run']}: {row['title']} {time(row['value_ns'])}" in page
    for text in (compared_mpi.as_text(), compared_mpi.as_markdown(), page):
        assert title in text
