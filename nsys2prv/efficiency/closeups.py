"""Short parts of a run at the level of kernels: around the places of findings, the slowest iteration, and a usual one.

They are chosen when everything is measured, and read again from the collection of device activities, which is kept until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.meters.kernel_stats import family_names, with_names
from nsys2prv.efficiency.result_tables import DEVICE, Column, Filled, Table
from nsys2prv.efficiency.run_events import ON_DEVICES, RunEvents
from nsys2prv.efficiency.sweep import KINDS_OF_NUMBER
from nsys2prv.efficiency.window import WARM_UP
from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows

FINDING, SLOWEST, USUAL = "finding", "slowest iteration", "usual iteration"
"""What a close-up is of."""
ACTIVITIES = ("kernels", "nccl", "memory")
"""Activities of a device, in the order of the kinds of `sweep`."""
_MOST_FINDINGS = 2
_MOST_DEVICES = 4
MOST_BARS = 500
"""Bars of one close-up; activities that are too short for that are drawn as one."""
_FINEST = 2_000
"""Parts of a close-up of which the activities are seen one by one."""
_LARGEST_SHARE = 0.2
"""Share of the window of the longest place of a finding that has a close-up: a longer one is seen in the map of devices."""
_AROUND = 15
"""Usual distances between activities that are shown on both sides of a place, at least."""
_MOST_AROUND = 0.05
"""The same at most, as a share of the window."""

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


@dataclass(frozen=True)
class _Choice:
    """A part of the run to show: what is there (`begin`, `end`) and what is `shown`, ns from the start of the window; the
    `devices` by their places."""

    what: str
    place: int | None
    iteration: int | None
    device: str
    begin: int
    end: int
    shown: tuple[int, int]
    devices: tuple[int, ...]


def closeup_tables(events: RunEvents, tables: Mapping[str, pl.DataFrame]) -> Filled:
    """The tables `closeups` and `closeup_bars`.

    Parameters
    ----------
    events
        Of the measured window. The collection ON_DEVICES must not be deleted.
    tables
        With `findings`, `iterations` and `task_iterations`, whose moments are from the start of the window.
    """
    operations = events.collections.get(ON_DEVICES.name)
    if operations is None or not events.length:
        return {}
    choices = [*_of_findings(events, tables["findings"], operations), *_of_iterations(events, tables)]
    rows: list[Mapping[str, Any]] = []
    bars: list[pl.DataFrame] = []
    for choice in choices:
        found, step, count = _bars(events, operations, choice)
        if not count:
            continue
        rows.append(
            {
                "closeup": len(rows) + 1,
                "what": choice.what,
                "place": choice.place,
                "iteration": choice.iteration,
                "device": choice.device,
                "begin_ns": choice.shown[0],
                "end_ns": choice.shown[1],
                "place_begin_ns": choice.begin,
                "place_end_ns": choice.end,
                "operations": count,
                "step_ns": step,
            }
        )
        bars.append(found.with_columns(closeup=pl.lit(len(rows))))
    return {CLOSEUPS: rows, CLOSEUP_BARS: pl.concat(bars)} if rows else {}


def _of_findings(events: RunEvents, findings: pl.DataFrame, operations: ExternalSort) -> Iterator[_Choice]:
    """Places of the first findings, of those that show the same only one."""
    devices = [device.name for device in events.rows.devices]
    recorded = events.length if events.recorded is None else events.recorded
    usual = recorded * len(devices) / max(operations.rows, 1)
    least, most = round(_AROUND * usual), round(_MOST_AROUND * events.length)
    chosen: list[_Choice] = []
    for row in findings.sort("place").iter_rows(named=True):
        begin, end = row["worst_begin_ns"], row["worst_end_ns"]
        if begin is None or end is None or not 0 < end - begin <= _LARGEST_SHARE * events.length:
            continue
        if any(covers(one.shown, one.device, row) for one in chosen):
            continue
        around = max((end - begin) // 2, min(least, most))
        shown = max(begin - around, 0), min(end + around, events.length)
        some = _some_devices([devices.index(row["device"])], len(devices))
        chosen.append(_Choice(FINDING, row["place"], None, row["device"], begin, end, shown, some))
        yield chosen[-1]
        if len(chosen) == _MOST_FINDINGS:
            break


def covers(shown: tuple[int, int], device: str, finding: Mapping[str, Any]) -> bool:
    """Whether a close-up, by its times and device, shows the place of a finding (a row of `findings`)."""
    begin, end = finding["worst_begin_ns"], finding["worst_end_ns"]
    return begin is not None and end is not None and shown[0] <= begin and end <= shown[1] and device == finding["device"]


def _of_iterations(events: RunEvents, tables: Mapping[str, pl.DataFrame]) -> Iterator[_Choice]:
    """The slowest iteration, and one of median length; where there is no other, only the latter.

    They are shown on the device where the iteration takes longest, that of the first finding, and the quickest one.
    """
    devices = [device.name for device in events.rows.devices]
    warm_up = tables["iterations"].filter(pl.col("kind") == WARM_UP)["iteration"]
    of_devices = tables["task_iterations"].filter(~pl.col("iteration").is_in(warm_up.to_list()))
    found = tables["findings"].sort("place")["device"].head(1).to_list()
    longest = (
        of_devices.sort("length_ns", "device", descending=[True, False])
        .unique("iteration", keep="first", maintain_order=True)
        .sort("length_ns", "iteration", descending=[True, False])
    )
    if longest.is_empty():
        return
    # Of an even number the longer one; never the slowest, if there is another.
    middle = (longest.height + 1) // 2 if longest.height > 2 else longest.height - 1
    kinds = ((SLOWEST, 0), (USUAL, middle)) if longest.height > 1 else ((USUAL, 0),)
    for what, place in kinds:
        row = longest.row(place, named=True)
        begin, end = row["begin_ns"], min(row["end_ns"], events.length)
        lengths = of_devices.filter(pl.col("iteration") == row["iteration"]).sort("length_ns", "device")
        first = dict.fromkeys([row["device"], *found, lengths["device"][0]])
        some = _some_devices([devices.index(name) for name in first], len(devices))
        yield _Choice(what, None, row["iteration"], row["device"], begin, end, (begin, end), some)


def _some_devices(first: Sequence[int], count: int) -> tuple[int, ...]:
    """Some devices, and others at equal distances, in order.

    >>> _some_devices([5, 5], 8), _some_devices([1], 3)
    ((0, 2, 5, 7), (0, 1, 2))
    """
    others = np.linspace(0, count - 1, min(count, _MOST_DEVICES)).round().astype(int).tolist()
    return tuple(sorted(list(dict.fromkeys([*first, *others]))[:_MOST_DEVICES]))


_LANE = ["device", "kind"]


def _bars(events: RunEvents, operations: ExternalSort, choice: _Choice) -> tuple[pl.DataFrame, int, int]:
    """What the devices of a choice do: rows of `closeup_bars` without `closeup`, the step, and how many operations it is."""
    begin, end = (time + events.offset for time in choice.shown)
    step = max(-(-(end - begin) // _FINEST), 1)
    wanted = pl.Series(np.isin(np.arange(len(events.rows.devices)), choice.devices))
    merged: list[pl.DataFrame] = []
    for frame in _read(operations, begin, end):
        of_devices = events.rows.located(frame).filter(pl.col("device") >= 0)
        found = of_devices.filter(wanted.gather(of_devices["device"])).select(
            pl.col("device").cast(pl.Int64),
            pl.col("number").replace_strict(KINDS_OF_NUMBER, default=0, return_dtype=pl.Int64).alias("kind"),
            pl.col("start").clip(lower_bound=begin) - begin,
            pl.col("end").clip(upper_bound=end) - begin,
            pl.col("number", "value", "family").cast(pl.Int64),
        )
        length = pl.col("end") - pl.col("start")
        merged.append(_merged(found.with_columns(count=pl.lit(1, pl.Int64), busy=length, longest=length), step))
    if not merged or not (bars := _merged(pl.concat(merged), step)).height:
        return pl.DataFrame(), step, 0
    count = int(bars["count"].sum())
    while bars.height > MOST_BARS:
        step *= 2
        bars = _merged(bars, step)
    named = with_names(bars, events)
    families = family_names(named, events)
    names = pl.Series([device.name for device in events.rows.devices])
    rows = named.select(
        names.gather(named["device"]).alias("device"),
        pl.Series([ACTIVITIES[kind] for kind in named["kind"]], dtype=pl.String).alias("activity"),
        "count",
        begin_ns=pl.col("start") + choice.shown[0],
        end_ns=pl.col("end") + choice.shown[0],
        busy_ns="busy",
        name="kernel",
        family=pl.when(pl.col("kind") < ACTIVITIES.index("memory")).then(families),
    )
    return rows, step, count


def _read(operations: ExternalSort, begin: int, end: int) -> Iterator[pl.DataFrame]:
    """Operations that are in a part of the time, in frames of bounded size."""
    yield from operations.load_open(begin)
    for window in plan_windows([(operations, 1)]):
        low = begin if window.begin is None else max(window.begin, begin)
        high = end if window.end is None else min(window.end, end)
        if low < high:
            yield from operations.load(Window(low, high))


def _merged(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    """Those that are shorter than two steps are one bar in each step of time in which some of them start."""
    is_long = pl.col("end") - pl.col("start") >= 2 * step
    order = ["start", "end", "number", "value"]
    alone = rows.filter(is_long)
    together = (
        rows.filter(~is_long)
        .sort("longest", *order, descending=[True, *[False] * len(order)])
        .group_by(*_LANE, pl.col("start") // step, maintain_order=True)
        .agg(
            pl.col("start").min().alias("first"),
            pl.col("end").max(),
            pl.col("number", "value", "family", "longest").first(),
            pl.col("count", "busy").sum(),
        )
        .drop("start")
        .rename({"first": "start"})
    )
    return pl.concat([alone, together.select(rows.columns)]).sort(*_LANE, *order)
