"""Drawings of the page that are not over time: durations, iterations, bandwidth, devices, clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency.outputs.page.colours import LINES
from nsys2prv.efficiency.outputs.page.plot import Plot, PlotAxis, round_numbers, time_axis
from nsys2prv.vocabulary.wording import percent, rate, short, size, time

_BAR, _SECOND_BAR = LINES[:2]
_LOGARITHMIC_FROM = 20
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
_MOST_ITERATIONS = 400
"""Of more, neighbours are drawn as one: their median, and their range."""
_MOST_LINES = 16
"""With more ranks than this the drawing has their range, and lines for those that differ most."""
_OUTLIERS = 6
"""Devices and ranks that are named."""
_FAR = 3.5
"""Distance from the median, in deviations as the median deviation gives them, of an outlier."""
_LEAST_APART = 0.01
"""Least distance of an outlier from the median, of the median."""
_DEVIATION = 1.4826
"""Of a normal distribution the standard deviation is this times the median deviation."""


def outliers(values: Sequence[float]) -> list[int]:
    """Places of values that are far from the others, the farthest first.

    >>> outliers([10.0, 10.1, 9.9, 10.0, 15.0]), outliers([1.0, 2.0])
    ([4], [])
    """
    if len(values) < 3:
        return []
    found = np.asarray(values, dtype=np.float64)
    apart = np.abs(found - np.median(found))
    least = max(_FAR * _DEVIATION * float(np.median(apart)), _LEAST_APART * abs(float(np.median(found))))
    return [int(place) for place in np.argsort(-apart, kind="stable") if apart[place] > least]


def histogram(kernel: str, bars: pl.DataFrame, modes: pl.DataFrame) -> Plot:
    """Durations of one kernel: its rows of `kernel_histograms` and `kernel_modes`; bars from the second mode on have another
    colour."""
    left, right, count = (bars[name].cast(pl.Float64).to_numpy() for name in ("from_ns", "to_ns", "count"))
    is_log = bool(left.min() > 0 and right.max() > _LOGARITHMIC_FROM * left.min())
    colours = [_BAR] * bars.height
    if modes.height > 1:
        starts = np.sort(modes["from_ns"].to_numpy())
        which = np.searchsorted(starts, left, side="right")
        colours = [_SECOND_BAR if place > 1 else _BAR for place in which]
    axis = time_axis(float(left.min()), float(right.max()), "duration", is_log=is_log)
    plot = Plot(f"Histogram of durations of {short(kernel)}", axis, PlotAxis(0, float(count.max()), "executions"), 120)
    titles = [
        f"{time(low)} to {time(high)}: {number:,.0f} executions, {time(total)} together"
        for low, high, number, total in zip(left, right, count, bars["total_ns"], strict=True)
    ]
    plot.bars(left, right, count * 0, count, colours, titles)
    return plot


def iterations(
    rows: pl.DataFrame, links: Mapping[int, tuple[str, str]] | None = None
) -> tuple[Plot, list[str], list[tuple[str, str, str]]]:
    """Length of each iteration on each rank, from `task_iterations`; ranks that differ from the others, and the legend.

    Iterations in `links` have a point that leads to a place of the page: its id, and what it is.
    """
    every = -(-(int(rows["iteration"].max() or 0) + 1) // _MOST_ITERATIONS)  # type: ignore[arg-type]
    lengths = (
        rows.group_by("task", "device", pl.col("iteration") // every * every)
        .agg(
            low=pl.col("length_ns").min(),
            high=pl.col("length_ns").max(),
            length_ns=pl.col("length_ns").cast(pl.Float64).median(),
        )
        .sort("iteration", "task", "device")
    )
    medians = lengths.group_by("task", "device", maintain_order=True).agg(pl.col("length_ns").median())
    differing = outliers(medians["length_ns"].to_list())
    far = differing[:_OUTLIERS]
    of_ranks = lengths.partition_by("task", "device", maintain_order=True)
    low, high = (float(value) for value in lengths.select(pl.col("low").min(), pl.col("high").max()).row(0))
    first, last = (float(value) for value in lengths.select(a=pl.col("iteration").min(), b=pl.col("iteration").max()).row(0))
    x = PlotAxis(first, max(last, first + 1), "iteration", named=_whole_numbers(first, last))
    plot = Plot("Length of each iteration on each rank", x, time_axis(0, high * 1.05, "length"), 180)
    over = lengths.group_by("iteration").agg(pl.col("low").min(), pl.col("high").max(), mid=pl.col("length_ns").median())
    over = over.sort("iteration")
    plot.band(over["iteration"], over["low"], over["high"], LINES[0])
    plot.line(over["iteration"], over["mid"], LINES[0], 2, "median over ranks")
    legend = [("", "median and range over ranks", LINES[0])]
    shown = far if len(of_ranks) > _MOST_LINES else list(range(len(of_ranks)))
    for place in shown:
        part = of_ranks[place]
        name = f"{part['task'][0]}, {part['device'][0]}"
        colour = LINES[1 + far.index(place) % (len(LINES) - 1)] if place in far else LINES[0]
        plot.line(part["iteration"], part["length_ns"], colour, 2 if place in far else 1, name, 1 if place in far else 0.45)
        if place in far:
            legend.append(("", name, colour))
    said = [
        f"{of_ranks[place]['task'][0]} on {of_ranks[place]['device'][0]}: median {time(medians['length_ns'][place])}"
        for place in far
    ] + _further(differing, "ranks")
    of_iterations = dict(over.select("iteration", "high").iter_rows())
    for iteration, (target, what) in (links or {}).items():
        at = iteration // every * every
        plot.link(at, of_iterations[at], target, f"{what}: iteration {iteration}, {time(of_iterations[at])}")
    usual = f"median of all {time(float(np.median(medians['length_ns'].to_numpy())))}, from {time(low)} to {time(high)}"
    return plot, [usual, *said], legend


def _whole_numbers(first: float, last: float) -> tuple[tuple[float, str], ...]:
    return tuple((number, f"{number:,.0f}") for number in round_numbers(first, last, 6) if number == int(number))


def bandwidth(rows: pl.DataFrame) -> tuple[Plot, list[tuple[str, str, str]]] | None:
    """Bus bandwidth of NCCL over the size of a message, from the table `nccl`: rows with both; None without any."""
    known = rows.filter((pl.col("size_bytes") > 0) & (pl.col("bus_bandwidth") > 0))
    if known.is_empty():
        return None
    sizes = known["size_bytes"].cast(pl.Float64).to_numpy()
    rates = known["bus_bandwidth"].to_numpy()
    low, high = float(sizes.min()) / 2, float(sizes.max()) * 2
    powers = range(int(np.floor(np.log2(low))), int(np.ceil(np.log2(high))) + 1)
    every = max(1, len(powers) // 6)
    x = PlotAxis(
        low, high, "size of a message", is_log=True, named=tuple((2.0**power, _round_size(power)) for power in powers[::every])
    )
    is_log = bool(rates.max() > _LOGARITHMIC_FROM * rates.min())
    bottom = 10.0 ** np.floor(np.log10(rates.min())) if is_log else 0.0
    y = PlotAxis(float(bottom), float(rates.max()) * (1.6 if is_log else 1.08), "GB/s", is_log=is_log, divisor=1e9)
    plot = Plot("NCCL bus bandwidth over message size", x, y, 200)
    operations = known["operation"].unique(maintain_order=True).to_list()
    legend = []
    for place, operation in enumerate(operations):
        part = known.filter(pl.col("operation") == operation)
        titles = [
            f"{operation}, {size(row['size_bytes'])}, {row['communicator']}: {rate(row['bus_bandwidth'])} on the bus, "
            f"{row['count']:,} kernels, mean {time(row['mean_ns'])}"
            for row in part.iter_rows(named=True)
        ]
        colour = LINES[place % len(LINES)]
        plot.points(part["size_bytes"], part["bus_bandwidth"], colour, titles)
        legend.append(("", operation, colour))
    return plot, legend


def _round_size(power: int) -> str:
    """A power of 2 as bytes.

    >>> _round_size(2), _round_size(10), _round_size(27)
    ('4 B', '1 KiB', '128 MiB')
    """
    if power < 0:
        return f"{2.0**power:g} B"
    step = min(power // 10, 4)
    return f"{1 << (power - 10 * step):,} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[step]}"


def devices(rows: pl.DataFrame) -> tuple[Plot, list[str]]:
    """Share of useful time of each device, in their order; outliers are named."""
    shares = [float(share) for share in rows["useful_share"].fill_null(0)]
    names = rows["device"].to_list()
    far = outliers(shares)
    high = max(shares, default=0) * 1.15 or 1
    last = len(names) - 1
    x = PlotAxis(-0.5, last + 0.5, "device", named=((0, names[0]), (last, names[-1])))
    plot = Plot("Useful time of each device", x, PlotAxis(0, high, "useful, % of the time", divisor=0.01), 140)
    places = list(range(len(names)))
    titles = [f"{name}: {percent(share)}" for name, share in zip(names, shares, strict=True)]
    usual = sorted(set(places) - set(far))
    if len(names) <= 64:
        left, right = ([place + edge for place in places] for edge in (-0.4, 0.4))
        plot.bars(left, right, [0] * len(names), shares, [_SECOND_BAR if place in far else _BAR for place in places], titles)
    else:
        plot.dots(usual, [shares[place] for place in usual], _BAR)
        named, others = far[:_OUTLIERS], far[_OUTLIERS:]
        plot.dots(others, [shares[place] for place in others], _SECOND_BAR)
        plot.points(named, [shares[place] for place in named], _SECOND_BAR, [titles[place] for place in named], 9)
    return plot, [titles[place] for place in far[:_OUTLIERS]] + _further(far, "devices")


def _further(far: Sequence[int], what: str) -> list[str]:
    """How many outliers are not named."""
    return [f"and {len(far) - _OUTLIERS:,} more {what}"] if len(far) > _OUTLIERS else []


def clocks(rows: pl.DataFrame) -> tuple[Plot, list[tuple[str, str, str]]]:
    """Remaining error of clocks over time: rows of `clock_bins`; and the colour of each host, where all have their own."""
    count = int(rows["bin"].max() or 0) + 1  # type: ignore[arg-type]
    largest = float(rows["error_ns"].abs().max() or 1)  # type: ignore[arg-type]
    of_hosts = rows.partition_by("host", maintain_order=True, as_dict=True)
    few = len(of_hosts) <= len(LINES)
    named = tuple((share / 4, f"{25 * share} %") for share in range(5))
    x = PlotAxis(0, 1, "time, from the first collective to the last", named=named)
    y = time_axis(-largest, largest, "remaining error")
    plot = Plot("Remaining error of clocks over time", x, y, 180)
    legend = []
    for place, ((host,), part) in enumerate(of_hosts.items()):
        colour = LINES[place] if few else _BAR
        errors = part["error_ns"].cast(pl.Float64).fill_null(float("nan"))
        plot.line((part["bin"] + 0.5) / count, errors, colour, 2 if few else 1, short(str(host)), 1 if few else 0.35)
        legend.append(("", str(host), colour))
    return plot, legend if few else []
