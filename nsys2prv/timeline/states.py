"""States of rows: what a host thread or a stream does at any time, from its intervals with a state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.timeline.selection import TimeSelection
from nsys2prv.vocabulary import event_types

EDGE_SCHEMA = {"time": pl.Int64, "row": pl.Int32, "state": pl.Int8, "step": pl.Int8, "cpu": pl.Int32}
"""`step` is 1 where an interval with a state starts and -1 where it ends; `cpu` is the change of the number of the row's CPU
(counted over all hosts, 0 where none is known)."""

# Of intervals that overlap, the first in this order counts: an API call is more specific than the OS call inside it or the
# construct around it.
_BY_PRIORITY = (
    event_types.STATE_SYNCHRONIZATION,
    event_types.STATE_MEMORY_TRANSFER,
    event_types.STATE_ALLOCATING,
    event_types.STATE_FREEING,
    event_types.STATE_CONFIGURING,
    event_types.STATE_WAIT,
    event_types.STATE_WAITING_MESSAGE,
    event_types.STATE_SEND_RECEIVE,
    event_types.STATE_BLOCKING_SEND,
    event_types.STATE_TEST,
    event_types.STATE_IMMEDIATE_SEND,
    event_types.STATE_IMMEDIATE_RECEIVE,
    event_types.STATE_REMOTE_MEMORY,
    event_types.STATE_GROUP,
    event_types.STATE_OTHERS,
    event_types.STATE_IO,
    event_types.STATE_BLOCKED,
    event_types.RUNNING,
)

# Streams run or are idle; kernels take precedence over copies.
_ON_STREAMS = (event_types.RUNNING, event_types.STATE_GROUP, event_types.STATE_MEMORY_TRANSFER)

_BASE = {"thread": event_types.RUNNING, "stream": event_types.IDLE}
"""State of a row of each kind outside of intervals; rows of GPUs have none."""
_NO_STATE = -1


def edges(intervals: pl.DataFrame) -> pl.DataFrame:
    """Edges of intervals that have a state, and of stays on a CPU.

    Parameters
    ----------
    intervals
        Columns `row`, `start`, `end`, `state`; of stays on CPUs also `number` (event type) and `cpu` (0 for none).
    """
    cpu = pl.lit(0)
    if "cpu" in intervals.columns:
        cpu = pl.when(pl.col("number") == event_types.EXECUTING_CPU).then("cpu").otherwise(0)
    state = pl.col("state").fill_null(_NO_STATE)
    stated = intervals.select("row", "start", "end", state=state, cpu=cpu).filter(
        (pl.col("end") > pl.col("start")) & ((pl.col("state") != _NO_STATE) | (pl.col("cpu") > 0))
    )
    return pl.concat(
        [
            stated.select(time="start", row="row", state="state", step=pl.lit(1), cpu="cpu"),
            stated.select(time="end", row="row", state="state", step=pl.lit(-1), cpu=-pl.col("cpu")),
        ]
    ).cast(pl.Schema(EDGE_SCHEMA))


def sweep(all_edges: ExternalSort, rows: pl.DataFrame, selection: TimeSelection) -> Iterator[pl.DataFrame]:
    """States of all rows, without gaps inside the selected time.

    Parameters
    ----------
    all_edges
        Edges in time of the trace.
    rows
        Some rows of `Rows.table`: all that have edges.
    selection
        The part of the time axis that is kept.

    Yields
    ------
    Columns `row`, `start`, `end` (ns of the trace), `state`, `cpu`.
    """
    kinds = rows["kind"]
    # Arrays cover the range of these rows: they are some of many, mostly next to each other.
    first = int(rows["row"].min() or 0)  # type: ignore[arg-type]
    numbers = rows["row"].to_numpy() - first
    base = np.full(int(numbers.max(initial=-1)) + 1, _NO_STATE)
    base[numbers] = kinds.replace_strict(_BASE, default=_NO_STATE, return_dtype=pl.Int64).to_numpy()
    is_stream = np.zeros(len(base), dtype=bool)
    is_stream[numbers] = (kinds == "stream").to_numpy()
    sweeper = _Sweeper(base, is_stream, first)
    kept = TimeSelection(
        tuple(begin - selection.origin for begin in selection.starts), tuple(end - selection.origin for end in selection.ends)
    )
    for window in all_edges.windows(any_ties=True):
        yield kept.clip(sweeper.advance(window), shift=False)
    yield kept.clip(sweeper.finish(selection.length), shift=False)


class _Sweeper:
    """Counts open intervals per row and state. The state of a row is the first in priority with an open interval; a record
    ends where the state or the row's CPU changes."""

    def __init__(self, base: np.ndarray, is_stream: np.ndarray, first: int) -> None:
        self._base = base
        self._first = first
        self._is_stream = is_stream
        self._open = {state: np.zeros(len(base), dtype=np.int64) for state in {*_BY_PRIORITY, *_ON_STREAMS}}
        self._state = base.copy()
        self._cpu = np.zeros(len(base), dtype=np.int64)
        self._since = np.zeros(len(base), dtype=np.int64)

    def advance(self, window: pl.DataFrame) -> pl.DataFrame:
        """States that end inside a window of edges sorted by time."""
        rows = window["row"].to_numpy() - self._first
        # Of 16 bits numpy makes a radix sort.
        by_row = np.argsort(rows.astype(np.uint16) if len(self._base) <= 2**16 else rows, kind="stable")
        row, time = rows[by_row], window["time"].to_numpy()[by_row]
        state, step = window["state"].to_numpy()[by_row], window["step"].to_numpy()[by_row]
        if not len(row):
            return self._frame(row, time, time, state, state)
        first_of_row = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        last_of_row = np.concatenate([first_of_row[1:], [len(row)]]) - 1
        edges_of_row = last_of_row - first_of_row + 1
        present = {*np.unique(state).tolist(), *(one for one, count in self._open.items() if count.any())}
        on_stream = self._is_stream[row]
        top = self._base[row]
        for states, where in ((_BY_PRIORITY, ~on_stream), (_ON_STREAMS, on_stream)):
            if not where.any():
                continue
            for one in reversed(states):
                if one not in present:
                    continue
                steps = np.where((state == one) & where, step, 0)
                total = np.cumsum(steps, dtype=np.int64)
                before = np.repeat(total[first_of_row] - steps[first_of_row], edges_of_row)
                count = total - before + self._open[one][row]
                top = np.where((count > 0) & where, one, top)
                own = where[last_of_row]
                self._open[one][row[last_of_row][own]] = count[last_of_row][own]
        moves = window["cpu"].to_numpy()[by_row].astype(np.int64)
        total = np.cumsum(moves)
        cpu = total - np.repeat(total[first_of_row] - moves[first_of_row], edges_of_row) + self._cpu[row]
        # Of edges at one time only the last one counts.
        is_last = np.concatenate([(row[1:] != row[:-1]) | (time[1:] != time[:-1]), [True]])
        row, time, top, cpu = row[is_last], time[is_last], top[is_last], cpu[is_last]
        starts_row = np.concatenate([[True], row[1:] != row[:-1]])
        former, former_cpu = np.concatenate([[0], top[:-1]]), np.concatenate([[0], cpu[:-1]])
        former[starts_row] = self._state[row[starts_row]]
        former_cpu[starts_row] = self._cpu[row[starts_row]]
        changed = (top != former) | (cpu != former_cpu)
        row, time, top, cpu = row[changed], time[changed], top[changed], cpu[changed]
        former, former_cpu = former[changed], former_cpu[changed]
        if not len(row):
            return self._frame(row, time, time, former, former_cpu)
        starts_row = np.concatenate([[True], row[1:] != row[:-1]])
        since = np.concatenate([[0], time[:-1]])
        since[starts_row] = self._since[row[starts_row]]
        ends_row = np.concatenate([starts_row[1:], [True]])
        self._state[row[ends_row]] = top[ends_row]
        self._cpu[row[ends_row]] = cpu[ends_row]
        self._since[row[ends_row]] = time[ends_row]
        return self._frame(row, since, time, former, former_cpu)

    def finish(self, end: int) -> pl.DataFrame:
        """The last state of each row."""
        row = np.arange(len(self._base))
        return self._frame(row, self._since, np.full(len(row), end), self._state, self._cpu)

    def _frame(self, row: np.ndarray, start: np.ndarray, end: np.ndarray, state: np.ndarray, cpu: np.ndarray) -> pl.DataFrame:
        frame = pl.DataFrame(
            {"row": row + self._first, "start": start, "end": end, "state": state, "cpu": cpu},
            schema=dict.fromkeys(("row", "start", "end", "state", "cpu"), pl.Int64),
        )
        return frame.filter((pl.col("end") > pl.col("start")) & (pl.col("state") != _NO_STATE))
