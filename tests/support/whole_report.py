"""A small report with rows in every table that is known, which tests damage, or fill with hostile texts."""

import polars as pl

from support.nsys_columns import COLUMNS
from support.report_builder import ReportBuilder, Value


def whole_report(*, host: str = "node01", rank: int = 0, ranks: int = 2) -> ReportBuilder:
    """A report with rows in every table that is known."""
    report = ReportBuilder(host=host, pid=1000 + rank, rank=rank, ranks=ranks, with_mpi=True, monotonic_ns=5_000_000)
    report.gpu().cuda_device(0, 0).context()
    report.diagnostic("events were lost")
    for index in range(3):
        at = 1000 * index
        report.nvtx_range("step", at, at + 900, payload={"batch": index})
        report.nvtx_range("layer", at + 10, at + 400, domain="model", registered=True, uint64Value=index, category=1)
        report.kernel("gemm", at + 100, at + 200, launch=(at + 20, at + 40))
        report.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 210, at + 300, launch=(at + 50, at + 60), stream=9)
        report.nvtx_range("ncclAllReduce", at + 45, at + 65, domain="NCCL")
        report.copy(at + 310, at + 350, 4096, launch=(at + 70, at + 80))
        report.memset(at + 360, at + 380, 64, launch=(at + 90, at + 95))
        report.graph(at + 400, at + 500, launch=(at + 96, at + 99))
        call = report.api_call("cudaStreamSynchronize", at + 410, at + 600)
        report.synchronization(at + 410, at + 590, correlation=call)
        report.event_record(index + 1, time=at + 420)
        report.memory_use(at + 430, 1 << 20)
        report.gpu_page_fault(at + 510, at + 520, 3)
        report.mpi_p2p("MPI_Send", at + 610, at + 640, partner=1, size=128, tag=index)
        report.mpi_p2p("MPI_Irecv", at + 641, at + 645, partner=1, size=128, tag=index, request=index + 1)
        report.mpi_wait("MPI_Wait", at + 646, at + 660, requests=(index + 1,))
        report.mpi_collective("MPI_Allreduce", at + 670, at + 700, size=64, received=64)
        report.mpi_other("MPI_Barrier", at + 701, at + 710)
        report.os_call("read", at + 720, at + 740, chain=1)
        report.on_cpu(at, at + 500, cpu=index % 2)
        report.cpu_sample(at + 50, [("work", "program"), ("main", "program")])
        report.metric("SMs Active [Throughput %]", at + 100, 50 + index)
        report.plugin_event("storage", "read", at + 750, {"bytes": 4096, "path": "/data"})
    report.nvtx_mark("epoch", 1500)
    report.nvtx_start_end("phase", 100, 2500)
    report.nvtx_category(1, "compute", domain="model")
    report.nvtx_thread_name("main thread")
    report.network_metric(report.nic("mlx5_0"), "sent", 0, 1000, 5)
    there = report.tables()
    for table, columns in COLUMNS.items():
        if table not in there:
            for index in range(2):
                report.row(table, **{name: _usual(report, name, dtype, index) for name, dtype in columns.items()})
    return report


def _usual(report: ReportBuilder, column: str, dtype: type[pl.DataType], index: int) -> Value:
    """A value that a column could have, by its name."""
    known: dict[str, Value] = {
        **dict.fromkeys(("start", "timestamp", "rawTimestamp", "startedAt", "openedAt"), 1000 * index + 100),
        **dict.fromkeys(("end", "endedAt", "closedAt"), 1000 * index + 700),
        **dict.fromkeys(("globalTid", "threadId"), report.global_tid()),
        **dict.fromkeys(("globalPid", "processId"), report.global_pid()),
        **dict.fromkeys(("nameId", "textId", "symbol", "module"), report.string("name")),
        **dict.fromkeys(("deviceId", "gpuId", "hwId", "vmId", "isSchedIn"), 0),
        "contextId": 1,
        "streamId": 7,
        "name": f"name{index}",
    }
    return known.get(column, index + 1 if dtype == pl.Int64 else index + 0.5 if dtype == pl.Float64 else f"text {index}")
