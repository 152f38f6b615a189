"""Copies: their size, and their time in which nothing else runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings.aggregate import NONE, OccurrenceSums, part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device
from nsys2prv.efficiency.findings.gap_causes import NO_VALUE, value_of
from nsys2prv.efficiency.findings.rule import Evidence
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import MEMORY, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types

_SUMS = ("count", "cost", "length", "bytes")


class CopyTimes:
    """Sums of some copies by device and part of the run: a meter that rules derive from."""

    matches: pl.Expr
    """Which copies: a condition over `size` and `is_pageable` (one side is pageable memory)."""
    kinds: Sequence[int] = (1, 2)
    """Kinds of copies, by their numbers in nsys: to the device and to the host."""
    is_whole = False
    """Whether the cost is their whole time, and not only that in which nothing else runs."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        types = context.events.types
        self._directions = [value_of(types, event_types.MEMORY_OPERATION, event_types.COPY_KINDS[kind]) for kind in self.kinds]
        source, destination = (
            value_of(types, number, event_types.MEMORY_KINDS[0])
            for number in (event_types.SOURCE_MEMORY, event_types.DESTINATION_MEMORY)
        )
        self._is_pageable = (pl.col("source") == source) | (pl.col("destination") == destination)
        self._copies = OccurrenceSums(("device", "part"), _SUMS)

    def update(self, chunk: TimeChunk) -> None:
        """Add the copies of a chunk."""
        events = self._context.events
        copies = chunk.inside[ON_DEVICES.name].filter(
            (pl.col("number") == event_types.MEMORY_OPERATION) & pl.col("value").is_in(sorted({*self._directions} - {NO_VALUE}))
        )
        device = pl.Series(events.rows.device[copies["row"].to_numpy()], dtype=pl.Int64)
        copies = copies.with_columns(device=device, is_pageable=self._is_pageable)
        copies = copies.filter(self.matches & (pl.col("device") >= 0))
        if copies.is_empty():
            return
        on, times = copies["device"].to_numpy(), chunk.device_times
        alone = times.until(on, copies["end"].to_numpy()) - times.until(on, copies["start"].to_numpy())
        begins = pl.col("begin") >= chunk.begin
        self._copies.add(
            copies.select(
                "device",
                "row",
                part=part_of(pl.col("begin"), events.length),
                count=begins.cast(pl.Int64),
                cost=pl.col("end") - pl.col("start") if self.is_whole else pl.Series(alone[:, 1 << MEMORY], dtype=pl.Int64),
                length=pl.col("end") - pl.col("start"),
                bytes=pl.when(begins).then("size").otherwise(0),
                begin="begin",
                end="until",
                thread=pl.lit(NONE),
            )
        )

    def by_device(self, evidence: Evidence) -> Sequence[DeviceStats]:
        """Statistics of these copies; the cost is their time, in which nothing else runs (not so with `is_whole`)."""
        devices = evidence.tables["devices"]
        alone = dict(zip(devices["device"], devices["memory_ns" if self.is_whole else "memory_alone_ns"], strict=True))
        stats = by_device(self._context, self._copies.frame(), _SUMS)
        # Copies that run at the same time are alone at the same time.
        return [replace(one, cost=min(one.cost, alone[evidence.device_name(one.device)])) for one in stats]
