"""The iterations of a run: NVTX ranges that repeat, else the period of the sequence of what devices execute.

**NVTX ranges.** Texts that differ only in numbers (`step 1`, `step 2`) are one name. The ranges of a name are iterations where
nearly all tasks have them, equally often, in a rather regular rhythm and at about the same times, and most work is launched
inside of them, much of it by their own thread. Of several such names the one counts that has most ranges.

**Period.** Looked at is the stream of each task and device with most time in kernels: others, such as those of data loaders,
run ahead of it and behind. Each kernel, copy or collective that is executed some times over the time of the work is tried as a
mark. Segments between two of its executions are alike where their histograms of names differ by less than a tenth. Of all marks
the one counts whose like segments hold most of the time of the work; of nearly equal ones that with the shortest period. If no
mark holds much more than half, every second, third, ... execution is tried as well: time steps may begin in turn with either
direction. An iteration begins at the operation that the device is idle longest before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.intervals import Numbers, expanded
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.named_ranges import NamedRanges, range_texts
from nsys2prv.efficiency.run_events import ON_DEVICES, RANGES, STREAM, RunEvents, base_types
from nsys2prv.efficiency.window import ITERATION_SCHEMA, RunIterations, warm_up_iterations
from nsys2prv.execution.row_order import distinct
from nsys2prv.vocabulary import event_types

BY_KERNELS = "period of kernels"
"""How iterations were found where no range repeats."""
LEAST_ITERATIONS = 3
"""Fewer are no repetition."""
_OTHER = 0.5
"""Share of the iterations of most devices that a device has at least, and by which it has more at most."""

LEAST_LAUNCHED = 0.6
"""Share of launches that must be inside the ranges of a name."""
LEAST_BY_THREAD = 0.2
"""Share of launches that the thread of the range makes inside it: ranges of data loaders go on beside the work of others."""
NEARLY_ALL = 0.95
"""Of ranges inside each other the shortest counts whose share is at least so much of the largest share."""
_LEAST_TASKS = 0.9
"""Share of the tasks with ranges that must have it."""
_IRREGULAR = 1.5
"""Median deviation of the distances of two starts, relative to their median, from which there is no rhythm."""
_HINT = r"(?i)iter|step|batch|epoch|train|forward"
"""Names of ranges that often are iterations: these count first where the evidence is equal."""
_SAMPLED_LAUNCHES = 100_000
_MOST_NAMES = 24
"""Names that are tried: of ranges those with most time, of operations of a device those with fewest executions."""

LEAST_COVERED = 0.5
"""Share of the time of work that must be in segments that are alike."""
LIKE = 0.1
"""Difference of two histograms of names, relative to the length of one, up to which the work is taken for the same."""
HARDLY_COVERED = 0.6
"""Share up to which every second, third, ... execution is tried: parts of two kinds that take turns have half each."""
LEAST_OF_SEVERAL = 0.9
"""LEAST_COVERED of every second, third, ... execution: that happens by chance more easily."""
FINER = 0.02
"""Share of work that a shorter period may leave out and still count more than a longer one."""
_MOST_EXECUTIONS = 12
"""Executions of a name in one iteration, where none recurs once in each."""
_MOST_MARKS = 100_000
"""Executions of a name that is tried as a mark."""
_HISTOGRAM_NAMES = 64
"""Columns of a histogram: names with most executions; the last one is for all others."""
_SAMPLED_ITERATIONS = 40
"""Iterations in which the operation is looked for that begins them."""
_BOUNDED_SCHEMA = dict.fromkeys(("group", "number", "begin", "end"), pl.Int64)
"""Iterations of groups: a group is what one task does on one device."""


def find_iterations(run: MeasuredRun, requested: str | None = None) -> RunIterations:
    """The iterations of a whole recording.

    Parameters
    ----------
    requested
        NAME or NAME@DOMAIN of the NVTX ranges that are iterations; None: they are looked for.
    """
    rows, operations = run.events.rows, run.operations
    group_of_row: Numbers = np.where(rows.of_kind(STREAM), rows.task * len(rows.devices) + rows.device, -1)
    if operations.is_empty() or not rows.devices_of_task:
        return RunIterations.none("no device works", None)
    work = int(operations["start"].to_numpy().min()), int(operations["end"].to_numpy().max())
    bounded, name = _by_ranges(run, group_of_row, requested)
    if name is None and requested is not None:
        return RunIterations.none(f"no work is launched in NVTX ranges {requested}", work)
    if name is None:
        bounded, reason = _by_period(run, group_of_row)
        if reason is not None:
            return RunIterations.none(reason, work)
    numbered = _numbered(bounded, by_time=name is None)
    lengths = numbered.group_by("number").agg(length=(pl.col("end") - pl.col("begin")).median()).sort("number")
    warm_up = lengths["number"].head(warm_up_iterations(lengths["length"].to_numpy()))
    iterations = numbered.with_columns(
        task=pl.col("group") // len(rows.devices),
        device=pl.col("group") % len(rows.devices),
        is_warm_up=pl.col("number").is_in(warm_up.implode()),
    )
    usual = iterations.filter(~pl.col("is_warm_up"))
    steady = int(usual["begin"].to_numpy().min()), int(usual["end"].to_numpy().max())
    iterations = iterations.select(pl.col(name).cast(dtype) for name, dtype in ITERATION_SCHEMA.items())
    iterations = iterations.sort("number", "task", "device")
    return RunIterations(iterations, f"nvtx {name}" if name else BY_KERNELS, None, work, steady)


def _numbered(bounded: pl.DataFrame, *, by_time: bool) -> pl.DataFrame:
    """Iterations with numbers that mean the same one in all groups; groups in which something else repeats are left out.

    With `by_time` an iteration has the number of the one of the group with most of them that begins nearest, as a recording
    may begin within an iteration of some ranks.
    """
    parts = [part.sort("begin") for _, part in sorted(bounded.partition_by("group", as_dict=True).items())]
    usual = float(np.median([part.height for part in parts]))
    alike = [part for part in parts if abs(part.height - usual) <= _OTHER * usual]
    begins = max(alike, key=len)["begin"].to_numpy()
    period = max(float(np.median(np.diff(begins))), 1.0) if len(begins) > 1 else 1.0
    for place, part in enumerate(alike if by_time else ()):
        compared = min(part.height, len(begins))
        late = float(np.median(part["begin"].to_numpy()[:compared] - begins[:compared])) / period
        first = round(late) if abs(late) > _OTHER else 0
        alike[place] = part.with_columns(number=pl.Series(np.arange(part.height) + first))
    return pl.concat(alike).with_columns(pl.col("number") - pl.col("number").min())


# -- NVTX ranges ------------------------------------------------------------------------------------


def _by_ranges(run: MeasuredRun, group_of_row: Numbers, requested: str | None) -> tuple[pl.DataFrame, str | None]:
    """Iterations (_BOUNDED_SCHEMA) by ranges: from the first work that is launched in a range to that of the next one. `number`
    is that of the range in its task; ranges that launch nothing are none. And the name of the ranges; None: none repeat."""
    rows = run.events.rows
    located = rows.located(run.frame(RANGES).join(_range_names(run.events, requested), on=["number", "value"]))
    ranges = located.filter(pl.col("task").is_in(list(rows.devices_of_task)))
    ranges = _outermost(_repeated(ranges) if requested is None else ranges)
    launches = run.launches.select(
        "time", "row", "to_time", pl.Series("group", group_of_row[run.launches["to_row"].to_numpy()])
    )
    launches = rows.located(launches).sort("time")
    if requested is None:
        ranges = ranges.join(_most_likely(ranges, launches), on="name", how="semi", maintain_order="left")
    bounded = _bounded_by_launches(run, group_of_row, _launched_in(ranges, launches))
    name = requested or ranges["text"].min()
    return bounded, str(name) if bounded.height else None


def _range_names(events: RunEvents, requested: str | None) -> pl.DataFrame:
    """Columns `number` (event type), `value`, `text`, `name`: equal for all texts that differ in numbers only."""
    names = range_texts(events).select("number", "value", "text")
    if requested is not None:
        slots = NamedRanges(events, [requested]).slots
        return names.join(slots, on=["number", "value"], how="semi").with_columns(name=pl.lit(0, pl.Int64))
    without_numbers = names.with_columns(text=pl.col("text").str.replace_all(r"[0-9]+", "#"))
    return without_numbers.with_columns(name=pl.struct("number", "text").rank("dense").cast(pl.Int64) - 1)


def _repeated(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges whose names nearly all tasks have, equally often but for what the edges of the recording cut."""
    counts = ranges.group_by("name", "task").agg(count=pl.len(), total=(pl.col("end") - pl.col("start")).sum())
    equal = pl.col("count").max() - pl.col("count").min() <= 1
    everywhere = (pl.len() >= _LEAST_TASKS * counts["task"].n_unique()) & (pl.col("count").min() >= LEAST_ITERATIONS)
    by_name = counts.group_by("name").agg(pl.col("total").sum(), is_repeated=equal & everywhere)
    tried = by_name.filter("is_repeated").sort("total", "name", descending=[True, False]).head(_MOST_NAMES)
    return ranges.join(tried, on="name", how="semi")


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Of ranges of a name inside each other the outer ones, in the order of their starts, with their `place` (0, 1, ...) in the
    task."""
    ordered = ranges.sort("name", "task", "start", "end", descending=[False] * 3 + [True])
    former_end = pl.col("end").cum_max().shift(1).over("name", "task", "row")
    outer = ordered.filter((pl.col("start") >= former_end).fill_null(value=True))
    return outer.with_columns(place=pl.int_range(pl.len()).over("name", "task"))


def _most_likely(ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The name whose ranges are iterations, by what is launched in them and by their rhythm: a row, or none."""
    sample = launches.gather_every(launches.height // _SAMPLED_LAUNCHES + 1)
    by_thread = pl.col("is_by_thread").sum()
    shares = (
        _launched_in(ranges, sample).group_by("name").agg(share=pl.len() / sample.height, by_thread=by_thread / sample.height)
    )
    distance, start = pl.col("distance"), pl.col("start")
    rhythm = ranges.with_columns(distance=start.diff().over("name", "task")).group_by("name").agg(
        irregular=(distance - distance.median()).abs().median() / distance.median(),
        period=distance.median(),
        count=pl.col("place").max(),
        total=(pl.col("end") - start).sum(),
        hint=pl.col("text").str.contains(_HINT).any(),
    )  # fmt: skip
    spread = ranges.group_by("name", "place").agg(spread=(start - start.median()).abs().median())
    likely = shares.join(rhythm, on="name").join(spread.group_by("name").agg(pl.col("spread").median()), on="name")
    in_step = (pl.col("irregular") < _IRREGULAR) & (pl.col("spread") < pl.col("period"))
    likely = likely.filter(in_step & (pl.col("share") >= LEAST_LAUNCHED) & (pl.col("by_thread") >= LEAST_BY_THREAD))
    likely = likely.filter(pl.col("share") >= NEARLY_ALL * pl.col("share").max())
    return likely.sort("count", "hint", "total", "name", descending=[True, True, True, False]).head(1)


def _launched_in(ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches inside ranges of their tasks, by name, with the `place` of the range, and whether its thread makes them."""
    started = ranges.select("name", "task", "place", range_row="row", time="start", until="end").sort("time")
    tried = launches.join(ranges.select("name").unique(), how="cross")
    inside = tried.join_asof(started, on="time", by=["name", "task"], check_sortedness=False).filter(
        pl.col("time") < pl.col("until")
    )
    return inside.with_columns(is_by_thread=pl.col("row") == pl.col("range_row"))


def _bounded_by_launches(run: MeasuredRun, group_of_row: Numbers, launched: pl.DataFrame) -> pl.DataFrame:
    """Iterations of each group: they begin with the first work that the thread of a range, or else its process, launches."""
    begin = pl.col("to_time")
    firsts = launched.filter(pl.col("group") >= 0).group_by("group", number="place").agg(
        begin=pl.coalesce(begin.filter("is_by_thread").min(), begin.min()), last=begin.max()
    )  # fmt: skip
    # What runs ahead of its order, as copies of later batches, starts no iteration earlier.
    ordered = firsts.sort("group", "number").with_columns(pl.col("begin").cum_max().over("group"))
    ordered = ordered.unique(["group", "begin"], keep="first", maintain_order=True)
    # The last iteration ends with the last work that is launched in its range.
    operations = run.operations.select("start", "end", group=pl.Series(group_of_row[run.operations["row"].to_numpy()]))
    of_last = operations.join(ordered.group_by("group").last(), on="group")
    of_last = of_last.filter(pl.col("start") >= pl.col("begin"), pl.col("start") <= pl.max_horizontal("begin", "last"))
    ends = of_last.group_by("group").agg(pl.col("end").max())
    end = pl.coalesce(pl.col("begin").shift(-1).over("group"), "end")
    bounded = ordered.join(ends, on="group", how="left", maintain_order="left")
    # Numbers count the iterations with work: the recording of a device may start later than that of NVTX.
    bounded = bounded.with_columns(end=end, number=pl.col("number") - pl.col("number").min())
    return bounded.select(pl.col(name).cast(dtype) for name, dtype in _BOUNDED_SCHEMA.items())


# -- period -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Period:
    """How well a name marks a period of a group: places of its executions, share of the time of the work in segments between
    them that are alike, which these are, and the usual number of operations in one."""

    marks: Numbers
    covered: float
    is_like: npt.NDArray[np.bool_]
    operations: int


def _by_period(run: MeasuredRun, group_of_row: Numbers) -> tuple[pl.DataFrame, str | None]:
    """Iterations (_BOUNDED_SCHEMA) by the period of the work of each group, or why there are none."""
    empty = pl.DataFrame(schema=_BOUNDED_SCHEMA)
    works = _works(run, group_of_row)
    tried = _tried(works)
    if not tried:
        times = f"{LEAST_ITERATIONS + 1} times or more over the time of the work"
        return empty, f"no kernel, copy or collective is executed {times}"
    single = _periods(works, tried, (1,), LEAST_COVERED)
    periods = {pair: period for pair, period in single.items() if period.operations > 1}
    at_marks = max((period.covered for period in periods.values()), default=0.0) < HARDLY_COVERED
    if at_marks:
        hardly = [pair for pair in tried if pair not in single or single[pair].covered < LEAST_OF_SEVERAL]
        several = _periods(works, hardly, range(2, _MOST_EXECUTIONS + 1), LEAST_OF_SEVERAL)
        at_marks = {group for group, _ in several} >= {group for group, _ in periods}
        periods = several if at_marks else periods
    if not periods:
        is_alone = all(work["key"].n_unique() == 1 for work in works.values())
        no_period = "the sequence of kernels, copies and collectives has no period"
        return empty, "one kernel repeats alone" if is_alone else no_period
    frames = [frame for marked in _marked(periods, works) for frame in _bounded_by_period(works, marked, at_marks=at_marks)]
    bounded = pl.concat([empty, *frames]).filter(pl.len().over("group") >= LEAST_ITERATIONS)
    return bounded, None if bounded.height else f"the work repeats less than {LEAST_ITERATIONS} times as a whole"


def _works(run: MeasuredRun, group_of_row: Numbers) -> dict[int, pl.DataFrame]:
    """The work of each group on its stream with most time in kernels that are not NCCL's; where there are none, in anything: in
    the order of time, `key` (its name, as a number), `start`, `end`, how long the device was `idle` before, and the time of
    work, `busy`, before it."""
    row, number, value = (run.operations[name].to_numpy() for name in ("row", "number", "value"))
    bases = base_types(run.operations["number"].unique().to_list(), ON_DEVICES)
    kernels = [number for number, base in bases.items() if base in (event_types.KERNEL, event_types.GRAPH_EXECUTION)]
    operations = run.operations.select(
        "start",
        "end",
        group=pl.Series(group_of_row[row], dtype=pl.Int32),
        stream=pl.Series(run.events.rows.first_of_stream[row], dtype=pl.Int32),
        key=pl.Series(distinct(number.astype(np.int64) << 32 | value.astype(np.int64) & 0xFFFFFFFF).place, dtype=pl.Int32),
        is_kernel=pl.col("number").is_in(kernels),
    ).filter(pl.col("group") >= 0)
    length = pl.col("end") - pl.col("start")
    works = {}
    for (group,), part in sorted(operations.partition_by("group", as_dict=True).items()):
        times = part.group_by("stream").agg(kernels=(length * pl.col("is_kernel")).sum(), total=length.sum())
        main = times.sort("kernels", "total", "stream", descending=[True, True, False])["stream"][0]
        # Equal starts come in one order, from reports and from their trace.
        ordered = part.sort("start", "stream", "end", "key")
        idle = (pl.col("start") - pl.col("end").cum_max().shift(1)).clip(0).fill_null(0)
        on_main = ordered.select("key", "start", "end", "stream", idle=idle).filter(pl.col("stream") == main)
        works[int(group)] = on_main.with_columns(busy=length.cum_sum() - length)
    return works


def _tried(works: Mapping[int, pl.DataFrame]) -> list[tuple[int, int]]:
    """Pairs of group and key that may mark a period: the names that are in question on any group, on all of them."""
    start, count = pl.col("start"), pl.col("count")
    span = start.max() - start.min()
    spread = []
    for group, work in works.items():
        counts = work.group_by("key").agg(span.alias("span"), count=pl.len(), time=(pl.col("end") - start).sum())
        is_spread = pl.col("span") * 3 > work.select(span).item()
        spread.append(
            counts.filter(is_spread, count.is_between(LEAST_ITERATIONS + 1, _MOST_MARKS)).with_columns(group=pl.lit(group))
        )
    counts = pl.concat(spread)
    # Of names with one count three are enough, but that they are the same on all devices matters.
    ordered = counts.sort("group", "count", "time", "key", descending=[False, False, True, False])
    few = ordered.filter(pl.int_range(pl.len()).over("group", "count") < 3).group_by("group").head(_MOST_NAMES)
    return counts.filter(pl.col("key").is_in(few["key"].implode())).select("group", "key").sort("group", "key").rows()


def _periods(
    works: Mapping[int, pl.DataFrame], pairs: Sequence[tuple[int, int]], strides: Sequence[int], least_covered: float
) -> dict[tuple[int, int], _Period]:
    """Periods by group and key, where the key marks one."""
    periods = {(group, key): _period(works[group], key, strides, least_covered) for group, key in pairs}
    return {pair: period for pair, period in periods.items() if period is not None}


def _period(work: pl.DataFrame, key: int, strides: Sequence[int], least_covered: float) -> _Period | None:
    """The period that every so many executions of a name mark, of the first stride that covers enough; None: they mark none."""
    marks, busy = np.flatnonzero(work["key"].to_numpy() == key), work["busy"].to_numpy()
    before = _names_before(work["key"].to_numpy(), marks)
    for stride in strides:
        periods = []
        for first in range(min(stride, len(marks))):
            places, histograms = marks[first::stride], np.diff(before[first::stride], axis=0)
            if len(histograms) < LEAST_ITERATIONS:
                continue
            usual = np.median(histograms, axis=0)
            is_like = np.linalg.norm(histograms - usual, axis=1) <= LIKE * max(float(np.linalg.norm(usual)), 1.0)
            operations, times = np.diff(places), np.diff(busy[places])
            covered = float(times[is_like].sum()) / max(_time_of(work), 1)
            # A kernel that is long and repeats at once in some places is no period of the rest.
            is_regular = operations[is_like].sum() >= LEAST_COVERED * operations.sum()
            if is_regular and covered >= least_covered and is_like.sum() >= LEAST_ITERATIONS:
                periods.append(_Period(places, covered, is_like, round(float(np.median(operations[is_like])))))
        if periods:
            return max(periods, key=lambda period: period.covered)
    return None


def _time_of(work: pl.DataFrame) -> int:
    return int((work["end"] - work["start"]).sum())


def _names_before(key: Numbers, marks: Numbers) -> npt.NDArray[np.int32]:
    """For each mark a row: how often each name was executed between the first mark and this one."""
    often = np.argsort(-np.bincount(key), kind="stable")
    column = np.minimum(np.argsort(often), _HISTOGRAM_NAMES - 1)
    columns = min(len(often), _HISTOGRAM_NAMES)
    segment = np.repeat(np.arange(1, len(marks)), np.diff(marks))
    places = segment * columns + column[key[marks[0] : marks[-1]]]
    counts = np.bincount(places, minlength=len(marks) * columns).reshape(-1, columns)
    return np.cumsum(counts, axis=0, dtype=np.int32)


def _marked(periods: Mapping[tuple[int, int], _Period], works: Mapping[int, pl.DataFrame]) -> Iterator[dict[int, _Period]]:
    """Periods of the groups that a name marks the iterations of, for one such name after the other: as few as possible."""
    remaining = dict(periods)
    while remaining:
        work = {group: _time_of(works[group]) for group, _ in remaining}
        covered: dict[int, float] = {}
        counts: dict[int, list[int]] = {}
        for (group, key), period in sorted(remaining.items()):
            covered[key] = covered.get(key, 0.0) + period.covered * work[group]
            counts.setdefault(key, []).append(int(period.is_like.sum()))
        least = max(covered.values()) - FINER * sum(work.values())
        near = [key for key in covered if covered[key] >= least]
        name = max(near, key=lambda key: (np.median(counts[key]), covered[key], -key))
        marked = {group: period for (group, key), period in sorted(remaining.items()) if key == name}
        yield marked
        remaining = {pair: period for pair, period in remaining.items() if pair[0] not in marked}


def _bounded_by_period(
    works: Mapping[int, pl.DataFrame], periods: Mapping[int, _Period], *, at_marks: bool
) -> Iterator[pl.DataFrame]:
    """Iterations of some groups that one name marks. They begin at the operation that devices are idle longest before; or
    `at_marks`: their work may be in another order in each, so only the marks are the same in all."""
    sampled = max(periods, key=lambda group: (periods[group].is_like.sum(), -group))
    mark = works[sampled]["key"][int(periods[sampled].marks[0])]
    first_operation = (mark, 0) if at_marks else _first_operation(works[sampled], periods[sampled])
    for group, period in periods.items():
        key, start, end = (works[group][name].to_numpy() for name in ("key", "start", "end"))
        edges = _edges(key, period, *first_operation)
        if not len(edges):
            continue
        ends = start[edges[1:]]
        # The last iteration ends with its work, if that is complete.
        last = end[edges[-1] : edges[-1] + period.operations]
        if len(last) >= (1 - LIKE) * period.operations and period.marks[-1] >= edges[-1]:
            ends = np.append(ends, last.max())
        columns = {"number": np.arange(len(ends)), "begin": start[edges[: len(ends)]], "end": ends}
        yield pl.DataFrame(columns).select(pl.lit(group, pl.Int64).alias("group"), *columns)


def _first_operation(work: pl.DataFrame, period: _Period) -> tuple[int, int]:
    """The operation that the device is idle longest before, of those that most segments of a group have: its key, and how many
    operations after the nearest mark it usually is."""
    like = np.flatnonzero(period.is_like)
    sampled = like[max(len(like) - _SAMPLED_ITERATIONS, 0) // 2 :][:_SAMPLED_ITERATIONS]
    segment, place = expanded(period.marks[sampled], period.marks[sampled + 1] - 1)
    operations = work[place].select(
        "key", pl.col("idle").sqrt(), segment=pl.Series(segment), offset=pl.Series(place - period.marks[sampled][segment])
    )
    number = pl.int_range(pl.len()).over("segment", "key").alias("number")
    usual = operations.group_by("key", number).agg(pl.len(), pl.col("idle").sum(), pl.col("offset").median())
    # Of equal times the first: where devices never wait, the mark itself.
    usual = usual.filter(2 * pl.col("len") >= len(sampled)).sort("idle", "offset", descending=[True, False])
    key, offset = usual.select("key", pl.col("offset").cast(pl.Int64)).row(0)
    return key, offset if 2 * offset <= period.operations else offset - period.operations


def _edges(keys: Numbers, period: _Period, key: int, offset: int) -> Numbers:
    """Places where iterations start, at the operation of `_first_operation`: the execution that is nearest to where it usually
    is before, behind and between the marks."""
    places, marks, operations = np.flatnonzero(keys == key), period.marks, period.operations
    expected = np.concatenate([marks[:1] - operations, marks, marks[-1:] + operations]) + offset
    behind = np.clip(np.searchsorted(places, expected), 1, len(places) - 1)
    nearest = places[np.where(expected - places[behind - 1] <= places[behind] - expected, behind - 1, behind)]
    return np.unique(nearest[np.abs(nearest - expected) <= LIKE * operations])
