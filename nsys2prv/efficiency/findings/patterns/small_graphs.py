"""Small graphs: executions of CUDA graphs that are shorter than their launches take."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.patterns import launch_bound
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

KIND = "small-graphs"

LONGEST_GAP = Threshold("longest gap that counts", 200_000, "ns", "the launch of a graph takes 5 to 100 us")
FEWEST_GAPS = Threshold("fewest such gaps on a device", 50, "", "fewer are the start of phases")
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is the normal price of launches")


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps."""
    costly = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_GAPS, LEAST_LOST)
    devices = [stats for stats in costly if stats.sums["next_length"] <= launch_bound.LONGEST_KERNEL.value * stats.cost]
    if not devices:
        return None
    gaps, lost, graph = count(devices), cost(devices), total(devices, "next_length") / count(devices)
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average, before executions of CUDA graphs that take "
        f"{time(graph)}: the launch of the next graph comes too late"
    )
    numbers = (
        Number("gaps", gaps),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("mean duration of the graphs behind them", graph, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Small graphs: CUDA graphs are shorter than their launches take",
    sees="short gaps before executions of CUDA graphs while the launching thread does nothing but launch",
    needs=(needs.CUDA_CALLS, needs.WHOLE_GRAPHS),
    cost="sum of the gaps, without the time in allocation calls",
    view="basics/graph_executions",
    advice="Put more work into one graph: several iterations, conditional nodes; launch the next graph before the "
    "last one ends.",
    thresholds=(
        LONGEST_GAP,
        launch_bound.LATENCY,
        launch_bound.LAUNCHING,
        FEWEST_GAPS,
        launch_bound.LONGEST_KERNEL,
        LEAST_LOST,
    ),
    judge=_judge,
    gap_cause=GapCause(
        (pl.col("number") == event_types.GRAPH_EXECUTION)
        & (
            (pl.col("launched") >= pl.col("begin") - launch_bound.LAUNCHED_AHEAD.value)
            | (pl.col("start") - pl.col("launched") <= launch_bound.LATENCY.value)
        )
        & (pl.col("length") <= LONGEST_GAP.value)
        & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= launch_bound.LAUNCHING.value * pl.col("length")),
        sums={"next_length": pl.col("next_length")},
    ),
)
