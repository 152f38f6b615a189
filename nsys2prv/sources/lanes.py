"""Lanes for ranges that overlap freely: on one lane no range starts before the former one has ended, or all of them nest."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.execution.row_order import differ_from_before

LANE_OF_TYPE = "type_lane"
"""Column with the lane of an event on a row that has lanes itself (a stream): on which of several event types it is."""

_MOST_LANES = 2**20
_NEVER = 2**62


class Lanes:
    """Gives each range the lane that has been free for the shortest time, else a new one, so that there are as few as can be.

    Called with pieces of a frame in the order of start (all ranges that start together in one piece); adds a column `lane`
    (0, 1, ...). Keeps the ranges that are still open from one piece to the next.

    The free lanes of a row are a stack. A range that starts while k others run takes the lane on place k of the stack,
    where it was put by the last range that ended and left k running; so each start follows one earlier end, and the chains
    of such steps are shortened by halves instead of walked event by event."""

    def __init__(self, row: str) -> None:
        self._row = row
        self._open = pl.DataFrame(schema={row: pl.Int64, "end": pl.Int64, "lane": pl.Int64})
        self._stack = pl.DataFrame(schema={row: pl.Int64, "level": pl.Int64, "lane": pl.Int64})

    def __call__(self, ranges: pl.DataFrame) -> pl.DataFrame:
        if ranges.is_empty():
            return ranges.with_columns(lane=pl.lit(0, pl.Int64))
        # Ranges of no row are like those of one more row.
        row_of_range = ranges[self._row].fill_null(-_NEVER)
        rows = np.concatenate([self._open[self._row].to_numpy(), row_of_range.to_numpy()])
        start = ranges["start"].to_numpy()
        # An unknown end, and a range without length, must not free a lane before the range took it.
        end = np.concatenate([self._open["end"].to_numpy(), np.maximum(ranges["end"].fill_null(_NEVER).to_numpy(), start + 1)])
        opened = self._open.height
        edges = _Edges(rows, np.concatenate([np.full(opened, -_NEVER), start]), end)
        lane = self._assign(edges, opened)
        last_start = int(start.max())
        is_open = end > last_start
        self._open = pl.DataFrame({self._row: rows[is_open], "end": end[is_open], "lane": lane[is_open]})
        freed = edges.last_freed(last_start)
        put = {self._row: rows[edges.range[freed]], "level": edges.level[freed], "lane": lane[edges.range[freed]]}
        stack = pl.concat([pl.DataFrame(put, self._stack.schema), self._stack])
        self._stack = stack.unique([self._row, "level"], keep="first", maintain_order=True)
        return ranges.with_columns(lane=pl.Series(lane[opened:], dtype=pl.Int64))

    def _assign(self, edges: _Edges, opened: int) -> np.ndarray:
        """Lane of each range; the first ones were `opened` before."""
        # On one place of the stack, edges take turns: an end puts a lane on it, the next start takes the lane.
        opening = np.flatnonzero(edges.is_start & (edges.range >= opened))
        parent = np.arange(len(edges.rows))
        lane = np.full(len(parent), -1, dtype=np.int64)
        lane[:opened] = self._open["lane"].to_numpy()
        is_fresh = edges.is_first[opening]
        follows = opening[~is_fresh]
        parent[edges.range[follows]] = edges.range[follows - 1]
        fresh = edges.range[opening[is_fresh]]
        questions = pl.DataFrame(
            {self._row: edges.rows[fresh], "level": edges.level[opening[is_fresh]]}, self._stack.drop("lane").schema
        )
        answers = questions.join(self._stack, on=[self._row, "level"], how="left", maintain_order="left")
        lane[fresh] = answers.select(pl.coalesce("lane", "level")).to_series().to_numpy()
        while True:
            grandparent = parent[parent]
            if np.array_equal(grandparent, parent):
                return lane[parent]
            parent = grandparent


class _Edges:
    """Starts and ends of ranges on the places of the stack of their row: edges of one place are neighbours, ordered by time.

    Attributes
    ----------
    rows
        Row of each range.
    range, level, is_start
        Of each edge: its range, its place, and whether the range starts.
    is_first
        Whether an edge is the first on its place.
    """

    def __init__(self, rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        self.rows = rows
        ranges = np.arange(len(rows))
        # Ends before starts: what ends at a time is free for what starts then.
        time = np.concatenate([end, start])
        order = np.argsort(time, kind="stable")
        of_row = np.tile(_small(rows), 2)[order]
        if (of_row[1:] != of_row[:-1]).any():
            by_row = np.argsort(of_row, kind="stable")
            order, of_row = order[by_row], of_row[by_row]
        is_start = order >= len(rows)
        # All that starts on a row ends there.
        level = np.cumsum(np.where(is_start, 1, -1)) - is_start
        by_place = np.argsort(_small(level), kind="stable")
        if of_row[0] != of_row[-1]:
            by_place = by_place[np.argsort(of_row[by_place], kind="stable")]
        self.is_start, self.level = is_start[by_place], level[by_place]
        self.range = np.tile(ranges, 2)[order][by_place]
        self._time = time[order][by_place]
        self.is_first = differ_from_before(of_row[by_place], self.level)

    def last_freed(self, time: int) -> np.ndarray:
        """Of each place, the last edge that is an end up to a time."""
        freed = np.flatnonzero(~self.is_start & (self._time <= time))
        place = np.cumsum(self.is_first)[freed]
        return freed[np.append(place[1:] != place[:-1], True)] if len(freed) else freed


def _small(numbers: np.ndarray) -> np.ndarray:
    """Numbers that are in the same order, in 16 bits where they fit: numpy sorts these by their digits."""
    least, most = int(numbers.min()), int(numbers.max())
    if most - least < 2**16:
        return (numbers - least).astype(np.uint16)
    return numbers


class _LanesFromFirst:
    """`Lanes`, but a range that starts where no other range of its row is open takes lane 0."""

    def __init__(self, row: str) -> None:
        self._row = row
        self._lanes = Lanes(row)
        # Of the ranges of each row that overlap, one the next, since nothing was open: the last end, and their lanes.
        self._reached = pl.DataFrame(schema=dict.fromkeys((row, "reached"), pl.Int64))
        self._renamed = pl.DataFrame(schema=dict.fromkeys((row, "cluster", "lane", "renamed"), pl.Int64))

    def __call__(self, ranges: pl.DataFrame) -> pl.DataFrame:
        row, of_cluster = self._row, [self._row, "cluster"]
        placed = self._lanes(ranges).join(self._reached, on=row, how="left", maintain_order="left")
        # As in `Lanes`, what has no length takes its lane.
        placed = placed.with_columns(reach=pl.max_horizontal("end", pl.col("start") + 1))
        before = pl.max_horizontal("reached", pl.col("reach").cum_max().shift(1).over(row))
        placed = placed.with_columns(cluster=(pl.col("start") >= before).fill_null(True).cast(pl.Int64).cum_sum().over(row))
        # Cluster 0 is that of the last range before.
        used = placed.select(*of_cluster, "lane").unique(maintain_order=True)
        new = used.join(self._renamed, on=[*of_cluster, "lane"], how="anti", maintain_order="left")
        renamed = pl.concat([self._renamed.drop("renamed"), new]).with_columns(
            renamed=pl.int_range(pl.len(), dtype=pl.Int64).over(of_cluster)
        )
        last = renamed.filter(pl.col("cluster") == pl.col("cluster").max().over(row))
        self._renamed = last.with_columns(cluster=pl.lit(0, pl.Int64))
        reached = [self._reached, placed.select(row, reached="reach")]
        self._reached = pl.concat(reached).group_by(row, maintain_order=True).agg(pl.col("reached").max())
        lanes = placed.join(renamed, on=[*of_cluster, "lane"], how="left", maintain_order="left")
        return ranges.with_columns(lane=lanes["renamed"])


class NestedLanes:
    """Gives ranges lanes so that on one lane any two of them nest or lie apart, and all that nest anyway are on lane 0.

    Called with pieces of a frame in the order of start (all ranges that start together in one piece; of these the longest
    first, and of ranges that are equal the outer one first); adds a column `lane` (0, 1, ...). Keeps what is still open from
    one piece to the next.

    The ranges of a row are peeled: those that none before them encloses are level 0, of the rest those that none of the rest
    encloses are level 1, and so on; the last range before one on the next outer level is what it lies in. On each level,
    ranges that overlap although they lie on the same lane of the next outer level are separated as by `Lanes`: the first
    stays on the lane of the range it lies in, the others get further lanes until all have ended.

    Parameters
    ----------
    row
        Column (Int64) with the row of a range.
    """

    def __init__(self, row: str) -> None:
        self._row = row
        self._levels: list[_LanesFromFirst] = []
        # For each level and row: end and lane of the last range there.
        self._last: list[pl.DataFrame] = []
        self._placed = pl.DataFrame(schema=dict.fromkeys(("row", "outer", "level", "place", "lane"), pl.Int64))

    def __call__(self, ranges: pl.DataFrame) -> pl.DataFrame:
        unplaced = ranges.select("start", "end", row=self._row, outer=pl.lit(0, pl.Int64)).with_row_index("range")
        of_levels = [pl.DataFrame(schema={"range": pl.UInt32, "lane": pl.Int64})]
        level = 0
        while unplaced.height:
            if level == len(self._levels):
                self._levels.append(_LanesFromFirst("beside"))
                self._last.append(pl.DataFrame(schema=dict.fromkeys(("row", "last_end", "last_lane"), pl.Int64)))
            of_level, unplaced = self._peel(level, unplaced)
            of_levels.append(of_level)
            level += 1
        return ranges.with_columns(lane=pl.concat(of_levels).sort("range")["lane"])

    def _peel(self, level: int, unplaced: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Lanes of the ranges of a level, and what lies in them, with the lane of that in `outer`."""
        before = unplaced.join(self._last[level], on="row", how="left", maintain_order="left").with_columns(
            longest=pl.max_horizontal("last_end", pl.col("end").cum_max().shift(1).over("row"))
        )
        is_level = (pl.col("end") > pl.col("longest")).fill_null(True)
        of_level = before.filter(is_level).select("range", "row", "start", "end", "outer")
        placed = self._lanes(level, of_level)
        inner = (
            before.join(placed, on="range", how="left", maintain_order="left")
            .with_columns(outer=pl.coalesce(pl.col("lane").forward_fill().over("row"), "last_lane"))
            .filter(pl.col("lane").is_null())
            .select("range", "row", "start", "end", "outer")
        )
        last = of_level.join(placed, on="range", maintain_order="left").select("row", last_end="end", last_lane="lane")
        self._last[level] = pl.concat([self._last[level], last]).unique("row", keep="last", maintain_order=True)
        return placed, inner

    def _lanes(self, level: int, of_level: pl.DataFrame) -> pl.DataFrame:
        """Columns `range`, `lane` of the ranges of a level."""
        what = ["row", "outer", "level", "place"]
        beside = of_level.with_columns(beside=pl.col("row") * _MOST_LANES + pl.col("outer"), level=pl.lit(level, pl.Int64))
        placed = self._levels[level](beside).rename({"lane": "place"})
        new = placed.filter(pl.col("place") > 0).select(what).unique(maintain_order=True)
        new = new.join(self._placed, on=what, how="anti", maintain_order="left")
        if new.height:
            counts = self._placed.group_by("row").agg(taken=pl.len().cast(pl.Int64))
            numbered = new.join(counts, on="row", how="left", maintain_order="left").with_columns(
                lane=pl.col("taken").fill_null(0) + pl.int_range(1, pl.len() + 1).over("row")
            )
            self._placed = pl.concat([self._placed, numbered.select(*what, "lane")])
        lanes = placed.join(self._placed, on=what, how="left", maintain_order="left")
        return lanes.select("range", lane=pl.when(pl.col("place") == 0).then("outer").otherwise("lane"))
