"""Copies: their size, their time in which nothing else runs, and what is found of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings.aggregate import NONE, OccurrenceSums, part_of
from nsys2prv.efficiency.findings.device_stats import DeviceStats, by_device, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import NO_VALUE, value_of
from nsys2prv.efficiency.findings.rule import Evidence, Threshold
from nsys2prv.efficiency.graph.changes import SCHEMA
from nsys2prv.efficiency.sweep import MEMORY, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, size, time

SMALLEST_COPY = Threshold(
    "smallest copy", 65_536, "bytes", "smaller ones to the device return before they are done also from pageable memory"
)
FEWEST_COPIES = Threshold("fewest copies on a device", 10, "", "fewer are those of a start")

_SUMS = ("count", "cost", "length", "bytes")


class CopyTimes:
    """Sums of some copies by device and part of the run: a meter that rules derive from."""

    matches: pl.Expr
    """Which copies: a condition over `size` and `is_pageable` (one side is pageable memory)."""
    kinds: Sequence[int] = (1, 2)
    """Kinds of copies, by their numbers in nsys: to the device and to the host."""
    is_whole = False
    """Whether the cost is their whole time, and not only that in which nothing else runs."""
    keeps_each = False
    """Whether each of them is known afterwards; else only sums are."""

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
        self._each: list[pl.DataFrame] = []

    def update(self, chunk: TimeChunk) -> None:
        """Add the copies of a chunk."""
        events = self._context.events
        if chunk.copies.is_empty():
            return
        device = pl.lit(pl.Series(events.rows.device, dtype=pl.Int64)).gather("row")
        copies = (
            chunk.copies.lazy()
            .filter(pl.col("value").is_in(sorted({*self._directions} - {NO_VALUE})))
            .with_columns(device=device, is_pageable=self._is_pageable)
            .filter(self.matches & (pl.col("device") >= 0))
            .collect(engine="in-memory")
        )
        if copies.is_empty():
            return
        on, times = copies["device"].to_numpy(), chunk.device_times
        alone = times.until(on, copies["end"].to_numpy()) - times.until(on, copies["start"].to_numpy())
        begins = pl.col("begin") >= chunk.begin
        if self.keeps_each:
            self._each.append(copies.filter(begins).select("device", "begin", group=pl.col("row").cast(pl.Int64), end="until"))
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

    def each(self, devices: Sequence[DeviceStats]) -> pl.DataFrame:
        """These copies on some devices: columns of `spans.SCHEMA`, with the row of the stream as `group`."""
        return pl.concat(self._each).filter(pl.col("device").is_in([one.device for one in devices])).select(list(SCHEMA))

    @property
    def slowness(self) -> float | None:
        """Time of these copies per byte, ns; None: there are none."""
        sums = self._copies.frame()
        moved = int(sums["bytes"].sum())
        return int(sums["length"].sum()) / moved if moved else None


def exposed_copies(
    evidence: Evidence, meter: type[CopyTimes], least: Threshold, *, which: str = "", exposed: Threshold | None = None
) -> Finding | None:
    """What is found of copies during which nothing computes again and again, or for long: on devices where that costs the
    least share, and where at least a part of their time is exposed; `which` copies they are is for the text."""
    found = evidence.meter(meter).by_device(evidence)
    if exposed is not None:
        found = [stats for stats in found if stats.cost >= exposed.value * stats.sums["length"]]
    devices = evidence.costly(found, FEWEST_COPIES, least, recurring=True, or_large=True)
    if not devices:
        return None
    copies, lost, length, moved = count(devices), cost(devices), total(devices, "length"), total(devices, "bytes")
    text = (
        f"{copies:,} copies {on_devices(devices)}{which}, {size(moved / max(copies, 1))} on average at "
        f"{moved / length:.1f} GB/s, take {time(length)}, and during {percent(lost / length)} of that no kernel runs"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / max(copies, 1), BYTES),
        Number("their time", length, NANOSECONDS),
        Number("part of it beside no kernel", lost / length, SHARE),
    )
    return Finding(text, devices, numbers)
