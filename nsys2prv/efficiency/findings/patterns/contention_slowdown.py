"""Contention slowdown: kernels that are slower beside NCCL kernels.

The same kernel after the same kernel of its stream most likely does the same work, so that its durations, alone and beside
NCCL kernels, can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import NONE, PARTS
from nsys2prv.efficiency.findings.device_stats import by_device, count, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import scaled_kernels
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.kernel_stats import bar_of
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import KERNEL, KERNEL_TYPES, NCCL, SweepContext, TimeChunk
from nsys2prv.errors import counted
from nsys2prv.execution.merging import MergingOnDisk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, short, time

SLOWDOWN = Threshold(
    "least ratio of the durations beside and alone (means)", 1.2, "", "sharing the GPU always costs some percent"
)
FEWEST_EXECUTIONS = Threshold("fewest executions alone, and beside NCCL kernels", 20, "", "means of fewer are chance")
SEPARATION = Threshold(
    "least part of the executions, alone and beside, on their side of the middle (geometric mean of the means)", 0.9, "0 to 1",
    "only then NCCL kernels explain the durations, and not the work",
)  # fmt: skip
LEAST_LOST = Threshold("least share lost", 0.01, "0 to 1", "less is not worth a look")

_WORK = "work"
"""A kernel after a kernel, which is taken for the same work: the values of both in one number."""
_VALUE_BITS, _BAR_BITS = 24, 10
_BARS = 8
"""Bars of a doubling, as in the histograms of kernels."""


class NcclContention:
    """Durations of kernels, alone and beside NCCL kernels. A run without NCCL kernels is not measured."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._has_nccl = event_types.NCCL_KERNEL in context.events.types
        # The kernel that began last on each row; 0: none.
        self._former: Numbers = np.zeros(len(context.events.rows.names), dtype=np.int64)
        # By work, whether beside NCCL, and bar; and by work, device and part of the run, of those beside NCCL.
        self._durations, self._places = (
            _Executions(context.folder / name if context.folder is not None else None)
            for name in ("contention_bars", "contention_places")
        )

    def update(self, chunk: TimeChunk) -> None:
        """Add the kernels that begin in a chunk."""
        if not self._has_nccl:
            return
        started = chunk.started[ON_DEVICES.name].filter(pl.col("number").is_in(KERNEL_TYPES))
        if started.is_empty():
            return
        events = self._context.events
        start, end, row, value = (started[name].to_numpy().astype(np.int64) for name in ("start", "end", "row", "value"))
        order = np.lexsort((value, end, start, row))
        start, end, row, value = start[order], end[order], row[order], value[order]
        is_first = np.concatenate([[True], row[1:] != row[:-1]])
        after = np.where(is_first, self._former[row], np.roll(value, 1))
        is_last = np.concatenate([is_first[1:], [True]])
        self._former[row[is_last]] = value[is_last]
        device = events.rows.device[row]
        activity = chunk.on_devices
        place = activity.place(device, start)
        # Several compute kernels at once are left out: together they may well be faster.
        comparable = (started["number"].to_numpy()[order] == event_types.KERNEL) & (device >= 0)
        comparable &= place >= 0
        comparable[comparable] = activity.counts[KERNEL][place[comparable]] == 1
        start, end, device, place = start[comparable], end[comparable], device[comparable], place[comparable]
        if not len(start):
            return
        work = value[comparable] << _VALUE_BITS | after[comparable]
        is_beside = activity.counts[NCCL][place] > 0
        bar = pl.Series(end - start).to_frame("length").select(bar_of(pl.col("length")) + 1).to_series().to_numpy()
        self._durations.update(work, is_beside.astype(np.int64) << _BAR_BITS | bar, start, end)
        parts = np.clip(start * PARTS // max(events.length, 1), 0, PARTS - 1)
        self._places.update(*(column[is_beside] for column in (work, device * PARTS + parts, start, end)))

    def slowed(self) -> pl.DataFrame:
        """Work whose durations beside NCCL kernels are clearly above those alone; the highest loss comes first.

        Returns
        -------
        Columns `work`, `executions`, `beside` and `alone` (executions), `beside_mean`, `alone_mean` (ns), and others.
        """
        found = pl.concat(_slowed(durations) for durations in self._durations.windows())
        return found.sort("lost", _WORK, descending=[True, False])

    def losses(self, slowed: pl.DataFrame) -> pl.DataFrame:
        """What executions of slowed work beside NCCL kernels take longer than the mean alone, by device and part of the run:
        columns as of `OccurrenceSums.frame`."""
        extra = (pl.col("length") - pl.col("alone_mean") * pl.col("count")).round().cast(pl.Int64).clip(lower_bound=0)
        costs = pl.concat(
            places.join(slowed.select(_WORK, "alone_mean"), on=_WORK, how="inner").with_columns(cost=extra)
            for places in self._places.windows()
        )
        return (
            costs.group_by(device=pl.col("key") // PARTS, part=pl.col("key") % PARTS)
            .agg(pl.col("count", "cost").sum(), pl.col("begin").min(), pl.col("end").max())
            .with_columns(top_cost="cost", top_begin="begin", top_end="end", top_row=pl.lit(NONE), top_thread=pl.lit(NONE))
            .sort("device", "part")
        )


def _slowed(durations: pl.DataFrame) -> pl.DataFrame:
    """Columns of `NcclContention.slowed`, of all durations of some work."""
    frame = durations.with_columns(beside=pl.col("key") // (1 << _BAR_BITS), bar=pl.col("key") % (1 << _BAR_BITS) - 1)
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
        .filter(pl.min_horizontal("beside", "alone") >= FEWEST_EXECUTIONS.value)
        .with_columns(
            beside_mean=pl.col("beside_length") / pl.col("beside"), alone_mean=pl.col("alone_length") / pl.col("alone")
        )
        .filter(pl.col("beside_mean") >= SLOWDOWN.value * pl.col("alone_mean"))
    )
    middle = ((pl.col("beside_mean") * pl.col("alone_mean")).log(2) / 2 * _BARS).floor()
    separated = (
        frame.join(means, on=_WORK, how="inner", suffix="_of_all")
        .with_columns(separated=pl.when(is_beside).then(pl.col("bar") >= middle).otherwise(pl.col("bar") <= middle))
        .group_by(_WORK)
        .agg(
            of_beside=pl.col("count").filter(is_beside & pl.col("separated")).sum(),
            of_alone=pl.col("count").filter(~is_beside & pl.col("separated")).sum(),
        )
    )
    least = SEPARATION.value
    slowed = means.join(separated, on=_WORK, how="inner").filter(
        (pl.col("of_beside") >= least * pl.col("beside")) & (pl.col("of_alone") >= least * pl.col("alone"))
    )
    lost = (pl.col("beside_mean") - pl.col("alone_mean")) * pl.col("beside")
    return slowed.with_columns(lost=lost)


class _Executions(MergingOnDisk):
    """Count, length, first begin and last end of executions by work and a key: `windows` have the columns `work`, `key`,
    `begin`, `end`, `length`, `count`. Many are in a folder; None: they stay in memory."""

    def __init__(self, folder: Path | None) -> None:
        columns = (_WORK, "key", "begin", "end", "length", "count")
        super().__init__(_summed, pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64)), _WORK, folder)

    def update(self, work: Numbers, key: Numbers, begin: Numbers, end: Numbers) -> None:
        """Add executions."""
        frame = pl.DataFrame({_WORK: work, "key": key, "begin": begin, "end": end, "length": end - begin})
        self.add(_summed(frame.with_columns(count=pl.lit(1, pl.Int64))))


def _summed(rows: pl.DataFrame) -> pl.DataFrame:
    sums = pl.col("length", "count").sum()
    return rows.group_by(_WORK, "key").agg(pl.col("begin").min(), pl.col("end").max(), sums)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with slowed kernels."""
    meter = evidence.meter(NcclContention)
    slowed = meter.slowed()
    if slowed.is_empty():
        return None
    devices = [
        replace(stats, rows=evidence.streams(stats.device))
        for stats in by_device(evidence.context, meter.losses(slowed))
        if evidence.costs_share(stats, LEAST_LOST)
    ]
    if not devices:
        return None
    first = slowed.row(0, named=True)
    name = evidence.kernel_name(event_types.KERNEL, first[_WORK] >> _VALUE_BITS)
    beside_share = first["beside"] / first["executions"]
    kernels = slowed.select(pl.col(_WORK) // (1 << _VALUE_BITS)).n_unique()
    text = (
        f"{counted(kernels, 'kernel')} {on_devices(devices)}: {short(name)} takes {time(first['beside_mean'])} when an NCCL "
        f"kernel runs as it starts and {time(first['alone_mean'])} otherwise ({percent(beside_share)} of "
        f"{first['executions']:,} executions are beside NCCL kernels)"
    )
    numbers = (
        Number("kernels with a slowdown", kernels),
        Number("executions beside NCCL kernels", count(devices)),
        Number("mean duration alone, of the kernel that loses most", first["alone_mean"], NANOSECONDS),
        Number("mean duration beside NCCL kernels", first["beside_mean"], NANOSECONDS),
        Number("part of its executions beside NCCL kernels", beside_share, SHARE),
    )
    return Finding(text, devices, numbers)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The slowed kernels take less by what they lose: each device's loss is shared out by their time."""
    slowed = evidence.meter(NcclContention).slowed().select(value=pl.col(_WORK) // (1 << _VALUE_BITS)).unique()
    lost = pl.DataFrame([(one.device, one.cost) for one in finding.devices], schema=["device", "lost"], orient="row")
    kernels = (
        evidence.kernels_by_device.filter(pl.col("number") == event_types.KERNEL)
        .join(slowed, on="value", how="semi")
        .join(lost, on="device", how="inner")
    )
    return Without(
        scaled_kernels(built, kernels.with_columns(factor=1 - pl.col("lost") / pl.col("total").sum().over("device")))
    )


RULE = FindingRule(
    kind="contention-slowdown",
    title="Contention slowdown: kernels are slower beside communication",
    sees="kernels that, after the same kernel of their stream, take clearly longer when an NCCL kernel runs as they start than "
    "when nothing else does",
    needs=(needs.NCCL_KERNELS,),
    cost="executions beside NCCL kernels x difference of the means",
    view="1-gpu-kernels/kernel_durations",
    advice="Overlap costs multiprocessors and bandwidth: fewer NCCL channels (NCCL_MAX_CTAS), transfers by copy engines, other "
    "points in time for collectives; compare with the time that overlap saves.",
    thresholds=(SLOWDOWN, FEWEST_EXECUTIONS, SEPARATION, LEAST_LOST),
    judge=_judge,
    without=_without,
    meters=(NcclContention,),
)
