"""Durations of kernels: by name, by device and by family, with histograms and their modes."""

import itertools
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.result_tables import DEVICE, Column, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import RunEvents
from nsys2prv.vocabulary import event_types

BARS_PER_DOUBLING = 8
"""Bars of a histogram: each is 1/8 of a doubling wide, so modes that differ by a tenth are separate."""
SHOWN_KERNELS = 50
"""Kernels that have rows per device and a histogram: those that take most time."""

_KINDS = {event_types.KERNEL: "kernel", event_types.NCCL_KERNEL: "nccl", event_types.GRAPH_EXECUTION: "graph"}
_NAME = ["number", "value"]
_SHARE = pl.when(pl.col("total_ns").sum() > 0).then(pl.col("total_ns") / pl.col("total_ns").sum())
# By nearest rank: the lower one of two.
_MEDIAN = pl.col("duration").quantile(0.5, "equiprobable")

# A peak is a mode when it holds enough of the executions, and the histogram falls clearly before the next one.
_LEAST_EXECUTIONS = 20
_LEAST_SHARE = 0.05
_DEEPEST_VALLEY = 0.5

_EXECUTIONS = (Column.count("count", "executions"), Column.ns("total_ns", "sum of durations"))
FAMILIES = Table(
    "families",
    "Kernel families",
    "one family",
    (
        Column.text("family", "what its kernels do"),
        Column.count("kernels", "names of kernels in it"),
        *_EXECUTIONS,
        Column.mean_ns("mean_ns", "mean duration"),
        Column.share("share", "of the sum of durations of all kernels"),
    ),
    when="kernels",
    page=OnPage("kernels"),
    console=OnConsole((("family", "kernels"), "count", "total_ns", "mean_ns", "share"), spare=("count",)),
)
KERNELS = Table(
    "kernels",
    "Kernel durations",
    "one kernel name",
    (
        Column.text("kernel", "name, as in the trace"),
        Column.text("family", "what it does"),
        Column.text("kind", "`kernel`, `nccl` or `graph`"),
        *_EXECUTIONS,
        Column.share("share", "of the sum of durations of all kernels"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("min_ns", "shortest"),
        Column.ns("median_ns", "median (the lower one of two)"),
        Column.ns("p95_ns", "95th percentile (nearest rank)"),
        Column.ns("max_ns", "longest"),
        Column.mean_ns("deviation_ns", "standard deviation of the population"),
        Column.count("modes", "clearly separate peaks of the histogram; see `kernel_modes`"),
        Column.text("slowest_device", "device with the largest mean; null on one device"),
        Column.share("avg_max", "mean over devices of their mean duration / the largest of these; null on one device"),
    ),
    when="kernels",
    page=OnPage("kernels", columns=("kernel", "family", "count", "total_ns", "share", "mean_ns", "median_ns", "p95_ns",
        "max_ns", "modes", "avg_max")),
    console=OnConsole(("kernel", "count", "total_ns", "median_ns", "p95_ns", "modes", "share"), spare=("modes", "median_ns")),
)  # fmt: skip
KERNEL_DEVICES = Table(
    "kernel_devices",
    "Kernel durations by device",
    "one of the kernels that take most time, on one device",
    (
        Column.text("kernel", "name"),
        DEVICE,
        *_EXECUTIONS,
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("median_ns", "median"),
    ),
    when="kernels",
    page=OnPage("kernels", cells=8_000),
)
KERNEL_HISTOGRAMS = Table(
    "kernel_histograms",
    "Histograms of kernel durations",
    "one of the kernels that take most time, and one bar",
    (
        Column.text("kernel", "name"),
        Column.ns("from_ns", "durations from here"),
        Column.ns("to_ns", "to below here; bars are 1/8 of a doubling wide; bars without executions are left out"),
        Column.count("count", "executions"),
        Column.ns("total_ns", "sum of their durations"),
    ),
    when="kernels",
)
KERNEL_MODES = Table(
    "kernel_modes",
    "Modes of kernel durations",
    "one peak of the histogram of one kernel",
    (
        Column.text("kernel", "name"),
        Column.count("mode", "0, 1, ... from the shortest"),
        Column.ns("from_ns", "durations of the peak from here"),
        Column.ns("to_ns", "to below here"),
        Column.ns("peak_ns", "where it is highest (middle of the bar)"),
        Column.count("count", "executions"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.share("share", "of all executions of the kernel"),
    ),
    when="a kernel with two modes or more",
    page=OnPage("kernels"),
)

TABLES = (KERNELS, FAMILIES, KERNEL_DEVICES, KERNEL_HISTOGRAMS, KERNEL_MODES)


@dataclass(frozen=True)
class Kernels(Measurement):
    """Durations of all kernels but NCCL's, and of graphs, `by_device`: `number`, `value`, `device`, `count`, `total` (ns)."""

    by_device: pl.DataFrame


def kernel_durations(run: MeasuredRun) -> Kernels:
    """The tables of kernels."""
    length, duration = pl.col("end") - pl.col("start"), pl.col("duration")
    kernels = run.operations.lazy().filter(pl.col("number").is_in(list(_KINDS)))
    durations = run.events.rows.located(kernels.select(*_NAME, "row", "family", duration=length).collect())
    by_device = durations.group_by(*_NAME, "device").agg(
        count=pl.len().cast(pl.Int64), total=duration.sum(), mean_ns=duration.mean(), median_ns=_MEDIAN
    )
    is_counted = (pl.col("number") != event_types.NCCL_KERNEL) & (pl.col("device") >= 0)
    counts = by_device.filter(is_counted).select(*_NAME, "device", "count", "total").sort(*_NAME, "device")
    if durations.is_empty():
        return Kernels(counts)
    by_name = _by_name(run, durations, by_device)
    shown = by_name.head(SHOWN_KERNELS).select(*_NAME, "kernel").with_row_index("place")
    histograms = _histograms(durations.select(*_NAME, "duration").join(shown.drop("kernel"), on=_NAME), shown)
    modes = _modes(histograms)
    by_name = by_name.join(modes.group_by("kernel").agg(modes=pl.len()), on="kernel", how="left", maintain_order="left")
    of_devices = shown.join(by_device, on=_NAME, how="inner").sort("place", "device")
    families = by_name.group_by("family").agg(pl.col("count", "total_ns").sum(), kernels=pl.len())
    families = families.with_columns(mean_ns=pl.col("total_ns") / pl.col("count"), share=_SHARE)
    tables = {
        KERNELS: by_name.with_columns(pl.col("modes").fill_null(1)),
        FAMILIES: families.sort("total_ns", "family", descending=[True, False]),
        KERNEL_DEVICES: of_devices.with_columns(total_ns="total", device=run.device_names(pl.col("device"))),
        KERNEL_HISTOGRAMS: histograms,
        KERNEL_MODES: modes.filter(pl.len().over("kernel") > 1),
    }
    return Kernels(counts, tables=tables)


def _by_name(run: MeasuredRun, durations: pl.DataFrame, by_device: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `kernels` but `modes`, and _NAME; those that take most time first."""
    duration, mean = pl.col("duration"), pl.col("mean_ns")
    by_name = durations.group_by(_NAME).agg(
        pl.col("family").drop_nulls().first(),
        count=pl.len(),
        total_ns=duration.sum(),
        mean_ns=duration.mean(),
        min_ns=duration.min(),
        median_ns=_MEDIAN,
        p95_ns=duration.quantile(0.95, "equiprobable"),
        max_ns=duration.max(),
        deviation_ns=duration.std(ddof=0),
    )
    on_several = by_device.filter(pl.len().over(_NAME) > 1).sort("mean_ns", "device", descending=[True, False])
    avg_max = pl.when(mean.max() > 0).then(mean.mean() / mean.max())
    slowest = on_several.group_by(_NAME, maintain_order=True).agg(slowest=pl.col("device").first(), avg_max=avg_max)
    by_name = with_names(by_name.join(slowest, on=_NAME, how="left"), run.events)
    by_name = by_name.sort("total_ns", "kernel", descending=[True, False])
    return by_name.with_columns(
        family=family_names(by_name, run.events),
        kind=pl.col("number").replace_strict(_KINDS, default="kernel", return_dtype=pl.String),
        share=_SHARE,
        slowest_device=run.device_names(pl.col("slowest")),
    )


def with_names(frame: pl.DataFrame, events: RunEvents) -> pl.DataFrame:
    """With a column `kernel`: the name of `number` and `value`."""
    return frame.with_columns(events.named(frame["number"], frame["value"]).alias("kernel"))


def family_names(by_name: pl.DataFrame, events: RunEvents) -> pl.Series:
    """Names of the families, as in the trace; null of memory operations, which have none."""
    of_kernels = events.named(event_types.KERNEL_FAMILY, by_name["family"])
    is_graph = pl.col("number") == event_types.GRAPH_EXECUTION
    return by_name.select(family=pl.when(is_graph).then(pl.lit("CUDA graph")).otherwise(of_kernels)).to_series()


def bar_of(duration: pl.Expr) -> pl.Expr:
    """Number of the bar of a duration; -1 for 0."""
    position = (duration.cast(pl.Float64).clip(lower_bound=1.0).log(2) * BARS_PER_DOUBLING + 1e-9).floor().cast(pl.Int64)
    return pl.when(duration > 0).then(position).otherwise(-1)


def bar_edge(bar: Numbers) -> Numbers:
    """Shortest duration of each bar, ns."""
    return np.where(bar < 0, 0, np.ceil(np.exp2(np.maximum(bar, 0) / BARS_PER_DOUBLING) - 1e-6)).astype(np.int64)


def _histograms(durations: pl.DataFrame, shown: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `kernel_histograms`, and `bar`, of durations (`place`, `duration`) of the kernels that are shown
    (`place`, `kernel`)."""
    duration = pl.col("duration")
    bars = durations.group_by("place", bar=bar_of(duration)).agg(total_ns=duration.sum(), count=pl.len().cast(pl.Int64))
    bars = bars.join(shown, on="place").sort("place", "bar")
    bar = bars["bar"].to_numpy()
    return bars.select("kernel", "count", "total_ns", "bar").with_columns(from_ns=bar_edge(bar), to_ns=bar_edge(bar + 1))


def _modes(histograms: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `kernel_modes`: peaks of each histogram that are clearly separate."""
    # One histogram after the other: there are at most SHOWN_KERNELS.
    modes = [_modes_of_bars(bars) for bars in histograms.partition_by("kernel", maintain_order=True)]
    count, middle = pl.col("count"), (pl.col("from_ns") + pl.col("to_ns")) // 2
    peaks = histograms.with_columns(mode=np.concatenate(modes)).group_by("kernel", "mode", maintain_order=True).agg(
        pl.col("from_ns").first(),
        pl.col("to_ns").last(),
        peak_ns=middle.get(count.arg_max()),
        count=count.sum(),
        mean_ns=pl.col("total_ns").sum() / count.sum(),
    )  # fmt: skip
    return peaks.with_columns(share=count / count.sum().over("kernel"))


def _modes_of_bars(bars: pl.DataFrame) -> Numbers:
    """The mode that each bar of a histogram is in: 0, 1, ..."""
    place = bars["bar"].to_numpy() - bars["bar"][0]
    heights = np.zeros(int(place[-1]) + 1)
    heights[place] = bars["count"].to_numpy()
    if heights.sum() < _LEAST_EXECUTIONS:
        return np.zeros(len(place), dtype=np.int64)
    smooth = np.convolve(heights, (0.25, 0.5, 0.25), mode="same")
    rises = np.diff(smooth, prepend=-1, append=-1)
    tops = np.flatnonzero((rises[:-1] > 0) & (rises[1:] <= 0))
    valleys = (earlier + int(smooth[earlier:later].argmin()) for earlier, later in itertools.pairwise(tops))
    edges, before = np.array([0, *valleys, len(smooth)]), np.append(0, heights.cumsum())
    while len(edges) > 2:
        valley, counts, peaks = edges[1:-1], np.diff(before[edges]), np.maximum.reduceat(smooth, edges[:-1])
        # How flat it is between two peaks: the valley over the lower one, 1 where one of them is too small.
        is_small = np.minimum(counts[:-1], counts[1:]) < _LEAST_SHARE * heights.sum()
        flat = np.where(is_small, 1.0, np.minimum(smooth[valley - 1], smooth[valley]) / np.minimum(peaks[:-1], peaks[1:]))
        if flat.max() <= _DEEPEST_VALLEY:
            break
        edges = np.delete(edges, flat.argmax() + 1)
    modes: Numbers = np.searchsorted(edges[1:], place, side="right")
    return modes
