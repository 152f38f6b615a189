"""Durations of kernels: by name, by device and by family, with histograms and their modes.

All are exact: different durations of kernels are counted, and of many the counts are on disk, in the order of durations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, OnConsole, OnPage, Table
from nsys2prv.efficiency.run_events import ON_DEVICES, RunEvents
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.execution.merging import MergingOnDisk, Sums
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.kernel_families import families

BARS_PER_DOUBLING = 8
"""Bars of a histogram: each is 1/8 of a doubling wide, so modes that differ by a tenth are separate."""
SHOWN_KERNELS = 50
"""Kernels that have rows per device and a histogram: those that take most time."""

_KINDS = {event_types.KERNEL: "kernel", event_types.NCCL_KERNEL: "nccl", event_types.GRAPH_EXECUTION: "graph"}
_NAME = ["number", "value"]
_SUMS: dict[str, type[pl.DataType]] = {
    **{name: ON_DEVICES.schema[name] for name in (*_NAME, "family")},
    **dict.fromkeys(("device", "count", "total"), pl.Int64),
    "squares": pl.Float64,
    **dict.fromkeys(("shortest", "longest"), pl.Int64),
}
_COUNTS: dict[str, type[pl.DataType]] = {
    **{name: ON_DEVICES.schema[name] for name in _NAME},
    **dict.fromkeys(("device", "duration", "count"), pl.Int64),
}

# A peak is a mode when it holds enough of the executions, and the histogram falls clearly before the next one.
_LEAST_EXECUTIONS = 20
_LEAST_SHARE = 0.05
_DEEPEST_VALLEY = 0.5

FAMILIES = Table(
    "families",
    "Kernel families",
    "one family",
    (
        Column.text("family", "what its kernels do"),
        Column.count("kernels", "names of kernels in it"),
        Column.count("count", "executions"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.share("share", "of the sum of durations of all kernels"),
    ),
    when="kernels",
    order=310,
    page=OnPage("kernels", place=2),
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
        Column.count("count", "executions"),
        Column.ns("total_ns", "sum of durations"),
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
    order=320,
    page=OnPage("kernels", place=1, columns=("kernel", "family", "count", "total_ns", "share", "mean_ns", "median_ns", "p95_ns",
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
        Column.count("count", "executions"),
        Column.ns("total_ns", "sum of durations"),
        Column.mean_ns("mean_ns", "mean duration"),
        Column.ns("median_ns", "median"),
    ),
    when="kernels",
    order=330,
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
    page=OnPage("kernels", place=3),
)

TABLES = (KERNELS, FAMILIES, KERNEL_DEVICES, KERNEL_HISTOGRAMS, KERNEL_MODES)


class Kernels(TableMeter):
    """Durations of all kernels."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._sums = Sums(_SUMS, [*_NAME, "family", "device"], smallest=["shortest"], largest=["longest"])
        folder = context.folder / "durations" if context.folder is not None else None
        self._counts = MergingOnDisk(_added_counts, pl.DataFrame(schema=_COUNTS), "duration", folder)

    def update(self, chunk: TimeChunk) -> None:
        started = chunk.started[ON_DEVICES.name].filter(pl.col("number").is_in(list(_KINDS)))
        found = self._context.events.rows.located(started)
        duration = pl.col("end") - pl.col("start")
        counts = found.group_by(*_NAME, "family", "device", duration=duration).agg(count=pl.len().cast(pl.Int64))
        self._sums.add(
            counts.with_columns(
                total=pl.col("duration") * pl.col("count"),
                squares=pl.col("duration").cast(pl.Float64) ** 2 * pl.col("count"),
                shortest="duration",
                longest="duration",
            )
        )
        self._counts.add(counts.select(list(_COUNTS)))

    def tables(self) -> Filled:
        """The tables of kernels."""
        sums = self._sums.rows
        if sums.is_empty():
            return {}
        by_device = self._sums.by([*_NAME, "device"]).with_columns(mean_ns=pl.col("total") / pl.col("count"))
        by_name = self._by_name(sums, by_device)
        shown = by_name.head(SHOWN_KERNELS)
        of_shown = shown.select(*_NAME, "kernel").with_row_index("place")
        of_devices = of_shown.join(by_device, on=_NAME, how="inner")
        names = _Quantiles(by_name, _NAME, {"median_ns": 0.5, "p95_ns": 0.95})
        devices = _Quantiles(of_devices, [*_NAME, "device"], {"median_ns": 0.5})
        bars = []
        for durations in self._counts.windows():
            names.update(durations)
            durations_of_shown = durations.join(of_shown, on=_NAME, how="inner")
            devices.update(durations_of_shown)
            bars.append(_bars(durations_of_shown))
        by_name = by_name.join(names.frame(), on=_NAME, how="left", maintain_order="left")
        histograms = _histograms(pl.concat(bars))
        modes = _modes(histograms)
        counted = modes.group_by("kernel").agg(modes=pl.len())
        return {
            KERNELS: by_name.join(counted, on="kernel", how="left", maintain_order="left").with_columns(
                pl.col("modes").fill_null(1)
            ),
            FAMILIES: _families(by_name),
            KERNEL_DEVICES: of_devices.join(devices.frame(), on=[*_NAME, "device"], how="left")
            .sort("place", "device")
            .with_columns(total_ns="total", device=self._context.device_names(pl.col("device"))),
            KERNEL_HISTOGRAMS: histograms,
            KERNEL_MODES: modes.filter(pl.len().over("kernel") > 1),
        }

    def _by_name(self, sums: pl.DataFrame, by_device: pl.DataFrame) -> pl.DataFrame:
        """Columns of the table `kernels` but quantiles and `modes`, and _NAME; those that take most time first."""
        events = self._context.events
        of_families = sums.group_by(_NAME).agg(pl.col("family").drop_nulls().first())
        slowest = (
            by_device.sort("mean_ns", "device", descending=[True, False])
            .group_by(_NAME, maintain_order=True)
            .agg(
                slowest=pl.col("device").first(),
                avg_max=pl.when(pl.col("mean_ns").max() > 0).then(pl.col("mean_ns").mean() / pl.col("mean_ns").max()),
                devices=pl.len(),
            )
        )
        by_name = self._sums.by(_NAME, by_device)
        for further in (of_families, slowest):
            by_name = by_name.join(further, on=_NAME, how="left")
        by_name = with_names(by_name, events).sort("total", "kernel", descending=[True, False])
        several = pl.col("devices") > 1
        mean = pl.col("total") / pl.col("count")
        return by_name.with_columns(
            family=family_names(by_name, events),
            kind=pl.col("number").replace_strict(_KINDS, default="kernel", return_dtype=pl.String),
            total_ns="total",
            share=_share_of_all("total"),
            mean_ns=mean,
            min_ns="shortest",
            max_ns="longest",
            # Rounding can give a variance slightly below zero.
            deviation_ns=(pl.col("squares") / pl.col("count") - mean * mean).clip(lower_bound=0.0).sqrt(),
            slowest_device=pl.when(several).then(self._context.device_names(pl.col("slowest"))),
            avg_max=pl.when(several).then("avg_max"),
        )

    @property
    def by_device(self) -> pl.DataFrame:
        """Columns `number`, `value`, `device`, `count` and `total` (ns) of all kernels but NCCL's, and of graphs."""
        key = [*_NAME, "device"]
        is_counted = (pl.col("number") != event_types.NCCL_KERNEL) & (pl.col("device") >= 0)
        return self._sums.by(key).filter(is_counted).select(*key, "count", "total").sort(key)


def with_names(frame: pl.DataFrame, events: RunEvents) -> pl.DataFrame:
    """With a column `kernel`: the name of `number` and `value`."""
    return frame.with_columns(events.named(frame["number"], frame["value"]).alias("kernel"))


def family_names(by_name: pl.DataFrame, events: RunEvents) -> pl.Series:
    """Names of the families: those of the trace, else those of the rules of the package."""
    recorded = events.named(pl.repeat(event_types.KERNEL_FAMILY, by_name.height, eager=True), by_name["family"])
    is_graph = by_name["number"] == event_types.GRAPH_EXECUTION
    others = by_name["kernel"].filter(recorded.is_null() & ~is_graph)
    # To ask the rules takes a moment, and nearly always there is nothing to ask.
    by_rules = dict(families(others).select("name", "family").iter_rows()) if others.len() else {}
    rules = by_name["kernel"].replace_strict(by_rules, default=None, return_dtype=pl.String)
    name = pl.when(is_graph).then(pl.lit("CUDA graph")).otherwise(pl.coalesce(recorded, rules))
    return by_name.select(name.alias("family")).to_series()


def _added_counts(counts: pl.DataFrame) -> pl.DataFrame:
    return counts.group_by(*_NAME, "device", "duration").agg(pl.col("count").sum())


class _Quantiles:
    """Durations at quantiles of each key, by nearest rank (the lower one of two).

    Parameters
    ----------
    counts
        Of each key, once: how many durations there are (`count`).
    shares
        Each quantile, 0 to 1, by the name of its column.
    """

    def __init__(self, counts: pl.DataFrame, key: list[str], shares: Mapping[str, float]) -> None:
        self._key = key
        self._names = list(shares)
        self._shorter = counts.select(
            *key, **{name: (pl.col("count") * share).ceil() for name, share in shares.items()}, shorter=pl.lit(0, pl.Int64)
        )
        self._found = {name: [counts.select(*key, pl.lit(None, pl.Int64).alias(name)).clear()] for name in shares}

    def update(self, durations: pl.DataFrame) -> None:
        """Add durations (columns of _COUNTS), all longer than those that were added before."""
        here = durations.group_by(*self._key, "duration").agg(pl.col("count").sum()).sort("duration")
        running = here.join(self._shorter, on=self._key, how="inner", maintain_order="left").with_columns(
            until=pl.col("shorter") + pl.col("count").cum_sum().over(self._key)
        )
        for name in self._names:
            is_rank = (pl.col(name) <= pl.col("until")) & (pl.col(name) > pl.col("until") - pl.col("count"))
            self._found[name].append(running.filter(is_rank).select(*self._key, pl.col("duration").alias(name)))
        passed = here.group_by(self._key).agg(passed=pl.col("count").sum())
        self._shorter = (
            self._shorter.join(passed, on=self._key, how="left")
            .with_columns(shorter=pl.col("shorter") + pl.col("passed").fill_null(0))
            .drop("passed")
        )

    def frame(self) -> pl.DataFrame:
        """The key, and a column of each quantile."""
        found = self._shorter.select(self._key)
        for name in self._names:
            found = found.join(pl.concat(self._found[name]), on=self._key, how="left")
        return found


def bar_of(duration: pl.Expr) -> pl.Expr:
    """Number of the bar of a duration; -1 for 0."""
    position = (duration.cast(pl.Float64).clip(lower_bound=1.0).log(2) * BARS_PER_DOUBLING + 1e-9).floor().cast(pl.Int64)
    return pl.when(duration > 0).then(position).otherwise(-1)


def bar_edge(bar: Numbers) -> Numbers:
    """Shortest duration of each bar, ns."""
    return np.where(bar < 0, 0, np.ceil(np.exp2(np.maximum(bar, 0) / BARS_PER_DOUBLING) - 1e-6)).astype(np.int64)


def _bars(durations: pl.DataFrame) -> pl.DataFrame:
    """Bars of the histograms of some durations (columns of _COUNTS, `place` and `kernel`)."""
    return durations.group_by("place", "kernel", bar=bar_of(pl.col("duration"))).agg(
        total_ns=(pl.col("duration") * pl.col("count")).sum(), count=pl.col("count").sum()
    )


def _histograms(bars: pl.DataFrame) -> pl.DataFrame:
    """Columns of the table `kernel_histograms`, of bars that may be there several times."""
    bars = bars.group_by("place", "kernel", "bar").agg(pl.col("total_ns", "count").sum()).sort("place", "bar")
    bar = bars["bar"].to_numpy()
    edges = {"from_ns": bar_edge(bar), "to_ns": bar_edge(bar + 1)}
    return bars.select("kernel", "count", "total_ns", "bar").with_columns(
        *(pl.Series(name, edge, dtype=pl.Int64) for name, edge in edges.items())
    )


def _modes(histograms: pl.DataFrame) -> pl.DataFrame:
    """Peaks of each histogram that are clearly separate."""
    found: list[dict[str, Any]] = []
    # One histogram after the other: there are at most SHOWN_KERNELS.
    for (kernel,), bars in histograms.partition_by("kernel", as_dict=True, maintain_order=True).items():
        bar, count = bars["bar"].to_numpy(), bars["count"].to_numpy()
        total = bars["total_ns"].to_numpy()
        heights = np.zeros(int(bar[-1] - bar[0]) + 1)
        heights[bar - bar[0]] = count
        for place, (first, behind) in enumerate(_peaks(heights)):
            inside = (bar - bar[0] >= first) & (bar - bar[0] < behind)
            executions = int(count[inside].sum())
            highest = int(bar[inside][count[inside].argmax()])
            edges = bar_edge(np.array([bar[inside].min(), bar[inside].max() + 1, highest, highest + 1])).tolist()
            found.append(
                {
                    "kernel": kernel,
                    "mode": place,
                    "from_ns": edges[0],
                    "to_ns": edges[1],
                    "peak_ns": (edges[2] + edges[3]) // 2,
                    "count": executions,
                    "mean_ns": float(total[inside].sum() / executions),
                    "share": executions / float(count.sum()),
                }
            )
    return KERNEL_MODES.frame(found)


def _peaks(heights: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """Ranges of bars, one per mode, that cover the whole histogram: the first bar, and the one after the last."""
    smooth = np.convolve(heights, (0.25, 0.5, 0.25), mode="same")
    if heights.sum() < _LEAST_EXECUTIONS:
        return [(0, len(heights))]
    rises = np.diff(smooth, prepend=-1, append=-1)
    tops = [place for place in range(len(smooth)) if rises[place] > 0 and rises[place + 1] <= 0]
    edges = [0, *(left + int(smooth[left:right].argmin()) for left, right in itertools.pairwise(tops)), len(smooth)]
    peaks = [[edges[place], edges[place + 1]] for place in range(len(tops))]
    while len(peaks) > 1:
        worst = max(range(len(peaks) - 1), key=lambda place: _shallow(smooth, heights, peaks[place], peaks[place + 1]))
        if _shallow(smooth, heights, peaks[worst], peaks[worst + 1]) <= _DEEPEST_VALLEY:
            break
        peaks[worst : worst + 2] = [[peaks[worst][0], peaks[worst + 1][1]]]
    return [(first, behind) for first, behind in peaks]


def _shallow(smooth: np.ndarray[Any, Any], heights: np.ndarray[Any, Any], left: list[int], right: list[int]) -> float:
    """How flat the histogram is between two peaks: 1 when one of them is too small, else the valley over the lower peak."""
    least = _LEAST_SHARE * heights.sum()
    if min(heights[slice(*left)].sum(), heights[slice(*right)].sum()) < least:
        return 1.0
    lower = min(smooth[slice(*left)].max(), smooth[slice(*right)].max())
    valley = smooth[max(right[0] - 1, left[0]) : right[0] + 1].min()
    return float(valley / lower)


def _families(by_name: pl.DataFrame) -> pl.DataFrame:
    return (
        by_name.group_by("family")
        .agg(kernels=pl.len(), count=pl.col("count").sum(), total_ns=pl.col("total_ns").sum())
        .with_columns(mean_ns=pl.col("total_ns") / pl.col("count"), share=_share_of_all("total_ns"))
        .sort("total_ns", "family", descending=[True, False])
    )


def _share_of_all(total: str) -> pl.Expr:
    """Share of a column in its sum; null when that is 0."""
    return pl.when(pl.col(total).sum() > 0).then(pl.col(total) / pl.col(total).sum())
