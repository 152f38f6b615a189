"""The first screen of the page, which is also how notebooks show a result: what matters first, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from markupsafe import Markup

from nsys2prv.efficiency.outputs.page.bar_rows import Piece
from nsys2prv.efficiency.outputs.page.colours import activities_of, colours_of_parts, legend
from nsys2prv.efficiency.outputs.page.template import environment, notebook_style
from nsys2prv.efficiency.outputs.page.time_charts import Activity, TimeCharts
from nsys2prv.efficiency.verdict import verdict
from nsys2prv.vocabulary import wording

DEVICES_IN_ONE_MAP = 64
"""With more devices there is a map by node first."""
_MAP_HEIGHT = (48, 150)
"""Least and largest height of the small map, pixels."""
_ROW_HEIGHT = 16
_MARKED = 5
"""Findings whose places the small map marks."""


def first_screen(
    head: Mapping[str, Any],
    frames: Mapping[str, pl.DataFrame],
    over_time: TimeCharts | None = None,
    small: Activity | None = None,
    *,
    linked: bool = True,
) -> dict[str, Any]:
    """What the template `first_screen.html.j2` shows.

    Parameters
    ----------
    head, frames
        Of an `EfficiencyResult`.
    over_time, small
        Drawings over time and the activity of the small map, where they exist already.
    linked
        Whether findings and their places are links into the page.
    """
    found = verdict(head, frames)
    colours = colours_of_parts([(one.name, one.group) for one in found.bar])
    pieces = [
        Piece(one.share, colour, f"{one.title}: {wording.time(one.value)}, {wording.percent(one.share)}")
        for one, colour in zip(found.bar, colours, strict=True)
    ]
    if over_time is None and (over_time := TimeCharts.of(frames)) is not None:
        small = small_activity(frames)
    return {
        "verdict": found,
        "pieces": pieces,
        "activities": legend(activities_of(frames["device_bins"])),
        "findings": findings_in_lines(frames),
        "checks": frames["finding_checks"].height,
        "not_decidable": frames["finding_checks"].filter(pl.col("result") == "not decidable").height,
        "small_map": None
        if over_time is None or small is None
        else small_map(over_time, small, frames["findings"], linked=linked),
        "linked": linked,
    }


def small_activity(frames: Mapping[str, pl.DataFrame]) -> Activity:
    """Activity of devices, or of nodes where there are many devices of several nodes."""
    of_devices = Activity.of(frames["bins"], frames["device_bins"], frames["devices"])
    nodes = frames["devices"]["node"]
    is_large = frames["devices"].height > DEVICES_IN_ONE_MAP and 1 < nodes.n_unique() < frames["devices"].height
    return of_devices.by_node(nodes.to_list()) if is_large else of_devices


def small_map(over_time: TimeCharts, activity: Activity, findings: pl.DataFrame, *, linked: bool) -> Markup:
    """The heat map of the first screen, with iterations and the places of the first findings."""
    height = min(max(_ROW_HEIGHT * len(activity.rows), _MAP_HEIGHT[0]), _MAP_HEIGHT[1])
    plot = over_time.heat_map(activity, "What devices do over time", height)
    plot.attributes["data-map"] = "small"
    for row in findings.sort("place").head(_MARKED if linked else 0).iter_rows(named=True):
        if row["worst_begin_ns"] is not None and row["worst_end_ns"] is not None:
            over_time.place(plot, row["place"], row["title"], row["worst_begin_ns"], row["worst_end_ns"])
    return plot.html()


def findings_in_lines(frames: Mapping[str, pl.DataFrame]) -> list[dict[str, Any]]:
    """Findings in their order, with their numbers."""
    numbers: dict[int, list[tuple[str, str]]] = {}
    for row in frames["finding_numbers"].to_dicts():
        numbers.setdefault(row["place"], []).append((row["number"], _number(row["value"], row["unit"] or "")))
    return [
        {
            **row,
            "cost": None if row["saved_ns"] is None else wording.time(row["saved_ns"]),
            "percent": None if row["saved_share"] is None else wording.percent(row["saved_share"]),
            **dict(zip(("device_time", "process_time"), _times_of(row), strict=True)),
            "when": time_span(row["begin_ns"], row["end_ns"]),
            "worst": time_span(row["worst_begin_ns"], row["worst_end_ns"]),
            "numbers": numbers.get(row["place"], []),
        }
        for row in frames["findings"].sort("place").to_dicts()
    ]


def _times_of(finding: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Device time that a finding costs, and time of processes, of which one is not None."""
    if finding["cost_ns"] is None:
        return None, None
    of_processes = finding["device"] is None
    whole = "all processes" if of_processes else "all devices"
    text = wording.time(finding["cost_ns"])
    if finding["share"] is not None:
        text += f" ({wording.percent(finding['share'])} of {whole})"
    return (None, text) if of_processes else (text, None)


def time_span(begin: int | None, end: int | None) -> str | None:
    """Two moments as text."""
    return None if begin is None or end is None else f"{wording.time(begin)} to {wording.time(end)}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return wording.quantity(value, unit) or f"{value:,.6g} {unit}".rstrip()


def first_screen_html(head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]) -> str:
    """The first screen alone, as a notebook shows it: no script, no link, and a style that touches nothing else."""
    template = environment().get_template("notebook.html.j2")
    style = notebook_style("first_screen.css")
    return template.render(**first_screen(head, frames, linked=False), head=head, style=style, title=head["title"])


def places_of(findings: Sequence[Mapping[str, Any]]) -> dict[int, tuple[int, int]]:
    """Where a click on a finding leads, ns."""
    return {
        one["place"]: (one["worst_begin_ns"], one["worst_end_ns"])
        for one in findings
        if one["worst_begin_ns"] is not None and one["worst_end_ns"] is not None
    }
