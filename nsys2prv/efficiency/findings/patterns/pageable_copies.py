"""Copies from and to pageable memory that should be pinned."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import FEWEST_COPIES, SMALLEST_COPY, CopyTimes, exposed_copies
from nsys2prv.efficiency.findings.finding import Finding, Number
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import faster_copies
from nsys2prv.efficiency.graph.run_graph import BuiltGraph

LEAST_LOST = Threshold("least share lost", 0.01, "0 to 1", "they are easily avoided")


class PageableCopies(CopyTimes):
    """Large copies from and to pageable memory."""

    matches = pl.col("is_pageable") & (pl.col("size") >= SMALLEST_COPY.value)
    keeps_each = True


class PinnedCopies(CopyTimes):
    """Large copies from and to pinned memory."""

    matches = ~pl.col("is_pageable") & (pl.col("size") >= SMALLEST_COPY.value)


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such copies again and again."""
    finding = exposed_copies(evidence, PageableCopies, LEAST_LOST, which=" between device and pageable memory")
    factor = _factor(evidence)
    if finding is None or factor is None:
        return finding
    text = f"{finding.text}; pinned copies of this run take {factor:.2f} times as long for each byte"
    numbers = (*finding.numbers, Number("time of pinned copies of this run for each byte, against these", factor))
    return replace(finding, text=text, numbers=numbers)


def _factor(evidence: Evidence) -> float | None:
    """Time per byte of pinned copies against that of pageable ones; None: there are no pinned ones."""
    pageable, pinned = evidence.meter(PageableCopies).slowness, evidence.meter(PinnedCopies).slowness
    return pinned / pageable if pageable and pinned is not None else None


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The copies are as fast as pinned ones of the run, and no call waits for them; without pinned ones they take no time."""
    factor = _factor(evidence)
    copies = evidence.meter(PageableCopies).each(finding.devices)
    return Without(faster_copies(built, copies, min(factor or 0.0, 1.0)), at_most=factor is None)


RULE = FindingRule(
    kind="pageable-copies",
    title="Pageable copies that should be pinned",
    sees="large copies between device and pageable memory, again and again",
    needs=(needs.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/copy_source",
    advice="Pinned memory (cudaMallocHost, pin_memory=True with non_blocking=True): copies are faster, and overlap with "
    "kernels.",
    thresholds=(SMALLEST_COPY, FEWEST_COPIES, LEAST_LOST),
    judge=_judge,
    meters=(PageableCopies, PinnedCopies),
    without=_without,
)
