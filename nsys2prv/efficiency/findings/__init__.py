"""Findings: the typical shapes of a run that costs time, with their numbers, their place and what people do about them.

Tables of a run, and what is measured for findings alone, enter; rows of the tables `findings`, `finding_devices` and
`finding_numbers` leave. A module per subject holds what is measured and the rules that judge it; what a rule takes for much or
little stands in `limits`, its words in `catalogue`.
"""

from nsys2prv.efficiency.findings.catalogue import RULES, Rule
from nsys2prv.efficiency.findings.devices import KERNELS_BY_DEVICE
from nsys2prv.efficiency.findings.engine import Findings
from nsys2prv.efficiency.findings.finding import Measured
from nsys2prv.efficiency.findings.limits import LIMITS, Limit

__all__ = ["KERNELS_BY_DEVICE", "LIMITS", "RULES", "Findings", "Limit", "Measured", "Rule"]
