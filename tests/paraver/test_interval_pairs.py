"""Each end belongs to the innermost open start of its row and type, whatever is missing."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from support.interval_pairs import pair_intervals

KEY = ["row", "type"]
SCHEMA = {"row": pl.Int64, "type": pl.Int64, "time": pl.Int64, "value": pl.Int64}
Edge = tuple[int, int, int, int]

EDGES = st.lists(st.tuples(st.integers(0, 1), st.integers(7, 8), st.integers(0, 2)), max_size=30).map(
    lambda edges: [(row, kind, time, value) for time, (row, kind, value) in enumerate(edges)]
)


def time_of(edge: tuple[int, ...]) -> int:
    return edge[2]


def frame(edges: list[Edge]) -> pl.DataFrame:
    return pl.DataFrame(edges, schema=SCHEMA, orient="row")


def paired_one_by_one(edges: list[Edge]) -> tuple[list[tuple[int, ...]], list[Edge], list[Edge]]:
    """(intervals with end and depth, starts that stay open, ends without a start), with a stack for each row and type."""
    stacks: dict[tuple[int, int], list[Edge]] = {}
    closed, orphans = [], []
    for edge in edges:
        stack = stacks.setdefault(edge[:2], [])
        if edge[3]:
            stack.append(edge)
        elif stack:
            closed.append((*stack[-1], edge[2], len(stack)))
            stack.pop()
        else:
            orphans.append(edge)
    return sorted(closed, key=time_of), sorted((edge for stack in stacks.values() for edge in stack), key=time_of), orphans


@given(EDGES)
def test_ends_close_the_innermost_start(edges: list[Edge]) -> None:
    closed, still_open, orphans = paired_one_by_one(edges)

    pairs = pair_intervals(frame(edges), KEY)

    # Ends without a start shift the depth of what follows on their row.
    assert [row[:5] for row in pairs.closed.rows()] == [interval[:5] for interval in closed]
    if not orphans:
        assert pairs.closed["depth"].to_list() == [interval[5] for interval in closed]
    assert pairs.open.rows() == still_open
    assert pairs.orphans.rows() == orphans
