"""Sampled metrics of GPUs: means over the samples that fall inside the executions of a kernel, and means over time.

A sample belongs to every kernel that runs at its time. Few samples fall into kernels that are shorter than the sampling
interval: the number of samples shows how reliable a mean is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.kernel_stats import KERNELS, Kernels, with_names
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.meters.overlap import spread
from nsys2prv.efficiency.meters.time_bins import Bins
from nsys2prv.efficiency.result_tables import DEVICE, SPREAD, Column, Filled, OnPage, Table
from nsys2prv.efficiency.run_events import ON_DEVICES, SAMPLES
from nsys2prv.efficiency.sweep import KERNEL_TYPES, SweepContext, TimeChunk
from nsys2prv.execution.merging import Sums

_TIME_BITS = 46
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
    order=400,
    page=OnPage("metrics", cells=8_000),
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
    page=OnPage("metrics", place=1, columns=("metric", "level", "name", "samples", "weighted", "maximum", "minimum",
        "avg_max")),
)  # fmt: skip
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

TABLES = (SAMPLED_KERNELS, SAMPLED_SUMMARY, SAMPLED_BINS)


class Sampled(TableMeter):
    """Samples of all metrics, by the kernels that ran meanwhile and over time."""

    def __init__(self, context: SweepContext, bins: Bins, kernels: Kernels) -> None:
        self._context = context
        self._edges = bins.edges
        self._kernels = kernels
        self._in_kernels = Sums(_IN_KERNELS, ["metric", *_KERNEL])
        self._times = Sums(_TIMES, _KERNEL)
        self._in_bins = Sums(_IN_BINS, _BIN, smallest=["smallest"], largest=["largest"])
        self._has_samples = SAMPLES.name in context.events.collections

    def update(self, chunk: TimeChunk) -> None:
        if not self._has_samples:
            return
        rows = self._context.events.rows
        kernels = rows.located(chunk.inside[ON_DEVICES.name].filter(pl.col("number").is_in(KERNEL_TYPES)))
        self._times.add(kernels.with_columns(time=pl.col("end") - pl.col("start")))
        samples = rows.located(chunk.started[SAMPLES.name]).filter(pl.col("device") >= 0).rename({"number": "metric"})
        if not samples.is_empty():
            self._add_to_bins(samples)
            self._add_to_kernels(samples, kernels, chunk.begin)

    def _add_to_bins(self, samples: pl.DataFrame) -> None:
        place = np.searchsorted(self._edges, samples["start"].to_numpy(), side="right") - 1
        of_bins = pl.Series(np.minimum(place, len(self._edges) - 2))
        self._in_bins.add(
            samples.with_columns(bin=of_bins, samples=pl.lit(1), total="value", smallest="value", largest="value")
        )

    def _add_to_kernels(self, samples: pl.DataFrame, kernels: pl.DataFrame, begin: int) -> None:
        """Add the samples inside each kernel; times count from `begin`."""
        # All metrics of one time in one row: the samples inside a kernel are looked up once.
        wide = samples.pivot("metric", index=["device", "start"], values="value", aggregate_function="first").sort(
            "device", "start"
        )
        keys = _key(wide, "start", begin)
        first, behind = (np.searchsorted(keys, _key(kernels, edge, begin)) for edge in ("start", "end"))
        met = behind > first
        first, behind = first[met], behind[met]
        of_kernels = kernels.filter(pl.Series(met)).select(*_KERNEL)
        for values in wide.drop("device", "start"):
            sampled = values.is_not_null().to_numpy()
            total = np.concatenate([[0], np.cumsum(np.where(sampled, values.fill_null(0).to_numpy(), 0))])
            count = np.concatenate([[0], np.cumsum(sampled)])
            found = of_kernels.with_columns(
                metric=pl.lit(int(values.name)),
                total=pl.Series(total[behind] - total[first]),
                samples=pl.Series(count[behind] - count[first]),
            )
            self._in_kernels.add(found)

    def tables(self) -> Filled:
        """The tables of sampled metrics."""
        over_time = self._in_bins.rows.sort(_BIN).with_columns(
            mean=pl.col("total") / pl.col("samples"), minimum="smallest", maximum="largest"
        )
        if self._in_kernels.rows.is_empty():
            return {SAMPLED_BINS: self._named(over_time)}
        both = self._by_kernel_and_family().sort("metric", "level", "name", "task", "device")
        table = self._named(both).with_columns(task=self._context.task_names(pl.col("task")), time_ns="time")
        by_name = table.drop_nulls("mean").group_by("metric", "level", "name", maintain_order=True)
        return {
            SAMPLED_BINS: self._named(over_time),
            SAMPLED_KERNELS: table,
            SAMPLED_SUMMARY: [_summary(names, part) for names, part in by_name],
        }

    def _named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """With names of metrics and devices."""
        labels = {number: names.label for number, names in self._context.events.types.items()}
        return frame.with_columns(
            pl.col("metric").replace_strict(labels, default=None, return_dtype=pl.String),
            device=self._context.device_names(pl.col("device")),
        )

    def _by_kernel_and_family(self) -> pl.DataFrame:
        """Means by metric, task and device, of each of the kernels that take most time, and of each family."""
        kernels = KERNELS.frame(self._kernels.tables()[KERNELS])
        # In one order: sums of means differ in their last digits where they are added up in another.
        sampled = self._in_kernels.rows.filter(pl.col("samples") > 0).sort("metric", *_KERNEL)
        found = sampled.join(self._times.rows, on=_KERNEL, how="left", maintain_order="left")
        found = with_names(found, self._context.events).with_columns(mean=pl.col("total") / pl.col("samples"))
        columns = ["metric", "task", "device", "samples", "time", "mean", "level", "name"]
        shown = pl.col("kernel").is_in(kernels["kernel"].head(MOST_KERNELS).to_list())
        by_kernel = found.filter(shown).with_columns(level=pl.lit("kernel"), name="kernel")
        by_family = (
            found.join(kernels.select("kernel", "family"), on="kernel", how="left", maintain_order="left")
            .group_by("metric", "task", "device", name="family", maintain_order=True)
            .agg(
                pl.col("samples", "time").sum(),
                level=pl.lit("family"),
                mean=pl.when(pl.col("time").sum() > 0).then((pl.col("mean") * pl.col("time")).sum() / pl.col("time").sum()),
            )
        )
        return pl.concat([by_family.select(columns), by_kernel.select(columns)])


def _summary(names: tuple[object, ...], part: pl.DataFrame) -> dict[str, Any]:
    means, times = part["mean"].to_numpy(), part["time_ns"].to_numpy()
    return {
        **dict(zip(("metric", "level", "name"), names, strict=True)),
        "tasks": part.height,
        "samples": int(part["samples"].sum()),
        "weighted": float((means * times).sum() / times.sum()) if times.sum() else None,
        **spread(means),
    }


def _key(frame: pl.DataFrame, edge: str, begin: int) -> Numbers:
    # A longer chunk than 2**46 ns, 19 hours, holds few events; their times are cut to its end.
    time = np.minimum(frame[edge].to_numpy() - begin, (1 << _TIME_BITS) - 1)
    key: Numbers = frame["device"].to_numpy() << _TIME_BITS | time
    return key
