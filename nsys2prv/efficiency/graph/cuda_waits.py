"""What operations and host threads wait for by CUDA events, and launches by full queues.

docs/efficiency.md ("What waits for what") says how waits for events are known, and inferred where events were not recorded.

CUDA holds about 1,024 launches of a stream; the next call returns when one of them has started. Nothing of that is recorded.
The evidence is a call that takes longer than such calls do, at whose end so many operations of its stream are launched and have
not started, and that ends right after another one of them has."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from nsys2prv.efficiency.intervals import NONE
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import RECORDS, WAITS
from nsys2prv.execution.row_order import rows_in_order
from nsys2prv.sources.cuda.synchronization import SYNC_EVENT, SYNC_WAIT_EVENT
from nsys2prv.vocabulary import event_types, row_names

_MOST_STREAMS_ON_THE_WAY = 32
"""Streams that waited for each other, without work in between, before what an operation waits for."""
LEAST_HELD = 10_000
"""From when an operation could have started to its start, ns: launches alone take up to about this."""
_LONGEST_RELEASE = 15_000
"""From the end of what was awaited to the start of what waited, at most, ns: 1 to 14 us on the A100 of a real report."""
FEWEST_PENDING = 300
"""Operations of the stream that are launched and have not started: records of events take places in the queue, too."""
LONGER = 2.0
"""Length of a blocked call against the usual one."""
LONGEST_RELEASE = 10_000
"""From the start of the operation that makes place to the end of the call at most, ns."""
_USUAL = 0.1
"""Quantile of the lengths of launch calls that is the usual one: in a full queue most are blocked."""
_BARS_PER_DOUBLING = 16
BLOCKED = dict.fromkeys(
    ("row", "begin", "until", "usual", "pending", "free_row", "free_start", "next_row", "next_start"), pl.Int64
)
"""Columns of blocked calls: row of the thread and times, ns; usual length, ns; operations that were pending when it ended; row
and start of the operation that made place, and of the one that was launched."""
EDGE_SCHEMA = dict.fromkeys(("row", "start", "end", "awaited_row", "awaited_start", "awaited_end"), pl.Int64)
"""What waits, and what it waits for: rows, start and end, ns."""


@dataclass(frozen=True)
class EventEdges(Measurement):
    """What waits for what: columns of EDGE_SCHEMA. `on_streams` are operations and the operations that a wait of their stream
    made them wait for, once for each awaited row, with the last operation on it; inferred where events were not recorded.
    `on_hosts` is the same for waits of host threads for events: `start` and `end` are those of the wait."""

    on_streams: pl.DataFrame
    on_hosts: pl.DataFrame


def recorded_waits(run: MeasuredRun) -> pl.DataFrame:
    """Recorded waits (WAITS) with the `task` of their row, their `kind` (a name), and the row of the `stream` that they name;
    null: it is not known.

    Streams of several contexts (green ones as well) with the same id on one device are one, as names of rows do not tell them
    apart: work of such contexts is taken to run in one order.

    A process counts the devices that it sees, and the names of rows have those of the node. They are the same where all devices
    that a task waits for have rows of it; else its devices are in the same order."""
    rows, recorded = run.events.rows, run.frame(WAITS)
    row_of_stream: dict[tuple[int, int, int], int] = {}
    devices_of_task: defaultdict[int, set[int]] = defaultdict(set)
    for row, (task, name) in enumerate(zip(rows.task.tolist(), rows.names, strict=True)):
        if parsed := row_names.parse_stream_name(name):
            row_of_stream.setdefault((task, parsed.device, parsed.stream), row)
            devices_of_task[task].add(parsed.device)
    kind = run.events.named(recorded["number"], recorded["value"]).alias("kind")
    located = rows.located(recorded).with_columns(kind, device=recorded["device"] - 1)
    names = located.select("task", "device", "stream").unique()
    counted = dict(names.drop_nulls("device").group_by("task").agg("device").iter_rows())
    stream_rows = []
    for task, device, stream in names.iter_rows():
        devices = sorted(devices_of_task[task])
        if len(devices) == 1:
            device = devices[0]
        elif device is not None and not set(counted[task]).issubset(devices):
            device = dict(enumerate(devices)).get(device)
        stream_rows.append(row_of_stream.get((task, device, stream)))
    numbered = names.with_columns(stream_row=pl.Series(stream_rows, dtype=pl.Int64))
    joined = located.join(numbered, on=names.columns, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(stream="stream_row")


def with_last(rows: pl.DataFrame, on: str, events: pl.DataFrame, key: str, by: str | list[str], **how: Any) -> pl.DataFrame:
    """Rows in the order of a time (`on`), each with the last event of its group (`by`) whose time (`key`) is not later; `how`
    else is said in the words of `join_asof`."""
    rows, events = rows_in_order(rows, on), rows_in_order(events, key)
    return rows.join_asof(events, left_on=on, right_on=key, by=by, coalesce=False, check_sortedness=False, **how)


def named_values(run: MeasuredRun, number: int) -> pl.DataFrame:
    """Values of an event type with their names: columns `value`, `name`."""
    names = run.events.names(number)
    return pl.DataFrame({"value": list(names), "name": list(names.values())}, schema={"value": pl.Int64, "name": pl.String})


def event_edges(run: MeasuredRun) -> EventEdges:
    """What waits for what by CUDA events; in a part of a run also for what was recorded before it."""
    if run.is_part:
        whole, low, high = event_edges(run.recorded), run.events.offset, run.events.offset + run.events.length
        is_inside = (pl.col("start") <= high) & (pl.min_horizontal("end", "awaited_end") > low)
        cut = pl.col(r"^(awaited_)?(start|end)$").clip(low, high) - low
        return EventEdges(*(edges.filter(is_inside).with_columns(cut) for edges in (whole.on_streams, whole.on_hosts)))
    nothing, waits = pl.DataFrame(schema=EDGE_SCHEMA), _waits(run)
    if waits.is_empty():
        return EventEdges(nothing, nothing)
    operations, of_streams = _operations(run), waits.drop_nulls("stream")
    if RECORDS.name not in run.events.collections:
        return EventEdges(_inferred(run, of_streams, operations), nothing)
    records = _records(run, operations)
    waiting = of_streams.select("wait", "call", row="stream")
    followed = with_last(waiting, "call", operations, "issued", "row", strategy="forward").drop_nulls("start")
    on_hosts = waits.filter(pl.col("stream").is_null()).select("wait", "row", start="call", end="until")
    awaited = _awaited(_bound(waits, records), records)
    return EventEdges(_edges(followed, awaited, pl.col("start")), _edges(on_hosts, awaited, pl.col("end")))


def _waits(run: MeasuredRun) -> pl.DataFrame:
    """Waits of streams and threads for events: wait (a number), task, row, call, until, stream (null: the thread waits), event,
    sync. Those of streams that have no row are left out."""
    kind = pl.col("kind")
    stream = pl.when(kind == SYNC_WAIT_EVENT).then(pl.col("stream").fill_null(NONE))
    waits = recorded_waits(run).filter(kind.is_in([SYNC_WAIT_EVENT, SYNC_EVENT]) & pl.col("event").is_not_null())
    waits = waits.with_columns(stream=stream, call="start", until="end").with_row_index("wait")
    waits = waits.filter(pl.col("stream").fill_null(0) != NONE)
    return waits.select(pl.col("wait", "task", "row", "call", "until", "stream", "event", "sync").cast(pl.Int64))


def launches_of(run: MeasuredRun) -> pl.DataFrame:
    """Launches of operations: `row` of the thread and time, `launched`, ns; NONE: not known."""
    launch = pl.Series(run.launch_of)
    columns = pl.col("row", "time").gather(launch.set(launch == NONE, None)).fill_null(NONE)
    return run.launches.select(columns).rename({"time": "launched"})


def _operations(run: MeasuredRun) -> pl.DataFrame:
    """Operations whose calls are known, in the order of the calls: row, issued (when it was called), start, end."""
    issued = launches_of(run)["launched"].alias("issued")
    operations = run.operations.select(pl.col("row").cast(pl.Int64), issued, "start", "end")
    return operations.filter(pl.col("issued") != NONE).sort("issued", maintain_order=True)


def _records(run: MeasuredRun, operations: pl.DataFrame) -> pl.DataFrame:
    """Records of events: record (a number), task, stream, event, sync, call, and what was launched on the stream before as the
    last: last_issued, last_row, last_start, last_end."""
    marks = run.events.rows.located(run.frame(RECORDS)).with_row_index("record")
    records = marks.select(
        *(pl.col("record").cast(pl.Int64), "task", "sync"),
        stream=pl.col("row").cast(pl.Int64),
        event="value",
        call=pl.col("start") - pl.col("since_call").fill_null(0),
    )
    last = operations.select(pl.col("row").alias("stream"), pl.all().name.prefix("last_"))
    return with_last(records, "call", last, "last_issued", "stream", allow_exact_matches=False).sort("record")


def _edges(waiting: pl.DataFrame, awaited: pl.DataFrame, released: pl.Expr) -> pl.DataFrame:
    """Pairs of what waits and what it waits for, that ended before it was `released`."""
    pairs = waiting.join(awaited, on="wait", how="inner").filter(
        pl.col("awaited_row") != pl.col("row"),  # what comes before in its own stream
        pl.col("awaited_end") <= released,
    )
    last = pairs.sort("awaited_start").unique(["row", "start", "awaited_row"], keep="last", maintain_order=True)
    return last.select(list(EDGE_SCHEMA)).sort("start", "row", "awaited_row")


def _bound(waits: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Waits with the `record` that each is for; those without one are left out."""
    numbers = records.drop_nulls("sync").unique(["task", "sync"], keep="last", maintain_order=True)
    by_number = waits.join(numbers.select("task", "sync", "record"), on=["task", "sync"], how="left")
    # A wait is for the latest record that was called before it.
    called = records.select("task", "event", recorded="call", of_record="sync", latest="record")
    bound = with_last(by_number, "call", called, "recorded", ["task", "event"])
    # Two different numbers: the record of the wait is not in the run.
    latest = pl.when(pl.col("sync").is_null() | pl.col("of_record").is_null()).then("latest")
    return bound.with_columns(record=pl.coalesce("record", latest)).select(*waits.columns, "record").drop_nulls("record")


def _awaited(bound: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Last operations before the records that waits are for (wait, awaited_row, awaited_start, awaited_end), and those that the
    stream had waited for when it recorded with no operation in between."""
    of_streams = bound.drop_nulls("stream").select("stream", waited="call", next_record="record")
    links = of_streams.join(records.select(next_record="record", source="stream"), on="next_record", maintain_order="left")
    sources = links.select("stream", "source").unique()
    ends = records.select("record", "stream", "call", pl.col(r"^last_.*$"))
    reached = bound.select("wait", "record")
    awaited = []
    for _ in range(_MOST_STREAMS_ON_THE_WAY):
        at = reached.join(ends, on="record", how="inner")
        operations = pl.col("last_row", "last_start", "last_end").name.replace("last_", "awaited_")
        awaited.append(at.drop_nulls("last_row").select("wait", operations))
        # Of several waits for records on one stream the last one counts.
        before = with_last(at.join(sources, on="stream", how="inner"), "call", links, "waited", ["stream", "source"])
        is_after = pl.col("last_issued").is_null() | (pl.col("waited") > pl.col("last_issued"))
        reached = before.filter(is_after).drop_nulls("next_record").select("wait", record="next_record").unique()
        if reached.is_empty():
            break
    return pl.concat(awaited)


def _inferred(run: MeasuredRun, waits: pl.DataFrame, operations: pl.DataFrame) -> pl.DataFrame:
    """Operations with what they waited for, where times leave one answer: columns of EDGE_SCHEMA."""
    is_record = run.is_named(run.calls, event_types.CUDA_CALL, "(?i)EventRecord")
    records = run.calls.filter(is_record).select(pl.col("row").cast(pl.Int64), recorded="start")
    # The last record call of the same thread before the wait.
    recorded = with_last(waits.drop("until"), "call", records, "recorded", "row").drop_nulls("recorded")
    recorded = recorded.drop("row").rename({"stream": "row"})
    # Operations, each with its last wait, that started later than their launch and their stream explain.
    in_order = operations.sort("start").with_columns(former=pl.col("end").shift(1).over("row")).sort("issued", "start")
    next_on = with_last(recorded, "call", in_order, "issued", "row", strategy="forward").drop_nulls("start")
    last_waits = next_on.sort("call", maintain_order=True).unique(["row", "start"], keep="last", maintain_order=True)
    held = last_waits.filter(pl.col("start") - pl.max_horizontal("issued", "former") >= LEAST_HELD)
    of_tasks = run.events.rows.located(operations).select(pl.col("task").cast(pl.Int64), other="row").unique()
    candidates = held.join(of_tasks, on="task", how="inner").filter(pl.col("other") != pl.col("row"))
    last = operations.select(other="row", launched="issued", awaited_row="row", awaited_start="start", awaited_end="end")
    pairs = with_last(candidates, "recorded", last, "launched", "other", allow_exact_matches=False)
    fitting = pairs.filter((pl.col("start") - pl.col("awaited_end")).is_between(0, _LONGEST_RELEASE))
    return fitting.unique(["row", "start"], keep="none").select(list(EDGE_SCHEMA)).sort("start", "row")


@dataclass(frozen=True)
class BlockedCalls(Measurement):
    """Calls of a run that wait for a place in a launch queue: columns of BLOCKED."""

    calls: pl.DataFrame


def blocked_calls(run: MeasuredRun) -> BlockedCalls:
    """Those of a run."""
    launching = run.calls.select("row", begin="start", until="end").filter(pl.Series(run.launches_work))
    if launching.is_empty() or run.operations.is_empty():
        return BlockedCalls(pl.DataFrame(schema=BLOCKED))
    # The usual length is the upper edge of the bar of a histogram.
    length = (launching["until"] - launching["begin"]).to_numpy()
    counts = np.cumsum(np.bincount(np.floor(np.log2(np.maximum(length, 1)) * _BARS_PER_DOUBLING).astype(np.int64)))
    usual = int(np.ceil(2 ** ((int(np.searchsorted(counts, _USUAL * counts[-1])) + 1) / _BARS_PER_DOUBLING)))
    long = launching.filter(pl.col("until") - pl.col("begin") >= LONGER * usual)
    # Of calls that begin at the same time the longest counts. A graph has many operations: its call waits once.
    calls = long.sort("until", maintain_order=True).unique(["row", "begin"], keep="last", maintain_order=True)
    launches = run.launches.select("row", begin="time", next_row="to_row", next_start="to_time")
    pairs = launches.join(calls, on=["row", "begin"], how="inner", maintain_order="left")
    blocking = pairs.sort("next_start", maintain_order=True).unique(["row", "begin"], keep="first", maintain_order=True)
    started = run.operations.select(next_row="row", free_row="row", free_start="start")
    started = started.with_columns(place=pl.int_range(pl.len()).over("free_row"))
    # The last operation that had started when the call ended made place; those from it to the launched one were pending.
    freed = with_last(blocking, "until", started, "free_start", "next_row").drop_nulls("place")
    before = started.select("next_row", before="place", at="free_start")
    launched = with_last(freed, "next_start", before, "at", "next_row", allow_exact_matches=False)
    released = launched.with_columns(usual=usual, pending=pl.col("before").fill_null(NONE) + 1 - pl.col("place")).filter(
        pl.col("pending") >= FEWEST_PENDING,
        pl.col("free_start") > pl.col("begin"),
        pl.col("until") - pl.col("free_start") <= LONGEST_RELEASE,
    )
    return BlockedCalls(released.select(pl.col(name).cast(dtype) for name, dtype in BLOCKED.items()))
