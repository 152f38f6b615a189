"""Light passes over the work of devices: what a task puts on a device, in the order of its starts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.event_waits import LogicalStreams
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.run_events import ON_DEVICES, STREAM, RunEvents
from nsys2prv.execution.external_sort import ExternalSort, Window, plan_windows

KEY_VALUES = 1 << 32
"""Values that a key has for each event type: type x KEY_VALUES + value."""


class WorkGroups:
    """What one task does on one device: the streams that iterations are looked for on.

    Attributes
    ----------
    of_row, stream
        The group and the stream of each row; -1: it is no stream.
    task, device
        Of each group.
    """

    def __init__(self, events: RunEvents) -> None:
        rows = events.rows
        is_stream = rows.of_kind(STREAM)
        pairs = np.stack([rows.task, rows.device], axis=1)
        found, group = np.unique(pairs[is_stream].reshape(-1, 2), axis=0, return_inverse=True)
        self.of_row: Numbers = np.full(len(rows.names), -1, dtype=np.int64)
        self.of_row[is_stream] = group.reshape(-1)
        self.stream: Numbers = LogicalStreams(rows).of_row
        self.task: Numbers = found[:, 0].astype(np.int64)
        self.device: Numbers = found[:, 1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.task)


def device_work(
    events: RunEvents, groups: WorkGroups, begin: int | None = None, end: int | None = None
) -> Iterator[pl.DataFrame]:
    """What starts on devices from `begin` to `end` (ns; None: open), in pieces in the order of time; nothing is used up.

    Columns `group`, `key` (its event type and value as one number), `stream`, `start`, `end`.
    """
    collection = events.collections.get(ON_DEVICES.name)
    if collection is None:
        return
    for window in plan_windows([(collection, 1)]):
        low, high = _later(window.begin, begin), _earlier(window.end, end)
        if low is not None and high is not None and low >= high:
            continue
        pieces = collection.load(Window(low, high))
        if not pieces:
            continue
        found = pl.concat([piece.select("row", "start", "end", "number", "value") for piece in pieces])
        row = found["row"].to_numpy()
        placed = found.with_columns(group=pl.Series(groups.of_row[row]), stream=pl.Series(groups.stream[row]))
        # Equal starts come in one order, from reports and from their trace.
        ordered = placed.filter(pl.col("group") >= 0).sort("start", "stream", "end", "number", "value")
        key = pl.col("number").cast(pl.Int64) * KEY_VALUES + pl.col("value") % KEY_VALUES
        yield ordered.select("group", key.alias("key"), "stream", "start", "end")


def whole_span(collections: list[ExternalSort]) -> tuple[int, int] | None:
    """First start and last end of the rows of some collections; None: they have none."""
    found = [span for one in collections if (span := one.extent()) is not None]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _earlier(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
