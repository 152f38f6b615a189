"""Traces read strictly and as a whole: all states, events, messages and intervals as frames."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from nsys2prv.errors import TraceError
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.paraver.blocks import Block, is_interval
from nsys2prv.paraver.record_checks import one_key
from nsys2prv.paraver.trace_files import Header
from nsys2prv.paraver.trace_reader import Trace, open_trace


class PairedIntervals(NamedTuple):
    """What `pair_intervals` makes of starts and ends; all frames are in the order of the given one."""

    closed: pl.DataFrame
    open: pl.DataFrame
    orphans: pl.DataFrame


def pair_intervals(edges: pl.DataFrame, key: Sequence[str]) -> PairedIntervals:
    """Pair each end with the innermost start that is open."""
    is_start = (edges["value"] != 0).to_numpy()
    if not len(is_start):
        return PairedIntervals(edges.with_columns(end="time", depth=pl.lit(1, pl.Int64)), edges, edges)
    number = one_key([edges[name].cast(pl.Int64).to_numpy() for name in key])
    by_key = np.argsort(number, kind="stable")
    first = np.flatnonzero(differ_from_before(number[by_key]))
    # How deep an edge is nested, 1 for the outermost; the depth of an end is that of its start.
    depth_by_key = np.cumsum(np.where(is_start[by_key], 1, -1))
    depth_by_key[~is_start[by_key]] += 1
    before = depth_by_key[first] - is_start[by_key][first]
    depth = np.zeros(len(is_start), np.int64)
    depth[by_key] = depth_by_key - np.repeat(before, np.diff(first, append=len(number)))
    # Of one depth, each end follows its start.
    order = np.lexsort((depth, number))
    is_same = (number[order][1:] == number[order][:-1]) & (depth[order][1:] == depth[order][:-1])
    place = np.flatnonzero(is_same & is_start[order][:-1] & ~is_start[order][1:])
    starts, ends = order[place], order[place + 1]
    in_order = np.argsort(starts)
    starts, ends = starts[in_order], ends[in_order]
    is_left = np.ones(len(is_start), dtype=bool)
    is_left[np.concatenate([starts, ends])] = False
    closed = edges[starts].with_columns(end=edges["time"].gather(ends), depth=pl.Series(depth[starts]))
    return PairedIntervals(closed, edges.filter(is_left & is_start), edges.filter(is_left & ~is_start))


_NOTHING = Block(2, b"#\n", Header("", 0, (), ()))
"""A block without records: frames with their columns."""


def unchanged(block: Block) -> Block:
    """A block as it is read."""
    return block


def events_of(block: Block) -> pl.DataFrame:
    """A row for each type:value pair: line, position (on its line, from 0), cpu, task, thread, time, type, value."""
    placed = block.pairs.with_columns(position=pl.int_range(pl.len()).over("record"))
    return block.located(placed).select("line", "position", "cpu", "task", "thread", "time", "type", "value")


class WholeTrace(Trace):
    """A trace with all of its records in memory, once some are requested: tests that share a trace read it once."""

    @cached_property
    def _read_blocks(self) -> tuple[Block, ...]:
        return (_NOTHING, *self.read(unchanged))

    def forget_records(self) -> None:
        """Free the memory of the records, which are read again when they are requested."""
        vars(self).pop("_read_blocks", None)

    def states(self) -> pl.DataFrame:
        """All state records, with the columns of `Block.states`."""
        return pl.concat([block.states for block in self._read_blocks])

    def events(self, types: Iterable[int] | None = None) -> pl.DataFrame:
        """All type:value pairs (only those of `types`, where given), with the columns of `events_of`."""
        selected = pl.lit(True) if types is None else pl.col("type").is_in(list(types))
        return pl.concat([events_of(block).filter(selected) for block in self._read_blocks])

    def messages(self) -> pl.DataFrame:
        """All messages, with the columns of `Block.messages`."""
        return pl.concat([block.messages for block in self._read_blocks])

    def intervals(self, types: Iterable[int] | None = None) -> pl.DataFrame:
        """Intervals of some event types: each start (a value) with its end (0), the innermost open one first."""
        edges = self.events(types)
        if types is None:
            edges = edges.filter(pl.col("type").is_in([number for number in edges["type"].unique() if is_interval(number)]))
        key = ["task", "thread", "type"]
        pairs = pair_intervals(edges, key)
        unpaired = pl.concat([pairs.open, pairs.orphans]).sort("line")
        for line, number, value in unpaired.select("line", "type", "value").head(1).iter_rows():
            problem = f"value {value} of type {number} starts and never ends"
            raise TraceError(self.path, f"line {line}: {problem if value else f'type {number} ends and never started'}")
        return pairs.closed.select(*key, pl.col("time").alias("begin"), "end", "value", "depth")

    def named(self, found: pl.DataFrame) -> pl.DataFrame:
        """Events or intervals with names: `row`, `label` of the type, `name` of the value (or the number as a text)."""
        types = [(number, kind.label) for number, kind in self.labels.types.items()]
        values = [(number, *one) for number, kind in self.labels.types.items() for one in (kind.values or {}).items()]
        of_types = pl.DataFrame(types, schema={"type": pl.Int64, "label": pl.String}, orient="row")
        of_values = pl.DataFrame(values, schema={"type": pl.Int64, "value": pl.Int64, "name": pl.String}, orient="row")
        first = pl.lit(pl.Series([task.first_row for task in self.header.tasks], dtype=pl.Int64))
        place = first.gather(pl.col("task") - 1) + pl.col("thread") - 1
        return (
            found.join(of_types, on="type", how="left", maintain_order="left")
            .join(of_values, on=["type", "value"], how="left", maintain_order="left")
            .with_columns(
                pl.col("name").fill_null(pl.col("value").cast(pl.String)),
                row=pl.lit(pl.Series(self.names["THREAD"], dtype=pl.String)).gather(place),
            )
        )


def open_whole(path: str | Path) -> WholeTrace:
    """Open a trace; errors are those of `open_trace`."""
    return WholeTrace(**vars(open_trace(path)))
