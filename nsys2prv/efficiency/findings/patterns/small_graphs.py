"""Small graphs: executions of CUDA graphs that are as short as what is between them, a launch or the latency of the device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs, without
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices, total
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.gap_causes import GapCause
from nsys2prv.efficiency.findings.patterns import launch_bound
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time

KIND = "small-graphs"

LONGEST_GAP = Threshold("longest gap that counts", 200_000, "ns", "the launch of a graph takes 5 to 100 µs")
BETWEEN = Threshold(
    "longest gap between two graphs that are launched in time", 20_000, "ns", "what a device takes from one to the next"
)
FEWEST_GAPS = Threshold("fewest such gaps on a device", 50, "", "fewer are the start of phases")
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is the normal price of launches")

_IS_LATE = (
    (
        (pl.col("launched") >= pl.col("begin") - launch_bound.LAUNCHED_AHEAD.value)
        | (pl.col("start") - pl.col("launched") <= launch_bound.LATENCY.value)
    )
    & (pl.col("length") <= LONGEST_GAP.value)
    & (pl.col("launch_ns") + pl.col("other_cuda_ns") + pl.col("host") >= launch_bound.LAUNCHING.value * pl.col("length"))
)
_IS_BETWEEN = (pl.col("former_number") == event_types.GRAPH_EXECUTION) & (pl.col("length") <= BETWEEN.value)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with many such gaps."""
    costly = evidence.costly(evidence.gaps.by_device(KIND), FEWEST_GAPS, LEAST_LOST)
    devices = [stats for stats in costly if stats.sums["next_length"] <= launch_bound.LONGEST_KERNEL.value * stats.cost]
    if not devices:
        return None
    gaps, lost, graph = count(devices), cost(devices), total(devices, "next_length") / count(devices)
    late = total(devices, "late")
    text = (
        f"{gaps:,} gaps {on_devices(devices)}, {time(lost / gaps)} on average, before executions of CUDA graphs that take "
        f"{time(graph)}: in {late:,} of them the launch of the next graph comes too late, in the others it is what the device "
        "takes from one graph to the next"
    )
    numbers = (
        Number("gaps", gaps),
        Number("gaps in which the launch comes too late", late),
        Number("mean gap", lost / gaps, NANOSECONDS),
        Number("mean duration of the graphs behind them", graph, NANOSECONDS),
    )
    return Finding(text, devices, numbers)


RULE = FindingRule(
    kind=KIND,
    title="Small graphs: CUDA graphs are as short as what is between them",
    sees="short gaps before executions of CUDA graphs while the launching thread does nothing but launch, and between two of "
    "them that are launched in time",
    needs=(needs.CUDA_CALLS, needs.WHOLE_GRAPHS),
    cost="sum of the gaps, without the time in allocation calls",
    view="1-gpu-kernels/graph_executions",
    advice="Put more work into one graph: several iterations, conditional nodes; launch the next graph before the "
    "last one ends.",
    thresholds=(
        LONGEST_GAP,
        BETWEEN,
        launch_bound.LATENCY,
        launch_bound.LAUNCHING,
        FEWEST_GAPS,
        launch_bound.LONGEST_KERNEL,
        LEAST_LOST,
    ),
    judge=_judge,
    without=without.of_gaps(KIND),
    gap_cause=GapCause(
        (pl.col("number") == event_types.GRAPH_EXECUTION) & (_IS_LATE | _IS_BETWEEN),
        sums={"next_length": pl.col("next_length"), "late": _IS_LATE.cast(pl.Int64)},
    ),
)
