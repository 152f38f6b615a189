"""All rules over a run: what they measure while it is swept, and the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from nsys2prv.efficiency.findings.finding_tables import finding_tables
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk


class Findings:
    """Measures for all rules, and judges at the end."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._gaps = GapCauses(context, {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None})
        self._meters = {meter: meter(context) for rule in RULES for meter in rule.meters}

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk; chunks come in the order of time."""
        for meter in self._meters.values():
            meter.update(chunk)

    def update_gaps(self, gaps: pl.DataFrame) -> None:
        """Add gaps, as `Gaps` passes them to its listener."""
        self._gaps.update(gaps)

    def tables(
        self,
        tables: Mapping[str, pl.DataFrame],
        activity: tuple[Sequence[int], Sequence[int]],
        *,
        kernels_by_device: pl.DataFrame,
        transfers: pl.DataFrame,
    ) -> Filled:
        """The tables of findings, most costly first; parameters as of `Evidence`."""
        evidence = Evidence(self._context, tables, *activity, self._gaps, self._meters, kernels_by_device, transfers)
        least = max(LEAST_COST.value, LEAST_SHARE.value * evidence.length * evidence.devices)
        judged = [(rule, evidence.finding(rule)) for rule in RULES]
        costly = [(rule, finding) for rule, finding in judged if finding is not None and finding.cost >= least]
        # Sorting is stable: of the same cost, the earlier rule comes first.
        return finding_tables(sorted(costly, key=lambda pair: -pair[1].cost), evidence)
