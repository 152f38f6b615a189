"""NVTX ranges as a tree: which ranges are inside of which on their threads, how often, and for how long."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.meters.meter import TableMeter
from nsys2prv.efficiency.result_tables import Column, Filled, OnPage, Table
from nsys2prv.efficiency.run_events import RANGES, base_types
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.execution.merging import Sums
from nsys2prv.vocabulary import event_types

MOST_NODES = 1_000
"""Nodes that have a row: those with most time."""
MOST_LEVELS = 12
"""Ranges that are nested more deeply are part of the one around them."""
_MOST_PATHS = 20_000
"""Different paths that are known; ranges of further ones are part of the one around them."""
_NO_PARENT = -1
_SCHEMA = dict.fromkeys(("path", "count", "total"), pl.Int64)

NVTX_TREE = Table(
    "nvtx_tree",
    "NVTX ranges inside of each other",
    "push/pop ranges of one name inside of the same ranges",
    (
        Column.count("node", "0, 1, ..., a node before those inside of it, and those with most time first"),
        Column.count("parent", "the node of the range around it; null for the outermost"),
        Column.count("level", "0 for the outermost"),
        Column.text("range", "text of the ranges, `#` for its numbers"),
        Column.count("count", "number of ranges"),
        Column.ns("total_ns", "sum of their lengths over all host threads"),
        Column.ns("own_ns", "of it, in no range that has a row inside of this one"),
        Column.share("share", "`total_ns` / sum of the outermost"),
    ),
    when="NVTX push/pop ranges",
    order=230,
    page=OnPage("regions", place=4),
    is_later=True,
)


class NvtxTree(TableMeter):
    """Times of ranges by the ranges around them."""

    def __init__(self, context: SweepContext) -> None:
        self._rows = context.events.rows
        numbers = base_types(list(context.events.types), RANGES)
        self._numbers = [number for number, base in numbers.items() if base == event_types.NVTX_PUSHPOP]
        names = [
            (number, value, text)
            for number in self._numbers
            for value, text in (context.events.types[number].values or {}).items()
        ]
        known = pl.DataFrame(names, schema={"number": pl.Int32, "value": pl.Int64, "text": pl.String}, orient="row")
        texts = known.with_columns(pl.col("text").str.replace_all(r"[0-9]+", "#"))
        self._texts = texts["text"].unique().sort()
        name = texts.select(
            pl.col("text").replace_strict(self._texts, pl.int_range(len(self._texts), eager=True), default=None)
        )
        self._names = known.select("number", "value", name=name.to_series().cast(pl.Int64))
        # Each path is the one around it and a name.
        self._paths: dict[tuple[int, int], int] = {}
        self._sums = Sums(_SCHEMA, ["path"])

    def update(self, chunk: TimeChunk) -> None:
        # All ranges around one that is open in a chunk are open in it too.
        ranges = chunk.inside[RANGES.name].filter(pl.col("number").is_in(self._numbers))
        if ranges.is_empty():
            return
        ranges = ranges.join(self._names, on=["number", "value"], how="inner")
        # Of equal ranges, the one whose text comes first is around the other.
        ranges = ranges.sort("row", "begin", "until", "name", descending=[False, False, True, False])
        around = enclosing(*(ranges[name].to_numpy() for name in ("row", "begin", "until")))
        path = self._paths_of(around, ranges["name"].to_numpy())
        found = ranges.select(
            path=pl.Series(path, dtype=pl.Int64),
            count=(pl.col("begin") >= chunk.begin).cast(pl.Int64),
            total=pl.col("end") - pl.col("start"),
        )
        self._sums.add(found.filter(pl.col("path") != _NO_PARENT))

    def _paths_of(self, around: Numbers, names: Numbers) -> Numbers:
        """The path of each range; _NO_PARENT where it is left out."""
        path: Numbers = np.full(len(around), _NO_PARENT, dtype=np.int64)
        level = np.flatnonzero(around == _NO_PARENT)
        for _ in range(MOST_LEVELS):
            outer = np.where(around[level] == _NO_PARENT, _NO_PARENT, path[around[level]])
            key = outer * len(self._texts) + names[level]
            distinct, place = np.unique(key, return_inverse=True)
            path[level] = np.array([self._path(*divmod(int(one), len(self._texts))) for one in distinct], dtype=np.int64)[place]
            is_known = np.zeros(len(around) + 1, dtype=bool)
            is_known[level[path[level] != _NO_PARENT]] = True
            level = np.flatnonzero(is_known[around])
            if not len(level):
                break
        return path

    def _path(self, outer: int, name: int) -> int:
        if (outer, name) not in self._paths and len(self._paths) >= _MOST_PATHS:
            return _NO_PARENT
        return self._paths.setdefault((outer, name), len(self._paths))

    def tables(self) -> Filled:
        """The table `nvtx_tree`."""
        sums = self._sums.rows
        if sums.is_empty():
            return {}
        outer = pl.Series([outer for outer, _ in self._paths], dtype=pl.Int64)
        name = pl.Series([name for _, name in self._paths], dtype=pl.Int64)
        nodes = sums.with_columns(outer=outer.gather(sums["path"]), text=self._texts.gather(name.gather(sums["path"])))
        # A range is no longer than the one around it, and its texts follow those of that one: this leaves no node without the
        # nodes around it, and no order in which paths were found.
        texts: list[tuple[int, ...]] = []
        for outer_path, name_of_path in self._paths:
            texts.append((*(texts[outer_path] if outer_path != _NO_PARENT else ()), name_of_path))
        place = {path: place for place, path in enumerate(sorted(range(len(texts)), key=texts.__getitem__))}
        nodes = nodes.with_columns(order=pl.Series([place[path] for path in nodes["path"]], dtype=pl.Int64))
        nodes = nodes.sort("total", "order", descending=[True, False]).head(MOST_NODES)
        inside: dict[int, list[dict[str, int]]] = {}
        for node in nodes.to_dicts():
            inside.setdefault(node["outer"], []).append(node)
        whole = sum(node["total"] for node in inside[_NO_PARENT])
        rows: list[dict[str, object]] = []
        waiting: list[tuple[dict[str, int], int | None, int]] = [(node, None, 0) for node in reversed(inside[_NO_PARENT])]
        while waiting:
            node, parent, level = waiting.pop()
            below = inside.get(node["path"], [])
            number = len(rows)
            rows.append({
                "node": number, "parent": parent, "level": level, "range": node["text"], "count": node["count"],
                "total_ns": node["total"], "own_ns": max(node["total"] - sum(one["total"] for one in below), 0),
                "share": node["total"] / whole if whole else None,
            })  # fmt: skip
            waiting += [(one, number, level + 1) for one in reversed(below)]
        return {NVTX_TREE: rows}


def enclosing(group: Numbers, begin: Numbers, end: Numbers) -> Numbers:
    """For intervals in the order of their groups, their starts, and backwards their ends: the place of the innermost one of the
    group that encloses each; -1: none.

    >>> enclosing(np.zeros(5, int), np.array([0, 1, 2, 5, 9]), np.array([8, 4, 3, 6, 10])).tolist()
    [-1, 0, 1, 0, -1]
    """
    # Each starts with its neighbour. Where that ends earlier, nothing that the neighbour lies outside of encloses either: on to
    # what is around the neighbour, as far as that is known. Each round doubles the steps.
    found: Numbers = np.arange(len(group), dtype=np.int64) - 1
    found[np.flatnonzero(np.diff(group, prepend=-1) != 0)] = _NO_PARENT
    is_open = np.flatnonzero(found != _NO_PARENT)
    while len(is_open):
        is_open = is_open[end[found[is_open]] < end[is_open]]
        found[is_open] = found[found[is_open]]
        is_open = is_open[found[is_open] != _NO_PARENT]
    return found
