"""Findings: typical causes of lost time in a run, with their numbers, where to look, and what people do about them.

The tables of a run and what was measured of it enter; rows of the tables `findings`, `finding_devices`, `finding_numbers` and
`finding_checks` leave."""

from nsys2prv.efficiency.findings.engine import HOST_RULES, RULES, findings_of
from nsys2prv.efficiency.findings.finding import Threshold
from nsys2prv.efficiency.findings.rule import GENERAL_THRESHOLDS, NO_DEVICES, FindingRule

__all__ = ["GENERAL_THRESHOLDS", "HOST_RULES", "NO_DEVICES", "RULES", "FindingRule", "Threshold", "findings_of"]
