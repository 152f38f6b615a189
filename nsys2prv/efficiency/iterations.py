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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.intervals import Numbers, search
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.named_ranges import NamedRanges
from nsys2prv.efficiency.run_events import ON_DEVICES, RANGES, STREAM, RunEvents, RunRows, base_types
from nsys2prv.efficiency.steps import expanded
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
_SAMPLED_LAUNCHES = 300_000
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


class _Groups:
    """What one task does on one device: `of_row` is the group of each row (-1: it is no stream), with `task` and `device`."""

    def __init__(self, rows: RunRows) -> None:
        is_stream = rows.of_kind(STREAM)
        pairs, group = np.unique(np.stack([rows.task, rows.device], axis=1)[is_stream], axis=0, return_inverse=True)
        self.of_row: Numbers = np.full(len(rows.names), -1, dtype=np.int64)
        self.of_row[is_stream] = group.reshape(-1)
        self.task: Numbers = pairs[:, 0].astype(np.int64)
        self.device: Numbers = pairs[:, 1].astype(np.int64)


def find_iterations(run: MeasuredRun, requested: str | None = None) -> RunIterations:
    """The iterations of a whole recording.

    Parameters
    ----------
    requested
        NAME or NAME@DOMAIN of the NVTX ranges that are iterations; None: they are looked for.
    """
    operations, groups = run.operations, _Groups(run.events.rows)
    if operations.is_empty() or not len(groups.task):
        return RunIterations.none("no device works", None)
    work = int(operations["start"].to_numpy().min()), int(operations["end"].to_numpy().max())
    bounded, name = _by_ranges(run, groups, requested)
    if name is None and requested is not None:
        return RunIterations.none(f"no work is launched in NVTX ranges {requested}", work)
    reason = None
    if name is None:
        bounded, reason = _by_period(run, groups)
    if reason is not None:
        return RunIterations.none(reason, work)
    iterations = _with_warm_up(_numbered(bounded, by_time=name is None))
    group = iterations["group"].to_numpy()
    located = iterations.with_columns(task=pl.Series(groups.task[group]), device=pl.Series(groups.device[group]))
    iterations = located.select(pl.col(name).cast(dtype) for name, dtype in ITERATION_SCHEMA.items())
    iterations = iterations.sort("number", "task", "device")
    usual = iterations.filter(~pl.col("is_warm_up"))
    steady = int(usual["begin"].to_numpy().min()), int(usual["end"].to_numpy().max())
    return RunIterations(iterations, f"nvtx {name}" if name else BY_KERNELS, None, work, steady)


def _numbered(bounded: pl.DataFrame, *, by_time: bool) -> pl.DataFrame:
    """Iterations with numbers that mean the same one in all groups; groups in which something else repeats are left out.

    With `by_time` an iteration has the number of the one of the group with most of them that begins nearest, as a recording
    may begin within an iteration of some ranks.
    """
    parts = {int(group): part.sort("begin") for (group,), part in bounded.partition_by("group", as_dict=True).items()}
    usual = float(np.median([part.height for part in parts.values()]))
    alike = {group: part for group, part in parts.items() if abs(part.height - usual) <= _OTHER * usual}
    reference = max(alike, key=lambda group: (alike[group].height, -group))
    begins = alike[reference]["begin"].to_numpy()
    period = max(float(np.median(np.diff(begins))), 1.0) if len(begins) > 1 else 1.0
    frames = []
    for part in alike.values():
        numbers = part["number"].to_numpy()
        if by_time:
            shared = min(part.height, len(begins))
            late = float(np.median(part["begin"].to_numpy()[:shared] - begins[:shared])) / period
            numbers = np.arange(part.height) + (round(late) if abs(late) > _OTHER else 0)
        frames.append(part.with_columns(number=pl.Series(numbers, dtype=pl.Int64)))
    return pl.concat(frames).with_columns(pl.col("number") - pl.col("number").min())


def _with_warm_up(numbered: pl.DataFrame) -> pl.DataFrame:
    """Which iterations are warm-up."""
    lengths = numbered.group_by("number").agg(length=(pl.col("end") - pl.col("begin")).median()).sort("number")
    warm_up = lengths["number"].head(warm_up_iterations(lengths["length"].to_numpy()))
    return numbered.with_columns(is_warm_up=pl.col("number").is_in(warm_up.to_list()))


# -- NVTX ranges ------------------------------------------------------------------------------------


def _by_ranges(run: MeasuredRun, groups: _Groups, requested: str | None) -> tuple[pl.DataFrame, str | None]:
    """Iterations (_BOUNDED_SCHEMA) by ranges: from the first work that is launched in a range to that of the next one. `number`
    is that of the range in its task; ranges that launch nothing are none. And the name of the ranges; None: none repeat."""
    names = _range_names(run.events, requested)
    located = run.events.rows.located(run.frame(RANGES).join(names, on=["number", "value"]))
    ranges = _repeated(located.filter(pl.col("task").is_in(np.unique(groups.task))), is_requested=requested is not None)
    if ranges.is_empty() or run.launches.is_empty():
        return pl.DataFrame(schema=_BOUNDED_SCHEMA), None
    name = _most_likely(run, ranges, is_requested=requested is not None)
    if name is None:
        return pl.DataFrame(schema=_BOUNDED_SCHEMA), None
    bounded = _bounded_by_launches(run, groups, ranges.filter(pl.col("name") == name))
    text = names.filter(pl.col("name") == name)["text"].min()
    return bounded, (requested or str(text)) if bounded.height else None


def _range_names(events: RunEvents, requested: str | None) -> pl.DataFrame:
    """Columns `number` (event type), `value`, `text`, `name`: equal for all texts that differ in numbers only."""
    texts = [
        (number, value, text)
        for number in events.types
        if base_types([number], RANGES)
        for value, text in (events.types[number].values or {}).items()
        if value
    ]
    schema = {"number": pl.Int32, "value": pl.Int64, "text": pl.String}
    names = pl.DataFrame(texts, schema=schema, orient="row")
    if requested is not None:
        slots = NamedRanges(events, [requested]).slots
        return names.join(slots, on=["number", "value"], how="semi").with_columns(name=pl.lit(0, pl.Int64))
    without_numbers = names.with_columns(text=pl.col("text").str.replace_all(r"[0-9]+", "#"))
    return without_numbers.with_columns(name=pl.struct("number", "text").rank("dense").cast(pl.Int64) - 1)


def _repeated(ranges: pl.DataFrame, *, is_requested: bool) -> pl.DataFrame:
    """Ranges whose names may be iterations, by name, task and start, with their `place` (0, 1, ...) in the task.

    Nearly all tasks have them, equally often but for what the edges of the recording cut. Of ranges of a name inside each other
    the outer counts.
    """
    counts = ranges.group_by("name", "task").agg(count=pl.len(), total=(pl.col("end") - pl.col("start")).sum())
    equal = pl.col("count").max() - pl.col("count").min() <= 1
    everywhere = (pl.len() >= _LEAST_TASKS * counts["task"].n_unique()) & (pl.col("count").min() >= LEAST_ITERATIONS)
    by_name = counts.group_by("name").agg(pl.col("total").sum(), is_repeated=equal & everywhere | is_requested)
    tried = by_name.filter("is_repeated").sort("total", "name", descending=[True, False]).head(_MOST_NAMES)
    ordered = ranges.join(tried, on="name", how="semi").sort("name", "task", "start", "end", descending=[False] * 3 + [True])
    former_end = pl.col("end").cum_max().shift(1).over("name", "task", "row")
    outer = ordered.filter((pl.col("start") >= former_end).fill_null(value=True))
    return outer.with_columns(place=pl.int_range(pl.len()).over("name", "task"))


def _most_likely(run: MeasuredRun, ranges: pl.DataFrame, *, is_requested: bool) -> int | None:
    """The name whose ranges are iterations, by what is launched in them and by their rhythm; None: there is none."""
    sample = run.launches.gather_every(run.launches.height // _SAMPLED_LAUNCHES + 1)
    shares = []
    for (name,), part in ranges.partition_by("name", as_dict=True).items():
        place, is_by_thread = _range_of_launches(run, part, sample)
        shares.append((name, float((place >= 0).mean()), float(is_by_thread.mean())))
    distance = pl.col("start").diff().over("name", "task")
    rhythm = ranges.with_columns(distance=distance).group_by("name").agg(
        irregular=(pl.col("distance") - pl.col("distance").median()).abs().median() / pl.col("distance").median(),
        period=pl.col("distance").median(),
        count=pl.col("place").max(),
        total=(pl.col("end") - pl.col("start")).sum(),
        hint=pl.col("text").str.contains(_HINT).any(),
    )  # fmt: skip
    from_median = (pl.col("start") - pl.col("start").median()).abs().median()
    spread = ranges.group_by("name", "place").agg(spread=from_median).group_by("name").agg(pl.col("spread").median())
    schema = {"name": pl.Int64, "share": pl.Float64, "by_thread": pl.Float64}
    likely = pl.DataFrame(shares, schema=schema, orient="row").join(rhythm, on="name").join(spread, on="name")
    if not is_requested:
        in_step = (pl.col("irregular") < _IRREGULAR) & (pl.col("spread") < pl.col("period"))
        likely = likely.filter(in_step & (pl.col("share") >= LEAST_LAUNCHED) & (pl.col("by_thread") >= LEAST_BY_THREAD))
        likely = likely.filter(pl.col("share") >= NEARLY_ALL * pl.col("share").max())
    best = likely.sort("count", "hint", "total", "name", descending=[True, True, True, False])
    return int(best["name"][0]) if best.height else None


def _range_of_launches(run: MeasuredRun, ranges: pl.DataFrame, launches: pl.DataFrame) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """For each launch the place in `ranges`, sorted by task and start, of that of its task which it is in (-1: none); and
    whether the thread of the range makes it."""
    row, time = launches["row"].to_numpy(), launches["time"].to_numpy()
    task = run.events.rows.task[row]
    place = search(ranges["task"].to_numpy(), ranges["start"].to_numpy(), task, time)
    inside = (place >= 0) & (ranges["task"].to_numpy()[place] == task) & (time < ranges["end"].to_numpy()[place])
    return np.where(inside, place, -1), inside & (ranges["row"].to_numpy()[place] == row)


def _bounded_by_launches(run: MeasuredRun, groups: _Groups, ranges: pl.DataFrame) -> pl.DataFrame:
    """Iterations of each group: they begin with the first work that the thread of a range, or else its process, launches."""
    place, is_by_thread = _range_of_launches(run, ranges, run.launches)
    group = groups.of_row[run.launches["to_row"].to_numpy()]
    inside = np.flatnonzero((place >= 0) & (group >= 0))
    launched = pl.DataFrame(
        {
            "group": group[inside],
            "number": ranges["place"].to_numpy()[place[inside]],
            "begin": run.launches["to_time"].to_numpy()[inside],
            "is_by_thread": is_by_thread[inside],
        }
    )
    first = pl.coalesce(pl.col("begin").filter("is_by_thread").min(), pl.col("begin").min())
    firsts = launched.group_by("group", "number").agg(begin=first, last=pl.col("begin").max()).sort("group", "number")
    # What runs ahead of its order, as copies of later batches, starts no iteration earlier.
    ordered = firsts.with_columns(pl.col("begin").cum_max().over("group"))
    ordered = ordered.unique(["group", "begin"], keep="first", maintain_order=True)
    # The last iteration ends with the last work that is launched in its range.
    operations = run.operations.select("start", "end", group=pl.Series(groups.of_row[run.operations["row"].to_numpy()]))
    of_last = operations.join(ordered.group_by("group").last(), on="group")
    of_last = of_last.filter(pl.col("start") >= pl.col("begin"), pl.col("start") <= pl.max_horizontal("begin", "last"))
    ends = of_last.group_by("group").agg(pl.col("end").max())
    end = pl.coalesce(pl.col("begin").shift(-1).over("group"), "end")
    bounded = ordered.join(ends, on="group", how="left", maintain_order="left").with_columns(end=end)
    # Numbers count the iterations with work: the recording of a device may start later than that of NVTX.
    return bounded.select(pl.col(name).cast(dtype) for name, dtype in _BOUNDED_SCHEMA.items()).with_columns(
        pl.col("number") - pl.col("number").min()
    )


# -- period -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What runs on the main stream of a group, in order: `key` (its name, as a number), start, end, how long the device was
    idle before, and the time of work before each and after the last."""

    key: Numbers
    start: Numbers
    end: Numbers
    idle: Numbers
    busy: Numbers


@dataclass(frozen=True)
class _Period:
    """How well a name marks a period of a group: places of its executions, share of the time of the work in segments between
    them that are alike, which these are, and the usual number of operations in one."""

    marks: Numbers
    covered: float
    is_like: npt.NDArray[np.bool_]
    operations: int

    @property
    def count(self) -> int:
        """Segments that are alike."""
        return int(self.is_like.sum())


def _by_period(run: MeasuredRun, groups: _Groups) -> tuple[pl.DataFrame, str | None]:
    """Iterations (_BOUNDED_SCHEMA) by the period of the work of each group, or why there are none."""
    empty = pl.DataFrame(schema=_BOUNDED_SCHEMA)
    works = _works(run, groups)
    tried = _tried(works)
    if not tried:
        times = f"{LEAST_ITERATIONS + 1} times or more over the time of the work"
        return empty, f"no kernel, copy or collective is executed {times}"
    periods = {pair: _period(works[pair[0]], pair[1], (1,), LEAST_COVERED) for pair in tried}
    good = {pair: period for pair, period in periods.items() if period is not None and period.operations > 1}
    at_marks = False
    if max((period.covered for period in good.values()), default=0.0) < HARDLY_COVERED:
        several = {}
        for pair, single in periods.items():
            if single is None or single.covered < LEAST_OF_SEVERAL:
                period = _period(works[pair[0]], pair[1], range(2, _MOST_EXECUTIONS + 1), LEAST_OF_SEVERAL)
                if period is not None:
                    several[pair] = period
        at_marks = bool(several) and {group for group, _ in several} >= {group for group, _ in good}
        good = several if at_marks else good
    if not good:
        is_alone = all(len(np.unique(work.key)) == 1 for work in works.values())
        return (
            empty,
            "one kernel repeats alone" if is_alone else "the sequence of kernels, copies and collectives has no period",
        )
    frames = [empty]
    for key, members in _marking_names(good, works):
        of_key = {group: good[group, key] for group in members}
        frames += _bounded_by_period(works, of_key, at_marks=at_marks)
    bounded = pl.concat(frames).filter(pl.len().over("group") >= LEAST_ITERATIONS)
    return bounded, None if bounded.height else f"the work repeats less than {LEAST_ITERATIONS} times as a whole"


def _works(run: MeasuredRun, groups: _Groups) -> dict[int, _Work]:
    """The work of each group on its stream with most time in kernels that are not NCCL's; where there are none, in anything."""
    row, number, value = (run.operations[name].to_numpy() for name in ("row", "number", "value"))
    bases = base_types(run.operations["number"].unique().to_list(), ON_DEVICES)
    kernels = [number for number, base in bases.items() if base in (event_types.KERNEL, event_types.GRAPH_EXECUTION)]
    operations = run.operations.select(
        "start",
        "end",
        pl.Series("group", groups.of_row[row], dtype=pl.Int32),
        pl.Series("stream", run.events.rows.first_of_stream[row], dtype=pl.Int32),
        pl.Series("key", distinct(number.astype(np.int64) << 32 | value & 0xFFFFFFFF).place, dtype=pl.Int32),
        is_kernel=pl.col("number").is_in(kernels),
    )
    works = {}
    for (group,), part in sorted(operations.filter(pl.col("group") >= 0).partition_by("group", as_dict=True).items()):
        length = pl.col("end") - pl.col("start")
        times = part.group_by("stream").agg(kernels=(length * pl.col("is_kernel")).sum(), total=length.sum())
        main = times.sort("kernels", "total", "stream", descending=[True, True, False])["stream"][0]
        # Equal starts come in one order, from reports and from their trace.
        ordered = part.sort("start", "stream", "end", "key")
        idle = (pl.col("start") - pl.col("end").cum_max().shift(1)).clip(0).fill_null(0)
        on_main = ordered.select("key", "start", "end", "stream", idle=idle).filter(pl.col("stream") == main)
        key, start, end, idle_before = (on_main[name].to_numpy() for name in ("key", "start", "end", "idle"))
        works[int(group)] = _Work(key, start, end, idle_before, np.append(0, np.cumsum(end - start)))
    return works


def _tried(works: Mapping[int, _Work]) -> list[tuple[int, int]]:
    """Pairs of group and key that may mark a period: the names that are in question on any group, on all of them."""
    spread, in_question = [], set()
    for group, work in works.items():
        counts = pl.DataFrame({"key": work.key, "start": work.start, "time": work.end - work.start}).group_by("key").agg(
            pl.len().alias("count"), pl.col("time").sum(), spread=pl.col("start").max() - pl.col("start").min()
        )  # fmt: skip
        is_spread = pl.col("spread") * 3 > int(work.start[-1] - work.start[0])
        counts = counts.filter(is_spread & pl.col("count").is_between(LEAST_ITERATIONS + 1, _MOST_MARKS))
        # Of names with one count three are enough, but that they are the same on all devices matters.
        ordered = counts.sort("count", "time", "key", descending=[False, True, False])
        few = ordered.filter(pl.int_range(pl.len()).over("count") < 3).head(_MOST_NAMES)
        spread += [(group, key) for key in counts["key"].sort().to_list()]
        in_question.update(few["key"].to_list())
    return [(group, key) for group, key in spread if key in in_question]


def _period(work: _Work, key: int, strides: Sequence[int], least_covered: float) -> _Period | None:
    """The period that every so many executions of a name mark, of the first stride that covers enough; None: they mark none."""
    marks = np.flatnonzero(work.key == key)
    before = _names_before(work.key, marks)
    for stride in strides:
        periods = []
        for first in range(min(stride, len(marks))):
            places, histograms = marks[first::stride], np.diff(before[first::stride], axis=0)
            if len(histograms) < LEAST_ITERATIONS:
                continue
            usual = np.median(histograms, axis=0)
            is_like = np.linalg.norm(histograms - usual, axis=1) <= LIKE * max(float(np.linalg.norm(usual)), 1.0)
            operations, times = np.diff(places), np.diff(work.busy[places])
            covered = float(times[is_like].sum()) / max(int(work.busy[-1]), 1)
            # A kernel that is long and repeats at once in some places is no period of the rest.
            is_regular = operations[is_like].sum() >= LEAST_COVERED * operations.sum()
            if is_regular and covered >= least_covered and is_like.sum() >= LEAST_ITERATIONS:
                periods.append(_Period(places, covered, is_like, round(float(np.median(operations[is_like])))))
        if periods:
            return max(periods, key=lambda period: period.covered)
    return None


def _names_before(key: Numbers, marks: Numbers) -> npt.NDArray[np.int32]:
    """For each mark a row: how often each name was executed between the first mark and this one."""
    often = np.argsort(-np.bincount(key), kind="stable")
    column = np.minimum(np.argsort(often), _HISTOGRAM_NAMES - 1)
    columns = min(len(often), _HISTOGRAM_NAMES)
    segment = np.repeat(np.arange(1, len(marks)), np.diff(marks))
    places = segment * columns + column[key[marks[0] : marks[-1]]]
    counts = np.bincount(places, minlength=len(marks) * columns).reshape(-1, columns)
    return np.cumsum(counts, axis=0, dtype=np.int32)


def _marking_names(periods: Mapping[tuple[int, int], _Period], works: Mapping[int, _Work]) -> list[tuple[int, list[int]]]:
    """Names that mark the iterations, with the groups that each does it for: as few names as possible."""
    rows = [(*pair, period.covered, period.count, int(works[pair[0]].busy[-1])) for pair, period in periods.items()]
    remaining = pl.DataFrame(rows, schema=["group", "key", "covered", "segments", "work"], orient="row")
    names = []
    while remaining.height:
        by_key = remaining.group_by("key").agg((pl.col("covered") * pl.col("work")).sum(), pl.col("segments").median())
        total = max(int(remaining.unique("group")["work"].sum()), 1)
        covered = pl.col("covered") / total
        near = by_key.filter(covered >= covered.max() - FINER)
        key = near.sort("segments", "covered", "key", descending=[True, True, False])["key"][0]
        members = remaining.filter(pl.col("key") == key)["group"].sort().to_list()
        names.append((int(key), members))
        remaining = remaining.filter(~pl.col("group").is_in(members))
    return names


def _bounded_by_period(works: Mapping[int, _Work], periods: Mapping[int, _Period], *, at_marks: bool) -> list[pl.DataFrame]:
    """Iterations of some groups that one name marks. They begin at the operation that devices are idle longest before; or
    `at_marks`: their work may be in another order in each, so only the marks are the same in all."""
    sampled = max(periods, key=lambda group: (periods[group].count, -group))
    first_operation = _first_operation(works[sampled], periods[sampled])
    frames = []
    for group, period in periods.items():
        work = works[group]
        edges = period.marks if at_marks else _edges(work.key, period.marks, first_operation)
        if not len(edges):
            continue
        # What is before the first mark is an iteration if its work is complete, as that behind the last one.
        if len(edges) > 1 and edges[1] - edges[0] < (1 - LIKE) * period.operations and edges[0] < period.marks[0]:
            edges = edges[1:]
        begins = work.start[edges]
        ends = begins[1:]
        # The last iteration ends with its work, if that is complete.
        last = work.end[edges[-1] : edges[-1] + period.operations]
        if len(last) >= (1 - LIKE) * period.operations and period.marks[-1] >= edges[-1]:
            ends = np.append(ends, last.max())
        bounded = pl.DataFrame({"number": np.arange(len(ends)), "begin": begins[: len(ends)], "end": ends})
        frames.append(bounded.select(pl.lit(group, pl.Int64).alias("group"), "number", "begin", "end"))
    return frames


@dataclass(frozen=True)
class _FirstOperation:
    """The operation that an iteration begins with: its key, which of this key it is in the segment between two marks, counted
    from the start (0, 1, ...) and from the end (1, 2, ...), and whether it is nearer to the end."""

    key: int
    forward: int
    backward: int
    is_late: bool


def _first_operation(work: _Work, period: _Period) -> _FirstOperation:
    """The operation that the device is idle longest before, of those that most segments of a group have."""
    like = np.flatnonzero(period.is_like)
    middle = like[len(like) // 2]
    sampled = like[np.argsort(np.abs(like - middle), kind="stable")[:_SAMPLED_ITERATIONS]]
    segment, place = expanded(period.marks[sampled], period.marks[sampled + 1] - 1)
    operations = pl.DataFrame({"segment": segment, "place": place, "key": work.key[place], "idle": np.sqrt(work.idle[place])})
    number = pl.int_range(pl.len()).over("segment", "key")
    offset = pl.col("place") - pl.col("place").min().over("segment")
    usual = (
        operations.with_columns(forward=number, backward=pl.len().over("segment", "key") - number, offset=offset)
        .group_by("key", "forward", "backward")
        .agg(
            pl.len().alias("segments"),
            pl.col("idle").sum(),
            pl.col("place").min(),
            is_late=2 * pl.col("offset").median() > period.operations,
        )
        .filter(2 * pl.col("segments") >= len(sampled))
    )
    # Of equal times the first: where devices never wait, the mark itself.
    best = usual.sort("idle", "place", descending=[True, False]).select("key", "forward", "backward", "is_late")
    return _FirstOperation(*best.row(0))


def _edges(keys: Numbers, marks: Numbers, first_operation: _FirstOperation) -> Numbers:
    """Places where iterations start: before the first mark, between marks, and behind the last one."""
    places = np.flatnonzero(keys == first_operation.key)
    of_mark = np.searchsorted(places, marks, side="left")
    before, behind = of_mark[:1] - first_operation.backward, of_mark[-1:] + first_operation.forward
    # Segments may differ a little: counted is from the mark that is nearer.
    inside = of_mark[1:] - first_operation.backward if first_operation.is_late else of_mark[:-1] + first_operation.forward
    inside = inside[(inside >= of_mark[:-1]) & (inside < of_mark[1:])]
    edges: Numbers = places[np.concatenate([before[before >= 0], inside, behind[behind < len(places)]])]
    return edges
