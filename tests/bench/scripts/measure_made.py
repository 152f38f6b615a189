"""Seconds in which events that are made here are collected, sorted and measured; to make them does not count.

`measure_made.py INTERVALS SAMPLES`: 8 processes with a GPU each: kernels on two streams that overlap, NCCL kernels, copies, and
the calls that launch them; and of each GPU ten sampled metrics.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.efficiency_options import EfficiencyOptions
from nsys2prv.efficiency.measure import measure_events
from nsys2prv.efficiency.run_events import (
    LAUNCH_SCHEMA,
    ON_DEVICES,
    ON_HOSTS,
    SAMPLES,
    RunEvents,
    RunRows,
    TaskRows,
    TypeNames,
    new_collections,
)
from nsys2prv.execution import memory
from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.vocabulary import event_types

memory.keep_freed()
intervals, samples, gpus, piece, metrics = int(sys.argv[1]), int(sys.argv[2]), 8, 50_000, 10
random = np.random.default_rng(5)
rows = RunRows(
    [
        TaskRows(
            f"Rank {rank} node01 pid {rank}",
            "node01",
            (f"python3 tid {rank}", f"CUDA-D{rank}.S7", f"CUDA-D{rank}.S13", f"Metrics GPU{rank}"),
        )
        for rank in range(gpus)
    ]
)
names = {value: f"kernel_{value}" for value in range(1, 200)}
types = {
    event_types.KERNEL: TypeNames("CUDA kernel", names),
    event_types.NCCL_KERNEL: TypeNames("NCCL kernel", {300: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"}),
    event_types.MEMORY_OPERATION: TypeNames("CUDA memcpy kernel", {5: "CUDA memcpy Host-to-Device"}),
    event_types.CUDA_CALL: TypeNames("CUDA library call", {400: "cudaLaunchKernel", 401: "cudaStreamSynchronize"}),
}
with tempfile.TemporaryDirectory() as folder:
    started, made = time.monotonic(), 0.0
    collections = new_collections(Path(folder), (ON_DEVICES, ON_HOSTS, SAMPLES))
    launches = ExternalSort(["to_time"], Path(folder) / "launches")
    # Half of the intervals are calls, each of which starts one of the others.
    for first in range(0, intervals // 2, piece):
        making = time.monotonic()
        number = np.arange(first, min(first + piece, intervals // 2))
        rank = number % gpus
        start = (number // gpus) * 9_000 + random.integers(0, 3_000, len(number))
        kind = random.random(len(number))
        others = [event_types.NCCL_KERNEL, event_types.MEMORY_OPERATION]
        what = np.select([kind < 0.05, kind < 0.15], others, event_types.KERNEL)
        value = np.select([kind < 0.05, kind < 0.15], [300, 5], random.integers(1, 200, len(number)))
        row = rank * 4 + np.where(what == event_types.KERNEL, 1, 2)
        end = start + random.lognormal(8.5, 0.6, len(number)).astype(np.int64)
        call = np.maximum(start - 6_000, 0)
        empty = pl.lit(None, pl.Int64)
        on_device = pl.DataFrame({"start": start, "end": end, "row": row, "number": what, "value": value}).with_columns(
            *(empty.alias(name) for name in ON_DEVICES.attributes)
        )
        calls = np.where(kind > 0.98, 401, 400)
        on_host = pl.DataFrame({"start": call, "end": call + 4_000, "row": rank * 4, "value": calls}).with_columns(
            number=event_types.CUDA_CALL, size=empty
        )
        lines = pl.DataFrame({"time": call, "row": rank * 4, "to_time": start, "to_row": row})
        made += time.monotonic() - making
        for collection, frame, schema in (
            (collections["device"], on_device, ON_DEVICES.schema),
            (collections["host"], on_host, ON_HOSTS.schema),
            (launches, lines, LAUNCH_SCHEMA),
        ):
            collection.add(frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items()))
    length = int(intervals // 2 // gpus * 9_000 + 10_000_000)
    # All metrics of a GPU at the same times.
    for first in range(0, samples, piece):
        making = time.monotonic()
        number = np.arange(first, min(first + piece, samples))
        rank = number // metrics % gpus
        at = number // (metrics * gpus) * (length * metrics * gpus // max(samples, 1))
        what = event_types.GPU_METRIC + 1 + number % metrics
        frame = pl.DataFrame({"start": at, "row": rank * 4 + 3, "number": what, "value": random.integers(0, 100, len(number))})
        made += time.monotonic() - making
        collections["samples"].add(frame.select(pl.col(name).cast(dtype) for name, dtype in SAMPLES.schema.items()))
    types |= {event_types.GPU_METRIC + 1 + metric: TypeNames(f"Metric {metric}") for metric in range(metrics)}
    collections = {name: found for name, found in collections.items() if found.rows}
    events = RunEvents(
        inputs=("made",),
        title="made",
        rows=rows,
        begin=0,
        length=length,
        types=types,
        collections=collections,
        launches=launches,
        callers=frozenset(range(0, gpus * 4, 4)),
    )
    # As the command does it.
    with memory.limited(memory.allotments(None, 0)[0]):
        found = measure_events(events, EfficiencyOptions(), Path(folder))
    assert found.tables["memory_operations"]["count"].sum() + found.tables["kernels"]["count"].sum() == intervals // 2
    # The window ends with the program: samples behind it do not count.
    assert min(samples, 1) <= found.tables["sampled_bins"]["samples"].sum() <= samples
    print(time.monotonic() - started - made)
