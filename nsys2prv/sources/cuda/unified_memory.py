"""Page faults of unified memory, on the GPU and on the host. Migrations are copies: see `memory_operations`."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import pid_of
from nsys2prv.sources.cuda.memory_operations import VIRTUAL_ADDRESS
from nsys2prv.sources.lanes import Lanes
from nsys2prv.sources.source import DEVICE_ROW, UNNAMED, RowKind, Source, attributes, device_row, enumerated, with_text
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet, numbered

FAULT_ACCESSES: dict[int, str] = {0: "Unknown access", 1: "Read", 2: "Write", 3: "Atomic", 4: "Prefetch"}
GPU_PAGE_FAULT = EventType(
    63000400,
    "GPU page faults",
    Role.INTERVAL,
    ValueSet("page fault accesses", numbered(FAULT_ACCESSES), first=20),
    lanes=634000001,
)
GPU_PAGE_FAULT_COUNT = EventType(63000401, "GPU page faults number", Role.ATTRIBUTE, unit="faults")
CPU_PAGE_FAULT = EventType(63000402, "CPU page fault of unified memory", Role.MARK, ValueSet("page fault instructions"))
FAULT_MODULE = EventType(63000403, "CPU page fault module", Role.ATTRIBUTE, ValueSet("page fault modules"))
FAULT_FILE = EventType(63000404, "CPU page fault source file", Role.ATTRIBUTE, ValueSet("page fault source files"))
FAULT_LINE = EventType(63000405, "CPU page fault source line", Role.ATTRIBUTE, unit="line")


def _gpu_faults(report: Report) -> pl.LazyFrame:
    return GPU_FAULTS.scan(report).select(
        *RowKind.DEVICE.key,
        device_row(),
        "start",
        "end",
        pl.col("numberOfPageFaults").alias(str(GPU_PAGE_FAULT_COUNT)),
        pl.col("address").alias(str(VIRTUAL_ADDRESS)),
        type=pl.lit(GPU_PAGE_FAULT, pl.Int64),
        label=enumerated(report, "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE", FAULT_ACCESSES, "faultAccessType"),
    )


def _cpu_faults(report: Report) -> pl.LazyFrame:
    faults = CPU_FAULTS.scan(report)
    for column in _TEXTS:
        faults = with_text(report, faults, column, f"{column} text")
    return faults.select(
        # The table names the process only.
        (pl.col("globalPid") | pid_of(pl.col("globalPid"))).alias("globalTid"),
        "start",
        *attributes(_FACTS),
        end="start",
        type=pl.lit(CPU_PAGE_FAULT, pl.Int64),
        label=pl.col("CpuInstruction text").fill_null(UNNAMED),
    )


_TEXTS = ("CpuInstruction", "module", "sourceFile")
_FACTS = {FAULT_MODULE: "module text", FAULT_FILE: "sourceFile text", FAULT_LINE: "sourceLine", VIRTUAL_ADDRESS: "address"}

GPU_FAULTS = Source(
    name="page-faults",
    title="GPU page faults of unified memory",
    table="CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    required=("start", "end", "globalPid", "deviceId"),
    optional=("address", "numberOfPageFaults", "faultAccessType"),
    row=RowKind.DEVICE,
    types=(GPU_PAGE_FAULT, GPU_PAGE_FAULT_COUNT, VIRTUAL_ADDRESS),
    frame=_gpu_faults,
    in_order=lambda: Lanes(DEVICE_ROW),
)

CPU_FAULTS = Source(
    name="page-faults",
    title="CPU page faults of unified memory",
    table="CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    required=("start", "globalPid"),
    optional=("address", *_TEXTS, "sourceLine"),
    row=RowKind.THREAD,
    types=(CPU_PAGE_FAULT, *_FACTS),
    frame=_cpu_faults,
    times=("start", "start"),
    assumption=(
        "The table names the process and no thread: faults are on the main thread, which has the number of its process. "
        "`CpuInstruction` and `module` are texts: the function, or the address, and the library where the fault happened."
    ),
)
