"""Whether the recording can be believed: times of devices that contradict their hosts, and work that was launched and is lost.

docs/efficiency.md ("Findings") says when."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from nsys2prv.efficiency.graph.cuda_waits import recorded_waits, with_last
from nsys2prv.efficiency.host_states import FIRST_CALL
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import LAUNCH, MEMORY_CALL, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import RANGES
from nsys2prv.errors import counted
from nsys2prv.execution.row_order import differ_from_before
from nsys2prv.sources.cuda.synchronization import SYNC_DEVICE, SYNC_STREAM
from nsys2prv.timeline.messages import EARLY, FEWEST_EARLY, latencies
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import percent, short, time

FEWEST_CALLS = 10
"""Calls that launch something unrecorded beside what is recorded: fewer may have failed, or launched functions of the host."""
CALLS_OF_WORK = 4
"""Calls that launch for each recorded kernel or graph from which on most of the work is not recorded. Usual is 1, or 2 where
calls of the driver inside those of the runtime are recorded too."""
FEWEST_RANGES, _LEAST_WITH_LAUNCHES, _LEAST_OF_LAUNCHES = 3, 0.9, 0.1
"""NVTX ranges of a name with launches, and without any after the last launch, from which on launches are lost there; part of
those before that hold some, at least; and part of the launches of its process of a thread that launches to its end."""
_LONG_PAUSES = 0.02
"""Part of the window between recordings, from which on it is not known when devices are idle."""
_PARTS = 1_000
"""Of the window, in which calls and work are counted."""


@dataclass(frozen=True)
class DeviceClocks(Measurement):
    """Devices whose times contradict those of their hosts, and how; and the largest `error` that shows in it, ns."""

    contradictions: Mapping[int, str]
    error: int = 0


def device_clocks(run: MeasuredRun) -> DeviceClocks:
    """Compare starts of work with their launches, and with ends of the synchronizations that wait for it."""
    # Of calls before the window it is not known when they began.
    device = pl.lit(pl.Series(run.events.rows.device)).gather("to_row")
    launches = run.launches.filter(pl.col("time") >= 0).with_columns(device=device)
    by_device = latencies(launches, "device")
    # Hardly any device may be late: mostly there is nothing more to do.
    may_be_late = by_device.filter(pl.col("least") >= EARLY)["device"]
    of_late = launches.filter(pl.col("device").is_in(may_be_late.implode()))
    late = _work_after_its_synchronization(run, of_late) if of_late.height else {}
    contradictions, error = {}, 0
    for number, least, is_early in by_device.iter_rows():
        if is_early:
            how = f"most work starts before it was launched, by up to {time(-least)}"
        elif late.get(number, 0) >= FEWEST_EARLY:
            how = (
                f"nothing starts sooner than {time(least)} after its launch, but synchronizations end before their work begins"
            )
        else:
            continue
        error = max(error, abs(least))
        contradictions[number] = f"times of {run.events.rows.devices[number].name} contradict those of its host: {how}"
    unknown = "what compares both is not known: causes of gaps and of compute-absent time, the critical path"
    return DeviceClocks(contradictions, error, warnings=[f"{text}; {unknown}" for text in contradictions.values()])


def _work_after_its_synchronization(run: MeasuredRun, launches: pl.DataFrame) -> Mapping[int, int]:
    """Of each device: how much launched work begins after the end of the first synchronization that was called afterwards."""
    rows, row = run.events.rows, launches["to_row"].to_numpy()
    kind, task = pl.col("kind"), pl.col("task").cast(pl.Int64)
    # Synchronizations of whole devices say nothing of a task that has several.
    of_one_device = [number for number, devices in rows.devices_of_task.items() if len(devices) == 1]
    is_of_task = (kind == SYNC_DEVICE) & task.is_in(of_one_device)
    # Numbers of streams are not negative: these stand for all streams of a task.
    key = pl.when(kind == SYNC_STREAM).then(pl.col("stream").cast(pl.Int64)).when(is_of_task).then(-2 - task)
    syncs = recorded_waits(run).select(begin="start", until="end", key=key).drop_nulls("key")
    keys = (-2 - rows.task[row], row)
    work = pl.concat(launches.select("time", "to_time", "device", key=pl.Series(key, dtype=pl.Int64)) for key in keys)
    waited = with_last(work, "time", syncs, "begin", "key", strategy="forward")
    return dict(waited.filter(pl.col("until") + EARLY <= pl.col("to_time")).group_by("device").len().iter_rows())


@dataclass(frozen=True)
class LostWork(Measurement):
    """Calls that launch what is not recorded, and the `reason` why it is not known when devices are idle (None: it is).

    Those `at_start` launch before the first launch of work of their task that is recorded; a few are not counted. `between`
    are those between the first and the last such launch, where none of their part of the window is recorded, and those of tasks
    without recorded work; `at_end` those after the last one. What is launched just before the end may run after it, and is not
    lost. With a reason, nothing is launched until `start_up`, ns."""

    reason: str | None
    start_up: int
    at_start: int
    between: int
    at_end: int


def lost_work(run: MeasuredRun) -> LostWork:
    """Count launches and what they launched, of each task and part of the window."""
    # Functions of the host run on no device, and what is captured into a graph runs when that is launched.
    names = ("HostFunc", "StreamBeginCapture", "StreamEndCapture")
    of_host, begins, ends = (run.is_named(run.calls, event_types.CUDA_CALL, name).cast(pl.Int64) for name in names)
    captures = run.calls.select("row", edge=begins - ends).select(pl.col("edge").cum_sum().over("row")).to_series()
    launching = run.launches_work & ((of_host == 0) & (captures <= 0)).to_numpy()
    calls = _by_task_and_part(run, run.calls.select("row", time="start").filter(launching))
    # Those that failed launched nothing.
    calls = calls if run.events.failed_launches < calls.sum() else np.zeros_like(calls)
    is_of_work = np.zeros(run.launches.height + 1, dtype=bool)
    is_of_work[run.launch_of[np.isin(run.operations["number"].to_numpy(), event_types.KERNEL_TYPES)]] = True
    # All lines to what starts on a row at a time: `launch_of` has the first; what has none has the last place.
    is_first = differ_from_before(*(run.launches[name].to_numpy() for name in ("to_time", "to_row")))
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))
    launches = run.launches.with_columns(is_of_work=is_of_work[first]).filter(pl.col("time") >= 0)
    latency = int((launches["to_time"] - launches["time"]).max() or 0)
    launched = _by_task_and_part(run, launches.filter("is_of_work"))
    length, part = max(run.events.length, 1), np.arange(_PARTS)
    # Without recorded work all parts of a task are between.
    first = np.argmax(launched > 0, axis=1)[:, None]
    last = _PARTS - 1 - np.argmax(launched[:, ::-1] > 0, axis=1)[:, None]
    until = max(length - latency, 0) * _PARTS // length
    parts = (part < first, (part >= first) & (part <= last), (part > last) & (part < until))
    counts = (int(calls[is_part & (launched == 0)].sum()) for is_part in parts)
    lost = [count if count >= FEWEST_CALLS else 0 for count in counts]
    of_calls, of_work = int(calls.sum()), int(launched.sum())
    begin, end = run.events.offset, run.events.offset + run.events.length
    pauses = [(max(first, begin), min(last, end)) for first, last in run.events.pauses if first < end and begin < last]
    if (paused := sum(last - first for first, last in pauses)) >= _LONG_PAUSES * length:
        why = f"nothing was recorded for {time(paused)} ({percent(paused / length)}), from {time(pauses[0][0])} on"
        return LostWork(why, 0, *lost, warnings=[f"{why}: not known what ran then; measure each recording alone"])
    loss = ranges_without_launches(run) if run.recorded is run else run.window.loss
    reason = loss[0] if loss is not None and loss[1] < end else None
    # Beside many copies a launch that may have failed does not count, either.
    least = FEWEST_CALLS if of_work or run.operations.height >= FEWEST_CALLS * of_calls else 1
    if of_calls >= least + CALLS_OF_WORK * of_work:
        reason = f"of most launches no work is recorded: {of_calls:,} calls, {of_work:,} kernels and graphs"
    if reason is not None:
        gives_work = np.isin(run.states_of_calls - FIRST_CALL, (LAUNCH, MEMORY_CALL))
        at = int(run.calls["start"].to_numpy()[gives_work].min())
        since = f" from {time(at + run.events.offset)} on, when a call launches or copies" if at else ""
        start_up = int(run.operations["start"].to_numpy().min(initial=at)) if run.is_from_start else 0
        warning = f"{reason}; it is not known when devices are idle{since}"
        return LostWork(reason, start_up, *lost, warnings=[warning])
    places = zip(lost, ("before the first", "beside", "after the last"), strict=True)
    what = "work that is recorded: what they launched is lost"
    warnings = [f"{count:,} calls launch {place} {what}" for count, place in places if count]
    if of_calls and not of_work and not warnings:
        warnings = [f"{counted(of_calls, 'call')} to launch work, and no kernel is recorded: it failed, or was lost"]
    return LostWork(None, 0, *lost, warnings=warnings)


def ranges_without_launches(run: MeasuredRun) -> tuple[str, int] | None:
    """That NVTX ranges of a name in which work was launched go on after the last launch of their process that was recorded: the
    recording lost calls; and from when on, ns: each thread loses them from another time on. None: few do."""
    rows, key, start, last = run.events.rows, ["row", "number", "value"], pl.col("start"), pl.col("last")
    launching = run.calls.filter(run.launches_work).select("row", launched="start")
    of_threads = rows.located(launching).group_by("task", "row").agg(pl.len(), last=pl.col("launched").max())
    # Threads that launch little may have ended.
    is_usual = pl.col("len") >= _LEAST_OF_LAUNCHES * pl.col("len").sum()
    of_tasks = of_threads.group_by("task").agg(last.max(), since=last.filter(is_usual).min())
    ranges = rows.located(run.frame(RANGES)).join(of_tasks, on="task", maintain_order="left")
    behind = ranges.filter(start > last).group_by(*key, "last", "since").agg(behind=pl.len(), until=pl.col("end").max())
    before = ranges.filter(pl.col("end") <= last).join(behind.filter(pl.col("behind") >= FEWEST_RANGES), on=key)
    launched = with_last(before, "end", launching, "launched", "row")
    holds = launched.group_by(key).agg((pl.col("launched") >= start).sum(), pl.len())
    is_lost = pl.col("launched") >= pl.max_horizontal(FEWEST_RANGES, _LEAST_WITH_LAUNCHES * pl.col("len"))
    lost = behind.join(holds, on=key).filter(is_lost)
    if lost.is_empty():
        return None
    lost = lost.sort("until", *key).select(*key[1:], "last", "since", "behind", "until")
    number, value, at, since, count, until = lost.row(-1)
    (name,) = run.events.named(number, pl.Series([value]))
    first_loss, last_launch, last_end = (time(moment + run.events.offset) for moment in (since, at, until))
    others = f"{counted(count, 'range')} of NVTX named {short(name)}, which launch work before, follow until {last_end}"
    of_thread = f" (none of one of its threads after {first_loss})" if since < at else ""
    return f"no launch is recorded after {last_launch}{of_thread}, but {others}", since


def _by_task_and_part(run: MeasuredRun, calls: pl.DataFrame) -> Numbers:
    """Number of calls (`row`, `time`) of each task in each part of the window."""
    rows = run.events.rows
    part = np.clip(calls["time"].to_numpy() * _PARTS // max(run.events.length, 1), 0, _PARTS - 1)
    key = rows.task[calls["row"].to_numpy()] * _PARTS + part
    return np.bincount(key, minlength=len(rows.tasks) * _PARTS).reshape(len(rows.tasks), _PARTS)
