"""Sampled metrics of GPUs: means over the samples that fall inside the executions of a kernel, and means over time. A sample
belongs to every kernel that runs at its time."""

import re

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Intervals, moments_inside
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.meters.kernel_stats import KERNELS, Kernels, with_names
from nsys2prv.efficiency.meters.run_totals import bin_edges, spread
from nsys2prv.efficiency.result_tables import DEVICE, SPREAD, Column, OnPage, Table
from nsys2prv.efficiency.run_events import SAMPLES
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent

_KERNEL = ["number", "value", "device", "task"]
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
    page=OnPage("metrics", columns=("metric", "level", "name", "samples", "weighted", "maximum", "minimum",
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

_ACTIVE = r"(?i)^(GR|SMs?) active"
"""In the name of a metric that is above 0 wherever a kernel runs."""
_LONG_KERNEL = 1_000_000
"""ns that a kernel takes at least whose samples are not from before it."""
_TIME = pl.col("time_ns")
_WEIGHTED_MEAN = pl.when(_TIME.sum() > 0).then((pl.col("mean") * _TIME).sum() / _TIME.sum())

TABLES = (SAMPLED_KERNELS, SAMPLED_SUMMARY, SAMPLED_BINS)


def sampled_metrics(run: MeasuredRun) -> Measurement:
    """The tables of sampled metrics, without devices that are idle in most samples inside of long kernels: it can't be."""
    samples = run.events.rows.located(run.frame(SAMPLES)).filter(pl.col("device") >= 0)
    samples = samples.select("start", "value", "device", metric="number")
    idle = _idle_in_kernels(run, samples)
    samples = samples.join(idle, on="device", how="anti", maintain_order="left")
    devices = idle.select(run.device_names(pl.col("device")), "idle").iter_rows()
    left_out = "sampled metrics of {} are left out: {} of samples inside of kernels say that it is idle"
    warnings = [left_out.format(name, percent(part)) for name, part in devices]
    if samples.is_empty():
        return Measurement(warnings=warnings)
    edges, value = bin_edges(run), pl.col("value")
    bins = pl.Series("bin", np.searchsorted(edges[1:-1], samples["start"].to_numpy(), side="right"))
    in_bins = samples.group_by("metric", "device", bins).agg(
        samples=pl.len(), mean=value.sum() / pl.len(), minimum=value.min(), maximum=value.max()
    )
    means = _by_kernel_and_family(run, _in_kernels(run, samples)).sort("metric", "level", "name", "task", "device")
    table = _with_names(run, means).with_columns(task=run.task_names(pl.col("task")))
    summary = table.drop_nulls("mean").group_by("metric", "level", "name", maintain_order=True).agg(
        pl.col("samples").sum(), tasks=pl.len(), weighted=_WEIGHTED_MEAN, **spread(pl.col("mean"))
    )  # fmt: skip
    in_bins = _with_names(run, in_bins.sort("metric", "device", "bin"))
    return Measurement(tables={SAMPLED_BINS: in_bins, SAMPLED_KERNELS: table, SAMPLED_SUMMARY: summary}, warnings=warnings)


def _idle_in_kernels(run: MeasuredRun, samples: pl.DataFrame) -> pl.DataFrame:
    """Devices that most samples inside of long kernels call idle: `device`, and which part of them, `idle`."""
    active = [number for number, names in run.events.types.items() if re.match(_ACTIVE, names.label)]
    is_long = pl.col("number").is_in(event_types.KERNEL_TYPES) & (pl.col("end") - pl.col("start") >= _LONG_KERNEL)
    kernels = run.events.rows.located(run.operations.filter(is_long))
    sampled = samples.filter(pl.col("metric").is_in(active)).sort("device", "start")
    times = Intervals.of(*kernels.select("device", "start", "end"))
    _, moment = moments_inside(sampled["device"].to_numpy(), sampled["start"].to_numpy(), times)
    idle = sampled[np.unique(moment)].group_by("device").agg(idle=(pl.col("value") == 0).mean())
    return idle.filter(pl.col("idle") > 0.5).sort("device")


def _in_kernels(run: MeasuredRun, samples: pl.DataFrame) -> pl.DataFrame:
    """Of each metric and kernel on a device and task that has samples: columns `metric`, _KERNEL, `samples`, their `mean`, and
    the time of all executions, `time_ns`."""
    kernels = run.events.rows.located(run.operations.filter(pl.col("number").is_in(event_types.KERNEL_TYPES)))
    times = kernels.group_by(_KERNEL).agg(time_ns=(pl.col("end") - pl.col("start")).sum()).with_row_index("kernel")
    kernels = kernels.join(times, on=_KERNEL, how="left", maintain_order="left")
    executions, means = Intervals.of(*(kernels[name] for name in ("device", "start", "end"))), []
    for of_metric in samples.partition_by("metric"):
        # Of several samples of a metric at one time the first counts.
        moments = of_metric.unique(["device", "start"], keep="first", maintain_order=True).sort("device", "start")
        execution, moment = moments_inside(moments["device"].to_numpy(), moments["start"].to_numpy(), executions)
        inside = moments[moment].select("metric", "value", kernel=kernels["kernel"].gather(execution))
        means.append(inside.group_by("metric", "kernel").agg(samples=pl.len(), mean=pl.col("value").sum() / pl.len()))
    # In one order: sums of means differ in their last digits where they are added up in another.
    return pl.concat(means).join(times, on="kernel").sort("metric", *_KERNEL)


def _with_names(run: MeasuredRun, frame: pl.DataFrame) -> pl.DataFrame:
    """With names of metrics and devices."""
    labels = {number: names.label for number, names in run.events.types.items()}
    metric = pl.col("metric").replace_strict(labels, default=None, return_dtype=pl.String)
    return frame.with_columns(metric, device=run.device_names(pl.col("device")))


def _by_kernel_and_family(run: MeasuredRun, in_kernels: pl.DataFrame) -> pl.DataFrame:
    """Means by metric, task and device, of each of the kernels that take most time, and of each family."""
    kernels = KERNELS.frame(run.measured(Kernels).tables.get(KERNELS, ()))
    named = with_names(in_kernels, run.events)
    by_kernel = named.filter(pl.col("kernel").is_in(kernels["kernel"].head(MOST_KERNELS).to_list()))
    of_families = named.join(kernels.select("kernel", "family"), on="kernel", how="left", maintain_order="left")
    families = of_families.group_by("metric", "task", "device", name="family", maintain_order=True)
    by_family = families.agg(pl.col("samples", "time_ns").sum(), mean=_WEIGHTED_MEAN, level=pl.lit("family"))
    return pl.concat([by_family, by_kernel.select("*", name="kernel", level=pl.lit("kernel")).select(by_family.columns)])
