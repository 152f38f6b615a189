"""Drawings over the time of the run, on one axis that they share: zooming one zooms all."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.efficiency.metrics import DEVICE_TREE
from nsys2prv.efficiency.outputs.page.colours import ACTIVITIES, LINES
from nsys2prv.efficiency.outputs.page.plot import SIDE, Plot, PlotAxis, text, time_axis
from nsys2prv.vocabulary.metric_units import unit_of_metric
from nsys2prv.vocabulary.wording import percent, short, size, time

EFFICIENCY_LINES = tuple(
    (one.name, one.title, LINES[place % len(LINES)], 1.2 if one.parent else 2.5)
    for place, one in enumerate(DEVICE_TREE.of_parts)
)
"""Lines over time: column of `bins`, name, colour, width."""
MOST_CELLS = 80_000
"""Cells of a heat map; of longer tables neighbouring bins are drawn as one."""
_FEWEST_BINS = 24
_HEIGHT_OF_LABEL = 12
"""Pixels of the name of a row of a map, at least."""
_LABELS = 12
"""Names of rows where not all have one."""
_MOST_TIPS = 400
"""Bins whose numbers are shown under the pointer; those of more are in the table."""
_MOST_ITERATIONS = 200
"""With more there would be a mark at each pixel."""
_LEAST_VISIBLE = 0.25
_LONGEST_LABEL = 22
_METRIC_HEIGHT, _MEMORY_HEIGHT = 110, 150
_RANGE = "#8c8c8c"
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


@dataclass(frozen=True)
class Activity:
    """Activity of devices, or nodes, over time.

    Attributes
    ----------
    rows
        Names of the devices or nodes.
    groups
        First row of each node, and its name, where rows are devices of several nodes.
    edges
        Start of each bin, ns, and end of the last.
    shares
        Rows x bins x ACTIVITIES, each the share of the bin.
    """

    rows: list[str]
    groups: list[tuple[int, str]]
    edges: NDArray[np.int64]
    shares: NDArray[np.float64]

    @classmethod
    def of(cls, bins: pl.DataFrame, device_bins: pl.DataFrame, devices: pl.DataFrame) -> Activity:
        """Activity of each device, from the tables of these names."""
        names = devices["device"].to_list()
        place = {name: number for number, name in enumerate(names)}
        lengths = (bins["end_ns"] - bins["begin_ns"]).to_numpy()
        device = device_bins["device"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
        bin_number = device_bins["bin"].to_numpy()
        shares = np.zeros((len(names), bins.height, len(ACTIVITIES)))
        for number, (column, *_) in enumerate(ACTIVITIES):
            shares[device, bin_number, number] = device_bins[column].to_numpy() / np.maximum(lengths[bin_number], 1)
        nodes = devices["node"].to_list()
        groups = [(number, node) for number, node in enumerate(nodes) if number == 0 or node != nodes[number - 1]]
        edges = np.append(bins["begin_ns"].to_numpy(), bins["end_ns"][-1])
        return cls(names, groups if len(groups) > 1 else [], edges, shares)

    def by_node(self, nodes: Sequence[str]) -> Activity:
        """Means over the devices of each node; `nodes`: that of each device."""
        names = list(dict.fromkeys(nodes))
        place = {name: number for number, name in enumerate(names)}
        of_node = np.array([place[node] for node in nodes])
        sums = np.zeros((len(names), *self.shares.shape[1:]))
        np.add.at(sums, of_node, self.shares)
        return Activity(names, [], self.edges, sums / np.bincount(of_node)[:, None, None])

    def narrowed(self) -> Activity:
        """With so few bins that it has at most MOST_CELLS cells."""
        rows, bins, _ = self.shares.shape
        merged = max(1, min(-(-rows * bins // MOST_CELLS), bins // _FEWEST_BINS))
        if merged == 1:
            return self
        starts = np.arange(0, bins, merged)
        weights = np.diff(self.edges)
        sums = np.add.reduceat(self.shares * weights[None, :, None], starts, axis=1)
        edges = np.append(self.edges[starts], self.edges[-1])
        return Activity(self.rows, self.groups, edges, sums / np.diff(edges)[None, :, None])

    def as_json(self) -> dict[str, Any]:
        """What `page.js` reads out: shares in whole percent, one byte each, rows before bins before activities."""
        # Small shares stay visible.
        whole = np.where(self.shares > 0, np.maximum(np.rint(self.shares * 100), 1), 0)
        return {
            "rows": self.rows,
            "groups": self.groups,
            "edges_ns": self.edges.tolist(),
            "percent": base64.b64encode(whole.astype(np.uint8).tobytes()).decode(),
        }

    def pixels(self) -> NDArray[np.uint8]:
        """Rows x bins x RGBA: the colour is a mixture of those of the activities, the paler the more idle time there is."""
        colours = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for *_, colour in ACTIVITIES], dtype=np.float64)
        busy = self.shares.sum(axis=2)
        mixed = self.shares @ colours / np.maximum(busy, 1e-12)[:, :, None]
        alpha = np.where(busy > 0, 255 * (_LEAST_VISIBLE + (1 - _LEAST_VISIBLE) * np.minimum(busy, 1)), 0)
        pixels: NDArray[np.uint8] = np.rint(np.concatenate([mixed, alpha[:, :, None]], axis=2)).astype(np.uint8)
        return pixels


class TimeCharts:
    """Drawings over time.

    Parameters
    ----------
    bins
        The table of this name, with at least one row.
    iterations
        The table of this name.
    """

    def __init__(self, bins: pl.DataFrame, iterations: pl.DataFrame) -> None:
        self._bins = bins
        self._edges = np.append(bins["begin_ns"].to_numpy(), bins["end_ns"][-1])
        self._middles = (self._edges[:-1] + self._edges[1:]) / 2
        self.axis = time_axis(float(self._edges[0]), float(self._edges[-1]), "time")
        begins = iterations["begin_ns"] if iterations.height <= _MOST_ITERATIONS else iterations["begin_ns"].head(0)
        self._iterations = [begin for begin in begins if self._edges[0] < begin < self._edges[-1]]

    @classmethod
    def of(cls, frames: Mapping[str, pl.DataFrame]) -> TimeCharts | None:
        """Drawings of a run; None without a GPU: there is nothing that they could show."""
        if frames["bins"].is_empty() or frames["devices"].is_empty():
            return None
        return cls(frames["bins"], frames["iterations"])

    def activity(self, shares: NDArray[np.float64]) -> Plot:
        """Mean activity of devices; `shares`: bins x ACTIVITIES."""
        plot = self._shares("Device activity over time", "share of devices", 150)
        tops = np.cumsum(shares, axis=1)
        for number, (*_, colour) in enumerate(ACTIVITIES):
            plot.steps(self._edges, tops[:, number - 1] if number else tops[:, 0] * 0, tops[:, number], colour)
        plot.rules(self._iterations, "iteration")
        self._tips(plot, [[(title, share) for (_, title, _), share in zip(ACTIVITIES, row, strict=True)] for row in shares])
        return plot

    def efficiencies(self) -> Plot:
        """The tree of the devices, a line per efficiency."""
        plot = self._shares("Efficiencies over time", "efficiency", 200)
        values = {name: self._bins[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name, *_ in EFFICIENCY_LINES}
        for name, title, colour, width in EFFICIENCY_LINES:
            plot.line(self._middles, values[name], colour, width, title)
        plot.rules(self._iterations, "iteration")
        rows = self._bins.select(name for name, *_ in EFFICIENCY_LINES).rows()
        self._tips(plot, [[(line[1], value) for line, value in zip(EFFICIENCY_LINES, row, strict=True)] for row in rows])
        return plot

    def heat_map(self, drawn: Activity, title: str, height: int) -> Plot:
        """A row per device or node; `page.js` reads out the cells."""
        count = len(drawn.rows)
        most = max(height // _HEIGHT_OF_LABEL, 2)
        every = 1 if count <= most else -(-count // min(most, _LABELS))
        named = tuple((count - 0.5 - row, short(drawn.rows[row], _LONGEST_LABEL)) for row in range(0, count, every))
        plot = Plot(title, self.axis, PlotAxis(0, count, named=named), height, is_over_time=True)
        plot.picture(drawn.narrowed().pixels())
        plot.rules(self._iterations, "iteration")
        return plot

    def place(self, plot: Plot, number: int, title: str, begin: int, end: int) -> None:
        """Mark the place of a finding, a link to it."""
        plot.role = "group"
        left, right = np.clip(self.axis.at([begin, end]), 0, SIDE)
        plot.shape(
            f'<a href="#finding-{number}" data-place="{number}" aria-label="finding {number}: {text(title)}">'
            f'<rect class="place" x="{left:.1f}" y="0" width="{max(right - left, 3):.1f}" height="{SIDE}">'
            f"<title>{number}. {text(title)}: {time(begin)} to {time(end)}</title></rect></a>"
        )

    def sampled(self, metric: str, rows: pl.DataFrame) -> Plot:
        """A sampled metric: rows of `sampled_bins` of it; the mean over devices, and from the lowest to the highest."""
        middles = pl.DataFrame({"bin": self._bins["bin"], "at": self._middles})
        mean = (pl.col("mean") * pl.col("samples")).sum() / pl.col("samples").sum()
        shown = (
            rows.filter(pl.col("samples") > 0)
            .group_by("bin")
            .agg(mean=mean, lowest=pl.col("mean").min(), highest=pl.col("mean").max())
            .join(middles, on="bin")
            .sort("at")
        )
        plot = Plot(
            f"{short(metric)} over time", self.axis, metric_axis(metric, shown["highest"]), _METRIC_HEIGHT, is_over_time=True
        )
        plot.band(shown["at"], shown["lowest"], shown["highest"], LINES[0])
        plot.line(shown["at"], shown["mean"], LINES[0])
        return plot

    def memory(self, title: str, bins: pl.DataFrame, peaks: pl.DataFrame) -> tuple[Plot, list[tuple[str, str, str]]]:
        """Memory in use of one kind: its rows of `memory_bins` and `memory_in_use`; and the legend.

        A line per device, or where there are many, their range and the device with the highest peak, which is marked.
        """
        divisor, unit = next((one for one in _SIZES if peaks["peak_bytes"].max() >= one[0]), _SIZES[-1])  # type: ignore[operator]
        most = float(peaks["peak_bytes"].max() or 0)  # type: ignore[arg-type]
        plot = Plot(title, self.axis, PlotAxis(0, most * 1.08 or 1, unit, divisor=divisor), _MEMORY_HEIGHT, is_over_time=True)
        highest = peaks.sort("peak_bytes", "device", descending=[True, False]).row(0, named=True)
        of_devices = bins.sort("bin").partition_by("device", as_dict=True, maintain_order=True)
        legend = []
        if len(of_devices) > len(LINES):
            over = bins.group_by("bin").agg(low=pl.col("peak_bytes").min(), high=pl.col("peak_bytes").max()).sort("bin")
            plot.band(self._as_steps(), over["low"].to_numpy().repeat(2), over["high"].to_numpy().repeat(2), _RANGE)
            legend.append(("", "from the lowest to the highest device", _RANGE))
            of_devices = {(highest["device"],): of_devices[highest["device"],]}
        for place, ((device,), part) in enumerate(of_devices.items()):
            colour = LINES[place]
            plot.line(self._as_steps(), part["peak_bytes"].to_numpy().repeat(2), colour, 2, str(device))
            legend.append(("", str(device), colour))
        plot.rules(self._iterations, "iteration")
        named = f"{highest['device']}: {size(most)} at {time(highest['peak_at_ns'])}"
        plot.points([highest["peak_at_ns"]], [most], LINES[list(of_devices).index((highest["device"],))], [named])
        return plot, legend

    def _as_steps(self) -> NDArray[np.int64]:
        """Start and end of each bin."""
        return np.repeat(self._edges, 2)[1:-1]

    def _shares(self, title: str, label: str, height: int) -> Plot:
        named = tuple((share / 4, f"{25 * share} %") for share in range(5))
        return Plot(title, self.axis, PlotAxis(0, 1.02, label, named=named), height, is_over_time=True)

    def _tips(self, plot: Plot, rows: Sequence[Sequence[tuple[str, float | None]]]) -> None:
        """Numbers of each bin, shown under the pointer."""
        if len(rows) > _MOST_TIPS:
            return
        titles = [
            f"{time(begin)} to {time(end)}\n" + "\n".join(f"{name} {percent(value)}" for name, value in row)
            for begin, end, row in zip(self._edges[:-1], self._edges[1:], rows, strict=True)
        ]
        plot.bars(self._edges[:-1], self._edges[1:], [0] * len(rows), [1.02] * len(rows), "transparent", titles)


def metric_axis(metric: str, values: pl.Series) -> PlotAxis:
    """The axis of a sampled metric: percentages from 0 to 100, clocks in GHz, others from 0 in what they are."""
    unit, largest = unit_of_metric(metric), float(values.max() or 0)  # type: ignore[arg-type]
    if unit == "%":
        return PlotAxis(0, 100, "%")
    divisor, name = (1e9, "GHz") if unit == "Hz" else (1e3, "GHz") if unit == "MHz" else (1, unit)
    return PlotAxis(0, max(largest * 1.05, divisor * 1e-9), name, divisor=divisor)


_MEMORY_TITLES = {
    "device": ("GPU memory in use", "Memory on the device that is allocated"),
    "managed": ("Managed memory", "Managed (unified) memory that is allocated; it may be on the host"),
    "host": ("Pinned host memory", "Memory on the host that processes have pinned for the device"),
}
_LEAST_MEMORY = 0.01
"""Share of the largest peak from which a kind of memory is drawn."""


@dataclass(frozen=True)
class MemoryPlot:
    """A drawing of memory in use: its title, what it shows with its peak, and the legend."""

    title: str
    reading: str
    plot: Plot
    legend: list[tuple[str, str, str]]


def memory_plots(over_time: TimeCharts, frames: Mapping[str, pl.DataFrame]) -> list[MemoryPlot]:
    """Drawings of memory in use: of the kinds of memory that change over time, and whose peak is not small beside others."""
    peaks, bins = frames["memory_in_use"], frames["memory_bins"]
    found = []
    for name, (title, reading) in _MEMORY_TITLES.items():
        own, over = peaks.filter(pl.col("memory") == name), bins.filter(pl.col("memory") == name)
        least = _LEAST_MEMORY * float(peaks["peak_bytes"].max() or 0)  # type: ignore[arg-type]
        is_constant = over.group_by("device").agg(pl.col("peak_bytes").n_unique())["peak_bytes"].max() == 1
        if own.is_empty() or is_constant or float(own["peak_bytes"].max()) < least:  # type: ignore[arg-type]
            continue
        plot, entries = over_time.memory(title, over, own)
        highest = own.sort("peak_bytes", "device", descending=[True, False]).row(0, named=True)
        peak = f"The peak is {size(highest['peak_bytes'])}, on {highest['device']} at {time(highest['peak_at_ns'])}."
        found.append(MemoryPlot(title, f"{reading}. {peak} {_before(own)}", plot, entries))
    return found


def _before(peaks: pl.DataFrame) -> str:
    known = int(peaks["before_bytes"].sum())
    return f"Of this at least {size(known)} were allocated before the recording." if known else (
        "What was allocated before the recording is not known."
    )  # fmt: skip
