"""Charts of the page, as Bokeh models. `page.js` gives them the colours of the scheme, light or dark, and the paper's."""

# Bokeh: BSD licence, released for more than ten years; its wheel carries a script (1.3 MB) that works without a network, draws
# heat maps of arrays packed as bytes, and can be zoomed. plotly's script (4.6 MB) alone nearly fills the page, and Vega's
# takes each cell of a heat map as an object.

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LayoutDOM,
    LinearColorMapper,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    Tool,
    WheelZoomTool,
)
from bokeh.models.tools import BoxZoomTool
from bokeh.plotting import figure
from bokeh.util.paths import bokehjs_path
from numpy.typing import NDArray

ACTIVITIES: tuple[tuple[str, str, str], ...] = (
    ("kernels_ns", "kernels", "#3b7dd8"),
    ("nccl_ns", "NCCL", "#e8930c"),
    ("memory_ns", "copies and memsets", "#1a9e77"),
)
"""What runs on a device: column of `device_bins`, name, colour. All can be told apart with any kind of sight."""

_EFFICIENCIES: tuple[tuple[str, str, str, int], ...] = (
    ("device_parallel_efficiency", "Device Parallel Efficiency", "#3b7dd8", 3),
    ("load_balance", "Load Balance", "#e8930c", 1),
    ("communication_efficiency", "Communication Efficiency", "#1a9e77", 1),
    ("orchestration_efficiency", "Orchestration Efficiency", "#b05cc6", 1),
)
_BAR, _SECOND_BAR = "#3b7dd8", "#e8930c"
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))

_FINE_STEPS, _COARSE_STEPS = 16, 8
_CELLS_IN_FINE_STEPS = 100_000
"""A cell of the heat map tells shares in sixteenths, of larger maps in eighths, which fit a byte."""
_LEAST_VISIBLE = 0.25
"""Opacity of the smallest share."""
_ROWS_WITH_LABELS = 40
_ROW_HEIGHT, _LEAST_ROW_HEIGHT, _HEIGHT_OF_MANY_ROWS = 18, 1.2, 720
_LEFT = 150
"""Width of the labels at the left, pixels: the same for all charts over time, so that they stand below each other."""
_HOSTS_WITH_COLOURS = 8
_LINES = ("#3b7dd8", "#e8930c", "#1a9e77", "#b05cc6", "#d1495b", "#7f8c2b", "#0f8ea8", "#8d6e63")
_LOGARITHMIC_FROM = 20
"""Ratio of the longest to the shortest duration from which a histogram has a logarithmic axis."""


def script() -> str:
    """BokehJS, with its licence at its head."""
    return (Path(bokehjs_path()) / "js" / "bokeh.min.js").read_text(encoding="utf-8").replace("\r\n", "\n")


def item(chart: LayoutDOM, target: str) -> dict[str, Any]:
    """What `Bokeh.embed.embed_item` takes; the same chart gives the same text."""
    packed: dict[str, Any] = dict(json_item(chart, target))
    packed["root_id"] = str(packed["root_id"])
    return packed


def over_time(bins: pl.DataFrame, device_bins: pl.DataFrame, devices: pl.DataFrame, *, by_node: bool) -> LayoutDOM:
    """What devices do, the efficiencies, and the heat map, below each other on one axis of time.

    Parameters
    ----------
    bins, device_bins, devices
        Tables of these names.
    by_node
        Whether a row of the heat map is a node (mean over its devices) and not a device.
    """
    unit, name = _unit(int(bins["end_ns"].max() or 1))  # type: ignore[arg-type]
    begin, end = (bins[which].to_numpy() / unit for which in ("begin_ns", "end_ns"))
    times = Range1d(float(begin[0]), float(end[-1]), bounds="auto")
    shares, rows = _shares(device_bins, devices, by_node=by_node)
    activity = _activity(begin, end, shares.mean(axis=0), times)
    lines = _efficiencies(bins, begin, end, times)
    heat = _heat_map(shares, rows, begin, end, times, name)
    for chart in (activity, lines):
        chart.xaxis.major_label_text_font_size = "0px"
        chart.xaxis.major_tick_line_color = None
        chart.xaxis.minor_tick_line_color = None
    return column(activity, lines, heat, sizing_mode="stretch_width")


def device_map(bins: pl.DataFrame, device_bins: pl.DataFrame, devices: pl.DataFrame) -> LayoutDOM:
    """The heat map by device alone; parameters as of `over_time`."""
    unit, name = _unit(int(bins["end_ns"].max() or 1))  # type: ignore[arg-type]
    begin, end = (bins[which].to_numpy() / unit for which in ("begin_ns", "end_ns"))
    times = Range1d(float(begin[0]), float(end[-1]), bounds="auto")
    shares, rows = _shares(device_bins, devices, by_node=False)
    return _heat_map(shares, rows, begin, end, times, name)


def histogram(bars: pl.DataFrame, modes: pl.DataFrame) -> LayoutDOM:
    """Durations of one kernel: rows of `kernel_histograms` and `kernel_modes` of it; bars of other than the first mode have
    another colour."""
    unit, name = _unit(int(bars["to_ns"].max() or 1))  # type: ignore[arg-type]
    left, right = (bars[which].to_numpy() / unit for which in ("from_ns", "to_ns"))
    is_log = bool(right.max() > _LOGARITHMIC_FROM * max(left.min(), 1e-9)) and left.min() > 0
    chart = _figure(
        height=190,
        x_axis_type="log" if is_log else "linear",
        x_axis_label=f"duration [{name}]" + (", logarithmic" if is_log else ""),
        y_axis_label="executions",
        min_border_left=58,
    )
    colours = [_BAR] * bars.height
    if modes.height > 1:
        starts = np.sort(modes["from_ns"].to_numpy())
        which = np.searchsorted(starts, bars["from_ns"].to_numpy(), side="right")
        colours = [_SECOND_BAR if place > 1 else _BAR for place in which]
    source = ColumnDataSource(
        {
            "left": left,
            "right": right,
            "count": bars["count"].to_numpy(),
            "total": bars["total_ns"].to_numpy() / 1e6,
            "colour": colours,
        }
    )
    drawn = chart.quad("left", "right", "count", 0, source=source, fill_color="colour", line_color=None)
    told = [
        ("durations", f"@left{{0.[000]}} to @right{{0.[000]}} {name}"),
        ("executions", "@count{0,0}"),
        ("sum", "@total{0,0.[000]} ms"),
    ]
    chart.add_tools(HoverTool(tooltips=told, renderers=[drawn]))
    chart.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    chart.y_range.start = 0  # type: ignore[attr-defined]
    return chart


def sampled(rows: pl.DataFrame, bins: pl.DataFrame) -> LayoutDOM:
    """A sampled metric over time: rows of `sampled_bins` of it; the mean over devices, and from the lowest to the highest."""
    unit, name = _unit(int(bins["end_ns"].max() or 1))  # type: ignore[arg-type]
    middles = bins.select("bin", at=(pl.col("begin_ns") + pl.col("end_ns")) / 2 / unit)
    mean = (pl.col("mean") * pl.col("samples")).sum() / pl.col("samples").sum()
    told = (
        rows.filter(pl.col("samples") > 0)
        .group_by("bin")
        .agg(mean=mean, lowest=pl.col("mean").min(), highest=pl.col("mean").max())
        .join(middles, on="bin")
        .sort("at")
    )
    chart = _figure(height=170, x_axis_label=f"time [{name}]", min_border_left=58)
    source = ColumnDataSource({column: told[column].to_numpy() for column in ("at", "mean", "lowest", "highest")})
    chart.varea("at", "lowest", "highest", source=source, fill_color=_BAR, fill_alpha=0.25)
    line = chart.line("at", "mean", source=source, line_color=_BAR, line_width=1.5)
    tips = [
        ("time", f"@at{{0,0.[000]}} {name}"),
        ("mean", "@mean{0,0.[00]}"),
        ("devices", "@lowest{0,0.[00]} to @highest{0,0.[00]}"),
    ]
    chart.add_tools(HoverTool(tooltips=tips, renderers=[line], mode="vline"))
    chart.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    return chart


def clocks(rows: pl.DataFrame) -> LayoutDOM:
    """Remaining error of clocks over time: rows of `alignment_bins`."""
    count = int(rows["bin"].max() or 0) + 1  # type: ignore[arg-type]
    hosts = rows["host"].unique(maintain_order=True).to_list()
    largest = rows["error_ns"].abs().max()
    unit, name = _unit(int(largest or 1) * 2)  # type: ignore[arg-type]
    chart = _figure(
        height=240,
        x_axis_label="time between the first collective and the last",
        y_axis_label=f"remaining error [{name}]",
        x_range=Range1d(0, 1),
        min_border_left=70,
    )
    chart.xaxis.formatter = NumeralTickFormatter(format="0%")
    few = len(hosts) <= _HOSTS_WITH_COLOURS
    parts = rows.partition_by("host", maintain_order=True)
    source = ColumnDataSource(
        {
            "at": [((part["bin"].to_numpy() + 0.5) / count).tolist() for part in parts],
            "error": [(part["error_ns"].cast(pl.Float64) / unit).fill_null(float("nan")).to_numpy() for part in parts],
            "host": hosts,
            "colour": [_LINES[place % len(_LINES)] if few else _BAR for place in range(len(parts))],
        }
    )
    lines = chart.multi_line(
        "at",
        "error",
        source=source,
        line_color="colour",
        line_alpha=1.0 if few else 0.35,
        line_width=2 if few else 1,
        **({"legend_field": "host"} if few else {}),
    )
    chart.add_tools(HoverTool(tooltips=[("host", "@host")], renderers=[lines], line_policy="interp"))
    if few:
        _legend_above(chart)
    return chart


def _figure(height: int, tools: Sequence[Tool] = (), **options: Any) -> figure:
    chart = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=list(tools) or [PanTool(), BoxZoomTool(), WheelZoomTool(), ResetTool()],
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        **options,
    )
    chart.toolbar.logo = None
    chart.toolbar.autohide = True
    # Whoever scrolls through the page does not want to zoom.
    chart.toolbar.active_scroll = None
    return chart


def _time_figure(times: Range1d, height: int, **options: Any) -> figure:
    tools = [PanTool(), BoxZoomTool(), WheelZoomTool(dimensions="width"), ResetTool()]
    chart = _figure(height, tools, x_range=times, min_border_left=_LEFT, min_border_right=18, **options)
    chart.min_border_top = 6
    return chart


def _legend_above(chart: figure) -> None:
    legend = chart.legend[0]
    legend.orientation = "horizontal"
    legend.background_fill_alpha = 0
    legend.border_line_color = None
    legend.padding = 0
    legend.margin = 4
    chart.add_layout(legend, "above")


def _efficiencies(bins: pl.DataFrame, begin: NDArray[Any], end: NDArray[Any], times: Range1d) -> figure:
    chart = _time_figure(times, 230, y_range=Range1d(0, 1.02), y_axis_label="efficiency")
    values = {name: bins[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name, *_ in _EFFICIENCIES}
    source = ColumnDataSource({"at": (begin + end) / 2, **values})
    drawn = [
        chart.line("at", name, source=source, legend_label=title, line_color=colour, line_width=width)
        for name, title, colour, width in _EFFICIENCIES
    ]
    tips = [(title, f"@{name}{{0.0%}}") for name, title, *_ in _EFFICIENCIES]
    chart.add_tools(HoverTool(tooltips=[("time", "@at{0,0.[000]}"), *tips], renderers=drawn[:1], mode="vline"))
    chart.yaxis.formatter = NumeralTickFormatter(format="0%")
    _legend_above(chart)
    chart.legend.click_policy = "hide"
    return chart


def _activity(begin: NDArray[Any], end: NDArray[Any], mean: NDArray[np.float64], times: Range1d) -> figure:
    """What devices do on average; `mean` is bins x activities."""
    chart = _time_figure(times, 170, y_range=Range1d(0, 1.02), y_axis_label="share of devices")
    tops = np.cumsum(mean, axis=1)
    source = ColumnDataSource({"left": begin, "right": end, **{f"share{n}": mean[:, n] for n in range(mean.shape[1])},
                               **{f"top{n}": tops[:, n] for n in range(mean.shape[1])}, "none": np.zeros(len(mean))})  # fmt: skip
    for number, (_, title, colour) in enumerate(ACTIVITIES):
        bottom = f"top{number - 1}" if number else "none"
        # A hair's breadth of line in the same colour closes the seams between bars.
        chart.quad("left", "right", f"top{number}", bottom, source=source, fill_color=colour, line_color=colour,
                   line_width=0.5, legend_label=title)  # fmt: skip
    tips = [(title, f"@share{number}{{0.0%}}") for number, (_, title, _) in enumerate(ACTIVITIES)]
    chart.add_tools(HoverTool(tooltips=tips, renderers=chart.renderers[:1], mode="vline"))
    chart.yaxis.formatter = NumeralTickFormatter(format="0%")
    _legend_above(chart)
    return chart


def _shares(device_bins: pl.DataFrame, devices: pl.DataFrame, *, by_node: bool) -> tuple[NDArray[np.float64], list[str]]:
    """Rows x bins x activities, each the share of the bin; and names of rows."""
    names = devices["device"].to_list()
    place = {name: number for number, name in enumerate(names)}
    count = int(device_bins["bin"].max() or 0) + 1  # type: ignore[arg-type]
    where = (device_bins["device"].replace_strict(place, return_dtype=pl.Int64).to_numpy(), device_bins["bin"].to_numpy())
    lengths = device_bins.select(pl.sum_horizontal(*(name for name, *_ in ACTIVITIES), "idle_ns")).to_series().to_numpy()
    shares = np.zeros((len(names), count, len(ACTIVITIES)))
    for number, (column_name, *_) in enumerate(ACTIVITIES):
        shares[(*where, number)] = device_bins[column_name].to_numpy() / np.maximum(lengths, 1)
    if not by_node:
        return shares, names
    nodes = devices["node"].unique(maintain_order=True).to_list()
    of_node = devices["node"].replace_strict({node: number for number, node in enumerate(nodes)}, return_dtype=pl.Int64).to_numpy()
    sums = np.zeros((len(nodes), count, len(ACTIVITIES)))
    np.add.at(sums, of_node, shares)
    return sums / np.bincount(of_node, minlength=len(nodes))[:, None, None], nodes


def _heat_map(
    shares: NDArray[np.float64], rows: list[str], begin: NDArray[Any], end: NDArray[Any], times: Range1d, unit: str
) -> figure:
    steps = _FINE_STEPS if shares[..., 0].size <= _CELLS_IN_FINE_STEPS else _COARSE_STEPS
    mixtures, codes = _mixtures(steps), _codes(shares, steps)
    count = len(rows)
    height = max(_ROW_HEIGHT * count, 40) if count <= _ROWS_WITH_LABELS else max(_HEIGHT_OF_MANY_ROWS, _LEAST_ROW_HEIGHT * count)
    chart = _time_figure(
        times,
        round(height) + 60,
        # The first row stands on top.
        y_range=Range1d(count - 0.5, -0.5, bounds=(-0.5, count - 0.5)),
        x_axis_label=f"time [{unit}]",
        name="heat map",
        tags=[{"mixtures": mixtures.tolist(), "steps": steps, "rows": rows, "unit": unit, "names": [one[1] for one in ACTIVITIES]}],
    )
    chart.toolbar.tools = [PanTool(), BoxZoomTool(), WheelZoomTool(), ResetTool()]
    # Of an image, row 0 is the lowest; its own coordinates grow downwards here, like the axis.
    source = ColumnDataSource(
        {"image": [codes], "x": [begin[0]], "y": [-0.5], "dw": [end[-1] - begin[0]], "dh": [count]}
    )
    mapper = LinearColorMapper(palette=_palette(mixtures, steps), low=-0.5, high=len(mixtures) - 0.5)
    chart.image("image", "x", "y", "dw", "dh", source=source, color_mapper=mapper)
    chart.yaxis.major_label_overrides = {number: _short(name) for number, name in enumerate(rows)}
    chart.yaxis.ticker = (
        FixedTicker(ticks=list(range(count)), minor_ticks=[])
        if count <= _ROWS_WITH_LABELS
        else BasicTicker(min_interval=1, desired_num_ticks=round(height / 18), num_minor_ticks=0)
    )
    chart.grid.grid_line_color = None
    return chart


def _mixtures(steps: int) -> NDArray[np.int64]:
    """All ways to share `steps` parts between activities; the rest is idle."""
    first, second, third = np.meshgrid(*(np.arange(steps + 1) for _ in ACTIVITIES), indexing="ij")
    ways = np.stack([first.ravel(), second.ravel(), third.ravel()], axis=1)
    return ways[ways.sum(axis=1) <= steps]


def _codes(shares: NDArray[np.float64], steps: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """The mixture nearest to each cell, as its number."""
    mixtures = _mixtures(steps)
    parts = np.rint(shares * steps).astype(np.int64)
    # What little there is in a cell that is otherwise idle shall be seen.
    faint = (parts.sum(axis=-1) == 0) & (shares.sum(axis=-1) > 0)
    parts[faint, shares[faint].argmax(axis=-1)] = 1
    free = np.full(parts.shape[:-1], steps)
    for number in range(parts.shape[-1]):
        parts[..., number] = np.minimum(parts[..., number], free)
        free = free - parts[..., number]
    weights = (steps + 1) ** np.arange(parts.shape[-1])[::-1]
    numbers = np.zeros((steps + 1) ** parts.shape[-1], dtype=np.uint8 if len(mixtures) <= 256 else np.uint16)
    numbers[mixtures @ weights] = np.arange(len(mixtures))
    return numbers[parts @ weights]


def _palette(mixtures: NDArray[np.int64], steps: int) -> list[str]:
    """A colour per mixture: those of the activities in their parts, the fainter the more of it is idle."""
    colours = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for *_, colour in ACTIVITIES])
    busy = mixtures.sum(axis=1)
    mixed = np.rint(mixtures @ colours / np.maximum(busy, 1)[:, None]).astype(int)
    alpha = np.where(busy > 0, _LEAST_VISIBLE + (1 - _LEAST_VISIBLE) * busy / steps, 0)
    return [f"#{r:02x}{g:02x}{b:02x}{a:02x}" for (r, g, b), a in zip(mixed, np.rint(alpha * 255).astype(int), strict=True)]


def _unit(longest: int) -> tuple[int, str]:
    return next((unit for unit in _TIMES if longest >= unit[0]), _TIMES[-1])


def _short(name: str, longest: int = 22) -> str:
    return name if len(name) <= longest else f"{name[: longest // 2 - 1]}…{name[-(longest // 2):]}"
