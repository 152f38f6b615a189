"""Collectives that are hidden and blocking: kernels run beside them, and others that were launched wait for them."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.device_stats import cost, count, on_devices
from nsys2prv.efficiency.findings.finding import NANOSECONDS, Finding, Number
from nsys2prv.efficiency.findings.nccl_costs import by_collective, nccl_devices
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import without_collectives
from nsys2prv.efficiency.graph.run_graph import BuiltGraph
from nsys2prv.vocabulary.wording import time

FEWEST_KERNELS = Threshold("fewest such NCCL kernels on a device", 10, "", "few are a start: broadcasts of parameters")
LEAST_LOST = Threshold("least share of such time", 0.02, "0 to 1", "less is not worth a change of the program")


def _kernels(evidence: Evidence) -> pl.DataFrame:
    """NCCL kernels that are waited for while others hide them; the `cost` is how long."""
    kernels = evidence.exposure.kernels
    return kernels.with_columns(cost="hidden_wait") if kernels.height else kernels


def _judge(evidence: Evidence) -> Finding | None:
    kernels = _kernels(evidence)
    if kernels.is_empty():
        return None
    devices = evidence.costly(nccl_devices(kernels, evidence), FEWEST_KERNELS, LEAST_LOST, recurring=True)
    if not devices:
        return None
    of_devices = kernels.filter(pl.col("device").is_in([one.device for one in devices]))
    of_collectives, numbers = by_collective(of_devices, "hidden, and waited for")
    lost = cost(devices)
    text = (
        f"{count(devices):,} NCCL kernels {on_devices(devices)} run beside kernels that hide them, and others, which are "
        f"launched, wait for them for {time(lost)}: {of_collectives}. They could run beside what hides the collective"
    )
    numbers = [Number("launched kernels wait for hidden NCCL kernels", lost, NANOSECONDS), *numbers]
    return Finding(text, devices, numbers)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """These collectives take no time once all ranks are there."""
    chosen = _kernels(evidence).filter((pl.col("cost") > 0) & pl.col("device").is_in([one.device for one in finding.devices]))
    return Without(without_collectives(built, chosen.select("end", begin="start", group="row")), at_most=True)


RULE = FindingRule(
    kind="hidden-communication",
    title="Hidden, but blocking: launched kernels wait for collectives that others hide",
    sees="NCCL kernels beside which compute kernels run, while another compute kernel is launched and waits for them, next in "
    "its stream or by an event; by communicator and operation",
    needs=(needs.CUDA_CALLS, needs.NCCL_KERNELS),
    cost="of each such NCCL kernel the time from when it alone is waited for, as far as other kernels run beside it; saved is "
    "what a replay gains in which these collectives take no time once all ranks are there",
    view="3-communication/overlap_of_communication",
    advice="The overlap only looks complete: put what does not need the collective before what does, on another stream; start "
    "the collective earlier, in smaller pieces, or with higher priority of its stream.",
    thresholds=(FEWEST_KERNELS, LEAST_LOST),
    judge=_judge,
    without=_without,
)
