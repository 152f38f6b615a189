"""Memory of devices: how much is in use, allocations, and memory pools."""

from __future__ import annotations

import polars as pl

from nsys2prv.exports import Report
from nsys2prv.sources.source import DEVICE_ROW, RowKind, TableSource, device_row, enumerated
from nsys2prv.vocabulary import event_types

_FREED = 1
"""`memoryOperationType` of a deallocation; 0 is an allocation."""

_POOL = {
    event_types.POOL_SIZE: "localMemoryPoolSize",
    event_types.POOL_USED: "localMemoryPoolUtilizedSize",
    event_types.POOL_THRESHOLD: "localMemoryPoolReleaseThreshold",
}


class RunningSums:
    """Turns changes (column `value`, bytes) into what is in use: `value` of the kind of memory, and the total of the device.

    Called with pieces of a frame in the order of begin; keeps the sums from one piece to the next. What was allocated before
    the recording began is not known: a sum is what was allocated less what was freed since.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], pl.DataFrame] = {
            (DEVICE_ROW, "series"): pl.DataFrame(),
            (DEVICE_ROW,): pl.DataFrame(),
        }

    def __call__(self, changes: pl.DataFrame) -> pl.DataFrame:
        of_kind, total = (self._running(changes, columns) for columns in self._sums)
        return changes.with_columns(of_kind.alias("value"), total.alias(str(event_types.DEVICE_MEMORY_TOTAL)))

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
        enumerated(report, "ENUM_CUDA_DEV_MEM_EVENT_OPER", event_types.MEMORY_OPERATIONS, "memoryOperationType").alias(
            str(event_types.DEVICE_MEMORY_OPERATION)
        ),
        pl.when(~is_freed).then("bytes").alias(str(event_types.DEVICE_MEMORY_ALLOCATED)),
        pl.when(is_freed).then("bytes").alias(str(event_types.DEVICE_MEMORY_FREED)),
        pl.col("address").alias(str(event_types.DEVICE_MEMORY_ADDRESS)),
        pl.col("name").alias(str(event_types.DEVICE_MEMORY_NAME)),
        *(pl.col(column).alias(str(number)) for number, column in _POOL.items()),
        end="start",
        type=pl.lit(event_types.DEVICE_MEMORY, pl.Int64),
        series=enumerated(report, "ENUM_CUDA_MEM_KIND", event_types.MEMORY_KINDS, "memKind").fill_null(_UNKNOWN_KIND),
        # A change; the sum is made when events are in order.
        value=pl.when(is_freed).then(-pl.col("bytes")).otherwise("bytes"),
    )


_UNKNOWN_KIND = "Unknown"


def _pools(report: Report) -> pl.LazyFrame:
    return POOLS.scan(report).select(
        *RowKind.DEVICE.key,
        "start",
        enumerated(report, "ENUM_CUDA_MEMPOOL_TYPE", event_types.POOL_TYPES, "poolType").alias(str(event_types.POOL_TYPE)),
        pl.col("address").alias(str(event_types.DEVICE_MEMORY_ADDRESS)),
        *(pl.col(column).alias(str(number)) for number, column in _POOL.items()),
        end="start",
        type=pl.lit(event_types.POOL_OPERATION, pl.Int64),
        label=enumerated(report, "ENUM_CUDA_MEMPOOL_OPER", event_types.POOL_OPERATIONS, "operationType"),
    )


USAGE = TableSource(
    name="gpu-memory",
    title="GPU memory in use, allocations and frees",
    table="CUDA_GPU_MEMORY_USAGE_EVENTS",
    required=("start", "globalPid", "deviceId", "bytes", "memoryOperationType"),
    optional=("memKind", "address", "name", *_POOL.values()),
    row=RowKind.DEVICE,
    types=(
        event_types.DEVICE_MEMORY,
        event_types.DEVICE_MEMORY_TOTAL,
        event_types.DEVICE_MEMORY_OPERATION,
        event_types.DEVICE_MEMORY_ALLOCATED,
        event_types.DEVICE_MEMORY_FREED,
        event_types.DEVICE_MEMORY_ADDRESS,
        event_types.DEVICE_MEMORY_NAME,
        *_POOL,
    ),
    frame=_usage,
    times=("start", "start"),
    in_order=RunningSums,
)

POOLS = TableSource(
    name="gpu-memory",
    title="GPU memory pools",
    table="CUDA_GPU_MEMORY_POOL_EVENTS",
    required=("start", "globalPid", "deviceId", "operationType"),
    optional=("poolType", "address", *_POOL.values()),
    row=RowKind.DEVICE,
    types=(event_types.POOL_OPERATION, event_types.POOL_TYPE, event_types.DEVICE_MEMORY_ADDRESS, *_POOL),
    frame=_pools,
    times=("start", "start"),
    assumption="A row is one creation, destruction or trimming of a pool, with the sizes of the pool after it.",
)
