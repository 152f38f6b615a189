"""Intervals and their segments: hand-made cases, and properties of any, against counting nanosecond by nanosecond."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.efficiency.activity_times import times_in_windows
from nsys2prv.efficiency.intervals import NONE, Elapsed, Intervals, Moments, Segments, segments
from nsys2prv.efficiency.meters.absent_pieces import innermost

GROUPS, END = 3, 40

one = st.tuples(st.integers(0, GROUPS - 1), st.integers(0, END), st.integers(0, END))
some = st.lists(one, max_size=12).map(
    lambda found: Intervals.of(*(list(zip(*[(g, min(a, b), max(a, b)) for g, a, b in found], strict=True)) or ([], [], [])))
)
FAR = 1_700_000_000_000_000_000


def covered(intervals: Intervals) -> np.ndarray:
    """How many intervals are open in each group at each nanosecond."""
    count = np.zeros((GROUPS, END), dtype=np.int64)
    for group, begin, end in zip(intervals.group, intervals.begin, intervals.end, strict=True):
        count[group, begin:end] += 1
    return count


def rows(intervals: Intervals) -> list[tuple[int, int, int]]:
    return list(zip(intervals.group.tolist(), intervals.begin.tolist(), intervals.end.tolist(), strict=True))


def union(intervals: Intervals) -> Intervals:
    found = segments(intervals)
    return found.where(found.counts[0] > 0)


def of_both(one: Intervals, other: Intervals) -> Segments:
    """Segments of two kinds: the one and the other."""
    columns = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("group", "begin", "end"))
    return segments(Intervals(*columns), np.repeat(np.array([0, 1]), [len(one), len(other)]), 2)


def test_touching_and_nested_intervals_become_one() -> None:
    found = union(Intervals.of([0, 0, 0, 0, 1], [5, 0, 1, 20, 5], [9, 5, 3, 20, 6]))
    assert rows(found) == [(0, 0, 9), (1, 5, 6)]


def test_times_far_apart_and_many_groups_do_not_need_to_fit_one_key() -> None:
    found = union(Intervals.of([1_000_000, 1_000_000, 0], [0, FAR, 7], [10, FAR + 5, 9]))
    assert rows(found) == [(0, 7, 9), (1_000_000, 0, 10), (1_000_000, FAR, FAR + 5)]


def test_elapsed_time_far_apart() -> None:
    found = segments(Intervals.of([0, 1], [0, FAR], [10, FAR + 5]))
    times = Elapsed(found, found.mask, 2)
    assert list(times.in_windows(*np.array([[0, 1, 1], [0, 0, 0], [FAR, FAR + 3, 7]])))[1].tolist() == [10, 3, 0]


def test_nothing_gives_nothing() -> None:
    nothing = Intervals.of([], [], [])
    assert len(union(nothing)) == of_both(nothing, nothing).lengths().sum() == 0
    times = Elapsed(segments(nothing), segments(nothing).mask, 2)
    assert np.stack(list(times.in_windows(np.array([1]), np.array([0]), np.array([5])))).tolist() == [[0], [0]]


@given(some)
def test_a_union_covers_what_its_intervals_cover_once(intervals: Intervals) -> None:
    found = union(intervals)
    assert (covered(found) == (covered(intervals) > 0)).all()
    assert (found.end > found.begin).all()
    assert rows(found) == sorted(rows(found))


@given(some, some)
def test_segments_of_two_kinds_give_their_difference_and_intersection(one: Intervals, other: Intervals) -> None:
    inside, outside = covered(one) > 0, covered(other) == 0
    found = of_both(one, other)
    in_one, in_other = found.counts[0] > 0, found.counts[1] > 0
    assert (covered(found.where(in_one & ~in_other)) == (inside & outside)).all()
    assert (covered(found.where(in_one & in_other)) == (inside & ~outside)).all()


@given(some, st.lists(st.integers(0, 1), min_size=12, max_size=12))
def test_segments_count_the_open_intervals_of_each_kind(intervals: Intervals, kinds: list[int]) -> None:
    kind = np.array(kinds[: len(intervals)], dtype=np.int64)
    found = segments(intervals, kind, 2)
    edges = found.group, found.begin, found.begin + found.lengths()
    for each in range(2):
        count = np.zeros((GROUPS, END), dtype=np.int64)
        for group, begin, end, open_ in zip(*edges, found.counts[each], strict=True):
            count[group, begin:end] = open_
        assert (count == covered(intervals.only(kind == each))).all()


@given(some, st.lists(one, min_size=1, max_size=6))
def test_elapsed_time_is_the_sum_in_a_window(intervals: Intervals, windows: list[tuple[int, int, int]]) -> None:
    windows = [(group, min(edges), max(edges)) for group, *edges in windows]
    of_groups = segments(intervals)
    times = Elapsed(of_groups, of_groups.mask, 2)
    group, begin, end = (np.array(column, dtype=np.int64) for column in zip(*windows, strict=True))
    busy = covered(intervals) > 0
    assert list(times.in_windows(group, begin, end))[1].tolist() == [int(busy[g, a:b].sum()) for g, a, b in windows]


@given(some, st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, END)), min_size=1, max_size=12))
def test_the_innermost_of_open_intervals_began_last(intervals: Intervals, moments: list[tuple[int, int]]) -> None:
    found = innermost(intervals, *np.array(moments, dtype=np.int64).T)
    for (group, time), place in zip(moments, found, strict=True):
        around = [(begin, -end) for of, begin, end in rows(intervals) if of == group and begin <= time < end]
        assert max(around, default=None) == (None if place == NONE else (intervals.begin[place], -intervals.end[place]))


@given(some, some)
def test_times_in_windows_are_summed_by_slot_and_group(intervals: Intervals, windows: Intervals) -> None:
    found = segments(intervals)
    # Windows of one slot and group may overlap: each counts.
    ordered = windows.only(np.lexsort((windows.group, windows.begin % 2)))
    slot = ordered.begin % 2
    columns = {"slot": slot, "group": ordered.group, "begin": ordered.begin, "end": ordered.end}
    sums = times_in_windows(Elapsed(found, found.mask, 2), pl.DataFrame(columns))

    expected: dict[tuple[int, int], np.ndarray] = {}
    for part, (group, begin, end) in zip(slot.tolist(), rows(ordered), strict=True):
        busy = np.count_nonzero(covered(intervals)[group, begin:end])
        expected[part, group] = expected.get((part, group), 0) + np.array([end - begin, busy])
    assert sums.select("slot", "group", "window", "key1").rows() == [(*key, *expected[key]) for key in sorted(expected)]


@pytest.mark.parametrize("depth", [3, 100, 40_000])
def test_counts_are_as_wide_as_their_sum_needs(depth: int) -> None:
    """So many intervals of each of two kinds are open at once: their sum fits, too."""
    columns = np.zeros(2 * depth, dtype=np.int64), np.arange(2 * depth), np.full(2 * depth, 2 * depth)
    found = segments(Intervals.of(*columns), np.arange(2 * depth) % 2, 2)
    assert (found.counts[0] + found.counts[1]).max() == 2 * depth
    assert all(count.dtype.itemsize == (1 if depth == 3 else 2 if depth == 100 else 4) for count in found.counts)


moment = st.one_of(st.integers(-5, END), st.sampled_from([-(1 << 50), 1 << 45, 1 << 47, FAR]))
keys = st.lists(st.tuples(st.integers(0, GROUPS), moment), max_size=12)
any_keys = st.lists(st.tuples(st.integers(-1, 1 << 40), moment), max_size=12)


@given(keys, any_keys | keys)
def test_rows_are_found_by_group_and_time_however_far_apart_times_are(
    known: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    columns = [np.array(sorted(known), dtype=np.int64).reshape(-1, 2).T, np.array(wanted, dtype=np.int64).reshape(-1, 2).T]
    found = Moments.of(*columns[0]).find(*columns[1])
    assert found.tolist() == [sum(one <= key for one in known) - 1 for key in wanted]
