"""What runs of a comparison are measured by: their GPUs, or the processes of hosts where a run uses no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nsys2prv.errors import counted
from nsys2prv.vocabulary.wording import listed

GPU, PROCESS = "GPU", "process"


@dataclass(frozen=True)
class ComparisonBasis:
    """Columns of the table `run` that runs are compared by.

    Attributes
    ----------
    per
        GPU or PROCESS.
    size, useful, efficiency
        How many there are, their useful time, and the efficiency that is the root of their tree.
    has_mpi
        Whether all runs have MPI calls.
    is_same_work
        Whether useful times are those of the same work: not of a run on GPUs and one on hosts, and not where the time of hosts
        that is no MPI call is not known to be work.
    not_compared
        What can't be compared, in one sentence; None: everything can.
    """

    per: str
    size: str
    useful: str
    efficiency: str
    is_same_work: bool
    has_mpi: bool
    not_compared: str | None = None

    @property
    def is_of_hosts(self) -> bool:
        """Whether processes of hosts are compared."""
        return self.per == PROCESS


def comparison_basis(runs: Mapping[str, Mapping[str, Any]]) -> ComparisonBasis:
    """What runs are compared by, from their rows of the table `run` by their letters."""
    has_mpi = all(run["mpi_parallel_efficiency"] is not None for run in runs.values())
    with_gpus = [name for name, run in runs.items() if run["devices"]]
    without = [name for name in runs if name not in with_gpus]
    if not without:
        return ComparisonBasis(GPU, "devices", "useful_ns", "device_parallel_efficiency", is_same_work=True, has_mpi=has_mpi)
    not_compared = None
    if with_gpus:
        not_compared = (
            f"{_using(with_gpus)} GPUs and {_using(without)} none: efficiencies of GPUs, kernels, copies, idle GPUs and useful "
            f"time can't be compared; what is compared is of hosts: wall time, and calls of CUDA, MPI and the OS"
        )
    of_hosts = "processes", "host_useful_ns", "host_parallel_efficiency"
    is_same_work = has_mpi and not with_gpus
    return ComparisonBasis(PROCESS, *of_hosts, is_same_work=is_same_work, has_mpi=has_mpi, not_compared=not_compared)


def _using(names: list[str]) -> str:
    return f"{listed(names)} {'uses' if len(names) == 1 else 'use'}"


def counted_per(number: int, per: str) -> str:
    """A number of GPUs or processes.

    >>> counted_per(1, PROCESS), counted_per(4, PROCESS), counted_per(2, GPU)
    ('1 process', '4 processes', '2 GPUs')
    """
    return counted(number, per) if per != PROCESS or number == 1 else f"{number:,} processes"


def plural(per: str) -> str:
    """GPUs or processes."""
    return "processes" if per == PROCESS else "GPUs"
