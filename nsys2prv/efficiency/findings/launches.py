"""Rules about launches: kernels and graphs that are shorter than their launches, launches that stall, full queues, streams."""

from __future__ import annotations

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import rule
from nsys2prv.efficiency.findings.finding import Finding, Losses, Number, Threshold, least_share, part_of
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, GapRule, Values
from nsys2prv.efficiency.graph.changes import without_gaps, without_launch_queue, without_launches
from nsys2prv.efficiency.graph.cuda_waits import FEWEST_PENDING, LONGER, LONGEST_RELEASE, BlockedCalls
from nsys2prv.efficiency.graph.replay import Step
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
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


class _ShortWork(GapRule):
    """A rule about gaps that are long against the work behind them."""

    condition = pl.col("next_length") <= _LONGEST_KERNEL.value * pl.col("cost")

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        return {"work": losses.total("next_length") / losses.total("count")}


class LaunchBound(_ShortWork, kind="launch-bound"):
    longest = Threshold("longest gap that counts", 100_000, "a launch takes 2 to 20 µs, with Python around it up to 100", "ns")
    ahead, latency, launching = _AHEAD, _LATENCY, _LAUNCHING
    fewest = Threshold("fewest such gaps on a device", 100, "the first launch after any wait leaves such a gap too", "")
    longest_kernel = _LONGEST_KERNEL
    least = least_share(0.05, "less is the normal price of launches")
    gap_cause = GapCause(
        _IS_LAUNCHING & pl.col("before_kernel") & (pl.col("launch_ns") > 0) & (pl.col("length") <= longest.value),
        sums={"launching": pl.col("launch_ns"), "next_length": pl.col("next_length")},
    )

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step | None:
        """Without these gaps, and without launch calls in all other gaps of the same devices."""
        in_gaps = without_gaps(built, evidence.gaps.of(finding.losses.indices, self.kind))
        in_launches = without_launches(built, evidence.gaps.of(finding.losses.indices))
        return lambda window, weight: in_launches(window, in_gaps(window, weight))


class SmallGraphs(_ShortWork, kind="small-graphs", needs=(rule.CUDA_CALLS, rule.WHOLE_GRAPHS)):
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
    )

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        gaps = evidence.gaps.of(losses.indices, self.kind)
        following = evidence.rows.located(evidence.run.operations.select("row", "number", "value", end="start"))
        different = following.join(gaps, on=["device", "end"], how="semi").unique(["device", "number", "value"]).height
        is_first = different >= self.first_launches.value * losses.total("count")
        first = ": each is launched for the first time, and its code is loaded then" if is_first else ""
        return {"different": different, "first": first}


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
        return self.blocked(evidence).at_most(evidence.active - evidence.column("active_ns"))

    def describe(self, losses: Losses, evidence: Evidence) -> Finding:
        pending = losses.total("pending") / losses.total("count")
        also = [Number("operations that are launched and have not started, on average", pending)]
        return self.finding(losses, also, spent=self.blocked(evidence).cost, pending=f"{pending:,.0f}")

    def without(self, finding: Finding, evidence: Evidence, built: BuiltGraph) -> Step:
        """Queues have places enough."""
        return without_launch_queue


# -- streams that wait for the default stream -----------------------------------------------------

DEFAULT_STREAM = 7
"""nsys' number of the default stream of a context."""


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
    condition = (pl.col("count") >= waiting_part.value * pl.col("work")) & (pl.col("beside") <= beside.value * pl.col("work"))

    def losses(self, evidence: Evidence) -> Losses:
        """Of work on other streams what was launched in time, and starts when the default stream ends; with the sums `work`,
        operations on other streams, and `beside`, how many of them start beside the default stream."""
        run, rows = evidence.run, evidence.rows
        # NO_LAUNCH is the last one.
        launched = np.append(run.launches["time"].to_numpy(), np.iinfo(np.int64).max)[run.launch_of]
        operations = rows.located(run.operations.select("row", "start", "end", launched=pl.Series(launched)))
        streams = [row_names.parse_stream_name(name) for name in rows.names]
        is_default = pl.Series([stream is not None and stream.stream == DEFAULT_STREAM for stream in streams], dtype=pl.Boolean)
        of_one_task = [device for device, tasks in rows.tasks_of_device.items() if len(tasks) == 1]
        operations = operations.filter(pl.col("device").is_in(of_one_task))
        operations = operations.with_columns(is_default=pl.lit(is_default).gather("row"))
        operations = operations.filter(pl.col("is_default").any().over("device"))
        on_default = pl.when("is_default").then("end").otherwise(0)
        former_end = pl.col("end").cum_max().shift(1, fill_value=0).over("row")
        operations = operations.sort("device", "start", "end", "row").with_columns(
            default_end=on_default.cum_max().shift(1, fill_value=0).over("device"),
            begin=pl.max_horizontal("launched", former_end),
        )
        work = operations.filter(~pl.col("is_default"))
        start, default_end, ready = (pl.col(name) for name in ("start", "default_end", "begin"))
        follows = (start - default_end).is_between(0, self.near.value)
        waits = work.filter(follows, ready <= default_end - self.waiting.value).with_columns(
            part=part_of(start, run.events.length), cost=pl.min_horizontal(start - ready, pl.col("end") - start)
        )
        # Streams that wait at the same time could have run at the same time.
        losses = Losses.of(run, waits).within(waits.with_columns(end="start"))
        return losses.with_sums(work, pl.len().alias("work"), (start < default_end).sum().alias("beside"))

    def values(self, losses: Losses, evidence: Evidence) -> Values:
        work, beside = losses.total("work"), losses.total("beside")
        return {"waiting": losses.total("count") / work, "beside": f"{beside:,}", "part": beside / work}
