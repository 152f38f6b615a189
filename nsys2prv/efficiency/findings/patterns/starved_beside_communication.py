"""Collectives that are exposed and not blocking: nothing computes beside them, because nothing is launched that could."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import cost, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, SHARE, Finding, Number
from nsys2prv.efficiency.findings.nccl_costs import by_collective, nccl_devices
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import Spans, without_gaps
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.vocabulary.wording import percent, time

STARVED_PART = Threshold(
    "least part of the time in which NCCL kernels run and nothing computes", 0.3, "0 to 1", "else the kernels do wait for them"
)
FEWEST_KERNELS = Threshold("fewest such NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters")
LEAST_LOST = Threshold("least share lost", 0.02, "0 to 1", "less is not worth a change of the program")


def _kernels(evidence: Evidence) -> pl.DataFrame | None:
    """NCCL kernels with their `cost`: the time beside them in which the device is launch-starved."""
    stretches, kernels = evidence.exposure.starved, evidence.exposure.kernels
    if stretches is None or stretches.is_empty() or kernels.is_empty():
        return None
    spans = Spans(stretches.select("begin", "end", group="device"), evidence.length)
    device, begin, end = (kernels[name].to_numpy() for name in ("device", "start", "end"))
    inside = spans.inside(device, begin, end.clip(max=evidence.length))
    return kernels.with_columns(cost=pl.Series(inside, dtype=pl.Int64))


def _judge(evidence: Evidence) -> Finding | None:
    kernels = _kernels(evidence)
    if kernels is None:
        return None
    exposed = dict(kernels.group_by("device").agg(pl.col("exposed").sum()).iter_rows())
    stats = [one for one in nccl_devices(kernels, evidence) if one.cost >= STARVED_PART.value * exposed.get(one.device, 0)]
    devices = evidence.costly(stats, FEWEST_KERNELS, LEAST_LOST, recurring=True)
    if not devices:
        return None
    of_devices = kernels.filter(pl.col("device").is_in([one.device for one in devices]))
    of_collectives, numbers = by_collective(of_devices, "nothing is launched beside it")
    lost, beside = cost(devices), int(of_devices["exposed"].sum())
    text = (
        f"NCCL kernels {on_devices(devices)} run for {time(beside)} while nothing computes; for {time(lost)} of it "
        f"({percent(lost / beside)}) no kernel that could run beside them is launched, and the host does not wait for the "
        f"device: {of_collectives}. A faster network would not win that"
    )
    numbers = [
        Number("NCCL kernels run, and nothing computes", beside, NANOSECONDS),
        Number("of it, nothing is launched", lost / beside, SHARE),
        *numbers,
    ]
    return Finding(text, devices, numbers)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
    """Launching threads take no time in these stretches."""
    stretches = evidence.exposure.starved
    if stretches is None:
        return None
    return Without(without_gaps(built, stretches.filter(pl.col("device").is_in([one.device for one in finding.devices]))))


RULE = FindingRule(
    kind="starved-beside-communication",
    title="Exposed, but not blocking: collectives run, and the next kernel is not launched",
    sees="time in which NCCL kernels run, nothing computes, and the next compute kernel is not launched yet, while its thread "
    "neither waits for the device nor copies, allocates or calls MPI; by communicator and operation",
    needs=(needs.CUDA_CALLS, needs.NCCL_KERNELS),
    cost="that time; where several NCCL kernels run at once it counts for each of their collectives, and once for the device "
    "in the time that is saved",
    view="3-communication/overlap_of_communication",
    advice="Launch what does not need the result before it is needed, from the same or another thread: no work of the host "
    "between the collective and the next kernel, CUDA graphs, prefetching of batches. The collective itself is not what "
    "costs time.",
    thresholds=(STARVED_PART, FEWEST_KERNELS, LEAST_LOST),
    judge=_judge,
    without=_without,
)
