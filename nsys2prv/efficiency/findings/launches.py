"""Rules about launches: kernels and graphs that are shorter than their launches, launches that stall, full queues, streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import (
    Finding,
    Loss,
    Losses,
    Number,
    Threshold,
    covered,
    least_share,
    part_of,
)
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Without
from nsys2prv.efficiency.graph.changes import without_gaps, without_launch_queue, without_launches
from nsys2prv.efficiency.graph.cuda_waits import FEWEST_PENDING, LONGER, LONGEST_RELEASE, BlockedCalls
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.measured_run import MeasuredRun
from nsys2prv.efficiency.meter import Measurement
from nsys2prv.efficiency.run_events import STREAM
from nsys2prv.vocabulary import event_types, row_names

# -- gaps before kernels --------------------------------------------------------------------------

_AHEAD = Threshold(
    "longest time from the start of the launch to the gap", 5_000, "a launch takes as long; else the device is late", "ns"
)
_LATENCY = Threshold(
    "or longest time from the start of the launch to the kernel", 30_000,
    "a call of 12 µs and the latency of the device: the kernel starts as soon as it can", "ns",
)  # fmt: skip
_LAUNCHING = Threshold("least part of the gap in launches or between calls", 0.9, "else it waits, copies or allocates")
_LONGEST_KERNEL = Threshold(
    "longest kernel after such a gap against the gap (means)", 4, "beyond, the gaps are less than a fifth of the time", ""
)
_IS_LAUNCHING = (
    (pl.col("launched") >= pl.col("begin") - _AHEAD.value) | (pl.col("start") - pl.col("launched") <= _LATENCY.value)
) & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= _LAUNCHING.value * pl.col("length"))
"""The launching thread does nothing but launch in the gap, and what follows starts as soon as it can."""


class LaunchBound(GapRule, kind="launch-bound"):
    longest = Threshold("longest gap that counts", 100_000, "a launch takes 2 to 20 µs, with Python around it up to 100", "ns")
    ahead, latency, launching = _AHEAD, _LATENCY, _LAUNCHING
    fewest = Threshold("fewest such gaps on a device", 100, "the first launch after any wait leaves such a gap too", "")
    longest_kernel = _LONGEST_KERNEL
    least = least_share(0.05, "less is the normal price of launches")
    gap_cause = GapCause(
        _IS_LAUNCHING & pl.col("before_kernel") & (pl.col("launch_ns") > 0) & (pl.col("length") <= longest.value),
        sums={"launching": pl.col("launch_ns"), "next_length": pl.col("next_length")},
    )

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        return super().counts(loss, evidence) and loss.sums["next_length"] <= _LONGEST_KERNEL.value * loss.cost

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, _ = losses.gaps
        kernel = Number("mean duration of the kernels behind them", losses.total("next_length") / gaps.value, "ns")
        launching = losses.share("launching", "part of the gaps in launch calls")
        text = (
            f"{gaps} gaps {losses}, {mean} on average, before kernels of {kernel}: meanwhile the "
            f"launching thread is in launch calls ({launching} of the gaps) or on the way to the next one"
        )
        return Finding(text, losses, (gaps, mean, kernel, launching))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without | None:
        """Without these gaps, and without launch calls in all other gaps of the same devices."""
        gaps = evidence.gaps.of_kind(self.kind, finding.losses.indices)
        of_devices = evidence.gaps.of_all_kinds(finding.losses.indices)
        if gaps is None or of_devices is None:
            return None
        in_gaps, in_launches = without_gaps(built, gaps), without_launches(built, of_devices)
        return Without(lambda window, weight: in_launches(window, in_gaps(window, weight)))


class SmallGraphs(GapRule, kind="small-graphs", needs=(rule.CUDA_CALLS, rule.WHOLE_GRAPHS)):
    longest = Threshold("longest gap that counts", 200_000, "the launch of a graph takes 5 to 100 µs", "ns")
    between = Threshold(
        "longest gap between two graphs that are launched in time", 20_000, "what a device takes from one to the next", "ns"
    )
    latency, launching = _LATENCY, _LAUNCHING
    fewest = Threshold("fewest such gaps on a device", 50, "fewer are the start of phases", "")
    longest_kernel = _LONGEST_KERNEL
    least = least_share(0.02, "less is the normal price of launches")
    is_late = _IS_LAUNCHING & (pl.col("length") <= longest.value)
    is_between = (pl.col("former_number") == event_types.GRAPH_EXECUTION) & (pl.col("length") <= between.value)
    gap_cause = GapCause(
        (pl.col("number") == event_types.GRAPH_EXECUTION) & (is_late | is_between),
        sums={"next_length": pl.col("next_length"), "late": is_late.cast(pl.Int64)},
    )

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        return super().counts(loss, evidence) and loss.sums["next_length"] <= _LONGEST_KERNEL.value * loss.cost

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, _ = losses.gaps
        graph = Number("mean duration of the graphs behind them", losses.total("next_length") / gaps.value, "ns")
        late = Number("gaps in which the launch comes too late", losses.total("late"))
        text = (
            f"{gaps} gaps {losses}, {mean} on average, before executions of CUDA graphs that take "
            f"{graph}: in {late} of them the launch of the next graph comes too late, in the others it is what the device "
            "takes from one graph to the next"
        )
        return Finding(text, losses, (gaps, late, mean, graph))


class LaunchStalls(GapRule, kind="launch-stalls"):
    launch_part = Threshold("least part of the gap in launch calls", 0.5, "else something else dominates")
    ahead = Threshold(
        "longest time from the start of the launch to the kernel, against the gap", 2, "else the work waited in a queue", ""
    )
    least = least_share(0.02, "less is the start of most programs")
    first_launches = Threshold(
        "least part of different kernels among what follows such gaps, for the loading of code", 0.8,
        "code is loaded once for each kernel",
    )  # fmt: skip
    worst = "occurrence"
    gap_cause = GapCause(
        pl.col("before_kernel")
        & (pl.col("length") > LaunchBound.longest.value)
        & (pl.col("launch_ns") >= launch_part.value * pl.col("length"))
        & (pl.col("start") - pl.col("launched") <= ahead.value * pl.col("length")),
        sums={"launching": pl.col("launch_ns")},
        counts_names=True,
    )

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        gaps, mean, longest = losses.gaps
        launching = losses.share("launching", "part of the gaps in launch calls")
        different = Number("different kernels after them", evidence.gaps.names(self.kind, losses.indices))
        is_first = different.value >= self.first_launches.value * gaps.value
        text = (
            f"{gaps} gaps {losses}, {mean} on average and {longest} at most, while the launching "
            f"thread is in calls that launch ({launching} of the gaps); {different} different kernels follow"
            + (": each is launched for the first time, and its code is loaded then" if is_first else "")
        )
        return Finding(text, losses, (gaps, mean, longest, launching, different))


class FullLaunchQueue(FindingRule, kind="full-launch-queue", needs=(rule.CUDA_CALLS,)):
    pending = Threshold(
        "fewest operations of the stream that are launched and have not started when the call ends", FEWEST_PENDING,
        "the queue of a stream has some 1,024 places, of which records of events take some", "",
    )  # fmt: skip
    longer = Threshold("shortest call, against the usual one", LONGER, "a call that is not blocked takes as long as others", "")
    release = Threshold(
        "longest time from the start of an operation, which makes place, to the end of the call", LONGEST_RELEASE,
        "then it is not what the call waited for", "ns",
    )  # fmt: skip
    fewest = Threshold("fewest blocked calls on a device", 20, "fewer are chance", "")
    least = least_share(0.02, "a host that is far ahead loses nothing")

    def blocked(self, evidence: Evidence) -> Losses:
        """Launch calls that wait for a place in the queue of their stream; the cost is the time that they are blocked."""
        run, calls = evidence.run, evidence.run.measured(BlockedCalls).calls
        blocked = calls.with_columns(
            device=pl.Series(evidence.rows.device[calls["next_row"].to_numpy()], dtype=pl.Int64),
            cost=pl.col("free_start") - pl.col("begin"),
            end="until",
            row="next_row",
            thread=pl.Series(run.place_of_caller[calls["row"].to_numpy()], dtype=pl.Int64),
        )
        return Losses.of(run, blocked, ("pending",))

    def losses(self, evidence: Evidence) -> Losses:
        """A device that has always work loses nothing."""
        busy = evidence.tables["devices"]["active_ns"]
        return self.blocked(evidence).at_most([evidence.active(device) - busy[device] for device in range(evidence.devices)])

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        calls = Number("blocked calls", losses.occurrences)
        spent = Number("time in which they are blocked", self.blocked(evidence).cost, "ns")
        pending = losses.total("pending") / calls.value
        text = (
            f"{calls} launch calls {losses} are blocked for {spent} together: {pending:,.0f} operations of "
            f"their stream are launched and have not started. What the host does afterwards comes late, and devices are idle"
        )
        of_pending = Number("operations that are launched and have not started, on average", pending)
        return Finding(text, losses, (calls, spent, of_pending))

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Without:
        """Queues have places enough."""
        return Without(without_launch_queue)


# -- streams that wait for the default stream -----------------------------------------------------

DEFAULT_STREAM = 7
"""nsys' number of the default stream of a context."""


@dataclass(frozen=True)
class DefaultStreamWaits(Measurement):
    """Waits for the default stream on each device, with the sums `work`, operations on other streams, and `beside`, how many of
    them start beside the default stream."""

    losses: Losses


def default_stream_waits(run: MeasuredRun) -> DefaultStreamWaits:
    """Of work on other streams what was launched in time, and starts when the default stream ends."""
    rows = run.events.rows
    streams = [row_names.parse_stream_name(name) for name in rows.names]
    is_default = np.array([stream is not None and stream.stream == DEFAULT_STREAM for stream in streams], dtype=bool)
    # NO_LAUNCH is the last one.
    launched = np.append(run.launches["time"].to_numpy(), np.iinfo(np.int64).max)[run.launch_of]
    operations = rows.located(run.operations.select("row", "start", "end", launched=pl.Series(launched)))
    operations = operations.filter(pl.col("device").is_in(_suitable_devices(run, is_default)))
    operations = operations.with_columns(is_default=pl.Series(is_default[operations["row"].to_numpy()]))
    on_default = pl.when("is_default").then("end").otherwise(0)
    former_end = pl.col("end").cum_max().shift(1, fill_value=0).over("row")
    operations = operations.sort("device", "start", "end", "row").with_columns(
        default_end=on_default.cum_max().shift(1, fill_value=0).over("device"),
        ready=pl.max_horizontal("launched", former_end),
    )
    work = operations.filter(~pl.col("is_default"))
    start, default_end = pl.col("start"), pl.col("default_end")
    waits = work.filter(
        (start - default_end).is_between(0, DefaultStream.near.value)
        & (pl.col("ready") <= default_end - DefaultStream.waiting.value)
    ).select(
        "device", "row", "start", "end",
        part=part_of(start, run.events.length),
        cost=pl.min_horizontal(start - pl.col("ready"), pl.col("end") - start),
        begin="ready",
    )  # fmt: skip
    beside = (start < default_end).sum().alias("beside")
    # Streams that wait at the same time could have run at the same time.
    losses = Losses.of(run, waits).at_most(covered(run, waits.with_columns(end="start")))
    return DefaultStreamWaits(losses.with_sums(work, pl.len().alias("work"), beside))


def _suitable_devices(run: MeasuredRun, is_default: npt.NDArray[np.bool_]) -> list[int]:
    """Devices of one process with work on the default stream and on others, which wait for nothing else."""
    rows, names = run.events.rows, run.events.types.get(event_types.CUDA_CALL)
    calls = (names.values or {}).values() if names is not None else ()
    if any(call.startswith(("cudaStreamWaitEvent", "cuStreamWaitEvent")) for call in calls):
        return []
    is_stream = rows.of_kind(STREAM)
    with_default, with_streams = (set(rows.device[is_stream & which].tolist()) for which in (is_default, ~is_default))
    of_one_task = {device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1}
    return sorted(with_default & with_streams & of_one_task)


class DefaultStream(FindingRule, kind="default-stream", needs=(rule.CUDA_CALLS, rule.NO_EVENT_WAITS)):
    near = Threshold(
        "longest time from the end on the default stream to the start on the other", 10_000,
        "then the one waited for the other", "ns",
    )  # fmt: skip
    waiting = Threshold(
        "shortest time that the work was launched, and its stream free, before that end", 10_000,
        "then it was the stream that waited, not the host", "ns",
    )  # fmt: skip
    fewest = Threshold("fewest waits on a device", 20, "fewer are chance", "")
    waiting_part = Threshold("least part of the work on other streams that waits", 0.5, "else it is not the rule")
    beside = Threshold(
        "largest part of that work that starts beside the default stream", 0.02, "streams that wait for it never do"
    )
    least = least_share(0.02, "less is not worth a change of the program")

    def losses(self, evidence: Evidence) -> Losses:
        return evidence.run.measured(DefaultStreamWaits).losses

    def counts(self, loss: Loss, evidence: Evidence) -> bool:
        work, beside = loss.sums["work"], loss.sums["beside"]
        is_serial = loss.count >= self.waiting_part.value * work and beside <= self.beside.value * work
        return super().counts(loss, evidence) and is_serial

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        number = Number("waits", losses.occurrences)
        work, beside = Number("work on other streams", losses.total("work")), losses.total("beside")
        beside_part = Number("part of it that begins beside the default stream", beside / work.value, "0 to 1")
        mean = Number("mean time that it could have run meanwhile", losses.cost / number.value, "ns")
        text = (
            f"{number} of {work} pieces of work {losses} on other streams are launched in time and start only when "
            f"the default stream ends; {beside:,} start beside it ({beside_part}). They wait {mean} on "
            f"average in which they could have run"
        )
        waiting = Number("part of it that waits", number.value / work.value, "0 to 1")
        return Finding(text, losses, (number, work, waiting, beside_part, mean))
