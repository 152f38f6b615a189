"""All rules over a run: what they measure while it is swept, and the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nsys2prv.efficiency.findings.finding import Finding
from nsys2prv.efficiency.findings.gap_causes import GapCauses
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE, Evidence, FindingRule
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.sweep import SweepContext, TimeChunk
from nsys2prv.vocabulary.wording import ranges


class Findings:
    """Measures for all rules, and judges at the end."""

    def __init__(self, context: SweepContext) -> None:
        self._context = context
        self._gaps = GapCauses(context, {rule.kind: rule.gap_cause for rule in RULES if rule.gap_cause is not None})
        self._meters = {meter: meter(context) for rule in RULES for meter in rule.meters}

    def update(self, chunk: TimeChunk) -> None:
        """Add what is in a chunk."""
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
        arrivals: pl.DataFrame,
    ) -> dict[str, list[dict[str, Any]]]:
        """Rows of the tables of findings, most costly first; parameters as of `Evidence`."""
        evidence = Evidence(
            self._context,
            tables,
            activity,
            self._gaps,
            self._meters,
            kernels_by_device=kernels_by_device,
            arrivals=arrivals,
        )
        least = max(LEAST_COST.value, LEAST_SHARE.value * evidence.length * evidence.devices)
        judged = [(rule, evidence.finding(rule)) for rule in RULES]
        costly = [(rule, finding) for rule, finding in judged if finding is not None and finding.cost >= least]
        # Sorting is stable: of the same cost, the earlier rule comes first.
        costly.sort(key=lambda pair: -pair[1].cost)
        rows: dict[str, list[dict[str, Any]]] = {"findings": [], "finding_devices": [], "finding_numbers": []}
        for place, (rule, finding) in enumerate(costly, start=1):
            key = {"place": place, "kind": rule.kind}
            rows["findings"].append({**key, **_finding_row(rule, finding, evidence)})
            rows["finding_devices"] += [
                {
                    **key,
                    "device": evidence.device_name(one.device),
                    "count": one.count,
                    "cost_ns": one.cost,
                    "begin_ns": one.begin,
                    "end_ns": one.end,
                    "worst_begin_ns": one.worst[0],
                    "worst_end_ns": one.worst[1],
                }
                for one in sorted(finding.devices, key=lambda one: (-one.cost, one.device))
            ]
            rows["finding_numbers"] += [
                {**key, "number": number.what, "value": float(number.value), "unit": number.unit} for number in finding.numbers
            ]
        return rows


def _finding_row(rule: FindingRule, finding: Finding, evidence: Evidence) -> dict[str, Any]:
    rows, worst = evidence.context.recording.rows, finding.worst
    tasks = [task for one in finding.devices for task in rows.tasks_of_device.get(one.device, ())]
    ranks = [rank for task in tasks if (rank := rows.tasks[task].rank) is not None]
    return {
        "title": rule.title,
        "seen": finding.text,
        "cost_ns": finding.cost,
        "share": finding.cost / (evidence.length * evidence.devices),
        "devices": len(finding.devices),
        "device": evidence.device_name(worst.device),
        "tasks": "; ".join(rows.tasks[task].name for task in rows.tasks_of_device.get(worst.device, ())),
        "ranks": ranges(ranks) if ranks else None,
        "rows": "; ".join(dict.fromkeys(rows.names[row].strip() for row in worst.rows)),
        "begin_ns": min(one.begin for one in finding.devices),
        "end_ns": max(one.end for one in finding.devices),
        "worst_begin_ns": worst.worst[0],
        "worst_end_ns": worst.worst[1],
        "view": rule.view,
        "advice": rule.advice,
    }
