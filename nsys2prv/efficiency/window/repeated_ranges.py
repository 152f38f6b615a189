"""Iterations by NVTX: the range that repeats, chosen by evidence and not by its name.

Ranges whose texts differ only in numbers (`step 1`, `step 2`) are of one name. The range of iterations is in every rank that
has ranges, equally often, in a rather regular rhythm and at about the same times, and most of the work is launched inside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.named_ranges import NamedRanges
from nsys2prv.efficiency.run_events import RANGES, RunEvents, base_types
from nsys2prv.efficiency.window.device_work import WorkGroups, device_work
from nsys2prv.efficiency.window.kernel_period import LEAST_ITERATIONS
from nsys2prv.execution.external_sort import ExternalSort, plan_windows
from nsys2prv.execution.merging import Sums

LEAST_LAUNCHED = 0.6
"""Share of launches that must be inside the range."""
LEAST_OWN = 0.2
"""Share of launches that the thread of the range makes inside it: ranges of data loaders go on beside the work of others."""
NEARLY_ALL = 0.95
"""Of ranges inside each other the shortest counts whose share is at least so much of the largest share."""
_LEAST_TASKS = 0.9
"""Share of the tasks with ranges that must have it."""
_IRREGULAR = 1.5
"""Median deviation of the distances of two starts, relative to their median, from which there is no rhythm."""
_MOST_OCCURRENCES = 2_000_000
_MOST_NAMES = 24
_SAMPLED_LAUNCHES = 300_000
_HINT = r"(?i)iter|step|batch|epoch|train|forward"
"""Names of ranges that often are iterations: these count first where the evidence is equal."""
_NAME_SCHEMA = {"number": pl.Int64, "value": pl.Int64, "text": pl.String}
_COUNT_SCHEMA = dict.fromkeys(("name", "task", "count", "total"), pl.Int64)
_FIRST_SCHEMA = dict.fromkeys(("group", "place", "own", "any"), pl.Int64)
_OCCURRENCES = dict.fromkeys(("name", "task", "row", "start", "end"), pl.Int64)


def range_iterations(events: RunEvents, groups: WorkGroups, requested: str | None = None) -> tuple[pl.DataFrame, str | None]:
    """Iterations of each group by ranges: from the first work that is launched in a range to the first work of the next one.

    Parameters
    ----------
    requested
        NAME or NAME@DOMAIN of the ranges; None: they are looked for.

    Returns
    -------
    iterations
        Columns `group`, `number` (of the range in its task, from 0), `begin`, `end` (ns). Ranges that launch nothing are none.
    name
        What the ranges are called, `#` for numbers that differ; None: no range repeats so.
    """
    empty = pl.DataFrame(schema=dict.fromkeys(("group", "number", "begin", "end"), pl.Int64))
    ranges = events.collections.get(RANGES.name)
    if ranges is None or events.launches is None:
        return empty, None
    names = _names(events, requested)
    counts = _counts(events, ranges, names, groups)
    tried = _tried(counts, groups, requested is not None)
    if tried.is_empty():
        return empty, None
    found = _occurrences(events, ranges, names, tried)
    share = _launched(events, events.launches, found)
    text = names.group_by("name").agg(pl.col("text").min())
    chosen = _chosen(found, share.join(text, on="name"), requested is not None)
    if chosen is None:
        return empty, None
    name, called = chosen
    iterations = _bounded(events, events.launches, groups, found.filter(pl.col("name") == name))
    return (iterations, requested or called) if iterations.height else (empty, None)


def _names(events: RunEvents, requested: str | None) -> pl.DataFrame:
    """Columns `number` (event type), `value`, `text`, `name`: one number for all texts that differ in numbers only."""
    known = [
        (number, value, label)
        for number in events.types
        if base_types([number], RANGES)
        for value, label in (events.types[number].values or {}).items()
        if value
    ]
    found = pl.DataFrame(known, schema=_NAME_SCHEMA, orient="row")
    if requested is not None:
        slots = NamedRanges(events, [requested]).slots
        return found.join(slots.select(pl.col("number").cast(pl.Int64), "value"), on=["number", "value"]).with_columns(
            name=pl.lit(0, pl.Int64)
        )
    called = found.with_columns(text=pl.col("text").str.replace_all(r"[0-9]+", "#"))
    return called.with_columns(name=(pl.struct("number", "text").rank("dense").cast(pl.Int64) - 1))


def _pieces(events: RunEvents, ranges: ExternalSort, names: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Columns of _OCCURRENCES of the ranges of some names, in the order of time; nothing is used up."""
    for window in plan_windows([(ranges, 1)]):
        for piece in ranges.load(window):
            found = piece.with_columns(pl.col("number").cast(pl.Int64)).join(names, on=["number", "value"])
            task = pl.Series("task", events.rows.task[found["row"].to_numpy()])
            yield found.with_columns(task).select(pl.col(name).cast(dtype) for name, dtype in _OCCURRENCES.items())


def _counts(events: RunEvents, ranges: ExternalSort, names: pl.DataFrame, groups: WorkGroups) -> pl.DataFrame:
    """Number and time of the ranges of each name in each task that uses a GPU."""
    counts = Sums(_COUNT_SCHEMA, ["name", "task"])
    for piece in _pieces(events, ranges, names):
        using = piece.filter(pl.col("task").is_in(np.unique(groups.task)))
        counts.add(using.with_columns(count=pl.lit(1), total=pl.col("end") - pl.col("start")))
    return counts.rows


def _tried(counts: pl.DataFrame, groups: WorkGroups, is_requested: bool) -> pl.DataFrame:
    """Names that may be iterations: in all tasks, equally often but for what the edges of the recording cut."""
    tasks = counts["task"].n_unique()
    by_name = counts.group_by("name").agg(
        pl.len().alias("tasks"),
        pl.col("count").min().alias("least"),
        pl.col("count").max().alias("most"),
        pl.col("count", "total").sum(),
    )
    if is_requested:
        return by_name
    everywhere = (pl.col("tasks") >= _LEAST_TASKS * tasks) & (pl.col("least") >= LEAST_ITERATIONS)
    equal = pl.col("most") - pl.col("least") <= 1
    ordered = by_name.filter(everywhere & equal).sort("total", "name", descending=[True, False]).head(_MOST_NAMES)
    return ordered.filter(pl.col("count").cum_sum() <= _MOST_OCCURRENCES)


def _occurrences(events: RunEvents, ranges: ExternalSort, names: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Ranges of the names tried, in the order of name, task and start, with their `place` (0, 1, ...) in the task.

    Of a range inside another one of its name only the outer counts.
    """
    some = names.join(tried, on="name", how="semi")
    pieces = list(_pieces(events, ranges, some))
    found = pl.concat(pieces).sort("name", "task", "start", "end", descending=[False, False, False, True])
    former_end = pl.col("end").cum_max().shift(1).over("name", "task", "row")
    outer = found.filter((pl.col("start") >= former_end).fill_null(True))
    return outer.with_columns(place=pl.int_range(pl.len()).over("name", "task"))


def _launched(events: RunEvents, launches: ExternalSort, found: pl.DataFrame) -> pl.DataFrame:
    """Columns `name`, `share`, `own`: of some launches, the share whose call is inside a range of the name in the same task,
    and the share of those that the thread of the range makes itself.
    """
    step = launches.rows // _SAMPLED_LAUNCHES + 1
    sampled = pl.concat([_calls(events, piece.gather_every(step)) for piece in _loaded(launches)])
    called = sampled.partition_by("task", as_dict=True)
    shares = []
    for (name,), of_name in found.partition_by("name", as_dict=True).items():
        inside = own = 0
        for task, part in of_name.partition_by("task", as_dict=True).items():
            if task in called:
                hit = _inside(called[task], part)
                inside += hit.height
                own += hit.filter(pl.col("row") == pl.col("of_row")).height
        shares.append((name, inside / max(sampled.height, 1), own / max(sampled.height, 1)))
    return pl.DataFrame(shares, schema={"name": pl.Int64, "share": pl.Float64, "own": pl.Float64}, orient="row")


def _chosen(found: pl.DataFrame, shares: pl.DataFrame, is_requested: bool) -> tuple[int, str] | None:
    """The name of the ranges that are iterations, and its text."""
    distance = pl.col("start").diff().over("name", "task")
    rhythm = found.with_columns(distance=distance).group_by("name").agg(
        irregular=(pl.col("distance") - pl.col("distance").median()).abs().median() / pl.col("distance").median(),
        period=pl.col("distance").median(),
        count=pl.col("place").max(),
        total=(pl.col("end") - pl.col("start")).sum(),
    )  # fmt: skip
    apart = (
        found.group_by("name", "place")
        .agg(apart=(pl.col("start") - pl.col("start").median()).abs().median())
        .group_by("name")
        .agg(pl.col("apart").median())
    )
    known = shares.join(rhythm, on="name").join(apart, on="name")
    if not is_requested:
        in_step = (pl.col("irregular") < _IRREGULAR) & (pl.col("apart") < pl.col("period"))
        launches = (pl.col("share") >= LEAST_LAUNCHED) & (pl.col("own") >= LEAST_OWN)
        known = known.filter(launches & in_step)
        known = known.filter(pl.col("share") >= NEARLY_ALL * pl.col("share").max())
    if known.is_empty():
        return None
    hint = pl.col("text").str.contains(_HINT).alias("hint")
    best = known.with_columns(hint).sort("count", "hint", "total", "name", descending=[True, True, True, False])
    return int(best["name"][0]), str(best["text"][0])


def _bounded(events: RunEvents, launches: ExternalSort, groups: WorkGroups, found: pl.DataFrame) -> pl.DataFrame:
    """Iterations of each group: they begin with the first work that the thread of a range, or else its process, launches."""
    ends = Sums(_FIRST_SCHEMA, ["group", "place"], smallest=["own", "any"])
    of_task = {task: part for (task,), part in found.partition_by("task", as_dict=True).items()}
    for piece in _loaded(launches):
        calls = _calls(events, piece).with_columns(group=pl.Series(groups.of_row[piece["to_row"].to_numpy()]))
        for (task,), part in calls.partition_by("task", as_dict=True).items():
            if task not in of_task:
                continue
            inside = _inside(part, of_task[task])
            own = pl.when(pl.col("row") == pl.col("of_row")).then(pl.col("to_time"))
            ends.add(inside.with_columns(own=own, any=pl.col("to_time")).filter(pl.col("group") >= 0))
    firsts = ends.rows.select("group", pl.col("place").alias("number"), pl.coalesce("own", "any").alias("begin"))
    frames = []
    for (group,), part in sorted(firsts.partition_by("group", as_dict=True).items()):
        # What runs ahead of its order, as copies of later batches, starts no iteration earlier.
        ordered = part.sort("number").with_columns(pl.col("begin").cum_max())
        ordered = ordered.unique("begin", keep="first", maintain_order=True)
        last = ordered.row(-1, named=True)
        ranges = of_task[int(groups.task[group])]
        end = _last_end(events, launches, groups, int(group), last["begin"], ranges.row(last["number"], named=True))
        frames.append(ordered.with_columns(end=pl.col("begin").shift(-1).fill_null(end)))
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(("group", "number", "begin", "end"), pl.Int64))
    # Numbers count the iterations with work: the recording of a device may start later than that of NVTX.
    found_all = pl.concat(frames).select("group", "number", "begin", "end")
    return found_all.with_columns(pl.col("number") - pl.col("number").min())


def _last_end(
    events: RunEvents, launches: ExternalSort, groups: WorkGroups, group: int, begin: int, last: dict[str, int]
) -> int:
    """End of the last work of a group that is launched in its last range (`start`, `end`)."""
    end = begin
    for piece in _loaded(launches, begin):
        is_of_group = pl.Series(groups.of_row[piece["to_row"].to_numpy()] == group)
        calls = piece.filter(is_of_group & pl.col("time").is_between(last["start"], last["end"], closed="left"))
        until = calls["to_time"].max()
        if isinstance(until, int):
            end = max(end, until)
    behind = begin
    for work in device_work(events, groups, begin, end + 1):
        until = work.filter(pl.col("group") == group)["end"].max()
        if isinstance(until, int):
            behind = max(behind, until)
    return behind


def _inside(calls: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Calls that are in a range of their task, with its `place`, and the row of its thread as `of_row`."""
    begin: Numbers = ranges["start"].to_numpy()
    at = np.searchsorted(begin, calls["time"].to_numpy(), side="right") - 1
    known = ranges[np.maximum(at, 0)]
    placed = calls.with_columns(place=known["place"], of_row=known["row"], until=known["end"])
    return placed.filter(pl.Series(at >= 0) & (pl.col("time") < pl.col("until")))


def _loaded(launches: ExternalSort, begin: int | None = None) -> Iterator[pl.DataFrame]:
    for window in plan_windows([(launches, 1)]):
        if begin is None or window.end is None or window.end > begin:
            yield from launches.load(window)


def _calls(events: RunEvents, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches with the `task` of the calling thread."""
    return launches.with_columns(task=pl.Series(events.rows.task[launches["row"].to_numpy()]))
