"""The iterations of a run: NVTX ranges that repeat, else the period of the sequence of what devices execute.

docs/efficiency.md has the rules. Streams beside that with most time in kernels, such as those of data loaders, run ahead of it
and behind. Layers repeat inside of a step, and time steps may begin in turn with either direction."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Mask, Moments, Numbers
from nsys2prv.efficiency.measured_run import KERNEL, NCCL, MeasuredRun
from nsys2prv.efficiency.meters.regions import named_ranges, range_texts
from nsys2prv.efficiency.run_events import RANGES, STREAM
from nsys2prv.efficiency.window import ITERATION_SCHEMA, RunIterations
from nsys2prv.execution.row_order import distinct, in_content_order, rows_in_order
from nsys2prv.vocabulary import event_types

BY_KERNELS, BY_COPIES = "period of kernels", "period of copies"
"""How iterations were found where no range repeats; the second one where no kernel but NCCL's runs."""
_LEAST_ITERATIONS, _NEARLY_ALL = 3, 0.9
"""Fewer are no repetition; share of tasks, iterations, collectives and operations for which something has to be true."""
_DIFFERENT = 0.5
"""Share of the usual number of iterations that a device may have more or fewer, or what it repeats is something else."""
_TOGETHER = 0.25
"""Part of a period up to which an iteration, or the end of a collective, is at the same time on two devices."""
_MOST_NAMES, _SAMPLED_LAUNCHES, _MOST_MARKS = 24, 100_000, 100_000
"""Names that are tried: of ranges those with most time, of operations those with fewest executions; and by how many events."""
_LEAST_LAUNCHED, _LEAST_BY_THREAD, _NEARLY_MOST = 0.6, 0.2, 0.95
"""Shares of launches: inside the ranges of a name; by the thread of the range, as ranges of data loaders go on beside the work
of others; and relative to the largest share, as of ranges inside each other the shortest count."""
_IRREGULAR = 1.5
"""Median deviation of the distances of two starts, relative to their median, from which there is no rhythm."""
_HINT = r"(?i)iter|step|batch|epoch|train|forward"
"""Names of ranges that often are iterations: these count first where the evidence is equal."""
_LEAST_COVERED, _HARDLY_COVERED, _LEAST_OF_SEVERAL, _FEW, _MOST_EXECUTIONS = 0.5, 0.6, 0.9, 4, 12
"""Share of the time of work that must be in like segments; up to which every n-th execution of a name is tried, as parts of two
kinds that take turns have half each; that these must have, as they are alike by chance, too, and so few are; the largest n."""
_LIKE, _HISTOGRAM_NAMES = 0.1, 64
"""Difference of two histograms of names, relative to the larger one, up to which work is the same; columns of a histogram:
names with most executions, the last one for all others."""
_FINER, _INTERRUPTED = 0.02, 0.75
"""Share of work that a shorter period may leave out and still count more than a longer one, unless that share of the segments
of the longer one has equally many of its segments that are unlike."""
_MOST_TOGETHER, _OTHER_TIME, _LEAST_UNLIKE, _RARER = 64, 0.5, 10, 0.25
"""Segments after which times repeat at most; from which difference on, relative to the larger one, two times are of other work
(rows of a matrix take some tenths more or less); how many must differ from the next one; and which share may from the n-th."""
_STEPS_OF_SWEEP, _GROWTH = 5, 4
"""Of a sweep of sizes: segments each of which takes longer than the former one, and the last one relative to the first one."""
_SCHEMA = {**dict.fromkeys(("group", "number", "begin", "end"), pl.Int64), "is_cut": pl.Boolean}
"""Iterations of groups: a group is what one task does on one device, `is_cut` whether its recording begins within one."""


class _NoIterations(Exception):
    """Why there are none."""


def find_iterations(run: MeasuredRun, requested: str | None = None) -> RunIterations:
    """The iterations of a whole recording. `requested`: NAME or NAME@DOMAIN of the NVTX ranges that are iterations; None: they
    are looked for."""
    rows, none = run.events.rows, pl.DataFrame(schema=ITERATION_SCHEMA)
    if run.operations.is_empty() or not rows.devices_of_task:
        return RunIterations(none, None, reason="no device works")
    work = int(run.operations["start"].to_numpy().min()), int(run.operations["end"].to_numpy().max())
    groups = pl.Series(np.where(rows.kind == STREAM, rows.task * len(rows.devices) + rows.device, -1), dtype=pl.Int32)
    operations = run.operations.select("start", "end", "row", "number", "value", group=pl.lit(groups).gather("row"))
    try:
        iterations, how = _by_ranges(run, operations, groups, requested) or _by_period(run, operations)
    except _NoIterations as reason:
        return RunIterations(none, work, reason=str(reason))
    task, device = pl.col("group") // len(rows.devices), pl.col("group") % len(rows.devices)
    ordered = operations.filter(pl.col("group") >= 0).sort("group", "start").select("group", "start").cast(pl.Int64)
    starts, edges = Moments.of(*ordered.to_numpy().T), iterations.select("group", "begin", "end").cast(pl.Int64).to_numpy().T
    counts = starts.find(edges[0], edges[2] - 1) - starts.find(edges[0], edges[1] - 1)
    number = pl.col("number") - pl.col("number").min()
    numbered = iterations.with_columns(number, task=task, device=device, operations=pl.Series(counts))
    return RunIterations(numbered.select(*ITERATION_SCHEMA).cast(pl.Int64).sort("number", "task", "device"), work, how)


def _of_same_work(iterations: pl.DataFrame) -> pl.DataFrame:
    """Without groups in which something else repeats, much more or less often."""
    count = pl.len().over("group").cast(pl.Int64)
    usual = count.filter(pl.col("group").is_first_distinct()).quantile(0.5, "higher")
    return iterations.filter((count - usual).abs() <= _DIFFERENT * usual)


def _by_ranges(
    run: MeasuredRun, operations: pl.DataFrame, groups: pl.Series, requested: str | None
) -> tuple[pl.DataFrame, str] | None:
    """Iterations (_SCHEMA) by ranges, from the first work that is launched in a range to that of the next one, and how they
    were found; None: no ranges repeat."""
    rows, text = run.events.rows, pl.col("text")
    # Not \d, which other scripts have, too.
    digits = text.str.extract(r"([0-9]{1,18})[^0-9]*$").cast(pl.Int64)
    names = range_texts(run.events).select("number", "value", "text", digits=digits, whole="text")
    if requested is None:
        names = names.with_columns(text.str.replace_all(r"[0-9]+", "#"))
        names = names.with_columns(name=pl.struct("number", "text").rank("dense"))
    else:
        called = named_ranges(run.events, [requested])
        names = names.join(called, on=["number", "value"], how="semi").with_columns(name=pl.lit(0))
    located = rows.located(run.frame(RANGES).join(names, on=["number", "value"])).drop("number", "value", "device")
    ranges = located.filter(pl.col("task").is_in(list(rows.devices_of_task)))
    launches = rows.located(run.launches.select("time", "row", "to_time", group=pl.lit(groups).gather("to_row")))
    ranges = _outermost(ranges) if requested is not None else _most_likely(_outermost(_repeated(ranges)), launches)
    iterations = _bounded_by_launches(operations, _launched_in(ranges, launches))
    if iterations.height:
        texts = ranges["whole"] if ranges["whole"].n_unique() == 1 else ranges["text"]
        return _of_same_work(iterations), f"nvtx {requested or texts.item(0)}"
    if requested is not None:
        raise _NoIterations(f"no work is launched in NVTX ranges {requested}")
    return None


def _repeated(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges whose names nearly all tasks have, equally often but for what the edges of the recording cut."""
    count, total = pl.col("count"), pl.col("total")
    counts = ranges.group_by("name", "task").agg(count=pl.len(), total=(pl.col("end") - pl.col("start")).sum())
    is_equal = (count.max() - count.min() <= 1) & (count.min() >= _LEAST_ITERATIONS)
    is_everywhere = pl.len() >= _NEARLY_ALL * counts["task"].n_unique()
    by_name = counts.group_by("name").agg(total.sum(), is_repeated=is_equal & is_everywhere).filter("is_repeated")
    tried = by_name.sort("total", "name", descending=[True, False]).head(_MOST_NAMES)
    return ranges.join(tried, on="name", how="semi")


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Of ranges of a name inside each other the outer ones, in the order of their starts, with their `place` in the task: the
    number in their texts where that counts them, else 0, 1, ..."""
    ordered = ranges.sort("name", "task", "start", "end", descending=[False] * 3 + [True])
    former_end = pl.col("end").cum_max().shift(1).over("name", "task", "row")
    outer = ordered.filter((pl.col("start") >= former_end).fill_null(value=True))
    digits, turn = pl.col("digits"), pl.int_range(pl.len()).over("name", "task")
    counts = (digits.diff().over("name", "task") == 1).fill_null(value=True) & digits.is_not_null()
    # Of other numbers, as of samples in a data set, each task has its own.
    are_common = digits.max() - digits.min() <= turn.max() + 1
    return outer.with_columns(place=pl.when((counts.all() & are_common).over("name")).then(digits).otherwise(turn))


def _most_likely(ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """The ranges of the name whose ranges are iterations, by what is launched in them and by their rhythm, or none."""
    distance, start = pl.col("distance"), pl.col("start")
    regular = ranges.with_columns(
        distance=start.diff().over("name", "task"),
        skew=(start - start.median().over("name", "place")).abs(),
    ).group_by("name").agg(
        is_regular=(distance - distance.median()).abs().median() / distance.median() < _IRREGULAR,
        is_in_step=pl.col("skew").median() < distance.median(),
        count=pl.len() / pl.col("task").n_unique(),
        total=(pl.col("end") - start).sum(),
        hint=pl.col("text").str.contains(_HINT).any(),
    ).filter("is_regular", "is_in_step")  # fmt: skip
    sample = launches.gather_every(launches.height // _SAMPLED_LAUNCHES + 1)
    shares = _launched_in(ranges, sample).group_by("name").agg(
        share=pl.len() / sample.height, by_thread=pl.col("is_by_thread").sum() / sample.height
    ).filter(pl.col("share") >= _LEAST_LAUNCHED, pl.col("by_thread") >= _LEAST_BY_THREAD)  # fmt: skip
    likely = regular.join(shares, on="name").filter(pl.col("share") >= _NEARLY_MOST * pl.col("share").max())
    best = likely.sort("count", "hint", "total", "name", descending=[True, True, True, False]).head(1)
    return ranges.join(best, on="name", how="semi", maintain_order="left")


def _launched_in(ranges: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Launches inside ranges of their tasks, by name, with the `place` of the range, and whether its thread makes them."""
    # The ranges of a name on a task are apart: the last one that began before is around a launch, or none is.
    around = ranges.select("name", "task", "place", "start", "end", range_row="row").sort("start", maintain_order=True)
    tried = rows_in_order(launches.join(ranges.select("name", "task").unique(), on="task"), "time")
    launched = tried.join_asof(around, left_on="time", right_on="start", by=["name", "task"], check_sortedness=False)
    return launched.filter(pl.col("time") < pl.col("end")).with_columns(is_by_thread=pl.col("row") == pl.col("range_row"))


def _bounded_by_launches(operations: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Iterations (_SCHEMA): they begin with the first work that the thread of a range, or else its process, launches."""
    begin = pl.col("to_time")
    firsts = launched.filter(pl.col("group") >= 0).group_by("group", number="place").agg(
        begin=pl.coalesce(begin.filter("is_by_thread").min(), begin.min()), last=begin.max()
    )  # fmt: skip
    # What runs ahead of its order, as copies of later batches, starts no iteration earlier.
    ordered = firsts.sort("group", "number").with_columns(pl.col("begin").cum_max().over("group"))
    ordered = ordered.unique(["group", "begin"], keep="first", maintain_order=True)
    # The last iteration ends with the last work that is launched in its range.
    of_last = operations.select("start", "end", "group").join(ordered.group_by("group").last(), on="group")
    of_last = of_last.filter(pl.col("start") >= pl.col("begin"), pl.col("start") <= pl.max_horizontal("begin", "last"))
    ends = of_last.group_by("group").agg(pl.col("end").max())
    end = pl.coalesce(pl.col("begin").shift(-1).over("group"), "end")
    bounded = ordered.join(ends, on="group", how="left", maintain_order="left").with_columns(end=end, is_cut=False)
    return bounded.select(*_SCHEMA)


class _Period(NamedTuple):
    """How every so many executions of a name (`stride`) mark a period of a group: their places, which segments between two are
    alike, the share of the time of work in these, and operations in one."""

    key: int
    stride: int
    marks: Numbers
    is_like: Mask
    covered: float
    operations: int


def _by_period(run: MeasuredRun, operations: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Iterations (_SCHEMA) by the period of the work of each group, and how they were found."""
    works = _works(run, operations)
    bounded = []
    # The first operation of each period, by its name and stride: what one group has counts for all that have it, too.
    begins: dict[tuple[int, int], tuple[int, int]] = {}
    for group, work in sorted(works.items(), key=lambda pair: (-pair[1].height, pair[0])):
        of_others = ((period, begin) for kind, begin in begins.items() if (period := _period(work, *kind)))
        if match := next(of_others, None) or _best_period(work):
            period, begin = match
            begins.setdefault((period.key, period.stride), begin)
            bounded.append(_bounded_by_period(work, group, period, *begin))
    if not bounded:
        if not any(_tried(work) for work in works.values()):
            least = _LEAST_ITERATIONS + 1
            raise _NoIterations(f"on streams with most time in kernels nothing is executed {least} times or more over the work")
        is_alone = all(work["key"].n_unique() == 1 for work in works.values())
        raise _NoIterations("one operation repeats alone" if is_alone else "kernels, copies and collectives have no period")
    repeated = pl.concat(bounded).filter(pl.len().over("group") >= _LEAST_ITERATIONS)
    if repeated.is_empty():
        raise _NoIterations(f"the work repeats less than {_LEAST_ITERATIONS} times as a whole")
    how = BY_KERNELS if (run.kind_of_operations == KERNEL).any() else BY_COPIES
    return _numbered(operations, _of_same_work(repeated)), how


def _works(run: MeasuredRun, operations: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The work of each group on its stream with most time in kernels that are not NCCL's, and on all where that has less than
    half of it, or repeats one; where there are none, in anything: in the order of time, `key` (its name, as a number), `start`,
    `end`, how long the device was `idle` before, and the time of work, `busy`, before it."""
    number, value = (operations[name].to_numpy() for name in ("number", "value"))
    key = distinct(number.astype(np.int64) << 32 | value.astype(np.int64) & 0xFFFFFFFF).place
    operations = operations.select(
        *("start", "row", "end", "group"), key=pl.Series(key, dtype=pl.Int32), kind=pl.Series(run.kind_of_operations)
    ).filter(pl.col("group") >= 0)
    length, kind = pl.col("end") - pl.col("start"), pl.col("kind")
    idle = (pl.col("start") - pl.col("end").cum_max().shift(1)).clip(0).fill_null(0)
    works = {}
    for (group,), part in operations.partition_by("group", as_dict=True).items():
        times = part.group_by("row").agg(kernels=(length * (kind == KERNEL)).sum(), total=length.sum())
        times = times.sort("kernels", "total", "row", descending=[True, True, False])
        on_main = pl.col("row") == times["row"][0]
        is_all = 2 * times["kernels"][0] < times["kernels"].sum() or part.filter(on_main)["key"].n_unique() == 1
        ordered = in_content_order(part, ["start"]).select("key", "start", "end", "row", "kind", idle=idle)
        # Beside others, NCCL kernels are no work: they wait for other ranks. Copies before the first kernel are start-up.
        works_on = kind.is_in([KERNEL, NCCL])
        spent = length * ((kind != NCCL) | (kind == NCCL).all()) * (works_on.cum_max() | ~works_on.any())
        works[int(group)] = ordered.filter(on_main | is_all).with_columns(busy=spent.cum_sum() - spent)
    return works


def _tried(work: pl.DataFrame) -> list[int]:
    """Names, as numbers, that may mark a period of a group: those with fewest executions."""
    busy, count = pl.col("busy"), pl.col("count")
    span = busy.max() - busy.min()
    counts = work.group_by("key").agg(span.alias("span"), count=pl.len(), time=(pl.col("end") - pl.col("start")).sum())
    counts = counts.filter(
        pl.col("span") * 3 > work.select(span).item(), count.is_between(_LEAST_ITERATIONS + 1, _MOST_MARKS)
    ).sort("count", "time", "key", descending=[False, True, False])
    # Of names with one count three are enough.
    return counts.filter(pl.int_range(pl.len()).over("count") < 3)["key"].head(_MOST_NAMES).to_list()


def _best_period(work: pl.DataFrame) -> tuple[_Period, tuple[int, int]] | None:
    """The period of the work of a group, and the operation that begins an iteration, as of `_first_operation`."""
    tried = _tried(work)
    periods = [period for key in tried if (period := _period(work, key, 1))]
    if max((period.covered for period in periods), default=0.0) < _HARDLY_COVERED:
        strides = range(2, _MOST_EXECUTIONS + 1)
        several = (period for key in tried for stride in strides if (period := _period(work, key, stride)))
        surely = (period for period in several if period.covered >= _LEAST_OF_SEVERAL and period.is_like.sum() > _FEW)
        periods = list(surely) or periods
    if not periods:
        return None
    by_count = sorted(periods, key=lambda period: (-period.is_like.sum(), -period.covered, -len(period.marks)))
    least = max(period.covered for period in by_count) - _FINER
    best = next(period for period in by_count if period.covered >= least)
    for longer in by_count:
        # Whether nearly each of its segments has equally many of those of the shorter one that are unlike the others.
        unlike = np.histogram(best.marks[:-1][~best.is_like], longer.marks)[0][longer.is_like]
        usual = np.median(unlike)
        best = longer if usual >= 1 and np.mean(unlike == usual) >= _INTERRUPTED else best
    # Of several the work may be in another order in each: only the marks are the same in all.
    begin = (best.key, 0) if best.stride > 1 else None
    times = np.diff(work["busy"].to_numpy()[best.marks])
    grows = np.diff(times[best.is_like]) > 0
    if len(grows) >= _STEPS_OF_SWEEP and grows.all() and times[-1] >= _GROWTH * times[0]:
        raise _NoIterations("the work takes longer each time that it repeats, as in a sweep of sizes")
    together = _times_repeat_after(times)
    best = _period(work, best.key, best.stride * together) or best
    return best, begin or _first_operation(work, best)


def _period(work: pl.DataFrame, key: int, stride: int) -> _Period | None:
    """The period that every so many executions of a name mark, if that covers enough."""
    keys, busy = work["key"].to_numpy(), work["busy"].to_numpy()
    marks = np.flatnonzero(keys == key)
    if len(marks) <= _LEAST_ITERATIONS * stride:
        return None
    # For each mark a row: how often each name was executed between the first mark and this one.
    turn = np.argsort(np.argsort(-np.bincount(keys), kind="stable"))
    column, columns = np.minimum(turn, _HISTOGRAM_NAMES - 1), min(len(turn), _HISTOGRAM_NAMES)
    cells = np.repeat(np.arange(1, len(marks)), np.diff(marks)) * columns + column[keys[marks[0] : marks[-1]]]
    before = np.bincount(cells, minlength=len(marks) * columns).reshape(-1, columns).cumsum(axis=0)
    # Many copies would hide which kernels run.
    of_kernels = np.unique(column[keys[work["kind"].to_numpy() == KERNEL]])
    periods = []
    for first in range(stride):
        places, histograms = marks[first::stride], np.diff(before[first::stride], axis=0)
        is_like = _alike(histograms) & _alike(histograms[:, of_kernels])
        operations, times = np.diff(places), np.diff(busy[places])
        covered = float(times[is_like].sum()) / max(int(busy[-1]), 1)
        # A kernel that is long and repeats at once in some places is no period of the rest.
        is_regular = operations[is_like].sum() >= _LEAST_COVERED * operations.sum()
        if is_regular and covered >= _LEAST_COVERED and is_like.sum() >= _LEAST_ITERATIONS:
            usual_operations = round(float(np.median(operations[is_like])))
            periods.append(_Period(key, stride, places, is_like, covered, usual_operations))
    period = max(periods, key=lambda period: period.covered, default=None)
    # With nothing but itself between its executions, a name repeats alone.
    return period if period and period.operations > stride else None


def _alike(histograms: Numbers) -> Mask:
    """Which histograms (rows) are like the usual one."""
    usual = np.median(histograms, axis=0)
    is_like: Mask = np.linalg.norm(histograms - usual, axis=1) <= _LIKE * max(float(np.linalg.norm(usual)), 1.0)
    return is_like


def _times_repeat_after(times: Numbers) -> int:
    """After how many segments their times repeat, where many differ from those of their neighbours; else 1."""
    unlike = [
        float(np.mean(np.abs(times[lag:] - times[:-lag]) > _OTHER_TIME * np.maximum(times[lag:], times[:-lag])))
        for lag in range(1, min(len(times) // (_LEAST_ITERATIONS + 1), _MOST_TOGETHER) + 1)
    ]
    if not unlike or unlike[0] * len(times) < _LEAST_UNLIKE:
        return 1
    return next((lag for lag, share in enumerate(unlike, 1) if share <= _RARER * unlike[0]), 1)


def _first_operation(work: pl.DataFrame, period: _Period) -> tuple[int, int]:
    """The operation that the device is idle longest before, of those that most segments of a group have: its key, and how many
    operations after the nearest mark it usually is."""
    key, idle = work["key"].to_numpy(), work["idle"].to_numpy()
    like = period.marks[:-1][period.is_like]
    places = np.minimum(like[:, None] + np.arange(period.operations), len(key) - 1)
    # A name that most segments have at a place is the middle one of all there.
    usual = np.partition(key[places], len(like) // 2, axis=0)[len(like) // 2]
    is_usual = key[places] == usual
    waits = np.where(2 * is_usual.sum(axis=0) >= len(like), np.sum(np.sqrt(idle[places]) * is_usual, axis=0), -1)
    # Of equal times the first: where devices never wait, the mark itself.
    offset = int(np.argmax(waits))
    return int(usual[offset]), offset if 2 * offset <= period.operations else offset - period.operations


def _bounded_by_period(work: pl.DataFrame, group: int, period: _Period, first: int, offset: int) -> pl.DataFrame:
    """Iterations of a group: they begin at the execution of the first operation that is nearest to where it usually is before,
    behind and between the marks."""
    key, start, end = (work[name].to_numpy() for name in ("key", "start", "end"))
    places, marks, operations = np.flatnonzero(key == first), period.marks, period.operations
    expected = np.concatenate([marks[:1] - operations, marks, marks[-1:] + operations]) + offset
    behind = np.clip(np.searchsorted(places, expected), 1, len(places) - 1)
    nearest = places[np.where(expected - places[behind - 1] <= places[behind] - expected, behind - 1, behind)]
    edges = np.unique(nearest[np.abs(nearest - expected) <= _LIKE * operations])
    if not len(edges):
        return pl.DataFrame(schema=_SCHEMA)
    ends = start[edges[1:]]
    # The last iteration ends with its work, if that is complete, and what follows is not something else.
    counts = [np.bincount(key[at : at + operations], minlength=key.max() + 1) for at in (edges[len(edges) // 2], edges[-1])]
    is_like = np.abs(counts[0] - counts[1]).sum() <= 2 * _LIKE * operations and counts[1].sum() >= (1 - _LIKE) * operations
    if is_like and marks[-1] >= edges[-1]:
        ends = np.append(ends, end[edges[-1] : edges[-1] + operations].max())
    # What is before the first iteration is the end of another one.
    before = key[max(edges[0] - operations, 0) : edges[0]]
    is_cut = bool(len(before) and np.mean(before == key[: edges[0] + operations][-len(before) :]) >= _NEARLY_ALL)
    times = {"number": np.arange(len(ends)), "begin": start[edges[: len(ends)]], "end": ends}
    return pl.DataFrame({"group": group, **times, "is_cut": is_cut}, schema=_SCHEMA)


def _numbered(operations: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Iterations with numbers that are the same in all groups."""
    ends = operations.filter(pl.col("number") == event_types.NCCL_KERNEL).select("group", "end").sort("group", "end")
    collectives = {group: part["end"].to_numpy() for (group,), part in ends.partition_by("group", as_dict=True).items()}
    parts = [part for _, part in sorted(iterations.partition_by("group", as_dict=True).items())]
    reference = max(parts, key=len)
    return pl.concat(part.with_columns(pl.col("number") + _shift(part, reference, collectives)) for part in parts)


def _shift(part: pl.DataFrame, reference: pl.DataFrame, collectives: Mapping[Any, Numbers]) -> int:
    """What has to be added to the numbers of a group, that they are those of another one."""
    begins, of_reference = (frame["begin"].to_numpy() for frame in (part, reference))
    period = max(float(np.median(np.diff(of_reference))), 1.0)
    ends, ends_of_reference = (collectives.get(frame["group"][0], begins[:0]) for frame in (part, reference))
    if len(ends) == len(ends_of_reference):
        place, expected = np.searchsorted(begins, ends), np.searchsorted(of_reference, ends_of_reference)
        is_inside = (place > 0) & (expected > 0)
        is_together = np.abs(ends - ends_of_reference)[is_inside] <= _TOGETHER * period
        if is_inside.any() and is_together.mean() >= _NEARLY_ALL:
            return round(float(np.median((expected - place)[is_inside])))
    if len(begins) == len(of_reference) and not (part["is_cut"][0] or reference["is_cut"][0]):
        return 0
    compared = min(len(begins), len(of_reference))
    late = (begins[:compared] - of_reference[:compared]) / period
    shift = round(float(np.median(late)))
    if np.mean(np.abs(late - shift) <= _TOGETHER) < _NEARLY_ALL:
        raise _NoIterations("which iterations of several tasks are the same ones is not decidable")
    return shift
