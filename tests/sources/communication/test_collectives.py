"""Collectives that tie the clocks of ranks together, as one report has them."""

import struct
from pathlib import Path

import polars as pl
import pytest
from support.nccl_regions import COMMUNICATOR, INT, STATIC, UINT64, Nccl, payload_blob
from support.report_builder import ReportBuilder

from nsys2prv.exports.report import open_report
from nsys2prv.sources.communication.collectives import ALL, FROM_ROOT, TO_ROOT, read_collectives


def _read(report: ReportBuilder, folder: Path, kind: str, ranks: dict[int, int] | None = None) -> pl.DataFrame:
    return read_collectives(open_report(report.write(folder / "report.sqlite")), kind, ranks, folder / "calls")


def test_mpi_collectives_say_how_they_tie_the_ranks(tmp_path: Path) -> None:
    report = ReportBuilder().mpi_rank(1).communicator(rank=1, size=4)
    report.mpi_collective("MPI_Allreduce", 10, 20, size=800).mpi_collective("MPI_Bcast", 30, 40, size=0, root=0)
    report.mpi_collective("MPI_Reduce", 50, 60, size=8, root=1).mpi_collective("MPI_Allgatherv", 70, 80, size=16)
    # Without data.
    report.mpi_collective("MPI_Allreduce", 85, 86, size=0, received=0)
    report.mpi_collective("MPI_Allgatherv", 87, 88, size=0, received=16)
    # Started only, and of no rule.
    report.mpi_collective("MPI_Iallreduce", 90, 91, size=8).mpi_collective("MPI_Alltoallv", 91, 92, size=8, received=8)
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
    report.mpi_collective("MPI_Barrier", 10, 20).mpi_collective("MPI_Bcast", 30, 40, size=0, root=0)
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


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_nccl_collectives_have_what_the_payloads_of_their_calls_say(tmp_path: Path, binary: bool) -> None:
    report = ReportBuilder()
    report.gpu(0)
    nccl = Nccl(report, binary=binary)
    nccl.call("ncclCommInitRank", 10, 50, COMMUNICATOR, 4, 2, 0)
    nccl.call("ncclAllReduce", 100, 120, COMMUNICATOR, 4096, 0)
    report.kernel(ALL_REDUCE, 200, 210, launch=(105, 110))
    for start, root in ((300, 2), (400, 3)):
        nccl.call("ncclBroadcast", start, start + 20, COMMUNICATOR, 64, root)
        report.kernel("ncclDevKernel_Broadcast_RING_LL(x)", start + 30, start + 40, launch=(start + 5, start + 10))
    # Without a call, a broadcast is of no use.
    report.kernel("ncclDevKernel_Broadcast_RING_LL(x)", 600, 610)
    nccl.call("ncclSend", 700, 710, COMMUNICATOR, 8, 1)
    report.kernel("ncclDevKernel_SendRecv(x)", 720, 730, launch=(702, 704))

    found = _read(report, tmp_path, "nccl")

    assert found.select("start", "rule", "is_root", "size", "key").rows() == [
        (200, ALL, None, 4096, None),
        (330, FROM_ROOT, True, 64, None),
        (430, FROM_ROOT, False, 64, None),
    ]
    assert found["communicator"].null_count() == 0
    assert found["communicator"].n_unique() == 1


def _traced_by_nsys(rank: int, form: str, calls: int = 2) -> ReportBuilder:
    """A rank of two as nsys traces NCCL itself: an all-reduce in each of several groups, then an all-to-all."""
    report = ReportBuilder(host=f"node{rank}", pid=1000 + rank)
    report.gpu(0)
    schema = STATIC + 90
    fields = [
        *(("commHash", UINT64, 0), ("apiId", UINT64, 8), ("seqNumber", UINT64, 16), ("count", UINT64, 24)),
        *(("commRank", INT, 32), ("root", INT, 36)),
    ]
    if form == "binary":
        report.nvtx_schema(schema, fields, 40, domain="NCCL")

    def called(name: str, start: int, end: int, call: int, sequence: int) -> None:
        values = (COMMUNICATOR, call, sequence, 16, rank, 0)
        if form == "binary":
            blob = payload_blob(report.nvtx_domain("NCCL"), schema, struct.pack("<QQQQii", *values))
            report.nvtx_range(name, start, end, domain="NCCL", registered=True, binaryData=blob)
        else:
            payload = {field: value for (field, _, _), value in zip(fields, values, strict=True)} | {"dataType": "ncclFloat32"}
            if form == "texts":
                payload["commHash"] = f"0x{COMMUNICATOR:x}"
            if form == "sequence":
                del payload["apiId"]
            report.nvtx_range(name, start, end, domain="NCCL", registered=True, payload=payload)

    for place in range(calls):
        start = 1000 * (place + 1) + rank
        report.nvtx_range("API Group", start, start + 100, domain="NCCL", registered=True)
        called("AllReduce", start + 10, start + 20, 7000 + place, place)
        report.nvtx_range("GroupLaunch", start + 30, start + 90, domain="NCCL", registered=True)
        report.kernel(ALL_REDUCE, start + 200, start + 300, launch=(start + 40, start + 50))
    report.nvtx_range("API Group", 8000, 8100, domain="NCCL", registered=True)
    called("AlltoAll", 8010, 8020, 7777, 0)
    report.kernel("ncclDevKernel_SendRecv(x)", 8200, 8300, launch=(8040, 8050))
    return report


@pytest.mark.parametrize("form", ["json", "texts", "binary", "sequence"])
def test_collectives_that_nsys_traced_have_a_key_that_all_ranks_share(tmp_path: Path, form: str) -> None:
    first = _read(_traced_by_nsys(0, form), tmp_path, "nccl")
    # The last rank was recorded for longer.
    second = _read(_traced_by_nsys(1, form, calls=3), tmp_path, "nccl")

    assert first["rule"].to_list() == [ALL] * 3
    assert first["key"].n_unique() == 3
    assert first["key"].null_count() == 0
    common = first.join(second, on="key")
    assert common.select("start", "start_right").rows() == [(1200, 1201), (2200, 2201), (8200, 8200)]
    assert first["size"].to_list() == [None if form == "binary" else 64] * 3
    assert first["communicator"].to_list() == second["communicator"].to_list()[:3]


def test_calls_that_repeat_have_no_key(tmp_path: Path) -> None:
    report = _traced_by_nsys(0, "json")
    report.nvtx_range(
        "AllReduce", 9000, 9010, domain="NCCL", registered=True, payload={"commHash": COMMUNICATOR, "apiId": 7001}
    )
    report.kernel(ALL_REDUCE, 9100, 9200, launch=(9002, 9004))
    found = _read(report, tmp_path, "nccl")
    assert [key is None for key in found["key"]] == [False, True, False, True]
