"""Units of sampled metrics of GPUs, by their names."""

from __future__ import annotations

import re

PERCENTAGE = r"(?i)%|^[^\[]*\b(?:active|issue|throughput|bandwidth|utilization|in flight)$"
"""Names without a unit are those of older exports, where all but clocks are percentages; "[Throughput %]" is a newer one."""
_BRACKETS = re.compile(r"\[[^\[\]]*?([^\[\] ]+)\]\s*$")
_CLOCK = re.compile(r"clock|frequency", re.IGNORECASE)
_LONGEST = 16


def unit_of_metric(name: str) -> str:
    """The unit of a metric: what its name has in brackets, `%`, `Hz`, or "" where it is not known.

    >>> [unit_of_metric(name) for name in ("SM Active", "GPC Clock Frequency [MHz]", "SMs Active [Throughput %]", "SYS Clock")]
    ['%', 'MHz', '%', 'Hz']
    >>> unit_of_metric("Unallocated Warps in Active SMs")
    ''
    """
    if found := _BRACKETS.search(name):
        return found[1][:_LONGEST]
    return "%" if re.search(PERCENTAGE, name) else "Hz" if _CLOCK.search(name) else ""
