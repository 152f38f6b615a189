"""Rules about launches: kernels and graphs that are shorter than their launches, launches that stall, full queues, streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Loss, Losses, Number, Threshold, least_share, losses_of, part_of
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Without, gaps_removed, launches_removed
from nsys2prv.efficiency.graph.changes import without_launch_queue
from nsys2prv.efficiency.graph.cuda_waits import FEWEST_PENDING, LONGER, LONGEST_RELEASE, BlockedCalls
from nsys2prv.efficiency.intervals import Numbers
from nsys2prv.efficiency.measured_run import NO_LAUNCH, MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.vocabulary import event_types, row_names
from nsys2prv.vocabulary.wording import time

# -- launch-bound ---------------------------------------------------------------------------------

LONGEST_GAP = Threshold("longest gap that counts", 100_000, "ns", "a launch takes 2 to 20 µs, with Python around it up to 100")
LAUNCHED_AHEAD = Threshold(
    "longest time from the start of the launch to the gap", 5_000, "ns", "a launch takes as long; else the device is late"
)
LATENCY = Threshold(
    "or longest time from the start of the launch to the kernel", 30_000, "ns",
    "a call of 12 µs and the latency of the device: the kernel starts as soon as it can",
)  # fmt: skip
LAUNCHING = Threshold("least part of the gap in launches or between calls", 0.9, "0 to 1", "else it waits, copies or allocates")
FEWEST_GAPS = Threshold("fewest such gaps on a device", 100, "", "the first launch after any wait leaves such a gap too")
LONGEST_KERNEL = Threshold(
    "longest kernel after such a gap against the gap (means)", 4, "", "beyond, the gaps are less than a fifth of the time"
)
LEAST_LAUNCH_BOUND = least_share(0.05, "less is the normal price of launches")

_IS_LAUNCHING = (
    (pl.col("launched") >= pl.col("begin") - LAUNCHED_AHEAD.value) | (pl.col("start") - pl.col("launched") <= LATENCY.value)
) & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= LAUNCHING.value * pl.col("length"))
"""The launching thread does nothing but launch in the gap, and what follows starts as soon as it can."""


def _before_short_kernels(evidence: Evidence, kind: str, least: Threshold, fewest: Threshold) -> Losses:
    """Devices with many gaps of a kind before kernels that are not much longer."""
    losses = evidence.costly(evidence.gaps.losses(kind), least, fewest)
    return losses.where(lambda loss: loss.sums["next_length"] <= LONGEST_KERNEL.value * loss.cost)


def _launch_bound(evidence: Evidence) -> Finding | None:
    losses = _before_short_kernels(evidence, "launch-bound", LEAST_LAUNCH_BOUND, FEWEST_GAPS)
    if not losses:
        return None
    gaps, mean, _ = losses.gaps
    kernel = Number.time("mean duration of the kernels behind them", losses.total("next_length") / gaps.value)
    launching = losses.share("launching", "part of the gaps in launch calls")
    text = (
        f"{gaps} gaps {losses}, {mean} on average, before kernels of {kernel}: meanwhile the "
        f"launching thread is in launch calls ({launching} of the gaps) or on the way to the next one"
    )
    return Finding(text, losses, (gaps, mean, kernel, launching))


LAUNCH_BOUND = FindingRule(
    kind="launch-bound",
    title="Launch-bound: kernels are shorter than their launches take",
    sees="short gaps before kernels while the launching thread does nothing but launch: it is in a launch, or "
    "between two calls",
    needs=(rule.CUDA_CALLS,),
    view="0-start-here/gaps",
    advice="Launch less: CUDA graphs, fused kernels (torch.compile), larger batches. Launch earlier: no synchronization in the "
    "loop, less Python between launches.",
    thresholds=(LONGEST_GAP, LAUNCHED_AHEAD, LATENCY, LAUNCHING, FEWEST_GAPS, LONGEST_KERNEL, LEAST_LAUNCH_BOUND),
    judge=_launch_bound,
    without=launches_removed("launch-bound"),
    gap_cause=GapCause(
        _IS_LAUNCHING & pl.col("before_kernel") & (pl.col("launch_ns") > 0) & (pl.col("length") <= LONGEST_GAP.value),
        sums={"launching": pl.col("launch_ns"), "next_length": pl.col("next_length")},
    ),
)

# -- small graphs ---------------------------------------------------------------------------------

LONGEST_BEFORE_GRAPH = Threshold("longest gap that counts", 200_000, "ns", "the launch of a graph takes 5 to 100 µs")
BETWEEN = Threshold(
    "longest gap between two graphs that are launched in time", 20_000, "ns", "what a device takes from one to the next"
)
FEWEST_BEFORE_GRAPHS = Threshold("fewest such gaps on a device", 50, "", "fewer are the start of phases")
LEAST_BEFORE_GRAPHS = least_share(0.02, "less is the normal price of launches")

_IS_LATE = _IS_LAUNCHING & (pl.col("length") <= LONGEST_BEFORE_GRAPH.value)
_IS_BETWEEN = (pl.col("former_number") == event_types.GRAPH_EXECUTION) & (pl.col("length") <= BETWEEN.value)


def _small_graphs(evidence: Evidence) -> Finding | None:
    losses = _before_short_kernels(evidence, "small-graphs", LEAST_BEFORE_GRAPHS, FEWEST_BEFORE_GRAPHS)
    if not losses:
        return None
    gaps, mean, _ = losses.gaps
    graph = Number.time("mean duration of the graphs behind them", losses.total("next_length") / gaps.value)
    late = Number("gaps in which the launch comes too late", losses.total("late"))
    text = (
        f"{gaps} gaps {losses}, {mean} on average, before executions of CUDA graphs that take "
        f"{graph}: in {late} of them the launch of the next graph comes too late, in the others it is what the device "
        "takes from one graph to the next"
    )
    return Finding(text, losses, (gaps, late, mean, graph))


SMALL_GRAPHS = FindingRule(
    kind="small-graphs",
    title="Small graphs: CUDA graphs are as short as what is between them",
    sees="short gaps before executions of CUDA graphs while the launching thread does nothing but launch, and between two of "
    "them that are launched in time",
    needs=(rule.CUDA_CALLS, rule.WHOLE_GRAPHS),
    view="1-gpu-kernels/graph_executions",
    advice="Put more work into one graph: several iterations, conditional nodes; launch the next graph before the "
    "last one ends.",
    thresholds=(
        LONGEST_BEFORE_GRAPH, BETWEEN, LATENCY, LAUNCHING, FEWEST_BEFORE_GRAPHS, LONGEST_KERNEL, LEAST_BEFORE_GRAPHS
    ),
    judge=_small_graphs,
    without=gaps_removed("small-graphs"),
    gap_cause=GapCause(
        (pl.col("number") == event_types.GRAPH_EXECUTION) & (_IS_LATE | _IS_BETWEEN),
        sums={"next_length": pl.col("next_length"), "late": _IS_LATE.cast(pl.Int64)},
    ),
)  # fmt: skip

# -- launch stalls --------------------------------------------------------------------------------

LAUNCH_PART = Threshold("least part of the gap in launch calls", 0.5, "0 to 1", "else something else dominates")
AHEAD = Threshold(
    "longest time from the start of the launch to the kernel, against the gap", 2, "", "else the work waited in a queue"
)
LEAST_STALLED = least_share(0.02, "less is the start of most programs")
FIRST_LAUNCHES = Threshold(
    "least part of different kernels among what follows such gaps, for the loading of code", 0.8, "0 to 1",
    "code is loaded once for each kernel",
)  # fmt: skip


def _launch_stalls(evidence: Evidence) -> Finding | None:
    """Devices that wait for long launches."""
    losses = evidence.costly(evidence.gaps.losses("launch-stalls", worst="occurrence"), LEAST_STALLED)
    if not losses:
        return None
    gaps, mean, longest = losses.gaps
    launching = losses.share("launching", "part of the gaps in launch calls")
    names = evidence.gaps.names("launch-stalls", losses.indices)
    different = Number("different kernels after them", names)
    text = (
        f"{gaps} gaps {losses}, {mean} on average and {longest} at most, while the launching "
        f"thread is in calls that launch ({launching} of the gaps); {different} different kernels follow"
    )
    if different.value >= FIRST_LAUNCHES.value * gaps.value:
        text += ": each is launched for the first time, and its code is loaded then"
    return Finding(text, losses, (gaps, mean, longest, launching, different))


LAUNCH_STALLS = FindingRule(
    kind="launch-stalls",
    title="Long launches: devices wait for calls that launch",
    sees=f"gaps of more than {time(LONGEST_GAP.value)} before kernels in which the launching thread is mostly in "
    "calls that launch, such as those that load the code of a kernel first",
    needs=(rule.CUDA_CALLS,),
    view="5-host-and-cuda-api/cuda_calls",
    advice="Load code before the loop: CUDA_MODULE_LOADING=EAGER, a warm-up iteration. If the same kernels are slow to launch "
    "again and again: look for locks between threads, for the profiler, and for launches of another device that is full.",
    thresholds=(LAUNCH_PART, AHEAD, LEAST_STALLED, FIRST_LAUNCHES),
    judge=_launch_stalls,
    without=gaps_removed("launch-stalls"),
    gap_cause=GapCause(
        pl.col("before_kernel")
        & (pl.col("length") > LONGEST_GAP.value)
        & (pl.col("launch_ns") >= LAUNCH_PART.value * pl.col("length"))
        & (pl.col("start") - pl.col("launched") <= AHEAD.value * pl.col("length")),
        sums={"launching": pl.col("launch_ns")},
        counts_names=True,
    ),
)

# -- a full launch queue --------------------------------------------------------------------------

PENDING = Threshold(
    "fewest operations of the stream that are launched and have not started when the call ends", FEWEST_PENDING, "",
    "the queue of a stream has some 1,024 places, of which records of events take some",
)  # fmt: skip
LONG_CALL = Threshold("shortest call, against the usual one", LONGER, "", "a call that is not blocked takes as long as others")
RELEASE = Threshold(
    "longest time from the start of an operation, which makes place, to the end of the call", LONGEST_RELEASE, "ns",
    "then it is not what the call waited for",
)  # fmt: skip
FEWEST_CALLS = Threshold("fewest blocked calls on a device", 20, "", "fewer are chance")
LEAST_BLOCKED = least_share(0.02, "a host that is far ahead loses nothing")


def _full_queue(evidence: Evidence) -> Finding | None:
    """Devices with many blocked calls that are idle at other times."""
    busy = evidence.tables["devices"]["active_ns"].to_list()
    blocked = _blocked_launches(evidence)
    # A device that has always work loses nothing.
    lost = [replace(loss, cost=min(loss.cost, evidence.active(loss.index) - busy[loss.index]), costs={}) for loss in blocked]
    losses = evidence.costly(lost, LEAST_BLOCKED, FEWEST_CALLS)
    if not losses:
        return None
    calls = Number("blocked calls", losses.occurrences)
    spent = Number.time("time in which they are blocked", blocked.cost)
    pending = Number("operations that are launched and have not started, on average", losses.total("pending") / calls.value)
    text = (
        f"{calls} launch calls {losses} are blocked for {spent} together: {pending.value:,.0f} operations of "
        f"their stream are launched and have not started. What the host does afterwards comes late, and devices are idle"
    )
    return Finding(text, losses, (calls, spent, pending))


def _blocked_launches(evidence: Evidence) -> Losses:
    """Launch calls that wait for a place in the queue of their stream; the cost is the time that they are blocked."""
    run, calls = evidence.run, evidence.measured(BlockedCalls).calls
    blocked = calls.with_columns(
        device=pl.Series(run.events.rows.device[calls["next_row"].to_numpy()], dtype=pl.Int64),
        cost=pl.col("free_start") - pl.col("begin"),
        end="until",
        row="next_row",
        thread=pl.Series(run.place_of_caller[calls["row"].to_numpy()], dtype=pl.Int64),
    )
    return losses_of(run, blocked, ("pending",))


FULL_QUEUE = FindingRule(
    kind="full-launch-queue",
    title="Full launch queue: launches are blocked, and the host is late for what comes then",
    sees="launch calls that take longer than usual, end right after an operation of their stream has started, and have some "
    "1,024 others of it before them; on devices that are idle at other times",
    needs=(rule.CUDA_CALLS,),
    cost="time in which these calls are blocked, and no more than the device is idle",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Launch fewer and longer kernels, or CUDA graphs; do what the host has to do (loading, communication) before it "
    "launches so far ahead, or on another thread.",
    thresholds=(PENDING, LONG_CALL, RELEASE, FEWEST_CALLS, LEAST_BLOCKED),
    judge=_full_queue,
    # Queues have places enough.
    without=lambda *_: Without(without_launch_queue),
)

# -- streams that wait for the default stream -----------------------------------------------------

DEFAULT_STREAM = 7
"""nsys' number of the default stream of a context."""

NEAR = Threshold(
    "longest time from the end on the default stream to the start on the other", 10_000, "ns",
    "then the one waited for the other",
)  # fmt: skip
WAITING = Threshold(
    "shortest time that the work was launched, and its stream free, before that end", 10_000, "ns",
    "then it was the stream that waited, not the host",
)  # fmt: skip
FEWEST_WAITS = Threshold("fewest waits on a device", 20, "", "fewer are chance")
WAITING_PART = Threshold("least part of the work on other streams that waits", 0.5, "0 to 1", "else it is not the rule")
BESIDE = Threshold(
    "largest part of that work that starts beside the default stream", 0.02, "0 to 1", "streams that wait for it never do"
)
LEAST_WAITED = least_share(0.02, "less is not worth a change of the program")

_EVENT_WAITS = ("cudaStreamWaitEvent", "cuStreamWaitEvent")


@dataclass(frozen=True)
class DefaultStreamWaits(Measurement):
    """Work on other streams than the default one.

    Attributes
    ----------
    losses
        Waits for the default stream on each device.
    work, beside
        By device: how many operations there are on other streams, and how many of them start beside the default stream.
    """

    losses: Losses
    work: Mapping[int, int]
    beside: Mapping[int, int]


def default_stream_waits(run: MeasuredRun) -> DefaultStreamWaits:
    """What waits for default streams."""
    rows = run.events.rows
    is_default = np.array([_is_default(name) for name in rows.names], dtype=bool)
    devices = _suitable_devices(run, is_default)
    on_devices = np.isin(rows.device, devices) & (rows.device >= 0)
    operations = run.operations.select("row", "start", "end", launch=pl.Series(run.launch_of))
    operations = rows.located(operations.filter(pl.Series(on_devices[operations["row"].to_numpy()])))
    on_default = pl.when("is_default").then("end").otherwise(0)
    operations = operations.with_columns(is_default=pl.Series(is_default[operations["row"].to_numpy()]))
    operations = operations.sort("device", "start", "end", "row").with_columns(
        default_end=on_default.cum_max().shift(1, fill_value=0).over("device"),
        former_end=pl.col("end").cum_max().shift(1, fill_value=0).over("row"),
    )
    work = operations.filter(~pl.col("is_default"))
    by_device = work.group_by("device").agg(work=pl.len(), beside=(pl.col("start") < pl.col("default_end")).sum())
    waits = losses_of(run, _waits(run, work))
    return DefaultStreamWaits(waits, *(dict(by_device.select("device", name).iter_rows()) for name in ("work", "beside")))


def _waits(run: MeasuredRun, work: pl.DataFrame) -> pl.DataFrame:
    """Of work on other streams what was launched in time, and starts when the default stream ends: as occurrences.

    Its columns: `device`, `row`, `start`, `end`, `launch` (a place in `MeasuredRun.launches`), and the last end before on the
    default stream (`default_end`) and on its own one (`former_end`).
    """
    latest = pl.col("default_end") - WAITING.value
    near = work.filter(
        (pl.col("start") - pl.col("default_end")).is_between(0, NEAR.value)
        & (pl.col("former_end") <= latest)
        & (pl.col("launch") != NO_LAUNCH)
    )
    waits = near.with_columns(launched=run.launches["time"].gather(near["launch"])).filter(pl.col("launched") <= latest)
    ready = pl.max_horizontal("launched", "former_end")
    return waits.select(
        "device", "row", "end",
        part=part_of(pl.col("start"), run.events.length),
        cost=pl.min_horizontal(pl.col("start") - ready, pl.col("end") - pl.col("start")),
        begin=ready,
    )  # fmt: skip


def _suitable_devices(run: MeasuredRun, is_default: Numbers) -> list[int]:
    """Devices of one process with work on the default stream and on others, which wait for nothing else."""
    events, rows = run.events, run.events.rows
    names = events.types.get(event_types.CUDA_CALL)
    calls = (names.values or {}).values() if names is not None else ()
    if events.launches is None or any(call.startswith(_EVENT_WAITS) for call in calls):
        return []
    is_stream = rows.of_kind(STREAM)
    with_default, with_streams = (set(rows.device[is_stream & which].tolist()) for which in (is_default, ~is_default))
    of_one_task = {device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1}
    return sorted(with_default & with_streams & of_one_task)


def _is_default(name: str) -> bool:
    stream = row_names.parse_stream_name(name)
    return stream is not None and stream.stream == DEFAULT_STREAM


def _default_stream(evidence: Evidence) -> Finding | None:
    """Devices where most of the work on other streams waits for the default stream."""
    waits = evidence.measured(DefaultStreamWaits)

    def is_serial(loss: Loss) -> bool:
        work, beside = waits.work[loss.index], waits.beside[loss.index]
        return loss.count >= WAITING_PART.value * work and beside <= BESIDE.value * work

    losses = evidence.costly(waits.losses, LEAST_WAITED, FEWEST_WAITS).where(is_serial)
    if not losses:
        return None
    number = Number("waits", losses.occurrences)
    work = Number("work on other streams", sum(waits.work[loss.index] for loss in losses))
    beside = sum(waits.beside[loss.index] for loss in losses)
    beside_part = Number.share("part of it that begins beside the default stream", beside / work.value)
    mean = Number.time("mean time that it could have run meanwhile", losses.cost / number.value)
    text = (
        f"{number} of {work} pieces of work {losses} on other streams are launched in time and start only when "
        f"the default stream ends; {beside:,} start beside it ({beside_part}). They wait {mean} on "
        f"average in which they could have run"
    )
    waiting = Number.share("part of it that waits", number.value / work.value)
    return Finding(text, losses, (number, work, waiting, beside_part, mean))


DEFAULT_STREAM_WAITS = FindingRule(
    kind="default-stream",
    title="Default stream: other streams wait for it",
    sees="work on other streams that is launched in time, and starts only when the default stream ends, hardly ever beside it",
    needs=(rule.CUDA_CALLS, rule.NO_EVENT_WAITS),
    cost="of each wait the smaller one of its length and of the work that waits: it could have run beside",
    view="1-gpu-kernels/kernels",
    advice="Non-blocking streams (cudaStreamNonBlocking), per-thread default streams (--default-stream per-thread), nothing on "
    "the default stream.",
    thresholds=(NEAR, WAITING, FEWEST_WAITS, WAITING_PART, BESIDE, LEAST_WAITED),
    judge=_default_stream,
)
