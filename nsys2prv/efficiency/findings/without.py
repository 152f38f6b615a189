"""Graphs of the run without what several rules find."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.rule import Evidence, Without
from nsys2prv.efficiency.graph.changes import without_gaps, without_launches, without_waits
from nsys2prv.efficiency.graph.run_graph import BuiltGraph

WithoutFinding = Callable[[Evidence, Finding, BuiltGraph], Without | None]


def _gaps(kind: str, finding: Finding, evidence: Evidence) -> pl.DataFrame | None:
    return evidence.gaps.each({evidence.gaps.kinds.index(kind): _devices(finding)})


def _devices(finding: Finding) -> list[int]:
    return [one.device for one in finding.devices]


def of_gaps(kind: str) -> WithoutFinding:
    """Without the gaps of a rule: launching threads take no time in them."""

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        gaps = _gaps(kind, finding, evidence)
        return None if gaps is None else Without(without_gaps(built, gaps))

    return without


def of_waits(kind: str) -> WithoutFinding:
    """Without the waits for devices that end in the gaps of a rule; what the thread does after them stays."""

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        gaps = _gaps(kind, finding, evidence)
        return None if gaps is None else Without(without_waits(built, gaps))

    return without


def of_launches(kind: str) -> WithoutFinding:
    """Without the gaps of a rule, and without launch calls in all other gaps of the same devices."""

    def without(evidence: Evidence, finding: Finding, built: BuiltGraph) -> Without | None:
        gaps, others = (
            _gaps(kind, finding, evidence),
            evidence.gaps.each(dict.fromkeys(evidence.gaps.numbers, _devices(finding))),
        )
        if gaps is None or others is None:
            return None
        in_gaps, in_launches = without_gaps(built, gaps), without_launches(built, others)
        return Without(lambda window, weight: in_launches(window, in_gaps(window, weight)))

    return without
