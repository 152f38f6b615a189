"""Lanes for ranges that overlap freely: on one lane none begins before the former one has ended."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl


class Lanes:
    """Gives each range the lane that has been free for the shortest time, else a new one, so that there are as few as can be.

    Called with pieces of a frame in the order of begin (all ranges that begin together in one piece); adds a column `lane`
    (0, 1, ...). Keeps the ranges that are still open from one piece to the next.

    The free lanes of a row are a stack. A range that begins while k others run takes the lane on place k of the stack,
    where it was put by the last range that ended and left k running; so each begin follows one earlier end, and the chains
    of such steps are shortened by halves instead of walked event by event.
    """

    def __init__(self, row: str) -> None:
        self._row = row
        self._open = pl.DataFrame(schema={row: pl.Int64, "end": pl.Int64, "lane": pl.Int64})
        self._stack = pl.DataFrame(schema={row: pl.Int64, "level": pl.Int64, "lane": pl.Int64})

    def __call__(self, ranges: pl.DataFrame) -> pl.DataFrame:
        if ranges.is_empty():
            return ranges.with_columns(lane=pl.lit(0, pl.Int64))
        row = self._row
        # An end that is not told, and a range without length, must not free a lane before they took it.
        begins = ranges.select(
            row, time="start", end=pl.max_horizontal(pl.col("end").fill_null(2**62), pl.col("start") + 1)
        ).with_row_index("range")
        opened = self._open.with_row_index("range", offset=begins.height)
        edges = pl.concat(
            [
                opened.select(row, "range", time=pl.lit(-(2**62), pl.Int64), is_begin=pl.lit(True)),
                begins.select(row, "range", "time", is_begin=pl.lit(True)),
                opened.select(row, "range", time="end", is_begin=pl.lit(False)),
                begins.select(row, "range", time="end", is_begin=pl.lit(False)),
            ]
        ).sort(row, "time", "is_begin", maintain_order=True)
        lanes, stack_after = self._assign(edges, begins.height)
        last_begin = int(begins["time"].max())  # type: ignore[arg-type]
        carried = pl.concat(
            [
                opened.select(row, "end", lane=pl.Series(lanes[begins.height :], dtype=pl.Int64)),
                begins.select(row, "end", lane=pl.Series(lanes[: begins.height], dtype=pl.Int64)),
            ]
        )
        self._open = carried.filter(pl.col("end") > last_begin)
        self._stack = stack_after(last_begin)
        return ranges.with_columns(lane=pl.Series(lanes[: begins.height], dtype=pl.Int64))

    def _assign(self, edges: pl.DataFrame, new: int) -> tuple[np.ndarray, Callable[[int], pl.DataFrame]]:
        """Lane of each range (the `new` ones first), and the stack of free lanes as it is after a time."""
        row = self._row
        total = new + self._open.height
        levels = edges.with_columns(
            level=pl.when("is_begin").then(1).otherwise(-1).cum_sum().over(row) - pl.col("is_begin").cast(pl.Int64)
        ).with_row_index("edge")
        # On one place of the stack, edges take turns: an end puts a lane there, the next begin takes it.
        places = levels.sort(row, "level", "edge")
        before = places.select(
            "range",
            "is_begin",
            row,
            "level",
            giver=pl.col("range").cast(pl.Int64).shift(1).over(row, "level"),
        )
        parent = np.arange(total)
        lane = np.full(total, -1, dtype=np.int64)
        lane[new:] = self._open["lane"].to_numpy()
        taken = before.filter(pl.col("is_begin") & (pl.col("range") < new))
        follows = taken.filter(pl.col("giver").is_not_null())
        parent[follows["range"].to_numpy()] = follows["giver"].to_numpy()
        fresh = taken.filter(pl.col("giver").is_null()).join(self._stack, on=[row, "level"], how="left")
        lane[fresh["range"].to_numpy()] = fresh.select(pl.coalesce("lane", "level")).to_series().to_numpy()
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                break
            parent = grandparent
        lane = lane[parent]

        def stack_after(time: int) -> pl.DataFrame:
            freed = levels.filter(~pl.col("is_begin") & (pl.col("time") <= time)).unique(
                [row, "level"], keep="last", maintain_order=True
            )
            put = freed.select(row, "level", lane=pl.Series(lane[freed["range"].to_numpy()], dtype=pl.Int64))
            return pl.concat([put, self._stack]).unique([row, "level"], keep="first", maintain_order=True)

        return lane, stack_after
