"""Memory of devices: how much is in use, allocations, and memory pools."""

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.exports.columns import Text
from nsys2prv.sources.source import DEVICE_ROW, RowKind, Source, attributes, device_row, enumerated
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.event_types import EventType, Role, ValueSet, numbered

MEMORY_OPERATIONS: dict[int, str] = {0: "Allocation", 1: "Deallocation"}
POOL_OPERATIONS: dict[int, str] = {0: "Unknown", 1: "Pool created", 2: "Pool destroyed", 3: "Pool trimmed"}
POOL_TYPES: dict[int, str] = {0: "Unknown", 1: "Local", 2: "Imported"}
DEVICE_MEMORY = EventType(
    63000300, "GPU memory in use: {}", Role.SAMPLE, gradient=7, unit="bytes", step=1, members=20, overflow=633000001
)
DEVICE_MEMORY_TOTAL = EventType(63000320, "GPU memory in use", Role.ATTRIBUTE, gradient=7, unit="bytes")
DEVICE_MEMORY_OPERATION = EventType(
    63000321,
    "GPU memory operation",
    Role.ATTRIBUTE,
    ValueSet("device memory operations", numbered(MEMORY_OPERATIONS), first=10),
)
DEVICE_MEMORY_ALLOCATED = EventType(63000322, "GPU memory allocated", Role.ATTRIBUTE, unit="bytes")
DEVICE_MEMORY_FREED = EventType(63000323, "GPU memory freed", Role.ATTRIBUTE, unit="bytes")
DEVICE_MEMORY_ADDRESS = EventType(63000324, "GPU memory address", Role.ATTRIBUTE, unit="address")
DEVICE_MEMORY_NAME = EventType(63000325, "GPU memory name", Role.ATTRIBUTE, ValueSet("device memory names"))
POOL_OPERATION = EventType(
    63000330, "GPU memory pool operation", Role.MARK, ValueSet("memory pool operations", numbered(POOL_OPERATIONS), first=20)
)
POOL_TYPE = EventType(
    63000331, "GPU memory pool type", Role.ATTRIBUTE, ValueSet("memory pool types", numbered(POOL_TYPES), first=20)
)
POOL_SIZE = EventType(63000332, "GPU memory pool size", Role.ATTRIBUTE, unit="bytes")
POOL_USED = EventType(63000333, "GPU memory pool in use", Role.ATTRIBUTE, unit="bytes")
POOL_THRESHOLD = EventType(63000334, "GPU memory pool release threshold", Role.ATTRIBUTE, unit="bytes")


_MAY_BE_ON_HOST = r"(?i)^(managed|pageable|pinned)"
"""Kinds of memory that are no part of what is in use on a device."""
_FREED = 1
"""`memoryOperationType` of a deallocation; 0 is an allocation."""

_ALLOCATION = {DEVICE_MEMORY_ADDRESS: "address", DEVICE_MEMORY_NAME: "name"}
_POOL = {
    POOL_SIZE: "localMemoryPoolSize",
    POOL_USED: "localMemoryPoolUtilizedSize",
    POOL_THRESHOLD: "localMemoryPoolReleaseThreshold",
}


class RunningSums:
    """Turns changes (column `value`, bytes) into what is in use: `value` of the kind of memory, and the total on the device.

    Called with pieces of a frame in the order of start; keeps the sums from one piece to the next. Allocations before
    the recording are not known: a sum is the allocations less the frees since its start."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], pl.DataFrame] = dict.fromkeys([(DEVICE_ROW, "series"), (DEVICE_ROW,)], pl.DataFrame())

    def __call__(self, changes: pl.DataFrame) -> pl.DataFrame:
        is_on_device = ~pl.col("series").str.contains(_MAY_BE_ON_HOST)
        on_device = changes.with_columns(pl.when(is_on_device).then("value").otherwise(0).alias("value"))
        of_kind, total = map(self._running, (changes, on_device), self._sums)
        return changes.with_columns(of_kind.alias("value"), total.alias(str(DEVICE_MEMORY_TOTAL)))

    def _running(self, changes: pl.DataFrame, columns: tuple[str, ...]) -> pl.Series:
        before = self._sums[columns]
        if before.is_empty():
            before = changes.select(*columns, before="value").clear()
        sums = changes.select(*columns, sum=pl.col("value").cum_sum().over(columns)).join(
            before, on=columns, how="left", maintain_order="left"
        )
        running = sums.select(*columns, before=pl.col("sum") + pl.col("before").fill_null(0))
        now = running.unique(columns, keep="last", maintain_order=True)
        self._sums[columns] = pl.concat([now, before.join(now, on=columns, how="anti")])
        return running["before"]


def _usage(report: Report) -> pl.LazyFrame:
    is_freed = pl.col("memoryOperationType") == _FREED
    return USAGE.scan(report).select(
        *RowKind.DEVICE.key,
        device_row(),
        "start",
        enumerated(report, "ENUM_CUDA_DEV_MEM_EVENT_OPER", MEMORY_OPERATIONS, "memoryOperationType").alias(
            str(DEVICE_MEMORY_OPERATION)
        ),
        pl.when(~is_freed).then("bytes").alias(str(DEVICE_MEMORY_ALLOCATED)),
        pl.when(is_freed).then("bytes").alias(str(DEVICE_MEMORY_FREED)),
        *attributes(_ALLOCATION | _POOL),
        end="start",
        type=pl.lit(DEVICE_MEMORY, pl.Int64),
        series=enumerated(report, "ENUM_CUDA_MEM_KIND", event_types.MEMORY_KINDS, "memKind").fill_null("Unknown"),
        # A change; the sum is made when events are in order.
        value=pl.when(is_freed).then(-pl.col("bytes")).otherwise("bytes"),
    )


def _pools(report: Report) -> pl.LazyFrame:
    return POOLS.scan(report).select(
        *RowKind.DEVICE.key,
        "start",
        enumerated(report, "ENUM_CUDA_MEMPOOL_TYPE", POOL_TYPES, "poolType").alias(str(POOL_TYPE)),
        pl.col("address").alias(str(DEVICE_MEMORY_ADDRESS)),
        *attributes(_POOL),
        end="start",
        type=pl.lit(POOL_OPERATION, pl.Int64),
        label=enumerated(report, "ENUM_CUDA_MEMPOOL_OPER", POOL_OPERATIONS, "operationType"),
    )


USAGE = Source(
    name="gpu-memory",
    title="GPU memory in use, allocations and frees",
    table="CUDA_GPU_MEMORY_USAGE_EVENTS",
    required=("start", "globalPid", "deviceId", "bytes", "memoryOperationType"),
    optional=("memKind", "address", Text("name"), *_POOL.values()),
    row=RowKind.DEVICE,
    types=(
        *(DEVICE_MEMORY, DEVICE_MEMORY_TOTAL, DEVICE_MEMORY_OPERATION, DEVICE_MEMORY_ALLOCATED, DEVICE_MEMORY_FREED),
        *_ALLOCATION,
        *_POOL,
    ),
    frame=_usage,
    times=("start", "start"),
    in_order=RunningSums,
)

POOLS = Source(
    name="gpu-memory",
    title="GPU memory pools",
    table="CUDA_GPU_MEMORY_POOL_EVENTS",
    required=("start", "globalPid", "deviceId", "operationType"),
    optional=("poolType", "address", *_POOL.values()),
    row=RowKind.DEVICE,
    types=(POOL_OPERATION, POOL_TYPE, DEVICE_MEMORY_ADDRESS, *_POOL),
    frame=_pools,
    times=("start", "start"),
    assumption="A row is one creation, destruction or trimming of a pool, with the sizes of the pool after it.",
)
