"""Page faults of unified memory, on the GPU and on the host. Migrations are copies: see `memory`."""

from __future__ import annotations

import polars as pl

from nsys2prv import events
from nsys2prv.reports import Report
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import DEVICE_ROW, UNNAMED, RowKind, Source, device_row, enumerated


def _gpu_faults(report: Report) -> pl.LazyFrame:
    return GPU_FAULTS.scan(report).select(
        *RowKind.DEVICE.key,
        device_row(),
        "start",
        "end",
        pl.col("numberOfPageFaults").alias(str(events.GPU_PAGE_FAULT_COUNT)),
        pl.col("address").alias(str(events.VIRTUAL_ADDRESS)),
        type=pl.lit(events.GPU_PAGE_FAULT, pl.Int64),
        label=enumerated(report, "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE", events.FAULT_ACCESSES, "faultAccessType"),
    )


def _cpu_faults(report: Report) -> pl.LazyFrame:
    faults = CPU_FAULTS.scan(report)
    strings = report.strings.lazy()
    for column in _TEXTS:
        faults = faults.join(
            strings.rename({"value": f"{column} text"}), left_on=column, right_on="id", how="left", maintain_order="left"
        )
    return faults.select(
        # The table names the process only.
        (pl.col("globalPid") | (pl.col("globalPid") // 2**24 & 0xFFFFFF)).alias("globalTid"),
        "start",
        end="start",
        type=pl.lit(events.CPU_PAGE_FAULT, pl.Int64),
        label=pl.col("CpuInstruction text").fill_null(UNNAMED),
        **{
            str(events.FAULT_MODULE): pl.col("module text"),
            str(events.FAULT_FILE): pl.col("SourceFile text"),
            str(events.FAULT_LINE): pl.col("SourceLine"),
            str(events.VIRTUAL_ADDRESS): pl.col("address"),
        },
    )


_TEXTS = ("CpuInstruction", "module", "SourceFile")

GPU_FAULTS = Source(
    name="page-faults",
    title="GPU page faults of unified memory",
    table="CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    required=("start", "end", "globalPid", "deviceId"),
    optional=("address", "numberOfPageFaults", "faultAccessType"),
    row=RowKind.DEVICE,
    types=(events.GPU_PAGE_FAULT, events.GPU_PAGE_FAULT_COUNT, events.VIRTUAL_ADDRESS),
    frame=_gpu_faults,
    in_order=lambda: Lanes(DEVICE_ROW),
)

CPU_FAULTS = Source(
    name="page-faults",
    title="CPU page faults of unified memory",
    table="CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    required=("start", "globalPid"),
    optional=("address", *_TEXTS, "SourceLine"),
    row=RowKind.THREAD,
    types=(events.CPU_PAGE_FAULT, events.FAULT_MODULE, events.FAULT_FILE, events.FAULT_LINE, events.VIRTUAL_ADDRESS),
    frame=_cpu_faults,
    times=("start", "start"),
    assumption=(
        "The table names the process and no thread: faults stand on the main thread, which has the number of its process. "
        "`CpuInstruction` and `module` are texts: the function, or the address, and the library where the fault happened."
    ),
)
