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
    exposed_copies,
    full_queue,
    hidden_communication,
    host_bound,
    idle_devices,
    idle_tensor_cores,
    imbalance,
    launch_bound,
    launch_stalls,
    little_gpu_work,
    mpi_waits,
    page_migrations,
    pageable_copies,
    shut_down,
    slow_device,
    small_copies,
    small_graphs,
    start_up,
    starved_beside_communication,
    straggler,
    synchronization_stalls,
    synchronous_copies,
    unequal_work,
)
from nsys2prv.efficiency.findings.rule import FindingRule

_OF_CAUSES: tuple[FindingRule, ...] = (
    synchronization_stalls.RULE,
    data_loading.RULE,
    small_copies.RULE,
    small_graphs.RULE,
    launch_bound.RULE,
    launch_stalls.RULE,
    full_queue.RULE,
    mpi_waits.RULE,
    synchronous_copies.RULE,
    host_bound.RULE,
    allocations.RULE,
    pageable_copies.RULE,
    exposed_copies.RULE,
    page_migrations.RULE,
    default_stream.RULE,
    exposed_communication.RULE,
    starved_beside_communication.RULE,
    hidden_communication.RULE,
    contention_slowdown.RULE,
    slow_device.RULE,
    unequal_work.RULE,
    imbalance.RULE,
    clock_throttling.RULE,
    idle_tensor_cores.RULE,
    little_gpu_work.RULE,
    start_up.RULE,
    shut_down.RULE,
)

RULES: tuple[FindingRule, ...] = (*_OF_CAUSES, straggler.straggler_rule(_OF_CAUSES), idle_devices.idle_rule(_OF_CAUSES))
