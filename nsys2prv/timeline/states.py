"""States of rows: what a host thread or a stream does at any time, from its intervals with a state."""

import itertools
from collections.abc import Iterator

import numpy as np
import polars as pl

from nsys2prv.execution.external_sort import ExternalSort
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.timeline.time_axis import TimeSelection
from nsys2prv.vocabulary import event_types

_IS_START, _STATE_BITS, _ROW_BITS = 1, 6, 32
"""What an edge is, in one number, from the lowest bits on: whether an interval starts, its state, its row, and the number of
the CPU that is taken or left (counted over all hosts from 1, 0 where none is known). A sort moves few columns so."""
_STATE_AT, _ROW_AT = 1, 1 + _STATE_BITS
_CPU_AT = _ROW_AT + _ROW_BITS

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
_NEVER = 2**62
"""After all times, ns."""
_NO_STATE, _UNKNOWN = -1, 0
"""A row that shows no state, and an interval that has none: no interval is idle."""
assert max(_BY_PRIORITY) < 2**_STATE_BITS


def edges(intervals: pl.DataFrame) -> pl.DataFrame:
    """Edges of intervals that have a state, and of stays on a CPU: both of an interval in one row.

    Parameters
    ----------
    intervals
        Columns `row`, `start`, `end`, `state`; of stays on CPUs also `number` (event type) and `cpu` (0 for none).

    Returns
    -------
    Columns `start`, `end`, `edge`, for `sweep`.
    """
    edge = pl.col("state").fill_null(_UNKNOWN) * 2**_STATE_AT + pl.col("row") * 2**_ROW_AT
    if "cpu" in intervals.columns:
        cpu = pl.when(pl.col("number") == event_types.EXECUTING_CPU).then("cpu").otherwise(0)
        edge = edge + cpu * 2**_CPU_AT
    says_something = (pl.col("end") > pl.col("start")) & (edge & ~(2**_CPU_AT - 2**_ROW_AT) != 0)
    return intervals.lazy().filter(says_something).select("start", "end", edge=edge).collect()


def sweep(all_edges: ExternalSort, rows: pl.DataFrame, selection: TimeSelection) -> Iterator[pl.DataFrame]:
    """States of all rows, without gaps inside the selected time.

    Parameters
    ----------
    all_edges
        What `edges` gives, sorted by `start`, in time of the trace.
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
    windows_of_trace = TimeSelection(
        tuple(begin - selection.origin for begin in selection.starts), tuple(end - selection.origin for end in selection.ends)
    )
    windows: Iterator[pl.DataFrame | None] = itertools.chain(all_edges.windows(), [None])
    for window, following in itertools.pairwise(windows):
        if window is not None:
            behind = _NEVER if following is None else int(following["start"][0])
            yield windows_of_trace.clip(sweeper.advance(window, behind), shift=False)
    yield windows_of_trace.clip(sweeper.finish(selection.length), shift=False)


class _Rows:
    """Neighbours of one row among edges in the order of rows."""

    def __init__(self, row: np.ndarray) -> None:
        self.is_first = differ_from_before(row)
        self.first = np.flatnonzero(self.is_first)
        self.last = np.append(self.first[1:], len(row)) - 1
        self.row = row[self.first]

    def running(self, steps: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Sums of steps (they are overwritten) up to each edge, for each row from what was before on."""
        after = before + np.add.reduceat(steps, self.first)
        steps[self.first] += before
        steps[self.first[1:]] -= after[:-1]
        sums: np.ndarray = np.cumsum(steps, out=steps)
        return sums


_ONE = 2**32
"""Count of open intervals above the sum of their states, in one number: where one is open, the sum is its state."""


def _steps(states: tuple[int, ...]) -> np.ndarray:
    """What an edge adds to `_ONE` times the open intervals and the sum of their states, by its lowest bits; states that do not
    count add nothing."""
    low = np.arange(2**_ROW_AT)
    state = low >> _STATE_AT
    return np.where(np.isin(state, states), (2 * (low & _IS_START) - 1) * (_ONE + state), 0)


class _Sweeper:
    """Counts open intervals per row and state. The state of a row is the first in priority with an open interval; a record
    ends where the state or the row's CPU changes."""

    def __init__(self, base: np.ndarray, is_stream: np.ndarray, first: int) -> None:
        self._base = base
        self._first = first
        self._kind = is_stream.astype(np.int64)
        self._steps = np.concatenate([_steps(_BY_PRIORITY), _steps(_ON_STREAMS)])
        self._open = np.zeros((2**_STATE_BITS, len(base)), dtype=np.int64)
        self._sum = np.zeros(len(base), dtype=np.int64)
        self._carried = np.zeros((3, 0), dtype=np.int64)
        self._state = base.copy()
        self._cpu = np.zeros(len(base), dtype=np.int64)
        self._since = np.zeros(len(base), dtype=np.int64)

    def advance(self, window: pl.DataFrame, behind: int) -> pl.DataFrame:
        """States that end before a time: where the window of intervals, sorted by their start, ends."""
        row, time, edge = self._edges(np.stack([window[name].to_numpy() for name in ("start", "end", "edge")]), behind)
        if not len(row):
            return self._frame(row, time, time, row, row)
        rows = _Rows(row)
        # Of edges at one time only the last one counts.
        is_last = np.append(rows.is_first[1:] | (time[1:] != time[:-1]), True)
        top = self._top(rows, row, edge & 2**_ROW_AT - 1, is_last)
        cpu = self._cpu_after(rows, edge)
        if not is_last.all():
            row, time, cpu = row[is_last], time[is_last], cpu[is_last]
        starts_row = differ_from_before(row)
        former, former_cpu = np.append(0, top[:-1]), np.append(0, cpu[:-1])
        former[starts_row] = self._state[row[starts_row]]
        former_cpu[starts_row] = self._cpu[row[starts_row]]
        changed = (top != former) | (cpu != former_cpu)
        if not changed.all():
            row, time, top, cpu = row[changed], time[changed], top[changed], cpu[changed]
            former, former_cpu = former[changed], former_cpu[changed]
            starts_row = differ_from_before(row)
        since = np.append(0, time[:-1])[: len(time)]
        since[starts_row] = self._since[row[starts_row]]
        ends_row = np.append(starts_row[1:], True)[: len(row)]
        self._state[row[ends_row]] = top[ends_row]
        self._cpu[row[ends_row]] = cpu[ends_row]
        self._since[row[ends_row]] = time[ends_row]
        return self._frame(row, since, time, former, former_cpu)

    def _edges(self, intervals: np.ndarray, behind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, time and edge of the edges before a time, sorted by row and time. Ends that follow later are kept."""
        carried = self._carried.shape[1]
        start, end, edge = np.concatenate([self._carried, intervals], axis=1)
        is_end = end < behind
        self._carried = np.stack([start[~is_end], end[~is_end], edge[~is_end]])
        is_start = np.arange(len(start)) >= carried
        row = self._row(edge)
        if (row[1:] != row[:-1]).any():
            by_row = self._by_row(row)
            row, start, end, edge = row[by_row], start[by_row], end[by_row], edge[by_row]
            is_start, is_end = is_start[by_row], is_end[by_row]
        time, edges = np.stack([start, end], axis=1).ravel(), np.stack([edge + _IS_START, edge], axis=1).ravel()
        row = np.repeat(row, 2)
        if not (is_start.all() and is_end.all()):
            due = np.stack([is_start, is_end], axis=1).ravel()
            row, time, edges = row[due], time[due], edges[due]
        # Most intervals of a row do not overlap.
        if ((time[1:] < time[:-1]) & (row[1:] == row[:-1])).any():
            order = np.argsort(time, kind="stable")
            if row[0] != row[-1]:
                order = order[self._by_row(row[order])]
            row, time, edges = row[order], time[order], edges[order]
        return row, time, edges

    def _row(self, edge: np.ndarray) -> np.ndarray:
        row: np.ndarray = (edge >> _ROW_AT & 2**_ROW_BITS - 1) - self._first
        return row

    def _by_row(self, row: np.ndarray) -> np.ndarray:
        # Of 16 bits numpy makes a radix sort.
        return np.argsort(row.astype(np.uint16) if len(self._base) <= 2**16 else row, kind="stable")

    def _top(self, rows: _Rows, row: np.ndarray, low: np.ndarray, is_last: np.ndarray) -> np.ndarray:
        """State of the row of each edge that is the last one of its time, from there on; `low` are the lowest bits of edges."""
        before = self._open[:, rows.row]
        opened = rows.running(self._steps[(self._kind[row] << _ROW_AT) + low], self._sum[rows.row])
        self._sum[rows.row] = opened[rows.last]
        # Where one interval is open; the others follow below.
        self._open[:, rows.row] = np.arange(len(before))[:, None] == opened[rows.last] - _ONE
        top = np.where(opened >= _ONE, opened - _ONE, self._base[row])
        overlapping = is_last & (opened >= 2 * _ONE)
        if overlapping.any():
            # Only edges around overlaps are looked at again: between two edges of a row behind which nothing is open.
            part = np.cumsum(rows.is_first | np.append(False, opened[:-1] == 0)) - 1
            again = np.zeros(part[-1] + 1, dtype=bool)
            again[part[overlapping]] = True
            among = again[part]
            top[among] = self._first_in_priority(rows, among, row[among], low[among], before)
        return top if is_last.all() else top[is_last]

    def _cpu_after(self, rows: _Rows, edge: np.ndarray) -> np.ndarray:
        """CPU of each edge's row from there on."""
        cpu: np.ndarray = edge >> _CPU_AT
        if not cpu.any() and not self._cpu[rows.row].any():
            return cpu
        return rows.running(cpu * (2 * (edge & _IS_START) - 1), self._cpu[rows.row])

    def _first_in_priority(
        self, all_rows: _Rows, among: np.ndarray, row: np.ndarray, low: np.ndarray, before: np.ndarray
    ) -> np.ndarray:
        """State from there on of the row of some edges (`among` all), where several intervals can be open; `before`: how many
        of each state are open before the first edge of each row."""
        rows, on_stream = _Rows(row), self._kind[row] == 1
        places = np.searchsorted(all_rows.row, rows.row)
        # Rows whose first or last edge is not among them have nothing open before or after.
        before = np.where(among[all_rows.first[places]], before[:, places], 0)
        is_open_after = among[all_rows.last[places]]
        state, step = low >> _STATE_AT, 2 * (low & _IS_START) - 1
        top: np.ndarray = self._base[row]
        self._open[:, rows.row[is_open_after]] = 0
        present = {*np.flatnonzero(np.bincount(state)).tolist(), *np.flatnonzero(before.any(axis=1)).tolist()}
        for states, where in ((_BY_PRIORITY, ~on_stream), (_ON_STREAMS, on_stream)):
            for of_state in reversed(states):
                if of_state in present and where.any():
                    count = rows.running(np.where((state == of_state) & where, step, 0), before[of_state])
                    top[(count > 0) & where] = of_state
                    ends_open = where[rows.last] & is_open_after
                    self._open[of_state, rows.row[ends_open]] = count[rows.last][ends_open]
        return top

    def finish(self, end: int) -> pl.DataFrame:
        """The last state of each row."""
        row = np.arange(len(self._base))
        return self._frame(row, self._since, np.full(len(row), end), self._state, self._cpu)

    def _frame(self, row: np.ndarray, start: np.ndarray, end: np.ndarray, state: np.ndarray, cpu: np.ndarray) -> pl.DataFrame:
        shown = (end > start) & (state != _NO_STATE)
        columns = {"row": row + self._first, "start": start, "end": end, "state": state, "cpu": cpu}
        if not shown.all():
            columns = {name: values[shown] for name, values in columns.items()}
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
