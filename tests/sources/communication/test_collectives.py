"""Collectives that tie the clocks of ranks together, as one report has them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from support.report_builder import ReportBuilder

from nsys2prv.exports.report import open_report
from nsys2prv.sources.communication.collectives import ALL, FROM_ROOT, TO_ROOT, read_collectives


def _read(report: ReportBuilder, folder: Path, kind: str, ranks: dict[int, int] | None = None) -> pl.DataFrame:
    return read_collectives(open_report(report.write(folder / "report.sqlite")), kind, ranks)


def test_mpi_collectives_say_how_they_tie_the_ranks(tmp_path: Path) -> None:
    report = ReportBuilder().mpi_rank(1).communicator(rank=1, size=4)
    report.mpi_collective("MPI_Allreduce", 10, 20, size=800)
    report.mpi_collective("MPI_Bcast", 30, 40, size=0, root=0)
    report.mpi_collective("MPI_Reduce", 50, 60, size=8, root=1)
    report.mpi_collective("MPI_Allgatherv", 70, 80, size=16)
    # Started only, and of no rule.
    report.mpi_collective("MPI_Iallreduce", 90, 91, size=8)
    report.mpi_collective("MPI_Scan", 92, 93, size=8)

    found = _read(report, tmp_path, "mpi", {report.global_pid(): 1})

    assert found.select("start", "end", "rule", "is_root", "size").rows() == [
        (10, 20, ALL, None, 800),
        (30, 40, FROM_ROOT, False, None),
        (50, 60, TO_ROOT, True, 8),
        (70, 80, ALL, None, None),
    ]
    assert found["sequence"].n_unique() == 1


def test_without_ranks_collectives_with_a_root_are_left_out(tmp_path: Path) -> None:
    report = ReportBuilder().communicator(rank=1, size=4)
    report.mpi_collective("MPI_Barrier", 10, 20)
    report.mpi_collective("MPI_Bcast", 30, 40, size=0, root=0)

    assert _read(report, tmp_path, "mpi")["rule"].to_list() == [ALL]


def test_nccl_collectives_have_the_algorithm_of_their_kernel(tmp_path: Path) -> None:
    report = ReportBuilder()
    report.kernel("ncclKernel_AllReduce_TREE_LL_Sum_float(ncclDevComm*)", 10, 20, stream=7)
    report.kernel("ncclAllGatherRingLLKernel_copy_i8(ncclColl)", 30, 40, stream=7)
    report.kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 50, 60, stream=7)
    # A group of broadcasts, and a broadcast without a root.
    report.kernel("ncclDevKernel_AllGatherV_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 70, 80, stream=7)
    report.kernel("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 90, 95, stream=7)

    found = _read(report, tmp_path, "nccl")

    assert found.select("start", "end", "rule", "algorithm").rows() == [
        (10, 20, ALL, "tree"),
        (30, 40, ALL, "ring"),
        (50, 60, ALL, "ring"),
    ]
