"""Page faults of unified memory, on the GPU and on the host. Migrations are copies: see `memory`."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.identity import pid_of
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import DEVICE_ROW, UNNAMED, RowKind, TableSource, device_row, enumerated
from nsys2prv.vocabulary import event_types


def _gpu_faults(report: Report) -> pl.LazyFrame:
    return GPU_FAULTS.scan(report).select(
        *RowKind.DEVICE.key,
        device_row(),
        "start",
        "end",
        pl.col("numberOfPageFaults").alias(str(event_types.GPU_PAGE_FAULT_COUNT)),
        pl.col("address").alias(str(event_types.VIRTUAL_ADDRESS)),
        type=pl.lit(event_types.GPU_PAGE_FAULT, pl.Int64),
        label=enumerated(report, "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE", event_types.FAULT_ACCESSES, "faultAccessType"),
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
        (pl.col("globalPid") | pid_of(pl.col("globalPid"))).alias("globalTid"),
        "start",
        end="start",
        type=pl.lit(event_types.CPU_PAGE_FAULT, pl.Int64),
        label=pl.col("CpuInstruction text").fill_null(UNNAMED),
        **{
            str(event_types.FAULT_MODULE): pl.col("module text"),
            str(event_types.FAULT_FILE): pl.col("SourceFile text"),
            str(event_types.FAULT_LINE): pl.col("SourceLine"),
            str(event_types.VIRTUAL_ADDRESS): pl.col("address"),
        },
    )


_TEXTS = ("CpuInstruction", "module", "SourceFile")

GPU_FAULTS = TableSource(
    name="page-faults",
    title="GPU page faults of unified memory",
    table="CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    required=("start", "end", "globalPid", "deviceId"),
    optional=("address", "numberOfPageFaults", "faultAccessType"),
    row=RowKind.DEVICE,
    types=(event_types.GPU_PAGE_FAULT, event_types.GPU_PAGE_FAULT_COUNT, event_types.VIRTUAL_ADDRESS),
    frame=_gpu_faults,
    in_order=lambda: Lanes(DEVICE_ROW),
)

CPU_FAULTS = TableSource(
    name="page-faults",
    title="CPU page faults of unified memory",
    table="CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    required=("start", "globalPid"),
    optional=("address", *_TEXTS, "SourceLine"),
    row=RowKind.THREAD,
    types=(
        event_types.CPU_PAGE_FAULT,
        event_types.FAULT_MODULE,
        event_types.FAULT_FILE,
        event_types.FAULT_LINE,
        event_types.VIRTUAL_ADDRESS,
    ),
    frame=_cpu_faults,
    times=("start", "start"),
    assumption=(
        "The table names the process and no thread: faults stand on the main thread, which has the number of its process. "
        "`CpuInstruction` and `module` are texts: the function, or the address, and the library where the fault happened."
    ),
)
