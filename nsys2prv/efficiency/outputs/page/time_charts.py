"""Drawings over time: those of the run, on one axis that they share (zooming one zooms all), and close-ups of short parts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.efficiency import closeups
from nsys2prv.efficiency.metrics import DEVICE_TREE
from nsys2prv.efficiency.outputs.page.charts import Frames, kinds_of_families
from nsys2prv.efficiency.outputs.page.plot import (
    ACTIVITIES,
    LINES,
    QUARTERS,
    SIDE,
    Figure,
    Plot,
    PlotAxis,
    activities_of,
    text,
    time_axis,
)
from nsys2prv.errors import counted
from nsys2prv.vocabulary.metric_units import unit_of_metric
from nsys2prv.vocabulary.wording import percent, short, size, time

EFFICIENCY_LINES = tuple(
    (efficiency.name, efficiency.title, LINES[place % len(LINES)], 1.2 if efficiency.parent else 2.5)
    for place, efficiency in enumerate(DEVICE_TREE.of_parts)
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
_MOST_SAMPLED = 24
"""Sampled metrics with a chart."""
_LEAST_VISIBLE = 0.25
_LONGEST_LABEL = 22
_METRIC_HEIGHT, _MEMORY_HEIGHT = 110, 150
_GREY = "#8c8c8c"
_MEMORY = {
    "device": ("GPU memory in use", "Memory on the device that is allocated"),
    "managed": ("Managed memory", "Managed (unified) memory that is allocated; it may be on the host"),
    "host": ("Pinned host memory", "Memory on the host that processes have pinned for the device"),
}
_LEAST_MEMORY = 0.01
"""Share of the largest peak from which a kind of memory is drawn."""
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
    def of(cls, frames: Frames) -> Activity:
        """Activity of each device."""
        bins, device_bins, devices = (frames[name] for name in ("bins", "device_bins", "devices"))
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
        percents = np.where(self.shares > 0, np.maximum(np.rint(self.shares * 100), 1), 0)
        return {
            "rows": self.rows,
            "groups": self.groups,
            "edges_ns": self.edges.tolist(),
            "percent": base64.b64encode(percents.astype(np.uint8).tobytes()).decode(),
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

    def activity(self, frames: Frames) -> Figure:
        """Mean activity of devices."""
        shares = Activity.of(frames).shares.mean(axis=0)
        plot = self._of_shares("Device activity over time", "share of devices", 150)
        tops = np.cumsum(shares, axis=1)
        for number, (*_, colour) in enumerate(ACTIVITIES):
            plot.steps(self._edges, tops[:, number - 1] if number else tops[:, 0] * 0, tops[:, number], colour)
        plot.rules(self._iterations, "iteration")
        self._tips(plot, [name for _, name, _ in ACTIVITIES], shares.tolist())
        reading = "The height of a colour is its share of the time, as a mean over all devices; the empty rest is idle time."
        return Figure(plot, legend=activities_of(frames["device_bins"]), title="Device activity", reading=reading)

    def efficiencies(self) -> Figure:
        """The tree of the devices, a line per efficiency."""
        plot = self._of_shares("Efficiencies over time", "efficiency", 200)
        for name, title, colour, width in EFFICIENCY_LINES:
            values = self._bins[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            plot.line(self._middles, values, colour, width, title)
        plot.rules(self._iterations, "iteration")
        rows = self._bins.select(name for name, *_ in EFFICIENCY_LINES).rows()
        self._tips(plot, [title for _, title, *_ in EFFICIENCY_LINES], rows)
        reading = (
            "Each line is an efficiency of the device tree in each bin; where the first one drops, the factor that drops too "
            "is the cause."
        )
        return Figure(plot, legend=EFFICIENCY_LINES, title="Efficiencies", reading=reading)

    def heat_map(self, drawn: Activity, title: str, height: int) -> Plot:
        """A row per device or node; `page.js` reads out the cells."""
        count = len(drawn.rows)
        most = max(height // _HEIGHT_OF_LABEL, 2)
        distance = 1 if count <= most else -(-count // min(most, _LABELS))
        named = tuple((count - 0.5 - row, short(drawn.rows[row], _LONGEST_LABEL)) for row in range(0, count, distance))
        plot = Plot(title, self.axis, PlotAxis(0, count, named=named), height, is_over_time=True)
        plot.picture(drawn.narrowed().pixels())
        plot.rules(self._iterations, "iteration")
        return plot

    def place(self, plot: Plot, number: int, title: str, begin: int, end: int) -> None:
        """Mark the place of a finding, a link to it."""
        plot.role = "group"
        x0, x1 = np.clip(self.axis.at([begin, end]), 0, SIDE)
        plot.shapes.append(
            f'<a href="#finding-{number}" data-place="{number}" aria-label="finding {number}: {text(title)}">'
            f'<rect class="place" x="{x0:.1f}" y="0" width="{max(x1 - x0, 3):.1f}" height="{SIDE}">'
            f"<title>{number}. {text(title)}: {time(begin)} to {time(end)}</title></rect></a>"
        )

    def sampled(self, frames: Frames) -> list[Figure]:
        """Sampled metrics: the mean over devices, and from the lowest to the highest."""
        figures = []
        by_metric = frames["sampled_bins"].filter(pl.col("samples") > 0)
        for metric in frames["sampled_bins"]["metric"].unique(maintain_order=True).head(_MOST_SAMPLED):
            rows = (
                by_metric.filter(pl.col("metric") == metric)
                .group_by("bin")
                .agg(
                    mean=(pl.col("mean") * pl.col("samples")).sum() / pl.col("samples").sum(),
                    lowest=pl.col("mean").min(),
                    highest=pl.col("mean").max(),
                )
                .join(pl.DataFrame({"bin": self._bins["bin"], "at": self._middles}), on="bin")
                .sort("at")
            )
            axis = metric_axis(metric, rows["highest"])
            plot = Plot(f"{short(metric)} over time", self.axis, axis, _METRIC_HEIGHT, is_over_time=True)
            plot.band(rows["at"], rows["lowest"], rows["highest"], LINES[0])
            plot.line(rows["at"], rows["mean"], LINES[0])
            figures.append(Figure(plot, title=metric))
        return figures

    def memory(self, frames: Frames) -> list[Figure]:
        """Memory in use, of the kinds of memory that change over time and whose peak is not small beside others."""
        peaks, bins = frames["memory_in_use"], frames["memory_bins"]
        least = _LEAST_MEMORY * float(peaks["peak_bytes"].max() or 0)  # type: ignore[arg-type]
        figures = []
        for kind, (title, reading) in _MEMORY.items():
            of_kind = peaks.filter(pl.col("memory") == kind).sort("peak_bytes", "device", descending=[True, False])
            over = bins.filter(pl.col("memory") == kind)
            is_constant = over.group_by("device").agg(pl.col("peak_bytes").n_unique())["peak_bytes"].max() == 1
            if of_kind.is_empty() or is_constant or of_kind["peak_bytes"][0] < least:
                continue
            highest = of_kind.row(0, named=True)
            plot, entries = self._memory(title, over, highest)
            peak = f"The peak is {size(highest['peak_bytes'])}, on {highest['device']} at {time(highest['peak_at_ns'])}."
            before = int(of_kind["before_bytes"].sum())
            unknown = "What was allocated before the recording is not known."
            allocated = f"Of this at least {size(before)} were allocated before the recording." if before else unknown
            figures.append(Figure(plot, legend=entries, title=title, reading=f"{reading}. {peak} {allocated}"))
        return figures

    def _memory(self, title: str, bins: pl.DataFrame, highest: Mapping[str, Any]) -> tuple[Plot, list[tuple[str, str, str]]]:
        """A line per device, or where there are many, their range and the device with the highest peak, which is marked."""
        most = float(highest["peak_bytes"])
        divisor, unit = next((entry for entry in _SIZES if most >= entry[0]), _SIZES[-1])
        plot = Plot(title, self.axis, PlotAxis(0, most * 1.08 or 1, unit, divisor=divisor), _MEMORY_HEIGHT, is_over_time=True)
        of_devices = bins.sort("bin").partition_by("device", as_dict=True, maintain_order=True)
        # Start and end of each bin.
        steps = np.repeat(self._edges, 2)[1:-1]
        entries = []
        if len(of_devices) > len(LINES):
            over = bins.group_by("bin").agg(low=pl.col("peak_bytes").min(), high=pl.col("peak_bytes").max()).sort("bin")
            plot.band(steps, over["low"].to_numpy().repeat(2), over["high"].to_numpy().repeat(2), _GREY)
            entries.append(("", "from the lowest to the highest device", _GREY))
            of_devices = {(highest["device"],): of_devices[highest["device"],]}
        for place, ((device,), of_device) in enumerate(of_devices.items()):
            plot.line(steps, of_device["peak_bytes"].to_numpy().repeat(2), LINES[place], 2, str(device))
            entries.append(("", str(device), LINES[place]))
        plot.rules(self._iterations, "iteration")
        named = f"{highest['device']}: {size(most)} at {time(highest['peak_at_ns'])}"
        plot.points([highest["peak_at_ns"]], [most], LINES[list(of_devices).index((highest["device"],))], [named])
        return plot, entries

    def _of_shares(self, title: str, label: str, height: int) -> Plot:
        return Plot(title, self.axis, PlotAxis(0, 1.02, label, named=QUARTERS), height, is_over_time=True)

    def _tips(self, plot: Plot, names: Sequence[str], rows: Sequence[Sequence[float | None]]) -> None:
        """Numbers of each bin, shown under the pointer."""
        if len(rows) > _MOST_TIPS:
            return
        titles = [
            "\n".join(
                [f"{time(begin)} to {time(end)}", *(f"{name} {percent(value)}" for name, value in zip(names, row, strict=True))]
            )
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


# -- close-ups ------------------------------------------------------------------------------------------------------------

_OF_ACTIVITY = {name: colour for name, (_, _, colour) in zip(closeups.ACTIVITIES, ACTIVITIES, strict=True)}
_WITH_ONE_COLOUR = closeups.ACTIVITIES[1:]
"""Activities that have one colour each; kernels have those of their families."""
_OF_FAMILIES = tuple(colour for colour in LINES if colour not in {_OF_ACTIVITY[name] for name in _WITH_ONE_COLOUR})
_LANE_HEIGHT, _FREE, _GAP = 15, 0.12, 0.5
"""Height of a lane, pixels; its share that is free; and the gap between devices as a share of it."""
_LONGEST_NAME = 44


def closeup_figures(frames: Frames) -> tuple[dict[str, Figure], Figure]:
    """Close-ups by their ids, and the legend that they share."""
    bars = _with_kinds(frames["closeup_bars"])
    colours = _kernel_colours(bars)
    titles = dict(frames["findings"].select("place", "title").iter_rows())
    figures = {}
    for row in frames["closeups"].iter_rows(named=True):
        is_finding = row["what"] == closeups.FINDING
        title = f"Finding {row['place']}, {titles[row['place']]}" if is_finding else (
            f"{row['what'].capitalize()}, number {row['iteration']}"
        )  # fmt: skip
        shown = bars.filter(pl.col("closeup") == row["closeup"])
        plot = _closeup_plot(row, shown, colours, f"Close-up: {title}")
        figures[_id(row)] = Figure(plot, title=title, reading=_reading(row, shown))
    return figures, Figure(legend=_closeup_entries(bars, colours))


def _reading(row: Mapping[str, Any], bars: pl.DataFrame) -> str:
    length, begin = time(row["end_ns"] - row["begin_ns"]), time(row["begin_ns"])
    place = time(row["place_end_ns"] - row["place_begin_ns"])
    beside = bars["device"].n_unique() - 1
    where = f"{row['device']} and {counted(beside, 'other device')}" if beside > 0 else row["device"]
    part = f"{length} from {begin} on, on {where}"
    if row["what"] == closeups.FINDING:
        part += f"; the grey part, {place}, is where it costs most"
    drawn = f"{row['operations']:,} activities"
    if bars.height < row["operations"]:
        drawn += f" in {bars.height:,} bars: neighbours shorter than {time(2 * row['step_ns'])} are one"
    return f"{part}. {drawn}."


def _id(row: Mapping[str, Any]) -> str:
    return f"closeup-{row['closeup']}"


def closeup_links(frames: Frames) -> dict[int, str]:
    """By the places of findings the close-up that shows where they cost most: that of another one may show it too."""
    links = {}
    devices = set(frames["closeup_bars"].select("closeup", "device").unique().rows())
    for finding in frames["findings"].iter_rows(named=True):
        begin, end = finding["worst_begin_ns"], finding["worst_end_ns"]
        for row in frames["closeups"].iter_rows(named=True) if begin is not None and end is not None else ():
            is_inside = row["begin_ns"] <= begin and end <= row["end_ns"] and (row["closeup"], finding["device"]) in devices
            if is_inside or row["place"] == finding["place"]:
                links[finding["place"]] = _id(row)
                break
    return links


def iteration_links(frames: Frames) -> dict[int, tuple[str, str]]:
    """By the numbers of iterations their close-ups: id, and what it is."""
    rows = frames["closeups"].filter(pl.col("iteration").is_not_null())
    return {row["iteration"]: (_id(row), row["what"]) for row in rows.iter_rows(named=True)}


def _with_kinds(bars: pl.DataFrame) -> pl.DataFrame:
    """With the column `kind` of kernels other than NCCL's: their family without details."""
    kinds = kinds_of_families(bars["family"].drop_nulls().unique())
    kind = pl.col("family").replace_strict(kinds, default="without a name", return_dtype=pl.String)
    return bars.with_columns(kind=pl.when(~pl.col("activity").is_in(_WITH_ONE_COLOUR)).then(kind))


def _kernel_colours(bars: pl.DataFrame) -> dict[str, str]:
    """Colours of the kinds of kernels that take most time; all others have one together."""
    times = bars.drop_nulls("kind").group_by("kind").agg(pl.col("busy_ns").sum())
    return dict(zip(times.sort("busy_ns", "kind", descending=[True, False])["kind"], _OF_FAMILIES, strict=False))


def _closeup_entries(bars: pl.DataFrame, colours: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Names of the colours that occur."""
    entries = [("", name, colour) for name, colour in colours.items()]
    if set(bars["kind"].drop_nulls()) - set(colours):
        entries.append(("", "other kernels", _GREY))
    titles = {name: title for name, (_, title, _) in zip(closeups.ACTIVITIES, ACTIVITIES, strict=True)}
    return entries + [("", titles[name], _OF_ACTIVITY[name]) for name in _WITH_ONE_COLOUR if name in bars["activity"]]


def _closeup_plot(closeup: Mapping[str, Any], bars: pl.DataFrame, colours: Mapping[str, str], title: str) -> Plot:
    """A lane for each device and activity; the time counts from the start of the close-up.

    Parameters
    ----------
    closeup
        A row of `closeups`.
    bars
        Its rows of `closeup_bars`, with their `kind`.
    colours
        Of kinds of kernels.
    """
    begin, end = closeup["begin_ns"], closeup["end_ns"]
    lanes = set(bars.select("device", "activity").rows())
    tops: dict[tuple[str, str], float] = {}
    middles = []
    for number, device in enumerate(bars["device"].unique(maintain_order=True)):
        activities = [activity for activity in closeups.ACTIVITIES if (device, activity) in lanes]
        first = len(tops) + _GAP * number
        tops |= {(device, activity): first + place for place, activity in enumerate(activities)}
        middles.append((first + len(activities) / 2, short(device, _LONGEST_LABEL)))
    height = max(tops.values()) + 1
    axis = time_axis(0, end - begin, "time from there")
    named = tuple((height - middle, name) for middle, name in middles)
    plot = Plot(title, axis, PlotAxis(0, height, named=named), round(_LANE_HEIGHT * height))
    place = max(closeup["place_begin_ns"], begin) - begin, min(closeup["place_end_ns"], end) - begin
    if place != (0, end - begin):
        x0, x1 = axis.at(place)
        plot.shapes.append(f'<rect class="near" x="{x0:.1f}" y="0" width="{max(x1 - x0, 1):.1f}" height="{SIDE}"/>')
    rows = bars.select("activity", "kind").rows()
    fills = [_OF_ACTIVITY[activity] if kind is None else colours.get(kind, _GREY) for activity, kind in rows]
    low = [height - tops[row] - 1 + _FREE / 2 for row in bars.select("device", "activity").rows()]
    high = [bottom + 1 - _FREE for bottom in low]
    titles = [_bar_title(row) for row in bars.iter_rows(named=True)]
    plot.bars(bars["begin_ns"] - begin, bars["end_ns"] - begin, low, high, fills, titles)
    return plot


def _bar_title(row: Mapping[str, Any]) -> str:
    name, length = short(row["name"] or "without a name", _LONGEST_NAME), time(row["end_ns"] - row["begin_ns"])
    if row["count"] == 1:
        return f"{name}: {length}"
    return f"{row['count']:,} in {length}, {time(row['busy_ns'])} together; the longest: {name}"
