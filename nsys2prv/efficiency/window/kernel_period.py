"""Iterations by what repeats on devices: the period of the sequence of kernels, copies and collectives. No NVTX is needed.

A kernel (or copy, or collective) of one name that recurs with nearly the same work between any two of its executions marks a
period. Of all names the one counts whose like stretches hold most of the time of the work. The stream with most of the work
of a device is looked at: others, such as those of data loaders, run ahead of it and behind. Work between two executions is
compared by a sketch of its histogram of names: sums of random signs, whose differences have the length of the differences of
histograms (Alon, Matias, Szegedy 1999), so that no histogram is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, RunEvents, base_types
from nsys2prv.efficiency.window.device_work import KEY_VALUES, WorkGroups, device_work
from nsys2prv.execution.merging import Sums
from nsys2prv.vocabulary import event_types

LEAST_ITERATIONS = 3
"""Fewer are no repetition."""
LEAST_COVERED = 0.5
"""Share of the time of work that must be in stretches that are alike."""
LIKE = 0.1
"""Difference of two histograms of names, relative to the length of one, up to which the work is taken for the same."""
_MOST_EXECUTIONS = 12
"""Executions of a name in one iteration, where none recurs once in each."""
LEAST_OF_SEVERAL = 0.9
"""LEAST_COVERED where one of several executions of a name marks a period: that happens by chance more easily."""
HARDLY_COVERED = 0.6
"""Share up to which such a period is looked for: parts of two kinds that take turns have half each."""
FINER = 0.02
"""Share of work that a shorter period may leave out and still count more than a longer one."""
_MOST_MARKS = 2_000_000
"""Executions of names that may mark a period which are kept, over all devices."""
_MOST_NAMES = 24
"""Names of a device that are tried."""
_SIGNS = 16
"""Sums of random signs in a sketch."""
_SAMPLED_ITERATIONS = 40
"""Iterations in which the place of the boundary is looked for."""
_COUNT_SCHEMA = dict.fromkeys(("group", "stream", "key", "count", "total", "first", "last"), pl.Int64)


@dataclass(frozen=True)
class _Marks:
    """Executions of one name on one group, in order: their starts, and of all work before each: its number, its time (ns),
    the sums of signs."""

    start: Numbers
    before: Numbers
    work: Numbers
    sketch: npt.NDArray[np.int32]

    def every(self, stride: int, first: int) -> _Marks:
        """Every so many of them, from one on."""
        return self.only(slice(first, None, stride))

    def only(self, places: slice) -> _Marks:
        """Those at some places."""
        return _Marks(self.start[places], self.before[places], self.work[places], self.sketch[places])


@dataclass(frozen=True)
class _Period:
    """How well a name marks a period of a group: share of the time of its work in like stretches, their number, and the
    number of operations in one."""

    covered: float
    stretches: int
    operations: int


def period_iterations(events: RunEvents, groups: WorkGroups) -> tuple[pl.DataFrame, str | None]:
    """Iterations of each group by the period of its work.

    Returns
    -------
    iterations
        Columns `group`, `number` (from 0 in each group), `begin`, `end` (ns): each ends where the next one begins.
    reason
        Why there are none; None where there are some.
    """
    empty = pl.DataFrame(schema=dict.fromkeys(("group", "number", "begin", "end"), pl.Int64))
    counts = _of_main_streams(_counts(events, groups))
    if counts.is_empty():
        return empty, "no device works"
    streams = np.array(counts["stream"].unique().sort())
    tried = _tried(counts)
    if tried.is_empty():
        return (
            empty,
            f"no kernel, copy or collective is executed {LEAST_ITERATIONS + 1} times or more over the time of the work",
        )
    marks = _marks(events, groups, streams, tried.join(counts, on=["group", "key"], how="left"))
    total = dict(counts.group_by("group").agg(pl.col("total").sum()).iter_rows())
    distinct = dict(counts.group_by("group").agg(pl.col("key").n_unique()).iter_rows())
    periods = {pair: _periods(found, 1, total[pair[0]])[0] for pair, found in marks.items()}
    good = {pair: one for pair, one in periods.items() if one is not None and one.operations > 1}
    covered = max((one.covered for one in good.values()), default=0.0)
    every = _every_several(marks, periods, total) if covered < HARDLY_COVERED else {}
    is_better = {group for group, _ in every} >= {group for group, _ in good} and bool(every)
    if is_better:
        marks |= {pair: thinned for pair, (thinned, _) in every.items()}
        good = {pair: period for pair, (_, period) in every.items()}
    if not good:
        alone = all(number == 1 for number in distinct.values())
        return empty, "one kernel repeats alone" if alone else "the sequence of kernels, copies and collectives has no period"
    chosen = _chosen(good, total)
    found = [
        _bounded(events, groups, streams, key, {group: marks[group, key] for group in members}, good, at_marks=is_better)
        for key, members in chosen
    ]
    iterations = pl.concat([empty, *found])
    enough = iterations.filter(pl.len().over("group") >= LEAST_ITERATIONS)
    if enough.is_empty():
        return empty, f"the work repeats less than {LEAST_ITERATIONS} times as a whole"
    return enough, None


def _counts(events: RunEvents, groups: WorkGroups) -> pl.DataFrame:
    """Executions of each name on each stream: their number, time, first and last start."""
    counts = Sums(_COUNT_SCHEMA, ["group", "stream", "key"], smallest=["first"], largest=["last"])
    for piece in device_work(events, groups):
        counts.add(
            piece.select(
                "group",
                "stream",
                "key",
                count=pl.lit(1),
                total=pl.col("end") - pl.col("start"),
                first=pl.col("start"),
                last=pl.col("start"),
            )
        )
    return counts.rows


def _of_main_streams(counts: pl.DataFrame) -> pl.DataFrame:
    """Those of the stream of each group with most time in kernels that are not NCCL's; where there are none, in anything."""
    is_kernel = (pl.col("key") // KEY_VALUES).is_in(_kernel_numbers(counts))
    time = counts.group_by("group", "stream").agg(kernels=pl.col("total").filter(is_kernel).sum(), all=pl.col("total").sum())
    main = time.sort("group", "kernels", "all", "stream", descending=[False, True, True, False]).unique(
        "group", keep="first", maintain_order=True
    )
    return counts.join(main, on=["group", "stream"], how="semi").sort("group", "key")


def _kernel_numbers(counts: pl.DataFrame) -> list[int]:
    """Event types of kernels, of graphs, and the members of their series, that occur."""
    numbers = counts.select(pl.col("key") // KEY_VALUES).to_series().unique().to_list()
    bases = base_types(numbers, ON_DEVICES)
    return [number for number, base in bases.items() if base in (event_types.KERNEL, event_types.GRAPH_EXECUTION)]


def _tried(counts: pl.DataFrame) -> pl.DataFrame:
    """Columns `group`, `key`: names that may mark a period. Of names with equal counts some are enough."""
    span = pl.col("last").max().over("group") - pl.col("first").min().over("group")
    spread = counts.filter((pl.col("count") > LEAST_ITERATIONS) & ((pl.col("last") - pl.col("first")) * 3 > span))
    ordered = spread.sort("group", "count", "total", "key", descending=[False, False, True, False])
    # Of names with one count three are enough, but that they are the same on all devices matters.
    place = pl.int_range(pl.len()).over("group", "count")
    some = ordered.filter(place < 3).filter(pl.int_range(pl.len()).over("group") < _MOST_NAMES)
    everywhere = (
        some.group_by("key")
        .agg(times=pl.len(), marks=pl.col("count").sum())
        .sort("times", "marks", "key", descending=[True, False, False])
    )
    kept = everywhere.filter(pl.col("marks").cum_sum() <= _MOST_MARKS)
    return spread.join(kept, on="key", how="semi").select("group", "key")


def _marks(events: RunEvents, groups: WorkGroups, streams: Numbers, tried: pl.DataFrame) -> dict[tuple[int, int], _Marks]:
    """Executions of each pair of group and key that is tried (with how many there are, `count`)."""
    pairs = tried.group_by("group", "key").agg(pl.col("count").sum()).sort("group", "key").with_row_index("pair")
    edges: Numbers = np.concatenate([[0], np.cumsum(pairs["count"].to_numpy())])
    # There may be millions: they are put where those of their pair are, and not sorted afterwards.
    free, count = edges[:-1].copy(), int(edges[-1])
    start, numbers, works = (np.empty(count, dtype=np.int64) for _ in range(3))
    sketch: npt.NDArray[np.int32] = np.empty((count, _SIGNS), dtype=np.int32)
    work_before = np.zeros(len(groups), dtype=np.int64)
    number_before = np.zeros(len(groups), dtype=np.int64)
    sketch_before = np.zeros((len(groups), _SIGNS), dtype=np.int64)
    for piece in device_work(events, groups):
        ordered = piece.filter(pl.col("stream").is_in(streams)).sort("group", maintain_order=True)
        if ordered.is_empty():
            continue
        group = ordered["group"].to_numpy()
        first = np.flatnonzero(np.diff(group, prepend=-1))
        of_group, behind = group[first], np.append(first[1:], len(group))
        work, number = (ordered["end"] - ordered["start"]).to_numpy(), np.ones(len(group), dtype=np.int64)
        joined = ordered.join(pairs, on=["group", "key"], how="left", maintain_order="left")["pair"]
        places = np.flatnonzero(joined.is_not_null().to_numpy())
        target = _places_in_order(joined.drop_nulls().to_numpy().astype(np.int64), free)
        part = np.searchsorted(first, places, side="right") - 1

        def before(values: Numbers, carried: Numbers, *, first: Numbers = first, places: Numbers = places,
                   part: Numbers = part, of_group: Numbers = of_group, behind: Numbers = behind) -> Numbers:  # fmt: skip
            """Sums of a group before each mark; those before the next piece are carried."""
            sums = np.concatenate([np.zeros((1, *values.shape[1:]), dtype=np.int64), np.cumsum(values, axis=0, dtype=np.int64)])
            result: Numbers = sums[places] - sums[first][part] + carried[of_group][part]
            carried[of_group] += sums[behind] - sums[first]
            return result

        start[target] = ordered["start"].to_numpy()[places]
        numbers[target] = before(number, number_before)
        works[target] = before(work, work_before)
        sketch[target] = before(_signs(ordered["key"].to_numpy()), sketch_before)
    marks = _Marks(start, numbers, works, sketch)
    return {
        (group, key): marks.only(slice(edges[pair], edges[pair + 1]))
        for pair, group, key in pairs.select("pair", "group", "key").iter_rows()
    }


def _places_in_order(pair: Numbers, free: Numbers) -> Numbers:
    """The next free place of each pair, one after the other; `free` is moved on behind them."""
    order = np.argsort(pair, kind="stable")
    ordered = pair[order]
    first = np.searchsorted(ordered, ordered, side="left")
    places: Numbers = np.empty(len(pair), dtype=np.int64)
    places[order] = free[ordered] + np.arange(len(pair)) - first
    free += np.bincount(pair, minlength=len(free))
    return places


def _signs(keys: Numbers) -> Numbers:
    """Random signs of each key, the same in each run: columns of 1 and -1."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    bits = (mixed[:, None] >> np.arange(_SIGNS, dtype=np.uint64)) & np.uint64(1)
    signs: Numbers = bits.astype(np.int8) * np.int8(2) - np.int8(1)
    return signs


def _periods(marks: _Marks, stride: int, total: int) -> list[_Period | None]:
    """How well every so many executions of a name mark a period, from the first, the second, ... on; None: they mark none."""
    found: list[_Period | None] = []
    behind = len(marks.start)
    # Those from the last ones on may be one less: what is of one length is compared together.
    for offsets in (np.arange(behind % stride), np.arange(behind % stride, stride)):
        length = (behind - int(offsets[0]) - 1) // stride + 1 if len(offsets) else 0
        if length <= LEAST_ITERATIONS:
            found += [None] * len(offsets)
            continue
        places = np.arange(length)[:, None] * stride + offsets
        like = _alike(marks.sketch[places])
        work, operations = (np.diff(values[places], axis=0) for values in (marks.work, marks.before))
        covered = np.where(like, work, 0).sum(axis=0) / max(total, 1)
        found += [
            _Period(float(share), int(which.sum()), round(float(np.median(inside[which]))))
            if share >= LEAST_COVERED and which.sum() >= LEAST_ITERATIONS
            else None
            for share, which, inside in zip(covered, like.T, operations.T, strict=True)
        ]
    return found


def _every_several(
    marks: dict[tuple[int, int], _Marks], periods: dict[tuple[int, int], _Period | None], total: dict[int, int]
) -> dict[tuple[int, int], tuple[_Marks, _Period]]:
    """Every second, third, ... execution of names of which neighbours are not alike, where those mark a period: time steps may
    go through the same kernels for one direction after the other, and in turn begin with either."""
    found: dict[tuple[int, int], tuple[_Marks, _Period]] = {}
    for pair, all_marks in marks.items():
        single = periods[pair]
        if single is not None and single.covered >= LEAST_OF_SEVERAL:
            continue
        for stride in range(2, _MOST_EXECUTIONS + 1):
            known = [(first, one) for first, one in enumerate(_periods(all_marks, stride, total[pair[0]])) if one is not None]
            best = max(known, key=lambda one: one[1].covered, default=None)
            if best is not None and best[1].covered >= LEAST_OF_SEVERAL:
                found[pair] = all_marks.every(stride, best[0]), best[1]
                break
    return found


def _alike(sketches: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Which stretches between marks hold the same work as most of them; sketches of marks are along the first axis."""
    sketch = np.diff(sketches, axis=0)
    ordered, stretches = np.sort(sketch, axis=0), len(sketch)
    # Their medians: numpy's takes three times as long.
    usual = (ordered[(stretches - 1) // 2].astype(np.float64) + ordered[stretches // 2]) / 2
    differs = np.linalg.norm(sketch - usual, axis=-1)
    found: npt.NDArray[np.bool_] = differs <= LIKE * np.maximum(np.linalg.norm(usual, axis=-1), 1.0)
    return found


def _chosen(good: dict[tuple[int, int], _Period], total: dict[int, int]) -> list[tuple[int, list[int]]]:
    """Names that mark the iterations, with the groups that each does it for: as few names as possible."""
    rows = [(group, key, one.covered, one.stretches) for (group, key), one in good.items()]
    left = pl.DataFrame(rows, schema=["group", "key", "covered", "stretches"], orient="row").with_columns(
        work=pl.col("group").replace_strict(total, return_dtype=pl.Int64)
    )
    chosen: list[tuple[int, list[int]]] = []
    while left.height:
        whole = int(left.unique("group")["work"].sum())
        by_key = left.group_by("key").agg(
            covered=(pl.col("covered") * pl.col("work")).sum() / max(whole, 1), stretches=pl.col("stretches").median()
        )
        best = by_key["covered"].max()
        assert isinstance(best, float)
        near = by_key.filter(pl.col("covered") >= best - FINER)
        key = near.sort("stretches", "covered", "key", descending=[True, True, False])["key"][0]
        members = left.filter(pl.col("key") == key)["group"].sort().to_list()
        chosen.append((int(key), members))
        left = left.filter(~pl.col("group").is_in(members))
    return chosen


def _bounded(
    events: RunEvents,
    groups: WorkGroups,
    streams: Numbers,
    key: int,
    marks: dict[int, _Marks],
    good: dict[tuple[int, int], _Period],
    *,
    at_marks: bool,
) -> pl.DataFrame:
    """Iterations of some groups that one name marks. They begin at the operation that devices are idle longest before; or
    `at_marks`: their work may be in another order in each, so only the marks are the same in all."""
    sampled = max(marks, key=lambda group: (good[group, key].stretches, -group))
    first_key, forward, backward = _first_operation(events, groups, streams, sampled, marks[sampled])
    starts: list[pl.DataFrame] = []
    is_first = (pl.col("key") == first_key) & pl.col("stream").is_in(streams) & pl.col("group").is_in(list(marks))
    for piece in device_work(events, groups):
        starts.append(piece.filter(is_first).select("group", "start"))
    of_group = pl.concat(starts).partition_by("group", as_dict=True)
    frames = []
    for group, found in marks.items():
        at = of_group[(group,)]["start"].to_numpy() if (group,) in of_group else np.zeros(0, dtype=np.int64)
        edges = found.start if at_marks else _edges(at, found.start, forward, backward)
        if not len(edges):
            continue
        last = _last_end(events, groups, streams, group, int(edges[-1]), found, good[group, key].operations)
        ends = np.append(edges[1:], last) if last is not None else edges[1:]
        frames.append(
            pl.DataFrame({"begin": edges[: len(ends)], "end": ends}).select(
                pl.lit(group).cast(pl.Int64).alias("group"), pl.int_range(pl.len()).alias("number"), "begin", "end"
            )
        )
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict.fromkeys(("group", "number", "begin", "end"), pl.Int64))


def _first_operation(
    events: RunEvents, groups: WorkGroups, streams: Numbers, group: int, marks: _Marks
) -> tuple[int, int, int]:
    """The operation that an iteration begins with: its key, and which of this key it is in the stretch between two marks,
    counted from the start (0, 1, ...) and from the end (1, 2, ...)."""
    like = np.flatnonzero(_alike(marks.sketch))
    middle = like[len(like) // 2]
    chosen = like[np.argsort(np.abs(like - middle), kind="stable")[:_SAMPLED_ITERATIONS]]
    low, high = int(chosen.min()), int(chosen.max()) + 1
    begin, end = int(marks.start[low]), int(marks.start[high])
    found = pl.concat(list(device_work(events, groups, begin, end))).filter(pl.col("group") == group)
    stretch = np.searchsorted(marks.start, found["start"].to_numpy(), side="right") - 1
    place = pl.int_range(pl.len()).over("stretch", "key")
    gaps = (
        found.with_columns(stretch=pl.Series(stretch), gap=(pl.col("start") - pl.col("end").cum_max().shift(1)).clip(0))
        .filter(pl.col("stretch").is_in(chosen.tolist()) & pl.col("stream").is_in(streams))
        .with_columns(forward=place, backward=pl.len().over("stretch", "key") - place)
        .with_columns(gap=pl.col("gap").fill_null(0).sqrt())
    )
    usual = gaps.group_by("key", "forward", "backward").agg(
        times=pl.len(), gap=pl.col("gap").sum(), first=pl.col("start").min()
    )
    # Of equal gaps the first: where devices never wait, the mark itself.
    best = usual.sort("gap", "first", descending=[True, False])
    return int(best["key"][0]), int(best["forward"][0]), int(best["backward"][0])


def _edges(at: Numbers, marks: Numbers, forward: int, backward: int) -> Numbers:
    """Starts of iterations: in each stretch between marks the operation with a place in it; `at` are the starts of its name."""
    edges = np.searchsorted(at, marks, side="left")
    inside = edges[:-1] + forward
    first = edges[0] - backward
    last = edges[-1] + forward
    places = np.concatenate(
        [[first] if first >= 0 else [], inside[inside < edges[1:]], [last] if last < len(at) else []]
    ).astype(np.int64)
    found: Numbers = at[places]
    return found


def _last_end(
    events: RunEvents, groups: WorkGroups, streams: Numbers, group: int, begin: int, marks: _Marks, operations: int
) -> int | None:
    """End of an iteration that begins at a time and that none follows; None: its work is not complete."""
    count, end = 0, begin
    for piece in device_work(events, groups, begin):
        found = piece.filter((pl.col("group") == group) & pl.col("stream").is_in(streams)).head(operations - count)
        count += found.height
        end = max(end, int(found["end"].max() or 0))  # type: ignore[arg-type]
        if count >= operations:
            break
    is_whole = count >= (1 - LIKE) * operations and bool((marks.start >= begin).any())
    return end if is_whole else None
