"""What notebooks show, as HTML without scripts: the first screen of the page, with what matters first, and single drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from nsys2prv.efficiency.outputs.page import charts
from nsys2prv.efficiency.outputs.page.charts import Frames
from nsys2prv.efficiency.outputs.page.plot import Figure, Piece, activities_of, colours_of_parts
from nsys2prv.efficiency.outputs.page.template import environment, notebook_style
from nsys2prv.efficiency.outputs.page.time_charts import Activity, TimeCharts
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary import wording

DEVICES_IN_ONE_MAP = 64
"""With more devices there is a map by node first."""
_MAP_HEIGHT = (48, 150)
"""Least and largest height of the small map, pixels."""
_ROW_HEIGHT = 16
_PLACE = ["worst_begin_ns", "worst_end_ns"]
_MARKED = 5
"""Findings whose places the small map marks."""


def first_screen(head: Mapping[str, Any], frames: Frames, *, linked: bool = True) -> dict[str, Any]:
    """What the template `first_screen.html.j2` shows, from an `EfficiencyResult`; `linked`: whether findings and their places
    are links into the page."""
    first = verdict(head, frames)
    colours = colours_of_parts((part.name, part.group) for part in first.bar)
    checks, over_time = frames["finding_checks"], TimeCharts.of(frames)
    findings, numbers = frames["findings"].sort("place"), frames["finding_numbers"]
    return {
        "verdict": first,
        "pieces": [
            Piece(part.share, colour, f"{part.title}: {wording.time(part.value)}, {wording.percent(part.share)}")
            for part, colour in zip(first.bar, colours, strict=True)
        ],
        "activities": activities_of(frames["device_bins"]),
        "findings": findings.to_dicts(),
        "numbers": {
            place: [(name, _number(value, unit or "")) for name, value, unit in numbers.filter(pl.col("place") == place)
                    .select("number", "value", "unit").iter_rows()]
            for place in findings["place"]
        },
        "checks": checks.height,
        "not_decidable": checks.filter(pl.col("result") == "not decidable").height,
        "small_map": over_time and small_map(over_time, small_activity(frames), findings, linked=linked),
        "linked": linked,
    }  # fmt: skip


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else wording.quantity(value, unit) or f"{value:,.6g} {unit}".rstrip()


def first_screen_html(head: Mapping[str, Any], frames: Frames) -> str:
    """The first screen alone, as a notebook shows it: no script, no link, and a style that touches nothing else."""
    template = environment().get_template("notebook.html.j2")
    style = notebook_style("first_screen.css")
    return template.render(**first_screen(head, frames, linked=False), head=head, style=style, title=head["title"])


def small_activity(frames: Frames) -> Activity:
    """Activity of devices, or of nodes where there are many devices of several nodes."""
    of_devices, nodes = Activity.of(frames), frames["devices"]["node"]
    is_large = nodes.len() > DEVICES_IN_ONE_MAP and 1 < nodes.n_unique() < nodes.len()
    return of_devices.by_node(nodes.to_list()) if is_large else of_devices


def small_map(over_time: TimeCharts, activity: Activity, findings: pl.DataFrame, *, linked: bool) -> Markup:
    """The heat map of the first screen, with iterations and the places of the first findings."""
    height = min(max(_ROW_HEIGHT * len(activity.rows), _MAP_HEIGHT[0]), _MAP_HEIGHT[1])
    plot = over_time.heat_map(activity, "What devices do over time", height)
    plot.attributes["data-map"] = "small"
    if linked:
        marked = findings.head(_MARKED).drop_nulls(_PLACE)
        over_time.mark(plot, marked.select("place", "title", *_PLACE).rows())
    return plot.html()


# -- single drawings ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Drawing:
    """A drawing of the page: a notebook shows it, and `str` of it is its HTML.

    Attributes
    ----------
    name, title
        For programs and for people.
    html
        The drawing with its style: SVG and text, no script.
    """

    name: str
    title: str
    html: str

    def __repr__(self) -> str:
        return f"<Drawing {self.name}: {self.title}>"

    def __str__(self) -> str:
        return self.html

    def _repr_html_(self) -> str:
        return self.html


def _over_time(draw: Callable[[TimeCharts, Frames], Sequence[Figure]]) -> Callable[[Frames], Figure | None]:
    """The first of the drawings over time that a function makes."""

    def figure(frames: Frames) -> Figure | None:
        over_time = TimeCharts.of(frames)
        return next(iter(draw(over_time, frames)), None) if over_time is not None else None

    return figure


_DRAWINGS: Mapping[str, tuple[str, Callable[[Frames], Figure | None]]] = {
    "activity": ("What devices do over time", _over_time(lambda over_time, frames: [over_time.activity(frames)])),
    "efficiencies": ("Efficiencies over time", _over_time(lambda over_time, _: [over_time.efficiencies()])),
    "wall_time": ("What the time of the devices went to", charts.wall_time),
    "iterations": ("Iteration time per rank", charts.iterations),
    "devices": ("Useful time of each device", charts.devices),
    "families": ("Kernel families", charts.families),
    "memory": ("GPU memory in use", _over_time(TimeCharts.memory)),
    "bandwidth": ("NCCL bus bandwidth over message size", charts.bandwidth),
}
NAMES = tuple(_DRAWINGS)
"""Names of all drawings."""


def drawing(name: str, frames: Frames) -> Drawing:
    """A drawing of a run, by its name.

    Raises
    ------
    UsageError
        When there is no such drawing, or the run has nothing to draw in it.
    """
    if name not in _DRAWINGS:
        raise UsageError(f"plot {name!r}: there is no such drawing{wording.did_you_mean(name, NAMES)}")
    title, figure_of = _DRAWINGS[name]
    figure = figure_of(frames)
    if figure is None:
        raise UsageError(f"plot {name!r}: this run has nothing to show there")
    template = environment().get_template("drawing.html.j2")
    style = notebook_style("first_screen.css", "rows.css")
    html = template.render(title=title, drawn=figure.drawn, rows=figure.rows, legend=figure.legend, style=style)
    return Drawing(name, title, html)
