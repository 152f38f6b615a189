"""The efficiency model: formulas on times, nothing else.

Devices (sums and maxima over the n physical GPUs of a window of E ns; U useful, C communication outside U, A = U + C):

    Device Parallel Efficiency   sum U / (E n)
    = Load Balance               sum U / (n max U)
    x Communication Efficiency   max U / max A
    x Orchestration Efficiency   max A / E

Hosts (threads of processes that use a GPU; G in CUDA calls, M in MPI calls outside G, U the rest of E):

    Host Parallel Efficiency     sum U / sum (U + M + G)
    = MPI Parallel Efficiency    (E - mean M) / E
      = MPI Load Balance         (E - mean M) / (E - min M)
      x MPI Communication Eff.   (E - min M) / E
    x Device Offload Efficiency  sum U / sum (U + G)

Names and hierarchy follow the POP metrics (https://pop-coe.eu) and the TALP module of BSC's DLB. An efficiency without a
meaning, such as the balance of devices without useful work, is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceTree:
    """What the devices did in a window, and the tree of their efficiencies (0 to 1).

    Attributes
    ----------
    elapsed
        E, length of the window, ns.
    devices
        n, number of physical GPUs.
    useful, communication
        sum of U, sum of C, ns.
    max_useful, max_active
        The largest U and the largest A of a device, ns.
    """

    elapsed: int
    devices: int
    useful: int
    communication: int
    max_useful: int
    max_active: int

    @classmethod
    def of(cls, elapsed: int, useful: Sequence[int], communication: Sequence[int]) -> DeviceTree:
        """From U and C of each device, ns."""
        active = [u + c for u, c in zip(useful, communication, strict=True)]
        return cls(elapsed, len(useful), sum(useful), sum(communication), max(useful, default=0), max(active, default=0))

    @property
    def active(self) -> int:
        """sum of A, ns."""
        return self.useful + self.communication

    @property
    def parallel_efficiency(self) -> float | None:
        return _ratio(self.useful, self.elapsed * self.devices)

    @property
    def load_balance(self) -> float | None:
        return _ratio(self.useful, self.devices * self.max_useful)

    @property
    def communication_efficiency(self) -> float | None:
        return _ratio(self.max_useful, self.max_active)

    @property
    def orchestration_efficiency(self) -> float | None:
        return _ratio(self.max_active, self.elapsed)


@dataclass(frozen=True)
class ProcessTimes:
    """Host times of one process, summed over its threads that count, ns.

    Attributes
    ----------
    threads
        How many threads count.
    gpu_runtime, mpi
        G and M of these.
    """

    threads: int
    gpu_runtime: int
    mpi: int


@dataclass(frozen=True)
class HostTree:
    """What the hosts did in a window, and the tree of their efficiencies (0 to 1).

    Attributes
    ----------
    elapsed
        E times the number of threads: the sum of the windows of all of them, ns. E is their mean.
    processes, threads
        How many count.
    useful, gpu_runtime, mpi
        sums of U, G, M over threads, ns.
    min_mpi
        The smallest M of a process, as the mean over its threads, ns.
    has_mpi
        Whether there are MPI calls at all: without them the MPI rows are absent, not 100 %.
    """

    elapsed: int
    processes: int
    threads: int
    useful: int
    gpu_runtime: int
    mpi: int
    min_mpi: float
    has_mpi: bool

    @classmethod
    def of(cls, elapsed: int, processes: Sequence[ProcessTimes], *, has_mpi: bool) -> HostTree:
        """From the times of each process, and the sum of the windows of all their threads.

        The mean of M over processes weighs each with its threads, so that the product is exact also where processes have
        different numbers of them; with one thread each it is the plain mean.
        """
        threads = sum(one.threads for one in processes)
        runtime, mpi = sum(one.gpu_runtime for one in processes), sum(one.mpi for one in processes)
        means = [one.mpi / one.threads for one in processes if one.threads]
        useful = elapsed - runtime - mpi
        return cls(elapsed, len(processes), threads, useful, runtime, mpi, min(means, default=0.0), has_mpi)

    @property
    def parallel_efficiency(self) -> float | None:
        return _ratio(self.useful, self.useful + self.mpi + self.gpu_runtime)

    @property
    def device_offload_efficiency(self) -> float | None:
        return _ratio(self.useful, self.useful + self.gpu_runtime)

    @property
    def mpi_parallel_efficiency(self) -> float | None:
        return self._of_mpi(self.elapsed - self.mpi, self.elapsed)

    @property
    def mpi_load_balance(self) -> float | None:
        return self._of_mpi(self.elapsed - self.mpi, self.elapsed - self.min_mpi * self.threads)

    @property
    def mpi_communication_efficiency(self) -> float | None:
        return self._of_mpi(self.elapsed - self.min_mpi * self.threads, self.elapsed)

    def _of_mpi(self, part: float, whole: float) -> float | None:
        return _ratio(part, whole) if self.has_mpi else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
