"""All rules over a run: what they measure while it is swept, and the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.finding_tables import finding_tables, saved
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence, FindingRule
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.meters.lost_work import LostWork
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.efficiency.run_events import ON_DEVICES
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary import event_types
from nsys2prv.vocabulary.wording import time


class Findings:
    """Measures for all rules, and judges at the end."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._gaps = GapCauses(context, {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None})
        self._meters = {meter: meter(context) for rule in RULES for meter in rule.meters}
        self._launches, self._graphs = 0, 0

    def update(self, chunk: TimeChunk) -> None:
        """Add a chunk; chunks come in the order of time."""
        for meter in self._meters.values():
            meter.update(chunk)
        started = chunk.started[ON_DEVICES.name]
        # A call before the window is on no row of it.
        inside = chunk.launches.filter(pl.col("time") >= 0)
        self._launches += inside.join(started, left_on=["to_row", "to_time"], right_on=["row", "start"], how="semi").height
        self._graphs += int((started["number"] == event_types.GRAPH_EXECUTION).sum())

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
        collectives: pl.DataFrame,
        contradictions: Mapping[int, str],
        lost_work: LostWork,
    ) -> Filled:
        """The tables of findings, those first that cost the run most; parameters as of `Evidence`."""
        evidence = Evidence(
            self._context,
            tables,
            *activity,
            self._gaps,
            self._meters,
            kernels_by_device,
            transfers,
            collectives,
            contradictions,
            lost_work,
            has_launches=self._launches > 0,
            has_graphs=self._graphs > 0,
        )
        least = max(LEAST_COST.value, LEAST_SHARE.value * evidence.length)
        found: list[tuple[FindingRule, Finding]] = []
        checks: list[Mapping[str, str | None]] = []
        for rule in RULES:
            finding, reason = evidence.finding(rule), evidence.missing(rule)
            result = "not decidable" if reason is not None else "not found"
            if finding is not None and saved(finding, evidence) >= least:
                found.append((rule, finding))
                result = "found"
            elif finding is not None:
                reason = f"it costs {time(saved(finding, evidence))}, less than is worth a look"
            checks.append({"kind": rule.kind, "title": rule.title, "result": result, "reason": reason})
        shown = {rule.kind for rule, _ in found}
        found = [(rule, finding if finding.follows in shown else replace(finding, follows=None)) for rule, finding in found]
        # Sorting is stable: of the same cost, the earlier rule comes first.
        found.sort(key=lambda pair: (pair[1].follows is not None, -saved(pair[1], evidence)))
        return finding_tables(found, checks, evidence)
