"""Short parts of a run at the level of kernels: around the places of findings, the slowest iteration, and a usual one.

They are chosen when everything is measured."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.measured_run import KINDS_OF_NUMBER, MeasuredRun
from nsys2prv.efficiency.meters.kernel_stats import family_names, with_names
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, Frames, Table
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.window import OTHER_WORK, WARM_UP

FINDING, SLOWEST, USUAL = "finding", "slowest iteration", "usual iteration"
"""What a close-up is of."""
ACTIVITIES = ("kernels", "nccl", "memory")
"""Activities of a device, in the order of the kinds of `measured_run`."""
_MOST_FINDINGS, _MOST_DEVICES = 2, 4
MOST_BARS = 500
"""Bars of one close-up; activities that are too short for that are drawn as one."""
_FINEST = 2_000
"""Parts of a close-up of which the activities are seen one by one."""
_LARGEST_SHARE = 0.2
"""Share of the window of the longest place of a finding that has a close-up: a longer one is seen in the map of devices."""
_AROUND, _MOST_AROUND = 15, 0.05
"""What is shown on both sides of a place: so many usual distances between activities, or this share of the window if less."""

CLOSEUPS = Table(
    "closeups",
    "Close-ups",
    "one part of the run of which `closeup_bars` has the activities of devices",
    (
        Column.count("closeup", "1, 2, ..."),
        Column.text("what", f"`{FINDING}`: around its place; `{SLOWEST}`, `{USUAL}`: where it takes longest, the one of median "
                    "length, both without warm-up"),
        Column.count("place", "of the finding; null for an iteration"),
        Column.count("iteration", "its number; null for a finding"),
        DEVICE,
        Column.moment("begin_ns", "where the close-up begins"),
        Column.moment("end_ns", "where it ends"),
        Column.moment("place_begin_ns", "start of the place, or of the iteration on the device"),
        Column.moment("place_end_ns", "end of it"),
        Column.count("operations", "kernels, graphs, copies and memsets of the devices shown"),
        Column.ns("step_ns", "neighbours that are shorter than twice this are one bar"),
    ),
    when="a finding whose place is short against the window, or iterations",
)  # fmt: skip
CLOSEUP_BARS = Table(
    "closeup_bars",
    "Activities of close-ups",
    "one activity of a device, or several that are too short to be seen, in a close-up",
    (
        Column.count("closeup", "as in `closeups`"),
        DEVICE,
        Column.text("activity", "`kernels` (other than NCCL's, and graphs), `nccl` or `memory` (copies and memsets)"),
        Column.moment("begin_ns", "start of the first"),
        Column.moment("end_ns", "end of the last"),
        Column.count("count", "how many it is"),
        Column.ns("busy_ns", "sum of their durations in the close-up"),
        Column.text("name", "name of the longest"),
        Column.text("family", "its family; null for copies and memsets"),
    ),
    when="as `closeups`",
)


def closeup_tables(run: MeasuredRun, tables: Frames) -> Filled:
    """The tables `closeups` and `closeup_bars` of a run in the measured window, from `findings`, `iterations` and
    `task_iterations`, whose moments are from the start of the window."""
    if not run.events.length or run.operations.is_empty():
        return {}
    names = [device.name for device in run.events.rows.devices]
    rows: list[Mapping[str, Any]] = []
    bars: list[pl.DataFrame] = []
    for devices, closeup in (*_of_findings(run, tables["findings"]), *_of_iterations(run, tables)):
        drawn = _with_others(list(map(names.index, devices)), len(names))
        shown, step = _bars(run, drawn, closeup["begin_ns"], closeup["end_ns"])
        if shown.height:
            rows.append({**closeup, "closeup": len(rows) + 1, "operations": shown["count"].sum(), "step_ns": step})
            bars.append(shown.with_columns(closeup=pl.lit(len(rows))))
    return {CLOSEUPS: rows, CLOSEUP_BARS: pl.concat(bars)} if rows else {}


def _of_findings(run: MeasuredRun, findings: pl.DataFrame) -> list[tuple[list[str], dict[str, Any]]]:
    """Names of devices that are shown, and a row of `closeups`: places of the first findings, but for those shown already."""
    length, operations = run.events.length, run.events.collections[ON_DEVICES.name].rows
    usual_distance = run.window.recorded * len(run.events.rows.devices) / operations
    least_around = min(round(_AROUND * usual_distance), round(_MOST_AROUND * length))
    closeups: list[tuple[list[str], dict[str, Any]]] = []
    places = findings.sort("place").select("place", "device", "worst_begin_ns", "worst_end_ns")
    for place, device, begin, end in places.drop_nulls(["worst_begin_ns", "worst_end_ns"]).iter_rows():
        is_seen = any(seen["begin_ns"] <= begin and end <= seen["end_ns"] and seen["device"] == device for _, seen in closeups)
        if 0 < end - begin <= _LARGEST_SHARE * length and not is_seen and len(closeups) < _MOST_FINDINGS:
            around = max((end - begin) // 2, least_around)
            edges = {"begin_ns": max(begin - around, 0), "end_ns": min(end + around, length)}
            worst = {"place_begin_ns": begin, "place_end_ns": end}
            closeups.append(([device], {"what": FINDING, "place": place, "device": device, **edges, **worst}))
    return closeups


def _of_iterations(run: MeasuredRun, tables: Frames) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The same of the slowest iteration of usual work, and one of median length; where there is no other, only the latter.

    They are shown on the device where the iteration takes longest, that of the first finding, and the quickest one."""
    unusual = tables["iterations"].filter(pl.col("kind").is_in([WARM_UP, OTHER_WORK]))["iteration"]
    of_devices = tables["task_iterations"].filter(~pl.col("iteration").is_in(unusual.to_list()))
    of_finding = tables["findings"].sort("place")["device"].head(1).to_list()
    ordered = of_devices.sort("length_ns", "iteration", "device", descending=[True, False, False])
    longest = ordered.unique("iteration", keep="first", maintain_order=True)
    # Of an even number the longer one; never the slowest, if there is another.
    middle = (longest.height + 1) // 2 if longest.height > 2 else longest.height - 1
    kinds = ((SLOWEST, 0), (USUAL, middle)) if longest.height > 1 else ((USUAL, 0),) if longest.height else ()
    for what, row in kinds:
        iteration, device, begin, end = longest.select("iteration", "device", "begin_ns", "end_ns").row(row)
        quickest = of_devices.filter(pl.col("iteration") == iteration).sort("length_ns", "device")["device"][0]
        edges = {"begin_ns": begin, "end_ns": min(end, run.events.length)}
        place = {f"place_{name}": time for name, time in edges.items()}
        yield [device, *of_finding, quickest], {"what": what, "iteration": iteration, "device": device, **edges, **place}


def _with_others(first: Sequence[int], count: int) -> tuple[int, ...]:
    """These devices and others of `count` at equal distances, in order.

    >>> _with_others([5, 5], 8), _with_others([1], 3)
    ((0, 2, 5, 7), (0, 1, 2))
    """
    spread = np.linspace(0, count - 1, min(count, _MOST_DEVICES)).round().astype(int).tolist()
    return tuple(sorted(list(dict.fromkeys([*first, *spread]))[:_MOST_DEVICES]))


def _bars(run: MeasuredRun, devices: Sequence[int], begin: int, end: int) -> tuple[pl.DataFrame, int]:
    """What devices do in a close-up: rows of `closeup_bars` without `closeup`, and the step, ns."""
    step = max(-(-(end - begin) // _FINEST), 1)
    start, until = pl.col("start"), pl.col("end")
    inside = run.operations.filter(start < end, (start >= begin) | (until > begin))
    activities = run.events.rows.located(inside).filter(pl.col("device").is_in(devices)).select(
        pl.col("device").cast(pl.Int64),
        pl.col("number").replace_strict(KINDS_OF_NUMBER, default=0, return_dtype=pl.Int64).alias("kind"),
        start.clip(lower_bound=begin) - begin,
        until.clip(upper_bound=end) - begin,
        pl.col("number", "value", "family").cast(pl.Int64),
    )  # fmt: skip
    activities = activities.with_columns(count=pl.lit(1, pl.Int64), busy=until - start, longest=until - start)
    bars = _merged(activities, step)
    while bars.height > MOST_BARS:
        step *= 2
        bars = _merged(bars, step)
    named = with_names(bars, run.events)
    rows = named.select(
        run.device_names(pl.col("device")).alias("device"),
        pl.col("kind").replace_strict(dict(enumerate(ACTIVITIES)), return_dtype=pl.String).alias("activity"),
        "count",
        begin_ns=start + begin,
        end_ns=until + begin,
        busy_ns="busy",
        name="kernel",
        family=family_names(named, run.events),
    )
    return rows, step


def _merged(activities: pl.DataFrame, step: int) -> pl.DataFrame:
    """Those that are shorter than two steps are one bar in each step of time in which some of them start."""
    lane, order = ["device", "kind"], ["start", "end", "number", "value"]
    is_long = pl.col("end") - pl.col("start") >= 2 * step
    short = activities.filter(~is_long).sort("longest", *order, descending=[True, *[False] * len(order)])
    merged = short.group_by(*lane, (pl.col("start") // step).alias("step"), maintain_order=True).agg(
        pl.col("start").min(),
        pl.col("end").max(),
        pl.col("number", "value", "family", "longest").first(),
        pl.col("count", "busy").sum(),
    )
    return pl.concat([activities.filter(is_long), merged.select(activities.columns)]).sort(*lane, *order)
