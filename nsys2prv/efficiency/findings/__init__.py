"""Findings: typical causes of lost time in a run, with their numbers, where to look, and what people do about them.

The tables of a run and what is measured for rules enter; rows of the tables `findings`, `finding_devices` and
`finding_numbers` leave. A rule is a module in `patterns` and a line in `rule_registry`.
"""

from nsys2prv.efficiency.findings.engine import Findings, nothing_judged
from nsys2prv.efficiency.findings.rule import GENERAL_THRESHOLDS, FindingRule, Threshold
from nsys2prv.efficiency.findings.rule_registry import RULES

__all__ = ["GENERAL_THRESHOLDS", "RULES", "FindingRule", "Findings", "Threshold", "nothing_judged"]
