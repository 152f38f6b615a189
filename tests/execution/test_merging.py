"""Frames that are merged now and then are merged as if all came at once."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv.execution.row_order import Merging

SCHEMA = {"key": pl.Int64, "count": pl.Int64}
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=6)


def added(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("key").agg(pl.col("count").sum())


@given(st.lists(ROWS, max_size=12), st.integers(0, 20))
def test_sums_are_those_of_all_rows(frames: list[list[tuple[int, int]]], pending: int) -> None:
    few = Merging(added, pl.DataFrame(schema=SCHEMA), pending)
    for rows in frames:
        few.add(pl.DataFrame(rows, schema=SCHEMA, orient="row"))

    of_all = pl.DataFrame([row for rows in frames for row in rows], schema=SCHEMA, orient="row")
    assert few.rows.sort("key").equals(added(of_all).sort("key"))


def test_rows_are_merged_a_few_times_however_many_frames_come() -> None:
    merged: list[int] = []

    def distinct(rows: pl.DataFrame) -> pl.DataFrame:
        merged.append(rows.height)
        return rows.unique(maintain_order=True)

    few = Merging(distinct, pl.DataFrame(schema={"key": pl.Int64}), 10)
    for number in range(2000):
        few.add(pl.DataFrame({"key": [number]}))

    assert few.rows["key"].to_list() == list(range(2000))
    assert sum(merged) < 5 * 2000
