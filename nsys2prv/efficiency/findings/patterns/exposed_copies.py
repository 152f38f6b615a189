"""Exposed copies: nothing computes while copies run that could overlap: pinned, between devices, and inside a device."""

from __future__ import annotations

import polars as pl

from nsys2prv.efficiency.findings import needs
from nsys2prv.efficiency.findings.copy_times import FEWEST_COPIES, SMALLEST_COPY, CopyTimes, exposed_copies
from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.rule import Evidence, FindingRule, Threshold, Without
from nsys2prv.efficiency.graph.changes import faster_copies
from nsys2prv.efficiency.graph.run_graph import BuiltGraph

EXPOSED_PART = Threshold("least part of the time of these copies beside no kernel", 0.3, "0 to 1", "the rest overlaps")
LEAST_LOST = Threshold("least share lost", 0.05, "0 to 1", "one copy of a batch per iteration is normal")


class LargeCopies(CopyTimes):
    """Large copies, but those from and to pageable memory and those of unified memory."""

    matches = ~pl.col("is_pageable") & (pl.col("size") >= SMALLEST_COPY.value)
    kinds = (1, 2, 3, 4, 5, 6, 7, 8, 10)
    keeps_each = True


def _judge(evidence: Evidence) -> Finding | None:
    """Devices with such copies again and again, or for long."""
    return exposed_copies(evidence, LargeCopies, LEAST_LOST, exposed=EXPOSED_PART)


def _without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without:
    """The copies take no time, as if all of it overlapped."""
    return Without(faster_copies(built, evidence.meter(LargeCopies).each(finding.devices), 0), at_most=True)


RULE = FindingRule(
    kind="exposed-copies",
    title="Exposed copies: nothing computes while copies run that could overlap",
    sees="large copies, but those of pageable and of unified memory, beside which no kernel runs",
    needs=(needs.MEMORY_KINDS,),
    cost="time of the copies in which no kernel runs",
    view="7-memory/overlap_of_copies",
    advice="Copy the next batch on a separate stream while the device computes; fuse copies inside the device into kernels; "
    "keep data on the device.",
    thresholds=(SMALLEST_COPY, EXPOSED_PART, FEWEST_COPIES, LEAST_LOST),
    judge=_judge,
    meters=(LargeCopies,),
    without=_without,
)
