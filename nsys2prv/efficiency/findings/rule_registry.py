"""All rules of findings. A new rule is a module in `patterns`, and a line here.

A gap counts for the first rule in this order that it matches; findings of the same cost are in this order.
"""

from __future__ import annotations

from nsys2prv.efficiency.findings.patterns import (
    allocations,
    clock_throttling,
    contention_slowdown,
    data_loading,
    default_stream,
    exposed_communication,
    host_bound,
    imbalance,
    launch_bound,
    pageable_copies,
    slow_device,
    small_copies,
    synchronization_stalls,
)
from nsys2prv.efficiency.findings.rule import FindingRule

RULES: tuple[FindingRule, ...] = (
    synchronization_stalls.RULE,
    data_loading.RULE,
    small_copies.RULE,
    launch_bound.RULE,
    host_bound.RULE,
    allocations.RULE,
    pageable_copies.RULE,
    default_stream.RULE,
    exposed_communication.RULE,
    contention_slowdown.RULE,
    slow_device.RULE,
    imbalance.RULE,
    clock_throttling.RULE,
)
