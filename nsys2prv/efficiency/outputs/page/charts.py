"""Charts of the page, as Bokeh figures. `page.js` sets the colours of the light or dark scheme and fills heat maps."""

# Bokeh: BSD licence, released for more than ten years. Its wheel carries its script (1.3 MB), which works without a network and
# without `eval`, draws arrays of pixels, zooms, and can give each figure as SVG to print. plotly's script (4.6 MB) alone nearly
# fills a page of 5 MB, and Vega takes each cell of a heat map as an object.

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from bokeh.document import Document
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.models.renderers import DataRenderer
from bokeh.models.tools import BoxZoomTool
from bokeh.plotting import figure
from bokeh.util.paths import bokehjs_path
from numpy.typing import NDArray

from nsys2prv.efficiency.meters import absent_tables as parts
from nsys2prv.efficiency.meters.gaps import CAUSE_TITLES
from nsys2prv.efficiency.metrics import DEVICE_TREE

ACTIVITIES: tuple[tuple[str, str, str], ...] = (
    ("kernels_ns", "kernels", "#2f74d0"),
    ("nccl_ns", "NCCL", "#e8830c"),
    ("memory_ns", "copies and memsets", "#12a37f"),
)
"""Activities of a device: column of `device_bins`, name, colour. The colours differ for any kind of sight, dark and light."""

LINES = ("#2f74d0", "#e8830c", "#12a37f", "#b05cc6", "#d1495b", "#7f8c2b", "#0f8ea8", "#8d6e63")
"""Colours of lines; of more hosts than colours all have the first one."""

EFFICIENCY_LINES = tuple(
    (one.name, one.title, LINES[place % len(LINES)], 1 if one.parent else 3) for place, one in enumerate(DEVICE_TREE.of_parts)
)
"""Lines over time: column of `bins`, name, colour, width."""

CAUSES = tuple(
    (name, title, colour)
    for (name, title), colour in zip(CAUSE_TITLES.items(), (*LINES[:5], LINES[7], LINES[5], LINES[6], "#8c8c8c"), strict=True)
)
"""Activities of the launching thread while a device is idle: column of `gaps`, name, colour."""

_COLOURS_OF_PARTS = {
    parts.START_UP: ("#b9bec6",),
    parts.STARVED: ("#b05cc6", "#d1495b", "#e0838f", "#7d5ba6", "#c98bb9", "#8d6e63", "#b79a8e", "#a3213a", "#d9a5ae",
                    "#6b2737", "#cfcfcf", "#e6c9ce"),
    parts.COMMUNICATION: ("#e8830c", "#f2b25f", "#b06000"),
    parts.COPIES: ("#12a37f", "#7cc9b3"),
    parts.OTHER_KERNELS: ("#0f8ea8",),
    parts.QUEUED: ("#7f8c2b",),
    parts.UNDECIDED: ("#5f6670",),
    parts.SHUT_DOWN: ("#9aa1ab",),
}  # fmt: skip
"""Colours of the parts of compute-absent time, by group: like ones are of like colour."""
_COMPUTE = ("compute_ns", "computing", ACTIVITIES[0][2])


def _wall_parts() -> tuple[tuple[str, str, str], ...]:
    left = {group: iter(colours) for group, colours in _COLOURS_OF_PARTS.items()}
    return (_COMPUTE, *((part.column, part.title, next(left[part.group])) for part in parts.PARTS))


WALL_PARTS = _wall_parts()
"""Parts of the wall time of a device: column of `absent_time`, name, colour."""

MOST_CELLS = 240_000
"""Cells of a heat map; of longer tables neighbouring bins are drawn as one."""
_FEWEST_BINS = 24

_BAR, _SECOND_BAR = LINES[:2]
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
_ROWS_WITH_LABELS = 40
_BAR_HEIGHT = 26
_ROW_HEIGHT, _LEAST_ROW_HEIGHT, _HEIGHT_OF_MANY_ROWS = 18, 1.2, 720
_LEFT = 150
"""Width of the labels at the left, pixels: the same for all charts over time, so that their time axes align."""
_LOGARITHMIC_FROM = 20
"""Ratio of the longest to the shortest duration from which a histogram has a logarithmic axis."""
_LONGEST_LABEL = 22


@dataclass
class Figures:
    """Figures of a page: one document, so that they share axes; each has the id of the element that it is drawn into."""

    _figures: dict[str, figure] = field(default_factory=dict)

    def add(self, chart: figure) -> str:
        """Keep a figure; the id of its element."""
        place = f"figure-{len(self._figures) + 1}"
        self._figures[place] = chart
        return place

    def as_json(self) -> dict[str, Any]:
        """What `page.js` gives to `Bokeh.embed.embed_items`."""
        document = Document()
        with document.models.freeze():
            for chart in self._figures.values():
                document.add_root(chart)
        places = {str(chart.id): place for place, chart in self._figures.items()}
        return {"document": dict(document.to_json(deferred=False)), "places": places}


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
        """What `page.js` draws: shares in whole percent, one byte each, rows before bins before activities."""
        # Small shares stay visible.
        percent = np.where(self.shares > 0, np.maximum(np.rint(self.shares * 100), 1), 0)
        return {
            "rows": self.rows,
            "groups": self.groups,
            "edges_ns": self.edges.tolist(),
            "percent": base64.b64encode(percent.astype(np.uint8).tobytes()).decode(),
        }


def script() -> str:
    """BokehJS, with its licence at its head."""
    return (Path(bokehjs_path()) / "js" / "bokeh.min.js").read_text(encoding="utf-8").replace("\r\n", "\n")


def activity(bins: pl.DataFrame, device_bins: pl.DataFrame, devices: pl.DataFrame) -> Activity:
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
    return Activity(names, groups if len(groups) > 1 else [], edges, shares)


class TimeCharts:
    """Charts over the time of the run, on one axis that they share: zooming one zooms all.

    Parameters
    ----------
    bins
        The table of this name, with at least one row.
    """

    def __init__(self, bins: pl.DataFrame) -> None:
        self._bins = bins
        self._scale, self._unit = unit(int(bins["end_ns"][-1]))
        edges = np.append(bins["begin_ns"].to_numpy(), bins["end_ns"][-1]) / self._scale
        self._begin, self._end = edges[:-1], edges[1:]
        self._times = Range1d(start=float(edges[0]), end=float(edges[-1]), bounds="auto")

    def efficiencies(self) -> figure:
        """The tree of the devices, a line per efficiency."""
        chart = self._shares(240, "efficiency")
        values = {name: self._bins[name].cast(pl.Float64).fill_null(float("nan")).to_numpy() for name, *_ in EFFICIENCY_LINES}
        source = ColumnDataSource({"begin": self._begin, "end": self._end, "at": (self._begin + self._end) / 2, **values})
        drawn: list[DataRenderer] = [
            chart.line("at", name, source=source, line_color=colour, line_width=width)
            for name, _, colour, width in EFFICIENCY_LINES
        ]
        tips = [(title, f"@{name}{{0.0%}}") for name, title, *_ in EFFICIENCY_LINES]
        chart.add_tools(HoverTool(tooltips=[self._tip(), *tips], renderers=drawn[:1], mode="vline", line_policy="nearest"))
        return chart

    def activity(self, shares: NDArray[np.float64]) -> figure:
        """Mean activity of devices; `shares`: bins x ACTIVITIES."""
        chart = self._shares(190, "share of devices")
        tops = np.cumsum(shares, axis=1)
        source = ColumnDataSource({
            "begin": self._begin, "end": self._end, "none": np.zeros(len(shares)),
            **{f"share{number}": shares[:, number] for number in range(shares.shape[1])},
            **{f"top{number}": tops[:, number] for number in range(shares.shape[1])},
        })  # fmt: skip
        for number, (*_, colour) in enumerate(ACTIVITIES):
            bottom = f"top{number - 1}" if number else "none"
            # A thin line in the same colour closes the seams between bars.
            chart.quad("begin", "end", f"top{number}", bottom, source=source, fill_color=colour, line_color=colour,
                       line_width=0.5)  # fmt: skip
        reach = chart.quad("begin", "end", 1, 0, source=source, fill_alpha=0, line_alpha=0)
        tips = [(title, f"@share{number}{{0.0%}}") for number, (_, title, _) in enumerate(ACTIVITIES)]
        chart.add_tools(HoverTool(tooltips=[self._tip(), *tips], renderers=[reach]))
        return chart

    def heat_map(self, drawn: Activity) -> figure:
        """A heat map without its pixels, which `page.js` makes from `Activity.as_json`."""
        count = len(drawn.rows)
        height = max(60, min(_ROW_HEIGHT * count, max(_HEIGHT_OF_MANY_ROWS, _LEAST_ROW_HEIGHT * count)))
        # The first row is on top.
        rows = Range1d(start=count - 0.5, end=-0.5, bounds=(-0.5, count - 0.5))
        chart = self._figure(round(height) + 60, y_range=rows, tags=[{"scale": self._scale}])
        chart.toolbar.tools = [PanTool(), BoxZoomTool(), WheelZoomTool(), ResetTool()]
        places = {"x": [self._begin[0]], "y": [-0.5], "dw": [self._end[-1] - self._begin[0]], "dh": [count]}
        # A blank pixel until the script runs.
        source = ColumnDataSource({"image": [np.zeros((1, 1), dtype=np.uint32)], **places}, name="pixels")
        chart.image_rgba("image", "x", "y", "dw", "dh", source=source)
        cursor = ColumnDataSource({"left": [], "right": [], "top": [], "bottom": []}, name="cursor")
        chart.quad("left", "right", "top", "bottom", source=cursor, fill_alpha=0, line_width=2)
        chart.yaxis.major_label_overrides = {number: label(name) for number, name in enumerate(drawn.rows)}
        chart.yaxis.ticker = (
            FixedTicker(ticks=list(range(count)), minor_ticks=[])
            if count <= _ROWS_WITH_LABELS
            else BasicTicker(min_interval=1, desired_num_ticks=round(height / 18), num_minor_ticks=0)
        )
        chart.grid.grid_line_color = None
        return chart

    def sampled(self, rows: pl.DataFrame) -> figure:
        """A sampled metric: rows of `sampled_bins` of it; the mean over devices, and from the lowest to the highest."""
        middles = pl.DataFrame({"bin": self._bins["bin"], "at": (self._begin + self._end) / 2})
        mean = (pl.col("mean") * pl.col("samples")).sum() / pl.col("samples").sum()
        shown = (
            rows.filter(pl.col("samples") > 0)
            .group_by("bin")
            .agg(mean=mean, lowest=pl.col("mean").min(), highest=pl.col("mean").max())
            .join(middles, on="bin")
            .sort("at")
        )
        chart = _figure(150, x_axis_label=f"time [{self._unit}]", min_border_left=58, x_range=self._times)
        source = ColumnDataSource({column: shown[column].to_numpy() for column in ("at", "mean", "lowest", "highest")})
        chart.varea("at", "lowest", "highest", source=source, fill_color=_BAR, fill_alpha=0.3)
        line = chart.line("at", "mean", source=source, line_color=_BAR, line_width=1.5)
        tips = [
            ("time", f"@at{{0,0.[000]}} {self._unit}"),
            ("mean", "@mean{0,0.[00]}"),
            ("devices", "@lowest{0,0.[00]} to @highest{0,0.[00]}"),
        ]
        chart.add_tools(HoverTool(tooltips=tips, renderers=[line], mode="vline", line_policy="nearest"))
        chart.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
        chart.yaxis.ticker = BasicTicker(desired_num_ticks=4)
        return chart

    def _shares(self, height: int, label: str) -> figure:
        chart = self._figure(height, y_range=Range1d(start=0, end=1.02), y_axis_label=label)
        chart.yaxis.formatter = NumeralTickFormatter(format="0%")
        return chart

    def _figure(self, height: int, **options: Any) -> figure:
        return _figure(
            height,
            x_range=self._times,
            x_axis_label=f"time [{self._unit}]",
            min_border_left=_LEFT,
            min_border_right=18,
            **options,
        )

    def _tip(self) -> tuple[str, str]:
        return "time", f"@begin{{0,0.[000]}} to @end{{0,0.[000]}} {self._unit}"


def histogram(bars: pl.DataFrame, modes: pl.DataFrame) -> figure:
    """Durations of one kernel: its rows of `kernel_histograms` and `kernel_modes`; bars from the second mode on have another
    colour."""
    scale, name = unit(int(bars["to_ns"].max() or 1))  # type: ignore[arg-type]
    left, right = (bars[which].to_numpy() / scale for which in ("from_ns", "to_ns"))
    is_log = bool(left.min() > 0 and right.max() > _LOGARITHMIC_FROM * left.min())
    chart = _figure(
        170,
        x_axis_type="log" if is_log else "linear",
        x_axis_label=f"duration [{name}]" + (", logarithmic" if is_log else ""),
        y_axis_label="executions",
        min_border_left=64,
    )
    colours = [_BAR] * bars.height
    if modes.height > 1:
        starts = np.sort(modes["from_ns"].to_numpy())
        which = np.searchsorted(starts, bars["from_ns"].to_numpy(), side="right")
        colours = [_SECOND_BAR if place > 1 else _BAR for place in which]
    source = ColumnDataSource({
        "left": left, "right": right, "count": bars["count"].to_numpy(), "total": bars["total_ns"].to_numpy() / 1e6,
        "colour": colours,
    })  # fmt: skip
    drawn = chart.quad("left", "right", "count", 0, source=source, fill_color="colour", line_color=None)
    tips = [
        ("durations", f"@left{{0,0.[000]}} to @right{{0,0.[000]}} {name}"),
        ("executions", "@count{0,0}"),
        ("sum", "@total{0,0.[000]} ms"),
    ]
    chart.add_tools(HoverTool(tooltips=tips, renderers=[drawn]))
    chart.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    chart.yaxis.ticker = BasicTicker(desired_num_ticks=4, min_interval=1)
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    chart.y_range.start = 0  # type: ignore[attr-defined]
    return chart


def idle(classes: pl.DataFrame) -> figure:
    """Idle time by length of gap: columns `from`, `to` (texts), `count`, and those of CAUSES, ns, over all devices."""
    longest = int(classes.select(pl.sum_horizontal(column for column, *_ in CAUSES).max()).item() or 1)
    scale, name = unit(longest)
    names = classes["class"].to_list()
    chart = _figure(
        230, x_range=names, x_axis_label="length of the gap", y_axis_label=f"idle time [{name}]", min_border_left=70
    )
    columns = [column for column, *_ in CAUSES]
    source = ColumnDataSource(
        {"class": names, "count": classes["count"].to_numpy(), **{name: classes[name].to_numpy() / scale for name in columns}}
    )
    bars: list[DataRenderer] = []
    bars += chart.vbar_stack(
        columns, x="class", width=0.75, source=source, fill_color=[one[2] for one in CAUSES], line_color=None
    )
    tips = [("gaps", "@count{0,0}"), *((title, f"@{column}{{0,0.[000]}} {name}") for column, title, _ in CAUSES)]
    chart.add_tools(HoverTool(tooltips=tips, renderers=bars))
    chart.yaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    chart.y_range.start = 0  # type: ignore[attr-defined]
    chart.xgrid.grid_line_color = None
    return chart


def wall_time(rows: pl.DataFrame) -> figure:
    """Wall time as bars from left to right: `device`, and columns of WALL_PARTS, ns; the first row is at the top."""
    totals = rows.select(pl.sum_horizontal(column for column, *_ in WALL_PARTS)).to_series().to_numpy()
    scale, name = unit(int(totals.max(initial=1)))
    names = [label(str(device)) for device in rows["device"]]
    columns = [(column, title, colour) for column, title, colour in WALL_PARTS if rows[column].sum()]
    chart = _figure(
        70 + _BAR_HEIGHT * len(names),
        y_range=list(reversed(names)),
        x_range=Range1d(start=0, end=max(float(totals.max(initial=1)) / scale, 1e-9)),
        x_axis_label=f"time [{name}]",
        min_border_left=_LEFT,
        min_border_right=18,
    )
    begin = np.zeros(len(names))
    for column, title, colour in columns:
        length = rows[column].to_numpy() / scale
        source = ColumnDataSource(
            {
                "device": names,
                "begin": begin,
                "end": begin + length,
                "length": length,
                "share": length * scale / np.maximum(totals, 1),
            }
        )
        bars = chart.hbar("device", left="begin", right="end", height=0.72, source=source, fill_color=colour, line_color=None)
        tips = [("", f"@device: {title}"), ("time", f"@length{{0,0.[000]}} {name}"), ("share", "@share{0.0%}")]
        chart.add_tools(HoverTool(tooltips=tips, renderers=[bars]))
        begin = begin + length
    chart.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    chart.ygrid.grid_line_color = None
    return chart


def clocks(rows: pl.DataFrame) -> tuple[figure, list[tuple[str, str]]]:
    """Remaining error of clocks over time: rows of `clock_bins`; and the colour of each host, where all have their own."""
    count = int(rows["bin"].max() or 0) + 1  # type: ignore[arg-type]
    scale, name = unit(int(rows["error_ns"].abs().max() or 1))  # type: ignore[arg-type]
    parts = rows.partition_by("host", maintain_order=True, as_dict=True)
    few = len(parts) <= len(LINES)
    chart = _figure(
        220,
        x_axis_label="time, from the first collective to the last",
        y_axis_label=f"remaining error [{name}]",
        x_range=Range1d(start=0, end=1),
        min_border_left=70,
    )
    chart.xaxis.formatter = NumeralTickFormatter(format="0%")
    colours = [LINES[place] if few else _BAR for place in range(len(parts))]
    source = ColumnDataSource({
        "at": [((part["bin"].to_numpy() + 0.5) / count).tolist() for part in parts.values()],
        "error": [(part["error_ns"].cast(pl.Float64) / scale).fill_null(float("nan")).to_numpy() for part in parts.values()],
        "host": [label(str(host), longest=60) for (host,) in parts],
        "colour": colours,
    })  # fmt: skip
    lines = chart.multi_line("at", "error", source=source, line_color="colour",
                             line_alpha=1.0 if few else 0.35, line_width=2 if few else 1)  # fmt: skip
    chart.add_tools(HoverTool(tooltips=[("host", "@host")], renderers=[lines]))
    return chart, [(str(host), colour) for (host,), colour in zip(parts, colours, strict=True)] if few else []


def unit(longest: int) -> tuple[int, str]:
    """The unit in which times up to a longest one are written: ns, and the name.

    >>> unit(2_500_000)
    (1000000, 'ms')
    """
    return next((one for one in _TIMES if longest >= one[0]), _TIMES[-1])


def label(name: str, longest: int = _LONGEST_LABEL) -> str:
    r"""A name as Bokeh draws it: on one line, not too long, and not as TeX, which would need more scripts.

    >>> label("node\n01$$x$$")
    'node 01$\u200b$x$\u200b$'
    """
    plain = " ".join("".join(each if each.isprintable() else " " for each in name).split())
    if len(plain) > longest:
        plain = f"{plain[: longest // 2 - 1]}…{plain[-(longest // 2) :]}"
    for begin in ("$$", "\\(", "\\["):
        plain = plain.replace(begin, f"{begin[0]}\u200b{begin[1]}")
    return plain


def legend(entries: Sequence[Sequence[Any]]) -> list[Mapping[str, str]]:
    """Names and colours of ACTIVITIES, EFFICIENCY_LINES or CAUSES."""
    return [{"name": str(entry[1]), "colour": str(entry[2])} for entry in entries]


def _figure(height: int, **options: Any) -> figure:
    chart = figure(
        height=height,
        sizing_mode="stretch_width",
        tools=[PanTool(), BoxZoomTool(), WheelZoomTool(dimensions="width"), ResetTool()],
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_top=6,
        **options,
    )
    chart.toolbar.logo = None
    chart.toolbar.autohide = True
    # Scrolling the page must not zoom.
    chart.toolbar.active_scroll = None
    return chart
