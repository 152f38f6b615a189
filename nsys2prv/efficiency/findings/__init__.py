"""Findings: typical causes of lost time in a run, with their numbers, where to look, and what people do about them.

The tables of a run and what is measured for rules enter; rows of the tables `findings`, `finding_devices` and
`finding_numbers` leave. A rule is a module in `patterns` and a line in `rule_registry`; those for runs without a GPU are in
`host_patterns`.
"""

from nsys2prv.efficiency.findings.engine import findings_of
from nsys2prv.efficiency.findings.host_engine import NO_DEVICES
from nsys2prv.efficiency.findings.host_patterns import HOST_RULES
from nsys2prv.efficiency.findings.host_rule import HostEvidence, HostRule
from nsys2prv.efficiency.findings.rule import GENERAL_THRESHOLDS, FindingRule, Threshold
from nsys2prv.efficiency.findings.rule_registry import RULES

__all__ = [
    "GENERAL_THRESHOLDS",
    "HOST_RULES",
    "NO_DEVICES",
    "RULES",
    "FindingRule",
    "HostEvidence",
    "HostRule",
    "Threshold",
    "findings_of",
]
