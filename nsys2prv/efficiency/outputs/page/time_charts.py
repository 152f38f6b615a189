"""Drawings over time: those of the run, on one axis that they share (zooming one zooms all), and close-ups of short parts."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nsys2prv.efficiency import closeups
from nsys2prv.efficiency.intervals import Floats, Numbers
from nsys2prv.efficiency.metrics import DEVICE_TREE
from nsys2prv.efficiency.outputs.page import plot as plots
from nsys2prv.efficiency.outputs.page.plot import Figure, Plot, PlotAxis
from nsys2prv.efficiency.result_tables import Frames
from nsys2prv.errors import counted
from nsys2prv.vocabulary.name_rules import kind_of, metric_unit
from nsys2prv.vocabulary.wording import SIZES, percent, short, size, time, unit

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
_LEAST_VISIBLE = 0.25
_LONGEST_LABEL = 22
_MEMORY = {
    "device": ("GPU memory in use", "Memory on the device that is allocated"),
    "managed": ("Managed memory", "Managed (unified) memory that is allocated; it may be on the host"),
    "host": ("Pinned host memory", "Memory on the host that processes have pinned for the device"),
}
_ACTIVITY_COLUMNS = [column for column, *_ in plots.ACTIVITIES]
_LEAST_MEMORY = 0.01
"""Share of the largest peak from which a kind of memory is drawn."""


@dataclass(frozen=True)
class Activity:
    """Activity of devices, or nodes, over time: their names; the first row of each node and its name, where rows are devices of
    several nodes; the start of each bin and the end of the last, ns; and rows x bins x ACTIVITIES, each the share of the
    bin."""

    rows: list[str]
    groups: list[tuple[int, str]]
    edges: Numbers
    shares: Floats

    @classmethod
    def of(cls, frames: Frames, by: str = "device") -> "Activity":
        """Activity of each device; by `node`, as a mean over the devices of each. Neighbouring bins are one where there are
        more cells than MOST_CELLS."""
        bins, devices, activity = frames["bins"], frames["devices"], frames["device_bins"]
        names = devices[by].unique(maintain_order=True)
        place = devices[by].replace_strict(names, range(names.len()), return_dtype=pl.Int64)
        row = activity["device"].replace_strict(devices["device"], place, return_dtype=pl.Int64).to_numpy()
        merged = max(1, min(-(-names.len() * bins.height // MOST_CELLS), bins.height // _FEWEST_BINS))
        edges = np.append(bins["begin_ns"].gather_every(merged).to_numpy(), bins["end_ns"][-1])
        times = np.zeros((names.len(), len(edges) - 1, len(plots.ACTIVITIES)))
        np.add.at(times, (row, activity["bin"].to_numpy() // merged), activity.select(_ACTIVITY_COLUMNS).to_numpy())
        nodes = devices.with_row_index().unique("node", keep="first", maintain_order=True).select("index", "node").rows()
        groups = nodes if len(nodes) > 1 and by == "device" else []
        lengths = np.maximum(np.diff(edges), 1)[None, :, None] * np.bincount(place)[:, None, None]
        return cls(names.to_list(), groups, edges, times / lengths)

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
        colours = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for *_, colour in plots.ACTIVITIES])
        busy = self.shares.sum(axis=2)
        mixed = self.shares @ colours / np.maximum(busy, 1e-12)[:, :, None]
        alpha = np.where(busy > 0, 255 * (_LEAST_VISIBLE + (1 - _LEAST_VISIBLE) * np.minimum(busy, 1)), 0)
        pixels: NDArray[np.uint8] = np.rint(np.concatenate([mixed, alpha[:, :, None]], axis=2)).astype(np.uint8)
        return pixels


class TimeCharts:
    """Drawings over time, of the tables of a run with a GPU."""

    def __init__(self, frames: Frames) -> None:
        self._frames, self._bins = frames, frames["bins"]
        self._edges = np.append(self._bins["begin_ns"].to_numpy(), self._bins["end_ns"][-1])
        self._middles = (self._edges[:-1] + self._edges[1:]) / 2
        self.axis = plots.time_axis(float(self._edges[0]), float(self._edges[-1]), "time")
        begins = frames["iterations"]["begin_ns"]
        is_few = len(begins) <= _MOST_ITERATIONS
        self._iterations = [begin for begin in begins if is_few and self._edges[0] < begin < self._edges[-1]]

    @classmethod
    def of(cls, frames: Frames) -> "TimeCharts | None":
        """Drawings of a run; None without a GPU: there is nothing that they could show."""
        return None if frames["bins"].is_empty() or frames["devices"].is_empty() else cls(frames)

    def _plot(self, title: str, y: PlotAxis, height: int) -> Plot:
        return Plot(title, self.axis, y, height, is_over_time=True)

    def activity(self) -> Figure:
        """Mean activity of devices."""
        times = self._frames["device_bins"].group_by("bin").agg(pl.col(_ACTIVITY_COLUMNS).sum())
        times = self._bins.select("bin").join(times, on="bin", how="left", maintain_order="left").fill_null(0)
        lengths = np.maximum(np.diff(self._edges), 1) * self._frames["devices"].height
        shares = times.select(_ACTIVITY_COLUMNS).to_numpy() / lengths[:, None]
        plot = self._plot("Device activity over time", PlotAxis(0, 1.02, "share of devices", named=plots.QUARTERS), 150)
        tops = np.cumsum(shares, axis=1)
        for low, high, (*_, colour) in zip((tops - shares).T, tops.T, plots.ACTIVITIES, strict=True):
            plot.steps(self._edges, low, high, colour)
        plot.rules(self._iterations)
        self._tips(plot, [name for _, name, _ in plots.ACTIVITIES], shares.tolist())
        reading = "The height of a colour is its share of the time, as a mean over all devices; the empty rest is idle time."
        colours = plots.present(plots.ACTIVITIES, self._frames["device_bins"])
        return Figure(plot, colours=colours, title="Device activity", reading=reading)

    def efficiencies(self) -> Figure:
        """The tree of the devices, a line per efficiency."""
        plot = self._plot("Efficiencies over time", PlotAxis(0, 1.02, "efficiency", named=plots.QUARTERS), 200)
        for efficiency, colour in zip(DEVICE_TREE.of_parts, cycle(plots.LINES), strict=False):
            plot.line(self._middles, self._bins[efficiency.name], colour, 1.2 if efficiency.parent else 2.5, efficiency.title)
        plot.rules(self._iterations)
        rows = self._bins.select(efficiency.name for efficiency in DEVICE_TREE.of_parts).rows()
        self._tips(plot, [efficiency.title for efficiency in DEVICE_TREE.of_parts], rows)
        reading = (
            "Each line is an efficiency of the device tree in each bin; where the first one drops, the factor that drops too "
            "is the cause."
        )
        return Figure(plot, title="Efficiencies", reading=reading)

    def heat_map(self, drawn: Activity, title: str, height: int) -> Plot:
        """A row per device or node; `page.js` reads out the cells."""
        count = len(drawn.rows)
        most = max(height // _HEIGHT_OF_LABEL, 2)
        distance = 1 if count <= most else -(-count // min(most, _LABELS))
        named = tuple((count - 0.5 - row, short(drawn.rows[row], _LONGEST_LABEL)) for row in range(0, count, distance))
        plot = self._plot(title, PlotAxis(0, count, named=named), height)
        plot.picture(drawn.pixels())
        plot.rules(self._iterations)
        return plot

    def sampled(self) -> list[Figure]:
        """Sampled metrics: the mean over devices, and from the lowest to the highest."""
        samples = pl.col("samples")
        over = self._frames["sampled_bins"].filter(samples > 0).group_by("metric", "bin").agg(
            mean=(pl.col("mean") * samples).sum() / samples.sum(), lowest=pl.col("mean").min(), highest=pl.col("mean").max()
        )  # fmt: skip
        over = over.join(self._bins.select("bin", at=pl.Series(self._middles)), on="bin").sort("at")
        figures = []
        for metric in self._frames["sampled_bins"]["metric"].unique(maintain_order=True).head(_MOST_SAMPLED):
            rows = over.filter(pl.col("metric") == metric)
            divisor, name = metric_unit(metric)
            most = 100 if name == "%" else max(1.05 * max(rows["highest"].drop_nulls(), default=0.0), divisor * 1e-9)
            plot = self._plot(f"{short(metric)} over time", PlotAxis(0, most, name, divisor=divisor), 110)
            plot.band(rows["at"], rows["lowest"], rows["highest"], plots.LINES[0])
            plot.line(rows["at"], rows["mean"], plots.LINES[0])
            figures.append(Figure(plot, title=metric))
        return figures

    def memory(self) -> list[Figure]:
        """Memory in use, of the kinds of memory that change over time and whose peak is not small beside others."""
        peaks, bins = self._frames["memory_in_use"], self._frames["memory_bins"]
        least = _LEAST_MEMORY * max(peaks["peak_bytes"].drop_nulls(), default=0)
        figures = []
        for kind, (title, reading) in _MEMORY.items():
            of_kind = peaks.filter(pl.col("memory") == kind).sort("peak_bytes", "device", descending=[True, False])
            over = bins.filter(pl.col("memory") == kind).sort("bin")
            is_constant = over.group_by("device").agg(pl.col("peak_bytes").n_unique())["peak_bytes"].max() == 1
            if of_kind.is_empty() or is_constant or of_kind["peak_bytes"][0] < least:
                continue
            device, peak, at = of_kind.select("device", "peak_bytes", "peak_at_ns").row(0)
            allocated = "What was allocated before the recording is not known."
            if before := int(of_kind["before_bytes"].sum()):
                allocated = f"Of this at least {size(before)} were allocated before the recording."
            plot = self._memory(title, over, device, peak)
            plot.points([at], [peak], plot.colours[device], [f"{device}: {size(peak)} at {time(at)}"])
            reading = f"{reading}. The peak is {size(peak)}, on {device} at {time(at)}. {allocated}"
            figures.append(Figure(plot, title=title, reading=reading))
        return figures

    def _memory(self, title: str, bins: pl.DataFrame, highest: str, peak: int) -> Plot:
        """A line per device, or where there are many, their range and the device with the highest peak."""
        divisor, name = unit(peak, SIZES)
        plot = self._plot(title, PlotAxis(0, peak * 1.08 or 1, name, divisor=divisor), 150)
        if bins["device"].n_unique() > len(plots.LINES):
            over = bins.group_by("bin").agg(low=pl.col("peak_bytes").min(), high=pl.col("peak_bytes").max()).sort("bin")
            plot.steps(self._edges, over["low"].to_numpy(), over["high"].to_numpy(), plots.GREY, 0.3)
            plot.colours["from the lowest to the highest device"] = plots.GREY
            bins = bins.filter(pl.col("device") == highest)
        # Start and end of each bin.
        steps = np.repeat(self._edges, 2)[1:-1]
        for device, colour, of_device in plots.coloured(bins, "device"):
            plot.line(steps, of_device["peak_bytes"].to_numpy().repeat(2), colour, 2, device)
        plot.rules(self._iterations)
        return plot

    def _tips(self, plot: Plot, names: Sequence[str], rows: Sequence[Sequence[float | None]]) -> None:
        """Numbers of each bin, shown under the pointer."""
        edges = self._edges.tolist()
        if len(rows) <= _MOST_TIPS:
            titles = [
                "\n".join([f"{time(begin)} to {time(end)}", *map("{} {}".format, names, map(percent, row))])
                for begin, end, row in zip(edges[:-1], edges[1:], rows, strict=True)
            ]
            plot.bars(edges[:-1], edges[1:], [0] * len(rows), [1.02] * len(rows), "transparent", titles)


def mark(plot: Plot, places: Iterable[tuple[int, str, int, int]]) -> None:
    """Mark places of findings (number, title, begin and end) in a plot over time, links to them."""
    for number, title, begin, end in places:
        plot.role = "group"
        x0, x1 = np.clip(plot.x.at([begin, end]), 0, plots.SIDE)
        plot.shapes.append(
            f'<a href="#finding-{number}" data-place="{number}" aria-label="finding {number}: {plots.text(title)}">'
            f'<rect class="place" x="{x0:.1f}" y="0" width="{max(x1 - x0, 3):.1f}" height="{plots.SIDE}">'
            f"<title>{number}. {plots.text(title)}: {time(begin)} to {time(end)}</title></rect></a>"
        )


_OF_ACTIVITY = {name: colour for name, (_, _, colour) in zip(closeups.ACTIVITIES, plots.ACTIVITIES, strict=True)}
_OF_FAMILIES = tuple(colour for colour in plots.LINES if colour not in {colour for _, _, colour in plots.ACTIVITIES[1:]})
"""Colours of families of kernels; other activities have one each."""
_LANE_HEIGHT, _FREE, _GAP = 15, 0.12, 0.5
"""Height of a lane, pixels; its share that is free; and the gap between devices as a share of it."""
_LONGEST_NAME = 44


def closeup_figures(frames: Frames) -> tuple[dict[str, Figure], dict[str, str]]:
    """Close-ups by their ids, and the legend that they share."""
    bars, legend = _with_colours(frames["closeup_bars"])
    titles = dict(frames["findings"].select("place", "title").iter_rows())
    figures = {}
    for row in frames["closeups"].iter_rows(named=True):
        title = f"{row['what'].capitalize()}, number {row['iteration']}"
        if row["what"] == closeups.FINDING:
            title = f"Finding {row['place']}, {titles[row['place']]}"
        shown = bars.filter(pl.col("closeup") == row["closeup"])
        figures[_id(row)] = Figure(_closeup_plot(row, shown, title), title=title, reading=_reading(row, shown))
    return figures, legend


def _with_colours(bars: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """Bars with their colour `fill`, and the legend: the kinds of kernels that take most time have one each."""
    kind = kind_of(pl.col("family")).fill_null("without a name")
    of_kernels = pl.col("activity") == closeups.ACTIVITIES[0]
    times = bars.filter(of_kernels).group_by(kind=kind).agg(pl.col("busy_ns").sum())
    colours = dict(zip(times.sort("busy_ns", "kind", descending=[True, False])["kind"], _OF_FAMILIES, strict=False))
    fill = pl.when(of_kernels).then(kind.replace_strict(colours, default=plots.GREY, return_dtype=pl.String))
    bars = bars.with_columns(fill=fill.otherwise(pl.col("activity").replace_strict(_OF_ACTIVITY, return_dtype=pl.String)))
    legend = {**colours, "other kernels": plots.GREY, **{name: colour for _, name, colour in plots.ACTIVITIES[1:]}}
    return bars, {name: colour for name, colour in legend.items() if colour in bars["fill"]}


def _reading(row: Mapping[str, Any], bars: pl.DataFrame) -> str:
    length, begin = time(row["end_ns"] - row["begin_ns"]), time(row["begin_ns"])
    beside = bars["device"].n_unique() - 1
    part = f"{length} from {begin} on, on {row['device']}" + (f" and {counted(beside, 'other device')}" if beside > 0 else "")
    if row["what"] == closeups.FINDING:
        part += f"; the grey part, {time(row['place_end_ns'] - row['place_begin_ns'])}, is where it costs most"
    drawn = f"{row['operations']:,} activities"
    if bars.height < row["operations"]:
        drawn += f" in {bars.height:,} bars: neighbours shorter than {time(2 * row['step_ns'])} are one"
    return f"{part}. {drawn}."


def _id(row: Mapping[str, Any]) -> str:
    return f"closeup-{row['closeup']}"


def closeup_links(frames: Frames) -> dict[int, str]:
    """By the places of findings the close-up that shows where they cost most: that of another one may show it too."""
    devices, links = set(frames["closeup_bars"].select("closeup", "device").unique().rows()), {}
    for finding in frames["findings"].drop_nulls(["worst_begin_ns", "worst_end_ns"]).iter_rows(named=True):
        for row in frames["closeups"].reverse().iter_rows(named=True):
            is_inside = row["begin_ns"] <= finding["worst_begin_ns"] and finding["worst_end_ns"] <= row["end_ns"]
            if is_inside and (row["closeup"], finding["device"]) in devices:
                links[finding["place"]] = _id(row)
    return links | {row["place"]: _id(row) for row in frames["closeups"].drop_nulls("place").iter_rows(named=True)}


def iteration_links(frames: Frames) -> dict[int, tuple[str, str]]:
    """By the numbers of iterations their close-ups: id, and what it is."""
    rows = frames["closeups"].drop_nulls("iteration")
    return {row["iteration"]: (_id(row), row["what"]) for row in rows.iter_rows(named=True)}


def _closeup_plot(closeup: Mapping[str, Any], bars: pl.DataFrame, title: str) -> Plot:
    """A lane for each device and activity, from a row of `closeups` and its `bars`; the time counts from the start of it."""
    begin, end = closeup["begin_ns"], closeup["end_ns"]
    lanes = bars.select("device", "activity").unique(maintain_order=True).rows()
    devices = list(dict.fromkeys(device for device, _ in lanes))
    tops = {lane: place + _GAP * devices.index(lane[0]) for place, lane in enumerate(lanes)}
    height = tops[lanes[-1]] + 1
    middles = [np.mean([top for (of_device, _), top in tops.items() if of_device == device]) for device in devices]
    named = tuple((height - 0.5 - middle, short(name, _LONGEST_LABEL)) for middle, name in zip(middles, devices, strict=True))
    axis = plots.time_axis(0, end - begin, "time from there")
    plot = Plot(f"Close-up: {title}", axis, PlotAxis(0, height, named=named), round(_LANE_HEIGHT * height))
    place = max(closeup["place_begin_ns"], begin) - begin, min(closeup["place_end_ns"], end) - begin
    if place != (0, end - begin):
        x0, x1 = axis.at(place)
        plot.shapes.append(f'<rect class="near" x="{x0:.1f}" y="0" width="{max(x1 - x0, 1):.1f}" height="{plots.SIDE}"/>')
    low = [height - tops[lane] - 1 + _FREE / 2 for lane in bars.select("device", "activity").rows()]
    high = [bottom + 1 - _FREE for bottom in low]
    titles = [_bar_title(row) for row in bars.iter_rows(named=True)]
    plot.bars(bars["begin_ns"] - begin, bars["end_ns"] - begin, low, high, bars["fill"].to_list(), titles)
    return plot


def _bar_title(row: Mapping[str, Any]) -> str:
    name, length = short(row["name"] or "without a name", _LONGEST_NAME), time(row["end_ns"] - row["begin_ns"])
    if row["count"] == 1:
        return f"{name}: {length}"
    return f"{row['count']:,} in {length}, {time(row['busy_ns'])} together; the longest: {name}"
