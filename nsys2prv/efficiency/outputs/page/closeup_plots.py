"""Close-ups: what some devices do in a short part of the run, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from nsys2prv.efficiency import closeups
from nsys2prv.efficiency.outputs.page.bar_rows import kinds_of_families
from nsys2prv.efficiency.outputs.page.colours import ACTIVITIES, LINES, legend
from nsys2prv.efficiency.outputs.page.plot import SIDE, Plot, PlotAxis, time_axis
from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import short, time

_OF_ACTIVITY = {name: colour for name, (_, _, colour) in zip(closeups.ACTIVITIES, ACTIVITIES, strict=True)}
_AS_ONE = closeups.ACTIVITIES[1:]
"""Activities that have one colour each; kernels have those of their families."""
_OF_FAMILIES = tuple(colour for colour in LINES if colour not in {_OF_ACTIVITY[name] for name in _AS_ONE})
_OTHER = "#8c8c8c"
_LANE_HEIGHT, _FREE, _GAP = 15, 0.12, 0.5
"""Height of a lane, pixels; its share that is free; and the gap between devices as a share of it."""
_LONGEST_NAME = 44
_LONGEST_LABEL = 22


def closeup_figures(frames: Mapping[str, pl.DataFrame]) -> dict[str, Any] | None:
    """All close-ups with their titles and texts, and the legend that they share; None where there are none."""
    rows, bars = frames["closeups"], frames["closeup_bars"]
    if rows.is_empty():
        return None
    colours = family_colours(bars)
    titles = dict(frames["findings"].select("place", "title").iter_rows())
    shown = []
    for row in rows.iter_rows(named=True):
        title = f"Finding {row['place']}, {titles[row['place']]}" if row["what"] == closeups.FINDING else (
            f"{row['what'].capitalize()}, number {row['iteration']}"
        )  # fmt: skip
        own = bars.filter(pl.col("closeup") == row["closeup"])
        plot = closeup_plot(row, own, colours, f"Close-up: {title}")
        shown.append({"id": _id(row), "title": title, "reading": _reading(row, own), "drawn": plot.html()})
    return {"shown": shown, "legend": legend(closeup_legend(bars, colours))}


def _reading(row: Mapping[str, Any], bars: pl.DataFrame) -> str:
    length, begin = time(row["end_ns"] - row["begin_ns"]), time(row["begin_ns"])
    place = time(row["place_end_ns"] - row["place_begin_ns"])
    others = bars["device"].n_unique() - 1
    where = f"{row['device']} and {counted(others, 'other device')}" if others > 0 else row["device"]
    said = f"{length} from {begin} on, on {where}"
    if row["what"] == closeups.FINDING:
        said += f"; the grey part, {place}, is where it costs most"
    drawn = f"{row['operations']:,} activities"
    if bars.height < row["operations"]:
        drawn += f" in {bars.height:,} bars: neighbours shorter than {time(2 * row['step_ns'])} are one"
    return f"{said}. {drawn}."


def _id(row: Mapping[str, Any]) -> str:
    return f"closeup-{row['closeup']}"


def closeup_links(frames: Mapping[str, pl.DataFrame]) -> dict[int, str]:
    """By the places of findings the close-up that shows where they cost most: that of another one may show it too."""
    found = {}
    for finding in frames["findings"].iter_rows(named=True):
        begin, end = finding["worst_begin_ns"], finding["worst_end_ns"]
        for row in frames["closeups"].iter_rows(named=True) if begin is not None and end is not None else ():
            of_device = frames["closeup_bars"].filter(
                (pl.col("closeup") == row["closeup"]) & (pl.col("device") == finding["device"])
            )
            if row["place"] == finding["place"] or (of_device.height and row["begin_ns"] <= begin and end <= row["end_ns"]):
                found[finding["place"]] = _id(row)
                break
    return found


def iteration_links(rows: pl.DataFrame) -> dict[int, tuple[str, str]]:
    """By the numbers of iterations their close-ups, from `closeups`: id, and what it is."""
    known = rows.filter(pl.col("iteration").is_not_null())
    return {row["iteration"]: (_id(row), row["what"]) for row in known.iter_rows(named=True)}


def family_colours(bars: pl.DataFrame) -> dict[str, str]:
    """Colours of the kinds of kernels that take most time in `closeup_bars`; all others have one together."""
    most = (
        _with_kinds(bars)
        .filter(pl.col("kind").is_not_null())
        .group_by("kind")
        .agg(pl.col("busy_ns").sum())
        .sort("busy_ns", "kind", descending=[True, False])
    )
    return dict(zip(most["kind"], _OF_FAMILIES, strict=False))


def closeup_legend(bars: pl.DataFrame, colours: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Names of the colours that occur in `closeup_bars`."""
    found = _with_kinds(bars)
    entries = [("", name, colour) for name, colour in colours.items() if name in found["kind"]]
    if set(found["kind"].drop_nulls()) - set(colours):
        entries.append(("", "other kernels", _OTHER))
    titles = {name: title for name, (_, title, _) in zip(closeups.ACTIVITIES, ACTIVITIES, strict=True)}
    return entries + [("", titles[name], _OF_ACTIVITY[name]) for name in _AS_ONE if name in found["activity"]]


def closeup_plot(closeup: Mapping[str, Any], bars: pl.DataFrame, colours: Mapping[str, str], title: str) -> Plot:
    """A lane for each device and activity; the time counts from the start of the close-up.

    Parameters
    ----------
    closeup
        A row of `closeups`.
    bars
        Its rows of `closeup_bars`.
    colours
        Of `family_colours`.
    """
    begin, end = closeup["begin_ns"], closeup["end_ns"]
    tops = _tops(bars)
    height = max(tops.values()) + 1
    of_devices: dict[str, list[float]] = {}
    for (device, _), top in tops.items():
        of_devices.setdefault(device, []).append(top)
    named = tuple(
        (height - (places[0] + places[-1] + 1) / 2, short(name, _LONGEST_LABEL)) for name, places in of_devices.items()
    )
    axis = time_axis(0, end - begin, "time from there")
    plot = Plot(title, axis, PlotAxis(0, height, named=named), round(_LANE_HEIGHT * height))
    place = max(closeup["place_begin_ns"], begin) - begin, min(closeup["place_end_ns"], end) - begin
    if place != (0, end - begin):
        left, right = axis.at(place)
        plot.shape(f'<rect class="near" x="{left:.1f}" y="0" width="{max(right - left, 1):.1f}" height="{SIDE}"/>')
    fills = [
        _OF_ACTIVITY[activity] if activity in _AS_ONE else colours.get(kind, _OTHER)
        for activity, kind in _with_kinds(bars).select("activity", "kind").rows()
    ]
    low = [height - tops[row] - 1 + _FREE / 2 for row in bars.select("device", "activity").rows()]
    high = [place + 1 - _FREE for place in low]
    titles = [_title(row) for row in bars.iter_rows(named=True)]
    plot.bars(bars["begin_ns"] - begin, bars["end_ns"] - begin, low, high, fills, titles)
    return plot


def _with_kinds(bars: pl.DataFrame) -> pl.DataFrame:
    """With the column `kind` of kernels other than NCCL's: their family without details."""
    kinds = kinds_of_families(bars["family"].drop_nulls().unique())
    known = pl.col("family").replace_strict(kinds, default="without a name", return_dtype=pl.String)
    return bars.with_columns(kind=pl.when(~pl.col("activity").is_in(_AS_ONE)).then(known))


def _tops(bars: pl.DataFrame) -> dict[tuple[str, str], float]:
    """How far each lane is from the top, in heights of a lane; between devices there is a gap."""
    there = set(bars.select("device", "activity").rows())
    devices = bars["device"].unique(maintain_order=True)
    lanes = [(device, activity) for device in devices for activity in closeups.ACTIVITIES if (device, activity) in there]
    gaps = {device: _GAP * place for place, device in enumerate(devices)}
    return {lane: place + gaps[lane[0]] for place, lane in enumerate(lanes)}


def _title(row: Mapping[str, Any]) -> str:
    name, length = short(row["name"] or "without a name", _LONGEST_NAME), time(row["end_ns"] - row["begin_ns"])
    if row["count"] == 1:
        return f"{name}: {length}"
    return f"{row['count']:,} in {length}, {time(row['busy_ns'])} together; the longest: {name}"
