"""Full launch queue: the host is so far ahead of a device that its launches are blocked, and is late elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.aggregate import OccurrenceSums, part_of
from nsys2prv.efficiency.findings.device_stats import by_device, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import without_launch_queue
from nsys2prv.efficiency.graph.launch_queue import FEWEST_PENDING, LONGER, LONGEST_RELEASE, BlockedCalls
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary.wording import time

KIND = "full-launch-queue"

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
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "a host that is far ahead loses nothing")

_SUMS = ("count", "cost", "pending")


class BlockedLaunches:
    """Launch calls that wait for a place in the queue of their stream, by device and part of the run."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._blocked = OccurrenceSums(("device", "part"), _SUMS)

    def update(self, chunk: TimeChunk) -> None:
        """Add the calls of a chunk."""
        blocked = self._context.measured(BlockedCalls).calls
        if blocked.is_empty():
            return
        events = self._context.events
        thread = self._context.place_of_caller[blocked["row"].to_numpy()]
        self._blocked.add(
            blocked.select(
                "pending",
                device=pl.Series(events.rows.device[blocked["next_row"].to_numpy()]),
                part=part_of(pl.col("begin"), events.length),
                count=pl.lit(1),
                cost=pl.col("free_start") - pl.col("begin"),
                begin="begin",
                end="until",
                row="next_row",
                thread=pl.Series(np.asarray(thread, dtype=np.int64)),
            )
        )

    def frame(self) -> pl.DataFrame:
        """Sums as of `OccurrenceSums.frame`; the cost is the time that the calls are blocked."""
        return self._blocked.frame()


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many blocked calls that are idle at other times."""
    busy = evidence.tables["devices"]["active_ns"].to_list()
    stats = by_device(evidence.context, evidence.meter(BlockedLaunches).frame(), _SUMS)
    blocked = sum(one.cost for one in stats)
    # A device that has always work loses nothing.
    lost = [replace(one, cost=min(one.cost, evidence.active(one.device) - busy[one.device]), costs={}) for one in stats]
    devices = evidence.costly(lost, FEWEST_CALLS, LEAST_LOST)
    if not devices:
        return None
    calls, pending = count(devices), total(devices, "pending") / count(devices)
    text = (
        f"{calls:,} launch calls {on_devices(devices)} are blocked for {time(blocked)} together: {pending:,.0f} operations of "
        f"their stream are launched and have not started. What the host does afterwards comes late, and devices are idle"
    )
    numbers = (
        Number("blocked calls", calls),
        Number("time in which they are blocked", blocked, NANOSECONDS),
        Number("operations that are launched and have not started, on average", pending),
    )
    return Finding(text, devices, numbers)


def _without(_evidence: Evidence, _finding: Finding, _built: BuiltGraph) -> Without:
    """Queues have places enough."""
    return Without(without_launch_queue)


RULE = FindingRule(
    kind=KIND,
    title="Full launch queue: launches are blocked, and the host is late for what comes then",
    sees="launch calls that take longer than usual, end right after an operation of their stream has started, and have some "
    "1,024 others of it before them; on devices that are idle at other times",
    needs=(needs.CUDA_CALLS,),
    cost="time in which these calls are blocked, and no more than the device is idle",
    view="5-host-and-cuda-api/cuda_calls",
    advice="Launch fewer and longer kernels, or CUDA graphs; do what the host has to do (loading, communication) before it "
    "launches so far ahead, or on another thread.",
    thresholds=(PENDING, LONG_CALL, RELEASE, FEWEST_CALLS, LEAST_LOST),
    judge=_judge,
    meters=(BlockedLaunches,),
    without=_without,
)
