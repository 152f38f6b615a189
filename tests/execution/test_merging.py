"""Frames that are merged now and then are merged as if all came at once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsys2prv.execution import merging
from nsys2prv.execution.merging import Merging, MergingOnDisk

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


@settings(max_examples=30)
@given(st.lists(ROWS, max_size=12), st.integers(1, 8))
def test_sums_on_disk_are_those_of_all_rows_in_order(frames: list[list[tuple[int, int]]], most: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MOST_MERGED", most)
        sums = MergingOnDisk(added, pl.DataFrame(schema=SCHEMA), "key", Path(folder))
        for rows in frames:
            sums.add(pl.DataFrame(rows, schema=SCHEMA, orient="row"))
        found = [pl.concat(sums.windows()) for _ in range(2)]

    of_all = pl.DataFrame([row for rows in frames for row in rows], schema=SCHEMA, orient="row")
    expected = added(of_all).sort("key")
    assert [one.equals(expected) for one in found] == [True, True]


def test_merged_rows_leave_memory_where_there_are_many(tmp_path: Path) -> None:
    """Keys that do not repeat are written, and windows of them are merged one at a time."""
    merged: list[int] = []

    def sums(rows: pl.DataFrame) -> pl.DataFrame:
        merged.append(rows.height)
        return added(rows)

    merging_on_disk = MergingOnDisk(sums, pl.DataFrame(schema=SCHEMA), "key", tmp_path)
    count = 6 * merging.MOST_MERGED
    for first in range(0, count, 20_000):
        merging_on_disk.add(
            pl.DataFrame({"key": range(first, first + 20_000)}, schema={"key": pl.Int64}).with_columns(
                count=pl.lit(1, pl.Int64)
            )
        )
    heights = [rows.height for rows in merging_on_disk.windows()]

    assert sum(heights) == count
    assert max(merged) <= 2.5 * merging.MOST_MERGED
