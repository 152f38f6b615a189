"""All rules for runs without a GPU, and the tables of findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nsys2prv.efficiency.findings.finding_tables import FINDING_CHECKS, FINDING_NUMBERS, FINDINGS
from nsys2prv.efficiency.findings.host_patterns import HOST_RULES
from nsys2prv.efficiency.findings.host_rule import HostEvidence, HostFinding, HostRule
from nsys2prv.efficiency.findings.rule import LEAST_COST, LEAST_SHARE
from nsys2prv.efficiency.findings.rule_registry import RULES
from nsys2prv.efficiency.result_tables import Filled
from nsys2prv.vocabulary.wording import ranges, time

NO_DEVICES = "no process uses a GPU"


def host_findings(evidence: HostEvidence) -> Filled:
    """The tables of findings of a run without a GPU; rules for GPUs can't decide, for the reason NO_DEVICES."""
    least = max(LEAST_COST.value, LEAST_SHARE.value * evidence.length)
    checks = [{"kind": rule.kind, "title": rule.title, "result": "not decidable", "reason": NO_DEVICES} for rule in RULES]
    found: list[tuple[HostRule, HostFinding]] = []
    for rule in HOST_RULES:
        reason = next((why for need in rule.needs if (why := need.missing(evidence)) is not None), None)
        finding = rule.judge(evidence) if reason is None else None
        result = "not found" if reason is None else "not decidable"
        if finding is not None and finding.saved >= least:
            found.append((rule, finding))
            result = "found"
        elif finding is not None:
            reason = f"it costs {time(finding.saved)}, less than is worth a look"
        checks.append({"kind": rule.kind, "title": rule.title, "result": result, "reason": reason or ""})
    shown = {rule.kind for rule, _ in found}
    found.sort(key=lambda pair: (pair[1].follows in shown, -pair[1].saved))
    numbered = [({"place": place, "kind": rule.kind}, rule, one) for place, (rule, one) in enumerate(found, start=1)]
    return {
        FINDING_CHECKS: [{**check, "reason": check["reason"] or None} for check in checks],
        FINDINGS: [{**key, **_row(rule, one, evidence, shown)} for key, rule, one in numbered],
        FINDING_NUMBERS: [
            {**key, "number": number.what, "value": float(number.value), "unit": number.unit}
            for key, _, one in numbered
            for number in one.numbers
        ],
    }


def _row(rule: HostRule, finding: HostFinding, evidence: HostEvidence, shown: set[str]) -> Mapping[str, Any]:
    rows, worst = evidence.context.events.rows, finding.tasks[0]
    ranks = [rank for task in finding.tasks if (rank := rows.tasks[task].rank) is not None]
    threads = [rows.names[row].strip() for row in evidence.context.callers if int(rows.task[row]) == worst]
    return {
        "title": rule.title,
        "seen": finding.text,
        "saved_ns": min(finding.saved, evidence.length),
        "saved_how": finding.how,
        "saved_share": min(finding.saved, evidence.length) / evidence.length if evidence.length else None,
        "consequence_of": finding.follows if finding.follows in shown else None,
        "cost_ns": finding.cost,
        "share": finding.cost / (evidence.length * len(evidence.processes)),
        "devices": 0,
        "device": None,
        "tasks": evidence.name(worst),
        "ranks": ranges(ranks) if ranks else None,
        "rows": "; ".join(dict.fromkeys(threads)),
        "begin_ns": finding.span[0],
        "end_ns": finding.span[1],
        "worst_begin_ns": finding.worst[0],
        "worst_end_ns": finding.worst[1],
        "view": rule.view,
        "advice": rule.advice,
    }
