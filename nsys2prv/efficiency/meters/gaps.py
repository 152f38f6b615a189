"""Gaps: times in which a device does not do something, with what ends each, and who launched that when.

`gaps_between` serves all meters, `idle_gaps` those that ask why nothing runs: with what the thread did that launched what runs
next. `findings.gap_causes` has their sums."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from nsys2prv.efficiency import host_states
from nsys2prv.efficiency.host_states import COMPUTING, UNSCHEDULED
from nsys2prv.efficiency.intervals import NONE, Elapsed, Intervals, Mask, Numbers
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.result_tables import DEVICE, SPAN, Column, OnConsole, OnPage, Table

CLASSES_NS = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
"""Shortest length of each class."""
BLOCK_GAPS = 100_000
"""Gaps that are looked at together: it bounds the memory for what is only needed on the way."""

_CAUSES = (
    *(Column.ns(f"{name}_ns", f"of this time, the launching thread was {meaning}") for name, _, meaning in host_states.STATES),
    Column.ns("unknown_ns", "the launching thread is not known"),
)
CAUSE_COLUMNS = [column.name for column in _CAUSES]
"""Columns with the idle time by what the launching thread does: its states, then `unknown_ns`."""
UNKNOWN_COLUMN, _SYNCHRONIZATION = CAUSE_COLUMNS[-1], host_states.NAMES.index("synchronization")
CAUSE_TITLES = dict(zip(CAUSE_COLUMNS, (*(title for _, title, _ in host_states.STATES), "not known"), strict=True))
"""Names of these columns for people."""

GAPS = Table(
    "gaps",
    "Gaps by length",
    "one device and class of lengths of idle times",
    (
        DEVICE,
        Column.ns("from_ns", "lengths from here"),
        Column.ns("to_ns", "to below here; null for the last class"),
        Column.count("count", "gaps"),
        Column.ns("total_ns", "sum of lengths"),
        *_CAUSES,
    ),
    page=OnPage("gaps", columns=("device", "from_ns", "to_ns", "count", "total_ns", "host_ns", "computing_ns", "off_cpu_ns",
        "launch_ns", "synchronization_ns", "mpi_ns", "unknown_ns"), worst_first="total_ns", cells=8_000),
)  # fmt: skip
LONGEST_GAPS = Table(
    "longest_gaps",
    "Longest gaps",
    "one idle time of a device",
    (
        DEVICE,
        *SPAN,
        Column.text("before", "what ended last before it; null at the start of the trace"),
        Column.text("after", "what starts first after it; null at the end of the trace"),
        Column.text("task", "task of the launching thread; null when not known"),
        Column.text("thread", "thread that launched what comes after, or, where nothing does, first launched on the device"),
        *_CAUSES,
    ),
    page=OnPage("gaps", columns=("device", "begin_ns", "length_ns", "before", "after", "host_ns", "computing_ns",
        "off_cpu_ns", "synchronization_ns", "mpi_ns")),
    console=OnConsole((("device", "gap on"), ("begin_ns", "at"), "length_ns", ("after", "until"))),
)  # fmt: skip


def gaps_between(run: MeasuredRun, busy: Intervals, can_end: Mask | None = None) -> pl.DataFrame:
    """Gaps between times in which devices are `busy` (merged times of each, the `group`, in the order of device and time), from
    the start of the window to its end. `can_end`: which of `run.operations` can end a gap; None: all.

    They have, in the order of device and time: `device`, `begin`, `end` (ns); `next`, the place in `run.operations` of the
    operation that ends it (NONE: the window ends); `thread`, the place of the caller that launched it, or, of pages that move,
    that launched first on the device, and `launched`, the start of the call, ns (NONE, null: not known). Of several operations
    that start there it is that of the last thread, so that one with a known thread comes first, then that of the first row,
    event type and value."""
    devices = np.arange(len(run.events.rows.devices))
    first, after = (np.searchsorted(busy.group, devices, side=side) for side in ("left", "right"))
    group = np.insert(busy.group, first, devices)
    begin, end = np.insert(busy.end, first, 0), np.insert(busy.begin, after, run.events.length)
    is_gap = end > begin
    group, begin, end = group[is_gap], begin[is_gap], end[is_gap]
    following = _operation_at(run, "start", group, end, ("thread", "row", "number", "value"), can_end)
    launch = np.append(run.launch_of, NONE)[following]
    # A thread that needs pages on the host makes them move: the calling one, as far as is known.
    moves = np.append(run.moves_pages, False)[following]
    thread = np.where(moves, run.first_launchers[group], np.append(run.launcher_of, np.int32(NONE))[following])
    launched = run.launches["time"].gather(pl.Series(launch).replace(NONE, None))
    columns = {"device": group.astype(np.int32), "begin": begin, "end": end, "next": following.astype(np.int32)}
    return pl.DataFrame({**columns, "thread": thread, "launched": launched})


def _operation_at(
    run: MeasuredRun, edge: str, device: Numbers, time: Numbers, order: Sequence[str], candidates: Mask | None = None
) -> Numbers:
    """The first operation, in the order of columns (also `length`, and `thread`, the last one first), whose `edge` (`start` or
    `end`) is at a time of a device; NONE: there is none.

    Devices and times are sorted, and no pair of them is there twice. It is much faster than a join."""
    span = run.events.length + 2
    operations = run.operations
    keys = run.events.rows.device[operations["row"].to_numpy()] * span + operations[edge].to_numpy()
    requested = device * span + time
    match = np.searchsorted(requested, keys)
    fits = np.append(requested, NONE)[match] == keys
    place = np.flatnonzero(fits if candidates is None else fits & candidates)
    match = match[place]
    operation: Numbers = np.full(len(requested), NONE, dtype=np.int64)
    operation[match] = place
    is_tied = np.bincount(match, minlength=len(requested))[match] > 1
    place, match = place[is_tied], match[is_tied]
    length, size = pl.col("end") - pl.col("start"), pl.col("size").fill_null(NONE)
    ties = operations[place].with_columns(size, length=length, thread=-run.launcher_of[place], match=match, place=place)
    first = ties.sort("match", *order, maintain_order=True).unique("match", keep="first")
    operation[first["match"].to_numpy()] = first["place"].to_numpy()
    return operation


def blocks_of(gaps: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Gaps in blocks of BLOCK_GAPS."""
    return gaps.iter_slices(BLOCK_GAPS) if gaps.height else iter([gaps])


def idle_gaps(run: MeasuredRun) -> Iterator[pl.DataFrame]:
    """Idle times of all devices from the start of the window to its end, some at a time, in the order of device and time.

    A row has `device`, `begin`, `start` of the activity that follows, and `length`; of that activity `number`, `value` (null:
    the window ends), `next_row`, `next_length`, `next_size` (-1: not known), `thread`, the place of the caller that launched it
    (-1: not known), and `launched`, the time of the launch; of the activity before the gap `former_number` (0: none),
    `former_value` and `former_size` (-1: not known); of both (`next_`, `former_`) `source` and `destination`, kinds of memory
    (null: none); CAUSE_COLUMNS; and `begins_in_wait`, for the device."""
    on_devices = run.on_devices
    gaps = gaps_between(run, on_devices.where(on_devices.mask > 0))
    # What ended last where a gap begins; nothing where the window does.
    device, begin = (gaps[name].to_numpy().astype(np.int64) for name in ("device", "begin"))
    former = _operation_at(run, "end", device, begin, ("number", "value", "size", "length"))
    # Who is to launch first, and who launches nothing more at the end.
    is_of_first = (begin == 0) | ((gaps["thread"].to_numpy() == NONE) & (gaps["next"].to_numpy() == NONE))
    gaps = gaps.with_columns(
        former=pl.Series(np.where(begin > 0, former, NONE), dtype=pl.Int32),
        thread=pl.Series(np.where(is_of_first, run.first_launchers[device], gaps["thread"]), dtype=pl.Int32),
    )
    states = Elapsed(run.on_threads, run.on_threads.first_kind, COMPUTING)
    is_at_end = (pl.col("next") == NONE) & (pl.col("thread") != NONE) & (pl.col("begin") > 0)
    at_end = gaps.select(is_at_end.arg_true()).to_series()
    gaps[at_end, "thread"] = _most_active(run, gaps[at_end], states)
    for block in blocks_of(gaps):
        yield _with_causes(run, block, states)


def _most_active(run: MeasuredRun, gaps: pl.DataFrame, states: Elapsed) -> pl.Series:
    """For each gap its `thread`, or where scheduling was recorded, that of the process that sleeps and waits least in it: at
    the end a thread that launched may have nothing more to do, while another one writes results."""
    task = run.events.rows.task[run.callers]
    thread, begin, end = (gaps[name].to_numpy().astype(np.int64) for name in ("thread", "begin", "end"))
    gap, caller = np.nonzero((task[thread][:, None] == task) & run.is_scheduled)
    times = list(states.in_windows(caller, begin[gap], end[gap]))
    waits = np.sum([times[state] for state in host_states.WAITING if state != host_states.IN_IO], axis=0)
    order = np.lexsort((caller != thread[gap], waits, gap))[::-1]
    # The last assignment counts.
    thread[gap[order]] = caller[order]
    return pl.Series(thread, dtype=pl.Int32)


def longest_of(gaps: pl.DataFrame, count: int) -> pl.DataFrame:
    """The longest gaps (columns `length`, `begin`, `device`), longest first."""
    order = gaps.select(pl.arg_sort_by("length", "begin", "device", descending=[True, False, False]).head(count))
    # Gathered: the head of a sorted frame would keep all of it in memory.
    return gaps[order.to_series()]


def _with_causes(run: MeasuredRun, gaps: pl.DataFrame, states: Elapsed) -> pl.DataFrame:
    """Columns of `idle_gaps`, from those of `gaps_between` and `former`, and the times of threads by state."""
    thread, begin, end = (gaps[name].to_numpy().astype(np.int64) for name in ("thread", "begin", "end"))
    is_launched = thread >= 0
    by_cause: Numbers = np.zeros((len(CAUSE_COLUMNS), len(thread)), dtype=np.int64)
    # Of a thread that is not there from the start nothing is known before it does something.
    since = np.clip(np.where(begin == 0, np.append(run.seen_since, 0)[thread], 0), begin, end)
    by_cause[:COMPUTING, is_launched] = list(states.in_windows(thread[is_launched], since[is_launched], end[is_launched]))
    in_no_state = np.where(np.append(run.is_scheduled, False)[thread], COMPUTING, UNSCHEDULED)
    in_no_state[~is_launched] = UNSCHEDULED + 1
    by_cause[in_no_state, np.arange(len(thread))] = end - since - by_cause.sum(axis=0)
    by_cause[-1] += since - begin
    waits = by_cause[_SYNCHRONIZATION] > 0
    waits[waits] = states.key[states.segments.find(thread[waits], begin[waits])] == _SYNCHRONIZATION
    columns = pl.col("row", "number", "value", "start", "end", "size", "source", "destination")
    places = (gaps.select(pl.when(pl.col(name) != NONE).then(name)).to_series() for name in ("next", "former"))
    following, former = (run.operations.select(columns.gather(place)) for place in places)
    duration, size = pl.col("end") - pl.col("start"), pl.col("size").fill_null(NONE)
    memory = pl.col("source", "destination").name
    number, value = (pl.col(name).fill_null(0) for name in ("number", "value"))
    frames = (
        gaps.select("device", "begin", "thread", "launched", start="end", length=pl.Series(end - begin)),
        following.select("number", "value", memory.prefix("next_"), next_row="row", next_length=duration, next_size=size),
        former.select(memory.prefix("former_"), former_number=number, former_value=value, former_size=size),
        pl.DataFrame([*by_cause, waits], schema=[*CAUSE_COLUMNS, "begins_in_wait"]),
    )
    return pl.concat(frames, how="horizontal")
