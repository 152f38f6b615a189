"""Findings: the typical shapes of a run that costs time, with their numbers, their place and what people do about them.

Tables of a run, and what is measured for findings alone (`evidence`), enter; rows of the tables `findings` and
`finding_numbers` leave (`rules`). What a rule takes for much or little stands in `limits`.
"""

from nsys2prv.analysis.findings.evidence import Evidence
from nsys2prv.analysis.findings.rules import RULES, find

__all__ = ["RULES", "Evidence", "find"]
