"""Copies between host and device that nothing covers: from and to pageable memory, and small ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.aggregate import NONE, Sums, part_of
from nsys2prv.efficiency.findings.device_stats import Seen, by_device, cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import BYTES, NANOSECONDS, SHARE, Finding, Measured, Number, OnDevice, recurs
from nsys2prv.efficiency.findings.gap_causes import SMALL, Idle, value_of
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import MEMORY, SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, size, time

PAGEABLE_SHAPE, SMALL_SHAPE = range(2)
_NO_SHAPE = -1
_SUMS = ("count", "cost", "length", "bytes")


class Copies:
    """Sums of copies by shape; a large one is never a small one."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        types = dict(ground.recording.types)
        self._directions = [value_of(types, event_types.MEMORY_OPERATION, event_types.COPY_KINDS[kind]) for kind in (1, 2)]
        self._pageable = [
            value_of(types, number, event_types.MEMORY_KINDS[0])
            for number in (event_types.SOURCE_MEMORY, event_types.DESTINATION_MEMORY)
        ]
        self._copies = Sums(("device", "shape", "part"), _SUMS)

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        recording = self._ground.recording
        inside = part.inside[ON_DEVICES.name].filter(
            (pl.col("number") == event_types.MEMORY_OPERATION) & pl.col("value").is_in(self._directions)
        )
        is_pageable = (pl.col("source") == self._pageable[0]) | (pl.col("destination") == self._pageable[1])
        large = (is_pageable & (pl.col("size") >= limits.PAGEABLE_BYTES.value)).fill_null(value=False)
        small = (pl.col("size") < limits.SMALL_BYTES.value).fill_null(value=False)
        shape = pl.when(large).then(PAGEABLE_SHAPE).when(small).then(SMALL_SHAPE).otherwise(_NO_SHAPE)
        device = pl.Series(recording.rows.device[inside["row"].to_numpy()], dtype=pl.Int64)
        copies = inside.with_columns(shape=shape, device=device).filter(
            (pl.col("shape") != _NO_SHAPE) & (pl.col("device") >= 0)
        )
        if copies.is_empty():
            return
        on, times = copies["device"].to_numpy(), part.device_times
        alone = times.until(on, copies["end"].to_numpy()) - times.until(on, copies["start"].to_numpy())
        begins = pl.col("begin") >= part.begin
        self._copies.add(
            copies.select(
                "device",
                "shape",
                "row",
                part=part_of(pl.col("begin"), recording.length),
                count=begins.cast(pl.Int64),
                cost=pl.Series(alone[:, 1 << MEMORY], dtype=pl.Int64),
                length=pl.col("end") - pl.col("start"),
                bytes=pl.when(begins).then("size").otherwise(0),
                begin="begin",
                end="until",
                thread=pl.lit(NONE),
            )
        )

    def findings(self, measured: Measured, idle: Idle) -> list[Finding]:
        """What is wrong, by these copies and the gaps between small ones."""
        sums = self._copies.frame()
        alone = dict(zip(measured.tables["devices"]["device"], measured.tables["devices"]["memory_alone_ns"], strict=True))
        rules: Sequence[tuple[int, Callable[[Seen, Measured], bool], Callable[[str, list[Seen]], Finding]]] = (
            (PAGEABLE_SHAPE, _is_pageable, _pageable),
            (SMALL_SHAPE, _is_small, _small),
        )
        found = []
        for shape, is_one, finding in rules:
            seen = by_device(self._ground, sums.filter(pl.col("shape") == shape), _SUMS, place="part")
            # Copies that run at the same time are alone at the same time.
            seen = [_at_most(one, alone[measured.name(one.on.device)]) for one in seen]
            if shape == SMALL_SHAPE:
                gaps = dict(idle.frame(SMALL).group_by("device").agg(pl.col("cost").sum()).iter_rows())
                seen = [_with_gaps(one, gaps.get(one.on.device, 0)) for one in seen]
            beyond = [one for one in seen if is_one(one, measured)]
            if beyond:
                found.append(finding(on_devices(beyond), beyond))
        return found


def _at_most(one: Seen, most: int) -> Seen:
    return _costing(one, min(one.on.cost, most), one.sums | {"gaps": 0})


def _with_gaps(one: Seen, gaps: int) -> Seen:
    return _costing(one, one.on.cost + gaps, one.sums | {"gaps": gaps})


def _costing(one: Seen, cost_of: int, sums: dict[str, int]) -> Seen:
    on = one.on
    changed = OnDevice(on.device, on.count, cost_of, on.begin, on.end, on.worst, on.rows)
    return Seen(changed, one.parts, one.longest, sums)


def _is_pageable(one: Seen, measured: Measured) -> bool:
    return (
        one.on.count >= limits.PAGEABLE_COUNT.value
        and one.on.cost >= limits.PAGEABLE_SHARE.value * measured.active(one.on.device)
        and recurs(measured, one.on.device, one.parts, limits.RECURRING.value, limits.ACTIVE_PARTS.value)
    )


def _pageable(where: str, found: list[Seen]) -> Finding:
    copies, lost, length, moved = count(found), cost(found), total(found, "length"), total(found, "bytes")
    rate = moved * 1e9 / length
    seen = (
        f"{copies:,} copies {where} between device and pageable memory, {size(moved / copies)} on average at "
        f"{rate / 1e9:.1f} GB/s; during {percent(lost / length)} of their time no kernel runs"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / copies, BYTES),
        Number("mean duration", length / copies, NANOSECONDS),
        Number("part of their time beside no kernel", lost / length, SHARE),
    )
    return Finding(limits.PAGEABLE, seen, lost, [one.on for one in found], numbers)


def _is_small(one: Seen, measured: Measured) -> bool:
    return (
        one.on.count >= limits.SMALL_COUNT.value
        and one.on.cost >= limits.SMALL_SHARE.value * measured.active(one.on.device)
        and recurs(measured, one.on.device, one.parts, limits.RECURRING.value, limits.ACTIVE_PARTS.value)
    )


def _small(where: str, found: list[Seen]) -> Finding:
    copies, lost, moved, gaps = count(found), cost(found), total(found, "bytes"), total(found, "gaps")
    seen = (
        f"{copies:,} copies {where} of {size(moved / copies)} on average take {time(lost)} in which no kernel runs, "
        f"{time(gaps)} of it in gaps between two of them"
    )
    numbers = (
        Number("copies", copies),
        Number("mean size", moved / copies, BYTES),
        Number("time in gaps between them", gaps, NANOSECONDS),
    )
    return Finding(limits.SMALL_COPIES, seen, lost, [one.on for one in found], numbers)
