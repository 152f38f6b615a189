"""Sampled metrics of GPUs: means over the samples that fall inside the executions of a kernel, and means over time.

A sample belongs to every kernel that runs at its time. Few samples fall into kernels that are shorter than the sampling
interval: the number of samples shows how reliable a mean is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.kernel_stats import KERNELS, Kernels
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.overlap import spread
from nsys2prv.efficiency.meters.time_bins import Bins
from nsys2prv.efficiency.result_tables import DEVICE, SPREAD, Column, Filled, Table
from nsys2prv.efficiency.run_events import ON_DEVICES, SAMPLES
from nsys2prv.efficiency.sweep import KERNEL_TYPES, SweepContext, TimeChunk
from nsys2prv.execution.merging import Merging

_TIME_BITS = 46
_PENDING_ROWS = 100_000
_KERNEL = ["number", "value", "device", "task"]
_TIMES: dict[str, type[pl.DataType]] = {
    **{name: ON_DEVICES.schema[name] for name in ("number", "value")},
    **dict.fromkeys(("device", "task", "time"), pl.Int64),
}
_IN_KERNELS: dict[str, type[pl.DataType]] = {
    **{name: _TIMES[name] for name in _KERNEL},
    "metric": pl.Int64,
    "total": pl.Float64,
    "samples": pl.Int64,
}
_BIN = ["metric", "device", "bin"]
_IN_BINS: dict[str, type[pl.DataType]] = {
    "metric": SAMPLES.schema["number"],
    **dict.fromkeys(("device", "bin", "samples"), pl.Int64),
    **dict.fromkeys(("total", "smallest", "largest"), SAMPLES.schema["value"]),
}
MOST_KERNELS = 200
"""Kernels that have rows: those that take most time."""

SAMPLED_KERNELS = Table(
    "sampled_kernels",
    "Sampled metrics by kernel, family and task",
    "one metric, kernel or family, task and device",
    (
        Column.text("metric", "name of the metric"),
        Column.text("level", "`kernel` or `family`"),
        Column.text("name", "kernel or family"),
        Column.text("task", "name of the task"),
        DEVICE,
        Column.count("samples", "samples that fall inside its executions"),
        Column.number("mean", "mean of these samples; of a family: of its kernels, weighted by their time"),
        Column.ns("time_ns", "sum of durations of its executions"),
    ),
    when="sampled GPU metrics",
)
SAMPLED_SUMMARY = Table(
    "sampled_summary",
    "Sampled metrics by kernel and family over tasks",
    "one metric, kernel or family",
    (
        Column.text("metric", "name of the metric"),
        Column.text("level", "`kernel` or `family`"),
        Column.text("name", "kernel or family"),
        Column.count("tasks", "tasks (and devices) with samples"),
        Column.count("samples", "samples of all of them"),
        Column.number("weighted", "mean over tasks, weighted by time"),
        *SPREAD,
    ),
    when="sampled GPU metrics",
)
SAMPLED_BINS = Table(
    "sampled_bins",
    "Sampled metrics over time",
    "one metric, device and bin",
    (
        Column.text("metric", "name of the metric"),
        DEVICE,
        Column.count("bin", "as in `bins`"),
        Column.count("samples", "samples in it"),
        Column.number("mean", "mean"),
        Column.number("minimum", "smallest"),
        Column.number("maximum", "largest"),
    ),
    when="sampled GPU metrics",
)


class Sampled(TableMeter):
    """Samples of all metrics, by the kernels that ran meanwhile and over time."""

    def __init__(self, context: SweepContext, bins: Bins, kernels: Kernels) -> None:
        self._context = context
        self._edges = bins.edges
        self._kernels = kernels
        self._in_kernels = Merging(_kernel_sums, pl.DataFrame(schema=_IN_KERNELS), _PENDING_ROWS)
        self._times = Merging(_kernel_times, pl.DataFrame(schema=_TIMES), _PENDING_ROWS)
        self._in_bins = Merging(_bin_sums, pl.DataFrame(schema=_IN_BINS), _PENDING_ROWS)
        self._has_samples = SAMPLES.name in context.events.collections

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk."""
        if not self._has_samples:
            return
        rows = self._context.events.rows
        kernels = chunk.inside[ON_DEVICES.name].filter(pl.col("number").is_in(KERNEL_TYPES))
        row = kernels["row"].to_numpy()
        kernels = kernels.with_columns(
            device=pl.Series(rows.device[row], dtype=pl.Int64), task=pl.Series(rows.task[row], dtype=pl.Int64)
        )
        self._times.add(_kernel_times(kernels.select(*_KERNEL, time=pl.col("end") - pl.col("start"))))
        samples = chunk.started[SAMPLES.name]
        device = rows.device[samples["row"].to_numpy()]
        samples = samples.select("start", "value", metric="number", device=pl.Series(device, dtype=pl.Int64))
        samples = samples.filter(pl.col("device") >= 0)
        if samples.is_empty():
            return
        place = np.searchsorted(self._edges, samples["start"].to_numpy(), side="right") - 1
        of_bins = samples.with_columns(bin=pl.Series(np.minimum(place, len(self._edges) - 2), dtype=pl.Int64))
        each = of_bins.select(*_BIN, samples=pl.lit(1, pl.Int64), total="value", smallest="value", largest="value")
        self._in_bins.add(_bin_sums(each.select(pl.col(name).cast(dtype) for name, dtype in _IN_BINS.items())))
        # All metrics of one time in one row: the samples inside a kernel are looked up once.
        wide = samples.pivot("metric", index=["device", "start"], values="value", aggregate_function="first").sort(
            "device", "start"
        )
        metrics = [name for name in wide.columns if name not in ("device", "start")]
        keys = _key(wide["device"].to_numpy(), wide["start"].to_numpy() - chunk.begin)
        first = np.searchsorted(keys, _key(kernels["device"].to_numpy(), kernels["start"].to_numpy() - chunk.begin))
        behind = np.searchsorted(keys, _key(kernels["device"].to_numpy(), kernels["end"].to_numpy() - chunk.begin))
        met = behind > first
        if not met.any():
            return
        of_kernels = kernels.filter(pl.Series(met)).select(*_KERNEL)
        for metric in metrics:
            values = wide[metric]
            sampled = values.is_not_null().to_numpy()
            total = np.concatenate([[0], np.cumsum(np.where(sampled, values.fill_null(0).to_numpy(), 0))])
            count = np.concatenate([[0], np.cumsum(sampled)])
            found = of_kernels.with_columns(
                metric=pl.lit(int(metric), pl.Int64),
                total=pl.Series(total[behind[met]] - total[first[met]], dtype=pl.Float64),
                samples=pl.Series(count[behind[met]] - count[first[met]], dtype=pl.Int64),
            )
            self._in_kernels.add(_kernel_sums(found.select(*_IN_KERNELS)))

    def tables(self) -> Filled:
        """The tables of sampled metrics."""
        in_bins = self._in_bins.rows
        if in_bins.is_empty():
            return {}
        events = self._context.events
        labels = {number: names.label for number, names in events.types.items()}
        metric = pl.col("metric").replace_strict(labels, default=None, return_dtype=pl.String)
        device, task = self._context.device_names(pl.col("device")), self._context.task_names(pl.col("task"))
        over_time = in_bins.sort(_BIN).select(
            metric,
            "bin",
            "samples",
            device=device,
            mean=pl.col("total") / pl.col("samples"),
            minimum="smallest",
            maximum="largest",
        )
        found = self._in_kernels.rows
        if found.is_empty():
            return {SAMPLED_BINS: over_time}
        kernels = KERNELS.frame(self._kernels.tables()[KERNELS])
        found = found.filter(pl.col("samples") > 0).join(self._times.rows, on=_KERNEL, how="left")
        found = found.with_columns(events.named(found["number"], found["value"]).alias("kernel"))
        named = found.join(kernels.select("kernel", "family", "total_ns"), on="kernel", how="left")
        by_kernel = named.filter(pl.col("kernel").is_in(kernels["kernel"].head(MOST_KERNELS).to_list())).select(
            "metric",
            "task",
            "device",
            "samples",
            "time",
            level=pl.lit("kernel"),
            name="kernel",
            mean=pl.col("total") / pl.col("samples"),
        )
        by_family = (
            named.with_columns(mean=pl.col("total") / pl.col("samples"))
            .group_by("metric", "task", "device", name="family")
            .agg(
                pl.col("samples", "time").sum(),
                level=pl.lit("family"),
                mean=pl.when(pl.col("time").sum() > 0).then((pl.col("mean") * pl.col("time")).sum() / pl.col("time").sum()),
            )
        )
        both = pl.concat([by_family.select(by_kernel.columns), by_kernel])
        both = both.sort("metric", "level", "name", "task", "device")
        table = both.select(
            metric,
            "level",
            "name",
            "samples",
            "mean",
            task=task,
            device=device,
            time_ns="time",
        )
        return {
            SAMPLED_BINS: over_time,
            SAMPLED_KERNELS: table,
            SAMPLED_SUMMARY: [
                _summary(names, part) for names, part in table.drop_nulls("mean").group_by(
                    "metric", "level", "name", maintain_order=True)
            ],
        }  # fmt: skip


def _summary(names: tuple[object, ...], part: pl.DataFrame) -> dict[str, Any]:
    means, times = part["mean"].to_numpy(), part["time_ns"].to_numpy()
    return {
        **dict(zip(("metric", "level", "name"), names, strict=True)),
        "tasks": part.height,
        "samples": int(part["samples"].sum()),
        "weighted": float((means * times).sum() / times.sum()) if times.sum() else None,
        **spread(means),
    }


def _key(device: Numbers, time: Numbers) -> Numbers:
    # A longer chunk than 2**46 ns, 19 hours, holds few events; their times are cut to its end.
    return device << _TIME_BITS | np.minimum(time, (1 << _TIME_BITS) - 1)


def _kernel_sums(kernels: pl.DataFrame) -> pl.DataFrame:
    return kernels.group_by("metric", *_KERNEL).agg(pl.col("total", "samples").sum()).select(*_IN_KERNELS)


def _kernel_times(kernels: pl.DataFrame) -> pl.DataFrame:
    return kernels.group_by(_KERNEL).agg(pl.col("time").sum()).select(*_TIMES)


def _bin_sums(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.group_by(_BIN).agg(pl.col("samples", "total").sum(), pl.col("smallest").min(), pl.col("largest").max())
