"""Sampled metrics of GPUs: means over the samples that fall inside the executions of a kernel, and means over time.

A sample belongs to every kernel that runs at its time. Few samples fall into kernels that are shorter than the sampling
interval: the number of samples shows how reliable a mean is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Moments, Numbers
from nsys2prv.efficiency.measured_run import KERNEL_TYPES, MeasuredRun
from nsys2prv.efficiency.meter import MeasuredTables
from nsys2prv.efficiency.meters.kernel_stats import KERNELS, Kernels, with_names
from nsys2prv.efficiency.meters.run_totals import Bins, spread
from nsys2prv.efficiency.result_tables import DEVICE, SPREAD, Column, OnPage, Table
from nsys2prv.efficiency.run_events import SAMPLES

_KERNEL = ["number", "value", "device", "task"]
_BIN = ["metric", "device", "bin"]
_BLOCK = 500_000
"""Samples that are added up at a time."""
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


class Sampled(MeasuredTables):
    """Samples of all metrics, by the kernels that ran meanwhile and over time."""


def sampled_metrics(run: MeasuredRun) -> Sampled:
    """The tables of sampled metrics."""
    samples = run.frame(SAMPLES)
    device = pl.Series("device", run.events.rows.device[samples["row"].to_numpy()], dtype=pl.Int32)
    samples = samples.select("start", "value", device, metric="number").filter(pl.col("device") >= 0)
    if samples.is_empty():
        return Sampled({})
    in_bins = _with_names(run, _in_bins(samples, run.measured(Bins).edges))
    in_kernels = _in_kernels(run, samples)
    if in_kernels.is_empty():
        return Sampled({SAMPLED_BINS: in_bins})
    means = _by_kernel_and_family(run, in_kernels).sort("metric", "level", "name", "task", "device")
    table = _with_names(run, means).with_columns(task=run.task_names(pl.col("task")), time_ns="time")
    by_name = table.drop_nulls("mean").group_by("metric", "level", "name", maintain_order=True)
    summary = [_summary(names, of_name) for names, of_name in by_name]
    return Sampled({SAMPLED_BINS: in_bins, SAMPLED_KERNELS: table, SAMPLED_SUMMARY: summary})


def _in_bins(samples: pl.DataFrame, edges: Numbers) -> pl.DataFrame:
    """Columns of the table `sampled_bins`, with numbers of metrics and devices."""
    sums = []
    # Samples are in the order of time: the sums of one block are few.
    for block in samples.iter_slices(_BLOCK):
        place = np.searchsorted(edges, block["start"].to_numpy(), side="right") - 1
        bins = pl.Series("bin", np.minimum(place, len(edges) - 2), dtype=pl.Int32)
        value = pl.col("value")
        sums.append(
            block.group_by("metric", "device", bins).agg(
                samples=pl.len(), total=value.sum(), minimum=value.min(), maximum=value.max()
            )
        )
    by_bin = (
        pl.concat(sums).group_by(_BIN).agg(pl.col("samples", "total").sum(), pl.col("minimum").min(), pl.col("maximum").max())
    )
    return by_bin.with_columns(mean=pl.col("total") / pl.col("samples")).sort(_BIN)


def _in_kernels(run: MeasuredRun, samples: pl.DataFrame) -> pl.DataFrame:
    """Of each metric and kernel on a device and task that has samples: columns `metric`, _KERNEL, `samples`, their `mean`, and
    the `time` of all executions."""
    operations = run.operations.select("start", "end", "row", "number", "value").filter(pl.col("number").is_in(KERNEL_TYPES))
    kernels = run.events.rows.located(operations)
    times = kernels.group_by(_KERNEL).agg(time=(pl.col("end") - pl.col("start")).sum()).with_row_index("kernel")
    # All metrics have samples at the same moments: those inside a kernel are looked up once.
    device, start, metric, value = (samples[name].to_numpy() for name in ("device", "start", "metric", "value"))
    order = np.lexsort((start, device))
    device, start = device[order], start[order]
    is_new = np.append(True, (device[1:] != device[:-1]) | (start[1:] != start[:-1]))
    moment = np.empty(len(order), dtype=np.int32)
    moment[order] = np.cumsum(is_new) - 1
    moments = Moments.of(device[is_new], start[is_new])
    first, behind = (moments.find(kernels["device"].to_numpy(), kernels[edge].to_numpy() - 1) + 1 for edge in ("start", "end"))
    met = behind > first
    first, behind = first[met], behind[met]
    kernel = kernels.filter(met).join(times, on=_KERNEL, how="left", maintain_order="left")["kernel"].to_numpy()
    of_metrics = []
    # Of several samples of a metric at one moment the first counts: it is the last one backwards.
    by_metric = np.argsort(metric, kind="stable")
    for rows in np.split(by_metric, np.flatnonzero(np.diff(metric[by_metric])) + 1):
        values, counts = np.zeros((2, int(is_new.sum()) + 1), dtype=np.int64)
        values[moment[rows[::-1]] + 1] = value[rows[::-1]]
        counts[moment[rows] + 1] = 1
        values, counts = values.cumsum(), counts.cumsum()
        total, number = (
            np.bincount(kernel, weights=sums[behind] - sums[first], minlength=times.height) for sums in (values, counts)
        )
        sampled = np.flatnonzero(number)
        columns = {"kernel": sampled, "samples": number[sampled], "mean": total[sampled] / number[sampled]}
        of_metric = pl.DataFrame(columns).with_columns(
            pl.col("samples").cast(pl.Int64), metric=pl.lit(int(metric[rows[0]]), pl.Int64)
        )
        of_metrics.append(of_metric)
    # In one order: sums of means differ in their last digits where they are added up in another.
    return pl.concat(of_metrics).join(times.cast({"kernel": pl.Int64}), on="kernel").sort("metric", *_KERNEL)


def _with_names(run: MeasuredRun, frame: pl.DataFrame) -> pl.DataFrame:
    """With names of metrics and devices."""
    labels = {number: names.label for number, names in run.events.types.items()}
    return frame.with_columns(
        pl.col("metric").replace_strict(labels, default=None, return_dtype=pl.String),
        device=run.device_names(pl.col("device")),
    )


def _by_kernel_and_family(run: MeasuredRun, in_kernels: pl.DataFrame) -> pl.DataFrame:
    """Means by metric, task and device, of each of the kernels that take most time, and of each family."""
    kernels = KERNELS.frame(run.measured(Kernels).filled[KERNELS])
    named = with_names(in_kernels, run.events)
    columns = ["metric", "task", "device", "samples", "time", "mean", "level", "name"]
    shown = pl.col("kernel").is_in(kernels["kernel"].head(MOST_KERNELS).to_list())
    by_kernel = named.filter(shown).with_columns(level=pl.lit("kernel"), name="kernel")
    by_family = (
        named.join(kernels.select("kernel", "family"), on="kernel", how="left", maintain_order="left")
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
