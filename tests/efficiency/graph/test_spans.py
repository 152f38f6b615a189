"""Times by group: those that overlap count once."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.changes import Spans


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
