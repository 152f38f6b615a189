"""Kernels beside communication: of each kernel after each kernel, durations alone and while an NCCL kernel runs.

The same kernel after the same kernel of its stream most likely does the same work, so that its durations can be compared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import limits
from nsys2prv.efficiency.findings.aggregate import NONE, PARTS
from nsys2prv.efficiency.findings.device_stats import by_device, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Measured, Number
from nsys2prv.efficiency.findings.gap_causes import ALL_KERNELS
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.kernel_stats import bar_of
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import KERNEL, NCCL, SweepContext, TimeChunk
from nsys2prv.errors import counted
from nsys2prv.execution.merging import Merging
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, short, time

_WORK = "work"
"""What is taken for the same work, a kernel after a kernel: the values of both in one number."""
_VALUE_BITS, _BAR_BITS = 24, 10
_BARS = 8
"""Bars of a doubling, as in the histograms of kernels."""
_PENDING_ROWS = 500_000


class NcclContention:
    """Durations of kernels, alone and beside NCCL kernels. Nothing is measured in a run without these."""

    def __init__(self, ground: SweepContext) -> None:
        self._ground = ground
        self._wanted = event_types.NCCL_KERNEL in ground.recording.types
        # The kernel that began last on each row; 0: none.
        self._former: Numbers = np.zeros(len(ground.recording.rows.names), dtype=np.int64)
        # By work, company and bar; and by work, device and part of the run beside communication.
        self._durations, self._places = _Totals(), _Totals()

    def take(self, part: TimeChunk) -> None:
        """Take in a stretch."""
        if not self._wanted:
            return
        begun = part.begun[ON_DEVICES.name].filter(pl.col("number").is_in(ALL_KERNELS))
        if begun.is_empty():
            return
        recording = self._ground.recording
        start, end, row, value = (begun[name].to_numpy().astype(np.int64) for name in ("start", "end", "row", "value"))
        order = np.lexsort((start, row))
        start, end, row, value = start[order], end[order], row[order], value[order]
        is_first = np.concatenate([[True], row[1:] != row[:-1]])
        after = np.where(is_first, self._former[row], np.roll(value, 1))
        is_last = np.concatenate([is_first[1:], [True]])
        self._former[row[is_last]] = value[is_last]
        device = recording.rows.device[row]
        known = (begun["number"].to_numpy()[order] == event_types.KERNEL) & (device >= 0)
        found = part.on_devices
        place = found.place(device, start)
        # Several compute kernels at once are another thing: together they may well be faster.
        known &= (place >= 0) & (found.counts[KERNEL][place] == 1)
        start, end, device, place = start[known], end[known], device[known], place[known]
        if not len(start):
            return
        work = value[known] << _VALUE_BITS | after[known]
        beside = (found.counts[NCCL][place] > 0).astype(np.int64)
        length = end - start
        bar = pl.Series(length).to_frame("length").select(bar_of(pl.col("length")) + 1).to_series().to_numpy()
        self._durations.take(work, beside << _BAR_BITS | bar, start, end)
        parts = np.clip(start * PARTS // max(recording.length, 1), 0, PARTS - 1)
        is_beside = beside > 0
        self._places.take(*(one[is_beside] for one in (work, device * PARTS + parts, start, end)))

    def findings(self, measured: Measured) -> list[Finding]:
        """What is wrong, by these durations."""
        modes = self._modes(measured)
        if modes.is_empty():
            return []
        # What each execution beside communication takes longer than the mean alone, by device.
        places = self._places.rows.join(modes.select(_WORK, "alone_mean"), on=_WORK, how="inner")
        extra = (pl.col("length") - pl.col("alone_mean") * pl.col("count")).round().cast(pl.Int64).clip(lower_bound=0)
        by_place = (
            places.with_columns(cost=extra)
            .group_by(device=pl.col("key") // PARTS, part=pl.col("key") % PARTS)
            .agg(pl.col("count", "cost").sum(), pl.col("begin").min(), pl.col("end").max())
            .with_columns(top_cost="cost", top_begin="begin", top_end="end", top_row=pl.lit(NONE), top_thread=pl.lit(NONE))
            .sort("device", "part")
        )
        seen = [
            replace(one, on=replace(one.on, rows=measured.streams(one.on.device)))
            for one in by_device(self._ground, by_place, ("count",), place="part")
            if one.on.cost >= limits.MODES_SHARE.value * measured.active(one.on.device)
        ]
        if not seen:
            return []
        first = modes.row(0, named=True)
        name = measured.kernel(event_types.KERNEL, first[_WORK] >> _VALUE_BITS)
        lost = sum(one.on.cost for one in seen)
        executions = sum(one.on.count for one in seen)
        kernels = modes.select(pl.col(_WORK) // (1 << _VALUE_BITS)).n_unique()
        seen_text = (
            f"{counted(kernels, 'kernel')} {on_devices(seen)}: {short(name)} takes {time(first['beside_mean'])} when an "
            f"NCCL kernel runs as it begins and {time(first['alone_mean'])} else ("
            f"{percent(first['beside'] / first['executions'])} of {first['executions']:,} executions are beside NCCL kernels)"
        )
        numbers = (
            Number("kernels with two modes", kernels),
            Number("executions beside NCCL kernels", executions),
            Number("mean duration alone, of the kernel that loses most", first["alone_mean"], NANOSECONDS),
            Number("mean duration beside NCCL kernels", first["beside_mean"], NANOSECONDS),
            Number("part of its executions beside NCCL kernels", first["beside"] / first["executions"], SHARE),
        )
        return [Finding(limits.MODES, seen_text, lost, [one.on for one in seen], numbers)]

    def _modes(self, measured: Measured) -> pl.DataFrame:
        """Work whose durations beside NCCL kernels stand apart from those alone; what loses most first."""
        frame = self._durations.rows.with_columns(
            beside=pl.col("key") // (1 << _BAR_BITS), bar=pl.col("key") % (1 << _BAR_BITS) - 1
        )
        is_beside = pl.col("beside") == 1
        means = (
            frame.group_by(_WORK)
            .agg(
                executions=pl.col("count").sum(),
                beside=pl.col("count").filter(is_beside).sum(),
                alone=pl.col("count").filter(~is_beside).sum(),
                beside_length=pl.col("length").filter(is_beside).sum(),
                alone_length=pl.col("length").filter(~is_beside).sum(),
            )
            .filter(pl.min_horizontal("beside", "alone") >= limits.MODES_COUNT.value)
            .with_columns(
                beside_mean=pl.col("beside_length") / pl.col("beside"), alone_mean=pl.col("alone_length") / pl.col("alone")
            )
            .filter(pl.col("beside_mean") >= limits.MODES_RATIO.value * pl.col("alone_mean"))
        )
        middle = ((pl.col("beside_mean") * pl.col("alone_mean")).log(2) / 2 * _BARS).floor()
        sides = (
            frame.join(means, on=_WORK, how="inner", suffix="_of_all")
            .with_columns(right=pl.when(is_beside).then(pl.col("bar") >= middle).otherwise(pl.col("bar") <= middle))
            .group_by(_WORK)
            .agg(
                of_beside=pl.col("count").filter(is_beside & pl.col("right")).sum(),
                of_alone=pl.col("count").filter(~is_beside & pl.col("right")).sum(),
            )
        )
        apart = limits.MODES_APART.value
        told = means.join(sides, on=_WORK, how="inner").filter(
            (pl.col("of_beside") >= apart * pl.col("beside")) & (pl.col("of_alone") >= apart * pl.col("alone"))
        )
        lost = (pl.col("beside_mean") - pl.col("alone_mean")) * pl.col("beside")
        return told.with_columns(lost=lost).sort("lost", _WORK, descending=[True, False])


class _Totals(Merging):
    """Count, length, first begin and last end of executions by work and a key: `rows` has the columns `work`, `key`, `begin`,
    `end`, `length`, `count`."""

    def __init__(self) -> None:
        columns = (_WORK, "key", "begin", "end", "length", "count")
        super().__init__(self._added, pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64)), _PENDING_ROWS)

    def take(self, work: Numbers, key: Numbers, begin: Numbers, end: Numbers) -> None:
        """Take in executions."""
        frame = pl.DataFrame({_WORK: work, "key": key, "begin": begin, "end": end, "length": end - begin})
        self.add(self._added(frame.with_columns(count=pl.lit(1, pl.Int64))))

    @staticmethod
    def _added(rows: pl.DataFrame) -> pl.DataFrame:
        sums = pl.col("length", "count").sum()
        return rows.group_by(_WORK, "key").agg(pl.col("begin").min(), pl.col("end").max(), sums)
