"""Single drawings of the page as objects that notebooks show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nsys2prv.efficiency.outputs.page import bar_rows, charts
from nsys2prv.efficiency.outputs.page.bar_rows import BarRow
from nsys2prv.efficiency.outputs.page.colours import ACTIVITIES, legend
from nsys2prv.efficiency.outputs.page.plot import Plot
from nsys2prv.efficiency.outputs.page.template import environment, notebook_style
from nsys2prv.efficiency.outputs.page.time_charts import EFFICIENCY_LINES, Activity, TimeCharts, memory_plots
from nsys2prv.errors import UsageError
from nsys2prv.vocabulary.wording import did_you_mean

Frames = Mapping[str, pl.DataFrame]
_MOST_BARS = 16


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


@dataclass(frozen=True)
class _Content:
    """What a drawing consists of: SVG or rows of bars, and names of colours."""

    plot: Plot | None = None
    rows: Sequence[BarRow] = ()
    entries: Sequence[tuple[Any, ...]] = ()


def _activity(frames: Frames) -> _Content | None:
    if (over_time := TimeCharts.of(frames)) is None:
        return None
    shares = Activity.of(frames["bins"], frames["device_bins"], frames["devices"]).shares.mean(axis=0)
    return _Content(over_time.activity(shares), entries=ACTIVITIES)


def _efficiencies(frames: Frames) -> _Content | None:
    over_time = TimeCharts.of(frames)
    return None if over_time is None else _Content(over_time.efficiencies(), entries=EFFICIENCY_LINES)


def _memory(frames: Frames) -> _Content | None:
    over_time = TimeCharts.of(frames)
    found = [] if over_time is None else memory_plots(over_time, frames)
    return _Content(found[0].plot, entries=found[0].legend) if found else None


def _iterations(frames: Frames) -> _Content | None:
    if not frames["task_iterations"]["length_ns"].count():
        return None
    plot, _, entries = charts.iterations(frames["task_iterations"])
    return _Content(plot, entries=entries)


def _devices(frames: Frames) -> _Content | None:
    return _Content(charts.devices(frames["devices"])[0]) if frames["devices"].height > 1 else None


def _bandwidth(frames: Frames) -> _Content | None:
    found = charts.bandwidth(frames["nccl"])
    return None if found is None else _Content(found[0], entries=found[1])


def _families(frames: Frames) -> _Content | None:
    if frames["families"].is_empty():
        return None
    return _Content(rows=bar_rows.family_tree(frames["families"], frames["kernels"]))


def _wall_time(frames: Frames) -> _Content | None:
    if frames["absent_time"].is_empty():
        return None
    rows, present = bar_rows.wall_rows(frames["absent_time"], _MOST_BARS)
    return _Content(rows=rows, entries=present)


_DRAWINGS: Mapping[str, tuple[str, Callable[[Frames], _Content | None]]] = {
    "activity": ("What devices do over time", _activity),
    "efficiencies": ("Efficiencies over time", _efficiencies),
    "wall_time": ("What the time of the devices went to", _wall_time),
    "iterations": ("Iteration time per rank", _iterations),
    "devices": ("Useful time of each device", _devices),
    "families": ("Kernel families", _families),
    "memory": ("GPU memory in use", _memory),
    "bandwidth": ("NCCL bus bandwidth over message size", _bandwidth),
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
        raise UsageError(f"plot {name!r}: there is no such drawing{did_you_mean(name, NAMES)}")
    title, content_of = _DRAWINGS[name]
    content = content_of(frames)
    if content is None:
        raise UsageError(f"plot {name!r}: this run has nothing to show there")
    drawn = None if content.plot is None else content.plot.html()
    template = environment().get_template("drawing.html.j2")
    style = notebook_style("first_screen.css", "rows.css")
    html = template.render(title=title, drawn=drawn, rows=content.rows, legend=legend(content.entries), style=style)
    return Drawing(name, title, html)
