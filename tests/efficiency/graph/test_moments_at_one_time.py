"""Events of one time come in an order that depends on what they are, not on where their rows are in a table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.efficiency.graph.chunk_moments import OpenIntervals, last_begun, moments_of, outside_calls, stretch_labels

LAUNCH, SYNCHRONIZATION, LONG = 1, 2, 3
Interval = tuple[int, int, int, int]
"""Row, begin, end and label."""


def intervals(rows: list[Interval], carried: int = 0) -> OpenIntervals:
    """Intervals, of which the first ones began in the chunk before."""
    row, begin, until, label = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    is_new = np.arange(len(row)) >= carried
    start = np.where(is_new, -1, np.arange(len(row)))
    return OpenIntervals(row, begin, until, label, start, is_new, np.ones(len(row), dtype=bool))


def order(devices: list[Interval], hosts: list[Interval]) -> list[tuple[int, int, int]]:
    """Row, label and side of the moments."""
    of_hosts = intervals(hosts)
    moments = moments_of(0, intervals(devices), of_hosts, of_hosts.label == SYNCHRONIZATION, 100)
    return list(zip(moments.row.tolist(), moments.label.tolist(), moments.side.tolist(), strict=True))


def test_operations_without_length_are_behind_their_launches_and_before_calls_that_wait() -> None:
    hosts = [(0, 5, 5, LAUNCH), (0, 5, 5, SYNCHRONIZATION), (0, 5, 9, LONG), (0, 5, 5, LAUNCH)]
    kernels = [(7, 5, 5, 0), (8, 5, 5, 0)]
    launches = [(0, LAUNCH, 0), (0, LAUNCH, 1)] * 2
    operations = [(7, 0, 0), (7, 0, 1), (8, 0, 0), (8, 0, 1)]
    known = [*launches, (0, SYNCHRONIZATION, 0), *operations, (0, SYNCHRONIZATION, 1), (0, LONG, 0), (0, LONG, 1)]
    for some_hosts, some_kernels in itertools.product(itertools.permutations(hosts), itertools.permutations(kernels)):
        assert order(list(some_kernels), list(some_hosts)) == known


def test_calls_that_wait_without_length_are_one_inside_of_the_other() -> None:
    found = order([(7, 5, 5, 0)], [(0, 5, 5, SYNCHRONIZATION), (1, 5, 5, SYNCHRONIZATION), (0, 5, 5, SYNCHRONIZATION)])
    assert [side for row, _, side in found if row == 0] == [0, 0, 1, 1]
    moments = moments_of(0, intervals([]), both := intervals([(0, 5, 5, SYNCHRONIZATION)] * 2), np.ones(2, dtype=bool), 100)
    assert both.start.tolist() == moments.interval[:2].tolist() == [0, 1]
    assert both.end.tolist() == [3, 2]


@pytest.mark.parametrize("turned", [False, True], ids=["call first", "call last"])
def test_what_the_os_does_for_as_long_as_a_call_is_inside_of_it(turned: bool) -> None:
    both = intervals([(0, 5, 9, 1), (0, 5, 9, 1)])
    is_call = np.array([not turned, turned])
    assert outside_calls(both, is_call, 100).tolist() == is_call.tolist()


@pytest.mark.parametrize("labels", [(1, 2), (2, 1)], ids=str)
def test_calls_of_one_start_and_end_are_open_in_the_next_chunk_in_the_order_of_their_starts(labels: tuple[int, int]) -> None:
    hosts = intervals([(0, 5, 9, labels[0]), (0, 5, 9, labels[1]), (0, 7, 8, 3)], carried=2)
    moments = moments_of(2, intervals([]), hosts, np.zeros(3, dtype=bool), 100)
    assert stretch_labels(moments, hosts).tolist()[0] == 2


@given(stretches=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12, unique_by=lambda one: one[0]))
def test_of_stretches_around_a_place_the_last_one_is_found(stretches: list[tuple[int, int]]) -> None:
    first, behind = np.array(stretches, dtype=np.int64).reshape(-1, 2).T

    found = last_begun(first, behind, 21).tolist()

    assert found == [max((one for one, end in stretches if one <= place < end), default=-1) for place in range(21)]


def test_of_calls_that_overlap_the_one_that_started_last_is_shown_wherever_the_chunk_begins() -> None:
    # The first ends inside of the second.
    calls = [(0, 0, 20, 1), (0, 10, 40, 2), (0, 30, 50, 3)]
    whole, rest = intervals(calls), intervals(calls[1:], carried=1)
    of_whole = moments_of(0, intervals([]), whole, np.zeros(3, dtype=bool), 100)
    of_rest = moments_of(0, intervals([]), rest, np.zeros(2, dtype=bool), 100)

    assert stretch_labels(of_whole, whole).tolist() == [-1, 1, 2, 2, 3, 3]
    assert of_whole.time[-3:].tolist() == of_rest.time.tolist() == [30, 40, 50]
    assert stretch_labels(of_rest, rest).tolist() == [2, 3, 3]
