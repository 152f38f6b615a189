"""Causes of lost time, one at a time: a cluster becomes one with the cause. Its cost is the difference of the two runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from support.simulated_run.cluster import ASYNCHRONOUS, HALO, SYNCHRONOUS, Cluster

MS = 1_000_000


def with_machine(cluster: Cluster, **costs: Any) -> Cluster:
    """The cluster with other costs of its machine."""
    return replace(cluster, machine=cluster.machine._replace(**costs))


def _slower_launches(cluster: Cluster) -> Cluster:
    machine = cluster.machine
    return with_machine(cluster, launch_call=5 * machine.launch_call, launch_latency=2 * machine.launch_latency)


SLOW_RANK = 2
"""Where a cause is of one rank."""

CAUSES: Mapping[str, Callable[[Cluster], Cluster]] = {
    "slow network": lambda cluster: with_machine(cluster, transfer_factor=3 * cluster.machine.transfer_factor),
    "network": lambda cluster: with_machine(cluster, transfer_factor=3.0),
    "late rank": lambda cluster: replace(cluster, late_rank=(SLOW_RANK, 3 * MS)),
    "late ranks in turn": lambda cluster: replace(cluster, late_rank=(SLOW_RANK, 3 * MS), rotating=True),
    "slow kernels": lambda cluster: replace(cluster, slow_kernel=("attention", 2.0)),
    "slow GPU": lambda cluster: replace(cluster, slow_gpu=(SLOW_RANK, 1.5)),
    "slow loading": lambda cluster: replace(cluster, slow_loading=((), 5 * MS)),
    "slow loading of a rank": lambda cluster: replace(cluster, slow_loading=((SLOW_RANK,), 5 * MS)),
    "launch-bound": _slower_launches,
    "unequal work": lambda cluster: replace(cluster, unequal=("gemm", 1.5, (SLOW_RANK,))),
    "synchronous copies": lambda cluster: replace(cluster, results=SYNCHRONOUS),
    "pageable copies": lambda cluster: replace(cluster, pageable_copies=True),
    "allocations": lambda cluster: replace(cluster, allocations=(300_000, 200_000)),
    "lazy loading": lambda cluster: replace(cluster, lazy_loading=8 * MS),
    "unified memory": lambda cluster: replace(cluster, migrations=(20, 8_000)),
    "small graphs": lambda cluster: replace(cluster, small_graphs=400),
    "full queue": lambda cluster: with_machine(cluster, queue=1_024),
    "late for MPI_Allreduce": lambda cluster: replace(cluster, late_for_reduction=(SLOW_RANK, 3 * MS)),
    "long start-up": lambda cluster: replace(cluster, start_up=400 * MS),
}
"""Of each cause: what it makes of a cluster."""

_SETTINGS: Mapping[str, Callable[[Cluster], Cluster]] = {
    "network": lambda cluster: with_machine(cluster, transfer_factor=0.0),
    "launch-bound": lambda cluster: replace(cluster, kernel_factor=0.02),
    "synchronous copies": lambda cluster: replace(cluster, results=ASYNCHRONOUS),
    "small graphs": lambda cluster: replace(cluster, small_graphs=1),
    "full queue": lambda cluster: with_machine(replace(cluster, launches_ahead=3_000, iterations=1), queue=None),
    "late for MPI_Allreduce": lambda cluster: replace(cluster, pattern=HALO),
}
"""Of some causes: the cluster in which they show, still without them."""


def with_and_without(cluster: Cluster, cause: str) -> tuple[Cluster, Cluster]:
    """The cluster with a cause of CAUSES, and the same without it."""
    without = _SETTINGS[cause](cluster) if cause in _SETTINGS else cluster
    return CAUSES[cause](without), without
