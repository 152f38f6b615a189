"""Kernels beside communication: of each kernel after each kernel, durations alone and while an NCCL kernel runs.

The same kernel after the same kernel of its stream most likely does the same work, so that its durations can be compared.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv import events
from nsys2prv.analysis.findings import limits
from nsys2prv.analysis.findings.finding import NANOSECONDS, SHARE, Finding, Measured, Number
from nsys2prv.analysis.findings.idle import ALL_KERNELS
from nsys2prv.analysis.findings.seen import by_device, on_devices
from nsys2prv.analysis.findings.sums import NONE, Sums, part_of
from nsys2prv.analysis.intervals import Numbers
from nsys2prv.analysis.kernels import bar_of
from nsys2prv.analysis.recording import ON_DEVICES
from nsys2prv.analysis.sweep import KERNEL, NCCL, Ground, Slice
from nsys2prv.analysis.text import percent, short, time
from nsys2prv.errors import counted

_WORK = ["number", "value", "after"]
"""What is taken for the same work: a kernel after a kernel."""
_BARS = 8
"""Bars of a doubling, as in the histograms of kernels."""


class Company:
    """Durations of kernels, alone and beside NCCL kernels. Nothing is measured in a run without these."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._wanted = events.NCCL_KERNEL in ground.recording.types
        # The kernel that began last on each row.
        self._former: Numbers = np.full(len(ground.recording.rows.names), NONE, dtype=np.int64)
        self._durations = Sums((*_WORK, "beside", "bar"), ("count", "length"))
        self._places = Sums((*_WORK, "device", "part"), ("count", "cost"))

    def take(self, part: Slice) -> None:
        """Take in a stretch."""
        if not self._wanted:
            return
        begun = part.begun[ON_DEVICES.name].filter(pl.col("number").is_in(ALL_KERNELS)).sort("row", "start", "end", "value")
        if begun.is_empty():
            return
        row, value = begun["row"].to_numpy(), begun["value"].to_numpy()
        is_first = np.concatenate([[True], row[1:] != row[:-1]])
        after = np.where(is_first, self._former[row], np.roll(value, 1))
        is_last = np.concatenate([is_first[1:], [True]])
        self._former[row[is_last]] = value[is_last]
        device = self._ground.recording.rows.device[row]
        known = (begun["number"] == events.KERNEL).to_numpy() & (device >= 0)
        kernels = begun.with_columns(after=pl.Series(after), device=pl.Series(device)).filter(pl.Series(known))
        found = part.on_devices
        place = found.place(device[known], kernels["start"].to_numpy())
        computing, communicating = found.counts[KERNEL][place], found.counts[NCCL][place]
        # Several compute kernels at once are another thing: together they may well be faster.
        alone = pl.Series((computing == 1) & (place >= 0))
        length = pl.col("end") - pl.col("start")
        kernels = kernels.with_columns(
            beside=pl.Series((communicating > 0).astype(np.int64)),
            bar=bar_of(length),
            count=pl.lit(1),
            length=length,
            cost=length,
            begin="start",
            thread=pl.lit(NONE),
            part=part_of(pl.col("start"), self._ground.recording.length),
        ).filter(alone)
        self._durations.add(kernels)
        self._places.add(kernels.filter(pl.col("beside") == 1))

    def findings(self, measured: Measured) -> list[Finding]:
        """What is wrong, by these durations."""
        modes = self._modes(measured)
        if modes.is_empty():
            return []
        # What each execution beside communication takes longer than the mean alone, by device.
        places = self._places.frame().join(modes.select(*_WORK, "alone_mean"), on=_WORK, how="inner")
        extra = (pl.col("cost") - pl.col("alone_mean") * pl.col("count")).round().cast(pl.Int64).clip(lower_bound=0)
        by_place = (
            places.with_columns(cost=extra)
            .sort("top_cost", "top_begin", descending=[True, False])
            .group_by("device", "part", maintain_order=True)
            .agg(
                pl.col("count", "cost").sum(),
                pl.col("begin").min(),
                pl.col("end").max(),
                pl.col("top_cost", "top_begin", "top_end", "top_row", "top_thread").first(),
            )
            .sort("device", "part")
        )
        seen = by_device(self._ground, by_place, ("count",), place="part")
        seen = [one for one in seen if one.on.cost >= limits.MODES_SHARE.value * measured.active(one.on.device)]
        if not seen:
            return []
        first = modes.row(0, named=True)
        name = measured.kernel(first["number"], first["value"])
        lost = sum(one.on.cost for one in seen)
        executions = sum(one.on.count for one in seen)
        kernels = modes.select("number", "value").n_unique()
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
        frame = self._durations.frame()
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
        return told.with_columns(lost=lost).sort("lost", *_WORK, descending=[True, False, False, False])
