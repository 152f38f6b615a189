"""Events of one time come in an order that depends on what they are, not on where their rows are in a table."""

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from support.measured import events_of
from support.report_builder import ReportBuilder

from nsys2prv.efficiency.graph.moments import RunMoments
from nsys2prv.efficiency.graph.run_graph import graph_of_run
from nsys2prv.efficiency.intervals import Spans
from nsys2prv.efficiency.measured_run import MeasuredRun

LAUNCH, SYNCHRONIZATION, LONG = 1, 2, 3
Interval = tuple[int, int, int, int]
"""Row, begin, end and label."""


def points(devices: list[Interval], hosts: list[Interval]) -> RunMoments:
    row, begin, end, label = np.array([*devices, *hosts], dtype=np.int64).reshape(-1, 4).T
    may_wait = (label == SYNCHRONIZATION) & (np.arange(len(row)) >= len(devices))
    return RunMoments(row.astype(np.int32), begin, end, label.astype(np.int32), len(devices), may_wait, 10)


def order(devices: list[Interval], hosts: list[Interval]) -> list[tuple[int, int, bool]]:
    """Row and label of the intervals of all moments, and whether they are ends."""
    made = points(devices, hosts)
    labels = made.label_of[made.interval]
    return list(zip(made.row.tolist(), labels.tolist(), made.is_end.tolist(), strict=True))


def test_operations_without_length_are_behind_their_launches_and_before_calls_that_wait() -> None:
    hosts = [(0, 5, 5, LAUNCH), (0, 5, 5, SYNCHRONIZATION), (0, 5, 9, LONG), (0, 5, 5, LAUNCH)]
    kernels = [(7, 5, 5, 0), (8, 5, 5, 0)]
    launches = [(0, LAUNCH, False), (0, LAUNCH, True)] * 2
    operations = [(7, 0, False), (7, 0, True), (8, 0, False), (8, 0, True)]
    waits = [(0, SYNCHRONIZATION, False), *operations, (0, SYNCHRONIZATION, True)]
    expected = [*launches, *waits, (0, LONG, False), (0, LONG, True)]
    for host_order, kernel_order in itertools.product(itertools.permutations(hosts), itertools.permutations(kernels)):
        assert order(list(kernel_order), list(host_order)) == expected


def test_calls_that_wait_without_length_are_one_inside_of_the_other() -> None:
    moments = order([(7, 5, 5, 0)], [(0, 5, 5, SYNCHRONIZATION), (1, 5, 5, SYNCHRONIZATION), (0, 5, 5, SYNCHRONIZATION)])
    assert [is_end for row, _, is_end in moments if row == 0] == [False, False, True, True]
    nested = points([], [(0, 5, 5, SYNCHRONIZATION)] * 2)
    assert nested.start.tolist() == nested.interval[np.arange(2)].tolist() == [0, 1]
    assert nested.end.tolist() == [3, 2]


@pytest.mark.parametrize("labels", [(1, 2), (2, 1)], ids=str)
def test_of_calls_of_one_start_and_end_that_which_started_last_is_shown(labels: tuple[int, int]) -> None:
    moments = points([], [(0, 5, 9, labels[0]), (0, 5, 9, labels[1]), (0, 7, 8, 3)])
    # Of the same length, the smaller label is first.
    assert moments.label.tolist() == [-1, 1, 2, 3, 2, 2 if moments.label[5] == 2 else 1]


def test_of_calls_that_overlap_the_one_that_started_last_is_shown() -> None:
    # The first ends inside of the second.
    moments = points([], [(0, 0, 20, 1), (0, 10, 40, 2), (0, 30, 50, 3)])
    assert moments.time.tolist() == [0, 10, 20, 30, 40, 50]
    assert moments.label.tolist() == [-1, 1, 2, 2, 3, 3]


def test_what_the_os_does_inside_of_a_call_is_left_out(tmp_path: Path) -> None:
    report = ReportBuilder(rank=0).gpu(0)
    report.kernel("k", 100, 200, launch=(10, 20))
    report.api_call("cudaStreamSynchronize_v3020", 30, 250)
    # As long as the call, inside of it, and beyond it.
    report.os_call("poll", 30, 250).os_call("read", 40, 50).os_call("write", 240, 260)
    built = graph_of_run(MeasuredRun(events_of(tmp_path, report)))
    names = set(built.labels.frame["name"])
    assert "write" in names
    assert not names & {"poll", "read"}


def test_time_inside_spans_against_counting_each_ns() -> None:
    random = np.random.default_rng(5)
    group, begin = random.integers(0, 3, 40), random.integers(0, 180, 40)
    end = begin + random.integers(0, 15, 40)
    covered = np.zeros((3, 200), dtype=bool)
    for of_group, first, last in zip(group, begin, end, strict=True):
        covered[of_group, first:last] = True
    spans = Spans(pl.DataFrame({"group": group, "begin": begin, "end": end}))
    asked = random.integers(0, 3, 500)
    since, until = np.sort(random.integers(0, 200, (2, 500)), axis=0)

    expected = [int(covered[one, first:last].sum()) for one, first, last in zip(asked, since, until, strict=True)]
    assert spans.inside(asked, since, until, asked >= 0).tolist() == expected


def test_without_spans_no_time_is_inside() -> None:
    nothing = pl.DataFrame(schema=dict.fromkeys(("group", "begin", "end"), pl.Int64))
    assert Spans(nothing).inside(np.array([0]), np.array([0]), np.array([10]), np.array([True])).tolist() == [0]


def test_groups_of_few_bits_stay_apart_in_runs_of_seconds() -> None:
    length, groups = 2_000_000_000, pl.Series([0, 1, 5], dtype=pl.Int32)
    spans = Spans(pl.DataFrame({"group": groups, "begin": [10, 20, 30], "end": [15, 21, 32]}))
    since = np.zeros(3, dtype=np.int64)
    assert spans.inside(groups.to_numpy(), since, since + length, since == 0).tolist() == [5, 1, 2]
    # More ns than a number of 32 bits has.
    assert spans.inside(groups.to_numpy(), since, since + 3 * length, since == 0).tolist() == [5, 1, 2]
